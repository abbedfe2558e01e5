"""A SELECT of scalar sub-queries of which one aggregates noisy rows: right without noise, and no person moves it far."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable.errors import QuestionRefused
from deniable.ledger import Budget
from deniable.queries.plan.noise_planner import plan
from deniable.queries.relations import exact_statistics
from deniable.queries.session import Session
from deniable.queries.sql.sql_reader import parse
from deniable.units import Relation
from tests.queries.engines.kitchen import SECRET, DuckDBKitchen, Kitchen, SparkKitchen
from tests.queries.test_sensitivity import distance
from tests.wording import worded

ROWS = 6
SCHEMA = {"day": dn.Domain.integer(0, 4), "x": dn.Domain.integer(-3, 9)}
DAILY = "(SELECT day, COUNT(DISTINCT who) AS n FROM t GROUP BY day)"
RIGHT = [
    f"SELECT (SELECT AVG(n) FROM {DAILY} AS d) / (SELECT COUNT(DISTINCT who) FROM t) AS stickiness",
    f"SELECT (SELECT MAX(n) FROM {DAILY} AS d WHERE day > 1) AS most, (SELECT AVG(x) FROM t WHERE day = 2) AS a, 3 AS b",
    f"SELECT 2 * (SELECT COUNT(*) FROM {DAILY} AS d) AS days",
    "SELECT (SELECT COUNT(*) FROM t WHERE x > 0) / (SELECT COUNT(*) FROM t WHERE x > 0) AS one",  # refused: equal nodes
    "SELECT (SELECT COUNT(*) FROM t) - (SELECT SUM(s) FROM (SELECT day, SUM(x) AS s, COUNT(*) AS n FROM t GROUP BY day "
    "HAVING COUNT(*) > 100) AS d) AS rest",
    "SELECT (SELECT AVG(s) FROM (SELECT day, SUM(x) AS s FROM t WHERE day IS NOT NULL GROUP BY day) AS d) "
    "/ (SELECT COUNT(*) FROM t) AS without_null",
    "WITH d AS (SELECT day, x, COUNT(*) AS n FROM t WHERE day IS NOT NULL GROUP BY day, x) "
    "SELECT (SELECT SUM(n) FROM d WHERE x > 0) / (SELECT COUNT(*) FROM t) AS share",
    "SELECT (SELECT AVG(c) FROM (SELECT day, n - LAG(n) OVER (ORDER BY day) AS c FROM (SELECT day, COUNT(*) AS n FROM t "
    "WHERE day IS NOT NULL GROUP BY day) AS a) AS b) / (SELECT COUNT(*) FROM t) AS growth",
]


def people() -> pd.DataFrame:
    rng = np.random.default_rng(30)
    frame = pd.DataFrame({"who": rng.integers(0, 300, 1500), "day": rng.choice(5, 1500, p=[0.1, 0.3, 0.3, 0.25, 0.05])})
    frame["x"] = rng.integers(-3, 10, 1500)
    frame = frame[frame.groupby("who").cumcount() < ROWS].astype({"day": "Int64"}).reset_index(drop=True)
    frame.loc[frame.index % 17 == 0, "day"] = pd.NA
    return frame


def opened(budget: Budget, frame: pd.DataFrame) -> Session:
    return dn.session({"t": frame}, unit=dn.Unit.person("who", rows=ROWS), budget=budget, schema=SCHEMA)


@pytest.mark.parametrize("text", RIGHT)
def test_without_noise_it_is_what_duckdb_says(text: str) -> None:
    import duckdb

    frame = people()
    with duckdb.connect() as plain, opened(Budget.pure(epsilon=10**6), frame) as s:
        plain.register("t", frame)
        [truth] = plain.execute(text).fetchall()
        answer = s.ask(text, epsilon=10**5)
    assert len(answer) == 1
    assert [float(str(each)) for each in answer.rows[0]] == pytest.approx([float(each) for each in truth], rel=1e-4)


def test_values_beside_noisy_rows_have_the_noise_of_a_question_alone() -> None:
    """COUNT(DISTINCT who) reads one group, in which a person counts once: it must not pay for all rows of a person."""
    with opened(Budget.gaussian(mu=1, delta=1e-6), people()) as s:
        found = plan(parse(RIGHT[0], s.tables)).collect
        assert [each.linf for each in found.moves(Relation.ADD_REMOVE)] == [1, 1]
        assert sorted(each.l1 for each in found.moves(Relation.ADD_REMOVE)) == [1, ROWS]
        answer = s.ask(RIGHT[1], mu=0.5)
        assert all(answer.interval(name)[0] is not None for name in ("a",))


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT (SELECT AVG(n) FROM {DAILY} AS d) / (SELECT MAX(n) FROM {DAILY} AS d) AS two",
        f"SELECT (SELECT AVG(n) FROM {DAILY} AS d HAVING AVG(n) > 3) AS some",
        f"SELECT (SELECT AVG(n) FROM {DAILY} AS d GROUP BY day) AS many",
        "SELECT (SELECT AVG(n) FROM (SELECT who % 3 AS w, COUNT(*) AS n FROM t GROUP BY 1) AS d) AS by_people",
    ],
)
def test_what_is_more_than_one_number_or_two_of_them_is_refused(text: str) -> None:
    with opened(Budget.pure(epsilon=1), people()) as s, pytest.raises(QuestionRefused):
        s.sql(text, epsilon=0.5)


def test_keys_that_are_not_public_are_refused() -> None:
    schema = {"x": SCHEMA["x"]}
    text = f"SELECT (SELECT AVG(n) FROM {DAILY} AS d) / (SELECT COUNT(*) FROM t) AS s"
    budget = Budget(epsilon=1, delta=1e-6)
    unit = dn.Unit.person("who", rows=ROWS)
    with (
        dn.session({"t": people()}, unit=unit, budget=budget, schema=schema) as s,
        worded(QuestionRefused, code="subquery"),
    ):
        s.sql(text, epsilon=0.5)


def farthest(kitchen: Kitchen, leaving: int) -> Fraction:
    """The largest ratio of a movement to its claim, over the questions above, when one person leaves."""
    frame = people()
    frame = frame[frame["who"] < 12]
    one = frame["who"] == 1
    same = pd.DataFrame({"who": 98, "day": [0] * ROWS, "x": 9}).astype({"day": "Int64"})
    every = pd.DataFrame({"who": 99, "day": [0, 1, 2, 3, 4, None], "x": -3}).astype({"day": "Int64"})
    frame = pd.concat([frame[~one], same, every], ignore_index=True)
    with opened(Budget.pure(epsilon=1), frame) as s:
        table = s.tables["t"]
        collects = [plan(parse(text, s.tables)).collect for text in RIGHT]

    def answers(rows: pd.DataFrame) -> list[dict[Any, Any]]:
        import pyarrow as pa

        engine = kitchen.engine()
        engine.register("t", kitchen.source(pa.Table.from_pandas(rows, preserve_index=False)), table, SECRET)
        return [engine.collect(each) for each in collects]

    largest, here = Fraction(0), answers(frame)
    for who in sorted(frame["who"].unique())[-leaving:]:
        there = answers(frame[frame["who"] != who])
        for collect, first, second in zip(collects, here, there, strict=True):
            moved = distance(collect, lambda _, first=first: first, lambda _, second=second: second)
            for claim, true in zip(collect.moves(Relation.ADD_REMOVE), moved, strict=True):
                for norm in ("l1", "l2_squared", "linf"):
                    largest = max(largest, Fraction(getattr(true, norm), getattr(claim, norm)))
    return largest


def test_no_person_moves_it_further_than_claimed() -> None:
    kitchen = DuckDBKitchen()
    try:
        assert farthest(kitchen, 8) == 1
    finally:
        kitchen.close()


def test_a_key_that_is_taken_for_a_constant_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_statistics, "_is_constant", lambda domain: True)
    kitchen = DuckDBKitchen()
    try:
        assert farthest(kitchen, 2) > 1
    finally:
        kitchen.close()


@pytest.mark.spark
def test_no_person_moves_it_further_on_spark(spark: Any) -> None:
    kitchen = SparkKitchen(spark)
    try:
        assert farthest(kitchen, 2) == 1
    finally:
        kitchen.close()
