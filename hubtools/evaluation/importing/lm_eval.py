"""lm-eval's results file, with the samples files that the same run left beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hubtools.digests import sha256_json
from hubtools.evaluation.importing.found import (
    DAMAGE,
    UNKNOWN_ENGINE,
    Found,
    can_head,
    choose,
    damaged,
    no_figure,
    not_whole,
    number,
    parsed,
    rows,
    share,
    slug,
)
from hubtools.evaluation.lmeval.samples import metric_names, samples_of

_OF_FILE_ONLY = ("dataset_kwargs", "metadata")
_MISSING = (
    *("returned_model", "served", "tokens", "finish", "failures", "prompt.chat_template"),
    *UNKNOWN_ENGINE,
)


def read_lm_eval(path: Path, step: int | None = None) -> Found:
    """The tasks of one run.

    Without samples files only figures are known. A run over a part of the data that no limit
    explains is refused, and so are samples that give another mean than the results state.

    Args:
        path: the results file, or a folder with exactly one below it.
        step: is not told by these files.

    Raises:
        UsageError: HT462 several results files.
        CheckError: HT461, HT463, HT464.
    """
    path = _results(path)
    try:
        told = parsed(path.read_bytes())
        return _found(told, path)
    except DAMAGE as error:
        raise damaged(f"not results of lm-eval: {error!r}", path) from error


def _results(path: Path) -> Path:
    if path.is_file():
        return path
    files = sorted(path.rglob("results_*.json"))
    if len(files) != 1:
        names = [str(file.relative_to(path)) for file in files]
        raise choose("results files", names, path, "name one of them")
    return files[0]


def _found(told: Mapping[str, Any], path: Path) -> Found:
    tasks = [name for name in told["results"] if name in told["configs"]]
    config = told.get("config") or {}
    for name in tasks:
        _check_size(name, told.get("n-samples", {}).get(name), config.get("limit"), path)
    figures = _figures(told, tasks)
    files = {name: file for name in tasks if (file := _samples_file(name, path)) is not None}
    if files and len(files) < len(tasks):
        gone = ", ".join(name for name in tasks if name not in files)
        raise not_whole(f"there are samples of some tasks, but none of {gone}", path)
    harness = {"name": "lm_eval", "version": str(told.get("lm_eval_version") or "unknown")}
    common: dict[str, Any] = {
        "harness": harness,
        "title": f"lm-eval: {', '.join(tasks)}",
        "requested": str(told.get("model_name") or ""),
        "date": _date(told.get("date")),
        "protocol": {
            "prompt": {"system_sha256": told.get("system_instruction_sha") or "none"},
            "sampling": {"gen_kwargs": config.get("gen_kwargs") or "of the task"},
            "max_context": told.get("max_length"),
            "reducer": "mean, micro",
        },
    }
    suite = {"id": _id(tasks), "tasks": {name: _task(told, name) for name in tasks}}
    if not files:
        if not figures:
            raise no_figure([key for name in tasks for key in told["results"][name]], path)
        return Found(
            suite=suite,
            missing=("samples", "suite.data", *_MISSING),
            metrics=list(figures),
            figures=figures,
            **common,
        )
    return _with_samples(told, files, suite, common, path)


def _with_samples(
    told: Mapping[str, Any],
    files: Mapping[str, Path],
    suite: dict[str, Any],
    common: Mapping[str, Any],
    path: Path,
) -> Found:
    raw = list(_raw(files))
    metrics, dropped = metric_names(raw)
    made = list(samples_of(raw, metrics))
    for name in files:
        n = sum(sample["category"] == name for sample in made)
        effective = told["n-samples"][name]["effective"]
        if n != effective:
            raise not_whole(f"{name}: {n} samples of {effective}", path)
    other = [
        name
        for name in metrics
        if not can_head(name) or any(_is_no_mean(told, name, task) for task in files)
    ]
    metrics = [name for name in metrics if name not in other]
    if not metrics:
        raise no_figure(dropped + other, path)
    suite |= {
        "n": len(made),
        "items_sha256": sha256_json([sample["extra"]["doc_hash"] for sample in made]),
        "ids_sha256": sha256_json([sample["item"] for sample in made]),
    }
    return Found(
        suite=suite,
        missing=_MISSING,
        metrics=metrics,
        samples=lambda: samples_of(raw, metrics),
        stated={task: _stated(told, task, metrics) for task in files},
        left_out=[*dropped, *other],
        **common,
    )


def _raw(files: Mapping[str, Path]) -> Iterator[dict[str, Any]]:
    for name, file in files.items():
        for row in rows(file):
            yield {"filter": "none", "metrics": [], **row, "task": name}


def _check_size(name: str, size: Any, limit: Any, path: Path) -> None:
    if size is None or limit is not None:
        return
    if size["effective"] < size["original"]:
        why = f"{name}: {size['effective']} of {size['original']} documents, and no limit says so"
        raise not_whole(why, path)


def _samples_file(task: str, path: Path) -> Path | None:
    """Of the same moment as the results, so that two runs in one folder are not mixed."""
    moment = path.stem.removeprefix("results_")
    file = path.with_name(f"samples_{task}_{moment}.jsonl")
    inside = file.resolve().parent == path.resolve().parent
    return file if inside and file.is_file() else None


def _figures(told: Mapping[str, Any], tasks: list[str]) -> dict[str, dict[str, Any]]:
    figures: dict[str, dict[str, Any]] = {}
    for task in tasks:
        front = f"{slug(task)}_" if len(tasks) > 1 else ""
        size = told.get("n-samples", {}).get(task)
        for key, value in told["results"][task].items():
            metric, comma, kind = key.partition(",")
            if not comma or metric.endswith("_stderr") or share(value) is None:
                continue
            figure: dict[str, Any] = {"value": share(value)}
            if size:
                figure |= {"n": size["effective"], "items": size["effective"]}
            error = number(told["results"][task].get(f"{metric}_stderr,{kind}"))
            if error:  # 0 of a share of 0 or 1 says nothing
                figure["standard_error"] = error
            figures[front + (metric if kind == "none" else f"{metric},{kind}")] = figure
    return figures


def _stated(told: Mapping[str, Any], task: str, metrics: list[str]) -> dict[str, float]:
    results = told["results"][task]
    keys = {name: name if "," in name else f"{name},none" for name in metrics}
    return {n: value for n, key in keys.items() if (value := number(results.get(key))) is not None}


def _is_no_mean(told: Mapping[str, Any], metric: str, task: str) -> bool:
    """Whether the task adds this metric up otherwise than by a mean: F1 of a corpus, a median."""
    name = metric.partition(",")[0]
    listed = told["configs"][task].get("metric_list") or []
    ways = [entry.get("aggregation") for entry in listed if entry.get("metric") == name]
    return any(way not in (None, "mean") for way in ways)


def _task(told: Mapping[str, Any], name: str) -> dict[str, Any]:
    config = told["configs"][name]
    kept = {key: value for key, value in config.items() if key not in _OF_FILE_ONLY}
    return {
        "version": told.get("versions", {}).get(name),
        "config_sha256": sha256_json(kept),
        "n_shot": told.get("n-shot", {}).get(name),
        "task_hash": (told.get("task_hashes") or {}).get(name),
    }


def _id(tasks: list[str]) -> str:
    return "lm_eval-" + slug("-".join(tasks) if len(tasks) < 4 else f"{len(tasks)}-tasks")


def _date(seconds: Any) -> str:
    known = number(seconds)
    return datetime.fromtimestamp(known, UTC).date().isoformat() if known else ""
