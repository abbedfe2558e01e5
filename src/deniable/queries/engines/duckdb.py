"""The default engine: DuckDB in this process, with a memory cap, encrypted spill files, and a lock before questions."""

from __future__ import annotations

import os
import secrets
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar, final

from sqlglot import exp

from deniable.csv_structure import check_rows
from deniable.errors import EngineFailed, InvalidOperation, InvalidParameter, MissingExtra
from deniable.queries.engines import kept_contents, sql_generation
from deniable.queries.engines.bounded_rows import BoundedTable, append_bounded, numbered, write_bounded
from deniable.queries.engines.copy_making import CopyMaker
from deniable.queries.engines.daily_parts import claimed, rows_of_day
from deniable.queries.engines.duckdb_sources import FileList, FoundSource, listed, natural, opened, opened_to_read
from deniable.queries.engines.engine import (
    PERSON,
    RANK,
    DatabaseTable,
    Engine,
    Numbers,
    Progress,
    check_registration,
    complete,
    gathered,
)
from deniable.queries.engines.kept_contents import TableCount, declared_pieces, kept_location, read_about, write_about
from deniable.queries.engines.kept_tables import KeptFile, KeptTable, kept_table, remove_kept
from deniable.queries.engines.question_clock import QuestionClock
from deniable.queries.engines.registration_report import Registration
from deniable.queries.engines.registration_sql import (
    Reading,
    in_order,
    person_kind,
    reading,
    same_people,
    with_partners,
)
from deniable.queries.engines.row_positions import Stored, Wish, copied
from deniable.queries.engines.scratch_folders import Folder, sweep
from deniable.queries.engines.sql_spelling import SQL, DuckDB, function, name, number
from deniable.queries.engines.sql_templates import Texts
from deniable.queries.relations.exact_statistics import Collect, Filling, Group
from deniable.queries.standing_days import Days
from deniable.tables.kinds import Kind
from deniable.tables.schema import Table

try:
    import duckdb
except ImportError:
    raise MissingExtra("duckdb", "sql") from None

_MOST_IN_MEMORY: Final = 128 << 20
"""Larger sources (in bytes) are stored in a file; smaller ones in memory, compressed."""

_PIECE: Final = 122_880
"""The number of rows that DuckDB hands to a thread at a time."""

_BY_TEXT: Final = frozenset({
    "expression_rewriter", "in_clause", "unused_columns", "column_lifetime", "common_subexpressions",
    "common_aggregate", "duplicate_groups", "reorder_filter", "regex_range",
})  # fmt: skip
"""The optimizers that run for questions: they look only at the text of a question, and leave every condition where
`sql_generation` put it. Registration, which only the owner observes, runs with all optimizers.

The others are off because one person's rows could change the work done on everybody's rows, and so the time of an
answer. They skip work depending on the minimum and maximum of a column (`statistics_propagation`, `row_group_pruner`),
on which rows a side of a join has (`join_filter_pushdown`), or on how many it has (`join_order`,
`build_side_probe_side`). With `filter_pushdown`, a scan skips a block of 122,880 rows whose minimum and maximum exclude
a condition. This is an allow-list: an optimizer that a later version of DuckDB adds stays off until it is reviewed."""

_UNWANTED: Final = ("top_n_window_elimination", "type_pushdown", "scalar_fn_pushdown")
"""Optimizers that are off for registration too. The first turns row_number() <= k into an aggregate of lists, which
takes twice as long as the sort that it saves. The others move a TRY_CAST into the CSV reader, where a value that
TRY_CAST would make NULL is an error."""

_LONGEST: Final = "SELECT coalesce(max(estimated_size), 0) FROM duckdb_tables()"

_SPELLING: Final = DuckDB()
T = TypeVar("T")

_EMPTY: Final = 1.0
"""The time limit of a question on empty tables, in seconds, if questions have a time limit."""

Ask = Callable[[str], list[tuple[Any, ...]]]
"""Runs a statement and returns its rows."""

_MANY_COLUMNS: Final = 100
_REMEDIES: Final = {
    "space": "name the columns that are asked about in a schema file, which leaves the others unread; or give the "
    'engine more: engine=DuckDBEngine(memory="4GB")',
    "source": "see that the file opens elsewhere and write it again, or save it as Parquet",
}
"""Advice to the owner of a source that could not be registered, by the code of the failure."""


