"""Questions and answers as they go over the wire, and as they were noted."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

from deniable.errors import QuestionRefused
from deniable.ledger import Budget, Cost, Entry
from deniable.queries.answer.answer import Answer
from deniable.queries.answer.batch_price import Quoted
from deniable.queries.answer.grouping_sets import Grouped, names_sets, sets_of
from deniable.queries.answer.remaining_budget import Remaining
from deniable.queries.answer.sent_papers import papers_of, price_papers, written_cost, written_unit
from deniable.queries.bought_bounds import Bounds
from deniable.queries.bought_bounds import question as bounds_question
from deniable.queries.frame.recorded_steps import question_of
from deniable.queries.plan.pricing import Price
from deniable.queries.plan.question import Question
from deniable.queries.session import Session
from deniable.queries.sql.share_windows import shares_in
from deniable.server.noted_questions import (
    NotedBounds,
    NotedSet,
    NotedShares,
    NotedSQL,
    NotedSteps,
    NotedSynthesis,
    read_note,
    sent,
)
from deniable.tables.schema import write_schema

RECORDS: Final = 2
"""Which records the server sends: from 2 on they have papers (`sent_papers`). A client asks for it when it connects."""
MOST_WRITTEN: Final = 20_000
"""Bytes of a dataframe's steps as JSON, which takes about twice as many as the same in SQL."""


def question_now(session: Session, text: str) -> str | Question:
    """A question as a session takes it: SQL, or what the steps of a dataframe build."""
    if isinstance(sent(text), NotedSQL):
        return text
    if len(text.encode()) > MOST_WRITTEN:
        raise QuestionRefused(
            "too_long",
            f"the steps of a dataframe have at most {MOST_WRITTEN:,} bytes",
            "leave out columns that are not needed, or ask in several questions",
        )
    with session.limits(text):
        return question_of(text, session.tables)


def asked_now(session: Session, text: str, **cost: Any) -> Answer | Grouped:
    """The answer to a question: of SQL also several tables, and shares of a total."""
    asked = question_now(session, text)
    return session.sql(asked, **cost) if isinstance(asked, str) else session.ask(asked, **cost)


def noted(text: str, found: Answer | Grouped) -> list[tuple[str, Answer]]:
    """How each table of an answer is noted, such that it can be read again."""
    if isinstance(found, Grouped):
        return [(NotedSet(text, i).note(), each) for i, each in enumerate(found.tables)]
    has_shares = isinstance(sent(text), NotedSQL) and shares_in(text) is not None
    return [(NotedShares(text).note() if has_shares else text, found)]


def recalled(session: Session, text: str, sealed: Entry, confidence: float) -> Answer | None:
    """The answer of a release, read again from the ledger by what was noted. None if there is none."""
    asked: str | Question
    match read_note(text):
        case NotedSQL():
            asked = text
        case NotedBounds(column=column, table=table):
            asked = bounds_question(column, table, session.tables)[1]
        case NotedSet(text=sql, place=place):
            sets = sets_of(sql, session.tables)
            assert sets is not None
            asked = sets.questions[place]
        case NotedShares(text=sql):
            shares = shares_in(sql)
            if shares is None:
                return None
            answer = session.recall(shares.text, entry=sealed, confidence=confidence)
            return None if answer is None else answer.with_shares(shares.factors)
        case NotedSteps() | NotedSynthesis():
            asked = question_of(text, session.tables)
    return session.recall(asked, entry=sealed, confidence=confidence)


def explained(session: Session, text: str, cost: dict[str, Any] | None, *, payer: str) -> str:
    """The plan of a question, and the noise that a cost buys if one is given; of several tables how it is split."""
    asked = question_now(session, text)
    made = None if cost is None else session.price(asked, payer=payer, **cost)
    if made is None or isinstance(made, Price):
        return session.explain(asked if made is None else made)
    return "\n".join([session.explain(asked), "", *made.lines()])


