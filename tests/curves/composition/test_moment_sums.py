"""Sums of moments over many laws: kept lines change no value, and rounding errors count for every addition."""

from __future__ import annotations

import math
from itertools import chain

import numpy as np
import pytest

from deniable import curves
from deniable.curves import Curve
from deniable.curves.atoms.atom import pair_of
from deniable.curves.composition import factor_merging
from deniable.curves.composition.contour_moments import moment_of
from deniable.curves.composition.factor_merging import LongFactors
from deniable.curves.composition.law_product import Product
from deniable.curves.composition.moment_sums import MOST_LINES, MomentSum
from deniable.curves.composition.tilt_plan import Factor
from deniable.curves.curve import product
from deniable.curves.laws.closed_form import GaussianLaw, LaplaceLaw
from deniable.curves.laws.derived_laws import SampledAgainstWithout, WithoutAgainstSampled
from deniable.curves.laws.finite_law import FiniteLaw

FACTORS = [Factor(SampledAgainstWithout(GaussianLaw(1 / (1 + i / 10)), 0.01), 100 + i) for i in range(12)]
FACTORS_TOO = [Factor(SampledAgainstWithout(GaussianLaw(1 / (3 + i / 10)), 0.02), 100) for i in range(12)]
MORE = [Factor(LaplaceLaw(0.2), 3), Factor(WithoutAgainstSampled(GaussianLaw(0.7), 0.02), 7)]


def test_a_sum_that_goes_on_from_kept_lines_has_the_same_values() -> None:
    short, whole = MomentSum(FACTORS, 1e-14, 1.0), MomentSum([*FACTORS, *MORE], 1e-14, 1.0)
    lines = [0.7 * np.arange(count, dtype=float) for count in (1, 5, 40)]
    kept = [short.line(1.0, line) for line in lines[:2]]
    longer = short.plus(MORE, 1e-14, 1.0)
    nothing = MomentSum((), 1e-14, 1.0)
    for line in lines:
        for one, other in zip(longer.line_with(nothing, 1.0, line), whole.line_with(nothing, 1.0, line), strict=True):
            assert np.array_equal(one, other)
    assert all(short.line(1.0, line) is each for line, each in zip(lines[:2], kept, strict=True))
    assert longer.lost == whole.lost
    # The same laws, the last two apart.
    found, apart = whole.line_with(nothing, 1.0, lines[2]), short.line_with(MomentSum(MORE, 1e-14, 1.0), 1.0, lines[2])
    assert np.array_equal(found.values, apart.values)


def test_no_more_than_some_lines_are_kept() -> None:
    found = MomentSum(FACTORS[:1], 1e-14, 1.0)
    for at in range(3 * MOST_LINES):
        found.line(1.0 + at / 100, np.zeros(1))
    assert len(found._lines) == MOST_LINES


def test_the_errors_of_a_sum_hold_where_values_cancel() -> None:
    """Imaginary parts of both signs: the sum is near 0, and the roundings are those of its large terms."""
    laws = [FiniteLaw(np.array([sign * 3.0]), np.array([1.0]), 0.0) for sign in (1.0, -1.0)]
    factors = [Factor(laws[i % 2], 10_000 + i // 2) for i in range(40)]
    found = MomentSum(factors, 1e-14, 0.5).line_with(MomentSum((), 1e-14, 0.5), 0.5, np.array([0.0, 0.9]))
    line = np.array([0.0, 0.9])
    one = [moment.line(0.5, line).values for law in laws if (moment := moment_of(law, 10_000, 1e-14, 0.5)) is not None]
    assert len(one) == 2
    terms = [(uses, values) for (_, uses), values in zip(factors, one * 20, strict=True)]
    for at in (0, 1):
        parts = [[uses * getattr(values[at], part) for uses, values in terms] for part in ("real", "imag")]
        exact = complex(*(math.fsum(each) for each in parts))
        assert abs(found.values[at] - exact) <= found.errors[at]
        assert found.errors[at] > 1e-14 * sum(abs(each) for each in chain(*parts)) * 0.1


def different(count: int) -> Curve:
    return product(curves.gaussian(sigma=1 + i / 20).sampled(rate=0.01) ** 100 for i in range(count))


def test_one_more_use_leaves_the_head_of_a_long_product() -> None:
    """A law that runs less often than most laws comes after the head; with as many uses as most, it joins the head."""
    long = factor_merging.simplify([Factor(factor.law, 100) for factor in [*FACTORS, *FACTORS_TOO]], "upper")
    assert isinstance(long, LongFactors)
    new = LaplaceLaw(0.01)
    once = factor_merging.simplify([Factor(new, 1)], "upper", long)
    twice = factor_merging.simplify([Factor(new, 1), Factor(FACTORS[0].law, 1)], "upper", once)
    assert isinstance(once, LongFactors)
    assert isinstance(twice, LongFactors)
    assert once.head is twice.head is long.head
    assert set(once.rest) == {Factor(new, 1)}
    assert set(twice.rest) == {Factor(new, 2), Factor(FACTORS[0].law, 1)}
    often = factor_merging.simplify([Factor(new, 98)], "upper", twice)
    assert isinstance(often, LongFactors)
    assert often.head.factors == (*long.head.factors, Factor(new, 100))
    assert set(often.rest) == {Factor(FACTORS[0].law, 1)}
    assert often.ingredients.tally == {100: 24, 101: 1}
    fresh = factor_merging.simplify([*long, Factor(new, 100), Factor(FACTORS[0].law, 1)], "upper")
    assert isinstance(fresh, LongFactors)
    assert sorted(fresh, key=str) == sorted(often, key=str)
    assert fresh.ingredients.tally == often.ingredients.tally


def simplified(curve: Curve) -> factor_merging.SimplifiedFactors:
    """The factors of the backward direction, the worse one for sampled Gaussians, simplified at once."""
    return factor_merging.simplify([Factor(pair_of(atom).backward.upper, n) for atom, n in curve.factors], "upper")


def test_extended_products_have_the_bounds_of_fresh_ones() -> None:
    """New laws, laws again, and laws that catch up with the others, added one after the other."""
    held = different(30)
    held.epsilon_bounds(delta=1e-6)
    new = curves.gaussian(sigma=3.3).sampled(rate=0.02)
    for step in (new, new, curves.laplace(scale=30), new**98, curves.gaussian(sigma=1.0).sampled(rate=0.01), new):
        held = held * step
        low, high = held.epsilon_bounds(delta=1e-6)
        fresh = simplified(Curve(dict(reversed(held.factors))))  # in another order, and not extended from anything
        least, most = Product(fresh, fresh).epsilon_bounds(1e-6)
        assert low == pytest.approx(least, rel=1e-8)
        assert max(low, least) <= min(high, most)
        assert high - low <= 1e-7 * high