@final
class DuckDBEngine(Engine):
    """Tables in a private DuckDB instance. No option changes an answer.

    `memory` ("640MB", "4GB") and `threads` cap its resources. Data that does not fit is encrypted and written to a
    private folder below `folder` (None: the system's temporary folder), which `close` deletes. `kept` is a folder
    in which large registered tables last, encrypted, so that the next process need not read their sources again
    (`kept_tables`). `seconds` is the time limit of each question (None: no limit).

    The first question locks the instance: from then on it reads no file, loads no extension, changes no setting, and
    registers no further table.
    """

    def __init__(
        self,
        *,
        memory: str = "640MB",
        threads: int | None = None,
        folder: str | os.PathLike[str] | None = None,
        kept: str | os.PathLike[str] | None = None,
        seconds: float | None = None,
    ) -> None:
        if seconds is not None and not seconds > 0:
            raise InvalidParameter("seconds", seconds, "must be positive, or None for no limit")
        self._seconds = seconds
        self._clock = None if seconds is None else QuestionClock(seconds, duckdb.Error)
        self._briefly = None if seconds is None else QuestionClock(_EMPTY, duckdb.Error)
        sweep(folder)
        self._folder = Folder("deniable-", folder)
        self._remove = weakref.finalize(self, self._folder.remove)
        settings: dict[str, Any] = {
            "memory_limit": memory,
            "temp_directory": os.path.join(self._folder.path, "spill"),
            "preserve_insertion_order": False,
            "error_on_division_by_zero": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "python_enable_replacements": False,
            "pandas_analyze_sample": 0,
            "temp_file_encryption": True,
            "max_vacuum_tasks": 0,  # an append deletes few rows; their blocks are not written again
            "force_mbedtls_unsafe": True,  # otherwise it loads an extension from the network; see docs/engines.md
            "disabled_optimizers": ",".join(_UNWANTED),
        }
        self._threads = threads
        settings |= {} if threads is None else {"threads": threads}
        try:
            self._connection = duckdb.connect(":memory:", config=settings)
        except duckdb.Error:
            raise InvalidParameter("memory", memory, "must be a size that DuckDB can read", 'write "2GB"') from None
        self._tables: dict[str, Stored] = {}
        self._texts = Texts()
        self._reports: dict[str, Registration] = {}
        self._names = count()
        self._people: Kind | None = None
        self._catalogs: set[str] = set()
        self._locked = False
        self._closed = False
        self._turn = threading.Lock()
        self._maker = self._connection.cursor()
        self._copies = CopyMaker(self._copy, self._maker.interrupt)
        self._numbers: exp.Table | None = None
        self._frozen = False
        self._kept = None if kept is None else Path(kept)

    # --- registration -----------------------------------------------------------------------------------------------

    def register(
        self, name: str, source: object, table: Table, secret: bytes, progress: Progress | None = None
    ) -> Table:
        with self._turn, _registering(table):
            self._check_open()
            if self._locked:
                raise InvalidOperation(
                    "no table can be registered after the first question; register all of them before"
                )
            check_registration(name, table, secret, self._tables)
            people = same_people(self._people, table)
            kept = None if person_kind(table) is Kind.TEXT and self._numbers is not None else self._kept
            place = kept_table(kept, source, table, name, secret, duckdb.__version__)
            if place is None:
                stored, about = self._registered(source, table, secret, progress)
                remove_kept(self._kept, name)
            else:
                with place.alone():
                    stored, about = self._lasting(place, source, table, secret, progress)
            self._reports[name] = about.report(name, secret)
            self._tables[name], self._people = stored, people
            named = replace(table, name=name)
            return with_partners(named, stored.location, stored.columns, lambda each: int(self._read(_sql(each))[0][0]))

    def claim(self, source: object, table: Table, secret: bytes, day: Days, used: Any) -> Any:
        """How many rows of each person a day of a source may have; see `daily_parts.claimed`."""
        with self._turn, _registering(table), opened(self._connection, self._read, source, table) as found:
            return _quietly(lambda: claimed(self._connection, found, table, day, secret, used))

    def day(self, source: object, table: Table, secret: bytes, day: Days, limits: Any) -> Any:
        """The rows of one day of a source, within the limits of its people; see `daily_parts.rows_of_day`."""
        with self._turn, _registering(table), opened(self._connection, self._read, source, table) as found:
            return _quietly(lambda: rows_of_day(self._connection, found, table, day, secret, limits))

    def register_day(self, name: str, source: object, table: Table, secret: bytes, day: Days, limits: Any) -> Table:
        """Register the rows of one day of a source as a table, within the limits of its people."""
        return self.register(name, self.day(source, table, secret, day, limits), table, secret)

    def registered(self, name: str) -> Registration | None:
        return self._reports.get(name)

    def _registered(
        self, source: object, table: Table, secret: bytes, progress: Progress | None, catalog: str | None = None
    ) -> tuple[Stored, TableCount]:
        """Read a source and store its rows, in a given catalogue or in a new place."""
        with opened(self._connection, self._read, source, table) as found, self._again(found) as origin:
            read = reading(table, origin, found.columns, _SPELLING, secret)
            tally = self._read(_sql(read.tally))
            check_rows(sum(int(each[1]) for each in tally), found.rows)
            location = self._place(found.size) if catalog is None else kept_location(catalog, "rows")
            stored, people = self._keep(read, found.size, table, progress, location)
        [[kept]] = self._read(f"SELECT count(*) FROM {_sql(location)}")
        self._run(f"FORCE CHECKPOINT {location.catalog}")  # this compresses tables in memory
        people = kept if table.unit is not None and people is None else people
        return stored, TableCount.of(read, tally, kept, people, found)

    def _lasting(
        self, place: KeptTable, source: object, table: Table, secret: bytes, progress: Progress | None
    ) -> tuple[Stored, TableCount]:
        """The table from its kept file. If the file is missing or older than the source, it is written first."""
        self._place(_MOST_IN_MEMORY + 1)  # where copies go: no file can be opened after the first question
        before = place.find()
        if before is not None and before.content == place.content and (found := self._kept_rows(before, table, secret)):
            return found
        catalog = f"kept{next(self._names)}"
        made = place.begin(before)
        try:
            about = None if before is None else self._appended(place, before, made, table, secret, catalog)
            if about is None:
                made = place.begin()
                self._attach(made, catalog)
                _, about = self._registered(source, table, secret, progress, catalog)
            if place.changed():
                raise EngineFailed("source", "the source changed while it was read; register it again")
            write_about(self._run, catalog, about)
            self._run(f"DETACH {catalog}")
            place.finish(made)
        except BaseException:
            place.abandon(made)
            raise
        if (found := self._kept_rows(made, table, secret)) is None:
            raise EngineFailed("engine")
        return found

    def _kept_rows(self, file: KeptFile, table: Table, secret: bytes) -> tuple[Stored, TableCount] | None:
        """A kept table, attached read-only; None if the file cannot be opened."""
        catalog = f"kept{next(self._names)}"
        try:
            self._attach(file, catalog, " READ_ONLY,")
            about = read_about(self._run, catalog)
        except EngineFailed:
            return None
        location, unit = kept_location(catalog, "rows"), table.unit
        read = reading(table, exp.Table(this=name("nothing")), declared_pieces(table), _SPELLING, secret)
        assert unit is not None
        if read.person is None:
            return Stored(location, read.columns, unit.rows), about
        people = kept_location(catalog, "people") if numbered(read) else None
        if people is not None:
            self._numbers, self._frozen = people, True
        order = in_order(read, location, unit.rows, people) if unit.rows > 1 else None
        people_count = BoundedTable(about.people or 0, order).count
        return Stored(location, read.columns, unit.rows, order=order, people=people_count), about

    def _appended(
        self, place: KeptTable, before: KeptFile, made: KeptFile, table: Table, secret: bytes, catalog: str
    ) -> TableCount | None:
        """A copy of a kept table with the rows of new files, attached; None if more than new files changed."""
        new = place.content.added(before.content)
        if not new or table.unit is None or table.unit.column is None:
            return None
        added = FileList(place.path, tuple(place.files[at] for at in new))
        with opened(self._connection, self._read, added, table) as found:
            shutil.copyfile(before.path, made.path)
            self._attach(made, catalog)
            about = read_about(self._run, catalog)
            if about.types is None or about.types != found.types or kept_contents.is_worn(self._run, catalog):
                self._run(f"DETACH {catalog}")
                place.abandon(made)
                return None
            read = reading(table, found.origin, found.columns, _SPELLING, secret)
            tally = self._read(_sql(read.tally))
            check_rows(sum(int(each[1]) for each in tally), found.rows)
            rows, counts, ids = (kept_location(catalog, each) for each in ("rows", "counts", "people"))
            people = ids if numbered(read) else None
            every = FileList(place.path, tuple(place.files), (*about.extents, *(found.extents or ())))
            whole = partial(opened_to_read, self._connection, self._read, every, table, secret)
            before_people = about.people or 0
            bounded = append_bounded(self._read, rows, read, whole, table.unit.rows, people, counts, before_people)
        [[kept]] = self._read(f"SELECT count(*) FROM {_sql(rows)}")
        return about.plus(TableCount.of(read, tally, kept, bounded.people, found))

    def _attach(self, file: KeptFile, catalog: str, how: str = "") -> None:
        key = f"ENCRYPTION_KEY '{file.key}', ENCRYPTION_CIPHER 'GCM'"
        self._run(f"ATTACH {_sql(exp.Literal.string(file.path))} AS {catalog} ({how} {key})")

    @contextmanager
    def _again(self, found: FoundSource) -> Iterator[SQL]:
        """A source that can be read twice, to count its rows and to store them; a stream is copied to a table first."""
        if not found.once:
            yield found.origin
            return
        stage = self._place(found.size)
        self._create(stage, exp.Select(expressions=[exp.Star()], from_=exp.From(this=found.origin.copy())), None)
        yield stage
        self._run(f"DROP TABLE {_sql(stage)}")

    def _keep(
        self, read: Reading, size: int, table: Table, progress: Progress | None, location: exp.Table
    ) -> tuple[Stored, int | None]:
        """Write the rows to keep, and count their people (None: each row is a person, or the table is public)."""
        unit = table.unit
        if unit is None:
            self._create(location, read.select, progress)
        elif read.person is None:
            # Every row is its own person. Any number will do, as long as no other row has it.
            alone = exp.Alias(this=exp.Window(this=function("ROW_NUMBER")), alias=name(PERSON))
            first = exp.Alias(this=number(1), alias=name(RANK))
            self._create(location, read.select.select(alone, first, copy=False), progress)
        else:
            lasts = location.catalog.startswith("kept")
            people = self._ids(size, location.catalog if lasts else None) if numbered(read) else None
            create = partial(self._create, location, progress=progress)
            counts = kept_location(location.catalog, "counts") if lasts else None
            made = write_bounded(self._read, create, location, read, unit.rows, people, counts)
            return Stored(location, read.columns, unit.rows, order=made.order, people=made.count), made.people
        return Stored(location, read.columns, None if unit is None else unit.rows), None

    def _ids(self, size: int, catalog: str | None) -> exp.Table:
        """The table of text ids and their numbers, the same for all tables."""
        if catalog is not None or self._numbers is None:
            self._numbers = self._place(size) if catalog is None else kept_location(catalog, "people")
            self._run(f'CREATE TABLE {_sql(self._numbers)} ("id" VARCHAR, "number" BIGINT)')
        elif self._frozen:  # the ids of a kept table, which is attached read-only
            known, self._numbers, self._frozen = self._numbers, self._place(size), False
            self._run(f"CREATE TABLE {_sql(self._numbers)} AS FROM {_sql(known)}")
        return self._numbers

    def _place(self, size: int) -> exp.Table:
        """A new location for a table of about `size` bytes: compressed in memory, or in an encrypted file."""
        catalog = "filed" if size > _MOST_IN_MEMORY else "held"
        if catalog not in self._catalogs:
            path = os.path.join(self._folder.path, "tables.duckdb") if catalog == "filed" else ":memory:"
            # The key exists only in this process's memory, so a file that a killed process leaves cannot be read.
            key = f"ENCRYPTION_KEY '{secrets.token_urlsafe(32)}', ENCRYPTION_CIPHER 'GCM'"
            options = key if catalog == "filed" else "COMPRESS"
            self._run(f"ATTACH {_sql(exp.Literal.string(path))} AS {catalog} ({options})")
            self._catalogs.add(catalog)
        return exp.Table(this=name(f"t{next(self._names)}"), db=name("main"), catalog=name(catalog))

    def _create(self, location: exp.Table, select: SQL, progress: Progress | None) -> None:
        with self._reporting(progress):
            self._read(f"CREATE TABLE {_sql(location)} AS {_sql(select)}")

    @contextmanager
    def _reporting(self, progress: Progress | None) -> Iterator[None]:
        if progress is None:
            yield
            return
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.2):
                percent = self._connection.query_progress()
                if 0 <= percent <= 100:
                    progress(percent / 100)

        self._run("SET enable_progress_bar = true")
        self._run("SET enable_progress_bar_print = false")
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
        progress(1.0)

    # --- questions --------------------------------------------------------------------------------------------------

    def collect(self, question: Collect) -> dict[Group, Numbers]:
        written = sql_generation.write(question, self._tables, _SPELLING)
        self.lock()
        try:
            with self._asking(self._clock) as ask:
                self._texts.learn(question, written)
                return _collected(question, written, ask)
        finally:  # also if it took too long: which copies are made depends on the questions alone
            for wish in written.wishes:
                self._copies.wish(wish)

    def fill(self, filling: Filling) -> dict[Group, Numbers] | None:
        found = self._texts.filled(filling)
        if found is None:
            return None
        question, text = found
        self.lock()
        with self._asking(self._clock) as ask:
            return complete(question, gathered(question, ask(text), []))

    def nothing(self, question: Collect) -> dict[Group, Numbers]:
        tables = {each: stored.emptied() for each, stored in self._tables.items()}
        self.lock()
        try:
            with self._asking(self._briefly) as ask:
                return _collected(question, sql_generation.write(question, tables, _SPELLING), ask)
        except EngineFailed as failed:
            if failed.code != "time":
                raise
        return complete(question, {})

    @property
    def patience(self) -> float | None:
        return None if self._seconds is None else self._seconds + _EMPTY

    def sql(self, question: Collect) -> str:
        # Catalogues are left out, because they show whether a table is in memory or in a file, which depends on its
        # size and is not public. Existing copies are left out, because they would show what others asked, and whether
        # there was space for a copy.
        tables = {each: stored.nameless() for each, stored in self._tables.items()}
        return sql_generation.write(question, tables, _SPELLING).text

    def settle(self) -> None:
        """Wait until the copies that questions asked for are made, in the background; for tests and benchmarks."""
        self._copies.settle()

    def _copy(self, wish: Wish) -> None:
        """Make a copy. If there is no space, questions go on without it."""
        stored = self._tables.get(wish.table)
        if stored is None:  # closed meanwhile
            return
        copied, statement = _placed(stored, wish.column)
        with suppress(EngineFailed):
            _guarded(self._maker, statement, "engine")
            self._tables[wish.table] = copied

    def lock(self) -> None:
        """Disable files, network, extensions and changes of settings for good. The first question calls this."""
        with self._turn:
            self._check_open()
            if self._locked:
                return
            if self._threads is None and self._run(_LONGEST)[0][0] <= _PIECE:
                self._run("SET threads = 1")  # for small tables, waking other threads costs more than they save
            every = [str(each) for (each,) in self._run("SELECT name FROM duckdb_optimizers()")]
            others = ",".join(each for each in every if each not in _BY_TEXT)
            self._run(f"SET GLOBAL disabled_optimizers = '{others}'")
            self._run("SET enable_external_access = false")
            self._run("SET lock_configuration = true")
            self._locked = True

    def close(self) -> None:
        with self._turn:
            if not self._closed:
                self._closed = True
                self._copies.close()
                self._maker.close()
                self._tables.clear()
                for clock in (self._clock, self._briefly):
                    if clock is not None:
                        clock.stop()
                self._connection.close()
                self._remove()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidOperation("this engine was closed; open another")

    @contextmanager
    def _asking(self, clock: QuestionClock | None) -> Iterator[Ask]:
        """A function that runs statements; together they share the time limit of one question."""
        cursor = self._connection.cursor()
        try:
            with nullcontext() if clock is None else clock.running(cursor) as late:

                def ask(sql: str) -> list[tuple[Any, ...]]:
                    if late is not None and late.is_set():
                        raise EngineFailed("time")
                    return _guarded(cursor, sql, "engine")

                yield ask
        finally:
            cursor.close()

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        with self._asking(self._clock) as ask:
            return ask(sql)

    def _run(self, sql: str) -> list[tuple[Any, ...]]:
        return _guarded(self._connection, sql, "engine")

    def _read(self, sql: str) -> list[tuple[Any, ...]]:
        return _guarded(self._connection, sql, "source")


