"""GGUF headers against files made by the reference writer, and against ones that lie."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import gguf as reference
import numpy as np
import pytest

from hubtools.checkpoint.inspecting import gguf
from hubtools.checkpoint.inspecting.gguf import header_of, read_gguf
from hubtools.checkpoint.inspecting.look import look
from hubtools.errors import CheckError


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A small model of two tensors, one of them in Q8_0, with a vocabulary."""
    path = tmp_path / "tiny-Q8_0.gguf"
    writer = reference.GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_file_type(reference.LlamaFileType.MOSTLY_Q8_0)
    writer.add_block_count(1)
    writer.add_tokenizer_model("gpt2")
    writer.add_chat_template("{{ messages }}")
    writer.add_token_list([f"token{i}" for i in range(300)])
    writer.add_token_scores([0.5] * 300)
    writer.add_string("quantize.imatrix.file", "/home/ann/imatrix.dat")
    weights = np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32)
    packed = reference.quants.quantize(weights, reference.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blk.0.w", packed, raw_dtype=reference.GGMLQuantizationType.Q8_0)
    writer.add_tensor("norm", np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_what_the_reference_writer_wrote(written: Path) -> None:
    info = read_gguf(written)
    assert (info.architecture, info.name, info.quantisation) == ("llama", "Tiny", "Q8_0")
    assert (info.tensors, info.parameters) == (2, 64 * 32 + 32)
    assert info.dtypes == {"Q8_0": (1, 2048), "F32": (1, 32)}
    assert info.texts["quantize.imatrix.file"] == "/home/ann/imatrix.dat"


def test_tokenizer_and_template_inside_the_file_are_told(written: Path) -> None:
    seen = look(written)
    assert (seen.tokenizer, seen.chat_template) == (("tokenizer.ggml (in the GGUF)",), True)


def test_the_tables_are_those_of_the_reference() -> None:
    types = {int(k): (k.name, *v) for k, v in reference.GGML_QUANT_SIZES.items()}
    assert gguf._TYPES == types
    names = {int(kind): kind.name for kind in reference.LlamaFileType if kind.name != "GUESSED"}
    assert gguf._FILE_TYPES == {
        number: name.removeprefix("MOSTLY_").removeprefix("ALL_") for number, name in names.items()
    }


def test_a_beginning_is_told_from_a_whole_header(written: Path) -> None:
    data = written.read_bytes()
    size = len(data)
    whole = [header_of(data[:length], size, written) for length in range(0, size, 97)]
    assert whole.index(True) > 20
    assert whole == sorted(whole)


def change(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert data.count(old) >= 1
    path.write_bytes(data.replace(old, new, 1))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def in_the_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


def other_magic(path: Path) -> None:
    change(path, b"GGUF", b"GGML")


def big_endian(path: Path) -> None:
    change(path, b"GGUF" + struct.pack("<I", 3), b"GGUF" + struct.pack(">I", 3))


def many_tensors(path: Path) -> None:
    change(path, struct.pack("<IQ", 3, 2), struct.pack("<IQ", 3, 1 << 60))


def long_text(path: Path) -> None:
    change(path, struct.pack("<Q", 4) + b"Tiny", struct.pack("<Q", 1 << 62) + b"Tiny")


def huge_array(path: Path) -> None:
    change(path, struct.pack("<IQ", 8, 300), struct.pack("<IQ", 8, 1 << 50))


def twins(path: Path) -> None:
    writer = path.read_bytes()
    path.write_bytes(
        writer.replace(struct.pack("<Q", 7) + b"blk.0.w", struct.pack("<Q", 4) + b"norm")
    )


def odd_shape(path: Path) -> None:
    change(path, struct.pack("<IQQ", 2, 32, 64), struct.pack("<IQQ", 2, 31, 64))


def far_offset(path: Path) -> None:
    change(path, struct.pack("<IQI", 1, 32, 0), struct.pack("<IQI", 1, 1 << 40, 0))


def overlap(path: Path) -> None:
    norm = struct.pack("<Q", 4) + b"norm" + struct.pack("<IQIQ", 1, 32, 0, 64 * 34)
    change(path, norm, norm[:-8] + struct.pack("<Q", 32))


def unknown_value(path: Path) -> None:
    change(path, b"general.name" + struct.pack("<I", 8), b"general.name" + struct.pack("<I", 99))


@pytest.mark.parametrize(
    "damage",
    [cut, in_the_header, other_magic, big_endian, many_tensors, long_text, huge_array, twins,
     odd_shape, far_offset, overlap, unknown_value],
)  # fmt: skip
def test_a_header_that_lies_is_an_error(written: Path, damage: Any) -> None:
    damage(written)
    with pytest.raises(CheckError, match="HT179") as caught:
        read_gguf(written)
    assert caught.value.where == str(written)
    assert caught.value.next


def test_an_empty_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").touch()
    with pytest.raises(CheckError, match="HT179"):
        read_gguf(tmp_path / "x.gguf")


def test_millions_of_empty_strings_are_not_walked(tmp_path: Path) -> None:
    count = 4_000_000
    text = struct.pack("<Q", 1) + b"x" + struct.pack("<IIQ", 9, 8, count) + bytes(8 * count)
    file = tmp_path / "a.gguf"
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text)
    start = time.process_time()
    with pytest.raises(CheckError, match="HT179") as caught:
        read_gguf(file)
    assert "make sense" in caught.value.detail[0]
    assert time.process_time() - start < 1
    half = struct.pack("<IIQ", 9, 8, count // 2) + bytes(4 * count)
    pairs = b"".join(struct.pack("<Q", 1) + name + half for name in (b"x", b"y"))
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + pairs)
    with pytest.raises(CheckError, match="HT179"):
        read_gguf(file)
