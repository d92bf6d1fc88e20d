"""Experts of other shapes and layouts: the bytes PEFT writes, in whatever layout the base has."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from layouts import load_layout, save_layout
from oracle import adapter_logits, assert_same_bytes, load_base, merged_logits, peft_merged, stored
from our_merge import merged, no_processes
from safetensors.torch import load_file, save_file
from zoo import Zoo
from zoo_adapters import trained

DTYPES = ("float32", "bfloat16", "float16")
BOTH = ["experts.gate_up_proj", "experts.down_proj"]
# Kind of model, what is trained.
TRAINED: dict[str, tuple[str, dict[str, Any]]] = {
    "in-out gate_up": ("gpt_oss", {"target_parameters": BOTH[:1]}),
    "in-out both": ("gpt_oss", {"target_parameters": BOTH}),
    "in-out both and biases": (
        "gpt_oss",
        {"target_parameters": [*BOTH, "experts.gate_up_proj_bias", "experts.down_proj_bias"]},
    ),
    "one name for several": ("gpt_oss", {"target_parameters": ["down_proj"]}),
    "stored as in memory": ("llama4_text", {"target_parameters": BOTH}),
    "renamed": ("granitemoe", {"target_parameters": [*BOTH, "router.weight"]}),
    "a router": ("qwen2_moe", {"target_parameters": [*BOTH, "mlp.gate.weight"]}),
    "a shared expert": (
        "qwen2_moe",
        {
            "target_modules": ["q_proj", "shared_expert_gate", "shared_expert.down_proj"],
            "target_parameters": BOTH,
        },
    ),
    "a layer by its parameter": (
        "qwen2_moe",
        {"target_modules": ["k_proj"], "target_parameters": ["q_proj.weight"]},
    ),
    "patterns": (
        "qwen2_moe",
        {
            "target_parameters": BOTH,
            "rank_pattern": {"experts.down_proj": 2, r".*\.1\.mlp.experts.gate_up_proj": 5},
            "alpha_pattern": {"gate_up_proj": 13, r".*\.0\..*": 4},
        },
    ),
    "rsLoRA": ("qwen2_moe", {"target_parameters": BOTH, "use_rslora": True}),
    "one rank an expert": ("qwen2_moe", {"target_parameters": BOTH, "r": 1}),
    "rows of a joint matrix": ("sarvam_moe", {"target_modules": ["q_proj", "v_proj", "o_proj"]}),
    "rows of few outputs": ("lara_mini", {"target_modules": ["in_proj_b", "in_proj_qkv"]}),
    "DoRA on rows of a joint matrix": (
        "sarvam_moe",
        {"target_modules": ["k_proj", "v_proj"], "use_dora": True},
    ),
    "beneath vision": (
        "qwen3_vl_moe",
        {"target_modules": ["v_proj", "qkv"], "target_parameters": BOTH},
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _here() -> Iterator[None]:
    with no_processes():
        yield


def train(path: Path, base: Path, **options: Any) -> Path:
    """An adapter made and saved by PEFT."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(5)
    options = {"r": 3, "lora_alpha": 7, "target_modules": [], **options}
    with warnings.catch_warnings():
        # PEFT follows patterns for parameters, but tells them from modules too late.
        warnings.filterwarnings("ignore", message="The following (rank|alpha)_pattern keys")
        peft = get_peft_model(load_base(base), LoraConfig(**options))
    trained(peft)
    peft.save_pretrained(path, save_embedding_layers=False)
    return path


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", TRAINED)
def test_bytes_are_those_of_peft(tmp_path: Path, case: str, dtype: str) -> None:
    kind, options = TRAINED[case]
    base = save_layout(tmp_path / "base", kind, dtype)
    adapter = train(tmp_path / "adapter", base, **options)
    ours, report = merged(base, adapter, tmp_path / "out")
    before, theirs = stored(base), peft_merged(base, adapter)
    # transformers loads some norms and routers in float32, and writes them so.
    untouched = [name for name, tensor in before.items() if torch.equal(ours[name], tensor)]
    kept = {name: theirs[name].to(before[name].dtype) for name in untouched}
    assert_same_bytes(ours, {**theirs, **kept})
    changed = [name for name, tensor in before.items() if not torch.equal(tensor, ours[name])]
    assert len(changed) == report["changed_tensors"] > 0


