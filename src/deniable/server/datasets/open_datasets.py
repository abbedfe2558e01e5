"""Datasets that are open: a session for each, its engine in a process of its own, its ledger shared by its family."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from deniable.curves.filters import units_of_limit
from deniable.errors import (
    NOTHING,
    DeniableError,
    InvalidParameter,
    LedgerDamaged,
    LedgerUnavailable,
    UnreadableRecord,
)
from deniable.ledger import Budget, Cost, Ledger
from deniable.ledger.incremental_verification import Growing
from deniable.ledger.keys import SigningKey
from deniable.queries.engines.engine_process import Apart
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
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table, read_schema, write_schema
from deniable.units import Unit

if TYPE_CHECKING:
    from deniable.queries.engines.engine import Engine
    from deniable.server.request_bodies import BudgetBody

Limit = Callable[[Session], None]
"""Sets what a session may answer."""

_DUMMY_SECONDS: Final = 10.0
_DUMMY_SPACE: Final = 4 << 30
"""Address space, in bytes: most of it is reserved and never touched."""
_DUMMY_EACH: Final = 2
"""Rehearsals of one person that run at the same time."""
_DUMMY_ROWS: Final = 1000
"""Behind rehearsals: as many as it takes for averages to have an answer at usual costs."""

_EVALUATIONS: Final = 300_000
"""Of expressions, to list the values of keys and columns while a question is planned: half a second."""

_LOG: Final = logging.getLogger("deniable.server")
_GONE: Final = "a file is missing: put it back where it was registered"
_CHANGED: Final = "a file changed since it was registered; register it under a new name"
_UNREAD: Final = (
    "it could be read when it was registered, and cannot be now, though its files are what they were: whoever runs the "
    "server finds the reason in its log"
)
_NO_LEDGER: Final = (
    "its ledger, or the checkpoint beside it, cannot be read: whoever runs the server must put the newest copy back"
)
TOLD: Final = {
    "dataset_unavailable": "a file of the dataset is missing, changed or cannot be read, so no question is answered; "
    "tell the owner, to whom the server says what to do",
    "ledger_damaged": "the server cannot be sure what was spent, so no question is answered; tell the owner; the "
    "server's operator must put back the newest copy of the ledger, or of its checkpoint",
}
"""What everybody but the owner hears of a dataset that cannot be opened, by the code of the problem."""


@final
class _Changed(DeniableError):
    """A file is not what was registered."""


def budget_of(body: BudgetBody) -> Budget:
    """The budget that a request describes: exactly one of ε, μ and ρ."""
    given = {name: getattr(body, name) for name in ("epsilon", "mu", "rho") if getattr(body, name) is not None}
    if len(given) != 1:
        raise InvalidParameter("budget", ", ".join(given), "give exactly one of epsilon, mu and rho")
    delta: dict[str, Any] = {} if body.delta is None else {"delta": body.delta}
    if body.keys_delta is not None and (body.epsilon is None or body.delta is None):
        raise InvalidParameter("keys_delta", body.keys_delta, "is a part of the delta of a budget of epsilon and delta")
    if body.mu is not None:
        return Budget.gaussian(mu=body.mu, **delta)
    if body.rho is not None:
        return Budget.zcdp(rho=body.rho, **delta)
    if body.delta is None:
        return Budget.pure(epsilon=given["epsilon"])
    return Budget(epsilon=given["epsilon"], delta=body.delta, keys_delta=body.keys_delta)


def cost_of(body: BudgetBody, budget: Budget) -> Cost:
    """A limit in the currency of a budget; without a δ, all of the budget's own δ for keys."""
    if body.keys_delta is not None:
        raise InvalidParameter("keys_delta", body.keys_delta, "is fixed with the budget; give delta")
    units = budget.cost(epsilon=body.epsilon, mu=body.mu, rho=body.rho).units
    # There δ is divided between what ε is said at and the keys; a limit read otherwise would promise another δ.
    if body.delta is not None and budget.epsilon is not None and body.delta != float(budget.delta):
        raise InvalidParameter("delta", body.delta, f"is {budget.delta} by the budget", "leave it out")
    if body.delta is None or budget.epsilon is not None:
        return Cost(units, budget.limit.delta_units)
    return Cost(units, units_of_limit("delta", body.delta))


def share_of(body: BudgetBody, ledger: Ledger) -> Cost:
    """What an analyst may spend, if it is no more than the dataset's own limit: that much there is not."""
    asked, most = cost_of(body, ledger.budget), ledger.limit
    found = asked if body.delta is not None else Cost(asked.units, min(asked.delta_units, most.delta_units))
    if not found <= most:
        rule = f"is more than the limit of the dataset: {most.describe(ledger.budget)}"
        raise InvalidParameter("limit", NOTHING, rule, "grant at most that; without a limit it is all of it")
    return found


