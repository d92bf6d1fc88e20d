"""One file of a zip archive, unpacked in memory within bounds; also with zstd, which zipfile of
Python before 3.14 cannot read and inspect has used for its logs since 2026.
"""

from __future__ import annotations

import io
import zipfile
import zlib

from hubtools.evaluation.importing.found import damaged

LARGEST = 512 << 20
"""Bytes of one file; a sample of τ²-bench holds a whole database and takes 28 MB."""
RATIO = 2000
"""Times that a file may grow; JSON that repeats itself grows about 200 times."""
_ZSTD = 93
_LOCAL_HEADER = 30
_ENCRYPTED = 1


def unpacked(log: zipfile.ZipFile, name: str) -> bytes:
    """The file's bytes, as its checksum says.

    Raises:
        KeyError: there is no such file.
        CheckError: HT461 it is encrypted, damaged, or larger than it may be.
    """
    info, where = log.getinfo(name), str(log.filename)
    if info.flag_bits & _ENCRYPTED:
        raise damaged(f"{name} is encrypted", where)
    if info.file_size > min(LARGEST, RATIO * max(info.compress_size, 1)):
        raise damaged(f"{name} would unpack to {info.file_size} bytes", where)
    if info.compress_type != _ZSTD:
        with log.open(info) as stream:
            data = stream.read(info.file_size + 1)
    else:
        data = _zstd(log, info)
    if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
        raise damaged(f"{name} is not what its checksum says", where)
    return data


def _zstd(log: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    import zstandard

    assert log.fp is not None
    log.fp.seek(info.header_offset)
    header = log.fp.read(_LOCAL_HEADER)
    if len(header) < _LOCAL_HEADER or not header.startswith(b"PK\x03\x04"):
        raise zipfile.BadZipFile("a local header is damaged")
    lengths = (header[26:28], header[28:30])
    log.fp.seek(sum(int.from_bytes(part, "little") for part in lengths), io.SEEK_CUR)
    packed = log.fp.read(info.compress_size)
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed) as stream:
            return stream.read(info.file_size + 1)
    except zstandard.ZstdError as error:
        raise zipfile.BadZipFile(str(error)) from error
