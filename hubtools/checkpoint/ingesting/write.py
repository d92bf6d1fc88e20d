"""Weight files out of targets: read ahead, cast, hashed and written at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from hubtools.checkpoint.aligned import Buffer, aligned_buffer
from hubtools.checkpoint.headers import header_bytes
from hubtools.checkpoint.ingesting.pieces import FLOATS, Reader, Run
from hubtools.checkpoint.ingesting.plan import Target
from hubtools.checkpoint.ingesting.rounding import Cast
from hubtools.checkpoint.stream import HashedFile
from hubtools.errors import CheckError
from hubtools.progress import Progress

_BLOCK = 4 << 20
_AHEAD = 3


class _Step(NamedTuple):
    target: Target
    run: Run


class Writer:
    """Writes weight files and counts what the casts changed.

    Args:
        label: how progress is told.
        total: bytes in all files.
        done: bytes that lie there already.
    """

    def __init__(self, label: str, total: int, done: int, progress: Progress) -> None:
        self._label, self._total, self._progress = label, total, progress
        self._done = done
        self._casts: dict[tuple[str, str], Cast] = {}

    def changed(self) -> int:
        """Elements so far whose value became another one."""
        return sum(cast.changed for cast in self._casts.values())

    def write(self, path: Path, targets: Sequence[Target]) -> dict[str, Any]:
        """Write one file, which must not exist.

        Returns:
            `sha256`, `size`.

        Raises:
            CheckError: HT117 a value is not finite, or does not fit the target dtype; HT168 the
                bytes of a source are not those that were saved.
            EnvironmentFailure: HT118 a source became shorter, HT901 disk full.
        """
        with (
            Reader() as reader,
            HashedFile(path, _BLOCK) as file,
            ThreadPoolExecutor(1) as ahead,
        ):
            header = header_bytes((t.name, t.dtype, t.shape, t.bytes) for t in targets)
            for begin in range(0, len(header), _BLOCK):
                part = header[begin : begin + _BLOCK]
                buffer = file.buffer()
                memoryview(buffer.data)[: len(part)] = part
                file.send(buffer, len(part))
            for step, data in _read_ahead(ahead, self._steps(reader, targets)):
                self._put(file, step.target, data)
            reader.verify()
            return {"sha256": file.finish(), "size": file.size}

    def _steps(self, reader: Reader, targets: Sequence[Target]) -> Iterator[_Step]:
        for target in targets:
            stop = target.start + target.elements
            for run in reader.runs(target.source, target.start, stop, _BLOCK):
                yield _Step(target, run)

    def _put(self, file: HashedFile, target: Target, data: Buffer) -> None:
        buffer = file.buffer()
        try:
            part = self._cast(target, data, buffer)
        except FloatingPointError as error:
            file.give_back(buffer)
            raise CheckError(
                "HT117",
                f"{target.name}: {error}",
                where=str(target.source.pieces[0].path),
                detail=("Nothing was put in place.",),
                next="choose an earlier step of the run, or a dtype that holds its values",
            ) from error
        file.send_part(buffer, part)
        before = self._done
        self._done += part.size
        if self._done >> 24 != before >> 24 or self._done >= self._total:
            self._progress(self._label, self._done, self._total, "bytes")

    def _cast(self, target: Target, data: Buffer, out: Buffer) -> Buffer:
        source = target.source.dtype
        if source in FLOATS:
            key = source, target.dtype
            cast = self._casts.get(key) or self._casts.setdefault(key, Cast(*key, _BLOCK))
            if source != target.dtype:
                return cast.cast(data, out)
            cast.check(data)
        out[: data.size] = data
        return out[: data.size]


def _read_ahead(pool: ThreadPoolExecutor, steps: Iterator[_Step]) -> Iterator[tuple[_Step, Buffer]]:
    """Steps with their bytes, which are valid until the next one is asked for."""
    buffers = [aligned_buffer(_BLOCK) for _ in range(_AHEAD)]
    waiting: list[tuple[_Step, Future[Buffer]]] = []
    count = 0
    for step in steps:
        if len(waiting) == _AHEAD - 1:
            first, future = waiting.pop(0)
            yield first, future.result()
        waiting.append((step, pool.submit(step.run.read, buffers[count % _AHEAD])))
        count += 1
    for first, future in waiting:
        yield first, future.result()


def dtypes(targets: Sequence[Target]) -> dict[str, Any]:
    """Elements by dtype, as saved and as written."""
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    for target in targets:
        before[target.source.dtype] += target.elements
        after[target.dtype] += target.elements
    return {"in": dict(sorted(before.items())), "out": dict(sorted(after.items()))}
