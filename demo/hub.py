"""The base model on the embedded Hub, put there as anyone would: with `hf upload`."""

from __future__ import annotations

from typing import Any

from demo import base
from demo.shell import Shell
from demo.state import Made, State
from hubtools.localhub.server import LocalHub

ROOT = "hub"


def publish_base(state: State, hub: LocalHub, shell: Shell, weights: str) -> dict[str, Any]:
    """Upload `base/`.

    Args:
        state: where the demo lives.
        hub: the running Hub.
        shell: runs commands against it.
        weights: digest of the base's weights.

    Returns:
        `{revision}`: the commit by which the manifest pins the base.
    """
    # A Hub directory that was made anew has another token: then the base is not on it.
    inputs = {"weights": weights, "hub": state.digests.sha256(hub.root / "token")}

    def work() -> Made:
        from huggingface_hub import HfApi

        shell.run("hf", "upload", base.REPO, str(state.root / base.FOLDER), hide_output=True)
        info = HfApi(endpoint=hub.url, token=hub.token).model_info(base.REPO)
        return [], {"revision": info.sha}

    return state.once("publish", "base model on the embedded Hub", inputs, work)
