"""`hubtools store gc`: what nothing refers to goes, what a release may read stays."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_family
from jsonschema import Draft202012Validator
from refusal import edit

from hubtools.family.manifest import read_family
from hubtools.files import locked
from hubtools.release.context import Release, open_release
from hubtools.release.engine import walk
from hubtools.release.gc import Garbage, delete, find_garbage

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "store-gc.schema.json"
Hubtools = Callable[..., Any]


def opened(root: Path, story: list[str] | None = None) -> Release:
    found = read_family(root)
    note = (lambda text: None) if story is None else story.append
    return open_release(found, found.members, clock=time.time, note=note)


def run(root: Path) -> dict[tuple[str, str], str]:
    cells, failures = walk(opened(root), execute=True)
    assert not failures
    return {(cell.stage, cell.target): cell.action for cell in cells}


def pending(root: Path) -> set[str]:
    cells, _ = walk(opened(root), execute=False)
    return {cell.stage for cell in cells if cell.action in ("run", "waits")}


def collect(root: Path, story: list[str] | None = None) -> list[Garbage]:
    release = opened(root, story)
    items = find_garbage(release)
    for item in items:
        delete(release, item)
    return items


def weights(root: Path) -> set[str]:
    return {f.parent.name for f in root.glob("merged/*/model.safetensors")}


def other_alpha(root: Path, alpha: int = 12) -> None:
    file = root / "runs" / "red" / "s4" / "adapter_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "lora_alpha": alpha}))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A family that went through every local stage twice: red/s4 was trained otherwise before."""
    root = tiny_family.make_models(tmp_path_factory.mktemp("finished"))
    tiny_family.write_manifest(root)
    run(root)
    other_alpha(root)
    run(root)
    return root


