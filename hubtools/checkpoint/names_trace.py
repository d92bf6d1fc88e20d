"""Where stored tensors end up when transformers stacks, joins, cuts or turns them over.

The real operations run on small stand-ins of whole numbers, each telling which tensor, page, row
and column it stands for; what comes out is read back as parts.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubtools.checkpoint.names import Part

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]
_LARGEST = 1 << 24  # elements of all stand-ins of one group: 128 MB
_SMALLEST = 4  # rows and columns: operations that halve or interleave need some


class Tracer:
    """Stand-ins of one group of tensors that are converted together, all to the same scale.

    Rows and columns are divided by a common factor, so that sums and halves of them stay sums and
    halves; pages (the first of three dimensions) are not.

    Args:
        shapes: of everything that goes in or comes out.
    """

    def __init__(self, shapes: Iterable[Shape]) -> None:
        self._scale = _common_factor(list(shapes))
        self._names: list[str] = []
        self._stand_ins: list[torch.Tensor] = []
        self._starts: list[int] = [0]

    def small(self, shape: Shape) -> Shape:
        """A true shape at the scale of the stand-ins."""
        kept = 1 if len(shape) == 3 else 0
        return (*shape[:kept], *(-(-size // self._scale) for size in shape[kept:]))

    def stand_in(self, name: str, shape: Shape) -> torch.Tensor:
        """The stand-in of a stored tensor (int64).

        Raises:
            ValueError: the group is too large to be followed.
        """
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
        """Read a parameter: which stored tensors it is made of.

        Args:
            result: what the operations made of the stand-ins.
            shape: its true shape.

        Raises:
            ValueError: it is not made of whole rows (or columns) of the stored tensors.
        """
        if tuple(result.shape) != self.small(shape):
            raise ValueError(f"the stored tensors do not add up to {list(shape)}")
        runs = self._runs(result)
        if any(run.source_page is not None for run in runs):
            raise ValueError("pages of one stored tensor go to different places")
        return tuple(
            Part(run.source, run.page, run.rows, run.transposed, None if run.whole else run.lines)
            for run in runs
        )

    def origins(self, result: torch.Tensor, name: str) -> list[tuple[str, Part]]:
        """Read what would be stored as `name`: in which parameters it lies, and where.

        Raises:
            ValueError: as `parts`.
        """
        found, runs = [], self._runs(result)
        whole = len({run.rows for run in runs}) == 1
        for run in runs:
            if run.page is not None or (run.transposed and not (run.whole and whole)):
                raise ValueError("it holds columns of one parameter")
            lines = (0, self._true_rows(run)) if run.transposed else run.lines
            inside = None if whole else run.rows
            part = Part(name, run.source_page, lines, run.transposed, inside)
            found.append((run.source, part))
        return found

    def _true_rows(self, run: _Run) -> int:
        return self._stand_ins[self._names.index(run.source)].shape[1] * self._scale

    def _runs(self, result: torch.Tensor) -> list[_Run]:
        pages = _pages(result)
        found: list[list[_Run]] = []
        for page, matrix in enumerate(pages):
            runs, row = [], 0
            while row < len(matrix):
                runs.append(self._run(matrix, row, page))
                row = runs[-1].rows[1] // self._scale
            found.append(runs)
        stacked = len(pages) > 1 and all(
            run.source_page == page for page, runs in enumerate(found) for run in runs
        )
        if stacked or len(pages) == 1:
            runs = [replace(run, page=None) for run in found[0]]
            same = [[replace(r, page=None, source_page=None) for r in runs] for runs in found]
            if stacked and all(group == same[0] for group in same):
                return same[0]
            if len(pages) == 1:
                return runs
        return [run for group in found for run in group]

    def _run(self, matrix: torch.Tensor, row: int, page: int) -> _Run:
        """The stored rows that begin at this row of a page."""
        code = int(matrix[row, 0])
        number = bisect.bisect_right(self._starts, code) - 1
        stored = self._stand_ins[number]
        source_page, place = divmod(code - self._starts[number], stored[0].numel())
        source, (first, column) = stored[source_page], divmod(place, stored.shape[2])
        for transposed, lines, start in ((False, source, first), (True, source.T, column)):
            length = _same_rows(matrix[row:], lines[start:])
            if length:
                return _Run(
                    source=self._names[number],
                    source_page=source_page if len(stored) > 1 else None,
                    lines=(start * self._scale, (start + length) * self._scale),
                    whole=length == len(lines),
                    page=page,
                    rows=(row * self._scale, (row + length) * self._scale),
                    transposed=transposed,
                )
        raise ValueError("its rows are mixed from several stored rows")


@dataclass(frozen=True, slots=True)
class _Run:
    """Lines (rows, or columns when transposed) of one source that lie together, true numbers."""

    source: str
    source_page: int | None
    lines: tuple[int, int]
    whole: bool
    page: int | None
    rows: tuple[int, int]
    transposed: bool


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


def _common_factor(shapes: list[Shape]) -> int:
    if any(len(shape) > 3 for shape in shapes):
        return 1
    sizes = [size for shape in shapes for size in shape[1 if len(shape) == 3 else 0 :] if size > 1]
    factor = math.gcd(*sizes) if all(sizes) and sizes else 1
    while factor > 1 and min(sizes) // factor < _SMALLEST:
        factor //= next(n for n in range(2, factor + 1) if factor % n == 0)
    return factor
