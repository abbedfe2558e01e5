"""The time limit of questions: a question that runs longer is interrupted, by one thread for all questions."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, final

_AGAIN: Final = 0.1
"""Seconds between interrupts of a question that is late."""


@final
class QuestionClock:
    """Interrupts questions that run longer than a time limit.

    `errors` is the class of what an interrupt raises if the question has just finished. One thread watches all
    questions, because starting a thread takes as long as a small question.
    """

    def __init__(self, seconds: float, errors: type[Exception]) -> None:
        self._seconds, self._errors = seconds, errors
        self._due: dict[Any, tuple[float, threading.Event]] = {}
        self._stopped = threading.Event()
        self._turn = threading.Lock()
        self._started = False
        self.stop = weakref.finalize(self, self._stopped.set)

    @contextmanager
    def running(self, cursor: Any) -> Iterator[threading.Event]:
        """Start the time limit of a cursor; it ends with the block. The event is set when the limit is exceeded."""
        if not self._started:
            with self._turn:
                if not self._started:
                    # Not `self`: the thread must not keep the clock alive, because collecting it stops the thread.
                    watched = (self._due, self._seconds, self._stopped, self._errors)
                    threading.Thread(target=_watch, args=watched, daemon=True).start()
                    self._started = True
        late = threading.Event()
        self._due[cursor] = (time.monotonic() + self._seconds, late)
        try:
            yield late
        finally:
            self._due.pop(cursor, None)


def _watch(
    due: dict[Any, tuple[float, threading.Event]], seconds: float, stopped: threading.Event, errors: type[Exception]
) -> None:
    wait = seconds
    # A question that starts while we wait is due after the one we wait for, so nothing has to wake this thread.
    while not stopped.wait(min(wait, threading.TIMEOUT_MAX)):
        now = time.monotonic()
        for cursor, (when, late) in list(due.items()):
            if when <= now:
                late.set()
                with suppress(errors):  # it has just finished
                    cursor.interrupt()
        # An interrupt between two statements has no effect, so it is repeated until the question is gone.
        waits = [when - now if when > now else _AGAIN for when, _ in list(due.values())]
        wait = max(0.0, min(waits, default=seconds))
