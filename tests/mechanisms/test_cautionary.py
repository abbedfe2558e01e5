"""Cautionary mechanisms: their true curves, by closed form and by enumeration of what they publish."""

from __future__ import annotations

import collections
import itertools
import math
import pickle
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from mpmath import mpf

from deniable import curves
from deniable.errors import InvalidParameter, NotPrivateWarning
from deniable.mechanisms import DiscreteLaplace, Laplace
from deniable.mechanisms.cautionary import Catastrophe, NameAndShame, Subsampling
from deniable.noise import ReplayEntropy
from tests.mechanisms import exact_laws

pytestmark = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")


def total_variation(p: dict[Any, Fraction], q: dict[Any, Fraction]) -> Fraction:
    return sum((max(p.get(k, Fraction(0)) - q.get(k, Fraction(0)), Fraction(0)) for k in {*p, *q}), Fraction(0))


# -- subsampling -----------------------------------------------------------------------------------------------------


def published(rows: tuple[str, ...], rate: Fraction) -> dict[Any, Fraction]:
    law: dict[Any, Fraction] = collections.defaultdict(Fraction)
    for chosen in itertools.product((False, True), repeat=len(rows)):
        mass = math.prod((rate if c else 1 - rate for c in chosen), start=Fraction(1))
        law[tuple(r for r, c in zip(rows, chosen, strict=True) if c)] += mass
    return law


def test_fact_subsampling_is_0_delta_private_and_leaks_somebody() -> None:
    mechanism = Subsampling(rate=1e-3)
    assert mechanism.exposes_anybody(records=1000) == pytest.approx(0.632304575229036, rel=1e-13)
    assert mechanism.exposed(records=1000) == pytest.approx(1, rel=1e-15)
    assert mechanism.curve.delta(epsilon=0.0) == mechanism.curve.delta(epsilon=30.0) == pytest.approx(1e-3, rel=1e-12)
    assert mechanism.curve == curves.approximate(epsilon=0, delta=1e-3)


def test_subsampling_tells_neighbours_apart_with_exactly_its_rate() -> None:
    rate = Fraction(1, 7)
    for one, other in ((("a", "b", "c"), ("a", "b", "d")), (("a", "b"), ("a", "b", "c")), (("a",), ())):
        p, q = published(one, rate), published(other, rate)
        assert max(total_variation(p, q), total_variation(q, p)) == rate


def test_subsampling_publishes_at_its_rate() -> None:
    source = ReplayEntropy(1)
    out = sum(len(Subsampling(rate=Fraction(1, 3)).release(range(5), entropy=source)) for _ in range(2000))
    assert exact_laws.chi_square([out, 10_000 - out], [1 / 3, 2 / 3]) < 1
    assert exact_laws.rejects([out, 10_000 - out], [0.4, 0.6], [1 / 3, 2 / 3])
    assert Subsampling(rate=1).release(["a", "b"]) == ["a", "b"]
    assert Subsampling(rate=0).release(["a", "b"]) == []
    assert Subsampling(rate=0).exposes_anybody(records=9) == 0
    assert Subsampling(rate=1).exposes_anybody(records=9) == 1


# -- name and shame --------------------------------------------------------------------------------------------------


def test_fact_name_and_shame_is_0_one_nth_private() -> None:
    mechanism = NameAndShame(records=1000)
    assert mechanism.curve.delta(epsilon=0.0) == pytest.approx(1e-3, rel=1e-12)
    p = {(i, x): Fraction(1, 3) for i, x in enumerate("abc")}
    q = {(i, x): Fraction(1, 3) for i, x in enumerate("abd")}
    assert total_variation(p, q) == Fraction(1, 3)
    assert NameAndShame(records=3).curve.delta(epsilon=5.0) >= 1 / 3


def test_name_and_shame_shames_everybody_equally() -> None:
    source = ReplayEntropy(2)
    counts = collections.Counter(NameAndShame(records=4).release(list("abcd"), entropy=source) for _ in range(4000))
    assert set(counts) == set(enumerate("abcd"))
    assert exact_laws.chi_square(list(counts.values()), [0.25] * 4) < 1


# -- catastrophe -----------------------------------------------------------------------------------------------------


