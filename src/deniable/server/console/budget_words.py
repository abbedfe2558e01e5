"""What a budget means, for an owner who chooses one: an attacker's largest belief, and how much can be asked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, Final

from deniable.errors import BudgetExceeded
from deniable.ledger import Budget, Cost, Renewal
from deniable.queries.answer.remaining_budget import Remaining
from deniable.queries.bought_bounds import question, rows_to_be_seen
from deniable.queries.plan.noise_planner import plan
from deniable.queries.plan.pricing import AskedCost, Price
from deniable.queries.sql.sql_reader import parse
from deniable.server.datasets.open_datasets import new_budget_of, whole_of
from deniable.server.request_bodies import BudgetBody
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table
from deniable.units import Unit

EPSILONS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
"""The values of the slider."""

_PERCENT: Final = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
"""Candidate errors of means, in percent of their range, in groups of 1,000 rows."""


@lru_cache(1000)
def odds(body: BudgetBody, rows: int) -> dict[str, Any]:
    """What a budget allows, and what an attacker can learn. `belief` is the largest posterior, in percent, of an
    attacker with a prior of 50 %; `counts` and `means` are how many questions it pays for, at the errors `within` and
    `mean_within`. For a budget that renews, `belief` is about all periods together, and `counts` and `means` are those
    of one period.

    >>> found = odds(BudgetBody(epsilon=1.0), 1)
    >>> found["belief"], found["counts"] >= 10
    (73.2, True)
    """
    first, unit = new_budget_of(body), Unit.person("person", rows=rows)
    budget = whole_of(first)
    miss = float(budget.delta)
    belief = budget.curve(budget.limit).posterior(prior=0.5, delta=miss)
    within, counts = Remaining(budget, limit_of_period(first), unit).yardstick()
    near, means = _means(budget, limit_of_period(first), unit)
    return {
        "per": first.per if isinstance(first, Renewal) else "",
        "risk": str(first) if isinstance(first, Renewal) else "",
        "epsilon": body.epsilon,
        "belief": min(100.0, math.ceil(1000 * belief) / 10),
        "miss": miss,
        "within": within,
        "counts": counts,
        "means": means,
        "mean_within": near,
    }


def bounds_priced(
    body: BudgetBody, tables: Mapping[str, Table], columns: Sequence[tuple[str, str]], epsilon: float
) -> dict[str, Any]:
    """The price of bounds of these (table, column) pairs, each at this ε. Reads no data.

    Raises InvalidParameter if one of them cannot be bought, and BudgetExceeded if the budget is too small.
    """
    budget, limit = whole_of(new_budget_of(body)), limit_of_period(new_budget_of(body))
    asked = [plan(question(column, table, tables)[1]) for table, column in columns]
    costs = [AskedCost(epsilon=epsilon).cost(made, budget, limit) for made in asked]
    whole = sum(costs, start=Cost(0, 0))
    if not whole <= limit:
        raise BudgetExceeded(whole.describe(budget), limit.describe_rest(budget), "spend less on each, or buy fewer")
    seen = [rows_to_be_seen(Price(*each, limit, 0.95)) for each in zip(asked, repeat(budget), costs)]
    return {
        "columns": [column for _, column in columns],
        "each": costs[0].describe(budget),
        "whole": whole.describe(budget),
        "share": share(whole, limit),
        "rows": max(seen),
    }


def limit_of_period(budget: Budget | Renewal) -> Cost:
    """What may be spent in one period; of a budget that is not renewed, all of it."""
    return budget.budget.limit if isinstance(budget, Renewal) else budget.limit


def _means(budget: Budget, limit: Cost, unit: Unit) -> tuple[float, int]:
    """(error in percent of the range, number of means) for this limit: the least error that allows five means."""
    table = Table.of("t", unit, x=Domain.real(0, 100, nullable=False))
    mean = plan(parse("SELECT AVG(x) AS m FROM t", {"t": table}))

    def error(times: int) -> float:
        cost = AskedCost(share=1 / times).cost(mean, budget, limit)
        return Price(mean, budget, cost, limit, 0.95).errors()["m"] or math.inf

    for near in _PERCENT:
        if error(5) <= near:
            few, many = 5, 10
            while error(many) <= near:
                few, many = many, 2 * many
            while many - few > 1:
                middle = (few + many) // 2
                few, many = (middle, many) if error(middle) <= near else (few, middle)
            return near, few
    return _PERCENT[-1], 0


def share(spent: Cost, limit: Cost) -> float:
    """The spent share of a limit, in the units in which costs add up; 1 for a limit of 0."""
    return spent.units / limit.units if limit.units else 1.0
