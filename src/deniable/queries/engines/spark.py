"""The Spark engine, for tables that one machine cannot hold: local, on a cluster, or through Spark Connect.

Only aggregates reach the driver. The Spark session belongs to the owner and controls access to files and to the
catalog; no SQL that is generated here names a file.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as Late
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar, final
from uuid import uuid4

from sqlglot import exp

from deniable.csv_structure import Extent, check_rows, extent_of, separator
from deniable.errors import NOTHING, EngineFailed, InvalidOperation, InvalidParameter, MissingExtra
from deniable.queries.engines import sql_generation
from deniable.queries.engines.engine import (
    PERSON,
    RANK,
    Engine,
    Numbers,
    Progress,
    check_registration,
    complete,
    gathered,
    places,
)
from deniable.queries.engines.expression_sql import Piece
from deniable.queries.engines.registration_report import Registration, counted
from deniable.queries.engines.registration_sql import Reading, ranked, reading, same_people, with_partners
from deniable.queries.engines.row_positions import Stored
from deniable.queries.engines.spark_spelling import Spark
from deniable.queries.engines.sql_spelling import SQL, both, case, cast, column, function, name, number, try_cast
from deniable.queries.relations.exact_statistics import Collect, Group
from deniable.tables.kinds import Domain, Kind
from deniable.tables.schema import Table
from deniable.tables.source_files import CSV, PARQUET, files_of, header, unknown_file

try:
    from pyspark import StorageLevel
    from pyspark.errors import PySparkException
except ImportError:
    raise MissingExtra("pyspark", "spark") from None

T = TypeVar("T")

_SPELLING: Final = Spark()
_LOGGER: Final = logging.getLogger("SQLQueryContextLogger")
"""The logger to which pyspark writes the message of every failure."""
_LARGEST_REAL: Final = 1.7976931348623157e308
_AGAIN: Final = 1.0
"""Seconds between interrupts of a question that is late."""
_GRACE: Final = 5.0
"""Seconds beyond its limit in which a question can stop, before it is answered from empty tables."""
_EMPTY: Final = 5.0
"""The time limit, in seconds, of the same question on empty tables: Spark plans it again, and may still be busy."""
_BY_DATA: Final = (
    "spark.sql.adaptive.enabled",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled",
    "spark.sql.optimizer.runtime.bloomFilter.enabled",
    "spark.sql.inMemoryColumnarStorage.partitionPruning",
    "spark.sql.parquet.filterPushdown",
    "spark.sql.orc.filterPushdown",
)
"""Settings that are switched off, because they let one person's presence change the work done on everybody's rows.

They change a plan according to the rows that a stage produced (an empty side cancels a join and all work for it), or
skip a batch whose minimum and maximum exclude a condition. `PropagateEmptyRelation` in the first plan stays on: it
depends on the text of the question alone, because the content of registered tables is not part of a plan."""
_EXCLUDED: Final = "spark.sql.optimizer.excludedRules"
_BY_CONDITION: Final = "org.apache.spark.sql.catalyst.optimizer.EliminateOuterJoin"
"""The rule that would turn our FULL JOIN back into an inner join, which stops when one side has no more rows."""


def session() -> Any:
    """A Spark session from Spark's own configuration files and environment variables (cluster, resources)."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


