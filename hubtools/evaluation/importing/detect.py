"""Whose results a path holds, told by what is in it and not by its name."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

from hubtools.errors import UsageError
from hubtools.evaluation.tau2.results import is_results

KINDS = ("verl", "lm_eval", "tau2", "tau2@verl-recipe", "inspect", "every_eval_ever")
_HEAD = 1 << 16
_VERL_LINE = re.compile(rb"step:\d+ - [^\n]*\bval-(?:core|aux|old)?/?[\w./-]+")


def kind_of(path: Path) -> str:
    """One of `KINDS`.

    Raises:
        UsageError: HT460 the content is none of them.
    """
    kind = _folder(path) if path.is_dir() else _file(path)
    if kind is None:
        raise unknown("nothing here looks like results of a harness that is known", path)
    return kind


def unknown(why: str, path: Path) -> UsageError:
    """The kind of results is not known."""
    return UsageError(
        "HT460",
        why,
        where=str(path),
        detail=(
            "Read are: verl (console log, metrics JSONL, dumped generations), lm-eval results,"
            " τ²-bench results, inspect logs (.eval), Every Eval Ever JSON.",
            "Nothing was imported.",
        ),
        next=f"name the file itself, or say what it is: --kind {'|'.join(KINDS)}",
    )


def _folder(path: Path) -> str | None:
    if is_results(path):
        return "tau2"
    if any(path.rglob("results_*.json")):
        return "lm_eval"
    if any(file.stem.isdigit() and _file(file) == "verl" for file in path.glob("*.jsonl")):
        return "verl"
    return None


def _file(path: Path) -> str | None:
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    if head.startswith(b"PK"):
        return "inspect" if _is_log(path) else None
    if head.lstrip().startswith(b"{"):
        row = _first(head)
        if row is not None:
            return _of_row(row, path)
        return _of_document(path)
    return "verl" if _VERL_LINE.search(path.read_bytes()) else None


def _is_log(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as log:
            return "header.json" in log.namelist() or "_journal/start.json" in log.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return True  # its reader says what is wrong with it


def _first(head: bytes) -> dict[str, Any] | None:
    """The first line, where it is a JSON object by itself."""
    try:
        row = json.loads(head.lstrip().split(b"\n", 1)[0])
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _of_row(row: dict[str, Any], path: Path) -> str | None:
    if {"input", "output", "score", "step"} <= row.keys():
        return "verl"
    if isinstance(row.get("data"), dict) and "step" in row:
        return "verl"
    if {"doc_id", "resps", "filter"} <= row.keys():
        raise unknown("these are the samples of lm-eval; its results file says the rest", path)
    return _of_object(row, path)


def _of_document(path: Path) -> str | None:
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    return _of_object(document, path) if isinstance(document, dict) else None


def _of_object(document: dict[str, Any], path: Path) -> str | None:
    if "evaluation_results" in document and "schema_version" in document:
        return "every_eval_ever"
    if isinstance(document.get("results"), dict) and "configs" in document:
        return "lm_eval"
    return "tau2" if is_results(path) else None
