"""The gate: a verdict with which nothing is released becomes an error that shows the counts."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from hubtools.errors import CheckError
from hubtools.provenance.verdict import STOPPING

_IDS = {
    "CONTRADICTS-CLAIM": "HT210",
    "MIXED": "HT210",
    "SUSPECT": "HT211",
    "UNREADABLE": "HT212",
}

_SUSPECT_NEXT = {
    "changed response": "compare {where} with its other copy, then run again without the file that "
    "holds the changed one",
    "duplicate key": "have {where} written again by the program that logged it, or run again "
    "without that file",
    "before its time": "look at `created` in {where}: run again with logs that have the true "
    "times, or, if the name is older than the table says, with an [[introduced]] row of your own "
    "({aliases})",
}


def require_acceptable(verdict: Mapping[str, Any], claim_where: str) -> None:
    """Refuse a stopping verdict.

    Args:
        verdict: what `Verdict.to_json` gives.
        claim_where: `file:line` of the claim, or the option it was given by (`--claim`).

    Raises:
        CheckError: HT210 the claim is contradicted or several models answered, HT211 the logs look
            altered or misdated, HT212 nothing readable.
    """
    if verdict["verdict"] not in STOPPING:
        return
    id = _IDS[verdict["verdict"]]
    claim, mismatch = verdict["claim"], verdict["first_mismatch"]
    place = _place(verdict, id, claim_where)
    detail = [f"claim   {claim} ({claim_where})"] if claim else []
    for name, role in verdict["roles"].items():
        detail.append(f"logs    {name}: {counts(role)}")
    if id == "HT210" and mismatch:
        detail.append(f"        {place} is the first mismatch: it reports {mismatch['reported']}")
    if id == "HT211":
        detail.append(f"see     {verdict['suspicions'][0]['more']}")
        detail += [f"also    {sign['text']} ({sign['more']})" for sign in verdict["suspicions"][1:]]
    if id == "HT212":
        detail += [f"note    {note}" for note in verdict["notes"][:3]]
    detail.append("Nothing was published.")
    message = _message(verdict)
    raise CheckError(id, message, where=place, detail=detail, next=_next(verdict, id, claim_where))


def counts(role: Mapping[str, Any]) -> str:
    """`model-y 1,150 of 1,156 responses · claude-x 6`: who answered in one role."""
    if not role["n"]:
        return f"no responses, {role['errors']} errors"
    named = [f"{name} {n:,}" for name, n in role["reported"].items()]
    if not named:
        return f"none of {role['n']:,} responses reports a model"
    return " · ".join([f"{named[0]} of {role['n']:,} responses", *named[1:]])


def _message(verdict: Mapping[str, Any]) -> str:
    if verdict["verdict"] == "SUSPECT":
        return f"the logs are suspect: {verdict['suspicions'][0]['text']}"
    if verdict["verdict"] == "UNREADABLE":
        return "no response could be read from the logs"
    if not verdict["claim"]:
        return "the logs report more than one teacher"
    more = ": more than one model answered" if verdict["verdict"] == "MIXED" else ""
    return f"teacher claim contradicted by the logs{more}"


def _place(verdict: Mapping[str, Any], id: str, claim_where: str) -> str:
    """Where to look first: a line of a log, else a log, else the claim."""
    lines = {
        "HT210": [verdict["first_mismatch"]] if verdict["first_mismatch"] else [],
        "HT211": [],
        "HT212": verdict["bad_lines"],
    }[id]
    if lines:
        return f"{lines[0]['file']}:{lines[0]['line']}"
    signs = [sign["where"] for sign in verdict["suspicions"] if sign["where"]]
    files = [file["path"] for file in verdict["files"]]
    return str([*(signs if id == "HT211" else []), *files, claim_where][0])


def _next(verdict: Mapping[str, Any], id: str, claim_where: str) -> str:
    by_option = claim_where.startswith("--")
    if id == "HT210":
        names = {name for role in verdict["roles"].values() for name in role["reported"]}
        if len(names) > 1:
            return (
                "run again with the logs of the training data alone; if these hold all the models, "
                "no single teacher can be claimed"
            )
        name = names.pop()
        claim = (
            f"--claim {shlex.quote(name)}"
            if by_option
            else f"claim = {json.dumps(name)} at {claim_where}"
        )
        return (
            f"claim what the logs report ({claim}), or give the logs of the claimed model; "
            "releasing with a contradicted claim is not possible"
        )
    if id == "HT211":
        sign = verdict["suspicions"][0]
        where = sign["where"] or "the log"
        aliases = "--aliases FILE" if by_option else "[provenance] aliases"
        advice = _SUSPECT_NEXT[sign["cause"]].format(where=where, aliases=aliases)
    else:
        what = "the pattern" if by_option else "`logs`"
        advice = (
            f"point {what} at logs that hold whole responses (docs/provenance.md lists the formats)"
        )
    if by_option:
        return advice
    return f'{advice}; or set [provenance] status = "reported" and say why in `reason`'
