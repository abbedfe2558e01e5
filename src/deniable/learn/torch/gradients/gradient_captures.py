"""Captures: the per-example gradients of one parameter from one use of it, stored as factors rather than as tensors.

A parameter has one gradient G_i for each example i of a batch of B. DP-SGD needs two results from them: the norms
‖G_i‖, to choose a clipping factor c_i for each example, and the clipped sum Σ_i c_i G_i. A capture provides both, and
does not form the B gradients where there is a cheaper way:

    squared()       ‖G_i‖² of each example
    summed(c)       Σ_i c_i G_i
    each(low, high) the gradients of some examples themselves, for checks

**Why this is possible.** A linear layer maps the input a_it of example i at place t (a token, a pixel, a window) to
W a_it. If g_it is the gradient of the loss at that output, then G_i = Σ_t g_it a_itᵀ. With T places, o outputs and i
inputs per place, G_i has o·i entries, but g and a have only T(o + i). Its squared norm is a sum of inner products,

    ‖G_i‖² = Σ_t Σ_s (g_it·g_is)(a_it·a_is),

the *ghost norm* (Goodfellow 2015; Li et al. 2022). The clipped sum is one matrix product over all examples and places:
Σ_i c_i G_i = (c g)ᵀ a. For few places this is much less work than forming each G_i; for many places it is more.
`Outer.is_ghost` decides.

=============  =====================================  ==============================================================
capture        G_i                                    ‖G_i‖²
=============  =====================================  ==============================================================
Outer          Σ_t g_it a_itᵀ                         the ghost norm, or from G_i itself if that is smaller
BiasSums       g_i, the bias of a layer with T = 1    ‖g_i‖²; weight and bias together: ‖g_i‖² (‖a_i‖² + 1)
Convolution    as Outer, over windows                 see `convolutions`
EmbeddingRows  row v: Σ_{t: id_it = v} g_it           add the places with equal ids, then square
Vectors        stored as it is                        computed as it is
=============  =====================================  ==============================================================

**Rounding.** Norms must not be too small, or an example would be clipped too little. Ghost norms add terms of both
signs, so rounding can lose more than in a sum of squares; `_summed_up` adds a bound on that loss. `Capture.lost` bounds
the effect of underflow (see `per_example`).

**Half precision.** On an accelerator, an `Outer` or a `Convolution` holds its factors as autocast left them, and
`half_products` computes from them as exactly as from copies in single precision. All other captures are in single
precision.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Protocol, final

import torch
from torch import Tensor

from deniable.learn.torch.kernels import half_products
from deniable.learn.torch.kernels.half_products import HALF

CPU_ROOM = 2**20
"""The most numbers in a temporary tensor on a CPU. 4 MB of single precision stay near the caches and are reused; larger
ones get new pages from the system each time, which costs more than filling them."""

DEVICE_ROOM = 2**28
"""The same on an accelerator, where one large product is faster than many small ones."""

TOGETHER = 2**12
"""The most squares that are added one after the other in single precision. With many more, the error would reach
percents.
"""

TOGETHER_ON_A_DEVICE = 2**14
"""The same on an accelerator, where hundreds of threads share the sum."""

MARGIN = 64
"""Bound on the relative rounding error of an inner product, in units of the last place of the sum of its terms' sizes.
"""


QUICK = ("cpu",)
"""Devices with negligible kernel-launch cost."""


def is_quick(tensor: Tensor) -> bool:
    """Whether many small operations cost no more than a few large ones on the device of this tensor."""
    return tensor.device.type in QUICK


def room(tensor: Tensor) -> int:
    """The largest number of elements that a temporary tensor may have on the device of `tensor`."""
    return CPU_ROOM if is_quick(tensor) else DEVICE_ROOM


@final
class Factors:
    """The weight c_i of each example, with cached expansions to all places of an example."""

    __slots__ = ("_over", "_room", "each")

    def __init__(self, each: Tensor) -> None:
        self.each = each
        self._over: dict[int, Tensor] = {}
        self._room: dict[torch.Size, Tensor] = {}

    def scaled(self, rows: Tensor, places: int) -> Tensor:
        """The rows (B · `places`, width), each times its example's factor. The next call with this shape overwrites the
        result."""
        over = self._over.get(places)
        if over is None:
            over = self._over[places] = self.each.view(-1, 1, 1).expand(-1, places, 1).reshape(-1, 1)
        room = self._room.get(rows.shape)
        if room is None:
            room = self._room[rows.shape] = torch.empty_like(rows, memory_format=torch.contiguous_format)
        return torch.mul(rows, over, out=room)


class Capture(ABC):
    """The gradients of one parameter, or of a block of its rows, for B examples."""

    __slots__ = ("shape",)
    shape: torch.Size
    """The shape of the parameter, or of the block."""

    @abstractmethod
    def squared(self) -> Tensor:
        """‖G_i‖² of each example. Ghost norms are rounded up."""

    @property
    def lost(self) -> int:
        """Bound on what underflow removes from ‖G_i‖, squared, in units of (2 / scale)²; see `per_example`."""
        return 0

    @abstractmethod
    def summed(self, factors: Factors) -> Tensor:
        """Σ_i factors_i G_i."""

    @abstractmethod
    def each(self, low: int, high: int) -> Tensor:
        """G_low, ..., G_{high-1} in one tensor."""

    @abstractmethod
    def keep(self, kept: Tensor) -> None:
        """Set the gradients of the examples outside of the mask to 0. (A factor of 0 would keep NaN.)"""


@final
class Outer(Capture):
    """Sums of outer products over places t: g of shape (B·m, T, o), a of shape (B·m, T, i). The m blocks are groups of
    rows of one weight, each with its own inputs (m > 1 for grouped convolutions)."""

    __slots__ = ("_kept", "a", "blocks", "g")

    def __init__(self, g: Tensor, a: Tensor, shape: torch.Size, blocks: int = 1) -> None:
        self.g, self.a, self.shape, self.blocks = g, a, shape, blocks
        self._kept: Tensor | None = None

    @property
    def count(self) -> int:
        return int(self.g.shape[0]) // self.blocks

    def some(self, low: int, high: int) -> tuple[Tensor, Tensor]:
        """g and a of examples low, …, high - 1."""
        if low == 0 and high == self.count:
            return self.g, self.a
        return self.g[low * self.blocks : high * self.blocks], self.a[low * self.blocks : high * self.blocks]

    def direct(self, low: int, high: int) -> Tensor:
        """The gradients of examples low, …, high - 1, one row for each, block after block."""
        g, a = self.some(low, high)
        if self.is_half:
            return half_products.outer_product(g, a).view(high - low, -1)
        return torch.bmm(g.transpose(1, 2), a).view(high - low, -1)

    @property
    def is_half(self) -> bool:
        """Whether the factors are in half precision. Norms and sums are in single precision in any case."""
        return self.g.dtype in HALF

    @property
    def kind(self) -> Hashable:
        """Equal for captures that `half_products` computes together."""
        return self.g.dtype, self.g.shape, self.a.shape

    @property
    def is_ghost(self) -> bool:
        """Whether a gradient has more entries than its factors g and a. Then only its ghost norm is computed."""
        (_, places, outs), ins = self.g.shape, self.a.shape[-1]
        return bool(places > 1 and outs * ins > places * (outs + ins))

    @property
    def lost(self) -> int:
        (_, places, outs), ins = self.g.shape, self.a.shape[-1]
        return int(2 * self.blocks * places**2 * (outs + ins)) if places == 1 or self.is_ghost else 0

    def squared(self, *, with_sums: bool = False) -> Tensor:
        """‖G_i‖². If each example has one place, `with_sums` adds the squared norm of the bias's gradient."""
        if self.g.shape[1] == 1:
            g, a = (square(each.to(counted(each.dtype))) for each in (self.g, self.a))
            return by_example(g.mul_(a.add_(1) if with_sums else a), self.count)
        assert not with_sums
        if self.is_ghost:
            return half_ghosts([self]) if self.is_half else ghosts([self], self.count, self.g)
        self._kept = self.direct(0, self.count)  # `summed` uses them again
        return square(self._kept)

    @property
    def places(self) -> int:
        return int(self.g.shape[1])

    @property
    def maps(self) -> int:
        return self.blocks

    def inner(self, low: int, high: int, onto: Tensor | None) -> Tensor:
        """See `Ghost`."""
        g, a = (each.to(counted(each.dtype)) for each in self.some(low, high))
        one, other = torch.bmm(g, g.transpose(1, 2)), torch.bmm(a, a.transpose(1, 2))
        return one.mul_(other) if onto is None else onto.addcmul_(one, other)

    def cross(self, rows: EmbeddingRows) -> Tensor:
        """The inner product ⟨G_i, R_i⟩ with the gradient R_i of an embedding that shares the weight."""
        g, a = (each.to(rows.g.dtype) for each in (self.g, self.a))
        heard = torch.gather(g, 2, rows.ids.unsqueeze(1).expand(-1, g.shape[1], -1))
        return (heard * torch.bmm(a, rows.g.transpose(1, 2))).flatten(1).sum(1)

    def summed(self, factors: Factors) -> Tensor:
        if self._kept is not None:
            return torch.mv(self._kept.T, factors.each).view(self.shape)
        if self.is_half:
            return half_products.weighted([self.g], [self.a], factors.each)[0]
        g, a = self.g.reshape(-1, self.g.shape[-1]), self.a.reshape(-1, self.a.shape[-1])
        if g.shape[1] <= a.shape[1]:
            return torch.mm(factors.scaled(g, self.g.shape[1]).T, a)
        return torch.mm(g.T, factors.scaled(a, self.g.shape[1]))

    def each(self, low: int, high: int) -> Tensor:
        return self.direct(low, high).reshape(high - low, *self.shape)

    def keep(self, kept: Tensor) -> None:
        self.g, self.a = only(kept, self.g), only(kept, self.a)
        self._kept = None if self._kept is None else only(kept, self._kept)


