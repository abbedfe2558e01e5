"""Opening a session: sources are registered with an engine by their schemas and units, and a ledger is opened."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

from deniable import arguments
from deniable.errors import NOTHING, InvalidParameter, LedgerMismatch, LedgerUnavailable, require_known
from deniable.ledger import Budget, Ledger, Renewal
from deniable.ledger.stores.home_and_secret import derived
from deniable.ledger.stores.store_opening import checked_place
from deniable.queries.data_versions import checked_versions, settled
from deniable.queries.engines.kept_tables import remove_kept, sweep_kept
from deniable.queries.session import Session
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table, read_schema
from deniable.tables.schema_proposal import propose_schema
from deniable.tables.source_files import files_of, plain_name, table_name
from deniable.units import Unit

if TYPE_CHECKING:
    from deniable.queries.engines.engine import Engine

_ROWS = "rows"
"""The purpose of the secret derived from the ledger's: it decides which rows of a person are kept."""

Declared = Mapping[str, Any] | str | Path | None


def session(
    source: object,
    *,
    unit: Unit | Mapping[str, Unit] | None = None,
    budget: Budget | Renewal | None = None,
    schema: Declared = None,
    public: Mapping[str, object] | None = None,
    unique: Mapping[str, Sequence[str]] | None = None,
    owned: Mapping[str, Sequence[str]] | None = None,
    ledger: str | Path | Ledger | None = None,
    version: str | Mapping[str, str] | None = None,
    engine: object = "duckdb",
    keep: bool = True,
    progress: bool = False,
    **unknown: Never,
) -> Session:
    """Open a session on one table, or on several: {"visits": "visits.parquet", "patients": frame}.

    `source`: a CSV or Parquet file, a pandas, polars or Arrow table, or `queries.DatabaseTable(path, table)` for a
    table of a DuckDB file. With a Spark session as `engine`: a Spark dataframe, or the name of a table there. `unit` is
    the unit that the budget protects, for all tables or by name; `public` has tables without private data. `schema`
    declares kinds, bounds and public keys: by column, by table and column, or as a file. Columns that it leaves out get
    a kind from their type, and nothing else. Nothing is inferred from the data. `unique` lists, by table, columns of
    which each value names one row and one person: {"orders": ["order_id"]}. A join on it pairs rows of one person.
    `owned` lists columns of which each value belongs to one person, in several rows: {"items": ["order_id"]}.

    `ledger` is the file of the ledger; sessions on the same file share one budget. Without it the ledger is kept in
    memory and lost with the session, so nothing enforces the budget across sessions. A ledger may hold other tables of
    the same people: all of them share one budget. A `ledger.Renewal` as `budget` is an amount for each week or year,
    for a stated number of weeks or years. `version` names the current data, for all tables or by table; by default a
    table has the newest version that the ledger knows. `progress` shows a progress bar. With `keep`, tables from files
    of more than 32 MB are stored beside the ledger file, encrypted under its secret, and the next session on unchanged
    files opens them at once; of a folder that has new files, only these are read.

    Raises `InvalidParameter` if the arguments do not fit each other or the sources, `LedgerMismatch` if an existing
    ledger has another budget or protects another kind of unit, or if the data differs from its declared version, and
    `EngineFailed` if a source cannot be read.
    """
    require_known(session, (), unknown)
    arguments.boolean("keep", keep)
    arguments.boolean("progress", progress)
    sources = _named(source)
    if not sources and not public:
        raise InvalidParameter("source", NOTHING, "must name at least one table", 'write {"visits": "visits.parquet"}')
    if ledger is not None and not isinstance(ledger, Ledger):
        checked_place(ledger)
    opened = _public(public)
    if overlap := sorted(set(sources) & set(opened)):
        raise InvalidParameter("public", overlap[0], "is also the name of a private table", "rename one of them")
    named = checked_versions(version, {**sources, **opened})
    worker = _engine(engine, ledger if keep else None)
    registered: dict[str, Table] = {}
    kept: Ledger | None = None
    try:
        tables = _tables(sources, opened, unit, schema, worker)
        for name, columns in _declared("unique", unique, tables).items():
            tables[name] = replace(tables[name], unique=columns)
        for name, columns in _declared("owned", owned, tables).items():
            tables[name] = replace(tables[name], owned=columns)
        account = _account(ledger, budget, [table.unit for table in tables.values() if table.unit is not None], sources)
        if _ledger_exists(ledger, sources):
            kept = account(None)  # a mismatch is refused before any data is read
        fresh = secrets.token_bytes(32)
        # From the ledger's secret, so that every session on it keeps the same rows of each person.
        secret = derived(fresh, _ROWS) if kept is None else kept.secret_for(_ROWS)
        for name, table in tables.items():
            with _shown(name, progress) as report:
                given = sources[name] if name in sources else opened[name]
                registered[name] = worker.register(name, given, table, secret, report)
                if not keep:
                    remove_kept(_folder_beside(ledger), name)
        if kept is None:
            kept = account(fresh)  # created last, so that a refused call leaves no new account behind
            if kept.secret_for(_ROWS) != secret:
                raise LedgerUnavailable("another process made this ledger at the same time", "open the session again")
        sweep_kept(_folder_beside(ledger), {**sources, **opened})
        reports = {name: each for name in registered if (each := worker.registered(name)) is not None}
        versions = settled(kept, registered, reports, named)
    except BaseException:
        if worker is not engine or registered:
            worker.close()
        if kept is not None and kept is not ledger:
            kept.close()
        raise
    from deniable.queries.engines.duckdb_sources import is_read_once  # late: an engine has reported a missing extra

    again = {name: each for name, each in sources.items() if not is_read_once(each)}
    return Session(worker, registered, kept, keeps=isinstance(ledger, Ledger), versions=versions, sources=again)


