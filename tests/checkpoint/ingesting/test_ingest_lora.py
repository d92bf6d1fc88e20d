"""LoRA runs: the adapter comes out, and the base beside it never as the fine-tune."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from test_ingest_refusals import refused
from trainer_dirs import model_of

from hubtools.checkpoint.ingesting.ingest import ingest, plan_ingest
from hubtools.release.ingested import is_ingested

ALPHA = 16.0


def test_alpha_zero_is_refused_until_it_is_given(tuned: Path) -> None:
    error = refused("HT172", lambda: plan_ingest(tuned), "lora_alpha 0", "verl does not save")
    assert error.next.endswith("actor -o OUT --lora-alpha ALPHA")
    refused("HT172", lambda: plan_ingest(tuned, lora_alpha=0.0))
    job = plan_ingest(tuned, lora_alpha=ALPHA)
    assert (job.kind, job.step) == ("adapter", 7)
    assert not any(file.suffix == ".pt" for file in job.files)


def test_the_adapter_merges_to_what_was_trained(tuned: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    out = tmp_path / "out"
    result = ingest(tuned, out, lora_alpha=ALPHA, log=tmp_path / "log")
    assert result["report"]["kind"] == "adapter"
    saved = json.loads((tuned / "global_step_7/actor/lora_adapter/adapter_config.json").read_text())
    assert json.loads((out / "adapter_config.json").read_text()) == {**saved, "lora_alpha": 16}
    merged = PeftModel.from_pretrained(model_of("llama"), out).merge_and_unload()
    factors = load_file(out / "adapter_model.safetensors")
    base = model_of("llama").state_dict()
    moved = 0
    for name, tensor in merged.state_dict().items():
        path = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{path}.lora_A.weight" in factors:
            delta = factors[f"{path}.lora_B.weight"] @ factors[f"{path}.lora_A.weight"]
            assert torch.allclose(tensor, base[name] + delta * (ALPHA / 4), atol=1e-6)
            moved += 1
    assert moved == 4


def test_alpha_that_was_saved_is_not_overruled(tuned: Path, tmp_path: Path, here: Any) -> None:
    run = Path(shutil.copytree(tuned, tmp_path / "run"))
    file = run / "global_step_7/actor/lora_adapter/adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "lora_alpha": 32}))
    here(run, check=True)
    here(run, check=True, lora_alpha=32.0)
    refused("HT172", lambda: plan_ingest(run, lora_alpha=16.0), "32", "16")


def test_factors_only_in_the_shards(tuned: Path, tmp_path: Path, here: Any) -> None:
    run = Path(shutil.copytree(tuned, tmp_path / "run"))
    lora = run / "global_step_7/actor/lora_adapter"
    expected = load_file(lora / "adapter_model.safetensors")
    shutil.rmtree(lora)
    refused("HT172", lambda: here(run, check=True), "adapted model")
    refused("HT172", lambda: here(run, check=True, dtype="bfloat16"), "base without it")
    here(run, lora_alpha=ALPHA)
    found = load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert sorted(found) == sorted(expected)
    assert all(torch.equal(found[name], expected[name]) for name in found)
    fields = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert (fields["r"], fields["lora_alpha"], fields["peft_type"]) == (4, 16, "LORA")
    assert len(fields["target_modules"]) == 4


def test_the_base_of_a_lora_run_alone_is_refused(tuned: Path, tmp_path: Path, here: Any) -> None:
    run = Path(shutil.copytree(tuned, tmp_path / "run"))
    actor = run / "global_step_7/actor"
    shutil.rmtree(actor / "lora_adapter")
    for file in actor.glob("*.pt"):
        state = torch.load(file, weights_only=True)
        torch.save({k: v for k, v in state.items() if ".lora_" not in k}, file)
    refused("HT172", lambda: here(run, dtype="bfloat16", check=True), "base_layer")
    refused("HT172", lambda: here(run, lora_alpha=ALPHA, check=True), "base alone")


def test_alpha_for_a_run_without_lora(trained: Path, here: Any) -> None:
    refused(
        "HT172",
        lambda: here(trained / "fsdp1", dtype="bfloat16", lora_alpha=ALPHA, check=True),
        "no LoRA run",
    )


@pytest.mark.parametrize("lost", ["lora_B", "empty"])
def test_half_an_adapter(tuned: Path, tmp_path: Path, here: Any, lost: str) -> None:
    from safetensors.torch import save_file

    run = Path(shutil.copytree(tuned, tmp_path / "run"))
    file = run / "global_step_7/actor/lora_adapter/adapter_model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if "lora_B" in name)
    if lost == "empty":
        tensors[name] = tensors[name][:0]
    else:
        del tensors[name]
    save_file(tensors, file)
    refused("HT172", lambda: here(run, lora_alpha=ALPHA, check=True))


def with_base(tuned: Path, tmp_path: Path) -> Path:
    """A copy of the run's `actor`, its base saved whole in `huggingface/`."""
    run = Path(shutil.copytree(tuned, tmp_path / "run"))
    actor = run / "global_step_7/actor"
    model_of("llama").save_pretrained(actor / "huggingface")
    return actor


