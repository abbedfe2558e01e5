"""Where the examples are in a tensor: along which axis, and in blocks of how many.

Found, not guessed: the gradient of one example's loss is zero wherever other examples are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from torch import Tensor


@final
@dataclass(frozen=True, slots=True)
class Layout:
    """Example i of B has the places i·m, ..., i·m + m - 1 of `axis`; or, if not `blocks`, i, i + B, i + 2B, ..."""

    axis: int
    blocks: bool = True

    def fits(self, shape: tuple[int, ...], count: int) -> bool:
        return len(shape) > self.axis and shape[self.axis] > 0 and shape[self.axis] % count == 0

    def split(self, values: Tensor, count: int) -> Tensor:
        """One more axis in front, for the examples; behind it what one example alone would look like."""
        many = values.shape[self.axis] // count
        if self.blocks:
            return values.unflatten(self.axis, (count, many)).movedim(self.axis, 0)
        return values.unflatten(self.axis, (many, count)).movedim(self.axis + 1, 0)

    def touched(self, values: Tensor, count: int) -> Tensor:
        """Which examples have a value other than zero."""
        return self.split(values, count).flatten(1).ne(0).any(1)


def candidates(shape: tuple[int, ...], count: int) -> Iterator[Layout]:
    """Layouts that a shape allows, the usual ones first: (B, ...), (T, B, ...), (B·T, ...), (T·B, ...)."""
    axes = [axis for axis in range(min(len(shape), 3)) if shape[axis] and shape[axis] % count == 0]
    exact = [axis for axis in axes if shape[axis] == count]
    for axis in exact:
        yield Layout(axis)
    for axis in axes:
        if axis not in exact:
            yield Layout(axis)
            yield Layout(axis, blocks=False)


def found(probes: dict[int, Tensor], shape: tuple[int, ...], count: int) -> Layout | None:
    """The layout in which each probed example's gradient is zero at all other examples; None if there is none."""
    seen = [(example, grad) for example, grad in probes.items() if bool(grad.ne(0).any())]
    if not seen:
        return None
    for layout in candidates(shape, count):
        rows = ((example, layout.touched(grad, count)) for example, grad in seen)
        if all(bool(hit[example]) and int(hit.sum()) == 1 for example, hit in rows):
            return layout
    return None
