"""Whatever ranks, patterns, shapes, shards, header orders and dtypes: one rounding, PEFT's bytes.

The models here are files and nothing else: tensors of arbitrary sizes written by hand.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import stored
from our_merge import merged, no_processes

from hubtools.errors import CheckError

DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
# Of a matrix with fewer rows or columns BLAS gives other last bits when it lies elsewhere in
# memory, so that torch does not repeat itself either.
SLIVER = 16
NAMES = ("q_proj", "k_proj", "up_proj", "down_proj")
PATTERNS = (*NAMES, "layers.0.*q_proj", r"layers\.1\..*", "^model.layers.0.mlp.up_proj")


@pytest.fixture(scope="module", autouse=True)
def _here() -> Any:
    with no_processes():
        yield


def write(path: Path, tensors: Mapping[str, Any], order: Sequence[str], padding: int) -> None:
    """A safetensors file whose data lies as in `tensors` and whose header names it in `order`."""
    import torch

    kinds = {getattr(torch, name): dtype for dtype, name in DTYPES.items()}
    kinds |= {torch.int64: "I64", torch.uint8: "U8"}
    place, offset, data = {}, 0, b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        place[name] = {
            "dtype": kinds[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(raw)],
        }
        data, offset = data + raw, offset + len(raw)
    fields = {"__metadata__": {"format": "pt", "made by": "hand"}}
    header = json.dumps({**fields, **{name: place[name] for name in order}}).encode()
    header += b" " * padding
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


@st.composite
def models(draw: Any) -> dict[str, Any]:
    """Sizes and options of one base with one adapter."""
    names = [
        f"model.layers.{layer}.{draw(st.sampled_from(('self_attn', 'mlp')))}.{name}"
        for layer in range(draw(st.integers(1, 3)))
        for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    ]
    size = st.one_of(st.integers(1, 40), st.sampled_from((64, 107, 128, 335)))
    dtype = st.sampled_from(sorted(DTYPES))
    patterns = st.dictionaries(st.sampled_from(PATTERNS), st.integers(1, 20), max_size=3)
    fractions = st.floats(0.5, 40).map(lambda value: round(value, 3))
    return {
        "shapes": {name: (draw(size), draw(size)) for name in names},
        "dtypes": {name: draw(dtype) for name in names},
        "factors": draw(dtype),
        "adapted": draw(st.lists(st.sampled_from(names), min_size=1, unique=True)),
        "r": draw(st.one_of(st.integers(1, 24), st.sampled_from((32, 64)))),
        "lora_alpha": draw(st.one_of(st.integers(1, 64), fractions)),
        "use_rslora": draw(st.booleans()),
        "rank_pattern": draw(patterns),
        "alpha_pattern": draw(patterns),
        "use_dora": draw(st.booleans()),
        "shards": draw(st.integers(1, 3)),
        "padding": draw(st.integers(0, 16)),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


class Made:
    """The drawn model and adapter as files, and what a merge of them must be."""

    def __init__(self, model: dict[str, Any], root: Path, random: Any) -> None:
        import torch

        self.model, self.base, self.adapter = model, root / "base", root / "adapter"
        generator = torch.Generator().manual_seed(model["seed"])

        def normal(*shape: int) -> Any:
            return torch.randn(*shape, generator=generator) * 0.05

        self.weights = {
            f"{name}.weight": normal(*shape).to(getattr(torch, DTYPES[model["dtypes"][name]]))
            for name, shape in model["shapes"].items()
        }
        self.weights["model.norm.weight"] = normal(7)
        self.weights["model.positions"] = torch.arange(5)
        self.weights["model.empty"] = torch.zeros(0, 3)
        self._write_base(random)
        kind = getattr(torch, DTYPES[model["factors"]])
        self.factors = {}
        for name in model["adapted"]:
            rows, columns = model["shapes"][name]
            rank = self.rank(name)
            factor = {
                "lora_A.weight": normal(rank, columns),
                "lora_B.weight": normal(rows, rank),
            }
            if model["use_dora"]:
                factor["lora_magnitude_vector"] = normal(rows).abs() + 0.5
            for part, tensor in factor.items():
                self.factors[f"base_model.model.{name}.{part}"] = tensor.to(kind)
        self._write_adapter(random)

    def _write_base(self, random: Any) -> None:
        self.base.mkdir()
        names, count = list(self.weights), self.model["shards"]
        random.shuffle(names)
        files = [f"model-{n + 1:05}-of-{count:05}.safetensors" for n in range(count)]
        if count == 1:
            files = ["model.safetensors"]
        # Each file has a tensor, the others go anywhere.
        where = dict(zip(names, files, strict=False))
        where |= {name: random.choice(files) for name in names[count:]}
        for file in files:
            tensors = {name: self.weights[name] for name in names if where[name] == file}
            order = sorted(tensors, key=lambda _: random.random())
            write(self.base / file, tensors, order, self.model["padding"])
        if count > 1:
            total = sum(tensor.nbytes for tensor in self.weights.values())
            index = {"metadata": {"total_size": total}, "weight_map": where}
            (self.base / "model.safetensors.index.json").write_text(json.dumps(index))
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 3}
        (self.base / "config.json").write_text(json.dumps(config))

    def _write_adapter(self, random: Any) -> None:
        self.adapter.mkdir()
        names = list(self.factors)
        random.shuffle(names)
        tensors = {name: self.factors[name] for name in names}
        order = sorted(tensors, key=lambda _: random.random())
        write(self.adapter / "adapter_model.safetensors", tensors, order, 3)
        options = ("r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "use_dora")
        config = {
            "peft_type": "LORA",
            "base_model_name_or_path": "somewhere/else",
            "target_modules": sorted({name.rsplit(".", 1)[-1] for name in self.model["adapted"]}),
            **{name: self.model[name] for name in options},
        }
        (self.adapter / "adapter_config.json").write_text(json.dumps(config))

    def rank(self, module: str) -> int:
        """The first pattern that fits, else r."""
        return int(self._first("rank_pattern", module, self.model["r"]))

    def scaling(self, module: str) -> float:
        """alpha/r or alpha/√r."""
        alpha = self._first("alpha_pattern", module, self.model["lora_alpha"])
        rank = self.rank(module)
        return float(alpha / math.sqrt(rank) if self.model["use_rslora"] else alpha / rank)

    def _first(self, patterns: str, module: str, otherwise: float) -> float:
        for pattern, value in self.model[patterns].items():
            if re.match(rf"(.*\.)?({pattern})$", module):
                return float(value)
        return otherwise

    def changes(self) -> bool:
        """Whether any element has another value after rounding."""
        return any(
            not (self.expected(module, double=False) == self.weights[f"{module}.weight"]).all()
            for module in self.model["adapted"]
        )

    def expected(self, module: str, double: bool) -> Any:
        """PEFT's formula, in float32 and rounded (or in float64 and not)."""
        import torch

        wide = torch.float64 if double else torch.float32
        stem = f"base_model.model.{module}"
        a, b = (self.factors[f"{stem}.lora_{side}.weight"].to(wide) for side in "AB")
        weight = self.weights[f"{module}.weight"]
        delta = (b @ a) * self.scaling(module)
        result = weight.to(wide) + delta
        if self.model["use_dora"]:
            norm = torch.linalg.norm(result, dim=1)
            magnitude = self.factors[f"{stem}.lora_magnitude_vector"].to(wide)
            result = (magnitude / norm).view(-1, 1) * result
        return result if double else result.to(weight.dtype)


