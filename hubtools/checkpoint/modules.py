"""The Python modules a model brings along: the ones it names, and those they import from beside it.

Source: transformers copies the file of an `auto_map` class and, in turn, each `from .name import`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

NAMED = ("configuration_*.py", "modeling_*.py", "tokenization_*.py", "*processing_*.py")
"""How such modules are called; training scripts have other names."""

_CONFIGS = (
    "config.json", "generation_config.json", "tokenizer_config.json", "processor_config.json",
    "preprocessor_config.json", "video_preprocessor_config.json",
)  # fmt: skip
_FROM = re.compile(r"^[ \t]*from[ \t]+\.(\w*)[ \t]+import[ \t]+([^\n#]*)", re.MULTILINE)
_LIMIT = 4 << 20


def own_modules(folder: Path) -> tuple[str, ...]:
    """Names of the Python files directly in `folder` that belong to the model there, sorted."""
    here = {file.name for file in folder.glob("*.py")} if folder.is_dir() else set()
    waiting = [name for name in here if any(fnmatchcase(name, pattern) for pattern in NAMED)]
    if here:
        waiting += [name for name in mapped(_configs(folder)) if name in here]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [other for other in _imported(folder / name) if other in here]
    return tuple(sorted(found))


def mapped(configs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The file of every class that an `auto_map` names in this repo.

    Args:
        configs: file name → content.
    """
    for fields in configs.values():
        yield from (f"{t.partition('.')[0]}.py" for t in _targets(fields) if "--" not in t)


def foreign_classes(fields: Mapping[str, Any]) -> list[str]:
    """The classes that an `auto_map` takes from another repo, as it names them."""
    return [target for target in _targets(fields) if "--" in target]


def _targets(fields: Mapping[str, Any]) -> Iterator[str]:
    named = fields.get("auto_map")
    for value in named.values() if isinstance(named, Mapping) else ():
        for target in value if isinstance(value, list) else [value]:
            if isinstance(target, str):
                yield target


def brings_code(folder: Path) -> bool:
    """Whether loading the model in `folder` runs Python of its own."""
    return any(True for _ in mapped(_configs(folder)))


def _configs(folder: Path) -> dict[str, dict[str, Any]]:
    """Those that can be read; the others are told of where they are used."""
    found = {}
    for name in _CONFIGS:
        try:
            value = json.loads((folder / name).read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found[name] = value
    return found


def _imported(file: Path) -> Iterator[str]:
    """Files beside it that a module imports; transformers follows the same form alone."""
    if not file.is_file() or file.stat().st_size > _LIMIT:
        return
    for match in _FROM.finditer(file.read_text(encoding="utf-8", errors="replace")):
        module, names = match[1], match[2]
        yield from (f"{name}.py" for name in ([module] if module else re.findall(r"\w+", names)))
