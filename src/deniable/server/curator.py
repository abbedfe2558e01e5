"""The curator: what people may ask for, in terms of sessions, ledgers and the catalogue.

The HTTP API and the console call it. Methods take the person who asks. They raise Problem `not_found` for a dataset
that this person may not see, as if it did not exist. Callers check roles first (`server.roles`).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from itertools import chain
from pathlib import Path
from typing import Any, Final, final

from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, QuestionRefused
from deniable.ledger import EVERYBODY, Cost, Entry, Ledger
from deniable.queries.answer.answer import Answer
from deniable.queries.bought_bounds import rows_to_be_seen
from deniable.queries.engines.scratch_folders import scratch, sweep
from deniable.queries.session import Session
from deniable.server import api_records
from deniable.server.access.bearer_tokens import FRESH, TokenGate
from deniable.server.access.oidc import configured
from deniable.server.access.sign_in import Reception
from deniable.server.api_records import answer_record, ask_text, charge_time, noted, question_from_text, recalled
from deniable.server.catalogue.catalogue import Catalogue, DatasetRecord, Person, ReleaseRecord
from deniable.server.charge_fate import ThreadWork
from deniable.server.datasets import kinship
from deniable.server.datasets.data_marks import marks_of, sketch_of, version_of
from deniable.server.datasets.dataset_versions import DatasetVersions
from deniable.server.datasets.dummy_rows import dummy_rows
from deniable.server.datasets.forgotten_spending import broken_off, check_name, check_strays, strays
from deniable.server.datasets.kinship import asked
from deniable.server.datasets.open_datasets import (
    FOR_OTHERS,
    Datasets,
    Open,
    check_ceiling,
    declared,
    requested_limit,
    share_of,
    tables_of,
    whole_of,
)
from deniable.server.datasets.registration_steps import NewRegistration, check_new_name, settle
from deniable.server.datasets.source_folders import allowed, folders_of
from deniable.server.datasets.standing_answers import StandingAnswers
from deniable.server.datasets.synthetic_downloads import Synthetics, recall, synthetic_record
from deniable.server.noted_questions import NotedBounds, NotedStanding, NotedSynthesis, read_note
from deniable.server.operations.server_identity import claim, identified, is_key
from deniable.server.operations.settings import Settings
from deniable.server.operations.state_holding import StateWatch, serving
from deniable.server.operations.work_turns import SMALL
from deniable.server.privacy_labels import label_of, label_of_synthetic, signed
from deniable.server.problems import Problem
from deniable.server.request_bodies import BudgetBody
from deniable.server.roles import Role, may
from deniable.tables.schema import write_schema

_NUMBER: Final = re.compile("[0-9]{1,9}")
_RELEASE: Final = "visits:7"
_NO_RELEASE: Final = "this release does not exist, or you may not see it"
PAGE: Final = 100
"""Releases per page."""
_POSIX: Final = os.name == "posix"
"""Engine processes and file locks need POSIX. The modules of the server can be imported anywhere."""


@final
class Curator:
    """Everything behind the API and the console. Threads may share it.

    Raises LedgerUnavailable or LedgerMismatch if the state folder and the database do not belong together.
    """

    def __init__(self, settings: Settings) -> None:
        if not _POSIX:
            raise InvalidOperation("the server runs on Linux and macOS only; on Windows use dn.session, or WSL")
        self.settings = settings
        settings.state.mkdir(parents=True, exist_ok=True)
        settings.state.chmod(0o700)
        sweep(settings.state)
        self.catalogue = Catalogue(settings.database or settings.state / "catalogue.sqlite")
        issuer = None if settings.oidc is None else configured(self.catalogue, settings.oidc)
        self.gate = TokenGate(self.catalogue, issuer)
        with contextlib.ExitStack() as held:
            held.callback(self.catalogue.close)
            held.enter_context(serving(settings.state, self.catalogue))
            self.key, self._marking = key, _ = identified(settings, self.catalogue)
            with self.catalogue.registering():
                settle(settings, self.catalogue)
            self._held = held.pop_all()
        """`key` signs adjustments, checkpoints and labels. `_marking` is the secret that recognises known data."""
        self.watch = StateWatch(lambda: is_key(self.catalogue, key))
        self.reception = Reception(
            self.catalogue, self.gate, self.key, days=settings.token_days, tokens=settings.tokens
        )
        self._seen: dict[tuple[str, str], tuple[float, DatasetRecord]] = {}
        self.datasets = Datasets(settings, self.catalogue, self.key)
        self.work = ThreadWork()
        self.synthetics, self.standing = Synthetics(self), StandingAnswers(self)
        self.versions = DatasetVersions(self, self._marking)

    def close(self) -> None:
        """Close all datasets, and release the locks on the state."""
        self.datasets.close()
        self._held.close()

    # -- questions -----------------------------------------------------------------------------------------------------

    def price(self, person: Person, dataset: str, sql: str, cost: dict[str, Any]) -> dict[str, Any]:
        """The price of a question. Free: reads no data."""
        session = self._session(person, dataset)
        return api_records.priced(dataset, session.price(question_from_text(session, sql), payer=person.name, **cost))

    def explain(self, person: Person, dataset: str, sql: str, cost: dict[str, Any] | None) -> dict[str, Any]:
        """The plan of a question, with its noise if a cost is given. Free: reads no data."""
        text = api_records.explained(self._session(person, dataset), sql, cost, payer=person.name)
        return {"dataset": dataset, "text": text}

    def ask(
        self, person: Person, dataset: str, sql: str, cost: dict[str, Any], key: str | None = None
    ) -> dict[str, Any]:
        """Answer a question, and charge its cost. A question that was answered before is free."""
        session = self.paying(person, dataset, key)
        answer = ask_text(session, sql, key=key, payer=person.name, **cost)
        self.note(person, dataset, noted(sql, answer))
        return answer_record(dataset, answer)

    def refine(
        self, person: Person, dataset: str, sql: str, cost: dict[str, Any], key: str | None = None
    ) -> dict[str, Any]:
        """Spend more on an answered question, and merge both answers. InvalidParameter if it was never answered."""
        session = self.paying(person, dataset, key)
        asked = question_from_text(session, sql)
        before = api_records.refinable(session, asked, cost["confidence"])
        if before is None:
            raise InvalidParameter("sql", NOTHING, "must have been answered before it is refined", "ask it first")
        text = asked if isinstance(asked, str) else None
        answer = session.refine(before, text=text, key=key, payer=person.name, **cost)
        self.note(person, dataset, noted(sql, answer) if answer.has_shares else [(sql, answer)])
        return answer_record(dataset, answer)

    def batch(
        self, person: Person, dataset: str, questions: list[str], cost: dict[str, Any], key: str | None = None
    ) -> dict[str, Any]:
        """Answer several questions for one cost: all are charged, or none."""
        session = self.paying(person, dataset, key)
        with session.limits():
            asked = [question_from_text(session, each) for each in questions]
        answers = session.batch(asked, key=key, payer=person.name, **cost)
        self.note(person, dataset, list(zip(questions, answers, strict=True)))
        return {"dataset": dataset, "answers": [answer_record(dataset, answer) for answer in answers]}

    def price_bounds(
        self, person: Person, dataset: str, column: str, table: str | None, cost: dict[str, Any]
    ) -> dict[str, Any]:
        """The price of bounds of a column. Free: reads no data."""
        found = self._session(person, dataset).price_bounds(column, table, payer=person.name, **cost)
        return {**api_records.priced(dataset, found), "rows_to_be_seen": rows_to_be_seen(found)}

    def bounds(
        self,
        person: Person,
        dataset: str,
        column: str,
        table: str | None,
        cover: float,
        cost: dict[str, Any],
        key: str | None = None,
    ) -> dict[str, Any]:
        """Buy bounds of a column such that about `cover` of the rows lie within, and add them to the schema."""
        session = self.paying(person, dataset, key)
        found = session.bounds(column, table, cover=cover, key=key, payer=person.name, **cost)
        self.note(person, dataset, [(NotedBounds(column, found.table).note(), found.answer)])
        while found.domain is not None:
            old = self.catalogue.dataset(dataset)
            assert old is not None
            new = declared(old.schema, found.table, column, found.domain)
            if old.schema == new or self.catalogue.redeclare(dataset, new, instead_of=old.schema):
                self._seen.clear()
                self.open(person, dataset)  # now, so that the next question does not wait for it
                break
        return api_records.bought(dataset, found)

    def dummy(self, person: Person, dataset: str, rows: int) -> dict[str, Any]:
        """Rows that are made from the public schema alone."""
        made = dummy_rows(self.open(person, dataset).tables, rows=rows)
        return {"dataset": dataset, "dummy": True, "tables": made}

    def dummy_ask(self, person: Person, dataset: str, sql: str, cost: dict[str, Any]) -> dict[str, Any]:
        """Answer a question from dummy rows. Free: the answer does not depend on data."""
        opened = self.open(person, dataset)
        rehearsal = opened.rehearsal()
        try:
            answer = ask_text(rehearsal, sql, **cost)
        finally:
            rehearsal.ledger.close()
        return api_records.rehearsed(dataset, answer, self._left(person, opened.session.ledger))

    # -- datasets ------------------------------------------------------------------------------------------------------

    def visible(self, person: Person, dataset: str) -> DatasetRecord:
        """The record of a dataset. Raises Problem `not_found` if this person may not see it.

        Raises Problem `not_ready` if the server's key was replaced while it ran.
        """
        self.watch.check()
        when, record = self._seen.get((person.name, dataset), (0.0, None))
        if record is None or time.monotonic() - when > FRESH:
            record = self.catalogue.dataset(dataset)
            if record is None or not self._sees(person, record):
                raise Problem("not_found", f"the dataset {dataset!r} does not exist, or you may not see it")
            if len(self._seen) > 10_000:
                self._seen.clear()
            self._seen[person.name, dataset] = (time.monotonic(), record)
        self.work.dataset = record
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
        """The datasets that a person may see."""
        found = [record for record in self.catalogue.datasets() if self._sees(person, record)]
        return [{"name": record.name, "owner": record.owner, "tables": sorted(record.sources)} for record in found]

    def described(self, person: Person, dataset: str) -> dict[str, Any]:
        """The public facts of a dataset and its account. For its owner also exact counts of rows read and left out."""
        opened = self.open(person, dataset)
        record, left = opened.record, self._left(person, opened.session.ledger)
        return {
            "name": record.name,
            "owner": record.owner,
            **api_records.described(opened.session, left, is_owner=person.name == record.owner),
            "answers_leave_every": self.settings.grid,
        }

    def _left(self, person: Person, ledger: Ledger) -> Cost:
        return ledger.remaining if person.role is Role.AUDITOR else ledger.left(person.name)

    def folders(self, person: Person) -> tuple[Path, ...]:
        """The folders from which an owner may register files."""
        return folders_of(
            person.name,
            self.settings,
            [each.name for each, _ in self.catalogue.people() if each.role is Role.OWNER],
        )

    def register(
        self,
        person: Person,
        name: str,
        sources: dict[str, str],
        schema: str | dict[str, Any],
        budget: BudgetBody | None,
        family: str | None = None,
        people: str | None = None,
        reason: str | None = None,
    ) -> dict[str, Any]:
        """Register a dataset: its files are read once, by the schema.

        The server recognises data that it has seen, under any name, and charges it to the budget of its family. The
        same holds for data that the owner declares as kin to one of their datasets (`family`). If only most of the ids
        are known, or rows look like known ones, the owner must say whether they belong to the same `people`. For other
        people the owner gives a `reason`, which the server signs into the ledger.
        """
        self.watch.check()
        tables = tables_of(schema)
        for table in sources:
            if table not in tables:
                remedy = (
                    f"the schema declares {', '.join(tables)}; if {table} is one of these, use one name in both places"
                )
                raise InvalidParameter("schema", table, "is not in the schema", remedy)
        folders = self.folders(person)
        files = {table: allowed(source, folders) for table, source in sources.items()}
        marks = {table: marks_of(path, tables[table], self._marking) for table, path in files.items()}
        sketches = {table: sketch_of(path, tables[table], self._marking) for table, path in files.items()}
        version = version_of(marks, tables, self._marking)
        with self.catalogue.registering():
            claim(self.settings.state, self.catalogue)
            settle(self.settings, self.catalogue)
            check_new_name(name, [each.name for each in self.catalogue.datasets()])
            lost = strays(self.settings, self.catalogue, self.datasets.witness)
            kinship.renew(self.catalogue, self._marking)
            kinship.check_public(self.catalogue, tables, marks, files, self._marking)
            choice, known = kinship.Choice(people, reason), kinship.Alike.of(self.catalogue, sketches, marks)
            families = kinship.recognised(self.catalogue, tables, marks, files, self._marking)
            if not families:  # otherwise the rows themselves are known, not only their ids
                families = asked(person, known, kinship.named(self.catalogue, person, family), choice)
            elif people == "others":
                rule = "cannot be given: the server knows the rows of this data, not only the ids"
                raise InvalidParameter("people", people, rule, "leave it out")
            kin = kinship.kin_of(self.catalogue, person, families | kinship.named(self.catalogue, person, family))
            check_strays(lost, kin[0].family if kin else None, name, version)
            limit = kinship.limit_of(kin, tables, marks, budget, (known, choice))
            begun_before = None
            if not kin:
                check_ceiling(self.settings, whole_of(limit), whole_of(limit).limit)
                begun_before = broken_off(self.settings, self.catalogue, name, person.name, limit)
            record = DatasetRecord(
                name=name,
                owner=person.name,
                sources={table: str(path) for table, path in files.items()},
                contents={table: marks[table].content for table in files},
                schema=write_schema({table: tables[table] for table in files}, form="json"),
                budget=limit.to_dict(),
                family=kin[0].family if kin else begun_before or secrets.token_hex(8),
                made=time.time(),
            )
            begun = NewRegistration.of(record, version, marks, sketches, known.all)
            try:
                opened = self.datasets.opened(record, kin[0] if kin else None)
                self.datasets.keep(opened)
                ledger = opened.session.ledger
                if kin:
                    check_name(ledger, name, version)
                if not any(each.name == person.name for each in ledger.accounts()):
                    ledger.grant(person.name, ledger.limit, by=person.name, reason="owner")
                kinship.sign(self.datasets, self.key, record, known, choice)
                if kin:
                    self.catalogue.guards.intend(name, begun.text)
                    self.datasets.name(record, version)
                self.datasets.witness.note(record.family, ledger)
                begun.add(self.catalogue)
            except BaseException:
                self.datasets.forget(name)  # a later dataset of this name may belong to another family
                raise
        warning = "the server knows this data: it continues to spend from the budget that it had" if kin else ""
        return {**self.described(person, name), "linked": bool(kin), "warning": warning}

    def renewed(self, opened: Open) -> None:
        """Serve another version of a dataset from now on."""
        self.datasets.keep(opened)
        self._seen.clear()

    # -- grants and accounts -------------------------------------------------------------------------------------------

    def grant(
        self, person: Person, dataset: str, analyst: str, limit: BudgetBody | None, window: int | None
    ) -> dict[str, Any]:
        """Let an analyst ask, up to `limit`: in total, or in each `window` of seconds. Default: the whole budget."""
        ledger = self.open(person, dataset).session.ledger
        found = self.catalogue.person(analyst)
        if found is None or found.role is not Role.ANALYST:
            raise Problem("not_found", f"no analyst is called {analyst!r}; GET /v1/analysts lists all analysts")
        share = ledger.limit if limit is None else share_of(limit, ledger)
        lifetime = [each.limit for each in ledger.accounts() if each.name == analyst and each.window is None]
        if window is not None and lifetime in ([], [Cost(0, 0)]):  # a new analyst, or one whose grant was revoked
            ledger.grant(analyst, ledger.limit, by=person.name)
        for each in ledger.accounts():  # a revoked window must not limit the new grant
            if each.name == analyst and each.window not in (None, window) and each.limit == Cost(0, 0):
                ledger.grant(analyst, ledger.limit, window=each.window, by=person.name, reason="not revoked any more")
        ledger.grant(analyst, share, window=window, by=person.name)
        self._note_with_witness(dataset, ledger)
        self.catalogue.grant(analyst, dataset)
        terms = {"limit": share.describe(ledger.budget), "window_seconds": window}
        return {"analyst": analyst, "dataset": dataset, **terms}

    def revoke_grant(self, person: Person, dataset: str, analyst: str) -> None:
        """Revoke all grants of an analyst on the family of this dataset. What they spent stays spent."""
        opened = self.open(person, dataset)
        names = [each.name for each in self.catalogue.datasets() if each.family == opened.record.family]
        self.catalogue.revoke_grants(analyst, names)
        self._seen.clear()
        ledger = opened.session.ledger
        for window in [None, *(each.window for each in ledger.accounts() if each.name == analyst and each.window)]:
            ledger.grant(analyst, Cost(0, 0), window=window, by=person.name, reason="revoked")
        self._note_with_witness(dataset, ledger)

    def grants(self, person: Person, dataset: str) -> list[dict[str, Any]]:
        """The analysts who may ask about a dataset, and their limits, which hold for its whole family."""

        ledger = self.open(person, dataset).session.ledger
        accounts = ledger.accounts()
        lifetime = {each.name: each.limit for each in accounts if each.window is None}
        return [
            {"analyst": name, "limit": each.limit.describe(ledger.budget), "window_seconds": each.window}
            for name in self.catalogue.grants(dataset)
            for each in sorted(accounts, key=lambda each: each.window or 0)
            # Left out: windows at least as large as the total limit, and analysts whose total limit is 0.
            if each.name == name and lifetime[name] != Cost(0, 0)
            if each.window is None or not lifetime[name] <= each.limit
        ]

    def adjust(self, person: Person, dataset: str, budget: BudgetBody, reason: str) -> dict[str, Any]:
        """Change the budget of a dataset, by a signed entry of the ledger. What was spent stays spent."""
        ledger = self.open(person, dataset).session.ledger
        limit = requested_limit(budget, ledger.budget)
        if not limit <= ledger.limit:
            check_ceiling(self.settings, ledger.budget, limit)
        entry = ledger.adjust(EVERYBODY, limit, by=person.name, reason=reason, key=self.key)
        # The owner's share is the whole budget, and only this method can raise it.
        shares = [each for each in ledger.accounts() if each.name == person.name and each.window is None]
        if any(not ledger.limit <= each.limit for each in shares):
            ledger.grant(person.name, ledger.limit, by=person.name, reason="owner")
        self._note_with_witness(dataset, ledger)
        return {"dataset": dataset, "entry": entry.number, "limit": ledger.limit.describe(ledger.budget)}

    def accounts(self, person: Person, dataset: str) -> list[dict[str, Any]]:
        """Every limit on a dataset, and what was spent of it."""
        ledger = self.open(person, dataset).session.ledger
        return [
            {
                "account": each.title,
                "name": each.name,
                "window_seconds": each.window,
                "limit": each.limit.describe(ledger.budget),
                "spent": each.spent.describe(ledger.budget),
                "left": each.left.describe_rest(ledger.budget),
                "lifetime": each.lifetime.describe(ledger.budget),
            }
            for each in ledger.accounts()
        ]

    # -- evidence ------------------------------------------------------------------------------------------------------

    def export(self, person: Person, dataset: str) -> bytes:
        """The ledger as JSON lines, without answers, with a new signed checkpoint at the end, for `deniable verify`."""
        record = self.visible(person, dataset)
        self.datasets.large.add(SMALL + 1)  # like a large answer: one at a time for each person
        self.datasets.growing(record).verify_whole()
        self.datasets.checkpoint(record)
        with scratch(self.settings.state) as folder:
            path = folder / "ledger.jsonl"
            self.datasets.ledger(record).export(path)
            return path.read_bytes()

    def verified(self, person: Person, dataset: str, *, whole: bool = False) -> dict[str, Any]:
        """Verify the ledger of a dataset. Raises LedgerDamaged, which names the first bad entry.

        Entries that this process verified in the last minutes are not recomputed, unless `whole` is set.
        """
        opened = self.open(person, dataset)
        ledger, growing = opened.session.ledger, self.datasets.growing(opened.record)
        newest = growing.verify_whole() if whole else growing.verify()
        return {
            "dataset": dataset,
            "serial": ledger.serial,
            "entries": 0 if newest is None else newest.number,
            "hash": None if newest is None else newest.hash,
            "keys": [each.hex for each in ledger.keys],
            "spent": ledger.charged.describe(ledger.budget),
        }

    def overlaps(self) -> list[dict[str, Any]]:
        """Pairs of datasets of two owners that share most ids, so that the same people may have two budgets."""
        owners = {record.name: record.owner for record in self.catalogue.datasets()}
        return [
            {"dataset": new, "owner": owners[new], "other": old, "other_owner": owners[old], "time": int(made)}
            for new, old, made in self.catalogue.guards.overlaps()
        ]

    def failures(self, person: Person, dataset: str) -> list[dict[str, Any]]:
        """For the owner: runs that failed. They were answered as if the tables were empty."""
        self.visible(person, dataset)
        return self.datasets.failures.of(dataset)

    def releases(self, person: Person, dataset: str, before: int | None = None) -> dict[str, Any]:
        """A page of releases, newest first, or those before entry `before`. An analyst sees their own.

        `before` of the result is the argument for the next page; None on the last.
        """
        self.visible(person, dataset)
        whose = person.name if person.role is Role.ANALYST else None
        found = self.catalogue.releases(dataset, person=whose, before=before, most=PAGE + 1)
        page = [
            {"release": f"{dataset}:{each.entry}", "by": each.person, "question": each.question, "time": int(each.made)}
            for each in found[:PAGE]
        ]
        return {"releases": page, "before": found[PAGE - 1].entry if len(found) > PAGE else None}

    def label(self, person: Person, release: str) -> dict[str, Any]:
        """The signed label of a release."""
        opened, found, entry, answer = self._released(person, release)
        self.datasets.growing(opened.record).verify_whole()  # all of it: a label that is signed once stays valid
        written = label_of if isinstance(answer, Answer) else label_of_synthetic
        return signed(written(found.dataset, found.question, answer, entry, opened.session), self.key)

    def released(self, person: Person, release: str) -> dict[str, Any]:
        """The answer of a release, for the person who asked."""
        _, found, _, answer = self._released(person, release)
        if not _is_for(person, found):
            raise Problem("not_found", _NO_RELEASE)
        written = answer_record if isinstance(answer, Answer) else synthetic_record
        return written(found.dataset, answer)

    def _released(self, person: Person, release: str) -> tuple[Open, ReleaseRecord, Entry, Any]:
        dataset, _, number = release.rpartition(":")
        if not dataset:
            raise Problem("not_found", f"{_NO_RELEASE}; a release has a name like {_RELEASE}")
        opened = self.open(person, dataset)
        found = self.catalogue.release(dataset, int(number)) if _NUMBER.fullmatch(number) else None
        if found is None or (person.role is Role.ANALYST and not _is_for(person, found)):
            raise Problem("not_found", _NO_RELEASE)
        ledger = opened.session.ledger
        entry = ledger.charge(found.entry)
        sealed = None if entry is None else ledger.closing(entry.number)
        earlier = self.catalogue.earlier(found.dataset)
        answer: Any = None
        if entry is None or sealed is None:
            pass
        elif isinstance(read_note(found.question), NotedSynthesis):
            answer = recall(opened, earlier, found, entry, sealed, ledger.left(found.person))
        else:
            answer = self._recalled(opened, earlier, found, sealed)
        if answer is None:
            raise Problem("not_found", _NO_RELEASE)
        assert entry is not None
        return opened, found, entry, answer

    def _recalled(self, opened: Open, earlier: list[str], found: ReleaseRecord, sealed: Entry) -> Answer | None:
        """The answer of a release, read with the schema that was declared when it was asked."""
        for session in chain([opened.session], (opened.before(schema) for schema in earlier)):
            with contextlib.suppress(QuestionRefused, InvalidParameter):  # the question does not fit this schema
                answer = recalled(session, found.question, sealed, found.confidence)
                if answer is not None:
                    return answer
        return None

    # -- inside --------------------------------------------------------------------------------------------------------

    def _session(self, person: Person, dataset: str) -> Session:
        return self.open(person, dataset).session

    def open(self, person: Person, dataset: str) -> Open:
        """The open dataset. Only its owner learns why a dataset cannot be opened."""
        record = self.visible(person, dataset)
        try:
            return self.datasets.get(record)
        except Problem as problem:
            if person.name != record.owner:
                raise Problem(problem.code, FOR_OTHERS.get(problem.code, "")) from None
            raise

    def paying(self, person: Person, dataset: str, key: str | None = None) -> Session:
        """The session of a dataset, for a question that is charged; notes in `work` which ledger pays."""
        opened = self.open(person, dataset)
        self.datasets.witness.check(opened.record.family)
        self.work.ledger, self.work.family, self.work.key = opened.session.ledger, opened.record.family, key
        return opened.session

    def _note_with_witness(self, dataset: str, ledger: Ledger) -> None:
        """Store the entry of a changed limit with the witness, so that an older copy of the ledger is recognised."""
        record = self.catalogue.dataset(dataset)
        assert record is not None
        self.datasets.witness.note(record.family, ledger)

    def note(self, person: Person, dataset: str, answered: list[tuple[str, Any]]) -> None:
        """Store each new release: its question, and its answer's entry and confidence."""
        work = self.work
        work.charged = any(not answer.receipt.replayed for _, answer in answered)
        assert work.ledger is not None
        answers = [
            ReleaseRecord(dataset, answer.receipt.entry, person.name, sql, answer.confidence, charge_time(answer))
            for sql, answer in answered
        ]
        new = [each for each, (_, answer) in zip(answers, answered, strict=True) if not answer.receipt.replayed]
        self.datasets.witness.released(work.family, work.ledger, new, answers)


def _is_for(person: Person, release: ReleaseRecord) -> bool:
    """Whether a person may read a release of a dataset that they see: their own, and answers to standing questions."""
    if may(person.role, "see standing questions") and isinstance(read_note(release.question), NotedStanding):
        return True
    return release.person == person.name