@contextmanager
def _attached(path: str) -> Iterator[Any]:
    """A connection with a database file attached read-only as `source`. It loads no extension."""
    if not os.path.exists(path):
        raise InvalidParameter("source", path, "there is no such file")
    settings = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    with duckdb.connect(":memory:", config={**settings, "python_enable_replacements": False}) as connection:
        try:
            connection.execute(f"ATTACH {_sql(exp.Literal.string(path))} AS source (READ_ONLY)")
            failed = False
        except duckdb.Error:
            failed = True
        if failed:
            raise InvalidParameter("source", path, "cannot be opened as a DuckDB database", "close it elsewhere first")
        yield connection


def tables_of_database(path: str | os.PathLike[str]) -> list[str]:
    """The sorted names of the tables and views of a DuckDB file. Raises `InvalidParameter` if it cannot be opened."""
    with _attached(os.fspath(path)) as connection:
        return listed(partial(_guarded, connection, otherwise="source"))


def types_of_database(source: DatabaseTable) -> dict[str, str]:
    """The columns of a table in a database file and their DuckDB types, without columns that have no kind."""
    table = exp.Table(this=name(source.table), db=name("main"), catalog=name("source"))
    with _attached(os.fspath(source.path)) as connection:
        run = partial(_guarded, connection, otherwise="source")
        listed(run, source.table)
        rows = run(f"DESCRIBE SELECT * FROM {_sql(table)}")
    return {str(row[0]): str(row[1]) for row in rows if natural("f", str(row[1])) is not None}