@pytest.mark.parametrize("case", ["in-out both", "a router", "beneath vision"])
def test_answers_are_those_of_the_adapter(tmp_path: Path, case: str) -> None:
    kind, options = TRAINED[case]
    base = save_layout(tmp_path / "base", kind)
    adapter = train(tmp_path / "adapter", base, **options)
    merged(base, adapter, tmp_path / "out")
    wanted = adapter_logits(base, adapter, double=True)
    size = wanted.abs().max()
    assert (merged_logits(tmp_path / "out", double=True) - wanted).abs().max() < 1e-5 * size
    assert (merged_logits(base, double=True) - wanted).abs().max() > 1e-2 * size


@pytest.mark.parametrize("dtype", DTYPES)
def test_experts_stored_turned_over(tmp_path: Path, dtype: str) -> None:
    """As Qwen3-VL-MoE checkpoints are: [experts, in, out]."""
    base = save_layout(tmp_path / "base", "qwen3_vl_moe", dtype)
    adapter = train(tmp_path / "adapter", base, target_parameters=BOTH)
    straight, _ = merged(base, adapter, tmp_path / "straight")
    save_file(turned(stored(base)), base / "model.safetensors", metadata={"format": "pt"})
    ours, _ = merged(base, adapter, tmp_path / "out")
    assert_same_bytes(ours, turned(straight))


def turned(tensors: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tensor.transpose(1, 2).contiguous() if ".experts." in name else tensor
        for name, tensor in tensors.items()
    }


@pytest.fixture(scope="module", params=DTYPES)
def two_layouts(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Path, Path]:
    """One model in a file an expert, and in the layout it has in memory."""
    root = tmp_path_factory.mktemp("layouts")
    single = save_layout(root / "single", "qwen2_moe", request.param)
    load_layout(single).save_pretrained(root / "fused", save_original_format=False)
    assert any(name.endswith("experts.gate_up_proj") for name in stored(root / "fused"))
    return single, root / "fused"


@pytest.mark.parametrize("target", [BOTH, BOTH[:1], BOTH[1:]], ids=["both", "gate_up", "down"])
def test_fused_adapters_fit_both_layouts(
    two_layouts: tuple[Path, Path], tmp_path: Path, target: list[str]
) -> None:
    single, fused = two_layouts
    adapter = train(tmp_path / "adapter", single, target_parameters=target)
    merged(single, adapter, tmp_path / "one")
    merged(fused, adapter, tmp_path / "other")
    one, other = (load_layout(tmp_path / name).state_dict() for name in ("one", "other"))
    assert_same_bytes(dict(one), dict(other))
    assert_same_bytes(stored(tmp_path / "one"), peft_merged(single, adapter))


@pytest.mark.parametrize(
    "which",
    [
        ("gate_proj", "up_proj", "down_proj"),
        ("gate_proj",),
        ("up_proj", "down_proj"),
    ],
    ids=" ".join,
)
def test_adapters_of_single_experts_fit_both_layouts(
    two_layouts: tuple[Path, Path], tmp_path: Path, which: tuple[str, ...]
) -> None:
    """Adapters that transformers 4.x trained; one expert of a layer was left alone."""
    single, fused = two_layouts
    adapter = single_experts(tmp_path / "adapter", single, which)
    ours, _ = merged(single, adapter, tmp_path / "one")
    _, report = merged(fused, adapter, tmp_path / "other")
    one, other = (load_layout(tmp_path / name).state_dict() for name in ("one", "other"))
    assert_same_bytes(dict(one), dict(other))
    moved = {name for name, old in stored(single).items() if not torch.equal(old, ours[name])}
    assert moved == {
        f"model.layers.{layer}.mlp.experts.{expert}.{name}.weight"
        for layer in range(2)
        for expert in (0, 1, 3)
        for name in which
    }
    assert 0 < report["moved_elements"] <= report["changed_elements"]


