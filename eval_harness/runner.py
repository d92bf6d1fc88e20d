"""Asks a suite's questions and writes down every answer as it comes.

`samples.jsonl` only ever grows; a killed run goes on after its last whole batch (a cut-off line is
asked again), so that it ends in the same bytes as an undisturbed one. `run.json` appears last.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eval_harness.backend import Backend, Reply
from eval_harness.errors import HarnessError
from eval_harness.extractors import EXTRACTORS
from eval_harness.scorers import SCORERS, metric_name
from eval_harness.suite import Item, Suite

SCHEMA = "eval_harness.run/1"

Progress = Callable[[str, int, int | None, str], None]
Sample = dict[str, Any]


def run(
    suite: Suite,
    backend: Backend,
    out_dir: Path,
    *,
    seed: int,
    about: Mapping[str, Any],
    progress: Progress,
) -> dict[str, Any]:
    """Run, or go on with, one evaluation in `out_dir`.

    Args:
        suite: what to ask.
        backend: whom to ask.
        out_dir: holds `about.json`, `samples.jsonl` and, once finished, `run.json`.
        seed: for sampling; batch b gets seed + its first item's index.
        about: the caller's description of this run (JSON). It is copied into the record, and a
            folder that was begun with another one is refused.
        progress: told the number of answered items.

    Returns:
        The content of `run.json`.

    Raises:
        HarnessError: `other_run`, `nothing_scored`, or the backend's own.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    about = {**about, "suite": suite.identity(), "suite_digest": suite.digest, "seed": seed}
    _claim(out_dir / "about.json", about)
    path = out_dir / "samples.jsonl"
    samples = _kept(path, suite, backend.batch_size)
    label = f"evaluate {suite.id}"
    progress(label, len(samples), len(suite.items), "samples")
    with path.open("ab") as stream:
        for start in range(len(samples), len(suite.items), backend.batch_size):
            batch = suite.items[start : start + backend.batch_size]
            replies = backend.answer(
                [suite.messages(item) for item in batch],
                max_new_tokens=suite.max_new_tokens,
                temperature=suite.temperature,
                seed=seed + start,
            )
            made = [_sample(suite, *pair) for pair in zip(batch, replies, strict=True)]
            stream.write(b"".join(_line(sample) for sample in made))
            stream.flush()
            samples += made
            progress(label, len(samples), len(suite.items), "samples")
        os.fsync(stream.fileno())
    if all(sample["failure"] for sample in samples):
        why = Counter(sample["failure"] for sample in samples).most_common(1)[0][0]
        raise HarnessError(
            "nothing_scored",
            f"all {len(samples)} questions failed: {why}",
            where=str(path),
            next="mend what failed, then run the same command again: all are asked anew",
        )
    described = {"title": suite.title, "description": suite.description}
    record = {"schema": SCHEMA, **about, **described, **summary(samples, suite.scorers)}
    record["samples_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    record["engine"] = backend.describe()
    record["date"] = datetime.now(UTC).date().isoformat()
    write_json(out_dir / "run.json", record)
    return record


def summary(samples: Sequence[Sample], scorers: Sequence[str]) -> dict[str, Any]:
    """The figures of a run, from its samples alone; failures are counted apart and not scored."""
    scored = [sample for sample in samples if not sample["failure"]]
    metrics: dict[str, dict[str, Any]] = {}
    for scorer in scorers:
        name = metric_name(scorer)
        values = [sample["scores"][name] for sample in scored]
        metric: dict[str, Any] = {"value": sum(values) / len(values), "n": len(values)}
        if name == "em":
            metric["k"] = int(sum(values))
        metrics[name] = metric
    served = Counter(s["served"]["model"] for s in samples if s["served"])
    prints = Counter(s["served"]["fingerprint"] for s in samples if s["served"])
    return {
        "n": len(scored),
        "items": len(samples),
        "failures": len(samples) - len(scored),
        "unextracted": sum(sample["extracted"] is None for sample in scored),
        "cut_off": sum(sample["finish"] == "length" for sample in scored),
        "metrics": metrics,
        "tokens": {
            side: sum(sample["tokens"][side] or 0 for sample in scored)
            for side in ("prompt", "completion")
        },
        "served": {"model": dict(served), "fingerprint": dict(prints)} if served else {},
    }


def score(output: str, answers: Sequence[str], extractor: str, scorers: Sequence[str]) -> Sample:
    """`{"extracted": ..., "scores": {name: value}}` of one output."""
    written = [{"role": "assistant", "content": output}]
    extracted = EXTRACTORS[extractor]([], written, "").text
    scores = {metric_name(name): SCORERS[name](extracted, answers) for name in scorers}
    return {"extracted": extracted, "scores": scores}


def _sample(suite: Suite, item: Item, reply: Reply) -> Sample:
    sample: Sample = {
        "item": item.id,
        "category": item.category,
        "messages": suite.messages(item),
        "answers": list(item.answers),
        "output": reply.text,
        "finish": reply.finish,
        "tokens": {"prompt": reply.prompt_tokens, "completion": reply.completion_tokens},
        "failure": reply.failure,
        "served": None,
        "extracted": None,
        "scores": None,
    }
    if reply.raw is not None:
        sample["served"] = {
            "model": str(reply.raw.get("model", "")),
            "fingerprint": str(reply.raw.get("system_fingerprint") or ""),
            "response": dict(reply.raw),
        }
    if not reply.failure and reply.text is not None:
        sample |= score(reply.text, item.answers, suite.extractor, suite.scorers)
    return sample


def _claim(path: Path, about: Mapping[str, Any]) -> None:
    if not path.exists():
        write_json(path, about)
    elif json.loads(path.read_bytes()) != json.loads(json.dumps(about)):
        raise HarnessError(
            "other_run",
            "the folder holds the answers of another run",
            where=str(path),
            next="choose another output folder; nothing was written",
        )


def _kept(path: Path, suite: Suite, batch_size: int) -> list[Sample]:
    """Whole batches that an earlier, unfinished run left; the file is cut back to them.

    Where every question of the suite failed, nothing is kept.
    """
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    samples: list[Sample] = []
    for line, item in zip(lines, suite.items, strict=False):
        try:
            sample = json.loads(line)
        except ValueError:
            break
        if not line.endswith(b"\n") or sample.get("item") != item.id:
            break
        samples.append(sample)
    if len(samples) < len(suite.items):
        samples = samples[: len(samples) - len(samples) % batch_size]
    elif all(sample["failure"] for sample in samples):
        samples = []
    os.truncate(path, sum(len(line) for line in lines[: len(samples)]))
    return samples


def _line(sample: Sample) -> bytes:
    return (
        json.dumps(sample, allow_nan=False).encode() + b"\n"
    )  # ASCII: a server may send half a pair


def write_json(path: Path, value: Any) -> None:
    """Write JSON whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as stream:
        text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
        stream.write(text.encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
