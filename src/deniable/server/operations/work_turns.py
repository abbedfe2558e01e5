"""Fair queues: limits on the work that runs at the same time, in total and for each person; people take turns.

A person who asks a hundred questions at once waits for their own questions; the next person waits for one place, not
for a hundred questions. A person who is alone gets three quarters of the threads, until another person comes.

There are many threads (`Turns`) and few places in an engine (`Places`). One person has several threads, so that their
writes to disk are batched, and only a part of the places.
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
"""The person of the current request, set by the request gate."""

_SHARE: Final = 4
"""One person fills at most 1/_SHARE of the queue; a person who is alone leaves 1/_SHARE of the threads free."""


SMALL: Final = 4000
"""The most cells of a small answer, which takes some milliseconds to build; larger ones take turns (`Large`)."""


@final
class Turns:
    """A pool of threads with a fair queue. It is used from one event loop only, so it needs no lock.

    At most `most` pieces of work run at the same time, and `each` of one person while others run or wait. A person who
    is alone gets three quarters of the threads; the rest stays free for the next person. At most `waiting` wait.
    """

    def __init__(self, name: str, *, most: int, each: int, waiting: int) -> None:
        self._most, self._each, self._waiting = most, min(each, most), waiting
        self._alone = most - max(1, most // _SHARE)
        self._name = name
        self._threads: list[threading.Thread] = []
        self._work = SimpleQueue[Callable[[], None] | None]()
        self._running: Counter[str] = Counter()
        self._queues: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()
        """The waiting work of each person, in order of arrival. First is the person whose last turn is longest ago."""
        self._queued = 0

    def close(self) -> None:
        """Wait until all running work has ended."""
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
        """Run work for a person, now or when it is their turn. It runs to its end even if the future is cancelled.

        Raises Problem `rate_limited` if too much of this person waits, and `busy` if the queue is full.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Made] = loop.create_future()
        run = partial(self._run, loop, person, done, partial(copy_context().run, work, *arguments))
        if self._has_place(person) and not self._queued:
            run()
            return done
        mine = len(self._queues.get(person, ()))
        if mine >= max(1, self._waiting // _SHARE):
            logged("limit", limit="waiting", person=person)
            raise Problem(
                "rate_limited",
                "too many of your requests are waiting; wait for their answers, then try again",
                headers={"Retry-After": "1"},
            )
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

        def run() -> None:  # in a thread; the overhead of a ThreadPoolExecutor would be several times as large
            made: Made | None = None
            error: BaseException | None = None
            try:
                made = work()
            except StopIteration as raised:  # a future cannot hold it
                error = RuntimeError()
                error.__cause__ = raised
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed, so nobody waits
                loop.call_soon_threadsafe(self._ended, person, done, made, error)

        self._work.put(run)

    def _one_more(self) -> bool:
        """Start another thread; False if the system refuses it. The existing threads then do the work."""
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
                done.set_result(made)  # type: ignore[arg-type]  # work without an error has a result
            else:
                done.set_exception(error)
        self._next()

    def _next(self) -> None:
        """Start waiting work as long as there are places, one piece for each person in turn."""
        while self._queued:
            person = next((each for each in self._queues if self._has_place(each)), None)
            if person is None:  # not "", the name of clients without a token
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
    """Places in an engine. One person has at most `each`, and waits for their own places beyond that."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._people: dict[str, tuple[Tokens, list[None]]] = {}
        """For each person who holds or wants a place: their places, and one element for each thread."""
        self._turn = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Hold a place for the person of the current request; waits until one is free."""
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
    """While a large answer is built, threads switch ten times as often.

    By default Python lets a thread run for 5 ms before another may run, and a question waits for its turn some dozens
    of times. Switching so often all the time would cost a tenth of the CPU time.
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
"""One object for the whole process, because the switch interval belongs to the process."""


class _Mine(threading.local):
    """For each thread: the number of cells that it has built for its request, and the stack that keeps its place among
    the builders of large answers.
    """

    cells: int = 0
    held: ExitStack | None = None


@final
class Large:
    """Each person builds large answers one after the other.

    Python runs one thread at a time, and a thread that builds a large answer releases the interpreter lock only when it
    must: with a dozen of them, every other thread would wait for a dozen turns at each step. So each person has one
    such thread, and while there is any, threads switch more often.
    """

    def __init__(self) -> None:
        self._places, self._mine = Places(1), _Mine()

    @contextmanager
    def work(self) -> Iterator[None]:
        """Around all work of a thread for a request: a place that `add` takes is held until its end."""
        mine = self._mine
        with ExitStack() as held:
            mine.cells, mine.held = 0, held
            try:
                yield
            finally:
                mine.held = None

    def add(self, cells: int) -> None:
        """Announce an answer of so many cells. Waits for a place once the request has more than `SMALL` cells."""
        mine = self._mine
        before, mine.cells = mine.cells, mine.cells + cells
        if mine.held is not None and before <= SMALL < mine.cells:
            mine.held.enter_context(self._places.one())
            mine.held.enter_context(SWIFT)
