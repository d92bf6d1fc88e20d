"""Recipes followed by the engine, against the same arithmetic on whole tensors in torch."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubtools.checkpoint.headers import read_header
from hubtools.checkpoint.merging.engine import Engine
from hubtools.checkpoint.merging.product import engine_of, gemm_of
from hubtools.checkpoint.merging.recipe import (
    AddVector,
    Factor,
    Layout,
    LowRank,
    Op,
    Output,
    OutputFile,
    SetRows,
    Stored,
)
from hubtools.checkpoint.merging.written import Sums, Written
from hubtools.errors import CheckError, EnvironmentFailure
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


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rounding", ["once", "twice"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("pages", [0, 3])
def test_low_rank(bench: Bench, dtype: str, rounding: Any, transposed: bool, pages: int) -> None:
    shape = (320, 192) if transposed else (192, 320)
    full = (pages, *shape) if pages else shape
    base = bench.save("base", {"w": bench.normal(0, *full, dtype=dtype, scale=0.1)})
    factors = bench.save("adapter", {"a": bench.normal(1, 8, 320), "b": bench.normal(2, 192, 8)})
    page = 1 if pages else None
    a, b = Factor(factors["a"]), Factor(factors["b"])
    op = LowRank(a, b, 0.3, rounding, transposed, page)
    found, written = bench.write(base, [output(base["w"], op)])
    expected = bench.tensors["w"].clone()
    target = expected[1] if pages else expected
    flip = (lambda x: x.T) if transposed else (lambda x: x)
    new = low_rank(flip(target), bench.tensors["b"], bench.tensors["a"], 0.3, rounding)
    target.copy_(flip(new))
    assert equal(found["w"], expected)
    before = bench.tensors["w"]
    assert written.sums["w"].moved == int((found["w"] != before).sum())
    assert written.sums["w"].elements == before.numel()
    delta = ((bench.tensors["b"] @ bench.tensors["a"]) * 0.3).double().square().sum()
    np.testing.assert_allclose(written.sums["w"].delta, float(delta), rtol=1e-4)
    np.testing.assert_allclose(
        written.sums["w"].weight, float(before.double().square().sum()), rtol=1e-4
    )


@pytest.mark.parametrize("transposed", [False, True])
def test_some_outputs_of_a_page_change_and_the_others_keep_their_bytes(
    bench: Bench, transposed: bool
) -> None:
    import torch

    shape = (2, 64, 100) if transposed else (2, 100, 64)
    w = bench.normal(0, *shape, dtype="BF16")
    w[:, 0, :] = -0.0  # a sum with zero would lose the sign
    w[:, :, 0] = -0.0
    base = bench.save("base", {"w": w})
    factors = bench.save("adapter", {"a": bench.normal(1, 4, 64), "b": bench.normal(2, 40, 4)})
    a, b = Factor(factors["a"]), Factor(factors["b"])
    op = LowRank(a, b, 0.5, "twice", transposed, 1, rows=(20, 60))
    found, _ = bench.write(base, [output(base["w"], op)])
    expected = w.clone()
    part = expected[1][:, 20:60].T if transposed else expected[1][20:60]
    new = low_rank(part, bench.tensors["b"], bench.tensors["a"], 0.5, "twice")
    part.copy_(new)
    assert equal(found["w"], expected)
    assert int(torch.signbit(found["w"][1, 0]).sum()) == int(torch.signbit(expected[1, 0]).sum())


def test_factors_are_cut_from_one_stored_tensor(bench: Bench) -> None:
    experts, rank = 4, 3
    base = bench.save(
        "base", {f"w{e}": bench.normal(e, 48, 64, dtype="BF16") for e in range(experts)}
    )
    b = bench.normal(7, 48, rank * experts)
    a = bench.normal(8, rank * experts, 64)
    factors = bench.save("adapter", {"a": a, "b": b})
    outputs = []
    for e in range(experts):
        rows = Factor(factors["a"], rows=slice(e * rank, (e + 1) * rank))
        columns = Factor(factors["b"], columns=slice(e, None, experts))
        outputs.append(output(base[f"w{e}"], LowRank(rows, columns, 2.0, "twice")))
    found, _ = bench.write(base, outputs)
    for e in range(experts):
        cut = b.reshape(48, rank, experts)[:, :, e], a.reshape(experts, rank, 64)[e]
        expected = low_rank(bench.tensors[f"w{e}"], *cut, 2.0, "twice")
        assert equal(found[f"w{e}"], expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_biases_and_rows(bench: Bench, dtype: str) -> None:
    base = bench.save(
        "base",
        {"bias": bench.normal(0, 70, dtype=dtype), "embed": bench.normal(1, 5000, 64, dtype=dtype)},
    )
    factors = bench.save("adapter", {"v": bench.normal(2, 70), "rows": bench.normal(3, 3, 64)})
    rows = (4999, 2, 4096)
    found, written = bench.write(
        base,
        [
            output(base["bias"], AddVector(factors["v"], 0.7)),
            output(base["embed"], SetRows(rows, factors["rows"])),
        ],
    )
    bias, embed = bench.tensors["bias"], bench.tensors["embed"].clone()
    assert equal(found["bias"], (bias.float() + bench.tensors["v"] * 0.7).to(bias.dtype))
    embed[list(rows)] = bench.tensors["rows"].to(embed.dtype)
    assert equal(found["embed"], embed)
    assert written.sums["embed"].moved == int((embed != bench.tensors["embed"]).sum())
    asked = bench.tensors["rows"] - bench.tensors["embed"][list(rows)].float()
    delta = float(asked.double().square().sum())
    np.testing.assert_allclose(written.sums["embed"].delta, delta, rtol=1e-4)
    weight = float(bench.tensors["embed"].double().square().sum())
    np.testing.assert_allclose(written.sums["embed"].weight, weight, rtol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_operations_in_turn_each_round(bench: Bench, dtype: str) -> None:
    base = bench.save("base", {"w": bench.normal(0, 96, 64, dtype=dtype)})
    names = {"a": (4, 64), "b": (96, 4), "c": (2, 64), "d": (96, 2)}
    factors = bench.save(
        "adapter", {n: bench.normal(i + 1, *s) for i, (n, s) in enumerate(names.items())}
    )
    first = LowRank(Factor(factors["a"]), Factor(factors["b"]), 0.1)
    second = LowRank(Factor(factors["c"]), Factor(factors["d"]), 0.2, "twice")
    found, written = bench.write(base, [output(base["w"], first, second)])
    t = bench.tensors
    between = low_rank(t["w"], t["b"], t["a"], 0.1, "once")
    expected = low_rank(between, t["d"], t["c"], 0.2, "twice")
    assert equal(found["w"], expected)
    assert written.sums["w"].moved == int((expected != t["w"]).sum())
    asked = (t["b"] @ t["a"]) * 0.1 + (t["d"] @ t["c"]) * 0.2
    np.testing.assert_allclose(
        written.sums["w"].delta, float(asked.double().square().sum()), rtol=1e-4
    )


def dora(w0: Any, w: Any, b: Any, a: Any, m: Any, scaling: float) -> Any:
    import torch

    delta = (b @ a) * scaling
    norm = torch.linalg.norm(w0.float() + delta, dim=1)
    return ((m / norm)[:, None] * (w.float() + delta)).to(w.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("later", [False, True])
def test_dora(bench: Bench, dtype: str, transposed: bool, later: bool) -> None:
    shape = (320, 192) if transposed else (192, 320)
    base = bench.save("base", {"w": bench.normal(0, *shape, dtype=dtype)})
    factors = bench.save(
        "adapter",
        {"a": bench.normal(1, 8, 320), "b": bench.normal(2, 192, 8), "m": bench.normal(3, 192)},
    )
    a, b = Factor(factors["a"]), Factor(factors["b"])
    ops = (
        *([LowRank(a, b, 0.1, transposed=transposed)] if later else []),
        LowRank(a, b, 0.3, transposed=transposed, magnitude=factors["m"]),
    )
    found, written = bench.write(base, [output(base["w"], *ops)])
    t = bench.tensors
    w0 = t["w"].T if transposed else t["w"]
    now = low_rank(w0, t["b"], t["a"], 0.1, "once") if later else w0
    expected = dora(w0, now, t["b"], t["a"], t["m"], 0.3)
    assert equal(found["w"], expected.T if transposed else expected)
    assert written.sums["w"].moved == int((expected != w0).sum())


@pytest.mark.parametrize("before", DTYPES)
@pytest.mark.parametrize("after", DTYPES)
def test_a_cast_and_a_product_are_rounded_once(bench: Bench, before: str, after: str) -> None:
    import torch

    kind = getattr(torch, DTYPES[after])
    base = bench.save(
        "base",
        {"w": bench.normal(0, 96, 64, dtype=before), "copy": bench.normal(5, 1000, dtype=before)},
    )
    factors = bench.save("adapter", {"a": bench.normal(1, 4, 64), "b": bench.normal(2, 96, 4)})
    op = LowRank(Factor(factors["a"]), Factor(factors["b"]), 0.1)
    found, written = bench.write(
        base, [output(base["w"], op, dtype=after), output(base["copy"], dtype=after)]
    )
    t = bench.tensors
    expected = (t["w"].float() + (t["b"] @ t["a"]) * 0.1).to(kind)
    assert equal(found["w"], expected)
    assert equal(found["copy"], t["copy"].to(kind))
    assert written.sums["w"].moved == int((expected != t["w"].to(kind)).sum())
    assert written.sums.get("copy", Sums()).moved == 0


def test_what_was_trained_whole_is_compared_with_the_base(bench: Bench) -> None:
    tensors = {"same": bench.normal(0, 40, 8, dtype="BF16"), "other": bench.normal(1, 40, 8)}
    base = bench.save("base", {**tensors, "untouched": bench.normal(2, 9, 9)})
    new = {"same": tensors["same"].float(), "other": tensors["other"].clone()}
    new["other"][3] += 1
    trained = bench.save("adapter", {**new, "added": bench.normal(3, 5, 5)})
    outputs = [
        output(trained["same"], dtype="BF16"),
        output(trained["other"]),
        output(base["untouched"]),
        output(trained["added"]),
    ]
    found, written = bench.write(base, outputs)
    assert equal(found["same"], tensors["same"])
    assert equal(found["other"], new["other"])
    assert written.sums["same"].moved == 0
    assert written.sums["other"].moved == 8
    np.testing.assert_allclose(written.sums["other"].delta, 8, rtol=1e-5)
    assert written.sums["added"].moved == written.sums["added"].elements == 25
    assert "untouched" not in written.sums


def test_a_large_file_in_the_layout_of_its_base(bench: Bench) -> None:
    """Many units on two threads, at offsets that fit no block of the disk."""
    sizes = {"a": (3, 5), "w": (3000, 1001), "x": (1_500_001,), "y": (1,), "z": (700, 1001)}
    base = bench.save("base", {n: bench.normal(1, *s, dtype="BF16") for n, s in sizes.items()})
    factors = bench.save(
        "adapter", {"p": bench.normal(2, 16, 1001), "q": bench.normal(3, 3000, 16)}
    )
    p, q = Factor(factors["p"]), Factor(factors["q"])
    ops = {
        "w": LowRank(p, q, 2.0),
        "z": LowRank(p, Factor(factors["q"], rows=slice(700, 1400)), 0.3),
    }
    in_order = sorted(base.values(), key=lambda item: item.entry.begin)
    outputs = [
        output(item, *([ops[item.entry.name]] if item.entry.name in ops else []))
        for item in in_order
    ]
    found, written = bench.write(base, outputs, like=True)
    t = bench.tensors
    assert equal(found["w"], low_rank(t["w"], t["q"], t["p"], 2.0, "once"))
    assert equal(found["z"], low_rank(t["z"], t["q"][700:1400], t["p"], 0.3, "once"))
    assert all(equal(found[name], t[name]) for name in "axy")
    head = (bench.root / "base.safetensors").read_bytes()[
        : read_header(in_order[0].path).data_start
    ]
    assert (bench.root / "out.safetensors").read_bytes().startswith(head)
    _, again = bench.write(base, outputs, like=True)
    assert again == written  # whatever thread was quicker


def test_a_header_of_any_length(bench: Bench, tmp_path: Path) -> None:
    """Old writers did not pad: tensors then begin at odd bytes."""
    import torch

    w = bench.normal(0, 20, 32, dtype="BF16")
    data = w.view(torch.uint8).numpy().tobytes()
    fields = {"w": {"dtype": "BF16", "shape": [20, 32], "data_offsets": [0, len(data)]}}
    text = json.dumps(fields).encode()
    text += b" " * ((len(text) + 1) % 2)  # 8 + an odd length
    path = tmp_path / "odd.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    base = stored(path)
    assert base["w"].entry.begin % 2 == 1
    factors = bench.save("adapter", {"a": bench.normal(1, 4, 32), "b": bench.normal(2, 20, 4)})
    op = LowRank(Factor(factors["a"]), Factor(factors["b"]), 1.0)
    found, _ = bench.write(base, [output(base["w"], op)])
    t = bench.tensors
    assert equal(found["w"], low_rank(w, t["b"], t["a"], 1.0, "once"))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e38])
def test_not_finite_names_tensor_and_rows(bench: Bench, value: float) -> None:
    base = bench.save("base", {"ok": bench.normal(3, 4), "w": bench.normal(0, 2, 40, 32)})
    a, b = bench.normal(1, 4, 32), bench.normal(2, 40, 4)
    a[0, 0], b[20] = value, 100.0
    factors = bench.save("adapter", {"a": a, "b": b})
    op = LowRank(Factor(factors["a"]), Factor(factors["b"]), 1.0, page=1)
    with pytest.raises(CheckError, match="HT117") as caught:
        bench.write(base, [output(base["ok"]), output(base["w"], op)])
    assert "w are not finite (rows 0 to 39 of matrix 1)" in caught.value.message


def test_a_file_that_becomes_shorter(bench: Bench) -> None:
    base = bench.save("base", {"w": bench.normal(0, 3000, 1000)})
    path = base["w"].path
    with path.open("r+b") as stream:
        stream.truncate(5 << 20)
    with pytest.raises(EnvironmentFailure, match="HT118"):
        bench.write(base, [output(base["w"])])


def test_numpy_multiplies_only_where_its_bits_are_known(bench: Bench) -> None:
    factors = bench.save(
        "adapter",
        {"a": bench.normal(1, 8, 32), "b": bench.normal(2, 64, 8), "few": bench.normal(2, 8, 8),
         "narrow": bench.normal(1, 8, 9), "deep": bench.normal(1, 256, 32),
         "wide": bench.normal(1, 64, 256)},
    )  # fmt: skip
    base = bench.save("base", {"w": bench.normal(0, 64, 32)})

    def chosen(a: str, b: str, **more: Any) -> str:
        op = LowRank(Factor(factors[a]), Factor(factors[b]), 1.0, **more)
        return engine_of(Layout((OutputFile("f", (output(base["w"], op),)),)))

    assert chosen("a", "b") == "numpy"
    assert chosen("a", "few") == "torch"
    assert chosen("narrow", "b") == "torch"
    assert chosen("deep", "wide") == "torch"
    assert chosen("a", "b", magnitude=factors["b"]) == "torch"


@pytest.mark.parametrize(
    ("module", "absent"),
    [("merge", ("numpy", "torch", "peft")), ("child", ("torch", "transformers", "safetensors"))],
)
def test_neither_process_loads_what_it_does_not_need(module: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, hubtools.checkpoint.merging.{module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(absent) & set(done.stdout.split())
