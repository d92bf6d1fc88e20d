"""verl's validation: figures in a console log or metrics file, or the dumped generations.

verl's `best@N` and `worst@N` are bootstraps with replacement of the same N answers, so they keep
their names here: they are no pass@k. Its reward loop usually counts an answer that failed as 0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from hubtools.errors import UsageError
from hubtools.evaluation.importing.found import (
    UNKNOWN_ENGINE,
    Found,
    Sample,
    can_head,
    choose,
    damaged,
    digest_of,
    no_figure,
    not_whole,
    number,
    parsed,
    rows,
    share,
    slug,
)
from hubtools.evaluation.scrub import scrub

_STEP = re.compile(r"\bstep:(\d+) - (.*)")
_VALUE = re.compile(
    r"(val-(?:core|aux)/\S+?):(?:(?:np|numpy)\.float\d+\()?(-?(?:\d[\d.]*(?:[eE][-+]?\d+)?|nan))"
)
_CORE = re.compile(
    r"val-core/(?P<source>.+)/(?P<value>[^/]+)/(?P<how>mean@\d+|(?:best|worst|maj)@\d+/mean)$"
)
_MISSING = (
    *("harness.version", "suite.ids", "prompt", "sampling", "seed", "failures", "served"),
    *("tokens", "finish", *UNKNOWN_ENGINE),
)
_ROW = ("input", "output", "score", "step", "gts")


def read_verl(path: Path, step: int | None) -> Found:
    """One validation of a training run.

    Args:
        path: console log, metrics as JSON lines, dumped generations, or the folder of these.
        step: which validation, where there are several.

    Raises:
        UsageError: HT462 several validations, or not the one that was named.
        CheckError: HT461, HT463, HT464.
    """
    if path.is_dir():
        dumps = {int(p.stem): p for p in path.glob("*.jsonl") if p.stem.isdigit()}
        return _generations(dumps[_chosen(sorted(dumps), step, path)])
    with path.open("rb") as stream:
        first = next((line for line in stream if line.strip()), b"")
    try:
        row = parsed(first)
    except (ValueError, RecursionError):
        row = None
    if isinstance(row, dict) and "output" in row:
        found = _generations(path)
        if step is not None and found.step != step:
            raise _no_step([found.step], step, path)
        return found
    validations = _logged(path) if isinstance(row, dict) else _console(path)
    chosen = _chosen(sorted(validations), step, path)
    return _figures(validations[chosen], chosen, path)


def _chosen(steps: list[int], step: int | None, path: Path) -> int:
    if step is None and len(steps) == 1:
        return steps[0]
    if step is not None and step in steps:
        return step
    raise _no_step(steps, step, path)


def _no_step(steps: Sequence[int | None], step: int | None, path: Path) -> UsageError:
    what = "validations" if step is None else f"validations, but none of step {step}"
    hint = f"say at which step the checkpoint was: --step {steps[-1] if steps else 'N'}"
    return choose(what, [f"step {known}" for known in steps], path, hint)


def _console(path: Path) -> dict[int, dict[str, float | None]]:
    """Validations by step; a log that a resumed run went on with has the later figures."""
    validations: dict[int, dict[str, float | None]] = {}
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if (found := _STEP.search(line)) and (values := _VALUE.findall(scrub(found[2]))):
                validations.setdefault(int(found[1]), {}).update(
                    (name, None if value == "nan" else float(value)) for name, value in values
                )
    return validations


def _logged(path: Path) -> dict[int, dict[str, float | None]]:
    validations: dict[int, dict[str, float | None]] = {}
    for at, row in enumerate(rows(path), 1):
        try:
            values = {n: number(v) for n, v in row["data"].items() if n.startswith("val-")}
            if values:
                validations.setdefault(int(row["step"]), {}).update(values)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise damaged(f"not a row of verl's metrics: {error!r}", f"{path}:{at}") from error
    return validations


def _figures(values: dict[str, float | None], step: int, path: Path) -> Found:
    told = {match: values[name] for name in values if (match := _CORE.match(name))}
    sources = sorted({match["source"] for match in told})
    figures: dict[str, dict[str, Any]] = {}
    for match, value in told.items():
        front = f"{slug(match['source'])}_" if len(sources) > 1 else ""
        if (kept := share(value)) is not None:
            figures[f"{front}{match['value']}_{match['how'].replace('/', '_')}"] = {"value": kept}
    if not figures:
        raise no_figure(list(values), path)
    answers = {int(found[1]) for name in figures if (found := re.search(r"mean@(\d+)$", name))}
    return Found(
        suite={"id": f"verl_{slug('+'.join(sources))}", "sources": sources},
        harness={"name": "verl"},
        title=f"verl validation on {', '.join(sources)}",
        step=step,
        protocol={"trials": max(answers)} if answers else {},
        missing=("samples", "n", "suite.data", "returned_model", *_MISSING),
        metrics=list(figures),
        figures=figures,
        left_out=sorted(n for n, v in values.items() if not _CORE.match(n) or share(v) is None),
    )


def _generations(path: Path) -> Found:
    groups: dict[str, list[int]] = {}
    fields: dict[str, bool] = {}
    steps = set[int]()
    for at, row in enumerate(rows(path), 1):
        try:
            groups.setdefault(_asked(row), []).append(at)
            steps.add(int(row["step"]))
            numbers = [n for n, v in row.items() if _is_number(v) and n not in ("step", "gts")]
            for name in {*numbers, *fields}:
                good = share(row.get(name)) is not None
                fields[name] = good and fields.get(name, at == 1)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise damaged(f"not a row of verl's generations: {error!r}", f"{path}:{at}") from error
    metrics = [name for name, good in fields.items() if good and can_head(name)]
    if len(steps) != 1:
        raise not_whole(f"its rows are of steps {sorted(steps)}", path)
    if not metrics:
        raise no_figure(list(fields), path)
    trials, places = _grid(groups, path)
    return Found(
        suite={
            "id": "verl_validation",
            "n": len(places) // trials,
            "items_sha256": digest_of(groups),
        },
        harness={"name": "verl"},
        title="verl validation, dumped generations",
        step=steps.pop(),
        protocol={"trials": trials, "reducer": "mean, micro"},
        missing=("suite.data", "returned_model", *_MISSING),
        metrics=metrics,
        samples=lambda: _samples(path, places, metrics),
        left_out=[name for name in fields if name not in metrics],
    )


def _grid(groups: dict[str, list[int]], path: Path) -> tuple[int, dict[int, tuple[int, int]]]:
    """Answers to each prompt, and item and trial of each row.

    A prompt that the data hold twice has twice as many answers; they are told apart by order.
    """
    sizes = Counter(map(len, groups.values()))
    trials = min(sizes)
    if sizes.most_common(1)[0][0] != trials or any(size % trials for size in sizes):
        raise not_whole(f"prompts have from {trials} to {max(sizes)} answers", path)
    places: dict[int, tuple[int, int]] = {}
    item = 0
    for lines in groups.values():
        waiting = iter(lines)
        while some := list(islice(waiting, trials)):
            places |= {line: (item, trial) for trial, line in enumerate(some)}
            item += 1
    return trials, places


def _samples(
    path: Path, places: dict[int, tuple[int, int]], metrics: list[str]
) -> Iterator[Sample]:
    made = (_sample(row, *places[at], metrics) for at, row in enumerate(rows(path), 1))
    yield from sorted(made, key=lambda sample: (sample["item"], sample["trial"]))


def _sample(row: dict[str, Any], item: int, trial: int, metrics: list[str]) -> Sample:
    truth = row.get("gts")
    return {
        "item": f"{item:06d}",
        "category": str(row.get("data_source") or "all"),
        "trial": trial,
        "messages": [{"role": "user", "content": str(row["input"])}],
        "answers": [] if truth is None else [str(truth)],
        "transcript": [{"role": "assistant", "content": str(row["output"])}],
        "output": str(row["output"]),
        "failure": "",
        "failure_kind": "",
        "scores": {name: share(row[name]) for name in metrics},
        "extra": {n: v for n, v in row.items() if n not in _ROW and n not in metrics},
    }


def _asked(row: dict[str, Any]) -> str:
    return f"{row['input']}\n{row.get('gts')}"


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float)
