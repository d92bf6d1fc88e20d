"""The real huggingface_hub client, in its own process, against a Hub without xet storage."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from localhub_client import issue

from hubtools.localhub.server import LocalHub


def run(hub: LocalHub, home: Path, script: str, **env: str) -> str:
    """Run Python with the environment a user of this Hub has; returns its stdout."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    clean |= {"HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token, "HF_HOME": str(home)}
    clean |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    clean |= {"HF_HUB_DISABLE_XET": "1", "OMP_NUM_THREADS": "1", **env}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=clean, cwd=home, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


PUBLISH = """
from pathlib import Path
from huggingface_hub import CommitOperationAdd, CommitOperationCopy, HfApi, ModelCard
from huggingface_hub.errors import BadRequestError, HfHubHTTPError, RevisionNotFoundError
import os
api, repo, work = HfApi(), "team/model", Path("work")
assert api.create_repo(repo, private=True).repo_id == repo
assert api.create_repo(repo, exist_ok=True).repo_id == repo
api.auth_check(repo, write=True)
(work / "sub").mkdir(parents=True)
(work / "model.safetensors").write_bytes(os.urandom(3_000_000))
(work / "sub/empty.bin").write_bytes(b"")
(work / "sub/notes.txt").write_text("x")
(work / "junk.log").write_text("x")
(work / ".gitignore").write_text("*.log")
info = api.upload_folder(repo_id=repo, folder_path=work)
assert api.repo_info(repo).sha == info.oid
(work / "junk.log").unlink()
assert api.upload_folder(repo_id=repo, folder_path=work).oid == info.oid, "no empty commit"
assert set(api.list_repo_files(repo)) == {
    ".gitattributes", ".gitignore", "model.safetensors", "sub/empty.bin", "sub/notes.txt"}
moved = api.create_commit(repo, [
    CommitOperationCopy("model.safetensors", "copies/m.safetensors"),
    CommitOperationAdd("b.bin", b"\\0" * 2_000_000)], commit_message="t", commit_description="d",
    parent_commit=info.oid)
try:
    api.create_commit(repo, [CommitOperationAdd("b.txt", b"x")], commit_message="t",
        parent_commit=info.oid)
except HfHubHTTPError as error:
    assert error.response.status_code == 412 and "a commit happened since" in str(error), error
else:
    raise AssertionError("a stale parent was accepted")
card = "---\\nlicense: mit\\ntags: [demo]\\n---\\n# Hi arxiv.org/abs/2106.09685\\n"
ModelCard(card).push_to_hub(repo)
try:
    ModelCard("---\\nlicense: none\\n---\\n", ignore_metadata_errors=True).push_to_hub(repo)
except (ValueError, BadRequestError) as error:
    assert "license" in str(error), error
else:
    raise AssertionError("a false licence was accepted")
assert ModelCard.load(repo).data.license == "mit"
info = api.model_info(repo, files_metadata=True)
assert info.tags == ["demo", "license:mit", "arxiv:2106.09685"], info.tags
files = {s.rfilename: s for s in info.siblings}
assert files["copies/m.safetensors"].lfs.sha256 == files["model.safetensors"].lfs.sha256
api.update_repo_settings(repo, private=False, gated="auto")
assert api.model_info(repo).gated == "auto" and not api.model_info(repo).private
api.create_branch(repo, branch="exp/a-b", revision=moved.oid)
api.create_tag(repo, tag="v1", tag_message="first")
refs = api.list_repo_refs(repo)
assert [b.name for b in refs.branches] == ["exp/a-b", "main"] and refs.tags[0].name == "v1"
api.upload_file(path_or_fileobj=b"q", path_in_repo="q.txt", repo_id=repo, revision="exp/a-b")
assert api.file_exists(repo, "q.txt", revision="exp/a-b") and not api.file_exists(repo, "q.txt")
try:
    api.repo_info(repo, revision="nope")
except RevisionNotFoundError:
    pass
else:
    raise AssertionError("a revision that is not there")
api.delete_file("b.bin", repo)
api.delete_folder("sub", repo)
titles = [c.title for c in api.list_repo_commits(repo)]
assert titles[-2:] == ["Upload folder using huggingface_hub", "initial commit"], titles
there = Path(api.snapshot_download(repo))
assert (there / "model.safetensors").read_bytes() == (work / "model.safetensors").read_bytes()
api.super_squash_history(repo)
assert len(api.list_repo_commits(repo)) == 1
assert [m.id for m in api.list_models(author="team", search="model")] == [repo]
for tags, there in ((["demo", "license:mit"], [repo]), (["demo", "other"], []), ("demo", [repo])):
    assert [m.id for m in api.list_models(author="team", filter=tags)] == there, tags
collection = api.create_collection("Family", namespace="team", private=True)
again = api.create_collection("Family", namespace="team", exists_ok=True)
assert again.slug == collection.slug
full = api.add_collection_item(collection.slug, repo, "model", note="first")
api.add_collection_item(collection.slug, repo, "model", exists_ok=True)
assert [(i.item_id, i.note) for i in api.get_collection(collection.slug).items] == [(repo, "first")]
api.delete_collection_item(collection.slug, full.items[0].item_object_id)
api.update_collection_metadata(collection.slug, description="all sisters")
assert api.get_collection(collection.slug).description == "all sisters"
api.delete_collection(collection.slug)
api.move_repo(repo, "team/renamed")
api.delete_repo("team/renamed")
api.delete_repo("team/renamed", missing_ok=True)
assert not api.repo_exists("team/renamed")
print("all of it")
"""

READ = """
from huggingface_hub import HfApi
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
api = HfApi()
for repo, kind in (("open/secret", RepositoryNotFoundError), ("open/gated", GatedRepoError)):
    try:
        api.hf_hub_download(repo, ".gitattributes")
    except kind as error:
        print(type(error).__name__)
print(api.whoami()["name"])
"""


def test_publishing_and_reading_back(hub: LocalHub, tmp_path: Path) -> None:
    assert run(hub, tmp_path, PUBLISH) == "all of it\n"


def test_what_others_see(hub: LocalHub, tmp_path: Path) -> None:
    setup = """
from huggingface_hub import HfApi
api = HfApi()
api.create_repo("open/secret", private=True)
api.create_repo("open/gated")
api.update_repo_settings("open/gated", gated="manual")
"""
    run(hub, tmp_path, setup)
    theirs = run(hub, tmp_path / "..", READ, HF_TOKEN=issue(hub.root, "bob"))
    assert theirs.split() == ["RepositoryNotFoundError", "GatedRepoError", "bob"]
    asked = """
from huggingface_hub import HfApi
try:
    HfApi().whoami()
except Exception as error:
    print(error)
"""
    assert "Invalid user token" in run(hub, tmp_path, asked, HF_TOKEN="hf_wrong")


def test_the_default_client_meets_a_hub_without_xet(hub: LocalHub, tmp_path: Path) -> None:
    script = """
from huggingface_hub import HfApi
api = HfApi()
api.create_repo("noxet/m")
api.upload_file(path_or_fileobj=b"x", path_in_repo="small.txt", repo_id="noxet/m")
from pathlib import Path
Path("w.safetensors").write_bytes(bytes(1000))
try:
    name = "w.safetensors"
    api.upload_file(path_or_fileobj=name, path_in_repo=name, repo_id="noxet/m")
except ConnectionError as error:
    print("404" in str(error))
print(api.list_repo_files("noxet/m"))
"""
    out = run(hub, tmp_path, script, HF_HUB_DISABLE_XET="0")
    assert out == "True\n['.gitattributes', 'small.txt']\n"
