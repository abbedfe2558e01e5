"""Budgets: every limit against mpmath to the last unit, every rounding against the spender."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from contextlib import nullcontext
from decimal import Decimal, localcontext
from fractions import Fraction

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable import curves
from deniable.curves.filters import UNIT, Filter, GaussianFilter, PureFilter, ZCDPFilter
from deniable.errors import BudgetExceeded, DeniableError, InvalidParameter, UnreadableRecord
from deniable.ledger import Budget, Cost, epsilon_mu_conversion
from tests.table import every_row
from tests.wording import worded

ONE = 10**30


def gaussian_delta(mu2_units: int, epsilon: Fraction) -> mp.mpf:
    """δ_μ(ε) of Balle & Wang's Theorem 8 at 120 digits: the independent answer."""
    with mp.workdps(120):
        mu, e = mp.sqrt(mp.mpf(mu2_units) / mp.mpf(ONE)), mp.mpf(epsilon.numerator) / epsilon.denominator
        return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)


def exactly(units: int) -> mp.mpf:
    with mp.workdps(120):
        return mp.mpf(units) / mp.mpf(ONE)


LIMITS = [
    (1, 1e-6, None),
    (0.1, 1e-6, None),
    (1, 1e-6, 0),
    (8, 1e-5, 1e-6),
    ("1e-3", "1e-9", None),
    (1, "1e-30", None),
    ("1e-10", "1e-30", None),
    (30, 1e-12, "5e-13"),
    (100, 0.9, 0.5),
    (10**6, 1e-6, None),
    ("1e-12", "1e-3", None),
    (math.pi, "1/7", None),
]


@pytest.mark.parametrize(("epsilon", "delta", "keys_delta"), LIMITS)
def test_the_limit_is_the_last_unit_that_keeps_the_promise(epsilon: object, delta: object, keys_delta: object) -> None:
    budget = Budget(epsilon=epsilon, delta=delta, keys_delta=keys_delta)
    asked = Fraction(repr(epsilon)) if isinstance(epsilon, float) else Fraction(epsilon)
    asked = math.floor(asked / UNIT) * UNIT  # a limit on ε is rounded down as well
    noise, whole = exactly(budget.noise_delta_units), exactly(budget.noise_delta_units + budget.limit.delta_units)
    with mp.workdps(120):
        assert gaussian_delta(budget.limit.units, asked) <= noise
        assert gaussian_delta(budget.limit.units + 1, asked) > noise
        assert whole <= (
            mp.mpf(repr(delta)) if isinstance(delta, float) else exactly(math.ceil(Fraction(delta) / UNIT))
        )
    # The float that goes into noise is on the safe side of it, and the next one is not.
    assert Fraction(budget.level(budget.limit)) ** 2 <= budget.limit.units * UNIT
    assert Fraction(math.nextafter(budget.level(budget.limit), math.inf)) ** 2 > budget.limit.units * UNIT


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-6, 100), st.floats(1e-20, 0.5))
def test_any_limit_is_the_last_unit(epsilon: float, delta: float) -> None:
    units = epsilon_mu_conversion.largest_mu2(math.floor(Fraction(epsilon) / UNIT), math.floor(Fraction(delta) / UNIT))
    asked, allowed = math.floor(Fraction(epsilon) / UNIT) * UNIT, exactly(math.floor(Fraction(delta) / UNIT))
    with mp.workdps(120):
        assert gaussian_delta(units, asked) <= allowed < gaussian_delta(units + 1, asked)


