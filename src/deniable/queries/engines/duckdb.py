"""DuckDB in process: the default engine. Memory is capped, what is larger lies on disk; questions find it locked."""

from __future__ import annotations

import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Final, final

from sqlglot import exp

from deniable.csv_structure import Extent, check_rows
from deniable.errors import EngineFailed, InvalidOperation, InvalidParameter, MissingExtra
from deniable.queries.engines import sql_generation
from deniable.queries.engines.duckdb_sources import FoundSource, listed, natural, opened
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
from deniable.queries.engines.registration_report import Registration, counted
from deniable.queries.engines.registration_sql import Reading, partner_sets, partners, ranked, reading, same_people
from deniable.queries.engines.row_positions import Stored, Wish, with_places
from deniable.queries.engines.scratch_folders import Folder, sweep
from deniable.queries.engines.sql_spelling import SQL, DuckDB, column, function, name, number
from deniable.queries.engines.sql_templates import Texts
from deniable.queries.relations.exact_statistics import Collect, Filling, Group
from deniable.tables.kinds import Kind
from deniable.tables.schema import Table

try:
    import duckdb
except ImportError:
    raise MissingExtra("duckdb", "sql") from None

_LARGE: Final = 128 << 20
"""Sources with more bytes than this are kept in a file, compressed; smaller ones in memory."""

_PIECE: Final = 122_880
"""Rows that DuckDB gives to one thread at a time."""

_BY_TEXT: Final = frozenset({
    "expression_rewriter", "in_clause", "unused_columns", "column_lifetime", "common_subexpressions",
    "common_aggregate", "duplicate_groups", "reorder_filter", "regex_range",
})  # fmt: skip
"""The optimizers that questions have: those that look at the text of a question alone, and leave every condition where
`sql_generation` has put it. Registration, which only the owner sees, has all.

Others let one person decide about the work on everybody's rows, for what they leave out depends on the least and
greatest values of a column (`statistics_propagation`, `row_group_pruner`), on whether a side of a join has any rows and
whose they are (`join_filter_pushdown`), or on how many there are (`join_order`, `build_side_probe_side`). With
`filter_pushdown` a scan skips the rows of 122,880 where their least and greatest values exclude a condition. Whatever
optimizer a later version of DuckDB brings is off as well, until somebody has looked at it."""

_UNWANTED: Final = ("top_n_window_elimination", "type_pushdown", "scalar_fn_pushdown")
"""The first makes row_number() <= k an aggregate of lists, which takes twice as long as the sort it saves. The others
move a TRY_CAST into the reader of a CSV file, where what it would make NULL is an error."""

_LONGEST: Final = "SELECT coalesce(max(estimated_size), 0) FROM duckdb_tables()"

_SPELLING: Final = DuckDB()

_EMPTY: Final = 1.0
"""Seconds that a question gets on empty tables, if its time is limited."""

_AGAIN: Final = 0.1
"""Seconds until a question that is late is told so again."""

Ask = Callable[[str], list[tuple[Any, ...]]]
"""Runs a statement."""

_MANY_COLUMNS: Final = 100
_REMEDIES: Final = {
    "space": "name the columns that are asked about in a schema file, which leaves the others unread; or give the "
    'engine more: engine=DuckDBEngine(memory="4GB")',
    "source": "see that the file opens elsewhere and write it again, or save it as Parquet",
}
"""What the owner of a source can do if it could not be registered."""


