"""No number depends on the decimal context of the caller, which may have few digits and any rounding.

With three digits, a cost of epsilon 0.1001 was printed as 0.1, and with one digit more was left than there was.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction

import pytest

from deniable import curves
from deniable.curves import curve_display, filters
from deniable.curves.filters import amount_of
from deniable.ledger import Budget, Cost, budget, epsilon_mu_conversion
from deniable.ledger.renewal import Renewal
from deniable.numbers import percent
from deniable.queries.answer import privacy_statement
from deniable.queries.intervals import draw_laws
from deniable.queries.sql.dialect import read
from deniable.queries.sql.syntax_tree import decimal as constant
from deniable.queries.sql.syntax_tree import exp

CONTEXTS = [
    Context(prec=3, rounding=decimal.ROUND_UP),
    Context(prec=2, rounding=decimal.ROUND_DOWN),
    Context(prec=1, rounding=decimal.ROUND_CEILING),
    Context(traps=[decimal.Inexact, decimal.Rounded, decimal.FloatOperation]),
    Context(Emax=5, Emin=-5),
]
BUDGETS = (
    Budget(epsilon=1, delta=1e-6),
    Budget.gaussian(mu="1.23456789", delta=1e-7),
    Budget.pure(epsilon="1.23456789"),
    Budget.zcdp(rho="0.3333333", delta="1.2345e-9"),
)
COSTS = (Cost(10**29 + 7), Cost(3), Cost(12345678901234567890123456789, 123456789012345678901))


def product() -> float | None:
    found = read("SELECT SUM(cost) FROM visits WHERE cost < 1.2345 * 6.789012").tree.find(exp.Mul)
    assert found is not None
    return constant(found)


NUMBERS: dict[str, Callable[[], object]] = {
    "costs": lambda: [each.describe(one) for each in COSTS for one in BUDGETS],
    "rests": lambda: [each.describe_rest(one) for each in COSTS for one in BUDGETS],
    "budgets": lambda: [(repr(one), one.to_dict(), one.weaknesses(people=100)) for one in BUDGETS],
    "levels": lambda: [(one.level_up(each), one.level_down(each)) for each in COSTS for one in BUDGETS],
    "four digits": lambda: [
        rounded(exact)
        for rounded in (epsilon_mu_conversion.short_up, epsilon_mu_conversion.short_down)
        for exact in (Fraction(1, 3), Fraction(10**31, 7), Fraction(10**27), Fraction(1, 3 * 10**9))
    ],
    "amounts": lambda: (amount_of(123456789), amount_of(10**75 + 1)),
    "filters": lambda: [
        (repr(each), str(each.guarantee), each.remaining, each.guarantee.epsilon(delta=1e-3))
        for each in (
            filters.PureFilter(epsilon="1.23456789").charge(epsilon="0.33333"),
            filters.GaussianFilter(mu="1.23456789", delta="1e-9").charge(curves.gaussian(sigma=3)),
            filters.ZCDPFilter(rho="1.23456789", delta="1e-9").charge(curves.gaussian(sigma=7)),
        )
    ],
    "displays": lambda: (
        curve_display.rounded_up(0.1234501),
        curve_display.rounded_down(123456.7),
        curve_display.percent_up(0.63261),
        str(curves.gaussian(sigma=3.21)),
    ),
    "percentages": lambda: (percent(0.12345678), percent(0.9999999999999999)),
    "statements": lambda: (
        privacy_statement.power(1.23456e-7),
        privacy_statement.power(1e-6),
        privacy_statement._exponential(800),
    ),
    "renewals": lambda: Renewal(Budget(epsilon=1, delta=1e-6), per="week", periods=3).statement(),
    "intervals": lambda: draw_laws._laplace((1.0, 2.0, 3.0, 4.0), 0.95),
    "constants": product,
}


def in_context(context: Context, number: Callable[[], object]) -> object:
    """The number, computed in this context and not read from a cache."""
    for module in (epsilon_mu_conversion, budget, draw_laws):
        for each in vars(module).values():
            if hasattr(each, "cache_clear"):
                each.cache_clear()
    with decimal.localcontext(context):
        return number()


@pytest.mark.parametrize("name", NUMBERS)
def test_no_number_depends_on_the_decimal_context_of_the_caller(name: str) -> None:
    known = in_context(Context(), NUMBERS[name])
    for context in CONTEXTS:
        assert in_context(context, NUMBERS[name]) == known


def test_the_price_of_a_huge_cost_is_printed() -> None:
    """Above 28 digits it was an error of `decimal`; over the wire the server failed."""
    one = Budget.gaussian(mu=1, delta=1e-6)
    for power in (27, 28, 29, 299):
        assert one.cost(mu=10**power).describe(one) == f"mu {10**power}"
    assert epsilon_mu_conversion.short_up(Fraction(12345 * 10**60)) == Decimal(1235 * 10**61)
