"""A repo as a directory with holes: true names and sizes, but only headers and small texts inside.

All that inspection reads of a local checkpoint is there, so a repo is inspected by the same code;
the weights take no space, and are not fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from hubtools.checkpoint.disclosed import ARGUMENTS, is_text, may_hold_secrets
from hubtools.checkpoint.gguf import HEADER_LIMIT as GGUF_LIMIT
from hubtools.checkpoint.gguf import header_of
from hubtools.checkpoint.headers import HEADER_LIMIT
from hubtools.errors import CheckError
from hubtools.files import disk_error

Read = Callable[[str, int, int], bytes]
"""(name, begin, end) → those bytes of a file."""

_FILES = 10_000
_TEXT = 2 << 20
_INDEX = 64 << 20
_FIRST = 64 << 10
_AT_ONCE = 8


def mirror(files: Mapping[str, int], read: Read, into: Path) -> None:
    """Lay out a repo's files below `into`.

    Args:
        files: name → bytes.
        read: fetches a part of a file; called from several threads.
        into: an empty directory.

    Raises:
        CheckError: HT182 a name that leads elsewhere, or too many files.
        HubtoolsError: what `read` raises; HT901 when the directory cannot be written.
    """
    if len(files) > _FILES:
        raise _refused(f"{len(files)} files; at most {_FILES} are looked at", "")
    for name in files:
        parts = PurePosixPath(name).parts
        if not parts or name != "/".join(parts) or name.startswith("/") or ".." in parts:
            raise _refused(f"a file name that leads elsewhere: {name!r}", name)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda name: _lay(into, name, files[name], read), files))


def _lay(into: Path, name: str, size: int, read: Read) -> None:
    data = _known_part(name, size, read)
    path = into / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            stream.write(data)
            stream.truncate(size)
    except OSError as error:
        raise disk_error(error, path) from error


def _known_part(name: str, size: int, read: Read) -> bytes:
    last = name.rpartition("/")[2]
    if last.endswith(".safetensors"):
        return _safetensors(name, size, read)
    if last.endswith(".gguf"):
        return _gguf(name, size, read)
    limit = _INDEX if last.endswith(".index.json") else _TEXT
    wanted = is_text(last) or last.endswith(".index.json") or last in (ARGUMENTS, "latest")
    wanted = wanted or may_hold_secrets(name, size)
    return read(name, 0, size) if wanted and 0 < size <= limit else b""


def _safetensors(name: str, size: int, read: Read) -> bytes:
    data = read(name, 0, min(size, _FIRST)) if size else b""
    end = 8 + int.from_bytes(data[:8], "little")
    if len(data) < end <= min(size, HEADER_LIMIT + 8):  # else it lies, which is told later
        data += read(name, len(data), end)
    return data[: max(end, 8)]


def _gguf(name: str, size: int, read: Read) -> bytes:
    data = read(name, 0, min(size, _FIRST)) if size else b""
    try:
        while not header_of(data, size, Path(name)) and len(data) < min(size, GGUF_LIMIT):
            data += read(name, len(data), min(size, 4 * len(data)))
    except ValueError:
        return data  # read_gguf tells what is wrong
    return data


def _refused(what: str, where: str) -> CheckError:
    return CheckError(
        "HT182",
        f"this repo is not looked at: {what}",
        where=where,
        detail=("Nothing was written.",),
        next="hf download the part you need, then inspect that directory",
    )
