"""Open datasets: a session for each, with its engine in a separate process, and a ledger that its family shares.

A dataset is opened at its first question, or at the start of the server, and stays open. Before that, its files are
compared with their hashes at registration: a changed file is refused. When bounds are bought, the schema changes, and
the dataset is opened again; the old session is closed once its questions are answered.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from deniable.curves.exact_amounts import delta_units_of_limit
from deniable.errors import (
    NOTHING,
    DeniableError,
    InvalidParameter,
    LedgerDamaged,
    LedgerUnavailable,
    UnreadableRecord,
)
from deniable.ledger import Budget, Cost, Ledger, Renewal
from deniable.ledger.incremental_verification import Growing
from deniable.ledger.keys import SigningKey
from deniable.ledger.renewal import read_budget
from deniable.queries.engines.engine_process import Apart
from deniable.queries.engines.kept_tables import sweep_kept
from deniable.queries.engines.price_engine import Unread
from deniable.queries.session import Session
from deniable.queries.session_opening import session as session_on
from deniable.server.catalogue.catalogue import Catalogue, DatasetRecord
from deniable.server.datasets.data_marks import digest
from deniable.server.datasets.dummy_rows import dummy_rows
from deniable.server.datasets.failure_log import Failures
from deniable.server.datasets.ledger_witness import Witness
from deniable.server.operations.security_events import logged, noted
from deniable.server.operations.settings import Settings
from deniable.server.operations.work_turns import Large, Places
from deniable.server.problems import Problem
from deniable.server.request_bodies import BudgetBody, NewBudget
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table, read_schema, schema_records, write_schema
from deniable.units import Unit

if TYPE_CHECKING:
    from deniable.queries.engines.engine import Engine

Limit = Callable[[Session], None]
"""Sets the limits of a session."""

_DUMMY_SECONDS: Final = 10.0
_DUMMY_SPACE: Final = 4 << 30
"""Address space of an engine for dummy rows, in bytes; most of it is reserved and never used."""
_DUMMY_EACH: Final = 2
"""The most questions to dummy rows of one person at the same time."""
_DUMMY_ROWS: Final = 1000
"""Rows in a dummy table: enough for averages to have a value at usual costs."""

_EVALUATIONS: Final = 300_000
"""The most evaluations of expressions while a question is planned, to list keys: about half a second."""

_LOG: Final = logging.getLogger("deniable.server")
_GONE: Final = "a file is missing: restore it at the path where it was registered"
_CHANGED: Final = "a file changed since it was registered; register it under a new name"
_UNREAD: Final = (
    "the dataset cannot be read, although its files have not changed since it was registered: the server's operator "
    "finds the reason in the server's log"
)
_NO_LEDGER: Final = (
    "its ledger, or the checkpoint beside it, cannot be read: the server's operator must restore the newest copy"
)
FOR_OTHERS: Final = {
    "dataset_unavailable": "a file of the dataset is missing, changed or cannot be read, so no question is answered; "
    "tell the owner, who gets instructions from the server",
    "ledger_damaged": "the server cannot determine what was spent, so no question is answered; tell the owner; the "
    "server's operator must restore the newest copy of the ledger, or of its checkpoint",
}
"""The detail for everybody but the owner if a dataset cannot be opened, by the code of the problem."""


@final
class _Changed(DeniableError):
    """A file is missing or has changed since registration."""


def budget_of(body: BudgetBody) -> Budget:
    """The budget of a request. Raises InvalidParameter unless exactly one of ε, μ and ρ is given."""
    given = {name: getattr(body, name) for name in ("epsilon", "mu", "rho") if getattr(body, name) is not None}
    if len(given) != 1:
        raise InvalidParameter("budget", ", ".join(given), "must have exactly one of epsilon, mu and rho")
    delta: dict[str, Any] = {} if body.delta is None else {"delta": body.delta}
    if body.keys_delta is not None and (body.epsilon is None or body.delta is None):
        rule = "is allowed only in a budget that has epsilon and delta"
        raise InvalidParameter("keys_delta", body.keys_delta, rule, "leave it out")
    if body.mu is not None:
        return Budget.gaussian(mu=body.mu, **delta)
    if body.rho is not None:
        return Budget.zcdp(rho=body.rho, **delta)
    if body.delta is None:
        return Budget.pure(epsilon=given["epsilon"])
    return Budget(epsilon=given["epsilon"], delta=body.delta, keys_delta=body.keys_delta)


def new_budget_of(body: BudgetBody) -> Budget | Renewal:
    """The budget of a new dataset, which may renew."""
    each = budget_of(body)
    if not isinstance(body, NewBudget) or body.per is None or body.periods is None:
        return each
    made = Renewal(each, per=body.per, periods=body.periods)
    made.lifetime  # noqa: B018  # raises if the δ of all periods together is 1 or more
    return made


def whole_of(budget: Budget | Renewal) -> Budget:
    """The budget of a dataset's lifetime."""
    return budget.lifetime if isinstance(budget, Renewal) else budget


