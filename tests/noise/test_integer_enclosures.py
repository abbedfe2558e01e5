"""Enclosures against mpmath at 600 bits: the truth is always inside, and there is little room around it."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from deniable.noise.integer_enclosures import NormalIntegral, exp_minus, normal_integral, ratio
from tests.noise.exact import at_many_bits, real

positive = st.fractions(min_value=0, max_value=300, max_denominator=10**30) | st.floats(0, 300).map(Fraction)


@settings(max_examples=300, deadline=None)
@given(positive, st.integers(1, 400))
def test_the_exponential_is_enclosed_within_two_steps(x: Fraction, bits: int) -> None:
    low, high = exp_minus(x, bits)
    with at_many_bits():
        truth = mpmath.exp(-real(x)) * mpf(2) ** bits
        assert low <= truth <= high
    assert high - low <= 2


@pytest.mark.parametrize("x", [Fraction(0), Fraction(5e-324), Fraction(1e-300), Fraction(10**30), Fraction(1.7e308)])
def test_the_exponential_at_the_ends_of_the_floats(x: Fraction) -> None:
    low, high = exp_minus(x, 128)
    with at_many_bits():
        assert low <= mpmath.exp(-real(x)) * mpf(2) ** 128 <= high


def test_e_to_the_zero_is_exactly_one() -> None:
    assert exp_minus(Fraction(0), 64) == (2**64, 2**64)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [40, 96, 160, 256, 400])
def test_the_normal_integral_is_enclosed(bits: int) -> None:
    integral = NormalIntegral(bits)
    with at_many_bits():
        unit = mpf(2) ** bits
        assert integral.whole[0] <= mpmath.sqrt(mpmath.pi / 2) * unit <= integral.whole[1]
        assert integral.whole[1] - integral.whole[0] <= 2
        for i in range(240):
            x = Fraction(i * i, 997)
            low, high = integral.above(x)
            truth = mpmath.sqrt(mpmath.pi / 2) * mpmath.erfc(real(x) / mpmath.sqrt(2)) * unit
            assert low <= truth <= high
            assert high - low <= 2


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.fractions(min_value=0, max_value=25, max_denominator=10**20))
def test_the_normal_integral_is_enclosed_anywhere(x: Fraction) -> None:
    low, high = normal_integral(160).above(x)
    with at_many_bits():
        assert low <= mpmath.sqrt(mpmath.pi / 2) * mpmath.erfc(real(x) / mpmath.sqrt(2)) * mpf(2) ** 160 <= high


@settings(deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 10**6), st.integers(1, 10**9), st.integers(0, 10**6), st.integers(1, 80))
def test_a_ratio_is_enclosed(part: int, more: int, rest: int, slack: int, bits: int) -> None:
    low, high = ratio((part, part + more), (part + rest, part + more + rest + slack), bits)
    assert low <= Fraction(part, part + more + rest + slack) * 2**bits
    assert min(Fraction(part + more, part + rest), 1) * 2**bits <= high <= 2**bits
