"""Tensors on disk and the engine over them, for tests of what it computes and writes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubtools.checkpoint.headers import read_header
from hubtools.checkpoint.merging.engine import Engine
from hubtools.checkpoint.merging.product import engine_of, gemm_of
from hubtools.checkpoint.merging.recipe import (
    Layout,
    Op,
    Output,
    OutputFile,
    Stored,
)
from hubtools.checkpoint.merging.written import Written
from hubtools.progress import silent

DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


class Bench:
    """Base and adapter files, and outputs made of their tensors."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tensors: dict[str, Any] = {}

    def normal(self, seed: int, *shape: int, dtype: str = "F32", scale: float = 1.0) -> Any:
        import torch

        made = torch.Generator().manual_seed(seed)
        return (torch.randn(*shape, generator=made) * scale).to(getattr(torch, DTYPES[dtype]))

    def save(self, name: str, tensors: Mapping[str, Any]) -> dict[str, Stored]:
        from safetensors.torch import save_file

        path = self.root / f"{name}.safetensors"
        save_file(dict(tensors), path, metadata={"format": "pt"})
        self.tensors |= tensors
        return stored(path)

    def write(
        self, base: Mapping[str, Stored], outputs: list[Output], like: bool = False
    ) -> tuple[dict[str, Any], Written]:
        from safetensors.torch import load_file

        header = read_header(next(iter(base.values())).path) if like else None
        file = OutputFile("out.safetensors", tuple(outputs), header)
        layout = Layout((file,))
        out = self.root / "out.safetensors"
        out.unlink(missing_ok=True)
        home = frozenset(item.path for item in base.values())
        engine = Engine(
            base, home, gemm_of(engine_of(layout)), total=layout.bytes, label="", progress=silent
        )
        written = engine.write(file, out)
        assert written.sha256 == hashlib.sha256(out.read_bytes()).hexdigest()
        assert written.size == out.stat().st_size
        assert read_header(out).data_start % 8 == 0 or like
        return load_file(out), written


def stored(path: Path) -> dict[str, Stored]:
    return {entry.name: Stored(path, entry) for entry in read_header(path).tensors}


def output(source: Stored, *ops: Op, dtype: str = "", name: str = "") -> Output:
    entry = source.entry
    return Output(name or entry.name, dtype or entry.dtype, entry.shape, source, ops, "kind")


def equal(left: Any, right: Any) -> bool:
    import torch

    same = left.dtype == right.dtype and left.shape == right.shape
    return same and torch.equal(
        left.contiguous().view(torch.uint8), right.contiguous().view(torch.uint8)
    )


def low_rank(w: Any, b: Any, a: Any, scaling: float, rounding: str) -> Any:
    delta = (b @ a) * scaling
    if rounding == "twice":
        return w + delta.to(w.dtype)
    return (w.float() + delta).to(w.dtype)
