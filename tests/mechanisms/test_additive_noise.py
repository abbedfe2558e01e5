"""Laplace and Gaussian noise, whole and real: laws of samples, what is refused, errors, borders.

The references (`lattice_laws`) are sums at 50 digits; statistical tests state a false-alarm rate of 1e-9.
"""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from deniable import curves, noise
from deniable.errors import InvalidOperation, InvalidParameter, NotPrivateWarning
from deniable.mechanisms import Composed, DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, noise_quantiles
from deniable.mechanisms.noise_steps import Additive, noisy_floats, rounded_steps
from tests.mechanisms import lattice_laws as laws
from tests.mechanisms.cases import REAL, WHOLE, Nameless
from tests.wording import worded

pytestmark = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")

# -- what is released ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mechanism", "law", "wrong"),
    [
        (
            Laplace(sensitivity=1, epsilon=0.5, dimension=40_000),
            laws.discrete_laplace(2, 60),
            laws.discrete_laplace(2.1, 60),
        ),
        (
            Gaussian(sensitivity=1, sigma=2, dimension=40_000),
            laws.rounded_gaussian(2, 20),
            laws.rounded_gaussian(2.1, 20),
        ),
        (
            DiscreteGaussian(sensitivity=1, sigma=2, dimension=40_000),
            laws.discrete_gaussian(2, 20),
            laws.discrete_gaussian(2.1, 20),
        ),
    ],
)
def test_whole_answers_have_the_exact_law(mechanism: Additive, law: laws.Law, wrong: laws.Law) -> None:
    """Chi-square, 40,000 draws, false alarm 1e-9; noise wrong by 5 % is rejected by the same test."""
    sample = mechanism.release(np.full(40_000, 7), entropy=noise.ReplayEntropy(11)) - 7
    assert laws.chi_square(sample, law) > laws.FALSE_ALARM
    assert laws.chi_square(sample, wrong) < laws.FALSE_ALARM


@pytest.mark.parametrize(
    ("mechanism", "cdf"),
    [
        (
            Laplace(sensitivity=1.0, epsilon=0.5, dimension=40_000),
            lambda x, wrong=1.0: stats.laplace.cdf(x, 3, 2 * wrong),
        ),
        (
            Gaussian(sensitivity=1.0, sigma=2.0, dimension=40_000),
            lambda x, wrong=1.0: stats.norm.cdf(x, 3, 2 * wrong),
        ),
    ],
)
def test_real_answers_have_the_law_of_the_textbook(mechanism: Additive, cdf: Any) -> None:
    """Kolmogorov-Smirnov, 40,000 draws, false alarm 1e-9; noise wrong by 8 % is rejected by the same test."""
    sample = mechanism.release(np.full(40_000, 3.0), entropy=noise.ReplayEntropy(5))
    assert laws.kolmogorov(sample, cdf) > laws.FALSE_ALARM
    assert laws.kolmogorov(sample, lambda x: cdf(x, 1.08)) < laws.FALSE_ALARM


@pytest.mark.parametrize("mechanism", REAL)
def test_real_answers_lie_on_the_grid_whatever_the_value(mechanism: Additive) -> None:
    """The support does not depend on the value: no low-order bits of it get through (Mironov 2012)."""
    for value in (0.1, 1 / 3, -2.7182818, 0.0, -0.0, 5e-324):
        if mechanism.dimension:
            (answer,) = mechanism.release([value], entropy=noise.ReplayEntropy(1))
            assert (Fraction(answer) / mechanism.spacing).denominator == 1
        answer = mechanism.release(value)
        assert (Fraction(answer) / mechanism.spacing).denominator == 1


@pytest.mark.parametrize("mechanism", REAL[:1])
def test_scalars_and_arrays_are_rounded_the_same_way(mechanism: Additive) -> None:
    for value in (0.1, -7.3, 1e10, 1e300, -1e18):
        one = mechanism.release(value, entropy=noise.ReplayEntropy(3))
        assert isinstance(one, float)
        # Draws of one and of many may differ, so compare where noise is far below the last digit, or the exact sum.
        assert abs(one - value) <= 40 * 2.0 + 1e-12 * abs(value)


def test_sums_beyond_53_bits_are_rounded_once() -> None:
    steps, drawn = np.array([2.0**53, 2.0**60]), np.array([1, 2**55 + 1])
    found = noisy_floats(steps, drawn, 0)
    assert found.tolist() == [float(2**53 + 1), float(2**60 + 2**55 + 1)]


