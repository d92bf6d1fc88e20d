"""What becomes of merged weights once they are published, and who may need them again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_family
from hub_state import remote_state
from refusal import edit

from hubtools.errors import CheckError, EnvironmentFailure
from hubtools.family.manifest import read_family
from hubtools.hub.session import connect
from hubtools.localhub.server import LocalHub, running
from hubtools.release import engine
from hubtools.release.context import Release, open_release
from hubtools.release.freed import delete_files
from hubtools.release.plan import Plan
from hubtools.release.run import make_plan, run_release

REPO = "lab/tiny-red-s4"
DELETE = '[release]\nweights = "delete"\n'


def opened(root: Path, hub: LocalHub | None, story: list[str] | None = None) -> Release:
    found = read_family(root)
    session = None if hub is None else connect(hub.url, token=hub.token)
    note = (lambda text: None) if story is None else story.append
    return open_release(found, found.members[:1], clock=time.time, session=session, note=note)


def released(root: Path, hub: LocalHub) -> tuple[dict[str, Any], list[str]]:
    story: list[str] = []
    release = opened(root, hub, story)
    result = run_release(release, confirm=lambda plan: None, show=lambda plan: None)
    return result["members"]["red/s4"], story


def planned(root: Path, hub: LocalHub | None) -> Plan:
    return make_plan(opened(root, hub))


def merged(root: Path) -> list[str]:
    return sorted(f.name for f in root.glob("merged/tiny-red-s4-*/*"))


@pytest.fixture(scope="module")
def emptied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, LocalHub]]:
    """A family that was released, its weights deleted afterwards."""
    folder = tmp_path_factory.mktemp("emptied")
    root = tiny_family.make_models(folder / "family", max_position_embeddings=512)
    tiny_family.write_manifest(root)
    with (root / "family.toml").open("a") as manifest:
        manifest.write(DELETE)
    with running(folder / "hub", log=folder / "hub.log") as hub:
        receipt, story = released(root, hub)
        assert receipt["pushed"]
        assert any("of published weights" in line for line in story)
        yield root, hub


@pytest.fixture
def family(emptied: tuple[Path, LocalHub], tmp_path: Path) -> Path:
    copy = tmp_path / "family"
    shutil.copytree(emptied[0], copy)
    return copy


def test_only_the_weights_are_deleted_and_the_hub_has_them(
    emptied: tuple[Path, LocalHub],
) -> None:
    root, hub = emptied
    assert "model.safetensors" not in merged(root)
    assert {"config.json", "tokenizer.json"} <= set(merged(root))
    assert "model.safetensors" in remote_state(hub, [REPO])[REPO]["files"]


@pytest.mark.parametrize("offline", [False, True])
def test_a_plan_says_so_and_has_nothing_to_do(
    emptied: tuple[Path, LocalHub], offline: bool
) -> None:
    root, hub = emptied
    plan = planned(root, None if offline else hub)
    assert {cell.action for cell in plan.cells} <= {"cached", "skip"}
    cell = plan.cell("merge", "red/s4")
    assert cell is not None
    assert cell.words() == "cached: published, then deleted"
    assert offline or not plan.pending


def test_a_second_release_does_nothing(emptied: tuple[Path, LocalHub]) -> None:
    root, hub = emptied
    before = remote_state(hub, [REPO])
    receipt, story = released(root, hub)
    assert receipt["pushed"] is False
    assert not any("merge" in line for line in story)
    assert remote_state(hub, [REPO]) == before


def test_another_text_is_pushed_without_the_weights(
    emptied: tuple[Path, LocalHub], family: Path
) -> None:
    _, hub = emptied
    before = remote_state(hub, [REPO])[REPO]["files"]
    (family / "prose").mkdir()
    (family / "prose" / "notes.md").write_text("Only colours.\n")
    receipt, story = released(family, hub)
    assert receipt["pushed"]
    assert not any("merge" in line for line in story)
    after = remote_state(hub, [REPO])[REPO]["files"]
    assert {name for name in after if after[name] != before.get(name)} == {
        "README.md", ".hubtools/card.lock.json", ".hubtools/release.json",
    }  # fmt: skip


def test_an_evaluation_needs_them_and_says_so(emptied: tuple[Path, LocalHub], family: Path) -> None:
    _, hub = emptied
    edit(family, "suites = []", 'suites = ["short_qa"]')
    cell = planned(family, hub).cell("merge", "red/s4")
    assert cell is not None
    assert (cell.action, cell.reason) == ("run", "evaluate needs the deleted weights")
    before = remote_state(hub, [REPO])[REPO]["files"]["model.safetensors"]
    receipt, story = released(family, hub)
    assert receipt["pushed"]
    assert "· merge     red/s4 again: evaluate needs the deleted weights" in story
    assert remote_state(hub, [REPO])[REPO]["files"]["model.safetensors"] == before
    assert "model.safetensors" not in merged(family)


def test_a_hub_without_them_gets_them(family: Path, tmp_path: Path) -> None:
    with running(tmp_path / "other", log=tmp_path / "other.log") as other:
        cell = planned(family, other).cell("merge", "red/s4")
        assert cell is not None
        assert (cell.action, cell.reason) == ("run", f"{REPO} lacks the deleted weights")
        edit(family, DELETE, "")
        receipt, _ = released(family, other)
        assert receipt["pushed"]
        assert "model.safetensors" in remote_state(other, [REPO])[REPO]["files"]
    assert "model.safetensors" in merged(family)


def test_other_bytes_at_that_place_are_merged_anew(family: Path) -> None:
    folder = next(family.glob("merged/tiny-red-s4-*"))
    (folder / "model.safetensors").write_bytes(b"something else")
    cell = planned(family, None).cell("merge", "red/s4")
    assert cell is not None
    assert cell.action == "run"


def test_the_note_of_what_was_deleted_may_be_lost(family: Path) -> None:
    (family / ".hubtools" / "freed.json").write_bytes(b"[" * 100_000)
    cell = planned(family, None).cell("merge", "red/s4")
    assert cell is not None
    assert cell.action == "run"


def test_a_release_killed_before_it_deleted_goes_on(
    emptied: tuple[Path, LocalHub], family: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noted, and not yet deleted: the file counts, and the next release deletes it."""
    _, hub = emptied
    edit(family, "suites = []", 'suites = ["short_qa"]')
    killed = "hubtools.release.freed._unlink"
    with monkeypatch.context() as patch:
        patch.setattr(killed, lambda file: (_ for _ in ()).throw(KeyboardInterrupt))
        patch.setattr("hubtools.release.weights.delete_files", delete_kept)
        with pytest.raises(KeyboardInterrupt):
            released(family, hub)
    assert "model.safetensors" in merged(family)
    receipt, story = released(family, hub)
    assert receipt["pushed"] is False
    assert "model.safetensors" not in merged(family)
    assert any("of published weights" in line for line in story)


