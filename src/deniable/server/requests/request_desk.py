"""The desk: runs requests as work in threads, and sends answers at the times of the public grid.

Work runs to completion even if the client disconnects. Questions and reads have separate threads, and one person gets
only a few of each. So however much one person asks for, the page of another does not wait, and a question of another
waits at most for one place (see `server.operations.work_turns`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
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
"""Fits that may wait. A fit takes seconds of CPU time in a process of its own; each person runs one at a time."""

Work = Callable[[str | None], dict[str, Any]]
"""Does what was asked and returns the record to send. Its argument is the idempotency key for the ledger, or None."""


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
        self._running: dict[tuple[str, str, str], asyncio.Future[tuple[int, bytes]]] = {}

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
        """Run work of seconds on earlier releases, in a queue of its own, so that nothing else waits for it."""
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
        return await self._left(request, self._start(lambda: self._told(lambda key: work(), None)[:2]))

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
        """The same, once for each idempotency key: a repeated request gets the same bytes, as long as the person may
        see the dataset.

        `body` is a hash of the request, so that a key cannot be used for two requests. By default only an outline of
        the answer is stored, and the ledger supplies the numbers; `whole` stores all of it.
        """
        if key is None:
            return await self._left(request, self._start(lambda: self._told(work, None)[:2]))
        name = (person.name, key, body)
        running = self._running.get(name)
        if running is None:
            running = self._start(lambda: self._keyed(person, dataset, key, body, work, whole))
            self._running[name] = running
            running.add_done_callback(lambda _: self._running.pop(name, None))
        return await self._left(request, running)

    def _start(self, work: Callable[[], tuple[int, bytes]]) -> asyncio.Future[tuple[int, bytes]]:
        return self._questions.start(WHO.get(), self._work, work)

    def _work(self, work: Callable[..., Made], *arguments: Any) -> Made:
        with self.curator.datasets.large.work():
            return work(*arguments)

    async def _left(self, request: Request, running: asyncio.Future[tuple[int, bytes]]) -> Response:
        status, body = await asyncio.shield(running)
        await self._grid.leave(request.scope["arrived"])
        return Response(body, status, media_type="application/json" if status == 200 else MEDIA_TYPE)

    def _keyed(self, who: Person, dataset: str, key: str, body: str, work: Work, whole: bool) -> tuple[int, bytes]:
        person, kept = who.name, self.curator.catalogue.requests
        ledger_key = sha256(f"{person}\0{key}".encode()).hexdigest()
        try:
            self.curator.visible(who, dataset)  # a stored answer is not for a person whose grant was revoked
            kept.forget(self.curator.settings.key_days)
            known = kept.claim(person, key, body)
            if known is None:
                status, told, keeps = self._told(work, ledger_key)
                # An answer that cannot be stored is not sent. The ledger has it: a repetition with the key gets it.
                known = kept.keep(person, key, body, status if keeps else None, told, whole=whole) or (status, told)
            status, told = known
            if is_outline(told):
                status, again, _ = self._told(work, ledger_key)
                told = filled(told, json.loads(again)) if status == 200 else again
            return status, told
        except Problem as problem:
            return problem.status, problem.body()

    def _told(self, work: Work, key: str | None) -> tuple[int, bytes, bool]:
        """Do the work. Returns the status, the bytes, and whether to store them for repetitions with the same key.

        Stored are answers, and failures that were or may have been charged. After other failures (nothing was charged,
        or a bug came after the answer was sealed) a repetition does the work again; the ledger has the sealed answer.
        """
        self.curator.work.begin()
        try:
            return 200, _JSON.encode(work(key)).encode(), True
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
            return problem.status, problem.body(), problem.code == "run_failed"
        failed = problem.code == "run_failed"
        if failed:
            fate = Fate.CHARGED
        words = "; ".join(each for each in (problem.detail, "" if failed else fate.value) if each)
        told = Problem(problem.code, words, {**problem.facts, "charged": fate.charged}, problem.headers)
        bug = problem.code == "unexpected" and fate in (Fate.CHARGED, Fate.UNKNOWN)
        return told.status, told.body(), failed or bug


def body_hash(route: str, body: Any) -> str:
    """The hash of a request: its route and its whole body."""
    return sha256(f"{route}\0{body.model_dump_json()}".encode()).hexdigest()