@given(st.fractions(), st.integers(-70, 70))
@settings(max_examples=300, deadline=None)
def test_steps_are_rounded_half_to_even(value: Fraction, k: int) -> None:
    assert rounded_steps(value, k) == round(value / Fraction(2) ** k)
    assert rounded_steps(Fraction(2 * k + 1) * Fraction(2) ** (k - 1), k) % 2 == 0


def test_extreme_values_do_not_overflow() -> None:
    largest = np.finfo(np.float64).max
    pair_of = Laplace(sensitivity=1e-3, epsilon=1.0, dimension=2)
    assert np.isfinite(pair_of.release(np.array([largest, -largest]))).all()
    assert math.isfinite(Laplace(sensitivity=1e-3, epsilon=1.0).release(largest))
    assert math.isfinite(Laplace(sensitivity=1e100, epsilon=1.0).release(largest))
    counts = Laplace(sensitivity=1, epsilon=0.1, dimension=1)
    ends = Laplace(sensitivity=1, epsilon=0.1, dimension=2).release(np.array([2**63 - 1, -(2**63)]))
    assert abs(int(ends[0]) - 2**62) < 1000
    assert abs(int(ends[1]) + 2**62) < 1000
    assert abs(counts.release(10**30) - 10**30) < 1000
    assert counts.release(np.array([2**64 - 1], dtype=np.uint64)).dtype == np.int64


def test_the_largest_value_and_the_largest_noise_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 2**62 - 1  # what noise.* promises to stay within
    monkeypatch.setattr(noise, "discrete_laplace", lambda **_: np.array([most, -most]))
    found = Laplace(sensitivity=1, epsilon=0.1, dimension=2).release(np.array([2**63 - 1, -(2**63)]))
    assert found.tolist() == [2**63 - 1, -(2**63) + 1]


@pytest.mark.parametrize(
    "value",
    [
        [1, 2, 3],
        (1, 2, 3),
        np.array([1, 2, 3]),
        np.array([1, 2, 3], dtype=np.uint8),
        np.array([[1, 2, 3]], dtype=np.int32),
        pd.Series([1, 2, 3]),
        pl.Series([1, 2, 3]),
    ],
)
def test_many_kinds_of_arrays_come_in_and_arrays_come_out(value: Any) -> None:
    shape = np.asarray(value).shape
    whole = Laplace(sensitivity=1, epsilon=50, dimension=3).release(value)
    assert whole.dtype == np.int64
    assert whole.shape == shape
    real = Laplace(sensitivity=1.0, epsilon=50, dimension=3).release(value)
    assert real.dtype == np.float64
    assert np.abs(real - np.asarray(value)).max() < 5


@pytest.mark.parametrize(
    "value",
    [3, np.int64(3), np.uint8(3), np.array(3)],
)
def test_many_kinds_of_whole_numbers_come_in_and_an_int_comes_out(value: Any) -> None:
    for mechanism in (*WHOLE, Laplace(sensitivity=1, epsilon=1, dimension=1)):
        assert type(mechanism.release(value)) is int


@pytest.mark.parametrize(
    "value", [3, 3.5, np.float64(3.5), np.float32(3.5), np.int64(3), Fraction(7, 2), Decimal("3.5"), np.array(3.5)]
)
def test_many_kinds_of_real_numbers_come_in_and_a_float_comes_out(value: Any) -> None:
    for mechanism in REAL:
        assert type(mechanism.release(value)) is float


def test_the_type_of_the_answer_never_depends_on_the_data() -> None:
    """sum([]) is 0, sum([0.0]) is 0.0: an answer that followed the type would tell them apart."""
    noisy = Laplace(sensitivity=1.0, epsilon=1.0)
    assert type(noisy.release(sum([]))) is type(noisy.release(sum([0.0]))) is float


SECRET = 271828.18284


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        "271828.18284",
        b"271828",
        True,
        np.bool_(True),
        None,
        complex(SECRET, 1),
        [SECRET, math.nan],
        [SECRET, math.inf],
        ["271828.18284"],
        [True, False],
        [],
        np.array([]),
        [[SECRET], [SECRET, SECRET]],
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.ma.masked_array([SECRET, 1.0], mask=[True, False]),
        {SECRET: 1},
        {SECRET},
        np.array([SECRET], dtype=np.longdouble),
        np.longdouble(SECRET),
        [SECRET, None],
        [SECRET, Nameless()],
        Nameless(),
        Decimal("NaN"),
        pd.Series([SECRET, None]),
        pl.Series([SECRET, None]),
    ],
)
def test_what_is_no_number_is_refused_without_showing_it(value: Any) -> None:
    for mechanism in (
        Laplace(sensitivity=1.0, epsilon=1.0),
        Laplace(sensitivity=1.0, epsilon=1.0, dimension=1),
        Laplace(sensitivity=1.0, epsilon=1.0, dimension=2),
        Gaussian(sensitivity=1, sigma=1.0),
        Gaussian(sensitivity=1, sigma=1.0, dimension=2),
    ):
        with pytest.raises(InvalidParameter) as refusal:
            mechanism.release(value)
        assert "271828" not in str(refusal.value)
        assert refusal.value.__cause__ is None
        assert refusal.value.__suppress_context__ or refusal.value.__context__ is None


