"""The catalogue: people, tokens, datasets, grants, requests and releases, in SQLite or Postgres.

Ledgers hold the spending. The catalogue makes sure that the same people do not get a second budget (`Guards`). Records
of people and datasets are never deleted, only closed, so that nobody gets a new budget by being added again.
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
from deniable.server.catalogue.driver_statements import AWAY, Quick, unreachable
from deniable.server.catalogue.kept_requests import Requests
from deniable.server.catalogue.people import People, Person, TokenRecord
from deniable.server.operations.file_locks import exclusive
from deniable.server.problems import Problem

__all__ = ["Catalogue", "DatasetRecord", "Person", "ReleaseRecord", "TokenRecord"]

_REVISION: Final = "0009"
_VERSION_TABLE: Final = "curator_version"
_REGISTERING: Final = 0x64656E79_01
"""The number of the registration lock in Postgres; arbitrary, to differ from the locks of other programs."""
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
    Column("version", String(100)),
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


# Run for every question, directly on the driver: see `server.catalogue.driver_statements`.
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
    """A registered dataset. `sources` maps tables to files; `made` is in seconds since 1970."""

    name: str
    owner: str
    sources: dict[str, str]
    contents: dict[str, str]
    """The SHA-256 of each source at registration."""
    schema: str
    budget: dict[str, Any]
    family: str
    made: float
    form: int = 0
    """The version of the canonical form in its marks (`data_marks.FORM`)."""
    version: str | None = None
    """The version of the data that questions are about, as the owner declared it; None if none was declared."""


@final
@dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """The question that a charge of a ledger answered; `entry` is the number of the charge."""

    dataset: str
    entry: int
    person: str
    question: str
    confidence: float
    made: float


@final
class Catalogue(People):
    """The catalogue in a file of SQLite (a path) or in Postgres (a URL). Threads and processes may share it.

    Creates and migrates its tables. Raises LedgerUnavailable if the database cannot be reached, and UnreadableRecord if
    it is damaged or newer than this version.
    """

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
            except (ArgumentError, ValueError):  # the message may hold the password
                rule = "must be the URL of a Postgres database"
                raise InvalidParameter("database", "...", rule, "write postgresql://user@host:5432/name") from None
        self._quick = Quick(quick)
        self.requests = Requests(self._quick)
        self.guards = Guards(lambda: _kept(self._engine.begin))
        try:
            self._prepare()
        except AWAY:
            kept = "the folder `state`" if self._file is not None else "the database of the settings"
            remedy = "check that the database runs, or the folder exists, and that the server may write to it"
            raise LedgerUnavailable(f"the catalogue in {kept} cannot be opened", remedy) from None
        except DatabaseError:
            if self._file is None:
                raise
            what = f"{self._file.name} in the folder `state` is not a catalogue, or it is damaged"
            raise UnreadableRecord(f"{what}; it was not changed: restore it from a copy") from None

    def _prepare(self) -> None:
        """Create the tables, or migrate them."""
        with self._engine.connect() as connection:
            found = migrations.revision(connection, _VERSION_TABLE)
        if found is not None and found > _REVISION:
            rule = f"the catalogue has revision {found}, newer than {_REVISION}"
            raise UnreadableRecord(f"{rule}; update deniable to open it")
        if found == _REVISION:
            return
        with self.registering(), self._engine.begin() as connection:  # several processes may start at once
            if self._file is not None:
                connection.exec_driver_sql("BEGIN IMMEDIATE")  # all steps or none, even if this process is killed
            migrations.upgrade(connection, steps="deniable.server:migrations", version_table=_VERSION_TABLE)

    @property
    def file(self) -> Path | None:
        """The file; None in a shared database."""
        return self._file

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()
        self._quick.close()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for reading. Raises Problem `ledger_unavailable` if the database cannot be reached."""
        with _kept(self._engine.connect) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction, with one writer at a time in all processes, because the access log is a chain."""
        with _kept(self._engine.begin) as connection:
            if self._file is None:
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _WRITING})
            else:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection

    # -- datasets and grants -------------------------------------------------------------------------------------------

    @contextmanager
    def registering(self) -> Iterator[None]:
        """Hold the registration lock, in all processes: nobody else adds a dataset between search and registration."""
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
        """Add a dataset, and delete its intention. Raises Problem `exists` if the name is taken.

        `marks`, and `sketches` and `profiles` of each table, recognise its people later (`datasets.data_marks`).
        `overlaps` are datasets of other owners that share many ids or rows.
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
            "version": record.version,
        }
        try:
            with _kept(self._engine.begin) as connection:
                connection.execute(insert(_DATASETS).values(**values))
                _add_marks(connection, record, marks, sketches or {}, profiles or {})
                for other in sorted(overlaps):
                    connection.execute(insert(OVERLAPS).values(dataset=record.name, other=other, made=record.made))
                connection.execute(delete(INTENTIONS).where(INTENTIONS.c.dataset == record.name))
        except IntegrityError:
            raise Problem("exists", f"the dataset {record.name!r} exists already; choose another name") from None

    def renew(
        self, record: DatasetRecord, marks: set[str], sketches: dict[str, str], profiles: dict[str, str], form: int
    ) -> None:
        """Add marks of a dataset in another canonical form, and replace its sketches and profiles."""
        with _kept(self._engine.begin) as connection:
            for table in (SKETCHES, PROFILES):
                here = (table.c.dataset == record.name) & table.c.source.in_(list(sketches))
                connection.execute(delete(table).where(here))
            _add_marks(connection, record, marks, sketches, profiles)
            connection.execute(update(_DATASETS).where(_DATASETS.c.name == record.name).values(form=form))

    def dataset(self, name: str) -> DatasetRecord | None:
        """The dataset of this name, or None."""
        with _kept(self._engine.connect) as connection:
            row = connection.execute(select(_DATASETS).where(_DATASETS.c.name == name)).first()
        return None if row is None else _dataset(row)

    def redeclare(self, name: str, schema: str, *, instead_of: str) -> bool:
        """Replace the schema of a dataset, and keep the old one. False if the present one is not `instead_of`."""
        with _kept(self._engine.begin) as connection:
            here = (_DATASETS.c.name == name) & (_DATASETS.c.schema == instead_of)
            if not connection.execute(update(_DATASETS).where(here).values(schema=schema)).rowcount:
                return False
            many = connection.execute(select(func.count()).where(_SCHEMAS.c.dataset == name)).scalar_one()
            connection.execute(insert(_SCHEMAS).values(dataset=name, number=many + 1, schema=instead_of))
        return True

    def replace_version(
        self,
        old: DatasetRecord,
        new: DatasetRecord,
        marks: set[str],
        sketches: dict[str, str],
        profiles: dict[str, str],
    ) -> None:
        """Replace the files, schema and version of a dataset. Old marks stay, so that its people are still known."""
        fields = ("sources", "contents")
        values = {name: json.dumps(getattr(new, name)) for name in fields}
        with _kept(self._engine.begin) as connection:
            here = _DATASETS.c.name == new.name
            connection.execute(
                update(_DATASETS).where(here).values(schema=new.schema, version=new.version, form=new.form, **values)
            )
            for table in (SKETCHES, PROFILES):
                connection.execute(
                    delete(table).where((table.c.dataset == new.name) & table.c.source.in_(list(sketches)))
                )
            _add_marks(connection, new, marks, sketches, profiles)
            if old.schema != new.schema:
                many = connection.execute(select(func.count()).where(_SCHEMAS.c.dataset == new.name)).scalar_one()
                connection.execute(insert(_SCHEMAS).values(dataset=new.name, number=many + 1, schema=old.schema))

    def earlier(self, name: str) -> list[str]:
        """The earlier schemas of a dataset, newest first."""
        asked = select(_SCHEMAS.c.schema).where(_SCHEMAS.c.dataset == name).order_by(_SCHEMAS.c.number.desc())
        with _kept(self._engine.connect) as connection:
            return [row.schema for row in connection.execute(asked).all()]

    def datasets(self) -> list[DatasetRecord]:
        """All datasets, in the order of their names."""
        with _kept(self._engine.connect) as connection:
            return [_dataset(row) for row in connection.execute(select(_DATASETS).order_by(_DATASETS.c.name)).all()]

    def marked(self, marks: set[str]) -> dict[str, set[str]]:
        """Family -> those of these marks that it has, for each family that has at least one of them."""
        found: dict[str, set[str]] = {}
        listed = sorted(marks)
        with _kept(self._engine.connect) as connection:
            for start in range(0, len(listed), 500):
                part = listed[start : start + 500]
                for row in connection.execute(select(_MARKS).where(_MARKS.c.mark.in_(part))).all():
                    found.setdefault(row.family, set()).add(row.mark)
        return found

    def grant(self, person: str, dataset: str) -> None:
        """Let a person ask about a dataset. Their limit is in the ledger."""
        here = (_GRANTS.c.person == person) & (_GRANTS.c.dataset == dataset)
        values = {"active": True, "terms": "{}", "made": time.time()}
        with _kept(self._engine.begin) as connection:
            if not connection.execute(update(_GRANTS).where(here).values(**values)).rowcount:
                connection.execute(insert(_GRANTS).values(person=person, dataset=dataset, **values))

    def revoke_grants(self, person: str, datasets: list[str]) -> None:
        """Revoke the grants of a person on these datasets. Raises Problem `not_found` if none is active."""
        here = (_GRANTS.c.person == person) & _GRANTS.c.dataset.in_(datasets) & _GRANTS.c.active
        with _kept(self._engine.begin) as connection:
            if not connection.execute(update(_GRANTS).where(here).values(active=False)).rowcount:
                raise Problem(
                    "not_found", f"{person!r} has no grant for {' or '.join(map(repr, datasets))}, so none was revoked"
                )

    def granted(self, person: str, dataset: str) -> bool:
        """Whether a person may ask about a dataset."""
        here = (_GRANTS.c.person == person) & (_GRANTS.c.dataset == dataset) & _GRANTS.c.active
        with _kept(self._engine.connect) as connection:
            return connection.execute(select(_GRANTS.c.person).where(here)).first() is not None

    def grants(self, dataset: str) -> list[str]:
        """The names of people who may ask about a dataset."""
        asked = select(_GRANTS.c.person).where(_GRANTS.c.active, _GRANTS.c.dataset == dataset)
        with _kept(self._engine.connect) as connection:
            return [row.person for row in connection.execute(asked.order_by(_GRANTS.c.person)).all()]

    # -- releases ------------------------------------------------------------------------------------------------------
    # Written for every question, without waiting for the disk: after a power cut the newest may be missing. The ledger
    # has all of them.

    def add_releases(self, records: list[ReleaseRecord], head: WitnessedHead) -> None:
        """Store releases and the newest entry of their ledger. Existing releases, and a newer entry, stay."""
        with self._quick.cursor() as run:
            for record in records:
                run(_NOTE, {name: getattr(record, name) for name in record.__slots__})
            run(_HEAD, head._asdict())

    def note_again(self, dataset: str, entry: int, question: str, *, instead_of: str) -> None:
        """Replace the stored question of a release. Raises Problem `not_found` if it is not `instead_of`."""
        here = (_RELEASES.c.dataset == dataset) & (_RELEASES.c.entry == entry) & (_RELEASES.c.question == instead_of)
        with _kept(self._engine.begin) as connection:
            if not connection.execute(update(_RELEASES).where(here).values(question=question)).rowcount:
                raise Problem("not_found")

    def release(self, dataset: str, entry: int) -> ReleaseRecord | None:
        """The release of a charge, or None."""
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
        """The newest `most` releases of a dataset that pass all filters.

        `person`: who asked; with `shared`, also releases of others whose question ends with this text. `before`: only
        charges below this number. `entries`: only these charges. `beginning`: the first characters of the question.
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
    """Open a connection. Raises Problem `ledger_unavailable`, without the driver's message, if the database fails."""
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
    """Store the marks of a family that are new, and the sketches and profiles of a dataset."""
    rows = connection.execute(select(_MARKS).where(_MARKS.c.family == record.family)).all()
    if new := [{"family": record.family, "mark": mark} for mark in sorted(marks - {row.mark for row in rows})]:
        connection.execute(insert(_MARKS), new)
    for table, ids in sketches.items():
        connection.execute(insert(SKETCHES).values(dataset=record.name, source=table, marks=ids))
    for table, profile in profiles.items():
        connection.execute(insert(PROFILES).values(dataset=record.name, source=table, text=profile))


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
        version=row.version,
    )


def _sqlite(url: str, synchronous: str) -> Engine:
    engine = create_engine(url, connect_args={"timeout": 30})

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")

    return engine
