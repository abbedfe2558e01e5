"""The desk: runs requests as work in threads, and sends answers at the times of the public grid.

Work runs to completion even if the client disconnects. Questions and reads have separate threads, and one person gets
only a few of each. So however much one person asks for, the page of another does not wait, and a question of another
waits at most for one place (see `server.operations.work_turns`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, final

from fastapi import Request, Response

from deniable.errors import DeniableError, InvalidParameter
from deniable.ledger.charge_requests import REUSED
from deniable.server.catalogue.catalogue import Person
from deniable.server.catalogue.kept_requests import filled, is_outline
from deniable.server.charge_fate import Fate
from deniable.server.curator import Curator
from deniable.server.operations.security_events import logged
from deniable.server.operations.work_turns import WHO, Made, Turns
from deniable.server.problems import MEDIA_TYPE, Problem, problem_of, written_down
from deniable.server.requests.answer_times import AnswerGrid

_THREADS: Final = 2
"""Threads of one person per place in an engine: some prepare and seal while others run."""

_JSON: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_READS: Final = 8
_READS_EACH: Final = 3
_FITS: Final = 2
_FITS_WAITING: Final = 64
"""The most fits that may wait. A fit takes seconds of CPU time in its own process; each person runs one at a time."""

Work = Callable[[str | None], dict[str, Any]]
"""Does what was asked and returns the record to send. Its argument is the idempotency key for the ledger, or None."""


@final
@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a request: its status, its bytes, and the record that they encode.

    The API sends the bytes, and drops the record at once, because the record of a large answer takes much memory. A
    page is rendered from the record.
    """

    status: int
    body: bytes
    _record: dict[str, Any] | None = None

    @property
    def record(self) -> dict[str, Any]:
        """The answer, or the problem. Only an answer that was stored as bytes is decoded for it."""
        if self._record is None:
            stored: dict[str, Any] = json.loads(self.body)
            return stored
        return self._record

    def without_record(self) -> Reply:
        """A reply with the same status and bytes, which does not hold the record."""
        return Reply(self.status, self.body)


