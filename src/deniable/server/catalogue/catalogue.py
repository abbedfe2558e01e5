"""What the server knows besides the ledgers: people, tokens, datasets, grants, requests and releases.

What is left of a budget is for the ledgers to say. What is kept here sees to it that the same people get no second one:
see `guards`. A record is never removed, only closed, so that nobody gets a fresh start by being made anew.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    create_engine,
    delete,
    event,
    false,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, IntegrityError

from deniable.errors import InvalidParameter, LedgerUnavailable, MissingExtra, UnreadableRecord
from deniable.ledger import migrations
from deniable.server.catalogue.catalogue_tables import INTENTIONS, OVERLAPS, PROFILES, SKETCHES, Guards, WitnessedHead
from deniable.server.catalogue.catalogue_tables import METADATA as _METADATA
from deniable.server.catalogue.catalogue_tables import NAME as _NAME
from deniable.server.catalogue.fast_statements import AWAY, Quick, unreachable
from deniable.server.catalogue.kept_requests import Requests
from deniable.server.catalogue.people import People, Person, TokenRecord
from deniable.server.operations.file_locks import exclusive
from deniable.server.problems import Problem

__all__ = ["Catalogue", "DatasetRecord", "Person", "ReleaseRecord", "TokenRecord"]

_REVISION: Final = "0008"
_VERSION_TABLE: Final = "curator_version"
_REGISTERING: Final = 0x64656E79_01
"""Names the lock of those who register, in a database that others use as well."""
_WRITING: Final = 0x64656E79_02

_DATASETS: Final = Table(
    "curator_datasets",
    _METADATA,
    Column("name", String(_NAME), primary_key=True),
    Column("owner", String(_NAME), nullable=False),
    Column("sources", Text, nullable=False),
    Column("contents", Text, nullable=False),
    Column("schema", Text, nullable=False),
    Column("budget", Text, nullable=False),
    Column("family", String(_NAME), nullable=False, index=True),
    Column("made", Float, nullable=False),
    Column("form", Integer, nullable=False, server_default="0"),
)
_SCHEMAS: Final = Table(
    "curator_schemas",
    _METADATA,
    Column("dataset", String(_NAME), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("schema", Text, nullable=False),
)
_MARKS: Final = Table(
    "curator_marks",
    _METADATA,
    Column("family", String(_NAME), primary_key=True),
    Column("mark", String(64), primary_key=True, index=True),
)
_GRANTS: Final = Table(
    "curator_grants",
    _METADATA,
    Column("person", String(_NAME), primary_key=True),
    Column("dataset", String(_NAME), primary_key=True),
    Column("active", Boolean, nullable=False),
    Column("terms", Text, nullable=False),
    Column("made", Float, nullable=False),
)
_REQUESTS: Final = Table(
    "curator_requests",
    _METADATA,
    Column("person", String(_NAME), primary_key=True),
    Column("key", String(_NAME), primary_key=True),
    Column("body", String(64), nullable=False),
    Column("status", Integer),
    Column("response", LargeBinary),
    Column("made", Float, nullable=False),
)
_RELEASES: Final = Table(
    "curator_releases",
    _METADATA,
    Column("dataset", String(_NAME), primary_key=True),
    Column("entry", Integer, primary_key=True),
    Column("person", String(_NAME), nullable=False),
    Column("question", Text, nullable=False),
    Column("confidence", Float, nullable=False),
    Column("made", Float, nullable=False),
    Index("ix_curator_releases_own", "dataset", "person", "entry"),
)


# Run for every question, so it is written out and goes to the driver: see `server.catalogue.fast_statements`.
_NOTE: Final = """
    INSERT INTO curator_releases (dataset, entry, person, question, confidence, made)
    VALUES ({dataset}, {entry}, {person}, {question}, {confidence}, {made}) ON CONFLICT DO NOTHING"""

_HEAD: Final = """
    INSERT INTO curator_heads (family, serial, number, hash, signed)
    VALUES ({family}, {serial}, {number}, {hash}, {signed})
    ON CONFLICT (family) DO UPDATE SET serial = excluded.serial, number = excluded.number, hash = excluded.hash
    WHERE curator_heads.number < excluded.number"""


@final
@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """A dataset as its owner registered it."""

    name: str
    owner: str
    sources: dict[str, str]
    contents: dict[str, str]
    """The SHA-256 of each source as it was registered."""
    schema: str
    budget: dict[str, Any]
    family: str
    made: float
    form: int = 0
    """In which form cells and ids are in its marks; 0 is from before there was one form for both."""


@final
@dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """Which question an entry of a ledger answered."""

    dataset: str
    entry: int
    person: str
    question: str
    confidence: float
    made: float


@final
class Catalogue(People):
    """The records, in SQLite or in a shared database. Threads and processes may share it."""

    def __init__(self, place: Path | str) -> None:
        self._file = place if isinstance(place, Path) else None
        if isinstance(place, Path):
            place.parent.mkdir(parents=True, exist_ok=True)
            url = f"sqlite:///{place}"
            self._engine, quick = _sqlite(url, "FULL"), _sqlite(url, "NORMAL")
        else:
            url = place.replace("postgresql://", "postgresql+psycopg://", 1)
            try:
                self._engine = quick = create_engine(
                    url, pool_pre_ping=True, connect_args={"connect_timeout": 10}, isolation_level="READ COMMITTED"
                )
            except ImportError as error:
                raise MissingExtra(error.name or "psycopg", "postgres") from None
            except (ArgumentError, ValueError):  # its words may hold the password
                rule = "is no address of a Postgres database"
                raise InvalidParameter("database", "...", rule, "write postgresql://user@host:5432/name") from None
        self._quick = Quick(quick)
        self.requests = Requests(self._quick)
        self.guards = Guards(lambda: _kept(self._engine.begin))
        try:
            self._prepare()
        except AWAY:
            kept = "its file in the folder `state`" if self._file is not None else "the database of the settings"
            remedy = "see that it is there, runs, and may be written to"
            raise LedgerUnavailable(f"{kept} cannot be reached, and the catalogue is in it", remedy) from None
        except DatabaseError:
            if self._file is None:
                raise
            what = f"{self._file.name} in the folder `state` is no catalogue, or a damaged one"
            raise UnreadableRecord(f"{what}; it was not touched: restore it from a copy") from None

    def _prepare(self) -> None:
        """See to it that the tables are there, and up to date."""
        with self._engine.connect() as connection:
            found = migrations.revision(connection, _VERSION_TABLE)
        if found is not None and found > _REVISION:
            rule = f"the catalogue has revision {found}, newer than {_REVISION}"
            raise UnreadableRecord(f"{rule}; update deniable to open it")
        if found == _REVISION:
            return
        with self.registering(), self._engine.begin() as connection:  # one process at a time: several may start at once
            if self._file is not None:
                connection.exec_driver_sql("BEGIN IMMEDIATE")  # all steps or none, also if this process is killed
            migrations.upgrade(connection, steps="deniable.server:migrations", version_table=_VERSION_TABLE)

    @property
    def file(self) -> Path | None:
        """Where it lies; None in a shared database."""
        return self._file

    def close(self) -> None:
        """Let go of every connection."""
        self._engine.dispose()
        self._quick.close()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read with."""
        with _kept(self._engine.connect) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction of one writer at a time, in all processes: the log of people is a chain."""
        with _kept(self._engine.begin) as connection:
            if self._file is None:
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _WRITING})
            else:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection

    # -- datasets and grants -------------------------------------------------------------------------------------------

    @contextmanager
    def registering(self) -> Iterator[None]:
        """One at a time, in all processes: between looking for kin and adding a dataset nobody else adds one."""
        if self._file is None:
            with _kept(self._engine.begin) as connection:
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _REGISTERING})
                yield
            return
        with exclusive(self._file.with_suffix(".lock")):
            yield

    def add_dataset(
        self,
        record: DatasetRecord,
        marks: set[str],
        sketches: dict[str, str] | None = None,
        profiles: dict[str, str] | None = None,
        overlaps: Iterable[str] = (),
    ) -> None:
        """Register a dataset, and take back the intention to; `marks` are what its family is known by, `sketches` of
        which ids its tables have, `profiles` of their rows, `overlaps` the datasets of other owners that have many of
        either.
        """
        values = {
            "name": record.name,
            "owner": record.owner,
            "sources": json.dumps(record.sources),
            "contents": json.dumps(record.contents),
            "schema": record.schema,
            "budget": json.dumps(record.budget),
            "family": record.family,
            "made": record.made,
            "form": record.form,
        }
        try:
            with _kept(self._engine.begin) as connection:
                connection.execute(insert(_DATASETS).values(**values))
                _add_marks(connection, record, marks, sketches or {}, profiles or {})
                for other in sorted(overlaps):
                    connection.execute(insert(OVERLAPS).values(dataset=record.name, other=other, made=record.made))
                connection.execute(delete(INTENTIONS).where(INTENTIONS.c.dataset == record.name))
        except IntegrityError:
            raise Problem("exists", f"there is a dataset {record.name!r} already") from None

    def renew(
        self, record: DatasetRecord, marks: set[str], sketches: dict[str, str], profiles: dict[str, str], form: int
    ) -> None:
        """Further marks of a dataset, and its sketches and profiles, in another form."""
        with _kept(self._engine.begin) as connection:
            for table in (SKETCHES, PROFILES):
                here = (table.c.dataset == record.name) & table.c.source.in_(list(sketches))
                connection.execute(delete(table).where(here))
            _add_marks(connection, record, marks, sketches, profiles)
            connection.execute(update(_DATASETS).where(_DATASETS.c.name == record.name).values(form=form))

    def dataset(self, name: str) -> DatasetRecord | None:
        """The dataset of this name."""
        with _kept(self._engine.connect) as connection:
            row = connection.execute(select(_DATASETS).where(_DATASETS.c.name == name)).first()
        return None if row is None else _dataset(row)

    def redeclare(self, name: str, schema: str, *, instead_of: str) -> bool:
        """Other things are public about a dataset from now on; the old schema is kept. False if it was another one."""
        with _kept(self._engine.begin) as connection:
            here = (_DATASETS.c.name == name) & (_DATASETS.c.schema == instead_of)
            if not connection.execute(update(_DATASETS).where(here).values(schema=schema)).rowcount:
                return False
            many = connection.execute(select(func.count()).where(_SCHEMAS.c.dataset == name)).scalar_one()
            connection.execute(insert(_SCHEMAS).values(dataset=name, number=many + 1, schema=instead_of))
        return True

    def earlier(self, name: str) -> list[str]:
        """The schemas that a dataset had before, newest first."""
        asked = select(_SCHEMAS.c.schema).where(_SCHEMAS.c.dataset == name).order_by(_SCHEMAS.c.number.desc())
        with _kept(self._engine.connect) as connection:
            return [row.schema for row in connection.execute(asked).all()]

    def datasets(self) -> list[DatasetRecord]:
        """Every dataset, by name."""
        with _kept(self._engine.connect) as connection:
            return [_dataset(row) for row in connection.execute(select(_DATASETS).order_by(_DATASETS.c.name)).all()]

    def marked(self, marks: set[str]) -> dict[str, set[str]]:
        """The families that share marks with these, and which."""
        found: dict[str, set[str]] = {}
        listed = sorted(marks)
        with _kept(self._engine.connect) as connection:
            for start in range(0, len(listed), 500):
                part = listed[start : start + 500]
                for row in connection.execute(select(_MARKS).where(_MARKS.c.mark.in_(part))).all():
                    found.setdefault(row.family, set()).add(row.mark)
        return found

    def grant(self, person: str, dataset: str) -> None:
        """That somebody may ask about a dataset, from now on. How much they may spend is in the ledger alone."""
        here = (_GRANTS.c.person == person) & (_GRANTS.c.dataset == dataset)
        values = {"active": True, "terms": "{}", "made": time.time()}
        with _kept(self._engine.begin) as connection:
            if not connection.execute(update(_GRANTS).where(here).values(**values)).rowcount:
                connection.execute(insert(_GRANTS).values(person=person, dataset=dataset, **values))

    def revoke_grants(self, person: str, datasets: list[str]) -> None:
        """That they may not any more, about any of these. What they spent stays spent."""
        here = (_GRANTS.c.person == person) & _GRANTS.c.dataset.in_(datasets) & _GRANTS.c.active
        with _kept(self._engine.begin) as connection:
            if not connection.execute(update(_GRANTS).where(here).values(active=False)).rowcount:
                raise Problem("not_found", f"{person!r} has no grant for {' or '.join(map(repr, datasets))}")

    def granted(self, person: str, dataset: str) -> bool:
        """Whether they may."""
        here = (_GRANTS.c.person == person) & (_GRANTS.c.dataset == dataset) & _GRANTS.c.active
        with _kept(self._engine.connect) as connection:
            return connection.execute(select(_GRANTS.c.person).where(here)).first() is not None

    def grants(self, dataset: str) -> list[str]:
        """Who may ask about a dataset."""
        asked = select(_GRANTS.c.person).where(_GRANTS.c.active, _GRANTS.c.dataset == dataset)
        with _kept(self._engine.connect) as connection:
            return [row.person for row in connection.execute(asked.order_by(_GRANTS.c.person)).all()]

    # -- releases ------------------------------------------------------------------------------------------------------
    # Written for every question, by the quick way: after a power cut the newest may be missing; the ledger has all.

    def add_releases(self, records: list[ReleaseRecord], head: WitnessedHead) -> None:
        """Note which questions these entries answered, and how far their ledger is: what is known of both stays."""
        with self._quick.cursor() as run:
            for record in records:
                run(_NOTE, {name: getattr(record, name) for name in record.__slots__})
            run(_HEAD, head._asdict())

    def note_again(self, dataset: str, entry: int, question: str, *, instead_of: str) -> None:
        """Say something else about a release; Problem `not_found` if the note was another one."""
        here = (_RELEASES.c.dataset == dataset) & (_RELEASES.c.entry == entry) & (_RELEASES.c.question == instead_of)
        with _kept(self._engine.begin) as connection:
            if not connection.execute(update(_RELEASES).where(here).values(question=question)).rowcount:
                raise Problem("not_found")

    def release(self, dataset: str, entry: int) -> ReleaseRecord | None:
        """What is known of an entry."""
        here = (_RELEASES.c.dataset == dataset) & (_RELEASES.c.entry == entry)
        with _kept(self._engine.connect) as connection:
            row = connection.execute(select(_RELEASES).where(here)).first()
        return None if row is None else ReleaseRecord(*row)

    def releases(
        self,
        dataset: str,
        *,
        person: str | None = None,
        before: int | None = None,
        entries: Sequence[int] | None = None,
        beginning: str = "",
        shared: str = "",
        most: int = 100,
    ) -> list[ReleaseRecord]:
        """The newest releases of a dataset: of this person, before this entry, among these, beginning with these words.
        Beside those of a person also what ends with the words of what is `shared`.

        Whatever is left out is left out before the newest are taken.
        """
        asked = select(_RELEASES).where(_RELEASES.c.dataset == dataset).order_by(_RELEASES.c.entry.desc()).limit(most)
        if person is not None:
            theirs = _RELEASES.c.question.endswith(shared, autoescape=True) if shared else false()
            asked = asked.where((_RELEASES.c.person == person) | theirs)
        if before is not None:
            asked = asked.where(_RELEASES.c.entry < before)
        if entries is not None:
            asked = asked.where(_RELEASES.c.entry.in_(entries))
        if beginning:
            asked = asked.where(_RELEASES.c.question.startswith(beginning, autoescape=True))
        with _kept(self._engine.connect) as connection:
            return [ReleaseRecord(*row) for row in connection.execute(asked).all()]


@contextmanager
def _kept(opening: Callable[[], AbstractContextManager[Connection]]) -> Iterator[Connection]:
    """A connection; a database that is full, failing or away is a problem of a closed list, without its words."""
    try:
        with opening() as connection:  # connecting can fail as well
            yield connection
    except (*AWAY, DBAPIError) as error:
        if not isinstance(error, AWAY) and not error.connection_invalidated:
            raise
        raise unreachable() from None


def _add_marks(
    connection: Connection, record: DatasetRecord, marks: set[str], sketches: dict[str, str], profiles: dict[str, str]
) -> None:
    """What a family is known by from now on, and which ids and rows the tables of a dataset have."""
    rows = connection.execute(select(_MARKS).where(_MARKS.c.family == record.family)).all()
    if new := [{"family": record.family, "mark": mark} for mark in sorted(marks - {row.mark for row in rows})]:
        connection.execute(insert(_MARKS), new)
    for table, ids in sketches.items():
        connection.execute(insert(SKETCHES).values(dataset=record.name, source=table, marks=ids))
    for table, rows_said in profiles.items():
        connection.execute(insert(PROFILES).values(dataset=record.name, source=table, text=rows_said))


def _dataset(row: Any) -> DatasetRecord:
    return DatasetRecord(
        name=row.name,
        owner=row.owner,
        sources=json.loads(row.sources),
        contents=json.loads(row.contents),
        schema=row.schema,
        budget=json.loads(row.budget),
        family=row.family,
        made=row.made,
        form=row.form,
    )


def _sqlite(url: str, synchronous: str) -> Engine:
    engine = create_engine(url, connect_args={"timeout": 30})

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")

    return engine