@pytest.fixture
def root(finished: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "family"
    shutil.copytree(finished, copy)
    return copy


def test_an_older_result_goes_and_the_current_one_stays(root: Path) -> None:
    assert len(weights(root)) == 3
    items = collect(root)
    assert len(weights(root)) == 2
    assert pending(root) == set()
    kinds = [item.kind for item in items]
    assert {"weights", "scratch", "copy", "record"} == set(kinds)
    assert kinds.count("weights") == kinds.count("scratch") == 1
    sizes = {item.kind: item.bytes for item in items}
    assert sizes["weights"] > (root / "base" / "model.safetensors").stat().st_size
    assert len([p for p in (root / "merged").iterdir() if p.name.startswith(".")]) == 2
    assert find_garbage(opened(root)) == []


def test_nothing_of_the_user_is_touched(root: Path) -> None:
    before = {name: tree(root / name) for name in ("runs", "base")}
    collect(root)
    assert {name: tree(root / name) for name in ("runs", "base")} == before


def test_weights_that_went_are_merged_again_when_their_inputs_come_back(root: Path) -> None:
    before = {
        file.parent.name: file.read_bytes() for file in root.glob("merged/*/model.safetensors")
    }
    collect(root)
    (gone,) = before.keys() - weights(root)
    other_alpha(root, 24)
    assert run(root)["merge", "red/s4"] == "run"
    assert before[gone] in [file.read_bytes() for file in root.glob("merged/*/model.safetensors")]


def test_what_an_unfinished_release_goes_on_with_stays(root: Path) -> None:
    collect(root)
    other_alpha(root, 7)
    assert "merge" in pending(root)
    assert find_garbage(opened(root)) == []
    release = opened(root)
    cells, _ = walk(release, execute=False)
    (key,) = (cell.key for cell in cells if cell.action == "run" and cell.stage == "merge")
    half = root / "merged" / f".tiny-red-s4-{key[:8]}.merge" / "files"
    half.mkdir(parents=True)
    (half / "model.safetensors").write_bytes(b"half")
    assert find_garbage(opened(root)) == []
    other_alpha(root, 12)
    (item,) = find_garbage(opened(root))
    assert (item.kind, item.bytes) == ("scratch", 4)
    assert delete(opened(root), item)
    assert not half.parent.exists()


def test_files_of_the_user_in_an_old_folder_are_left_and_named(root: Path) -> None:
    (old,) = [item.path for item in find_garbage(opened(root)) if item.kind == "weights"]
    (old / "mine.gguf").write_bytes(b"mine")
    story: list[str] = []
    collect(root, story)
    assert [file.name for file in old.rglob("*")] == ["mine.gguf"]
    assert any("it holds files of yours" in line for line in story)


def test_links_are_not_followed(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept.safetensors").write_bytes(b"kept")
    (old,) = [item.path for item in find_garbage(opened(root)) if item.kind == "weights"]
    (old / "model.safetensors").unlink()
    (old / "model.safetensors").symlink_to(outside / "kept.safetensors")
    work = root / "merged" / ".tiny-red-s4-0123abcd.merge"
    work.mkdir()
    (work / "files").symlink_to(outside)
    (root / "merged" / "tiny-red-s4-0123abce").symlink_to(outside)
    (root / ".hubtools" / "cards" / "linked").symlink_to(outside)
    collect(root)
    assert tree(outside) == {"kept.safetensors": b"kept"}
    assert not work.exists()
    assert not old.exists()
    assert (root / "merged" / "tiny-red-s4-0123abce").is_symlink()


@pytest.mark.parametrize("place", ["runs/red/s4", "base", "../outside", "merged/../../outside"])
def test_a_record_cannot_name_the_folders_of_the_user(
    root: Path, tmp_path: Path, place: str
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "model.safetensors").write_bytes(b"mine")
    for file in (root / ".hubtools" / "store" / "merge").iterdir():
        record = json.loads(file.read_bytes())
        made = {"folder": place, "files": {"model.safetensors": "0", "adapter_config.json": "0"}}
        escaping = {**record["outputs"]["made"][0], "files": {"../../base/config.json": "0"}}
        record["outputs"]["made"] = [made, escaping]
        file.write_text(json.dumps(record))
    before = {name: tree(root / name) for name in ("runs", "base", "../outside")}
    collect(root)
    assert {name: tree(root / name) for name in ("runs", "base", "../outside")} == before


def test_a_checkpoint_among_the_made_folders_is_an_input(root: Path) -> None:
    (old,) = [item.path for item in find_garbage(opened(root)) if item.kind == "weights"]
    edit(root, 'checkpoint = "runs/{arm}/{step}"', f'checkpoint = "merged/{old.name}"')
    assert old not in [item.path for item in find_garbage(opened(root))]


def test_what_an_engine_is_at_work_on_is_left(root: Path) -> None:
    (old,) = [item.path for item in find_garbage(opened(root)) if item.kind == "weights"]
    with locked(old.with_name(f".{old.name}.merge") / "lock", "merging"):
        story: list[str] = []
        collect(root, story)
        assert (old / "model.safetensors").is_file()
        assert any("is in use by pid" in line for line in story)


def test_evaluation_runs_and_receipts_stay_and_strangers_logs_go(root: Path) -> None:
    state = root / ".hubtools"
    kept = ["runs/0123/short_qa/1/run.json", "releases/01.json", "logs/hub.log"]
    for name in [*kept, "logs/merge-blue-s4.log"]:
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text("{}")
    items = collect(root)
    assert all((state / name).is_file() for name in kept)
    assert (state / "logs" / "merge-red-s8.log").is_file()
    assert [item.path.name for item in items if item.kind == "log"] == ["merge-blue-s4.log"]


def test_members_that_are_gone_and_torn_records_leave_nothing(root: Path) -> None:
    collect(root)
    torn = next((root / ".hubtools" / "store" / "render").iterdir())
    torn.write_bytes(torn.read_bytes()[:-20])
    assert [item.path for item in find_garbage(opened(root)) if item.kind == "record"] == [torn]
    edit(root, 'steps = ["s4", "s8"]', 'steps = ["s8"]')
    collect(root)
    assert all(name.startswith("tiny-red-s8-") for name in weights(root))


def test_without_readable_inputs_the_newest_results_stay(root: Path) -> None:
    collect(root)
    before = weights(root)
    shutil.rmtree(root / "runs")
    assert [item.kind for item in find_garbage(opened(root))] == []
    assert weights(root) == before


def test_the_command_shows_asks_deletes_and_has_nothing_left(
    hubtools: Hubtools, root: Path
) -> None:
    validator = Draft202012Validator(json.loads(SCHEMA.read_text()))
    before = tree(root / "merged")
    unasked = hubtools("store", "gc", str(root))
    assert unasked.code == 2, unasked.err
    assert "error[HT002]" in unasked.err
    dry = hubtools("store", "gc", str(root), "--dry-run", "--json")
    assert dry.code == 0, dry.err
    planned = json.loads(dry.out)
    validator.validate(planned)
    assert planned["bytes"] == 0
    assert tree(root / "merged") == before
    done = hubtools("store", "gc", "--family", str(root), "--yes", "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    validator.validate(result)
    assert [i["path"] for i in result["items"]] == [i["path"] for i in planned["items"]]
    assert result["bytes"] == sum(item["bytes"] for item in planned["items"])
    again = hubtools("store", "gc", str(root), "--yes")
    assert again.code == 0
    assert "nothing to delete" in again.err
    with locked(root / ".hubtools" / "lock", "family tiny"):
        busy = hubtools("store", "gc", str(root), "--yes")
    assert busy.code == 1
    assert "error[HT903]" in busy.err
