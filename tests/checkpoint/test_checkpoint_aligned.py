"""Reads around the page cache give the bytes that ordinary reads give, or say what is wrong."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubtools.checkpoint import aligned
from hubtools.checkpoint.aligned import AlignedFile, aligned_buffer
from hubtools.errors import EnvironmentFailure

SIZE = 3 * 4096 + 777
DATA = random.Random(0).randbytes(SIZE)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("aligned") / "f"
    path.write_bytes(DATA)
    return path


@settings(deadline=None)
@given(st.integers(0, SIZE - 1), st.integers(0, SIZE))
def test_every_range(file: Path, begin: int, size: int) -> None:
    size = min(size, SIZE - begin)
    with AlignedFile(file) as source:
        found = source.read(aligned_buffer(size), begin, size)
    assert found.tobytes() == DATA[begin : begin + size]


@pytest.mark.parametrize("call", ["open", "preadv"])
def test_a_file_system_without_direct_reads(
    file: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real = getattr(os, call)
    refused: list[int] = []

    def refuse(first: Any, second: Any, *more: Any) -> Any:
        direct = second & aligned.DIRECT if call == "open" else not refused
        if direct:
            refused.append(1)
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(first, second, *more)

    monkeypatch.setattr(os, call, refuse)
    with AlignedFile(file) as source:
        assert source.read(aligned_buffer(5000), 100, 5000).tobytes() == DATA[100:5100]
    assert refused


def test_a_file_that_ends_too_soon(file: Path) -> None:
    with AlignedFile(file) as source, pytest.raises(EnvironmentFailure, match="HT118") as caught:
        source.read(aligned_buffer(SIZE), 1, SIZE)
    assert "became shorter" in caught.value.message
    assert caught.value.where == str(file)


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="HT118"):
        AlignedFile(tmp_path / "gone")


def test_a_disk_that_fails(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", fail)
    with AlignedFile(file) as source, pytest.raises(EnvironmentFailure, match="Input/output"):
        source.read(aligned_buffer(10), 0, 10)