def test_floats_are_refused_by_whole_mechanisms_with_a_remedy() -> None:
    for value in (3.0, [3.0], np.array([3.0])):
        with pytest.raises(InvalidParameter, match=r"sensitivity=1\.0"):
            Laplace(sensitivity=1, epsilon=1).release(value)


def test_a_declared_dimension_is_kept() -> None:
    pair_of = Laplace(sensitivity=1.0, epsilon=1.0, dimension=2)
    assert pair_of.release([1.0, 2.0]).shape == (2,)
    for value in ([1.0], [1.0, 2.0, 3.0], 1.0):
        with pytest.raises(InvalidParameter, match="declared"):
            pair_of.release(value)
    with pytest.raises(InvalidParameter, match="declared"):
        Laplace(sensitivity=1, epsilon=1.0, dimension=2).release(5)


@pytest.mark.parametrize("mechanism", [m for m in (*REAL, *WHOLE) if m.dimension is None])
def test_a_vector_is_refused_by_a_mechanism_for_one_number(mechanism: Additive) -> None:
    """Its error would speak about one coordinate, and its sensitivity perhaps too."""
    for value in ([1, 2], [1], np.array([1, 2, 3]), np.array([[1]]), pd.Series([1, 2])):
        with worded(InvalidParameter, parameter="value"):
            mechanism.release(value)
    assert mechanism.release(42) == pytest.approx(42, abs=200)
    assert mechanism.release(np.array(42)) == pytest.approx(42, abs=200)


def test_more_numbers_than_can_be_paid_for_are_refused() -> None:
    Laplace(sensitivity=1.0, epsilon=1.0, dimension=2**20)
    with worded(InvalidParameter, parameter="dimension"):
        Laplace(sensitivity=1.0, epsilon=1e-7, dimension=2**20)
    Laplace(sensitivity=1.0, epsilon=1e-7)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sensitivity": 0, "epsilon": 1}, "sensitivity"),
        ({"sensitivity": -1.0, "epsilon": 1}, "positive"),
        ({"sensitivity": math.nan, "epsilon": 1}, "finite"),
        ({"sensitivity": math.inf, "epsilon": 1}, "finite"),
        ({"sensitivity": "1", "epsilon": 1}, "real number"),
        ({"sensitivity": True, "epsilon": 1}, "real number"),
        ({"sensitivity": 1}, "exactly one"),
        ({"sensitivity": 1, "epsilon": 1, "scale": 1}, "exactly one"),
        ({"sensitivity": 1, "epsilon": 0}, "positive"),
        ({"sensitivity": 1, "epsilon": -0.0}, "positive"),
        ({"sensitivity": 1, "epsilon": math.nan}, "finite"),
        ({"sensitivity": 1, "epsilon": "1"}, "real number"),
        ({"sensitivity": 1, "epsilon": True}, "real number"),
        ({"sensitivity": 1, "epsilon": 1e-400}, "positive"),
        ({"sensitivity": 1, "epsilon": 1e308}, "1e120"),
        ({"sensitivity": 1, "scale": 1, "delta": 1e-6}, "goes with epsilon"),
        ({"sensitivity": 1, "epsilon": 1, "delta": 1}, "strictly between"),
        ({"sensitivity": 1, "epsilon": 1, "delta": -1e-9}, "strictly between"),
        ({"sensitivity": 1, "epsilon": 1, "dimension": 0}, "at least 1"),
        ({"sensitivity": 1, "epsilon": 1, "dimension": 1.5}, "whole number"),
        ({"sensitivity": 1e-110, "epsilon": 1e-110}, "1 %"),
    ],
)
def test_parameters_that_cannot_mean_anything_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        Laplace(**arguments)


