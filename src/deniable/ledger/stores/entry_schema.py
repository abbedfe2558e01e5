"""The table of entries, once for all stores: its columns, its indices and the rule that nobody edits it.

A ledger in a file of its own (`sqlite_store`) and a shared database (`database_store`) keep the same columns and
indices. They differ in names and in one column: a shared table is called `deniable_entries`, its indices begin with
`deniable_`, and its first column says which ledger a row belongs to; that column also leads every index. Alembic's
steps in `migrations` have been released and repeat this schema as it was then; a test compares what they make with it.

`since` is the first version of the file format (`sqlite_store.VERSION`) with the column or index; an older file gets
the column or index when it is next opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, final

ABORT: Final = "a ledger is append-only"
"""The database's error message if somebody edits or deletes an entry."""


class ColumnType(Enum):
    """The type of a column. The value is SQLite's name for it."""

    INTEGER = "INTEGER"
    TEXT = "TEXT"
    BYTES = "BLOB"


@final
@dataclass(frozen=True, slots=True)
class EntryColumn:
    """A column of the table of entries."""

    name: str
    type: ColumnType = ColumnType.TEXT
    may_lack: bool = False
    """Whether it may be NULL."""
    since: int = 1

    def sqlite(self) -> str:
        """The definition of the column in SQLite. The number of an entry is the primary key of its row."""
        if self.name == "number":
            return f"number {self.type.value} PRIMARY KEY"
        return f"{self.name} {self.type.value}{'' if self.may_lack else ' NOT NULL'}"


@final
@dataclass(frozen=True, slots=True)
class EntryIndex:
    """An index of the table of entries, over the rows for which `where` holds."""

    name: str
    columns: tuple[str, ...]
    where: str | None = None
    is_unique: bool = False
    since: int = 1

    def sqlite(self) -> str:
        """The statement that makes the index in the SQLite file of one ledger."""
        unique, where = "UNIQUE " if self.is_unique else "", f" WHERE {self.where}" if self.where else ""
        return f"CREATE {unique}INDEX {self.name} ON entries ({', '.join(self.columns)}){where}"


ENTRY_COLUMNS: Final = (
    EntryColumn("number", ColumnType.INTEGER),
    *(EntryColumn(name) for name in ("time", "state", "question", "units", "delta_units", "description")),
    EntryColumn("key", may_lack=True),
    EntryColumn("closes", ColumnType.INTEGER, may_lack=True),
    EntryColumn("answer", ColumnType.BYTES, may_lack=True),
    EntryColumn("code", may_lack=True),
    *(EntryColumn(name) for name in ("spent_units", "spent_delta_units", "previous", "hash")),
    *(EntryColumn(name, may_lack=True, since=2) for name in ("payer", "account", "more")),
)
"""Amounts are decimal text, because they have up to 38 digits, more than an integer column can store. `payer` and
`account` are separate columns so that they can be indexed; `more` contains them too, in the form that was hashed."""

ENTRY_INDICES: Final = (
    EntryIndex("closed_once", ("closes",), "closes IS NOT NULL", is_unique=True),
    EntryIndex("keyed_once", ("key",), "key IS NOT NULL AND state = 'RESERVED'", is_unique=True),
    EntryIndex("sealed", ("question", "number"), "state = 'SEALED'"),
    EntryIndex("paid", ("payer", "time", "number"), "payer IS NOT NULL AND state = 'RESERVED'", since=2),
    EntryIndex("about", ("account", "number"), "account IS NOT NULL", since=2),
    EntryIndex("linked", ("number",), "state = 'LINKED'", since=2),
    EntryIndex("by_time", ("time", "number"), since=2),
)


def sqlite_statements() -> tuple[str, ...]:
    """The statements that make the table, its indices and its triggers in a new file."""
    columns = ", ".join(each.sqlite() for each in ENTRY_COLUMNS)
    return (
        f"CREATE TABLE entries ({columns})",
        *(each.sqlite() for each in ENTRY_INDICES),
        # The triggers prevent mistakes in a database shell. The hash chain reveals deliberate changes.
        f"CREATE TRIGGER never_edit BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, '{ABORT}'); END",
        f"CREATE TRIGGER never_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, '{ABORT}'); END",
    )


def sqlite_additions(version: int) -> tuple[str, ...]:
    """The statements that add the columns and indices that a file of this version lacks."""
    columns = [each.sqlite() for each in ENTRY_COLUMNS if each.since > version]
    indices = [each.sqlite() for each in ENTRY_INDICES if each.since > version]
    return (*(f"ALTER TABLE entries ADD COLUMN {each}" for each in columns), *indices)
