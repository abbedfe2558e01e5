"""Somebody who may write to the store, and drops its triggers, changes a row in the middle of the chain: no reading of
it gives the forged row out, whatever it is read for.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from deniable.errors import LedgerDamaged
from deniable.ledger import Budget, Ledger
from deniable.ledger.stores.entry_rows import COLUMNS, from_row
from deniable.units import Unit

BUDGET = Budget.pure(epsilon=1)
TENTH = BUDGET.cost(epsilon=0.1)
QUESTIONS = [sha256(str(number).encode()).hexdigest() for number in range(4)]
PLACES = ["file", "database", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres").database()
        return found
    return tmp_path / "ledger" if request.param == "file" else f"sqlite:///{tmp_path}/ledgers.db"


def opened(place: str | Path) -> Ledger:
    return Ledger.open(place, budget=BUDGET, unit=Unit.row(), dataset="visits")


def filled(place: str | Path) -> None:
    """1 granted, then (reserved, sealed) × 4 with the keys k0 to k3: entries 2 to 9,."""
    with opened(place) as ledger:
        ledger.grant("anna", BUDGET.limit, by="owner")
        for number, question in enumerate(QUESTIONS):
            entry = ledger.reserve(TENTH, question=question, description="how many", key=f"k{number}", payer="anna")
            ledger.seal(entry, b"%d" % number)


class Shell:
    """A shell on the tables of a place, without the triggers."""

    def __init__(self, place: str | Path) -> None:
        is_file = isinstance(place, Path)
        url = f"sqlite:///{place}" if is_file else str(place).replace("postgresql://", "postgresql+psycopg://")
        self.table = "entries" if is_file else "deniable_entries"
        self.engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        with self.engine.connect() as connection:
            if self.engine.dialect.name != "sqlite":
                connection.exec_driver_sql(f"ALTER TABLE {self.table} DISABLE TRIGGER ALL")
                return
            names = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'")
            for (name,) in names.all():
                connection.exec_driver_sql(f"DROP TRIGGER {name}")

    def row(self, number: int) -> tuple[Any, ...]:
        with self.engine.connect() as connection:
            rule = sa.text(f"SELECT {', '.join(COLUMNS)} FROM {self.table} WHERE number = :number")
            return tuple(connection.execute(rule, {"number": number}).one())

    def update(self, number: int, **values: object) -> None:
        with self.engine.connect() as connection:
            sets = ", ".join(f"{name} = :{name}" for name in values)
            connection.execute(sa.text(f"UPDATE {self.table} SET {sets} WHERE number = :at"), {**values, "at": number})

    def close(self) -> None:
        self.engine.dispose()


def forge(place: str | Path, number: int, values: dict[str, object], *, rehash: bool) -> None:
    """Change a row; with `rehash`, give it the hash that it must have then."""
    with closing(Shell(place)) as shell:
        before = from_row(shell.row(number))
        shell.update(number, **values)
        if rehash:
            shell.update(number, hash=replace(before, **values).digest())  # type: ignore[arg-type]


READS: dict[str, Callable[[Ledger], object]] = {
    "answer": lambda ledger: ledger.answer(QUESTIONS[1]),
    "replay": lambda ledger: ledger.replay(QUESTIONS[1], payer="anna"),
    "entry": lambda ledger: ledger.entry(5),
    "closing": lambda ledger: ledger.closing(4),
    "entries": lambda ledger: list(ledger.entries()),
    "reserve_or_replay": lambda ledger: ledger.reserve_or_replay(TENTH, question=QUESTIONS[1], description="how many"),
    "retry": lambda ledger: ledger.reserve(
        TENTH, question=QUESTIONS[1], description="how many", key="k1", payer="anna"
    ),
}
PAID: dict[str, Callable[[Ledger], object]] = {
    "replay": lambda ledger: ledger.replay(QUESTIONS[1], payer="anna"),
    "entry": lambda ledger: ledger.entry(4),
    "charge": lambda ledger: ledger.charge(2),
    "keyed": lambda ledger: ledger.keyed("k1"),
}


@pytest.mark.parametrize("rehash", [False, True], ids=["as it is", "with a new hash"])
@pytest.mark.parametrize("read", READS)
def test_a_forged_answer_in_the_middle_of_the_chain_was_given_out(place: str | Path, read: str, rehash: bool) -> None:
    filled(place)
    with opened(place) as ledger:  # a handle that has seen nothing
        forge(place, 5, {"answer": b"1000"}, rehash=rehash)
        with pytest.raises(LedgerDamaged):
            READS[read](ledger)


@pytest.mark.parametrize("read", READS)
def test_a_forged_answer_that_was_read_before_was_given_out(place: str | Path, read: str) -> None:
    """Also where the rows behind it follow the forgery: what this process has seen stays as it was."""
    filled(place)
    with opened(place) as ledger:
        READS[read](ledger)
        forge(place, 5, {"answer": b"1000"}, rehash=True)
        with closing(Shell(place)) as shell:
            forge(place, 6, {"previous": shell.row(5)[COLUMNS.index("hash")]}, rehash=True)
            forge(place, 7, {"previous": shell.row(6)[COLUMNS.index("hash")]}, rehash=False)
        with pytest.raises(LedgerDamaged):
            READS[read](ledger)


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("read", READS)
def test_a_forged_answer_that_some_rows_follow_was_given_out(place: str | Path, read: str, rows: int) -> None:
    """The hash was compared with what the next row says of it, and that row's own hash with nothing."""
    filled(place)
    with opened(place) as ledger:  # a handle that has seen nothing
        forge(place, 5, {"answer": b"1000"}, rehash=True)
        for number in range(6, 6 + rows):
            with closing(Shell(place)) as shell:
                link = shell.row(number - 1)[COLUMNS.index("hash")]
            forge(place, number, {"previous": link}, rehash=number < 5 + rows)
        with pytest.raises(LedgerDamaged):
            READS[read](ledger)


