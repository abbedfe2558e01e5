"""The size of an answer, from the question and public keys alone.

No data is read, so the size may be shown to any caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from deniable.errors import QuestionRefused
from deniable.queries.plan.dated_extremes import dated
from deniable.queries.plan.estimators import recipe
from deniable.queries.plan.question import FUNCTIONS, Measure, Question

UNLISTED: Final = 500
"""The assumed number of groups if keys are not public. The true number depends on the data, and must not be used."""


def groups(question: Question) -> int:
    """The number of combinations of public key values, ignoring keys that are not public."""
    return prod(len(key.values) for key in question.keys if key.values is not None)


def cells(question: Question) -> int:
    """The number of cells of an answer: groups times columns.

    The number of columns is the number of result columns or of noisy numbers, whichever is larger, because all noisy
    numbers are drawn and stored: a quantile has up to 1,024 running totals. LIMIT and HAVING do not reduce the number.
    If a key is not public, there are `UNLISTED` groups.
    """
    numbers = len(question.keys) + sum(_numbers(each, question) for each in question.measures)
    public = all(key.values is not None for key in question.keys)
    return (groups(question) if public else UNLISTED) * max(len(question.post.columns), numbers)


def _numbers(measure: Measure, question: Question) -> int:
    """About how many noisy numbers are stored for a measure in each group."""
    if not FUNCTIONS[measure.function].is_ranked:
        return 1
    made = dated(measure, question.relation) or recipe(measure, question.relation)
    return sum(each.width for each in made.statistics())


def check_cells(questions: Sequence[Question], most: int | None) -> None:
    """Raise `QuestionRefused` if the answers have more than `most` cells together (None: no limit)."""
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
    """An explanation of counts that exceed the cells of the result."""
    reasons = []
    if any(key.values is None for each in questions for key in each.keys):
        reasons.append(f"keys that are not listed count as {UNLISTED} groups")
    if any(FUNCTIONS[measure.function].is_ranked for each in questions for measure in each.measures):
        reasons.append("a quantile counts as all of its running totals")
    return f"; {', '.join(reasons)}" if reasons else ""