@final
class DuckDBEngine(Engine):
    """Tables in a private DuckDB instance.

    `memory` and `threads` cap what it takes; what does not fit goes, encrypted, to a private folder below `folder`
    (None: where temporary files go), which `close` removes. `seconds` caps each question. None changes an answer.

    The first question locks the instance: from then on it reads no file, loads no extension, changes no setting, and
    registers no further table.
    """

    def __init__(
        self,
        *,
        memory: str = "640MB",
        threads: int | None = None,
        folder: str | os.PathLike[str] | None = None,
        seconds: float | None = None,
    ) -> None:
        if seconds is not None and not seconds > 0:
            raise InvalidParameter("seconds", seconds, "must be positive, or None for no limit")
        self._seconds = seconds
        self._clock = None if seconds is None else _Clock(seconds)
        self._briefly = None if seconds is None else _Clock(_EMPTY)
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
            "force_mbedtls_unsafe": True,  # else it would load an extension from the network; see docs/engines.md
            "disabled_optimizers": ",".join(_UNWANTED),
        }
        self._threads = threads
        if threads is not None:
            settings["threads"] = threads
        try:
            self._connection = duckdb.connect(":memory:", config=settings)
        except duckdb.Error:
            raise InvalidParameter("memory", memory, "DuckDB must understand it", 'write "2GB"') from None
        self._tables: dict[str, Stored] = {}
        self._texts = Texts()
        self._reports: dict[str, Registration] = {}
        self._names = count()
        self._people: Kind | None = None
        self._catalogs: set[str] = set()
        self._locked = False
        self._closed = False
        self._turn = threading.Lock()
        self._wished: set[tuple[str, str]] = set()
        self._unmade: set[tuple[str, str]] = set()
        self._making = threading.Lock()

    # --- registration -----------------------------------------------------------------------------------------------

    def register(
        self, name: str, source: object, table: Table, secret: bytes, progress: Progress | None = None
    ) -> Table:
        with self._turn, _registering(table):
            self._check_open()
            if self._locked:
                raise InvalidOperation("questions were asked already; register every table before the first one")
            check_registration(name, table, secret, self._tables)
            people = same_people(self._people, table)
            with opened(self._connection, self._read, source, table) as found, self._again(found) as origin:
                read = reading(table, origin, found.columns, _SPELLING, secret)
                tally = self._read(_sql(read.tally))
                check_rows(sum(int(each[1]) for each in tally), found.rows)
                stored = self._keep(read, found, table, progress)
            self._reports[name] = self._counted(name, read, tally, stored, table, secret, found.extents or ())
            self._run(f"FORCE CHECKPOINT {stored.location.catalog}")  # this is when tables in memory are compressed
            self._tables[name], self._people = stored, people
            if table.unit is not None:
                return replace(table, name=name)
            most = tuple(
                (joined, int(self._read(_sql(partners(stored.location, stored.columns, joined)))[0][0]))
                for joined in partner_sets(table)
            )
            return replace(table, name=name, most_partners=most)

    def registered(self, name: str) -> Registration | None:
        return self._reports.get(name)

    @contextmanager
    def _again(self, found: FoundSource) -> Iterator[SQL]:
        """A source that can be read twice: once to count and once to keep its rows."""
        if not found.once:
            yield found.origin
            return
        stage = self._place(found.size)
        self._create(stage, exp.Select(expressions=[exp.Star()], from_=exp.From(this=found.origin.copy())), None)
        yield stage
        self._run(f"DROP TABLE {_sql(stage)}")

    def _counted(
        self,
        title: str,
        read: Reading,
        tally: list[tuple[Any, ...]],
        stored: Stored,
        table: Table,
        secret: bytes,
        extents: Sequence[Extent],
    ) -> Registration:
        if table.unit is None:
            [[kept]] = self._read(f"SELECT count(*) FROM {_sql(stored.location)}")
            return counted(title, read.whose, read.reasons, tally, kept, None, secret, extents)
        [[kept, people]] = self._read(f'SELECT count(*), count(*) FILTER ("rank" = 1) FROM {_sql(stored.location)}')
        return counted(title, read.whose, read.reasons, tally, kept, people, secret, extents)

    def _keep(self, read: Reading, found: FoundSource, table: Table, progress: Progress | None) -> Stored:
        location = self._place(found.size)
        unit = table.unit
        if unit is None:
            self._create(location, read.select, progress)
        elif read.person is None:
            # Every row is its own person. Which number it gets does not matter: only that no other row has it.
            alone = exp.Alias(this=exp.Window(this=function("ROW_NUMBER")), alias=name(PERSON))
            first = exp.Alias(this=number(1), alias=name(RANK))
            self._create(location, read.select.select(alone, first, copy=False), progress)
        elif read.person is Kind.INTEGER:
            rows = exp.Subquery(this=read.select, alias=exp.TableAlias(this=name("t")))
            self._create(location, ranked(rows, read, column(PERSON), unit.rows), progress)
        else:
            self._number(location, read, unit.rows, progress)
        return Stored(location, read.columns, None if unit is None else unit.rows)

    def _number(self, location: exp.Table, read: Reading, most: int, progress: Progress | None) -> None:
        """People named by text get numbers, the same ones in every table: they are counted and joined much faster."""
        stage = location.copy()
        stage.set("this", name(f"{location.name}_stage"))
        self._create(stage, read.select, progress)
        self._run('CREATE TABLE IF NOT EXISTS "people" ("id" VARCHAR, "number" BIGINT)')
        here = _sql(stage)
        self._run(
            'INSERT INTO "people" SELECT "person", row_number() OVER () + (SELECT count(*) FROM "people") '
            f'FROM (SELECT DISTINCT "person" FROM {here}) AS new '
            'WHERE NOT EXISTS (SELECT 1 FROM "people" WHERE "id" = new."person")'
        )
        others = ", ".join(_sql(column(each)) for each in ("hash", *read.columns.values()))
        joined = f'(SELECT "number", {others} FROM {here} JOIN "people" ON "id" = "person") AS t'
        rows = exp.Table(this=exp.Var(this=joined))
        self._create(location, ranked(rows, read, column("number"), most), progress)
        self._run(f"DROP TABLE {here}")

    def _place(self, size: int) -> exp.Table:
        """Where a table of about so many bytes goes: compressed in memory, or in a file."""
        catalog = "filed" if size > _LARGE else "held"
        if catalog not in self._catalogs:
            path = os.path.join(self._folder.path, "tables.duckdb") if catalog == "filed" else ":memory:"
            # The key is here and in DuckDB's memory alone: whoever is killed takes it along.
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
        with self._asking(self._clock) as ask:
            if written.wishes and self._place_rows(written.wishes, ask):
                written = sql_generation.write(question, self._tables, _SPELLING)
            self._texts.learn(question, written)
            return _collected(question, written, ask)

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
        # As if it were the first question. Without the catalogue: whether a table lies in memory or in a file depends
        # on its size, which is not public, and so does whether there was room for a copy; which copies there are by now
        # would say what others asked.
        tables, statements = {each: stored.nameless() for each, stored in self._tables.items()}, []
        for wish in sql_generation.write(question, tables, _SPELLING).wishes:
            if wish.at_once:
                tables[wish.table], statement = _placed(tables[wish.table], wish.column)
                statements.append(statement)
        return ";\n".join([*statements, sql_generation.write(question, tables, _SPELLING).text])

    def _place_rows(self, wishes: Iterable[Wish], ask: Ask) -> bool:
        """Make the copies with places that pay now; whether there is a new one.

        Which are made depends on the questions alone. Where there is no room for one, questions go on without it.
        """
        made = False
        with self._making:
            for wish in wishes:
                if self._pays(wish):
                    stored, statement = _placed(self._tables[wish.table], wish.column)
                    try:
                        ask(statement)
                    except EngineFailed:
                        self._unmade.add((wish.table, wish.column))
                        continue
                    self._tables[wish.table], made = stored, True
                self._wished.add((wish.table, wish.column))
        return made

    def _pays(self, wish: Wish) -> bool:
        at = (wish.table, wish.column)
        if at in self._unmade or wish.column in self._tables[wish.table].placed:
            return False
        return wish.at_once or at in self._wished

    def lock(self) -> None:
        """No file, no network, no extension, no setting from here on. The first question does this by itself."""
        with self._turn:
            self._check_open()
            if self._locked:
                return
            self._run('DROP TABLE IF EXISTS "people"')
            if self._threads is None and self._run(_LONGEST)[0][0] <= _PIECE:
                self._run("SET threads = 1")  # waking others takes longer than what they could help with
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
    def _asking(self, clock: _Clock | None) -> Iterator[Ask]:
        """Statements that share the time of one question."""
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


