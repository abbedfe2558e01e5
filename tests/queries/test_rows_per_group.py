"""max_rows_per_group: at most so many rows of each person in each group, and noise for no more than these."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pandas as pd
import pytest

import deniable as dn
from deniable.errors import QuestionRefused
from deniable.queries.engines.duckdb import DuckDBEngine
from deniable.queries.plan.noise_planner import plan
from deniable.queries.sql.sql_reader import parse
from deniable.tables.schema import Table
from deniable.units import Relation, Unit
from tests.queries.engines.kitchen import SECRET

ROWS = 10
SCHEMA = {
    "day": dn.Domain.integer(0, 4, nullable=False),
    "ward": dn.Domain.text("A", "B", "C"),
    "x": dn.Domain.integer(-3, 7),
}
GAUSSIAN = dn.Budget(epsilon=1, delta=1e-6)


def bounded(text: str, most: object = 1) -> str:
    return text.replace("SELECT", f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_per_group = {most})", 1)


DAYS = "SELECT day, COUNT(*) AS n FROM t GROUP BY day"
SUMS = "SELECT ward, SUM(x) AS s, COUNT(x) AS n FROM t GROUP BY ward"


def table(rows: int = ROWS) -> Table:
    return Table("t", (("who", dn.Domain.text()), *SCHEMA.items()), Unit.person("who", rows=rows))


def opened(frame: pd.DataFrame, budget: dn.Budget = GAUSSIAN, rows: int = ROWS) -> dn.queries.Session:
    return dn.session({"t": frame}, unit=Unit.person("who", rows=rows), budget=budget, schema=SCHEMA)


def drawn(seed: int, people: int = 6, rows: int = 60) -> pd.DataFrame:
    chance = random.Random(seed)
    made = [
        (f"p{int(people * chance.random() ** 2)}", chance.choice([0, 0, 1, 2, 4, None]), chance.choice("ABC"), chance.randrange(-5, 10))
        for _ in range(rows)
    ]  # fmt: skip
    return pd.DataFrame(made, columns=["who", "day", "ward", "x"]).astype({"day": "Int64"})


def exact(frame: pd.DataFrame, text: str, rows: int) -> dict[Any, Sequence[Any]]:
    """The numbers before noise. One secret for all tables: it decides which rows of a person are kept."""
    with DuckDBEngine(threads=1) as engine:
        made = engine.register("t", frame, table(rows), SECRET)
        return dict(engine.collect(plan(parse(text, {"t": made})).collect))


def test_ten_rows_in_all_and_one_on_each_day_have_the_noise_of_the_root_of_ten() -> None:
    """A year of days at ε = 1, δ = 10⁻⁶: ± 83 becomes ± 26. L2 is √(10·1²), not √(10²)."""
    year = {**SCHEMA, "day": dn.Domain.integer(0, 364, nullable=False)}
    with dn.session({"t": drawn(0)}, unit=Unit.person("who", rows=10), budget=GAUSSIAN, schema=year) as session:
        many, few = (session.price(each, epsilon=1).errors()["n"] for each in (DAYS, bounded(DAYS)))
        assert (many, few) == (83, 26)
        wide, narrow = (session.price(each, epsilon=0.02).errors()["n"] for each in (DAYS, bounded(DAYS)))
        assert wide is not None
        assert narrow is not None
        assert narrow / wide == pytest.approx(math.sqrt(10) / 10, rel=0.01)


@pytest.mark.parametrize("text", [DAYS, SUMS])
@pytest.mark.parametrize("relation", [Relation.ADD_REMOVE, Relation.REPLACE])
@pytest.mark.parametrize("most", [1, 2])
def test_no_neighbour_is_further_away_than_the_noise_is_planned_for(text: str, relation: Relation, most: int) -> None:
    """Brute force on DuckDB: each person is removed, or replaced by each other person's rows, in 2 random tables."""
    found = parse(bounded(text, most), {"t": table(3)})
    made = plan(found)
    moves = made.collect.moves(relation)
    reached = 0.0
    for seed in range(2):
        frame = drawn(seed)
        whole = exact(frame, bounded(text, most), 3)
        everyone = sorted(set(frame["who"]))
        others = [frame[frame["who"] != each] for each in everyone]
        if relation is Relation.REPLACE:
            others = [
                pd.concat([frame[frame["who"] != a], frame[frame["who"] == b].assign(who=a)])
                for a, b in pairwise(everyone)
            ]
        for other in others:
            there = exact(other, bounded(text, most), 3)
            for at, move in enumerate(moves):
                apart = [int(whole[group][at]) - int(there[group][at]) for group in whole]  # type: ignore[call-overload]
                assert sum(map(abs, apart)) <= move.l1
                assert sum(each**2 for each in apart) <= move.l2_squared
                reached = max(reached, sum(map(abs, apart)) / move.l1)
    assert reached > (0.6 if relation is Relation.ADD_REMOVE else 0.3)  # the bound is near what is reached


