"""The release record that ships in the repo as `.hubtools/release.json`. Pure.

It binds the files, the facts and the card of one commit together by digest. It holds no clock and
no machine: the same release gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

SCHEMA = "hubtools.release-record/1"


def release_record(
    *,
    tool: str,
    repo: str,
    member: Mapping[str, Any],
    base: Mapping[str, Any],
    files: Mapping[str, Mapping[str, Any]],
    evidence: Mapping[str, Any],
) -> bytes:
    """The record's bytes: indented JSON, sorted keys, final newline.

    Args:
        tool: `hubtools <version>`.
        repo: Hub id.
        member: family, id, kind and weights digest.
        base: repo and revision the weights were made from.
        files: path → `{size, sha256, oid?}` of every other file of the commit.
        evidence: facts, suites, comparisons and verdict that the card was rendered from.
    """
    record = {
        "schema": SCHEMA,
        "tool": tool,
        "repo": repo,
        "member": dict(member),
        "base": dict(base),
        "files": {path: dict(entry) for path, entry in files.items()},
        "evidence": dict(evidence),
    }
    text = json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"
