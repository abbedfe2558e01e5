"""Small CPU kernels, compiled at run time by LLVM (`llvmlite`) for the processor at hand, in a fifth of a second.

They serve the few computations for which torch needs many passes over memory. Callers have a fallback without
compilation.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import mmap
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

NUMBER, DOUBLE, WHOLE = ctypes.c_float, ctypes.c_double, ctypes.c_int64
NUMBERS, WHOLES = ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.c_int64)
"""Types of a kernel's arguments: single- and double-precision numbers, integers, and pointers to numbers and integers.
"""


@final
class CompiledKernel:
    """Compiled code. `run` takes addresses as plain integers."""

    __slots__ = ("_engine", "run")

    def __init__(self, engine: Any, address: int, kinds: Sequence[Any]) -> None:
        self._engine = engine  # owns the memory of the code
        types = [each if each in (NUMBER, DOUBLE, WHOLE) else ctypes.c_void_p for each in kinds]
        self.run: Callable[..., None] = ctypes.CFUNCTYPE(None, *types)(address)


@functools.cache
def kernel(write: Callable[[], KernelWriter]) -> CompiledKernel | None:
    """Compile a kernel, once. None if that is not possible, with a warning if llvmlite is installed but fails."""
    if importlib.util.find_spec("llvmlite") is None:
        return None
    try:
        if not _may_make_code():
            raise PermissionError("this machine does not let programs run code that they have made")
        return _compiled(write())
    except Exception as error:  # any error: the fallback computes the same numbers
        text = f"llvmlite cannot compile here, so private training takes longer: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return None


def _may_make_code() -> bool:
    """Whether memory may become executable. LLVM does not check: on a hardened machine its code would crash."""
    if os.name != "posix":
        return True
    with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as page:
        start = ctypes.c_char.from_buffer(page)
        address, size = ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(mmap.PAGESIZE)
        del start  # the page cannot be freed while this refers to it
        return bool(ctypes.CDLL(None).mprotect(address, size, mmap.PROT_READ | mmap.PROT_EXEC) == 0)


def _compiled(writer: KernelWriter) -> CompiledKernel:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
    )
    module = binding.parse_assembly(str(writer.module))
    module.verify()
    # No LLVM passes over the module: the code is optimised by hand, and passes take memory.
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return CompiledKernel(engine, engine.get_function_address(KernelWriter.NAME), writer.kinds)


@final
class KernelWriter:
    """Writes one function without a result in LLVM's intermediate representation: loops over vectors of floats."""

    NAME = "kernel"

    def __init__(self, kinds: Sequence[Any], lanes: int) -> None:
        from llvmlite import ir

        self.ir, self.kinds, self.lanes = ir, kinds, lanes
        self.number, self.whole, self.index = ir.FloatType(), ir.IntType(64), ir.IntType(32)
        self.vector, self.indices = (ir.VectorType(each, lanes) for each in (self.number, self.index))
        known = {
            NUMBER: self.number,
            DOUBLE: ir.DoubleType(),
            WHOLE: self.whole,
            NUMBERS: self.number.as_pointer(),
            WHOLES: self.whole.as_pointer(),
        }
        self.module = ir.Module()
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [known[each] for each in kinds]), self.NAME)
        for kind, each in zip(kinds, function.args, strict=True):
            if kind in (NUMBERS, WHOLES):
                each.add_attribute("noalias")
        self.args = function.args
        self.code = ir.IRBuilder(function.append_basic_block())

    def const(self, value: int) -> Any:
        """A whole number as a constant."""
        return self.ir.Constant(self.whole, value)

    def all_lanes(self, value: float) -> Any:
        """A constant in all lanes."""
        return self.ir.Constant(self.vector, [value] * self.lanes)

    def spread(self, value: Any) -> Any:
        """One number in all lanes."""
        nothing = self.ir.Constant(self.vector, self.ir.Undefined)
        one = self.code.insert_element(nothing, value, self.ir.Constant(self.index, 0))
        return self.code.shuffle_vector(one, nothing, self.ir.Constant(self.indices, [0] * self.lanes))

    def least(self, one: Any, other: Any) -> Any:
        return self.code.select(self.code.icmp_signed("<", one, other), one, other)

    def at(self, start: Any, *terms: Any) -> Any:
        """The pointer `start` plus the sum of the terms, in numbers."""
        return self.code.gep(start, [functools.reduce(self.code.add, terms)])

    def wide(self, pointer: Any) -> Any:
        """A pointer to a number as a pointer to a vector."""
        return self.code.bitcast(pointer, self.vector.as_pointer())

    @contextmanager
    def loop(self, start: Any, stop: Any, stride: Any, carried: int = 0) -> Iterator[tuple[Any, list[Any], list[Any]]]:
        """for each in range(start, stop, stride), with `carried` accumulator vectors that start at zero.

        Yields the index, the accumulators of this round, and a list to fill with their values for the next round.
        """
        code, before = self.code, self.code.block
        head, body, after = (code.append_basic_block() for _ in range(3))
        code.branch(head)
        code.position_at_end(head)
        each, sums = code.phi(self.whole), [code.phi(self.vector) for _ in range(carried)]
        each.add_incoming(start, before)
        for value in sums:
            value.add_incoming(self.all_lanes(0.0), before)
        code.cbranch(code.icmp_signed("<", each, stop), body, after)
        code.position_at_end(body)
        handed: list[Any] = []
        yield each, sums, handed
        for value, new in zip(sums, handed, strict=True):
            value.add_incoming(new, code.block)
        each.add_incoming(code.add(each, stride), code.block)
        code.branch(head)
        code.position_at_end(after)