def _collected(question: Collect, written: sql_generation.Written, ask: Ask) -> dict[Group, Numbers]:
    main = None if written.main is None else ask(written.main)
    cells = [ask(each) for each in written.cells]
    return complete(question, gathered(question, main, cells))


def _placed(stored: Stored, by: str) -> tuple[Stored, str]:
    """(a table with one more copy, with ranks or with positions, the statement that creates the copy)."""
    copy = stored.location.copy()
    copy.set("this", name(f"{stored.location.name}_by_{by}"))
    if stored.location.catalog.startswith("kept"):  # read-only
        copy.set("this", name(f"{stored.location.catalog}_by_{by}"))
        copy.set("catalog", name("filed"))
    statement = f"CREATE TABLE {_sql(copy)} AS {_sql(copied(stored, by))}"
    return replace(stored, placed={**stored.placed, by: copy}), statement


@contextmanager
def _registering(table: Table) -> Iterator[None]:
    """Add advice for the owner to a failure that happens while a source is read."""
    try:
        yield
    except EngineFailed as failed:
        if failed.remedy:
            raise
        code = failed.code
    else:
        return
    many = f"; all {len(table.columns):,} columns are read" if len(table.columns) > _MANY_COLUMNS else ""
    raise EngineFailed(code, f"{_REMEDIES[code]}{many}" if code in _REMEDIES else "")


def _guarded(connection: Any, sql: str, otherwise: str) -> list[tuple[Any, ...]]:
    """Run SQL and fetch its rows; see `_quietly`."""
    return _quietly(lambda: connection.execute(sql).fetchall(), otherwise)


def _quietly(work: Callable[[], T], otherwise: str = "source") -> T:
    """Do some work of DuckDB. Its message can quote a value of the data, so only the class of its exception is used."""
    try:
        return work()
    except duckdb.InterruptException:
        code = "time"
    except (duckdb.OutOfMemoryException, MemoryError):
        code = "space"
    except KeyboardInterrupt:
        raise
    except Exception:
        code = otherwise
    # Raised outside the handlers, so that DuckDB's exception does not become its context.
    raise EngineFailed(code)


def _sql(expression: SQL) -> str:
    return expression.sql(dialect="duckdb", normalize_functions=False)