def test_fact_catastrophe() -> None:
    mechanism = Catastrophe(Laplace(sensitivity=1.0, epsilon=1), statistic=sum, delta=1e-5)
    low, high = mechanism.curve.delta_bounds(epsilon=0.5)
    assert low == pytest.approx(0.221207004936426, rel=1e-6)
    assert high == pytest.approx(0.221207004936426, rel=1e-6)
    assert high >= 0.221207004936426 * (1 - 1e-12)


@pytest.mark.parametrize("delta", [Fraction(1, 3), 1e-5, 0.1])
def test_the_curve_of_a_catastrophe_is_the_mixture(delta: Any) -> None:
    inner = DiscreteLaplace(sensitivity=1, epsilon=1)
    mechanism = Catastrophe(inner, statistic=sum, delta=delta)
    # Discrete Laplace with r = e^-1 on neighbouring counts: Σ (P(y) - e^t P(y-1))₊, summed to 200 terms a side.
    r = mpmath.exp(-1)
    for loss in (Fraction(0), Fraction(1, 2), Fraction(3)):
        factor = mpmath.exp(exact_laws.number(loss))
        alone = mpmath.fsum(
            max((1 - r) / (1 + r) * (r ** abs(y) - factor * r ** abs(y - 1)), mpf(0)) for y in range(-200, 201)
        )
        expected = exact_laws.number(delta) + (1 - exact_laws.number(delta)) * alone
        low, high = mechanism.curve.delta_bounds(epsilon=float(loss))
        assert low * (1 - 1e-9) <= expected <= high <= expected * (1 + mpf("1e-6"))


def test_a_catastrophe_happens_with_probability_delta() -> None:
    mechanism = Catastrophe(DiscreteLaplace(sensitivity=1, epsilon=1), statistic=sum, delta=Fraction(1, 5))
    source, data = ReplayEntropy(3), [1, 0, 1]
    happened = sum(mechanism.release(data, entropy=source) is data for _ in range(4000))
    assert exact_laws.chi_square([happened, 4000 - happened], [0.2, 0.8]) < 1
    assert exact_laws.rejects([happened, 4000 - happened], [0.3, 0.7], [0.2, 0.8])
    never = Catastrophe(DiscreteLaplace(sensitivity=1, epsilon=1), statistic=sum, delta=0)
    assert never.curve == DiscreteLaplace(sensitivity=1, epsilon=1).curve
    assert Catastrophe(DiscreteLaplace(sensitivity=1, epsilon=1), statistic=sum, delta=1).curve.delta(epsilon=9.0) == 1


def test_more_noise_does_not_help_against_a_catastrophe() -> None:
    for epsilon in (1, Fraction(1, 1000)):
        mechanism = Catastrophe(DiscreteLaplace(sensitivity=1, epsilon=epsilon), statistic=sum, delta=1e-3)
        assert mechanism.curve.delta(epsilon=40.0) >= 1e-3
        assert mechanism.curve.epsilon(delta=0.99e-3) == math.inf


# -- values and parameters -------------------------------------------------------------------------------------------


def test_bad_parameters_are_refused() -> None:
    inner = DiscreteLaplace(sensitivity=1, epsilon=1)
    for bad in (-0.1, 1.5, math.nan, "0.1", None):
        with pytest.raises(InvalidParameter):
            Subsampling(rate=bad)
        with pytest.raises(InvalidParameter):
            Catastrophe(inner, statistic=sum, delta=bad)
    for bad in (0, -1, 2.5, True):
        with pytest.raises(InvalidParameter):
            NameAndShame(records=bad)
    with pytest.raises(InvalidParameter):
        Catastrophe("inner", statistic=sum, delta=0.1)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter):
        Catastrophe(inner, statistic=3, delta=0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, 3, "31337", {"a": 31337}, [31337]], ids=repr)
def test_bad_records_are_refused_and_not_shown(value: Any) -> None:
    with pytest.raises(InvalidParameter) as refused:
        NameAndShame(records=2).release(value)
    assert "31337" not in str(refused.value)


def test_they_are_values() -> None:
    for mechanism in (
        Subsampling(rate=0.25),
        NameAndShame(records=9),
        Catastrophe(DiscreteLaplace(sensitivity=1, epsilon=1), statistic=sum, delta=0.1),
    ):
        assert pickle.loads(pickle.dumps(mechanism)) == mechanism
        assert (mechanism**2).curve == mechanism.curve**2
    with pytest.warns(NotPrivateWarning):
        Subsampling(rate=0.5).release([1, 2], entropy=ReplayEntropy(1))