def test_noise_that_would_not_fit_is_refused_before_any_data_is_seen() -> None:
    for make in (
        lambda: Laplace(sensitivity=1, scale=2**51),
        lambda: Gaussian(sensitivity=1, sigma=2**51),
        lambda: DiscreteGaussian(sensitivity=1, sigma=2**51),
    ):
        with worded(InvalidParameter):
            make()
    for level in (1e-100, 1e-6, 2.0**50):
        assert isinstance(Laplace(sensitivity=1, scale=level).release(3), int)
        assert isinstance(Gaussian(sensitivity=1, sigma=level).release(3), int)
        assert isinstance(DiscreteGaussian(sensitivity=1, sigma=level).release(3), int)
    for level in (1e-90, 1e90):
        assert isinstance(Laplace(sensitivity=level, epsilon=1.0).release(3.0), float)


def test_gaussian_noise_has_no_pure_epsilon_and_says_so() -> None:
    for kind in (Gaussian, DiscreteGaussian):
        with pytest.raises(InvalidParameter, match="needs delta="):
            kind(sensitivity=1, epsilon=1.0)
        with worded(InvalidParameter):
            kind(sensitivity=1, sigma=1.0, delta=1e-6)
    with pytest.raises(TypeError):
        Laplace(1, epsilon=1.0)  # type: ignore[misc]


# -- error -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.1, 0.5, 0.9, 0.95, 0.999, 1 - 1e-9])
@pytest.mark.parametrize("width", [Fraction(1, 5), Fraction(1), Fraction(7, 3), Fraction(40)])
def test_the_error_of_whole_numbers_is_the_exact_quantile(confidence: float, width: Fraction) -> None:
    for kind, law, name in [
        (Laplace(sensitivity=1, scale=width), laws.discrete_laplace(width, 1200), "laplace"),
        (Gaussian(sensitivity=1, sigma=width), laws.rounded_gaussian(width, 400), "rounded"),
        (DiscreteGaussian(sensitivity=1, sigma=width), laws.discrete_gaussian(width, 400), "discrete"),
    ]:
        reach = int(kind.error(confidence=confidence))
        outside = mpmath.fsum(p for z, p in law.items() if abs(z) > reach)
        assert outside <= 1 - mpmath.mpf(confidence), name
        if reach:
            nearer = mpmath.fsum(p for z, p in law.items() if abs(z) > reach - 1)
            assert nearer > 1 - mpmath.mpf(confidence), f"{name}: a smaller error would do"


def test_the_error_of_real_numbers_is_the_textbook_quantile() -> None:
    assert Laplace(sensitivity=1.0, scale=2, dimension=1).error(confidence=0.95) == pytest.approx(
        2 * math.log(20), rel=1e-9
    )
    assert Gaussian(sensitivity=1.0, sigma=2, dimension=1).error(confidence=0.95) == pytest.approx(
        2 * stats.norm.ppf(0.975), rel=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (Laplace, {"sensitivity": 1.0, "epsilon": 0.5}),
        (Laplace, {"sensitivity": 3, "scale": 7}),
        (DiscreteLaplace, {"sensitivity": 2, "epsilon": 0.7}),
        (Gaussian, {"sensitivity": 2.5, "sigma": 1.3}),
        (Gaussian, {"sensitivity": 1, "sigma": 2}),
        (DiscreteGaussian, {"sensitivity": 1, "sigma": 2}),
    ],
)
def test_vectors_are_covered_at_the_stated_rate_and_not_much_more(kind: Any, arguments: Any) -> None:
    """4000 vectors of 5 at 80 %; false alarm 1e-9. The error of a single number would be missed far more often."""
    five, entropy = kind(**arguments, dimension=5), noise.ReplayEntropy(2)
    reach, alone = five.error(confidence=0.8), kind(**arguments).error(confidence=0.8)
    away = np.abs([five.release([0] * 5, entropy=entropy) for _ in range(4000)])
    assert laws.covered(int((away.max(axis=1) <= reach).sum()), 4000, 0.8)
    assert not laws.covered(int((away.max(axis=1) <= alone).sum()), 4000, 0.8) or alone == reach


def test_a_discrete_gaussian_of_any_width_has_an_honest_error() -> None:
    for sigma in (1999.0, 2001.0):
        reach = noise_quantiles.discrete_gaussian(Fraction(sigma), 0.05)
        assert reach == pytest.approx(1.96 * sigma, rel=2e-3)
    assert noise_quantiles.discrete_gaussian(Fraction(2001), 0.05) >= math.floor(1.959963 * 2001)


