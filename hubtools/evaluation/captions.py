"""What computed the answers of a table, in one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubtools.evaluation.records import Run


def engine_words(runs: Sequence[Run]) -> str:
    """Backend, versions, served models, dtype, device and seeds of all these runs.

    What only some of them have says so.
    """
    told = [_words(run) for run in runs]
    shared = [
        word if all(word in words for words in told) else f"{word} (not for all)"
        for word in _each(word for words in told for word in words)
    ]
    seeds = [str(seed) for seed in sorted({run.seed for run in runs})]
    return " · ".join([*shared, f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"])


def _words(run: Run) -> list[str]:
    engine = run.engine
    told = [str(engine.get("backend", run.harness.get("name", "")))]
    told += [f"{name} {number}" for name, number in engine.get("versions", {}).items()]
    if "endpoint" in engine:
        served = ", ".join(run.served.get("model", ())) or "unnamed"
        told.append(f"{engine['endpoint']}, asked for {engine['requested']}, served {served}")
    if "dtype" in engine:
        told.append(f"{engine['dtype']} on {engine.get('device', 'a server')}")
    return [word for word in told if word]


def _each(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))
