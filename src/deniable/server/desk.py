"""The desk: how requests become work in threads, and answers leave on the grid.

Work runs to completion, whether or not somebody still waits for it: a client that hangs up changes nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from typing import Any, final

from fastapi import Request, Response

from deniable.errors import InvalidParameter
from deniable.server.catalogue import Person
from deniable.server.curator import Curator, Fate
from deniable.server.grid import Grid
from deniable.server.problems import MEDIA_TYPE, Problem, problem_of, written_down

Work = Callable[[str | None], dict[str, Any]]
"""Does what was asked; its argument is the ledger's key of the request, if the request has one."""


@final
class Desk:
    """Where requests wait, are worked on, and leave."""

    def __init__(self, curator: Curator) -> None:
        self.curator = curator
        self._grid = Grid(curator.settings.grid)
        self._pool = ThreadPoolExecutor(curator.settings.at_once, thread_name_prefix="ask")
        self._waiting = 0
        self._running: dict[tuple[str, str, str], asyncio.Future[tuple[int, bytes]]] = {}

    def close(self) -> None:
        """Wait for what still runs."""
        self._pool.shutdown(wait=True)

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Work that nobody needs to wait on the grid for: it depends on no data."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._pool, partial(work, *arguments)))

    async def answered(self, request: Request, work: Callable[[], dict[str, Any]]) -> Response:
        """Work whose answer leaves on the grid."""
        return await self._left(request, self._start(lambda: self._told(lambda key: work(), None)[:2]))

    async def once(self, request: Request, person: Person, key: str | None, body: str, work: Work) -> Response:
        """The same; with an idempotency key it happens once, and the answer is the same bytes each time."""
        if key is None:
            return await self._left(request, self._start(lambda: self._told(work, None)[:2]))
        name = (person.name, key, body)
        running = self._running.get(name)
        if running is None:
            running = self._start(lambda: self._keyed(*name, work))
            self._running[name] = running
            running.add_done_callback(lambda _: self._running.pop(name, None))
        return await self._left(request, running)

    def _start(self, work: Callable[[], tuple[int, bytes]]) -> asyncio.Future[tuple[int, bytes]]:
        if self._waiting >= self.curator.settings.waiting:
            raise Problem("busy", headers={"Retry-After": "1"})
        self._waiting += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        future.add_done_callback(self._done)
        return future

    def _done(self, _: object) -> None:
        self._waiting -= 1

    async def _left(self, request: Request, running: asyncio.Future[tuple[int, bytes]]) -> Response:
        status, body = await asyncio.shield(running)
        await self._grid.leave(request.scope["arrived"])
        return Response(body, status, media_type="application/json" if status == 200 else MEDIA_TYPE)

    def _keyed(self, person: str, key: str, body: str, work: Work) -> tuple[int, bytes]:
        catalogue = self.curator.catalogue
        try:
            known = catalogue.begin_request(person, key, body)
            if known is not None:
                return known
            status, told, kept = self._told(work, sha256(f"{person}\0{key}".encode()).hexdigest())
            # An answer that cannot be kept does not leave; the ledger has it, for whoever comes with this key again.
            return catalogue.end_request(person, key, status, told) if kept else (status, told)
        except Problem as problem:
            return problem.status, problem.body()

    def _told(self, work: Work, key: str | None) -> tuple[int, bytes, bool]:
        """The status, the bytes, and whether they are told again to whoever comes with the same key.

        That is so for what was charged. Where a bug came after the answer was sealed, or before anything was charged,
        the same key may come again: it gets the answer from the ledger once the bug is gone.
        """
        self.curator.begin()
        try:
            return 200, json.dumps(work(key), ensure_ascii=False, allow_nan=False).encode(), True
        except InvalidParameter as error:
            pending = key is not None and error.parameter == "key"
            problem = Problem("key_pending", error.rule) if pending else problem_of(error)
        except Exception as error:  # a bug too: nobody is told what it says
            problem = problem_of(error)
            if problem.code == "unexpected":
                written_down(error)
        fate = self.curator.fate() if problem.status >= 500 else None
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
    """What an idempotency key stands for: the route and everything the request says."""
    return sha256(f"{route}\0{body.model_dump_json()}".encode()).hexdigest()
