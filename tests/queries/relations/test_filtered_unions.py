"""The rows of a person in unions of filters: what is planned is at least what one person can own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations

import pandas as pd
import pytest

import deniable as dn
from deniable.queries.answer import batch_shares
from deniable.queries.plan.disjointness import empty, exclusive
from deniable.queries.relations.operators import typed
from deniable.queries.relations.relation_nodes import FilterRows, Source
from deniable.queries.session import Session
from deniable.tables.expressions import Expression, call, col
from deniable.tables.schema import Table

PEOPLE = 3
ROWS = 8
COLUMNS = {
    "g": dn.Domain.integer(0, 7),
    "v": dn.Domain.integer(0, 1),
    "k": dn.Domain.integer(),
    "w": dn.Domain.integer(0, 7),
}
NUMBERED = "WITH w AS (SELECT p, v, ROW_NUMBER() OVER (PARTITION BY p ORDER BY g) AS r FROM t) "
GROUPED = "WITH w AS (SELECT p, g, COUNT(*) AS n FROM t GROUP BY p, g) "


def union(prefix: str, column: str, conditions: list[str]) -> str:
    parts = " UNION ALL ".join(f"SELECT p, {column} FROM w WHERE {each}" for each in conditions)
    return f"{prefix}SELECT COUNT(*) AS n FROM ({parts}) AS u"


QUESTIONS = [
    union(NUMBERED, "v", [f"r = {each}" for each in range(1, 9)]),
    union(NUMBERED, "v", ["r <= 3", "r > 3"]),
    union(NUMBERED, "v", ["r = 1", "r = 2"]),
    union(GROUPED, "n", [f"g = {each}" for each in range(8)]),
    union(GROUPED, "n", ["g IN (0, 1, 2)", "g = 3"]),
    # An engine compares an integer with a real as reals, and all these integers are the same real.
    *(
        f"SELECT COUNT(*) AS n FROM (SELECT p, k, SUM(v) AS n FROM t GROUP BY p, k) AS u WHERE {each}"
        for each in ("k = 1e18", "k IN (1e18)", "k >= 1e18 AND k <= 1e18", "k IN (1000000000000000000, 1.5)", "k = 10")
    ),
]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    rows = [{"p": p, "g": i, "v": 1, "k": 10**18 + i, "w": ROWS - 1 - i} for p in range(PEOPLE) for i in range(ROWS)]
    with dn.session(
        {"t": pd.DataFrame(rows)},
        unit=dn.Unit.person("p", rows=ROWS),
        budget=dn.Budget.pure(epsilon=10**6),
        schema=COLUMNS,
    ) as found:
        yield found


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_person_owns_no_more_rows_than_are_planned(session: Session, question: str) -> None:
    """All but the last were planned with fewer rows of a person than they have: noise for 1 row where 8 count."""
    planned = session._planned(question).question.relation.rows
    counted = session.sql(question, epsilon=10**4).rows[0][0] / PEOPLE
    assert counted <= planned


def test_a_union_of_numbered_rows_costs_their_number(session: Session) -> None:
    """The bound is not looser than necessary: two numbered rows of each person are two rows."""
    assert session._planned(QUESTIONS[2]).question.relation.rows == 2
    assert session._planned(QUESTIONS[0]).question.relation.rows == ROWS


def windows(columns: str) -> str:
    """The first value over an order that leaves ties, which the columns decide one after the other."""
    joined = "(SELECT p, COUNT(*) AS n FROM t GROUP BY p) AS x JOIN t AS u ON x.p = u.p"
    rows = f"SELECT x.p AS p, {columns}, 0 AS z FROM {joined}"
    return f"SELECT p, FIRST_VALUE(g) OVER (PARTITION BY p ORDER BY z) AS f FROM ({rows}) AS y"


def test_windows_whose_ties_are_decided_by_other_columns_are_other_windows(session: Session) -> None:
    """Their forms were the same, so filters on both counted as disjoint, and one was replayed with the other's answer."""
    one, two = windows("u.g AS g, u.w AS w"), windows("u.w AS w, u.g AS g")
    low = f"SELECT p FROM ({one}) AS q WHERE f < 4"
    high = f"SELECT p FROM ({two}) AS q WHERE f >= 4"
    both = session._planned(f"SELECT COUNT(*) AS n FROM ({low} UNION ALL {high}) AS u").question.relation
    assert both.rows == 2 * ROWS
    same = f"SELECT p FROM ({one}) AS q WHERE f >= 4"
    again = session._planned(f"SELECT COUNT(*) AS n FROM ({low} UNION ALL {same}) AS u").question.relation
    assert again.rows == ROWS
    hashes = {
        session._planned(f"SELECT COUNT(*) AS n FROM ({each}) AS q WHERE f < 4").question.hash for each in (one, two)
    }
    assert len(hashes) == 2


