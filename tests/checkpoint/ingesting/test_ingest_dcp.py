"""torch.distributed.checkpoint directories, by their `.metadata`, and what a lying one meets."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from same_tensors import same
from trainer_dirs import save_side_files

from hubtools.errors import CheckError

LAYOUTS = [("dcp", "llama"), ("dcp-app", "tied"), ("dcp-moe", "moe")]


def with_side(run: Path, name: str) -> Path:
    save_side_files(run, name)
    return run


@pytest.mark.parametrize(("layout", "name"), LAYOUTS)
def test_the_bytes_of_save_pretrained(
    copied: Callable[[str], Path],
    reference: Any,
    here: Any,
    tmp_path: Path,
    layout: str,
    name: str,
) -> None:
    run = with_side(copied(layout), name)
    result = here(run, dtype="bfloat16")
    assert same(tmp_path / "out", reference(name))
    assert result["report"]["source"] == "dcp"
    assert result["report"]["world_size"] == 4
    # Optimizer and schedule lie in the same files and are left out.
    assert result["report"]["tensors"] == {"llama": 21, "tied": 26, "moe": 39}[name]


def test_a_missing_metadata_file(copied: Callable[[str], Path], here: Any) -> None:
    run = with_side(copied("dcp"), "llama")
    (run / "pytorch_model_fsdp_0" / ".metadata").unlink()
    with pytest.raises(CheckError, match=r"HT168") as caught:
        here(run, dtype="bfloat16", check=True)
    assert "interrupted" in caught.value.message


class Bomb:
    """Would make a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_a_hostile_metadata_file_runs_nothing(
    copied: Callable[[str], Path], here: Any, tmp_path: Path
) -> None:
    run = with_side(copied("dcp"), "llama")
    metadata = run / "pytorch_model_fsdp_0" / ".metadata"
    metadata.write_bytes(pickle.dumps(Bomb(tmp_path / "gone off")))
    with pytest.raises(CheckError, match=r"HT168"):
        here(run, dtype="bfloat16", check=True)
    assert not (tmp_path / "gone off").exists()


def test_a_hostile_shard_runs_nothing(
    copied: Callable[[str], Path], here: Any, tmp_path: Path
) -> None:
    import torch

    run = with_side(copied("dcp"), "llama")
    shard = run / "pytorch_model_fsdp_0" / "__0_0.distcp"
    torch.save({"x": Bomb(tmp_path / "gone off")}, tmp_path / "bomb")
    bomb = (tmp_path / "bomb").read_bytes()
    shard.write_bytes(bomb + bytes(max(0, shard.stat().st_size - len(bomb))))
    with pytest.raises(CheckError, match=r"HT168"):
        here(run, dtype="bfloat16", check=True)
    assert not (tmp_path / "gone off").exists()


def test_a_missing_and_a_truncated_data_file(copied: Callable[[str], Path], here: Any) -> None:
    run = with_side(copied("dcp"), "llama")
    shard = run / "pytorch_model_fsdp_0" / "__2_0.distcp"
    os.truncate(shard, shard.stat().st_size - 2000)
    with pytest.raises(CheckError, match=r"HT168.*shorter than \.metadata says"):
        here(run, dtype="bfloat16", check=True)
    shard.unlink()
    with pytest.raises(CheckError, match=r"HT168.*__2_0.distcp'"):
        here(run, dtype="bfloat16", check=True)


@pytest.mark.parametrize("name", ["../outside.distcp", "/etc/passwd", "."])
def test_a_data_file_elsewhere(
    copied: Callable[[str], Path], here: Any, tmp_path: Path, name: str
) -> None:
    run = with_side(copied("dcp"), "llama")
    folder = run / "pytorch_model_fsdp_0"
    shutil.copy(folder / "__0_0.distcp", run / "outside.distcp")
    change(folder / ".metadata", lambda info: {**info, "relative_path": name})
    with pytest.raises(CheckError, match=r"HT168.*not a file beside it"):
        here(run, dtype="bfloat16", check=True)


@pytest.mark.parametrize(
    ("field", "value"), [("offset", -5), ("length", 10**15), ("offset", "x"), ("length", None)]
)
def test_places_that_are_none(
    copied: Callable[[str], Path], here: Any, field: str, value: Any
) -> None:
    run = with_side(copied("dcp"), "llama")
    metadata = run / "pytorch_model_fsdp_0" / ".metadata"
    change(metadata, lambda info: {**info, field: value})
    with pytest.raises(CheckError, match=r"HT168"):
        here(run, dtype="bfloat16", check=True)


def test_compressed_tensors_are_refused_with_the_way_out(
    copied: Callable[[str], Path], here: Any
) -> None:
    run = with_side(copied("dcp"), "llama")
    metadata = run / "pytorch_model_fsdp_0" / ".metadata"
    change(metadata, lambda info: {**info, "transform_descriptors": ["zstd"]})
    with pytest.raises(CheckError, match=r"HT169.*zstd") as caught:
        here(run, dtype="bfloat16", check=True)
    assert "dcp_to_torch" in caught.value.next


def change(metadata: Path, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Edit the place of every tensor in a `.metadata`."""
    with metadata.open("rb") as stream:
        value = pickle.load(stream)  # noqa: S301 (written by this test session)
    for info in value.storage_data.values():
        state = edit(dict(vars(info)))
        vars(info).clear()
        vars(info).update(state)
    metadata.write_bytes(pickle.dumps(value))
