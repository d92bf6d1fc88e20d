"""Pins that a user has set: which file of which dataset is the right one.

A suite's own pin cannot be changed from here; where a suite has none, a pin is the user's word,
and it is part of every protocol that rests on it.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from eval_harness.errors import HarnessError
from eval_harness.places import config_dir

Pins = dict[str, dict[str, dict[str, str]]]
"""Repo, then file, then `revision` and `sha256`."""


def read_pins(path: Path | None = None) -> Pins:
    """The pins in `path`, by default `pins.json` in the user's settings; none where it is missing.

    Raises:
        HarnessError: `bad_dataset`: the file is damaged.
    """
    path = path or config_dir() / "pins.json"
    try:
        pins: Pins = json.loads(path.read_bytes())
        for files in pins.values():
            for pin in files.values():
                if not re.fullmatch(r"[0-9a-f]{64}", pin["sha256"]):
                    raise ValueError(f"no sha256: {pin['sha256']!r}")
                if not re.fullmatch(r"[0-9a-f]{40}", pin["revision"]):
                    raise ValueError(f"no commit: {pin['revision']!r}")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HarnessError(
            "bad_dataset", f"the pins are damaged: {error}", where=str(path), next=f"rm {path}"
        ) from error
    return pins


def pin(
    suite: Path, revision: str = "", *, pins: Path | None = None, endpoint: str | None = None
) -> dict[str, Any]:
    """Fetch a suite's data, check their number, and take their digests as the right ones.

    Args:
        suite: a `suite.toml` with a `[dataset]`.
        revision: branch, tag or commit; by default the suite's own. The commit is what is pinned.
        pins: file to add them to; by default `pins.json` in the user's settings.
        endpoint: of the Hub; by default huggingface_hub's own.

    Returns:
        `repo`, `revision` (the commit), `file` (of pins) and `pins`: category → file, n, sha256.

    Raises:
        HarnessError: `bad_suite` without a dataset, `bad_dataset`, and nothing was written.
    """
    from dataclasses import replace

    from eval_harness.datasets import dataset_parts, fetch, read_part
    from eval_harness.suite import suite_table

    dataset = suite_table(suite)[0].get("dataset")
    if dataset is None:
        raise HarnessError(
            "bad_suite",
            "the suite brings its questions along: there is nothing to pin",
            where=str(suite),
            next="hubtools evaluate",
        )
    path = pins or config_dir() / "pins.json"
    known = read_pins(path)
    commit = _commit(dataset["repo"], revision or dataset["revision"], endpoint)
    made: dict[str, dict[str, Any]] = {}
    for table in dataset_parts(dataset, path):
        part = replace(table, revision=commit)
        _, digest = read_part(part, fetch(part, endpoint))
        made[part.category] = {"file": part.file, "n": part.n, "sha256": digest}
        known.setdefault(part.repo, {})[part.file] = {"revision": commit, "sha256": digest}
    _write(path, known)
    return {"repo": dataset["repo"], "revision": commit, "file": str(path), "pins": made}


def _commit(repo: str, revision: str, endpoint: str | None) -> str:
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    if re.fullmatch(r"[0-9a-f]{40}", revision):
        return revision
    try:
        return str(HfApi(endpoint=endpoint).dataset_info(repo, revision=revision).sha)
    except (HfHubHTTPError, httpx.HTTPError, OSError, ValueError) as error:
        why = str(error).strip().partition("\n")[0]
        raise HarnessError(
            "bad_dataset",
            f"revision {revision} cannot be found: {why}",
            where=repo,
            next=f"hf datasets info {repo}",
        ) from error


def _write(path: Path, pins: Pins) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        json.dump(pins, stream, indent=1, sort_keys=True)
        stream.write("\n")
    Path(draft).replace(path)
