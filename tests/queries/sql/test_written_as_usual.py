"""Time zones, first and last dates, scalar sub-queries and owned columns: against Python and plain DuckDB, and their
sensitivities by all neighbours of small tables.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
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

FIRST = dt.date(2026, 1, 1)
BUDGET = dn.Budget.gaussian(mu=1000, delta=1e-3)
ROWS = 30
MU = 450
"""A count has a standard deviation of at most 0.1, so that rounding finds the exact one but in 1 of 10⁶ tests."""


def drawn(seed: int, people: int = 5, rows: int = 40) -> pd.DataFrame:
    """Items of orders of people; moments around both changes of the clock in Berlin."""
    chance = random.Random(seed)
    moments = [
        dt.datetime.combine(day, dt.time(hour, 30))
        for day in (dt.date(2026, 3, 29), dt.date(2026, 10, 25), dt.date(2026, 7, 1))
        for hour in range(24)
    ]
    made = []
    for _ in range(rows):
        who = chance.randrange(people)
        order = f"o{who}-{chance.randrange(3)}"
        day = FIRST + dt.timedelta(chance.randrange(10, 300))
        made.append((f"p{who}", order, chance.randrange(0, 9), chance.choice(moments), day))
    return pd.DataFrame(made, columns=["who", "order_id", "x", "at", "day"])


SCHEMA = {
    "order_id": dn.Domain.text(nullable=False),
    "x": dn.Domain.integer(0, 8, nullable=False),
    "at": dn.Domain.timestamp(dt.datetime(2026, 1, 1), dt.datetime(2026, 12, 31, 23, 59)),
    "day": dn.Domain.date(FIRST, dt.date(2026, 12, 31)),
}


def table(rows: int) -> Table:
    return Table("t", (("who", dn.Domain.text()), *SCHEMA.items()), Unit.person("who", rows=rows), owned=("order_id",))


def opened(frame: pd.DataFrame, rows: int = ROWS) -> dn.queries.Session:
    given = {"unit": Unit.person("who", rows=rows), "budget": BUDGET, "schema": SCHEMA}
    return dn.session({"t": frame}, owned={"t": ["order_id"]}, **given)  # type: ignore[arg-type]


def exact(frame: pd.DataFrame, text: str, rows: int) -> tuple[dict[Any, Any], Any]:
    """The numbers before noise, and their sensitivities. One secret for all tables."""
    with DuckDBEngine(threads=1) as engine:
        made = engine.register("t", frame, table(rows), SECRET)
        asked = plan(parse(text, {"t": made})).collect
        return dict(engine.collect(asked)), asked.moves(Relation.ADD_REMOVE)


def no_neighbour_is_further_away(frame: pd.DataFrame, text: str, rows: int) -> float:
    """Removes each person in turn. Returns how near the largest move in L1 comes to its bound."""
    whole, moves = exact(frame, text, rows)
    reached = 0.0
    for who in sorted(set(frame["who"])):
        there, _ = exact(frame[frame["who"] != who], text, rows)
        for at, move in enumerate(moves):
            pairs = [(whole.get(group), there.get(group)) for group in {*whole, *there}]
            apart = [
                a - b
                for one, two in pairs
                for a, b in zip(_numbers(one, at, len(moves)), _numbers(two, at, len(moves)), strict=True)
            ]
            assert sum(map(abs, apart)) <= move.l1
            assert sum(each**2 for each in apart) <= move.l2_squared
            reached = max(reached, sum(map(abs, apart)) / move.l1)
    return reached


def _numbers(found: Any, at: int, many: int) -> list[int]:
    if found is None:
        return [0]
    one = found[at]
    return [int(each) for each in one] if hasattr(one, "__len__") else [int(one)]


# -- time zones ------------------------------------------------------------------------------------------------------

HOURS = "SELECT HOUR(at AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin') AS h, COUNT(*) AS n FROM t GROUP BY h"


def test_hours_of_a_time_zone_are_those_of_python_also_when_clocks_change() -> None:
    frame = drawn(1, people=40, rows=400)
    berlin = [at.replace(tzinfo=dt.UTC).astimezone(ZoneInfo("Europe/Berlin")).hour for at in frame["at"]]
    with opened(frame) as session:
        answer = session.sql(HOURS, mu=MU)
        found = {int(h): round(n) for h, n in zip(answer["h"], answer["n"], strict=True) if h is not None}  # type: ignore[arg-type, call-overload]
    assert {hour: count for hour, count in found.items() if count} == Counter(berlin)


def test_a_time_zone_moves_no_more_than_its_rows() -> None:
    assert no_neighbour_is_further_away(drawn(2), HOURS, 4) == 1


def test_a_time_zone_of_unknown_moments_is_refused() -> None:
    with opened(drawn(1)) as session, pytest.raises(QuestionRefused, match="UTC"):
        session.price(HOURS.replace("AT TIME ZONE 'UTC' ", ""), mu=1)


# -- first and last dates --------------------------------------------------------------------------------------------

ENDS = "SELECT MIN(day) AS first, MAX(day) AS last FROM t"


def test_first_and_last_dates_are_dates_near_the_true_ones() -> None:
    """At this cost the rank is off by less than a row, and a cell has about a day."""
    frame = drawn(3, people=40, rows=400)
    with opened(frame) as session:
        answer = session.sql(ENDS, mu=MU)
    for name, true in (("first", min(frame["day"])), ("last", max(frame["day"]))):
        [found] = answer[name]
        assert type(found) is dt.date
        assert abs((found - true).days) <= 2


def test_the_cells_of_dates_move_no_more_than_rows() -> None:
    assert no_neighbour_is_further_away(drawn(4), ENDS, 3) == 1


def test_dates_without_bounds_have_no_first_one() -> None:
    made = Table.of("t", Unit.person("who", rows=2), who=dn.Domain.text(), day=dn.Domain.date())
    with pytest.raises(QuestionRefused):
        plan(parse(ENDS, {"t": made}))


# -- scalar sub-queries ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "SELECT (SELECT SUM(x) FROM t) / (SELECT COUNT(*) FROM t) AS each",
        "WITH d AS (SELECT x, COUNT(*) AS n FROM t GROUP BY x) SELECT COUNT(*) AS each FROM d WHERE n > (SELECT AVG(n) FROM d)",
    ],
)
def test_scalar_sub_queries_of_noisy_answers_are_those_of_sql(text: str) -> None:
    t = drawn(5, people=40, rows=400)
    with duckdb.connect() as plain:
        plain.register("t", t)
        [[true]] = plain.execute(text).fetchall()
    with opened(t) as session:
        assert float(session.sql(text, mu=MU)["each"][0]) == pytest.approx(float(true), abs=0.6)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) AS n FROM t WHERE x > (SELECT AVG(x) FROM t)",
        "SELECT COUNT(*) AS n FROM t WHERE day = (SELECT MAX(day) FROM t)",
        "SELECT (SELECT x FROM t LIMIT 1) AS one",
    ],
)
def test_a_scalar_of_private_rows_beside_rows_is_refused(text: str) -> None:
    with opened(drawn(5)) as session, pytest.raises(QuestionRefused):
        session.price(text, mu=1)


# -- owned columns ---------------------------------------------------------------------------------------------------

ORDERS = "SELECT items, COUNT(*) AS n FROM (SELECT order_id, COUNT(*) AS items FROM t GROUP BY order_id) WHERE items <= 30 GROUP BY items"
TOTALS = (
    "SELECT COUNT(*) AS n, SUM(least(total, 20)) AS s FROM (SELECT order_id, SUM(x) AS total FROM t GROUP BY order_id)"
)


def test_groups_by_an_owned_column_are_those_of_sql() -> None:
    t = drawn(6, people=40, rows=400)
    with duckdb.connect() as plain:
        plain.register("t", t)
        true = dict(plain.execute(ORDERS).fetchall())
        [totals] = plain.execute(TOTALS).fetchall()
    with opened(t) as session:
        answer = session.sql(TOTALS, mu=MU)
        assert round(answer["n"][0]) == totals[0]  # type: ignore[arg-type, call-overload]
        assert float(answer["s"][0]) == pytest.approx(totals[1], abs=20)  # type: ignore[arg-type]
        by = session.sql(ORDERS, mu=MU)
        found = {int(each): round(n) for each, n in zip(by["items"], by["n"], strict=True)}  # type: ignore[arg-type, call-overload]
    assert {size: many for size, many in found.items() if many} == {size: many for size, many in true.items() if many}


@pytest.mark.parametrize("text", [ORDERS, TOTALS])
def test_orders_that_several_people_share_move_no_further(text: str) -> None:
    """Privacy does not rest on the declaration: here every order number belongs to several people."""
    for seed in range(2):
        frame = drawn(seed)
        frame["order_id"] = [each.split("-")[1] for each in frame["order_id"]]
        no_neighbour_is_further_away(frame, text, 3)
