"""A merge gives PEFT's bytes, in the base's files, with the right files beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_models import LINEAR

from hubtools.checkpoint.merge import merge
from hubtools.digests import sha256_file


def by_peft(base: Path, adapter: Path) -> dict[str, Any]:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    return dict(model.merge_and_unload().state_dict())


def loaded(path: Path) -> dict[str, Any]:
    from transformers import AutoModelForCausalLM

    return dict(AutoModelForCausalLM.from_pretrained(path).state_dict())


def assert_same_bytes(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    import torch

    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype, name
        same = torch.equal(
            ours[name].contiguous().view(torch.uint8), tensor.contiguous().view(torch.uint8)
        )
        assert same, name


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("kind", sorted(LINEAR))
def test_bytes_are_those_of_peft(made: Any, tmp_path: Path, kind: str, dtype: str) -> None:
    base, adapter = made(kind, dtype)
    result = merge(adapter, base, tmp_path / "out", log=tmp_path / "log")
    assert_same_bytes(loaded(tmp_path / "out"), by_peft(base, adapter))
    assert result["report"]["changed_tensors"] == 2 * len(LINEAR[kind])
    assert result["report"]["engine"] == "numpy"
    assert 0 < result["report"]["moved_elements"] <= result["report"]["changed_elements"]
