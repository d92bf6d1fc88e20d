"""The files of a checkpoint directory: what belongs to it, what is foreign, what brings code."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from hubtools.checkpoint.carry import belongs
from hubtools.checkpoint.modules import foreign_classes, mapped

FILE_LIMIT = 20_000
_OURS = ("README.md", ".gitattributes")  # the Hub makes the second one itself
# First match wins; a pattern with a slash is held against the whole name.
_FOREIGN = (
    ("version control", (".git/*", "*/.git/*", ".gitattributes", ".gitignore")),
    ("run logs", ("*wandb/*", "*mlruns/*", "runs/*", "logs/*", "*.log", "events.out.tfevents*")),
    ("cache", (".cache/*", "*__pycache__/*", "*.pyc", "*.lock", "*.incomplete", "*.tmp")),
    ("optimizer state", ("optimizer*", "optim_*", "*optim_states.pt", "*optimizer*/*")),
    ("scheduler state", ("scheduler.pt", "scheduler.bin", "scaler.pt")),
    ("random state", ("rng_state*", "random_states_*")),
    ("trainer state", ("trainer_state.json", "training_args.bin", "extra_state_*", "latest*",
                       "zero_to_fp32.py", "data.pt", "fsdp_config.json")),
    ("pickled weights", ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")),
    ("trainer shards", ("*.distcp", ".metadata")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Foreign:
    """Files of one sort that are not published.

    Args:
        what: which sort.
        files: how many.
        bytes: their size.
        example: the name of one.
    """

    what: str
    files: int
    bytes: int
    example: str


def list_files(path: Path) -> tuple[dict[str, int], bool]:
    """Name below `path` → size in bytes of every file, in name order, and whether that is all.

    Links to directories are not followed; links to files are (a download cache is made of them).
    """
    found: dict[str, int] = {}
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            file = Path(folder, name)
            if file.is_file():
                found[file.relative_to(path).as_posix()] = file.stat().st_size
            if len(found) >= FILE_LIMIT:
                return found, False
    return dict(sorted(found.items())), True


def foreign_files(
    files: Mapping[str, int], kind: str, own: Collection[str] = (), inside: Iterable[str] = ()
) -> tuple[Foreign, ...]:
    """What of `files` is not part of a published checkpoint, by sort.

    Args:
        files: name → bytes.
        kind: `adapter`, or anything else for a model.
        own: names that belong to it all the same, as its weights do in whatever form.
        inside: folders that are checkpoints of their own; what they hold is theirs.
    """
    sorts: dict[str, list[str]] = {}
    others = tuple(f"{folder}/" for folder in inside)
    for name in files:
        ours = name in own or name in _OURS or name.startswith((*others, ".hubtools/"))
        if not ours and not belongs(name, kind):
            sorts.setdefault(_sort(name), []).append(name)
    return tuple(
        Foreign(what, len(names), sum(files[name] for name in names), names[0])
        for what, names in sorted(sorts.items())
    )


def custom_code(
    files: Collection[str], configs: Mapping[str, Mapping[str, Any]], modules: Iterable[str]
) -> list[str]:
    """Python that loading this checkpoint would run: its modules, and classes from other repos.

    Args:
        files: names of what is there.
        configs: file name → content of its JSON files.
        modules: the model's `own_modules`.
    """
    code = set(modules)
    for file, fields in configs.items():
        missing = [module for module in mapped({file: fields}) if module not in files]
        code.update(f"{module} (named in {file}, missing)" for module in missing)
        code.update(f"{target} ({file})" for target in foreign_classes(fields))
    return sorted(code)


def _sort(name: str) -> str:
    last = name.rpartition("/")[2]
    for what, patterns in _FOREIGN:
        if any(fnmatchcase(name if "/" in p else last, p) for p in patterns):
            return what
    return "other"
