"""Configs as they may be published: no path of the machine that trained them. Pure."""

from __future__ import annotations

import json
import re

_FIELDS = {"adapter_config.json": "base_model_name_or_path", "config.json": "_name_or_path"}
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def published_config(name: str, data: bytes, *, base: str, revision: str) -> bytes | None:
    """The config with a local path replaced by the base's Hub id; None when it holds none.

    The Hub refuses a card whose base is a path, PEFT would look for it on the reader's disk, and
    it tells where the author works (huggingface/peft#2124).

    Args:
        name: file name; others than `config.json` and `adapter_config.json` are left alone.
        data: its bytes, a JSON object.
        base: Hub id of the base.
        revision: its commit, written beside the id in an adapter's config.
    """
    field = _FIELDS.get(name)
    if field is None:
        return None
    config = json.loads(data)
    named = config.get(field)
    if not named or _is_repo_id(str(named)):
        return None
    config[field] = base
    if name == "adapter_config.json":
        config["revision"] = revision or None
    return json.dumps(config, indent=2, ensure_ascii=False).encode() + b"\n"


def _is_repo_id(name: str) -> bool:
    return _REPO.fullmatch(name) is not None and not name.endswith((".", "/"))
