"""Sums over per-example gradients whose factors are in half precision, by Triton kernels on an NVIDIA device.

`half_products` explains what they compute and why, and computes the same without Triton. Equal layers are computed by
one launch without copying their factors: a kernel receives the addresses of the factors of all layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

HALVES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}

KINDS = {torch.float32: tl.float32, **HALVES}

WIDEST = 8192
"""The longest row of a layer normalisation that a program holds."""


@triton.jit
def _weighted(
    out,
    g_addresses,
    a_addresses,
    factors,
    count,
    places,
    outs: tl.constexpr,
    ins: tl.constexpr,
    half: tl.constexpr,
    rows_at_once: tl.constexpr,
    columns_at_once: tl.constexpr,
    places_at_once: tl.constexpr,
):
    """out[l, o, i] = Σ_b factors[b] Σ_t g[l][b, t, o] a[l][b, t, i]. A program computes one tile of one layer."""
    layer = tl.program_id(1)
    across: tl.constexpr = (ins + columns_at_once - 1) // columns_at_once
    rows = (tl.program_id(0) // across) * rows_at_once + tl.arange(0, rows_at_once)
    columns = (tl.program_id(0) % across) * columns_at_once + tl.arange(0, columns_at_once)
    inner = tl.arange(0, places_at_once)
    g = tl.multiple_of(tl.load(g_addresses + layer).to(tl.pointer_type(half)), 16)
    a = tl.multiple_of(tl.load(a_addresses + layer).to(tl.pointer_type(half)), 16)
    g += inner[:, None] * outs + rows[None, :]
    a += inner[:, None] * ins + columns[None, :]
    steps = tl.cdiv(places, places_at_once)
    total = tl.zeros((rows_at_once, columns_at_once), tl.float32)
    one = tl.zeros((rows_at_once, columns_at_once), tl.float32)
    for k in range(count * steps):
        start = (k // steps * places + k % steps * places_at_once).to(tl.int64)
        inside = (k % steps * places_at_once + inner < places)[:, None]
        left = tl.load(g + start * outs, mask=inside & (rows < outs)[None, :], other=0.0)
        right = tl.load(a + start * ins, mask=inside & (columns < ins)[None, :], other=0.0)
        one = tl.dot(tl.trans(left), right, one)
        if k % steps == steps - 1:  # the last places of an example
            total += one * tl.load(factors + k // steps)
            one = tl.zeros((rows_at_once, columns_at_once), tl.float32)
    target = out + layer.to(tl.int64) * outs * ins + rows[:, None] * ins + columns[None, :]
    tl.store(target, total, mask=(rows < outs)[:, None] & (columns < ins)[None, :])


@triton.jit
def _weighted_by_tiles(
    out,
    g_addresses,
    a_addresses,
    factors,
    count,
    places,
    outs: tl.constexpr,
    ins: tl.constexpr,
    half: tl.constexpr,
    rows_at_once: tl.constexpr,
    columns_at_once: tl.constexpr,
    places_at_once: tl.constexpr,
):
    """The same by the tensor memory accelerator of Hopper and later, for `places` that `places_at_once` divides."""
    layer = tl.program_id(1)
    across: tl.constexpr = (ins + columns_at_once - 1) // columns_at_once
    row, column = (tl.program_id(0) // across) * rows_at_once, (tl.program_id(0) % across) * columns_at_once
    g = tl.load(g_addresses + layer).to(tl.pointer_type(half))
    a = tl.load(a_addresses + layer).to(tl.pointer_type(half))
    g_tiles = tl.make_tensor_descriptor(
        g, shape=[count * places, outs], strides=[outs, 1], block_shape=[places_at_once, rows_at_once]
    )
    a_tiles = tl.make_tensor_descriptor(
        a, shape=[count * places, ins], strides=[ins, 1], block_shape=[places_at_once, columns_at_once]
    )
    steps = places // places_at_once
    total = tl.zeros((rows_at_once, columns_at_once), tl.float32)
    one = tl.zeros((rows_at_once, columns_at_once), tl.float32)
    for k in range(count * steps):
        left, right = g_tiles.load([k * places_at_once, row]), a_tiles.load([k * places_at_once, column])
        one = tl.dot(tl.trans(left), right, one)
        if k % steps == steps - 1:
            total += one * tl.load(factors + k // steps)
            one = tl.zeros((rows_at_once, columns_at_once), tl.float32)
    rows, columns = row + tl.arange(0, rows_at_once), column + tl.arange(0, columns_at_once)
    target = out + layer.to(tl.int64) * outs * ins + rows[:, None] * ins + columns[None, :]
    tl.store(target, total, mask=(rows < outs)[:, None] & (columns < ins)[None, :])


@triton.jit
def _ghost(
    sums,
    diagonals,
    g_addresses,
    a_addresses,
    count,
    places,
    outs: tl.constexpr,
    ins: tl.constexpr,
    half: tl.constexpr,
    places_at_once: tl.constexpr,
    numbers_at_once: tl.constexpr,
):
    """Σ (g_t·g_s)(a_t·a_s) over a tile of pairs of places t ≥ s of one example and layer, and over t = s alone.

    Pairs with t > s count twice. Tiles are numbered (0, 0), (1, 0), (1, 1), (2, 0), ...
    """
    tile, example, layer = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = ((tl.sqrt(8.0 * tile + 1.0) - 1.0) / 2.0).to(tl.int32)
    first = tl.where((first + 1) * (first + 2) // 2 <= tile, first + 1, first)
    first = tl.where(first * (first + 1) // 2 > tile, first - 1, first)
    second = tile - first * (first + 1) // 2
    inner = tl.arange(0, numbers_at_once)
    t, s = first * places_at_once + tl.arange(0, places_at_once), second * places_at_once + tl.arange(0, places_at_once)
    start = (example * places).to(tl.int64)
    g = tl.multiple_of(tl.load(g_addresses + layer).to(tl.pointer_type(half)), 16) + start * outs
    a = tl.multiple_of(tl.load(a_addresses + layer).to(tl.pointer_type(half)), 16) + start * ins
    t_inside, s_inside = (t < places)[:, None], (s < places)[:, None]
    of_g = tl.zeros((places_at_once, places_at_once), tl.float32)
    for k in range(0, outs, numbers_at_once):
        inside = (k + inner < outs)[None, :]
        left = tl.load(g + t[:, None] * outs + k + inner[None, :], mask=t_inside & inside, other=0.0)
        right = tl.load(g + s[:, None] * outs + k + inner[None, :], mask=s_inside & inside, other=0.0)
        of_g = tl.dot(left, tl.trans(right), of_g)
    of_a = tl.zeros((places_at_once, places_at_once), tl.float32)
    for k in range(0, ins, numbers_at_once):
        inside = (k + inner < ins)[None, :]
        left = tl.load(a + t[:, None] * ins + k + inner[None, :], mask=t_inside & inside, other=0.0)
        right = tl.load(a + s[:, None] * ins + k + inner[None, :], mask=s_inside & inside, other=0.0)
        of_a = tl.dot(left, tl.trans(right), of_a)
    both = of_g * of_a
    at = (layer * count + example).to(tl.int64) * tl.num_programs(0) + tile
    tl.store(sums + at, tl.sum(tl.sum(both, 1), 0) * tl.where(first == second, 1.0, 2.0))
    tl.store(diagonals + at, tl.sum(tl.sum(tl.where(t[:, None] == s[None, :], both, 0.0), 1), 0))


@triton.jit
def _place_sums(out, g_addresses, count, places, outs, half: tl.constexpr, at_once: tl.constexpr, wide: tl.constexpr):
    """out[l, b, o] = Σ_t g[l][b, t, o]."""
    example, layer = tl.program_id(1), tl.program_id(2)
    column, row = tl.program_id(0) * wide + tl.arange(0, wide), tl.arange(0, at_once)
    g = tl.multiple_of(tl.load(g_addresses + layer).to(tl.pointer_type(half)), 16)
    g += (example * places).to(tl.int64) * outs
    total = tl.zeros((at_once, wide), tl.float32)
    for start in range(0, places, at_once):
        mask = (start + row < places)[:, None] & (column < outs)[None, :]
        total += tl.load(g + (start + row)[:, None] * outs + column[None, :], mask=mask, other=0.0).to(tl.float32)
    at = (layer * count + example).to(tl.int64) * outs + column
    tl.store(out + at, tl.sum(total, 0), mask=column < outs)


@triton.jit
def _normalised(
    weights,
    biases,
    x_addresses,
    g_addresses,
    places,
    width,
    eps,
    of_x: tl.constexpr,
    of_g: tl.constexpr,
    at_once: tl.constexpr,
    chunk: tl.constexpr,
    wide: tl.constexpr,
):
    """Σ_t g_t x̂_t and Σ_t g_t over `chunk` places of one example and layer, where x̂ is the normalised row."""
    part, example, layer = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    x = tl.multiple_of(tl.load(x_addresses + layer).to(tl.pointer_type(of_x)), 16)
    g = tl.multiple_of(tl.load(g_addresses + layer).to(tl.pointer_type(of_g)), 16)
    column = tl.arange(0, wide)
    inside = (column < width)[None, :]
    scaled, plain = tl.zeros((at_once, wide), tl.float32), tl.zeros((at_once, wide), tl.float32)
    for step in range(0, chunk, at_once):
        row = part * chunk + step + tl.arange(0, at_once)
        mask = (row < places)[:, None] & inside
        at = (example * places + row).to(tl.int64)[:, None] * width + column[None, :]
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        grad = tl.load(g + at, mask=mask, other=0.0).to(tl.float32)
        apart = tl.where(mask, value - (tl.sum(value, 1) / width)[:, None], 0.0)
        rate = 1.0 / tl.sqrt(tl.sum(apart * apart, 1) / width + eps)
        scaled += grad * apart * rate[:, None]
        plain += grad
    at = ((layer * tl.num_programs(1) + example) * tl.num_programs(0) + part).to(tl.int64) * width + column
    tl.store(weights + at, tl.sum(scaled, 0), mask=column < width)
    tl.store(biases + at, tl.sum(plain, 0), mask=column < width)


_recorded: list[Tensor] = []
"""While a CUDA graph is recorded: memory for addresses, which must live as long as the graph. The last element is the
part that is still free.
"""


@contextmanager
def recorded(addresses: Tensor) -> Iterator[None]:
    """Keep addresses in this pinned memory, because a CUDA graph reads them again each time it runs."""
    _recorded.append(addresses)
    try:
        yield
    finally:
        _recorded.clear()


def _addresses(*lists: Sequence[Tensor]) -> Tensor:
    """The addresses of the tensors of several equally long lists, on their device."""
    listed = torch.tensor([[each.data_ptr() for each in tensors] for tensors in lists], dtype=torch.int64)
    if _recorded:
        room = _recorded.pop()
        kept = room[: listed.numel()].view(listed.shape)
        _recorded.append(room[listed.numel() :])
        listed = kept.copy_(listed)
    return listed.to(lists[0][0].device, non_blocking=True)


def _room(size: int, _: int, __: int | None) -> Tensor:
    """Device memory for tile descriptors."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def weighted(gs: Sequence[Tensor], others: Sequence[Tensor], factors: Tensor) -> Tensor:
    """See `half_products.weighted`."""
    (count, places, outs), ins = gs[0].shape, others[0].shape[-1]
    out = torch.empty((len(gs), outs, ins), dtype=torch.float32, device=gs[0].device)
    has_tiles = out.is_cuda and torch.cuda.get_device_capability(out.device) >= (9, 0)
    at_once = next((size for size in (128, 64) if places % size == 0), None)
    given: dict[str, Any] = {"rows_at_once": 128, "columns_at_once": 128, "places_at_once": 64, "num_warps": 8}
    if has_tiles and at_once is not None and outs % 8 == ins % 8 == 0:
        triton.set_allocator(_room)
        kernel, given = _weighted_by_tiles, given | {"places_at_once": at_once, "num_stages": 384 // at_once}
    else:
        kernel, given = _weighted, given | {"num_stages": 3}
    grid = (triton.cdiv(outs, given["rows_at_once"]) * triton.cdiv(ins, given["columns_at_once"]), len(gs))
    of_g, of_a = _addresses(gs, others)
    kernel[grid](out, of_g, of_a, factors, count, places, outs, ins, HALVES[gs[0].dtype], **given)
    return out


def ghost(gs: Sequence[Tensor], others: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """See `half_products.ghost`."""
    (count, places, outs), ins = gs[0].shape, others[0].shape[-1]
    at_once = 128 if places > 64 else 64
    given = {"places_at_once": at_once, "numbers_at_once": 64, "num_warps": at_once // 16, "num_stages": 4}
    tiles = triton.cdiv(places, at_once)
    numbers = tiles * (tiles + 1) // 2
    found = torch.empty((2, len(gs), count, numbers), dtype=torch.float32, device=gs[0].device)
    sums, diagonals = found
    of_g, of_a = _addresses(gs, others)
    _ghost[(numbers, count, len(gs))](
        sums, diagonals, of_g, of_a, count, places, outs, ins, HALVES[gs[0].dtype], **given
    )
    whole, diagonal = found.sum((1, 3))
    return whole, diagonal


def place_sums(gs: Sequence[Tensor]) -> Tensor:
    """See `half_products.place_sums`."""
    count, places, outs = gs[0].shape
    out = torch.empty((len(gs), count, outs), dtype=torch.float32, device=gs[0].device)
    grid = (triton.cdiv(outs, 256), count, len(gs))
    _place_sums[grid](out, _addresses(gs), count, places, outs, HALVES[gs[0].dtype], at_once=32, wide=256, num_warps=4)
    return out


def normalised(xs: Sequence[Tensor], gs: Sequence[Tensor], eps: float) -> Tensor | None:
    """See `half_products.normalised`."""
    count, places, width = xs[0].shape
    wide = triton.next_power_of_2(width)
    if wide > WIDEST:
        return None
    rows = max(1, 4096 // wide)
    parts = triton.cdiv(places, 8 * rows)
    found = torch.empty((2, len(xs), count, parts, width), dtype=torch.float32, device=xs[0].device)
    of_x, of_g = (KINDS[each[0].dtype] for each in (xs, gs))
    at_x, at_g = _addresses(xs, gs)
    _normalised[(parts, count, len(xs))](
        *found, at_x, at_g, places, width, eps, of_x, of_g, at_once=rows, chunk=8 * rows, wide=wide, num_warps=8
    )
    return found.sum(3)


@triton.jit
def _outer_products(
    out,
    g_addresses,
    a_addresses,
    count,
    places,
    outs: tl.constexpr,
    ins: tl.constexpr,
    half: tl.constexpr,
    rows_at_once: tl.constexpr,
    columns_at_once: tl.constexpr,
    places_at_once: tl.constexpr,
):
    """out[l, b, o, i] = Σ_t g[l][b, t, o] a[l][b, t, i]. A program computes one tile of one example and layer."""
    example, layer = tl.program_id(1), tl.program_id(2)
    across: tl.constexpr = (ins + columns_at_once - 1) // columns_at_once
    rows = (tl.program_id(0) // across) * rows_at_once + tl.arange(0, rows_at_once)
    columns = (tl.program_id(0) % across) * columns_at_once + tl.arange(0, columns_at_once)
    inner = tl.arange(0, places_at_once)
    start = (example * places).to(tl.int64)
    g = tl.multiple_of(tl.load(g_addresses + layer).to(tl.pointer_type(half)), 16) + start * outs
    a = tl.multiple_of(tl.load(a_addresses + layer).to(tl.pointer_type(half)), 16) + start * ins
    total = tl.zeros((rows_at_once, columns_at_once), tl.float32)
    for place in range(0, places, places_at_once):
        at = (place + inner)[:, None]
        left = tl.load(g + at * outs + rows[None, :], mask=(at < places) & (rows < outs)[None, :], other=0.0)
        right = tl.load(a + at * ins + columns[None, :], mask=(at < places) & (columns < ins)[None, :], other=0.0)
        total = tl.dot(tl.trans(left), right, total)
    target = out + (layer * count + example).to(tl.int64) * outs * ins + rows[:, None] * ins + columns[None, :]
    tl.store(target, total, mask=(rows < outs)[:, None] & (columns < ins)[None, :])


def outer_products(gs: Sequence[Tensor], others: Sequence[Tensor]) -> Tensor:
    """See `half_products.outer_products`."""
    (count, places, outs), ins = gs[0].shape, others[0].shape[-1]
    out = torch.empty((len(gs), count, outs, ins), dtype=torch.float32, device=gs[0].device)
    rows, columns = (max(16, min(128, triton.next_power_of_2(size))) for size in (outs, ins))
    grid = (triton.cdiv(outs, rows) * triton.cdiv(ins, columns), count, len(gs))
    of_g, of_a = _addresses(gs, others)
    _outer_products[grid](
        out, of_g, of_a, count, places, outs, ins, HALVES[gs[0].dtype], rows, columns, 64, num_warps=4, num_stages=4
    )
    return out
