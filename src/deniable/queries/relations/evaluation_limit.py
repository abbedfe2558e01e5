"""How often expressions may be worked out before anything is asked of data: to list the values of keys and columns.

That is done by whoever plans a question, not by an engine with limits of its own. A text of a few kilobytes can ask for
it millions of times. What counts depends on the question and the public schema alone, so a refusal says nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, final

from deniable.errors import QuestionRefused


@final
@dataclass(slots=True)
class _Count:
    left: int
    told: Callable[[int], object] | None


_COUNT: Final[ContextVar[_Count | None]] = ContextVar("count", default=None)


@contextmanager
def at_most(evaluations: int | None, told: Callable[[int], object] | None = None) -> Iterator[None]:
    """Refuse what takes more of them inside, all together; None is as many as it takes. The outermost limit holds.

    `told` hears of them before they are made, so that whoever makes many can be made to wait.
    """
    if evaluations is None or _COUNT.get() is not None:
        yield
        return
    token = _COUNT.set(_Count(evaluations, told))
    try:
        yield
    finally:
        _COUNT.reset(token)


def spend(evaluations: int) -> None:
    """QuestionRefused where so many more are too many."""
    count = _COUNT.get()
    if count is None:
        return
    count.left -= evaluations
    if count.left < 0:
        raise QuestionRefused(
            "work",
            "it takes too long to list the values that the computed keys and columns of this question can have",
            "compute fewer of them, from columns with fewer values, or put fewer conditions on them",
        )
    if count.told is not None:
        count.told(evaluations)
