"""What `hubtools merge` tells while it works: the plan, the report, the comparison, the words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hubtools.cli.output import Output
from hubtools.cli.spoken import tell_digests
from hubtools.sizes import size_words

_SHOWN = 3


def plan(output: Output, adapters: Sequence[Path], base: Path, data: Mapping[str, Any]) -> None:
    """What is going to happen."""
    output.note(f"Merge {', then '.join(map(str, adapters))} into {base}")
    if "memory" in data:
        free = data["memory_available"]
        room = f"; {size_words(free)} are free" if free is not None else ""
        output.note(
            f"  {', '.join(data['types'])} through PEFT: {data['adapter_tensors']} adapter tensors,"
            f" about {size_words(data['memory'])} of memory{room}"
        )
    else:
        _streamed(output, data)
    for note in data["notes"]:
        output.note(f"  note: {note}")


def report(output: Output, result: Mapping[str, Any], *, again: bool) -> None:
    """What the merge did, by kind of module.

    Args:
        output: where to print.
        result: of `merge`.
        again: whether it was done before, and its files were only checked.
    """
    facts = result["report"]
    moved = facts["moved_elements"] / facts["changed_elements"]
    if again:
        output.note("✓ as merged before: every file has the digest that was recorded")
    mark = "  it was " if again else "✓ merged  "
    output.note(f"{mark}{facts['arithmetic']}; {moved:.1%} of the touched elements moved")
    kinds = facts["kinds"]
    width = max(map(len, kinds), default=0)
    for kind, found in kinds.items():
        change = found["relative_change"]
        size = "new" if change is None else f"‖Δ‖/‖W‖ {change:.2e}"
        output.note(
            f"  {kind:{width}}  ×{found['tensors']:<4}  {size}"
            f"  {found['unmoved_share']:.1%} of elements did not move"
        )
    tell_digests(output, result["weights"])


def logits(output: Output, found: Mapping[str, Any]) -> None:
    """The merged model against base and adapter."""
    mark = "✓ logits" if found["equal"] else "✗ logits"
    output.note(
        f"{mark}  differ by at most {found['max_difference']:.2g} of {found['max_logit']:.3g}"
        f" (rounding explains {found['bound']:.2g}; the adapter's own effect is"
        f" {found['adapter_effect']:.2g}), same first token at {found['top1_agreement']:.1%} of"
        f" {found['positions']} positions, in {found['dtype']}"
    )


def _streamed(output: Output, data: Mapping[str, Any]) -> None:
    ranks = f"rank {_list(data['ranks'])}, scaling {_list(data['scalings'])}, "
    output.note(
        f"  {data['changed_tensors']} of {data['tensors']} tensors change "
        f"({size_words(data['changed_bytes'])} of {size_words(data['bytes'])}), "
        f"{ranks if data['ranks'] else ''}engine {data['engine']}"
    )
    kinds = ", ".join(f"{kind} ×{count}" for kind, count in data["kinds"].items())
    output.note(f"  {kinds}")
    for word in ("added", "replaced", "removed"):
        names = data[word]
        if names:
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            output.note(f"  {word}: {', '.join(names[:_SHOWN])}{more}")
    for path, value in data["config"].items():
        output.note(f"  config.json: {path} becomes {json.dumps(value)}")


def _list(values: Sequence[float]) -> str:
    shown = [f"{value:g}" for value in values]
    return ", ".join(shown) if len(shown) <= 2 * _SHOWN else f"{shown[0]} to {shown[-1]}"
