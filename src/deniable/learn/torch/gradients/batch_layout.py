"""Where the examples lie in a tensor: along which axis, and in blocks of how many.

The search uses gradients, not shapes alone: the gradient of one example's loss is zero at all other examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from torch import Tensor

from deniable.learn.torch.guards.tensor_domains import Domain, ExampleRows


@final
@dataclass(frozen=True, slots=True)
class Layout:
    """Example i of B has the indices i·m, ..., i·m + m - 1 of `axis`; or, if not `blocks`, i, i + B, i + 2B, ..."""

    axis: int
    blocks: bool = True
    is_single: bool = False
    """Whether it was observed with m = 1 only. Then the order for m > 1 is unknown, and such shapes do not fit."""

    def fits(self, shape: tuple[int, ...], count: int) -> bool:
        """Whether a tensor of this shape can hold `count` examples in this layout."""
        if len(shape) <= self.axis or shape[self.axis] == 0:
            return False
        return shape[self.axis] == count if self.is_single else shape[self.axis] % count == 0

    def is_of(self, domain: Domain, shape: tuple[int, ...], count: int) -> bool:
        """Whether this is the layout that the trace of a forward pass proved."""
        if not isinstance(domain, ExampleRows) or domain.axis != self.axis:
            return False
        return domain.after == (shape[self.axis] // count if self.blocks else 1)

    def split(self, values: Tensor, count: int) -> Tensor:
        """The values with a new first axis for the examples. The other axes belong to a single example."""
        many = values.shape[self.axis] // count
        if self.axis == 0 and self.blocks:
            return values.view(count, many, *values.shape[1:])
        if self.blocks:
            return values.unflatten(self.axis, (count, many)).movedim(self.axis, 0)
        return values.unflatten(self.axis, (many, count)).movedim(self.axis + 1, 0)

    def touched(self, values: Tensor, count: int) -> Tensor:
        """A mask of the examples with a value other than zero."""
        return self.split(values, count).flatten(1).ne(0).any(1)


def candidates(shape: tuple[int, ...], count: int) -> Iterator[Layout]:
    """The layouts that a shape allows, usual ones first: (B, ...), (T, B, ...), (B·T, ...), (T·B, ...)."""
    axes = [axis for axis in range(min(len(shape), 3)) if shape[axis] and shape[axis] % count == 0]
    exact = [axis for axis in axes if shape[axis] == count]
    for axis in exact:
        yield Layout(axis, is_single=True)
    for axis in axes:
        if axis not in exact:
            yield Layout(axis)
            yield Layout(axis, blocks=False)


@final
class Search:
    """The layouts that are consistent with the gradients of the examples seen so far. Keeps no gradient."""

    __slots__ = ("_count", "_left", "mixed")

    def __init__(self, count: int) -> None:
        self._count = count
        self._left: list[Layout] | None = None
        self.mixed = False
        """Whether a gradient was nonzero at other examples, although some axis has as many entries as examples."""

    def see(self, example: int, grad: Tensor | None) -> None:
        """Keep only layouts under which this gradient of one example's loss is nonzero at that example alone."""
        if grad is None or not bool(grad.ne(0).any()):
            return
        shape, kept = tuple(grad.shape), []
        listed = list(candidates(shape, self._count)) if self._left is None else self._left
        for layout in listed:
            hit = layout.touched(grad, self._count)
            if bool(hit[example]) and int(hit.sum()) == 1:
                kept.append(layout)
        own_axis = any(shape[layout.axis] == self._count for layout in candidates(shape, self._count))
        self._left, self.mixed = kept, self.mixed or (own_axis and not kept)

    @property
    def is_blind(self) -> bool:
        """Whether all gradients so far were zero or missing."""
        return self._left is None

    @property
    def found(self) -> Layout | None:
        """The most usual layout that is left; None if no layout is left."""
        return self._left[0] if self._left else None
