"""The Poisson mechanism: exact rate conditions, its curve against enumerated pairs, samples, estimates, errors."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from mpmath import mpf

from deniable import curves, noise
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.mechanisms import PoissonMechanism
from deniable.mechanisms.poisson_mechanism import _check_rates, _pieces, _poisson_range
from tests.mechanisms import lattice_laws as laws
from tests.wording import worded

pytestmark = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")

LINEAR = PoissonMechanism.linear(low=2, high=5, sensitivity=2, top=6)
TRANSPORT = PoissonMechanism.transport(low=2, high=5, sensitivity=2, top=6)


def law(rate: Any, reach: int = 80) -> laws.Law:
    r = laws.number(rate)
    return {k: mpmath.exp(-r) * r**k / mpmath.factorial(k) for k in range(reach)}


def test_fact_the_transport_form_of_the_slide() -> None:
    assert [float(rate) for rate in TRANSPORT.rates] == pytest.approx(
        [0.32, 0.505964425626941, 0.8, 1.26491106406735, 2.0, 3.16227766016838, 5.0], rel=1e-14
    )
    growth = math.log(5 / 2) / 2
    assert growth == pytest.approx(0.458145365937078, rel=1e-14)
    assert float(TRANSPORT.rate(0)) == pytest.approx(0.32, rel=1e-14)  # η₂ = (μ₂-μ₁)/(h(6)-h(4)), h(0) = 1


def test_fact_c3_the_linear_form() -> None:
    assert [float(LINEAR.rate(y)) for y in range(7)] == [2, 3.5, 5, 6.5, 8, 9.5, 11]
    # Unbiased: the mean count of rate λ(y) is turned into y.
    for y in range(7):
        assert LINEAR.estimate(float(LINEAR.rate(y))) == pytest.approx(y)


@pytest.mark.parametrize("mechanism", [LINEAR, TRANSPORT])
def test_both_conditions_hold_exactly_for_all_neighbours(mechanism: PoissonMechanism) -> None:
    for y in range(7):
        for z in range(y, min(y + mechanism.sensitivity, 6) + 1):
            a, b = mechanism.rate(y), mechanism.rate(z)
            assert b - a <= mechanism.high - mechanism.low
            assert b * mechanism.low <= a * mechanism.high


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.2), (1 / 3, 7.7), (50, 60), (1e-3, 1e-2), (2, 2.0000001)])
@pytest.mark.parametrize(("step", "top"), [(1, 1), (1, 40), (3, 10), (7, 5), (5, 100)])
def test_rational_rates_exist_for_any_parameters(low: float, high: float, step: int, top: int) -> None:
    mechanism = PoissonMechanism.transport(low=low, high=high, sensitivity=step, top=top)
    assert mechanism.rates[-1] == Fraction(high)
    _check_rates(mechanism.rates, mechanism.low, mechanism.high, step)
    for y, rate in enumerate(mechanism.rates):
        wanted = laws.number(high) * (laws.number(low) / laws.number(high)) ** (mpf(top - y) / step)
        assert abs(laws.number(rate) - wanted) < 1e-12 * high
    assert _is_sharp(mechanism)


def _is_sharp(mechanism: PoissonMechanism) -> bool:
    """Rates of a smaller step are refused: the conditions are used up."""
    try:
        _check_rates(mechanism.rates, mechanism.low, mechanism.high, mechanism.sensitivity + 1)
    except InvalidParameter:
        return True
    return mechanism.top is not None and mechanism.top <= mechanism.sensitivity


@pytest.mark.parametrize("mechanism", [LINEAR, TRANSPORT])
def test_fact_c3_no_neighbours_are_told_apart_better_than_the_curve_says(mechanism: PoissonMechanism) -> None:
    """Every ordered pair of neighbours, every ε on a grid, from Poisson sums at 50 digits; and it is attained."""
    nearest = 1.0
    for y in range(7):
        for z in range(max(0, y - 2), min(6, y + 2) + 1):
            p, q = law(mechanism.rate(y)), law(mechanism.rate(z))
            for epsilon in (-1.0, 0.0, 0.5, 1.0, 2.0):
                truth = float(laws.delta(p, q, epsilon))
                bound = mechanism.curve.delta(epsilon=epsilon)
                assert truth <= bound * (1 + 1e-12)
                if truth > 0.01:
                    nearest = min(nearest, bound / truth)
    assert nearest < 1 + 1e-9


def test_fact_c3_half_the_step_is_told_apart_better() -> None:
    """Negative control: the linear form made for w = 1 breaks the promise when neighbours differ by 2."""
    wrong = PoissonMechanism.linear(low=2, high=5, sensitivity=1)
    p, q = law(wrong.rate(2)), law(wrong.rate(0))
    assert float(laws.delta(p, q, 1.0)) > LINEAR.curve.delta(epsilon=1.0) * 1.2


@pytest.mark.parametrize("mechanism", [LINEAR, TRANSPORT])
@pytest.mark.parametrize("value", [*(pytest.param(value, marks=pytest.mark.slow) for value in (0, 6)), 3])
def test_counts_have_the_exact_law(mechanism: PoissonMechanism, value: int) -> None:
    """Chi-square, 12,000 draws, false alarm 1e-9; a rate wrong by 25 % is rejected by the same test."""
    entropy = noise.ReplayEntropy(1)
    sample = [mechanism.release(value, entropy=entropy) for _ in range(12_000)]
    assert laws.chi_square(sample, law(mechanism.rate(value))) > laws.FALSE_ALARM
    assert laws.chi_square(sample, law(mechanism.rate(value) * Fraction(5, 4))) < laws.FALSE_ALARM


def test_values_are_clamped_to_the_range() -> None:
    assert TRANSPORT.rate(100) == TRANSPORT.rate(6) == 5
    assert TRANSPORT.rate(-3) == TRANSPORT.rate(0)
    endless = PoissonMechanism.linear(low=1, high=2)
    assert endless.rate(10**6) == 1 + 10**6
    assert endless.rate(10**400) == endless.rate(2**35) == 2**35
    assert PoissonMechanism.linear(low=1, high=2, top=2**40).rate(10**400) == 2**35
    assert LINEAR.rate(7) == LINEAR.rate(6)


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.99])
def test_estimates_are_covered_at_every_value(confidence: float) -> None:
    """From the exact law: the estimate misses by more than the error with probability at most 1 - confidence."""
    for mechanism in (LINEAR, TRANSPORT, PoissonMechanism.transport(low=200, high=240, sensitivity=1, top=30)):
        reach = mechanism.error(confidence=confidence)
        for y in (0, 3, mechanism.top or 0):
            masses = law(mechanism.rate(y), 600)
            inside = mpmath.fsum(p for k, p in masses.items() if abs(mechanism.estimate(k) - y) <= reach * (1 + 1e-12))
            assert inside >= mpf(confidence)
            here = mechanism.error(confidence=confidence, value=y)
            assert here <= reach * (1 + 1e-12)


def test_a_count_range_is_the_smallest() -> None:
    for rate in (0.3, 5.0, 40.0):
        low, high = _poisson_range(rate, 0.01)
        masses = law(Fraction(rate), 300)
        assert mpmath.fsum(p for k, p in masses.items() if k < low) <= 0.01
        assert mpmath.fsum(p for k, p in masses.items() if k <= low) > 0.01
        assert mpmath.fsum(p for k, p in masses.items() if k > high) <= 0.01
        assert mpmath.fsum(p for k, p in masses.items() if k >= high) > 0.01


def test_an_unbounded_range_has_an_error_at_one_value_only() -> None:
    endless = PoissonMechanism.linear(low=100, high=120)
    with pytest.raises(InvalidOperation, match="value="):
        endless.error(confidence=0.9)
    assert endless.error(confidence=0.9, value=5) < endless.error(confidence=0.9, value=500)


def test_curves_and_directions() -> None:
    assert LINEAR.curve == TRANSPORT.curve == curves.poisson(low=2, high=5)
    tied = PoissonMechanism.linear(low=2, high=5, tied=True)
    assert tied.curve == curves.poisson(low=2, high=5, tied=True)
    assert (tied**2).curve.delta(epsilon=1.0) < (LINEAR**2).curve.delta(epsilon=1.0)


@pytest.mark.parametrize(
    "arguments",
    [
        {"low": 0, "high": 5},
        {"low": 5, "high": 5},
        {"low": 5, "high": 2},
        {"low": -1, "high": 2},
        {"low": math.nan, "high": 2},
        {"low": 1, "high": math.inf},
        {"low": 1, "high": 2**36},
        {"low": 1, "high": 2, "sensitivity": 0},
        {"low": 1, "high": 2, "sensitivity": 1.5},
        {"low": 1, "high": 2, "tied": 1},
        {"low": 1, "high": 2, "top": 0},
        {"low": "1", "high": 2},
    ],
)
def test_bad_parameters_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        PoissonMechanism.linear(**arguments)
    with pytest.raises(InvalidParameter):
        PoissonMechanism.transport(**{"top": 5, **arguments})


def test_a_table_of_rates_is_bounded() -> None:
    with pytest.raises(InvalidParameter, match="at most"):
        PoissonMechanism.transport(low=1, high=2, top=10**7)


def test_rates_that_break_a_condition_cannot_be_made() -> None:
    with worded(InvalidParameter):
        PoissonMechanism(Fraction(2), Fraction(5), 1, False, 2, (Fraction(1), Fraction(3), Fraction(5)))
    with worded(InvalidParameter):
        PoissonMechanism(Fraction(2), Fraction(5), 1, False, 1, (Fraction(9), Fraction(13)))
    with pytest.raises(InvalidParameter, match="decrease"):
        PoissonMechanism(Fraction(2), Fraction(5), 1, False, 1, (Fraction(4), Fraction(3)))


@pytest.mark.parametrize("value", [1.5, "1", None, True, [1, 2], math.nan])
def test_values_are_whole_numbers(value: Any) -> None:
    with pytest.raises(InvalidParameter):
        LINEAR.release(value)


def test_poisson_mechanisms_are_values() -> None:
    for mechanism in (LINEAR, TRANSPORT):
        twin = pickle.loads(pickle.dumps(mechanism))
        assert twin == mechanism
        assert hash(twin) == hash(mechanism)
    assert repr(TRANSPORT) == "PoissonMechanism.transport(low=2, high=5, sensitivity=2, top=6)"
    assert TRANSPORT.estimate([5, 2, 0]) == pytest.approx([6.0, 4.0, 0.0])


# -- what a clock could see ------------------------------------------------------------------------------------------


def test_every_draw_is_at_a_public_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the value, the same tables are asked for the same number of draws, and coins are of the same size."""
    real_poisson, real_uniform = noise.poisson, noise.uniform
    for mechanism in (
        LINEAR,
        TRANSPORT,
        PoissonMechanism.linear(low=0.1, high=70.7, sensitivity=3, top=5000),
        PoissonMechanism.transport(low=300, high=333, top=20),
    ):
        seen: dict[int, list[Any]] = {}
        sizes: set[int] = set()
        for value in (0, 1, 2, 5, 6, 10**9):
            calls: list[Any] = []

            def poisson(*, rate: Any, size: Any = None, entropy: Any, calls: Any = calls) -> Any:
                calls.append((rate, size))
                return real_poisson(rate=rate, size=size, entropy=entropy)

            def uniform(*, below: int, entropy: Any, sizes: Any = sizes) -> int:
                sizes.add(below)
                return real_uniform(below=below, entropy=entropy)

            monkeypatch.setattr(noise, "poisson", poisson)
            monkeypatch.setattr(noise, "uniform", uniform)
            for _ in range(20):
                mechanism.release(value)
            seen[value] = calls
        assert all(calls == seen[0] for calls in seen.values())
        assert sizes == {mechanism.denominator}


