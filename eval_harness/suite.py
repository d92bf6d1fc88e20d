"""A suite is data: how to ask and score (`suite.toml`) and what to ask (`items.jsonl`)."""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_harness.agents.making import agent_kind
from eval_harness.agents.search import Settings
from eval_harness.errors import HarnessError
from eval_harness.extractors import EXTRACTORS
from eval_harness.scorers import SCORERS
from eval_harness.suite_model import Item, Metric, Sampling, Suite
from eval_harness.suite_values import component, label, number, prompts, text, texts, whole

__all__ = ["Item", "Metric", "Suite", "load_suite", "suite_names"]

SUITES = Path(__file__).with_name("suites")
SCHEMA = 2
_KEYS = {
    *("schema", "id", "version", "title", "description", "items", "items_sha256", "dataset"),
    *("metrics", "average", "trials", "agent", "prompt", "nudge", "retriever", "sampling"),
    "sources",
}
_METRIC = {"name", "extractor", "scorer", "tiers"}
_SAMPLING = {"max_new_tokens", "temperature", "top_p", "stop"}
FOLDERS = ("log", "slurm")
"""Names beside the suites' folders in a folder of runs."""
PARTS = ("all", "macro")
"""What stands in a category's place in figures of the whole."""
COUNTS = ("failures", "cut_off", "tokens")
"""What stands in a metric's place in counts."""


def suite_names() -> list[str]:
    """Names of the suites that come with this package."""
    return sorted(path.parent.name for path in SUITES.glob("*/suite.toml"))


def load_suite(name: str | Path, *, accept_unpinned: bool = False) -> Suite:
    """Read a bundled suite by name, or any other by the path of its folder or `suite.toml`.

    Args:
        name: of the suite.
        accept_unpinned: take a dataset that nobody has pinned, under a name that says so.

    Raises:
        HarnessError: `unknown_suite`; `bad_suite`, with file and line where there is one;
            `unpinned` or `bad_dataset` where the questions come from the Hub.
    """
    path = suite_file(name)
    data, folder = suite_table(path)
    try:
        suite = _suite(data, folder / path.name, accept_unpinned)
        _check(suite, path)
        suite.digest  # noqa: B018  a value that JSON does not have, such as a date
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        missing = f"missing key {error}" if isinstance(error, KeyError) else str(error)
        raise _bad(missing, path) from error
    return suite


