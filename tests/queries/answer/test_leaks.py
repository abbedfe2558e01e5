"""Everything an analyst sees, noise apart, is the same whether a person is there or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

import deniable as dn
from deniable.errors import DeniableError, QuestionRefused
from deniable.queries.session import Session
from deniable.tables.kinds import LONGEST
from tests.queries.hospital import GAUSSIAN, SCHEMA, opened, visits
from tests.wording import worded

VICTIM = 990_001_717
MARK = "victim-7171717"
QUESTIONS = (
    "SELECT COUNT(*) AS n FROM visits",
    "SELECT ward, COUNT(*) AS n, COUNT(stay) AS k FROM visits GROUP BY ward",
    "SELECT ward, sex, SUM(cost) AS c, AVG(cost) AS a, VAR_POP(cost) AS v, STDDEV(stay) AS d FROM visits GROUP BY ward, sex",
    "SELECT COUNT(DISTINCT patient_id) AS p, COUNT(DISTINCT town) AS t FROM visits",
    "SELECT MEDIAN(cost) AS m, QUANTILE(age, 0.9) AS q, MIN(stay) AS lo, MAX(cost) AS hi FROM visits",
    "SELECT FLOOR(age / 10) * 10 AS decade, COUNT(*) AS n FROM visits GROUP BY decade ORDER BY decade",
    "SELECT SUM(LEAST(GREATEST(1 / stay, 0), 1)) AS s, SUM(LEAST(GREATEST(SQRT(cost - 100), 0), 50)) AS r FROM visits",
    "SELECT SUM(LEAST(GREATEST(TRY_CAST(town AS INTEGER), 0), 10)) AS s FROM visits",
    "SELECT COUNT(*) AS n FROM visits WHERE town LIKE 'victim%'",
    "SELECT AVG(n) AS a FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id)",
    "SELECT ward, COUNT(*) AS n FROM (SELECT * FROM visits WHERE age < 30 UNION ALL SELECT * FROM visits WHERE age >= 30) GROUP BY ward",
    "SELECT COUNT(*) AS n FROM visits GROUP BY ward HAVING COUNT(*) > -1000000 LIMIT 2",
    "SELECT SUM(CASE WHEN town = 'victim-7171717' THEN age ELSE 0 END) AS s FROM visits",
)


def worlds() -> list[pd.DataFrame]:
    """Without a person; with one whose every cell is odd; with one who has more rows than are read."""
    common = visits()
    odd = {
        "patient_id": VICTIM, "ward": "A", "sex": "m", "age": 2**40, "stay": 0.0, "cost": float("inf"), "town": MARK,
    }  # fmt: skip
    more = [odd | {"cost": float("nan"), "ward": "nowhere"}, odd | {"cost": -1e308, "age": -(2**40), "stay": -5.0}]
    return [
        common,
        *(pd.concat([common, pd.DataFrame(rows)], ignore_index=True) for rows in ([odd], [odd, *more] * 40)),
    ]


@pytest.fixture(scope="module")
def sessions() -> Iterator[list[Session]]:
    found = [opened(table) for table in worlds()]
    yield found
    for s in found:
        s.close()


def seen(s: Session, text: str) -> Any:
    """What can be seen of a question but for noisy numbers: error, columns, keys, their order, kinds, price, text."""
    try:
        price = s.price(text, mu=1)
        answer = s.sql(text, mu=1)
    except DeniableError as error:
        return type(error), str(error), error.__dict__
    keys = [name for name in answer.columns if name in ("ward", "sex", "decade")]
    # A ratio of noisy numbers may be NULL where noise says so; everything else is always of one kind.
    kinds = [type(cell) for row in answer.rows for cell in row if cell is not None and not isinstance(cell, float)]
    return (
        answer.columns, len(answer), [answer[name] for name in keys], kinds, str(price), answer.receipt.cost,
        s.explain(text), answer.plan.question.hash,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("text", QUESTIONS)
def test_neighbours_look_alike(sessions: list[Session], text: str) -> None:
    first, *others = (seen(s, text) for s in sessions)
    assert all(each == first for each in others)
    assert not isinstance(first[0], type), first


REFUSED = (
    "SELECT * FROM visits",
    "SELECT town FROM visits",
    "SELECT patient_id, COUNT(*) FROM visits GROUP BY patient_id",
    "SELECT COUNT(*) FROM visits WHERE patient_id = 990001717",
    "SELECT SUM(town) FROM visits",
    "SELECT ANY_VALUE(town) FROM visits",
    "SELECT STRING_AGG(town, ',') FROM visits",
    "SELECT COUNT(*) FROM visits WHERE (SELECT town FROM visits) = 'x'",
    "SELECT COUNT(*) FROM visits WHERE error('BOOM ' || town)",
    "SELECT COUNT(*) FROM read_csv('/etc/passwd')",
    "PRAGMA storage_info('visits')",
    "SELECT COUNT(*) OVER () FROM visits",
    "SELECT COUNT(*) FROM visits TABLESAMPLE 10 PERCENT",
)


@pytest.mark.parametrize("text", REFUSED)
def test_refusals_know_nothing_of_the_data(sessions: list[Session], text: str) -> None:
    charged = [s.ledger.charged for s in sessions]
    first, *others = (seen(s, text) for s in sessions)
    assert isinstance(first[0], type)
    assert all(each == first for each in others)
    assert MARK not in first[1]
    assert [s.ledger.charged for s in sessions] == charged


def test_a_key_of_one_person_alone_is_not_shown(sessions: list[Session]) -> None:
    text = "SELECT town, COUNT(*) AS n FROM visits GROUP BY town"
    for s in sessions:
        for confidence in (0.9, 0.95, 0.99):
            answer = s.sql(text, mu=0.9 + confidence / 1000, confidence=confidence)
            assert MARK not in answer["town"]
            assert MARK not in str(answer)


def test_no_cell_value_is_in_the_ledger_a_repr_or_a_message(sessions: list[Session]) -> None:
    for s in sessions:
        said = [repr(s), str(s.remaining), repr(s.tables), repr(s.ledger)]
        said += [entry.description for entry in s.ledger.entries()]
        asked = sum(MARK in text for text in QUESTIONS) + sum(MARK in text for text in REFUSED)
        assert sum(MARK in each for each in said) <= 2 * asked  # only where the analyst wrote it
        assert not any(str(VICTIM) in each for each in said)


@pytest.mark.slow
@pytest.mark.parametrize(
    "column", ["patient_id", "ward", "sex", "age", "stay", "cost", "town"],
)  # fmt: skip
def test_a_column_of_odd_values_registers_as_any_other(column: str) -> None:
    common = visits(rows=200).astype(object)
    odd = common.copy()
    odd.loc[0, column] = f"{MARK}"
    found = []
    for table in (common, odd):
        try:
            with dn.session(
                {"visits": table.astype(str)}, unit=dn.Unit.person("patient_id", rows=3), budget=GAUSSIAN, schema=SCHEMA
            ) as s:
                found.append(seen(s, QUESTIONS[1]))
        except DeniableError as error:
            found.append(str(error))
    assert found[0] == found[1]
    assert MARK not in str(found)


def test_text_of_one_row_cannot_grow_until_the_engine_fails() -> None:
    """Four times as long in each of 4 steps: a megabyte for the one row that fits the condition, if nothing cut it.

    With more steps the question is too much work when it is written out, and refused.
    """
    steps = [f"a{i} AS (SELECT s || s || s || s AS s FROM a{i - 1})" for i in range(1, 5)]
    first = f"a0 AS (SELECT CASE WHEN town = 'Zug' THEN '{'x' * 5000}' ELSE '' END AS s FROM visits)"
    text = f"WITH {', '.join([first, *steps])} SELECT SUM(LEAST(LENGTH(s), 30000)) AS n FROM a4"
    table = visits()
    table.loc[0, ["patient_id", "town"]] = [-1, "Zug"]
    with opened(table) as s:
        one = s.price(text, mu=1)
        exact = s._engine.collect(one.plan.collect)
    assert exact == {(): (LONGEST,)}


def test_no_join_makes_many_rows_of_a_persons_few() -> None:
    """Rows of one person, joined with themselves: what they take in time would tell that the person is there."""
    unit = dn.Unit.person("patient_id", rows=20)
    with opened(unit=unit) as s:
        for copies, fits in ((3, True), (4, False)):
            tables = "visits a0" + "".join(f" JOIN visits a{i} USING (patient_id)" for i in range(1, copies))
            if fits:
                s.price(f"SELECT COUNT(*) AS n FROM {tables}", mu=1)
            else:
                with worded(QuestionRefused, code="join"):
                    s.price(f"SELECT COUNT(*) AS n FROM {tables}", mu=1)
