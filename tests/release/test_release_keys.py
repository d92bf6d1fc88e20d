"""Every input that a stage reads is in its key: change each alone, and the stage runs again."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_family
from hub_state import store_state

from hubtools.family.manifest import read_family
from hubtools.release.context import Release, open_release
from hubtools.release.engine import walk
from hubtools.release.stages import LOCAL_STAGES

STAGES = tuple(stage.name for stage in LOCAL_STAGES)


def opened(root: Path) -> Release:
    family = read_family(root)
    return open_release(family, family.members[:1], clock=time.time)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A family whose first member has been through every local stage."""
    root = tiny_family.make_models(tmp_path_factory.mktemp("finished"))
    tiny_family.write_logs(root)
    tiny_family.write_manifest(root, suites='["short_qa"]', provenance=tiny_family.TEACHER)
    (root / "prose").mkdir()
    (root / "prose" / "summary.md").write_text("A summary.\n")
    (root / "templates").mkdir()
    release = opened(root)
    _, failures = walk(release, execute=True)
    assert not failures
    return root


@pytest.fixture
def root(finished: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "family"
    shutil.copytree(finished, copy)
    return copy


def pending(root: Path) -> dict[str, str]:
    """Stage → action of the first member."""
    cells, _ = walk(opened(root), execute=False)
    return {cell.stage: cell.action for cell in cells if cell.target != "base"}


def test_nothing_changed_nothing_to_do_even_in_another_folder(root: Path) -> None:
    before = store_state(root)
    assert pending(root) == dict.fromkeys(STAGES, "cached")
    walk(opened(root), execute=True)
    assert store_state(root) == before


def edit(path: str, old: str, new: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        file = root / path
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))

    return change


def append(path: str, data: bytes) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        file = root / path
        file.write_bytes((file.read_bytes() if file.exists() else b"") + data)

    return change


def flip(path: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        data = bytearray((root / path).read_bytes())
        data[-1] ^= 1
        (root / path).write_bytes(bytes(data))

    return change


def drop(pattern: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        for file in root.glob(pattern):
            file.unlink()

    return change


RUN = "runs/red/s4"
CHANGES = {
    "a log line": ("verify", edit("logs/teacher.jsonl", "answer 0", "answer zero")),
    "another log file": ("verify", append("logs/more.jsonl", b"")),
    "the claim": ("verify", edit("family.toml", 'claim = "deepseek-v4-flash"', 'claim = "x"')),
    "what was requested": ("verify", edit("family.toml", "deepseek-chat", "deepseek-reasoner")),
    "the hosting": ("verify", edit("family.toml", "claim =", 'hosting = "self"\nclaim =')),
    "base weights": ("merge", flip("base/model.safetensors")),
    "base config": ("merge", edit("base/config.json", '"head_dim": 16', '"head_dim": 16 ')),
    "base licence": ("merge", append("base/LICENSE", b"more\n")),
    "base tokenizer": ("merge", append("base/tokenizer_config.json", b"\n")),
    "base chat template": ("merge", append("base/chat_template.jinja", b" ")),
    "base generation config": ("merge", append("base/generation_config.json", b"\n")),
    "adapter weights": ("merge", flip(f"{RUN}/adapter_model.safetensors")),
    "adapter config": ("merge", edit(f"{RUN}/adapter_config.json", "alpha\": 24", "alpha\": 25")),
    "trainer state": ("merge", edit(f"{RUN}/trainer_state.json", '"epoch": 0.5', '"epoch": 0.6')),
    "a tokenizer beside the adapter": ("merge", append(f"{RUN}/chat_template.jinja", b"x")),
    "the base's name": ("merge", edit("family.toml", "lab/tiny-base", "lab/other-base")),
    "the base's revision": ("merge", edit("family.toml", "0123456789abcdef", "1123456789abcdef")),
    "the merged dtype": ("merge", append("family.toml", b'\n[merge]\ndtype = "float16"\n')),
    "whether ties stay": ("merge", append("family.toml", b"\n[merge]\nkeep_tied = true\n")),
    "a residual base": ("merge", append("family.toml", b"\n[merge]\nbase_is_residual = true\n")),
    "the engine": ("merge", append("family.toml", b'\n[merge]\nengine = "peft"\n')),
    "the report lost": ("merge", drop(".hubtools/published/*/weights.json")),
    "merged weights lost": ("merge", drop("merged/*/model.safetensors")),
    "the dtype": ("evaluate", append("family.toml", b'\n[evaluation]\ndtype = "bfloat16"\n')),
    "the device": ("evaluate", append("family.toml", b"\n[evaluation]\ndevice = 'cuda'\n")),
    "another seed": ("evaluate", append("family.toml", b"\n[evaluation]\nseeds = [1]\n")),
    "a run record lost": ("evaluate", drop(".hubtools/runs/*/short_qa/1/run.json")),
    "prose": ("render", append("prose/summary.md", b"More.\n")),
    "prose of this member": ("render", append("prose/notes.md", b"A note.\n")),
    "a template": ("render", append("templates/checkpoint.md.j2", b"---\nlicense: mit\n---\n# x")),
    "the licence": ("render", edit("family.toml", "apache-2.0", "mit")),
    "a sister's label": ("render", edit("family.toml", "[arms.red]", "[arms.red]\nlabel = 'x'")),
    "the card lost": ("render", drop(".hubtools/cards/*/README.md")),
    "the record lost": ("seal", drop(".hubtools/sealed/*/release.json")),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_each_input_alone_makes_its_stage_run_again(root: Path, name: str) -> None:
    stage, change = CHANGES[name]
    change(root)
    now = pending(root)
    assert now[stage] == "run"
    assert all(
        now[earlier] == "cached" for earlier in STAGES[: STAGES.index(stage)] if earlier != "verify"
    )


@pytest.mark.parametrize("stage", STAGES)
def test_a_record_that_was_torn_is_done_again(root: Path, stage: str) -> None:
    for file in (root / ".hubtools" / "store" / stage).iterdir():
        file.write_bytes(file.read_bytes()[:-20])
    assert pending(root)[stage] == "run"


def test_a_merge_that_gives_the_same_bytes_leaves_the_evaluation_cached(root: Path) -> None:
    shutil.rmtree(next((root / "merged").glob("tiny-red-s4-*")))
    runs = sorted((root / ".hubtools" / "runs").rglob("run.json"))
    stamps = [file.stat().st_mtime_ns for file in runs]
    cells, failures = walk(opened(root), execute=True)
    assert not failures
    assert [file.stat().st_mtime_ns for file in runs] == stamps
    assert {c.stage: c.action for c in cells if c.target != "base"}["evaluate"] == "cached"


def test_the_store_names_no_machine(finished: Path) -> None:
    text = json.dumps(store_state(finished))
    assert str(finished) not in text