def suite_table(path: Path) -> tuple[dict[str, Any], Path]:
    """What a `suite.toml` says, and the folder that its items and corpus lie in.

    With `extends = "NAME"` the bundled suite of that name gives every table and value that the
    file does not, and the folder; tables of both are joined key by key.

    Raises:
        HarnessError: `bad_suite` or `unknown_suite`.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _bad(f"cannot be read: {error}", path) from error
    name = data.pop("extends", None)
    _known(data, _KEYS, path)
    if name is None:
        return data, path.parent
    if name not in suite_names():
        raise _bad(f"extends {name!r}, which is no bundled suite", path)
    base, folder = suite_table(SUITES / str(name) / "suite.toml")
    for key, value in data.items():
        joined = isinstance(value, dict) and isinstance(base.get(key), dict)
        base[key] = base[key] | value if joined else value
    return base, folder


def suite_file(name: str | Path) -> Path:
    """The `suite.toml` of a bundled suite, or of one given by its path.

    Raises:
        HarnessError: `unknown_suite`.
    """
    path = Path(name)
    if path.is_file():
        return path
    if (path / "suite.toml").is_file():
        return path / "suite.toml"
    if str(name) in suite_names():
        return SUITES / str(name) / "suite.toml"
    known = suite_names()
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.75)
    raise HarnessError(
        "unknown_suite",
        f"no suite {str(name)!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
        next=f"choose one of: {', '.join(known)}, or give a path",
    )


def _suite(data: Mapping[str, Any], path: Path, accept_unpinned: bool) -> Suite:
    if data["schema"] != SCHEMA:
        raise ValueError(f"schema {data['schema']!r}, but this version reads {SCHEMA}")
    dataset: Mapping[str, Any] = {}
    if "dataset" in data:
        from eval_harness.datasets import load_records

        name = path.parent.name if path.parent.parent == SUITES else str(path)
        loaded = load_records(data["dataset"], accept_unpinned=accept_unpinned, suite=name)
        items, digest, dataset = tuple(map(_item, loaded.records)), loaded.sha256, loaded.parts
    else:
        items, digest = _items(data, path)
    agent = dict(data.get("agent", {"kind": "single"}))
    max_context = agent.pop("max_context", None)
    if max_context is None and agent_kind(agent) == "search":
        max_context = Settings().max_context
    return Suite(
        id=component(data["id"], "id", FOLDERS),
        version=label(str(data["version"]), "version"),
        title=str(data["title"]),
        description=str(data["description"]).strip(),
        items=items,
        items_sha256=digest,
        metrics=tuple(_metric(table, path) for table in data["metrics"]),
        prompt=prompts(data["prompt"]),
        sampling=_sampling(data["sampling"], path),
        base=path.parent,
        average=data.get("average", "micro"),
        trials=whole(data.get("trials", 1), "trials", 1),
        agent=agent,
        nudge=text(data.get("nudge", ""), "nudge"),
        max_context=None if max_context is None else whole(max_context, "agent.max_context", 1),
        retriever=dict(data.get("retriever", {})),
        dataset=dataset,
        sources=tuple(data.get("sources", ())),
    )


def _metric(table: Mapping[str, Any], path: Path) -> Metric:
    _known(table, _METRIC, path)
    name = label(table["name"], "the metric's name", COUNTS)
    tiers = tuple(whole(tier, "tiers", 0) for tier in table.get("tiers", ()))
    return Metric(name, str(table["extractor"]), str(table["scorer"]), tiers)


def _sampling(table: Mapping[str, Any], path: Path) -> Sampling:
    _known(table, _SAMPLING, path)
    return Sampling(
        max_new_tokens=whole(table["max_new_tokens"], "max_new_tokens", 1),
        temperature=number(table["temperature"], "temperature"),
        top_p=number(table.get("top_p", 1.0), "top_p", 1.0),
        stop=texts(table.get("stop", ()), "stop"),
    )


def _items(data: Mapping[str, Any], path: Path) -> tuple[tuple[Item, ...], str]:
    folder, path = path.parent, path.parent / data["items"]
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError("items lies outside the suite's folder")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise _bad(f"cannot be read: {error.strerror}", path) from error
    items = []
    for line_number, line in enumerate(raw.splitlines(), start=1):
        try:
            item = _item(json.loads(line))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise _bad(f"line {line_number} is not an item: {error}", path, line_number) from error
        items.append(item)
    digest = hashlib.sha256(raw).hexdigest()
    if digest != data["items_sha256"]:
        raise ValueError(f"items_sha256 is not that of {data['items']}, which has {digest}")
    return tuple(items), digest


def _item(data: Mapping[str, Any]) -> Item:
    answers = texts(data["answers"], "answers")
    if not answers or not all(answer.strip() for answer in answers):
        raise ValueError("it has no answer, or a blank one")
    return Item(
        text(data["id"], "id"),
        label(data["category"], "category", PARTS),
        text(data["question"], "question"),
        text(data["context"], "context"),
        answers,
    )


def _check(suite: Suite, path: Path) -> None:
    if not suite.items:
        raise _bad("no items", path)
    if len({item.id for item in suite.items}) != len(suite.items):
        raise _bad("two items have the same id", path)
    if suite.average not in ("micro", "macro"):
        raise _bad(f"average {suite.average!r} is neither micro nor macro", path)
    names = [metric.name for metric in suite.metrics]
    if not names or len(set(names)) != len(names):
        raise _bad("metrics need one name each, and there must be one", path)
    for metric in suite.metrics:
        for kind, name, known in (
            ("scorer", metric.scorer, SCORERS),
            ("extractor", metric.extractor, EXTRACTORS),
        ):
            if name not in known:
                raise _bad(f"unknown {kind} {name!r}; known: {', '.join(known)}", path)
    suite.identity()  # of an agent that is not known
    for item in suite.items:
        try:
            suite.messages(item)
        except (KeyError, IndexError, ValueError) as error:
            raise _bad(f"the prompt cannot be filled for item {item.id}: {error}", path) from error


def _known(table: Mapping[str, Any], known: set[str], path: Path) -> None:
    for key in table.keys() - known:
        near = difflib.get_close_matches(key, known, n=1)
        raise _bad(f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""), path)


def _bad(what: str, path: Path, line: int | None = None) -> HarnessError:
    where = str(path) if line is None else f"{path}:{line}"
    return HarnessError("bad_suite", f"suite: {what}", where=where, next=f"mend {where}")
