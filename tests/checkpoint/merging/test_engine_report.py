"""Recipes reach the child unchanged; the report sums up what became of the tensors, by kind."""

from __future__ import annotations

import json
from pathlib import Path

from hubtools.checkpoint.headers import Header, TensorEntry
from hubtools.checkpoint.merging import report
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
from hubtools.checkpoint.merging.report import merge_report
from hubtools.checkpoint.merging.wire import files_from_json, files_to_json
from hubtools.checkpoint.merging.written import Sums, Written

BASE, ADAPTER = Path("/b/model.safetensors"), Path("/a/adapter_model.safetensors")


def stored(name: str, *shape: int, path: Path = BASE, dtype: str = "BF16") -> Stored:
    return Stored(path, TensorEntry(name, dtype, shape, 8, 8))


def output(name: str, *ops: Op, kind: str = "", path: Path = BASE, dtype: str = "BF16") -> Output:
    return Output(name, dtype, (4, 4), stored(name, 4, 4, path=path), ops, kind)


A, B = stored("a", 6, 4, path=ADAPTER), stored("b", 4, 6, path=ADAPTER)
ONCE = LowRank(Factor(A), Factor(B), 2.0)
TWICE = LowRank(
    Factor(A, rows=slice(2, 4)), Factor(B, columns=slice(1, None, 3)), 1 / 3, "twice", True, 1,
    rows=(0, 4),
)  # fmt: skip
DORA = LowRank(Factor(A), Factor(B), 1.0, magnitude=stored("m", 4, path=ADAPTER))


def test_recipes_survive_the_way_to_the_child() -> None:
    files = (
        OutputFile("1", (output("w", ONCE, TWICE), output("x")), Header(BASE, 80, 144, ())),
        OutputFile(
            "2", (output("b", AddVector(B, 0.5), kind="b"), output("e", SetRows((3, 1), A)))
        ),
        OutputFile("3", (output("d", DORA, dtype="F32"),)),
        OutputFile("4", ()),
    )
    assert files_from_json(json.loads(json.dumps(files_to_json(files)))) == files


def test_written_files_survive_the_way_back() -> None:
    written = Written("00", 4, {"w": Sums(3, 2, 0.1, 1 / 3)})
    assert Written.from_json(json.loads(json.dumps(written.to_json()))) == written


def test_kinds_are_summed_up() -> None:
    outputs = (
        output("l0.q", ONCE, kind="q_proj"),
        output("l1.q", ONCE, kind="q_proj"),
        output("embed", kind="embed_tokens", path=ADAPTER),
        output("rest"),
    )
    sums = {
        "l0.q": Sums(16, 16, 3.0, 100.0),
        "l1.q": Sums(16, 8, 1.0, 300.0),
        "embed": Sums(16, 0, 0.0, 0.0),
    }
    layout = Layout((OutputFile("f", outputs),))
    found = merge_report(layout, sums, frozenset({BASE}), "numpy")
    assert found["changed_elements"] == 48
    assert found["moved_elements"] == 24
    assert found["arithmetic"] == f"{report.ONCE}; {report.WHOLE}"
    assert found["kinds"] == {
        "embed_tokens": {
            "tensors": 1, "elements": 16, "moved_elements": 0, "unmoved_share": 1.0,
            "delta_norm": 0.0, "weight_norm": 0.0, "relative_change": None,
        },
        "q_proj": {
            "tensors": 2, "elements": 32, "moved_elements": 24, "unmoved_share": 0.25,
            "delta_norm": 2.0, "weight_norm": 20.0, "relative_change": 0.1,
        },
    }  # fmt: skip
    assert found["versions"].keys() == {"numpy"}


def test_every_arithmetic_is_named() -> None:
    outputs = (
        output("o", ONCE), output("t", TWICE), output("d", DORA), output("b", AddVector(B, 1.0)),
        output("r", SetRows((1,), A)), output("w", path=ADAPTER), output("c", dtype="F32"),
    )  # fmt: skip
    layout = Layout((OutputFile("f", outputs),))
    found = merge_report(layout, {}, frozenset({BASE}), "torch")
    names = (report.ONCE, report.TWICE, report.DORA, report.BIAS, report.ROWS, report.WHOLE)
    assert found["arithmetic"].split("; ") == [*names, report.CAST]
    by_peft = merge_report(layout, {}, frozenset({BASE}), "peft")
    assert by_peft["arithmetic"] == report.PEFT
    assert by_peft["versions"].keys() == {"numpy", "peft", "torch", "transformers"}
