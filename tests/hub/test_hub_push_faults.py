"""Publishing over a line that breaks: exactly one commit, whatever was lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from hub_servers import QUICK, history, publish, release

from hubtools.errors import CheckError, EnvironmentFailure
from hubtools.hub.push import commit, ensure_repo, preupload
from hubtools.hub.receipt import attest
from hubtools.hub.remote import read_remote
from hubtools.hub.session import Session, connect
from hubtools.localhub.faults import Fault
from hubtools.localhub.server import LocalHub, running

COMMIT = r"/commit/main"
# How the client hands a file to its HTTP library.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.mark.parametrize(
    "fault",
    [
        Fault("POST", COMMIT, "status", status=503),
        Fault("POST", COMMIT, "status", status=429, headers={"Retry-After": "0"}),
        Fault("POST", COMMIT, "status", status=409),
        Fault("POST", COMMIT, "drop-request", bytes=10),
    ],
    ids=["503", "429", "409", "cut"],
)
def test_a_commit_that_did_not_land_is_made_again(
    session: Session,
    hub: LocalHub,
    repo: str,
    tmp_path: Path,
    content: dict[str, bytes],
    fault: Fault,
) -> None:
    ensure_repo(session, repo)
    hub.set_faults([fault])
    result = publish(session, repo, release(tmp_path, content))
    assert result is not None
    assert not result.already
    assert history(session, repo)[:-1] == ["Release"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault("POST", COMMIT, "lands-then-status", status=500),
        Fault("POST", COMMIT, "lands-then-status", status=504),
        Fault("POST", COMMIT, "drop-response"),
    ],
    ids=["500", "504", "cut"],
)
def test_a_commit_whose_answer_was_lost_is_not_made_twice(
    session: Session,
    hub: LocalHub,
    repo: str,
    tmp_path: Path,
    content: dict[str, bytes],
    fault: Fault,
) -> None:
    ensure_repo(session, repo)
    hub.set_faults([fault])
    result = publish(session, repo, release(tmp_path, content))
    assert result is not None
    assert result.already
    assert result.oid == read_remote(session, repo).head
    assert result.url == f"{hub.url}/{repo}/commit/{result.oid}"
    assert history(session, repo)[:-1] == ["Release"]


def test_a_hub_that_is_away_after_a_lost_answer_is_waited_for(
    session: Session, hub: LocalHub, repo: str, tmp_path: Path, content: dict[str, bytes]
) -> None:
    ensure_repo(session, repo)
    hub.set_faults(
        [
            Fault("POST", COMMIT, "lands-then-status", status=500),
            Fault("GET", "/commits/main", "status", status=503, times=3),
        ]
    )
    result = publish(session, repo, release(tmp_path, content))
    assert result is not None
    assert result.already
    assert history(session, repo)[:-1] == ["Release"]


def test_our_commit_is_found_below_a_later_foreign_one(
    session: Session, repo: str, tmp_path: Path, content: dict[str, bytes]
) -> None:
    ensure_repo(session, repo)
    parent = read_remote(session, repo).head
    prepared = preupload(session, repo, release(tmp_path, content))
    first = commit(session, prepared, parent=parent, message="Release")
    session.api.upload_file(path_or_fileobj=b"1", path_in_repo="more.txt", repo_id=repo)
    again = preupload(session, repo, release(tmp_path, content))
    second = commit(session, again, parent=parent, message="Release")
    assert (second.oid, second.already) == (first.oid, True)
    assert len(history(session, repo)) == 3


def test_patience_ends_and_nothing_was_committed(
    session: Session, hub: LocalHub, repo: str, tmp_path: Path, content: dict[str, bytes]
) -> None:
    ensure_repo(session, repo)
    hub.set_faults([Fault("POST", COMMIT, "status", status=503, times=100)])
    with pytest.raises(EnvironmentFailure) as caught:
        publish(session, repo, release(tmp_path, content))
    assert caught.value.id == "HT309"
    assert len(history(session, repo)) == 1


def test_an_upload_that_breaks_off_is_told_and_goes_on_at_the_next_run(
    session: Session,
    hub: LocalHub,
    repo: str,
    tmp_path: Path,
    content: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    ensure_repo(session, repo)
    files = release(tmp_path, content)
    hub.set_faults([Fault("PUT", "^/_lfs/", "drop-request", bytes=1000, times=1000)])
    with monkeypatch.context() as patch:
        patch.setattr("time.sleep", lambda seconds: None)  # the client's own retries
        with pytest.raises(EnvironmentFailure) as caught:
            publish(session, repo, files)
    assert caught.value.id == "HT319"
    assert len(history(session, repo)) == 1
    hub.set_faults([])
    assert publish(session, repo, files)
    attest(session, repo, files)
    assert history(session, repo)[:-1] == ["Release"]


def test_a_line_that_breaks_once_while_sending_is_not_even_noticed(
    session: Session, hub: LocalHub, repo: str, tmp_path: Path, content: dict[str, bytes]
) -> None:
    ensure_repo(session, repo)
    files = release(tmp_path, content)
    hub.set_faults([Fault("POST", "^/_xet/v1/xorbs", "drop-request", bytes=1000)])
    assert publish(session, repo, files)
    attest(session, repo, files)
    assert history(session, repo)[:-1] == ["Release"]


def test_a_repo_whose_creation_was_not_answered_is_known_as_ours(
    session: Session, hub: LocalHub, repo: str
) -> None:
    hub.set_faults([Fault("POST", "/api/repos/create", "lands-then-status", status=500)])
    assert ensure_repo(session, repo)
    assert read_remote(session, repo).private


def test_a_hub_without_xet_is_explained_and_works_without_it(
    plain_hub: LocalHub,
    repo: str,
    tmp_path: Path,
    content: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = connect(plain_hub.url, token=plain_hub.token, patience=QUICK)
    files = release(tmp_path / "files", content)
    with pytest.raises(EnvironmentFailure) as caught:
        publish(session, repo, files)
    assert caught.value.id == "HT306"
    assert caught.value.message == ("this endpoint has no Xet storage: set HF_HUB_DISABLE_XET=1")
    assert len(history(session, repo)) == 1
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    assert publish(session, repo, files) is not None
    attest(session, repo, files)


def test_a_cache_of_an_earlier_server_at_the_same_address_is_explained(
    repo: str, tmp_path: Path, content: dict[str, bytes]
) -> None:
    files = release(tmp_path / "files", content)
    with running(tmp_path / "1", log=tmp_path / "log") as hub:
        assert publish(connect(hub.url, token=hub.token, patience=QUICK), repo, files)
    port = int(hub.url.rpartition(":")[2])
    with running(tmp_path / "2", port=port, log=tmp_path / "log") as hub:
        session = connect(hub.url, token=hub.token, patience=QUICK)
        with pytest.raises(CheckError) as caught:
            publish(session, repo, files)
        assert caught.value.id == "HT323"
        assert caught.value.next.startswith("rm -r ")
        assert len(history(session, repo)) == 1