def test_a_whole_base_beside_the_factors(tuned: Path, tmp_path: Path, here: Any) -> None:
    actor = with_base(tuned, tmp_path)
    shutil.rmtree(actor / "lora_adapter")
    for place in (actor.parents[1], actor.parent, actor, actor / "huggingface"):
        refused("HT172", lambda place=place: plan_ingest(place), "base")
        assert is_ingested(place)
    assert here(actor, lora_alpha=ALPHA, check=True)["report"]["kind"] == "adapter"
    refused("HT172", lambda: plan_ingest(actor / "huggingface", lora_alpha=ALPHA))


def test_a_whole_base_below_the_adapter(tuned: Path, tmp_path: Path) -> None:
    actor = with_base(tuned, tmp_path)
    for file in actor.glob("*.pt"):
        file.unlink()
    shutil.copytree(actor / "huggingface", actor / "merged")
    for name in ("huggingface", "merged"):
        error = refused("HT172", lambda name=name: plan_ingest(actor / name), "untrained base")
        command, _, why = error.next.partition("  # ")
        assert command.endswith("actor/lora_adapter -o OUT --lora-alpha ALPHA")
        assert why == "the adapter is there"
        assert is_ingested(actor / name)
    (actor / "lora_adapter" / "adapter_config.json").unlink()
    refused("HT172", lambda: plan_ingest(actor), "untrained base")


def test_unreadable_shards_beside_a_whole_model(tuned: Path, tmp_path: Path) -> None:
    actor = with_base(tuned, tmp_path)
    shutil.rmtree(actor / "lora_adapter")
    for file in actor.glob("model_*.pt"):
        file.write_bytes(b"scribbled")
    refused("HT172", lambda: plan_ingest(actor), "cannot tell")


def test_a_whole_fine_tune_beside_its_shards(trained: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained / "fsdp1", tmp_path / "run"))
    whole = run / "global_step_7/actor/huggingface"
    model_of("llama").save_pretrained(whole)
    for place in (run, whole):
        job = plan_ingest(place)
        assert (job.kind, job.source.kind) == ("full", "safetensors")
    assert not is_ingested(whole)


@pytest.mark.parametrize("alpha", [float("nan"), float("inf"), -1.0, 1e300])
def test_alpha_that_is_none(tuned: Path, alpha: float) -> None:
    refused("HT172", lambda: plan_ingest(tuned, lora_alpha=alpha), "is no lora_alpha")


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_a_checkpoint_of_trainer_with_fsdp_and_peft(tmp_path: Path, here: Any) -> None:
    import torch.distributed.checkpoint as dcp
    from peft import LoraConfig, get_peft_model

    step = tmp_path / "checkpoint-5"
    model = get_peft_model(
        model_of("llama"), LoraConfig(r=4, lora_alpha=12, target_modules=["q_proj"])
    )
    model.save_pretrained(step)
    folder = step / "pytorch_model_fsdp_0"
    dcp.save({"model": model.state_dict()}, checkpoint_id=str(folder), no_dist=True)
    refused("HT165", lambda: plan_ingest(step), "adapter already")
    (step / "adapter_model.safetensors").unlink()
    assert here(step)["report"]["kind"] == "adapter"
    written = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert written == json.loads((step / "adapter_config.json").read_text())
    refused("HT172", lambda: here(step, lora_alpha=3.0, check=True), "12")


@pytest.mark.parametrize("kind", [torch.int8, torch.float8_e4m3fn])
def test_factors_that_are_no_floats(tuned: Path, tmp_path: Path, here: Any, kind: Any) -> None:
    from safetensors.torch import save_file

    run = Path(shutil.copytree(tuned, tmp_path / "run"))
    file = run / "global_step_7/actor/lora_adapter/adapter_model.safetensors"
    save_file({name: tensor.to(kind) for name, tensor in load_file(file).items()}, file)
    refused("HT172", lambda: here(run, lora_alpha=ALPHA, check=True), "stored so")