@final
class BiasSums(Capture):
    """The bias of a linear map with one place for each example. It shares g with the capture of the weight."""

    __slots__ = ("outer", "values")

    def __init__(self, outer: Outer) -> None:
        self.outer, self.values, self.shape = outer, outer.g[:, 0], outer.g.shape[-1:]

    def squared(self) -> Tensor:
        return square(self.values)

    def summed(self, factors: Factors) -> Tensor:
        return torch.mv(self.values.T, factors.each)

    def each(self, low: int, high: int) -> Tensor:
        return self.values[low:high]

    def keep(self, kept: Tensor) -> None:
        self.values = only(kept, self.values)


@final
class EmbeddingRows(Capture):
    """An embedding: ids of shape (B, T) and g of shape (B, T, d), with g = 0 at padding."""

    __slots__ = ("_kept", "g", "ids")

    def __init__(self, g: Tensor, ids: Tensor, shape: torch.Size) -> None:
        self.g, self.ids, self.shape = g, ids, shape
        self._kept: tuple[Tensor, Tensor, Tensor] | None = None
        """(example, id, gradient) of each row that an example uses. Places of one example may cancel, so they are added
        before the sum over examples, where rounding would otherwise lose small terms of other examples."""

    @property
    def places(self) -> int:
        return int(self.g.shape[1])

    @property
    def maps(self) -> int:
        return 1

    @property
    def is_ghost(self) -> bool:
        """Whether to use the ghost norm. On an accelerator it is faster than sorting ids, which synchronises."""
        return not is_quick(self.g) and self.places > 1

    def inner(self, low: int, high: int, onto: Tensor | None) -> Tensor:
        """See `Ghost`: a_it·a_is is 1 where both places have the same id, or else 0."""
        g, ids = self.g[low:high], self.ids[low:high]
        product = torch.bmm(g, g.transpose(1, 2)).mul_(ids.unsqueeze(1) == ids.unsqueeze(2))
        return product if onto is None else onto.add_(product)

    def squared(self) -> Tensor:
        count, places, width = self.g.shape
        if places == 1:
            return self.g.flatten(1).square().sum(1)
        if self.is_ghost:
            return ghosts([self], count, self.g)
        owner = torch.arange(count, device=self.ids.device).unsqueeze(1)
        keys, where = torch.unique(self.ids + owner * self.shape[0], return_inverse=True)
        added = self.g.new_zeros((keys.numel(), width)).index_add_(0, where.flatten(), self.g.flatten(0, 1))
        whose = torch.div(keys, self.shape[0], rounding_mode="floor")
        self._kept = whose, keys - whose * self.shape[0], added
        lengths = square(added)
        return lengths.new_zeros(count).index_add_(0, whose, lengths)

    def summed(self, factors: Factors) -> Tensor:
        if self._kept is not None:
            whose, ids, added = self._kept
            return self.g.new_zeros(self.shape).index_add_(0, ids, added * factors.each[whose].unsqueeze(1))
        weighted = (self.g * factors.each.view(-1, 1, 1)).flatten(0, 1)
        return self.g.new_zeros(self.shape).index_add_(0, self.ids.flatten(), weighted)

    def each(self, low: int, high: int) -> Tensor:
        made = self.g.new_zeros((high - low, *self.shape))
        for place in range(low, high):
            made[place - low].index_add_(0, self.ids[place], self.g[place])
        return made

    def keep(self, kept: Tensor) -> None:
        self.g = only(kept, self.g)
        if self._kept is not None:
            whose, ids, added = self._kept
            self._kept = whose, ids, only(kept[whose], added)


