"""What a checkpoint said when it was loaded after it was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubtools.cli.output import Output
from hubtools.errors import CheckError


def tell(output: Output, spoken: Mapping[str, Any], made: str) -> None:
    """What the loaded result said, and what is wrong with it.

    Args:
        output: where it is told.
        spoken: result of `talk`.
        made: what made the directory: `merge`, `ingest`.

    Raises:
        CheckError: the first finding that is an error.
    """
    if spoken["tokens"] and not spoken["text"].strip():
        output.note(f"! loads   and answered {spoken['prompt']!r} with nothing to read")
    elif spoken["tokens"]:
        output.note(f"✓ talks   {spoken['prompt']!r} → {spoken['text']!r}")
    else:
        output.note(f"✓ loads   and computes, in {spoken['dtype']}; it does not generate")
    for finding in spoken["findings"]:
        if finding["level"] == "error":
            raise CheckError(
                finding["id"],
                finding["message"],
                where=finding["where"],
                detail=(f"The {made} is complete, but it should not be published like this.",),
                next=finding["next"],
            )
        output.note(f"{finding['level']}[{finding['id']}] {finding['message']}")
        output.note(f"  next: {finding['next']}")