@final
class SparkEngine(Engine):
    """Tables in a Spark session.

    `store` maps the name of a registered table to a table of the catalog, which outlives the session. Other tables are
    persisted on the executors' disks behind a temporary view, which `close` drops. A source is a DataFrame, the name of
    a table or view, or the `Path` of a CSV or Parquet file that every executor can read. `seconds` is the time limit of
    each question, from planning to the last row (None: no limit).

    Creating the engine changes settings of the Spark session for good, so that plans no longer depend on the data; see
    docs/engines.md.
    """

    def __init__(self, session: Any, *, store: Mapping[str, str] | None = None, seconds: float | None = None) -> None:
        if not hasattr(session, "sql") or not hasattr(session, "createDataFrame"):
            raise InvalidParameter("session", NOTHING, "must be a SparkSession", "SparkSession.builder.getOrCreate()")
        if seconds is not None and not seconds > 0:
            raise InvalidParameter("seconds", seconds, "must be positive, or None for no limit")
        self._session = session
        for setting in _BY_DATA:
            session.conf.set(setting, "false")
        excluded = [
            each for each in (session.conf.get(_EXCLUDED, "") or "").split(",") if each not in {"", _BY_CONDITION}
        ]
        session.conf.set(_EXCLUDED, ",".join([*excluded, _BY_CONDITION]))
        self._late: set[Future[Any]] = set()
        self._store = dict(store or {})
        self._seconds = seconds
        self._tables: dict[str, Stored] = {}
        self._reports: dict[str, Registration] = {}
        self._persisted: list[str] = []
        self._people: Kind | None = None
        self._closed = False

    def types(self, source: object) -> Mapping[str, str]:
        return super().types(self._frame(source) if isinstance(source, str) else source)

    def register(
        self, name: str, source: object, table: Table, secret: bytes, progress: Progress | None = None
    ) -> Table:
        self._check_open()
        check_registration(name, table, secret, self._tables)
        people = same_people(self._people, table)
        extents = _extents_of(source)
        frame = self._frame(source)
        where = places(table, frame.columns)
        types = [field.dataType for field in frame.schema.fields]
        found = {each: natural(f"f{at}", types[at]) for each, at in where.items()}
        view = f"deniable_{uuid4().hex}"
        frame.toDF(*(f"f{at}" for at in range(len(types)))).createOrReplaceTempView(view)
        try:
            read = reading(table, exp.Table(this=_quoted(view)), found, _SPELLING, secret)
            select = read.select
            if table.unit is not None and read.person is None:
                alone = exp.Alias(this=function("MONOTONICALLY_INCREASING_ID"), alias=_quoted(PERSON))
                select = select.select(alone, exp.Alias(this=number(1), alias=_quoted(RANK)), copy=False)
            elif table.unit is not None:
                rows = exp.Subquery(this=select, alias=exp.TableAlias(this=_quoted("t")))
                select = ranked(rows, read, column(PERSON), table.unit.rows)
            tally = self._read(_sql(read.tally))
            expected = None if extents is None else sum(each.rows for each in extents)
            check_rows(sum(int(each[1]) for each in tally), expected)
            location = self._keep(name, select)
        finally:
            self._session.catalog.dropTempView(view)
        stored = Stored(location, read.columns, None if table.unit is None else table.unit.rows)
        self._reports[name] = self._counted(name, read, tally, location, table, secret, extents or ())
        self._tables[name], self._people = stored, people
        if progress is not None:
            progress(1.0)
        named = replace(table, name=name)
        return with_partners(named, stored.location, stored.columns, lambda each: int(self._read(_sql(each))[0][0]))

    def registered(self, name: str) -> Registration | None:
        return self._reports.get(name)

    def _counted(
        self,
        title: str,
        read: Reading,
        tally: list[tuple[Any, ...]],
        location: exp.Table,
        table: Table,
        secret: bytes,
        extents: Sequence[Extent],
    ) -> Registration:
        first = "count(*)" if table.unit is None else f"count_if({RANK} = 1)"
        [[kept, people]] = self._read(f"SELECT count(*), {first} FROM {_sql(location)}")
        whose = None if table.unit is None else people
        return counted(title, read.whose, read.reasons, tally, kept, whose, secret, extents)

    def _frame(self, source: object) -> Any:
        if isinstance(source, Path):
            return self._file(source)
        if isinstance(source, str):
            try:
                return self._session.table(source)
            except PySparkException:
                pass
            raise InvalidParameter("source", source, "must be a table or view of the Spark session")
        if hasattr(source, "toDF") and hasattr(source, "createOrReplaceTempView"):
            return source
        raise InvalidParameter("source", NOTHING, "must be a DataFrame of Spark, the name of a table, or a Path")

    def _file(self, path: Path) -> Any:
        """A file or folder as a DataFrame. Columns of CSV files are text until the schema gives them a kind."""
        files = files_of(str(path))
        lowered = str(path).lower()
        if not lowered.endswith((*CSV, *PARQUET)) and not path.is_dir():
            raise unknown_file(str(path))
        named = [re.sub(r"([{}\[\]*?\\])", r"\\\1", each) for each in files]  # Spark would expand wildcards again
        if lowered.endswith(CSV) and named != files:  # with multiLine it expands twice, so escaping does not help
            rule = "has one of { } [ ] * ? \\ in its path, which Spark reads as a wildcard for CSV files"
            raise InvalidParameter("source", path.name, rule, "rename the file or its folder, or save it as Parquet")
        try:
            if not lowered.endswith(CSV):
                return self._session.read.parquet(*named)
            options = {"header": True, "sep": separator(files[0]), "quote": '"', "escape": '"', "multiLine": True}
            return self._session.read.csv(files, mode="FAILFAST", **options)
        except PySparkException:
            pass
        raise EngineFailed("source")

    def _keep(self, name: str, select: SQL) -> exp.Table:
        def write() -> exp.Table:
            frame = self._session.sql(_sql(select))
            target = self._store.get(name)
            if target is not None:
                frame.write.mode("errorifexists").saveAsTable(target)
                return exp.to_table(target, dialect="spark")
            view = f"deniable_{uuid4().hex}"
            kept = frame.persist(StorageLevel.DISK_ONLY)
            kept.createOrReplaceTempView(view)
            self._persisted.append(view)
            kept.count()
            return exp.Table(this=_quoted(view))

        return _guarded(write, "source")

    def collect(self, question: Collect) -> dict[Group, Numbers]:
        return self._collected(question, self._tables, self._seconds, _GRACE)

    def nothing(self, question: Collect) -> dict[Group, Numbers]:
        empty = {each: stored.emptied() for each, stored in self._tables.items()}
        limit = None if self._seconds is None else _EMPTY
        try:
            return self._collected(question, empty, limit, 0.0)
        except EngineFailed as failed:
            if failed.code != "time":
                raise
        return complete(question, {})

    @property
    def patience(self) -> float | None:
        return None if self._seconds is None else self._seconds + _GRACE + _EMPTY

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until interrupted questions are gone, because they would slow down the next one."""
        wait(list(self._late))
        yield

    def _collected(
        self, question: Collect, tables: Mapping[str, Stored], seconds: float | None, grace: float
    ) -> dict[Group, Numbers]:
        self._check_open()
        written = sql_generation.write(question, tables, _SPELLING)

        def run(late: threading.Event) -> dict[Group, Numbers]:
            main = None if written.main is None else self._rows(written.main, late)
            cells = [self._rows(each, late) for each in written.cells]
            return complete(question, gathered(question, main, cells))

        return self._in_time(run, seconds, grace)

    def sql(self, question: Collect) -> str:
        return sql_generation.write(question, self._tables, _SPELLING).text

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._tables.clear()
            for view in self._persisted:
                self._session.catalog.dropTempView(view)  # this also releases the persisted rows

    def _read(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a statement of registration, which has no time limit."""
        return _guarded(lambda: self._rows(sql, threading.Event()), "source")

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidOperation("this engine was closed; open another")

    def _rows(self, sql: str, late: threading.Event) -> list[tuple[Any, ...]]:
        if late.is_set():
            raise EngineFailed("time")
        return [tuple(row) for row in self._session.sql(sql).collect()]

    def _in_time(self, run: Callable[[threading.Event], T], seconds: float | None, grace: float) -> T:
        """Run a question, planning included, in a thread of its own with a time limit.

        Spark can interrupt its jobs, but not their planning, which may take longer. So the caller waits at most
        `seconds` plus `grace`. A question that still runs then is interrupted repeatedly until it is gone, and the next
        question waits for that (`turn`).
        """
        late = threading.Event()
        if seconds is None:
            return _guarded(lambda: run(late), "engine")
        tag, outcome = f"deniable-{uuid4().hex}", Future[T]()

        def work() -> None:
            try:
                self._session.addTag(tag)  # a tag holds for the thread that sets it
                outcome.set_result(_guarded(lambda: run(late), "engine"))
            except Exception as error:
                outcome.set_exception(error if isinstance(error, EngineFailed) else EngineFailed("engine"))

        threading.Thread(target=work, daemon=True).start()
        try:
            return outcome.result(seconds)
        except Late:
            late.set()
        self._late.add(outcome)
        outcome.add_done_callback(self._late.discard)
        threading.Thread(target=_interrupt, args=(self._session, tag, outcome), daemon=True).start()
        wait([outcome], grace)
        raise EngineFailed("time")


