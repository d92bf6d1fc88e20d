"""Publishing to the embedded Hub: private first, one commit, and exactly one whatever breaks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hub_servers import CARD, history, publish, release

from hubtools.errors import CheckError, EnvironmentFailure, RemoteMovedError
from hubtools.hub.diff import ours
from hubtools.hub.push import commit, ensure_repo, preupload
from hubtools.hub.receipt import attest, set_visibility
from hubtools.hub.remote import read_remote
from hubtools.hub.session import Session
from hubtools.localhub.faults import Fault
from hubtools.localhub.server import LocalHub

# How the client hands a file to its HTTP library.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


def test_a_release_lands_in_one_commit_and_becomes_public_after_it(
    session: Session, repo: str, tmp_path: Path, content: dict[str, bytes], storage: str
) -> None:
    files = release(tmp_path, content)
    assert ensure_repo(session, repo)
    assert not ensure_repo(session, repo)
    empty = read_remote(session, repo)
    assert empty.private
    told: list[tuple[int, int | None]] = []
    prepared = preupload(
        session, repo, files, lambda label, done, total, unit: told.append((done, total))
    )
    before = read_remote(session, repo)
    assert before.files.keys() == {".gitattributes"}  # sent, and not visible
    result = commit(session, prepared, parent=before.head, message="Release")
    assert not result.already
    assert told[0][0] == 0
    assert told[-1] == (sum(f.size for f in files), sum(f.size for f in files))

    remote = read_remote(session, repo)
    assert (remote.head, remote.private) == (result.oid, True)
    assert remote.readme == CARD.encode()
    assert remote.files["model.safetensors"].sha256 == files[2].sha256
    assert ours(remote)
    receipt = attest(session, repo, files)
    assert receipt["head"] == result.oid
    assert receipt["others"] == [".gitattributes"]
    assert receipt["files"].keys() == {f.path for f in files}
    assert set_visibility(session, repo, "public")
    assert not set_visibility(session, repo, "public")
    assert not read_remote(session, repo).private
    assert history(session, repo)[:-1] == ["Release"]


def test_a_hub_that_says_yes_and_changes_nothing_is_found_out(
    hub: LocalHub, session: Session, repo: str
) -> None:
    ensure_repo(session, repo)
    hub.set_faults([Fault("PUT", "/settings", "status", status=200)])
    with pytest.raises(CheckError) as caught:
        set_visibility(session, repo, "public")
    assert caught.value.id == "HT318"
    assert set_visibility(session, repo, "public")


def test_an_equal_tree_needs_no_commit(
    session: Session, repo: str, tmp_path: Path, content: dict[str, bytes]
) -> None:
    files = release(tmp_path, content)
    assert publish(session, repo, files) is not None
    before = history(session, repo)
    assert publish(session, repo, files) is None
    assert history(session, repo) == before


def test_the_next_release_deletes_what_ours_wrote_and_keeps_what_is_foreign(
    session: Session, repo: str, tmp_path: Path, content: dict[str, bytes]
) -> None:
    publish(session, repo, release(tmp_path / "1", {**content, "old.json": b"1"}))
    session.api.upload_file(
        path_or_fileobj=b"theirs", path_in_repo="notes.txt", repo_id=repo, commit_message="Notes"
    )
    publish(session, repo, release(tmp_path / "2", {**content, "config.json": b"{1}"}), "Second")
    there = read_remote(session, repo).files
    assert "old.json" not in there
    assert "notes.txt" in there
    assert history(session, repo)[:3] == ["Second", "Notes", "Release"]


def test_a_readme_edited_on_the_hub_is_not_ours(
    session: Session, repo: str, tmp_path: Path, content: dict[str, bytes]
) -> None:
    publish(session, repo, release(tmp_path, content))
    session.api.upload_file(
        path_or_fileobj=(CARD + "mine").encode(), path_in_repo="README.md", repo_id=repo
    )
    assert not ours(read_remote(session, repo))


def test_the_digest_known_from_writing_is_used(
    session: Session,
    repo: str,
    tmp_path: Path,
    content: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hashed(stream: object) -> bytes:
        raise AssertionError("the client read the file once more to hash it")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.lfs.sha_fileobj", hashed)
    assert publish(session, repo, release(tmp_path, content))


def test_a_foreign_commit_in_between_stops_and_is_named(
    session: Session, repo: str, tmp_path: Path, content: dict[str, bytes]
) -> None:
    ensure_repo(session, repo)
    parent = read_remote(session, repo).head
    prepared = preupload(session, repo, release(tmp_path, content))
    theirs = session.api.upload_file(
        path_or_fileobj=b"1", path_in_repo="x.txt", repo_id=repo, commit_message="Update README.md"
    )
    with pytest.raises(RemoteMovedError) as caught:
        commit(session, prepared, parent=parent, message="Release")
    error = caught.value
    assert (error.id, error.where) == ("HT301", repo)
    assert error.detail[0].startswith(
        f'planned on main@{str(parent)[:7]}, now {theirs.oid[:7]} "Update README.md" ('
    )
    assert ", by local)" in error.detail[0]
    assert error.detail[1] == "Nothing was pushed to this repo."
    assert history(session, repo)[0] == "Update README.md"


def test_a_file_changed_after_sealing_is_not_published(
    session: Session, repo: str, tmp_path: Path, content: dict[str, bytes], storage: str
) -> None:
    files = release(tmp_path, content)
    ensure_repo(session, repo)
    (tmp_path / "model.safetensors").write_bytes(content["model.safetensors"][:-1])
    with pytest.raises(EnvironmentFailure) as caught:
        publish(session, repo, files)
    assert caught.value.id == "HT322"
    (tmp_path / "model.safetensors").write_bytes(
        bytes(reversed(content["model.safetensors"]))
    )  # same size
    with pytest.raises(CheckError) as refused:
        publish(session, repo, files)
    assert refused.value.id == {"xet": "HT323", "lfs": "HT310"}[storage]
    assert len(history(session, repo)) == 1


def test_a_refused_readme_is_told_with_the_hubs_words(
    session: Session, repo: str, tmp_path: Path
) -> None:
    bad = b"---\nlicense: no-such-licence\n---\n"
    with pytest.raises(CheckError) as caught:
        publish(session, repo, release(tmp_path, {"README.md": bad}))
    assert caught.value.id == "HT316"
    assert "license" in caught.value.detail[0]
    assert len(history(session, repo)) == 1


def test_a_gitignore_on_the_hub_does_not_thin_out_a_release(
    session: Session, repo: str, tmp_path: Path, content: dict[str, bytes]
) -> None:
    ensure_repo(session, repo)
    session.api.upload_file(
        path_or_fileobj=b"*.safetensors\n", path_in_repo=".gitignore", repo_id=repo
    )
    files = release(tmp_path, content)
    publish(session, repo, files)
    attest(session, repo, files)


def test_a_remote_that_differs_is_attested_by_name(
    session: Session, repo: str, tmp_path: Path, content: dict[str, bytes]
) -> None:
    files = release(tmp_path, content)
    publish(session, repo, files)
    session.api.upload_file(path_or_fileobj=b"x", path_in_repo="config.json", repo_id=repo)
    session.api.delete_file("model.safetensors", repo)
    with pytest.raises(CheckError) as caught:
        attest(session, repo, files)
    assert caught.value.id == "HT318"
    assert caught.value.detail == ("config.json: differs", "model.safetensors: is missing")


def test_datasets_have_their_own_addresses(session: Session, repo: str, tmp_path: Path) -> None:
    files = release(tmp_path, {"README.md": CARD.encode(), "data/a.jsonl": b"{}\n"})
    assert ensure_repo(session, repo, "dataset")
    prepared = preupload(session, repo, files, repo_type="dataset")
    head = read_remote(session, repo, "dataset").head
    result = commit(session, prepared, parent=head, message="Data")
    remote = read_remote(session, repo, "dataset")
    assert remote.head == result.oid
    assert remote.readme == CARD.encode()
    attest(session, repo, files, repo_type="dataset", revision=result.oid)
    assert not read_remote(session, repo).exists
