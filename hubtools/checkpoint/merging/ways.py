"""Whether the streaming engine can merge an adapter, and what to say when it cannot."""

from __future__ import annotations

from pathlib import Path

from hubtools.checkpoint.adapter import Adapter, unsupported
from hubtools.checkpoint.adapter_kinds import Verdict, classify
from hubtools.checkpoint.merging.memory import available_memory, merge_memory
from hubtools.errors import CheckError


def require_streamable(adapter: Adapter, base: Path, *, base_is_residual: bool = False) -> None:
    """Let pass what plain arithmetic merges.

    Raises:
        CheckError: HT110 an adapter that nothing can merge, HT150 one that only PEFT can.
    """
    verdict = require_mergeable(adapter, base_is_residual=base_is_residual)
    if verdict.way == "peft":
        raise needs_peft(adapter, base, verdict.what)


def require_mergeable(adapter: Adapter, *, base_is_residual: bool = False) -> Verdict:
    """Let pass what either engine merges.

    Raises:
        CheckError: HT110, naming what decides, the reason and the fix.
    """
    config = adapter.config
    verdict = classify(config, base_is_residual=base_is_residual)
    if verdict.way == "refused":
        raise unsupported(config.path, f"{verdict.what}: {verdict.why}", verdict.fix)
    if verdict.way == "stream" and config.rank < 1:
        raise unsupported(config.path, f"rank {config.rank}")
    return verdict


def needs_peft(adapter: Adapter, base: Path, what: str) -> CheckError:
    """HT150: only PEFT itself can merge this, in so much memory."""
    need, free = merge_memory(base, [adapter]), available_memory()
    room = "" if free is None else f"; {free / 1e9:.1f} GB are free"
    return CheckError(
        "HT150",
        f"only PEFT itself can merge this: {what}",
        where=str(adapter.config.path),
        detail=(
            f"It loads the whole model: about {need / 1e9:.1f} GB of memory{room}.",
            "Nothing was written.",
        ),
        next="run the same command with --engine peft",
    )
