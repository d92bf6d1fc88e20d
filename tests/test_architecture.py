"""Modules that call themselves pure import nothing that reads files, clocks or the environment."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {
    "fcntl",
    "http",
    "io",
    "os",
    "platform",
    "random",
    "secrets",
    "shutil",
    "socket",
    "sqlite3",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "uuid",
}
CALLS = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "now", "today", "getenv"}


def pure_modules() -> Iterator[Path]:
    for package in ("hubtools", "eval_harness"):
        for path in sorted((ROOT / package).rglob("*.py")):
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            if "Pure." in text or "(pure)" in text or "Pure:" in text or "Pure and" in text:
                yield path


PURE = list(pure_modules())


def name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def test_there_are_pure_modules() -> None:
    assert ROOT / "hubtools" / "release" / "plan.py" in PURE


@pytest.mark.parametrize("path", PURE, ids=name)
def test_a_pure_module_reaches_nothing_outside(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.partition(".")[0])
    assert imported & OUTSIDE == set()
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    assert called & CALLS == set()


def test_every_pure_module_is_under_the_import_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (listed,) = [c["source_modules"] for c in contracts if c["name"].startswith("pure modules")]
    pure = [name(path) for path in PURE if path.parts[-2] != "eval_harness"]
    assert [module for module in pure if module not in listed] == []
