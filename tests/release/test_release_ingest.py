"""A trainer's step directory as a member: taken in, published, and every input in the key."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sharded_runs
import tiny_family
import trainer_dirs
from hub_state import remote_state
from huggingface_hub import HfApi
from refusal import edit
from tiny_models import LINEAR, save_adapter, save_base

from hubtools.digests import sha256_file
from hubtools.errors import CheckError, Finding
from hubtools.family.manifest import read_family
from hubtools.localhub.server import LocalHub
from hubtools.release.context import Release, open_release
from hubtools.release.engine import walk
from hubtools.release.gc import find_garbage
from hubtools.release.infer import infer_manifest
from hubtools.release.stages.check import check_local

Hubtools = Callable[..., Any]
REPO = "lab/tiny-red-s7"
MANIFEST = f"""\
schema = 1
[family]
id = "tiny"
owner = "lab"
kind = "full"
license = "apache-2.0"
base = {{ repo = "lab/tiny-base", revision = "{tiny_family.REVISION}", path = "base" }}
[arms.red]
steps = ["s7"]
[inputs]
checkpoint = "runs/{{arm}}/global_step_{{optimizer_step}}"
[ingest]
dtype = "bfloat16"
[provenance]
status = "none"
reason = "no teacher was called"
"""
ACTOR = "runs/red/global_step_7/actor"


def opened(root: Path) -> Release:
    family = read_family(root)
    return open_release(family, family.members, clock=time.time)


def findings(root: Path) -> list[Finding]:
    return [finding for finding in check_local(opened(root)) if finding.id.startswith("HT")]


def errors(root: Path) -> dict[str, Finding]:
    return {finding.id: finding for finding in findings(root) if finding.level == "error"}


def pending(root: Path) -> dict[str, str]:
    cells, failures = walk(opened(root), execute=False)
    assert not failures
    return {cell.stage: cell.action for cell in cells}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A family over a run of two real ranks, and beside it what transformers would have saved."""
    root = tmp_path_factory.mktemp("made")
    save_base(root / "base", "llama", "float32")
    sharded_runs.make_run(root / "runs" / "red")
    trainer_dirs.save_reference(root / "reference", "llama", "bfloat16")
    (root / "family.toml").write_text(MANIFEST)
    return root


@pytest.fixture(scope="module")
def finished(made: Path) -> Path:
    """The same after every local stage."""
    assert not errors(made)
    _, failures = walk(opened(made), execute=True)
    assert not failures
    return made


