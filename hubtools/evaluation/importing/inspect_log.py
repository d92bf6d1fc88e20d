"""inspect's `.eval` logs, a zip of JSON files, read without inspect and without unpacking."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hubtools.digests import sha256_json
from hubtools.evaluation.importing.found import (
    DAMAGE,
    UNKNOWN_ENGINE,
    Found,
    Sample,
    can_head,
    damaged,
    digest_of,
    no_figure,
    not_whole,
    number,
    parsed,
    share,
    slug,
)
from hubtools.evaluation.importing.inspect_sample import FIELDS, sample_of, values_of
from hubtools.evaluation.importing.zipped import unpacked

_MISSING = ("served.fingerprint", *(name for name in UNKNOWN_ENGINE if name != "backend"))


def read_inspect(path: Path, step: int | None = None) -> Found:
    """One task on one model.

    Args:
        path: the log.
        step: is not told by it.

    Raises:
        CheckError: HT461 not a log, damaged, or made to burst; HT463 a run that did not end, or
            whose samples are not those of its header; HT464.
    """
    try:
        with zipfile.ZipFile(path) as log:
            header = parsed(unpacked(log, "header.json"))
            return _found(header, _Log(path, log))
    except KeyError as error:
        raise not_whole(f"the run did not end: {error.args[0]}", path) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise damaged(f"not a zip file that can be read: {error}", path) from error
    except DAMAGE as error:
        raise damaged(f"not a log of inspect: {error!r}", path) from error


class _Log:
    """The samples of a log by id and epoch, in the order of its dataset; one at a time in memory.

    Args:
        path: of the file.
        log: opened.
    """

    def __init__(self, path: Path, log: zipfile.ZipFile) -> None:
        self.path = path
        self.entries: dict[tuple[str, int], str] = {}
        self.asked: dict[str, list[Any]] = {}
        self.values: dict[str, int] = {}
        self.scored = 0
        for name in sorted(log.namelist()):
            if name.startswith("samples/") and name.endswith(".json"):
                self._see(name, parsed(unpacked(log, name), FIELDS))

    def _see(self, name: str, told: Mapping[str, Any]) -> None:
        key = (str(told["id"]), int(told["epoch"]))
        if key in self.entries:
            raise not_whole(f"sample {key[0]} of epoch {key[1]} is there twice", self.path)
        self.entries[key] = name
        self.asked[key[0]] = [key[0], told["input"], told.get("target")]
        if told.get("error"):
            return
        self.scored += 1
        for metric in values_of(told):
            self.values[metric] = self.values.get(metric, 0) + 1

    def sort(self, ids: list[str]) -> None:
        place = {id: at for at, id in enumerate(ids)}
        at = len(place)
        keys = sorted(self.entries, key=lambda key: (place.get(key[0], at), key))
        self.entries = {key: self.entries[key] for key in keys}

    def samples(self, metrics: list[str]) -> Iterator[Sample]:
        with zipfile.ZipFile(self.path) as log:
            for name in self.entries.values():
                yield sample_of(parsed(unpacked(log, name), FIELDS), metrics)


def _found(header: Mapping[str, Any], log: _Log) -> Found:
    said, results = header["eval"], header.get("results") or {}
    if header.get("status") != "success":
        raise not_whole(f"the run ended with status {header.get('status')!r}", log.path)
    ids = [str(id) for id in (said["dataset"].get("sample_ids") or [])]
    log.sort(ids)
    epochs = int((said.get("config") or {}).get("epochs") or 1)
    wanted = {(id, epoch) for id in ids or log.asked for epoch in range(1, epochs + 1)}
    if log.entries.keys() != wanted:
        why = f"{len(log.entries)} samples are there, {len(wanted)} were asked for"
        raise not_whole(why, log.path)
    metrics = [name for name, n in log.values.items() if n == log.scored and can_head(name)]
    if not metrics:
        raise no_figure([str(s.get("name")) for s in results.get("scores", [])], log.path)
    asked = [log.asked[id] for id in dict.fromkeys(key[0] for key in log.entries)]
    config = {
        **(header.get("plan") or {}).get("config", {}),
        **(said.get("model_generate_config") or {}),
    }
    return Found(
        suite={
            "id": f"inspect_{slug(str(said['task']))}",
            "version": said.get("task_version"),
            "task_args_sha256": sha256_json(said.get("task_args") or {}),
            "n": len(asked),
            "items_sha256": digest_of(asked),
            "ids_sha256": sha256_json([one[0] for one in asked]),
        },
        harness={
            "name": "inspect_ai",
            "version": str((said.get("packages") or {}).get("inspect_ai", "unknown")),
        },
        title=f"inspect: {said['task']}",
        protocol={
            "agent": {"kind": _steps(header)},
            "scorers": _scorers(said),
            "sampling": {n: config.get(n) for n in ("temperature", "top_p", "max_tokens", "seed")},
            "trials": epochs,
            "reducer": "mean, micro",
            "backend": str(said["model"]).partition("/")[0],
            "failures": "counted apart, not scored",
        },
        missing=_MISSING,
        metrics=metrics,
        samples=lambda: log.samples(metrics),
        stated={"all": _stated(results, metrics, epochs)},
        left_out=sorted(log.values.keys() - set(metrics)),
        requested=str(said["model"]),
        date=str(said.get("created") or "")[:10],
    )


def _steps(header: Mapping[str, Any]) -> list[Any]:
    steps = (header.get("plan") or {}).get("steps") or []
    return [{"solver": s["solver"], "params_sha256": sha256_json(s.get("params"))} for s in steps]


def _scorers(said: Mapping[str, Any]) -> dict[str, Any]:
    scorers = said.get("scorers") or []
    return {str(s["name"]): sha256_json(s.get("options") or {}) for s in scorers}


def _stated(results: Mapping[str, Any], metrics: list[str], epochs: int) -> dict[str, float]:
    """Means of the header, of scorers whose epochs are reduced by a mean."""
    stated = {}
    for score in results.get("scores") or []:
        if score["name"] in metrics and (epochs == 1 or score.get("reducer") in (None, "mean")):
            for name in ("accuracy", "mean"):
                value = number((score["metrics"].get(name) or {}).get("value"))
                if value is not None and share(value) is not None:
                    stated[score["name"]] = value
    return stated
