"""A benchmark's questions from its Hub dataset: at a pinned revision, with a pinned digest.

A suite's `[dataset]` table has `repo`, `revision` and `parts`, each with `category`, `file` (JSONL
of id, question, golden_answers), `n`, `domain` and `sha256` of the file. Where the suite leaves
`sha256` empty, a pin of the user's counts (`eval_harness.pins`); without either the category is
named `(unpinned)`, so that its figures stand under no benchmark's name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_harness.errors import HarnessError
from eval_harness.pins import read_pins
from eval_harness.suite_values import texts

UNPINNED = " (unpinned)"


@dataclass(frozen=True, slots=True)
class Part:
    """One benchmark of a suite; the fields are those of its table, with the pin that counts."""

    repo: str
    revision: str
    category: str
    file: str
    n: int
    domain: str
    sha256: str

    @property
    def label(self) -> str:
        """The category's name in tables."""
        return self.category if self.sha256 else f"{self.category}{UNPINNED}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """All questions of a dataset.

    Args:
        records: `id`, `category`, `question`, `context` (empty) and `answers` of each.
        sha256: of the records as canonical JSON lines.
        parts: for each category its `revision`, `file`, `sha256`, `n`, `domain` and `pinned`:
            part of the protocol.
    """

    records: list[dict[str, Any]]
    sha256: str
    parts: dict[str, dict[str, Any]]


def load_records(
    dataset: Mapping[str, Any],
    *,
    accept_unpinned: bool = False,
    pins: Path | None = None,
    endpoint: str | None = None,
    suite: str = "SUITE",
) -> Loaded:
    """The questions, from the Hub's cache of this machine or the Hub.

    Args:
        dataset: the suite's table.
        accept_unpinned: take parts that nobody has pinned, under a name that says so.
        pins: file of the user's pins; by default in their settings.
        endpoint: of the Hub; by default huggingface_hub's own.
        suite: its name, for the advice in errors.

    Raises:
        HarnessError: `unpinned`, or `bad_dataset`: not to be had, or another n or digest.
    """
    parts = dataset_parts(dataset, pins)
    loose = [part.category for part in parts if not part.sha256]
    if loose and not accept_unpinned:
        raise HarnessError(
            "unpinned",
            f"the data of {', '.join(loose)} are not pinned: nobody has said which digest is right",
            where=str(dataset["repo"]),
            next=f"hubtools evaluate pin {suite}  # or add --accept-unpinned",
        )
    records: list[dict[str, Any]] = []
    described = {}
    for part in parts:
        path = fetch(part, endpoint)
        found, digest = read_part(part, path)
        if part.sha256 and digest != part.sha256:
            raise _bad(f"sha256 is {digest}, not the pinned {part.sha256}", part, path)
        records += found
        described[part.label] = {
            **{"repo": part.repo, "revision": part.revision, "file": part.file, "sha256": digest},
            **{"n": part.n, "domain": part.domain, "pinned": bool(part.sha256)},
        }
    return Loaded(records, _digest(records), described)


def dataset_parts(dataset: Mapping[str, Any], pins: Path | None = None) -> list[Part]:
    """The parts of a table with the pins that count: the suite's own before the user's.

    Raises:
        KeyError, TypeError: the table lacks a field, or has an unknown one.
        HarnessError: `bad_dataset`: the file of pins is damaged.
    """
    repo = str(dataset["repo"])
    known = read_pins(pins).get(repo, {})
    parts = []
    for table in dataset["parts"]:
        part = Part(repo, str(dataset["revision"]), **table)
        if not part.sha256 and (pinned := known.get(part.file)):
            fields = {**table, "sha256": pinned["sha256"]}
            part = Part(repo, pinned["revision"], **fields)
        parts.append(part)
    return parts


def misnamed(
    dataset: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]], pins: Path | None = None
) -> str:
    """Which category of a run bears a benchmark's name without being that benchmark.

    Args:
        dataset: the suite's table.
        found: `Loaded.parts` of the run.
        pins: as in `load_records`.

    Returns:
        Why, in a line; empty when every name is right as far as this machine knows.
    """
    known = {part.category: part for part in dataset_parts(dataset, pins)}
    for name, part in found.items():
        right = known.get(name)
        if right is None and not name.endswith(UNPINNED):
            return f"{name} is no part of this suite"
        if right is not None and not part["pinned"]:
            return f"nobody has pinned the data of {name}"
        if right is not None and right.sha256 not in ("", part["sha256"]):
            return f"the data of {name} have sha256 {part['sha256']}, not the pinned {right.sha256}"
    return ""


def fetch(part: Part, endpoint: str | None = None) -> Path:
    """The part's file in the Hub's cache.

    Raises:
        HarnessError: `bad_dataset`: it is not to be had.
    """
    import httpx
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(
            huggingface_hub.hf_hub_download(
                part.repo,
                part.file,
                repo_type="dataset",
                revision=part.revision,
                endpoint=endpoint,
            )
        )
    except (HfHubHTTPError, httpx.HTTPError, OSError, ValueError) as error:
        why = str(error).strip().partition("\n")[0]
        raise HarnessError(
            "bad_dataset",
            f"{part.category}: {part.file} cannot be had: {why}",
            where=f"{part.repo}@{part.revision}",
            next=f"hf download {part.repo} {part.file} --repo-type dataset"
            f" --revision {part.revision}",
        ) from error


def read_part(part: Part, path: Path) -> tuple[list[dict[str, Any]], str]:
    """The records of one file and the file's sha256.

    A question without a question mark gets one, as in Search-R1.

    Raises:
        HarnessError: `bad_dataset`: a line is no question, or there are not `n` of them.
    """
    raw = path.read_bytes()
    records = []
    for number, line in enumerate(raw.splitlines(), start=1):
        try:
            data = json.loads(line)
            question = data["question"].strip()
            answers = list(texts(data["golden_answers"], "golden_answers"))
            if not question or not answers:
                raise ValueError("no question, or no answer")
            key = data["id"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            why = f"line {number} is no question: {type(error).__name__}: {error}"
            raise _bad(why, part, path, number) from error
        record = {"id": f"{part.category}/{key}", "category": part.label}
        question += "" if question.endswith("?") else "?"
        records.append({**record, "question": question, "context": "", "answers": answers})
    if len(records) != part.n:
        raise _bad(f"{len(records)} questions, not {part.n}", part, path)
    return records, hashlib.sha256(raw).hexdigest()


def _digest(records: list[dict[str, Any]]) -> str:
    digest = hashlib.sha256()
    for record in records:
        digest.update(json.dumps(record, sort_keys=True, ensure_ascii=True).encode() + b"\n")
    return digest.hexdigest()


def _bad(why: str, part: Part, path: Path, line: int | None = None) -> HarnessError:
    where = str(path) if line is None else f"{path}:{line}"
    return HarnessError(
        "bad_dataset",
        f"{part.category} at {part.repo}@{part.revision}: {why}",
        where=where,
        next="correct the revision, or pin anew: hubtools evaluate pin SUITE",
    )
