"""Path patterns against git's own matching."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hubtools.localhub.patterns import is_ignored, is_lfs, lfs_patterns
from hubtools.localhub.vocabulary import LFS_PATTERNS

PATHS = [
    "a.log",
    "logs/a.log",
    "logs/deep/b.txt",
    "src/logs/c.txt",
    "build",
    "build/x",
    "src/build/x",
    "keep.log",
    "a1.tmp",
    "ab.tmp",
    "x/y/z/end.bin",
    "x/end.bin",
    "doc/one.md",
    "doc/two/three.md",
]
IGNORES = [
    "*.log\n!keep.log\n",
    "logs/\n",
    "/build\n",
    "build/\n# comment\n\n",
    "a[0-9].tmp\n",
    "a[!0-9].tmp\n",
    "a?.tmp\n",
    "x/**/end.bin\n",
    "doc/*.md\n",
    "**/logs\n",
    "doc/**\n",
]


@pytest.mark.parametrize("rules", IGNORES)
def test_ignoring_is_gits(tmp_path: Path, rules: str) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text(rules)
    command = ["git", "-C", str(tmp_path), "check-ignore", "--no-index", "--stdin"]
    done = subprocess.run(command, input="\n".join(PATHS), capture_output=True, text=True)
    assert [path for path in PATHS if is_ignored(path, rules)] == done.stdout.split()


def test_lfs_attributes_are_gits(tmp_path: Path) -> None:
    text = "".join(f"{p} filter=lfs diff=lfs merge=lfs -text\n" for p in LFS_PATTERNS)
    text += "*.txt text\n# *.py filter=lfs\nbig/*.json filter=lfs -text\n"
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitattributes").write_text(text)
    paths = ["model.safetensors", "sub/x.bin", "a.txt", "b.py", "big/a.json", "a.json", "a.tar.gz"]
    paths += ["saved_model/variables/v.index", "events.out.tfevents.1", "tfevents.9", "x.tar"]
    command = ["git", "-C", str(tmp_path), "check-attr", "filter", "--stdin"]
    done = subprocess.run(command, input="\n".join(paths), capture_output=True, text=True)
    theirs = [line.split(":")[0] for line in done.stdout.splitlines() if line.endswith(": lfs")]
    assert [path for path in paths if is_lfs(path, lfs_patterns(text))] == theirs
    assert "model.safetensors" in theirs
