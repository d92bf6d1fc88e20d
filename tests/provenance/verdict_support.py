"""Records for the tests, and the alias table they are judged with."""

from collections.abc import Iterable
from typing import Any

from hubtools.logs.records import BadLine, Record
from hubtools.provenance.aliases import AliasTable, bundled_text, parse_aliases
from hubtools.provenance.verdict import Verdict, verify

JUNE_2026 = 1781000000.0
APRIL_2025 = 1745300000.0

TABLE = parse_aliases(bundled_text(), "aliases.toml")


def records(
    n: int,
    reported: str = "deepseek-v4-flash",
    requested: str = "deepseek-chat",
    role: str = "agent",
    created: float | None = JUNE_2026,
    **more: Any,
) -> list[Record]:
    """`n` responses, each with an id and a body of its own."""
    common = {"grade": "B", "file": f"{role}.jsonl", "role": role, "created": created, **more}
    return [
        Record(
            line=line,
            requested=requested,
            reported=reported,
            id=f"{role}-{reported}-{line}",
            body=f"{role}-{reported}-{line}",
            **common,
        )
        for line in range(1, n + 1)
    ]


def judge(
    *groups: Iterable[Record | BadLine],
    claim: str = "",
    aliases: AliasTable = TABLE,
    **options: Any,
) -> Verdict:
    found = [item for group in groups for item in group]
    return verify(found, claim=claim, aliases=aliases, **options)
