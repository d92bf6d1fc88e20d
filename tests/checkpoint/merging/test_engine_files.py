"""Files the engine writes: their layout and header, what it compares, and what stops it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_bench import Bench, equal, low_rank, output, stored

from hubtools.checkpoint.headers import read_header
from hubtools.checkpoint.merging.product import engine_of
from hubtools.checkpoint.merging.recipe import (
    Factor,
    Layout,
    LowRank,
    OutputFile,
)
from hubtools.errors import CheckError, EnvironmentFailure


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


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
