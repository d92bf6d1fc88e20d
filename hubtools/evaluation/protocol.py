"""Protocol identity: two figures are comparable only when everything named here is equal. Pure.

It can be computed before a run, without loading an engine, and again from the run's record.
Addresses, paths, seeds and the weights are not part of it: they say who was measured, not how.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubtools.digests import sha256_json

VERSION = 1
FAILURES = "counted apart, not scored"


def protocol_of(
    suite: Mapping[str, Any],
    *,
    backend: str,
    engine: Mapping[str, str],
    dtype: str,
    device: str,
    batch_size: int,
    chat_template: str | None = None,
) -> dict[str, Any]:
    """The protocol of a run.

    Args:
        suite: `Suite.identity()` of the harness: items, prompts, scorers, extractor, sampling.
        backend: `transformers` or `openai`.
        engine: package → version of what computes; empty for a server that we did not start.
        dtype: of the weights while they compute; `server` where the server decides.
        device: `cpu` or `cuda`, without an index; `server` likewise.
        batch_size: prompts computed together, or requests in flight.
        chat_template: sha256 of the model's template, `none`, or None when not known yet.

    Returns:
        JSON values only; `protocol_id` is its digest.
    """
    prompt = {**suite["prompt"]}
    if chat_template is not None:
        prompt["chat_template"] = chat_template
    return {
        "version": VERSION,
        "suite": {key: suite[key] for key in ("id", "version", "items_sha256", "n")},
        "prompt": prompt,
        "extractor": suite["extractor"],
        "scorers": list(suite["scorers"]),
        "sampling": {key: suite[key] for key in ("max_new_tokens", "temperature")},
        "trials": 1,
        "failures": FAILURES,
        "backend": backend,
        "engine": dict(engine),
        "dtype": dtype,
        "device": device,
        "batch_size": batch_size,
    }


def protocol_id(protocol: Mapping[str, Any]) -> str:
    """sha256 of the protocol's canonical JSON."""
    return sha256_json(protocol)


def differing_fields(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Dotted names of the fields in which two protocols differ, sorted; empty when equal."""
    flat_a, flat_b = _flat(a), _flat(b)
    absent = object()
    names = flat_a.keys() | flat_b.keys()
    return sorted(n for n in names if flat_a.get(n, absent) != flat_b.get(n, absent))


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            fields |= _flat(item, f"{prefix}{key}.")
        else:
            fields[f"{prefix}{key}"] = item
    return fields