def requested_limit(body: BudgetBody, budget: Budget) -> Cost:
    """A limit in the currency of a budget. Without a δ it includes the budget's whole δ for unlisted keys."""
    if body.keys_delta is not None:
        raise InvalidParameter(
            "keys_delta", body.keys_delta, "cannot be changed after the budget is created", "leave it out"
        )
    units = budget.cost(epsilon=body.epsilon, mu=body.mu, rho=body.rho).units
    # A budget of ε and δ divides its δ between the curve and unlisted keys, so a limit cannot have another δ.
    if body.delta is not None and budget.epsilon is not None and body.delta != float(budget.delta):
        raise InvalidParameter("delta", body.delta, f"must be {budget.delta}, the delta of the budget", "leave it out")
    if body.delta is None or budget.epsilon is not None:
        return Cost(units, budget.limit.delta_units)
    return Cost(units, delta_units_of_limit(body.delta))


def share_of(body: BudgetBody, ledger: Ledger) -> Cost:
    """The limit of an analyst. Raises InvalidParameter if it exceeds the limit of the dataset."""
    asked, most = requested_limit(body, ledger.budget), ledger.limit
    found = asked if body.delta is not None else Cost(asked.units, min(asked.delta_units, most.delta_units))
    if not found <= most:
        rule = f"must be at most the limit of the dataset: {most.describe(ledger.budget)}"
        raise InvalidParameter("limit", NOTHING, rule, "grant less; without a limit, the whole budget is granted")
    return found


def check_ceiling(settings: Settings, budget: Budget, limit: Cost) -> None:
    """Raise InvalidParameter if a limit exceeds the operator's ceiling."""
    most = settings.ceiling
    if most is not None and not budget.within(limit, epsilon=most["epsilon"], delta=most["delta"]):
        rule = f"must be at most epsilon {most['epsilon']:g} at delta {most['delta']:g}, the ceiling of this server"
        raise InvalidParameter("budget", NOTHING, rule, "choose a smaller budget")


def declared(schema: str, table: str, column: str, domain: Domain) -> str:
    """The schema with another domain for one column."""
    tables = tables_of(schema)
    columns = tuple((name, domain if name == column else each) for name, each in tables[table].columns)
    return write_schema({**tables, table: replace(tables[table], columns=columns)}, form="json")


def ledger_place(settings: Settings, family: str) -> str | Path:
    """The file of a family's ledger, or the URL of the database."""
    folder = settings.state / "ledgers"
    folder.mkdir(parents=True, exist_ok=True)
    return settings.database or folder / f"{family}.ledger"


def tables_of(schema: str | dict[str, Any]) -> dict[str, Table]:
    """The tables of a schema in a request. Text is always the schema itself, never a path."""
    return read_schema(schema if isinstance(schema, dict) else schema + "\n")


def unit_of(tables: Iterable[Table]) -> Unit:
    """The unit that the ledger of a dataset protects: the one with the most rows per person."""
    units = [each.unit for each in tables if each.unit is not None]
    if not units:
        raise InvalidParameter(
            "schema", NOTHING, "must have a table that is not public", "public tables need no budget, and no server"
        )
    return max(units, key=lambda unit: unit.rows)


@final
class Open:
    """An open dataset."""

    def __init__(
        self, record: DatasetRecord, tables: dict[str, Table], session: Session, engine: Apart, limit: Limit
    ) -> None:
        self.record, self.tables, self.session, self.engine, self._limit = record, tables, session, engine, limit
        limit(session)
        self._dummy: tuple[Apart, dict[str, Table]] | None = None
        self._turn = threading.Lock()

    def rehearsal(self) -> Session:
        """A session on dummy rows, with a new ledger in memory that has the same budget. Free of charge."""
        with self._turn:
            if self._dummy is None:
                self._dummy = self._dummies()
        engine, tables = self._dummy
        ledger = self.session.ledger
        made = Session(engine, tables, Ledger.open(budget=ledger.budget, unit=ledger.unit, dataset="dummy rows"))
        self._limit(made)
        return made

    def _dummies(self) -> tuple[Apart, dict[str, Table]]:
        """The dummy tables, with an engine in a separate process, so that a bad question harms only this engine."""
        import pyarrow as pa

        from deniable.queries.engines.duckdb import DuckDBEngine

        make = partial(DuckDBEngine, memory="200MB", threads=1, seconds=_DUMMY_SECONDS)
        engine = Apart(make, seconds=_DUMMY_SECONDS, space=_DUMMY_SPACE, admits=Places(_DUMMY_EACH).one)
        rows = dummy_rows(self.tables, rows=_DUMMY_ROWS)
        made = {
            name: engine.register(name, pa.Table.from_pylist(rows[name]), table, b"nobody is protected here")
            for name, table in self.tables.items()
        }
        return engine, made

    def before(self, schema: str) -> Session:
        """A session with an earlier schema, to read answers of that time. It cannot answer new questions."""
        then = tables_of(schema)
        tables = {name: replace(table, columns=then[name].columns) for name, table in self.tables.items()}
        made = Session(Unread(), tables, self.session.ledger, keeps=True)
        self._limit(made)
        return made

    def close(self) -> None:
        """Close the session and the engines."""
        self.session.close()
        if self._dummy is not None:
            self._dummy[0].close()