def test_confidences_that_cannot_be_are_refused() -> None:
    for bad in (0, 1, -0.1, 1.1, math.nan, "0.9", None):
        with pytest.raises(InvalidParameter):
            Laplace(sensitivity=1, epsilon=1).error(confidence=bad)  # type: ignore[arg-type]


# -- the rest --------------------------------------------------------------------------------------------------------


def test_noise_narrower_than_any_float_grid_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="no grid"):
        Laplace(sensitivity=1e-119, epsilon=1e119)


def test_whole_numbers_move_by_whole_numbers() -> None:
    for kind in (DiscreteLaplace, DiscreteGaussian):
        with worded(InvalidParameter):
            kind(sensitivity=0.5, scale=1) if kind is DiscreteLaplace else kind(sensitivity=0.5, sigma=1)
    assert DiscreteLaplace(sensitivity=2.9, scale=1).sensitivity == 2
    assert DiscreteGaussian(sensitivity=1, sigma=2.5).sigma == 2.5


def test_a_delta_too_small_to_help_leaves_pure_epsilon() -> None:
    assert Laplace(sensitivity=1.0, epsilon=1.0, delta=1e-30).curve == curves.laplace(scale=1)


def test_extreme_confidences_have_an_error_or_a_reason() -> None:
    narrow = Laplace(sensitivity=1, scale=Fraction(1, 1000))
    assert narrow.error(confidence=math.nextafter(1.0, 0.0)) == 0
    with pytest.raises(InvalidParameter, match="at once"):
        noise_quantiles.miss(math.nextafter(1.0, 0.0), 10**300)
    assert narrow.error(confidence=5e-324) == 0


def test_arrays_of_python_ints_are_whole_numbers() -> None:
    found = Laplace(sensitivity=1, epsilon=50, dimension=3).release(np.array([1, 10**30, -(10**30)], dtype=object))
    assert found[0] in range(-3, 6)
    assert abs(int(found[1]) - 2**62) < 5
    assert abs(int(found[2]) + 2**62) < 5


def test_efficiency_is_one_for_counts_and_falls_with_epsilon_for_reals() -> None:
    assert Laplace(sensitivity=1, epsilon=3.0).efficiency() == 1.0
    assert 0.5 < Laplace(sensitivity=3, epsilon=3.0).efficiency() < 0.99
    shares = [Laplace(sensitivity=1.0, epsilon=e).efficiency() for e in (0.1, 1.0, 4.0, 10.0)]
    assert shares == sorted(shares, reverse=True)
    assert 0.999 < shares[0] < 1
    assert shares[-1] < 0.3
    with pytest.raises(InvalidOperation):
        Laplace(sensitivity=1.0, epsilon=1.0, dimension=3).efficiency()
    with pytest.raises(InvalidOperation):
        Gaussian(sensitivity=1.0, sigma=1.0).efficiency()


@pytest.mark.parametrize("mechanism", [*REAL, *WHOLE])
def test_mechanisms_are_values(mechanism: Additive) -> None:
    twin = pickle.loads(pickle.dumps(mechanism))
    assert twin == mechanism
    assert hash(twin) == hash(mechanism)
    assert repr(twin) == repr(mechanism)
    assert mechanism**2 == mechanism * mechanism == Composed(((mechanism, 2),))
    with pytest.raises(AttributeError):
        mechanism.width = 1  # type: ignore[misc]


def test_reprs_can_be_read() -> None:
    assert repr(Laplace(sensitivity=1, epsilon=0.5)) == "Laplace(sensitivity=1, scale=2.0)"
    assert repr(Gaussian(sensitivity=1, sigma=2, dimension=3)) == "Gaussian(sensitivity=1, sigma=2.0, dimension=3)"
    assert repr(Gaussian.whole(sensitivity=1.5, sigma=2)) == "Gaussian.whole(sensitivity=1.5, sigma=2.0)"


def test_an_answer_from_replayable_entropy_is_marked() -> None:
    noisy = Laplace(sensitivity=1, epsilon=0.5)
    with pytest.warns(NotPrivateWarning):
        first = noisy.release(5, entropy=noise.ReplayEntropy(1))
    with pytest.warns(NotPrivateWarning):
        assert noisy.release(5, entropy=noise.ReplayEntropy(1)) == first
    noisy.release(5, entropy=noise.current())


def test_more_noise_is_never_worse() -> None:
    levels = [Laplace(sensitivity=1.0, scale=b).curve for b in (1, 2, 4)]
    assert levels[0] >= levels[1] >= levels[2]
