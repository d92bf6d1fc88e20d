"""Where stored tensors end up when transformers stacks, joins, cuts or turns them over.

The real operations run on small stand-ins of whole numbers, each telling which tensor, page, row
and column it stands for; what comes out is read back as parts.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hubtools.checkpoint.naming.names import Part

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]
_LARGEST = 1 << 24  # elements of all stand-ins of one group: 128 MB
_SMALLEST = 4  # rows and columns: operations that halve or interleave need some


Run = Callable[[Mapping[str, "torch.Tensor"], Callable[[Shape], Shape]], Mapping[str, Any]]


def follow(
    sources: Mapping[str, Shape], results: Mapping[str, Shape], run: Run
) -> dict[str, tuple[Part, ...]]:
    """What each result is made of.

    The operations run twice at different scales and must tell the same: one that reorders single
    rows may by chance look like a copy at one scale, and never at two.

    Args:
        sources: stored tensors that go in, with their true shapes.
        results: parameters that come out, with their true shapes.
        run: the operations: takes stand-ins by name and what turns a true shape into theirs;
            returns what comes out, by name.

    Raises:
        ValueError: a result is not made of whole rows (or columns) of the sources.
    """
    coarse = _common_factor([*sources.values(), *results.values()])
    told = []
    for scale in {coarse, coarse // _first_prime(coarse)}:
        tracer = _Tracer(scale)
        stand_ins = {name: tracer.stand_in(name, shape) for name, shape in sources.items()}
        outputs = run(stand_ins, tracer.small)
        told.append({name: tracer.parts(found, results[name]) for name, found in outputs.items()})
    if told[0] != told[-1]:
        raise ValueError("its rows are mixed from several stored rows")
    return told[0]


class _Tracer:
    """Stand-ins of tensors that are converted together, all to one scale.

    Rows and columns are divided by a common factor, so that sums and halves of them stay sums and
    halves; pages (the first of three dimensions) are not.
    """

    def __init__(self, scale: int) -> None:
        self._scale = scale
        self._names: list[str] = []
        self._stand_ins: list[torch.Tensor] = []
        self._starts: list[int] = [0]

    def small(self, shape: Shape) -> Shape:
        """A true shape at the scale of the stand-ins."""
        kept = 1 if len(shape) == 3 else 0
        return (*shape[:kept], *(size // self._scale for size in shape[kept:]))

    def stand_in(self, name: str, shape: Shape) -> torch.Tensor:
        """The stand-in of a stored tensor (int64)."""
        import torch

        start, small = self._starts[-1], self.small(shape)
        if start + math.prod(small) > _LARGEST:
            raise ValueError("its tensors have no common factor and are too large to be followed")
        tensor = torch.arange(start, start + math.prod(small)).reshape(small)
        self._names.append(name)
        self._stand_ins.append(_pages(tensor))
        self._starts.append(start + tensor.numel())
        return tensor

    def parts(self, result: torch.Tensor, shape: Shape) -> tuple[Part, ...]:
        """Read what came out for a parameter of this true shape."""
        if tuple(result.shape) != self.small(shape):
            raise ValueError(f"the stored tensors do not add up to {list(shape)}")
        pages = _pages(result)
        found = [self._page(matrix, page, len(pages)) for page, matrix in enumerate(pages)]
        if all(parts == found[0] for parts in found):
            return tuple(found[0])
        parts = tuple(part for group in found for part in group)
        if any(part.page is None for part in parts):
            raise ValueError("its pages are made in different ways")
        return parts

    def _page(self, matrix: torch.Tensor, page: int, pages: int) -> list[Part]:
        parts, row = list[Part](), 0
        while row < len(matrix):
            parts.append(self._run(matrix, row, page, pages))
            row = parts[-1].rows[1] // self._scale
        return parts

    def _run(self, matrix: torch.Tensor, row: int, page: int, pages: int) -> Part:
        """The stored rows (or columns) that begin at this row of a page."""
        code = int(matrix[row, 0])
        number = bisect.bisect_right(self._starts, code) - 1
        stored = self._stand_ins[number]
        source_page, place = divmod(code - self._starts[number], stored[0].numel())
        stacked = len(stored) > 1
        if stacked and (len(stored), source_page) != (pages, page):
            raise ValueError("pages of one stored tensor change places")
        source, (first, column) = stored[source_page], divmod(place, stored.shape[2])
        for transposed, lines, start in ((False, source, first), (True, source.T, column)):
            length = _same_rows(matrix[row:], lines[start:])
            if length:
                inside = (start * self._scale, (start + length) * self._scale)
                return Part(
                    self._names[number],
                    None if stacked or pages == 1 else page,
                    (row * self._scale, (row + length) * self._scale),
                    transposed,
                    None if length == len(lines) else inside,
                )
        raise ValueError("its rows are mixed from several stored rows")


def _same_rows(found: torch.Tensor, lines: torch.Tensor) -> int:
    if found.shape[1] != lines.shape[1]:
        return 0
    count = min(len(found), len(lines))
    same = (found[:count] == lines[:count]).all(dim=1)
    return count if bool(same.all()) else int(same.int().argmin())


def _pages(tensor: torch.Tensor) -> torch.Tensor:
    """As [pages, rows, columns]; a vector has one column, more dimensions are columns."""
    if tensor.dim() == 3:
        return tensor
    return tensor.reshape(1, tensor.shape[0] if tensor.dim() else 1, -1)


def _first_prime(number: int) -> int:
    return next((n for n in range(2, number + 1) if number % n == 0), 1)


def _common_factor(shapes: list[Shape]) -> int:
    if any(len(shape) > 3 for shape in shapes):
        return 1
    sizes = [size for shape in shapes for size in shape[1 if len(shape) == 3 else 0 :]]
    factor = math.gcd(*sizes) if sizes and all(sizes) else 1
    while factor > 1 and min(sizes) // factor < _SMALLEST:
        factor //= _first_prime(factor)
    return factor
