"""What went wrong for others with formulas, dtypes and quantised bases, as small cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from oracle import adapter_logits, assert_same_bytes, merged_logits, peft_merged, stored
from our_merge import merged, no_processes
from reports import (
    HEAD,
    WEIGHTS,
    assert_answers_as_the_adapter,
    copied,
    edit_config,
    refused,
)
from tiny_models import TEMPLATE, save_tokenizer
from zoo import Zoo


@pytest.fixture(scope="module", autouse=True)
def _here() -> Any:
    with no_processes():
        yield


# Kinds of LoRA


@pytest.mark.parametrize("start", ["pissa", "pissa_niter_4", "olora", "corda", "loftq"])
def test_an_adapter_of_a_base_that_was_changed(zoo: Zoo, tmp_path: Path, start: str) -> None:
    """peft#2184, transformers#34468, peft#1929: PiSSA takes its start out of the base."""
    base, adapter = zoo.pair("llama", "plain")
    adapter = copied(adapter, tmp_path / "adapter")
    edit_config(adapter, init_lora_weights=start)
    error = refused(base, adapter, tmp_path / "out", "HT110")
    assert start.split("_")[0].lower() in str((error.message, error.detail)).lower()
    assert error.next


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_dora_alone_and_before_another(zoo: Zoo, tmp_path: Path, kind: str, dtype: str) -> None:
    """peft#1588: transposed layers have their norm along the other side."""
    base = zoo.base(kind, dtype)
    dora, other = zoo.adapter(base, "dora"), zoo.adapter(base, "second")
    for number, adapters in enumerate(([dora], [dora, other])):
        ours, _ = merged(base, adapters, tmp_path / str(number))
        assert_same_bytes(ours, peft_merged(base, *adapters))


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen2"])
@pytest.mark.parametrize("variants", [("plain", "dora"), ("dora", "dora rslora")])
def test_dora_after_another(zoo: Zoo, tmp_path: Path, kind: str, variants: tuple[str, ...]) -> None:
    """peft#3608, peft#3609: the norm is that of the base as it was, as in the forward pass."""
    base = zoo.base(kind, "float32")
    adapters = [zoo.adapter(base, variant) for variant in variants]
    for number, order in enumerate((adapters, adapters[::-1])):
        merged(base, order, tmp_path / str(number))
        found = merged_logits(tmp_path / str(number), double=True)
        wanted = adapter_logits(base, *order, double=True)
        assert (found - wanted).abs().max() < 2e-6


def test_replicated_layers(zoo: Zoo, tmp_path: Path) -> None:
    """peft#1707: all copies' deltas went into the one tensor they shared."""
    base, adapter = zoo.pair("llama", "replicated", "float32")
    ours, _ = merged(base, adapter, tmp_path / "out")
    first, third = (ours[f"model.layers.{n}.self_attn.q_proj.weight"] for n in (0, 2))
    assert not (first == third).all()
    assert json.loads((tmp_path / "out" / "config.json").read_bytes())["num_hidden_layers"] == 4
    assert_answers_as_the_adapter(base, adapter, tmp_path / "out")


# Dtypes and bases


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_output_is_as_large_as_the_base(zoo: Zoo, tmp_path: Path, dtype: str) -> None:
    """peft#906, starcoder#137, axolotl#902: doubled in float32, or silently float16."""
    base, adapter = zoo.pair("qwen3", "plain", dtype)
    ours, _ = merged(base, adapter, tmp_path / "out")
    assert {tensor.dtype for tensor in ours.values()} == {t.dtype for t in stored(base).values()}
    assert (tmp_path / "out" / "model.safetensors").stat().st_size == (
        base / "model.safetensors"
    ).stat().st_size


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_or_in_the_dtype_that_was_asked_for(zoo: Zoo, tmp_path: Path, dtype: str) -> None:
    """peft#906: another dtype is a choice, and the configuration says it."""
    import torch

    base, adapter = zoo.pair("qwen3", "plain")
    ours, _ = merged(base, adapter, tmp_path / "out", dtype=dtype)
    assert {tensor.dtype for tensor in ours.values()} == {getattr(torch, dtype)}
    config = json.loads((tmp_path / "out" / "config.json").read_bytes())
    assert config.get("dtype", config.get("torch_dtype")) == dtype


@pytest.mark.parametrize(
    "quantisation",
    [
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        {"quant_method": "gptq", "bits": 4},
        {"quant_method": "fp8"},
    ],
)
def test_a_quantised_base_stops_and_asks(
    zoo: Zoo, tmp_path: Path, quantisation: dict[str, Any]
) -> None:
    """peft#2105, peft#1080, peft#2321, unsloth-zoo#810: which base is a choice to make."""
    base, adapter = zoo.pair("llama", "plain")
    base = copied(base, tmp_path / "base")
    edit_config(base, "config.json", quantization_config=quantisation)
    error = refused(base, adapter, tmp_path / "out", "HT115", "HT145", "HT146", "HT147")
    assert "--base" in error.next


