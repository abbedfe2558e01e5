"""Exact Gaussian noise on a grid, added to single-precision numbers in one compiled pass over memory.

The draws are those of `noise.rounded_gaussian`, bit for bit, from the same random bits: the same table, the same place
inside a block, the same rejection (see `noise.wide_noise`). A first kernel adds the draws that one look-up decides,
about 97 %. A second kernel examines the others by the test in 64-bit integers. What this test leaves open, about once
in ten million draws, is decided in exact integers by the sampler itself; rejected draws are drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from deniable.learn.torch.kernels.llvm_kernels import (
    DOUBLE,
    NUMBERS,
    WHOLE,
    WHOLES,
    CompiledKernel,
    KernelWriter,
    kernel,
)
from deniable.noise import Entropy
from deniable.noise.inversion_table import CHUNK, Integers, Scratch
from deniable.noise.wide_noise import UNKNOWN_BLOCK, RejectionTables, WideRoundedGaussian

Singles = npt.NDArray[np.float32]

LANES = 16
FARTHEST = 2.0**62
"""Rounded numbers lie in ±2⁶², and noise strictly inside: their sum fits into 64 bits."""

NEAR = WideRoundedGaussian.FARTHEST
"""Nearer blocks are decided by the test in 64-bit integers."""


@final
class GridNoise:
    """Rounds numbers to the multiples of `spacing`, a power of two, and adds draws of one sampler in such steps."""

    def __init__(
        self, sampler: WideRoundedGaussian, tables: RejectionTables, kernels: Sequence[CompiledKernel]
    ) -> None:
        self._sampler, self._tables = sampler, tables
        self._first_look, self._examine = kernels
        self._table, self._thresholds = tables.cells.ctypes.data, tables.thresholds.ctypes.data
        self._law = (tables.thresholds.size, tables.count, tables.first, tables.width, tables.slope)

    @classmethod
    def of(cls, sampler: WideRoundedGaussian) -> GridNoise | None:
        """The compiled noise of a sampler; None if kernels cannot be compiled here, or if the noise is too wide for
        them.
        """
        tables = sampler.tables()
        if tables is None:
            return None
        kernels = [kernel(_first_look), kernel(_examination)]
        return cls(sampler, tables, [each for each in kernels if each]) if all(kernels) else None

    def add(self, parts: Sequence[Singles], spacing: float, entropy: Entropy) -> None:
        """Round all numbers of contiguous arrays to the grid and add a draw to each, in place. NaN counts as 0.

        Rejected draws of all arrays are drawn again together. For one array the draws equal those of `sampler.fill`.
        """
        assert all(each.flags.c_contiguous and each.dtype == np.float32 for each in parts)
        scratch = Scratch(min(max((each.size for each in parts), default=0), CHUNK))
        again = [self._add(each, spacing, entropy, scratch) for each in parts]
        few = np.concatenate([each[places] for each, places in zip(parts, again, strict=True)])
        if few.size:
            self.add([few], spacing, entropy)
            ends = np.cumsum([places.size for places in again])
            for each, places, end in zip(parts, again, ends, strict=True):
                each[places] = few[end - places.size : end]

    def _add(self, numbers: Singles, spacing: float, entropy: Entropy, scratch: Scratch) -> Integers:
        """Add one draw to each number whose draw is accepted. Returns the places of the rejected draws."""
        count, steps = numbers.size, (self._tables.m, spacing, 1 / spacing)
        # Places, cells and words of the draws that the first kernel leaves open, and two counts: of all of them, and of
        # those with an unknown block.
        rows, left = np.empty((3, count), dtype=np.int64), np.zeros(2, dtype=np.int64)
        target = numbers.ctypes.data
        aside = _addresses(rows)
        given = (target, scratch.cells.ctypes.data, scratch.words.ctypes.data, self._table, *aside, left.ctypes.data)
        for at in range(0, count, CHUNK):
            here = min(CHUNK, count - at)
            scratch.new_cells(here, entropy)
            entropy.fill(scratch.words[:here])
            self._first_look.run(*given, at, here, *steps)
        size, unknown = left.tolist()
        if not size:
            return left[:0]
        more = entropy.words(unknown)  # 48 more bits of u for each unknown block
        found, counts = np.empty((4, size), dtype=np.int64), np.zeros(2, dtype=np.int64)
        examined = (target, *aside, more.ctypes.data, self._table, self._thresholds, *_addresses(found))
        self._examine.run(*examined, counts.ctypes.data, size, *self._law, *steps)
        rejected, undecided = counts.tolist()
        again = found[0, :rejected]
        for item, block, block_word in found[1:, :undecided].T.tolist():
            place, word = int(rows[0, item]), int(rows[2, item]) % 2**64
            known = None if block == UNKNOWN_BLOCK else block
            draw = self._sampler.settled(known, block_word % 2**64, word, entropy)
            if draw is None:
                again = np.insert(again, np.searchsorted(again, place), place)
            else:
                numbers[place] = (on_grid(numbers[place : place + 1], spacing) + draw)[0] * spacing
        return again


def _addresses(rows: Integers) -> list[int]:
    """The address of each row of a contiguous array. Asking numpy for one takes a microsecond."""
    start, step = rows.ctypes.data, rows.strides[0]
    return [start + row * step for row in range(len(rows))]


def on_grid(numbers: npt.NDArray[Any], spacing: float) -> Integers:
    """Steps of the grid nearest to the numbers, ties to even, at most 2⁶² in size; NaN counts as 0."""
    steps = numbers.astype(np.float64)
    steps *= 1 / spacing
    np.clip(np.rint(steps, out=steps), -FARTHEST, FARTHEST, out=steps)
    np.copyto(steps, 0.0, where=np.isnan(steps))
    return steps.astype(np.int64)


@final
class _Steps:
    """Instructions that both kernels contain, for one number or for a vector of numbers."""

    def __init__(self, writer: KernelWriter, lanes: int) -> None:
        ir = writer.ir
        self.writer, self.code, self.ir, self.lanes = writer, writer.code, ir, lanes

        def wide(kind: Any) -> Any:
            return ir.VectorType(kind, lanes) if lanes > 1 else kind

        self.single, self.double, self.whole = (wide(each) for each in (ir.FloatType(), ir.DoubleType(), writer.whole))
        name = f"llvm.rint.v{lanes}f64" if lanes > 1 else "llvm.rint.f64"
        self._rint = ir.Function(writer.module, ir.FunctionType(self.double, [self.double]), name)

    def constant(self, kind: Any, value: float) -> Any:
        return self.ir.Constant(kind, [value] * self.lanes if self.lanes > 1 else value)

    def all(self, value: Any, kind: Any) -> Any:
        """One value in all lanes."""
        if self.lanes == 1:
            return value
        index = self.ir.IntType(32)
        nothing = self.ir.Constant(kind, self.ir.Undefined)
        one = self.code.insert_element(nothing, value, self.ir.Constant(index, 0))
        zeros = self.ir.Constant(self.ir.VectorType(index, self.lanes), [0] * self.lanes)
        return self.code.shuffle_vector(one, nothing, zeros)

    def draw(self, block: Any, word: Any, m: Any) -> Any:
        """round(2^m (j + s)): the first m + 1 bits of the word are those of s."""
        code, one = self.code, self.constant(self.whole, 1)
        halves = code.add(code.shl(block, code.add(m, one)), one)
        place = code.lshr(word, code.sub(self.constant(self.whole, 63), m))
        return code.ashr(code.add(halves, place), one)

    def noisy(self, number: Any, draw: Any, spacing: Any, inverse: Any) -> Any:
        """A number with a draw added on the grid."""
        code = self.code
        steps = code.call(self._rint, [code.fmul(code.fpext(number, self.double), inverse)])
        for comparison, limit in ((">", -FARTHEST), ("<", FARTHEST)):
            edge = self.constant(self.double, limit)
            steps = code.select(code.fcmp_unordered(comparison, steps, edge), steps, edge)
        # The comparisons keep NaN, which is replaced here.
        steps = code.select(code.fcmp_ordered("ord", steps, steps), steps, self.constant(self.double, 0.0))
        total = code.add(code.fptosi(steps, self.whole), draw)
        return code.fptrunc(code.fmul(code.sitofp(total, self.double), spacing), self.single)


def _typed(writer: KernelWriter, pointer: Any, bits: int) -> Any:
    """A pointer to 64-bit integers as a pointer to integers of `bits` bits."""
    return writer.code.bitcast(pointer, writer.ir.IntType(bits).as_pointer())


def _append(writer: KernelWriter, counter: Any, *items: tuple[Any, Any]) -> None:
    """Append a value to each array, at the place that the counter in memory says."""
    code = writer.code
    place = code.load(counter)
    for array, value in items:
        code.store(value, writer.at(array, place))
    code.store(code.add(place, writer.const(1)), counter)


def _first_look() -> KernelWriter:
    """run(numbers, cells, words, table, places, cells left, words left, left, at, count, m, spacing, 1/spacing).

    Adds the draws that are certain to numbers[at : at + count]. Undecided draws, and draws after the last whole vector,
    are appended to the arrays `places`, `cells left` and `words left`; left[0] counts them, and left[1] counts those
    whose block is unknown.
    """
    writer = KernelWriter([NUMBERS, *[WHOLES] * 7, WHOLE, WHOLE, WHOLE, DOUBLE, DOUBLE], LANES)
    ir, code = writer.ir, writer.code
    numbers, cells, words, table, places, cells_left, words_left, left, at, count, m, spacing, inverse = writer.args
    wide = _Steps(writer, LANES)
    small, half = ir.IntType(32), ir.IntType(16)
    entries_type = ir.VectorType(small, LANES)
    cells, table = _typed(writer, cells, 16), _typed(writer, table, 32)
    wide_m, wide_spacing, wide_inverse = (
        wide.all(m, wide.whole),
        wide.all(spacing, wide.double),
        wide.all(inverse, wide.double),
    )
    unknown_counter = writer.at(left, writer.const(1))

    def in_lanes(value: int) -> Any:
        return ir.Constant(entries_type, [value] * LANES)

    def set_aside(index: Any) -> None:
        """Append one draw to the draws that the second kernel examines."""
        cell = code.zext(code.load(writer.at(cells, index)), writer.whole)
        word = code.load(writer.at(words, index))
        block = code.ashr(code.load(writer.at(table, cell)), ir.Constant(small, 16))
        unknown = code.zext(code.icmp_signed("==", block, ir.Constant(small, UNKNOWN_BLOCK)), writer.whole)
        code.store(code.add(code.load(unknown_counter), unknown), unknown_counter)
        _append(writer, left, (places, code.add(at, index)), (cells_left, cell), (words_left, word))

    whole_vectors = code.and_(count, writer.const(-LANES))
    with writer.loop(writer.const(0), whole_vectors, writer.const(LANES)) as (start, *_):
        entries = ir.Constant(entries_type, ir.Undefined)
        for lane in range(LANES):
            cell = code.zext(code.load(writer.at(cells, start, writer.const(lane))), writer.whole)
            entries = code.insert_element(entries, code.load(writer.at(table, cell)), ir.Constant(small, lane))
        word = code.load(code.bitcast(writer.at(words, start), wide.whole.as_pointer()), align=8)
        is_open = _may_be_rejected(writer, entries, word, entries_type)
        block = code.sext(code.ashr(entries, in_lanes(16)), wide.whole)
        target = writer.wide(writer.at(numbers, at, start))
        number = code.load(target, align=4)
        noisy = wide.noisy(number, wide.draw(block, word, wide_m), wide_spacing, wide_inverse)
        code.store(code.select(is_open, number, noisy), target, align=4)
        open_bits = code.zext(code.bitcast(is_open, half), writer.whole)
        _for_each_bit(writer, open_bits, start, set_aside)
    with writer.loop(whole_vectors, count, writer.const(1)) as (index, *_):
        set_aside(index)
    code.ret_void()
    return writer


def _may_be_rejected(writer: KernelWriter, entries: Any, word: Any, small: Any) -> Any:
    """Whether 16 bits of u and of t do not suffice to accept a pair, or its block is unknown.

    The table's bound says that y <= d/2^16 in the whole block, so y = c t (2i + t) <= t d/2^16, as t <= 1. The pair is
    accepted if u <= 1 - t d/2^16 with u and t rounded up.
    """
    ir, code = writer.ir, writer.code

    def in_lanes(value: int) -> Any:
        return ir.Constant(small, [value] * LANES)

    u = code.and_(code.trunc(word, small), in_lanes(0xFFFF))
    deficit = code.sub(in_lanes(1 << 16), code.and_(entries, in_lanes(0xFFFF)))
    below = code.lshr(code.ashr(entries, in_lanes(31)), in_lanes(16))
    high = code.trunc(code.lshr(word, ir.Constant(word.type, [48] * LANES)), small)
    t = code.add(code.xor(high, below), in_lanes(1))
    lost = code.lshr(code.add(code.mul(deficit, t), in_lanes(0xFFFF)), in_lanes(16))
    is_unknown = code.icmp_signed("==", code.ashr(entries, in_lanes(16)), in_lanes(UNKNOWN_BLOCK))
    return code.or_(is_unknown, code.icmp_unsigned(">=", code.add(u, lost), in_lanes(1 << 16)))


def _for_each_bit(writer: KernelWriter, bits: Any, start: Any, work: Callable[[Any], None]) -> None:
    """Call `work` with `start` plus the position of each bit that is set, lowest first."""
    ir, code, before = writer.ir, writer.code, writer.code.block
    head, body, after = (code.append_basic_block() for _ in range(3))
    lowest = writer.module.globals.get("llvm.cttz.i64") or ir.Function(
        writer.module, ir.FunctionType(writer.whole, [writer.whole, ir.IntType(1)]), "llvm.cttz.i64"
    )
    code.branch(head)
    code.position_at_end(head)
    rest = code.phi(writer.whole)
    rest.add_incoming(bits, before)
    code.cbranch(code.icmp_signed("!=", rest, writer.const(0)), body, after)
    code.position_at_end(body)
    work(code.add(start, code.call(lowest, [rest, ir.Constant(ir.IntType(1), 1)])))
    rest.add_incoming(code.and_(rest, code.sub(rest, writer.const(1))), code.block)
    code.branch(head)
    code.position_at_end(after)


def _examination() -> KernelWriter:
    """run(numbers, places, cells, words, more, table, thresholds, rejected, open places, open blocks, open words,
    outcome, size, length of thresholds, count, first, width, slope, m, spacing, 1/spacing).

    Examines the draws that were set aside. It adds each accepted draw to its number, lists the places of rejected draws
    (outcome[0] counts them), and lists the draws that stay undecided (outcome[1] counts them), each with its block and
    the 64 bits of its u.
    """
    writer = KernelWriter([NUMBERS, *[WHOLES] * 11, *[WHOLE] * 7, DOUBLE, DOUBLE], 1)
    ir, code, const = writer.ir, writer.code, writer.const
    numbers, places, cells, words, more, table, thresholds, rejected, *rest = writer.args
    open_items, open_blocks, open_words, outcome, size, length, count, first, width, slope, m, spacing, inverse = rest
    one = _Steps(writer, 1)
    table = _typed(writer, table, 32)
    used, block_at, block_word = (code.alloca(writer.whole) for _ in range(3))
    code.store(const(0), used)
    half_length = code.lshr(length, const(1))
    with writer.loop(const(0), size, const(1)) as (item, *_):
        cell, word = (code.load(writer.at(each, item)) for each in (cells, words))
        entry = code.load(writer.at(table, cell))
        known = code.sext(code.ashr(entry, ir.Constant(ir.IntType(32), 16)), writer.whole)
        code.store(known, block_at)
        is_unknown = code.icmp_signed("==", known, const(UNKNOWN_BLOCK))
        with code.if_then(is_unknown):
            next_word = code.load(used)
            code.store(code.add(next_word, const(1)), used)
            fresh = code.lshr(code.load(writer.at(more, next_word)), const(16))
            u = code.or_(fresh, code.shl(cell, const(48)))
            code.store(u, block_word)
            index = _number_at_most(writer, thresholds, half_length, u)
            index = writer.least(index, count)
            is_behind_one = code.icmp_signed(">", index, const(0))
            last = code.load(writer.at(thresholds, code.select(is_behind_one, code.sub(index, const(1)), index)))
            is_undecided = code.and_(is_behind_one, code.icmp_unsigned("<=", code.sub(u, last), width))
            found = code.add(index, first)
            code.store(code.select(is_undecided, const(UNKNOWN_BLOCK), found), block_at)
        block = code.load(block_at)
        is_near = code.and_(code.icmp_signed("<", block, const(NEAR)), code.icmp_signed(">", block, const(-NEAR)))
        low, high = _bounds(writer, block, word, slope)
        # The lowest 16 bits of the word are the highest of u.
        u = code.or_(
            code.shl(code.and_(word, const(0xFFFF)), const(16)), code.and_(code.lshr(word, const(16)), const(0xFFFF))
        )
        is_kept = code.and_(is_near, code.icmp_signed("<", u, low))
        is_out = code.and_(is_near, code.icmp_signed(">=", u, high))
        place = code.load(writer.at(places, item))
        with code.if_else(is_kept) as (kept, otherwise):
            with kept:
                target = writer.at(numbers, place)
                draw = one.draw(block, word, m)
                code.store(one.noisy(code.load(target), draw, spacing, inverse), target)
            with otherwise, code.if_else(is_out) as (out, undecided):
                with out:
                    _append(writer, outcome, (rejected, place))
                with undecided:
                    u_of_block = code.load(block_word)
                    counter = writer.at(outcome, const(1))
                    _append(writer, counter, (open_items, item), (open_blocks, block), (open_words, u_of_block))
    code.ret_void()
    return writer


def _number_at_most(writer: KernelWriter, sorted_words: Any, half_length: Any, word: Any) -> Any:
    """How many of the sorted words are at most this one, by bisection without branches."""
    code, before = writer.code, writer.code.block
    head, body, after = (code.append_basic_block() for _ in range(3))
    code.branch(head)
    code.position_at_end(head)
    step, low = code.phi(writer.whole), code.phi(writer.whole)
    step.add_incoming(half_length, before)
    low.add_incoming(writer.const(0), before)
    code.cbranch(code.icmp_signed(">", step, writer.const(0)), body, after)
    code.position_at_end(body)
    probe = code.load(writer.at(sorted_words, low, step, writer.const(-1)))
    low.add_incoming(code.select(code.icmp_unsigned("<=", probe, word), code.add(low, step), low), body)
    step.add_incoming(code.lshr(step, writer.const(1)), body)
    code.branch(head)
    code.position_at_end(after)
    return low


def _bounds(writer: KernelWriter, block: Any, word: Any, slope: Any) -> tuple[Any, Any]:
    """Integers L and H in steps of 2^-32: u < L means that u + 1 is at most a lower bound of e^-y,
    u >= H that u is at least an upper bound.

    The same integers as `wide_noise._Bell._bounds`, `_at_least` and `_at_most`.
    """
    code, const = writer.code, writer.const
    below = code.ashr(block, const(63))
    middle = code.xor(block, below)
    t = code.xor(code.lshr(word, const(32)), code.and_(below, const(2**32 - 1)))
    twice = code.shl(middle, const(25))
    low = code.lshr(t, const(8))
    high = code.add(low, const(1))
    less = code.lshr(code.mul(low, code.add(twice, low)), const(22))
    more = code.add(code.lshr(code.mul(high, code.add(twice, high)), const(22)), const(1))
    y_low = code.lshr(code.mul(less, slope), const(30))
    y_high = code.add(code.lshr(code.mul(more, code.add(slope, const(1))), const(30)), const(1))
    unit = const(1 << 32)

    def series(y: Any, rounded_up: int) -> tuple[Any, Any]:
        """1 - y + y²/2 - y³/6 with the cube rounded up or down by a step, and y² in steps of 2^-32."""
        square = code.mul(y, y)
        shorter = code.lshr(square, const(32))
        sixth = code.udiv(code.mul(code.add(shorter, const(rounded_up)), y), const(6 << 32))
        return code.sub(code.add(code.sub(unit, y), code.lshr(square, const(33))), sixth), shorter

    at_least = code.sub(series(y_high, 1)[0], const(1))
    cubic, shorter = series(y_low, 0)
    more_than_square = code.add(shorter, const(1))
    fourth = code.udiv(code.mul(more_than_square, more_than_square), const(24 << 32))
    at_most = code.add(code.add(cubic, fourth), const(2))
    return at_least, at_most
