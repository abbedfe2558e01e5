"""What is known of the per-example gradients of one parameter, from one use of it: enough for norms and clipped sums.

A capture stands for B gradients without holding them where it can. It answers three questions:

    squared()       ‖G_i‖² of each example
    summed(c)       Σ_i c_i G_i
    each(low, high) the gradients of some examples themselves

=============  ============================================  =======================================================
capture        G_i                                           ‖G_i‖²
=============  ============================================  =======================================================
Outer          Σ_t g_it a_itᵀ                                Σ_ts (g_it·g_is)(a_it·a_is), or of G_i itself if shorter
Sums           g_i: the bias beside it, of one place         ‖g_i‖²: with ‖a_i‖² + 1 both come at once
Convolution    the same over unfolded windows                the same
Rows           row v: Σ_{t: id_it = v} g_it                  sum over equal ids first
Vectors        held as it is                                 as it is
=============  ============================================  =======================================================

The first line with the inner products is the ghost norm (Goodfellow 2015; Li et al. 2022); all of it from one backward
pass is book-keeping (Bu, Wang, Zha & Karypis 2023).
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, final

import torch
from torch import Tensor
from torch.nn import functional as F

from deniable.learn.torch.kernels.convolution_kernel import columns, offsets, products

CPU_ROOM = 2**20
"""Numbers that a temporary may have on a CPU: 4 MB of single precision stay near the caches, and the next one takes
them over. Larger ones come as fresh pages each time, which takes longer than to fill them."""

DEVICE_ROOM = 2**28
"""And on an accelerator, where one large product is quicker than many small ones."""

HALF = (torch.bfloat16, torch.float16)

KEPT = 2
"""A convolution's gradients are held if they are at most so many times as large as what goes in and out of it."""

TOGETHER = 2**12
"""Squares that are added up one by one in single precision: of many more, the sum would be off by whole percents."""

TOGETHER_ON_A_DEVICE = 2**14
"""There, hundreds of threads share them."""

MARGIN = 64
"""Rounding errors, in units of the last place, by which an inner product may be off in proportion to its terms."""


QUICK = ("cpu",)
"""Devices that are handed an operation in no time; others take longer for that than for a small one itself."""


def is_quick(tensor: Tensor) -> bool:
    """Whether many small operations are as quick as few large ones, where this tensor is."""
    return tensor.device.type in QUICK


def room(tensor: Tensor) -> int:
    return CPU_ROOM if is_quick(tensor) else DEVICE_ROOM


@final
class Factors:
    """What each example's gradient is multiplied by; the same for each of its places is made once."""

    __slots__ = ("_over", "_room", "each")

    def __init__(self, each: Tensor) -> None:
        self.each = each
        self._over: dict[int, Tensor] = {}
        self._room: dict[torch.Size, Tensor] = {}

    def scaled(self, rows: Tensor, places: int) -> Tensor:
        """Rows of B × `places`, each times its example's factor; in room that the next of this shape takes over."""
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
    """Of the parameter, or of the block."""

    @abstractmethod
    def squared(self) -> Tensor:
        """‖G_i‖², on the safe side of the rounding that ghost norms suffer."""

    @property
    def lost(self) -> int:
        """How much of ‖G_i‖² may be lost where numbers are too small, in units of (2 / scale)²; see `per_example`."""
        return 0

    @abstractmethod
    def summed(self, factors: Factors) -> Tensor:
        """Σ_i factors_i G_i."""

    @abstractmethod
    def each(self, low: int, high: int) -> Tensor:
        """G_low, ..., G_{high-1} in one tensor."""

    @abstractmethod
    def keep(self, kept: Tensor) -> None:
        """Make the gradients of all other examples 0, whatever they were: a factor 0 would leave NaN what it is."""


