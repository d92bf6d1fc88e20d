"""A verdict in words for a card (pure): what was seen, and what it is worth.

The reported name is printed as reported, an alias never as an identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_GRADES = {
    "A": "as the provider delivered them",
    "B": "as the client saved them from the API",
    "C": "after a gateway that keeps the provider's model field",
}

_WORTH = {
    "RESOLVED": "The name was given by the API and not copied from the request.",
    "CONSISTENT": "The requested name is a fixed version, and the responses repeat it.",
    "ECHO": (
        "The responses only repeat the requested name, which the provider may point at other "
        "weights at any time: they do not tell which model answered."
    ),
    "NAME-ONLY": (
        "It is a name only: at the time of the responses it does not single out one set of weights."
    ),
    "PARTIAL": "Not all of the logs support it, so this holds for the counted responses alone.",
    "UNVERIFIABLE": "Which model answered cannot be told from these logs.",
    "MIXED": "More than one model answered, so no single teacher can be named.",
    "CONTRADICTS-CLAIM": "This contradicts the teacher that was claimed.",
    "SUSPECT": "The logs contradict themselves, so nothing is concluded from them.",
    "UNREADABLE": "No response could be read from the logs, so nothing is concluded from them.",
}

_SELF = (
    "The teacher was served by the publisher, so this name is what the operator configured and is "
    "no evidence of the weights."
)


def teacher_label(verdict: Mapping[str, Any]) -> str:
    """The teacher in a few words: a reported name and its worth, or that none is known.

    Args:
        verdict: what `Verdict.to_json` gives.
    """
    word = verdict["verdict"]
    names = _reported(verdict)
    if verdict["hosting"]["kind"] == "self" and word in ("NAME-ONLY", "PARTIAL"):
        return f"{_self_name(verdict, names)} (self-hosted; the name is the operator's)"
    if word in ("RESOLVED", "CONSISTENT"):
        return f"{' and '.join(names)} (as the API reports)"
    if word == "NAME-ONLY":
        return f"{' and '.join(names)} (a name the API reports; weights not identified)"
    if word == "ECHO":
        return f"not disclosed (the API repeats the requested {' and '.join(names)})"
    if word == "PARTIAL" and names:
        return f"{' and '.join(names)} (reported in part of the logs)"
    return "not established by the logs"


def paragraph(verdict: Mapping[str, Any]) -> str:
    """One paragraph of Markdown about the teacher: counts per role, time, evidence, worth.

    Args:
        verdict: what `Verdict.to_json` gives.
    """
    sentences = [_counted(name, role) for name, role in verdict["roles"].items() if role["n"]]
    start, end = verdict["created"]["from"], verdict["created"]["to"]
    if start:
        days = start[:10] if start[:10] == end[:10] else f"{start[:10]} to {end[:10]}"
        sentences.append(f"The responses were created {days} (UTC).")
    if grade := _GRADES.get(verdict["grade"]):
        sentences.append(f"Evidence grade {verdict['grade']}: responses {grade}.")
    sentences += _worth(verdict)
    if verdict["bad_total"]:
        sentences.append(f"{verdict['bad_total']:,} lines of the logs could not be counted.")
    n = len(verdict["files"])
    sentences.append(f"Checked on {n:,} log {'file' if n == 1 else 'files'} known by digest.")
    return " ".join(sentences)


def _worth(verdict: Mapping[str, Any]) -> list[str]:
    word = verdict["verdict"]
    if verdict["hosting"]["kind"] != "self" or word not in ("NAME-ONLY", "PARTIAL"):
        closing = ["This is what the API reported; it does not identify weights."]
        return [_WORTH[word]] + (closing if word in ("RESOLVED", "CONSISTENT", "PARTIAL") else [])
    weights = verdict["hosting"]["weights"]
    stated = (
        f"The operator states the weights' digest as `{weights.removeprefix('sha256:')}`; "
        "who has those weights can repeat the run."
        if weights
        else "The operator gave no digest of the weights."
    )
    return [_SELF, stated] + ([_WORTH[word]] if word == "PARTIAL" else [])


def _counted(name: str, role: Mapping[str, Any]) -> str:
    who = "responses whose role is not logged" if name == "unknown" else f"{name} responses"
    if not role["reported"]:
        asked = f" ({_requested(role)})" if role["requested"] else ""
        return f"None of the {role['n']:,} {who} reports a model that counts as evidence{asked}."
    named = ", ".join(f"{_code(model)} in {k:,}" for model, k in role["reported"].items())
    asked = f" ({_requested(role)})" if role["requested"] else ""
    return f"Of {role['n']:,} {who}, the API reports {named}{asked}."


def _requested(role: Mapping[str, Any]) -> str:
    names = " and ".join(map(_code, role["requested"]))
    source = ", by the publisher's configuration" if role["requested_from"] != "log" else ""
    return f"requested: {names}{source}"


def _reported(verdict: Mapping[str, Any]) -> list[str]:
    return sorted({name for role in verdict["roles"].values() for name in role["reported"]})


def _self_name(verdict: Mapping[str, Any], names: list[str]) -> str:
    return verdict["claim"] or " and ".join(names)


def _code(name: str) -> str:
    return "`" + name.replace("`", "'") + "`"
