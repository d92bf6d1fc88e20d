"""Models that see: adapters by the names of any release merge to the same bytes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from layouts import save_layout
from oracle import adapter_logits, assert_same_bytes, load_base, merged_logits, peft_merged, stored
from our_merge import merged, no_processes
from safetensors.torch import load_file, save_file
from zoo import Zoo
from zoo_adapters import trained

from hubtools.errors import CheckError

_LLAVA_OLD = {
    "model.language_model.": "language_model.model.",
    "model.vision_tower.": "vision_tower.",
    "model.multi_modal_projector.": "multi_modal_projector.",
    "lm_head.": "language_model.lm_head.",
}
# Kind → what is trained, prefixes in memory → in checkpoints and adapters of transformers 4.x.
SEEING: dict[str, tuple[list[str], dict[str, str]]] = {
    "llava": (["q_proj", "down_proj", "fc1", "linear_2", "lm_head"], _LLAVA_OLD),
    "qwen3_vl": (["k_proj", "up_proj", "qkv", "linear_fc1"], {}),
    "qwen2_5_vl": (
        ["q_proj", "v_proj", "qkv", "o_proj"],
        {"model.language_model.": "model.", "model.visual.": "visual."},
    ),
    "gemma3": (
        ["q_proj", "out_proj", "up_proj"],
        {
            "model.language_model.": "language_model.model.",
            "model.vision_tower.": "vision_tower.vision_model.",
        },
    ),
}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dora": {"use_dora": True, "use_rslora": True},
    "patterns": {
        "rank_pattern": {r".*self_attn\.[kq]_proj": 3},
        "alpha_pattern": {r".*\.1\..*": 9},
    },
}


@pytest.fixture(scope="module", autouse=True)
def _here() -> Iterator[None]:
    with no_processes():
        yield


@pytest.fixture(scope="module")
def bases(zoo: Zoo, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The base of a kind and dtype, made once."""
    root = tmp_path_factory.mktemp("seeing")

    def base(kind: str, dtype: str) -> Path:
        if kind not in ("llava", "qwen3_vl"):
            return zoo.base(kind, dtype)
        path = root / f"{kind}-{dtype}"
        return path if path.exists() else save_layout(path, kind, dtype)

    return base


def train(path: Path, base: Path, targets: list[str], **options: Any) -> Path:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(31)
    options = {"r": 4, "lora_alpha": 6, "target_modules": targets, **options}
    peft = get_peft_model(load_base(base), LoraConfig(**options))
    trained(peft)
    peft.save_pretrained(path, save_embedding_layers=False)
    return path


def by_old_names(path: Path, adapter: Path, prefixes: dict[str, str]) -> Path:
    shutil.copytree(adapter, path)
    head, tensors = "base_model.model.", {}
    for name, tensor in load_file(adapter / "adapter_model.safetensors").items():
        inner = name.removeprefix(head)
        for new, old in prefixes.items():
            if inner.startswith(new):
                inner = old + inner.removeprefix(new)
                break
        tensors[head + inner] = tensor
    save_file(tensors, path / "adapter_model.safetensors")
    return path


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", SEEING)
def test_names_of_any_release(
    bases: Any, tmp_path: Path, kind: str, variant: str, dtype: str
) -> None:
    base, (targets, prefixes) = bases(kind, dtype), SEEING[kind]
    new = train(tmp_path / "new", base, targets, **VARIANTS[variant])
    ours, report = merged(base, new, tmp_path / "out-new")
    assert_same_bytes(ours, peft_merged(base, new))
    assert report["changed_tensors"] == len(
        {name.partition(".lora_")[0] for name in load_file(new / "adapter_model.safetensors")}
    )
    if prefixes:
        old = by_old_names(tmp_path / "old", new, prefixes)
        again, _ = merged(base, old, tmp_path / "out-old")
        assert_same_bytes(again, ours)


def test_answers_are_those_of_the_adapter(bases: Any, tmp_path: Path) -> None:
    """Asked in words alone; with pictures the zoo asks."""
    base, (targets, _) = bases("llava", "float32"), SEEING["llava"]
    adapter = train(tmp_path / "adapter", base, targets)
    merged(base, adapter, tmp_path / "out")
    wanted = adapter_logits(base, adapter, double=True)
    size = wanted.abs().max()
    assert (merged_logits(tmp_path / "out", double=True) - wanted).abs().max() < 1e-5 * size
    assert (merged_logits(base, double=True) - wanted).abs().max() > 1e-2 * size


def test_one_module_of_another_model_and_nothing_is_written(bases: Any, tmp_path: Path) -> None:
    """Never a merge that leaves out what it could not find."""
    base, (targets, prefixes) = bases("llava", "float32"), SEEING["llava"]
    new = train(tmp_path / "new", base, targets)
    strange = {"model.language_model.layers.1.": "language_model.model.layers.7.", **prefixes}
    old = by_old_names(tmp_path / "old", new, strange)
    with pytest.raises(CheckError) as caught:
        merged(base, old, tmp_path / "out")
    assert caught.value.id == "HT112"
    assert "layers.7" in " ".join(caught.value.detail)
    assert not (tmp_path / "out").exists()


def test_a_matrix_trained_whole_by_its_old_name(bases: Any, tmp_path: Path) -> None:
    base, (_, prefixes) = bases("llava", "bfloat16"), SEEING["llava"]
    new = train(tmp_path / "new", base, ["q_proj"], modules_to_save=["multi_modal_projector"])
    ours, _ = merged(base, new, tmp_path / "out-new")
    assert_same_bytes(ours, peft_merged(base, new))
    moved = {name for name, tensor in stored(base).items() if not torch.equal(tensor, ours[name])}
    assert any("multi_modal_projector" in name for name in moved)
    old = by_old_names(tmp_path / "old", new, prefixes)
    again, _ = merged(base, old, tmp_path / "out-old")
    assert_same_bytes(again, ours)


@pytest.mark.parametrize("kind", ["llava", "qwen2_5_vl"])
def test_two_names_of_one_matrix(bases: Any, tmp_path: Path, kind: str) -> None:
    """Adding both would change it twice."""
    base, (targets, prefixes) = bases(kind, "float32"), SEEING[kind]
    new = train(tmp_path / "new", base, targets)
    old = by_old_names(tmp_path / "old", new, prefixes)
    file = "adapter_model.safetensors"
    save_file({**load_file(new / file), **load_file(old / file)}, old / file)
    with pytest.raises(CheckError) as caught:
        merged(base, old, tmp_path / "out")
    assert caught.value.id == "HT114"
    assert "two names of one place" in caught.value.detail[0]
    assert not (tmp_path / "out").exists()