@final
class Outer(Capture):
    """Sums of outer products over places t: g of shape (B·m, T, o), a of shape (B·m, T, i), m independent blocks."""

    __slots__ = ("_kept", "a", "blocks", "g")

    def __init__(self, g: Tensor, a: Tensor, shape: torch.Size, blocks: int = 1) -> None:
        self.g, self.a, self.shape, self.blocks = g, a, shape, blocks
        self._kept: Tensor | None = None

    @property
    def count(self) -> int:
        return int(self.g.shape[0]) // self.blocks

    def some(self, low: int, high: int) -> tuple[Tensor, Tensor]:
        """What the gradients of some examples are made of."""
        if low == 0 and high == self.count:
            return self.g, self.a
        return self.g[low * self.blocks : high * self.blocks], self.a[low * self.blocks : high * self.blocks]

    def direct(self, low: int, high: int) -> Tensor:
        """The gradients of some examples, one row for each, block by block."""
        g, a = self.some(low, high)
        return torch.bmm(g.transpose(1, 2), a).view(high - low, -1)

    @property
    def is_ghost(self) -> bool:
        """Whether the gradients are longer than what they are made of: then only their lengths are worked out."""
        (_, places, outs), ins = self.g.shape, self.a.shape[-1]
        return bool(places > 1 and outs * ins > places * (outs + ins))

    @property
    def lost(self) -> int:
        (_, places, outs), ins = self.g.shape, self.a.shape[-1]
        return int(2 * self.blocks * places**2 * (outs + ins)) if places == 1 or self.is_ghost else 0

    def squared(self, *, with_sums: bool = False) -> Tensor:
        """‖G_i‖²; of a single place with those of the bias beside it, if wanted."""
        if self.g.shape[1] == 1:
            a = square(self.a)
            return _by_example(square(self.g).mul_(a.add_(1) if with_sums else a), self.count)
        assert not with_sums
        if self.is_ghost:
            return ghosts([self], self.count, self.g)
        self._kept = self.direct(0, self.count)  # their sum comes for nothing
        return square(self._kept)

    @property
    def places(self) -> int:
        return int(self.g.shape[1])

    @property
    def maps(self) -> int:
        return self.blocks

    def inner(self, low: int, high: int, onto: Tensor | None) -> Tensor:
        """See `Ghost`."""
        g, a = self.some(low, high)
        one, other = torch.bmm(g, g.transpose(1, 2)), torch.bmm(a, a.transpose(1, 2))
        return one.mul_(other) if onto is None else onto.addcmul_(one, other)

    def cross(self, rows: EmbeddingRows) -> Tensor:
        """<G_i, R_i> with the rows of an embedding that shares the weight."""
        heard = torch.gather(self.g, 2, rows.ids.unsqueeze(1).expand(-1, self.g.shape[1], -1))
        return (heard * torch.bmm(self.a, rows.g.transpose(1, 2))).flatten(1).sum(1)

    def summed(self, factors: Factors) -> Tensor:
        if self._kept is not None:
            return torch.mv(self._kept.T, factors.each).view(self.shape)
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
    """The bias of a linear map that saw one place of each example: what is known of it is known of the weight."""

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
class Convolution(Capture):
    """A convolution: x of shape (B, m, C, ...), padded already, and g of shape (B, m, O, ...)."""

    __slots__ = ("_kept", "dilation", "g", "groups", "kernel", "stride", "x")

    def __init__(
        self,
        g: Tensor,
        x: Tensor,
        shape: torch.Size,
        *,
        stride: Sequence[int],
        dilation: Sequence[int],
        groups: int,
    ) -> None:
        self.g, self.x, self.shape = g, x, shape
        self.stride, self.dilation, self.groups = tuple(stride), tuple(dilation), groups
        self.kernel = tuple(shape[2:])
        self._kept: Tensor | None = None
        """Gradients that are held: (B·groups, K·C, O), and maybe columns of zeros."""

    def _multiplied(self) -> Tensor | None:
        """The gradients by the compiled kernel; None where it is of no use."""
        if self.x.shape[1] != 1:
            return None
        x = self.x.reshape(len(self.x) * self.groups, self.shape[1], *self.x.shape[3:])
        g = self.g.reshape(len(x), self.shape[0] // self.groups, math.prod(self.g.shape[3:]))
        channel, *spatial = x.stride()[1:]
        apart, far = (tuple(map(operator.mul, spatial, each)) for each in (self.dilation, self.stride))
        taps = offsets((*self.kernel, self.shape[1]), (*apart, channel))
        places = offsets(tuple(self.g.shape[3:]), far)
        return products(g, x, taps, places)

    def _unfolded(self, low: int, high: int) -> Outer:
        """The same as outer products: every window laid out as a row, channels last, as long runs copy fast."""
        x, g = self.x[low:high].flatten(0, 1), self.g[low:high]
        count, more = high - low, self.x.shape[1]
        last = x.movedim(1, -1).contiguous()
        out, (each, *spatial) = g.shape[3:], last.stride()[:-1]
        windows = last.as_strided(
            (count, self.groups, more, *out, *self.kernel, self.shape[1]),
            (
                more * each,
                self.shape[1],
                each,
                *(s * d for s, d in zip(spatial, self.stride, strict=True)),
                *(s * d for s, d in zip(spatial, self.dilation, strict=True)),
                1,
            ),
        )
        places, outs = math.prod(out), self.shape[0] // self.groups
        a = windows.reshape(count * self.groups, more * places, math.prod(self.shape[1:]))
        g = g.reshape(count, more, self.groups, outs, places)
        g = g[:, 0].transpose(-1, -2) if more == 1 else g.permute(0, 2, 1, 4, 3).flatten(2, 3)
        return Outer(g.flatten(0, 1), a, self.shape, self.groups)

    def _ordered(self, flat: Tensor) -> Tensor:
        """From channels last to the order of the weight: (..., O·K·C) becomes (..., O, C, K)."""
        split = flat.reshape(*flat.shape[:-1], self.shape[0], *self.kernel, self.shape[1])
        return split.movedim(-1, -1 - len(self.kernel))

    @property
    def lost(self) -> int:
        places = self.x.shape[1] * math.prod(self.g.shape[3:])
        return int(2 * places**2 * (self.shape[0] + self.groups * math.prod(self.shape[1:])))

    def _hold(self) -> Tensor | None:
        """Make the gradients once, for their lengths and their sum; None if they are longer than what they are made
        of."""
        if self._kept is not None:
            return self._kept
        count, more = self.x.shape[:2]
        ins, outs, places = math.prod(self.shape[1:]), self.shape[0] // self.groups, more * math.prod(self.g.shape[3:])
        most = KEPT * places * (ins + outs)
        if columns(outs) * ins <= most:
            self._kept = self._multiplied()
        if self._kept is None and outs * ins <= most:
            kept = self._kept = self.x.new_empty((count * self.groups, ins, outs))
            for low, high in chunks(count, self._each, room(self.x)):
                rows = self._unfolded(low, high)
                torch.bmm(rows.a.transpose(1, 2), rows.g, out=kept[low * self.groups : high * self.groups])
        return self._kept

    @property
    def _each(self) -> int:
        """Numbers that the unfolded windows of one example, and what they are multiplied with, have."""
        places, ins = self.x.shape[1] * math.prod(self.g.shape[3:]), math.prod(self.shape[1:])
        return int(places * (self.groups * ins + self.shape[0]))

    def squared(self) -> Tensor:
        kept, count = self._hold(), len(self.x)
        if kept is not None:
            return _by_example(square(kept.flatten(1)), count)
        some = [self._unfolded(low, high).squared() for low, high in chunks(count, self._each, room(self.x))]
        return torch.cat(some)

    def summed(self, factors: Factors) -> Tensor:
        if self._kept is not None:
            whole = torch.mv(self._kept.view(len(factors.each), -1).T, factors.each)
            whole = whole.view(self.groups, *self._kept.shape[1:])[..., : self.shape[0] // self.groups]
            return self._ordered(whole.transpose(1, 2).flatten())
        spatial = len(self.kernel)
        weighted = (self.g * factors.each.view(-1, 1, 1, *([1] * spatial))).flatten(0, 1)
        x = self.x.flatten(0, 1)
        nothing = [0] * spatial
        _, whole, _ = torch.ops.aten.convolution_backward(
            weighted,
            x,
            x.new_empty(self.shape),
            None,
            list(self.stride),
            nothing,
            list(self.dilation),
            False,
            nothing,
            self.groups,
            [False, True, False],
        )
        return whole

    def each(self, low: int, high: int) -> Tensor:
        kept = self._hold()
        if kept is None:
            return self._ordered(self._unfolded(low, high).direct(0, high - low))
        whole = kept.view(-1, self.groups, *kept.shape[1:])
        whole = whole[low:high, ..., : self.shape[0] // self.groups].transpose(-1, -2)
        return self._ordered(whole.flatten(1))

    def keep(self, kept: Tensor) -> None:
        self.g, self.x = only(kept, self.g), only(kept, self.x)
        self._kept = None if self._kept is None else only(kept, self._kept)


@final
class EmbeddingRows(Capture):
    """An embedding: ids of shape (B, T), g of shape (B, T, d); what must not count has g = 0 already."""

    __slots__ = ("_kept", "g", "ids")

    def __init__(self, g: Tensor, ids: Tensor, shape: torch.Size) -> None:
        self.g, self.ids, self.shape = g, ids, shape
        self._kept: tuple[Tensor, Tensor, Tensor] | None = None
        """Example, id and gradient of each row that an example has: its places may cancel, and a sum over all examples
        of places that do would lose the others in rounding."""

    @property
    def places(self) -> int:
        return int(self.g.shape[1])

    @property
    def maps(self) -> int:
        return 1

    @property
    def is_ghost(self) -> bool:
        """Whether places are compared with each other: on an accelerator, which sorting ids would wait for."""
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
    """Gradients held as they are: (B, *shape)."""

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
    """The values of the examples that are kept, and 0 for the others; an example may have several rows in front."""
    rows = kept.repeat_interleave(values.shape[0] // kept.shape[0])
    return torch.where(rows.view(-1, *[1] * (values.dim() - 1)), values, 0.0)


def square(values: Tensor) -> Tensor:
    """The squared lengths of the last axis, without a temporary of the size of the values."""
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
    """The precision in which lengths and sums are counted: that of the parameter, but single for a half one."""
    return torch.float32 if dtype in HALF else dtype


def _by_example(values: Tensor, count: int) -> Tensor:
    """One number for each block, or place, becomes one for each example."""
    if values.dim() == 1 and values.shape[0] == count:
        return values
    return values.view(count) if values.numel() == count else values.reshape(count, -1).sum(1)


class Ghost(Protocol):
    """What has lengths by inner products of all its places with each other."""

    @property
    def places(self) -> int: ...

    @property
    def maps(self) -> int:
        """Of how many weights the inner products are."""

    def inner(self, low: int, high: int, onto: Tensor | None) -> Tensor:
        """(g_it·g_is)(a_it·a_is) of some examples, added to what is there already."""


def ghosts(several: Sequence[Ghost], count: int, on: Tensor) -> Tensor:
    """‖G_i‖² of weights that saw as many places as each other, added up."""

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


def _summed_up(inner: Tensor, count: int, margin: int) -> Tensor:
    """Σ_ts of inner products (B·m, T, T) for each of B examples, and what rounding may have lost of it.

    Terms of both signs cancel, rounding errors do not; they are in proportion to (Σ_t ‖g_t‖‖a_t‖)², which is at most T
    times the sum over the diagonal. (Not by a product with ones: a CPU adds its terms one by one.)
    """
    more = margin * torch.finfo(inner.dtype).eps * inner.shape[-1]
    diagonal = inner.diagonal(dim1=1, dim2=2).sum(1)
    return _by_example(inner.sum((1, 2)).add_(diagonal, alpha=more), count)


def chunks(count: int, each: int, most: int) -> list[tuple[int, int]]:
    """Some examples at a time, from and to, so that what is made of them stays small."""
    size = max(1, min(count, most // max(each, 1)))
    return [(low, min(low + size, count)) for low in range(0, max(count, 1), size)]


def padded(x: Tensor, module: torch.nn.Module) -> Tensor:
    """The input of a convolution with its padding written out."""
    padding = module._reversed_padding_repeated_twice
    if module.padding_mode != "zeros":
        return F.pad(x, padding, mode=module.padding_mode)
    return F.pad(x, padding) if any(padding) else x