def _declared(
    what: str, columns_of: Mapping[str, Sequence[str]] | None, tables: Mapping[str, Table]
) -> dict[str, tuple[str, ...]]:
    """The columns of each table, `unique` or `owned`, that the owner declares."""
    for name, columns in (columns_of or {}).items():
        if name not in tables or isinstance(columns, str):
            remedy = f'write {what}={{"{next(iter(tables))}": ["order_id"]}}'
            raise InvalidParameter(what, name, "must map tables of this session to lists of columns", remedy)
    return {name: tuple(columns) for name, columns in (columns_of or {}).items()}


def _public(public: object) -> Mapping[str, object]:
    if public is None:
        return {}
    if not isinstance(public, Mapping) or not all(isinstance(name, str) for name in public):
        rule = "must map the names of tables to their sources"
        raise InvalidParameter("public", NOTHING, rule, 'write public={"wards": "wards.csv"}')
    return public


def _ledger_exists(ledger: str | Path | Ledger | None, sources: Mapping[str, object]) -> bool:
    """Whether the ledger exists already, or is in memory, so that opening it early leaves nothing behind."""
    if ledger is None or isinstance(ledger, Ledger) or Path(ledger).exists():
        return True
    return "://" in str(ledger) and _family(ledger, sources) is not None


def _dataset(sources: Mapping[str, object]) -> str:
    return ", ".join(sorted(sources))


def _named(source: object) -> dict[str, object]:
    if isinstance(source, Mapping):
        for name in source:
            if not isinstance(name, str):
                rule = f"is {type(name).__name__}, not text"
                raise InvalidParameter("source", name, rule, 'name each table: {"visits": "visits.parquet"}')
        return dict(source)
    if isinstance(source, str | Path):
        return {table_name(source): source}
    name = getattr(source, "table", None)
    return {plain_name(name) if isinstance(name, str) else "data": source}


