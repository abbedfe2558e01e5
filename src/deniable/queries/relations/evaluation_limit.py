"""A limit on evaluations of expressions during planning, which list the public values of keys and columns.

Planning runs outside the engine and its limits, and a text of a few kilobytes can require millions of evaluations. The
number depends on the question and the public schema alone, so a refusal reveals nothing about the data.
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
    notify: Callable[[int], object] | None


_COUNT: Final[ContextVar[_Count | None]] = ContextVar("count", default=None)


@contextmanager
def at_most(evaluations: int | None, notify: Callable[[int], object] | None = None) -> Iterator[None]:
    """A context that allows at most so many evaluations in total (None: no limit). Inside another such context it has
    no effect.

    `notify` is called with a number of evaluations before they are made, and may block to delay the caller.
    """
    if evaluations is None or _COUNT.get() is not None:
        yield
        return
    token = _COUNT.set(_Count(evaluations, notify))
    try:
        yield
    finally:
        _COUNT.reset(token)


def spend(evaluations: int) -> None:
    """Count evaluations before they are made. Raises `QuestionRefused` if the limit would be exceeded."""
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
    if count.notify is not None:
        count.notify(evaluations)
