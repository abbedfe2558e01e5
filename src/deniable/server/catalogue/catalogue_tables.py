"""Records that prevent a second budget: the server's identity, newest ledger entries, and traces of known people."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, final

from sqlalchemy import Column, Connection, Float, Integer, MetaData, String, Table, Text, delete, insert, select, update

METADATA: Final = MetaData()
"""All tables of the catalogue in their present form; `deniable.server.migrations` creates them."""

NAME: Final = 200

_SERVER: Final = Table(
    "curator_server",
    METADATA,
    Column("name", String(40), primary_key=True),
    Column("value", Text, nullable=False),
)
_HEADS: Final = Table(
    "curator_heads",
    METADATA,
    Column("family", String(NAME), primary_key=True),
    Column("serial", String(64), nullable=False),
    Column("number", Integer, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("signed", Integer, nullable=False),
)
"""The newest entry of each family's ledger that the catalogue knows, and the newest that was signed.

Serial number and hash are empty in records of an old version, which only knew the number of a release.
"""

SKETCHES: Final = Table(
    "curator_sketches",
    METADATA,
    Column("dataset", String(NAME), primary_key=True),
    Column("source", String(NAME), primary_key=True),
    Column("marks", Text, nullable=False),
)
PROFILES: Final = Table(
    "curator_profiles",
    METADATA,
    Column("dataset", String(NAME), primary_key=True),
    Column("source", String(NAME), primary_key=True),
    Column("text", Text, nullable=False),
)
OVERLAPS: Final = Table(
    "curator_overlaps",
    METADATA,
    Column("dataset", String(NAME), primary_key=True),
    Column("other", String(NAME), primary_key=True),
    Column("made", Float, nullable=False),
)
INTENTIONS: Final = Table(
    "curator_intentions",
    METADATA,
    Column("dataset", String(NAME), primary_key=True),
    Column("text", Text, nullable=False),
)
"""Unfinished registrations: stored before the ledger gets the name, deleted when the dataset is recorded."""


@final
class WitnessedHead(NamedTuple):
    """The newest known entry of a family's ledger; `signed` is the number of the newest signed one, 0 without any."""

    family: str
    serial: str
    number: int
    hash: str
    signed: int = 0


@final
class Guards:
    """Reads and writes the tables of this module. `begin` opens a transaction of the catalogue."""

    def __init__(self, begin: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._begin = begin

    # -- who the server is ---------------------------------------------------------------------------------------------

    def own(self) -> dict[str, str]:
        """The stored facts about the server itself, by name."""
        with self._begin() as connection:
            return {row.name: row.value for row in connection.execute(select(_SERVER)).all()}

    def keep(self, values: dict[str, str]) -> None:
        """Store facts about the server itself, in one transaction; facts of other names stay."""
        with self._begin() as connection:
            connection.execute(delete(_SERVER).where(_SERVER.c.name.in_(list(values))))
            connection.execute(insert(_SERVER), [{"name": name, "value": value} for name, value in values.items()])

    # -- how far ledgers were ------------------------------------------------------------------------------------------

    def head(self, family: str) -> WitnessedHead | None:
        """The newest known entry of a family's ledger; `Catalogue.add_releases` stores it."""
        with self._begin() as connection:
            row = connection.execute(select(_HEADS).where(_HEADS.c.family == family)).first()
        return None if row is None else WitnessedHead(*row)

    def signed(self, family: str, number: int) -> None:
        """Note that a signed checkpoint of this family exists outside of the catalogue."""
        with self._begin() as connection:
            connection.execute(update(_HEADS).where(_HEADS.c.family == family).values(signed=max(number, 1)))

    # -- registrations that have begun ---------------------------------------------------------------------------------

    def intentions(self) -> dict[str, str]:
        """The unfinished registrations: name of the dataset -> text of `intend`."""
        with self._begin() as connection:
            return {row.dataset: row.text for row in connection.execute(select(INTENTIONS)).all()}

    def intend(self, dataset: str, text: str) -> None:
        """Store that this dataset is about to be registered."""
        with self._begin() as connection:
            connection.execute(insert(INTENTIONS).values(dataset=dataset, text=text))

    def withdraw(self, dataset: str) -> None:
        """Delete that intention."""
        with self._begin() as connection:
            connection.execute(delete(INTENTIONS).where(INTENTIONS.c.dataset == dataset))

    # -- whose ids came ------------------------------------------------------------------------------------------------

    def sketches(self) -> dict[tuple[str, str], str]:
        """All sketches of ids: (dataset, table) -> text."""
        with self._begin() as connection:
            return {(row.dataset, row.source): row.marks for row in connection.execute(select(SKETCHES)).all()}

    def profiles(self) -> dict[tuple[str, str], str]:
        """All profiles: (dataset, table) -> text."""
        with self._begin() as connection:
            return {(row.dataset, row.source): row.text for row in connection.execute(select(PROFILES)).all()}

    def overlaps(self) -> list[tuple[str, str, float]]:
        """All overlapping pairs, newest first: the newer dataset, the older one, seconds since 1970."""
        with self._begin() as connection:
            rows = connection.execute(select(OVERLAPS).order_by(OVERLAPS.c.made.desc())).all()
        return [(row.dataset, row.other, row.made) for row in rows]
