"""One schema of entries: files of their own, older files that are brought up, and shared databases all have it."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from deniable.ledger import Budget, Ledger
from deniable.ledger.stores.entry_rows import COLUMNS
from deniable.ledger.stores.entry_schema import (
    ENTRY_COLUMNS,
    ENTRY_INDICES,
    sqlite_additions,
    sqlite_statements,
)
from deniable.units import Unit

ABOUT = {"budget": Budget.pure(epsilon=1), "unit": Unit.row(), "dataset": "visits"}
Columns = list[tuple[str, str, bool]]
Indices = dict[str, tuple[str, str, bool]]

# What versions before this schema wrote into their files, letter by letter.
WRITTEN = (
    """CREATE TABLE entries (
        number INTEGER PRIMARY KEY, time TEXT NOT NULL, state TEXT NOT NULL, question TEXT NOT NULL,
        units TEXT NOT NULL, delta_units TEXT NOT NULL, description TEXT NOT NULL, key TEXT, closes INTEGER,
        answer BLOB, code TEXT, spent_units TEXT NOT NULL, spent_delta_units TEXT NOT NULL,
        previous TEXT NOT NULL, hash TEXT NOT NULL)""",
    "CREATE UNIQUE INDEX closed_once ON entries (closes) WHERE closes IS NOT NULL",
    "CREATE UNIQUE INDEX keyed_once ON entries (key) WHERE key IS NOT NULL AND state = 'RESERVED'",
    "CREATE INDEX sealed ON entries (question, number) WHERE state = 'SEALED'",
    "CREATE TRIGGER never_edit BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
    "CREATE TRIGGER never_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
)
ADDED = (
    "ALTER TABLE entries ADD COLUMN payer TEXT",
    "ALTER TABLE entries ADD COLUMN account TEXT",
    "ALTER TABLE entries ADD COLUMN more TEXT",
    "CREATE INDEX paid ON entries (payer, time, number) WHERE payer IS NOT NULL AND state = 'RESERVED'",
    "CREATE INDEX about ON entries (account, number) WHERE account IS NOT NULL",
    "CREATE INDEX linked ON entries (number) WHERE state = 'LINKED'",
    "CREATE INDEX by_time ON entries (time, number)",
)


def found(
    connection: sqlite3.Connection, table: str = "entries", prefix: str = ""
) -> tuple[Columns, Indices, set[str]]:
    """Columns, indices and triggers as SQLite knows them."""
    columns = [
        (name, kind, not required and not key)
        for _, name, kind, required, _, key in connection.execute(f"PRAGMA table_info({table})")
    ]
    indices = {}
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name = ?"
    for name, sql in connection.execute(query, (table,)).fetchall():
        on, where = re.fullmatch(r".* ON \w+ \(([^)]*)\)(?: WHERE (.*))?", sql).groups()
        indices[name.removeprefix(prefix)] = (on.replace('"', ""), where or "", " UNIQUE " in sql)
    triggers = {row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'")}
    return columns, indices, triggers


def made(*statements: str) -> tuple[Columns, Indices, set[str]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for each in statements:
            connection.execute(each)
        return found(connection)


SCHEMA_COLUMNS = [(each.name, each.type.value, each.may_lack) for each in ENTRY_COLUMNS]
SCHEMA_INDICES = {each.name: (", ".join(each.columns), each.where or "", each.is_unique) for each in ENTRY_INDICES}


def test_files_have_the_tables_that_they_always_had() -> None:
    old = made(*WRITTEN, *ADDED)
    assert made(*sqlite_statements()) == old
    assert made(*WRITTEN, *sqlite_additions(1)) == old
    assert sqlite_additions(1) == ADDED
    assert sqlite_additions(2) == ()
    assert old[:2] == (SCHEMA_COLUMNS, SCHEMA_INDICES)
    assert tuple(each[0] for each in old[0]) == COLUMNS


def test_a_file_and_a_shared_database_keep_the_same_entries(tmp_path: Path) -> None:
    """Alembic's steps repeat the schema by themselves, because a released step is never edited."""
    pytest.importorskip("alembic")
    for place in (tmp_path / "ledger", f"sqlite:///{tmp_path}/ledgers.db"):
        Ledger.open(place, **ABOUT).close()
    with closing(sqlite3.connect(tmp_path / "ledger")) as connection:
        assert found(connection)[:2] == (SCHEMA_COLUMNS, SCHEMA_INDICES)
    with closing(sqlite3.connect(tmp_path / "ledgers.db")) as connection:
        columns, indices, _ = found(connection, "deniable_entries", "deniable_")
    assert columns[0][0] == "ledger"
    shared = {"BIGINT": "INTEGER"}
    assert [(name, shared.get(kind, kind), lacks) for name, kind, lacks in columns[1:]] == SCHEMA_COLUMNS
    leading = {name: (f"ledger, {on}", where, unique) for name, (on, where, unique) in SCHEMA_INDICES.items()}
    assert indices == leading