def test_an_adapter_that_was_trained_over_a_quantised_base(zoo: Zoo, tmp_path: Path) -> None:
    """peft#2105, axolotl: merging into the 16-bit weights is usual, and the report says so."""
    base, adapter = zoo.pair("llama", "plain")
    adapter = copied(adapter, tmp_path / "adapter")
    edit_config(adapter, base_model_name_or_path="unsloth/tiny-llama-bnb-4bit")
    _, report = merged(base, adapter, tmp_path / "out")
    assert "bnb-4bit" in str(report)


def test_what_lies_beside_the_weights(zoo: Zoo, tmp_path: Path) -> None:
    """mergekit#275, LlamaFactory#8399, unsloth#188, G.O.D#1295: lost, or from the wrong side."""
    base, adapter = zoo.pair("llama", "plain")
    base, adapter = copied(base, tmp_path / "base"), copied(adapter, tmp_path / "adapter")
    save_tokenizer(adapter, "trained: " + TEMPLATE)
    (base / "generation_config.json").write_text('{"temperature": 0.6}')
    for folder in (base, adapter):
        (folder / "optimizer.pt").write_bytes(b"x")
        (folder / "trainer_state.json").write_text("{}")
    (adapter / "generation_config.json").write_text('{"temperature": 9.0}')
    out = tmp_path / "out"
    merged(base, adapter, out)
    assert sorted(file.name for file in out.iterdir()) == [
        "LICENSE",
        "NOTICE.txt",
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert (out / "generation_config.json").read_text() == '{"temperature": 0.6}'
    assert (out / "chat_template.jinja").read_text().startswith("trained: ")
    assert (out / "config.json").read_bytes() == (base / "config.json").read_bytes()


# Formulas


@pytest.mark.parametrize(
    ("options", "scalings"),
    [
        ({"r": 4, "lora_alpha": 8}, (2.0, 2.0)),
        ({"r": 4, "lora_alpha": 8, "use_rslora": True}, (4.0, 4.0)),
        ({"r": 4, "lora_alpha": 8, "alpha_pattern": {"up_proj": 2}}, (2.0, 0.5)),
        (
            {"r": 4, "lora_alpha": 8, "rank_pattern": {"up_proj": 16}, "use_rslora": True},
            (4.0, 2.0),
        ),
        (
            {"r": 4, "lora_alpha": 8, "alpha_pattern": {"q_proj": 4, "self_attn.q_proj": 9}},
            (1.0, 2.0),
        ),
        ({"r": 4, "lora_alpha": 8, "alpha_pattern": {"proj": 4}}, (2.0, 2.0)),
        ({"r": 4, "lora_alpha": 8, "alpha_pattern": {".*_proj": 1}}, (0.25, 0.25)),
    ],
)
def test_the_factor_of_each_layer(
    zoo: Zoo, tmp_path: Path, options: dict[str, Any], scalings: tuple[float, float]
) -> None:
    """axolotl#3673, aprender#2189: alpha_pattern and rsLoRA were ignored."""
    import torch
    from safetensors.torch import save_file

    base = zoo.base("llama", "float32")
    before, adapter = stored(base), tmp_path / "adapter"
    adapter.mkdir()
    modules = ("model.layers.0.self_attn.q_proj", "model.layers.1.mlp.up_proj")
    torch.manual_seed(2)
    tensors = {}
    for module in modules:
        rows, columns = before[f"{module}.weight"].shape
        rank = options.get("rank_pattern", {}).get(module.rsplit(".", 1)[-1], options["r"])
        tensors[f"{HEAD}{module}.lora_A.weight"] = torch.randn(rank, columns)
        tensors[f"{HEAD}{module}.lora_B.weight"] = torch.randn(rows, rank)
    save_file(tensors, adapter / WEIGHTS)
    config = {"peft_type": "LORA", "target_modules": ["q_proj", "up_proj"], **options}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    ours, _ = merged(base, adapter, tmp_path / "out")
    for module, scaling in zip(modules, scalings, strict=True):
        a, b = (tensors[f"{HEAD}{module}.lora_{side}.weight"].double() for side in "AB")
        exact = before[f"{module}.weight"].double() + scaling * (b @ a)
        assert torch.allclose(ours[f"{module}.weight"].double(), exact, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_factors_in_another_dtype_than_the_base(zoo: Zoo, tmp_path: Path, dtype: str) -> None:
    """axolotl#3673: an adapter saved in half precision over another base."""
    base, adapter = zoo.pair("llama", dtype, "float32")
    ours, _ = merged(base, adapter, tmp_path / "out")
    assert_same_bytes(ours, peft_merged(base, adapter))


def test_what_bfloat16_swallows_is_said(zoo: Zoo, tmp_path: Path) -> None:
    """peft#1388, unsloth#3091, torchtune#1101, openagents#9456: the merge "differs"."""
    base, adapter = zoo.pair("llama", "plain")
    _, report = merged(base, adapter, tmp_path / "out")
    merged(base, adapter, tmp_path / "exact", dtype="float32")
    assert 0 < report["moved_elements"] < report["changed_elements"]
    wanted = adapter_logits(base, adapter, double=True)
    in_single = (merged_logits(tmp_path / "exact", double=True) - wanted).abs().max()
    in_half = (merged_logits(tmp_path / "out", double=True) - wanted).abs().max()
    assert in_single < 2e-6 < in_half
