"""The child process that merges: tensor by tensor, each file in the layout of its base file.

Dtypes and shapes do not change, so every header, offset and shard stays as it is in the base, and
an untouched tensor is copied byte for byte.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubtools.checkpoint.adapter import WEIGHTS
from hubtools.checkpoint.carry import carried_files
from hubtools.checkpoint.headers import Header, TensorEntry
from hubtools.checkpoint.merging.arithmetic import (
    BlockMerger,
    Floats,
    Gemm,
    gemm_of,
    row_blocks,
    to_float32,
)
from hubtools.checkpoint.merging.plan import MergePlan, Slot, plan_merge
from hubtools.checkpoint.shards import INDEX
from hubtools.checkpoint.stream import Buffer, HashedFile
from hubtools.children import child_main
from hubtools.digests import sha256_bytes
from hubtools.errors import CheckError, EnvironmentFailure
from hubtools.files import sync_directory, write_atomic
from hubtools.progress import Progress

_COPY = 1 << 20


def work(job: Mapping[str, str], progress: Progress) -> dict[str, Any]:
    """Do the job that `merge.merge` describes; its result is that function's result."""
    plan = plan_merge(Path(job["adapter"]), Path(job["base"]))
    out = Path(job["out"])
    out.mkdir()
    writer = _Writer(plan, gemm_of(plan.engine), job["label"], progress)
    files = {name: writer.weight_file(name, out / name) for name in plan.weights.headers}
    weights = {name: str(file["sha256"]) for name, file in files.items()}
    if writer.moved == 0:
        raise CheckError(
            "HT116",
            "the merge changed nothing: each product B·A is zero or below the base's rounding",
            where=str(plan.adapter / WEIGHTS),
            detail=("The output was removed.",),
            next="check that this adapter was trained: compare it with an earlier step",
        )
    carried = carried_files(plan.adapter, plan.base)
    small = {name: file.read_bytes() for name, file in carried.items()}
    layout = plan.layout
    if layout.index is not None:
        small[INDEX] = layout.index_bytes or _json(layout.index)
    for name, data in small.items():
        write_atomic(out / name, data)
        files[name] = {"sha256": sha256_bytes(data), "size": len(data)}
    sync_directory(out)
    sides = {
        name: "adapter" if plan.adapter in f.parents else "base" for name, f in carried.items()
    }
    return {
        "files": dict(sorted(files.items())),
        "weights": weights,
        "report": {
            **plan.to_json(),
            "arithmetic": "float32, rounded once to the dtype of the base",
            "changed_elements": writer.elements,
            "moved_elements": writer.moved,
            "carried": sides,
        },
    }


class _Writer:
    """Writes weight files and counts what moved."""

    def __init__(self, plan: MergePlan, gemm: Gemm, label: str, progress: Progress) -> None:
        self._plan = plan
        self._mergers = {dtype: BlockMerger(dtype, gemm) for dtype in ("F32", "F16", "BF16")}
        self._label, self._progress = label, progress
        self._done, self._total = 0, plan.weights.bytes
        self.elements = self.moved = 0

    def weight_file(self, name: str, path: Path) -> dict[str, Any]:
        """Copy one base file to `path` with its slots merged."""
        header, slots = self._plan.weights.headers[name], self._slots(name)
        largest = max((_largest_block(slot) for slot in slots.values()), default=0)
        with (
            header.path.open("rb", buffering=0) as source,
            HashedFile(path, max(_COPY, largest)) as target,
        ):
            self._copy(source.fileno(), 0, header.data_start, target, header)
            for entry in header.tensors:
                slot = slots.get(entry.name)
                if slot is None:
                    self._copy(source.fileno(), entry.begin, entry.end, target, header)
                else:
                    self._merge(source.fileno(), slot, target, header)
            return {"sha256": target.finish(), "size": target.size}

    def _slots(self, file: str) -> dict[str, Slot]:
        return {slot.target.name: slot for slot in self._plan.slots if slot.file == file}

    def _copy(self, source: int, begin: int, end: int, target: HashedFile, header: Header) -> None:
        while begin < end:
            buffer = target.buffer()
            size = min(_COPY, end - begin)
            _read(source, memoryview(buffer.data)[:size], begin, header.path)
            self._send(target, buffer, size)
            begin += size

    def _merge(self, source: int, slot: Slot, target: HashedFile, header: Header) -> None:
        adapter = self._plan.adapter / WEIGHTS
        a, b = _factor(adapter, slot.a), _factor(adapter, slot.b)
        entry = slot.target
        rows, columns = entry.shape
        width = (entry.end - entry.begin) // rows
        merger = self._mergers[entry.dtype]
        for start, stop in row_blocks(rows, columns):
            buffer = target.buffer()
            size = (stop - start) * width
            _read(source, memoryview(buffer.data)[:size], entry.begin + start * width, header.path)
            try:
                self.moved += merger.add(buffer[:size], b[start:stop], a, slot.scaling)
            except FloatingPointError as error:
                raise CheckError(
                    "HT117",
                    f"merged values of {entry.name} are not finite (rows {start} to {stop - 1})",
                    where=str(adapter),
                    detail=("Adapter or base hold infinities or NaN, or the sum overflows.",),
                    next="choose an earlier step of the run, before training diverged",
                ) from error
            self._send(target, buffer, size)
        self.elements += entry.elements

    def _send(self, target: HashedFile, buffer: Buffer, size: int) -> None:
        target.send(buffer, size)
        self._done += size
        if self._done // (16 << 20) != (self._done - size) // (16 << 20) or (
            self._done == self._total
        ):
            self._progress(self._label, self._done, self._total, "bytes")


def _largest_block(slot: Slot) -> int:
    rows, columns = slot.target.shape
    width = (slot.target.end - slot.target.begin) // rows
    return max(stop - start for start, stop in row_blocks(rows, columns)) * width


def _factor(path: Path, entry: TensorEntry) -> Floats:
    data = bytearray(entry.end - entry.begin)
    with path.open("rb", buffering=0) as stream:
        _read(stream.fileno(), memoryview(data), entry.begin, path)
    return to_float32(data, entry.dtype, entry.shape)


def _read(source: int, view: memoryview, offset: int, path: Path) -> None:
    while view:
        count = os.preadv(source, [view], offset)
        if count == 0:
            raise EnvironmentFailure(
                "HT118",
                "the file became shorter while it was read",
                where=str(path),
                detail=("The unfinished output was removed.",),
                next="wait until nothing writes there any more, then run the same command again",
            )
        view, offset = view[count:], offset + count


def _json(index: Mapping[str, Any]) -> bytes:
    return json.dumps(index, indent=2, sort_keys=True).encode() + b"\n"


if __name__ == "__main__":
    child_main(work)
