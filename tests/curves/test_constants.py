"""The constants of decision 3, measured: each must hold with room to spare on this machine."""

import math

import numpy as np
import pytest

from deniable.curves.composition.compose import FFT_CONSTANT, power
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, quotient_up


def inputs(length: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(20261115)
    return {
        "uniform": random.random(length),
        "normal": random.normal(size=length),
        "decaying": np.exp(-np.arange(length) / 50.0),
        "spike": (np.arange(length) == 3).astype(float),
    }


@pytest.mark.parametrize("exponent", [6, 10, 14, 18])
@pytest.mark.parametrize("shape", ["uniform", "normal", "decaying", "spike"])
def test_fft_error_stays_far_below_the_constant(exponent: int, shape: str) -> None:
    from scipy import fft

    values = inputs(2**exponent)[shape]
    reference = fft.rfft(values.astype(np.longdouble))
    if reference.dtype != np.clongdouble or np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("no extended precision on this platform: nothing to compare with")
    error = np.fft.rfft(values) - reference
    relative = float(np.sqrt(np.sum(np.abs(error) ** 2) / np.sum(np.abs(reference) ** 2)))
    assert relative <= FFT_CONSTANT / 4 * UNIT_ROUNDOFF * exponent


@pytest.mark.parametrize("count", [2, 3, 1000, 99_999])
def test_pointwise_powers_lose_at_most_eight_roundings_a_use(count: int) -> None:
    import mpmath

    mpmath.mp.dps = 50
    angles = np.linspace(0.0, 0.02, 40)
    base = (1 - angles**2) * np.exp(1j * angles)
    computed = power(base, count)
    for z, found in zip(base, computed, strict=False):
        exact = mpmath.mpc(z.real, z.imag) ** count
        gap = abs(mpmath.mpc(found.real, found.imag) - exact)
        assert gap <= 8 * UNIT_ROUNDOFF * count * abs(exact)


@pytest.mark.parametrize(("a", "b"), [(1.0, 3.0), (1.0, 4.0), (2.0, 7.0), (1e-9, 3.3), (5.0, 1.1)])
def test_quotient_is_rounded_up(a: float, b: float) -> None:
    from fractions import Fraction

    found = quotient_up(a, b)
    assert Fraction(found) >= Fraction(a) / Fraction(b)
    assert Fraction(math.nextafter(found, 0)) <= Fraction(a) / Fraction(b)
