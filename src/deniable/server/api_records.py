"""Questions and answers as JSON: as the API sends and receives them, and as the catalogue stores them."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from deniable.errors import InvalidParameter, QuestionRefused
from deniable.ledger import EVERYBODY, Budget, Cost, Entry, Ledger
from deniable.queries.answer.answer import Answer
from deniable.queries.answer.batch_price import Quoted
from deniable.queries.answer.grouping_sets import Grouped, names_sets, sets_of
from deniable.queries.answer.machine_records import papers_of, price_papers, written_cost, written_unit
from deniable.queries.answer.remaining_budget import Remaining
from deniable.queries.bought_bounds import Bounds
from deniable.queries.bought_bounds import question as bounds_question
from deniable.queries.frame.recorded_steps import question_of
from deniable.queries.plan.pricing import Price
from deniable.queries.plan.question import Question
from deniable.queries.session import Session
from deniable.queries.sql.share_windows import shares_in
from deniable.queries.standing_questions import Standing, answer_of
from deniable.server.noted_questions import (
    NotedBounds,
    NotedSet,
    NotedShares,
    NotedSQL,
    NotedStanding,
    NotedSteps,
    NotedSynthesis,
    read_note,
    sent,
)
from deniable.tables.schema import schema_records

RECORDS: Final = 2
"""The version of the records that the server sends; from 2 on they have papers (`machine_records`). Clients check it
when they connect.
"""
MOST_WRITTEN: Final = 20_000
"""The most bytes of a dataframe's steps as JSON, which take about twice as many as the same question in SQL."""


def question_from_text(session: Session, text: str) -> str | Question:
    """A question for a session, from the text that a client sent: SQL, or a question built from dataframe steps."""
    if isinstance(sent(text), NotedSQL):
        return text
    if len(text.encode()) > MOST_WRITTEN:
        raise QuestionRefused(
            "too_long",
            f"the steps of a dataframe must have at most {MOST_WRITTEN:,} bytes",
            "leave out columns that are not needed, or ask in several questions",
        )
    with session.limits(text):
        return question_of(text, session.tables)


def ask_text(session: Session, text: str, **cost: Any) -> Answer | Grouped:
    """Ask a session. SQL may also have several sets of keys, or shares of a total."""
    asked = question_from_text(session, text)
    return session.sql(asked, **cost) if isinstance(asked, str) else session.ask(asked, **cost)


def noted(text: str, found: Answer | Grouped) -> list[tuple[str, Answer]]:
    """(note, table) for each table of an answer. The note is stored with the release; `recalled` rebuilds the table
    from it.
    """
    if isinstance(found, Grouped):
        return [(NotedSet(text, i).note(), each) for i, each in enumerate(found.tables)]
    has_shares = isinstance(sent(text), NotedSQL) and shares_in(text) is not None
    return [(NotedShares(text).note() if has_shares else text, found)]


def recalled(session: Session, text: str, sealed: Entry, confidence: float) -> Answer | None:
    """The answer of a release, read again from the ledger by its note; None if the ledger has no answer."""
    asked: str | Question
    match read_note(text):
        case NotedSQL():
            asked = text
        case NotedStanding(text=sql):
            made = session._planned(sql)
            is_its = sealed.question == made.question.hash
            return answer_of(session, made, sealed, confidence, replayed=True) if is_its else None
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


def refinable(session: Session, asked: str | Question, confidence: float) -> Answer | None:
    """The stored answer to a question, for a refinement; None if the question was never answered.

    A question about shares of a total is stored by its counts. One that `sql` refuses was asked in a batch, which
    computes shares as windows over the counts; it is stored as it is.
    """
    with suppress(QuestionRefused, InvalidParameter):
        shares = shares_in(asked)
        if shares is not None:
            found = session.recall(shares.text, confidence=confidence)
            return None if found is None else found.with_shares(shares.factors)
    return session.recall(asked, confidence=confidence)


def explained(session: Session, text: str, cost: dict[str, Any] | None, *, payer: str) -> str:
    """The plan of a question as text. With a cost, the text also states the noise at this cost, and how several tables
    divide it.
    """
    asked = question_from_text(session, text)
    made = None if cost is None else session.price(asked, payer=payer, **cost)
    if made is None or isinstance(made, Price):
        return session.explain(asked if made is None else made)
    return "\n".join([session.explain(asked), "", *made.lines()])


def priced_batch(session: Session, dataset: str, questions: list[str], **cost: Any) -> dict[str, Any]:
    """The price of a batch as JSON."""
    with session.limits(questions[0] if len(questions) == 1 and names_sets(questions[0]) else ""):
        asked = [question_from_text(session, each) for each in questions]
        sets = sets_of(asked[0], session.tables) if len(asked) == 1 else None
    return priced(dataset, session.price_batch(asked if sets is None else sets.questions, **cost))


