"""What a Hub holds and what a project remembers, in a form that two runs can be compared in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from hubtools.localhub.server import LocalHub
from hubtools.release.store import Store


def remote_state(hub: LocalHub, repos: list[str]) -> dict[str, Any]:
    """Visibility, commit titles and the object id of every file, repo by repo."""
    api = HfApi(endpoint=hub.url, token=hub.token)
    state = {}
    for repo in repos:
        info = api.model_info(repo, files_metadata=True)
        state[repo] = {
            "private": info.private,
            "commits": [commit.title for commit in api.list_repo_commits(repo)],
            "files": {f.rfilename: (f.size, f.blob_id) for f in info.siblings or ()},
        }
    return state


def store_state(root: Path) -> dict[str, Any]:
    """Every record of the store by stage and key, outputs included."""
    store = Store(root / ".hubtools" / "store")
    return {
        f"{stage}/{key}": json.loads(store.path(stage, key).read_bytes())
        for stage, key in store.keys()
    }
