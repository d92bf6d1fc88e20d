"""A verdict in words for a card (pure): what was seen, and what it is worth.

Logs come from the publisher, who could have written them: no sentence says more than what they
report. The reported name is printed as reported, an alias never as an identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GRADES = {
    "A": "what a provider's batch output or recorded traffic holds",
    "B": "responses as a client saves them",
    "C": "responses as a gateway passes them on",
    "E": "no model name that a server stated",
}
"""What the records of each grade look like; A is the best of A to F."""

_MEANS = {
    "RESOLVED": "the responses carry another name than the request, so it is no mere echo of it",
    "CONSISTENT": "the name is that of a fixed version, and no other was requested",
    "ECHO": (
        "the responses only repeat the requested name, which a provider may point at other weights "
        "at any time, so they do not tell which model answered"
    ),
    "NAME-ONLY": "the name does not single out one set of weights",
    "PARTIAL": (
        "some responses name no model or some lines could not be read, so this holds for the "
        "counted responses alone"
    ),
    "UNVERIFIABLE": "these logs do not tell which model answered",
    "MIXED": "more than one model is reported, so no single teacher can be named",
    "CONTRADICTS-CLAIM": "the logs report another teacher than was claimed",
    "SUSPECT": "the logs look altered or misdated, so nothing is concluded from them",
    "UNREADABLE": "no response could be read, so nothing is concluded",
}

_LIMITS = (
    "Nothing here shows that the logs are complete or unaltered, which weights answered, or that "
    "this checkpoint was trained on the responses."
)


def teacher_label(verdict: Mapping[str, Any]) -> str:
    """The teacher in a few words: a reported name and its worth, or that none is known.

    Args:
        verdict: what `Verdict.to_json` gives.
    """
    word = verdict["verdict"]
    names = " and ".join(_reported(verdict))
    if _self_hosted(verdict):
        name = verdict["claim"] if verdict["claim"] and "…/" in names else names
        return f"{name} (self-hosted; the name is the operator's)"
    if word in ("RESOLVED", "CONSISTENT"):
        return f"{names} (as the publisher's logs report)"
    if word == "NAME-ONLY":
        return f"{names} (a name in the publisher's logs; weights not identified)"
    if word == "ECHO":
        return f"not disclosed (the responses repeat the requested {names})"
    if word == "PARTIAL" and names:
        return f"{names} (in part of the publisher's logs)"
    return "not established by the logs"


def paragraph(verdict: Mapping[str, Any]) -> str:
    """One paragraph of Markdown about the teacher: counts per role, time, worth, limits.

    Args:
        verdict: what `Verdict.to_json` gives.
    """
    counted = [_counted(name, role) for name, role in verdict["roles"].items() if role["n"]]
    sentences = []
    if counted:
        sentences.append(f"The log files that the publisher supplied report {'; '.join(counted)}.")
    start, end = verdict["created"]["from"], verdict["created"]["to"]
    if start:
        days = start[:10] if start[:10] == end[:10] else f"{start[:10]} to {end[:10]}"
        sentences.append(f"They date the responses {days} (UTC).")
    sentences.append(_meaning(verdict))
    if grade := GRADES.get(verdict["grade"]):
        sentences.append(
            f"Grade {verdict['grade']} (of A to F) means: the records have the form of {grade}, "
            "which can be imitated."
            if verdict["grade"] != "E"
            else f"Grade E (of A to F) means: the records hold {grade}."
        )
    sentences += [*_operator(verdict), _LIMITS]
    if verdict["files"]:
        sentences.append(
            "The sha256 digest of each log file is in `.hubtools/provenance.json`: whoever is "
            "given the logs can tell by it whether they are the files that were counted."
        )
    return " ".join(sentences)


def _meaning(verdict: Mapping[str, Any]) -> str:
    word = verdict["verdict"]
    words = {role["verdict"] for role in verdict["roles"].values() if role["n"]}
    weakest = ", the weakest of the roles' verdicts," if word in words and len(words) > 1 else ""
    return f"{word}{weakest} means: {_MEANS[word]}."


def _operator(verdict: Mapping[str, Any]) -> list[str]:
    """What a server that the publisher ran changes."""
    if not _self_hosted(verdict):
        return []
    weights = verdict["hosting"]["weights"].removeprefix("sha256:")
    return [
        "The publisher ran the server, so the name is what its operator configured.",
        f"The operator states that it served the weights with digest `{weights}`; whoever has "
        "those weights can compare it."
        if weights
        else "The operator gave no digest of the weights.",
    ]


def _self_hosted(verdict: Mapping[str, Any]) -> bool:
    return verdict["hosting"]["kind"] == "self" and verdict["verdict"] in ("NAME-ONLY", "PARTIAL")


def _counted(name: str, role: Mapping[str, Any]) -> str:
    n = role["n"]
    who = "responses of unstated role" if name == "unknown" else f"{name} responses"
    asked = f" (requested: {_requested(role)})" if role["requested"] else ""
    if not role["reported"]:
        return f"no model that counts as evidence in {n:,} {who}{asked}"
    if len(role["reported"]) == 1 and role["k"] == n:
        return f"{_code(next(iter(role['reported'])))} in all {n:,} {who}{asked}"
    named = " and ".join(f"{_code(model)} in {k:,}" for model, k in role["reported"].items())
    return f"{named} of {n:,} {who}{asked}"


def _requested(role: Mapping[str, Any]) -> str:
    names = " and ".join(map(_code, role["requested"]))
    source = ", by the publisher's configuration" if role["requested_from"] != "log" else ""
    return f"{names}{source}"


def _reported(verdict: Mapping[str, Any]) -> list[str]:
    return sorted({name for role in verdict["roles"].values() for name in role["reported"]})


def _code(name: str) -> str:
    return "`" + name.replace("`", "'") + "`"