@pytest.mark.parametrize("first", [2, 9, 80])
def test_an_honest_ledger_longer_than_what_is_read_ahead(place: str | Path, first: int) -> None:
    with opened(place) as ledger:
        for number in range(60):
            ledger.seal(
                ledger.reserve(BUDGET.cost(epsilon=0.01), question=f"{number:064}", description="how many"), b"1"
            )
    with opened(place) as ledger:
        assert ledger.entry(first).number == first  # type: ignore[union-attr]
        assert [each.number for each in ledger.entries()] == list(range(1, 121))
        assert ledger.entry(120) == ledger.verify()


@pytest.mark.parametrize("rehash", [False, True], ids=["as it is", "with a new hash"])
@pytest.mark.parametrize("read", PAID)
def test_a_forged_charge_in_the_middle_of_the_chain_was_used(place: str | Path, read: str, rehash: bool) -> None:
    filled(place)
    with opened(place) as ledger:
        forge(place, 4, {"description": "nothing"}, rehash=rehash)
        with pytest.raises(LedgerDamaged):
            PAID[read](ledger)


def test_a_forged_limit_in_the_middle_of_the_chain_was_used(place: str | Path) -> None:
    filled(place)
    with opened(place) as ledger:
        forge(place, 1, {"description": "more"}, rehash=True)
        for read in (ledger.accounts, lambda: ledger.left("anna")):
            with pytest.raises(LedgerDamaged):
                read()


def test_any_field_of_any_entry(place: str | Path) -> None:
    """Random rows and columns: whatever reads the row says so, and what does not read it answers as before."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    filled(place)
    texts = ("time", "question", "description", "code", "previous", "hash")
    for _ in range(6):
        number, name = draw.randrange(1, 9), draw.choice(texts)
        with closing(Shell(place)) as shell:
            before = shell.row(number)[COLUMNS.index(name)]
            shell.update(number, **{name: "0" * 64})
            with opened(place) as ledger:
                with pytest.raises(LedgerDamaged):
                    ledger.entry(number)
                if number < 8:
                    assert ledger.answer(QUESTIONS[3]).answer == b"3"  # type: ignore[union-attr]
            shell.update(number, **{name: before})
    with opened(place) as ledger:
        ledger.verify()


def test_an_honest_history_is_read_by_every_door(place: str | Path) -> None:
    filled(place)
    for _ in range(2):
        with opened(place) as ledger:
            for read in (*READS.values(), *PAID.values()):
                assert read(ledger) is not None
            assert ledger.verify() == ledger.entry(9)


def test_a_damaged_row_left_a_cursor_open(place: str | Path, caplog: pytest.LogCaptureFixture) -> None:
    """The frames of an error that is kept held the cursor, which the driver then failed to close after its database."""
    filled(place)
    with opened(place) as ledger:
        forge(place, 5, {"answer": b"1000"}, rehash=False)
        with pytest.raises(LedgerDamaged) as kept:
            READS["reserve_or_replay"](ledger)
    del kept
    gc.collect()
    assert caplog.records == []
