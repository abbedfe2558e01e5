"""How large an answer is, from public keys and the question alone: no data is read, so whoever asks may be told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Final, final

from deniable.errors import InvalidParameter, QuestionRefused, type_of
from deniable.queries.plan.estimators import recipe
from deniable.queries.plan.noise_planner import plan_under
from deniable.queries.plan.question import Measure, Question
from deniable.queries.relations import evaluation_limit
from deniable.queries.sql.question_templates import Shapes

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from deniable.ledger import Budget
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.tables.schema import Table

Admits = Callable[[int], None]
"""Told the cells of an answer, and how often expressions are worked out to read a question, before anything of that
size is made; it may wait.
"""

UNLISTED: Final = 500
"""Groups that keys which are not public count as. How many there are depends on the data, which must not decide."""

_RANKED: Final = frozenset({"quantile", "min", "max"})
_MOST_PLANS: Final = 1000
_MOST_KEPT: Final = 1000
"""Groups of a plan that is kept: a plan lists them all, and whoever asks for a price pays nothing."""

_BYTE: Final = 4
"""Cells of an answer that are made in the time in which a byte of a new text is read and planned, about."""


def groups(question: Question) -> int:
    """Combinations of the public values of all keys; keys that are not public make no plan longer."""
    return prod(len(key.values) for key in question.keys if key.values is not None)


def cells(question: Question) -> int:
    """Groups times columns: those that are shown, or the noisy numbers behind them where these are more, because all
    are drawn and kept: a quantile has up to 1,024 running totals. LIMIT and HAVING take nothing off. Where a key is not
    public, the groups count as `UNLISTED`.
    """
    numbers = len(question.keys) + sum(_numbers(each, question) for each in question.measures)
    public = all(key.values is not None for key in question.keys)
    return (groups(question) if public else UNLISTED) * max(len(question.post.columns), numbers)


def _numbers(measure: Measure, question: Question) -> int:
    """The noisy numbers that are kept of a measure for each group, about."""
    if measure.function not in _RANKED:
        return 1
    return sum(each.width for each in recipe(measure, question.relation).statistics())


def check_cells(questions: Sequence[Question], most: int | None) -> None:
    """Refuse questions whose answers have too many cells together."""
    asked = sum(cells(each) for each in questions)
    if most is not None and asked > most:
        what = "this answer" if len(questions) == 1 else "these answers together"
        raise QuestionRefused(
            "key",
            f"{what} would have {asked:,} cells (groups times columns), and at most {most:,} are allowed here"
            + _counted_as(questions),
            "group by fewer keys or by coarser ones, or ask about a part of the rows at a time",
        )


def _counted_as(questions: Sequence[Question]) -> str:
    """What counts for more than is shown."""
    said = []
    if any(key.values is None for each in questions for key in each.keys):
        said.append(f"keys that are not listed count as {UNLISTED} groups")
    if any(measure.function in _RANKED for each in questions for measure in each.measures):
        said.append("a quantile as all of its running totals")
    return f"; {', '.join(said)}" if said else ""


@final
class Plans:
    """The plans of a session's questions. Those of small questions in SQL are kept for the next time."""

    def __init__(self, tables: Mapping[str, Table], budget: Budget) -> None:
        self._tables, self._budget = tables, budget
        self._kept: dict[str, NoisePlan] = {}
        self._shapes = Shapes()
        self._cells: int | None = None
        self._evaluations: int | None = None
        self._admits: Admits | None = None

    @property
    def tables(self) -> Mapping[str, Table]:
        """The public schemas that questions are read by."""
        return self._tables

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, text: str) -> bool:
        return text in self._kept

    def limit(self, cells: int, evaluations: int | None, admits: Admits | None) -> None:
        """How large answers may be, how often expressions may be worked out for a plan (None: as before), and who is
        told their size before anything is made of it.
        """
        self._cells, self._admits = cells, admits
        self._evaluations = self._evaluations if evaluations is None else evaluations

    def limits(self, text: str = "") -> AbstractContextManager[None]:
        """Within it, evaluations are counted together. They are made while a text is read, before the size of its
        answer is known: many of them wait for their turn as a large answer does. So does a long `text` that was not
        met before: to read and plan it takes as long, also if it is refused in the end, for nothing.
        """
        if text:
            self.admit(len(text) * _BYTE)
        return evaluation_limit.at_most(self._evaluations, self._admits)

    def admit(self, work: int) -> None:
        """Tell whoever admits what is large of work that takes as long as so many cells of an answer do."""
        if self._admits is not None:
            self._admits(work)

    def is_large(self, question: Question) -> bool:
        """Whether its answer has more cells than are allowed."""
        return self._cells is not None and cells(question) > self._cells

    def check(self, questions: Sequence[Question]) -> None:
        """Refuse questions whose answers have too many cells together."""
        check_cells(questions, self._cells)

    def room(self, questions: Sequence[Question]) -> int | None:
        """How many groups of one number each may be worked out beside these questions; None: no limit."""
        if self._cells is None:
            return None
        return max(0, self._cells - sum(cells(each) for each in questions))

    def question(self, question: str | Question) -> Question:
        """The question that a text asks. Nothing is made of it yet that is as large as its answer."""
        found = self._read(question)
        self.admit(cells(found))
        return found

    def _read(self, question: str | Question) -> Question:
        if isinstance(question, str):
            from deniable.queries.sql.sql_reader import parse

            known = self._kept.get(question) or self._shapes.plan(question)
            if known is None:
                with self.limits(question):
                    return parse(question, self._tables)
            self._keep(question, known)
            return known.question
        if isinstance(question, Question):
            return question
        raise InvalidParameter("question", type_of(question), "must be SQL, or made by table(...) and agg(...)")

    def plan(self, question: str | Question, built: Question) -> NoisePlan:
        """The plan of a question, whatever its size."""
        known = self._kept.get(question) if isinstance(question, str) else None
        if known is None:
            known = plan_under(built, self._budget)
            if isinstance(question, str) and groups(built) <= _MOST_KEPT:
                self._shapes.learn(question, known)
                self._keep(question, known)
        return known

    def _keep(self, text: str, plan: NoisePlan) -> None:
        if len(self._kept) >= _MOST_PLANS and text not in self._kept:
            self._kept.clear()
        self._kept[text] = plan