def check_ceiling(settings: Settings, budget: Budget, limit: Cost) -> None:
    """InvalidParameter where a limit is above what the operator lets owners allow."""
    most = settings.ceiling
    if most is not None and not budget.within(limit, epsilon=most["epsilon"], delta=most["delta"]):
        rule = f"the operator of the server allows at most epsilon {most['epsilon']:g} at delta {most['delta']:g}"
        raise InvalidParameter("budget", NOTHING, rule, "choose a smaller one")


def declared(schema: str, table: str, column: str, domain: Domain) -> str:
    """A schema in which this is public about a column."""
    tables = tables_of(schema)
    columns = tuple((name, domain if name == column else each) for name, each in tables[table].columns)
    return write_schema({**tables, table: replace(tables[table], columns=columns)}, form="json")


def ledger_place(settings: Settings, family: str) -> str | Path:
    """Where the ledger of a family is kept."""
    folder = settings.state / "ledgers"
    folder.mkdir(parents=True, exist_ok=True)
    return settings.database or folder / f"{family}.ledger"


def tables_of(schema: str | dict[str, Any]) -> dict[str, Table]:
    """The tables of a schema that came over the wire. Text is always text, never a path."""
    return read_schema(schema if isinstance(schema, dict) else schema + "\n")


def unit_of(tables: Iterable[Table]) -> Unit:
    """Whom the ledger of a dataset protects."""
    units = [each.unit for each in tables if each.unit is not None]
    if not units:
        raise InvalidParameter("schema", NOTHING, "all tables are public", "nobody needs a budget for those")
    return max(units, key=lambda unit: unit.rows)


@final
class Open:
    """One dataset, ready to be asked."""

    def __init__(
        self, record: DatasetRecord, tables: dict[str, Table], session: Session, engine: Apart, limit: Limit
    ) -> None:
        self.record, self.tables, self.session, self.engine, self._limit = record, tables, session, engine, limit
        limit(session)
        self._dummy: tuple[Apart, dict[str, Table]] | None = None
        self._turn = threading.Lock()

    def rehearsal(self) -> Session:
        """A session on the dummy rows, with a fresh copy of the budget in memory. Costs nobody anything."""
        with self._turn:
            if self._dummy is None:
                self._dummy = self._dummies()
        engine, tables = self._dummy
        ledger = self.session.ledger
        made = Session(engine, tables, Ledger.open(budget=ledger.budget, unit=ledger.unit, dataset="dummy rows"))
        self._limit(made)
        return made

    def _dummies(self) -> tuple[Apart, dict[str, Table]]:
        """In a process of its own, as questions are: what a question does to an engine, it does to nobody else."""
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
        """A session that reads old answers, by what was public then. It has no data to answer from."""
        then = tables_of(schema)
        tables = {name: replace(table, columns=then[name].columns) for name, table in self.tables.items()}
        made = Session(Unread(), tables, self.session.ledger, keeps=True)
        self._limit(made)
        return made

    def close(self) -> None:
        self.session.close()
        if self._dummy is not None:
            self._dummy[0].close()


