"""Files on disk as the Hub will know them."""

from __future__ import annotations

from pathlib import Path

from hubtools.digests import DigestCache, git_blob_sha1, sha256_file
from hubtools.hub.model import LocalFile

SMALL = 16 << 20  # the Hub stores no larger file as a plain git blob


def describe(
    path: str, source: Path, *, sha256: str = "", cache: DigestCache | None = None
) -> LocalFile:
    """The `LocalFile` of `source`.

    Args:
        path: where it goes in the repo.
        source: an existing file.
        sha256: its digest when it is known (computed while writing): the file is not read again,
            except for the git id of a small one.
        cache: remembers digests by stat.

    Raises:
        OSError: the file cannot be read.
    """
    size = source.stat().st_size
    if not sha256:
        sha256 = cache.sha256(source) if cache is not None else sha256_file(source)
    git = git_blob_sha1(source.read_bytes()) if size <= SMALL else ""
    return LocalFile(path, source, size, sha256, git)