def delete_kept(folder: Path, files: list[Path]) -> bool:
    for file in files:
        file.unlink()
    shutil.rmtree(folder)
    return True


def test_nothing_is_deleted_unless_the_hub_was_asked_again(
    hub: LocalHub, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "family"
    shutil.copytree(models, root)
    tiny_family.write_manifest(root)
    edit(root, "[arms.red]", f"{DELETE}[arms.red]")

    def differs(*_: object) -> None:
        raise CheckError("HT318", "the remote does not hold what was released", next="look")

    monkeypatch.setattr(engine, "attest", differs)
    with pytest.raises(CheckError, match="HT318"):
        released(root, hub)
    assert "model.safetensors" in merged(root)


def test_a_checkpoint_of_the_user_is_never_deleted(hub: LocalHub, tmp_path: Path) -> None:
    root = tiny_family.make_full_models(tmp_path / "full")
    tiny_family.write_manifest(root, kind="full")
    edit(root, "[arms.red]", f"{DELETE}[arms.red]")
    receipt, _ = released(root, hub)
    assert receipt["pushed"]
    assert (root / "runs" / "red" / "s4" / "model.safetensors").is_file()


def test_a_rehearsal_deletes_nothing(
    hubtools: Callable[..., Any], models: Path, tmp_path: Path
) -> None:
    root = tmp_path / "family"
    shutil.copytree(models, root)
    tiny_family.write_manifest(root)
    ended = hubtools("release", "red/s4", "--family", str(root), "--hub", "local", "--yes",
                     "--weights", "delete")  # fmt: skip
    assert ended.code == 0, ended.err
    assert "model.safetensors" in merged(root)
    assert "rehearsal: the weights stay" in ended.err


def test_a_folder_that_may_not_be_changed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x"
    file.touch()

    def refused(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(EnvironmentFailure, match="HT529"):
        delete_files(tmp_path, [file])
