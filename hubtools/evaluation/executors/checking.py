"""What is looked at before a job goes to another process, and before one that came is believed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hubtools.errors import UsageError
from hubtools.evaluation.spec import Cell, cell_from_json

_SECRET = re.compile(r"(key|token|password|secret)(=|$)", re.I)


def checked_cell(data: Mapping[str, Any]) -> Cell:
    """A cell from a file, with every value one that an option could have given.

    Raises:
        ValueError, KeyError, TypeError: what is wrong, in one line.
    """
    from pydantic import TypeAdapter, ValidationError

    text = json.dumps(data)
    if "\\u0000" in text:
        raise ValueError("a text holds a NUL")
    cell = cell_from_json(data)
    try:
        # As JSON: strict about types, where lists are tuples and strings are paths.
        TypeAdapter(Cell).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{place}: {first['msg']}") from error
    for wrong in _wrong(cell):
        raise ValueError(wrong)
    return cell


def absolute_cell(cell: Cell) -> Cell:
    """The cell with paths that are the same from any folder."""
    target, engine, options, suite = cell.target, cell.engine, cell.options, cell.suite
    tasks, _, include = suite.partition("@")
    if suite.startswith("lm_eval:") and include:
        suite = f"{tasks}@{Path(include).absolute()}"
    elif Path(suite).is_file() or Path(suite, "suite.toml").is_file():
        suite = str(Path(suite).absolute())
    template = options.tool_template
    return replace(
        cell,
        suite=suite,
        out=cell.out.absolute(),
        target=replace(
            target,
            model=target.model and target.model.absolute(),
            adapter=target.adapter and target.adapter.absolute(),
        ),
        engine=replace(engine, python=engine.python and engine.python.absolute()),
        options=replace(options, tool_template=template and str(Path(template).absolute())),
    )


def require_no_secrets(cell: Cell) -> None:
    """Refuse to write down a password or key.

    Raises:
        UsageError: HT484.
    """
    options, engine = cell.options, cell.engine
    given = {
        "--endpoint": (engine.url,),
        "--retriever-url": (options.retriever_url,),
        "--user": (options.user,),
        "--engine-option": engine.options,
    }
    named = [
        name
        for name, texts in given.items()
        if any(_SECRET.search(text) or "@" in text for text in texts)
    ]
    if named:
        raise UsageError(
            "HT484",
            f"{', '.join(named)} holds a password or key, which a job file would keep",
            detail=("Nothing was written.",),
            next="leave it out, and set the variable that --api-key-env names where jobs run",
        )


def _wrong(cell: Cell) -> Iterator[str]:
    target, engine, options = cell.target, cell.engine, cell.options
    if not target.member:
        yield "target.member: it names no checkpoint"
    if not 0 <= cell.seed < 2**32:
        yield f"seed: {cell.seed} is not from 0 to {2**32 - 1}"
    if engine.kind == "endpoint" and not engine.url:
        yield "engine.url: an endpoint needs one"
    if engine.kind != "endpoint" and target.model is None:
        yield f"target.model: {engine.kind} needs a folder"
    if (target.model is None) != (not target.weights):
        yield "target.weights: a digest goes with a folder, and nobody knows that of a server"
    for name, number, least in (
        ("engine.concurrency", engine.concurrency, 1),
        ("engine.max_model_len", engine.max_model_len, 1),
        ("options.limit", options.limit, 1),
        ("options.sample_seed", options.sample_seed, 0),
        ("options.trials", options.trials, 1),
        ("options.max_context", options.max_context, 1),
        ("options.max_steps", options.max_steps, 1),
    ):
        if number is not None and number < least:
            yield f"{name}: {number} is less than {least}"
    if not 0 < engine.timeout < math.inf:
        yield f"engine.timeout: {engine.timeout} is none"
    if not 0 <= (options.temperature or 0) < math.inf:
        yield f"options.temperature: {options.temperature} is none"
