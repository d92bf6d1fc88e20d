"""Whose shards, of which step: told by names of files, and by what the trainer wrote down."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hubtools.checkpoint.inspecting.look import look
from hubtools.checkpoint.kinds import named_step, trainer_kind, trainer_shards
from hubtools.errors import CheckError

Pair = tuple[Path, Path]
Made = Callable[..., Pair]


def ids(path: Path) -> set[tuple[str, str]]:
    return {(finding.id, finding.level) for finding in look(path).findings}


def touch(root: Path, *names: str) -> Path:
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    return root


VERL = [f"actor/model_world_size_2_rank_{rank}.pt" for rank in (0, 1)]


@pytest.mark.parametrize(
    ("names", "kind", "folder"),
    [
        (VERL, "verl-fsdp", "actor"),
        (["model_world_size_1_rank_0.pt"], "verl-fsdp", "."),
        (["critic/model_world_size_1_rank_0.pt", *VERL], "verl-fsdp", "actor"),
        ([".metadata", "__0_0.distcp"], "dcp", "."),
        (["pytorch_model_fsdp_0/.metadata", "pytorch_model_fsdp_0/__0_0.distcp",
          "optimizer_0/.metadata", "optimizer_0/__0_0.distcp"], "dcp", "pytorch_model_fsdp_0"),
        (["global_step9/mp_rank_00_model_states.pt",
          "global_step9/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "zero_to_fp32.py"],
         "deepspeed", "global_step9"),
        (["mp_rank_00_model_states.pt"], "deepspeed", "."),
        (["zero_pp_rank_0_mp_rank_00_model_states.pt"], "deepspeed", "."),
        (["mp_rank_00/model_optim_rng.pt"], "megatron", "mp_rank_00"),
        (["actor/dist_ckpt/common.pt", "actor/dist_ckpt/metadata.json",
          "actor/dist_ckpt/.metadata", "actor/dist_ckpt/__0_0.distcp"],
         "megatron", "actor/dist_ckpt"),
        (["optimizer_0/.metadata", "optimizer_0/__0_0.distcp"], None, ""),
        (["critic/model_world_size_1_rank_0.pt"], None, ""),
        (["global_step_1/actor/model_world_size_1_rank_0.pt",
          "global_step_2/actor/model_world_size_1_rank_0.pt"], None, ""),
        (["model.safetensors"], None, ""),
    ],
)  # fmt: skip
def test_whose_shards(tmp_path: Path, names: list[str], kind: str | None, folder: str) -> None:
    touch(tmp_path, *names)
    assert trainer_kind(tmp_path) == kind
    shards = trainer_shards(tmp_path)
    if shards is not None:
        assert shards.folder == tmp_path / folder
        assert look(tmp_path).kind == kind
    assert trainer_kind(tmp_path / "nowhere") is None


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    names = [f"actor/model_world_size_4_rank_{rank}.pt" for rank in (0, 3)]
    shards = trainer_shards(touch(tmp_path, *names))
    assert shards is not None
    assert (shards.world_size, shards.ranks, shards.missing) == (4, (0, 3), (1, 2))
    seen = look(tmp_path)
    (finding,) = [finding for finding in seen.findings if finding.id == "HT184"]
    assert finding.level == "error"
    assert "ranks 1, 2 of 4" in finding.message
    assert seen.broken


@pytest.mark.parametrize(
    "name",
    [
        "model_world_size_999999999999_rank_0.pt",
        f"model_world_size_{'9' * 200}_rank_0.pt",
        "zero_pp_rank_999999999999_mp_rank_00_optim_states.pt",
    ],
)
def test_a_name_that_claims_endless_ranks_is_only_a_name(tmp_path: Path, name: str) -> None:
    from hubtools.checkpoint.ingesting.ranks import rank_files

    shards = trainer_shards(touch(tmp_path, name))
    assert shards is not None
    assert len(shards.missing) == 100
    assert shards.lacking == shards.world_size - 1
    seen = look(tmp_path)
    assert len(seen.to_json()["trainer"]["missing_ranks"]) == 100
    assert [f.id for f in seen.findings if f.level == "error"] == ["HT184"]
    if name.startswith("model"):
        with pytest.raises(CheckError, match="HT167"):
            rank_files(tmp_path)


@pytest.mark.parametrize("size", [0, 1])
def test_ranks_beyond_the_world_are_refused(tmp_path: Path, size: int) -> None:
    from hubtools.checkpoint.ingesting.ranks import rank_files

    touch(tmp_path, *(f"model_world_size_{size}_rank_{rank}.pt" for rank in (0, 1)))
    with pytest.raises(CheckError, match="HT167"):
        rank_files(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [('{"world_size": 8}', "says 8 ranks"), ("[", "unreadable"), ('{"world_size": 2}', "")],
)
def test_the_world_size_is_stated_twice(tmp_path: Path, text: str, words: str) -> None:
    touch(tmp_path, *VERL)
    (tmp_path / "actor" / "fsdp_config.json").write_text(text)
    found = [finding.message for finding in look(tmp_path).findings if finding.id == "HT184"]
    assert len(found) == bool(words)
    assert words in "".join(found)


@pytest.mark.parametrize("names", [["__0_0.distcp"], [".metadata"]])
def test_half_a_distributed_checkpoint(tmp_path: Path, names: list[str]) -> None:
    assert ("HT184", "error") in ids(touch(tmp_path, *names))


def test_real_shards_of_torch(tmp_path: Path) -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Linear(3, 3, bias=False))
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        step = tmp_path / "global_step_20" / "actor"
        step.mkdir(parents=True)
        torch.save(model.state_dict(), step / "model_world_size_1_rank_0.pt")
        optimizer = {"exp_avg": torch.zeros(100)}
        state = {"model": model.state_dict(), "optim": optimizer}
        dcp.save(state, checkpoint_id=tmp_path / "dcp", no_dist=False)
    finally:
        dist.destroy_process_group()
    for path in (step.parent, step, tmp_path / "dcp"):
        seen = look(path)
        assert (seen.parameters, seen.dtypes) == (27, {"float32": (3, 27)}), path
        assert seen.findings == ()
    assert [step.value for step in look(step).steps] == [20]
    assert look(tmp_path).kind == "run"


def test_the_configuration_of_a_verl_step_lies_beside_it(made: Made, tmp_path: Path) -> None:
    base, adapter = made()
    touch(tmp_path, *VERL)
    beside = Path(shutil.copytree(base, tmp_path / "actor" / "huggingface"))
    (beside / "model.safetensors").unlink()
    seen = look(tmp_path)
    assert (seen.kind, seen.architecture) == ("verl-fsdp", "LlamaForCausalLM")
    assert (seen.tokenizer, seen.chat_template) == (("tokenizer.json",), True)
    assert (seen.foreign, seen.inside) == ((), ())
    assert seen.words() == "FSDP shards of verl, 2 ranks"
    lora = Path(shutil.copytree(adapter, tmp_path / "actor" / "lora_adapter"))
    config = json.loads((lora / "adapter_config.json").read_bytes())
    (lora / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 0}))
    assert [(one.name, one.kind) for one in look(tmp_path).inside] == [
        ("actor/lora_adapter", "adapter")
    ]
    assert look(tmp_path).words() == "step of a LoRA run: FSDP shards of verl, 2 ranks"
    assert ("HT183", "warning") in ids(tmp_path)
    assert ("HT183", "warning") in ids(lora)


def test_a_folder_of_checkpoints(made: Made, tmp_path: Path) -> None:
    base, adapter = made()
    for step in (500, 1000, 90):
        shutil.copytree(adapter, tmp_path / f"checkpoint-{step}")
    shutil.copytree(base, tmp_path / "final")
    touch(tmp_path, "global_step_7/actor/model_world_size_1_rank_0.pt", "wandb/run-1/files/x.json")
    seen = look(tmp_path)
    assert (seen.kind, seen.words()) == ("run", "a folder of 5 checkpoints")
    assert [(one.name, one.kind, one.step) for one in seen.inside] == [
        ("global_step_7", "verl-fsdp", 7),
        ("checkpoint-90", "adapter", 90),
        ("checkpoint-500", "adapter", 500),
        ("checkpoint-1000", "adapter", 1000),
        ("final", "full", None),
    ]
    assert [(foreign.what, foreign.files) for foreign in seen.foreign] == [("run logs", 1)]


STEPS = {
    "global_step_100": 100, "global_step7": 7, "checkpoint-500": 500, "step_3": 3, "step-3": 3,
    "iter_0000100": 100, "checkpoint": None, "checkpoint-best": None, "v2-checkpoint-5": None,
    "global_step_" + "9" * 40: None,
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_step_in_a_name(name: str) -> None:
    assert named_step(name) == STEPS[name]


def test_statements_of_the_step_that_disagree(broken: Pair) -> None:
    _, adapter = broken
    run = adapter.rename(adapter.with_name("checkpoint-9"))
    (run / "trainer_state.json").write_text('{"global_step": 8}')
    seen = look(run)
    assert [(step.value, step.claim) for step in seen.steps] == [(8, False), (9, True)]
    (finding,) = [finding for finding in seen.findings if finding.id == "HT178"]
    assert finding.level == "warning"
    assert "8 (trainer_state.json:/global_step)" in finding.message
    (run / "trainer_state.json").write_text('{"global_step": 9}')
    (run / "latest").write_text("global_step9\n")
    assert [step.value for step in look(run).steps] == [9, 9, 9]
    assert "HT178" not in {finding.id for finding in look(run).findings}


def test_an_adapter_in_the_shards_makes_it_the_step_of_a_lora_run(tmp_path: Path) -> None:
    import torch

    name = "base_model.model.model.layers.0.mlp.up_proj"
    parts = {f"{name}.{part}.weight": torch.ones(2, 2) for part in ("base_layer", "lora_A.default")}
    torch.save(parts, tmp_path / "model_world_size_1_rank_0.pt")
    seen = look(tmp_path)
    assert seen.words() == "step of a LoRA run: FSDP shards of verl, 1 rank"
    assert seen.to_json()["trainer"]["lora"]
