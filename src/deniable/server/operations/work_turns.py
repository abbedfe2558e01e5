"""Whose turn it is: so many pieces of work at the same time, so many of one person, and those who wait in turns.

Whoever asks for a hundred things at once waits for their own; the next person waits for one place, not for a hundred.
Whoever is alone has nearly all threads, until somebody comes.
Threads are many (`Turns`), places in an engine few (`Places`): one person has several of the first, so that what they
write to disk goes there together, and fewer of the second than there are.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Final, TypeVar, final

from deniable.queries.engines.semaphore import Tokens
from deniable.server.operations.security_events import logged
from deniable.server.problems import Problem

Made = TypeVar("Made")

WHO: Final[ContextVar[str]] = ContextVar("who", default="")
"""Whose request this is, once the door has let them in: their work takes their own turns."""

_SHARE: Final = 4
"""Nobody fills more than one part in so many of the places to wait, and whoever is alone leaves one part in so many of
the threads to whoever comes next.
"""


SMALL: Final = 4000
"""Cells of an answer that is made among others: some milliseconds."""


@final
class Turns:
    """Threads that work for people. Lives on one event loop, so that nothing in it needs a lock.

    `most` run at the same time, and `each` of them for one person while others run or wait; who is alone has all but a
    quarter, which is there at once for those who come. `waiting` may wait, more are turned away.
    """

    def __init__(self, name: str, *, most: int, each: int, waiting: int) -> None:
        self._most, self._each, self._waiting = most, min(each, most), waiting
        self._alone = most - max(1, most // _SHARE)
        self._name = name
        self._threads: list[threading.Thread] = []
        self._work = SimpleQueue[Callable[[], None] | None]()
        self._running: Counter[str] = Counter()
        self._queues: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()
        """Who waits, whoever had no turn for longest first, each with their own work in the order it came."""
        self._queued = 0

    def close(self) -> None:
        """Wait for what still runs."""
        for _ in self._threads:
            self._work.put(None)
        for each in self._threads:
            each.join()
        self._threads.clear()

    @property
    def busy(self) -> bool:
        """Whether anything runs or waits."""
        return bool(self._running or self._queued)

    def start(self, person: str, work: Callable[..., Made], *arguments: object) -> asyncio.Future[Made]:
        """Work for a person, now or when it is their turn. It runs to its end, whoever still waits for it."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Made] = loop.create_future()
        run = partial(self._run, loop, person, done, partial(copy_context().run, work, *arguments))
        if self._has_place(person) and not self._queued:
            run()
            return done
        mine = len(self._queues.get(person, ()))
        if mine >= max(1, self._waiting // _SHARE):
            logged("limit", limit="waiting", person=person)
            raise Problem("rate_limited", "too much of yours is waiting already", headers={"Retry-After": "1"})
        if self._queued >= self._waiting:
            raise Problem("busy", headers={"Retry-After": "1"})
        self._queues.setdefault(person, deque()).append(run)
        self._queued += 1
        self._next()
        return done

    def _has_place(self, person: str) -> bool:
        total, mine = self._running.total(), self._running[person]
        if mine < self._each:
            return total < self._most
        return mine == total < self._alone and self._queues.keys() <= {person}

    def _run(
        self, loop: asyncio.AbstractEventLoop, person: str, done: asyncio.Future[Made], work: Callable[[], Made]
    ) -> None:
        if self._running.total() >= len(self._threads) and not self._one_more() and not self._threads:
            done.set_exception(Problem("busy", headers={"Retry-After": "1"}))
            return
        self._running[person] += 1

        def run() -> None:  # in a thread: an executor and its futures would take several times as long
            made: Made | None = None
            error: BaseException | None = None
            try:
                made = work()
            except StopIteration as raised:  # which a future does not take
                error = RuntimeError()
                error.__cause__ = raised
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(self._ended, person, done, made, error)

        self._work.put(run)

    def _one_more(self) -> bool:
        """Start a thread, if the machine has room for it. Where it has not, those that are there do the work."""
        name = f"{self._name}_{len(self._threads)}"
        thread = threading.Thread(target=_worked_off, args=(self._work,), name=name, daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            return False
        self._threads.append(thread)
        return True

    def _ended(self, person: str, done: asyncio.Future[Made], made: Made | None, error: BaseException | None) -> None:
        self._running[person] -= 1
        if not self._running[person]:
            del self._running[person]
        if not done.cancelled():
            if error is None:
                done.set_result(made)  # type: ignore[arg-type]
            else:
                done.set_exception(error)
        self._next()

    def _next(self) -> None:
        """Start what has a place by now: one piece for each person before anybody's second."""
        while self._queued:
            person = next((each for each in self._queues if self._has_place(each)), None)
            if person is None:  # who has no name yet, as with an invitation, is "" and waits like anybody
                return
            queue = self._queues[person]
            run = queue.popleft()
            self._queued -= 1
            if queue:
                self._queues.move_to_end(person)
            else:
                del self._queues[person]
            run()


def _worked_off(work: SimpleQueue[Callable[[], None] | None]) -> None:
    while (each := work.get()) is not None:
        each()
        del each


@final
class Places:
    """Places in an engine, of which one person has `each` at most. Whoever wants more waits for their own."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._people: dict[str, tuple[Tokens, list[None]]] = {}
        """The places of each person who has or wants one, and a mark for each of these."""
        self._turn = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[None]:
        """A place for whoever this thread works for. One that becomes free wakes one of those who wait for it."""
        person = WHO.get()
        with self._turn:
            places, here = self._people.setdefault(person, (Tokens(self._each), []))
            here.append(None)
        try:
            with places:
                yield
        finally:
            with self._turn:
                here.pop()
                if not here:
                    del self._people[person]


@final
class _Swift:
    """While anything large is made, threads take turns ten times as often. Python lets one run for 5 ms before another
    may, and a question gives up its turn some dozens of times. Always to do so costs a tenth of the CPU.
    """

    def __init__(self) -> None:
        self._many, self._before, self._turn = 0, 0.0, threading.Lock()

    def __enter__(self) -> None:
        with self._turn:
            self._many += 1
            if self._many == 1:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(self._before / 10)

    def __exit__(self, *_: object) -> None:
        with self._turn:
            self._many -= 1
            if not self._many:
                sys.setswitchinterval(self._before)


SWIFT: Final = _Swift()
"""One for the process, as what it changes is."""


class _Mine(threading.local):
    """What a thread makes: the cells of its answers so far, and where it keeps its place."""

    cells: int = 0
    held: ExitStack | None = None


@final
class Large:
    """Large answers are made one after the other for each person.

    Python runs one thread at a time, and a thread that makes a large answer lets go only when it must: with a dozen of
    them, whoever else has something to do waits for a dozen threads at each step. So one person has one such thread,
    and while there is any, threads take shorter turns.
    """

    def __init__(self) -> None:
        self._places, self._mine = Places(1), _Mine()

    @contextmanager
    def work(self) -> Iterator[None]:
        """Around all that a thread does for a request: a place that is taken within is kept until its end."""
        mine = self._mine
        with ExitStack() as held:
            mine.cells, mine.held = 0, held
            try:
                yield
            finally:
                mine.held = None

    def add(self, cells: int) -> None:
        """An answer of so many cells is made next: waits for a place, once, as soon as they are many."""
        mine = self._mine
        before, mine.cells = mine.cells, mine.cells + cells
        if mine.held is not None and before <= SMALL < mine.cells:
            mine.held.enter_context(self._places.one())
            mine.held.enter_context(SWIFT)
