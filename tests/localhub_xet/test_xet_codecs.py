from __future__ import annotations

import os
from pathlib import Path

import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xet_encoder import File, Xorb, encode_chunk, encode_footer, encode_shard

from hubtools.localhub.xet import hashes
from hubtools.localhub.xet.refusal import MAX_CHUNK, MAX_OVERHEAD, MAX_XORB, Refused
from hubtools.localhub.xet.shard import Shard, read_shard
from hubtools.localhub.xet.xorb import (
    Chunk,
    pack_index,
    read_chunks,
    ungrouped,
    unpack_chunk,
    unpack_index,
)

chunks = st.lists(
    st.tuples(st.binary(min_size=1, max_size=300), st.sampled_from([0, 1, 2])),
    min_size=1,
    max_size=8,
)


def outcome(body: bytes) -> list[Chunk] | str:
    """The chunks, or the id of the refusal; any other exception fails the test."""
    try:
        return list(read_chunks(body))
    except Refused as refused:
        return refused.id


@given(st.binary(min_size=32, max_size=32))
def test_a_hash_reads_back_from_its_text(raw: bytes) -> None:
    assert hashes.raw_of(hashes.text_of(raw)) == raw


def test_text_swaps_each_eight_bytes() -> None:
    text = hashes.text_of(bytes(range(32)))
    assert text == "07060504030201000f0e0d0c0b0a090817161514131211101f1e1d1c1b1a1918"


@pytest.mark.parametrize("text", ["", "0" * 63, "0" * 65, "G" * 64, "A" * 64, "0" * 64 + "\n"])
def test_what_is_not_a_hash_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="64 lower-case hex digits"):
        hashes.raw_of(text)


@pytest.mark.parametrize("size", [1, 5000, 8191])
def test_hashes_of_a_one_chunk_file_agree_with_the_client(tmp_path: Path, size: int) -> None:
    import hf_xet

    path = tmp_path / "file"
    path.write_bytes(os.urandom(size))
    (theirs,) = hf_xet.hash_files([str(path)])
    ours = hashes.file_hash([(hashes.chunk_hash(path.read_bytes()), size)])
    assert hashes.text_of(ours) == theirs.hash


def test_no_chunks_hash_to_zeros() -> None:
    assert hashes.xorb_hash([]) == hashes.file_hash([]) == bytes(32)


@given(chunks, st.booleans())
def test_a_xorb_reads_back(parts: list[tuple[bytes, int]], footer: bool) -> None:
    xorb = Xorb([data for data, _ in parts], [scheme for _, scheme in parts])
    body = xorb.body + (encode_footer() if footer else b"")
    found = list(read_chunks(body))
    assert [unpack_chunk(memoryview(body), c.start)[0] for c in found] == xorb.chunks
    assert [(c.hash, c.raw) for c in found] == xorb.nodes
    assert found[-1].end == len(xorb.body)
    assert unpack_index(pack_index(found)) == found


@given(st.binary(max_size=50))
def test_grouping_is_undone_at_any_length(data: bytes) -> None:
    assert ungrouped(b"".join(data[place::4] for place in range(4))) == data


@settings(max_examples=300)
@given(chunks, st.data())
def test_a_changed_byte_changes_the_name_or_is_refused(
    parts: list[tuple[bytes, int]], data: st.DataObject
) -> None:
    xorb = Xorb([part for part, _ in parts], [scheme for _, scheme in parts])
    body = bytearray(xorb.body)
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= 1 << data.draw(st.integers(0, 7))
    found = outcome(bytes(body))
    if isinstance(found, str):
        assert found == "HT650"
        return
    same = [(c.hash, c.raw) for c in found] == xorb.nodes
    raw = [unpack_chunk(memoryview(bytes(body)), c.start)[0] for c in found]
    assert same == (raw == xorb.chunks)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_noise_is_no_xorb_and_no_shard(noise: bytes) -> None:
    with pytest.raises(Refused, match="not a valid shard"):
        read_shard(noise)
    for body in (noise, b"\0" + noise):
        found = outcome(body)
        assert found == "HT650" or isinstance(found, list)


