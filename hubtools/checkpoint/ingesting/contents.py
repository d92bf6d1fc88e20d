"""A name for a large source file that costs no pass over its bytes."""

from __future__ import annotations

import zipfile
from pathlib import Path

from hubtools.digests import sha256_bytes, sha256_file, sha256_json

_SMALL = 32 << 20


def contents_digest(path: Path) -> str | None:
    """sha256 of what the file itself says it contains; None when it does not say.

    Of a torch.save file: names, sizes and CRC-32 of its records. Of safetensors: the header. Of a
    small file: all of it. Such a digest tells two saves apart; it does not prove the bytes.
    """
    if path.suffix == ".safetensors":
        with path.open("rb") as stream:
            length = stream.read(8)
            return sha256_bytes(length + stream.read(int.from_bytes(length, "little")))
    if path.suffix == ".distcp":
        return None  # many torch.save files in a row; .metadata is their table
    if path.stat().st_size <= _SMALL and not zipfile.is_zipfile(path):
        return sha256_file(path)
    with zipfile.ZipFile(path) as archive:
        return sha256_json([[r.filename, r.file_size, r.CRC] for r in archive.infolist()])