def single_experts(path: Path, base: Path, which: tuple[str, ...], **more: Any) -> Path:
    """Rank and alpha of each kind of matrix differ."""
    torch.manual_seed(29)
    ranks = {"gate_proj": 2, "up_proj": 3, "down_proj": 4}
    tensors = {}
    for name, weight in stored(base).items():
        module = name.removesuffix(".weight")
        leaf, number = module.rpartition(".")[2], module.rpartition(".experts.")[2].split(".")[0]
        if ".experts." in name and leaf in which and number != "2":
            rows, columns = weight.shape
            stem = f"base_model.model.{module}"
            tensors[f"{stem}.lora_A.weight"] = torch.randn(ranks[leaf], columns)
            tensors[f"{stem}.lora_B.weight"] = torch.randn(rows, ranks[leaf]) * 0.05
    path.mkdir()
    save_file(tensors, path / "adapter_model.safetensors", metadata={"format": "pt"})
    fields = {
        "peft_type": "LORA",
        "r": 9,
        "lora_alpha": 6,
        "rank_pattern": ranks,
        "alpha_pattern": {r".*experts\.3\.up_proj": 1.5},
        "target_modules": list(which),
        "base_model_name_or_path": str(base),
        **more,
    }
    (path / "adapter_config.json").write_text(json.dumps(fields))
    return path


def test_single_experts_are_scaled_as_they_were_trained(tmp_path: Path) -> None:
    """By hand: each expert's own rank and alpha, in both halves of what is fused in memory."""
    base = save_layout(tmp_path / "base", "qwen2_moe")
    adapter = single_experts(tmp_path / "adapter", base, ("gate_proj", "up_proj"), use_rslora=True)
    ours, report = merged(base, adapter, tmp_path / "out")
    factors, before = load_file(adapter / "adapter_model.safetensors"), stored(base)
    for stem in {name.partition(".lora_")[0] for name in factors}:
        name = f"{stem.removeprefix('base_model.model.')}.weight"
        a, b = (factors[f"{stem}.lora_{side}.weight"].double() for side in "AB")
        alpha = 1.5 if stem.endswith("experts.3.up_proj") else 6
        wanted = before[name].double() + alpha / a.shape[0] ** 0.5 * (b @ a)
        assert (ours[name] - wanted).abs().max() < 1e-6
    assert any("√2" in note for note in report["notes"])


def renamed(path: Path, adapter: Path, names: dict[str, str], **fields: Any) -> Path:
    """A copy of an adapter with other words in its tensor names and other fields."""
    shutil.copytree(adapter, path)
    tensors = {}
    for name, tensor in load_file(adapter / "adapter_model.safetensors").items():
        for old, new in names.items():
            name = name.replace(old, new)
        tensors[name] = tensor
    save_file(tensors, path / "adapter_model.safetensors")
    config = json.loads((path / "adapter_config.json").read_bytes())
    (path / "adapter_config.json").write_text(json.dumps({**config, **fields}))
    return path


@pytest.mark.parametrize("dtype", DTYPES)
def test_parameters_by_the_names_of_older_releases(tmp_path: Path, dtype: str) -> None:
    base = save_layout(tmp_path / "base", "granitemoe", dtype)
    new = train(tmp_path / "new", base, target_parameters=BOTH, r=2)
    old = renamed(
        tmp_path / "old",
        new,
        {".experts.base_layer.lora": ".input_linear.lora", ".experts.lora": ".output_linear.lora"},
        target_parameters=["input_linear.weight", "output_linear.weight"],
    )
    ours, _ = merged(base, old, tmp_path / "out")
    assert_same_bytes(ours, peft_merged(base, new))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_router_of_the_older_layout(zoo: Zoo, tmp_path: Path, dtype: str) -> None:
    """block_sparse_moe.gate was a Linear; now PEFT wraps its parameter, and rounds twice."""
    base = zoo.base("mixtral", dtype)
    new = train(
        tmp_path / "new", base, target_parameters=["gate.weight"], target_modules=["v_proj"]
    )
    old = renamed(
        tmp_path / "old",
        new,
        {".mlp.gate.": ".block_sparse_moe.gate."},
        target_parameters=None,
        target_modules=["v_proj", "gate"],
    )
    for adapter in (new, old):
        ours, _ = merged(base, adapter, tmp_path / f"out-{adapter.name}")
        assert_same_bytes(ours, peft_merged(base, adapter))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_router_that_is_a_linear_layer(tmp_path: Path, dtype: str) -> None:
    base = save_layout(tmp_path / "base", "phimoe", dtype)
    new = train(tmp_path / "new", base, target_modules=["router", "o_proj"])
    old = renamed(tmp_path / "old", new, {".mlp.router.": ".block_sparse_moe.gate."})
    for adapter in (new, old):
        ours, _ = merged(base, adapter, tmp_path / f"out-{adapter.name}")
        assert_same_bytes(ours, peft_merged(base, new))
