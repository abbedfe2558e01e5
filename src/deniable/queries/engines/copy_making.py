"""Copies of registered tables, made in the background after the questions that asked for them.

A copy has the rows of a registered table once more, with what a question would otherwise compute each time: their
ranks, or their positions by a column (`row_positions.copied`). It lives beside the table, in the same database.
A copy takes longer than a question on large tables, so no question waits for one: it is answered without the copy, and
later questions use it. Which copies are made depends on the questions alone, never on the data.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, final
from weakref import WeakSet

from deniable.queries.engines.row_positions import Wish

_AGAIN: Final = 0.05
"""Seconds between interrupts."""


@final
class CopyMaker:
    """Makes requested copies one after another, by `make(wish)`, in a thread that ends when no request is left.

    `interrupt()` breaks off the copy that is being made.
    """

    def __init__(self, make: Callable[[Wish], None], interrupt: Callable[[], None]) -> None:
        self._make, self._interrupt = make, interrupt
        self._queue = SimpleQueue[Wish]()
        self._asked: set[tuple[str, str]] = set()
        self._given: set[tuple[str, str]] = set()
        self._turn = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def wish(self, wish: Wish) -> None:
        """Note that this copy would have made a question cheaper. The copy is made at most once: at the second request,
        or at the first if `wish.at_once`.
        """
        at = (wish.table, wish.column)
        with self._turn:
            if at in self._given or self._closed:
                return
            if not wish.at_once and at not in self._asked:
                self._asked.add(at)
                return
            self._given.add(at)
            self._queue.put(wish)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                _WORKING.add(self)
                self._thread.start()

    def settle(self) -> None:
        """Wait until every copy that was asked for exists."""
        while (thread := self._thread) is not None:
            thread.join()

    def close(self) -> None:
        """Start no further copy, and stop the one that is being made."""
        with self._turn:
            self._closed = True
        while (thread := self._thread) is not None and thread.is_alive():  # in a forked process it is not
            self._interrupt()  # again and again, because it has no effect just before a statement starts
            thread.join(_AGAIN)

    def _work(self) -> None:
        while True:
            with self._turn:
                try:
                    wish = None if self._closed else self._queue.get_nowait()
                except Empty:
                    wish = None
                if wish is None:
                    self._thread = None
                    return
            self._make(wish)


_WORKING: Final = WeakSet[CopyMaker]()


@atexit.register
def _close_all() -> None:
    """Stop all copies before the interpreter exits: a thread inside DuckDB could then abort the process."""
    for each in list(_WORKING):
        each.close()
