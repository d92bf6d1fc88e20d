"""A plan in numbers: what changes, what is new, by which arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from hubtools.checkpoint.merging.recipe import AddVector, Layout, LowRank, Op, Output, SetRows
from hubtools.checkpoint.shards import Weights


def plan_summary(layout: Layout, weights: Weights) -> dict[str, Any]:
    """What `hubtools merge --dry-run --json` counts.

    Args:
        layout: of the result.
        weights: of the base.
    """
    base = weights.tensors()
    outputs = layout.outputs()
    homes = {header.path for header in weights.headers.values()}
    trained = [output for output in outputs if output.ops or output.source.path not in homes]
    low_rank = [op for output in outputs for op in output.ops if isinstance(op, LowRank)]
    names = {output.name for output in outputs}
    return {
        "changed_tensors": len(trained),
        "tensors": len(outputs),
        "changed_bytes": sum(output.bytes for output in trained),
        "bytes": sum(
            file.like.size if file.like else sum(output.bytes for output in file.outputs)
            for file in layout.files
        ),
        "files": sorted(file.name for file in layout.files),
        "ranks": sorted({op.rank for op in low_rank}),
        "scalings": sorted({op.scaling for op in low_rank}),
        "kinds": dict(sorted(Counter(output.kind for output in trained).items())),
        "classes": _classes(op for output in outputs for op in output.ops),
        "replaced": [o.name for o in outputs if o.name in base and o.source.path not in homes],
        "added": sorted(names - base.keys()),
        "removed": sorted(base.keys() - names),
        "dtypes": _dtypes(outputs),
    }


def _classes(ops: Iterable[Op]) -> dict[str, int]:
    """Arithmetic class → how often it is used."""
    return dict(sorted(Counter(map(_class, ops)).items()))


def _class(op: Op) -> str:
    if isinstance(op, SetRows):
        return "rows"
    if isinstance(op, AddVector):
        return "bias"
    return "dora" if op.magnitude is not None else op.rounding


def _dtypes(outputs: list[Output]) -> dict[str, int]:
    """Stored dtype → number of tensors."""
    return dict(sorted(Counter(output.dtype for output in outputs).items()))