def test_a_poor_first_guess_only_costs_time(monkeypatch: pytest.MonkeyPatch) -> None:
    right = epsilon_mu_conversion.largest_mu2(ONE, 10**24)
    for guess in (1, right // 7, right - 3, right + 1, right * 90):
        epsilon_mu_conversion.largest_mu2.cache_clear()
        monkeypatch.setattr(epsilon_mu_conversion, "_near", lambda epsilon, delta, guess=guess: guess)
        assert epsilon_mu_conversion.largest_mu2(ONE, 10**24) == right
    epsilon_mu_conversion.largest_mu2.cache_clear()


def test_a_delta_that_is_only_as_small_as_its_own_error_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    for less, fits in ((0, False), (Decimal("2e-38"), True)):
        with localcontext() as context:
            context.prec = 60
            value = (1 - less) / Decimal(10**6)
        monkeypatch.setattr(epsilon_mu_conversion, "gaussian_delta", lambda mu, epsilon, value=value: value)
        assert epsilon_mu_conversion._fits(ONE, Fraction(1), Fraction(1, 10**6)) is fits


def test_the_whole_promise_holds_as_a_curve() -> None:
    """Noise and keys together, read by the lattice of `curves`: (ε, δ)-DP up to that reading's own width."""
    budget = Budget(epsilon=1, delta=1e-6)
    whole = budget.curve(budget.limit)
    assert whole.delta_bounds(epsilon=1.0)[0] <= 1e-6
    assert whole.epsilon(delta=1e-6) == pytest.approx(1, abs=1e-4)
    only = Budget.gaussian(mu=0.5)
    assert only.curve(only.limit) == curves.gaussian(mu=0.5)
    assert Budget.pure(epsilon=1, delta=0.25).curve(Cost(ONE, ONE // 4)).delta(epsilon=1.0) == pytest.approx(0.25)
    assert Budget.zcdp(rho=0.5).curve(Cost(ONE // 2)) == curves.zcdp(rho=0.5)
    assert only.curve(Cost(0)) == curves.identity()


@given(st.integers(1, 10**37))
def test_curves_and_levels_lie_on_their_safe_sides(units: int) -> None:
    budget = Budget.gaussian(mu=1)
    [(atom, _)] = budget.curve(Cost(units)).factors
    assert Fraction(budget.level(Cost(units))) ** 2 <= units * UNIT <= Fraction(atom.mu) ** 2
    assert atom.mu <= math.nextafter(budget.level(Cost(units)), math.inf)
    assert budget.price(curves.gaussian(mu=budget.level(Cost(units)))) <= Cost(units)


def test_other_currencies_keep_what_was_written() -> None:
    assert Budget.pure(epsilon=0.1).limit == Cost(ONE // 10)
    assert Budget.zcdp(rho="1/3", delta=1e-9).limit == Cost(ONE // 3, 10**21)
    assert Budget.gaussian(mu=0.3).limit == Cost(9 * ONE // 100)
    assert [b.currency for b in (Budget(epsilon=1, delta=0.1), Budget.pure(epsilon=1), Budget.zcdp(rho=1))] == [
        "mu2",
        "epsilon",
        "rho",
    ]
    for budget, kind in (
        (Budget(epsilon=1, delta=1e-6), GaussianFilter),
        (Budget.gaussian(mu="0.7", delta=1e-6), GaussianFilter),
        (Budget.pure(epsilon=1), PureFilter),
        (Budget.zcdp(rho=1), ZCDPFilter),
    ):
        decides = budget.filter
        assert isinstance(decides, kind)
        assert (decides.limit_units, decides.delta_limit_units) == (budget.limit.units, budget.limit.delta_units)
        assert decides.spent_units == decides.delta_spent_units == 0


@given(st.integers(1, 10**36), st.integers(0, 10**29))
def test_the_filter_has_the_limit_to_the_unit(units: int, delta_units: int) -> None:
    record = {"version": 1, "currency": "mu2", "limit": str(units), "delta_limit": str(delta_units)}
    budget = Budget.from_dict(record)
    assert (budget.filter.limit_units, budget.filter.delta_limit_units) == (units, delta_units)


# --- costs ------------------------------------------------------------------------------------------------------------


def test_curves_are_priced_in_the_currency_rounded_up() -> None:
    laplace, gaussian = curves.laplace(scale=4), curves.gaussian(sigma=4)
    assert Budget.pure(epsilon=1).price(laplace) == Cost(ONE // 4)
    assert Budget.gaussian(mu=1).price(gaussian, delta="1e-31") == Cost(ONE // 16, 1)
    assert Cost(ONE // 32) <= Budget.zcdp(rho=1).price(gaussian) <= Cost(ONE // 32 + 10**16)
    tenth = Budget.gaussian(mu=1).price(curves.gaussian(mu=0.1))
    assert 0 <= tenth.units * UNIT - Fraction(0.1) ** 2 < UNIT  # a bound is the binary number it is
    assert Budget.gaussian(mu=1).price(curves.identity()) == Cost(0)
    assert Budget.gaussian(mu="1e-9").price(gaussian) == Cost(ONE // 16)  # also what does not fit has a price


@pytest.mark.parametrize(
    ("budget", "curve"),
    [
        (Budget.pure(epsilon=1), curves.gaussian(sigma=100)),
        (Budget(epsilon=1, delta=1e-6), curves.approximate(epsilon=0.1, delta=1e-9)),
        (Budget.zcdp(rho=1), curves.approximate(epsilon=0.1, delta=1e-9)),
    ],
    ids=["gaussian in epsilon", "approximate in mu2", "approximate in rho"],
)
def test_an_infinite_price_is_refused_with_a_way_out(budget: Budget, curve: curves.Curve) -> None:
    with worded(InvalidParameter, parameter="curve"):
        budget.price(curve)


def test_an_epsilon_in_the_gaussian_currency_is_read_at_the_delta_of_the_noise() -> None:
    budget = Budget(epsilon=2, delta=1e-6, keys_delta=1e-8)
    assert budget.cost(epsilon=2, delta=1e-8) == budget.limit
    small = budget.cost(epsilon=0.1)
    with mp.workdps(120):
        noise = exactly(budget.noise_delta_units)
        assert gaussian_delta(small.units, Fraction(1, 10)) <= noise < gaussian_delta(small.units + 1, Fraction(1, 10))
    assert curves.gaussian(mu=budget.level(small)).epsilon(delta=0.99e-6) == pytest.approx(0.1, rel=1e-9)
    assert budget.cost(rho=0.5) == budget.cost(mu=1) == Cost(ONE)
    assert Budget.zcdp(rho=1).cost(mu=1) == Cost(ONE // 2)
    assert Budget.gaussian(mu=1).cost(mu=0.1) == Cost(ONE // 100)
    assert Budget.pure(epsilon=1).cost(epsilon="1.1e-30") == Cost(2)  # rounded up to a unit


@pytest.mark.parametrize(
    ("budget", "amount"),
    [
        (Budget.pure(epsilon=1), {"mu": 1}),
        (Budget.pure(epsilon=1), {"rho": 1}),
        (Budget.zcdp(rho=1), {"epsilon": 1}),
        (Budget.gaussian(mu=1), {"epsilon": 1}),
        (Budget.gaussian(mu=1), {}),
        (Budget.gaussian(mu=1), {"mu": 1, "rho": 1}),
    ],
    ids=["mu in epsilon", "rho in epsilon", "epsilon in rho", "epsilon without a delta", "nothing", "two"],
)
def test_amounts_that_do_not_convert_are_refused(budget: Budget, amount: dict[str, int]) -> None:
    with pytest.raises(InvalidParameter):
        budget.cost(**amount)


NO_AMOUNT = [-1, -0.0, 0, math.nan, math.inf, -math.inf, float("1e-400"), 1e308, True, None, "x", "", [], 1j, "-1"]
BUDGETS = [Budget(epsilon=1, delta=1e-6), Budget.pure(epsilon=1), Budget.gaussian(mu=1), Budget.zcdp(rho=1)]


@every_row((budget, bad) for budget in BUDGETS for bad in NO_AMOUNT)
def test_amounts_that_mean_nothing(budget: Budget, bad: object) -> None:
    for name in ("epsilon", "mu", "rho"):
        with pytest.raises(InvalidParameter):
            budget.cost(**{name: bad})
    with pytest.raises(InvalidParameter):
        Budget(epsilon=bad, delta=1e-6)
    with pytest.raises(InvalidParameter):
        Budget.pure(epsilon=bad)
    with pytest.raises(InvalidParameter):
        Budget.gaussian(mu=bad)
    with pytest.raises(InvalidParameter):
        Budget.zcdp(rho=bad)


@pytest.mark.parametrize("bad", [-1, 1, 2, math.nan, math.inf, True, "x"], ids=repr)
def test_deltas_that_mean_nothing(bad: object) -> None:
    with pytest.raises(InvalidParameter, match="delta"):
        Budget(epsilon=1, delta=bad)
    with pytest.raises(InvalidParameter, match="delta"):
        Budget(epsilon=1, delta=0.1, keys_delta=bad)
    with pytest.raises(InvalidParameter, match="delta"):
        Budget.pure(epsilon=1, delta=bad)
    if bad != 1:
        with pytest.raises(InvalidParameter, match="delta"):
            Budget.pure(epsilon=1).cost(epsilon=0.1, delta=bad)


def test_a_gaussian_budget_without_delta_points_to_the_pure_one() -> None:
    with worded(InvalidParameter, parameter="delta"):
        Budget(epsilon=1, delta=0)
    with worded(InvalidParameter, parameter="keys_delta"):
        Budget(epsilon=1, delta=1e-6, keys_delta=1e-6)
    with worded(InvalidParameter):
        Budget(epsilon="1e-30", delta="1e-30")
    with pytest.raises(InvalidParameter, match="1,000,000"):
        Budget.pure(epsilon=1_000_001)


def test_written_numbers_are_taken_as_written() -> None:
    assert Budget.pure(epsilon="1") == Budget.pure(epsilon=1) == Budget.pure(epsilon=Decimal("1.0"))
    assert Budget(epsilon="1", delta="1/1000000") == Budget(epsilon=1.0, delta=1e-6)
    assert Budget.pure(epsilon=1 + 1e-17) == Budget.pure(epsilon=1)


# --- costs as numbers -------------------------------------------------------------------------------------------------

costs = st.builds(Cost, st.integers(0, 10**32), st.integers(0, 10**30))


@given(costs, costs, costs)
def test_costs_add_and_compare_column_by_column(a: Cost, b: Cost, c: Cost) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Cost(0, 0) == a <= a + b
    assert (a <= b) == (a.units <= b.units and a.delta_units <= b.delta_units) == (b >= a)
    if b != Cost(0, 0):
        times = a // b
        assert Cost(b.units * times, b.delta_units * times) <= a
        assert not Cost(b.units * (times + 1), b.delta_units * (times + 1)) <= a


def test_ten_thousand_tenths() -> None:
    tenth, total = Budget.pure(epsilon=1000).cost(epsilon=0.1), Cost(0)
    for _ in range(10_000):
        total = total + tenth
    assert total == Budget.pure(epsilon=1000).limit
    assert Budget.pure(epsilon=1000).limit // tenth == 10_000


@pytest.mark.parametrize("bad", [-1, 1.0, True, "1", None], ids=repr)
def test_costs_are_whole_numbers(bad: object) -> None:
    with pytest.raises(InvalidParameter):
        Cost(bad, 0)
    with pytest.raises(InvalidParameter):
        Cost(0, bad)
    with pytest.raises(TypeError):
        Cost(1) + bad
    with pytest.raises(TypeError):
        Cost(1) <= bad  # noqa: B015 (the comparison is the test)
    with pytest.raises(TypeError):
        Cost(1) // bad


def test_what_costs_nothing_fits_without_end() -> None:
    with worded(InvalidParameter):
        Cost(1) // Cost(0)


# --- words ------------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(10**24, 10**31))
def test_words_round_a_price_up_and_a_rest_down(units: int) -> None:
    noise = 9 * 10**23
    high, low = epsilon_mu_conversion.epsilon_up(units, noise), epsilon_mu_conversion.epsilon_down(units, noise)
    with mp.workdps(120):
        allowed = exactly(noise)
        assert gaussian_delta(units, Fraction(high)) <= allowed < gaussian_delta(units + 1, Fraction(low))
    assert low <= high <= low * (1 + Decimal("2e-3"))


@given(st.fractions(Fraction(1, 10**30), 10**6))
def test_four_digits_enclose(value: Fraction) -> None:
    low, high = epsilon_mu_conversion.short_down(value), epsilon_mu_conversion.short_up(value)
    assert Fraction(low) <= value <= Fraction(high)
    assert Fraction(high) - Fraction(low) <= value / 1000
    assert all(len(number.normalize().as_tuple().digits) <= 4 for number in (low, high))


def test_what_a_person_reads() -> None:
    budget = Budget(epsilon=1, delta=1e-6)
    assert budget.limit.describe(budget) == "epsilon 1 at delta 9E-7 (mu 0.2356), delta 1E-7"
    assert budget.limit.describe_rest(budget) == "epsilon 1 at delta 9E-7 (mu 0.2355), delta 1E-7"
    assert Cost(0).describe_rest(budget) == "mu 0, delta 0"
    assert Cost(1).describe(budget).startswith("epsilon 0 at delta")  # 1e-15-GDP is (0, 9e-7)-DP
    pure = Budget.pure(epsilon=1)
    assert pure.cost(epsilon="1/3").describe(pure) == "epsilon 0.3334"
    assert (budget.epsilon, budget.delta) == (1, Decimal("0.000001"))
    assert (pure.epsilon, Budget.zcdp(rho=1).epsilon) == (1, None)


# --- records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [*BUDGETS, Budget(epsilon=math.pi, delta="1/7", keys_delta=0)], ids=repr)
def test_budgets_are_values_that_survive_json_and_pickle(budget: Budget) -> None:
    assert Budget.from_dict(json.loads(json.dumps(budget.to_dict()))) == budget
    assert pickle.loads(pickle.dumps(budget)) == budget
    assert hash(pickle.loads(pickle.dumps(budget))) == hash(budget)
    with pytest.raises(AttributeError):
        budget.currency = "epsilon"


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": "1"},
        {"currency": "gold"},
        {"limit": "-5"},
        {"limit": "x"},
        {"limit": str(10**40)},
        {"limit": "1"},
        {"delta_limit": None},
        {"epsilon": "0"},
        {"noise_delta": ""},
    ],
    ids=repr,
)
def test_records_that_are_none(change: dict[str, object]) -> None:
    with pytest.raises(UnreadableRecord):
        Budget.from_dict(Budget(epsilon=1, delta=1e-6).to_dict() | change)


def test_records_that_are_not_even_records() -> None:
    for bad in ({}, [], None, "x"):
        with pytest.raises(UnreadableRecord):
            Budget.from_dict(bad)


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(st.floats(), st.text(max_size=8), st.fractions(), st.none(), st.booleans()),
    st.one_of(st.floats(), st.text(max_size=8), st.fractions(), st.none()),
)
def test_fuzz_only_our_errors(amount: object, delta: object) -> None:
    for make in (
        lambda: Budget(epsilon=amount, delta=delta),
        lambda: Budget.pure(epsilon=amount, delta=delta),
        lambda: Budget.gaussian(mu=amount, delta=delta),
        lambda: Budget.zcdp(rho=amount, delta=delta),
        lambda: BUDGETS[0].cost(epsilon=amount, delta=delta),
        lambda: BUDGETS[0].cost(mu=amount, delta=delta),
    ):
        try:
            made = make()
        except DeniableError:
            continue
        assert (made.limit if isinstance(made, Budget) else made).units > 0


def test_what_is_left_may_be_less_than_any_epsilon_costs() -> None:
    """At this δ a mean of 1e-14 is told from nothing by nobody, so the rest of a budget reads as ε = 0, and at once."""
    budget = Budget(epsilon=1, delta=1e-6)
    assert epsilon_mu_conversion.epsilon_down(10**2, budget.noise_delta_units) == 0
    assert Cost(10**2).describe_rest(budget).startswith("epsilon 0 at delta")


@pytest.mark.parametrize(
    "kind",
    [PureFilter(epsilon=1, delta="1e-6"), GaussianFilter(mu=1, delta="1e-6"), ZCDPFilter(rho=1, delta="1e-6")],
    ids=lambda kind: kind.adds,
)
def test_whether_units_fit_is_told_as_charging_them_does(kind: Filter) -> None:
    budget = kind.charge_units(7, 3)
    most, most_delta = budget.limit_units - 7, budget.delta_limit_units - 3
    for units, delta in itertools.product((0, 1, most, most + 1), (0, 1, most_delta, most_delta + 1)):
        fits = units <= most and delta <= most_delta
        assert budget.admits_units(units, delta) == fits
        with nullcontext() if fits else pytest.raises(BudgetExceeded):
            budget.charge_units(units, delta)


def test_a_cost_that_is_looked_up_is_that_of_the_amount_as_it_was_written() -> None:
    budget = Budget.pure(epsilon=5)
    for _ in range(2):  # equal numbers, and not the same amounts
        assert budget.cost(epsilon=0.1) == budget.cost(epsilon="0.1") == Cost(10**29)
        assert budget.cost(epsilon=Fraction(0.1)) == Cost(math.ceil(Fraction(0.1) * 10**30)) != Cost(10**29)
        assert budget.cost(epsilon=1) == budget.cost(epsilon=1.0) == budget.cost(epsilon=Decimal(1))
        with pytest.raises(InvalidParameter):
            budget.cost(epsilon=True)
        with pytest.raises(InvalidParameter):
            budget.cost(epsilon=[1])  # type: ignore[arg-type]
    assert Budget.zcdp(rho=5).cost(mu=1) != Budget.gaussian(mu=5).cost(mu=1)


@given(st.integers(1, 10**70), st.integers(1, 10**70))
def test_the_four_digits_below_a_fraction_are_found_without_rounding(above: int, below: int) -> None:
    exact = Fraction(above, below)
    place = epsilon_mu_conversion._place(exact)
    assert Fraction(epsilon_mu_conversion._short(place)) <= exact < Fraction(epsilon_mu_conversion._short(place + 1))
