"""The δ that questions by unlisted keys take: how long it lasts, and what is said when it is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from deniable.curves.filters import amount_of
from deniable.errors import BudgetExceeded
from deniable.ledger import Cost
from deniable.queries.plan.pricing import AskedCost
from tests.queries.hospital import BUDGETS, opened
from tests.wording import worded

WARDS = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
TOWNS = "SELECT town, COUNT(*) AS n FROM visits WHERE age > {} GROUP BY town"


@pytest.mark.parametrize("kind", BUDGETS)
def test_questions_by_unlisted_keys_do_not_end_after_a_hundred(kind: str) -> None:
    """At 1/10000 of the budget each: δ is a share of what is left, and thresholds grow with its logarithm alone."""
    with opened(budget=BUDGETS[kind]) as s:
        limit = s.budget.limit
        first = s.price(TOWNS.format(0), share=1e-4)
        for age in range(3):
            price = s.price(TOWNS.format(age), share=1e-4)
            s.sql(TOWNS.format(age), share=1e-4)
            assert price.cost.delta_units > 0.9 * first.cost.delta_units
        assert s.price(TOWNS.format(9), share=1e-4).times >= 9999
        # What would be left after k questions, and what the next one takes of it.
        rest, k = limit.delta_units, 5_000
        for _ in range(k):
            rest -= AskedCost(share=1).cost(first.plan, s.budget, Cost(limit.units, rest)).delta_units
        left = Cost(limit.units, rest)
        last = AskedCost(share=1).cost(first.plan, s.budget, left).delta_units
        assert 0.9 < rest * (1 + k / 100) / limit.delta_units <= 1
        assert 0.8 < last * (1 + k / 100) ** 2 / first.cost.delta_units <= 1


def test_a_question_by_unlisted_keys_that_was_answered_stays_free(tmp_path: Path) -> None:
    """Whatever δ it took then, and whatever is left now."""
    with opened(ledger=tmp_path / "l.ledger") as s:
        bought = s.sql(TOWNS.format(1), mu=1)
        s.sql(TOWNS.format(2), mu=1, delta=5e-4)
        spent = s.ledger.remaining
        again = s.sql(TOWNS.format(1), mu=1)
        assert again.receipt.replayed
        assert again.rows == bought.rows
        assert s.batch([TOWNS.format(1)], mu=1)[0].receipt.replayed
        few = s.sql(TOWNS.format(3), mu=1, delta=1e-9)
        assert s.sql(TOWNS.format(3), mu=1).rows == few.rows, "a delta that nobody asked for is no reason to pay"
        assert not s.sql(TOWNS.format(3), mu=1, delta=1e-8).receipt.replayed, "one that is asked for is"
        assert spent.delta_units > s.ledger.remaining.delta_units


@pytest.mark.parametrize("kind", BUDGETS)
def test_when_delta_runs_out_the_error_says_delta(kind: str) -> None:
    with opened(budget=BUDGETS[kind]) as s:
        with worded(BudgetExceeded) as refused:
            s.sql(TOWNS.format(0), share=0.001, delta=2e-3)
        assert "delta 0.002" in refused.value.asked
        assert "lower the cost" not in refused.value.remedy
        most = amount_of(s.ledger.remaining.delta_units)
        bought = s.sql(TOWNS.format(0), share=0.001, delta=most)
        with worded(BudgetExceeded):
            s.sql(TOWNS.format(1), share=0.001)
        assert s.sql(TOWNS.format(0), share=0.001).rows == bought.rows, "told again for nothing"
        s.sql(WARDS, share=0.001)
        with worded(BudgetExceeded):
            s.sql(
                "SELECT COUNT(*) AS n FROM visits", **{{"mu2": "mu"}.get(s.budget.currency, s.budget.currency): 10**6}
            )


def test_a_batch_of_many_questions_by_unlisted_keys_shares_delta() -> None:
    with opened() as s:
        found = s.batch([TOWNS.format(age) for age in range(60)], mu=1)
        assert len(found) == 60
        taken = [each.released.cost.delta_units for each in found]
        assert sorted(taken, reverse=True) == taken
        left = s.budget.limit.delta_units
        for each in taken:
            assert each == pytest.approx(left**2 / 100 / s.budget.limit.delta_units, rel=1e-9)
            left -= each
