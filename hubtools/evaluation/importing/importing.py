"""Takes in what another harness wrote: `external` with its samples, `reported` without them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from eval_harness.errors import HarnessError
from eval_harness.record import SCHEMA, write_run
from hubtools.digests import sha256_file, sha256_json
from hubtools.evaluation.failures import bridged
from hubtools.evaluation.importing.detect import KINDS, kind_of, unknown
from hubtools.evaluation.importing.every_eval_ever import read_every_eval_ever
from hubtools.evaluation.importing.found import Found, Sample, damaged, not_whole
from hubtools.evaluation.importing.inspect_log import read_inspect
from hubtools.evaluation.importing.lm_eval import read_lm_eval
from hubtools.evaluation.importing.verl import read_verl
from hubtools.evaluation.protocol import build_protocol, protocol_id
from hubtools.evaluation.runs import fresh, record_of, taken_in
from hubtools.evaluation.scrub import scrub
from hubtools.evaluation.tau2.importing import import_tau2
from hubtools.files import disk_error, locked, write_json

_READERS: Mapping[str, Callable[[Path, int | None], Found]] = {
    "verl": read_verl,
    "lm_eval": read_lm_eval,
    "inspect": read_inspect,
    "every_eval_ever": read_every_eval_ever,
}
_CLOSE = 1e-6
"""How far a harness's own mean may be from ours: it may have added in another order."""


def import_run(
    path: Path,
    *,
    kind: str | None = None,
    member: str,
    weights: str = "",
    out: Path,
    step: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Make a run of results; importing the same ones again finds it.

    Args:
        path: file or folder that the harness wrote.
        kind: one of `KINDS`; None: told by the content.
        member: whom the figures are about.
        weights: digest of what was measured, where it is known.
        out: the append-only folder of runs.
        step: of a training run, where the source has several validations.
        seed: of the run, where its source does not say it; it tells repeats apart.

    Returns:
        The run's record, and under `path` the file that holds it.

    Raises:
        UsageError: HT460 nothing that is known, HT462 several results.
        CheckError: HT461 damaged, HT463 not whole, HT464 no figure; as `import_tau2`.
        EnvironmentFailure: HT901, HT903.
    """
    if kind is not None and kind not in KINDS:
        raise unknown(f"no kind of results: {kind!r}", path)
    try:
        kind = kind or kind_of(path)
        if kind.startswith("tau2"):
            loop = kind.partition("@")[2]
            return import_tau2(path, out, member=member, weights=weights, loop=loop)
        found = _READERS[kind](path, step)
        digest = _digest(path)
    except OSError as error:
        raise damaged(error.strerror or str(error), path) from error
    except UnicodeDecodeError as error:
        raise damaged(f"not text: {error.reason}", path) from error
    source: dict[str, Any] = {"file": scrub(path.name), "sha256": digest, "kind": kind}
    if found.step is not None:
        source["step"] = found.step
    about = {"source": source, "member": member, "weights": weights, "seed": seed}
    return _kept(found, about, out, path)


def _kept(found: Found, about: dict[str, Any], out: Path, path: Path) -> dict[str, Any]:
    protocol = build_protocol(harness=found.harness, suite=found.suite, **found.protocol)
    about |= {"plan_id": protocol_id(protocol), "requested": found.requested}
    runs = out / str(found.suite["id"])
    with locked(runs / ".lock", f"the folder of runs {runs.name}"):
        if (known := taken_in(runs, about)) is not None:
            return record_of(known)
        folder = fresh(runs)
        part = folder.with_name(f".{folder.name}.tmp")  # a run is there whole or not at all
        try:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            write_json(part / "about.json", about)
            _write(found, protocol, about, part, path)
            part.rename(folder)
        except OSError as error:
            raise disk_error(error, folder) from error
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return record_of(folder)


def _write(
    found: Found,
    protocol: Mapping[str, Any],
    about: Mapping[str, Any],
    folder: Path,
    path: Path,
) -> None:
    record = {
        **about,
        "harness": protocol["harness"],
        "suite": protocol["suite"],
        "title": found.title,
        "description": "Imported: asked and scored by another harness.",
        "protocol": protocol,
        "status": "reported" if found.samples is None else "external",
        "missing": list(found.missing),
        "left_out": list(found.left_out),
        "engine": {},
        "date": found.date,
    }
    if found.samples is None:
        write_json(folder / "run.json", _reported(found, record))
        return
    try:
        made = write_run(folder, _each_once(found.samples(), path), record, metrics=found.metrics)
    except HarnessError as error:
        raise bridged(error) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(f"a sample is not as expected: {error!r}", path) from error
    if made["samples"] != made["items"] * made["trials"]:
        why = f"{made['samples']} samples of {made['items']} items × {made['trials']} trials"
        raise not_whole(why, path)
    for category, stated in found.stated.items():
        ours = made["categories"][category]
        for name, value in stated.items() if not ours["failures"] else ():
            mean = ours["metrics"][name]["value"]
            if not math.isclose(mean, value, rel_tol=_CLOSE, abs_tol=_CLOSE):
                why = f"it states {name} {value:.6g}, its samples of {category} give {mean:.6g}"
                raise not_whole(why, path)


def _each_once(samples: Iterable[Sample], path: Path) -> Iterator[Sample]:
    seen = set()
    for sample in samples:
        key = (sample["item"], sample["trial"])
        if key in seen:
            raise not_whole(f"sample {key[0]} of trial {key[1]} is there twice", path)
        seen.add(key)
        yield sample


def _reported(found: Found, record: Mapping[str, Any]) -> dict[str, Any]:
    """A record of figures alone: nothing in it follows from samples, and it says so."""
    counts = ("items", "samples", "n", "failures", "unextracted", "cut_off", "conflicts")
    empty: tuple[str, ...] = ("failure_kinds", "categories", "macro", "tiers", "served")
    return {
        "schema": SCHEMA,
        **record,
        "suite_digest": sha256_json(record["suite"]),
        "protocol_id": protocol_id(record["protocol"]),
        **dict.fromkeys(counts, 0),
        **{name: {} for name in empty},
        "trials": found.protocol.get("trials", 1),
        "tokens": {"prompt": 0, "completion": 0},
        "metrics": {n: {**figure, "reported": True} for n, figure in found.figures.items()},
        "samples_sha256": None,
    }


def _digest(path: Path) -> str:
    """sha256 of a file, or over the files of a folder."""
    if path.is_file():
        return sha256_file(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return sha256_json({str(file.relative_to(path)): sha256_file(file) for file in files})
