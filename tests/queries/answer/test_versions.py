"""One ledger, one choice of rows; another version of the data, another question."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable.errors import InvalidParameter
from deniable.ledger import Ledger
from deniable.queries.engines.duckdb import DuckDBEngine
from deniable.queries.engines.engine_process import Apart
from tests.wording import worded

BUDGET = dn.Budget.pure(epsilon=100)
UNIT = dn.Unit.person("patient_id", rows=2)
SCHEMA = {"x": dn.Domain.integer(0, 1000, nullable=False)}
COUNT = "SELECT COUNT(*) AS n FROM visits"
TOTAL = "SELECT SUM(x) AS total FROM visits"


def table(people: int, rows: int = 6, start: int = 0) -> pd.DataFrame:
    who = np.repeat(np.arange(start, start + people), rows)
    return pd.DataFrame({"patient_id": who, "x": (who * 7919 + np.tile(np.arange(rows), people) * 104729) % 1000})


def opened(source: Any, ledger: Any = None, **more: Any) -> dn.queries.Session:
    about = {"unit": UNIT, "budget": BUDGET, "schema": SCHEMA, "ledger": ledger} | more
    return dn.session({"visits": source}, **about)


def exact(session: dn.queries.Session, sql: str = TOTAL) -> int:
    """What the engine says before noise."""
    made = session._planned(sql)
    [(number, *_)] = session._engine.collect(made.collect).values()
    assert isinstance(number, int)
    return number


@pytest.mark.parametrize("place", ["file", "ledger", "url"])
def test_every_session_on_a_ledger_keeps_the_same_rows(tmp_path: Path, place: str) -> None:
    """Each session drew a secret of its own: the same file gave three truths, each with a tiny error."""
    where: Any = tmp_path / "ledger"
    if place == "url":
        where = f"sqlite:///{tmp_path}/ledgers.db"
    elif place == "ledger":
        where = Ledger.open(budget=BUDGET, unit=UNIT, dataset="visits")
    frame, found = table(300), []
    for _ in range(3):
        with opened(frame.sample(frac=1), where) as session:
            found.append((exact(session), session.registration["visits"].version))
    assert len(set(found)) == 1
    with opened(frame) as other:
        assert exact(other) != found[0][0]  # another ledger, another choice


def test_the_secret_of_a_ledger_is_in_no_export_and_no_repr(tmp_path: Path) -> None:
    with opened(table(5), tmp_path / "ledger") as session:
        session.sql(COUNT, epsilon=1)
        session.ledger.export(tmp_path / "export.jsonl")
        shown = repr(session) + repr(session.ledger) + repr(list(session.ledger.entries())) + str(session.tables)
        shown += repr(session.registration) + session.explain(COUNT)
        secret = session.ledger.secret_for("rows").hex()
    with closing(sqlite3.connect(tmp_path / "ledger")) as connection:
        [master] = connection.execute("SELECT value FROM own WHERE name = 'secret'").fetchone()
    for text in (shown, (tmp_path / "export.jsonl").read_text()):
        assert master not in text
        assert secret not in text


def test_a_refusal_still_leaves_no_account_behind(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter):
        opened(table(5).rename(columns={"x": "y"}), tmp_path / "ledger")
    assert not (tmp_path / "ledger").exists()


def test_a_changed_table_is_asked_anew_and_never_merged(tmp_path: Path) -> None:
    """Refining merged 1,631 with 2,777 to 2,204 ± 16, which is neither."""
    with opened(table(1000), tmp_path / "ledger") as session:
        first = session.sql(COUNT, epsilon=2)
        assert session.sql(COUNT, epsilon=1).receipt.replayed
    with opened(table(3000), tmp_path / "ledger") as session:
        with worded(InvalidParameter, parameter="answer"):
            session.refine(first, epsilon=2)
        spent = session.ledger.charged
        again = session.sql(COUNT, epsilon=1)
        assert not again.receipt.replayed
        assert session.ledger.charged != spent
        assert abs(again["n"][0] - 6000) < 300
        refined = session.refine(again, epsilon=2)
        assert abs(refined["n"][0] - 6000) < 200
        assert first.receipt.version != again.receipt.version == refined.receipt.version
        with worded(InvalidParameter, parameter="totals"):
            refined.adding_up_to(first)
    with opened(table(1000), tmp_path / "ledger") as session:  # the first table is back, and so is its answer
        assert session.sql(COUNT, epsilon=2).receipt.replayed
        assert session.sql(COUNT, epsilon=2)["n"] == first["n"]


def test_an_answer_of_another_ledger_is_never_merged() -> None:
    with opened(table(1000)) as one, opened(table(3000)) as other, pytest.raises(InvalidParameter, match="version"):
        other.refine(one.sql(COUNT, epsilon=1), epsilon=1)


def change(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    frame = frame.copy()
    if what == "a value":
        frame.loc[3, "x"] = (frame.loc[3, "x"] + 1) % 1000
    elif what == "a row less":
        return frame.iloc[1:]
    elif what == "a row twice":
        return pd.concat([frame, frame.iloc[:1]])
    elif what == "an id":
        frame.loc[0, "patient_id"] = 10**6
    elif what == "two values exchanged":
        frame.loc[[0, 7], "x"] = frame.loc[[7, 0], "x"].to_numpy()
    return frame


@pytest.mark.parametrize("what", ["a value", "a row less", "a row twice", "an id", "two values exchanged"])
@pytest.mark.parametrize("unit", [UNIT, dn.Unit.row()], ids=["person", "row"])
def test_whatever_changes_is_another_version(what: str, unit: dn.Unit) -> None:
    frame = table(50)
    schema = SCHEMA | {"patient_id": dn.Domain.integer()} if unit.column is None else SCHEMA
    ledger = Ledger.open(budget=BUDGET, unit=unit, dataset="visits")
    versions = []
    for each in (frame, frame.iloc[::-1], change(frame, what)):
        with opened(each, ledger, unit=unit, schema=schema) as session:
            versions.append(session.registration["visits"].version)
    assert versions[0] == versions[1] != versions[2]


def test_a_public_table_has_versions_as_well() -> None:
    ledger = Ledger.open(budget=BUDGET, unit=UNIT, dataset="visits")
    floors = pd.DataFrame({"x": range(1000), "floor": [i % 3 for i in range(1000)]})
    schema = {
        "visits": SCHEMA,
        "floors": {"x": SCHEMA["x"], "floor": dn.Domain.integer(keys=[0, 1, 2], nullable=False)},
    }
    joined = "SELECT floor, COUNT(*) AS n FROM visits JOIN floors ON visits.x = floors.x GROUP BY floor"
    told = []
    for each in (floors, floors.assign(floor=(floors["floor"] + 1) % 3)):
        with opened(table(100), ledger, schema=schema, public={"floors": each}) as session:
            told.append([session.sql(sql, epsilon=1).receipt.replayed for sql in (joined, COUNT, joined)])
    assert told == [[False, False, True], [False, True, True]]


def test_answers_from_before_there_were_versions_are_not_replayed(tmp_path: Path) -> None:
    """Nobody knows which table they are about."""
    with opened(table(100), tmp_path / "ledger") as session:
        made = session._planned(COUNT)
        old = session.ledger.reserve(BUDGET.cost(epsilon=1), question=made.question.hash, description="old")
        session.ledger.seal(old, session.sql(COUNT, epsilon=1).released.to_bytes())
        again = session.sql(COUNT, epsilon=1)
        assert again.receipt.entry != old.charge
        sealed = session.ledger.closing(old.number)
        told = session.recall(COUNT, entry=sealed)  # whoever names the entry may read it
        assert told is not None
        with worded(InvalidParameter, parameter="answer"):
            session.refine(told, epsilon=1)
        session.ledger.verify()


def test_versions_are_in_the_chain_and_in_exports(tmp_path: Path) -> None:
    with opened(table(100), tmp_path / "ledger") as session:
        session.batch([COUNT, TOTAL], epsilon=1)
        version = session.registration["visits"].version
        assert {each.version for each in session.ledger.entries()} == {version}
        session.ledger.export(tmp_path / "export.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "export.jsonl").read_text().splitlines()]
    assert [each["more"]["version"] for each in lines[1:-1]] == [version] * 4


def test_a_source_that_can_be_read_only_once() -> None:
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.dataset")
    ledger = Ledger.open(budget=BUDGET, unit=UNIT, dataset="visits")
    whole = pa.Table.from_pandas(table(100), preserve_index=False)
    versions = set()
    for source in (whole, whole.to_reader(), pa.dataset.dataset(whole)):
        with opened(source, ledger) as session:
            assert exact(session, COUNT) == 200
            versions.add(session.registration["visits"].version)
    assert len(versions) == 1


@pytest.mark.slow
def test_an_engine_in_another_process_tells_the_same_version() -> None:
    ledger = Ledger.open(budget=BUDGET, unit=UNIT, dataset="visits")
    with opened(table(100), ledger) as here, opened(table(100), ledger, engine=Apart(DuckDBEngine)) as apart:
        assert apart.registration == here.registration
        here.sql(COUNT, epsilon=1)
        assert apart.sql(COUNT, epsilon=1).receipt.replayed
