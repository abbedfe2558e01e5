"""Per-example gradients of convolutions on a CPU, by a compiled kernel.

In torch, a product of windows with output gradients for each example needs the windows copied first (unfolded), which
takes as long as the product. The kernel reads them in place. If it cannot be compiled, `gradient_captures` unfolds.

    out[e, t, o] = Σ_p g[e, o, p] · x[e, taps[t] + places[p]]

A tile of TAPS × OUTS sums stays in registers while p runs over a block of BLOCK places. The sums of blocks are added in
memory, so rounding errors grow with the number of blocks, not of places.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deniable.learn.torch.kernels.llvm_kernels import NUMBERS, WHOLE, WHOLES, KernelWriter, kernel

Places = NDArray[np.int64]

LANES, TAPS, COLUMNS = 8, 6, 2
"""Numbers in a vector, and the tile of sums: twelve vectors, which leaves registers for the factors."""

OUTS = LANES * COLUMNS

BLOCK = 256

WORTH_A_THREAD = 2**25
"""Multiplications per thread, a few milliseconds. For fewer, starting a thread costs more than it saves."""


def columns(outs: int) -> int:
    """The number of output columns, rounded up to whole tiles."""
    return -(-outs // OUTS) * OUTS


def products(g: Tensor, x: Tensor, taps: Places, places: Places) -> Tensor | None:
    """Gradients (E, T, O') of E examples from g (E, O, P) and x (E, ...), where O' is O plus some columns of zeros.

    `taps` and `places` are offsets, in numbers, from the start of an example in x. None if the kernel does not apply:
    on other devices or precisions, or if it cannot be compiled.
    """
    count, outs, _ = g.shape
    width = columns(outs)
    if g.device.type != "cpu" or not g.dtype == x.dtype == torch.float32 or not count or not places.size:
        return None
    if any(each.is_neg() or each._is_zerotensor() for each in (g, x)):  # their values are not those in memory
        return None
    compiled = kernel(_written) if width <= 2 * outs else None
    if compiled is None:
        return None
    g, out = g.contiguous(), g.new_empty((count, taps.size, width))

    def some(low: int, high: int) -> None:
        packed = g.new_zeros((BLOCK, width))
        tensors = out[low:high], packed, x[low:high], g[low:high]
        numbers = high - low, places.size, taps.size, outs, width, x.stride(0)
        compiled.run(*(each.data_ptr() for each in tensors), taps.ctypes.data, places.ctypes.data, *numbers)

    threads = max(1, min(torch.get_num_threads(), count, out.numel() * places.size // WORTH_A_THREAD))
    if threads == 1:
        some(0, count)
        return out
    try:
        # A new pool each time: threads do not survive a fork.
        with ThreadPoolExecutor(threads) as pool:
            bounds = [count * each // threads for each in range(threads + 1)]
            list(pool.map(some, bounds, bounds[1:]))
    except RuntimeError:  # no thread can be started, for example at interpreter shutdown
        some(0, count)
    return out


@functools.lru_cache(maxsize=256)
def offsets(sizes: tuple[int, ...], strides: tuple[int, ...]) -> Places:
    """Offsets of the entries of a strided box, last axis fastest. Cached and read-only."""
    found = np.zeros(1, np.int64)
    for size, stride in zip(sizes, strides, strict=True):
        found = np.add.outer(found, np.arange(size, dtype=np.int64) * stride).ravel()
    found.setflags(write=False)
    return found


def _written() -> KernelWriter:
    """The kernel in LLVM's intermediate representation."""
    writer = KernelWriter([*[NUMBERS] * 4, *[WHOLES] * 2, *[WHOLE] * 6], LANES)
    code, const, at, wide, loop = writer.code, writer.const, writer.at, writer.wide, writer.loop
    out, packed, x, g, taps, places, count, all_places, all_taps, outs, width, step = writer.args
    zero, one = const(0), const(1)
    with loop(zero, count, one) as (example, *_):
        x_here = at(x, code.mul(example, step))
        g_here = at(g, code.mul(example, code.mul(outs, all_places)))
        out_here = at(out, code.mul(example, code.mul(all_taps, width)))
        with loop(zero, all_places, const(BLOCK)) as (begin, *_):
            size = writer.least(const(BLOCK), code.sub(all_places, begin))
            with loop(zero, outs, one) as (row, *_), loop(zero, size, one) as (place, *_):
                value = code.load(at(g_here, code.mul(row, all_places), begin, place))
                code.store(value, at(packed, code.mul(place, width), row))
            is_first = code.icmp_signed("==", begin, zero)
            with loop(zero, width, const(OUTS)) as (column, *_), loop(zero, all_taps, const(TAPS)) as (tile, *_):
                rows = [code.add(tile, const(each)) for each in range(TAPS)]
                last = code.sub(all_taps, one)
                windows = [at(x_here, code.load(at(taps, writer.least(row, last)))) for row in rows]
                with loop(zero, size, one, TAPS * COLUMNS) as (place, sums, handed):
                    there = code.load(at(places, begin, place))
                    start = code.add(code.mul(place, width), column)
                    right = [
                        code.load(wide(at(packed, start, const(LANES * each))), align=4) for each in range(COLUMNS)
                    ]
                    left = [writer.spread(code.load(at(window, there))) for window in windows]
                    pairs = ((one_left, one_right) for one_left in left for one_right in right)
                    for value, (one_left, one_right) in zip(sums, pairs, strict=True):
                        product = code.fmul(one_left, one_right, flags=("contract",))
                        handed.append(code.fadd(value, product, flags=("contract",)))
                for row, several in zip(rows, zip(*[iter(sums)] * COLUMNS, strict=True), strict=True):
                    with code.if_then(code.icmp_signed("<", row, all_taps)):  # the last tile may be incomplete
                        for each, value in enumerate(several):
                            target = wide(at(out_here, code.mul(row, width), column, const(LANES * each)))
                            more = code.fadd(value, code.load(target, align=4))
                            code.store(code.select(is_first, value, more), target, align=4)
    code.ret_void()
    return writer