def priced(dataset: str, found: Price | Quoted) -> dict[str, Any]:
    """A price as JSON."""
    left = found.left.describe_rest(found.budget)
    return {**found.to_dict(), "dataset": dataset, "left": left, "lines": found.lines(), "papers": price_papers(found)}


def charge_time(answer: Answer) -> float:
    """The time of its charge, in seconds since 1970."""
    return datetime.fromisoformat(answer.receipt.time).timestamp()


def answer_record(dataset: str, answer: Answer | Grouped) -> dict[str, Any]:
    """An answer as JSON. If it has several tables, each table is a release of its own; the id of the first one also
    stands for the whole answer.
    """
    more = {"tables": [answer_record(dataset, each) for each in answer.tables]} if isinstance(answer, Grouped) else {}
    where = {"dataset": dataset, "release": f"{dataset}:{answer.receipt.entry}"}
    return {**answer.to_dict(), **more, **where, "papers": papers_of(answer)}


def rehearsed(dataset: str, answer: Answer | Grouped, left: Cost) -> dict[str, Any]:
    """An answer from dummy rows as JSON. Its charge was in a copy of the ledger, so it states that nothing was paid."""

    def free(record: dict[str, Any], each: Answer | Grouped) -> dict[str, Any]:
        record["provenance"] |= {"paid": "nothing", "left": "as much as before"}
        papers = papers_of(each) | {"cost": written_cost(Cost(0)), "rest": written_cost(left)}
        return {**record, "papers": papers, "dataset": dataset, "dummy": True}

    found = free(answer.to_dict(), answer)
    if isinstance(answer, Grouped):
        found["tables"] = [free(record, each) for record, each in zip(found["tables"], answer.tables, strict=True)]
    return found


def bought(dataset: str, found: Bounds) -> dict[str, Any]:
    """Bounds as JSON."""
    nullable = found.domain is None or found.domain.nullable
    return {**found.to_dict(), "nullable": nullable, "dataset": dataset, "answer": answer_record(dataset, found.answer)}


def standing_record(dataset: str, standing: Standing, *, with_prices: bool) -> dict[str, Any]:
    """A set of standing questions as JSON."""
    budget = standing.session.budget
    prices = {"prices": [priced(dataset, each) for each in standing.prices()]} if with_prices else {}
    return {
        "dataset": dataset,
        "name": standing.name,
        "table": standing.table,
        "by": standing.by,
        "questions": list(standing.questions),
        "totals": standing.totals,
        "paid": Cost(standing.cost.units * len(standing.questions)).describe(budget),
        "cost": written_cost(standing.cost),
        "days": [each if isinstance(each, int) else each.isoformat() for each in standing.days()],
        **prices,
    }


def described(session: Session, left: Cost, *, is_owner: bool) -> dict[str, Any]:
    """All public facts about the tables and the budget of a session; for the owner also the exact numbers of rows.

    `left` is what the reader may still spend.
    """
    ledger, budget, tables = session.ledger, session.budget, session.tables
    return {
        "tables": schema_records(tables),
        "partners": {
            name: [[list(columns), most] for columns, most in table.most_partners]
            for name, table in tables.items()
            if table.unit is None
        },
        "unit": session.unit.describe(),
        "budget": described_budget(budget),
        "renewal": described_renewal(ledger),
        "limit": ledger.limit.describe(budget),
        "spent": ledger.charged.describe(budget),
        "spent_curve": session.spent.to_dict(),
        "guarantee": {
            "curve": ledger.guarantee.curve.to_dict(),
            "assumptions": list(ledger.guarantee.assumptions),
            "unit": written_unit(session.unit),
        },
        "left": left.describe_rest(budget),
        "left_in_words": str(Remaining(budget, left, session.unit)),
        "left_in_units": written_cost(left),
        "versions": dict(session.versions),
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


def described_renewal(ledger: Ledger) -> dict[str, Any] | None:
    """The budget of each period, the rest of it in this period, and what a person risks over time; None if the budget
    is not renewed.
    """
    renewal = ledger.renewal
    if renewal is None:
        return None
    [period] = [each for each in ledger.accounts() if (each.name, each.window) == (EVERYBODY, renewal.window)]
    left = period.left.describe_rest(ledger.budget)
    return {
        "record": renewal.to_dict(),
        "per": renewal.per,
        "periods": renewal.periods,
        "left": left,
        "risk": ledger.risk,
    }
