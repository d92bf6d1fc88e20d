"""Protocol identity: two figures are comparable only when everything named here is equal. Pure.

It can be computed before a run, without loading an engine, and again from the run's record.
Addresses, paths, seeds and the weights are not part of it: they say who was measured, not how.

A protocol is a JSON object of `KEYS`. Other harnesses build theirs with `build_protocol` from the
same keys, leave out what they do not know, and name it under `missing` in their record; a field
that one side lacks is a difference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hubtools.digests import sha256_json

VERSION = 2
LONG = 60
FAILURES = "counted apart, not scored"
SEEDS = "of run seed, item and trial"
HARNESS = {"name": "eval_harness", "version": "2"}
POLICY = "policy"
"""Backend of a run that no model answered: a trivial policy, whose score is the floor."""

KEYS = {
    "version": "of this list",
    "harness": "name and version of what asked and scored",
    "suite": "id, version, digest of the data, digest of the ordered item ids, number, split",
    "prompt": "templates, chat template (sha256, `none` or `server`), nudge",
    "agent": "kind of loop, turn limits, tools, who parses tool calls (`client`)",
    "extractor": "name with version; or one for each metric",
    "scorers": "names with versions",
    "sampling": "max_new_tokens, temperature, top_p, stop, how seeds are made",
    "trials": "answers per item",
    "reducer": "how scores of trials and items become one figure",
    "max_context": "tokens of prompt and answer together",
    "failures": "what a sample without an answer counts as",
    "backend": "`transformers`, `openai`, `vllm`, `policy`, …",
    "engine": "package to version of what computes; empty for a server that we did not start",
    "dtype": "of the weights while they compute; `server` where the server decides",
    "device": "`cpu` or `cuda`, without an index; `server` likewise",
    "batch_size": "prompts computed together, or samples in flight",
    "user": "simulated user: the model as returned, and its settings",
    "retriever": "name, digest of the corpus, top-k",
}

_OF_SUITE = ("prompt", "agent", "extractor", "scorers", "trials", "max_context", "retriever")
_SAMPLING = ("max_new_tokens", "temperature", "top_p", "stop")
_SPREAD = (*_OF_SUITE, *_SAMPLING, "sampling", "metrics", "nudge", "average")


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A field of two protocols, each side's value in words; `not stated` where it is absent."""

    field: str
    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.field}: {self.a} against {self.b}"


def build_protocol(**fields: Any) -> dict[str, Any]:
    """A protocol of these fields; those that are None are left out.

    Raises:
        ValueError: a field that is not in `KEYS`.
    """
    for name in fields.keys() - KEYS.keys():
        raise ValueError(f"no field of a protocol: {name!r}")
    return {"version": VERSION, **{k: v for k, v in fields.items() if v is not None}}


def protocol_of(
    suite: Mapping[str, Any],
    *,
    backend: str,
    engine: Mapping[str, str],
    dtype: str,
    device: str,
    batch_size: int,
    chat_template: str | None = None,
    max_context: int | None = None,
    retriever: Mapping[str, Any] | None = None,
    user: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The protocol of a run of our own harness.

    Args:
        suite: `Suite.identity()`; what it says under a key of `KEYS` goes there, the rest under
            `suite`.
        backend: see `KEYS`, as for all that follow.
        engine: package to version.
        dtype: of the weights.
        device: without an index.
        batch_size: prompts together, or samples in flight.
        chat_template: sha256 of the model's template, `none`, or None when not known yet.
        max_context: where the engine, not the suite, sets it.
        retriever: where another one than the suite's is asked.
        user: simulated user.

    Returns:
        JSON values only; `protocol_id` is its digest.
    """
    prompt = {**suite["prompt"]}
    if suite.get("nudge"):
        prompt["nudge"] = suite["nudge"]
    if chat_template is not None:
        prompt["chat_template"] = chat_template
    sampling = {**suite.get("sampling", {}), **{k: suite[k] for k in _SAMPLING if k in suite}}
    if sampling.get("temperature"):
        sampling["seeds"] = SEEDS
    extractor, scorers = suite.get("extractor"), suite.get("scorers")
    if "metrics" in suite:
        extractor = {metric["name"]: metric["extractor"] for metric in suite["metrics"]}
        scorers = {metric["name"]: _scorer(metric) for metric in suite["metrics"]}
    return build_protocol(
        harness=dict(HARNESS),
        suite={key: value for key, value in suite.items() if key not in _SPREAD},
        prompt=prompt,
        agent=suite.get("agent"),
        extractor=extractor,
        scorers=scorers,
        sampling=sampling,
        trials=suite.get("trials", 1),
        reducer=f"mean, {suite.get('average', 'micro')}",
        max_context=suite.get("max_context") or max_context,
        failures=FAILURES,
        backend=backend,
        engine=dict(engine),
        dtype=dtype,
        device=device,
        batch_size=batch_size,
        user=None if user is None else dict(user),
        retriever=suite.get("retriever") if retriever is None else dict(retriever),
    )


def protocol_again(suite: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """`protocol_of` a suite, with everything else as in a protocol that was made before."""
    return protocol_of(
        suite,
        backend=before["backend"],
        engine=before["engine"],
        dtype=before["dtype"],
        device=before["device"],
        batch_size=before["batch_size"],
        chat_template=before["prompt"].get("chat_template"),
        max_context=before.get("max_context"),
        retriever=before.get("retriever"),
        user=before.get("user"),
    )


def protocol_id(protocol: Mapping[str, Any]) -> str:
    """sha256 of the protocol's canonical JSON."""
    return sha256_json(protocol)


def differing_fields(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Dotted names of the fields in which two protocols differ, sorted; empty when equal."""
    return [found.field for found in differences(a, b)]


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[FieldDifference]:
    """The fields in which two protocols differ, by name, with both values in words."""
    flat_a, flat_b = flat(a), flat(b)
    absent = object()
    return [
        FieldDifference(name, *_both(flat_a, flat_b, name))
        for name in sorted(flat_a.keys() | flat_b.keys())
        if flat_a.get(name, absent) != flat_b.get(name, absent)
    ]


def _both(a: Mapping[str, Any], b: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Both values in words; two that look the same are told apart by their digests."""
    said = [_words(side[name]) if name in side else "not stated" for side in (a, b)]
    if said[0] == said[1]:
        said = [f"{_words(side[name])} ({sha256_json(side[name])[:12]})" for side in (a, b)]
    return said[0], said[1]


def _words(value: Any) -> str:
    if isinstance(value, str):
        line = " ".join(value.split())
        if re.fullmatch(r"[0-9a-f]{40,64}", line):
            return line[:12]
        return (line if len(line) <= LONG else f"{line[:LONG]}…") or "empty"
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value)) or "none"
    return "none" if value is None or value == {} else str(value)


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted name to value of every field that is no table."""
    fields: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            fields |= flat(item, f"{prefix}{key}.")
        else:
            fields[f"{prefix}{key}"] = item
    return fields


def _scorer(metric: Mapping[str, Any]) -> str:
    tiers = metric.get("tiers")
    return f"{metric['scorer']} of tiers {_words(tiers)}" if tiers else str(metric["scorer"])
