"""What a run is of: the weights, the files that decide how they compute, or the server asked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hubtools.digests import DigestCache, sha256_bytes, sha256_json, weights_digest
from hubtools.errors import CheckError, Finding
from hubtools.evaluation.protocol import protocol_id
from hubtools.evaluation.spec import Cell, Target

_DECIDING = (
    *("config.json", "generation_config.json", "adapter_config.json", "added_tokens.json"),
    *("special_tokens_map.json", "tokenizer*", "chat_template*", "vocab.*", "merges.txt"),
    *("*.model", "*.tiktoken", "preprocessor_config.json", "processor_config.json"),
)
"""Files beside the weights that change answers."""

_DIGESTS = DigestCache()
"""Of this process: a file that did not change since is not read again."""


def claim(cell: Cell, protocol: Mapping[str, Any]) -> dict[str, Any]:
    """What `about.json` says of a cell's run: runs that agree in it are one and the same."""
    return {
        "protocol": protocol,
        "plan_id": protocol_id(protocol),
        "weights": cell.target.weights,
        "model_files": model_files(cell.target),
        "endpoint": endpoint_digest(cell.engine.url) if cell.engine.kind == "endpoint" else "",
        "member": cell.target.member,
        "requested": cell.engine.served_name,
        "seed": cell.seed,
    }


def model_weights(model: Path, adapter: Path | None = None) -> str:
    """Weights digest of a checkpoint folder, together with that of an adapter on it.

    Raises:
        CheckError: HT409 no safetensors there.
    """
    files: dict[str, str] = {}
    for prefix, folder in _folders(model, adapter):
        found = sorted(folder.glob("*.safetensors"))
        if not found:
            raise CheckError(
                "HT409",
                "no safetensors files in the folder",
                where=str(folder),
                detail=("Pickled weights are not loaded.",),
                next="name a checkpoint folder that holds *.safetensors (or convert its weights)",
            )
        files |= {prefix + path.name: _DIGESTS.sha256(path) for path in found}
    return weights_digest(files)


def model_files(target: Target) -> str:
    """Digest of configuration and tokenizer of a checkpoint and its adapter; empty without one."""
    if target.model is None:
        return ""
    return sha256_json(
        {
            prefix + path.name: _DIGESTS.sha256(path)
            for prefix, folder in _folders(target.model, target.adapter)
            for pattern in _DECIDING
            for path in folder.glob(pattern)
            if path.is_file()
        }
    )


def require_weights(target: Target) -> None:
    """Refuse a checkpoint whose weights are no longer those of the plan.

    Raises:
        CheckError: HT483 they are others; HT409.
    """
    if target.model is None or model_weights(target.model, target.adapter) == target.weights:
        return
    raise CheckError(
        "HT483",
        f"the weights of {target.member} are not those that the job was written for",
        where=str(target.adapter or target.model),
        detail=("Nothing was asked.",),
        next="plan it again: hubtools evaluate MODEL, with the same options",
    )


def other_base(target: Target) -> Iterator[Finding]:
    """HT446, where an adapter names a base that is not known to be the one it is put on."""
    if target.model is None or target.adapter is None:
        return
    named = _said(target.adapter / "adapter_config.json", "base_model_name_or_path")
    folder = target.model.resolve()
    if not named or _is_base(named, folder):
        return
    yield Finding(
        "HT446",
        "warning",
        f"the adapter was trained on {named}, and is put on {folder.name}: are they the same?",
        where=str(target.adapter),
        next="evaluate it on the base that its adapter_config.json names",
    )


def _is_base(named: str, folder: Path) -> bool:
    """Whether a base's name, repo or path, means the checkpoint in `folder`."""
    names = {folder.name, _said(folder / "config.json", "_name_or_path")}
    cached = "models--" + named.replace("/", "--")  # a snapshot in the Hub's cache
    if named in names or named.rstrip("/").rpartition("/")[2] in names or cached in folder.parts:
        return True
    try:
        there = Path(named)
        return there.is_dir() and model_weights(there) == model_weights(folder)
    except (OSError, ValueError, CheckError):
        return False


def _said(file: Path, key: str) -> str:
    try:
        return str(json.loads(file.read_bytes()).get(key) or "")
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""  # loading it says what is wrong with it


def endpoint_digest(url: str) -> str:
    """Digest of a server's address without credentials: two addresses are two servers."""
    return sha256_bytes(re.sub(r"//[^/?#]*@", "//", url.rstrip("/")).encode())


def _folders(model: Path, adapter: Path | None) -> Iterator[tuple[str, Path]]:
    yield "", model
    if adapter is not None:
        yield "adapter/", adapter
