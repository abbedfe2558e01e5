"""Ledgers in shared databases: many in one, found by their data's names and families; damage, crashes, old clients."""

from __future__ import annotations

import pickle
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from deniable.errors import (
    BudgetExceeded,
    InvalidOperation,
    InvalidParameter,
    LedgerDamaged,
    LedgerMismatch,
    LedgerUnavailable,
    UnreadableRecord,
)
from deniable.ledger import Budget, Cost, Ledger, State
from deniable.ledger.stores import database_store
from deniable.units import Unit
from tests.postgres import Postgres
from tests.wording import worded

PURE = Budget.pure(epsilon=1)
TENTH = PURE.cost(epsilon=0.1)
ABOUT = {"budget": PURE, "unit": Unit.row()}


def question(number: int) -> str:
    return f"{number:064x}"


def ask(ledger: Ledger, cost: Cost = TENTH, number: int = 1) -> None:
    ledger.seal(ledger.reserve(cost, question=question(number), description="how many"), b"1")


@pytest.fixture(params=["database", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "database":
        return f"sqlite:///{tmp_path}/ledgers.db"
    return request.getfixturevalue("postgres").database()


@pytest.fixture
def tamper(url: str, request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Run a statement behind the ledger's back, as somebody who may do everything."""
    if url.startswith("sqlite"):

        def in_file(statement: str) -> None:
            connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
            connection.executescript(
                "DROP TRIGGER IF EXISTS deniable_never_update; DROP TRIGGER IF EXISTS deniable_never_delete;"
                + statement
            )
            connection.close()

        return in_file
    server: Postgres = request.getfixturevalue("postgres")
    return lambda statement: server.sql(f"ALTER TABLE deniable_entries DISABLE TRIGGER ALL; {statement}", url) and None


# --- many ledgers -----------------------------------------------------------------------------------------------------


def test_one_database_many_ledgers(url: str) -> None:
    with Ledger.open(url, **ABOUT, dataset="visits") as visits, Ledger.open(url, **ABOUT, dataset="bills") as bills:
        for _ in range(10):
            ask(visits)
        with pytest.raises(BudgetExceeded):
            ask(visits)
        assert (bills.charged, bills.answer(question(1)), list(bills.entries())) == (Cost(0), None, [])
        ask(bills)
        assert (visits.verify().number, bills.verify().number) == (20, 2)
        assert visits.serial != bills.serial
        assert url not in repr(visits) or url.startswith("sqlite")
    with Ledger.open(url, dataset="visits") as again:
        assert again.remaining == Cost(0)
    with worded(InvalidParameter, parameter="dataset"):
        Ledger.open(url)
    with worded(InvalidParameter, parameter="budget"):
        Ledger.open(url, dataset="nothing")
    with worded(LedgerMismatch, field="budget"):
        Ledger.open(url, budget=Budget.pure(epsilon=2), unit=Unit.row(), dataset="visits")


def test_data_of_a_family_goes_on_spending(url: str) -> None:
    about = {**ABOUT, "family": "hospital"}
    with Ledger.open(url, **about, dataset="visits") as ledger:
        ask(ledger, Cost(7 * TENTH.units))
    with Ledger.open(url, **about, dataset="visits 2") as ledger:
        assert (ledger.names, ledger.dataset, ledger.family) == (["visits", "visits 2"], "visits", "hospital")
        assert ledger.remaining == Cost(3 * TENTH.units)
        assert [each.state for each in ledger.entries()][-1] is State.LINKED
        ask(ledger)
        ledger.verify()
    for name in ("visits", "visits 2"):  # both names find it, and nothing is linked twice
        with Ledger.open(url, dataset=name) as ledger:
            assert ledger.verify().number == 5
            assert ledger.charged == Cost(8 * TENTH.units)
    with Ledger.open(url, family="hospital") as ledger:
        assert ledger.names == ["visits", "visits 2"]
    with pytest.raises(LedgerMismatch, match="family"):
        Ledger.open(url, **ABOUT, dataset="visits", family="another")
    with Ledger.open(url, **ABOUT, dataset="bills") as other:
        assert other.family == other.serial
    with Ledger.open(url, **ABOUT, dataset="bills 2", family=other.serial) as linked:
        assert linked.serial == other.serial
    with pytest.raises(LedgerMismatch, match="budget"):  # nor does a new name bring a new budget
        Ledger.open(url, budget=Budget.pure(epsilon=5), unit=Unit.row(), dataset="visits 3", family="hospital")
    with worded(InvalidParameter, parameter="budget"):
        Ledger.open(url, dataset="visits 3")


def test_a_family_in_a_file(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger", **ABOUT, dataset="visits", family="hospital") as ledger:
        ask(ledger)
    with pytest.raises(LedgerMismatch, match="dataset"):
        Ledger.open(tmp_path / "ledger", **ABOUT, dataset="other")
    for _ in range(2):
        with Ledger.open(tmp_path / "ledger", **ABOUT, dataset="other", family="hospital") as ledger:
            assert ledger.names == ["visits", "other"]
            assert ledger.verify().number == 3
    with pytest.raises(LedgerMismatch, match="family"):
        Ledger.open(tmp_path / "ledger", **ABOUT, dataset="visits", family="clinic")


def test_sixteen_who_make_the_same_ledger_at_once_make_one(url: str) -> None:
    opened: list[Ledger] = []
    barrier = threading.Barrier(16)

    def make() -> None:
        barrier.wait()
        opened.append(Ledger.open(url, **ABOUT, dataset="visits"))

    threads = [threading.Thread(target=make) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 16
    assert len({ledger.serial for ledger in opened}) == 1
    for ledger in opened:
        ledger.close()


def test_a_handle_can_be_pickled_and_closed(url: str) -> None:
    with Ledger.open(url, **ABOUT, dataset="visits") as ledger:
        ask(ledger)
        with pickle.loads(pickle.dumps(ledger)) as twin:
            assert twin.charged == TENTH
    with pytest.raises(InvalidOperation, match="closed"):
        ask(ledger)
    ledger.close()


# --- what is done to the tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("UPDATE deniable_entries SET description = 'other' WHERE number = 3", 3),
        ("UPDATE deniable_entries SET units = '1' WHERE number = 1", 1),
        ("UPDATE deniable_entries SET payer = 'x' WHERE number = 3", 3),
        ("UPDATE deniable_entries SET more = '{}' WHERE number = 3", 3),
        ("UPDATE deniable_entries SET more = '{\"name\":\"x\"}' WHERE number = 3", 3),
        ("DELETE FROM deniable_entries WHERE number = 2", 2),
        ("DELETE FROM deniable_entries WHERE number > 3", 4),
        ("UPDATE deniable_entries SET number = 9 WHERE number = 2; UPDATE deniable_entries SET number = 2 WHERE number = 3;"
         " UPDATE deniable_entries SET number = 3 WHERE number = 9", 2),
        ("UPDATE deniable_ledgers SET heading = replace(heading, '\"serial\":\"', '\"serial\":\"0')", 0),
        ("DELETE FROM deniable_names", None),
    ],
    ids=["flip", "cost", "payer", "more", "name", "delete", "truncate", "reorder", "heading", "names"],
)  # fmt: skip
def test_damage_is_named(url: str, tamper: Callable[[str], None], statement: str, number: int | None) -> None:
    with Ledger.open(url, **ABOUT, dataset="visits") as ledger:
        for each in range(3):
            ask(ledger, number=each)
        tamper(statement)
        if number == 0:
            ledger.close()
            ledger = Ledger.open(url, dataset="visits")
        with ledger, pytest.raises(LedgerDamaged) as found:
            ledger.verify()
    assert found.value.number == number


def test_the_database_itself_refuses_edits(url: str, request: pytest.FixtureRequest) -> None:
    with Ledger.open(url, **ABOUT, dataset="visits") as ledger:
        ask(ledger)
        for statement in ("UPDATE deniable_entries SET units = '0'", "DELETE FROM deniable_entries"):
            if url.startswith("sqlite"):
                connection = sqlite3.connect(url.removeprefix("sqlite:///"))
                with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                    connection.execute(statement)
                connection.close()
            else:
                with pytest.raises(Exception, match="append-only"):
                    request.getfixturevalue("postgres").sql(statement, url)
        ledger.verify()


def test_a_newer_revision_is_left_alone(url: str, tamper: Callable[[str], None]) -> None:
    Ledger.open(url, **ABOUT, dataset="visits").close()
    tamper("UPDATE deniable_ledger_version SET version_num = '9999'")
    with pytest.raises(UnreadableRecord, match="revision 9999, newer than"):  # the words have a URL of this run
        Ledger.open(url, **ABOUT, dataset="visits")


def test_the_newest_step_is_the_one_that_is_looked_for() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "deniable.ledger:migrations")
    assert ScriptDirectory.from_config(config).get_current_head() == database_store._REVISION


# --- places that are none ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    ["mysql://root:secret@host/d", "postgresql+psycopg2://h/d", "sqlite://", "http://secret@x", "sqlite:///:memory:"],
)
def test_a_url_of_something_else(place: str) -> None:
    with worded(InvalidParameter, parameter="place") as found:
        Ledger.open(place, **ABOUT, dataset="visits")
    assert "secret" not in str(found.value)


def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="cannot be reached") as found:  # the words have a URL of this run
        Ledger.open(f"postgresql://someone:secret@/d?host={tmp_path}", **ABOUT, dataset="visits")
    assert "secret" not in str(found.value)
    with pytest.raises(LedgerUnavailable):
        Ledger.open(f"sqlite:///{tmp_path}/no/where.db", **ABOUT, dataset="visits")
    with worded(InvalidParameter, parameter="budget"):
        Ledger.open(f"sqlite:///{tmp_path}/ledgers.db", dataset="visits")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("patient,ward\n" * 100)
    with worded(UnreadableRecord):
        Ledger.open(f"sqlite:///{tmp_path}/table.csv", **ABOUT, dataset="visits")
    assert (tmp_path / "table.csv").read_text() == "patient,ward\n" * 100


