"""Stand-ins follow an operation to where each stored row ends up, or say that they cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hubtools.checkpoint.naming.names import Part
from hubtools.checkpoint.naming.names_trace import Shape, follow


def one(shape: Shape, result: Shape, change: Callable[[Any], Any]) -> tuple[Part, ...]:
    """Follow one stored tensor `w` through `change`."""
    return follow({"w": shape}, {"it": result}, lambda ins, _: {"it": change(ins["w"])})["it"]


def test_experts_are_stacked_and_joined() -> None:
    sizes = []

    def join(ins: Mapping[str, Any], _: object) -> dict[str, Any]:
        sizes.append(ins["0.up"].numel())
        halves = [torch.stack([ins[f"{e}.{half}"] for e in range(3)]) for half in ("gate", "up")]
        return {"it": torch.cat(halves, dim=1)}

    sources = {f"{e}.{half}": (768, 2048) for half in ("gate", "up") for e in range(3)}
    found = follow(sources, {"it": (3, 1536, 2048)}, join)
    assert max(sizes) < 1000
    assert found["it"] == tuple(
        Part(f"{expert}.{half}", expert, rows)
        for expert in range(3)
        for half, rows in (("gate", (0, 768)), ("up", (768, 1536)))
    )


def test_a_joint_matrix_is_cut() -> None:
    results = {"q": (128, 64), "k": (32, 64), "v": (32, 64)}

    def cut(ins: Mapping[str, Any], small: Callable[[Shape], Shape]) -> dict[str, Any]:
        rows = [small(shape)[0] for shape in results.values()]
        return dict(zip(results, torch.split(ins["qkv"], rows), strict=True))

    assert follow({"qkv": (192, 64)}, results, cut) == {
        "q": (Part("qkv", None, (0, 128), False, (0, 128)),),
        "k": (Part("qkv", None, (0, 32), False, (128, 160)),),
        "v": (Part("qkv", None, (0, 32), False, (160, 192)),),
    }


def test_pages_and_matrices_are_turned_over() -> None:
    turned = one((3, 96, 64), (3, 64, 96), lambda w: w.transpose(1, 2))
    assert turned == (Part("w", None, (0, 64), True),)
    half = one((96, 64), (32, 96), lambda w: w.T.chunk(2)[1])
    assert half == (Part("w", None, (0, 32), True, (32, 64)),)


def test_vectors_and_convolutions() -> None:
    sources: dict[str, Shape] = {"q": (16,), "k": (16,), "v": (16,)}
    joined = follow(sources, {"it": (48,)}, lambda ins, _: {"it": torch.cat([*ins.values()])})
    assert [part.rows for part in joined["it"]] == [(0, 16), (16, 32), (32, 48)]
    flat = one((32, 3, 2, 4, 4), (32, 96), lambda w: w.reshape(32, -1))
    assert flat == (Part("w", None, (0, 32)),)


def test_stacked_tensors_are_joined_page_by_page() -> None:
    sources: dict[str, Shape] = {"gate": (2, 8, 8), "up": (2, 8, 8)}
    run = lambda ins, _: {"it": torch.cat([*ins.values()], 1)}  # noqa: E731
    assert follow(sources, {"it": (2, 16, 8)}, run)["it"] == (
        Part("gate", None, (0, 8)),
        Part("up", None, (8, 16)),
    )


def interleaved(w: Any) -> Any:
    return w.reshape(w.shape[0] // 2, 2, -1).transpose(0, 1).reshape(w.shape)


def for_rope(w: Any, heads: int = 4) -> Any:
    """At one scale a head has two rows, and this is no change at all."""
    half = w.shape[0] // heads // 2
    return w.view(heads, half, 2, w.shape[1]).transpose(1, 2).reshape(w.shape)


@pytest.mark.parametrize("rows", [64, 128, 192, 4096])
@pytest.mark.parametrize("change", [interleaved, for_rope])
def test_rows_in_another_order(rows: int, change: Callable[[Any], Any]) -> None:
    with pytest.raises((ValueError, RuntimeError)):
        one((rows, 2048), (rows, 2048), change)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda w: w.roll(1, 1), "mixed from several"),
        (lambda w: w[:-1], "do not add up"),
        (lambda w: w.T, "do not add up"),
        (lambda w: torch.cat([w[:, 2:], w[:, :2]], 1), "mixed from several"),
    ],
)
def test_what_is_no_row_of_anything(change: Callable[[Any], Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        one((64, 128), (64, 128), change)


def test_pages_in_another_order() -> None:
    with pytest.raises(ValueError, match="change places"):
        one((3, 8, 8), (3, 8, 8), lambda w: w.flip(0))


def test_too_large_to_be_followed() -> None:
    with pytest.raises(ValueError, match="too large"):
        one((4099, 4111), (4099, 4111), lambda w: w)  # primes: no common factor


sizes = st.sampled_from([1, 2, 3, 8, 40, 64, 96, 107, 128])


def test_a_single_row_among_many() -> None:
    sources: dict[str, Shape] = {"one": (1, 64), "many": (64, 64)}
    run = lambda ins, _: {"it": torch.cat([*ins.values()])}  # noqa: E731
    assert follow(sources, {"it": (65, 64)}, run)["it"] == (
        Part("one", None, (0, 1)),
        Part("many", None, (1, 65)),
    )


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 5), st.lists(sizes, min_size=1, max_size=4), sizes, st.booleans())
def test_any_stack_of_any_pieces(pages: int, pieces: list[int], width: int, turned: bool) -> None:
    """Put together again by the parts, true-size values are those of the real operations."""
    total = sum(pieces)
    shapes = {
        f"{page}.{number}": (width, rows) if turned else (rows, width)
        for page in range(pages)
        for number, rows in enumerate(pieces)
    }

    def run(ins: Mapping[str, Any], _: object = None) -> dict[str, Any]:
        rows = []
        for number in range(len(pieces)):
            matrices = [ins[f"{page}.{number}"] for page in range(pages)]
            rows.append(torch.stack([m.T if turned else m for m in matrices]))
        return {"it": torch.cat(rows, dim=1)}

    real = {name: torch.randn(shape) for name, shape in shapes.items()}
    again = torch.full((pages, total, width), float("nan"))
    for part in follow(shapes, {"it": (pages, total, width)}, run)["it"]:
        stored = real[part.disk].T if part.transposed else real[part.disk]
        lines = stored[slice(*part.disk_rows)] if part.disk_rows else stored
        again[part.page or 0, slice(*part.rows)] = lines
    assert torch.equal(again, run(real)["it"])
