"""Files, sizes and dtypes of the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from our_merge import merged
from safetensors import safe_open
from zoo import Zoo

from hubtools.checkpoint.adapter import open_adapter
from hubtools.checkpoint.merging import layout
from hubtools.checkpoint.merging.options import MergeOptions
from hubtools.checkpoint.merging.plan import MergePlan, plan_merge
from hubtools.checkpoint.shards import read_weights
from hubtools.errors import UsageError


def plan(base: Path, *adapters: Path, **options: Any) -> MergePlan:
    opened = [open_adapter(adapter, base.parent) for adapter in adapters]
    return plan_merge(opened, base, MergeOptions(**options))


def test_nothing_moves_when_no_size_changes(zoo: Zoo) -> None:
    base, adapter = zoo.pair("llama", "save both", shard="60KB")
    made = plan(base, adapter)
    assert [file.name for file in made.layout.files] == sorted(
        file.name for file in base.glob("*.safetensors")
    )
    assert all(file.like is not None for file in made.layout.files)
    assert made.layout.index_bytes == (base / "model.safetensors.index.json").read_bytes()


def test_new_sizes_are_dealt_out_again(
    zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "SHARD_BYTES", 1)  # then the base's largest file decides
    base, adapter = zoo.pair("llama", "resized", shard="60KB")
    made = plan(base, adapter)
    largest = max(header.size - header.data_start for header in read_weights(base).headers.values())
    sizes = [sum(output.bytes for output in file.outputs) for file in made.layout.files]
    assert len(sizes) > 2
    assert max(sizes) <= largest
    assert made.layout.files[-1].name == f"model-{len(sizes):05}-of-{len(sizes):05}.safetensors"
    index = made.layout.index
    assert index is not None
    assert index["metadata"]["total_size"] == sum(sizes)
    assert index["weight_map"] == {
        output.name: file.name for file in made.layout.files for output in file.outputs
    }
    names = [output.name for output in made.layout.outputs()]
    assert names == [e.name for h in read_weights(base).headers.values() for e in h.tensors]


def test_what_fits_one_file_is_one_file(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("llama", "resized", shard="60KB")
    tensors, _ = merged(base, adapter, tmp_path / "out")
    assert [file.name for file in (tmp_path / "out").glob("*.safetensors*")] == [
        "model.safetensors"
    ]
    assert tensors["lm_head.weight"].shape == (136, 64)
    with safe_open(tmp_path / "out" / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_another_dtype(zoo: Zoo, tmp_path: Path) -> None:
    import torch

    base, adapter = zoo.pair("llama", "plain")
    tensors, report = merged(base, adapter, tmp_path / "out", dtype="float32")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    config = json.loads((tmp_path / "out" / "config.json").read_bytes())
    assert config == {**json.loads((base / "config.json").read_bytes()), "dtype": "float32"}
    assert report["options"]["dtype"] == "float32"


def test_the_dtype_it_has_already(zoo: Zoo) -> None:
    base, adapter = zoo.pair("llama", "plain")
    made = plan(base, adapter, dtype="bfloat16")
    assert made.config_edits == {}
    assert made.layout.files[0].like is not None


def test_a_dtype_that_is_none() -> None:
    with pytest.raises(UsageError, match="HT144"):
        MergeOptions(dtype="int4")


def test_options_survive_the_way_to_the_child() -> None:
    options = MergeOptions(keep_tied=True, dtype="float16")
    assert MergeOptions.from_json(options.to_json()) == options


def test_an_unknown_dtype_inside_the_base_keeps(zoo: Zoo, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    base, adapter = zoo.pair("llama", "plain")
    copy = tmp_path / "base"
    copy.mkdir()
    for file in base.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    tensors = {**load_file(base / "model.safetensors"), "counts": torch.arange(3)}
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    ours, _ = merged(copy, adapter, tmp_path / "out", dtype="float16")
    assert ours["counts"].tolist() == [0, 1, 2]
    assert ours["lm_head.weight"].dtype == torch.float16
