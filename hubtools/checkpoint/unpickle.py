"""Names and values out of a pickle, without ever importing or calling what it names.

This is no unpickler with a guard: it walks the opcodes on a stack of its own and has no code that
imports, calls or builds a stranger's class. Every class, function and object of one becomes an
inert `Record`. It is for reading what a small file gives away, never for loading weights.
"""

from __future__ import annotations

import io
import pickletools
import shlex
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubtools.errors import CheckError

SIZE_LIMIT = 32 << 20
TABLE_LIMIT = 512 << 20
"""Of a checkpoint's own table of tensors: thousands of ranks with two optimizer states fit."""

# Steps a byte of pickle may take: a table of tensors takes one for every two bytes, and less the
# larger it is. So a bomb costs no more than an honest file of its size.
_SPARE_STEPS = 1_000_000
_STEPS_A_BYTE = 0.6
_DIRECTORY_LIMIT = 8 << 20  # of a zip file; each tensor takes some hundred bytes of it
_KEY_LIMIT = 1000
_WORD = 1 << 64
_TORCH_MAGIC = 0x1950A86A20F9469CFC6C  # first pickle of torch.save's format before zip files
_BROKEN = (
    ValueError, LookupError, TypeError, AttributeError, OverflowError, EOFError, OSError,
    RuntimeError, MemoryError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


@dataclass(slots=True, eq=False)
class Record:
    """What stands where a pickle names a class or function, or would make an object with one.

    Args:
        name: `module.name` as the pickle spells it; nothing was looked up.
        args: what it would have been called with.
        parts: state and items that would have been put into the object, in order.
    """

    name: str
    args: Any = ()
    parts: list[Any] = field(default_factory=list)


class TooLargeForReader(CheckError):
    """HT180 for a pickle that may be sound: this reader has limits, and it is beyond them."""


class _Limit(Exception):
    """One of the limits is reached."""


def read_pickle(path: Path, *, limit: int = SIZE_LIMIT) -> Any:
    """The value a pickle or a `torch.save` file describes; of tensors only the description.

    Dicts, lists, tuples, strings and numbers are themselves (sets are lists); all else is a Record.

    Args:
        path: the file.
        limit: bytes of pickle that are read at most.

    Raises:
        TooLargeForReader: HT180 it is larger than `limit`, or denser than pickles of such files.
        CheckError: HT180 it is damaged, or built to exhaust the reader.
    """
    try:
        return _read(path, limit)
    except _Limit as error:
        raise TooLargeForReader(
            "HT180",
            f"{path.name} is too large for this reader: {error}",
            where=str(path),
            detail=("Whether it is sound was not found out; nothing in it was run.",),
            next=_elsewhere(path),
        ) from error
    except _BROKEN as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        raise CheckError(
            "HT180",
            f"{path.name} is not a pickle that can be read safely: {why}",
            where=str(path),
            detail=("Nothing in it was run.",),
            next=f"copy {path.name} again from where it was trained, then run the same command",
        ) from error


def _elsewhere(path: Path) -> str:
    """Who reads what is too large here."""
    if path.name == ".metadata":
        folder = shlex.quote(str(path.parent))
        return f"python -m torch.distributed.checkpoint.format_utils dcp_to_torch {folder} model.pt"
    return f"ls -l {shlex.quote(str(path))}  # is it what its name says?"


def _read(path: Path, limit: int) -> Any:
    with _Capped(path) as stream:
        stream.limit = limit + 1
        if stream.read(4) == b"PK\x03\x04":
            data = _member(stream, limit)
        else:
            stream.seek(0)
            data = stream.read(limit + 1)
        if len(data) > limit:
            raise _Limit(f"more than {limit >> 20} MiB")
    pickles = io.BytesIO(data)
    value = _Machine(len(data)).run(pickles)
    if value == _TORCH_MAGIC:  # then: protocol, system, and the object itself
        for _ in range(3):
            value = _Machine(len(data)).run(pickles)
    return value


def _member(stream: _Capped, limit: int) -> bytes:
    """`data.pkl` of a `torch.save` file; the tensors lie in other members."""
    stream.limit = _DIRECTORY_LIMIT
    with zipfile.ZipFile(stream) as archive:
        name = next((name for name in archive.namelist() if name.endswith("/data.pkl")), None)
        if name is None:
            raise ValueError("a zip file without data.pkl")
        stream.limit = limit + 1
        with archive.open(name) as member:
            return member.read(limit + 1)


class _Capped(io.FileIO):
    """A file that gives no more bytes at once than is sane, whatever a directory in it claims."""

    limit = SIZE_LIMIT + 1

    def read(self, size: int | None = -1, /) -> bytes:
        """As any file's, up to the limit."""
        if size is not None and size > self.limit:
            raise ValueError(f"{size} bytes where at most {self.limit} make sense")
        return super().read(size) or b""


class _Machine:
    """One pickle's stack, marks and memo."""

    def __init__(self, size: int) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.left = _SPARE_STEPS + int(_STEPS_A_BYTE * size)

    def run(self, stream: io.BytesIO) -> Any:
        """Walk one pickle to its STOP; every step takes a byte of it, so they end with it."""
        while code := stream.read(1):
            opcode = _CODES.get(code)
            if opcode is None:
                raise ValueError(f"it has no meaning at byte {stream.tell() - 1}")
            argument = opcode.arg.reader(stream) if opcode.arg is not None else None
            name = opcode.name
            self.left -= 1
            if self.left < 0:
                raise _Limit("it has more steps than a file of its size should")
            if name == "STOP":
                return self.stack.pop()
            if name in _VALUES:
                self.stack.append(argument)
            elif name in _EMPTY:
                self.stack.append(_EMPTY[name]())
            else:
                _STEPS[name](self, argument)
        raise ValueError("it ends early")

    def since_mark(self) -> list[Any]:
        """Pop everything above the last mark."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def pop(self, count: int) -> list[Any]:
        """Pop `count` values, deepest first."""
        if len(self.stack) < count:
            raise ValueError("it takes more from the stack than is there")
        items = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return items

    def put(self, pairs: list[Any]) -> None:
        """Put key, value, key, value … into the dict or record on top."""
        target = self.stack[-1]
        table: dict[Any, Any] = target if isinstance(target, dict) else {}
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            table[key if _plain(key) else Record("key", (key,))] = value
        if isinstance(target, Record):
            target.parts.append(table)

    def extend(self, items: list[Any]) -> None:
        """Put items into the list or record on top."""
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(items)
        elif isinstance(target, Record):
            target.parts.extend(items)

    def make(self, maker: Any, args: Any = (), named: Any = None) -> None:
        """Push what a call of `maker` would give: a record of it."""
        name = maker.name if isinstance(maker, Record) else type(maker).__name__
        self.stack.append(Record(name, args, [] if named is None else [named]))

    def build(self, state: Any) -> None:
        """Give the object on top its state."""
        target = self.stack[-1]
        if isinstance(target, Record):
            target.parts.append(state)


def _plain(key: Any) -> bool:
    """Whether hashing and comparing it is quick: deep tuples overflow the stack, long ones bore."""
    if isinstance(key, str | bytes):
        return len(key) <= _KEY_LIMIT
    return key is None or isinstance(key, float) or (isinstance(key, int) and -_WORD < key < _WORD)


def _dictionary(machine: _Machine, _: Any) -> None:
    pairs = machine.since_mark()
    machine.stack.append({})
    machine.put(pairs)


def _named(machine: _Machine, argument: str) -> None:
    machine.stack.append(Record(argument.replace(" ", ".")))


def _named_above(machine: _Machine, _: Any) -> None:
    words = [word if isinstance(word, str) else "?" for word in machine.pop(2)]
    machine.stack.append(Record(".".join(words)))


def _instance(machine: _Machine, argument: str) -> None:
    machine.stack.append(Record(argument.replace(" ", "."), tuple(machine.since_mark())))


def _object(machine: _Machine, _: Any) -> None:
    maker, *args = machine.since_mark()
    machine.make(maker, tuple(args))


def _remember(machine: _Machine, slot: int | None) -> None:
    machine.memo[len(machine.memo) if slot is None else slot] = machine.stack[-1]


def _persistent(machine: _Machine, argument: Any) -> None:
    machine.stack.append(Record("persistent id", (argument,)))


_CODES = {info.code.encode("latin-1"): info for info in pickletools.opcodes}
_Step = Callable[[_Machine, Any], object]
_VALUES = frozenset(
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 STRING BINSTRING SHORT_BINSTRING BINBYTES"
    " SHORT_BINBYTES BINBYTES8 BYTEARRAY8 UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8 FLOAT"
    " BINFLOAT".split()
)
_EMPTY: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": list,
    "NEXT_BUFFER": lambda: Record("buffer"),
}
_STEPS: dict[str, _Step] = {
    **dict.fromkeys(("PROTO", "FRAME", "READONLY_BUFFER"), lambda m, _: None),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _remember),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda m, a: m.stack.append(m.memo[a])),
    **dict.fromkeys(("EXT1", "EXT2", "EXT4"), lambda m, a: m.stack.append(Record(f"code {a}"))),
    "MARK": lambda m, _: m.marks.append(len(m.stack)),
    "POP": lambda m, _: m.stack.pop(),
    "POP_MARK": lambda m, _: m.since_mark(),
    "DUP": lambda m, _: m.stack.append(m.stack[-1]),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.since_mark())),
    "TUPLE1": lambda m, _: m.stack.append(tuple(m.pop(1))),
    "TUPLE2": lambda m, _: m.stack.append(tuple(m.pop(2))),
    "TUPLE3": lambda m, _: m.stack.append(tuple(m.pop(3))),
    "LIST": lambda m, _: m.stack.append(m.since_mark()),
    "FROZENSET": lambda m, _: m.stack.append(m.since_mark()),
    "DICT": _dictionary,
    "APPEND": lambda m, _: m.extend(m.pop(1)),
    "APPENDS": lambda m, _: m.extend(m.since_mark()),
    "ADDITEMS": lambda m, _: m.extend(m.since_mark()),
    "SETITEM": lambda m, _: m.put(m.pop(2)),
    "SETITEMS": lambda m, _: m.put(m.since_mark()),
    "GLOBAL": _named,
    "STACK_GLOBAL": _named_above,
    "INST": _instance,
    "OBJ": _object,
    "NEWOBJ": lambda m, _: m.make(*m.pop(2)),
    "NEWOBJ_EX": lambda m, _: m.make(*m.pop(3)),
    "REDUCE": lambda m, _: m.make(*m.pop(2)),
    "BUILD": lambda m, _: m.build(*m.pop(1)),
    "PERSID": _persistent,
    "BINPERSID": lambda m, _: _persistent(m, m.pop(1)[0]),
}
