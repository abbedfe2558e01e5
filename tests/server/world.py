"""A server for tests: a hospital, one person in each role, and a client that speaks for any of them."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from deniable.server.app import served
from deniable.server.catalogue.catalogue import Person
from deniable.server.curator import Curator
from deniable.server.operations.settings import Settings
from deniable.server.request_bodies import BudgetBody
from deniable.server.roles import Role
from tests.queries.hospital import visits

SCHEMA = """\
version: 1
tables:
  visits:
    person: patient_id
    rows: 3
    columns:
      ward: {kind: text, keys: [A, B, C], nullable: false}
      sex: {kind: text, keys: [f, m], nullable: false}
      age: {kind: integer, low: 0, high: 100, nullable: false}
      stay: {kind: integer, low: 0, high: 60}
      cost: {kind: real, low: 0, high: 2000}
      town: {kind: text}
"""
WARDS = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
PEOPLE = {Role.OWNER: "olga", Role.ANALYST: "ana", Role.AUDITOR: "ada", Role.ADMIN: "adam"}
BUDGET = {"epsilon": 100.0, "delta": 1e-6}


class Client:
    """Requests to an application in this process, from any thread; while entered, the application runs."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self._stop: asyncio.Event | None = None

    def __enter__(self) -> Client:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._do(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(self) -> None:
        self._web = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://server", timeout=120)
        started, self._stop = asyncio.Event(), asyncio.Event()
        stop = self._stop
        messages = iter(({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}))

        async def receive() -> Any:
            message = next(messages)
            if message["type"] == "lifespan.shutdown":
                await stop.wait()
            return message

        async def send(message: Any) -> None:
            assert message["type"] in {"lifespan.startup.complete", "lifespan.shutdown.complete"}
            started.set()

        self._life = asyncio.create_task(self.app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send))
        await started.wait()

    async def _end(self) -> None:
        assert self._stop is not None
        await self._web.aclose()
        self._stop.set()
        await self._life

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        found: httpx.Response = self._do(self._web.request(method, path, **more))
        return found

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)


@dataclass
class World:
    """A curator with a dataset, and its application."""

    folder: Path
    curator: Curator
    client: Client
    tokens: dict[str, str] = field(default_factory=dict)

    def call(self, who: str | None, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """A request by somebody; None is nobody."""
        headers = dict(more.pop("headers", {}))
        if who is not None:
            headers["Authorization"] = f"Bearer {self.tokens[who]}"
        return self.client.request(method, path, json=body, headers=headers, **more)

    def ask(self, sql: str = WARDS, *, who: str = "ana", path: str = "", key: str | None = None, **more: Any) -> Any:
        headers = {} if key is None else {"Idempotency-Key": key}
        body = {"dataset": "visits", "sql": sql, **more}
        return self.call(who, "POST", f"/v1/questions{path}", body, headers=headers)

    def newcomer(self, name: str, role: Role) -> str:
        """Somebody new with a token."""
        if self.curator.catalogue.person(name) is None:
            self.curator.catalogue.add_person(name, role)
        self.tokens[name] = self.curator.reception.issue(name, None)["token"]
        return name

    @property
    def ledger(self) -> Any:
        return self.curator.open(Person("olga", Role.OWNER), "visits").session.ledger


def made(folder: Path, *, shared: bool = True, budget: dict[str, float] = BUDGET, **settings: Any) -> World:
    """A world in a folder, which all owners share; whoever makes it enters its client and closes it."""
    visits().to_csv(folder / "visits.csv", index=False)
    chosen = {"grid": 0.001, "rate": 1e6, "burst": 1_000_000, **settings}
    where = {"owners": {"*": (folder,)}} if shared else {"data": (folder,)}
    curator = Curator(Settings(state=folder / "state", **{**where, **chosen}))
    world = World(folder, curator, Client(served(curator)))
    for role, name in PEOPLE.items():
        world.newcomer(name, role)
    owner = Person("olga", Role.OWNER)
    curator.register(owner, "visits", {"visits": "visits.csv"}, SCHEMA, BudgetBody(**budget))
    curator.grant(owner, "visits", "ana", None, None)
    return world