@final
class Desk:
    """Runs the work of requests, with a queue for each kind of work."""

    def __init__(self, curator: Curator) -> None:
        self.curator = curator
        self._grid = AnswerGrid(curator.settings.grid)
        most, each = curator.settings.at_once, curator.settings.each
        self._questions = Turns("ask", most=most, each=_THREADS * each, waiting=curator.settings.waiting)
        self._reads = Turns("read", most=_READS, each=_READS_EACH, waiting=curator.settings.waiting)
        self._fits = Turns("fit", most=_FITS, each=1, waiting=_FITS_WAITING)
        self._running: dict[tuple[str, str, str], asyncio.Future[Reply]] = {}

    def close(self) -> None:
        """Wait until all running work has ended."""
        self._questions.close()
        self._reads.close()
        self._fits.close()

    @property
    def busy(self) -> bool:
        """Whether a question or a fit runs or waits."""
        return self._questions.busy or self._fits.busy

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run short work that does not depend on data, so that its answer need not wait for the time grid."""
        return await asyncio.shield(self._reads.start(WHO.get(), self._work, self._placed, work, *arguments))

    async def fit(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run work on earlier releases that takes seconds, in a queue of its own, so that nothing else waits for it."""
        return await asyncio.shield(self._fits.start(WHO.get(), self._work, self._placed, work, *arguments))

    def _placed(self, work: Callable[..., Any], *arguments: Any) -> Any:
        self.curator.work.begin()
        try:
            return work(*arguments)
        except DeniableError as error:
            self.curator.work.place(error)
            raise

    async def register(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run a registration, in the queue of the questions: it takes as long as they do."""
        try:
            return await asyncio.shield(self._questions.start(WHO.get(), self._work, work, *arguments))
        except (Problem, DeniableError) as error:
            logged("registration_refused", person=WHO.get(), code=problem_of(error).code)
            raise

    async def answered(self, request: Request, work: Callable[[], dict[str, Any]]) -> Response:
        """Run work, and send its answer, or its problem, at a time of the grid."""
        return _sent(
            await self._left(request, self._start(lambda: self._worked(_unkeyed(work), None)[0].without_record()))
        )

    async def shown(self, request: Request, work: Callable[[], dict[str, Any]]) -> Reply:
        """Like `answered`, for a page: returns the answer, or the problem, at a time of the grid."""
        return await self._left(request, self._start(lambda: self._worked(_unkeyed(work), None)[0]))

    async def once(
        self,
        request: Request,
        person: Person,
        dataset: str,
        key: str | None,
        body: str,
        work: Work,
        *,
        whole: bool = False,
    ) -> Response:
        """Like `answered`, but once for each idempotency key: a repeated request gets the same bytes, as long as the
        person may see the dataset.

        `body` is a hash of the request, so that a key cannot be used for two requests. By default only an outline of
        the answer is stored, and the ledger supplies the numbers; `whole` stores all of it.
        """
        claim = (person, dataset, key, body, work, whole)
        return _sent(await self._left(request, self._started(*claim, Reply.without_record)))

    async def shown_once(
        self,
        request: Request,
        person: Person,
        dataset: str,
        key: str | None,
        body: str,
        work: Work,
        *,
        whole: bool = False,
    ) -> Reply:
        """Like `once`, for a page: returns the reply instead of a response."""
        return await self._left(request, self._started(person, dataset, key, body, work, whole, lambda reply: reply))

    def _started(
        self,
        person: Person,
        dataset: str,
        key: str | None,
        body: str,
        work: Work,
        whole: bool,
        kept: Callable[[Reply], Reply],
    ) -> asyncio.Future[Reply]:
        """Start this request, or join the one that runs with its key. `kept` is the part of the reply to hold."""
        if key is None:
            return self._start(lambda: kept(self._worked(work, None)[0]))
        name = (person.name, key, body)
        running = self._running.get(name)
        if running is None:
            running = self._start(lambda: kept(self._keyed(person, dataset, key, body, work, whole)))
            self._running[name] = running
            running.add_done_callback(lambda _: self._running.pop(name, None))
        return running

    def _start(self, work: Callable[[], Reply]) -> asyncio.Future[Reply]:
        return self._questions.start(WHO.get(), self._work, work)

    def _work(self, work: Callable[..., Made], *arguments: Any) -> Made:
        with self.curator.datasets.large.work():
            return work(*arguments)

    async def _left(self, request: Request, running: asyncio.Future[Reply]) -> Reply:
        reply = await asyncio.shield(running)
        await self._grid.leave(request.scope["arrived"])
        return reply

    def _keyed(self, who: Person, dataset: str, key: str, body: str, work: Work, whole: bool) -> Reply:
        person, kept = who.name, self.curator.catalogue.requests
        ledger_key = sha256(f"{person}\0{key}".encode()).hexdigest()
        try:
            self.curator.visible(who, dataset)  # a stored answer is not for a person whose grant was revoked
            kept.forget(self.curator.settings.key_days)
            known = kept.claim(person, key, body)
            reply = None
            if known is None:
                reply, keeps = self._worked(work, ledger_key)
                # An answer that cannot be stored is not sent. The ledger has it: a repetition with the key gets it.
                known = kept.keep(person, key, body, reply.status if keeps else None, reply.body, whole=whole)
            if known is not None:
                reply = Reply(*known)
            assert reply is not None
            if is_outline(reply.body):
                again, _ = self._worked(work, ledger_key)
                reply = Reply(200, filled(reply.body, again.record)) if again.status == 200 else again
            return reply
        except Problem as problem:
            return _of_problem(problem)

    def _worked(self, work: Work, key: str | None) -> tuple[Reply, bool]:
        """Do the work. Returns the reply, and whether to store it for repetitions with the same key.

        Answers are stored, and failures that were or may have been charged. After other failures (nothing was charged,
        or a bug came after the answer was sealed) a repetition does the work again; the ledger has the sealed answer.
        """
        self.curator.work.begin()
        try:
            record = work(key)
            return Reply(200, _JSON.encode(record).encode(), record), True
        except InvalidParameter as error:
            keyed = key is not None and error.parameter == "key"
            code = "key_reused" if error.rule == REUSED else "key_pending"
            problem = Problem(code, f"the key {error.rule}; {error.remedy}") if keyed else problem_of(error)
        except Exception as error:  # also a bug, whose message is not for the client
            self.curator.work.place(error)
            problem = problem_of(error)
            if problem.code == "unexpected":
                written_down(error)
        fate = self.curator.work.fate(self.curator.datasets.witness) if problem.status >= 500 else None
        if fate is None:
            return _of_problem(problem), problem.code == "run_failed"
        failed = problem.code == "run_failed"
        if failed:
            fate = Fate.CHARGED
        words = "; ".join(each for each in (problem.detail, "" if failed else fate.value) if each)
        with_fate = Problem(problem.code, words, {**problem.facts, "charged": fate.charged}, problem.headers)
        bug = problem.code == "unexpected" and fate in (Fate.CHARGED, Fate.UNKNOWN)
        return _of_problem(with_fate), failed or bug


def _of_problem(problem: Problem) -> Reply:
    return Reply(problem.status, problem.body(), problem.record())


def _unkeyed(work: Callable[[], dict[str, Any]]) -> Work:
    return lambda key: work()


def _sent(reply: Reply) -> Response:
    media_type = "application/json" if reply.status == 200 else MEDIA_TYPE
    return Response(reply.body, reply.status, media_type=media_type)


def body_hash(route: str, body: Any) -> str:
    """The hash of a request: its route and its whole body."""
    return sha256(f"{route}\0{body.model_dump_json()}".encode()).hexdigest()