@settings(max_examples=120)
@given(model=models(), random=st.randoms(use_true_random=False))
def test_any_model(model: dict[str, Any], random: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = Made(model, Path(folder), random)
        out = Path(folder) / "out"
        if not made.changes():
            with pytest.raises(CheckError, match="HT116"):
                merged(made.base, made.adapter, out)
            return
        ours, report = merged(made.base, made.adapter, out)
        assert report["changed_tensors"] == len(model["adapted"])
        assert_same_layout(made.base, out)
        assert_as_computed(made, ours)


def assert_as_computed(made: Made, ours: dict[str, Any]) -> None:
    """Untouched tensors are the base's; the others are PEFT's bytes, and near the exact ones."""
    import torch

    assert ours.keys() == made.weights.keys()
    for name, weight in made.weights.items():
        module = name.removesuffix(".weight")
        if module not in made.model["adapted"]:
            assert torch.equal(ours[name], weight), name
            continue
        exact = made.expected(module, double=True)
        slack = (made.rank(module) + 6) * 2.0**-24 * (1 + made.scaling(module))
        bound = torch.finfo(weight.dtype).eps / 2 * exact.abs() * 1.001 + slack
        assert ((ours[name].double() - exact).abs() <= bound).all(), name
        if min(weight.shape) < SLIVER:
            continue
        wanted = made.expected(module, double=False)
        assert torch.equal(ours[name].view(torch.uint8), wanted.view(torch.uint8)), name


def assert_same_layout(base: Path, out: Path) -> None:
    """No tensor changed its size, so every header and the index are the base's bytes."""
    names = sorted(file.name for file in base.glob("model*"))
    assert names == sorted(file.name for file in out.glob("model*"))
    for name in names:
        left, right = (base / name).read_bytes(), (out / name).read_bytes()
        end = 8 + int.from_bytes(left[:8], "little") if name.endswith("rs") else len(left)
        assert right[:end] == left[:end], name
        assert len(right) == len(left), name


@settings(max_examples=40)
@given(model=models(), random=st.randoms(use_true_random=False), data=st.data())
def test_one_tensor_without_a_place_and_nothing_is_written(
    model: dict[str, Any], random: Any, data: Any
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = Made(model, Path(folder), random)
        module = data.draw(st.sampled_from(model["adapted"]))
        stem = f"base_model.model.{module}."
        moved = {
            name.replace(module, f"{module}_x") if name.startswith(stem) else name: tensor
            for name, tensor in made.factors.items()
        }
        write(made.adapter / "adapter_model.safetensors", moved, list(moved), 0)
        with pytest.raises(CheckError) as caught:
            merged(made.base, made.adapter, Path(folder) / "out")
        assert f"{module}_x" in str((caught.value.message, caught.value.detail))
        assert not (Path(folder) / "out").exists()


def test_what_is_written_by_hand_is_read_by_others(tmp_path: Path) -> None:
    import torch

    tensors = {"b": torch.arange(6.0).reshape(2, 3).bfloat16(), "a": torch.arange(4)}
    write(tmp_path / "model.safetensors", tensors, ["a", "b"], 5)
    found = stored(tmp_path)
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
