"""Bounds that are found inside a question: what is charged, what is answered, and how far one person moves it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable import queries as q
from deniable.errors import BudgetExceeded, InvalidOperation, InvalidParameter, QuestionRefused
from deniable.ledger import Budget, State
from deniable.queries import found_bounds
from deniable.queries.found_bounds import ask_finding_bounds
from deniable.queries.plan.noise_planner import plan
from deniable.queries.session import Session
from deniable.queries.sql.sql_reader import parse_clamped
from deniable.units import Relation
from tests.queries.engines.kitchen import SECRET, DuckDBKitchen, Kitchen, SparkKitchen
from tests.queries.test_sensitivity import distance
from tests.wording import worded

UNIT = dn.Unit.person("who", rows=3)
SCHEMA = {"ward": dn.Domain.text("A", "B", nullable=False)}
TOTALS = "SELECT ward, SUM(cost) AS total, AVG(cost) AS mean, COUNT(*) AS n FROM t WHERE cost > 0.5 GROUP BY ward"
BUDGETS: Mapping[str, tuple[Budget, dict[str, float]]] = {
    "gaussian": (Budget.gaussian(mu=2, delta=1e-6), {"mu": 1.5}),
    "pure": (Budget.pure(epsilon=4), {"epsilon": 3}),
    "zcdp": (Budget.zcdp(rho=2), {"rho": 1}),
}


def people(number: int = 4000) -> pd.DataFrame:
    """Costs from 0 to about 700, most of them below 256; 1 % are NULL."""
    rng = np.random.default_rng(5)
    cost = np.where(rng.random(number) < 0.01, np.nan, rng.gamma(2, 50, number))
    return pd.DataFrame(
        {"who": rng.integers(0, number // 2, number), "ward": rng.choice(["A", "B"], number), "cost": cost}
    )


def opened(budget: Budget, frame: pd.DataFrame | None = None) -> Session:
    return dn.session({"t": people() if frame is None else frame}, unit=UNIT, budget=budget, schema=SCHEMA)


def charges(s: Session) -> int:
    return sum(entry.state is State.RESERVED for entry in s.ledger.entries())


@pytest.mark.parametrize("kind", sorted(BUDGETS))
def test_bins_and_question_together_cost_what_was_asked(kind: str) -> None:
    budget, cost = BUDGETS[kind]
    with opened(budget) as s:
        found = ask_finding_bounds(s, TOTALS, part=0.25, **cost)
        asked, first, second = budget.cost(**cost), *(s.ledger.charge(number) for number in (1, 2))
        assert first is not None
        assert second is not None
        spent = first.cost.units + second.cost.units
        assert asked.units * (1 - Fraction(1, 10**9)) <= spent <= asked.units
        assert first.cost.units == pytest.approx(asked.units / 4)
        again = ask_finding_bounds(s, TOTALS, part=0.25, **cost)
        assert again.answer.receipt.replayed
        assert again.answer.rows == found.answer.rows
        assert charges(s) == 2


def test_the_guarantee_of_the_answer_includes_what_found_the_bounds() -> None:
    """The bounds are a noisy answer, and the answer shows them: alone, its charge would promise too much."""
    with opened(Budget.pure(epsilon=4)) as s:
        found = ask_finding_bounds(s, "SELECT SUM(cost) AS total FROM t", epsilon=1, part=0.2)
        assert found.answer.receipt.cost.units == pytest.approx(s.budget.cost(epsilon=0.8).units, rel=1e-9)
        assert found.answer.guarantee.curve.epsilon(delta=0.0) == pytest.approx(1, rel=1e-9)
        assert "ε = 1." in str(found.answer.statement())
        assert "charge 1, epsilon 0.2" in " ".join(str(found).split())
        again = ask_finding_bounds(s, "SELECT SUM(cost) AS total FROM t", epsilon=1, part=0.2).answer
        assert again.guarantee == found.answer.guarantee
        assert again.interval("total") == found.answer.interval("total")
        finer = s.refine(found.answer, epsilon=0.5)
        assert finer.guarantee.curve.epsilon(delta=0.0) == pytest.approx(1.5, rel=1e-9)
        widths = [
            float(high - low) for low, high in (each.interval("total")[0] or () for each in (finer, found.answer))
        ]
        assert widths[0] < widths[1]


def test_a_part_that_leaves_too_little_for_the_question_is_refused_before_its_bins_are_paid_for() -> None:
    with opened(Budget.pure(epsilon=4)) as s:
        with worded(InvalidParameter):
            ask_finding_bounds(s, "SELECT SUM(cost) AS total FROM t", epsilon=1, part=1 - 1e-12)
        assert charges(s) == 0


def test_sums_are_those_of_clamped_values_of_the_rows_that_the_question_reads() -> None:
    frame = people()
    with opened(Budget.pure(epsilon=10**6), frame) as s:
        found = q.ask_finding_bounds(s, TOTALS, epsilon=10**5)
        kept = s.ask("SELECT COUNT(*) AS n FROM t WHERE cost > 0.5", epsilon=10**5)["n"][0]
    [bounds] = found.bounds
    assert (bounds.low, bounds.high) in {(0, 256), (0, 512)}
    assert "total: values were moved between 0" in str(found)
    rows = frame.groupby("who").filter(lambda mine: len(mine) <= 3)  # whose rows are all kept
    assert kept >= (rows["cost"] > 0.5).sum()
    small = frame.groupby("who").head(3)  # as many rows as are kept, though not the same
    with opened(Budget.pure(epsilon=10**6), small) as s:
        answer = ask_finding_bounds(s, TOTALS, epsilon=10**5).answer
    read = small[small["cost"] > 0.5]
    expected = read["cost"].clip(bounds.low, bounds.high).groupby(read["ward"]).sum()
    assert list(answer["total"]) == pytest.approx(list(expected), rel=1e-4)
    assert list(answer["n"]) == list(read.groupby("ward").size())


def test_several_expressions_have_bounds_of_their_own() -> None:
    frame = people().assign(stay=lambda all: all.index % 700, seen=pd.Timestamp("2024-05-01"))
    with opened(Budget.gaussian(mu=5, delta=1e-6), frame) as s:
        text = "SELECT AVG(cost * stay) AS a, MEDIAN(stay) AS m, MAX(seen) AS last, STDDEV(stay) AS d FROM t"
        found = ask_finding_bounds(s, text, mu=4, part=0.5)
        assert charges(s) == 4
    names = {each.column: (each.low, each.high) for each in found.bounds}
    assert len(names) == 3
    assert names["last"] == ("2024-01-01T00:00:00", "2024-12-31T23:59:59.999999")
    assert (0, 1023) in names.values()


def test_a_question_with_bounds_is_answered_as_by_sql() -> None:
    with opened(Budget.pure(epsilon=1)) as s:
        text = "SELECT SUM(LEAST(GREATEST(cost, 0), 10)) AS total FROM t"
        found = ask_finding_bounds(s, text, epsilon=0.5)
        assert found.bounds == ()
        assert s.sql(text, epsilon=0.5).rows == found.answer.rows
        assert charges(s) == 1


def test_only_bins_are_charged_where_none_exceeds_the_noise() -> None:
    """With fresh noise an empty bin exceeds it once in a hundred times, as `bought_bounds` says."""
    with opened(Budget.pure(epsilon=1)) as s:
        with worded(InvalidOperation):
            ask_finding_bounds(s, TOTALS, epsilon=0.001)
        assert charges(s) == 1


def test_what_cannot_be_asked_is_refused_before_anything_is_charged() -> None:
    with opened(Budget.pure(epsilon=1)) as s:
        with worded(BudgetExceeded):
            ask_finding_bounds(s, TOTALS, epsilon=2)
        with worded(InvalidParameter, parameter="part"):
            ask_finding_bounds(s, TOTALS, epsilon=0.5, part=1.0)
        with worded(InvalidParameter, parameter="cost"):
            ask_finding_bounds(s, TOTALS)
        with worded(InvalidParameter, parameter="delta"):
            ask_finding_bounds(s, TOTALS, epsilon=0.5, delta=1e-7)
        with worded(InvalidParameter, parameter="session"):
            ask_finding_bounds("t", TOTALS, epsilon=0.5)  # type: ignore[arg-type]  # as a caller may
        with pytest.raises(QuestionRefused):
            ask_finding_bounds(s, "SELECT cost, SUM(cost) AS s FROM t GROUP BY cost", epsilon=0.5)
        with pytest.raises(QuestionRefused):
            ask_finding_bounds(s, "SELECT CORR(cost, who) AS s FROM t", epsilon=0.5)
        assert charges(s) == 0


def test_a_stored_answer_is_read_though_nothing_is_left() -> None:
    with opened(Budget.pure(epsilon=1)) as s:
        ask_finding_bounds(s, TOTALS, epsilon=1)
        assert ask_finding_bounds(s, TOTALS, epsilon=1).answer.receipt.replayed


def farthest(kitchen: Kitchen, leave: int) -> Fraction:
    """The largest ratio of a movement to its claim, over both questions, when one of a few people leaves."""
    rng = np.random.default_rng(6)
    frame = pd.DataFrame({"who": np.repeat(np.arange(leave), 3), "ward": "A", "cost": 700.0})
    frame.loc[::2, "cost"] = rng.gamma(2, 300, len(frame))[::2]
    frame.loc[:2, ["ward", "cost"]] = ["B", 1e30]
    with opened(Budget.pure(epsilon=10**6), frame) as s:
        table, clamps = s.tables["t"], found_bounds._Clamps()
        parse_clamped(TOTALS, s.tables, clamps)
        bins = [found_bounds._bins(s, relation, value) for _, (relation, value) in clamps.found.values()]
        clamps.known = dict.fromkeys(clamps.found, ask_finding_bounds(s, TOTALS, epsilon=10**5).bounds[0])
        collects = [plan(each).collect for each in (*bins, parse_clamped(TOTALS, s.tables, clamps))]

    def answers(rows: pd.DataFrame) -> list[dict[Any, Any]]:
        import pyarrow as pa

        engine = kitchen.engine()
        engine.register("t", kitchen.source(pa.Table.from_pandas(rows, preserve_index=False)), table, SECRET)
        return [engine.collect(each) for each in collects]

    largest, here = Fraction(0), answers(frame)
    for who in range(leave):
        there = answers(frame[frame["who"] != who])
        for collect, one, two in zip(collects, here, there, strict=True):
            moved = distance(collect, lambda _, one=one: one, lambda _, two=two: two)
            for claim, true in zip(collect.moves(Relation.ADD_REMOVE), moved, strict=True):
                for norm in ("l1", "l2_squared", "linf"):
                    largest = max(largest, Fraction(getattr(true, norm), getattr(claim, norm)))
    return largest


def test_no_person_moves_bins_or_sums_further_than_claimed() -> None:
    kitchen = DuckDBKitchen()
    try:
        assert farthest(kitchen, 12) == 1
    finally:
        kitchen.close()


@pytest.mark.spark
def test_no_person_moves_them_further_on_spark(spark: Any) -> None:
    kitchen = SparkKitchen(spark)
    try:
        assert farthest(kitchen, 2) <= 1
    finally:
        kitchen.close()