def _extents_of(source: object) -> list[Extent] | None:
    """The sizes of CSV files, measured by an independent reader; None for other sources."""
    if not isinstance(source, Path) or not str(source).lower().endswith(CSV):
        return None
    return [extent_of(each, len(header(each))) for each in files_of(str(source))]


def _interrupt(session: Any, tag: str, outcome: Future[Any]) -> None:
    while not outcome.done():
        with suppress(Exception):  # the session may be closed already
            session.interruptTag(tag)
        wait([outcome], _AGAIN)


@final
class _Silence:
    """Disables a logger while at least one thread is inside the context."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger, self._turn, self._inside, self._before = logger, threading.Lock(), 0, False

    def __enter__(self) -> None:
        with self._turn:
            if self._inside == 0:
                self._before = self._logger.disabled
            self._inside += 1
            self._logger.disabled = True

    def __exit__(self, *_: object) -> None:
        with self._turn:
            self._inside -= 1
            if self._inside == 0:
                self._logger.disabled = self._before


_SILENCE: Final = _Silence(_LOGGER)


def _guarded(run: Callable[[], T], otherwise: str) -> T:
    """Call `run`. Spark's message can quote a value of the data, so it is neither raised nor logged."""
    with _SILENCE:
        try:
            return run()
        except EngineFailed as failed:
            code = failed.code
        except Exception:
            code = otherwise
    # Raised outside the handlers, so that Spark's exception does not become its context.
    raise EngineFailed(code)


