"""A header is believed only when it covers its file exactly."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubtools.checkpoint.headers import read_header
from hubtools.errors import CheckError

GOOD = {
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
}


def write(path: Path, header: Any, data: bytes = bytes(32), length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(text) if length is None else length
    path.write_bytes(length.to_bytes(8, "little") + text + data)
    return path


def refused(path: Path) -> str:
    with pytest.raises(CheckError) as caught:
        read_header(path)
    assert caught.value.id == "HT104"
    assert caught.value.where == str(path)
    return caught.value.detail[0]


def test_a_true_header(tmp_path: Path) -> None:
    header = read_header(write(tmp_path / "f", {"__metadata__": {"format": "pt"}, **GOOD}))
    assert [(t.name, t.dtype, t.shape, t.elements) for t in header.tensors] == [
        ("a", "F32", (2, 3), 6),
        ("b", "BF16", (4,), 4),
    ]
    assert header.tensors[0].begin == header.data_start
    assert header.tensors[1].end == header.size


LIES: dict[str, tuple[Any, bytes]] = {
    "overlap": ({**GOOD, "b": {**GOOD["b"], "data_offsets": [20, 28]}}, bytes(28)),
    "gap": ({**GOOD, "b": {**GOOD["b"], "data_offsets": [28, 36]}}, bytes(36)),
    "past the end": (GOOD, bytes(31)),
    "bytes left over": (GOOD, bytes(33)),
    "negative size": ({"a": {"dtype": "U8", "shape": [-2, -3], "data_offsets": [0, 6]}}, bytes(6)),
    "negative offset": ({"a": {"dtype": "U8", "shape": [8], "data_offsets": [-8, 0]}}, b""),
    "backwards": ({"a": {"dtype": "U8", "shape": [0], "data_offsets": [8, 0]}}, bytes(8)),
    "shape differs": ({"a": {"dtype": "U8", "shape": [7], "data_offsets": [0, 6]}}, bytes(6)),
    "boolean size": ({"a": {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}}, bytes(1)),
    "unknown dtype": ({"a": {"dtype": "F31", "shape": [6], "data_offsets": [0, 24]}}, bytes(24)),
    "no offsets": ({"a": {"dtype": "F32", "shape": [6]}}, bytes(24)),
    "tensor is a number": ({"a": 1}, b""),
    "list": ([1], b""),
    "not json": (b"{'a'", b""),
    "name that cannot be printed": (b'{"\\ud800": {}}', b""),
    "not utf-8": (b'{"\xff": 1}', b""),
    "nested to death": (b"[" * 100_000, b""),
    "empty, and immense": (
        {"a": {"dtype": "U8", "shape": [0, 10**4000], "data_offsets": [0, 0]}}, b"",
    ),
    "more than 63 bits": ({"a": {"dtype": "U8", "shape": [0, 2**63], "data_offsets": [0, 0]}}, b""),
    "more dimensions than torch has": (
        {"a": {"dtype": "U8", "shape": [1] * 65, "data_offsets": [0, 1]}}, bytes(1),
    ),
    "lists for sizes": ({"a": {"dtype": "U8", "shape": [[1]], "data_offsets": [0, 1]}}, bytes(1)),
    "number too long": (b'{"a": ' + b"9" * 5000 + b"}", b""),
    "twice the same name": (
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
        b'"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}',
        bytes(2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_lies_are_refused(tmp_path: Path, name: str) -> None:
    header, data = LIES[name]
    refused(write(tmp_path / "f", header, data))


def test_immense_claims_are_refused_at_once_and_in_few_words(tmp_path: Path) -> None:
    shape = ",".join(["9" * 4200] * 1000)
    huge = f'{{"x":{{"dtype":"F32","shape":[{shape}],"data_offsets":[0,4]}}}}'.encode()
    names = b",".join(b'"%d":{}' % number for number in range(200_000))
    twins = b"{" + names + b',"199999":{}}'
    long = json.dumps({"x" * 50_000: {"dtype": "y" * 50_000}}).encode()
    start = time.process_time()
    for header in (huge, twins, long):
        assert len(refused(write(tmp_path / "f", header))) < 400
    assert time.process_time() - start < 5


def test_lengths_that_cannot_be(tmp_path: Path) -> None:
    assert "100000001" in refused(write(tmp_path / "f", GOOD, length=100_000_001))
    refused(write(tmp_path / "f", GOOD, length=2**64 - 1))
    refused(write(tmp_path / "f", GOOD, b"", length=10_000))
    for size in (0, 7):
        (tmp_path / "f").write_bytes(bytes(size))
        refused(tmp_path / "f")


@settings(deadline=None)
@given(cut=st.integers(1, 200))
def test_every_truncation_is_seen(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = write(tmp_path_factory.getbasetemp() / "cut", GOOD)
    data = path.read_bytes()
    path.write_bytes(data[: max(len(data) - cut, 0)])
    refused(path)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_header_gives_a_traceback(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    path = write(tmp_path_factory.getbasetemp() / "fuzz", text, b"")
    if text.strip() != b"{}":
        refused(path)


shapes = st.lists(st.integers(0, 5), max_size=3)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["float32", "float16", "uint8", "int64"]), shapes)))
def test_what_the_library_writes(tmp_path_factory: pytest.TempPathFactory, parts: Any) -> None:
    import numpy as np
    from safetensors.numpy import load_file, save_file

    path = tmp_path_factory.getbasetemp() / "written"
    save_file({f"t{i}": np.ones(shape, dtype) for i, (dtype, shape) in enumerate(parts)}, path)
    ours = {t.name: (t.shape, t.end - t.begin) for t in read_header(path).tensors}
    assert ours == {name: (t.shape, t.nbytes) for name, t in load_file(path).items()}
