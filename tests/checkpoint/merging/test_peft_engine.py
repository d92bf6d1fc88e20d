"""--engine peft: PEFT computes, the result is written as any merge and answers as the adapter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle import assert_same_bytes, peft_merged, stored
from other_types import TYPES, save_other
from our_merge import no_processes
from zoo import Zoo

from hubtools.checkpoint.adapter import Adapter, open_adapter
from hubtools.checkpoint.merging import memory
from hubtools.checkpoint.merging.logits import check_logits
from hubtools.checkpoint.merging.merge import merge
from hubtools.checkpoint.merging.options import MergeOptions
from hubtools.checkpoint.merging.peft_engine import plan_peft
from hubtools.checkpoint.merging.plan import plan_merge
from hubtools.errors import CheckError, EnvironmentFailure


@pytest.fixture(autouse=True, scope="module")
def here() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, no_processes():
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


def by_peft(base: Path, out: Path, *adapters: Path, **options: Any) -> dict[str, Any]:
    return merge(
        adapters, base, out, options=MergeOptions(**options), engine="peft", log=out.parent / "log"
    )


def compared(base: Path, out: Path, *adapters: Path, residual: bool = False) -> dict[str, Any]:
    scratch = out.parent / "scratch"
    return check_logits(
        [open_adapter(adapter, scratch / "opened") for adapter in adapters],
        base,
        out,
        scratch=scratch / "staged",
        log=out.parent / "log",
        base_is_residual=residual,
    )


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_answers_as_its_adapter(zoo: Zoo, tmp_path: Path, kind: str) -> None:
    base = zoo.base("qwen2" if kind == "BEFT" else "llama", "float32")  # BEFT moves biases
    adapter = save_other(tmp_path / kind, base, kind)
    result = by_peft(base, tmp_path / "out", adapter)
    report = result["report"]
    assert report["engine"] == "peft"
    assert report["moved_elements"] > 0
    assert report["versions"].keys() >= {"peft", "torch", "transformers"}
    assert (tmp_path / "out" / "config.json").read_bytes() == (base / "config.json").read_bytes()
    found = compared(base, tmp_path / "out", adapter)
    assert found["equal"], found
    before, after = stored(base), stored(tmp_path / "out")
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert report["changed_tensors"] == len(changed)
    assert sorted(path.name for path in tmp_path.glob(".out.merge/*")) == ["job.json", "lock"]


@pytest.mark.parametrize("kind", ["LOHA", "IA3", "BOFT", "FOURIERFT", "OSF", "VERA"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_stays_half(zoo: Zoo, tmp_path: Path, kind: str, dtype: str) -> None:
    base = zoo.base("llama", dtype)
    adapter = save_other(tmp_path / kind, base, kind)
    by_peft(base, tmp_path / "out", adapter)
    assert {tensor.dtype for tensor in stored(tmp_path / "out").values()} == {getattr(torch, dtype)}
    found = compared(base, tmp_path / "out", adapter)
    assert found["max_difference"] < found["adapter_effect"] / 4, found


@pytest.mark.parametrize("kind", ["llama", "qwen3_moe", "qwen2_5_vl", "gemma3", "gpt2"])
def test_lora_comes_out_as_peft_saves_it_in_the_layout_of_the_base(
    zoo: Zoo, tmp_path: Path, kind: str
) -> None:
    base, adapter = zoo.pair(kind, "plain", shard="60KB")
    by_peft(base, tmp_path / "out", adapter)
    assert_same_bytes(stored(tmp_path / "out"), peft_merged(base, adapter))
    for file in base.glob("model*"):
        assert (tmp_path / "out" / file.name).stat().st_size == file.stat().st_size


def test_float64_stays_whole(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.base("llama", "float64"), zoo.pair("llama", "plain")[1]
    by_peft(base, tmp_path / "out", adapter)
    right = peft_merged(base, adapter)
    assert {tensor.dtype for tensor in right.values()} == {torch.float64}
    assert_same_bytes(stored(tmp_path / "out"), right)


def test_block_diagonal_lora(zoo: Zoo, tmp_path: Path) -> None:
    from peft import BdLoraConfig

    base = zoo.base("llama", "float32")
    blocks = BdLoraConfig(target_modules_bd_a=["q_proj"], target_modules_bd_b=["v_proj"], nblocks=2)
    adapter = save_other(tmp_path / "bd", base, "LORA", use_bdlora=blocks)
    by_peft(base, tmp_path / "out", adapter)
    assert compared(base, tmp_path / "out", adapter)["equal"]


def test_tensors_that_transformers_drops_and_other_dtypes_pass_through(
    zoo: Zoo, tmp_path: Path
) -> None:
    from safetensors.torch import save_file

    base = tmp_path / "base"
    base.mkdir()
    known = zoo.base("llama", "bfloat16")
    for file in known.iterdir():
        (base / file.name).write_bytes(file.read_bytes())
    tensors = stored(known)
    tensors["model.norm.weight"] = tensors["model.norm.weight"].float() + 2**-20
    tensors["mtp.extra.weight"] = torch.ones(3, 5)
    save_file(tensors, base / "model.safetensors", metadata={"format": "pt"})
    adapter = save_other(tmp_path / "LOHA", base, "LOHA")
    by_peft(base, tmp_path / "out", adapter)
    after = stored(tmp_path / "out")
    for name in ("model.norm.weight", "mtp.extra.weight"):
        assert torch.equal(after[name], tensors[name])


def test_dtype_is_chosen_before_it_is_rounded(zoo: Zoo, tmp_path: Path) -> None:
    base = zoo.base("llama", "bfloat16")
    adapter = save_other(tmp_path / "LOHA", base, "LOHA")
    by_peft(base, tmp_path / "out", adapter, dtype="float32")
    config = json.loads((tmp_path / "out" / "config.json").read_bytes())
    assert config["dtype"] == "float32"
    found = compared(base, tmp_path / "out", adapter)
    assert found["equal"]
    assert found["bound"] < 1e-4


def test_a_saved_head_unties_as_peft_does(zoo: Zoo, tmp_path: Path) -> None:
    base = zoo.base("qwen2", "float32")
    adapter = save_other(tmp_path / "LOHA", base, "LOHA", modules_to_save=["lm_head"])
    by_peft(base, tmp_path / "out", adapter)
    assert not json.loads((tmp_path / "out" / "config.json").read_bytes())["tie_word_embeddings"]
    assert "lm_head.weight" in stored(tmp_path / "out")
    assert compared(base, tmp_path / "out", adapter)["equal"]


def test_adapters_of_two_types_in_turn(zoo: Zoo, tmp_path: Path) -> None:
    base = zoo.base("llama", "float32")
    first = save_other(tmp_path / "LOHA", base, "LOHA")
    second = zoo.adapter(base, "plain")
    by_peft(base, tmp_path / "both", first, second)
    by_peft(base, tmp_path / "one", first)
    merge([second], tmp_path / "one", tmp_path / "then", log=tmp_path / "log")
    ours, theirs = stored(tmp_path / "both"), stored(tmp_path / "then")
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in theirs)


def test_a_residual_base_is_not_changed_again(zoo: Zoo, tmp_path: Path) -> None:
    base = zoo.base("llama", "float32")
    adapter = save_other(tmp_path / "pissa", base, "LORA", init_lora_weights="pissa", r=4)
    with pytest.raises(CheckError, match="HT110"):
        by_peft(base, tmp_path / "refused", adapter)
    by_peft(base, tmp_path / "out", adapter, base_is_residual=True)
    streamed = tmp_path / "streamed"
    options = MergeOptions(base_is_residual=True)
    merge([adapter], base, streamed, options=options, log=tmp_path / "log")
    assert_same_bytes(stored(tmp_path / "out"), stored(streamed))
    assert compared(base, streamed, adapter, residual=True)["equal"]


def test_the_streaming_engine_names_the_way_and_the_memory(zoo: Zoo, tmp_path: Path) -> None:
    base = zoo.base("llama", "float32")
    adapter = save_other(tmp_path / "LOHA", base, "LOHA")
    with pytest.raises(CheckError, match="HT150") as caught:
        merge([adapter], base, tmp_path / "out", log=tmp_path / "log")
    assert "LOHA" in caught.value.message
    assert "GB of memory" in caught.value.detail[0]
    assert "--engine peft" in caught.value.next
    assert not (tmp_path / "out").exists()


def test_too_little_memory_is_told_before_anything_is_loaded(
    zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = zoo.base("llama", "float32")
    adapter = save_other(tmp_path / "LOHA", base, "LOHA")
    monkeypatch.setattr(memory, "available_memory", lambda: 100_000_000)
    with pytest.raises(EnvironmentFailure, match="HT153") as caught:
        by_peft(base, tmp_path / "out", adapter)
    assert "0.7 GB needed, 0.1 GB free" in caught.value.message
    assert not (tmp_path / "out").exists()


def test_the_estimate_grows_with_what_is_targeted(zoo: Zoo, tmp_path: Path) -> None:
    base = zoo.base("llama", "float32", hidden_size=128)
    few = opened(save_other(tmp_path / "few", base, "LOHA", target_modules=["q_proj"]))
    many = opened(save_other(tmp_path / "many", base, "LOHA", target_modules="all-linear"))
    size = sum(file.stat().st_size for file in base.glob("*.safetensors"))
    assert memory.merge_memory(base, [few]) < memory.merge_memory(base, [many])
    assert memory.merge_memory(base, [few]) > memory.LIBRARIES + size
    plan = plan_peft([few], base, MergeOptions())
    assert plan.to_json()["memory"] == memory.merge_memory(base, [few])


def test_available_memory_is_that_of_this_machine() -> None:
    free = memory.available_memory()
    assert free is not None
    assert 1 << 20 < free < 1 << 50


def test_what_peft_cannot_merge_is_told_in_its_words(zoo: Zoo, tmp_path: Path) -> None:
    base = zoo.base("llama", "float32")  # no biases
    adapter = save_other(tmp_path / "BEFT", base, "BEFT")
    with pytest.raises(CheckError, match="HT110") as caught:
        by_peft(base, tmp_path / "out", adapter)
    assert "no bias" in caught.value.detail[0]
    assert not (tmp_path / "out").exists()


def test_tensors_that_find_no_place_stop_the_merge(zoo: Zoo, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    base = zoo.base("llama", "float32")
    adapter = save_other(tmp_path / "LOHA", base, "LOHA")
    file = adapter / "adapter_model.safetensors"
    moved = {name.replace("layers.1", "layers.9"): t for name, t in load_file(file).items()}
    save_file(moved, file)
    with pytest.raises(CheckError, match="HT130") as caught:
        by_peft(base, tmp_path / "out", adapter)
    assert caught.value.where == str(adapter)
    assert "have no place" in caught.value.detail[0]


@pytest.mark.parametrize("variant", ["mica", "velora", "monteclora"])
def test_variants_of_lora_are_streamed_to_the_same_bytes(
    zoo: Zoo, tmp_path: Path, variant: str
) -> None:
    from peft import MontecloraConfig, VeloraConfig

    options: dict[str, dict[str, Any]] = {
        "mica": {"init_lora_weights": "mica"},
        "velora": {"velora_config": VeloraConfig(num_groups=4)},
        "monteclora": {"monteclora_config": MontecloraConfig(num_samples=2)},
    }
    base = zoo.base("llama", "bfloat16")
    adapter = save_other(tmp_path / variant, base, "LORA", r=4, **options[variant])
    merge([adapter], base, tmp_path / "out", log=tmp_path / "log")
    assert_same_bytes(stored(tmp_path / "out"), peft_merged(base, adapter))


def test_a_streamed_plan_of_another_type_is_refused_at_once(zoo: Zoo, tmp_path: Path) -> None:
    base = zoo.base("llama", "float32")
    adapter = opened(save_other(tmp_path / "VERA", base, "VERA"))
    with pytest.raises(CheckError, match="HT150"):
        plan_merge([adapter], base)


def opened(path: Path) -> Adapter:
    return open_adapter(path, path / "scratch")
