"""Pickles are read for what they give away and can do nothing, whatever they were built to do."""

from __future__ import annotations

import os
import pickle
import time
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from hubtools.checkpoint.inspecting.pickled_tensors import file_tensors
from hubtools.checkpoint.inspecting.texts import texts
from hubtools.checkpoint.unpickle import (
    SIZE_LIMIT,
    TABLE_LIMIT,
    Record,
    TooLargeForReader,
    read_pickle,
)
from hubtools.errors import CheckError


def read(tmp_path: Path, data: bytes) -> Any:
    file = tmp_path / "training_args.bin"
    file.write_bytes(data)
    return read_pickle(file)


class Touch:
    """What an attacker writes: loading it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_a_command_does_not(tmp_path: Path, protocol: int) -> None:
    trap = tmp_path / "sprung"
    data = pickle.dumps({"output_dir": Touch(trap)}, protocol)
    pickle.loads(data)  # noqa: S301
    assert trap.exists(), "the trap works"
    trap.unlink()
    value = read(tmp_path, data)
    assert not trap.exists()
    assert isinstance(value["output_dir"], Record)
    assert value["output_dir"].name.endswith(".system")
    assert value["output_dir"].args == (f"touch {trap}",)


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'touch sprung'\ntR.",
        b"(S'touch sprung'\nios\nsystem\n.",
        b"(cos\nsystem\nS'touch sprung'\no.",
        b"\x80\x02cos\nsystem\nX\x0c\x00\x00\x00touch sprung\x85\x81.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0ctouch sprung\x85}\x92.",
        b"cbuiltins\ngetattr\n(cos\n__dict__\nS'system'\ntRS'touch sprung'\n\x85R.",
    ],
)
def test_every_opcode_that_calls_makes_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    value = read(tmp_path, data)
    assert isinstance(value, Record)
    assert "touch sprung" in {text for _, text in texts(value)}
    assert not (tmp_path / "sprung").exists()


def test_no_module_is_imported(tmp_path: Path) -> None:
    import sys

    sys.modules.pop("this", None)
    value = read(tmp_path, b"cthis\ns\n.")
    assert value.name == "this.s"
    assert "this" not in sys.modules


def laughs(depth: int) -> bytes:
    """Lists of lists: 2 ** depth items when followed, `depth` when each is followed once."""
    data = b"(lp0\nVx\na"
    for level in range(1, depth):
        data += b"0(lp%d\ng%d\nag%d\na" % (level, level - 1, level - 1)
    return data


BOMBS = {
    "steps": b"N" * 3_000_000 + b".",
    "huge integer": b"I" + b"9" * 100_000 + b"\n.",
    "bytes past the end": b"\x8e" + b"\xff" * 7 + b"\x00.",
    "bytearray past the end": b"\x96" + b"\xff" * 7 + b"\x7f.",
    "ends early": b"\x80\x04]",
    "stack runs out": b"\x80\x04R.",
    "no mark": b"\x80\x04t.",
    "unknown opcode": b"\x80\x04\xff.",
    "memo miss": b"g5\n.",
    "odd pairs": b"(S'a'\nd.",
    "no pickle": b"GGUF",
    "empty": b"",
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_cannot_be_read_is_an_error_with_a_fix(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckError, match="HT180") as caught:
        read(tmp_path, BOMBS[name])
    assert caught.value.where.endswith("training_args.bin")
    assert caught.value.next


DEEP = b"\x80\x04)" + b"\x85" * 500_000


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (laughs(60) + b".", 1),
        (laughs(60) + b"Va\n\x93.", 0),  # as the name of a global
        (DEEP + b".", 0),
        (b"}" + DEEP[2:] + b"Ns.", 0),  # as a key, which Python would hash without end
        (b"Nr\xff\xff\xff\x7f.", 0),  # a memo slot far away, which C fills up to
        (b"\x8b" + (1 << 20).to_bytes(4, "little") + b"\x7f" * (1 << 20)
         + b"q\x00}" + b"h\x00Ns" * 100_000 + b".", 0),
        (b"(lp0\ng0\nag0\na.", 0),  # a list in itself
    ],
)  # fmt: skip
def test_bombs_are_read_in_linear_time(tmp_path: Path, data: bytes, count: int) -> None:
    start = time.process_time()
    assert len(list(texts(read(tmp_path, data)))) == count
    assert time.process_time() - start < 20


def test_too_large_a_file_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "training_args.bin"
    with file.open("wb") as stream:
        stream.truncate(SIZE_LIMIT + 1)
    with pytest.raises(CheckError, match="32 MiB"):
        read_pickle(file)


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    file = tmp_path / "training_args.bin"
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("archive/data.pkl", "w") as member,
    ):
        for _ in range(40):
            member.write(b"N" * (1 << 20))
    assert file.stat().st_size < 1 << 20
    with pytest.raises(CheckError, match="32 MiB"):
        read_pickle(file)


@pytest.mark.parametrize("damage", ["no data.pkl", "cut"])
def test_a_damaged_zip_is_an_error(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "training_args.bin"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/other", pickle.dumps(1))
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(CheckError, match="HT180"):
        read_pickle(file)


@pytest.mark.parametrize("zipped", [True, False])
def test_training_arguments_of_transformers(tmp_path: Path, zipped: bool) -> None:
    import torch
    from transformers import TrainingArguments

    file = tmp_path / "training_args.bin"
    arguments = TrainingArguments(output_dir="/home/ann/runs/a", run_name="try 3", use_cpu=True)
    torch.save(arguments, file, _use_new_zipfile_serialization=zipped)
    found = dict(texts(read_pickle(file)))
    assert found["/output_dir"] == "/home/ann/runs/a"
    assert found["/run_name"] == "try 3"


@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_are_described_without_their_bytes(tmp_path: Path, zipped: bool) -> None:
    import torch

    state = OrderedDict(
        a=torch.zeros(3, 5, dtype=torch.bfloat16),
        b=torch.nn.Parameter(torch.zeros(7)),
        c=torch.zeros((), dtype=torch.int64),
    )
    file = tmp_path / "pytorch_model.bin"
    torch.save(state, file, _use_new_zipfile_serialization=zipped)
    found = [(entry.name, entry.dtype, entry.shape) for entry in file_tensors(file)]
    assert found == [("a", "BF16", (3, 5)), ("b", "F32", (7,)), ("c", "I64", ())]
    torch.save({**state, "d": "no tensor"}, file)
    assert file_tensors(file) == []


def test_a_file_larger_than_the_limit_is_described_all_the_same(tmp_path: Path) -> None:
    import torch

    file = tmp_path / "pytorch_model.bin"
    torch.save({"w": torch.zeros(9 << 20)}, file)
    assert file.stat().st_size > SIZE_LIMIT
    (entry,) = file_tensors(file)
    assert entry.elements == 9 << 20


def ranks_and_states(folder: Path) -> Path:
    """`.metadata` of 64 ranks, 170 tensors and two optimizer states, as torch pickles it."""
    import torch
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        MetadataIndex,
        TensorProperties,
        TensorStorageMetadata,
    )

    tensors: dict[str, Any] = {}
    places: dict[MetadataIndex, Any] = {}
    whole, part = torch.Size([4096, 4096]), torch.Size([64, 4096])
    for name in (
        f"{side}layers.{i}.w" for side in ("m.", "optim.a.", "optim.b.") for i in range(170)
    ):
        offsets = [torch.Size([64 * rank, 0]) for rank in range(64)]
        for rank, offset in enumerate(offsets):
            places[MetadataIndex(name, offset)] = _StorageInfo(f"__{rank}_0.distcp", 0, 1000)
        chunks = [ChunkStorageMetadata(offset, part) for offset in offsets]
        properties = TensorProperties(dtype=torch.float32)
        tensors[name] = TensorStorageMetadata(properties, whole, chunks)
    (folder / ".metadata").write_bytes(pickle.dumps(Metadata(tensors, storage_data=places)))
    return folder / ".metadata"


def test_the_table_of_a_large_run_is_read(tmp_path: Path) -> None:
    from hubtools.checkpoint.ingesting.dcp import Dcp
    from hubtools.checkpoint.inspecting.look import look

    file = ranks_and_states(tmp_path)
    assert file.stat().st_size > 4_000_000
    for rank in range(64):
        (tmp_path / f"__{rank}_0.distcp").write_bytes(b"")
    seen = look(tmp_path)
    assert (seen.kind, seen.broken, seen.parameters) == ("dcp", False, 170 << 24)
    assert not [finding for finding in seen.findings if finding.id == "HT180"]
    assert len(Dcp(tmp_path).shapes) == 3 * 170


def test_a_reader_s_limit_is_no_damage_and_nothing_is_to_be_deleted(tmp_path: Path) -> None:
    from hubtools.checkpoint.ingesting.dcp import Dcp

    file = tmp_path / ".metadata"
    with file.open("wb") as stream:
        stream.truncate(TABLE_LIMIT + 1)
    with pytest.raises(TooLargeForReader, match="too large for this reader") as caught:
        Dcp(tmp_path)
    assert "delete" not in caught.value.next
    assert "dcp_to_torch" in caught.value.next
    file.write_bytes(b"N" * 4_000_000 + b".")
    with pytest.raises(TooLargeForReader, match="steps"):
        read_pickle(file, limit=TABLE_LIMIT)
    file.write_bytes(b"no pickle")
    with pytest.raises(CheckError, match="HT180") as damaged:
        read_pickle(file)
    assert not isinstance(damaged.value, TooLargeForReader)
    assert "delete" not in damaged.value.next


def test_keys_bytes_and_paths_are_texts_too(tmp_path: Path) -> None:
    value = {
        "/home/ann/mix.jsonl": 1,
        "raw": b"/home/ann/raw",
        "path": Path("/home/ann/runs/a"),
        "inner": {"k" * 2000: {"/home/ann/deep"}},
        "noise": b"\0" * 5000,
    }
    for protocol in range(6):
        found = list(texts(read(tmp_path, pickle.dumps(value, protocol))))
        told = {text: place for place, text in found}
        assert told["/home/ann/mix.jsonl"] == "/ (key)"
        assert told["/home/ann/runs/a"] == "/path"
        assert "/home/ann/deep" in told
        assert "k" * 2000 in told
        assert protocol < 3 or told["/home/ann/raw"] == "/raw"