@pytest.fixture
def root(finished: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "family"
    shutil.copytree(finished, copy)
    return copy


def test_the_released_weights_are_those_that_transformers_would_have_saved(
    hub: LocalHub, hubtools: Hubtools, root: Path
) -> None:
    ended = hubtools("release", "--yes", str(root))
    assert ended.code == 0, ended.err
    files = remote_state(hub, [REPO])[REPO]["files"]
    assert {"config.json", "tokenizer.json", "README.md", ".hubtools/weights.json"} <= set(files)
    assert not any("rank" in name or "optim" in name for name in files)
    api = HfApi(endpoint=hub.url, token=hub.token)

    def fetched(name: str) -> Path:
        return Path(api.hf_hub_download(REPO, name, cache_dir=root / "cache"))

    assert sha256_file(fetched("model.safetensors")) == sha256_file(
        root / "reference" / "model.safetensors"
    )
    report = json.loads(fetched(".hubtools/weights.json").read_text())["ingest"]
    assert (report["source"], report["world_size"], report["step"]) == ("verl-fsdp", 2, 7)
    assert report["sources"]["actor/model_world_size_2_rank_1.pt"] == sha256_file(
        root / ACTOR / "model_world_size_2_rank_1.pt"
    )
    assert str(root) not in json.dumps(report)
    again = hubtools("release", "--yes", "--json", str(root))
    assert again.code == 0, again.err
    assert json.loads(again.out)["members"]["red/s7"]["pushed"] is False


def test_the_card_tells_the_step_and_how_the_weights_were_made(finished: Path) -> None:
    card = next((finished / ".hubtools" / "cards").glob("*/README.md")).read_text()
    assert "| optimizer steps | 7 | reported |" in card
    assert "“global_step_7”" in card
    section = card.split("### How the weights were made")[1].split("\n## ")[0]
    assert "2 ranks" in section
    assert "bfloat16; saved as float32" in section
    assert "`.hubtools/weights.json`" in section


def append(path: str, data: bytes) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        with (root / path).open("ab") as file:
            file.write(data)

    return change


CHANGES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "nothing": ("cached", lambda root: None),
    "a rank's weights": ("run", append(f"{ACTOR}/model_world_size_2_rank_1.pt", b" ")),
    "an optimizer state": ("cached", append(f"{ACTOR}/optim_world_size_2_rank_1.pt", b" ")),
    "the configuration": ("run", append(f"{ACTOR}/huggingface/config.json", b" ")),
    "the tokenizer": ("run", append(f"{ACTOR}/huggingface/tokenizer_config.json", b" ")),
    "the base's licence": ("run", append("base/LICENSE", b"more")),
    "the dtype": ("run", lambda root: edit(root, '"bfloat16"', '"float16"')),
    "the alpha": ("run", lambda root: edit(root, "[ingest]", "[ingest]\nlora_alpha = 2")),
    "a trainer state": ("run", append("runs/red/global_step_7/trainer_state.json", b"{}")),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_each_input_alone_makes_the_merge_stage_run_again(root: Path, name: str) -> None:
    action, change = CHANGES[name]
    change(root)
    assert pending(root)["merge"] == action


def test_a_project_that_was_moved_has_nothing_to_do(root: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "family"
    moved.parent.mkdir()
    root.rename(moved)
    assert set(pending(moved).values()) <= {"cached", "skip"}


def test_a_run_that_was_found_whole_is_not_opened_again(root: Path) -> None:
    """The look into the weights is by a child process, and costs seconds."""
    for log in (root / ".hubtools" / "logs").glob("ingest-*.log"):
        log.unlink()
    assert not errors(root)
    assert not list((root / ".hubtools" / "logs").glob("ingest-*.log"))


def test_what_is_wrong_is_found_before_the_first_byte(made: Path, tmp_path: Path) -> None:
    root = tmp_path / "family"
    shutil.copytree(made, root, ignore=shutil.ignore_patterns(".hubtools", "merged"))
    edit(root, '[ingest]\ndtype = "bfloat16"\n', "")
    assert 'add dtype = "bfloat16" to [ingest]' in errors(root)["HT170"].next
    (root / ACTOR / "model_world_size_2_rank_1.pt").unlink()
    assert "HT167" in errors(root)
    assert not (root / "merged").exists()


def test_a_step_that_the_directory_contradicts(root: Path) -> None:
    edit(root, "[inputs]", "[steps.s7]\noptimizer_step = 8\n[inputs]")
    edit(root, "global_step_{optimizer_step}", "global_step_7")
    found = errors(root)["HT516"]
    assert "its directory's name says 7" in found.message
    edit(root, "optimizer_step = 8\n", "")
    (root / "runs/red/global_step_7/trainer_state.json").write_text('{"global_step": 9}')
    assert "its trainer state says 9" in errors(root)["HT516"].message
    edit(root, '"s7"', '"last"')
    edit(root, "[steps.s7]\n", "")
    assert "global_step_7" in errors(root)["HT528"].message
    edit(root, "[inputs]", "[steps.last]\noptimizer_step = 9\n[inputs]")
    (warning,) = (finding for finding in findings(root) if finding.id == "HT528")
    assert warning.level == "warning"


def test_options_that_nothing_reads_are_named(root: Path) -> None:
    edit(root, "[ingest]", "[merge]\nkeep_tied = true\n[ingest]")
    (unread,) = (finding for finding in findings(root) if finding.id == "HT530")
    assert "[merge]" in unread.message


def test_old_weights_that_were_taken_in_are_collected(root: Path) -> None:
    edit(root, '"bfloat16"', '"float32"')
    walk(opened(root), execute=True)
    (item,) = (item for item in find_garbage(opened(root)) if item.kind == "weights")
    (work,) = (item for item in find_garbage(opened(root)) if item.kind == "scratch")
    assert work.path.name == f".{item.path.name}.ingest"


@pytest.fixture(scope="module")
def lora(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA run as verl leaves it, with the adapter it should have been beside it."""
    root = tmp_path_factory.mktemp("lora")
    shutil.copytree(made / "base", root / "base")
    adapter = save_adapter(root / "adapter", root / "base", LINEAR["llama"], r=2)
    run = made / "runs" / "red" / "global_step_7"
    sharded_runs.make_lora_run(root / "runs" / "red", run, adapter)
    text = MANIFEST.replace('kind = "full"', 'kind = "merged"').replace('dtype = "bfloat16"\n', "")
    (root / "family.toml").write_text(text)
    return root


def test_a_lora_run_needs_its_alpha_and_is_no_full_model(lora: Path, tmp_path: Path) -> None:
    root = tmp_path / "family"
    shutil.copytree(lora, root)
    assert "lora_alpha = ALPHA" in errors(root)["HT172"].next
    edit(root, "[ingest]", "[ingest]\nlora_alpha = 24")
    assert errors(root) == {}
    edit(root, 'kind = "merged"', 'kind = "full"')
    assert 'set kind = "adapter" or "merged"' in errors(root)["HT515"].next


def test_a_lora_run_is_merged_as_its_adapter_would_be(lora: Path, tmp_path: Path) -> None:
    root = tmp_path / "family"
    shutil.copytree(lora, root)
    edit(root, "[ingest]", "[ingest]\nlora_alpha = 24")
    release = opened(root)
    _, failures = walk(release, execute=True)
    assert not failures
    from hubtools.checkpoint.merging.merge import merge

    right = merge([root / "adapter"], root / "base", tmp_path / "right", log=tmp_path / "log")
    outputs = release.done["merge", "red/s7"]
    assert outputs["files"]["model.safetensors"]["sha256"] == right["weights"]["model.safetensors"]
    facts = {fact["id"]: fact for fact in outputs["facts"]}
    assert (facts["train.lora_alpha"]["value"], facts["train.lora_alpha"]["status"]) == (
        24,
        "reported",
    )
    assert facts["train.lora_r"]["status"] == "measured"


def test_a_release_without_a_manifest_knows_kind_and_step(lora: Path, made: Path) -> None:
    base = f"lab/tiny-base@{tiny_family.REVISION}"
    run = made / "runs" / "red" / "global_step_7"
    inferred = infer_manifest("me/first", run, base=base, dtype="bfloat16")
    assert 'kind = "full"' in inferred.text
    assert "optimizer_step = 7" in inferred.text
    assert '[ingest]\ndtype = "bfloat16"' in inferred.text
    run = lora / "runs" / "red" / "global_step_7"
    with pytest.raises(CheckError, match="HT172") as caught:
        infer_manifest("me/first", run, base=base)
    assert "--lora-alpha ALPHA" in caught.value.next
    inferred = infer_manifest("me/first", run, base=base, lora_alpha=24.0)
    assert 'kind = "adapter"' in inferred.text
    assert "lora_alpha = 24.0" in inferred.text


def test_the_base_of_a_lora_run_names_the_release_of_its_adapter(
    lora: Path, tmp_path: Path
) -> None:
    base = f"lab/tiny-base@{tiny_family.REVISION}"
    actor = Path(shutil.copytree(lora / "runs/red/global_step_7/actor", tmp_path / "actor"))
    shutil.copytree(lora / "base", actor / "huggingface", dirs_exist_ok=True)
    with pytest.raises(CheckError, match="HT172") as caught:
        infer_manifest("me/first", actor / "huggingface", base=base)
    words = shlex.split(caught.value.next, comments=True)
    assert words == [
        "hubtools", "release", "me/first", "--from", str(actor / "lora_adapter"), "--base", base,
        "--lora-alpha", "ALPHA",
    ]  # fmt: skip
    inferred = infer_manifest("me/first", Path(words[4]), base=words[6], lora_alpha=24.0)
    assert 'kind = "adapter"' in inferred.text
    with pytest.raises(CheckError, match="HT172") as caught:
        infer_manifest("me/first", actor / "huggingface", base=base, lora_alpha=24.0)
    assert f"--from {actor}/lora_adapter" in caught.value.next
