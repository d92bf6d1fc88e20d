"""Recipes followed by the engine, against the same arithmetic on whole tensors in torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_bench import DTYPES, Bench, equal, low_rank, output

from hubtools.checkpoint.merging.recipe import (
    AddVector,
    Factor,
    LowRank,
    SetRows,
)
from hubtools.checkpoint.merging.written import Sums


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


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
