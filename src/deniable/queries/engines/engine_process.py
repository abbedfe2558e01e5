"""An engine in a process of its own, with caps on memory and time. The process is replaced when it dies or hangs.

The two processes of one program exchange our own pickled objects over a pipe. An analyst's text is never sent, only the
plan that was read from it. The worker returns integers, or one of a closed set of error codes. Its output streams are
discarded, because a crash could print data.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, final

from deniable.errors import DeniableError, EngineFailed, InvalidOperation, InvalidParameter
from deniable.queries.engines.engine import Engine, Numbers, Progress, complete
from deniable.queries.engines.registration_report import Registration
from deniable.queries.engines.scratch_folders import Folder, sweep
from deniable.queries.engines.semaphore import Tokens
from deniable.queries.relations.exact_statistics import Collect, Group
from deniable.tables.schema import Table
from deniable.tables.source_files import files_of

if TYPE_CHECKING:
    from deniable.queries.standing_days import Days

_GRACE: Final = 5.0
"""Seconds beyond its time limit in which an engine can stop by itself, before its process is killed."""

_SPARE: Final = 1.0
"""Seconds for killing a process and for the answer on empty tables that replaces a failed one."""

_MET: Final = 2
"""Questions of one shape that a worker must have answered before the next one is sent as numbers alone (`fill`)."""

_MOST_MET: Final = 10_000
"""The most shapes that are counted; beyond this number all counts are cleared."""
_AT_ONCE: Final = 4
"""The most questions that run at the same time in one process."""


@final
class Apart(Engine):
    """Runs the engine that `make()` returns in another process. `make` must be picklable, like functools.partial.

    `space` caps the address space of the process in bytes, `seconds` the time of one question (None: no cap). A
    question that exceeds either fails with a closed code. If the process had to be killed, the questions that ran
    beside it fail too, and the next question gets a new process, which reads the same tables again under the same
    secret. A question enters `admits()` before it waits for a slot; a server uses it to delay callers with too many
    questions.
    """

    def __init__(
        self,
        make: Callable[[], Engine],
        *,
        seconds: float | None = None,
        space: int | None = None,
        admits: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        if seconds is not None and not seconds > 0:
            raise InvalidParameter("seconds", seconds, "must be positive, or None for no limit")
        if space is not None and not space > 0:
            raise InvalidParameter("space", space, "must be a positive number of bytes, or None for no limit")
        self._make, self._seconds, self._space, self._admits = make, seconds, space, admits
        self._tables: list[tuple[str, object, Table, bytes, Table, str]] = []
        self._reports: dict[str, Registration] = {}
        self._turn = threading.Lock()
        self._counting = threading.Lock()
        self._places, self._inside = Tokens(_AT_ONCE), 0
        self._worker: _Worker | None = None
        self._closed = False
        self._home: Apart | None = None
        """The engine that this one was made `beside`."""
        self._waiting: Apart | None = None

    def register(
        self, name: str, source: object, table: Table, secret: bytes, progress: Progress | None = None
    ) -> Table:
        with self._turn:
            content = _content(source)
            made: Table = self._running().call("register", (name, source, table, secret), None, progress)
            report: Registration | None = self._running().call("registered", (name,), None)
            self._tables.append((name, source, table, secret, made, content))
            if report is not None:
                self._reports[name] = report
            return made

    def registered(self, name: str) -> Registration | None:
        return self._reports.get(name)

    def beside(self, make: Callable[[], Engine]) -> Apart:
        """Another engine in a process of its own, with the same caps: the rows of a day are registered there.

        Its process is started once and reused. Closing the engine closes its tables; the process stays and waits for
        the next call of this method, which creates a new engine in it.
        """
        with self._counting:
            waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting._is_renewed():
            return waiting
        made = Apart(make, seconds=self._seconds, space=self._space, admits=self._admits)
        made._home = self
        return made

    def follow(self, other: Apart) -> None:
        """Take over the process that waits beside another engine, such as the engine of the previous version."""
        with other._counting:
            waiting, other._waiting = other._waiting, None
        if waiting is not None:
            waiting._home = self
            if not self._wait(waiting):
                waiting._home = None
                waiting.close()

    def _is_renewed(self) -> bool:
        """Replace the engine in the process by a new one without tables; False if the process is gone."""
        try:
            with self._turn:
                if self._worker is None or not self._worker.alive:
                    return False
                self._worker.call("renew", (), None, limit=_GRACE)
                self._tables.clear()
                self._reports.clear()
                self._closed = False
                return True
        except EngineFailed:
            return False

    def _wait(self, other: Apart) -> bool:
        """Keep an engine of `beside` for its next use. Returns False if another engine is kept already, or if this
        engine is closed.
        """
        with self._counting:
            if self._closed or self._waiting is not None:
                return False
            self._waiting = other
            return True

    @property
    def make(self) -> Callable[[], Engine]:
        """The function that creates the engine in the other process."""
        return self._make

    def claim(self, source: object, table: Table, secret: bytes, day: Days, used: Any) -> Any:
        """See `DuckDBEngine.claim`."""
        with self._turn:
            return self._running().call("claim", (source, table, secret, day, used), None)

    def register_day(self, name: str, source: object, table: Table, secret: bytes, day: Days, limits: Any) -> Table:
        """See `DuckDBEngine.register_day`. If the process is lost, its questions fail: the day is not read again."""
        with self._turn:
            made: Table = self._running().call("register_day", (name, source, table, secret, day, limits), None)
            return made

    @contextmanager
    def turn(self) -> Iterator[None]:
        with self._counting:
            self._inside += 1
        try:
            with self._admits(), self._places:  # waiting here does not count against the question's time
                with self._turn:
                    self._running()  # neither does starting a new process
                yield
        finally:
            with self._counting:
                self._inside -= 1

    def collect(self, question: Collect) -> dict[Group, Numbers]:
        """The worker's answer. Tried once more if its process was lost, most often by another question's fault."""
        left = limit = None if self._seconds is None else self._seconds + _GRACE
        began = time.monotonic()
        for is_last in (False, True):
            worker = self._within(left)
            try:
                return worker.collect(question, left)
            except EngineFailed as failed:
                if is_last or worker.alive or self._closed or failed.code != "engine":
                    raise
            left = None if limit is None else max(0.0, limit - (time.monotonic() - began))
        raise AssertionError("unreachable")

    def _within(self, seconds: float | None) -> _Worker:
        """The worker; `EngineFailed` if a new one is not ready within so many seconds.

        The time to start a worker grows with the tables, and a caller must not see from it that the process was lost.
        """
        worker = self._worker
        if worker is not None and worker.alive:
            return worker
        started: Future[_Worker] = Future()

        def start() -> None:
            try:
                with self._turn:
                    started.set_result(self._running())
            except BaseException as error:
                started.set_exception(error)

        threading.Thread(target=start, daemon=True).start()
        try:
            return started.result(seconds)
        except Late:
            pass
        raise EngineFailed("engine")

    def nothing(self, question: Collect) -> dict[Group, Numbers]:
        worker = self._worker
        if worker is None or not worker.alive:  # starting one takes a time that grows with the tables
            return complete(question, {})
        # A limit instead of a kill: the process may be running other questions.
        found: dict[Group, Numbers] | None = worker.call("nothing", (question,), None, limit=self._spare)
        return complete(question, {}) if found is None else found

    @property
    def _spare(self) -> float | None:
        return None if self._seconds is None else _SPARE

    @property
    def patience(self) -> float | None:
        return None if self._seconds is None else self._seconds + _GRACE + _SPARE

    @property
    def busy(self) -> bool:
        """Whether a question runs or waits for a slot. It may have been paid for, so the engine should stay open."""
        return self._inside > 0

    def sql(self, question: Collect) -> str:
        with self._turn:
            worker = self._running()
        text: str = worker.call("sql", (question,), None)
        return text

    def close(self) -> None:
        with self._turn:
            self._closed = True
            self._tables.clear()
        if self._home is not None and self._is_renewed():
            self._closed = True
            if self._home._wait(self):
                return
        with self._counting:
            waiting, self._waiting = self._waiting, None
        for each in (self, waiting):
            if each is not None and each._worker is not None:
                each._worker.end()

    @property
    def process(self) -> int | None:
        """The process id of the worker; None before the first call."""
        return None if self._worker is None else self._worker.number

    def revived(self) -> bool:
        """Start a new process if the old one is gone, which may take a while; False if that fails."""
        if not self._closed:
            with contextlib.suppress(InvalidOperation):
                try:
                    with self._turn:
                        self._running()
                except EngineFailed:
                    return False
        return True

    def _running(self) -> _Worker:
        """The worker. If it is gone, a new one that has registered every table again."""
        if self._closed:
            raise InvalidOperation("this engine was closed; open another")
        if self._worker is not None and self._worker.alive:
            return self._worker
        worker = _Worker(self._make, self._space)
        try:
            for name, source, table, secret, before, content in self._tables:
                again = worker.call("register", (name, source, table, secret), None)
                # If the file has changed, new answers would be merged with answers about the old one.
                if again != before or _content(source) != content:
                    raise EngineFailed("source")
                if worker.call("registered", (name,), None) != self._reports.get(name):
                    raise EngineFailed("source")
        except (DeniableError, OSError):
            # Also if the file is gone or no longer fits the schema. The question stays charged.
            worker.end()
            raise EngineFailed("source") from None
        self._worker = worker
        return worker


def _content(source: object) -> str:
    """A hash of the files of a source; "" for a source that is not a file."""
    if not isinstance(source, str | os.PathLike):
        return ""
    found = hashlib.sha256()
    for path in files_of(os.fspath(source)):
        with open(path, "rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


@final
class _Worker:
    """A proxy for the worker process. Threads may share it."""

    def __init__(self, make: Callable[[], Engine], space: int | None) -> None:
        # This process owns the folder, so the worker's files are removed even if the worker is killed.
        sweep()
        folder = Folder("deniable-apart-")
        here, there = Pipe()
        code = f"from deniable.queries.engines.engine_process import serve; serve({there.fileno()})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(there.fileno(), folder.descriptor),  # both processes hold the folder's lock against `sweep`
            env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each), "TMPDIR": folder.path},
            start_new_session=True,  # Ctrl-C reaches the server only, which ends its workers itself
        )
        there.close()
        self._connection = here
        self._numbers = count()
        self._waiting: dict[int, tuple[SimpleQueue[Any], Progress | None]] = {}
        self._sending, self._gone = threading.Lock(), False
        self._met: Counter[str] = Counter()
        self._remove = weakref.finalize(self, _clear, self._process, here, folder)
        threading.Thread(target=_listen, args=(weakref.ref(self), here), daemon=True).start()
        self._send(None, (make, space))

    @property
    def alive(self) -> bool:
        return not self._gone and self._process.poll() is None

    @property
    def number(self) -> int:
        return self._process.pid

    def call(
        self,
        verb: str,
        arguments: tuple[Any, ...],
        seconds: float | None,
        progress: Progress | None = None,
        *,
        limit: float | None = None,
    ) -> Any:
        """Call a method of the engine in the worker. After `seconds` kill the process; after `limit` return None."""
        answer = SimpleQueue[Any]()  # several times faster than a future
        number = next(self._numbers)
        self._waiting[number] = (answer, progress)
        self._send(number, (number, verb, arguments))
        patience = seconds if limit is None else limit
        try:
            found, error = answer.get(timeout=None if patience is None else min(patience, threading.TIMEOUT_MAX))
        except Empty:
            if limit is not None:
                return None
            self.end()
            raise EngineFailed("time") from None
        if error is not None:
            raise error
        return found

    def collect(self, question: Collect, seconds: float | None) -> dict[Group, Numbers]:
        """Send a question to the worker. If the worker has answered questions of the same shape, only the numbers in
        this one are sent.
        """
        filling, began, found = question.filling, time.monotonic(), None
        if filling is not None and self._met[filling.shape] >= _MET:
            found = self.call("fill", (filling,), seconds)
            if found is None:
                del self._met[filling.shape]
                seconds = None if seconds is None else max(0.0, seconds - (time.monotonic() - began))
        if found is None:
            found = self.call("collect", (question,), seconds)
            if filling is not None:
                if len(self._met) >= _MOST_MET:
                    self._met.clear()
                self._met[filling.shape] += 1
        made: dict[Group, Numbers] = found
        return made

    def _send(self, number: int | None, message: tuple[Any, ...]) -> None:
        try:
            with self._sending:
                self._connection.send(message)
        except (OSError, ValueError):
            self.lost()
        if self._gone and number is not None and (waiting := self._waiting.pop(number, None)) is not None:
            waiting[0].put((None, EngineFailed("engine")))

    def heard(self, number: int, what: str, value: Any) -> None:
        if what == "progress":
            progress = self._waiting[number][1]
            if progress is not None:
                progress(value)
            return
        waiting = self._waiting.pop(number, None)
        if waiting is None:
            return
        if what == "done":
            waiting[0].put((value, None))
        else:
            waiting[0].put((None, value))

    def lost(self) -> None:
        """The connection is gone: every waiting call fails."""
        self._gone = True
        while self._waiting:
            with contextlib.suppress(KeyError):
                self._waiting.popitem()[1][0].put((None, EngineFailed("engine")))

    def end(self) -> None:
        self._gone = True
        self._remove()
        self.lost()


def _listen(worker: weakref.ref[_Worker], connection: Connection) -> None:
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError, TypeError):  # TypeError: closed by another thread while waiting
            message = None
        there = worker()
        if there is None:
            return
        if message is None:
            there.lost()
            return
        there.heard(*message)
        del there, message


def _clear(process: subprocess.Popen[bytes], connection: Connection, folder: Folder) -> None:
    process.kill()
    process.wait()
    with contextlib.suppress(OSError):
        connection.close()
    folder.remove()


# -- in the other process --------------------------------------------------------------------------------------------


@final
class _Renewable:
    """The engine of the worker process. The verb "renew" replaces it by a new one without tables."""

    def __init__(self, make: Callable[[], Engine]) -> None:
        self._make, self._engine = make, make()

    def call(self, verb: str, arguments: tuple[Any, ...]) -> Any:
        if verb != "renew":
            return getattr(self._engine, verb)(*arguments)
        self._engine.close()
        self._engine = self._make()
        return True


def serve(descriptor: int) -> None:
    """The main loop of the worker process: run calls until the pipe is closed, then exit."""
    connection, sending = Connection(descriptor), threading.Lock()
    make, space = connection.recv()
    if space is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (space, space))
    engine = _Renewable(make)

    def tell(number: int, what: str, value: Any) -> None:
        with sending:
            connection.send((number, what, value))

    def work(number: int, verb: str, arguments: tuple[Any, ...]) -> None:
        try:
            if verb == "register":
                arguments = (*arguments, lambda share: tell(number, "progress", share))
            tell(number, "done", engine.call(verb, arguments))
            return
        except MemoryError:
            error: DeniableError = EngineFailed("space")
        except DeniableError as raised:
            raised.__traceback__ = raised.__context__ = None
            error = raised
        except BaseException:  # a bug; its message could quote data
            error = EngineFailed("engine")
        tell(number, "failed", error)

    # "sql" and "nothing" read no data and have threads of their own, so that they neither wait for questions nor delay
    # them. "nothing" has as many threads as there are questions that may need it at the same time.
    asked = SimpleQueue[tuple[Any, ...]]()  # an executor would add as much time to each question as the pipe

    def answer() -> None:
        while True:
            work(*asked.get())

    for _ in range(_AT_ONCE):
        threading.Thread(target=answer, daemon=True).start()
    with ThreadPoolExecutor(1) as aside, ThreadPoolExecutor(_AT_ONCE) as instead:
        pools = {"sql": aside, "nothing": instead}
        while True:
            try:
                message = connection.recv()
            except EOFError:
                shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)  # the parent may have been killed
                os._exit(0)  # no caller is left for the questions that still run
            if message[1] in pools:
                pools[message[1]].submit(work, *message)
            else:
                asked.put(message)