def _tables(
    sources: Mapping[str, object],
    public: Mapping[str, object],
    unit: Unit | Mapping[str, Unit] | None,
    schema: Declared,
    engine: Engine,
) -> dict[str, Table]:
    files = schema if isinstance(schema, str | Path) else None
    by_table = isinstance(schema, Mapping) and "tables" in schema
    if files is not None or by_table:
        whole = schema if by_table else files
        # One of the two tests above has found a file or a mapping.
        declared = read_schema(whole, unit=unit if isinstance(unit, Unit) else None)  # type: ignore[arg-type]
        missing = sorted({*sources, *public} - set(declared))
        if missing:
            given = sources.get(missing[0], public.get(missing[0]))
            if isinstance(given, str | Path):
                files_of(str(given))  # raises if the file does not exist, which explains the error better
            remedy = (
                f"the schema declares {', '.join(declared)}; if one of these is this table, name it {missing[0]} there"
            )
            raise InvalidParameter("schema", missing[0], "is not in the schema", remedy)
        found = {name: declared[name] for name in (*sources, *public)}
        return {name: _owned(table, unit, name in public) for name, table in found.items()}
    columns = _by_column(schema)
    tables = {}
    for name, source in (*sources.items(), *public.items()):
        own = columns.get(name) if isinstance(columns.get(name), Mapping) else None
        mine = own if own is not None else (columns if len(sources) == 1 and name in sources else {})
        whose = None if name in public else _unit(name, unit)
        tables[name] = _typed(name, engine.types(source), mine, whose, isinstance(source, str | Path))
    return tables


def _by_column(schema: object) -> Mapping[str, Any]:
    """A schema given as a mapping, by column or by table and column, checked."""
    if schema is None:
        return {}
    if not isinstance(schema, Mapping):
        rule = f"must map columns to their domains, or be the path of a file, not {type(schema).__name__}"
        raise InvalidParameter("schema", NOTHING, rule, 'write {"age": Domain.integer(0, 120)}')
    for column in schema:
        if not isinstance(column, str):
            remedy = f"names of columns are text: write {str(column)!r}"
            raise InvalidParameter("schema", column, f"is {type(column).__name__}, not text", remedy)
    return schema


def _owned(table: Table, unit: Unit | Mapping[str, Unit] | None, is_public: bool) -> Table:
    """A declared table with the unit of the call, if given; `InvalidParameter` if it contradicts the schema."""
    if is_public:
        return replace(table, unit=None)
    if table.unit is None:
        raise InvalidParameter("schema", table.name, "is public in the schema", "pass it in public=")
    if unit is not None and _unit(table.name, unit) != table.unit:
        raise InvalidParameter(
            "unit", unit, f"the schema has {table.unit!r} for {table.name!r}", "leave out one of them"
        )
    return table


def _unit(name: str, unit: Unit | Mapping[str, Unit] | None) -> Unit:
    found = unit.get(name) if isinstance(unit, Mapping) else unit
    if not isinstance(found, Unit):
        raise InvalidParameter(
            "unit",
            found,
            f"must be a Unit: it says who is protected in {name!r}",
            'write unit=Unit.person("patient_id", rows=20), or Unit.row()',
        )
    return found


def _typed(name: str, types: Mapping[str, str], declared: Mapping[str, Any], unit: Unit | None, is_file: bool) -> Table:
    """A table with declared domains; other columns get a domain from their type."""
    open_schema = propose_schema(types, name=name).schema(unit=Unit.row())[name]  # only its columns are used
    known = dict(open_schema.columns)
    if unit is not None and unit.column is not None and unit.column not in types:
        raise InvalidParameter(
            "unit", unit.column, f"is not a column of {name!r}", _like(unit.column, known, is_file=is_file)
        )
    for column, domain in declared.items():
        if column not in types:
            raise InvalidParameter(
                "schema", column, f"is not a column of {name!r}", _like(column, known, is_file=is_file)
            )
        if not isinstance(domain, Domain):
            raise InvalidParameter(
                column, domain, "must be a Domain", 'write Domain.integer(0, 120), Domain.text("A", "B")'
            )
        known[column] = domain
    return Table(name, tuple(known.items()), unit)


def _like(column: object, known: Mapping[str, Domain], is_file: bool) -> str:
    folded = {each.casefold(): each for each in known}
    near = get_close_matches(str(column).casefold(), folded, n=1)
    # The error does not list the other names: in a file without a header line they are values of its first row.
    if near:
        return f"did you mean {folded[near[0]]!r}?"
    return "name a column; has the file a line of names at its top?" if is_file else "name a column of this data"