@final
class _Clock:
    """Interrupts what runs longer than so many seconds. One thread for all questions: one for each costs as much as a
    small question does.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[Any, tuple[float, threading.Event]] = {}
        self._stopped = threading.Event()
        self._turn = threading.Lock()
        self._started = False
        self.stop = weakref.finalize(self, self._stopped.set)

    @contextmanager
    def running(self, cursor: Any) -> Iterator[threading.Event]:
        """While this runs, its time does. The event is set when that is over."""
        if not self._started:
            with self._turn:
                if not self._started:
                    watched = (self._due, self._seconds, self._stopped)  # not us: we may go, and the thread with us
                    threading.Thread(target=_watch, args=watched, daemon=True).start()
                    self._started = True
        late = threading.Event()
        self._due[cursor] = (time.monotonic() + self._seconds, late)
        try:
            yield late
        finally:
            self._due.pop(cursor, None)


def _watch(due: dict[Any, tuple[float, threading.Event]], seconds: float, stopped: threading.Event) -> None:
    wait = seconds
    # Whatever begins while we wait is due later than whatever we wait for, so nobody needs to wake us.
    while not stopped.wait(min(wait, threading.TIMEOUT_MAX)):
        now = time.monotonic()
        for cursor, (when, late) in list(due.items()):
            if when <= now:
                late.set()
                with suppress(duckdb.Error):  # it was done just then
                    cursor.interrupt()
        # What was just between two statements has not heard us: it is told again until it is gone.
        waits = [when - now if when > now else _AGAIN for when, _ in list(due.values())]
        wait = max(0.0, min(waits, default=seconds))


@contextmanager
def _attached(path: str) -> Iterator[Any]:
    """A connection in which a database file can be looked at, and nothing else can be loaded or written."""
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
            raise InvalidParameter(
                "source", path, "cannot be opened as a database of DuckDB", "is it damaged, or open elsewhere?"
            )
        yield connection


def tables_of_database(path: str | os.PathLike[str]) -> list[str]:
    """The tables and views of a database file."""
    with _attached(os.fspath(path)) as connection:
        return listed(partial(_guarded, connection, otherwise="source"))


def types_of_database(source: DatabaseTable) -> dict[str, str]:
    """The columns of a table in a database and their types; those that are of no kind are left out."""
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
    """A table with one more copy, and the statement that makes it."""
    copy = stored.location.copy()
    copy.set("this", name(f"{stored.location.name}_by_{by}"))
    statement = f"CREATE TABLE {_sql(copy)} AS {_sql(with_places(stored, by))}"
    return replace(stored, placed={**stored.placed, by: copy}), statement


@contextmanager
def _registering(table: Table) -> Iterator[None]:
    """A failure while a source is read is told to its owner: with what they can do."""
    try:
        yield
    except EngineFailed as failed:
        code = failed.code
    else:
        return
    many = f"; all {len(table.columns):,} columns are read" if len(table.columns) > _MANY_COLUMNS else ""
    raise EngineFailed(code, f"{_REMEDIES[code]}{many}" if code in _REMEDIES else "")


def _guarded(connection: Any, sql: str, otherwise: str) -> list[tuple[Any, ...]]:
    """Run SQL. What DuckDB says when it fails can hold a value of the data, so only the class of it is looked at."""
    try:
        return connection.execute(sql).fetchall()  # type: ignore[no-any-return]
    except duckdb.InterruptException:
        code = "time"
    except (duckdb.OutOfMemoryException, MemoryError):
        code = "space"
    except KeyboardInterrupt:
        raise
    except Exception:
        code = otherwise
    # Out here, so that the failure does not hang on to the engine's exception as its context.
    raise EngineFailed(code)


def _sql(expression: SQL) -> str:
    return expression.sql(dialect="duckdb", normalize_functions=False)
