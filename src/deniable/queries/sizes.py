"""How large an answer is, from public keys and the question alone: no data is read, so whoever asks may be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Final, final

from deniable.errors import InvalidParameter, QuestionRefused
from deniable.queries.planner import plan_under
from deniable.queries.question import Question

if TYPE_CHECKING:
    from deniable.ledger import Budget
    from deniable.queries.planner import Plan
    from deniable.tables.schema import Table

_MOST_PLANS: Final = 1000
_MOST_KEPT: Final = 1000
"""Groups of a plan that is kept: a plan lists them all, and whoever asks for a price pays nothing."""


def groups(question: Question) -> int:
    """Combinations of the public values of all keys. Keys that are not public count once: how many groups they make
    depends on the data, and nothing that depends on the data may be the reason of a refusal.
    """
    return prod(len(key.values) for key in question.keys if key.values is not None)


def cells(question: Question) -> int:
    """Groups times columns: those that are shown, or those that are measured where these are more. LIMIT and HAVING
    take nothing off, because all groups are drawn and kept.
    """
    return groups(question) * max(len(question.post.columns), len(question.keys) + len(question.measures))


def check_cells(questions: Sequence[Question], most: int | None) -> None:
    """Refuse questions whose answers have too many cells together."""
    asked = sum(cells(each) for each in questions)
    if most is not None and asked > most:
        what = "this answer" if len(questions) == 1 else "these answers together"
        raise QuestionRefused(
            "key",
            f"{what} would have {asked:,} cells (groups times columns), and at most {most:,} are allowed here",
            "group by fewer keys or by coarser ones, or ask about a part of the rows at a time",
        )


@final
class Plans:
    """The plans of a session's questions. Those of small questions in SQL are kept for the next time."""

    def __init__(self, tables: Mapping[str, Table], budget: Budget) -> None:
        self._tables, self._budget = tables, budget
        self._kept: dict[str, Plan] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def question(self, question: str | Question) -> Question:
        """The question that a text asks. Nothing is made of it yet that is as large as its answer."""
        if isinstance(question, str):
            from deniable.queries.sql import parse

            known = self._kept.get(question)
            return parse(question, self._tables) if known is None else known.question
        if isinstance(question, Question):
            return question
        raise InvalidParameter("question", type(question).__name__, "must be SQL, or made by table(...) and agg(...)")

    def plan(self, question: str | Question, built: Question) -> Plan:
        """The plan of a question, whatever its size."""
        known = self._kept.get(question) if isinstance(question, str) else None
        if known is None:
            known = plan_under(built, self._budget)
            if isinstance(question, str) and groups(built) <= _MOST_KEPT:
                if len(self._kept) >= _MOST_PLANS:
                    self._kept.clear()
                self._kept[question] = known
        return known
