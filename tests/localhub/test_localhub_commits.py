"""Landing commits without a server in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from localhub_client import regular

from hubtools.localhub.accounts import Caller
from hubtools.localhub.commits import Draft, land
from hubtools.localhub.failures import ApiFailure
from hubtools.localhub.history import lfs_blob
from hubtools.localhub.repos import create
from hubtools.localhub.state import Hub, open_hub

ME = Caller("local", "write", admin=True)
REPO = ("model", "lab", "same")


def started(root: Path, now: int) -> Hub:
    hub = open_hub(root, "http://localhost", clock=lambda: now)
    create(hub, ME, {"name": "same", "organization": "lab"})
    return hub


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Hub]:
    hub = started(tmp_path, 1_700_000_000)
    yield hub
    hub.database.close()


def test_history_depends_on_content_and_time_alone(tmp_path: Path) -> None:
    heads = []
    for side, now in (("a", 1_700_000_000), ("b", 1_700_000_000), ("c", 1_700_000_001)):
        hub = started(tmp_path / side, now)
        draft = Draft(hub.objects)
        for line in ({"key": "header", "value": {"summary": "s"}}, regular("a", b"1")):
            draft.feed(json.dumps(line).encode())
        heads.append(land(hub, ME, REPO, "main", draft))
        hub.database.close()
    assert heads[0] == heads[1] != heads[2]


def test_a_folder_that_is_too_full(fresh: Hub) -> None:
    blob = lfs_blob(fresh.objects.put(b"x"), 1)
    draft = Draft(fresh.objects, "s", None, [(f"d/{i}", blob) for i in range(10_001)])
    with pytest.raises(ApiFailure, match="folder d would hold 10001 entries"):
        land(fresh, ME, REPO, "main", draft)
    draft.changes.pop()
    assert land(fresh, ME, REPO, "main", draft)


@pytest.mark.parametrize("revision", ["nope", "refs/pr/1", "0" * 40, "refs/tags/v1"])
def test_commits_go_to_branches(fresh: Hub, revision: str) -> None:
    with pytest.raises(ApiFailure) as caught:
        land(fresh, ME, REPO, revision, Draft(fresh.objects, "s"))
    assert caught.value.code == "RevisionNotFound"


def test_a_payload_without_header(fresh: Hub) -> None:
    with pytest.raises(ApiFailure, match="no header line"):
        land(fresh, ME, REPO, "main", Draft(fresh.objects))