def _account(
    ledger: str | Path | Ledger | None,
    budget: Budget | Renewal | None,
    units: list[Unit],
    sources: Mapping[str, object],
) -> Callable[[bytes | None], Ledger]:
    """A function that opens the account after all checks; its argument is the secret of a new account."""
    if not units:
        raise InvalidParameter(
            "source", NOTHING, "must have a private table: all of these are public", "read them without a session"
        )
    if len({unit.relation for unit in units}) > 1:
        raise InvalidParameter("unit", NOTHING, "must use add/remove in all tables, or replace in all tables")
    if len({(unit.period, unit.time) for unit in units}) > 1:
        rule = "must protect whole people in all tables, or in all tables the same period by a column of the same name"
        raise InvalidParameter("unit", NOTHING, rule, "open a session for each, with ledgers of their own")
    if len({unit.column is None for unit in units}) > 1:
        # One budget cannot protect people in one table and rows in another.
        raise InvalidParameter("unit", NOTHING, "must have a column of people in all tables, or in no table")
    most = max(units, key=lambda unit: unit.rows)
    if budget is not None and not isinstance(budget, Budget | Renewal):
        raise InvalidParameter("budget", budget, "must be a Budget", "write Budget(epsilon=1, delta=1e-6)")
    if isinstance(ledger, Ledger):
        mine = ledger.renewal if isinstance(budget, Renewal) else ledger.budget
        for field, asked, found in (("budget", budget, mine), ("unit", most, ledger.unit)):
            if asked is not None and asked != found and not (field == "unit" and most.is_alike(ledger.unit)):
                raise LedgerMismatch(field, repr(asked), repr(found), f"open the session with the ledger's {field}")
        return lambda _: ledger
    if budget is None and (ledger is None or not Path(ledger).exists()):
        raise InvalidParameter("budget", None, "must be given", "write Budget(epsilon=1, delta=1e-6)")
    about: dict[str, Any] = {"budget": budget, "unit": most, "dataset": _dataset(sources)}
    return lambda secret: Ledger.open(ledger, **about, family=_family(ledger, sources), secret=secret)


def _family(ledger: str | Path | None, sources: Mapping[str, object]) -> str | None:
    """The family of the ledger in this place: other tables of its people spend from it under a further name.

    Returns None if the ledger does not exist. If a database has many ledgers, the names of the tables choose one.
    """
    if ledger is not None and "://" in str(ledger):
        return _family_in_database(str(ledger), sources)
    if ledger is None or not Path(ledger).exists():
        return None
    with Ledger.inspect(ledger) as found:
        return found.family


def _family_in_database(place: str, sources: Mapping[str, object]) -> str | None:
    """The family of the ledger that has exactly these tables, otherwise of the one that has some of them.

    A table that was opened alone and later beside others would have a second budget, if only all names together chose.
    """
    from deniable.ledger.stores.database_store import held

    with suppress(InvalidParameter), Ledger.inspect(place, dataset=_dataset(sources)) as known:
        return known.family
    found = []
    for heading in held(place):
        with Ledger.inspect(place, dataset=heading.dataset) as known:
            if not set(sources).isdisjoint(each for name in known.names for each in name.split(", ")):
                found.append(known.family)
    if len(found) > 1:
        rule = "has several ledgers with tables of these names, and one question cannot spend from two"
        raise InvalidParameter("ledger", NOTHING, rule, "open a session for each, or pass the Ledger to spend from")
    return found[0] if found else None


def _engine(engine: object, ledger: str | Path | Ledger | None = None) -> Engine:
    """The engine, by its name or session; the default one keeps large tables beside the file of the ledger."""
    from deniable.queries.engines.engine import Engine as Base

    if isinstance(engine, Base):
        return engine
    if engine == "duckdb":
        from deniable.queries.engines.duckdb import DuckDBEngine

        return DuckDBEngine(kept=_folder_beside(ledger))
    if type(engine).__module__.startswith("pyspark."):
        from deniable.queries.engines.spark import SparkEngine

        return SparkEngine(engine)
    raise InvalidParameter("engine", engine, 'must be "duckdb", an Engine, or a Spark session')


def _folder_beside(ledger: str | Path | Ledger | None) -> Path | None:
    """The folder for kept tables beside the file of a ledger; None if it is not a file."""
    return None if ledger is None or isinstance(ledger, Ledger) or "://" in str(ledger) else Path(f"{ledger}.tables")


def _shown(name: str, progress: bool) -> AbstractContextManager[Any]:
    if not progress:
        return nullcontext()
    from deniable.queries.progress_bar import bar

    return bar(f"registering {name}")
