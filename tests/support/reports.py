"""What the tests of public reports share: damaged copies and how a refusal must look."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle import adapter_logits, merged_logits
from our_merge import merged

from hubtools.errors import HubtoolsError

WEIGHTS = "adapter_model.safetensors"
HEAD = "base_model.model."


def copied(adapter: Path, to: Path) -> Path:
    return Path(shutil.copytree(adapter, to))


def edit_config(folder: Path, name: str = "adapter_config.json", **changes: Any) -> None:
    file = folder / name
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **changes}))


def edit_tensors(adapter: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(adapter / WEIGHTS)
    change(tensors)
    save_file(tensors, adapter / WEIGHTS)


def refused(base: Path, adapter: Path, out: Path, *ids: str, **options: Any) -> HubtoolsError:
    with pytest.raises(HubtoolsError) as caught:
        merged(base, adapter, out, **options)
    assert caught.value.id in ids, caught.value
    assert caught.value.next
    assert not out.exists()
    return caught.value


def assert_answers_as_the_adapter(base: Path, adapter: Path, out: Path) -> None:
    wanted = adapter_logits(base, adapter, double=True)
    assert (merged_logits(out, double=True) - wanted).abs().max() < 2e-6
