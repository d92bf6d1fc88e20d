"""A suite is data: how to ask (`suite.toml`) and what to ask (`items.jsonl`)."""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_harness.errors import HarnessError
from eval_harness.extractors import EXTRACTORS
from eval_harness.scorers import SCORERS

SUITES = Path(__file__).with_name("suites")
_KEYS = {
    *("schema", "id", "version", "title", "description", "items", "items_sha256"),
    *("scorers", "extractor", "prompt", "sampling", "sources"),
}

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Item:
    """One question.

    Args:
        id: unique in its suite.
        category: a slice of the suite.
        question, context: what the prompt template is filled with; context may be empty.
        answers: every accepted answer.
    """

    id: str
    category: str
    question: str
    context: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite as read from disk; `digest` names all that decides what is asked and scored."""

    id: str
    version: str
    title: str
    description: str
    items: tuple[Item, ...]
    items_sha256: str
    scorers: tuple[str, ...]
    extractor: str
    prompt: Mapping[str, str]
    max_new_tokens: int
    temperature: float
    sources: tuple[Mapping[str, str], ...]

    def identity(self) -> dict[str, Any]:
        """What must be equal for two runs to be comparable; JSON values only."""
        return {
            "id": self.id,
            "version": self.version,
            "items_sha256": self.items_sha256,
            "n": len(self.items),
            "prompt": dict(self.prompt),
            "scorers": list(self.scorers),
            "extractor": self.extractor,
            "max_new_tokens": self.max_new_tokens,
            "temperature": self.temperature,
        }

    @property
    def digest(self) -> str:
        """sha256 of `identity()` as canonical JSON."""
        text = json.dumps(
            self.identity(), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def messages(self, item: Item) -> list[Message]:
        """The chat that asks `item`."""
        template = self.prompt["with_context" if item.context else "without_context"]
        text = template.format(context=item.context, question=item.question).strip()
        return [{"role": "user", "content": text}]


def suite_names() -> list[str]:
    """Names of the suites that come with this package."""
    return sorted(path.parent.name for path in SUITES.glob("*/suite.toml"))


def load_suite(name: str | Path) -> Suite:
    """Read a bundled suite by name, or any other by the path of its folder or `suite.toml`.

    Raises:
        HarnessError: `unknown_suite` or `bad_suite`, with file and line where there is one.
    """
    path = _find(name)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _bad(f"cannot be read: {error}", path) from error
    for key in data.keys() - _KEYS:
        near = difflib.get_close_matches(key, _KEYS, n=1)
        raise _bad(f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""), path)
    try:
        suite = _suite(data, path)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        missing = f"missing key {error}" if isinstance(error, KeyError) else str(error)
        raise _bad(missing, path) from error
    _check(suite, path)
    return suite


def _find(name: str | Path) -> Path:
    path = Path(name)
    if path.is_file():
        return path
    if (path / "suite.toml").is_file():
        return path / "suite.toml"
    if str(name) in suite_names():
        return SUITES / str(name) / "suite.toml"
    known = ", ".join(suite_names())
    raise HarnessError(
        "unknown_suite", f"no suite {str(name)!r}", next=f"choose one of: {known}, or give a path"
    )


def _suite(data: Mapping[str, Any], path: Path) -> Suite:
    if data["schema"] != 1:
        raise ValueError(f"schema {data['schema']!r}, but this version reads 1")
    items_path = path.parent / data["items"]
    if not items_path.resolve().is_relative_to(path.parent.resolve()):
        raise ValueError("items lies outside the suite's folder")
    items, digest = _items(items_path)
    if digest != data["items_sha256"]:
        raise ValueError(f"items_sha256 is not that of {data['items']}, which has {digest}")
    return Suite(
        id=str(data["id"]),
        version=str(data["version"]),
        title=str(data["title"]),
        description=str(data["description"]).strip(),
        items=items,
        items_sha256=digest,
        scorers=tuple(data["scorers"]),
        extractor=str(data["extractor"]),
        prompt={key: str(value) for key, value in data["prompt"].items()},
        max_new_tokens=int(data["sampling"]["max_new_tokens"]),
        temperature=float(data["sampling"]["temperature"]),
        sources=tuple(data.get("sources", ())),
    )


def _items(path: Path) -> tuple[tuple[Item, ...], str]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise _bad(f"cannot be read: {error.strerror}", path) from error
    items = []
    for number, line in enumerate(raw.splitlines(), start=1):
        try:
            data = json.loads(line)
            answers = tuple(str(answer) for answer in data["answers"])
            items.append(
                Item(data["id"], data["category"], data["question"], data["context"], answers)
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _bad(f"line {number} is not an item: {error}", path, number) from error
        if not answers:
            raise _bad(f"line {number} has no answer", path, number)
    return tuple(items), hashlib.sha256(raw).hexdigest()


def _check(suite: Suite, path: Path) -> None:
    if not suite.items:
        raise _bad("no items", path)
    if len({item.id for item in suite.items}) != len(suite.items):
        raise _bad("two items have the same id", path)
    for scorer in suite.scorers:
        if scorer not in SCORERS:
            raise _bad(f"unknown scorer {scorer!r}; known: {', '.join(SCORERS)}", path)
    if suite.extractor not in EXTRACTORS:
        raise _bad(f"unknown extractor {suite.extractor!r}; known: {', '.join(EXTRACTORS)}", path)
    for item in suite.items:
        try:
            suite.messages(item)
        except (KeyError, IndexError, ValueError) as error:
            raise _bad(f"the prompt cannot be filled for item {item.id}: {error}", path) from error


def _bad(what: str, path: Path, line: int | None = None) -> HarnessError:
    where = str(path) if line is None else f"{path}:{line}"
    return HarnessError("bad_suite", f"suite: {what}", where=where, next=f"mend {where}")