def test_numbered_rows_asked_together_are_charged_one_by_one(session: Session) -> None:
    """A person has a first, a second and a third row: three questions with noise for one row each cost three times one.

    Questions about disjoint rows were charged once, which holds only if each has noise for all rows of a person.
    """
    numbered = "(SELECT p, v, ROW_NUMBER() OVER (PARTITION BY p ORDER BY g) AS r FROM t) AS w"
    few = [session._planned(f"SELECT COUNT(*) AS n FROM {numbered} WHERE r = {each}") for each in (1, 2, 3)]
    assert [each.question.relation.rows for each in few] == [1, 1, 1]
    assert batch_shares.parallel(few) == [(0,), (1,), (2,)]
    plain = [session._planned(f"SELECT COUNT(*) AS n FROM t WHERE g {each} 3") for each in ("<", "=", ">")]
    assert batch_shares.parallel(plain) == [(0, 1, 2)]


COLUMN = {"x": dn.Domain.integer(-3, 3), "y": dn.Domain.real(-1, 1), "b": dn.Domain.boolean(), "t": dn.Domain.text()}
VALUES: list[dict[str, object]] = [
    {"x": x, "y": y, "b": b, "t": t}
    for x in (None, -3, 0, 2, 3) for y in (None, -1.0, 0.5) for b in (None, True, False) for t in (None, "ax", "b")
]  # fmt: skip


def conditions() -> list[Expression]:
    plain = [
        *(col("x") > n for n in (-1, 0, 2)), col("x") <= 0, call("lt", 0, col("x")), col("y") >= 0.5, col("b"),
        col("x") > col("y"), call("like", col("t"), "a%"), call("in", col("x"), 0, 3), col("t").is_null(), col("x") + 1 > 3,
    ]  # fmt: skip
    return plain + [~each for each in plain] + [~(plain[0] & plain[6]), ~(plain[0] | plain[8])]


@pytest.mark.slow
def test_conditions_that_are_said_to_exclude_each_other_do() -> None:
    """All pairs of conditions, and random ones with AND, against all rows; nothing was proved of NOT before."""
    chance = random.Random(21)
    source = Source(Table.of("t", dn.Unit.person("p", rows=2), **COLUMN))
    columns = source.columns
    plain = [
        (each, frozenset(i for i, row in enumerate(VALUES) if typed(each, columns).value(row) is True))
        for each in conditions()
    ]
    pairs = list(combinations(plain, 2))
    both = [(a & b, met & also) for (a, met), (b, also) in chance.sample(pairs, 60)]
    pairs += [(one, two) for one in both[:20] for two in plain]
    proved = 0
    for (one, here), (two, there) in pairs:
        if exclusive(one, two, source):
            proved += 1
            assert not here & there, (one, two)
    assert proved > 50
    emptied = [met for each, met in both if empty(FilterRows(source, each))]
    assert emptied and not any(emptied)  # noqa: PT018  # some are proved, and none of them has rows


@pytest.mark.parametrize("condition", ["g > 3", "v = 1 AND g < 2", "g % 2 = 0", "g > w"])
def test_a_condition_and_its_negation_cost_as_much_as_one_part(session: Session, condition: str) -> None:
    question = union("WITH w AS (SELECT p, v, g, w FROM t) ", "v", [condition, f"NOT ({condition})"])
    planned = session._planned(question).question.relation.rows
    assert planned == (2 * ROWS if "AND" in condition else ROWS)  # of NOT (a AND b) nothing is proved
    assert session.sql(question, epsilon=10**4).rows[0][0] / PEOPLE <= planned
