"""A verdict as facts about one member (pure): what cards and records quote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubtools.digests import sha256_json
from hubtools.facts import Fact, Source, Subject


def log_set_digest(verdict: Mapping[str, Any]) -> str:
    """Identity of the set of log files a verdict was reached on."""
    return sha256_json({file["path"]: file["sha256"] for file in verdict["files"]})


def verdict_facts(
    verdict: Mapping[str, Any], *, member: str, source_path: str, source_sha256: str
) -> list[Fact]:
    """Facts `teacher.verdict`, `teacher.grade`, `teacher.created.*` and `teacher.<role>.*`.

    `verdict` is what `Verdict.to_json` gives, `member` whose teacher it is; the source is the file
    that the verdict was written to.
    """
    subject = Subject(member=member, logs=log_set_digest(verdict))

    def fact(id: str, value: Any, pointer: str, n: int | None = None, k: int | None = None) -> Fact:
        source = Source(source_path, source_sha256, pointer)
        return Fact(f"teacher.{id}", value, "measured", source, subject, n=n, k=k)

    found = [fact(key, verdict[key], f"/{key}") for key in ("verdict", "grade")]
    for end in ("from", "to"):
        if verdict["created"][end] is not None:
            found.append(fact(f"created.{end}", verdict["created"][end], f"/created/{end}"))
    for name, role in verdict["roles"].items():
        n, k = role["n"], role["k"]
        place = f"/roles/{name}"
        found += [
            fact(f"{name}.verdict", role["verdict"], f"{place}/verdict"),
            fact(f"{name}.n", n, f"{place}/n"),
            fact(f"{name}.k", k, f"{place}/k", n),
        ]
        for key in ("requested", "reported"):
            names = list(role[key])
            if len(names) == 1:
                found.append(
                    fact(f"{name}.{key}", names[0], f"{place}/{key}", n, role[key][names[0]])
                )
            elif names:
                found.append(fact(f"{name}.{key}", names, f"{place}/{key}", n))
    return found
