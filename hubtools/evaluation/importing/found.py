"""What a reader finds in somebody else's results, and how it says that it cannot read them."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval_harness.suite import COUNTS
from eval_harness.suite_values import label
from hubtools.digests import canonical_json
from hubtools.errors import CheckError, UsageError
from hubtools.evaluation.scrub import scrub

UNKNOWN_ENGINE = ("engine", "backend", "dtype", "device", "batch_size")
DAMAGE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading a file of an unexpected shape raises."""

Sample = dict[str, Any]

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Found:
    """Results as their file tells them.

    Args:
        suite: what was asked, with its `id`.
        harness: name, and version where it is told.
        title: of the suite, for tables.
        protocol: further fields of the protocol.
        missing: names of what a record of ours says and this source does not.
        metrics: names, in the order of tables.
        samples: gives them in order, anew at each call; None where only figures are known.
        figures: metric to `value`, and `n`, `k`, `standard_error` where told; without samples.
        stated: by category, metric to the mean that the source states; the samples must give it.
        left_out: metrics of the source that are no share from 0 to 1 of each sample, or whose
            name cannot head a column.
        requested: the model's name that was asked for.
        date: ISO date of the measurement.
        step: of the training run, where the source has several.
    """

    suite: Mapping[str, Any]
    harness: Mapping[str, str]
    title: str
    protocol: Mapping[str, Any]
    missing: Sequence[str]
    metrics: Sequence[str] = ()
    samples: Callable[[], Iterable[Sample]] | None = None
    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stated: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    requested: str = ""
    date: str = ""
    step: int | None = None


def share(value: Any) -> float | None:
    """A score from 0 to 1; None for anything else."""
    if isinstance(value, bool | int | float) and 0 <= value <= 1:
        return float(value)
    return None


def can_head(metric: str) -> bool:
    """Whether a metric's name can head a column, and is not that of a count."""
    try:
        return bool(label(metric, "metric", COUNTS))
    except ValueError:
        return False


def number(value: Any) -> float | None:
    """A finite number; None for anything else: `"N/A"`, NaN, null."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def parsed(text: bytes, only: Collection[str] = ()) -> Any:
    """JSON without secrets, in which NaN and infinity, which are no figures, are null.

    Half a surrogate pair, which JSON can spell and UTF-8 cannot, becomes a question mark.

    Args:
        text: JSON.
        only: fields of the object to keep; all, where none is named.

    Raises:
        ValueError, RecursionError: it is not JSON, or nested beyond reason.
    """
    value = json.loads(text, parse_constant=lambda _: None)
    if _SURROGATE.search(text):
        value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    if only:
        value = {name: item for name, item in value.items() if name in only}
    return scrub(value)


def rows(path: Path) -> Iterator[Any]:
    """The values of a file of JSON lines.

    Raises:
        CheckError: HT461 a line that is not JSON, by its number.
    """
    with path.open("rb") as stream:
        for at, line in enumerate(stream, 1):
            if line.strip():
                try:
                    yield parsed(line)
                except (ValueError, RecursionError) as error:
                    raise damaged(f"not JSON: {error}", f"{path}:{at}") from error


def digest_of(values: Iterable[Any]) -> str:
    """sha256 over JSON values, one a line: of what was asked, where the source names none."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(canonical_json(value) + b"\n")
    return digest.hexdigest()


def slug(text: str) -> str:
    """`text` as part of a suite's id and of a folder's name, which may have 255 bytes."""
    kept = re.sub(r"[^\w.@-]+", "-", text).strip("-.")
    return kept.encode()[:200].decode(errors="ignore") or "unnamed"


def damaged(why: str, where: Path | str) -> CheckError:
    """The source cannot be read."""
    return CheckError(
        "HT461",
        f"the results cannot be read: {why}",
        where=str(where),
        detail=("Nothing was imported.",),
        next="name the file as its harness wrote it",
    )


def choose(what: str, names: Sequence[str], where: Path, hint: str) -> UsageError:
    """There are several results; one run is one of them."""
    few = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return UsageError(
        "HT462",
        f"there are {len(names)} {what}: {few}" if names else f"there is no {what}",
        where=str(where),
        detail=("One run is about one checkpoint. Nothing was imported.",),
        next=hint,
    )


def not_whole(why: str, where: Path) -> CheckError:
    """What is there contradicts itself, or a part is gone."""
    return CheckError(
        "HT463",
        f"the results are not whole: {why}",
        where=str(where),
        detail=("Figures over a part would be others. Nothing was imported.",),
        next="import the results of a run that ended, with all its files",
    )


def no_figure(found: Sequence[str], where: Path) -> CheckError:
    """Nothing there is a figure of ours."""
    named = f" (found: {', '.join(sorted(found)[:12])})" if found else ""
    return CheckError(
        "HT464",
        f"no figure here is a share from 0 to 1{named}",
        where=str(where),
        detail=("Nothing was imported.",),
        next="import results with a metric such as accuracy, exact match or F1",
    )
