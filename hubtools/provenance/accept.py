"""The gate: a verdict with which nothing is released becomes an error that shows the counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubtools.errors import CheckError
from hubtools.provenance.verdict import STOPPING

_ERRORS = {
    "CONTRADICTS-CLAIM": ("HT210", "teacher claim contradicted by the logs"),
    "MIXED": ("HT210", "the logs report more than one teacher"),
    "SUSPECT": ("HT211", "the logs contradict themselves"),
    "UNREADABLE": ("HT212", "no response could be read from the logs"),
}

_NEXT = {
    "HT210": "correct the claim, or leave out the file; releasing with a contradicted claim is "
    "not possible",
    "HT211": "find out which copy is the original and leave the other file out, or set "
    '[provenance] status = "reported" with the reason',
    "HT212": "point the pattern at JSON lines of chat completions (plain, gzip or zstd), or set "
    '[provenance] status = "reported" with the reason',
}


def require_acceptable(verdict: Mapping[str, Any], claim_where: str) -> None:
    """Refuse a stopping verdict.

    Args:
        verdict: what `Verdict.to_json` gives.
        claim_where: `file:line` of the claim, or how it was given.

    Raises:
        CheckError: HT210 the claim is contradicted or several models answered, HT211 the logs look
            altered, HT212 nothing readable.
    """
    word = verdict["verdict"]
    if word not in STOPPING:
        return
    id, message = _ERRORS[word]
    claim = verdict["claim"]
    mismatch = verdict["first_mismatch"]
    bad = verdict["bad_lines"]
    first = mismatch or (bad[0] if bad else None)
    place = f"{first['file']}:{first['line']}" if first else claim_where
    detail = [f"claim   {claim} ({claim_where})"] if claim else []
    for name, role in verdict["roles"].items():
        detail.append(f"logs    {name}: {counts(role)}")
    if mismatch:
        detail.append(f"        {place} is the first mismatch: it reports {mismatch['reported']}")
    if id != "HT210":
        detail += [f"note    {note}" for note in verdict["notes"][:3]]
    detail.append("Nothing was published.")
    if word == "MIXED" and claim:
        message = "teacher claim contradicted by the logs: more than one model answered"
    raise CheckError(id, message, where=place, detail=detail, next=_NEXT[id])


def counts(role: Mapping[str, Any]) -> str:
    """`model-y 1,150 of 1,156 responses · claude-x 6`: who answered in one role."""
    if not role["n"]:
        return f"no responses, {role['errors']} errors"
    named = [f"{name} {n:,}" for name, n in role["reported"].items()]
    if not named:
        return f"none of {role['n']:,} responses reports a model"
    return " · ".join([f"{named[0]} of {role['n']:,} responses", *named[1:]])
