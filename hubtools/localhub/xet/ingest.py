"""Taking in uploads: nothing is stored under a name that was not recomputed from the content."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path

from hubtools.localhub.objects import ObjectError, ObjectStore
from hubtools.localhub.xet.hashes import file_hash, range_hash, text_of, xorb_hash
from hubtools.localhub.xet.refusal import (
    false_file,
    false_sha256,
    false_xorb,
    malformed_xorb,
    no_sha256,
    unknown_xorb,
)
from hubtools.localhub.xet.shard import FileEntry, Shard, Term
from hubtools.localhub.xet.store import FileRecord, XetStore
from hubtools.localhub.xet.xorb import Chunk, read_chunks, unpack_chunk


def take_xorb(store: XetStore, name: bytes, scratch: Path) -> bool:
    """Unpack and hash every chunk of an uploaded xorb, then store it.

    Args:
        store: where to.
        name: the raw hash it was sent under.
        scratch: an `incoming` file that holds its bytes.

    Returns:
        False when it was there already.

    Raises:
        Refused: HT650, HT651, HT655.
    """
    if scratch.stat().st_size == 0:
        raise malformed_xorb("it is empty", 0)
    with scratch.open("rb") as stream:
        # Not closed by hand: the traceback of a refusal may still hold a slice of it.
        body = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    chunks = list(read_chunks(memoryview(body)))
    actual = xorb_hash([(chunk.hash, chunk.raw) for chunk in chunks])
    if actual != name:
        raise false_xorb(text_of(name), text_of(actual))
    return store.add_xorb(name, scratch, chunks)


def take_shard(store: XetStore, objects: ObjectStore, shard: Shard) -> bool:
    """Check every file of a shard against the stored xorbs, then rebuild and record each.

    All files are checked before the first is rebuilt; a file that is on record is not rebuilt.

    Returns:
        False when every file was there already.

    Raises:
        Refused: HT653, HT654, HT656, HT657.
    """
    for xorb in shard.xorbs:
        if not store.has_xorb(xorb):
            raise unknown_xorb(text_of(xorb), "")
    for entry in shard.files:
        _check(store, entry)
    rebuilt = [_rebuild(store, objects, entry) for entry in shard.files]
    return any(rebuilt)


def _check(store: XetStore, entry: FileEntry) -> None:
    name = text_of(entry.hash)
    if entry.sha256 is None:
        raise no_sha256(name)
    nodes: list[tuple[bytes, int]] = []
    for term in entry.terms:
        run = chunks_in(store, term, name)
        if term.proof is None or term.proof != range_hash(chunk.hash for chunk in run):
            raise false_file(f"no proof of chunks {term.start} to {term.end}", name)
        if term.length != sum(chunk.raw for chunk in run):
            raise false_file(f"chunks {term.start} to {term.end} are not {term.length} bytes", name)
        nodes += [(chunk.hash, chunk.raw) for chunk in run]
    if file_hash(nodes) != entry.hash:
        raise false_file(f"its chunks hash to {text_of(file_hash(nodes))}", name)


def _rebuild(store: XetStore, objects: ObjectStore, entry: FileEntry) -> bool:
    assert entry.sha256 is not None
    # A client that gave up waiting sends its shard again: the second one waits here.
    with store.lock(entry.hash):
        if store.has_file(entry.hash, entry.sha256) and objects.has(entry.sha256):
            return False
        writer = objects.begin()
        try:
            for term in entry.terms:
                for data in unpacked(store, term):
                    writer.write(data)
            writer.finish(entry.sha256)
        except ObjectError as error:
            raise false_sha256(entry.sha256, text_of(entry.hash)) from error
        except BaseException:
            writer.abort()
            raise
        size = sum(term.length for term in entry.terms)
        store.add_file(entry.hash, FileRecord(entry.sha256, size, entry.terms))
    return True


def chunks_in(store: XetStore, term: Term, file: str = "") -> Sequence[Chunk]:
    """The chunks a term refers to.

    Raises:
        Refused: HT653 when the xorb is not here, HT654 when it has fewer chunks.
    """
    chunks = store.chunks_of(term.xorb)
    if chunks is None:
        raise unknown_xorb(text_of(term.xorb), file)
    if not 0 <= term.start < term.end <= len(chunks):
        raise false_file(
            f"chunks {term.start} to {term.end} of a xorb that has {len(chunks)}", file
        )
    return chunks[term.start : term.end]


def unpacked(store: XetStore, term: Term) -> Iterator[bytes]:
    """The uncompressed bytes of a term, chunk by chunk."""
    with store.xorb_path(term.xorb).open("rb") as stream:
        for chunk in chunks_in(store, term):
            stream.seek(chunk.start)
            packed = memoryview(stream.read(chunk.end - chunk.start))
            yield unpack_chunk(packed, 0)[0]
