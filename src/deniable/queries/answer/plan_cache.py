"""The plans of a session's questions: SQL is read once, the size of its answer is admitted, and its plan is cached.

No data is read, so plans and sizes may be shown to any caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, final

from deniable.errors import InvalidParameter, type_of
from deniable.queries.plan.answer_size import cells, check_cells, groups
from deniable.queries.plan.noise_planner import plan_under
from deniable.queries.plan.question import Question
from deniable.queries.relations import evaluation_limit
from deniable.queries.sql.question_templates import Shapes

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from deniable.ledger import Budget
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.tables.schema import Table

Admits = Callable[[int], None]
"""A callback that receives the amount of work (cells of an answer, or evaluations of expressions) before it is done.
It may block, so that a server can delay callers with much work.
"""

_MOST_PLANS: Final = 1000
"""The most plans in the cache; when it is full, it is emptied."""
_MOST_KEPT: Final = 1000
"""The most groups of a cached plan. A plan lists its groups, and prices are free, so callers could fill the memory."""

_DATED: Final = re.compile(r"current_date|curdate|today", re.IGNORECASE)
"""Texts that may mean another question tomorrow, so their plans are not kept. The words count wherever they occur,
because a comment may stand between a name and its bracket: `today/**/()`."""
_BYTE: Final = 4
"""About how many cells of an answer can be computed in the time in which one byte of a new question is read."""


@final
class Plans:
    """The plans of a session's questions, with a cache for small questions in SQL."""

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
        """Set the most cells of an answer, the most evaluations of expressions per plan (None: unchanged), and a
        callback that admits work before it is done.
        """
        self._cells, self._admits = cells, admits
        self._evaluations = self._evaluations if evaluations is None else evaluations

    def limits(self, text: str = "") -> AbstractContextManager[None]:
        """A context that limits the evaluations of expressions inside it.

        Reading a question evaluates expressions before the size of its answer is known, so many evaluations must be
        admitted like a large answer. So must a long new `text`: reading it takes time even if it is refused.
        """
        if text:
            self.admit(len(text) * _BYTE)
        return evaluation_limit.at_most(self._evaluations, self._admits)

    def admit(self, work: int) -> None:
        """Wait until work as large as so many cells of an answer is admitted."""
        if self._admits is not None:
            self._admits(work)

    def is_large(self, question: Question) -> bool:
        """Whether its answer has more cells than are allowed."""
        return self._cells is not None and cells(question) > self._cells

    def check(self, questions: Sequence[Question]) -> None:
        """Raise `QuestionRefused` if the answers have too many cells together."""
        check_cells(questions, self._cells)

    def room(self, questions: Sequence[Question]) -> int | None:
        """How many further cells are allowed beside these questions; None: no limit."""
        if self._cells is None:
            return None
        return max(0, self._cells - sum(cells(each) for each in questions))

    def question(self, question: str | Question) -> Question:
        """Read a question, and wait until the memory for its answer is admitted. The answer itself is not allocated
        yet.

        Raises `QuestionRefused`, or `InvalidParameter` for an object that is not a question.
        """
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
        """The plan of a question; `question` is the text or record, `built` what `question()` returned for it."""
        known = self._kept.get(question) if isinstance(question, str) else None
        if known is None:
            known = plan_under(built, self._budget)
            if isinstance(question, str) and groups(built) <= _MOST_KEPT and not _DATED.search(question):
                self._shapes.learn(question, known)
                self._keep(question, known)
        return known

    def _keep(self, text: str, plan: NoisePlan) -> None:
        if len(self._kept) >= _MOST_PLANS and text not in self._kept:
            self._kept.clear()
        self._kept[text] = plan
