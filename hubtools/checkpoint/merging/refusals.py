"""How a plan says no: where, what was expected, that nothing was written, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hubtools.checkpoint.adapter import AdapterConfig
from hubtools.errors import CheckError

NOTHING = "Nothing was written."
OTHER_BASE = "name the base the adapter was trained on: --base DIR"


def refuse(id: str, message: str, where: Path, fix: str, *detail: str) -> CheckError:
    """A refusal before the first byte."""
    return CheckError(id, message, where=str(where), detail=(*detail, NOTHING), next=fix)


def incomplete(file: Path, what: str) -> CheckError:
    """HT114: tensors that a training run cannot have meant."""
    fix = "save the adapter again from the training run (gather sharded parameters first)"
    return refuse("HT114", "the adapter file is not complete", file, fix, what)


def homeless(
    config: AdapterConfig, base: Path, kind: str, names: Iterable[str], total: int
) -> CheckError:
    """HT112: adapter tensors that no tensor of the base can take.

    Args:
        config: of the adapter.
        base: directory of the base.
        kind: architecture of the base.
        names: base tensors that are not there.
        total: how many the adapter asks for.
    """
    missing = sorted(names)
    shown = ", ".join(missing[:5])
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    return refuse(
        "HT112",
        f"{len(missing)} of {total} adapter modules have no place in this base ({kind})",
        config.path,
        f"{OTHER_BASE} (not {base})",
        f"not in the base: {shown}{more}",
        trained_on(config),
    )


def trained_on(config: AdapterConfig) -> str:
    """Which base the adapter itself names."""
    return f"adapter_config.json names as base: {config.base or '(nothing)'}"
