"""How a description looks on a terminal: a table of what it is, then what it gives away."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hubtools.checkpoint.inspecting.disclosed import leak_finding
from hubtools.cli.output import Output
from hubtools.errors import Finding
from hubtools.sizes import size_words

if TYPE_CHECKING:
    from hubtools.checkpoint.inspecting.basecheck import BaseCheck
    from hubtools.checkpoint.inspecting.describe import Description
    from hubtools.hub.ranged import RepoReader

_SHOWN = 8
_LEAKS = 40


def print_description(
    output: Output,
    place: str,
    description: Description,
    check: BaseCheck | None,
    reader: RepoReader | None,
) -> None:
    """The table on stdout; findings and leaks, which are no data, on stderr.

    Args:
        output: where to print.
        place: what was looked at, as the user named it.
        description: what it is.
        check: how it compares with a base.
        reader: what was read of a repo.
    """
    rows = [("is", description.words()), *_rows(description, check)]
    rows += _foreign(description, on_hub=reader is not None)
    if reader is not None:
        rows.append(("read", f"{size_words(reader.received)} in {reader.requests} parts"))
    output.table(["what", place], rows)
    shards = description.shards
    if reader is None and shards is not None and shards.kind in ("verl-fsdp", "dcp"):
        alpha = " --lora-alpha ALPHA" if description.lora_step else ""
        output.note(f"next: hubtools ingest {shlex.quote(place)}{alpha} -o OUT")
    for finding in description.findings:
        if finding.level != "error":  # the error that follows tells them all
            _print(output, finding)
    # Of a repo, secrets are errors, which are told last.
    leaks = [leak for leak in description.leaks if reader is None or leak.kind != "secret"]
    leaks.sort(key=lambda leak: leak.kind != "secret")
    for leak in leaks[:_LEAKS]:
        _print(output, leak_finding(leak))
    if len(leaks) > _LEAKS:
        output.note(f"! and {len(leaks) - _LEAKS} more like these (--json has them all)")


def _rows(seen: Description, check: BaseCheck | None) -> Iterator[tuple[str, str]]:
    yield "evidence", seen.evidence
    yield from _given("architecture", seen.architecture)
    for info in seen.ggufs:
        told = [info.name, info.architecture, info.quantisation, _count(info.tensors, "tensor")]
        yield info.path.name, ", ".join(word for word in told if word)
    yield from _given("base", _base(seen, check))
    for step in seen.steps:
        yield "step", f"{step.value} ({step.source}{'; a name is a claim' if step.claim else ''})"
    for dtype, (tensors, elements) in seen.dtypes.items():
        yield "dtype", f"{dtype}: {_count(tensors, 'tensor')}, {elements:,} elements"
    if seen.parameters is not None:
        yield "parameters", f"{seen.parameters:,}"
    count = len(seen.weights)
    if count:
        size = size_words(sum(seen.weights.values()))
        yield "weights", f"{_count(count, 'file')}, {size}: {_some(list(seen.weights))}"
    yield from _given("missing", _some(list(seen.missing)))
    if seen.shards is not None and seen.kind != seen.shards.kind:
        yield "also", f"shards of a trainer ({seen.shards.kind})"
    for one in seen.inside[:_SHOWN]:
        yield "inside", f"{one.name}: {one.kind}" + (f", step {one.step}" if one.step else "")
    if len(seen.inside) > _SHOWN:
        yield "inside", f"and {len(seen.inside) - _SHOWN} more"
    if seen.weights:
        template = "with" if seen.chat_template else "no"
        yield "tokenizer", f"{_some(list(seen.tokenizer)) or 'none'}, {template} chat template"
        if seen.kind != "gguf":
            generation = "generation_config.json" if seen.generation_config else "not configured"
            yield "generation", generation
    yield from _given("code", _some(list(seen.code)))


def _foreign(seen: Description, *, on_hub: bool) -> Iterator[tuple[str, str]]:
    """What does not belong to the checkpoint; on the Hub it is published all the same."""
    for foreign in seen.foreign:
        what = f"{foreign.what}: " if foreign.what != "other" else ""
        example = foreign.example if foreign.files == 1 else f"for example {foreign.example}"
        told = f"{what}{_count(foreign.files, 'file')}, {size_words(foreign.bytes)}, {example}"
        yield "no part of it" if on_hub else "not published", told


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _base(seen: Description, check: BaseCheck | None) -> str:
    if check is None:
        revision = f"@{seen.base_revision}" if seen.base_revision else ""
        told = f"{seen.base}{revision} ({seen.base_source}; claimed, not checked)"
        return told if seen.base else ""
    place = f"{check.repo}@{check.commit}" if check.commit else check.repo
    if check.verdict == "unchecked":
        return f"{place}: claimed, not checked: {check.why}"
    if check.verdict == "equal":
        return f"this is {place}, byte for byte"
    return f"this is not {place}: {_some(list(check.differing))}"


def _given(name: str, value: str) -> Iterator[tuple[str, str]]:
    if value:
        yield name, value


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _print(output: Output, finding: Finding) -> None:
    output.note(f"{finding.level}[{finding.id}] {finding.message} ({finding.where})")
    if finding.next and finding.level != "info":
        output.note(f"  next: {finding.next}")
