"""Captures of convolutions: the per-example gradients of a weight, stored as input and output gradient.

A convolution is a linear map of windows, so G_i = Σ_t g_it a_itᵀ as for any linear map (`gradient_captures`), where
a_it is the window of place t. Three ways lead to norms and sums:

1. In half precision on an NVIDIA device, a kernel reads windows in place and computes G_i twice, for the norms and for
   the sums; nothing of its size is stored (`window_kernels`).
2. If G_i has few entries (`KEPT`), it is formed once and held. On a CPU a kernel reads windows in place for this.
3. Otherwise windows are copied into rows (unfolded) for the ghost norm, and the sum is the gradient of a convolution.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from deniable.learn.torch.gradients.gradient_captures import (
    MARGIN,
    Capture,
    Factors,
    Outer,
    by_example,
    chunks,
    counted,
    is_quick,
    only,
    room,
    square,
)
from deniable.learn.torch.kernels import half_products
from deniable.learn.torch.kernels.convolution_kernel import columns, offsets, products

KEPT = 2
"""A convolution forms and holds its gradients if they have at most this many times the entries of its input windows and
output gradients.
"""


@final
class Convolution(Capture):
    """A convolution: input x of shape (B·m, C, ...) and output gradient g of shape (B·m, O, ...), for `images` = m of
    each example. `padding` is what x still has to be padded with, by zeros, as `torch.nn.functional.pad` takes it."""

    __slots__ = ("_kept", "dilation", "g", "groups", "images", "kernel", "padding", "stride", "x")

    def __init__(
        self,
        g: Tensor,
        x: Tensor,
        shape: torch.Size,
        *,
        stride: Sequence[int],
        dilation: Sequence[int],
        groups: int,
        images: int = 1,
        padding: Sequence[int] = (),
    ) -> None:
        self.g, self.x, self.shape = g, x, shape
        self.stride, self.dilation, self.groups = tuple(stride), tuple(dilation), groups
        self.images = images
        self.kernel, self.padding = tuple(shape[2:]), tuple(padding)
        self._kept: Tensor | None = None
        """The gradients, if they are held: (B·groups, K·C, O), possibly with extra columns of zeros."""

    @property
    def count(self) -> int:
        return len(self.g) // self.images

    def _pad(self) -> None:
        """Pad x, for all ways that do not read windows in place."""
        if any(self.padding):
            self.x = F.pad(self.x, self.padding)
        self.padding = ()

    def _in_place(self) -> half_products.Windows | None:
        """Input and output gradient for the kernel of `window_kernels`; None if it does not apply."""
        if self._kept is not None or self.images != 1 or not half_products.reads_windows(self.g, self.groups):
            return None
        if len(self.kernel) > 2 or not len(self.g):
            return None
        x, g = (each.movedim(1, -1).contiguous() for each in (self.x, self.g))
        self.x, self.g = x.movedim(-1, 1), g.movedim(-1, 1)  # the same numbers: they are copied once at most
        before = tuple(reversed(self.padding[::2])) or (0,) * len(self.kernel)
        sizes = [self.kernel, self.stride, before, self.dilation]
        if len(self.kernel) == 1:
            x, g = x.unsqueeze(1), g.unsqueeze(1)
            sizes = [(neutral, *size) for neutral, size in zip((1, 1, 0, 1), sizes, strict=True)]
        return half_products.Windows(x, g, *sizes)

    def _multiplied(self) -> Tensor | None:
        """The gradients by the compiled kernel; None if it does not apply."""
        if self.images != 1:
            return None
        x = self.x.reshape(len(self.x) * self.groups, self.shape[1], *self.x.shape[2:])
        g = self.g.reshape(len(x), self.shape[0] // self.groups, math.prod(self.g.shape[2:]))
        channel, *spatial = x.stride()[1:]
        apart, far = (tuple(map(operator.mul, spatial, each)) for each in (self.dilation, self.stride))
        taps = offsets((*self.kernel, self.shape[1]), (*apart, channel))
        places = offsets(tuple(self.g.shape[2:]), far)
        return products(g, x, taps, places)

    def _unfolded(self, low: int, high: int) -> Outer:
        """The same gradients as outer products. Each window becomes a row with channels last: long runs copy fast."""
        count, more = high - low, self.images
        x, g = (each[low * more : high * more] for each in (self.x, self.g))
        last = x.movedim(1, -1).contiguous()
        wide = 8 // x.element_size()
        if not is_quick(x) and self.shape[1] % wide == 0:
            last = last.view(torch.int64)  # a device copies numbers of eight bytes in the same time as shorter ones
        out, (each, *spatial), channels = g.shape[2:], last.stride()[:-1], last.shape[-1] // self.groups
        windows = last.as_strided(
            (count, self.groups, more, *out, *self.kernel, channels),
            (
                more * each,
                channels,
                each,
                *(s * d for s, d in zip(spatial, self.stride, strict=True)),
                *(s * d for s, d in zip(spatial, self.dilation, strict=True)),
                1,
            ),
        )
        places, outs = math.prod(out), self.shape[0] // self.groups
        a = windows.reshape(count * self.groups, more * places, math.prod(self.kernel) * channels).view(x.dtype)
        g = g.reshape(count, more, self.groups, outs, places)
        g = g[:, 0].transpose(-1, -2) if more == 1 else g.permute(0, 2, 1, 4, 3).flatten(2, 3)
        return Outer(g.flatten(0, 1), a, self.shape, self.groups)

    def _ordered(self, flat: Tensor) -> Tensor:
        """Reorder from channels last to the order of the weight: (..., O·K·C) becomes (..., O, C, K)."""
        split = flat.reshape(*flat.shape[:-1], self.shape[0], *self.kernel, self.shape[1])
        return split.movedim(-1, -1 - len(self.kernel))

    @property
    def lost(self) -> int:
        places = self.images * math.prod(self.g.shape[2:])
        return int(2 * places**2 * (self.shape[0] + self.groups * math.prod(self.shape[1:])))

    def _hold(self) -> Tensor | None:
        """Form the gradients once, for norms and sums. None if they have too many entries (see KEPT)."""
        if self._kept is not None:
            return self._kept
        self._pad()
        count, more = self.count, self.images
        ins, outs, places = math.prod(self.shape[1:]), self.shape[0] // self.groups, more * math.prod(self.g.shape[2:])
        most = KEPT * places * (ins + outs)
        if columns(outs) * ins <= most:
            self._kept = self._multiplied()
        if self._kept is None and outs * ins <= most:
            kept = self._kept = self.x.new_empty((count * self.groups, ins, outs), dtype=counted(self.x.dtype))
            for low, high in chunks(count, self._each, room(self.x)):
                rows, part = self._unfolded(low, high), kept[low * self.groups : high * self.groups]
                if rows.is_half:
                    part.copy_(half_products.outer_product(rows.a, rows.g))
                else:
                    torch.bmm(rows.a.transpose(1, 2), rows.g, out=part)
        return self._kept

    @property
    def _each(self) -> int:
        """How many numbers the unfolded windows and the output gradients of one example have."""
        places, ins = self.images * math.prod(self.g.shape[2:]), math.prod(self.shape[1:])
        return int(places * (self.groups * ins + self.shape[0]))

    def squared(self) -> Tensor:
        windows = self._in_place()
        if windows is not None:
            # Adding squares up rounds, too: the factor keeps a norm from being measured too short.
            return half_products.window_norms(windows).mul_(1 + MARGIN * torch.finfo(torch.float32).eps)
        kept, count = self._hold(), self.count
        if kept is not None:
            return by_example(square(kept.flatten(1)), count)
        some = [self._unfolded(low, high).squared() for low, high in chunks(count, self._each, room(self.x))]
        return torch.cat(some)

    def summed(self, factors: Factors) -> Tensor:
        if self._kept is not None:
            whole = torch.mv(self._kept.view(len(factors.each), -1).T, factors.each)
            whole = whole.view(self.groups, *self._kept.shape[1:])[..., : self.shape[0] // self.groups]
            return self._ordered(whole.transpose(1, 2).flatten())
        windows = self._in_place()
        if windows is not None:
            return self._ordered(half_products.window_sums(windows, factors.each).T.flatten())
        self._pad()
        spatial = len(self.kernel)
        # Factors in half precision are converted first: rounded products could exceed the clipping norm.
        weighted = self.g * factors.each.repeat_interleave(self.images).view(-1, 1, *([1] * spatial))
        x = self.x.to(weighted.dtype)
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
