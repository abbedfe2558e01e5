"""Per-example gradients of convolutions on a CPU, by a kernel that is compiled where it runs.

Torch has no product of windows with gradients for each example on its own: the windows are written out first, which
takes as long as the product. The kernel reads them where they lie. LLVM (`llvmlite`) compiles it in a fifth of a second
for the very processor; where that cannot be, `captures` does without.

    out[e, t, o] = Σ_p g[e, o, p] · x[e, taps[t] + places[p]]

A tile of TAPS × OUTS sums stays in registers while p runs over BLOCK places; what blocks sum up to is added up in
memory, so that rounding errors grow with the blocks, not with the places.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import mmap
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Places = NDArray[np.int64]

LANES, TAPS, COLUMNS = 8, 6, 2
"""Numbers in a vector, and a tile of sums: twelve vectors, so that what they are made of has registers as well."""

OUTS = LANES * COLUMNS

BLOCK = 256

WORTH_A_THREAD = 2**25
"""Products, a few milliseconds of them: with fewer, a thread takes longer to begin than it saves."""


def columns(outs: int) -> int:
    """How many columns the kernel makes of so many: whole tiles."""
    return -(-outs // OUTS) * OUTS


def products(g: Tensor, x: Tensor, taps: Places, places: Places) -> Tensor | None:
    """Gradients (E, T, O') of E examples from g (E, O, P) and x (E, ...), O' being O and some columns of zeros.

    `taps` and `places` count in numbers from the beginning of an example of x. None where the kernel is of no use.
    """
    count, outs, _ = g.shape
    width = columns(outs)
    if g.device.type != "cpu" or not g.dtype == x.dtype == torch.float32 or not count or not places.size:
        return None
    kernel = _kernel() if width <= 2 * outs else None
    if kernel is None:
        return None
    g, out = g.contiguous(), g.new_empty((count, taps.size, width))

    def some(low: int, high: int) -> None:
        packed = g.new_zeros((BLOCK, width))
        tensors = out[low:high], packed, x[low:high], g[low:high]
        numbers = high - low, places.size, taps.size, outs, width, x.stride(0)
        kernel.run(*(each.data_ptr() for each in tensors), taps.ctypes.data, places.ctypes.data, *numbers)

    threads = max(1, min(torch.get_num_threads(), count, out.numel() * places.size // WORTH_A_THREAD))
    if threads == 1:
        some(0, count)
        return out
    # Begun anew each time: threads that stay would be gone after a fork.
    with ThreadPoolExecutor(threads) as pool:
        bounds = [count * each // threads for each in range(threads + 1)]
        list(pool.map(some, bounds, bounds[1:]))
    return out


def offsets(sizes: Sequence[int], strides: Sequence[int]) -> Places:
    """Where the numbers of a strided box lie; its last axis runs fastest."""
    found = np.zeros(1, np.int64)
    for size, stride in zip(sizes, strides, strict=True):
        found = np.add.outer(found, np.arange(size, dtype=np.int64) * stride).ravel()
    return found


@final
class Kernel:
    """Compiled code, and what it lives in."""

    __slots__ = ("_engine", "run")

    def __init__(self, engine: Any, name: str, *types: Any) -> None:
        self._engine = engine  # the code is gone when this is
        self.run: Callable[..., None] = ctypes.CFUNCTYPE(None, *types)(engine.get_function_address(name))


@functools.cache
def _kernel() -> Kernel | None:
    """The compiled kernel; None where there is no compiler, or none that works."""
    if importlib.util.find_spec("llvmlite") is None:
        return None
    try:
        if not _may_make_code():
            raise PermissionError("what a program has written, this machine does not let it run")
        return _compiled()
    except Exception as error:  # whatever it is: gradients are the same without
        text = f"llvmlite cannot compile here, so that private training of convolutions takes longer: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return None


def _may_make_code() -> bool:
    """Whether what was written may be run. LLVM does not ask: where a machine is hardened, its code would crash."""
    if os.name != "posix":
        return True
    with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as page:
        start = ctypes.c_char.from_buffer(page)
        address, size = ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(mmap.PAGESIZE)
        del start  # or else the page could not be let go
        return bool(ctypes.CDLL(None).mprotect(address, size, mmap.PROT_READ | mmap.PROT_EXEC) == 0)


def _compiled() -> Kernel:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
    )
    module = binding.parse_assembly(_written())
    module.verify()
    # Without LLVM's passes over the module: what they could find out is written out already, and they take memory.
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return Kernel(engine, "products", *[ctypes.c_void_p] * 6, *[ctypes.c_int64] * 6)


def _written() -> str:
    """The kernel in LLVM's language."""
    from llvmlite import ir

    number, whole = ir.FloatType(), ir.IntType(64)
    vector = ir.VectorType(number, LANES)
    module = ir.Module()
    pointers = [number.as_pointer()] * 4 + [whole.as_pointer()] * 2
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [*pointers, *[whole] * 6]), "products")
    for each in function.args[:6]:
        each.add_attribute("noalias")
    out, packed, x, g, taps, places, count, all_places, all_taps, outs, width, step = function.args
    code = ir.IRBuilder(function.append_basic_block())
    zeros = ir.Constant(vector, [0.0] * LANES)

    def const(value: int) -> Any:
        return ir.Constant(whole, value)

    def least(one: Any, other: Any) -> Any:
        return code.select(code.icmp_signed("<", one, other), one, other)

    def at(start: Any, *terms: Any) -> Any:
        return code.gep(start, [functools.reduce(code.add, terms)])

    def wide(pointer: Any) -> Any:
        return code.bitcast(pointer, vector.as_pointer())

    def spread(value: Any) -> Any:
        """One number in all lanes."""
        nothing, index = ir.Constant(vector, ir.Undefined), ir.IntType(32)
        one = code.insert_element(nothing, value, ir.Constant(index, 0))
        return code.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(index, LANES), [0] * LANES))

    @contextmanager
    def loop(start: Any, stop: Any, stride: Any, carried: int = 0) -> Iterator[tuple[Any, list[Any], list[Any]]]:
        """for each in range(start, stop, stride), and vectors that begin at zero and that each round hands on."""
        before = code.block
        head, body, after = (code.append_basic_block() for _ in range(3))
        code.branch(head)
        code.position_at_end(head)
        each, sums = code.phi(whole), [code.phi(vector) for _ in range(carried)]
        each.add_incoming(start, before)
        for value in sums:
            value.add_incoming(zeros, before)
        code.cbranch(code.icmp_signed("<", each, stop), body, after)
        code.position_at_end(body)
        handed: list[Any] = []
        yield each, sums, handed
        for value, new in zip(sums, handed, strict=True):
            value.add_incoming(new, code.block)
        each.add_incoming(code.add(each, stride), code.block)
        code.branch(head)
        code.position_at_end(after)

    zero, one = const(0), const(1)
    with loop(zero, count, one) as (example, *_):
        x_here = at(x, code.mul(example, step))
        g_here = at(g, code.mul(example, code.mul(outs, all_places)))
        out_here = at(out, code.mul(example, code.mul(all_taps, width)))
        with loop(zero, all_places, const(BLOCK)) as (begin, *_):
            size = least(const(BLOCK), code.sub(all_places, begin))
            with loop(zero, outs, one) as (row, *_), loop(zero, size, one) as (place, *_):
                value = code.load(at(g_here, code.mul(row, all_places), begin, place))
                code.store(value, at(packed, code.mul(place, width), row))
            is_first = code.icmp_signed("==", begin, zero)
            with loop(zero, width, const(OUTS)) as (column, *_), loop(zero, all_taps, const(TAPS)) as (tile, *_):
                rows = [code.add(tile, const(each)) for each in range(TAPS)]
                last = code.sub(all_taps, one)
                windows = [at(x_here, code.load(at(taps, least(row, last)))) for row in rows]
                with loop(zero, size, one, TAPS * COLUMNS) as (place, sums, handed):
                    there = code.load(at(places, begin, place))
                    start = code.add(code.mul(place, width), column)
                    right = [
                        code.load(wide(at(packed, start, const(LANES * each))), align=4) for each in range(COLUMNS)
                    ]
                    left = [spread(code.load(at(window, there))) for window in windows]
                    pairs = ((one_left, one_right) for one_left in left for one_right in right)
                    for value, (one_left, one_right) in zip(sums, pairs, strict=True):
                        product = code.fmul(one_left, one_right, flags=("contract",))
                        handed.append(code.fadd(value, product, flags=("contract",)))
                for row, several in zip(rows, zip(*[iter(sums)] * COLUMNS, strict=True), strict=True):
                    with code.if_then(code.icmp_signed("<", row, all_taps)):  # the last tile may reach too far
                        for each, value in enumerate(several):
                            target = wide(at(out_here, code.mul(row, width), column, const(LANES * each)))
                            more = code.fadd(value, code.load(target, align=4))
                            code.store(code.select(is_first, value, more), target, align=4)
    code.ret_void()
    return str(module)