def priced_batch(session: Session, dataset: str, questions: list[str], **cost: Any) -> dict[str, Any]:
    """What several questions would cost together, as it goes over the wire."""
    with session.limits(questions[0] if len(questions) == 1 and names_sets(questions[0]) else ""):
        asked = [question_now(session, each) for each in questions]
        sets = sets_of(asked[0], session.tables) if len(asked) == 1 else None
    return priced(dataset, session.price_batch(asked if sets is None else sets.questions, **cost))


def priced(dataset: str, found: Price | Quoted) -> dict[str, Any]:
    """A price as it goes over the wire."""
    left = found.left.describe_rest(found.budget)
    return {**found.to_dict(), "dataset": dataset, "left": left, "lines": found.lines(), "papers": price_papers(found)}


def moment(answer: Answer) -> float:
    """When it was charged, in seconds."""
    return datetime.fromisoformat(answer.receipt.time).timestamp()


def told(dataset: str, answer: Answer | Grouped) -> dict[str, Any]:
    """An answer as it goes over the wire. Of several tables, each is a release; that of the whole is the first one."""
    more = {"tables": [told(dataset, each) for each in answer.tables]} if isinstance(answer, Grouped) else {}
    where = {"dataset": dataset, "release": f"{dataset}:{answer.receipt.entry}"}
    return {**answer.to_dict(), **more, **where, "papers": papers_of(answer)}


def rehearsed(dataset: str, answer: Answer | Grouped, left: Cost) -> dict[str, Any]:
    """An answer from dummy rows, which paid nothing: what it seems to pay is of a copy of the ledger."""

    def free(record: dict[str, Any], each: Answer | Grouped) -> dict[str, Any]:
        record["provenance"] |= {"paid": "nothing", "left": "as much as before"}
        papers = papers_of(each) | {"cost": written_cost(Cost(0)), "rest": written_cost(left)}
        return {**record, "papers": papers, "dataset": dataset, "dummy": True}

    found = free(answer.to_dict(), answer)
    if isinstance(answer, Grouped):
        found["tables"] = [free(record, each) for record, each in zip(found["tables"], answer.tables, strict=True)]
    return found


def bought(dataset: str, found: Bounds) -> dict[str, Any]:
    """Bounds as they go over the wire."""
    nullable = found.domain is None or found.domain.nullable
    return {**found.to_dict(), "nullable": nullable, "dataset": dataset, "answer": told(dataset, found.answer)}


def described(session: Session, left: Cost, *, is_owner: bool) -> dict[str, Any]:
    """All that is public about the tables of a session, and its account; to the owner also the exact numbers of rows.

    `left` is what the reader may still spend.
    """
    ledger, budget, tables = session.ledger, session.budget, session.tables
    return {
        "tables": json.loads(write_schema(tables, form="json"))["tables"],
        "partners": {
            name: [[list(columns), most] for columns, most in table.most_partners]
            for name, table in tables.items()
            if table.unit is None
        },
        "unit": ledger.unit.describe(),
        "budget": described_budget(budget),
        "limit": ledger.limit.describe(budget),
        "spent": ledger.charged.describe(budget),
        "spent_curve": session.spent.to_dict(),
        "guarantee": {
            "curve": ledger.guarantee.curve.to_dict(),
            "assumptions": list(ledger.guarantee.assumptions),
            "unit": written_unit(ledger.unit),
        },
        "left": left.describe_rest(budget),
        "left_in_words": str(Remaining(budget, left, ledger.unit)),
        "left_in_units": written_cost(left),
        **({"registration": reported(session)} if is_owner else {}),
    }


def reported(session: Session) -> dict[str, Any]:
    """The exact numbers of rows of each table, for the owner alone."""
    return {table: {**each.to_dict(), "version": each.version} for table, each in session.registration.items()}


def described_budget(budget: Budget) -> dict[str, Any]:
    """A budget in words and numbers."""
    epsilon = budget.epsilon
    return {
        "record": budget.to_dict(),
        "words": repr(budget),
        "currency": budget.currency,
        "epsilon": None if epsilon is None else str(epsilon),
        "delta": str(budget.delta),
        "weaknesses": list(budget.weaknesses()),
    }