@final
class Datasets:
    """Every dataset by name; opened at first need, and then kept open."""

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
        """The dataset, open."""
        found = self._open.get(record.name)
        if found is not None and found.record.schema == record.schema:
            return found
        with self._turn:
            turn = self._turns.setdefault(record.name, threading.Lock())
        with turn:
            found = old = self._open.get(record.name)
            if found is None or found.record.schema != record.schema:
                try:
                    found = self.opened(record)
                except (LedgerDamaged, LedgerUnavailable):
                    raise
                except (DeniableError, OSError) as error:
                    # Why is for the owner alone, see `Curator.open`: it was readable when it was registered.
                    why = str(error) if isinstance(error, _Changed) else _UNREAD
                    if why is _UNREAD:
                        said = str(error) if isinstance(error, DeniableError) else type(error).__name__
                        _LOG.error("dataset %s cannot be opened: %s", record.name, said)
                    raise Problem("dataset_unavailable", why) from None
                self._open[record.name] = found
                if old is not None:
                    self._retire(old)
            return found

    def _retire(self, old: Open) -> None:
        """Close it when whatever was asked of it has an answer, or has run out of time."""
        timer = threading.Timer(
            2 * self._settings.seconds, lambda: self._retire(old) if old.engine.busy else old.close()
        )
        timer.daemon = True
        timer.start()
        self._retired.append((timer, old))

    def opened(self, record: DatasetRecord, kin: DatasetRecord | None = None) -> Open:
        """Open it now, whatever is open already; what is wrong with it is raised.

        A new dataset of a family that has a ledger comes with its `kin`: the ledger gets its name by `name`.
        """
        tables = tables_of(record.schema)
        for name, path in record.sources.items():
            # Old answers would be given for new data, and the marks of the family would be of something else.
            if not Path(path).exists():
                _LOG.error("a file of dataset %s is missing", record.name)
                raise _Changed(_GONE)
            if digest(Path(path)) != record.contents.get(name):
                raise _Changed(_CHANGED)
        files = {name: Path(path) for name, path in record.sources.items()}
        private = {name: path for name, path in files.items() if tables[name].unit is not None}
        public = {name: path for name, path in files.items() if tables[name].unit is None}
        declared = json.loads(write_schema({name: tables[name] for name in files}, form="json"))
        ledger = self.ledger(record, kin)
        engine = self._engine()
        try:
            made = session_on(private, public=public, schema=declared, ledger=ledger, engine=engine)
        except BaseException:
            engine.close()
            raise
        made.report_failures(partial(self.failures.add, record.name))
        return Open(record, made.tables, made, engine, self._limit)

    def _limit(self, session: Session) -> None:
        """No answer is larger than the operator allows, and large ones are made one after the other."""
        session.limit_answers(cells=self._settings.cells, evaluations=_EVALUATIONS, admits=self.large.add)

    def name(self, record: DatasetRecord, version: str) -> None:
        """Give the name of a new dataset to its family's ledger, and say there which data that is.

        The last thing before the catalogue knows the dataset, which has been written down as an intention: a name that
        it does not know is one that it has forgotten, and then nothing is registered.
        """
        self._ledger(record, record, version).close()

    def ledger(self, record: DatasetRecord, kin: DatasetRecord | None = None) -> Ledger:
        """The ledger of a dataset's family, opened under the dataset's name, or its kin's while it has none."""
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
                budget=Budget.from_dict(record.budget),
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
        """Sign everything up to now, and keep that where the ledger is not."""
        self.witness.checkpoint(record.family, self.ledger(record))

    def warm(self) -> None:
        """Open every dataset that can be opened, before somebody has to wait for it."""
        refused: dict[str, str] = {}
        for record in (records := self._catalogue.datasets()):
            about = {"dataset": record.name, "family": record.family}
            try:
                self.get(record)
            except LedgerDamaged as error:  # whoever runs the server must put something right, and the others go on
                refused.setdefault(record.family, str(error))
                noted(error, **about)
            except Problem as problem:
                if problem.code == "ledger_damaged":
                    refused.setdefault(record.family, problem.detail)
                    logged("ledger_damaged", **about)
            except DeniableError:
                pass  # told to whoever asks
        for family, why in refused.items():
            names = ", ".join(each.name for each in records if each.family == family)
            _LOG.error("the ledger of %s (family %s) is refused: %s", names, family, why)

    def growing(self, record: DatasetRecord) -> Growing:
        """The ledger of a dataset's family, verified as far as it was looked at in this process."""
        ledger = self.ledger(record)
        with self._turn:
            found = self._growing.get(ledger.serial)
            if found is None:
                found = self._growing[ledger.serial] = Growing(ledger, ledger.keys[0])
            return found

    def engines(self) -> list[Apart]:
        """The engines of all datasets that are open."""
        return [each.engine for each in list(self._open.values())]

    def keep(self, found: Open) -> None:
        """A dataset that was just registered."""
        self._open[found.record.name] = found

    def forget(self, name: str) -> None:
        """Let go of whatever is open under this name. What was written stays."""
        opened, ledger = self._open.pop(name, None), self._ledgers.pop(name, None)
        if opened is not None:
            opened.close()
        if ledger is not None:
            ledger.close()

    def close(self) -> None:
        """Close every session and every ledger."""
        self.witness.close()
        for each in self._open.values():
            with contextlib.suppress(DeniableError, Problem, OSError):  # a full disk is no reason to stay open
                self.checkpoint(each.record)
            each.close()
        for timer, old in self._retired:
            timer.cancel()
            old.close()
        for ledger in self._ledgers.values():
            ledger.close()

    def _engine(self) -> Apart:
        settings = self._settings
        if settings.engine == "spark":
            return Apart(partial(_spark, settings.seconds), seconds=settings.seconds, admits=Places(settings.each).one)
        from deniable.queries.engines.duckdb import DuckDBEngine

        make = partial(DuckDBEngine, memory=settings.memory, seconds=settings.seconds)
        return Apart(make, seconds=settings.seconds, space=settings.space, admits=Places(settings.each).one)


def _spark(seconds: float) -> Engine:
    """Spark as its own configuration files say: which cluster, how much of it."""
    from deniable.queries.engines.spark import SparkEngine, session

    return SparkEngine(session(), seconds=seconds)
