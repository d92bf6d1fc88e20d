"""Writes the two files in which every run ends, whoever asked: `samples.jsonl` and `run.json`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eval_harness.errors import HarnessError
from eval_harness.scoring import Tally
from eval_harness.suite_model import canonical_sha256

SCHEMA = "eval_harness.run/2"
HARNESS = {"name": "eval_harness", "version": "2"}
_LINE = json.JSONEncoder(allow_nan=False).encode
SAMPLES, RUN = "samples.jsonl", "run.json"


def write_run(
    folder: Path,
    samples: Iterable[Mapping[str, Any]],
    record: Mapping[str, Any],
    *,
    metrics: Sequence[str],
    average: str = "micro",
) -> dict[str, Any]:
    """Write both files, whole or not at all, and return the record.

    Args:
        folder: of the run.
        samples: in the suite's order, then by trial; they are streamed.
        record: all that the samples do not decide: `harness`, `suite`, `protocol`, `plan_id`,
            `member`, `weights`, `seed`, `status`, `missing`, `engine`…; what is left out of
            `suite_digest`, `protocol_id`, `status`, `missing` and `date` is filled in.
        metrics: names, in the order of tables.
        average: `macro` adds the mean over categories.

    Raises:
        HarnessError: `nothing_scored`; nothing was written.
        KeyError, ValueError: a sample lacks a score, or it is not between 0 and 1.
    """
    tally = Tally(metrics, average)
    digest = hashlib.sha256()
    part = folder / f".{SAMPLES}.tmp"
    why = ""
    try:
        with part.open("wb") as stream:
            for sample in samples:
                tally.add(sample)
                why = why or str(sample.get("failure", ""))
                line = sample_line(sample)
                digest.update(line)
                stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
        figures = tally.figures()
        if not figures["n"]:
            raise _nothing(figures["failures"], why, folder)
        part.replace(folder / SAMPLES)
    finally:
        part.unlink(missing_ok=True)
    whole = {
        "schema": SCHEMA,
        "suite_digest": canonical_sha256(record["suite"]),
        "protocol_id": canonical_sha256(record.get("protocol", {})),
        "status": "measured",
        "missing": [],
        "date": datetime.now(UTC).date().isoformat(),
        **record,
        **figures,
        "samples_sha256": digest.hexdigest(),
    }
    write_json(folder / RUN, whole)
    return whole


def sample_line(sample: Mapping[str, Any]) -> bytes:
    """A sample as it stands in its file; ASCII, as a server may send half a surrogate pair."""
    return _LINE(sample).encode() + b"\n"


def write_json(path: Path, value: Any) -> None:
    """Write JSON whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as stream:
            text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False)
            stream.write(text.encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _nothing(failures: int, why: str, folder: Path) -> HarnessError:
    return HarnessError(
        "nothing_scored",
        f"all {failures} questions failed: {why}" if failures else "there are no samples",
        where=str(folder),
        next="mend what failed, then run the same command again: all are asked anew",
    )
