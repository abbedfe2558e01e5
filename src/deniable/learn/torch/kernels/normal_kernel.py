"""N(0, 1) in single precision on a CPU, by a compiled kernel: Box & Muller (1958) in one pass, sixteen pairs at a time.

It takes a seventh of the time of `gradient_noise.Floating`, which does the same with torch. Logarithm, sine and cosine
are polynomials with a relative error below 3·10⁻⁷. Their coefficients are computed here by interpolation at Chebyshev
points.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import NDArray

from deniable.learn.torch.kernels.llvm_kernels import NUMBER, NUMBERS, WHOLE, CompiledKernel, KernelWriter, kernel

LANES = 16

EXPONENT = 23
"""The position of the exponent in the bits of a single-precision number."""

ROOT = 0x3F3504F3
"""The bits of √½. A number is written as m·2ᵉ with m between √½ and √2."""

QUARTER = 30
"""An angle is a fraction of a full turn in 32 bits, so its highest two bits are its quarter."""


def pairs_kernel() -> CompiledKernel | None:
    """run(cosines, sines, bits, bits, pairs, sigma) adds σ times fresh draws to both arrays; None without a compiler.

    `pairs` is a multiple of LANES. A pair uses 32 bits from each of the two arrays of bits.
    """
    return kernel(_written)


def _fitted(function: Callable[[NDArray[Any]], NDArray[Any]], low: float, high: float, degree: int) -> list[float]:
    """The interpolating polynomial of a function at Chebyshev points, lowest power first."""
    made = Chebyshev.interpolate(function, degree, domain=[low, high]).convert(kind=Polynomial)
    return [float(each) for each in made.coef]


def _coefficients() -> tuple[list[float], list[float], list[float]]:
    """log(1 + t)/t for t from √½ - 1 to √2 - 1; sin(√z)/√z and (cos(√z) - 1)/z for √z up to an eighth of a turn."""
    eighth = (math.pi / 4) ** 2
    log = _fitted(lambda t: np.log1p(t) / t, math.sqrt(0.5) - 1, math.sqrt(2) - 1, 8)
    sine = _fitted(lambda z: np.sinc(np.sqrt(z) / math.pi), 0.0, eighth, 3)
    cosine = _fitted(lambda z: -0.5 * np.sinc(np.sqrt(z) / (2 * math.pi)) ** 2, 0.0, eighth, 3)
    return log, sine, cosine


def _written() -> KernelWriter:
    """The kernel in LLVM's intermediate representation."""
    writer = KernelWriter([*[NUMBERS] * 4, WHOLE, NUMBER], LANES)
    ir, code, vector, indices = writer.ir, writer.code, writer.vector, writer.indices
    cosines, sines, firsts, seconds, count, sigma = writer.args
    fused = {"flags": ("contract",)}
    log, sine, cosine = _coefficients()

    def bits(value: int) -> Any:
        return ir.Constant(indices, [value] * LANES)

    def product(one: Any, other: Any) -> Any:
        return code.fmul(one, other, **fused)

    def total(one: Any, other: Any) -> Any:
        return code.fadd(one, other, **fused)

    def polynomial(coefficients: list[float], at: Any) -> Any:
        *rest, highest = map(writer.all_lanes, coefficients)
        return functools.reduce(lambda value, each: total(product(value, at), each), reversed(rest), highest)

    def signed(value: Any, second_bit: Any) -> Any:
        """The value with its sign flipped where the second bit is set."""
        sign = code.shl(code.and_(second_bit, bits(2)), bits(30))
        return code.bitcast(code.xor(code.bitcast(value, indices), sign), vector)

    known = ir.FunctionType(vector, [vector])
    positive, root = (ir.Function(writer.module, known, f"llvm.{name}.v{LANES}f32") for name in ("fabs", "sqrt"))
    scale = writer.spread(sigma)
    with writer.loop(writer.const(0), count, writer.const(LANES)) as (pair, *_):
        first, second = (
            code.load(code.bitcast(writer.at(each, pair), indices.as_pointer()), align=4) for each in (firsts, seconds)
        )
        # The radius: the first bits give u = m·2ᵉ in (0, 1] with m near 1, and ln u = ln m + e ln 2.
        steps = code.call(positive, [code.sitofp(first, vector)])
        u = code.bitcast(total(product(steps, writer.all_lanes(2.0**-31)), writer.all_lanes(2.0**-32)), indices)
        exponent = code.ashr(code.sub(u, bits(ROOT)), bits(EXPONENT))
        m = code.bitcast(code.sub(u, code.shl(exponent, bits(EXPONENT))), vector)
        t = code.fsub(m, writer.all_lanes(1.0))
        whole = product(code.sitofp(exponent, vector), writer.all_lanes(math.log(2)))
        logarithm = total(whole, product(t, polynomial(log, t)))
        length = product(code.call(root, [product(logarithm, writer.all_lanes(-2.0))]), scale)
        # The angle: the nearest quarter turn, exactly, plus a rest of at most an eighth of a turn.
        quarter = code.ashr(code.add(second, bits(1 << (QUARTER - 1))), bits(QUARTER))
        left = code.sitofp(code.sub(second, code.shl(quarter, bits(QUARTER))), vector)
        angle = product(left, writer.all_lanes(math.pi * 2.0**-31))
        z = product(angle, angle)
        across = product(angle, polynomial(sine, z))
        along = total(product(z, polynomial(cosine, z)), writer.all_lanes(1.0))
        is_turned = code.icmp_signed("!=", code.and_(quarter, bits(1)), bits(0))
        turned = (
            (cosines, signed(code.select(is_turned, across, along), code.add(quarter, bits(1)))),
            (sines, signed(code.select(is_turned, along, across), quarter)),
        )
        for start, value in turned:
            target = writer.wide(writer.at(start, pair))
            code.store(total(code.load(target, align=4), product(length, value)), target, align=4)
    code.ret_void()
    return writer