@final
class Vectors(Capture):
    """Gradients stored as they are: (B, *shape)."""

    __slots__ = ("values",)

    def __init__(self, values: Tensor) -> None:
        self.values, self.shape = values, values.shape[1:]

    @property
    def rows(self) -> Tensor:
        """Each gradient as one row."""
        return self.values if self.values.dim() == 2 else self.values.reshape(self.values.shape[0], -1)

    def squared(self) -> Tensor:
        return square(self.rows)

    def summed(self, factors: Factors) -> Tensor:
        return torch.mv(self.rows.T, factors.each).view(self.shape)

    def each(self, low: int, high: int) -> Tensor:
        return self.values[low:high]

    def keep(self, kept: Tensor) -> None:
        self.values = only(kept, self.values)


def only(kept: Tensor, values: Tensor) -> Tensor:
    """The values with 0 for examples outside of the mask `kept`. An example may have several rows of the first axis."""
    rows = kept.repeat_interleave(values.shape[0] // kept.shape[0])
    return torch.where(rows.view(-1, *[1] * (values.dim() - 1)), values, 0.0)


def square(values: Tensor) -> Tensor:
    """Squared norms over the last axis, without a temporary tensor of the size of the values."""
    together = TOGETHER if is_quick(values) else TOGETHER_ON_A_DEVICE
    if values.shape[-1] <= together:
        return torch.linalg.vector_norm(values, dim=-1).square_()
    even = values.shape[-1] // together * together
    pieces = torch.linalg.vector_norm(values[..., :even].unflatten(-1, (-1, together)), dim=-1)
    total = pieces.square_().sum(-1)
    if even < values.shape[-1]:
        total += torch.linalg.vector_norm(values[..., even:], dim=-1).square_()
    return total


def counted(dtype: torch.dtype) -> torch.dtype:
    """The precision for norms and sums: the precision of the parameter, or single precision for half precision."""
    return torch.float32 if dtype in HALF else dtype


def by_example(values: Tensor, count: int) -> Tensor:
    """Add the numbers of all blocks of an example: one number for each example."""
    if values.dim() == 1 and values.shape[0] == count:
        return values
    return values.view(count) if values.numel() == count else values.reshape(count, -1).sum(1)


class Ghost(Protocol):
    """A capture whose norm comes from inner products between all pairs of places: a ghost norm."""

    @property
    def places(self) -> int: ...

    @property
    def maps(self) -> int:
        """The number of weights, or blocks of a weight, that the inner products cover."""

    def inner(self, low: int, high: int, onto: Tensor | None) -> Tensor:
        """(g_it·g_is)(a_it·a_is) of examples low, …, high - 1, added to `onto`."""


def ghosts(several: Sequence[Ghost], count: int, on: Tensor) -> Tensor:
    """Σ ‖G_i‖² over several weights with equally many places, for each of `count` examples."""

    def some(low: int, high: int) -> Tensor:
        total: Tensor | None = None
        for each in several:
            total = each.inner(low, high, total)
        assert total is not None
        return _summed_up(total, high - low, MARGIN + maps)

    maps, places = sum(each.maps for each in several), several[0].places
    numbers = 3 * max(each.maps for each in several) * places * places
    found = [some(low, high) for low, high in chunks(count, numbers, room(on))]
    return found[0] if len(found) == 1 else torch.cat(found)


def half_ghosts(several: Sequence[Outer]) -> Tensor:
    """Σ ‖G_i‖² of each example over several weights of one `Outer.kind`, whose factors are in half precision."""
    first = several[0]
    found = half_products.ghost([each.g for each in several], [each.a for each in several])
    if found is None:
        return ghosts(several, first.count, first.g)
    whole, diagonal = found
    widths = first.g.shape[-1] + first.a.shape[-1]
    margin = MARGIN + len(several) * first.blocks + widths // half_products.ROUNDING
    return by_example(whole.add_(diagonal, alpha=margin * torch.finfo(whole.dtype).eps * first.places), first.count)


def held_together(several: Sequence[Outer]) -> Tensor:
    """Σ ‖G_i‖² of each example over several weights of one `Outer.kind`, in half precision, whose gradients are smaller
    than their factors. The gradients are formed and held."""
    made = half_products.outer_products([each.g for each in several], [each.a for each in several]).flatten(2)
    for each, kept in zip(several, made, strict=True):
        each._kept = kept
    return square(made).sum(0)


def _summed_up(inner: Tensor, count: int, margin: int) -> Tensor:
    """Σ_ts of the inner products (B·m, T, T) for each of B examples, plus a bound on the rounding error.

    Terms of both signs cancel, but their rounding errors do not. The errors are proportional to (Σ_t ‖g_t‖‖a_t‖)²,
    which is at most T times the sum over the diagonal. (A product with ones would be less exact: a CPU adds its terms
    one by one.)
    """
    more = margin * torch.finfo(inner.dtype).eps * inner.shape[-1]
    diagonal = inner.diagonal(dim1=1, dim2=2).sum(1)
    return by_example(inner.sum((1, 2)).add_(diagonal, alpha=more), count)


def chunks(count: int, each: int, most: int) -> list[tuple[int, int]]:
    """Ranges (low, high) of examples such that a range has at most `most` numbers, at `each` numbers per example."""
    size = max(1, min(count, most // max(each, 1)))
    return [(low, min(low + size, count)) for low in range(0, max(count, 1), size)]
