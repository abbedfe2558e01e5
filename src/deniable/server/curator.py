"""The curator: what people may ask for, in terms of sessions, ledgers and the catalogue. HTTP and the console call it.

Every method takes the person who asks and checks what they may see; a dataset that is not for them does not exist.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import Any, final

from deniable.errors import NOTHING, InvalidParameter
from deniable.ledger import Budget
from deniable.queries.answers import Answer
from deniable.queries.session import Session
from deniable.server.auth import Gate
from deniable.server.bodies import BudgetBody
from deniable.server.catalogue import Catalogue, DatasetRecord, Person, ReleaseRecord
from deniable.server.datasets import Datasets, Open, budget_of, tables_of
from deniable.server.dummy import dummy_rows
from deniable.server.problems import Problem
from deniable.server.roles import Role
from deniable.server.settings import Settings
from deniable.server.sources import allowed
from deniable.tables.schema import write_schema


@final
class Curator:
    """Everything behind the API. Threads may share it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        settings.state.mkdir(parents=True, exist_ok=True)
        settings.state.chmod(0o700)
        self.catalogue = Catalogue(settings.database or settings.state / "catalogue.sqlite")
        self.gate = Gate(self.catalogue)
        self.datasets = Datasets(settings, self.catalogue)

    def close(self) -> None:
        """Let go of everything. What was written stays."""
        self.datasets.close()
        self.catalogue.close()

    # -- questions -----------------------------------------------------------------------------------------------------

    def price(self, person: Person, dataset: str, sql: str, cost: dict[str, Any]) -> dict[str, Any]:
        """What a question would cost. Reads no data."""
        found = self._session(person, dataset).price(sql, **cost)
        left = found.left.describe_rest(found.budget)
        return {**found.to_dict(), "dataset": dataset, "left": left, "lines": found.lines()}

    def ask(
        self, person: Person, dataset: str, sql: str, cost: dict[str, Any], key: str | None = None
    ) -> dict[str, Any]:
        """Answer a question."""
        answer = self._session(person, dataset).ask(sql, key=key, **cost)
        self._note(person, dataset, [(sql, answer)])
        return told(dataset, answer)

    def refine(
        self, person: Person, dataset: str, sql: str, cost: dict[str, Any], key: str | None = None
    ) -> dict[str, Any]:
        """Spend more on a question that was answered, and merge."""
        session = self._session(person, dataset)
        before = session.recall(sql, confidence=cost["confidence"])
        if before is None:
            raise InvalidParameter("sql", NOTHING, "was not answered yet", "ask it first")
        answer = session.refine(before, key=key, **cost)
        self._note(person, dataset, [(sql, answer)])
        return told(dataset, answer)

    def batch(self, person: Person, dataset: str, questions: list[str], cost: dict[str, Any]) -> dict[str, Any]:
        """Several questions for one cost: all are paid for, or none."""
        answers = self._session(person, dataset).batch(questions, **cost)
        self._note(person, dataset, list(zip(questions, answers, strict=True)))
        return {"dataset": dataset, "answers": [told(dataset, answer) for answer in answers]}

    def dummy(self, person: Person, dataset: str, rows: int) -> dict[str, Any]:
        """Dummy rows."""
        record = self.visible(person, dataset)
        made = dummy_rows(self.datasets.get(record).tables, rows=rows)
        return {"dataset": dataset, "dummy": True, "tables": made}

    def dummy_ask(self, person: Person, dataset: str, sql: str, cost: dict[str, Any]) -> dict[str, Any]:
        """Answer a question from dummy rows. Free, and about nobody."""
        record = self.visible(person, dataset)
        rehearsal = self.datasets.get(record).rehearsal()
        try:
            answer = rehearsal.ask(sql, **cost)
        finally:
            rehearsal.ledger.close()
        return {**answer.to_dict(), "dataset": dataset, "dummy": True}

    # -- datasets ------------------------------------------------------------------------------------------------------

    def visible(self, person: Person, dataset: str) -> DatasetRecord:
        """The dataset, if there is one that this person may see."""
        record = self.catalogue.dataset(dataset)
        if record is None or not self._sees(person, record):
            raise Problem("not_found", f"there is no dataset {dataset!r} that you may see")
        return record

    def _sees(self, person: Person, record: DatasetRecord) -> bool:
        match person.role:
            case Role.OWNER:
                return record.owner == person.name
            case Role.ANALYST:
                return self.catalogue.granted(person.name, record.name)
            case Role.AUDITOR:
                return True
        return False

    def listed(self, person: Person) -> list[dict[str, Any]]:
        """The datasets that somebody may see."""
        found = [record for record in self.catalogue.datasets() if self._sees(person, record)]
        return [{"name": record.name, "owner": record.owner, "tables": sorted(record.sources)} for record in found]

    def described(self, person: Person, dataset: str) -> dict[str, Any]:
        """All that is public about a dataset, and its account."""
        record = self.visible(person, dataset)
        opened = self.datasets.get(record)
        session = self._session(person, dataset)
        remaining = session.remaining
        return {
            "name": record.name,
            "owner": record.owner,
            "tables": json.loads(write_schema(opened.tables, form="json"))["tables"],
            "unit": session.ledger.unit.describe(),
            "budget": described_budget(session.budget),
            "spent": session.ledger.charged.describe(session.budget),
            "spent_curve": session.spent.to_dict(),
            "left": remaining.cost.describe_rest(session.budget),
            "left_in_words": str(remaining),
        }

    def register(
        self,
        person: Person,
        name: str,
        sources: dict[str, str],
        schema: str | dict[str, Any],
        budget: BudgetBody | None,
    ) -> dict[str, Any]:
        """Register a dataset: its files are read once, as the schema says."""
        tables = tables_of(schema)
        for table in sources:
            if table not in tables:
                raise InvalidParameter("schema", table, "is not in the schema", f"it declares {', '.join(tables)}")
        files = {table: str(allowed(source, self.settings.data)) for table, source in sources.items()}
        if self.catalogue.dataset(name) is not None:
            raise Problem("exists", f"there is a dataset {name!r} already")
        if budget is None:
            raise InvalidParameter("budget", None, "must be given", 'write {"epsilon": 1, "delta": 1e-6}')
        text = write_schema({table: tables[table] for table in files}, form="json")
        family = secrets.token_hex(8)
        record = DatasetRecord(name, person.name, files, text, budget_of(budget).to_dict(), family, time.time())
        opened = self.datasets.opened(record)
        try:
            self.catalogue.add_dataset(record, set())
        except BaseException:
            opened.close()
            raise
        self.datasets.keep(opened)
        return self.described(person, name)

    # -- people --------------------------------------------------------------------------------------------------------

    def people(self) -> list[dict[str, Any]]:
        """Everybody."""
        return [
            {"name": person.name, "role": person.role, "active": active} for person, active in self.catalogue.people()
        ]

    def analysts(self) -> list[str]:
        """The names of the analysts."""
        return [person.name for person, active in self.catalogue.people() if active and person.role is Role.ANALYST]

    def add_person(self, name: str, role: Role) -> dict[str, Any]:
        """Somebody new."""
        person = self.catalogue.add_person(name, role)
        return {"name": person.name, "role": person.role}

    def close_person(self, name: str) -> None:
        """Nobody comes in under this name any more."""
        self.catalogue.close_person(name)
        self.gate.forget()

    def issue(self, name: str, days: float | None) -> dict[str, Any]:
        """A token for somebody, told once."""
        if self.catalogue.person(name) is None:
            raise Problem("not_found", f"there is nobody called {name!r}")
        token, id, expires = self.gate.issue(name, days=self.settings.token_days if days is None else days)
        return {"token": token, "id": id, "person": name, "expires": int(expires)}

    def tokens(self, name: str) -> list[dict[str, Any]]:
        """What is kept of somebody's tokens."""
        return [
            {"id": each.id, "made": int(each.made), "expires": int(each.expires), "revoked": each.revoked}
            for each in self.catalogue.tokens(name)
        ]

    def revoke(self, id: str) -> None:
        """This token opens nothing any more."""
        self.catalogue.revoke_token(id)
        self.gate.forget()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _session(self, person: Person, dataset: str) -> Session:
        return self.open(person, dataset).session

    def open(self, person: Person, dataset: str) -> Open:
        """The dataset, open, if this person may see it."""
        return self.datasets.get(self.visible(person, dataset))

    def _note(self, person: Person, dataset: str, answered: list[tuple[str, Answer]]) -> None:
        now = time.time()
        self.catalogue.add_releases(
            [
                ReleaseRecord(dataset, answer.receipt.entry, person.name, sql, answer.confidence, now)
                for sql, answer in answered
                if not answer.receipt.replayed
            ]
        )


def told(dataset: str, answer: Answer) -> dict[str, Any]:
    """An answer as it goes over the wire."""
    return {**answer.to_dict(), "dataset": dataset, "release": f"{dataset}:{answer.receipt.entry}"}


def described_budget(budget: Budget) -> dict[str, Any]:
    """A budget in words and numbers."""
    epsilon = budget.epsilon
    return {
        "words": repr(budget),
        "currency": budget.currency,
        "epsilon": None if epsilon is None else str(epsilon),
        "delta": str(budget.delta),
    }
