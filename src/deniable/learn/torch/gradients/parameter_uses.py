"""All uses of one parameter in a batch as one gradient: captures of the same kind are merged, others are added."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from deniable.learn.torch.gradients.convolutions import Convolution
from deniable.learn.torch.gradients.gradient_captures import (
    MARGIN,
    BiasSums,
    Capture,
    EmbeddingRows,
    Factors,
    Outer,
    Vectors,
    chunks,
    room,
    square,
)


@final
class Uses:
    """All uses of one parameter in a batch: its gradient is the sum over them."""

    __slots__ = ("_is_direct", "captures")

    def __init__(self, captures: Sequence[Capture]) -> None:
        self.captures = _merged(captures)
        self._is_direct = False

    @property
    def sole(self) -> Capture | None:
        """The only capture, if there is exactly one."""
        return self.captures[0] if len(self.captures) == 1 else None

    @property
    def lost(self) -> int:
        """See `Capture.lost`. For n captures the norms add up, and (Σ a)² ≤ n Σ a²."""
        return len(self.captures) * sum(each.lost for each in self.captures)

    def squared(self) -> Tensor:
        if len(self.captures) == 1:
            return self.captures[0].squared()
        kinds = {type(each): each for each in self.captures}
        if (
            len(self.captures) == 2
            and isinstance(o := kinds.get(Outer), Outer)
            and isinstance(r := kinds.get(EmbeddingRows), EmbeddingRows)
        ):
            apart = o.squared() + r.squared()
            return (apart + 2 * o.cross(r)).clamp_(min=0) + MARGIN * torch.finfo(apart.dtype).eps * apart
        self._is_direct = True
        return torch.cat([square(self.each(low, high).flatten(1)) for low, high in self._chunks()])

    def _chunks(self) -> list[tuple[int, int]]:
        first = self.captures[0]
        return chunks(_count(first), len(self.captures) * math.prod(first.shape), room(first.each(0, 1)))

    def summed(self, factors: Factors) -> Tensor:
        if self._is_direct:  # uses may cancel within an example, so add them before the sum over examples
            total = factors.each.new_zeros(math.prod(self.captures[0].shape))
            for low, high in self._chunks():
                total.addmv_(self.each(low, high).flatten(1).T, factors.each[low:high])
            return total.view(self.captures[0].shape)
        total = self.captures[0].summed(factors)
        for part in self.captures[1:]:
            total = total + part.summed(factors)
        return total

    def each(self, low: int, high: int) -> Tensor:
        return sum((part.each(low, high) for part in self.captures[1:]), start=self.captures[0].each(low, high))

    def keep(self, kept: Tensor) -> None:
        for part in self.captures:
            part.keep(kept)


def _merged(captures: Sequence[Capture]) -> Sequence[Capture]:
    """An equivalent, shorter list: captures of the same kind are concatenated along their places."""
    if len(captures) == 1:
        return captures
    found: list[Capture] = [each for each in captures if isinstance(each, Convolution)]
    outers = [each for each in captures if isinstance(each, Outer)]
    rows = [each for each in captures if isinstance(each, EmbeddingRows)]
    vectors = [each for each in captures if isinstance(each, Vectors | BiasSums)]
    if outers:
        g, a = (torch.cat([getattr(each, side) for each in outers], 1) for side in ("g", "a"))
        found.append(Outer(g, a, outers[0].shape) if len(outers) > 1 else outers[0])
    if rows:
        g, ids = (torch.cat([getattr(each, side) for each in rows], 1) for side in ("g", "ids"))
        found.append(EmbeddingRows(g, ids, rows[0].shape) if len(rows) > 1 else rows[0])
    if vectors:
        found.append(Vectors(sum((each.values for each in vectors[1:]), start=vectors[0].values)))
    return found


def _count(capture: Capture) -> int:
    if isinstance(capture, Vectors | BiasSums):
        return int(capture.values.shape[0])
    if isinstance(capture, Convolution):
        return capture.count
    assert isinstance(capture, Outer | EmbeddingRows)
    return int(capture.g.shape[0])
