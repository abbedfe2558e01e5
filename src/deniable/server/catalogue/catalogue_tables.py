"""What the catalogue keeps against a second budget: who the server is, how far ledgers were, who was in them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, final

from sqlalchemy import Column, Connection, Float, Integer, MetaData, String, Table, Text, delete, insert, select, update

METADATA: Final = MetaData()
"""All tables of the catalogue as they are now; `deniable.server.migrations` makes them."""

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
"""How far the ledger of each family was: the newest entry that the catalogue knows, and the newest that was signed.

Serial number and hash are empty where only the number of a release is known, from before there were heads.
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
"""Registrations of kin that have begun: written before the ledger gets the name, removed with the dataset's record."""


@final
class WitnessedHead(NamedTuple):
    """Where the ledger of a family ended."""

    family: str
    serial: str
    number: int
    hash: str
    signed: int = 0


@final
class Guards:
    """These records of a catalogue; `begin` gives a transaction of it."""

    def __init__(self, begin: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._begin = begin

    # -- who the server is ---------------------------------------------------------------------------------------------

    def own(self) -> dict[str, str]:
        """What is kept about the server itself."""
        with self._begin() as connection:
            return {row.name: row.value for row in connection.execute(select(_SERVER)).all()}

    def keep(self, values: dict[str, str]) -> None:
        """Keep this about the server itself: all of it, or nothing."""
        with self._begin() as connection:
            connection.execute(delete(_SERVER).where(_SERVER.c.name.in_(list(values))))
            connection.execute(insert(_SERVER), [{"name": name, "value": value} for name, value in values.items()])

    # -- how far ledgers were ------------------------------------------------------------------------------------------

    def head(self, family: str) -> WitnessedHead | None:
        """The newest entry that is known of a family's ledger; `Catalogue.add_releases` writes it."""
        with self._begin() as connection:
            row = connection.execute(select(_HEADS).where(_HEADS.c.family == family)).first()
        return None if row is None else WitnessedHead(*row)

    def signed(self, family: str, number: int) -> None:
        """That there is a signed checkpoint of this family, outside the catalogue."""
        with self._begin() as connection:
            connection.execute(update(_HEADS).where(_HEADS.c.family == family).values(signed=max(number, 1)))

    # -- registrations that have begun ---------------------------------------------------------------------------------

    def intentions(self) -> dict[str, str]:
        """Each, by the name of the dataset, as `intend` wrote it."""
        with self._begin() as connection:
            return {row.dataset: row.text for row in connection.execute(select(INTENTIONS)).all()}

    def intend(self, dataset: str, text: str) -> None:
        """That this dataset is about to be registered."""
        with self._begin() as connection:
            connection.execute(insert(INTENTIONS).values(dataset=dataset, text=text))

    def withdraw(self, dataset: str) -> None:
        """That it is not."""
        with self._begin() as connection:
            connection.execute(delete(INTENTIONS).where(INTENTIONS.c.dataset == dataset))

    # -- whose ids came ------------------------------------------------------------------------------------------------

    def sketches(self) -> dict[tuple[str, str], str]:
        """The sketch of each table of each dataset that has one."""
        with self._begin() as connection:
            return {(row.dataset, row.source): row.marks for row in connection.execute(select(SKETCHES)).all()}

    def profiles(self) -> dict[tuple[str, str], str]:
        """The profile of each table of each dataset that has one."""
        with self._begin() as connection:
            return {(row.dataset, row.source): row.text for row in connection.execute(select(PROFILES)).all()}

    def overlaps(self) -> list[tuple[str, str, float]]:
        """Every pair that was seen, newest first: the newer one, the older one, and when."""
        with self._begin() as connection:
            rows = connection.execute(select(OVERLAPS).order_by(OVERLAPS.c.made.desc())).all()
        return [(row.dataset, row.other, row.made) for row in rows]
