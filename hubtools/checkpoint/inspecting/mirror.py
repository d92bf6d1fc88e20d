"""A repo as a directory with holes: true names and sizes, but only headers and small texts inside.

All that inspection reads of a local checkpoint is there, so a repo is inspected by the same code;
the weights take no space, and are not fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from hubtools.checkpoint.headers import HEADER_LIMIT
from hubtools.checkpoint.inspecting.disclosed import ARGUMENTS, is_text, may_hold_secrets
from hubtools.checkpoint.inspecting.gguf import HEADER_LIMIT as GGUF_LIMIT
from hubtools.checkpoint.inspecting.gguf import header_of
from hubtools.errors import CheckError
from hubtools.files import disk_error

Read = Callable[[str, int, int], bytes]
"""(name, begin, end) → those bytes of a file."""

_FILES = 10_000
_TEXT = 2 << 20
_CONFIG = 64 << 20
_CONFIGS = ("*config.json", "*.index.json", "trainer_state.json")
_FIRST = 64 << 10
_AT_ONCE = 8


def mirror(files: Mapping[str, int], read: Read, into: Path) -> frozenset[str]:
    """Lay out a repo's files below `into`; the names of texts too large to be fetched.

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
    return frozenset(name for name, size in files.items() if size > (_whole(name, size) or size))


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
    return read(name, 0, size) if 0 < size <= _whole(name, size) else b""


def _whole(name: str, size: int) -> int:
    """Up to which size a file is fetched whole; 0 for one that is not read."""
    last = name.rpartition("/")[2]
    if any(fnmatchcase(last, pattern) for pattern in _CONFIGS):
        return _CONFIG
    wanted = is_text(last) or last in (ARGUMENTS, "latest") or may_hold_secrets(name, size)
    return _TEXT if wanted else 0


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
