"""An engine in a process of its own: with a cap on memory and on time, and replaced when it dies or hangs.

What goes over the pipe are our own objects, pickled, between two processes of one program; nothing an analyst wrote is
among them but the plan that was made of it. What comes back are integers, or one of the closed codes. The worker's
output streams lead nowhere: a crash could print data.
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
from typing import Any, Final, final

from deniable.errors import DeniableError, EngineFailed, InvalidOperation, InvalidParameter
from deniable.queries.engines.engine import Engine, Numbers, Progress, complete
from deniable.queries.engines.registration_report import Registration
from deniable.queries.engines.scratch_folders import Folder, sweep
from deniable.queries.engines.semaphore import Tokens
from deniable.queries.relations.exact_statistics import Collect, Group
from deniable.tables.schema import Table
from deniable.tables.source_files import files_of

_GRACE: Final = 5.0
"""Seconds that an engine gets beyond its own time limit to stop by itself, before its process is ended."""

_SPARE: Final = 1.0
"""Seconds after which also a process that had to be ended is gone, and empty tables have answered in its stead."""

_MET: Final = 2
"""Questions of one shape that a worker must have met before it is asked for the next one by its numbers."""

_MOST_MET: Final = 10_000
_AT_ONCE: Final = 4
"""Questions that run at the same time in one process."""


@final
class Apart(Engine):
    """Runs the engine that `make` makes in another process; `make` must be picklable, such as functools.partial.

    `space` caps the address space of the process in bytes (None: no cap), `seconds` the time of one question. A
    question that is over either fails with a closed code, and so do those that ran beside it when the process had to be
    ended; the next one finds a new process, with the same tables read again under the same secret. `admits` is entered
    by who wants a place, before they have one: there somebody who wants too many can be made to wait.
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

    @contextmanager
    def turn(self) -> Iterator[None]:
        with self._counting:
            self._inside += 1
        try:
            with self._admits(), self._places:  # who waits here loses none of their time
                with self._turn:
                    self._running()  # nor who finds that the process was lost
                yield
        finally:
            with self._counting:
                self._inside -= 1

    def collect(self, question: Collect) -> dict[Group, Numbers]:
        """Once more in a new process, if the first was lost: most often on account of a question that ran beside it."""
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
        """The worker, if there is one within so many seconds: to start another takes as long as the tables are large,
        and who lost the process must not be told so by that.
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
        if worker is None or not worker.alive:  # to start another takes as long as the tables are large
            return complete(question, {})
        # As long as the fixed time has room for: the process itself must not be ended for it, others ask there too.
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
        """Whether a question runs, or waits for a place: it may have been paid for."""
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
            if self._worker is not None:
                self._worker.end()

    @property
    def process(self) -> int | None:
        """The number of the process, while there is one."""
        return None if self._worker is None else self._worker.number

    def revived(self) -> bool:
        """Whether there is a process to ask: one that is gone is started again, which may take a while."""
        if not self._closed:
            with contextlib.suppress(InvalidOperation):
                try:
                    with self._turn:
                        self._running()
                except EngineFailed:
                    return False
        return True

    def _running(self) -> _Worker:
        """The worker; a new one, with every table, where the old one is gone."""
        if self._closed:
            raise InvalidOperation("this engine was closed; open another")
        if self._worker is not None and self._worker.alive:
            return self._worker
        worker = _Worker(self._make, self._space)
        try:
            for name, source, table, secret, before, content in self._tables:
                again = worker.call("register", (name, source, table, secret), None)
                # Answers about another file would be merged with, and told as, those about the first one.
                if again != before or _content(source) != content:
                    raise EngineFailed("source")
                if worker.call("registered", (name,), None) != self._reports.get(name):
                    raise EngineFailed("source")
        except (DeniableError, OSError):
            # Also where the file is gone, or cannot be read as declared any more: what was asked stays charged.
            worker.end()
            raise EngineFailed("source") from None
        self._worker = worker
        return worker


def _content(source: object) -> str:
    """What the files of a source hold, as a hash; nothing for what is no file."""
    if not isinstance(source, str | os.PathLike):
        return ""
    found = hashlib.sha256()
    for path in files_of(os.fspath(source)):
        with open(path, "rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


@final
class _Worker:
    """The process, seen from here."""

    def __init__(self, make: Callable[[], Engine], space: int | None) -> None:
        # Ours, not the worker's: whatever it leaves behind when it is ended, is removed with it.
        sweep()
        folder = Folder("deniable-apart-")
        here, there = Pipe()
        code = f"from deniable.queries.engines.engine_process import serve; serve({there.fileno()})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(there.fileno(), folder.descriptor),  # it holds the folder too: nobody sweeps while either lives
            env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each), "TMPDIR": folder.path},
            start_new_session=True,  # Ctrl-C is for the server, which ends its workers itself
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
        """What the worker answers. After `seconds` its process is ended, after `limit` the answer is None."""
        answer = SimpleQueue[Any]()  # a future takes several times as long
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
        """The whole question, or its numbers alone, once the worker has met others of its shape."""
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
        """Nothing more will come: whoever waits is told so."""
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


def serve(descriptor: int) -> None:
    """What the worker does until the pipe is closed."""
    connection, sending = Connection(descriptor), threading.Lock()
    make, space = connection.recv()
    if space is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (space, space))
    engine = make()

    def tell(number: int, what: str, value: Any) -> None:
        with sending:
            connection.send((number, what, value))

    def work(number: int, verb: str, arguments: tuple[Any, ...]) -> None:
        try:
            if verb == "register":
                arguments = (*arguments, lambda share: tell(number, "progress", share))
            tell(number, "done", getattr(engine, verb)(*arguments))
            return
        except MemoryError:
            error: DeniableError = EngineFailed("space")
        except DeniableError as said:
            said.__traceback__ = said.__context__ = None
            error = said
        except BaseException:  # a bug: what it says may hold data
            error = EngineFailed("engine")
        tell(number, "failed", error)

    # What reads no data has threads of its own: it neither waits for questions nor takes their time. What stands in for
    # answers has as many as there are questions that may need it at once.
    asked = SimpleQueue[tuple[Any, ...]]()  # an executor takes as long for each question as the pipe does

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
                shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)  # whoever made it may have been killed
                os._exit(0)  # whatever still runs, nobody waits for it
            if message[1] in pools:
                pools[message[1]].submit(work, *message)
            else:
                asked.put(message)
