"""Recipes as JSON, on their way to the process that follows them: it need not plan again.

Planning takes modules, and sometimes transformers' word on names; the child has neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubtools.checkpoint.headers import Header, TensorEntry
from hubtools.checkpoint.merging.recipe import (
    AddVector,
    Factor,
    LowRank,
    Op,
    Output,
    OutputFile,
    SetRows,
    Stored,
)


def files_to_json(files: tuple[OutputFile, ...]) -> list[dict[str, Any]]:
    """What `files_from_json` reads; of the model header only what is needed to copy it."""
    return [
        {
            "name": file.name,
            "like": None
            if file.like is None
            else [str(file.like.path), file.like.data_start, file.like.size],
            "outputs": [_output_to_json(output) for output in file.outputs],
        }
        for file in files
    ]


def files_from_json(data: list[dict[str, Any]]) -> tuple[OutputFile, ...]:
    """The files of a layout."""
    return tuple(
        OutputFile(
            name=file["name"],
            outputs=tuple(_output_from_json(output) for output in file["outputs"]),
            like=None
            if file["like"] is None
            else Header(Path(file["like"][0]), file["like"][1], file["like"][2], ()),
        )
        for file in data
    )


def stored_to_json(stored: Stored) -> list[Any]:
    """One tensor in one file."""
    entry = stored.entry
    shape = list(entry.shape)
    return [str(stored.path), entry.name, entry.dtype, shape, entry.begin, entry.end]


def stored_from_json(data: list[Any]) -> Stored:
    """What `stored_to_json` wrote."""
    path, name, dtype, shape, begin, end = data
    return Stored(Path(path), TensorEntry(name, dtype, tuple(shape), begin, end))


def _header(path: str, data_start: int, size: int) -> Header:
    return Header(Path(path), data_start, size, ())


def _output_to_json(output: Output) -> dict[str, Any]:
    return {
        "name": output.name,
        "dtype": output.dtype,
        "shape": list(output.shape),
        "source": stored_to_json(output.source),
        "ops": [_op_to_json(op) for op in output.ops],
        "kind": output.kind,
    }


def _output_from_json(data: Mapping[str, Any]) -> Output:
    return Output(
        name=data["name"],
        dtype=data["dtype"],
        shape=tuple(data["shape"]),
        source=stored_from_json(data["source"]),
        ops=tuple(_op_from_json(op) for op in data["ops"]),
        kind=data["kind"],
    )


def _op_to_json(op: Op) -> dict[str, Any]:
    if isinstance(op, AddVector):
        return {"op": "vector", "bias": stored_to_json(op.bias), "scaling": op.scaling}
    if isinstance(op, SetRows):
        return {"op": "rows", "rows": list(op.rows), "values": stored_to_json(op.values)}
    return {
        "op": "product",
        "a": _factor_to_json(op.a),
        "b": _factor_to_json(op.b),
        "scaling": op.scaling,
        "rounding": op.rounding,
        "transposed": op.transposed,
        "page": op.page,
        "rows": None if op.rows is None else list(op.rows),
        "magnitude": None if op.magnitude is None else stored_to_json(op.magnitude),
    }


def _op_from_json(data: Mapping[str, Any]) -> Op:
    if data["op"] == "vector":
        return AddVector(stored_from_json(data["bias"]), data["scaling"])
    if data["op"] == "rows":
        return SetRows(tuple(data["rows"]), stored_from_json(data["values"]))
    magnitude, rows = data["magnitude"], data["rows"]
    return LowRank(
        a=_factor_from_json(data["a"]),
        b=_factor_from_json(data["b"]),
        scaling=data["scaling"],
        rounding=data["rounding"],
        transposed=data["transposed"],
        page=data["page"],
        rows=None if rows is None else (rows[0], rows[1]),
        magnitude=None if magnitude is None else stored_from_json(magnitude),
    )


def _factor_to_json(factor: Factor) -> list[Any]:
    cuts = [[cut.start, cut.stop, cut.step] for cut in (factor.rows, factor.columns)]
    return [stored_to_json(factor.stored), *cuts]


def _factor_from_json(data: list[Any]) -> Factor:
    stored, rows, columns = data
    return Factor(stored_from_json(stored), slice(*rows), slice(*columns))