_BY_BYTES: Final = "UTF8_BINARY"
"""The collation of texts that are compared byte by byte."""


def natural(identifier: str, kind: Any) -> Piece | None:
    """A column converted to the kind that matches its Spark type; None if no kind does."""
    value = column(identifier)
    written = kind.typeName()
    if written in {"byte", "short", "integer", "long"}:
        return Piece(cast(value, "BIGINT"), Domain(Kind.INTEGER))
    if written in {"float", "double"}:
        real = cast(value, "DOUBLE")
        finite = both(exp.LTE, function("ABS", real), _SPELLING.real(_LARGEST_REAL))
        return Piece(case((finite, both(exp.Add, real.copy(), _SPELLING.real(0.0)))), Domain(Kind.REAL))
    if written.startswith("decimal"):
        whole = kind.scale == 0
        # Via text, so that the value is rounded only once.
        sql = try_cast(value, "BIGINT") if whole else cast(cast(value, "STRING"), "DOUBLE")
        return Piece(sql, Domain(Kind.INTEGER if whole else Kind.REAL))
    if written.startswith(("string", "varchar", "char")):
        # Texts are compared byte by byte. Versions without collations do not know the word.
        is_plain = getattr(kind, "collation", _BY_BYTES) == _BY_BYTES
        return Piece(
            value if is_plain else exp.Collate(this=value, expression=exp.Var(this=_BY_BYTES)), Domain(Kind.TEXT)
        )
    if written == "boolean":
        return Piece(value, Domain(Kind.BOOLEAN))
    if written == "date":
        return Piece(_in_calendar(value, "DATE", "9999-12-31"), Domain(Kind.DATE))
    if written == "timestamp_ntz":
        return Piece(_in_calendar(value, "TIMESTAMP_NTZ", "9999-12-31 23:59:59.999999"), Domain(Kind.TIMESTAMP))
    if written == "timestamp":
        return Piece(_in_calendar(_utc(value), "TIMESTAMP_NTZ", "9999-12-31 23:59:59.999999"), Domain(Kind.TIMESTAMP))
    if written == "void":
        return Piece(exp.Null(), Domain(Kind.BOOLEAN, None, (), True))
    return None


def _utc(value: SQL) -> SQL:
    """A timestamp in UTC, computed from microseconds since 1970. A conversion via the session's zone would lose an
    hour when daylight saving time starts.
    """
    micros = function("UNIX_MICROS", value)
    days = cast(function("FLOOR", both(exp.Div, cast(micros, "DECIMAL(20,0)"), number(86_400 * 10**6))), "INT")
    rest = function("PMOD", micros.copy(), number(86_400 * 10**6))
    seconds = cast(both(exp.Div, cast(rest, "DECIMAL(20,0)"), number(10**6)), "DECIMAL(18,6)")
    interval = function("MAKE_DT_INTERVAL", days, number(0), number(0), seconds)
    return both(exp.Add, cast(exp.Literal.string("1970-01-01 00:00:00"), "TIMESTAMP_NTZ"), interval)


def _in_calendar(value: SQL, to: str, last: str) -> SQL:
    after = both(exp.GTE, value, cast(exp.Literal.string("0001-01-01"), to))
    before = both(exp.LTE, value.copy(), cast(exp.Literal.string(last), to))
    return case((exp.And(this=after, expression=before), value.copy()))


def _quoted(identifier: str) -> exp.Identifier:
    return name(identifier)


def _sql(expression: SQL) -> str:
    return expression.sql(dialect="spark", normalize_functions=False)
