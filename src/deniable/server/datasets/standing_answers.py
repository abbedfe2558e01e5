"""Standing questions over HTTP: an owner declares them and answers each day; analysts read the days that were answered.

The ledger has the declaration, and the answers of each day. The owner decides when a day's rows are complete, so only
the owner's requests read data, and only the owner sees errors of such a request. Each answer is a release with a label
of its own, which everybody who may see the dataset may read.
Datasets of one family share a ledger, so each declaration names its dataset, and other datasets do not list the set.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, final

from deniable.errors import InvalidOperation, InvalidParameter, QuestionRefused
from deniable.queries.plan.pricing import AskedCost
from deniable.queries.standing_questions import Standing, declared
from deniable.queries.standing_records import declaration, declaration_key
from deniable.server.api_records import answer_record, standing_record
from deniable.server.noted_questions import NotedStanding
from deniable.server.problems import Problem

if TYPE_CHECKING:
    from deniable.queries.answer.answer import Answer
    from deniable.server.catalogue.catalogue import Person
    from deniable.server.curator import Curator

_NOT_HERE: Final = "no standing questions of this dataset have this name"


@final
class StandingAnswers:
    """The standing questions of all datasets."""

    def __init__(self, curator: Curator) -> None:
        self._curator = curator

    def declare(
        self, person: Person, dataset: str, name: str, questions: list[str], by: str, cost: dict[str, Any]
    ) -> dict[str, Any]:
        """Declare a set, and charge it once. The same declaration again is free."""
        session = self._curator.paying(person, dataset, declaration_key(name))
        asked = AskedCost(**{each: value for each, value in cost.items() if each != "totals"})
        made = declared(session, name, questions, by, asked, cost.get("totals"), person.name, dataset)
        self._curator.work.charged = True
        self._curator.datasets.witness.note(self._curator.work.family, session.ledger)
        return standing_record(dataset, made, with_prices=True)

    def listed(self, person: Person, dataset: str) -> dict[str, Any]:
        """All sets of a dataset, oldest first, with the days that were answered."""
        session = self._curator.open(person, dataset).session
        return {"standing": [standing_record(dataset, each, with_prices=False) for each in _readable(session, dataset)]}

    def described(self, person: Person, dataset: str, name: str, *, prices: bool = False) -> dict[str, Any]:
        """One set: its questions, the days that were answered, and with `prices` how exact they are. Reads no data."""
        return standing_record(dataset, self._found(person, dataset, name), with_prices=prices)

    def reveal(self, person: Person, dataset: str, name: str, day: str | int, confidence: float) -> dict[str, Any]:
        """Answer a set for one day, as its owner. Free: it was paid for when it was declared."""
        known = self._recalled(person, dataset, name, day, confidence)
        session = self._curator.paying(person, dataset)
        standing = self._found(person, dataset, name, confidence)
        answers = standing.reveal(day) if known is None else known
        # Also those that were answered before: a server may have stopped before it could note them.
        notes = [NotedStanding(name, str(day), text).note() for text in standing.questions]
        new = [_with(each, replayed=False) for each in answers]
        self._curator.note(person, dataset, list(zip(notes, new, strict=True)))
        self._curator.work.charged = False
        return self._record(dataset, name, day, self._left(person, answers, session.ledger))

    def read(self, person: Person, dataset: str, name: str, day: str | int, confidence: float) -> dict[str, Any]:
        """The answers of a day. Raises Problem `not_found` if it was not answered yet. Free: reads no data."""
        found = self._recalled(person, dataset, name, day, confidence)
        if found is None:
            words = "the owner of the dataset answers a day when its rows are complete"
            raise Problem("not_found", f"{name!r} was not answered for {day} yet; {words}")
        ledger = self._curator.open(person, dataset).session.ledger
        return self._record(dataset, name, day, self._left(person, found, ledger))

    def _found(self, person: Person, dataset: str, name: str, confidence: float = 0.95) -> Standing:
        session = self._curator.open(person, dataset).session
        if name not in session.standings() or not _is_of(session, name, dataset):
            raise Problem("not_found", _NOT_HERE)
        return session.standing(name, confidence=confidence)

    def _recalled(
        self, person: Person, dataset: str, name: str, day: str | int, confidence: float
    ) -> list[Answer] | None:
        """The answers of a day, read with the schema of the time when it was answered."""
        opened = self._curator.open(person, dataset)
        self._found(person, dataset, name)
        other: InvalidOperation | None = None
        earlier = (opened.before(schema) for schema in self._curator.catalogue.earlier(dataset))
        for session in chain([opened.session], earlier):
            try:
                return session.standing(name, confidence=confidence).recall(day)
            except InvalidOperation as error:  # answered with another schema
                other = other or error
            except (QuestionRefused, InvalidParameter):
                if session is opened.session:
                    raise
        assert other is not None
        raise other

    def _left(self, person: Person, answers: list[Answer], ledger: Any) -> list[Answer]:
        """The same answers; their receipts state what this person may still spend."""
        left = ledger.left(person.name)
        for each in answers:
            each.receipt = replace(each.receipt, rest=left)
        return answers

    def _record(self, dataset: str, name: str, day: str | int, answers: list[Answer]) -> dict[str, Any]:
        records = [answer_record(dataset, each) for each in answers]
        return {"dataset": dataset, "name": name, "day": day, "answers": records}


def _is_of(session: Any, name: str, dataset: str) -> bool:
    """Whether the set of this name was declared for this dataset."""
    record = declaration(session.ledger, name)
    return record is not None and record.get("dataset") == dataset


def _readable(session: Any, dataset: str) -> list[Standing]:
    """The sets of a dataset that its schema can read."""
    found = []
    for name in session.standings():
        if not _is_of(session, name, dataset):
            continue
        try:
            found.append(session.standing(name))
        except (InvalidParameter, InvalidOperation):
            continue
    return found


def _with(answer: Answer, *, replayed: bool) -> Answer:
    other = copy.copy(answer)
    other.receipt = replace(answer.receipt, replayed=replayed)
    return other
