"""Statistics about different rows have one share of the cost together, and lose no more than that on any neighbours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any

import pytest

import deniable as dn
from deniable.ledger import Budget
from deniable.queries.plan.exclusive_statistics import classes as of_items
from deniable.queries.plan.noise_planner import classes_of, noise_cost, one_by_one, plan_under, unthresholded
from deniable.queries.session import Session
from deniable.queries.sql.sql_reader import parse
from deniable.tables.schema import Table
from deniable.units import Relation

pandas = pytest.importorskip("pandas")
pytest.importorskip("duckdb")

SCHEMA = {
    "x": dn.Domain.real(0, 100, nullable=False),
    "k": dn.Domain.integer(0, 9, nullable=False),
    "arm": dn.Domain.text("c", "t", nullable=False),
}
GAUSSIAN, PURE = dn.Budget.gaussian(mu=1, delta=1e-6), dn.Budget.pure(epsilon=1)
HALVES = (
    "COUNT_IF(k > 3) AS a, COUNT_IF(NOT k > 3) AS b",
    "COUNT(*) FILTER (WHERE k > 3) AS a, COUNT(*) FILTER (WHERE k <= 3) AS b",
    "SUM(CASE WHEN arm = 't' THEN x ELSE 0 END) AS a, SUM(CASE WHEN arm = 'c' THEN x ELSE 0 END) AS b",
    "SUM(CASE WHEN x > k THEN 1 ELSE 0 END) AS a, SUM(CASE WHEN NOT x > k THEN 1 ELSE 0 END) AS b",
    "AVG(CASE WHEN arm = 't' THEN x END) AS a, AVG(CASE WHEN arm = 'c' THEN x END) AS b",
    "SUM(CASE WHEN k = 1 THEN x END) AS a, COUNT(DISTINCT CASE WHEN k = 2 THEN x END) AS b",
)
ONE_EACH = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_per_group = 1) arm AS g,"
OTHERS = (
    "COUNT_IF(k > 3) AS a, COUNT_IF(k > 5) AS b",
    "COUNT_IF(k > 3) AS a, COUNT(*) AS b",
    "AVG(CASE WHEN arm = 't' THEN x ELSE 0 END) AS a, AVG(CASE WHEN arm = 'c' THEN x ELSE 0 END) AS b",
    "SUM(CASE WHEN arm = 't' THEN x ELSE 1 END) AS a, SUM(CASE WHEN arm = 'c' THEN x ELSE 1 END) AS b",
    "COUNT(DISTINCT CASE WHEN k > 3 THEN who END) AS a, COUNT(DISTINCT CASE WHEN k <= 3 THEN who END) AS b",
    "COUNT(COALESCE(CASE WHEN k > 3 THEN x END, CASE WHEN k < 2 THEN x END)) AS a, COUNT_IF(k <= 3) AS b",
    "COUNT_IF(CASE WHEN k > 3 THEN x END IS NULL) AS a, COUNT_IF(k <= 3) AS b",
)


def table(relation: Relation = Relation.ADD_REMOVE) -> dict[str, Table]:
    return {"t": Table.of("t", replace(dn.Unit.person("who", rows=3), relation=relation), **SCHEMA)}


def classes(measures: str, budget: Budget, relation: Relation = Relation.ADD_REMOVE) -> int:
    return len(classes_of(plan_under(parse(f"SELECT {measures} FROM t", table(relation)), budget), budget))


@pytest.mark.parametrize("measures", HALVES)
@pytest.mark.parametrize("budget", [GAUSSIAN, PURE], ids=["gaussian", "pure"])
def test_halves_cost_as_much_as_one_of_them(measures: str, budget: Budget) -> None:
    one = measures.split(" AS a")[0] + " AS a"
    made, alone = (plan_under(parse(f"SELECT {each} FROM t", table()), budget) for each in (measures, one))
    assert len(classes_of(made, budget)) == len(classes_of(alone, budget))
    units = budget.limit.units
    both, apart = unthresholded(made, budget, units), unthresholded(one_by_one(made), budget, units)
    place = [both.spread(i) for i in range(len(made.parts))].index(unthresholded(alone, budget, units).spread(0))
    assert apart.spread(place) > 1.4 * both.spread(place)
    assert noise_cost(both, budget).units <= units  # as the ledger prices the curve of the noise


@pytest.mark.parametrize("measures", OTHERS)
@pytest.mark.parametrize("budget", [GAUSSIAN, PURE], ids=["gaussian", "pure"])
def test_others_are_paid_for_one_by_one(measures: str, budget: Budget) -> None:
    made = plan_under(parse(f"SELECT {measures} FROM t", table()), budget)
    assert all(len(each) == 1 for each in classes_of(made, budget))


def test_an_integer_beside_reals_is_rounded_as_the_engine_rounds_it(s: Session) -> None:
    """2^53 - 1 is less than half a step of 2^54, but an engine adds 1/2 in floating point, which gives 1."""
    measures = f"SUM(CASE WHEN k > 3 THEN x * {2.0**77 / 100!r} ELSE {2**53 - 1} END) AS a, COUNT_IF(k <= 3) AS b"
    made = s._planned(f"SELECT {measures} FROM t WHERE k = 1")
    assert [*s._engine.collect(made.collect).values()] == [(1, 1)]  # from one row, which must pay for both
    assert len(classes_of(made, s.budget)) == 2


def test_a_pair_is_about_the_rows_of_both_its_parts() -> None:
    made = plan_under(parse("SELECT COUNT_IF(k = 1), COUNT_IF(k = 2), COUNT_IF(k = 3) FROM t", table()), GAUSSIAN)
    assert len(of_items(made.collect, [(0,), (1,), (2,)], Relation.ADD_REMOVE)) == 1
    assert len(of_items(made.collect, [(0, 1), (2,)], Relation.ADD_REMOVE)) == 2


@pytest.mark.parametrize("measures", HALVES)
def test_a_replaced_person_may_leave_one_half_and_enter_the_other(measures: str) -> None:
    assert classes(measures, GAUSSIAN, Relation.REPLACE) > classes(measures, GAUSSIAN)


@pytest.mark.parametrize(("select", "each"), [("SELECT", 3), ("SELECT arm AS g,", 3), (ONE_EACH, 1)])
@pytest.mark.parametrize("measures", HALVES)
def test_no_person_loses_more_than_the_cost(measures: str, select: str, each: int) -> None:
    """All rows that a person can have, of twelve kinds: the loss of all parts together is at most the cost."""
    kinds = [{"arm": arm, "k": k, "x": x} for arm in "ct" for k in (1, 2, 7) for x in (0.0, 100.0)]
    people = [
        rows
        for many in (1, 2, 3)
        for rows in combinations_with_replacement(kinds, many)
        if max(sum(row["arm"] == arm for row in rows) for arm in "ct") <= each
    ]
    for budget in (GAUSSIAN, PURE):
        text = f"{select} {measures} FROM t{' GROUP BY g' if 'AS g' in select else ''}"
        made = plan_under(parse(text, table()), budget)
        noise = unthresholded(made, budget, budget.limit.units)
        worst = max(loss(made, noise, rows) for rows in people)
        assert worst <= 1
        assert worst > 0.2  # a part reaches its share of the cost


def loss(made: Any, noise: Any, rows: tuple[dict[str, Any], ...]) -> float:
    """What a person with these rows loses, in μ² or ε: by plain Python, from the values of the statistics' rows."""
    from deniable.queries.relations.operators import typed

    moved: dict[tuple[int, Any], float] = {}
    seen: dict[tuple[int, Any], set[Any]] = {}
    for row in rows:
        group = row["arm"] if made.question.keys else None
        for i, part in enumerate(made.parts):
            statistic: Any = part.statistic
            value = typed(statistic.expression, made.collect.relation.columns).value(row)
            if value is None:
                continue
            if type(statistic).__name__ == "CountDistinct":
                seen.setdefault((i, group), set()).add(value)
                moved[i, group] = len(seen[i, group])
            else:
                added = statistic.addend(value) if hasattr(statistic, "exponent") else 1
                moved[i, group] = moved.get((i, group), 0) + added
    pairs = {pair.total: pair for pair in made.pairs} if noise.seconds else {}
    total = 0.0
    for i, mechanism in enumerate(noise.mechanisms):
        for group in {group for _, group in moved}:
            mine = moved.get((i, group), 0)
            if i in pairs:
                n = moved.get((pairs[i].count, group), 0)
                total += (abs(pairs[i].half * n + mine) + abs(pairs[i].half * n - mine)) / float(mechanism.scale)
            elif i not in noise.seconds:
                total += (
                    (mine / mechanism.sigma) ** 2 if hasattr(mechanism, "sigma") else abs(mine) / float(mechanism.scale)
                )
    return total


