"""verl step directories, written by four real ranks, against what transformers saves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from same_tensors import same, stored
from trainer_dirs import model_of, save_side_files

from hubtools.checkpoint.ingesting import plan as plans
from hubtools.checkpoint.ingesting.ingest import ingest, plan_ingest
from hubtools.checkpoint.ingesting.ranks import rank_files, read_ranks
from hubtools.errors import CheckError

LAYOUTS = [
    ("fsdp1", "llama"),
    ("hsdp1", "llama"),
    ("fsdp2-moe", "moe"),
    ("hsdp2-tied", "tied"),
    ("columns", "llama"),
]


@pytest.mark.parametrize(("layout", "name"), LAYOUTS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_bytes_of_save_pretrained(
    trained: Path, reference: Any, here: Any, tmp_path: Path, layout: str, name: str, dtype: str
) -> None:
    result = here(trained / layout, dtype=dtype)
    assert same(tmp_path / "out", reference(name, dtype))
    report = result["report"]
    assert (report["source"], report["world_size"], report["step"]) == ("verl-fsdp", 4, 7)
    assert report["dtypes_in"] == {"F32": report["elements"]}
    rounded = 0 if dtype == "float32" else 0.9 * report["elements"]
    assert rounded <= report["rounded_elements"] <= rounded / 0.9
    assert report["dropped"] == (["lm_head.weight"] if name == "tied" else [])
    fields = json.loads((tmp_path / "out" / "config.json").read_text())
    assert fields["dtype"] == dtype


def test_the_result_loads_and_says_what_the_trained_model_says(
    trained: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out = tmp_path / "out"
    result = ingest(trained / "fsdp2-moe", out, dtype="float32", log=tmp_path / "log")
    assert sorted(result["files"]) == sorted(p.name for p in out.iterdir())
    assert {"tokenizer.json", "chat_template.jinja", "generation_config.json"} <= set(
        result["files"]
    )
    loaded = AutoModelForCausalLM.from_pretrained(out).eval()
    assert loaded.dtype == torch.float32
    ids = AutoTokenizer.from_pretrained(out)("abc", return_tensors="pt").input_ids
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, model_of("moe").eval()(ids).logits)


def test_the_step_directory_may_be_named_at_any_level(trained: Path, here: Any) -> None:
    run = trained / "fsdp1"
    reports = [
        here(path, check=True, dtype="bfloat16")["report"]
        for path in (run, run / "global_step_7", run / "global_step_7" / "actor")
    ]
    assert [report["step"] for report in reports] == [7, 7, 7]
    assert len({report["elements"] for report in reports}) == 1


def test_replicated_buffers_and_what_stays_wide(
    trained: Path, reference: Any, here: Any, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    here(trained / "buffers", dtype="bfloat16")
    wide = reference("buffers", "float32")
    loaded = AutoModelForCausalLM.from_pretrained(wide, dtype=torch.bfloat16)
    loaded.save_pretrained(tmp_path / "narrow")  # transformers keeps the router in float32
    assert same(tmp_path / "out", tmp_path / "narrow")
    kinds = {tensor[0] for tensor in stored(tmp_path / "out").values()}
    assert kinds == {"BF16", "F32"}


def test_scalars_come_from_rank_zero(copied: Callable[[str], Path]) -> None:
    actor = copied("fsdp1") / "global_step_7" / "actor"
    for file in rank_files(actor):
        state = torch.load(file, weights_only=True)
        torch.save({**state, "count": torch.tensor(3), "two": torch.arange(2)}, file)
    found = {tensor.name: tensor for tensor in read_ranks(rank_files(actor))}
    for name, shape in (("count", ()), ("two", (2,))):
        assert (found[name].dtype, found[name].shape) == ("I64", shape)
        assert [piece.path.name for piece in found[name].pieces] == ["model_world_size_4_rank_0.pt"]


def test_one_rank_stores_plain_tensors(here: Any, reference: Any, tmp_path: Path) -> None:
    actor = tmp_path / "global_step_3" / "actor"
    save_side_files(actor / "huggingface", "llama")
    state = {f"_fsdp_wrapped_module.{k}": v for k, v in model_of("llama").state_dict().items()}
    torch.save(state, actor / "model_world_size_1_rank_0.pt")
    result = here(actor.parent, dtype="bfloat16")
    assert same(tmp_path / "out", reference("llama"))
    assert (result["report"]["world_size"], result["report"]["step"]) == (1, 3)


def test_shards_of_at_most_five_gigabytes(
    trained: Path, reference: Any, here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "SHARD_BYTES", 60_000)
    result = here(trained / "fsdp1", dtype="bfloat16")
    assert len(result["weights"]) == 3
    assert same(tmp_path / "out", reference("llama"))  # read through the index
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    sizes = [len(tensor[2]) for tensor in stored(tmp_path / "out").values()]
    assert index["metadata"] == {
        "total_size": sum(sizes),
        "total_parameters": result["report"]["elements"],
    }


def test_a_base_with_weights_needs_no_transformers(
    trained: Path, reference: Any, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "from_transformers", None)  # a call would fail
    base = reference("tied")
    report = here(trained / "hsdp2-tied", base=base, dtype="bfloat16", check=True)["report"]
    assert report["checked_against"] == "the base's weight files"


def test_what_the_base_keeps_wide_stays_wide(
    trained: Path, reference: Any, here: Any, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    base = tmp_path / "base"
    base.mkdir()
    tensors = load_file(reference("llama") / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].float()
    save_file(tensors, base / "model.safetensors", metadata={"format": "pt"})
    here(trained / "fsdp1", base=base, dtype="bfloat16")
    dtypes = {name: tensor[0] for name, tensor in stored(tmp_path / "out").items()}
    assert dtypes.pop("model.norm.weight") == "F32"
    assert set(dtypes.values()) == {"BF16"}


def test_the_run_has_no_config_and_the_base_has(
    copied: Callable[[str], Path], reference: Any, here: Any, tmp_path: Path
) -> None:
    import shutil

    run = copied("fsdp1")
    shutil.rmtree(run / "global_step_7" / "actor" / "huggingface")
    with pytest.raises(CheckError, match="HT173"):
        plan_ingest(run)
    (tmp_path / "out").mkdir()
    here(run, base=reference("llama"), dtype="bfloat16")
    assert (tmp_path / "out" / "config.json").read_bytes() == (
        reference("llama") / "config.json"
    ).read_bytes()


def test_the_key_of_a_stage_knows_every_file_and_no_optimizer(trained: Path) -> None:
    job = plan_ingest(trained / "fsdp1")
    names = {file.name for file in job.files}
    assert (job.kind, job.step) == ("full", 7)
    assert {f"model_world_size_4_rank_{rank}.pt" for rank in range(4)} <= names
    assert {"config.json", "tokenizer.json"} <= names
    assert not any("optim" in name for name in names)
