"""deltalint, which knows nothing of us, finds the whole adapter in each of our merges."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from our_merge import merged, no_processes
from zoo import DTYPES, Zoo


@pytest.fixture(scope="module", autouse=True)
def _here() -> Any:
    with no_processes():
        yield


def verdicts(base: Path, adapter: Path, out: Path) -> dict[str, str]:
    """What deltalint says of each layer, by name."""
    import deltalint

    report = deltalint.check_merge(base, adapter, out)
    assert report.missing_layers == ()
    return {layer.name: layer.verdict.value for layer in report.layers}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("kind", "variant", "layers"),
    [
        ("llama", "plain", 14),
        ("llama", "rslora", 14),
        ("llama", "embedding", 3),
        ("llama", "save both", 16),
        ("qwen2", "plain", 6),
        ("qwen3", "plain", 8),
        ("qwen3", "head", 3),
        ("gpt2", "plain", 8),
        ("mixtral", "plain", 6),
    ],
)
def test_every_layer_holds_the_adapter(
    zoo: Zoo, tmp_path: Path, kind: str, variant: str, dtype: str, layers: int
) -> None:
    base, adapter = zoo.pair(kind, variant, dtype)
    merged(base, adapter, tmp_path / "out")
    found = verdicts(base, adapter, tmp_path / "out")
    assert len(found) == layers
    assert set(found.values()) == {"PASS"}


def test_it_would_see_a_layer_that_was_left_out(zoo: Zoo, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    base, adapter = zoo.pair("llama", "plain")
    merged(base, adapter, tmp_path / "out")
    out = Path(shutil.copytree(tmp_path / "out", tmp_path / "spoiled"))
    name = "model.layers.1.mlp.up_proj"
    tensors = load_file(out / "model.safetensors")
    tensors[f"{name}.weight"] = load_file(base / "model.safetensors")[f"{name}.weight"]
    save_file(tensors, out / "model.safetensors")
    found = verdicts(base, adapter, out)
    assert found.pop(name) == "FAIL"
    assert set(found.values()) == {"PASS"}
