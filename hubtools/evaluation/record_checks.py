"""What a run's record must agree with: its own types, its claim, its protocol, its journal."""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_harness.journal import NAME as RESPONSES
from eval_harness.journal import whole_entries
from eval_harness.record import HARNESS
from eval_harness.runner import ABOUT
from hubtools.evaluation.protocol import VERSION, protocol_again

STATUSES = ("measured", "external", "reported")

_TEXTS = ("title", "description", "protocol_id", "plan_id", "member", "weights", "date")
_TABLES = (
    *("harness", "suite", "protocol", "engine", "served", "failure_kinds", "metrics"),
    *("categories", "macro", "tiers", "tokens"),
)
_NUMBERS = ("seed", "items", "trials", "samples", "n", "failures", "unextracted", "cut_off")
_CLAIMED = ("member", "weights", "model_files", "endpoint", "requested", "seed", "plan_id")
_COMPUTING = {"backend", "dtype", "device"}

Told = Mapping[tuple[str, int], bytes]
"""Item and trial to the digest of what the journal says of it."""


def check_types(record: Mapping[str, Any]) -> None:
    """Every field of the record is what readers take it for.

    Raises:
        KeyError: a field is missing.
        ValueError: a field is something else.
    """
    _are(record, _TEXTS, str, "text")
    _are(record, _TABLES, dict, "a table")
    _are(record, _NUMBERS, int, "a whole number")
    _are({"requested": "", "model_files": "", **record}, ("requested", "model_files"), str, "text")
    _are(record["engine"], record["engine"].keys() & {"versions"}, dict, "a table")
    for name in ("served", "metrics", "categories"):
        _are(record[name], record[name], dict, "a table")
    if record["status"] not in STATUSES:
        raise ValueError(f"status is none of {', '.join(STATUSES)}")
    missing = record["missing"]
    if not isinstance(missing, list) or not all(isinstance(name, str) for name in missing):
        raise ValueError("missing is not a list of names")


def check_claim(record: Mapping[str, Any], folder: Path) -> None:
    """The record says what the folder was begun for, and its protocol is the one of its suite.

    Raises:
        ValueError: it does not.
    """
    own = record["harness"].get("name") == HARNESS["name"]
    path = folder / ABOUT
    about = json.loads(path.read_bytes()) if path.is_file() else {}
    for name in about if own else [key for key in _CLAIMED if key in about]:
        if record[name] != about[name]:
            raise ValueError(f"{name} is not what {ABOUT} says")
    protocol = record["protocol"]
    if protocol.get("harness", record["harness"]) != record["harness"]:
        raise ValueError("harness is not that of the protocol")
    if not own:
        if _holds_outcomes(folder / RESPONSES):
            raise ValueError(f"harness is another than wrote {RESPONSES}")
        return
    if record["status"] != "measured":
        raise ValueError("status is not that of a run of this harness")
    engine, versions = record["engine"], protocol.get("engine", {})
    told = {**engine, "device": str(engine.get("device", "")).partition(":")[0]}
    differing = [k for k in engine.keys() & _COMPUTING if told[k] != protocol.get(k)]
    both = engine.get("versions", {}).keys() & versions.keys()
    differing += [k for k in both if engine["versions"][k] != versions[k]]
    if differing:
        raise ValueError(f"engine is not that of the protocol: {', '.join(sorted(differing))}")
    if protocol.get("version") == VERSION:
        again = protocol_again(record["suite"], protocol) | {"harness": protocol["harness"]}
        for name in again.keys() | protocol.keys():
            if again.get(name) != protocol.get(name):
                raise ValueError(f"{name} of the protocol is not what the suite says")


def journal_of(record: Mapping[str, Any], folder: Path) -> Told | None:
    """What the run's journal says of each sample; None where it has none or does not keep it.

    Raises:
        ValueError: the journal is not the one that the record was made of.
    """
    path = folder / RESPONSES
    if not path.is_file() or "responses_sha256" not in record:
        return None
    with path.open("rb") as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() != record["responses_sha256"]:
            raise ValueError(f"responses_sha256 is not that of {RESPONSES}")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return {
                (entry["item"], entry["trial"]): _digest(entry["outcome"])
                for _, _, entry in whole_entries(data)
                if isinstance(entry.get("outcome"), dict)
            }


def check_answer(sample: Mapping[str, Any], told: Told | None) -> None:
    """The output is the transcript's end, and the journal has the same answer.

    Raises:
        ValueError: it has another.
    """
    said = [turn["content"] for turn in sample["transcript"] if turn["role"] == "assistant"]
    if sample["output"] != (said[-1] if said else None):
        raise ValueError(f"the output of {sample['item']} is not what its transcript ends with")
    if told is not None and told.get((sample["item"], sample["trial"])) != _digest(sample):
        raise ValueError(f"the answer to {sample['item']} is not that of {RESPONSES}")


def _holds_outcomes(path: Path) -> bool:
    """Whether our own harness wrote it: lm-eval's calls lie in a file of the same name."""
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        _, _, first = next(whole_entries(data), (0, 0, {}))
        return "outcome" in first


def _digest(outcome: Mapping[str, Any]) -> bytes:
    kept = [outcome.get(key) for key in ("transcript", "finish", "failure", "failure_kind")]
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).digest()


def _are(table: Mapping[str, Any], names: Any, kind: type, words: str) -> None:
    for name in names:
        if not isinstance(table[name], kind) or (kind is int and isinstance(table[name], bool)):
            raise ValueError(f"{name} is not {words}")
