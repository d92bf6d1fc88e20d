"""What is not the whole of one trained model is refused with the reason; nothing is written."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ingest_cases import actor, rank_file, refused, whole
from test_ingest_dcp import Bomb

from hubtools.checkpoint.ingesting.ingest import ingest, plan_ingest
from hubtools.errors import UsageError

Copy = Callable[[str], Path]


def test_a_missing_rank(copied: Copy) -> None:
    run = copied("fsdp1")
    rank_file(run, 2).unlink()
    refused("HT167", lambda: plan_ingest(run), "1 of 4 ranks", "2")
    for rank in (0, 1, 3):
        rank_file(run, rank).unlink()
    refused("HT167", lambda: plan_ingest(actor(run)), "4 of 4 ranks")


def test_worlds_mixed(copied: Copy, trained: Path) -> None:
    run = copied("fsdp1")
    shutil.copy(rank_file(run, 0), actor(run) / "model_world_size_2_rank_0.pt")
    refused("HT167", lambda: plan_ingest(run), "2 and 4 ranks")
    (actor(run) / "model_world_size_2_rank_0.pt").unlink()
    text = json.dumps({"world_size": 8})
    (actor(run) / "fsdp_config.json").write_text(text)
    refused("HT167", lambda: plan_ingest(run), "4 and 8 ranks")


def test_an_older_verl_wrote_no_config(copied: Copy, here: Any) -> None:
    run = copied("fsdp1")
    (actor(run) / "fsdp_config.json").unlink()
    assert here(run, dtype="bfloat16", check=True)["report"]["world_size"] == 4


def test_a_file_of_another_mesh(copied: Copy, trained: Path, here: Any) -> None:
    run = copied("fsdp1")
    shutil.copy(rank_file(trained / "hsdp1", 1), rank_file(run, 1))
    refused("HT167", lambda: here(run, dtype="bfloat16", check=True), "disagree")


def test_a_replica_of_another_step(copied: Copy, here: Any) -> None:
    run = copied("hsdp1")
    file = rank_file(run, 2)  # a copy of rank 0's shards
    other = torch.load(file, weights_only=True)
    other["model.norm.weight"]._local_tensor.add_(1)
    torch.save(other, file)
    refused("HT167", lambda: here(run, dtype="bfloat16", check=True), "replicated", "norm")


def test_schedules_that_have_come_differently_far(copied: Copy, here: Any) -> None:
    run = copied("fsdp1")
    for rank, step in ((0, 7), (1, 7), (2, 9), (3, 7)):
        extra = actor(run) / f"extra_state_world_size_4_rank_{rank}.pt"
        torch.save({"lr_scheduler": {"last_epoch": step}, "rng": torch.get_rng_state()}, extra)
    refused("HT167", lambda: here(run, dtype="bfloat16", check=True), "steps 7 and 9")


def test_a_truncated_rank_file(copied: Copy, here: Any) -> None:
    run = copied("fsdp1")
    for size in (0, 100, 50_000, rank_file(run, 3).stat().st_size - 1):
        os.truncate(rank_file(run, 3), size)
        refused("HT168", lambda: here(run, dtype="bfloat16", check=True), "rank_3.pt")


def test_a_hostile_rank_file_runs_nothing(copied: Copy, here: Any, tmp_path: Path) -> None:
    run = copied("fsdp1")
    torch.save({"model.norm.weight": Bomb(tmp_path / "gone off")}, rank_file(run, 1))
    error = refused("HT168", lambda: here(run, dtype="bfloat16", check=True), "would run code")
    assert "mkdir" in error.message
    assert not (tmp_path / "gone off").exists()


def test_legacy_sharded_tensors(trained: Path, here: Any) -> None:
    run = trained / "legacy"
    refused("HT169", lambda: here(run, dtype="bfloat16", check=True), "ShardedTensor", "FSDP2")


def test_two_sharded_dimensions(trained: Path, here: Any) -> None:
    run = trained / "two-ways"
    refused("HT169", lambda: here(run, dtype="bfloat16", check=True), "['S0', 'S1']", "hf_model")


@pytest.mark.parametrize("zero", [True, False])
def test_deepspeed_names_the_command_that_converts(tmp_path: Path, zero: bool) -> None:
    step = tmp_path / "checkpoint-40" / "global_step40"
    step.mkdir(parents=True)
    for rank in range(2):
        (step / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").write_bytes(b"")
    (step / "mp_rank_00_model_states.pt").write_bytes(b"")
    if zero:
        (tmp_path / "checkpoint-40" / "zero_to_fp32.py").write_text("")
    error = refused("HT169", lambda: plan_ingest(tmp_path / "checkpoint-40"), "DeepSpeed")
    assert "zero_to_fp32" in error.next
    assert error.next.endswith("/consolidated -o OUT")


def test_several_steps_are_listed(trained: Path, tmp_path: Path, here: Any) -> None:
    for step in (5, 10, 100):
        shutil.copytree(trained / "fsdp1" / "global_step_7", tmp_path / f"global_step_{step}")
    error = refused("HT166", lambda: plan_ingest(tmp_path), "global_step_5, global_step_10")
    assert f"{tmp_path / 'global_step_100'} -o OUT" in error.next
    assert plan_ingest(tmp_path / "global_step_10").step == 10


def test_nothing_here(tmp_path: Path) -> None:
    refused("HT165", lambda: plan_ingest(tmp_path), "no weights here")
    refused("HT165", lambda: plan_ingest(tmp_path / "absent"), "not a directory")
    (tmp_path / "adapter_config.json").write_text("{}")
    refused("HT165", lambda: plan_ingest(tmp_path), "adapter already", "hubtools merge")


def test_the_dtype_is_asked_for(trained: Path, here: Any, reference: Any, copied: Copy) -> None:
    run = trained / "fsdp1"
    error = refused("HT170", lambda: here(run, check=True), "--dtype float32", "each value rounded")
    assert error.next.startswith(f"hubtools ingest {run} -o OUT --dtype bfloat16")
    # A trainer that wrote its masters' dtype down does not decide for the base's.
    run = copied("fsdp1")
    file = actor(run) / "huggingface" / "config.json"
    file.write_text(file.read_text().replace("bfloat16", "float32"))
    assert here(run, check=True)["report"]["dtypes_out"].keys() == {"F32"}
    base = reference("llama")
    refused("HT170", lambda: here(run, base=base, check=True), "the base declares bfloat16")
    with pytest.raises(UsageError, match="HT413"):
        plan_ingest(run, dtype="int8")


def test_the_config_of_another_model(copied: Copy, here: Any) -> None:
    run = copied("fsdp1")
    file = actor(run) / "huggingface" / "config.json"
    fields = json.loads(file.read_text())
    file.write_text(json.dumps({**fields, "num_hidden_layers": 3, "vocab_size": 140}))
    refused(
        "HT171",
        lambda: here(run, dtype="bfloat16", check=True),
        "missing: model.layers.2.",
        "more",
    )
    file.write_text(json.dumps({**fields, "vocab_size": 140}))
    refused(
        "HT171",
        lambda: here(run, dtype="bfloat16", check=True),
        "lm_head.weight is 131×64, expected 140×64",
    )
    file.write_text(json.dumps({**fields, "num_hidden_layers": 1}))
    refused("HT171", lambda: here(run, dtype="bfloat16", check=True), "unexpected: model.layers.1")
    file.write_text(json.dumps({**fields, "model_type": "no_such_model"}))
    refused("HT173", lambda: here(run, dtype="bfloat16", check=True), "no_such_model")


def test_two_names_that_become_one(tmp_path: Path, here: Any) -> None:
    def edit(state: dict[str, Any]) -> None:
        state["_orig_mod.model.norm.weight"] = state["model.norm.weight"]

    run = whole(tmp_path, "llama", edit)
    refused("HT171", lambda: here(run, dtype="bfloat16", check=True), "both become model.norm")


def test_tied_tensors_that_differ(tmp_path: Path, here: Any) -> None:
    def edit(state: dict[str, Any]) -> None:
        state["lm_head.weight"][3, 4] += 1

    run = whole(tmp_path, "tied", edit)
    refused("HT174", lambda: here(run, dtype="bfloat16", check=True), "tied")


def test_one_pickle_is_read_without_running_it(tmp_path: Path, here: Any, reference: Any) -> None:
    from same_tensors import same

    run = whole(tmp_path, "tied", lambda state: None)
    assert here(run, dtype="bfloat16")["report"]["source"] == "pickle"
    assert same(tmp_path / "out", reference("tied"))


def test_the_output_is_something_else(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").touch()
    with pytest.raises(UsageError, match="HT120"):
        ingest(trained / "fsdp1", out, dtype="bfloat16", log=tmp_path / "log")
    assert list(out.iterdir()) == [out / "notes.txt"]
    (out / "notes.txt").unlink()  # an empty directory is free
    made = ingest(trained / "fsdp1", out, dtype="bfloat16", log=tmp_path / "log")
    assert {file.name for file in out.iterdir()} == made["files"].keys()


def test_a_step_that_was_interrupted_is_named(copied: Copy) -> None:
    run = copied("fsdp1")
    later = Path(shutil.copytree(run / "global_step_7", run / "global_step_14"))
    (later / "actor/model_world_size_4_rank_3.pt").unlink()
    error = refused("HT166", lambda: plan_ingest(run), "global_step_7", "global_step_14 (not whole")
    assert error.next.endswith("global_step_7 -o OUT")
    shutil.rmtree(later / "actor")
    refused("HT166", lambda: plan_ingest(run), "global_step_14 (not whole: no weights)")
    later.rename(run / "global_step_2")  # an old step, whose weights the trainer deleted
    assert plan_ingest(run).step == 7


def test_an_output_that_is_there_leaves_nothing(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    link = tmp_path / "home/link"
    link.symlink_to("nowhere")
    for place in (link, tmp_path / "home", tmp_path / "home/.."):
        with pytest.raises(UsageError, match="HT120"):
            ingest(trained / "fsdp1", place, dtype="float32", log=tmp_path / "log")
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "home", link]
