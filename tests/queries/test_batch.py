"""Batches: all or nothing, one cost shared, and answers that help each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deniable as dn
from deniable.errors import BudgetExceeded, EngineFailed, InvalidParameter
from deniable.ledger.entries import State
from deniable.queries import batch
from deniable.queries.engines.duckdb import DuckDBEngine
from deniable.queries.planner import plan
from deniable.queries.sql import parse
from deniable.tables.statistics import Collect
from tests.queries.hospital import opened, visits

COARSE = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
FINE = "SELECT sex, ward, COUNT(*) AS n FROM visits GROUP BY sex, ward"
TOTAL = "SELECT COUNT(*) AS n FROM visits"


class FailsAt(DuckDBEngine):
    """Fails at the k-th question."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.left = last

    def collect(self, question: Collect) -> Any:
        self.left -= 1
        if self.left == 0:
            raise EngineFailed("time")
        return super().collect(question)


def test_a_batch_costs_what_was_said_and_answers_in_order() -> None:
    with opened() as s:
        answers = s.batch([TOTAL, COARSE, FINE, "SELECT AVG(age) AS a FROM visits"], mu=1)
        assert [answer.columns for answer in answers] == [("n",), ("ward", "n"), ("sex", "ward", "n"), ("a",)]
        cost = s.budget.cost(mu=1)
        assert cost.units - 4 <= s.ledger.charged.units <= cost.units


def test_a_batch_that_does_not_fit_is_not_begun() -> None:
    with opened(budget=dn.Budget.pure(epsilon=1)) as s:
        with pytest.raises(BudgetExceeded):
            s.batch([TOTAL, COARSE], epsilon=1.5)
        assert s.ledger.charged.units == 0
        assert list(s.ledger.entries()) == []


@pytest.mark.parametrize("last", [1, 2, 3])
def test_a_batch_that_fails_gives_nothing_and_stays_charged(last: int) -> None:
    with opened(engine=FailsAt(last)) as s:
        with pytest.raises(EngineFailed):
            s.batch([TOTAL, COARSE, FINE], mu=1)
        states = [entry.state for entry in s.ledger.entries()]
        assert states == [State.RESERVED] * 3 + [State.FAILED] * 3
        assert s.ledger.charged.units > 0
        s.ledger.verify()


def test_a_question_is_asked_once_however_often_it_stands_there() -> None:
    with opened() as s:
        one, two = s.batch([COARSE, "SELECT COUNT(*) AS m, ward AS w FROM visits GROUP BY ward"], mu=1)
        assert one["n"] == two["m"]
        assert sum(entry.state is State.SEALED for entry in s.ledger.entries()) == 1
        spent = s.ledger.charged
        [again] = s.batch([COARSE], mu=0.5)
        assert again.receipt.replayed
        assert again.rows == one.rows
        assert s.ledger.charged == spent


def test_finer_counts_help_coarser_ones() -> None:
    """Errors of 120 batches: the coarse counts are nearer than their own share alone would make them, by the factor that
    their intervals claim, within 24 % (360 squares; 1/√720 = 3.7 % is one deviation). The fine ones pay for it a little,
    and together both are nearer than two questions asked apart.
    """
    table = visits()
    with opened(table, unit=dn.Unit.person("patient_id", rows=1000)) as s:
        truth = table.groupby("ward").size()
        coarse = []
        for age in range(120):
            where = f"FROM visits WHERE age > -{age + 1}"
            few, many = s.batch([COARSE.replace("FROM visits", where), FINE.replace("FROM visits", where)], mu=3)
            coarse += [value - truth[ward] for ward, value in zip(few["ward"], few["n"], strict=True)]
        half = few.interval("n")[0][1] - few["n"][0]  # type: ignore[index, operator]
        claimed = half / 1.959964
        alone = 1000 / 3 * np.sqrt(2)
        fine = (many.interval("n")[0][1] - many["n"][0]) / 1.959964  # type: ignore[index, operator]
        assert abs(np.sqrt(np.mean(np.square(coarse))) / claimed - 1) < 0.24
        assert claimed**2 + fine**2 < 0.92 * 2 * alone**2
        assert few.guarantee.curve.gdp() > s.budget.curve(few.receipt.cost).gdp(), "it rests on both answers"


def test_only_sums_that_miss_no_row_help() -> None:
    with opened() as s:

        def helps(*texts: str) -> int:
            return len(batch.shares([plan(parse(text, s.tables)) for text in texts])[1])

        assert helps(COARSE, FINE) == 1
        assert helps(TOTAL, COARSE, FINE) == 2
        assert helps(COARSE, FINE.replace("FROM visits", "FROM visits WHERE age > 3")) == 0
        assert helps(COARSE, FINE.replace("COUNT(*)", "COUNT(cost)")) == 0
        assert helps(COARSE, "SELECT ward, town, COUNT(*) AS n FROM visits GROUP BY ward, town") == 0
        assert helps(COARSE, COARSE.replace("ward", "sex")) == 0
        part = s.table("visits").group_by("ward", "sex").with_keys(sex=["f"]).agg(n=dn.count())
        assert len(batch.shares([plan(parse(COARSE, s.tables)), plan(part)])[1]) == 0


@pytest.mark.parametrize(
    "texts", [[COARSE, FINE], [TOTAL, COARSE, FINE], [COARSE, FINE, "SELECT AVG(cost) FROM visits"]]
)
def test_shares_are_all_there_is(texts: list[str]) -> None:
    with opened() as s:
        shares, _ = batch.shares([plan(parse(text, s.tables)) for text in texts])
        assert sum(shares) == 1
        assert all(share > 0 for share in shares)


def test_what_is_no_batch() -> None:
    with opened() as s:
        for questions in ([], COARSE):
            with pytest.raises(InvalidParameter, match="list"):
                s.batch(questions, mu=1)
        with pytest.raises(InvalidParameter, match="shares a cost"):
            s.batch([COARSE], within=12)
