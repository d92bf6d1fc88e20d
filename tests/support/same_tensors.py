"""Two checkpoint directories held against each other, byte for byte, shards or not."""

from __future__ import annotations

from pathlib import Path

from hubtools.checkpoint.shards import read_weights

Tensor = tuple[str, tuple[int, ...], bytes]


def stored(path: Path) -> dict[str, Tensor]:
    """Name → dtype, shape and bytes of every tensor."""
    return {
        entry.name: (
            entry.dtype,
            entry.shape,
            header.path.read_bytes()[entry.begin : entry.end],
        )
        for header in read_weights(path).headers.values()
        for entry in header.tensors
    }


def same(one: Path, other: Path) -> bool:
    """Whether they hold the same tensors; the first difference is named by an assertion."""
    left, right = stored(one), stored(other)
    assert sorted(left) == sorted(right)
    for name, tensor in left.items():
        assert tensor == right[name], f"{name}: {tensor[:2]} and {right[name][:2]}"
    return bool(left)
