"""Our merge, as the tests of bit-equality call it hundreds of times."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from oracle import stored

from hubtools.checkpoint.merging.merge import merge
from hubtools.checkpoint.merging.options import MergeOptions

_CHILDREN = (
    "hubtools.checkpoint.merging.child",
    "hubtools.checkpoint.merging.logits_child",
    "hubtools.checkpoint.merging.peft_child",
    "hubtools.checkpoint.naming.names_child",
    "hubtools.checkpoint.pickled_child",
    "hubtools.checkpoint.talk_child",
)


def merged(
    base: Path, adapters: Path | Sequence[Path], out: Path, **options: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(tensors by on-disk name, report) of our merge; `options` are those of MergeOptions."""
    several = [adapters] if isinstance(adapters, Path) else list(adapters)
    result = merge(several, base, out, options=MergeOptions(**options), log=out.with_name("log"))
    return stored(out), result["report"]


@contextmanager
def no_processes() -> Iterator[None]:
    """Run the work of the child processes here, the same functions on the same JSON; sync no disk.

    Saves seconds of imports a merge; that the processes work is tested with single merges.
    """
    patch = pytest.MonkeyPatch()
    patch.setattr(os, "fsync", lambda descriptor: None)
    for name in _CHILDREN:
        importlib.import_module(name)
    for name, module in list(sys.modules.items()):
        if name.startswith("hubtools.checkpoint"):
            if hasattr(module, "run_child"):
                patch.setattr(module, "run_child", _run_here)
            if hasattr(module, "Child"):
                patch.setattr(module, "Child", _ChildHere)
    # The place where a module that imports it late finds it.
    patch.setattr("hubtools.children.run_child", _run_here)
    try:
        yield
    finally:
        patch.undo()


def _run_here(module: str, job: Any, *, progress: Any = None, **_: Any) -> Any:
    assert module in _CHILDREN

    def ignore(label: str, done: int, total: int | None, unit: str) -> None: ...

    work = importlib.import_module(module).work
    return json.loads(json.dumps(work(json.loads(json.dumps(job)), progress or ignore)))


class _ChildHere:
    """Stands for a process that was started before its job was known."""

    def __init__(self, module: str, **_: Any) -> None:
        self._module = module

    def __enter__(self) -> _ChildHere:
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self, job: Any, *, what: str, progress: Any) -> Any:
        return _run_here(self._module, job, progress=progress)
