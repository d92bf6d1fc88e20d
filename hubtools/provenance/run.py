"""Verify logs on disk: find the files, read them, judge them, name them by digest."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from hubtools.digests import DigestCache, sha256_bytes, sha256_json
from hubtools.errors import EnvironmentFailure, UsageError
from hubtools.logs.containers import expand
from hubtools.logs.read import label, read_log
from hubtools.logs.records import BadLine, Record
from hubtools.progress import Progress, silent
from hubtools.provenance.accept import require_acceptable as require_acceptable
from hubtools.provenance.aliases import bundled_text, load_aliases
from hubtools.provenance.judge import Hosting
from hubtools.provenance.verdict import RULES_VERSION, Verdict, verify


def rules_digest() -> str:
    """Changes when the same logs may get another verdict: new rules, another bundled table."""
    return sha256_json({"rules": RULES_VERSION, "aliases": bundled_text()})


def log_digests(
    patterns: Sequence[str], root: Path, cache: DigestCache | None = None
) -> dict[str, str]:
    """File name (relative to `root`) → sha256 of every log file: the input of a verify stage.

    Raises:
        UsageError: HT201 a pattern without a file, HT202 a file outside `root`.
        EnvironmentFailure: HT203 a file that cannot be read.
    """
    cache = cache or DigestCache()
    return {label(path, root): _digest(path, cache) for path in expand(patterns, root)}


def verify_logs(
    patterns: Sequence[str],
    root: Path,
    claim: str,
    requested: str = "",
    hosting: Literal["api", "self"] = "api",
    *,
    served: Path | None = None,
    weights: str = "",
    aliases: Path | None = None,
    cache: DigestCache | None = None,
    progress: Progress = silent,
) -> Verdict:
    """Read every log file that `patterns` name and judge them together.

    Args:
        patterns: globs, files or directories relative to `root`.
        root: the project's folder.
        claim: the teacher a card would name; empty to ask only what the logs report.
        requested: what the collecting script asked for, used where a log has no request.
        hosting: `self` when the publisher ran the server.
        served: the server's saved `/v1/models` answer; with `self` only.
        weights: digest of the served weights as the operator states it; with `self` only.
        aliases: a project's own alias table.
        cache: digests known already.
        progress: told after each file.

    Raises:
        UsageError: HT201, HT202 (patterns), HT204 (`served`), HT205 (`aliases`).
        EnvironmentFailure: HT203 unreadable file, HT206 a file that changed meanwhile.
    """
    table = load_aliases(aliases)
    own = read_hosting(served, weights) if hosting == "self" else None
    cache = cache or DigestCache()
    digests = {path: _digest(path, cache) for path in expand(patterns, root)}
    verdict = verify(
        _read(digests, root, cache, progress),
        claim=claim,
        requested=requested,
        aliases=table,
        hosting=own,
    )
    return replace(
        verdict,
        files=[
            {"path": name, **_counted(name, verdict), "sha256": digest}
            for name, digest in ((label(path, root), digest) for path, digest in digests.items())
        ],
    )


def _counted(name: str, verdict: Verdict) -> dict[str, int]:
    """Lines and records of one file, all members of an archive together."""
    own = [file for file in verdict.files if f"{file['path']}/".startswith(f"{name}/")]
    return {key: sum(int(file[key]) for file in own) for key in ("lines", "records")}


def _read(
    paths: Mapping[Path, str], root: Path, cache: DigestCache, progress: Progress
) -> Iterator[Record | BadLine]:
    for done, (path, digest) in enumerate(paths.items(), 1):
        yield from read_log(path, label(path, root))
        if _digest(path, cache) != digest:
            raise EnvironmentFailure(
                "HT206",
                "a log file changed while it was read; nothing was verified",
                where=str(path),
                next="wait until its writer has ended, then run the same command again",
            )
        progress("read logs", done, len(paths), "files")


def _digest(path: Path, cache: DigestCache) -> str:
    try:
        return cache.sha256(path)
    except OSError as error:
        raise EnvironmentFailure(
            "HT203",
            f"cannot read the log: {error.strerror or error}; nothing was verified",
            where=str(path),
            next=f"ls -l {shlex.quote(str(path))}, then fix its permissions",
        ) from error


def read_hosting(served: Path | None, weights: str) -> Hosting:
    """What a self-hosted server's saved `/v1/models` answer says.

    Raises:
        UsageError: HT204 when it is no such answer.
    """
    if served is None:
        return Hosting(weights=weights)
    try:
        data = served.read_bytes()
        answer: Any = json.loads(data)
        names = tuple(str(model["id"]) for model in answer["data"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            "HT204",
            "the saved model list is not an answer of /v1/models; nothing was verified",
            where=str(served),
            detail=('expected {"data": [{"id": …}, …]}',),
            next="save the server's answer there again (curl http://HOST:PORT/v1/models), or leave "
            "out --served (in a manifest: served)",
        ) from error
    return Hosting(names, sha256_bytes(data), weights)
