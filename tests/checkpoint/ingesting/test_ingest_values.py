"""Values that were scribbled over, rotted or are of another kind are refused or harmless."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ingest_cases import actor, rank_file, refused, whole
from trainer_dirs import model_of, save_side_files

from hubtools.checkpoint.ingesting.dcp import Dcp
from hubtools.checkpoint.ingesting.ranks import rank_files, read_ranks
from hubtools.errors import CheckError

Copy = Callable[[str], Path]


@pytest.mark.parametrize(
    ("dtype", "value", "word"),
    [
        ("bfloat16", float("nan"), "NaN"),
        ("float32", float("inf"), "infinity"),
        ("float16", 70_000.0, "too large"),
    ],
)
def test_values_that_cannot_be_written(
    tmp_path: Path, here: Any, dtype: str, value: float, word: str
) -> None:
    def edit(state: dict[str, Any]) -> None:
        state["model.layers.1.mlp.up_proj.weight"][7, 7] = value

    run = whole(tmp_path, "llama", edit)
    refused("HT117", lambda: here(run, dtype=dtype), "layers.1.mlp.up_proj", word)


def scribbled(data: bytes, chance: random.Random, ends: int) -> bytes:
    """The bytes with a few others in them, mostly where a file describes itself; or cut short."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 3, 10])):
        place = chance.choice([chance.randrange(ends), -1 - chance.randrange(ends)])
        changed[place] = chance.randrange(256)
    return bytes(changed[: chance.randrange(len(changed))] if chance.random() < 0.1 else changed)


@pytest.mark.parametrize("seed", range(3))
def test_scribbles_in_a_rank_file_are_an_error_or_harmless(copied: Copy, seed: int) -> None:
    run = copied("fsdp1")
    good, chance = rank_file(run, 1).read_bytes(), random.Random(seed)
    caught = 0
    for _ in range(25):
        rank_file(run, 1).write_bytes(scribbled(good, chance, 9000))
        try:
            read_ranks(rank_files(actor(run)))
        except CheckError as error:
            caught += error.id in ("HT167", "HT168")
    assert caught > 5


@pytest.mark.parametrize("seed", range(3))
def test_scribbles_in_a_metadata_file_are_an_error_or_harmless(copied: Copy, seed: int) -> None:
    run = copied("dcp-app")
    good, chance = (run / ".metadata").read_bytes(), random.Random(seed)
    caught = 0
    for _ in range(25):
        (run / ".metadata").write_bytes(scribbled(good, chance, len(good)))
        try:
            found = Dcp(run)
            for name in found.shapes:
                found.tensor(name)
        except CheckError as error:
            caught += error.id == "HT168"
    assert caught > 5


def pickled(folder: Path, change: Callable[[str, Any], Any], **config: Any) -> Path:
    """A directory with a pickle of the model whose tensors `change` has changed."""
    save_side_files(folder, "llama")
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    state = {name: change(name, tensor) for name, tensor in model_of("llama").state_dict().items()}
    torch.save(state, folder / "pytorch_model.bin")
    return folder


@pytest.mark.parametrize("kind", [torch.int8, torch.bool, torch.float8_e4m3fn])
def test_numbers_of_another_kind(tmp_path: Path, here: Any, kind: Any) -> None:
    run = pickled(tmp_path / "run", lambda name, t: t.to(kind) if "q_proj" in name else t)
    for dtype in (None, "float32"):
        refused("HT171", lambda dtype=dtype: here(run, dtype=dtype, check=True), "q_proj", "2 ")


def test_four_bits_are_refused_by_name(tmp_path: Path, here: Any) -> None:
    run = tmp_path / "run"
    model_of("llama").save_pretrained(run)
    file = run / "model.safetensors"
    length = int.from_bytes(file.read_bytes()[:8], "little")
    header = json.loads(file.read_bytes()[8 : 8 + length])
    entry = header["lm_head.weight"]
    entry["dtype"], entry["shape"] = "F4", [entry["shape"][0], entry["shape"][1] * 8]
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + file.read_bytes()[8 + length :])
    refused("HT171", lambda: here(run, check=True), "lm_head.weight is F4")


def test_a_dtype_that_is_offered_is_taken(tmp_path: Path, here: Any) -> None:
    run = pickled(tmp_path / "run", lambda _, tensor: tensor, dtype="float64")
    refused("HT170", lambda: here(run, check=True), "--dtype float64")
    assert here(run, dtype="float64", check=True)["report"]["dtypes_out"].keys() == {"F64"}


def test_auto_is_no_dtype(tmp_path: Path, here: Any) -> None:
    run = pickled(tmp_path / "run", lambda _, tensor: tensor, dtype="auto")
    here(run)
    assert json.loads((tmp_path / "out/config.json").read_text())["dtype"] == "float32"


def flipped(file: Path) -> None:
    """One bit of the largest tensor is another one."""
    with zipfile.ZipFile(file) as archive:
        record = max(
            (r for r in archive.infolist() if "/data/" in r.filename), key=lambda r: r.file_size
        )
    data = bytearray(file.read_bytes())
    at = record.header_offset + 26
    name, extra = (int.from_bytes(data[i : i + 2], "little") for i in (at, at + 2))
    data[at + 4 + name + extra + record.file_size // 2 // 4 * 4 + 1] ^= 0x10
    file.write_bytes(data)


@pytest.mark.parametrize("run", ["fsdp1", "columns"])
def test_bits_that_rotted(copied: Copy, tmp_path: Path, here: Any, run: str) -> None:
    step = copied(run)
    flipped(rank_file(step, 1))
    refused("HT168", lambda: here(step, dtype="float32"), "CRC-32")
    assert not (tmp_path / "out/model.safetensors").exists()


def test_a_file_saved_without_checksums(tmp_path: Path, here: Any) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        run = pickled(tmp_path / "run", lambda _, tensor: tensor)
    finally:
        torch.serialization.set_crc32_options(True)
    here(run, dtype="float32")
