"""Which output tensor lies in which file: as in the base, unless something changed its size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hubtools.checkpoint.merging.drafts import Draft, Sketch
from hubtools.checkpoint.merging.recipe import Layout, Output, OutputFile
from hubtools.checkpoint.shards import INDEX, SINGLE, Weights

SHARD_BYTES = 5_000_000_000


def lay_out(sketch: Sketch) -> Layout:
    """The files of the result.

    Without new sizes, dtypes or tensors every header, offset and shard is the base's. Otherwise the
    tensors are dealt out in base order, to shards of 5 GB or of the base's largest file.
    """
    outputs = {name: _output(draft) for name, draft in sketch.drafts.items()}
    if _as_base(sketch):
        return _base_layout(sketch.base, sketch.weights, outputs)
    sizes = [header.size - header.data_start for header in sketch.weights.headers.values()]
    shards = list(_dealt(outputs.values(), max(SHARD_BYTES, *sizes)))
    if len(shards) == 1:
        return Layout((OutputFile(SINGLE, tuple(shards[0])),))
    files = tuple(
        OutputFile(f"model-{i:05}-of-{len(shards):05}.safetensors", tuple(shard))
        for i, shard in enumerate(shards, 1)
    )
    return Layout(files, _index(files, sketch.weights.index))


def _output(draft: Draft) -> Output:
    return Output(draft.name, draft.dtype, draft.shape, draft.source, tuple(draft.ops), draft.kind)


def _as_base(sketch: Sketch) -> bool:
    count = sum(len(header.tensors) for header in sketch.weights.headers.values())
    return len(sketch.drafts) == count and all(
        draft.base is not None
        and draft.base.entry.name == name
        and not draft.resized
        and draft.dtype == draft.base.entry.dtype
        for name, draft in sketch.drafts.items()
    )


def _base_layout(base: Path, weights: Weights, outputs: Mapping[str, Output]) -> Layout:
    files = tuple(
        OutputFile(name, tuple(outputs[entry.name] for entry in header.tensors), header)
        for name, header in weights.headers.items()
    )
    if weights.index is None:
        return Layout(files)
    total = weights.tensor_bytes()
    metadata = weights.index.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    if known.get("total_size") == total:
        return Layout(files, weights.index, (base / INDEX).read_bytes())
    return Layout(files, {**weights.index, "metadata": {**known, "total_size": total}})


def _dealt(outputs: Any, limit: int) -> Iterator[list[Output]]:
    shard: list[Output] = []
    filled = 0
    for output in outputs:
        if shard and filled + output.bytes > limit:
            yield shard
            shard, filled = [], 0
        shard.append(output)
        filled += output.bytes
    yield shard


def _index(files: tuple[OutputFile, ...], known: Mapping[str, Any] | None) -> dict[str, Any]:
    metadata = (known or {}).get("metadata")
    kept = dict(metadata) if isinstance(metadata, dict) else {}
    outputs = [output for file in files for output in file.outputs]
    kept["total_size"] = sum(output.bytes for output in outputs)
    if "total_parameters" in kept:
        kept["total_parameters"] = sum(output.source.entry.elements for output in outputs)
    places = {output.name: file.name for file in files for output in file.outputs}
    return {"metadata": kept, "weight_map": dict(sorted(places.items()))}