@pytest.mark.parametrize("value", [*(pytest.param(value, marks=pytest.mark.slow) for value in (0, 100)), 63])
def test_large_rates_are_put_together_exactly(value: int) -> None:
    """Rates of three sizes of pieces and a rest, 12,000 draws: chi-square at a false alarm of 1e-9; 1.5 % is seen."""
    mechanism = PoissonMechanism.linear(low=4000.3, high=4064.7, top=100)
    entropy, rate = noise.ReplayEntropy(value), mechanism.rate(value)
    sample = [mechanism.release(value, entropy=entropy) for _ in range(12_000)]

    def near(centre: Fraction) -> laws.Law:
        r = laws.number(centre)
        reach = range(int(centre) - 900, int(centre) + 900)
        return {k: mpmath.exp(k * mpmath.log(r) - r - mpmath.loggamma(k + 1)) for k in reach}

    assert laws.chi_square(sample, near(rate)) > laws.FALSE_ALARM
    assert laws.chi_square(sample, near(rate * Fraction(203, 200))) < laws.FALSE_ALARM


@pytest.mark.parametrize("largest", [0, 1, 63, 64, 65, 5000, 2**23 - 1, 2**23, 2**35])
def test_the_pieces_make_up_every_whole_rate(largest: int) -> None:
    pieces = _pieces(largest)
    for whole in {0, largest // 3, largest // 2, max(0, largest - 1), largest}:
        left = whole
        for rate, count in pieces:
            taken, left = divmod(left, rate)
            assert taken <= count
        assert left == 0
    assert sum(count for _, count in pieces) <= 220 + 2**12