@final
class Datasets:
    """The open datasets, by name. Threads may share it."""

    def __init__(self, settings: Settings, catalogue: Catalogue, key: SigningKey) -> None:
        self._settings, self._catalogue, self._key = settings, catalogue, key
        self.failures = Failures(settings.state / "failures.jsonl")
        self.witness = Witness(settings, catalogue, key)
        self.large = Large()
        self._open: dict[str, Open] = {}
        self._ledgers: dict[str, Ledger] = {}
        self._growing: dict[str, Growing] = {}
        self._retired: list[tuple[threading.Timer, Open]] = []
        self._turns: dict[str, threading.Lock] = {}
        self._turn = threading.Lock()

    def get(self, record: DatasetRecord) -> Open:
        """The open dataset, with the schema of `record`. Raises Problem `dataset_unavailable` if it cannot be read."""
        found = self._open.get(record.name)
        if found is not None and _is_current(found.record, record):
            return found
        with self._turn:
            turn = self._turns.setdefault(record.name, threading.Lock())
        with turn:
            found = old = self._open.get(record.name)
            if found is None or not _is_current(found.record, record):
                try:
                    found = self.opened(record)
                except (LedgerDamaged, LedgerUnavailable):
                    raise
                except (DeniableError, OSError) as error:
                    # The reason may depend on the data: only the owner gets it, see `Curator.open`.
                    why = str(error) if isinstance(error, _Changed) else _UNREAD
                    if why is _UNREAD:
                        reason = str(error) if isinstance(error, DeniableError) else type(error).__name__
                        _LOG.error("dataset %s cannot be opened: %s", record.name, reason)
                    raise Problem("dataset_unavailable", why) from None
                self._open[record.name] = found
                if old is not None:
                    self._retire(old)
            return found

    def _retire(self, old: Open) -> None:
        """Close an old session once its engine is idle."""
        timer = threading.Timer(
            2 * self._settings.seconds, lambda: self._retire(old) if old.engine.busy else old.close()
        )
        timer.daemon = True
        timer.start()
        self._retired.append((timer, old))

    def opened(self, record: DatasetRecord, kin: DatasetRecord | None = None) -> Open:
        """Open a dataset, without looking for an open one.

        For a new dataset of an existing family, `kin` is an older one: the ledger gets the new name later, by `name`.
        """
        tables = tables_of(record.schema)
        for name, path in record.sources.items():
            # Otherwise old answers would be given for new data, and the family's marks would be wrong.
            if not Path(path).exists():
                _LOG.error("a file of dataset %s is missing", record.name)
                raise _Changed(_GONE)
            if digest(Path(path)) != record.contents.get(name):
                raise _Changed(_CHANGED)
        files = {name: Path(path) for name, path in record.sources.items()}
        private = {name: path for name, path in files.items() if tables[name].unit is not None}
        public = {name: path for name, path in files.items() if tables[name].unit is None}
        declared = {"version": 1, "tables": schema_records({name: tables[name] for name in files})}
        ledger = self.ledger(record, kin)
        engine = self._engine(record)
        try:
            made = session_on(
                private, public=public, schema=declared, ledger=ledger, version=record.version, engine=engine
            )
        except BaseException:
            engine.close()
            raise
        sweep_kept(self._kept(record), files)  # of tables that an earlier version had
        made.report_failures(partial(self.failures.add, record.name))
        return Open(record, made.tables, made, engine, self._limit)

    def _limit(self, session: Session) -> None:
        """Limit the size of answers by the settings, and let each person build large ones one at a time."""
        session.limit_answers(cells=self._settings.cells, evaluations=_EVALUATIONS, admits=self.large.add)

    def name(self, record: DatasetRecord, version: str) -> None:
        """Write the name of a new dataset, and the version of its data, into its family's ledger.

        This is the last step before the catalogue records the dataset. The catalogue has stored an intention before:
        a name that it does not know would count as forgotten spending.
        """
        self._ledger(record, record, version).close()

    def ledger(self, record: DatasetRecord, kin: DatasetRecord | None = None) -> Ledger:
        """The ledger of a dataset's family, opened under the dataset's name, or under that of its `kin`."""
        with self._turn:
            found = self._ledgers.get(record.name)
            if found is None:
                found = self._ledgers[record.name] = self._ledger(record, kin or record)
            return found

    def _ledger(self, record: DatasetRecord, named: DatasetRecord, version: str | None = None) -> Ledger:
        unit = unit_of(tables_of(record.schema).values())
        place, known = ledger_place(self._settings, record.family), self.witness.known(record.family)
        try:
            ledger = Ledger.open(
                place,
                budget=read_budget(record.budget),
                unit=unit,
                dataset=named.name,
                family=record.family,
                owner=self._key.public,
                checkpoint=known,
                version=version,
            )
        except UnreadableRecord:
            raise Problem("ledger_damaged", _NO_LEDGER) from None
        try:
            self.witness.opened(record.family, ledger)
        except BaseException:
            ledger.close()
            raise
        return ledger

    def checkpoint(self, record: DatasetRecord) -> None:
        """Sign the newest entry of the ledger, and store the signature in the folder of checkpoints as well."""
        self.witness.checkpoint(record.family, self.ledger(record))

    def warm(self) -> None:
        """Open every dataset, so that the first question does not wait. Logs ledgers that are refused."""
        refused: dict[str, str] = {}
        for record in (records := self._catalogue.datasets()):
            about = {"dataset": record.name, "family": record.family}
            try:
                self.get(record)
            except LedgerDamaged as error:  # the operator must restore the ledger; other datasets work
                refused.setdefault(record.family, str(error))
                noted(error, **about)
            except Problem as problem:
                if problem.code == "ledger_damaged":
                    refused.setdefault(record.family, problem.detail)
                    logged("ledger_damaged", **about)
            except DeniableError:
                pass  # the next question to it reports the error
        for family, why in refused.items():
            names = ", ".join(each.name for each in records if each.family == family)
            _LOG.error("the ledger of %s (family %s) is refused: %s", names, family, why)

    def growing(self, record: DatasetRecord) -> Growing:
        """The incremental verification of a family's ledger in this process."""
        ledger = self.ledger(record)
        with self._turn:
            found = self._growing.get(ledger.serial)
            if found is None:
                found = self._growing[ledger.serial] = Growing(ledger, ledger.keys[0])
            return found

    def engines(self) -> list[Apart]:
        """The engines of all open datasets."""
        return [each.engine for each in list(self._open.values())]

    def keep(self, found: Open) -> None:
        """Add a dataset that was just registered, or a new version of one."""
        old = self._open.get(found.record.name)
        self._open[found.record.name] = found
        if old is not None:
            found.engine.follow(old.engine)
            self._retire(old)

    def forget(self, name: str) -> None:
        """Close the dataset of this name, if it is open."""
        opened, ledger = self._open.pop(name, None), self._ledgers.pop(name, None)
        if opened is not None:
            opened.close()
        if ledger is not None:
            ledger.close()

    def close(self) -> None:
        """Sign a last checkpoint of every open ledger, and close everything."""
        self.witness.close()
        for each in self._open.values():
            with contextlib.suppress(DeniableError, Problem, OSError):  # such as a full disk; close anyway
                self.checkpoint(each.record)
            each.close()
        for timer, old in self._retired:
            timer.cancel()
            old.close()
        for ledger in self._ledgers.values():
            ledger.close()

    def _kept(self, record: DatasetRecord) -> Path:
        """The folder for kept tables of this dataset alone."""
        return self._settings.state / "tables" / sha256(f"{record.family} {record.name}".encode()).hexdigest()[:16]

    def _engine(self, record: DatasetRecord) -> Apart:
        settings = self._settings
        if settings.engine == "spark":
            return Apart(partial(_spark, settings.seconds), seconds=settings.seconds, admits=Places(settings.each).one)
        from deniable.queries.engines.duckdb import DuckDBEngine

        make = partial(DuckDBEngine, memory=settings.memory, seconds=settings.seconds, kept=self._kept(record))
        return Apart(make, seconds=settings.seconds, space=settings.space, admits=Places(settings.each).one)


def _is_current(opened: DatasetRecord, record: DatasetRecord) -> bool:
    now, then = (record.schema, record.contents, record.version), (opened.schema, opened.contents, opened.version)
    return now == then


def _spark(seconds: float) -> Engine:
    """A Spark engine; the cluster and its resources come from Spark's own configuration files."""
    from deniable.queries.engines.spark import SparkEngine, session

    return SparkEngine(session(), seconds=seconds)