def framed(packed: bytes, raw: int, scheme: int = 1) -> bytes:
    return (
        b"\0"
        + len(packed).to_bytes(3, "little")
        + bytes([scheme])
        + raw.to_bytes(3, "little")
        + packed
    )


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "it has no chunks"),
        (encode_footer(), "it has no chunks"),
        (b"\1" + encode_chunk(b"abc", 0)[1:], "chunk version 1, not 0"),
        (encode_chunk(b"abc", 0)[:5], "the last chunk's header is cut short"),
        (encode_chunk(b"abc", 0)[:-1], "the last chunk is cut short"),
        (framed(b"abc", 3, scheme=3), "unknown compression scheme 3"),
        (framed(b"abc", 4, scheme=0), "a chunk of 3 bytes; its header says 4"),
        (framed(b"", 0, scheme=0), "a chunk of 0 bytes; 1 to 131072 are allowed"),
        (framed(b"x", MAX_CHUNK + 1), "a chunk of 131073 bytes; 1 to 131072 are allowed"),
        (framed(b"not a frame", 3), "a chunk is no LZ4 frame"),
        (framed(lz4.frame.compress(b"abc") + b"!", 3), "does not end with the chunk"),
        (encode_chunk(b"abc", 0) + encode_footer() + b"\0", "its footer has"),
    ],
)
def test_each_flaw_of_a_xorb_is_named(body: bytes, why: str) -> None:
    with pytest.raises(Refused) as caught:
        list(read_chunks(body))
    assert caught.value.id == "HT650"
    assert why in caught.value.message


def test_a_decompression_bomb_is_refused_at_its_promised_size() -> None:
    bomb = framed(lz4.frame.compress(bytes(8 << 20)), 1000)
    with pytest.raises(Refused, match="LZ4 frame does not end with the chunk"):
        list(read_chunks(bomb))


def test_a_xorb_full_to_the_last_byte_is_fine_and_one_chunk_more_is_not() -> None:
    chunk = encode_chunk(os.urandom(MAX_CHUNK), 0)
    full = chunk * (MAX_XORB // MAX_CHUNK)
    assert sum(c.raw for c in read_chunks(full + encode_footer())) == MAX_XORB < len(full)
    for body in (full + encode_chunk(b"x", 0), bytes(MAX_XORB + MAX_OVERHEAD + 1)):
        with pytest.raises(Refused) as caught:
            list(read_chunks(body))
        assert (caught.value.id, caught.value.status) == ("HT655", 413)


def test_many_tiny_frames_do_not_unpack_without_end() -> None:
    bomb = encode_chunk(bytes(MAX_CHUNK), 1)
    count = MAX_XORB // MAX_CHUNK
    assert len(bomb) * count < MAX_XORB // 100
    with pytest.raises(Refused, match="the chunks of a xorb of more than"):
        list(read_chunks(bomb * (count + 1)))


A = Xorb([b"a" * 100, b"b" * 50, b"c"])
B = Xorb([b"d" * 7])
FILE = File([(A, 0, 2), (B, 0, 1), (A, 2, 3)])


@pytest.mark.parametrize("footer", [b"", bytes(200)])
def test_a_shard_reads_back(footer: bytes) -> None:
    shard = read_shard(encode_shard([FILE, File([(B, 0, 1)], sha256=None)], [A, B], footer))
    assert shard.xorbs == (A.name, B.name)
    first, second = shard.files
    assert first.hash == FILE.name
    assert [(t.xorb, t.start, t.end, t.length) for t in first.terms] == [
        (A.name, 0, 2, 150),
        (B.name, 0, 1, 7),
        (A.name, 2, 3, 1),
    ]
    assert first.terms[0].proof == hashes.range_hash(name for name, _ in A.nodes[:2])
    assert (second.sha256, len(second.terms)) == (None, 1)


def test_an_empty_shard_is_a_shard() -> None:
    assert read_shard(encode_shard([], [])) == Shard((), ())


def test_a_shard_cut_anywhere_is_refused() -> None:
    body = encode_shard([FILE], [A, B])
    for end in range(len(body)):
        with pytest.raises(Refused) as caught:
            read_shard(body[:end])
        assert caught.value.id == "HT652"


def test_a_count_that_does_not_fit_costs_nothing() -> None:
    body = bytearray(encode_shard([FILE], [A]))
    body[48 + 36 : 48 + 40] = b"\xff\xff\xff\xff"
    with pytest.raises(Refused, match="4294967295 entries do not fit"):
        read_shard(bytes(body))
