"""From what was found in a directory to what it is, and the evidence for it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubtools.checkpoint import adapter as adapters
from hubtools.checkpoint.inspecting.describe import Kind
from hubtools.checkpoint.inspecting.found import Found
from hubtools.checkpoint.inspecting.quantised import Quantisation
from hubtools.checkpoint.inspecting.stored import SHARD
from hubtools.checkpoint.shards import INDEX, SINGLE

_FRONT = re.compile(r"---\r?\n(.*?)\r?\n---", re.DOTALL)
_FRONT_LIMIT = 64 << 10  # the YAML reader takes seconds for a megabyte
_RECORD_LIMIT = 32 << 20


def decide(found: Found, how: Quantisation | None) -> tuple[Kind, str]:
    """What it is, and the files or fields that say so.

    Args:
        found: the directory.
        how: its quantisation.
    """
    if found.adapter is not None:
        return "adapter", adapters.CONFIG
    weights = [n for n in found.files if "/" not in n and n.endswith(".safetensors")]
    shards = [name for name in weights if SHARD.fullmatch(name)]
    model = next((name for name in (SINGLE, INDEX, *shards) if name in found.files), "")
    if "config.json" in found.files and model:
        if how is not None:
            return "quantised", how.source
        record = _merge_record(found.root, found.files)
        if record:
            return "merged", record
        return "full", f"config.json and {model}"
    if found.shards is not None:
        first = next(iter(found.shards.files), ".metadata")
        return found.shards.kind, (found.shards.folder / first).relative_to(found.root).as_posix()
    if found.stored.ggufs or any(name.endswith(".gguf") for name in found.files):
        return "gguf", next(name for name in found.files if name.endswith(".gguf"))
    if "config.json" in found.files and found.pickles and not weights:
        return "pickle", f"config.json and {found.pickles[0]}"
    if weights or found.pickles:
        return "consolidated", [*weights, *found.pickles][0]
    if found.inside:
        return "run", found.inside[0].name
    return "unknown", ""


def named_base(found: Found) -> tuple[str, str, str]:
    """The base it names: name, revision, and the file and field that name it."""
    adapter = found.adapter
    if adapter is not None and adapter.base:
        return adapter.base, adapter.revision, f"{adapters.CONFIG}:/base_model_name_or_path"
    if isinstance(named := found.config.get("_name_or_path"), str) and named:
        file = (found.home / "config.json").relative_to(found.root).as_posix()
        return named, "", f"{file}:/_name_or_path"
    if 0 < found.files.get("README.md", 0) < _RECORD_LIMIT:
        text = (found.root / "README.md").read_text(encoding="utf-8", errors="replace")
        named = _front_matter_base(text)
        if named:
            return named, "", "README.md: base_model"
    return "", "", ""


def _front_matter_base(text: str) -> str:
    front = _FRONT.match(text[:_FRONT_LIMIT])
    if front is None or "base_model" not in front[1]:
        return ""
    import yaml

    try:
        fields = yaml.safe_load(front[1])
    except (yaml.YAMLError, ValueError, RecursionError):
        return ""
    named = fields.get("base_model") if isinstance(fields, dict) else None
    first = named[0] if isinstance(named, list) and named else named
    return first if isinstance(first, str) else ""


def _merge_record(root: Path, files: Mapping[str, int]) -> str:
    """Which record says that these weights were merged; empty when none does.

    A release record and a merge report lie in the repo; a merge of ours on this machine left its
    job beside the directory, which counts when the sizes of the weights are as it says.
    """
    member = _read(root / ".hubtools" / "release.json").get("member")
    if isinstance(member, Mapping) and member.get("kind") == "merged":
        return ".hubtools/release.json:/member/kind"
    absolute = root.absolute()
    job = absolute.parent / f".{absolute.name}.merge" / "job.json"
    result = _read(job).get("result")
    made = result.get("files") if isinstance(result, Mapping) else None
    if isinstance(made, Mapping):
        sizes = {
            name: entry.get("size")
            for name, entry in made.items()
            if isinstance(entry, Mapping) and str(name).endswith(".safetensors")
        }
        weights = {name: size for name, size in files.items() if name.endswith(".safetensors")}
        if sizes and sizes == weights:
            return f"../{job.parent.name}/{job.name} (sizes agree)"
    return ""


def _read(path: Path) -> dict[str, Any]:
    """A record, or nothing: one that cannot be read proves nothing."""
    try:
        if path.stat().st_size > _RECORD_LIMIT:
            return {}
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
