"""Declared versions: one budget for all of them, and an answer for its own version alone."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable.errors import BudgetExceeded, InvalidParameter, LedgerDamaged, LedgerMismatch
from deniable.ledger import DeclaredVersion, Ledger, State
from tests.wording import worded

BUDGET = dn.Budget.pure(epsilon=100)
UNIT = dn.Unit.person("patient_id", rows=2)
WIDE = dn.Domain.integer(0, 2000)
SCHEMA = {
    "x": dn.Domain.integer(0, 1000),
    "day": dn.Domain.integer(0, 30),
    "ward": dn.Domain.text("A", "B"),
}
COUNT = "SELECT COUNT(*) AS n FROM visits"
TOTAL = "SELECT SUM(x) AS total FROM visits"
DAYS = "SELECT SUM(day) AS days FROM visits"
WARDS = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"


def table(people: int, rows: int = 6) -> pd.DataFrame:
    who = np.repeat(np.arange(people), rows)
    number = who * 7919 + np.tile(np.arange(rows), people) * 104729
    return pd.DataFrame(
        {"patient_id": who, "x": number % 1500, "day": number % 60, "ward": np.array(["A", "B", "C"])[number % 3]}
    )


def opened(source: Any, ledger: Any, **more: Any) -> dn.queries.Session:
    about = {"unit": UNIT, "budget": BUDGET, "schema": SCHEMA, "ledger": ledger} | more
    return dn.session({"visits": source}, **about)


def exact(session: dn.queries.Session, sql: str) -> int:
    [(number, *_)] = session._engine.collect(session._planned(sql).collect).values()
    assert isinstance(number, int)
    return number


# -- asking ----------------------------------------------------------------------------------------------------------


def test_an_answer_is_replayed_for_its_version_and_charged_for_another(tmp_path: Path) -> None:
    """Also if the data did not change: whether it did must not show in what is charged."""
    where = tmp_path / "ledger"
    with opened(table(100), where, version="1") as session:
        assert session.versions == {"visits": "1"}
        first = session.sql(COUNT, epsilon=1)
        assert session.sql(COUNT, epsilon=1).receipt.replayed
        assert first.receipt.version == "1"
        assert str(first.receipt).endswith("version 1")
    for source in (table(100), table(300)):
        name = f"with-{len(source)}"
        with opened(source, where, version=name) as session:
            before = session.ledger.charged
            again = session.sql(COUNT, epsilon=1)
            assert not again.receipt.replayed
            assert session.ledger.charged.units == before.units + BUDGET.cost(epsilon=1).units
            assert again.receipt.version == name
            told = session.recall(COUNT, version="1")
            assert told is not None
            assert (told["n"], told.receipt.version, told.receipt.replayed) == (first["n"], "1", True)
            assert session.ledger.charged.units == before.units + BUDGET.cost(epsilon=1).units
    with opened(table(100), where, version="1") as session:  # the owner opens an old version again
        assert session.sql(COUNT, epsilon=1)["n"] == first["n"]


def test_changed_data_is_never_served_under_an_old_version(tmp_path: Path) -> None:
    where = tmp_path / "ledger"
    with opened(table(100), where, version="1") as session:
        session.sql(COUNT, epsilon=1)
        entries = len(list(session.ledger.entries()))
    for source, version in [(table(101), "1"), (table(101), None), (table(100).iloc[1:], None)]:
        with worded(LedgerMismatch):
            opened(source, where, version=version)
    with opened(table(100), where) as session:  # without a name: the newest version
        assert session.versions == {"visits": "1"}
        assert session.sql(COUNT, epsilon=1).receipt.replayed
        assert len(list(session.ledger.entries())) == entries
        session.ledger.verify()


def test_all_versions_spend_from_one_budget(tmp_path: Path) -> None:
    budget = dn.Budget.pure(epsilon=1)
    for day in range(4):
        with opened(table(10 + day), tmp_path / "ledger", budget=budget, version=f"day-{day}") as session:
            session.sql(COUNT, epsilon=0.25)
    with opened(table(20), tmp_path / "ledger", budget=budget, version="day-4") as session:
        with pytest.raises(BudgetExceeded):
            session.sql(COUNT, epsilon=0.25)
        assert session.ledger.remaining.units == 0
        session.ledger.verify()


def test_versions_are_never_merged(tmp_path: Path) -> None:
    with opened(table(100), tmp_path / "ledger", version="1") as session:
        first = session.sql(COUNT, epsilon=1)
        wards = session.sql(WARDS, epsilon=1)
    with opened(table(100), tmp_path / "ledger", version="2") as session:
        with worded(InvalidParameter, parameter="answer"):
            session.refine(first, epsilon=1)
        told = session.recall(COUNT, version="1")
        assert told is not None
        with worded(InvalidParameter, parameter="answer"):
            session.refine(told, epsilon=1)
        with worded(InvalidParameter, parameter="totals"):
            session.sql(WARDS, epsilon=1).adding_up_to(first)
        spent = session.ledger.charged
        assert session.sql(COUNT, epsilon=2).receipt.cost.units > 0  # and not a sum of the other version's wards
        assert session.ledger.charged != spent
        assert wards.receipt.version == "1"


def test_fresh_asks_again_and_is_charged() -> None:
    ledger = Ledger.open(budget=BUDGET, unit=UNIT, dataset="visits")
    with opened(table(100), ledger, version="1") as session:
        session.sql(COUNT, epsilon=1)
        again = session.sql(COUNT, epsilon=1, fresh=True)
        assert not again.receipt.replayed
        assert ledger.charged.units == 2 * BUDGET.cost(epsilon=1).units
        keyed = session.sql(COUNT, epsilon=1, fresh=True, key="a")
        retried = session.sql(COUNT, epsilon=1, fresh=True, key="a")
        assert (retried["n"], retried.receipt.replayed) == (keyed["n"], True)
        assert ledger.charged.units == 3 * BUDGET.cost(epsilon=1).units
        with worded(InvalidParameter, parameter="fresh"):
            session.sql("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ROLLUP (ward)", epsilon=1, fresh=True)


@pytest.mark.parametrize("version", ["", " 1", "a b", "a/b", "x" * 101, "0" * 32, 7, b"1", "é"])
def test_names_of_versions(version: Any) -> None:
    with worded(InvalidParameter, parameter="version"):
        opened(table(3), None, version=version)


def test_versions_by_table() -> None:
    ledger = Ledger.open(budget=BUDGET, unit=UNIT, dataset="visits")
    people = pd.DataFrame({"patient_id": range(50), "age": [i % 90 for i in range(50)]})
    schema = {"visits": SCHEMA, "people": {"age": dn.Domain.integer(0, 120)}}
    both = "SELECT COUNT(*) AS n FROM visits JOIN people ON visits.patient_id = people.patient_id WHERE age > 40"
    unit = {"visits": UNIT, "people": dn.Unit.person("patient_id", rows=1)}

    def asked(visits: pd.DataFrame, version: dict[str, str]) -> list[tuple[bool, str | None]]:
        with dn.session(
            {"visits": visits, "people": people}, unit=unit, schema=schema, ledger=ledger, version=version
        ) as s:
            texts = (COUNT, "SELECT COUNT(*) AS n FROM people", both)
            receipts = [s.ask(text, epsilon=1).receipt for text in texts]
            return [(each.replayed, each.version) for each in receipts]

    assert asked(table(50), {"visits": "1", "people": "1"}) == [(False, "1")] * 3
    more = asked(table(60), {"visits": "2"})
    assert more == [(False, "2"), (True, "1"), (False, "people 1, visits 2")]
    with worded(InvalidParameter, parameter="version"):
        asked(table(60), {"wards": "2"})
    # `people` has other data than its version 1, so nothing is declared for `visits` either.
    changed, before = people.iloc[1:], ledger.versions()
    for sources in ({"visits": table(60), "people": changed}, {"people": changed, "visits": table(60)}):
        with worded(LedgerMismatch):
            dn.session(sources, unit=unit, schema=schema, ledger=ledger, version={"visits": "3", "people": "1"})
        assert ledger.versions() == before


# -- the schema changes ------------------------------------------------------------------------------------------------


def test_a_question_depends_on_the_columns_that_it_reads() -> None:
    """Widening one bound made every question of the table a new one."""
    ledger = Ledger.open(budget=BUDGET, unit=UNIT, dataset="visits")
    with opened(table(100), ledger, version="1") as session:
        old = {sql: exact(session, sql) for sql in (COUNT, TOTAL, DAYS)}
        for sql in (COUNT, TOTAL, DAYS, WARDS):
            session.sql(sql, epsilon=1)
    with opened(table(100), ledger, version="1", schema={**SCHEMA, "x": WIDE}) as session:
        # The same rows of each person are kept, whatever the bounds: brute force over all 600 rows of 100 people.
        assert (exact(session, COUNT), exact(session, DAYS)) == (old[COUNT], old[DAYS])
        assert exact(session, TOTAL) > old[TOTAL]
        told = {sql: session.ask(sql, epsilon=1).receipt.replayed for sql in (COUNT, DAYS, WARDS, TOTAL)}
        assert told == {COUNT: True, DAYS: True, WARDS: True, TOTAL: False}


def test_a_column_that_drops_rows_is_part_of_every_question() -> None:
    ledger = Ledger.open(budget=BUDGET, unit=UNIT, dataset="visits")
    strict = {**SCHEMA, "ward": dn.Domain.text("A", "B", nullable=False)}
    wider = {**SCHEMA, "ward": dn.Domain.text("A", "B", "C", nullable=False)}
    counts = []
    for schema in (strict, wider, SCHEMA):
        with opened(table(100, rows=2), ledger, version="1", schema=schema) as session:
            assert not session.sql(COUNT, epsilon=1).receipt.replayed
            counts.append(exact(session, COUNT))
    frame = table(100, rows=2)
    assert counts == [int((frame["ward"] != "C").sum()), 200, 200]


def test_a_new_column_is_a_new_version_and_old_answers_are_read_with_the_old_schema() -> None:
    ledger = Ledger.open(budget=BUDGET, unit=UNIT, dataset="visits")
    with opened(table(100), ledger, version="1") as session:
        first = session.sql(TOTAL, epsilon=1)
    grown = table(100).assign(age=30)
    schema = {**SCHEMA, "x": WIDE, "age": dn.Domain.integer(0, 120)}
    with pytest.raises(LedgerMismatch):
        opened(grown, ledger, version="1", schema=schema)
    with opened(grown, ledger, version="2", schema=schema) as session:
        told = session.recall(TOTAL, version="1")
        assert told is not None
        assert told["total"] == first["total"]
        assert session.recall(TOTAL) is None
        assert session.recall("SELECT SUM(age) AS a FROM visits", version="1") is None
        with worded(InvalidParameter, parameter="version"):
            session.recall(TOTAL, version="3")


# -- what neighbours show ----------------------------------------------------------------------------------------------


def seen(history: list[pd.DataFrame], ledger: Ledger) -> list[Any]:
    """Everything but noise that an analyst and a reader of the exported chain see over a history of versions."""
    told: list[Any] = []
    for number, frame in enumerate(history):
        with opened(frame, ledger, version=f"v{number}") as session:
            for sql in (COUNT, WARDS, COUNT):
                answer = session.ask(sql, epsilon=0.5)
                told.append((str(answer.receipt), answer.receipt.question, answer.receipt.rest))
            told.append(session.recall(COUNT, version="v0") is None)
            told.append((session.versions, repr(session), str(session.tables)))
    for entry in ledger.entries():
        told.append((entry.state, entry.description, entry.cost, entry.version, entry.charges))
    return told


def test_neighbouring_histories_show_the_same_versions() -> None:
    """In one history nothing changes; in the other one a person comes, changes and goes."""
    still, people = table(30), table(31)
    changed = people.assign(x=np.where(people["patient_id"] == 30, 7, people["x"]))
    same, other = [still] * 4, [still, people, changed, still]
    results = []
    for history in (same, other):
        ledger = Ledger.open(budget=BUDGET, unit=UNIT, dataset="visits", secret=b"s" * 32)
        found = seen(history, ledger)
        results.append([part.replace(ledger.serial, "") if isinstance(part, str) else part for part in found])
        contents = [each.content for each in ledger.versions()]
        assert len(set(contents)) == 4  # equal data is not recognisable either
    assert len(results[0]) == len(results[1])
    for one, two in zip(*results, strict=True):
        assert one == two


def test_the_rows_of_others_stay_when_one_person_changes_between_versions() -> None:
    """Brute force: for every person, the kept rows of all others are the same in both versions."""
    ledger = Ledger.open(budget=BUDGET, unit=UNIT, dataset="visits")
    frame = table(12)

    def kept(source: pd.DataFrame) -> set[tuple[Any, ...]]:
        with opened(source, ledger) as session:
            place = session._engine._tables["visits"].location.sql("duckdb")  # type: ignore[attr-defined]
            return set(session._engine._connection.execute(f"SELECT * FROM {place}").fetchall())  # type: ignore[attr-defined]

    whole = kept(frame)
    for person in range(12):
        without = kept(frame[frame["patient_id"] != person])
        assert {row for row in whole if row[0] != person} == without


def test_the_chain_of_versions_is_verified(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger", budget=BUDGET, unit=UNIT, dataset="visits") as ledger:
        given = DeclaredVersion(table="visits", version="1", content="0" * 64)
        ledger.declare(given)
        ledger.declare(given)  # nothing is written twice
        assert [each.state for each in ledger.entries()] == [State.DECLARED]
        assert ledger.versions() == ledger.versions("visits") == [given]
        assert ledger.versions("other") == []
        with pytest.raises(LedgerMismatch):
            ledger.declare(DeclaredVersion(table="visits", version="1", content="1" * 64))
        assert ledger.charged.units == 0
        ledger.verify()
        with worded(InvalidParameter, parameter="account"):
            ledger.grant("#versions", BUDGET.cost(epsilon=1), by="owner")
        spent = ledger.charged
        ledger._store.write(
            lambda each: each.append(state=State.DECLARED, description="again", spent=spent, declared=given)
        )
        with pytest.raises(LedgerDamaged, match="declared before"):
            ledger.verify()


# -- a ledger of people ------------------------------------------------------------------------------------------------


def test_other_tables_of_the_same_people_share_the_budget(tmp_path: Path) -> None:
    """Another table, other rows or a renamed id were refused; the advice led to a second ledger for the same people."""
    where, budget = tmp_path / "people.ledger", dn.Budget.pure(epsilon=1)
    with opened(table(50), where, budget=budget) as session:
        session.sql(COUNT, epsilon=0.5)
    renamed = table(50).rename(columns={"patient_id": "who"})
    unit = dn.Unit.person("who", rows=5)
    with dn.session({"journeys": renamed}, unit=unit, schema=SCHEMA, budget=budget, ledger=where) as session:
        assert session.unit == unit
        answer = session.sql("SELECT COUNT(*) AS n FROM journeys", epsilon=0.25)
        assert answer.guarantee.unit == unit
        # The noise follows from this table's own bound: Laplace of scale rows/epsilon on integers, in closed form.
        scale, tail = Fraction(5) / Fraction(1, 4), np.exp(-1 / 20)
        assert scale == 20
        assert answer.released.deviation(answer.plan, budget, 0) == pytest.approx(np.sqrt(2 * tail) / (1 - tail))
        assert session.ledger.names == ["visits", "journeys"]
        with pytest.raises(BudgetExceeded):
            session.sql("SELECT SUM(x) AS n FROM journeys", epsilon=0.5)
        session.ledger.verify()
    with opened(table(50), where, budget=budget, unit=dn.Unit.person("patient_id", rows=3)) as session:
        assert not session.sql(COUNT, epsilon=0.25).receipt.replayed  # another bound, another question
        assert session.ledger.remaining.units == 0


@pytest.mark.parametrize(
    "unit", [dn.Unit.row(), dn.Unit.replaced_person("patient_id", rows=2), dn.Unit.replaced_row()], ids=str
)
def test_a_ledger_of_people_is_not_one_of_rows_nor_of_replaced_people(tmp_path: Path, unit: dn.Unit) -> None:
    where = tmp_path / "ledger"
    opened(table(5), where).close()
    with pytest.raises(LedgerMismatch, match="unit"):
        opened(table(5), where, unit=unit)
