"""The whole way of single merges: real processes, nothing shared with a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from oracle import assert_same_bytes, peft_merged, stored
from zoo import Zoo

from hubtools.checkpoint.merging.merge import merge
from hubtools.digests import sha256_file

CASES = [
    ("llama", "plain"),
    ("llama", "bin"),
    ("qwen3", "dora"),
    ("gpt2", "plain"),
    ("mixtral", "gate_up and down"),
    ("qwen2_5_vl", "plain"),
]


@pytest.mark.parametrize(("kind", "variant"), CASES)
def test_bytes_digests_and_report(zoo: Zoo, tmp_path: Path, kind: str, variant: str) -> None:
    base, adapter = zoo.pair(kind, variant)
    out = tmp_path / "out"
    result = merge([adapter], base, out, log=tmp_path / "log")
    assert_same_bytes(stored(out), peft_merged(base, adapter))
    assert {file.name: sha256_file(file) for file in out.iterdir()} == {
        name: file["sha256"] for name, file in result["files"].items()
    }
    assert result["weights"].keys() == {file.name for file in out.glob("*.safetensors")}
    assert list((tmp_path / ".out.merge").rglob("*.safetensors")) == []


def test_equal_inputs_give_an_equal_report(zoo: Zoo, tmp_path: Path) -> None:
    """Nothing of the time, the machine or the place is in it: it is compared and published."""
    base, adapter = zoo.pair("llama", "patterns")
    first, second = (
        merge([adapter], base, tmp_path / name, log=tmp_path / f"log-{name}")
        for name in ("one", "two")
    )
    assert first == second
    assert str(tmp_path) not in json.dumps(first)
    assert str(base.parent) not in json.dumps(first)


PLAN = """
import sys
from pathlib import Path
from hubtools.checkpoint.adapter import open_adapter
from hubtools.checkpoint.merging.plan import plan_merge
adapter, base = map(Path, sys.argv[1:])
plan_merge([open_adapter(adapter, base.parent / "scratch")], base)
print(sorted({"torch", "transformers", "peft", "huggingface_hub"} & sys.modules.keys()))
"""


@pytest.mark.parametrize(("kind", "variant"), [("llama", "plain"), ("qwen3", "rslora patterns")])
def test_plain_names_need_no_framework(zoo: Zoo, kind: str, variant: str) -> None:
    base, adapter = zoo.pair(kind, variant)
    argv = [sys.executable, "-c", PLAN, str(adapter), str(base)]
    answer: Any = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