def test_a_database_file_that_was_replaced_is_not_written(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledgers.db"
    with Ledger.open(url, **ABOUT, dataset="visits") as ledger:
        (tmp_path / "ledgers.db").rename(tmp_path / "moved.db")
        with worded(LedgerUnavailable):
            ask(ledger)


def test_a_busy_ledger_says_so(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_store, "_PATIENCE", 0.3)
    with Ledger.open(url, **ABOUT, dataset="visits") as ledger, Ledger.open(url, **ABOUT, dataset="visits") as other:
        with other._store.writing():
            with pytest.raises(LedgerUnavailable, match="is busy"):
                ask(ledger)
            assert ledger.charged == Cost(0)  # reading goes on
        ask(ledger)


def test_importing_deniable_loads_no_database() -> None:
    code = "import deniable, deniable.ledger, deniable.cli, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"sqlalchemy", "alembic", "psycopg", "cryptography"} & set(loaded)


# --- Postgres alone ---------------------------------------------------------------------------------------------------


@pytest.mark.postgres
def test_a_crash_of_the_server_forgets_nothing(postgres: Postgres) -> None:
    url = postgres.database()
    with Ledger.open(url, **ABOUT, dataset="visits") as ledger:
        for number in range(4):
            ask(ledger, number=number)
        left_open = ledger.reserve(TENTH, question=question(9), description="open")
        before = list(ledger.entries())
        postgres.stop("immediate")
        try:
            with pytest.raises(LedgerUnavailable, match="cannot be reached"):  # the words have a URL of this run
                ask(ledger)
        finally:
            postgres.start()
        assert list(ledger.entries()) == before  # the same handle goes on
        ledger.seal(left_open, b"1")
        assert ledger.verify().number == 10


@pytest.mark.postgres
def test_commits_are_durable_even_where_somebody_switched_that_off(postgres: Postgres) -> None:
    url = postgres.database() + "%20-c%20synchronous_commit%3Doff"
    assert postgres.sql("SHOW synchronous_commit", url) == [("off",)]
    with Ledger.open(url, **ABOUT, dataset="visits") as ledger, ledger._store.writing() as transaction:
        assert transaction._connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


@pytest.mark.postgres
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_who_began_too_early_begins_again(postgres: Postgres, isolation: str) -> None:
    """Two handles, so two connections, in turns within each other's transactions."""
    url = postgres.database(isolation=isolation)
    budget = Budget.pure(epsilon=4)
    about = {"budget": budget, "unit": Unit.row(), "dataset": "visits"}
    handles = [Ledger.open(url, **about) for _ in range(4)]
    assert handles[0].charged == Cost(0)  # has read before it writes
    with handles[0]._store.writing() as transaction:
        assert transaction._connection.exec_driver_sql("SHOW transaction_isolation").scalar() == isolation
    granted: list[int] = []

    def spend(ledger: Ledger) -> None:
        try:
            while True:
                entry = ledger.reserve(TENTH, question=question(1), description="x")
                granted.append(ledger.seal(entry, b"").number)
        except BudgetExceeded:
            pass

    threads = [threading.Thread(target=spend, args=(handle,)) for handle in handles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == len(set(granted)) == 40
    assert handles[0].verify().number == 80
    for handle in handles:
        handle.close()


@pytest.mark.postgres
def test_a_reader_only_is_told_so(postgres: Postgres) -> None:
    url = postgres.database()
    with Ledger.open(url, **ABOUT, dataset="visits") as ledger:
        ask(ledger)
    with Ledger.open(url + "%20-c%20default_transaction_read_only%3Don", dataset="visits") as reader:
        assert reader.verify().number == 2
        with pytest.raises(LedgerUnavailable, match="cannot be opened for writing"):  # the words have a URL of this run
            ask(reader)
