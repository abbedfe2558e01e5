"""Choice among weights e^u: its bounds hold for every item, and the law is exact."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from deniable import noise
from deniable.errors import InvalidParameter
from deniable.noise import ReplayEntropy
from deniable.noise.weighted_choice import FRACTION, HEAVY, HEIGHT, SURE, Chooser, _at_most, is_below
from deniable.testing import statistics
from tests.noise.exact import FALSE_ALARM, Chosen, at_many_bits, chi_square_limit, real

F = Fraction
MILLION = 10**6


def shares(log_weights: list[Any], weights: list[Any] | None = None) -> list[mpf]:
    with at_many_bits():
        each = [
            real(w) * mpmath.exp(real(u)) for u, w in zip(log_weights, weights or [1] * len(log_weights), strict=True)
        ]
        whole = mpmath.fsum(each)
        return [one / whole for one in each]


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 45 << FRACTION))
def test_bounds_of_the_exponential_hold_and_are_near(gap: int) -> None:
    (bound,) = _at_most(np.array([gap])).tolist()
    with at_many_bits():
        truth = mpmath.exp(-real(F(gap, 1 << FRACTION))) * mpf(2) ** HEIGHT
        assert truth <= bound <= truth * (1 + mpf(2) ** -19) + 4


numbers = st.integers(-40, 40) | st.floats(-40, 40) | st.fractions(-40, 40, max_denominator=10**6)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(numbers, st.fractions(0, 10**6)), min_size=1, max_size=12))
def test_every_item_is_kept_with_a_probability(items: list[tuple[Any, Fraction]]) -> None:
    kept_with_a_probability(items)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(numbers, st.fractions(0, 10**6)), min_size=1, max_size=12))
def test_every_item_is_kept_with_a_probability_many_times(items: list[tuple[Any, Fraction]]) -> None:
    kept_with_a_probability(items)


def kept_with_a_probability(items: list[tuple[Any, Fraction]]) -> None:
    """W_i is at least 2^S w_i e^(u_i - top), for heavy items by at most 2^-17; and what is drawn is W_i/ΣW."""
    log_weights, weights = ([item[i] for item in items] for i in (0, 1))
    if not any(weights):
        weights[0] = F(1)
    chooser = Chooser(log_weights, weights)
    with at_many_bits():
        for i, bound in enumerate(chooser._bounds.tolist()):
            target = real(weights[i]) * mpmath.exp(real(F(log_weights[i]) - chooser._top)) * real(chooser._unit)
            assert target <= bound
            assert (bound == 0) == (weights[i] == 0)
            if bound >= HEAVY:
                assert target >= bound * (1 - mpf(2) ** -17)
    assert 2 ** (HEIGHT - 3) <= chooser._sums[-1] <= 2**62


CASES: list[tuple[list[Any], list[Any] | None]] = [
    ([0], None),
    ([0, 0], None),
    ([0, 1, 2, 3.5, -1], None),
    ([1.5, 0, 1.5, 0], None),
    ([F(1, 3), F(1, 7), 0.1, 2], None),
    ([1e6, 1e6 + 1, 1e6 - 1], None),
    ([1e200, 1e200, 0], None),
    ([10**30, 10**30 + 1, 10**30 - 2], None),
    ([0, 0, 0], [1, 2, 3]),
    ([0, 1, 2], [F(1, 3), 0.25, 5]),
    ([5, 0, 1], [0, 1, 2]),
    ([-700, 0, 3], [F(10) ** 304, 1, 2]),
    ([3000, 0, 1], [F(10) ** -1303, 1, 2]),
    ([0, 0, 1], [2**70, 2**71, 2**69]),
    ([0, 0, 1], [5e-324, 1e-323, 5e-324]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("log_weights", "weights"), CASES)
def test_choices_have_the_exact_law(log_weights: list[Any], weights: list[Any] | None) -> None:
    """Chi-square over the items, a million replayed draws, false alarm 1e-9; items expected less than 5 times are left
    out. And 300 draws, one by one, from the process's own entropy: there the false alarm of 1e-9 is a theorem.
    """
    truth = np.array([float(share) for share in shares(log_weights, weights)])
    draws = noise.choice(log_weights=log_weights, weights=weights, size=MILLION, entropy=ReplayEntropy(1))
    counts = np.bincount(draws, minlength=truth.size)
    assert counts.size == truth.size
    likely = truth * MILLION > 5
    assert np.all(counts[truth == 0] == 0)
    statistic = float(np.sum((counts - truth * MILLION)[likely] ** 2 / (truth * MILLION)[likely]))
    assert statistic <= chi_square_limit(int(likely.sum()) + 1)
    alone = np.bincount(
        [noise.choice(log_weights=log_weights, weights=weights) for _ in range(300)], minlength=truth.size
    )
    assert statistics.chi_square(alone.tolist(), truth.tolist()) > FALSE_ALARM


def test_a_choice_from_wrong_weights_is_rejected() -> None:
    """The power of the test above: exponents that are 3 % too large."""
    log_weights = [-i / 8 for i in range(20)]
    truth = np.array([float(share) for share in shares(log_weights)])
    for factor, right in ((1, True), (1.03, False)):
        draws = noise.choice(log_weights=[u * factor for u in log_weights], size=MILLION, entropy=ReplayEntropy(2))
        statistic = float(np.sum((np.bincount(draws, minlength=20) - truth * MILLION) ** 2 / (truth * MILLION)))
        assert (statistic < chi_square_limit(20)) is right


@pytest.mark.slow
def test_light_items_are_drawn_as_rarely_as_they_should() -> None:
    """20,000 items of weight 2^-24 beside one of weight 1: their bounds are coarse, the law is not."""
    light = -24 * math.log(2)
    draws = noise.choice(log_weights=[0.0] + [light] * 20_000, size=4 * MILLION, entropy=ReplayEntropy(3))
    share = float(1 - shares([0.0] + [light] * 20_000)[0])
    expected = share * 4 * MILLION
    assert (np.count_nonzero(draws) - expected) ** 2 / expected < chi_square_limit(2)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**64 - 1),
    st.fractions(min_value=F(1, 10**9), max_value=10**9),
    st.fractions(min_value=-60, max_value=60, max_denominator=10**6),
)
def test_a_uniform_number_below_a_multiple_of_an_exponential(u: int, factor: Fraction, z: Fraction) -> None:
    decided = is_below(u, 64, factor, z, ReplayEntropy(1))
    with at_many_bits():
        truth = real(factor) * mpmath.exp(-real(z)) * mpf(2) ** 64
        assert decided == (u < truth) or u == int(truth)


@pytest.mark.parametrize("z", [F(5), F(-5), F(1, 3), F(-1, 3)])
def test_a_uniform_number_on_the_threshold(z: Fraction) -> None:
    factor = F(1, 1000)
    with at_many_bits():
        along = int(real(factor) * mpmath.exp(-real(z)) * mpf(2) ** 192)
    words = [along >> 128, (along >> 64) & (2**64 - 1), along & (2**64 - 1)]
    for step, below in ((-1, True), (1, False)):
        assert is_below(words[0], 64, factor, z, Chosen([words[1], words[2] + step])) is below


def test_a_rejected_item_is_drawn_again() -> None:
    """With u at the very top the item drawn is rejected, and the next words choose."""
    chooser = Chooser([0.5, 0.25], None)
    bits = int(chooser._sums[-1] - 1).bit_length()
    first, second = (int(total - 1) << (64 - bits) for total in chooser._sums)
    assert chooser.one(Chosen([first, 2**64 - 1, second, SURE - 1])) == 1
    out = np.empty(1, dtype=np.int64)
    chooser.fill(out, Chosen([first, 2**64 - 1, second, SURE - 1]))
    assert out.tolist() == [1]


@pytest.mark.parametrize(
    "values",
    [
        np.array([0.0, 1.0]),
        np.array([0, 1], dtype=np.int8),
        np.array([0, 1], dtype=np.float16),
        np.array([0, 1], dtype=np.longdouble),
        np.array([0, 1], dtype=object),
        (0, 1),
        range(2),
        iter([0, 1]),
        pd.Series([0, 1]),
        pd.Series([0.0, 1.0], dtype="Float64"),
        pl.Series([0, 1]),
        [np.float64(0), np.int64(1)],
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', '')}",
)
def test_weights_may_come_in_any_sequence(values: Any) -> None:
    drawn = noise.choice(log_weights=values, size=500, entropy=ReplayEntropy(4))
    assert drawn.tolist() == noise.choice(log_weights=[0, 1], size=500, entropy=ReplayEntropy(4)).tolist()


@pytest.mark.parametrize(
    "values",
    [
        [],
        (),
        np.array([]),
        None,
        3,
        "01",
        b"01",
        {0: 1},
        {1, 2},
        [None],
        ["a"],
        [math.nan],
        [math.inf, 1.0],
        [0, -math.inf],
        [True, False],
        np.array([], dtype=object),
        np.array([True]),
        [[0, 1]],
        np.zeros((2, 2)),
        [[0], [1, 2]],
        [1j],
        np.array(["a"]),
        [float("1e400"), 0],
    ],
    ids=repr,
)
def test_what_is_no_sequence_of_numbers_is_refused_without_being_shown(values: Any) -> None:
    """Log-weights are computed from data: no error may carry them."""
    with pytest.raises(InvalidParameter, match=r"^log_weights: ") as raised:
        noise.choice(log_weights=values)
    assert raised.value.asked is not values
    with pytest.raises(InvalidParameter, match=r"^weights: "):
        noise.choice(log_weights=[0, 1], weights=values if values is not None else 7)


@pytest.mark.parametrize("weights", [[1], [1, 2, 3], [-1, 2], [0, 0], [0.0, -0.5], [F(-1), F(2)]])
def test_weights_that_do_not_fit_are_refused(weights: Any) -> None:
    with pytest.raises(InvalidParameter, match=r"^weights: must"):
        noise.choice(log_weights=[0, 1], weights=weights)


def test_a_choice_among_a_million_is_quick() -> None:
    import time

    log_weights = np.linspace(0, 10, MILLION)
    began = time.process_time()
    index = noise.choice(log_weights=log_weights)
    assert time.process_time() - began < 2
    assert 0 <= index < MILLION


@pytest.mark.parametrize("other", [0.5, F(1, 2), np.float32(0.5)])
def test_one_exponent_does_not_round_the_others(other: Any) -> None:
    """2⁶⁰ and 2⁶⁰ + 1 are one float. Chosen beside a float, the first came up as often as the second, not 1 : e."""
    draws, source = 4000, ReplayEntropy(11)
    found = noise.choice(log_weights=[2**60, 2**60 + 1, other], size=draws, entropy=source)
    first = int((found == 0).sum())
    # Share 1/(1 + e) = 0.269; a half is 15 standard deviations away, 6.5 are a false alarm below 1e-9.
    assert abs(first - draws * 0.26894) < 6.5 * math.sqrt(draws * 0.26894 * 0.73106)