@pytest.fixture
def s() -> Iterator[Session]:
    frame = pandas.DataFrame({"who": [1, 1, 2], "x": [1.0, 2.0, 3.0], "k": [1, 5, 6], "arm": ["c", "t", "t"]})
    unit, budget = dn.Unit.person("who", rows=4), dn.Budget.gaussian(mu=1)
    with dn.session({"t": frame}, unit=unit, budget=budget, schema=SCHEMA) as found:
        yield found


def test_halves_have_the_noise_of_a_group(s: Session) -> None:
    apart = s.price("SELECT COUNT_IF(k > 3) AS a, COUNT_IF(NOT k > 3) AS b FROM t", mu=0.1)
    grouped = s.price("SELECT k > 3 AS old, COUNT(*) AS n FROM t GROUP BY old", mu=0.1)
    assert apart.errors()["a"] == apart.errors()["b"] == grouped.errors()["n"]
    [(said, share)] = apart.split()
    assert said.endswith("of different rows")
    assert share == 1


def test_what_an_earlier_version_stored_is_not_read_with_less_noise(s: Session) -> None:
    """Records of halves that were paid for one by one lack `shared`; their noise is wider than that of the plan."""
    text = "SELECT COUNT_IF(k > 3) AS a, COUNT_IF(NOT k > 3) AS b FROM t"
    answer = s.sql(text, mu=0.1)
    made, stored = answer.plan, answer.released
    assert stored.shared
    record = json.loads(stored.to_bytes())
    assert type(stored).from_bytes(json.dumps(record).encode(), made).has_noise_of(made, s.budget)
    del record["shared"]
    assert not type(stored).from_bytes(json.dumps(record).encode(), made).has_noise_of(made, s.budget)
    better = s.refine(answer, mu=0.1)
    assert better.released.shared
    assert better.receipt.cost.units + answer.receipt.cost.units == s.ledger.charged.units


def test_a_standing_question_keeps_a_share_for_each(s: Session) -> None:
    """Days that were answered earlier, and running totals, have noise of a share for each."""
    made = plan_under(parse("SELECT COUNT_IF(k > 3) AS a, COUNT_IF(NOT k > 3) AS b FROM t", table()), GAUSSIAN)
    apart = one_by_one(made)
    assert [part.weight for part in apart.parts] == [Fraction(1, 2)] * 2
    assert not unthresholded(apart, GAUSSIAN, GAUSSIAN.limit.units).beside
