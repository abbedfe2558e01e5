"""Questions and answers as they go over the wire, and as they were noted."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

from deniable.errors import QuestionRefused
from deniable.ledger import Budget
from deniable.queries.answers import Answer
from deniable.queries.bounds import question as bounds_question
from deniable.queries.question import Question
from deniable.queries.session import Session
from deniable.queries.steps import question_of

MOST_WRITTEN: Final = 20_000
"""Bytes of a dataframe's steps as JSON, which takes about twice as many as the same in SQL."""


def question_now(session: Session, text: str) -> str | Question:
    """A question as a session takes it: SQL, or what the steps of a dataframe build. No SQL begins with a brace."""
    if not text.startswith("{"):
        return text
    if len(text.encode()) > MOST_WRITTEN:
        raise QuestionRefused(
            "too_long",
            f"the steps of a dataframe have at most {MOST_WRITTEN:,} bytes",
            "leave out columns that are not needed, or ask in several questions",
        )
    return question_of(text, session.tables)


def question_then(session: Session, text: str) -> str | Question:
    """A question as it was noted: what bounds were read off has a name of its own."""
    said = json.loads(text) if text.startswith("{") else {}
    if "bounds" in said:
        return bounds_question(said["bounds"], said["table"], session.tables)[1]
    return question_of(text, session.tables) if said else text


def moment(answer: Answer) -> float:
    """When it was charged, in seconds."""
    return datetime.fromisoformat(answer.receipt.time).timestamp()


def told(dataset: str, answer: Answer) -> dict[str, Any]:
    """An answer as it goes over the wire."""
    return {**answer.to_dict(), "dataset": dataset, "release": f"{dataset}:{answer.receipt.entry}"}


def reported(session: Session) -> dict[str, Any]:
    """What became of the rows of each table: exact numbers, for the owner alone."""
    return {table: each.to_dict() for table, each in session.registration.items()}


def described_budget(budget: Budget) -> dict[str, Any]:
    """A budget in words and numbers."""
    epsilon = budget.epsilon
    return {
        "words": repr(budget),
        "currency": budget.currency,
        "epsilon": None if epsilon is None else str(epsilon),
        "delta": str(budget.delta),
    }
