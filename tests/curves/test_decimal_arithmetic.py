"""The textbook's bounds against numbers worked out by hand and by mpmath."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import mpmath as mp
import pytest

from deniable.curves import decimal_arithmetic
from deniable.curves import textbook as tb
from deniable.errors import InvalidParameter, OutsideTheorem
from tests.wording import worded

LN3 = math.log(3)


def close(value: float, printed: float, digits: int = 14) -> bool:
    """Equal to the printed digits (facts print 12 to 15 of them)."""
    return value == pytest.approx(printed, rel=10.0 ** (1 - digits), abs=0)


# --- facts ----------------------------------------------------------------------------------------------------------

MOMENTS = {"log_moment": lambda order: order * (order + 1) * 3.125, "epsilon": 14}
NUMBERS: dict[str, tuple[Callable[[], float], float]] = {
    "membership-advantage": (lambda: tb.posterior_shift(epsilon=1), 0.46211715726001),
    "smoker": (lambda: tb.risk_bound(epsilon=0.1, delta=0, risk=0.30), 0.331551275422694),
    "risk-multiplier": (lambda: tb.risk_bound(epsilon=LN3, delta=0, risk=0.05), 0.15),
    "gaussian": (lambda: tb.gdp_to_delta(mu=1, epsilon=1), 0.126936737506644),
    "eer-gaussian": (lambda: tb.gaussian_equal_error_rate(mu=1), 0.308537538725987),
    "eer-pure": (lambda: tb.equal_error_rate_bound(epsilon=1, delta=0), 0.268941421369995),
    "eer-delta": (lambda: tb.equal_error_rate_bound(epsilon=1, delta=1e-5), 0.268938731955781),
    "group": (
        lambda: 10 * tb.risk_bound(epsilon=tb.group_privacy(epsilon=0.1, size=5), delta=0, risk=0.1),
        1.64872127070013,
    ),
    "group-sharp": (
        lambda: tb.group_privacy_approximate(epsilon=1, delta=1e-6, size=3).delta,
        1.11073379273897e-5,
    ),
    "group-stated": (lambda: tb.group_privacy_stated(epsilon=1, delta=1e-6, size=3).delta, 2.2167168296792e-5),
    "basic": (lambda: tb.basic_composition(epsilon=1, delta=0, count=500).epsilon, 500.0),
    "adaptive": (lambda: tb.basic_composition_of(costs=[(0.3, 0), (0.7, 0)]).epsilon, 1.0),
    "parallel": (lambda: tb.parallel_composition(epsilons=[0.3, 0.7]), 0.7),
    "parallel-replaced": (lambda: tb.parallel_composition_replaced(epsilons=[0.3, 0.7]), 1.0),
    "bayes-stated": (lambda: tb.posterior_shift_stated(epsilon=1), 1.71828182845905),
    "bayes-sharp": (lambda: tb.posterior_shift(epsilon=1), 0.46211715726001),
    "side-information": (lambda: tb.posterior_bound(epsilon=1, prior=0.5), 0.731058578630005),
    "catastrophe": (lambda: tb.catastrophe_delta(failure=1e-5, loss=1, epsilon=0.5), 0.221207004936426),
    "total-variation": (lambda: tb.gdp_to_delta(mu=1, epsilon=0), 0.382924922548026),
    "gaussian-curve": (lambda: tb.gdp_to_delta(mu=1, epsilon=1), 0.126936737506644),
    "gaussian-curve-small": (lambda: tb.gdp_to_delta(mu=Fraction(1, 10), epsilon=1), 1.2308359836427e-25),
    "analytic": (lambda: tb.gaussian_sigma(sensitivity=1, epsilon=1, delta=1e-5), 3.73063163481594),
    "classical": (
        lambda: tb.classical_gaussian_sigma(sensitivity=1, epsilon=0.5, delta=1e-5) / 2,  # σ·ε is one number
        4.84480526260539,
    ),
    "gaussian-k": (lambda: tb.gaussian_composition(mu=1 / 4, count=100), 2.5),
    "gaussian-k-epsilon": (lambda: tb.gdp_to_epsilon(mu=2.5, delta=1e-5), 13.206712240452),
    "laplace-curve": (lambda: tb.laplace_delta(sensitivity=1, scale=1, epsilon=0.5), 0.221199216928595),
    "laplace-scale": (lambda: tb.laplace_scale(sensitivity=1, epsilon=1, delta=0.1), 0.82595410018882),
    "mean-laplace": (
        lambda: math.sqrt(2 * 1000) * tb.laplace_scale(sensitivity=0.1, epsilon=0.5, delta=0),
        8.94427190999916,
    ),
    "mean-gaussian": (
        lambda: (
            math.sqrt(1000) * tb.classical_gaussian_sigma(sensitivity=math.sqrt(1000) / 1e4, epsilon=0.5, delta=1e-5)
        ),
        0.968961052521078,
    ),
    "zcdp-form": (lambda: tb.advanced_composition(epsilon=0.1, count=100, delta=1e-6), 5.75652176975693),
    "drv": (lambda: tb.advanced_composition_drv(epsilon=0.1, count=100, delta=1e-6), 6.30823095051341),
    "sharp-mean": (
        lambda: tb.advanced_composition_sharp(epsilon=0.1, count=100, delta=1e-6),
        5.75610551933573,
    ),
    "doubled": (lambda: tb.advanced_composition_doubled(epsilon=0.1, count=100, delta=1e-5), 9.59705182437616),
    "mironov": (lambda: tb.advanced_composition_mironov(epsilon=0.1, count=1000, delta=1e-5), 60.6970851754059),
    "approximate": (
        lambda: tb.advanced_composition_approximate(epsilon=0.1, delta=1e-9, count=100, slack=1e-6).delta,
        1.1e-6,
    ),
    "optimal-delta": (
        lambda: tb.optimal_composition_delta(epsilon=0.1, delta=0, count=100, total_epsilon=4),
        3.42231231919677e-5,
    ),
    "optimal-epsilon": (
        lambda: tb.optimal_composition_epsilon(epsilon=0.1, delta=0, count=100, total_delta=1e-6),
        4.77456758810799,
    ),
    "azuma": (lambda: tb.azuma_tail(deviation=5.25652176975693), 1e-6),
    "kl-stated": (lambda: tb.kl_bound_stated(epsilon=1), 1.71828182845905),
    "kl-sharp": (lambda: tb.kl_bound(epsilon=1), 0.46211715726001),
    "kl-half-square": (lambda: tb.pure_to_zcdp(epsilon=1), 0.5),
    "reduction": (lambda: tb.pure_distance(epsilon=1, delta=1e-5), 2.68941421369995e-6),
    "crossover-4": (lambda: tb.crossover(delta=1e-4), 73.6827229758095),
    "crossover-5": (lambda: tb.crossover(delta=1e-5), 92.1034037197618),
    "subsampling": (
        lambda: tb.subsampling_amplification(epsilon=1, delta=0, rate=0.01).epsilon,
        0.0170368632361765,
    ),
    "renyi": (lambda: tb.randomized_response_renyi(order=2, epsilon=LN3), 0.847297860387204),
    "renyi-adds": (lambda: 2 * tb.randomized_response_renyi(order=2, epsilon=LN3), 1.69459572077441),
    "gaussian-renyi": (lambda: tb.gaussian_renyi(order=2, mu=0.25), 0.0625),
    "laplace-renyi": (lambda: tb.laplace_renyi(order=2, loss=1), 0.619123629998593),
    "rr-renyi": (lambda: tb.randomized_response_renyi(order=2, epsilon=1), 0.735325664055519),
    "preservation": (
        lambda: tb.probability_preservation(order=2, renyi=1, chance=0.15865525393145705),
        0.656711271223081,
    ),
    "mironov-at-order": (
        lambda: tb.renyi_to_epsilon_mironov(
            order=2.91941036487523, renyi=tb.gaussian_renyi(order=2.91941036487523, mu=2.5), delta=1e-5
        ),
        15.1213147804702,
    ),
    "mironov-best": (
        lambda: tb.best_renyi_to_epsilon_mironov(renyi=lambda a: a * 3.125, delta=1e-5).bound,
        15.1213147804702,
    ),
    # The fact prints the value at the rounded order 2.831; the optimum is at 2.83062..., 2.5e-7 lower.
    "improved-at-2.831": (
        lambda: tb.renyi_to_epsilon(order=2.831, renyi=2.831 * 3.125, delta=1e-5),
        14.130547706772,
    ),
    "improved-best": (
        lambda: tb.best_renyi_to_epsilon(renyi=lambda a: a * 3.125, delta=1e-5).bound,
        14.1305474555107,
    ),
    "zcdp": (lambda: tb.zcdp_to_epsilon(rho=3.125, delta=1e-5), 15.1213147804702),
    "gap": (
        lambda: tb.zcdp_to_epsilon(rho=3.125, delta=1e-5) - tb.gdp_to_epsilon(mu=2.5, delta=1e-5),
        1.91460254001821,
    ),
    "moments": (lambda: tb.moments_accountant(**MOMENTS).bound, 7.78092686155376e-5),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_fact(name: str) -> None:
    compute, printed = NUMBERS[name]
    assert close(compute(), printed, 13)


def test_fact_orders_of_the_best_bounds() -> None:
    found = tb.best_renyi_to_epsilon_mironov(renyi=lambda a: a * 3.125, delta=1e-5)
    assert found.order == pytest.approx(2.91941036487523, rel=1e-6)
    assert tb.moments_accountant(**MOMENTS).order == pytest.approx(1.74, rel=1e-6)


# --- errata ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delta", "breaks"), [(1e-3, 7.463474), (1e-4, 7.990993), (1e-5, 8.419771), (1e-6, 8.782092), (1e-9, 9.623657)]
)
def test_erratum_classical_calibration_is_false_for_large_epsilon(delta: float, breaks: float) -> None:
    def real_delta(epsilon: float) -> float:
        return tb.gdp_to_delta(mu=epsilon / math.sqrt(2 * math.log(1.25 / delta)), epsilon=epsilon)

    assert real_delta(breaks - 1e-5) < delta < real_delta(breaks + 1e-5)
    with worded(OutsideTheorem, theorem="the classical Gaussian mechanism"):
        tb.classical_gaussian_sigma(sensitivity=1, epsilon=breaks, delta=delta)


def test_erratum_examples() -> None:
    root = math.sqrt(2 * math.log(1.25e5))
    assert close(tb.gdp_to_delta(mu=10 / root, epsilon=10), 2.2653744e-5, 8)
    assert close(tb.gdp_to_delta(mu=20 / root, epsilon=20), 1.5266947e-3, 8)


def test_erratum_mironov_needs_its_condition() -> None:
    with pytest.raises(OutsideTheorem, match="log") as refused:
        tb.advanced_composition_mironov(epsilon=0.2, count=1000, delta=1e-5)  # 40 > 11.5
    assert "count·epsilon² <= log(1/delta)" in refused.value.condition
    best = tb.optimal_composition_epsilon(epsilon=0.1, delta=0, count=1000, total_delta=1e-5)
    assert close(best, 17.7871284497009)


@pytest.mark.parametrize(
    ("count", "delta", "real"), [(100, 1e-6, 1.49402649715712e-6), (1000, 1e-5, 1.37119332881856e-5)]
)
def test_erratum_without_the_2_under_the_root_it_is_false(count: int, delta: float, real: float) -> None:
    printed = count * 0.01 * math.expm1(0.01) + 0.01 * math.sqrt(count * math.log(1 / delta))
    found = tb.optimal_composition_delta(epsilon=0.01, delta=0, count=count, total_epsilon=printed)
    assert found > delta
    assert close(found, real, 12)
    if count == 100:
        assert close(printed, 0.381742385969152)
    right = tb.advanced_composition_drv(epsilon=0.01, count=count, delta=delta)
    assert tb.optimal_composition_delta(epsilon=0.01, delta=0, count=count, total_epsilon=right) < delta


def test_erratum_loose_form_is_never_below_the_sharper_ones() -> None:
    asked = {"epsilon": 0.3, "count": 77, "delta": 1e-7}
    sharp, plain = tb.advanced_composition_sharp(**asked), tb.advanced_composition(**asked)
    assert sharp < plain < tb.advanced_composition_loose(**asked) < tb.advanced_composition_drv(**asked)


def test_erratum_per_step_epsilon() -> None:
    step = tb.advanced_composition_step(total_epsilon=1, count=100, delta=1e-6)
    assert close(step, 0.0186916584438746)
    assert tb.advanced_composition(epsilon=step, count=100, delta=1e-6) <= 1.0000000000000002
    printed = 1 / math.sqrt(2 * 100 * math.log(1e6))
    assert close(printed, 0.0190239866550813)
    assert close(tb.advanced_composition(epsilon=printed, count=100, delta=1e-6), 1.01809560341264)
    best = tb.optimal_composition_step(delta=0, count=100, total_epsilon=1, total_delta=1e-6)
    assert close(best, 0.0240110803971598)


def test_erratum_exact_gaussian_composition() -> None:
    assert close(tb.gaussian_sigma(sensitivity=10, epsilon=1, delta=1e-6) ** 2, 1784.79117179238)


def test_erratum_a_small_loss_tail_is_not_needed() -> None:
    mu = 1 / mp.mpf(tb.gaussian_sigma(sensitivity=1, epsilon=1, delta=1e-5))
    assert close(float(mp.ncdf(mu / 2 - 1 / mu)), 1.61198075325529e-4, 13)


def test_erratum_the_wrong_delta() -> None:
    assert close(tb.classical_gaussian_sigma(sensitivity=1, epsilon=0.5, delta=1e-4) / 2, 4.34361230389877)


def test_erratum_the_doubled_form_refuses_its_own_worked_example() -> None:
    with pytest.raises(OutsideTheorem, match=r"8 log\(1/delta\)") as refused:
        tb.advanced_composition_doubled(epsilon=1, count=500, delta=1e-5)
    assert "optimal_composition_epsilon" in refused.value.remedy
    printed = 2 * math.sqrt(2 * 500 * math.log(1e5))
    assert close(printed, 214.5966, 7)
    best = tb.optimal_composition_epsilon(epsilon=1, delta=0, count=500, total_delta=1e-5)
    assert close(best, 311.767604639711)
    real = tb.optimal_composition_delta(epsilon=1, delta=0, count=500, total_epsilon=printed)
    assert close(real, 0.783193611537856)
    assert close(tb.advanced_composition(epsilon=1, count=500, delta=1e-5), 357.298301314467)


@pytest.mark.parametrize(("epsilon", "first"), [(1.0, 176), (0.5, 525), (0.1, 11764)])
def test_erratum_first_count_at_which_the_doubled_form_is_false(epsilon: float, first: int) -> None:
    for count, false in ((first - 1, False), (first, True)):
        printed = 2 * epsilon * math.sqrt(2 * count * math.log(1e5))
        asked = {"epsilon": epsilon, "delta": 0, "count": count, "total_epsilon": printed}
        assert (tb.optimal_composition_delta(**asked) > 1e-5) is false
        with pytest.raises(OutsideTheorem):
            tb.advanced_composition_doubled(epsilon=epsilon, count=count, delta=1e-5)


@pytest.mark.parametrize(("epsilon", "last"), [(1.0, 92), (0.5, 368), (0.1, 9210)])
def test_the_doubled_form_ends_where_its_proof_ends(epsilon: float, last: int) -> None:
    """count · epsilon² <= 8 log(1e5) = 92.1034: the tests above refuse counts that are far beyond it."""
    printed = 2 * epsilon * math.sqrt(2 * last * math.log(1e5))
    assert close(tb.advanced_composition_doubled(epsilon=epsilon, count=last, delta=1e-5), printed, 13)
    with pytest.raises(OutsideTheorem):
        tb.advanced_composition_doubled(epsilon=epsilon, count=last + 1, delta=1e-5)


def test_erratum_the_plot_to_10000() -> None:
    assert tb.optimal_composition_epsilon(epsilon=1, delta=0, count=10_000, total_delta=1e-5) > 4621


def test_erratum_classical_at_one() -> None:
    with worded(OutsideTheorem, theorem="the classical Gaussian mechanism"):
        tb.classical_gaussian_sigma(sensitivity=1, epsilon=1, delta=1e-5)
    assert close(tb.gdp_to_delta(mu=1 / 4.84480526260539, epsilon=1), 4.113692e-8, 7)


@pytest.mark.parametrize(
    ("ask", "parameter"),
    [
        (lambda: tb.moments_accountant(log_moment=3, epsilon=14), "log_moment"),
        (lambda: tb.best_renyi_to_epsilon(renyi=3.0, delta=1e-5), "renyi"),
        (lambda: tb.best_renyi_to_epsilon_mironov(renyi=3.0, delta=1e-5), "renyi"),
    ],
)
def test_a_number_where_a_function_of_the_order_is_needed_is_refused_in_words(
    ask: Callable[[], object], parameter: str
) -> None:
    """It was "'int' object is not callable"."""
    with worded(InvalidParameter, parameter=parameter, asked=3):
        ask()


def test_a_decimal_is_taken_for_what_it_may_be_off() -> None:
    """A Decimal is within SLACK of the exact number: without it an upper end may lie below, and a limit be exceeded."""
    one = Decimal(1)
    assert decimal_arithmetic.down(one) < 1 < decimal_arithmetic.up(one)
    assert decimal_arithmetic.down(-one) < -1 < decimal_arithmetic.up(-one)
    assert decimal_arithmetic.up(Fraction(1)) == decimal_arithmetic.down(Fraction(1)) == 1
    assert math.copysign(1, decimal_arithmetic.down(Fraction(0))) == 1
    for share, certain in ((0, False), (1, False), (3, True)):
        with decimal_arithmetic.digits():
            value = one - share * decimal_arithmetic.SLACK
        assert decimal_arithmetic.certainly_at_most(value, Fraction(1)) is certain


@pytest.mark.parametrize("exponent", [-6, -11, -16, -21, -26, -31, -36, -45])
@pytest.mark.parametrize("ratio", [0, 1, 3])
def test_delta_of_a_small_gaussian_keeps_its_digits(exponent: int, ratio: int) -> None:
    """δ is a difference that cancels as many digits as μ is small; 48 must be left, far more than SLACK allows for."""
    mu = Fraction(10) ** exponent
    epsilon = ratio * mu
    with mp.workdps(200):
        m, e = mp.mpf(mu.numerator) / mu.denominator, mp.mpf(epsilon.numerator) / epsilon.denominator
        low, high = ((e / m + side * m / 2) / mp.sqrt(2) for side in (-1, 1))
        exact = (mp.erfc(low) - mp.exp(e) * mp.erfc(high)) / 2
        assert abs(mp.mpf(str(decimal_arithmetic.gaussian_delta(mu, epsilon))) / exact - 1) < mp.mpf(10) ** -44


@pytest.mark.parametrize("x", ["9.9e-9", "-9.9e-9", "1.1e-8", "3e-9", "-1e-30"])
def test_logarithms_and_exponentials_next_to_0_keep_their_digits(x: str) -> None:
    with decimal_arithmetic.digits(), mp.workdps(80):
        for ours, theirs in ((decimal_arithmetic.log1p, mp.log1p), (decimal_arithmetic.expm1, mp.expm1)):
            assert abs(mp.mpf(str(ours(Decimal(x)))) / theirs(mp.mpf(x)) - 1) < mp.mpf(10) ** -48