@pytest.mark.parametrize("most", [1, 2, 5])
def test_so_many_rows_of_a_person_are_counted_in_each_group(most: int) -> None:
    frame = drawn(3)
    found = exact(frame, bounded(DAYS, most), 1000)
    sizes = Counter(
        (who, None if pd.isna(day) else int(day)) for who, day in zip(frame["who"], frame["day"], strict=True)
    )
    for (day,), (count,) in found.items():
        assert int(count) == sum(min(most, size) for (_, at), size in sizes.items() if at == day)  # type: ignore[call-overload]


def test_it_goes_with_a_bound_on_groups() -> None:
    both = DAYS.replace(
        "SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_per_group = 1, max_groups_contributed = 2)", 1
    )
    [moves] = plan(parse(both, {"t": table()})).collect.moves(Relation.ADD_REMOVE)
    assert (moves.l1, moves.l2_squared, moves.linf) == (2, 2, 1)


def test_a_bound_above_all_rows_is_the_same_question() -> None:
    tables = {"t": table()}
    assert parse(bounded(DAYS, 10), tables).hash == parse(DAYS, tables).hash != parse(bounded(DAYS, 9), tables).hash


@pytest.mark.parametrize("most", ["0", "-1", "1.5", "x", "1e300"])
def test_it_is_a_whole_number(most: str) -> None:
    with pytest.raises(QuestionRefused) as refused:
        parse(bounded(DAYS, most), {"t": table()})
    assert refused.value.code == "options"


def test_it_needs_groups() -> None:
    with pytest.raises(QuestionRefused, match="GROUP BY"):
        parse(bounded("SELECT COUNT(*) AS n FROM t"), {"t": table()})


def test_the_price_suggests_it_where_it_halves_the_noise() -> None:
    frame = drawn(0)
    with opened(frame) as session:
        words = " ".join(str(session.price(DAYS, epsilon=0.1)).split())
        assert "OPTIONS (max_rows_per_group = 1), the noise is about 0.22 times as large" in words
        few, many = (session.price(each, epsilon=0.1).errors()["n"] for each in (bounded(DAYS), DAYS))
        assert few is not None
        assert many is not None
        assert few / many == pytest.approx(0.2236, rel=0.02)  # as it was said
        for other in (bounded(DAYS), "SELECT COUNT(*) AS n FROM t", "SELECT ward, MEDIAN(x) AS m FROM t GROUP BY ward"):
            assert "max_rows_per_group" not in str(session.price(other, epsilon=0.1))
    with opened(frame, dn.Budget.pure(epsilon=1)) as session:  # by L1: 5 of 10 rows
        words = " ".join(str(session.price(DAYS, epsilon=0.1)).split())
        assert "the noise is about 0.5 times as large" in words
    with opened(frame, rows=1) as session:
        assert "max_rows_per_group" not in str(session.price(DAYS, epsilon=0.1))
