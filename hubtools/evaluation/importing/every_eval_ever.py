"""Every Eval Ever: JSON in which figures of any harness are reported, without their samples."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hubtools.evaluation.importing.found import (
    DAMAGE,
    UNKNOWN_ENGINE,
    Found,
    damaged,
    no_figure,
    number,
    parsed,
    share,
    slug,
)

_MISSING = (
    *("samples", "suite.data", "prompt", "scorers", "trials", "seed", "failures"),
    *("returned_model", "served", "tokens", *UNKNOWN_ENGINE),
)


def read_every_eval_ever(path: Path, step: int | None = None) -> Found:
    """The figures of one file: one model, any number of benchmarks.

    A score on another scale counts where the file states both ends of it; its own interval is
    kept in the record as it was told.

    Args:
        path: the JSON file.
        step: is not told by it.

    Raises:
        CheckError: HT461, HT464.
    """
    try:
        told = parsed(path.read_bytes())
        return _found(told, path)
    except DAMAGE as error:
        raise damaged(f"not an Every Eval Ever file: {error!r}", path) from error


def _found(told: Mapping[str, Any], path: Path) -> Found:
    figures: dict[str, dict[str, Any]] = {}
    left_out = []
    for result in told["evaluation_results"]:
        name = _name(result, figures)
        value = _value(result)
        if value is None:
            left_out.append(name)
        else:
            figures[name] = {"value": value, **_uncertainty(result)}
    if not figures:
        raise no_figure(left_out, path)
    library = told.get("eval_library") or {}
    source = told["source_metadata"]
    names = list(dict.fromkeys(str(r["evaluation_name"]) for r in told["evaluation_results"]))
    version = str(library.get("version") or "unknown")
    return Found(
        suite={
            "id": f"eee_{slug('-'.join(names) if len(names) < 4 else f'{len(names)}-evaluations')}",
            "evaluations": names,
            "source": f"{source['source_organization_name']}, {source['source_type']}",
        },
        harness={"name": str(library.get("name") or "unknown"), "version": version},
        title=f"{', '.join(names[:4])} as {source['source_organization_name']} reports",
        protocol={"sampling": _sampling(told["evaluation_results"])},
        missing=_MISSING,
        metrics=list(figures),
        figures=figures,
        left_out=left_out,
        requested=str(told["model_info"]["id"]),
        date=_date(told.get("evaluation_timestamp") or told.get("retrieved_timestamp")),
    )


def _name(result: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    config = result["metric_config"]
    metric = config.get("metric_name") or config.get("metric_id")
    parts = [str(result["evaluation_name"]), *([str(metric)] if metric else [])]
    name = first = slug("_".join(parts))
    number_of = 2
    while name in known:
        name, number_of = f"{first}_{number_of}", number_of + 1
    return name


def _value(result: Mapping[str, Any]) -> float | None:
    """The score as a share from 0 to 1; None where it is none."""
    config, score = result["metric_config"], number(result["score_details"]["score"])
    low, high = number(config.get("min_score")), number(config.get("max_score"))
    if score is None or config.get("lower_is_better"):
        return None
    if low == 0 and high:
        return share(score / high)
    return share(score) if low is None and high is None else None


def _uncertainty(result: Mapping[str, Any]) -> dict[str, Any]:
    told = result["score_details"].get("uncertainty") or {}
    n = told.get("num_samples")
    return {
        **({"n": n, "items": n} if isinstance(n, int) and n > 0 else {}),
        **({"uncertainty": told} if told else {}),
    }


def _sampling(results: list[Mapping[str, Any]]) -> dict[str, Any]:
    """What all results share; where they differ nothing is said."""
    told = [(r.get("generation_config") or {}).get("generation_args") or {} for r in results]
    first = told[0]
    names = ("temperature", "top_p", "top_k", "max_tokens")
    return {n: first[n] for n in names if n in first and all(t.get(n) == first[n] for t in told)}


def _date(stamp: Any) -> str:
    """ISO date of a timestamp in either of the spellings that occur."""
    text = str(stamp or "")
    try:
        return datetime.fromtimestamp(float(text), UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return text[:10] if text[:4].isdigit() else ""
