"""Dummy rows: a stand-in for a dataset, made from its public schema alone, to try questions free of charge.

They reveal nothing about the data: values are uniform within bounds and keys, and the same schema gives the same rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Any, Final

from deniable.tables.kinds import Domain, Kind, Scalar, end_of
from deniable.tables.schema import write_schema

if TYPE_CHECKING:
    from deniable.tables.schema import Table

ROWS: Final = 200
_FIRST: Final = dt.datetime(2000, 1, 1)
_DAYS: Final = frozenset({Kind.DATE, Kind.TIMESTAMP})
_WORDS: Final = ("alpha", "beta", "gamma", "delta", "epsilon")


def dummy_rows(tables: Mapping[str, Table], *, rows: int = ROWS) -> dict[str, list[dict[str, Any]]]:
    """`rows` rows for each table, as its schema allows.

    >>> from deniable.tables.schema import Table
    >>> from deniable.units import Unit
    >>> tables = {"t": Table.of("t", Unit.row(), ward=Domain.text("A", "B", nullable=False))}
    >>> sorted({row["ward"] for row in dummy_rows(tables)["t"]})
    ['A', 'B']
    """
    # Python's random numbers are enough: these rows are about nobody. Seeded, so that everybody sees the same rows.
    return {
        name: _table(table, rows, Random(sha256(write_schema({name: table}, form="json").encode()).digest()))
        for name, table in tables.items()
    }


def _table(table: Table, rows: int, random: Random) -> list[dict[str, Any]]:
    person = None if table.unit is None else table.unit.column
    made: list[dict[str, Any]] = []
    for _ in range(rows):
        row = {name: _cell(domain, random) for name, domain in table.columns}
        if person is not None:
            assert table.unit is not None
            people = max(2, rows // min(3, table.unit.rows))
            row[person] = random.randrange(1, people + 1)
        made.append(row)
    return made


def _cell(domain: Domain, random: Random) -> Scalar | None:
    if domain.nullable and random.random() < 0.05:
        return None
    if domain.keys is not None:
        return random.choice(domain.keys)
    if domain.kind in _DAYS:
        return _day(domain, random)
    low, high = (float(end) for end in domain.bounds) if domain.bounds is not None else (0.0, 100.0)
    match domain.kind:
        case Kind.BOOLEAN:
            return random.random() < 0.5
        case Kind.INTEGER:
            return random.randint(int(low), int(high))
        case Kind.REAL:
            return low + (high - low) * random.random()
        case Kind.TEXT:
            return random.choice(_WORDS)
    raise AssertionError(domain.kind)


def _day(domain: Domain, random: Random) -> dt.date:
    """A uniform date or timestamp within the bounds; without bounds, within 9,000 days from 2000 on."""
    if domain.bounds is None:
        low, high = _FIRST, _FIRST + dt.timedelta(days=9000)
    else:
        ends = (end_of(Kind.TIMESTAMP, end) for end in domain.bounds)
        low, high = (end for end in ends if isinstance(end, dt.datetime))
    if domain.kind is Kind.DATE:
        return (low + dt.timedelta(days=random.randint(0, (high - low).days))).date()
    return low + dt.timedelta(seconds=random.randint(0, int((high - low).total_seconds())))
