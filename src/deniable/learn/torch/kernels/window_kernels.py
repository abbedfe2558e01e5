"""Per-example gradients of convolutions in half precision, by a Triton kernel that reads windows in place.

A convolution is a linear map of windows: with the input a_bt of window t of example b and the gradient g_bt at that
place, the gradient of the weight is G_b = Σ_t g_bt a_btᵀ. Copies of all windows would be nine times the input of a 3×3
convolution, and writing and reading them takes longer than the products. The kernel computes the address of each entry
of a window instead, and never stores G_b: it stores squares for the norms, or adds factors_b · G_b up.

Both passes compute G_b by the same products in the same order, so they round alike: the gradient that is added is the
gradient whose norm was measured, whatever rounding did to it. A clipping factor multiplies G_b in single precision.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from deniable.learn.torch.kernels.half_products import Windows


@triton.jit
def _windows(
    out,
    x,
    g,
    factors,
    count,
    examples_at_once,
    high: tl.constexpr,
    wide: tl.constexpr,
    ins: tl.constexpr,
    out_high: tl.constexpr,
    out_wide: tl.constexpr,
    outs: tl.constexpr,
    kernel_high: tl.constexpr,
    kernel_wide: tl.constexpr,
    stride_high: tl.constexpr,
    stride_wide: tl.constexpr,
    above: tl.constexpr,
    left_of: tl.constexpr,
    dilation_high: tl.constexpr,
    dilation_wide: tl.constexpr,
    is_norm: tl.constexpr,
    rows_at_once: tl.constexpr,
    columns_at_once: tl.constexpr,
    places_at_once: tl.constexpr,
):
    """A program computes one tile of G_b, (entries of a window, outputs), of some examples one after the other.

    With `is_norm`, out[tile, b] is the sum of squares of the tile. Otherwise out[part] is Σ_b factors[b] G_b over the
    examples of a part. x is (B, high, wide, ins), g is (B, out_high, out_wide, outs).
    """
    tile, part = tl.program_id(0), tl.program_id(1)
    across: tl.constexpr = (outs + columns_at_once - 1) // columns_at_once
    entries: tl.constexpr = kernel_high * kernel_wide * ins
    places: tl.constexpr = out_high * out_wide
    steps: tl.constexpr = (places + places_at_once - 1) // places_at_once
    columns = (tile % across) * columns_at_once + tl.arange(0, columns_at_once)
    rows = (tile // across) * rows_at_once + tl.arange(0, rows_at_once)
    tap, channels = (rows // ins)[None, :], (rows % ins)[None, :]
    down = (tap // kernel_wide) * dilation_high - above
    right = (tap % kernel_wide) * dilation_wide - left_of
    inner = tl.arange(0, places_at_once)
    total = tl.zeros((rows_at_once, columns_at_once), tl.float32)
    one = tl.zeros((rows_at_once, columns_at_once), tl.float32)
    begin = part * examples_at_once
    for k in range(tl.minimum(examples_at_once, count - begin) * steps):
        example = (begin + k // steps).to(tl.int64)
        place = (k % steps) * places_at_once + inner
        y = (place // out_wide * stride_high)[:, None] + down
        z = (place % out_wide * stride_wide)[:, None] + right
        is_there = (place < places)[:, None]
        inside = is_there & (rows < entries)[None, :] & (y >= 0) & (y < high) & (z >= 0) & (z < wide)
        windows = tl.load(x + example * (high * wide * ins) + (y * wide + z) * ins + channels, mask=inside, other=0.0)
        grads = tl.load(
            g + example * (places * outs) + place[:, None] * outs + columns[None, :],
            mask=is_there & (columns < outs)[None, :],
            other=0.0,
        )
        one = tl.dot(tl.trans(windows), grads, one)
        if k % steps == steps - 1:  # the last places of an example
            if is_norm:
                tl.store(out + tile.to(tl.int64) * count + example, tl.sum(tl.sum(one * one, 1), 0))
            else:
                total += one * tl.load(factors + example)
            one = tl.zeros((rows_at_once, columns_at_once), tl.float32)
    if not is_norm:
        target = out + part.to(tl.int64) * (entries * outs) + rows[:, None] * outs + columns[None, :]
        tl.store(target, total, mask=(rows < entries)[:, None] & (columns < outs)[None, :])


def norms(windows: Windows) -> Tensor:
    """See `half_products.window_norms`."""
    return _computed(windows, None)


def sums(windows: Windows, factors: Tensor) -> Tensor:
    """See `half_products.window_sums`."""
    return _computed(windows, factors.contiguous())


def _tiles(entries: int, outs: int, places: int) -> dict[str, int]:
    """Sizes of tiles, found by trials on an H200: the same for norms and sums, so that both round alike."""
    is_short, is_wide = places <= 16, outs > 64
    return {
        "rows_at_once": max(16, min(64 if is_short else 128, triton.next_power_of_2(entries))),
        "columns_at_once": max(16, min(128, triton.next_power_of_2(outs))),
        "places_at_once": max(16, min(64, triton.next_power_of_2(places))),
        "num_warps": 8 if is_wide and not is_short else 4,
        "num_stages": 3 if is_wide and not is_short else 4,
    }


NORM_PROGRAMS, SUM_PROGRAMS, SUM_PARTS = 2048, 264, 4
"""About how many programs run: fewer have long loops, and more leave no processor idle. Sums have at least SUM_PARTS
parts of the examples."""


def _computed(windows: Windows, factors: Tensor | None) -> Tensor:
    x, g = windows.x, windows.g
    (count, high, wide, ins), (_, out_high, out_wide, outs) = x.shape, g.shape
    entries = math.prod(windows.kernel) * ins
    given = _tiles(entries, outs, out_high * out_wide)
    pieces = triton.cdiv(entries, given["rows_at_once"]) * triton.cdiv(outs, given["columns_at_once"])
    wanted = max(1, NORM_PROGRAMS // pieces) if factors is None else max(SUM_PARTS, SUM_PROGRAMS // pieces)
    at_once = triton.cdiv(count, min(count, wanted))
    parts = triton.cdiv(count, at_once)
    shape = (pieces, count) if factors is None else (parts, entries, outs)
    out = torch.empty(shape, dtype=torch.float32, device=x.device)
    _windows[(pieces, parts)](
        out,
        x,
        g,
        out if factors is None else factors,
        count,
        at_once,
        high,
        wide,
        ins,
        out_high,
        out_wide,
        outs,
        *windows.kernel,
        *windows.stride,
        *windows.before,
        *windows.dilation,
        is_norm=factors is None,
        **given,
    )
    return out.sum(0)
