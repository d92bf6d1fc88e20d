"""What a merge did, as facts: equal inputs give an equal report.

The finite check and the counts cover every value of every changed tensor; Δ is the exact change in
float32, before it was rounded to the dtype of the base.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hubtools.checkpoint.merging.recipe import AddVector, Layout, LowRank, Output, SetRows
from hubtools.checkpoint.merging.written import Sums

ONCE = "float32, rounded once to the dtype of the base"
TWICE = "B·A rounded to the dtype of the base, then added in it"
DORA = "DoRA: rows scaled to their magnitudes in float32, rounded once"
BIAS = "biases added in float32, rounded once"
ROWS = "token rows replaced by trained ones"
WHOLE = "tensors replaced by trained ones"
PEFT = "computed by PEFT"
CAST = "stored in another dtype, rounded once where that holds less"

_LIBRARIES = {
    "numpy": ("numpy",),
    "torch": ("numpy", "torch"),
    "peft": ("numpy", "peft", "torch", "transformers"),
}


def merge_report(
    layout: Layout, sums: Mapping[str, Sums], home: frozenset[Path], engine: str
) -> dict[str, Any]:
    """The facts of a merge.

    Args:
        layout: what was written.
        sums: output tensor name → what happened to it.
        home: the base's files.
        engine: who computed it: `numpy`, `torch` or `peft`.
    """
    from importlib.metadata import version  # slow to import, and only needed at the end

    changed = [o for o in layout.outputs() if o.name in sums and _has_recipe(o, home)]
    total = Sums()
    kinds: dict[str, tuple[int, Sums]] = {}
    for output in changed:
        count, of_kind = kinds.get(output.kind, (0, Sums()))
        of_kind.add(sums[output.name])
        kinds[output.kind] = count + 1, of_kind
        total.add(sums[output.name])
    return {
        "arithmetic": PEFT if engine == "peft" else "; ".join(_classes(layout.outputs(), home)),
        "changed_elements": total.elements,
        "moved_elements": total.moved,
        "finite": True,
        "kinds": {kind: _of_kind(*kinds[kind]) for kind in sorted(kinds)},
        "versions": {name: version(name) for name in _LIBRARIES[engine]},
    }


def _has_recipe(output: Output, home: frozenset[Path]) -> bool:
    return bool(output.ops) or output.source.path not in home


def _of_kind(tensors: int, sums: Sums) -> dict[str, Any]:
    delta, weight = math.sqrt(sums.delta), math.sqrt(sums.weight)
    return {
        "tensors": tensors,
        "elements": sums.elements,
        "moved_elements": sums.moved,
        "unmoved_share": _rounded(1 - sums.moved / sums.elements) if sums.elements else 0.0,
        "delta_norm": _rounded(delta),
        "weight_norm": _rounded(weight),
        "relative_change": _rounded(delta / weight) if weight else None,
    }


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _classes(outputs: list[Output], home: frozenset[Path]) -> list[str]:
    found = {word for output in outputs for word in _words(output, home)}
    order = (ONCE, TWICE, DORA, BIAS, ROWS, WHOLE, CAST)
    return [word for word in order if word in found]


def _words(output: Output, home: frozenset[Path]) -> Iterator[str]:
    if output.source.path not in home:
        yield WHOLE
    if output.source.entry.dtype != output.dtype:
        yield CAST
    for op in output.ops:
        if isinstance(op, SetRows):
            yield ROWS
        elif isinstance(op, AddVector):
            yield BIAS
        elif isinstance(op, LowRank) and op.magnitude is not None:
            yield DORA
        else:
            yield TWICE if op.rounding == "twice" else ONCE
