"""A base is a directory or a pinned commit; the embedded Hub plays the real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hubtools.checkpoint.base import resolve_base
from hubtools.errors import UsageError
from hubtools.localhub.server import running

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SCRIPT = """
import json, sys
from hubtools.checkpoint.base import resolve_base
from hubtools.errors import HubtoolsError
for ref in sys.argv[1:]:
    try:
        print(json.dumps({"path": str(resolve_base(ref))}))
    except HubtoolsError as error:
        print(json.dumps(error.to_json()))
"""
UPLOAD = """
import sys
from huggingface_hub import HfApi
api = HfApi()
for repo, private in (("local/base", False), ("local/secret", True)):
    api.create_repo(repo, private=private)
    api.upload_folder(repo_id=repo, folder_path=sys.argv[1])
print(api.model_info("local/base").sha)
"""


def python(script: str, *argv: str, **env: str) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", script, *argv],
        env=kept | {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"} | env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def answers(*refs: str, **env: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in python(SCRIPT, *refs, **env)]


def test_a_directory_is_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_base(str(tmp_path)) == tmp_path
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert resolve_base(f"~/{tmp_path.name}") == tmp_path


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ("/no/such/place", "neither a directory nor a Hub repo"),
        ("base", "neither a directory nor a Hub repo"),
        ("owner/name", "no revision given"),
        ("owner/name@main", "revision 'main' is not a commit"),
        ("owner/name@" + COMMIT[:12], "is not a commit"),
        ("owner/name@" + COMMIT.upper(), "is not a commit"),
    ],
)
def test_what_is_not_pinned(ref: str, words: str) -> None:
    with pytest.raises(UsageError, match="HT121") as caught:
        resolve_base(ref)
    assert words in caught.value.message
    assert caught.value.next


def test_a_branch_as_revision() -> None:
    with pytest.raises(UsageError, match="HT121"):
        resolve_base("owner/name", "main")


def test_from_a_hub(made: Any, tmp_path: Path) -> None:
    base, _ = made()
    home = {"HF_HOME": str(tmp_path / "home")}
    with running(tmp_path / "hub", log=tmp_path / "log") as hub:
        there = home | {"HF_ENDPOINT": hub.url}
        commit = python(UPLOAD, str(base), HF_TOKEN=hub.token, **there)[-1]
        refs = [f"local/base@{commit}", f"local/base@{COMMIT}", f"local/secret@{commit}"]
        found, no_commit, no_repo = answers(*refs, **there)
    assert (Path(found["path"]) / "model.safetensors").read_bytes() == (
        base / "model.safetensors"
    ).read_bytes()
    assert (no_commit["id"], no_repo["id"]) == ("HT122", "HT122")
    assert "no such commit" in no_commit["message"]
    assert "private one" in no_repo["message"]
    (cached, elsewhere) = answers(refs[0], refs[1], HF_HUB_OFFLINE="1", **home)
    assert cached == found
    assert (elsewhere["id"], elsewhere["where"]) == ("HT122", refs[1])
    assert elsewhere["message"].endswith("HF_HUB_OFFLINE is set")
    begin = time.monotonic()
    (cached, elsewhere) = answers(refs[0], refs[1], **there)
    assert time.monotonic() - begin < 15  # the client's own retries take 23 s
    assert cached == found
    assert elsewhere["message"].endswith(f"no Hub answers at {there['HF_ENDPOINT']}")
