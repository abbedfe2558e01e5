"""Norms and weighted sums of per-example gradients from factors in half precision, without copies in single precision.

A gradient is G_b = Σ_t g_bt a_btᵀ, and autocast leaves g and a in bfloat16 or float16. Products of two such numbers are
exact in single precision, because they have at most 22 significant bits, and tensor cores add them in single precision.
So norms and sums have the same rounding errors as with factors in single precision: `ROUNDING` has the bound.

A clipping factor c_b is not multiplied with g or a. The product would have to be rounded to half precision, which moves
c_b G_b by up to 2⁻⁸ c_b Σ_t ‖g_t‖‖a_t‖. That is more than its norm where places cancel, and the clipped gradient could
become longer than the clipping norm. Here the sum over the places of an example is multiplied, in single precision.

On other devices, and without Triton, the factors are converted to single precision.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import final

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

HALF = (torch.bfloat16, torch.float16)

ROUNDING = 16
"""Tensor cores add at least this many products to a sum at a time, and each such addition loses at most one unit in the
last place. An inner product of n numbers then has a relative error of n / 16 units, of the sum of its terms' sizes.
"""


@functools.cache
def _triton() -> ModuleType | None:
    if importlib.util.find_spec("triton") is None:
        return None
    from deniable.learn.torch.kernels import half_kernels

    return half_kernels


def _kernels(on: Tensor) -> ModuleType | None:
    """The compiled kernels for the device of this tensor, which need tensor cores for bfloat16; None elsewhere."""
    return None if isinstance(on, FakeTensor) else _kernels_of(on.device)  # a captured step has no addresses


def _kernels_of(device: torch.device) -> ModuleType | None:
    if device.type != "cuda" or torch.version.hip is not None or torch.cuda.get_device_capability(device) < (8, 0):
        return None
    return _triton()


ADDRESSES = 2**16
"""The number of tensor addresses that fit while a CUDA graph is recorded: two for each layer, a few times."""


def recorded(addresses: Tensor) -> AbstractContextManager[None]:
    """While a CUDA graph is recorded, kernels keep addresses in this pinned memory, which must live as long as the
    graph.
    """
    compiled = _kernels_of(torch.device("cuda"))
    return nullcontext() if compiled is None else compiled.recorded(addresses)


@final
@dataclass(frozen=True, slots=True)
class Windows:
    """The factors of a convolution's gradient: x of shape (B, height, width, C) and g of shape (B, height, width, O),
    and where the windows of x lie. Places outside of x are 0."""

    x: Tensor
    g: Tensor
    kernel: Sequence[int]
    stride: Sequence[int]
    before: Sequence[int]
    """How many rows and columns of zeros the first window begins with."""
    dilation: Sequence[int]


def reads_windows(g: Tensor, groups: int) -> bool:
    """Whether `window_norms` and `window_sums` apply to a convolution with this output gradient."""
    return groups == 1 and g.dtype in HALF and _kernels_of(g.device) is not None


def window_norms(windows: Windows) -> Tensor:
    """‖G_b‖² with G_b = Σ_t a_bt g_btᵀ, where a_bt is window t of x as one row: (B,) in single precision."""
    from deniable.learn.torch.kernels import window_kernels

    return window_kernels.norms(windows)


def window_sums(windows: Windows, factors: Tensor) -> Tensor:
    """Σ_b factors_b G_b, (entries of a window, outputs), in single precision. G_b is rounded as for the norms."""
    from deniable.learn.torch.kernels import window_kernels

    return window_kernels.sums(windows, factors)


def _in_order(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    return [each.contiguous() for each in tensors]


def weighted(gs: Sequence[Tensor], others: Sequence[Tensor], factors: Tensor) -> Sequence[Tensor]:
    """Σ_b factors_b Σ_t g_bt a_btᵀ in single precision for each of some equal layers, whose factors are g of shape
    (B, T, o) in `gs` and a of shape (B, T, i) in `others`."""
    compiled = _kernels(factors)
    if compiled is not None:
        return tuple(compiled.weighted(_in_order(gs), _in_order(others), factors.contiguous()))
    scales = factors.view(-1, 1, 1)
    pairs = zip(gs, others, strict=True)
    return [torch.mm((g.float() * scales).flatten(0, 1).T, a.float().flatten(0, 1)) for g, a in pairs]


def ghost(gs: Sequence[Tensor], others: Sequence[Tensor]) -> tuple[Tensor, Tensor] | None:
    """Σ ‖G_b‖² over equal layers, as Σ_ts (g_t·g_s)(a_t·a_s), and the sum over t = s alone. Without kernels, None."""
    compiled = _kernels(gs[0])
    return None if compiled is None else compiled.ghost(_in_order(gs), _in_order(others))


def place_sums(gs: Sequence[Tensor]) -> Sequence[Tensor]:
    """Σ_t g_bt, (B, o), for each of some equal layers: in single precision if g is in half precision."""
    if gs[0].dtype not in HALF:
        return [g.sum(1) for g in gs]
    compiled = _kernels(gs[0])
    if compiled is not None and all(g.is_contiguous() for g in gs):
        return tuple(compiled.place_sums(gs))
    return [g.sum(1, dtype=torch.float32) for g in gs]


def outer_products(gs: Sequence[Tensor], others: Sequence[Tensor]) -> Tensor:
    """G_b = Σ_t g_bt a_btᵀ in single precision for each of some equal layers: (L, B, o, i)."""
    compiled = _kernels(gs[0])
    if compiled is not None:
        made: Tensor = compiled.outer_products(_in_order(gs), _in_order(others))
        return made
    pairs = zip(gs, others, strict=True)
    return torch.stack([torch.bmm(g.float().transpose(1, 2), a.float()) for g, a in pairs])


def outer_product(g: Tensor, a: Tensor) -> Tensor:
    """G_b = Σ_t g_bt a_btᵀ in single precision: (B, o, i)."""
    if g.device.type == "cuda" and torch.version.hip is None:
        return torch.bmm(g.transpose(1, 2), a, out_dtype=torch.float32)
    return torch.bmm(g.float().transpose(1, 2), a.float())


def normalised(xs: Sequence[Tensor], gs: Sequence[Tensor], eps: float) -> Tensor | None:
    """Σ_t g_t x̂_t and Σ_t g_t for each of some equal layers, where x̂ is x normalised over its last axis: from x and g
    of shape (B, T, w) to (2, L, B, w). Without kernels, None."""
    compiled = _kernels(xs[0])
    if compiled is None or not {each.dtype for each in (*xs, *gs)} <= {torch.float32, *HALF}:
        return None
    found: Tensor | None = compiled.normalised(_in_order(xs), _in_order(gs), eps)
    return found
