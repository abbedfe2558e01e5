"""Whether one person, or a stranger, can keep others waiting: python benchmarks/stops.py [case ...].

`deniable serve` is started as people start it. The median and the longest of twenty requests, quiet and attacked:

quiet       a question, a read of the ledger, and who am I
questions   24 slow questions of one person in flight, all the while
refused     24 questions that are refused because of the work that one person's rows could cause
large       24 questions with answers of 63,000 cells
replays     24 times such an answer, which is there already
rehearsals  24 such questions to dummy rows
labels      24 labels of such an answer
keys        24 prices of questions with a dozen conditions on a computed key, whose values are worked out to read them
batches     24 batches of as many sums as a request may have
plans       24 prices of 100 tables that are measured together, each to be as near as it is told
synthetic   24 synthetic tables of many counts
rows        24 downloads of synthetic rows
pages       24 such questions in the console, whose pages are drawn on the server
tokens      300 wrong tokens at once
strangers   100 connections without a token, each with 20 requests for the description of the API behind one another
deaf        20 connections that ask for it 60 times, and read nothing; at the end, how long the server takes to stop
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx
from server import started, table

SLOW = "SELECT " + ", ".join(f"COUNT(DISTINCT cost + {i}) AS d{i}" for i in range(30)) + " FROM visits WHERE cost < {}"
"""As much as one person's rows may cause; with 40 of them it is refused before anything runs."""
REFUSED = SLOW.replace(" FROM", "".join(f", COUNT(DISTINCT cost - {i}) AS e{i}" for i in range(30)) + " FROM")
KEYS = (
    "SELECT k, COUNT(*) AS n FROM (SELECT CONCAT(ward, CAST(age AS VARCHAR), CAST(age % 25 AS VARCHAR)) AS k"
    " FROM visits) AS s WHERE " + " AND ".join(f"k <> '{{0}}{i}'" for i in range(12)) + " GROUP BY k"
)
LARGE = "SELECT age, ward, FLOOR(cost / 40) AS c, COUNT(*) AS n FROM visits WHERE cost < {} GROUP BY age, ward, c"
SUMS = "SELECT " + ", ".join(f"SUM(cost) AS s{i}" for i in range(30)) + " FROM visits WHERE cost < {}"

KEPT = ["ward", "age % 2", "age % 3", "FLOOR(cost / 1000)", "FLOOR(cost / 700)", "age % 5", "FLOOR(cost / 500)"]
TABLES = [each for many in range(1, 8) for each in combinations(KEPT, many)][:100]

Call = Callable[[], Awaitable[httpx.Response]]


async def timed(request: Call) -> str:
    """Twenty of them, one after the other."""
    times = []
    for _ in range(20):
        began = time.monotonic()
        answer = await request()
        assert answer.status_code == 200, answer.text
        times.append(time.monotonic() - began)
        await asyncio.sleep(0.1)
    return f"median {statistics.median(times):5.2f} s, longest {max(times):5.2f} s"


class People:
    """Requests of the two who are there: ana attacks, olga asks and reads."""

    def __init__(self, web: httpx.AsyncClient, ana: str, olga: str) -> None:
        self.web = web
        self.ana, self.olga = ({"Authorization": f"Bearer {token}"} for token in (ana, olga))
        self.cookie = {"Cookie": f"deniable={ana}"}

    def ask(self, who: dict[str, str], sql: str, cost: float = 1e-6) -> Awaitable[httpx.Response]:
        return self.web.post("/v1/questions", json={"dataset": "visits", "sql": sql, "epsilon": cost}, headers=who)

    def price(self, sql: str) -> Awaitable[httpx.Response]:
        body = {"dataset": "visits", "sql": sql, "epsilon": 1e-6}
        return self.web.post("/v1/questions:price", json=body, headers=self.ana)

    def question(self) -> Awaitable[httpx.Response]:
        return self.ask(self.olga, f"SELECT COUNT(*) AS n FROM visits WHERE cost < {random.random() * 2000}")

    def read(self) -> Awaitable[httpx.Response]:
        return self.web.get("/v1/ledger/visits/status", headers=self.olga)

    def me(self) -> Awaitable[httpx.Response]:
        return self.web.get("/v1/me", headers=self.olga)

    async def attacks(self) -> dict[str, Call]:
        """What ana does over and over, by the name of the case."""
        first = await self.ask(self.ana, LARGE.format(1e9), 1e-4)
        release = first.json()["release"]
        page = await self.web.get("/console/data/visits", headers=self.cookie)
        secret = re.search('name="csrf" value="([^"]+)"', page.text)
        form = {
            "csrf": "" if secret is None else secret[1],
            "way": "epsilon",
            "amount": "1e-4",
            "sql": LARGE.format(1e9),
        }

        def batch() -> Awaitable[httpx.Response]:
            sums = [SUMS.format(random.random() * 1e6) for _ in range(20)]
            body: dict[str, Any] = {"dataset": "visits", "questions": sums, "epsilon": 1e-6}
            return self.web.post("/v1/questions:batch", json=body, headers=self.ana)

        def plan() -> Awaitable[httpx.Response]:
            where = f"FROM visits WHERE cost < {random.random() * 1e6}"
            asked = [
                f"SELECT {', '.join(f'{key} AS k{i}' for i, key in enumerate(keys))}, COUNT(*) AS n {where} "
                f"GROUP BY {', '.join(keys)}"
                for keys in TABLES
            ]
            body = {"dataset": "visits", "questions": asked, "within": [50.0 + i for i in range(len(asked))]}
            return self.web.post("/v1/questions:price_batch", json=body, headers=self.ana)

        def synthetic(epsilon: float, **bins: int) -> Awaitable[httpx.Response]:
            body = {"columns": ["ward", "age", "cost"], "bins": bins, "epsilon": epsilon}
            return self.web.post("/v1/datasets/visits/synthetic", json=body, headers=self.ana)

        bought = await synthetic(1e-3, age=50, cost=50)
        rows = f"/v1/datasets/visits/synthetic/{bought.json()['provenance']['entry']}/rows?rows=100000"

        def rehearsal() -> Awaitable[httpx.Response]:
            body = {"sql": LARGE.format(random.random() * 1e6), "epsilon": 1.0}
            return self.web.post("/v1/datasets/visits/dummy:ask", json=body, headers=self.ana)

        return {
            "questions": lambda: self.ask(self.ana, SLOW.format(random.random() * 1e6)),
            "refused": lambda: self.ask(self.ana, REFUSED.format(random.random() * 1e6)),
            "large": lambda: self.ask(self.ana, LARGE.format(random.random() * 1e6)),
            "replays": lambda: self.ask(self.ana, LARGE.format(1e9), 1e-4),
            "rehearsals": rehearsal,
            "labels": lambda: self.web.get(f"/v1/labels/{release}", headers=self.ana),
            "keys": lambda: self.price(KEYS.format(random.random())),
            "batches": batch,
            "plans": plan,
            "synthetic": lambda: synthetic(1e-6 * (1 + random.random()), age=100, cost=random.randrange(100, 250)),
            "rows": lambda: self.web.get(rows, headers=self.ana),
            "pages": lambda: self.web.post("/console/data/visits/ask", data=form, headers=self.cookie),
        }


async def attacked(url: str, analyst: str, owner: str, cases: list[str]) -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=300, trust_env=False, limits=limits) as web:
        people = People(web, analyst, owner)
        for name, request in (("question", people.question), ("read", people.read), ("who", people.me)):
            print(f"{'quiet':10} {name:9} {await timed(request)}", flush=True)
        for case, hostile in (await people.attacks()).items():
            if not cases or case in cases:
                await _met(case, hostile, people)
        for case, flag in (("tokens", "--flood"), ("strangers", "--describe")):
            if not cases or case in cases:
                flood = await asyncio.create_subprocess_exec(sys.executable, __file__, flag, url)
                await asyncio.sleep(0.5)
                print(f"{case:10} {'who':9} {await timed(people.me)}", flush=True)
                await flood.wait()


async def _met(case: str, hostile: Call, people: People) -> None:
    """Another person's requests while 24 of these are in flight, and what became of them."""
    statuses: list[int] = []
    over = False

    async def again() -> None:
        while not over:
            answer = await hostile()
            statuses.append(answer.status_code)
            if answer.status_code == 429:
                await asyncio.sleep(0.2)

    running = [asyncio.create_task(again()) for _ in range(24)]
    await asyncio.sleep(2)
    for name, request in (("question", people.question), ("read", people.read)):
        print(f"{case:10} {name:9} {await timed(request)}", flush=True)
    over = True
    await asyncio.gather(*running)  # else the next case would wait for them
    print(f"{case:10} {'of these':9} {dict(Counter(statuses))}", flush=True)
    assert (422 in statuses) == (case == "refused"), "these are not the requests that the case is named for"


async def flooded(url: str) -> None:
    """300 wrong tokens at once, by hand and in a process of its own: the flood must not slow down who measures."""
    texts = [f"dn_{random.getrandbits(64):016x}_{'a' * 43}" for _ in range(300)]
    said = [f"GET /v1/me HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {text}\r\n\r\n".encode() for text in texts]
    await asyncio.gather(*(_sent(url, each, 1000) for each in said))


async def described(url: str) -> None:
    """100 connections with 20 requests each, ten times."""
    said = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 20
    for _ in range(10):
        await asyncio.gather(*(_sent(url, said, 10**7) for _ in range(100)))


async def _sent(url: str, said: bytes, most: int) -> None:
    host, port = url.removeprefix("http://").split(":")
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(said)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.read(most), 5)
        writer.close()


def deaf(url: str) -> list[socket.socket]:
    """20 connections that ask for much and read nothing."""
    host, port = url.removeprefix("http://").split(":")
    found = []
    for _ in range(20):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect((host, int(port)))
        one.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 60)
        found.append(one)
    return found


def main() -> None:
    if sys.argv[1:2] in (["--flood"], ["--describe"]):
        asyncio.run((flooded if sys.argv[1] == "--flood" else described)(sys.argv[2]))
        return
    cases = sys.argv[1:]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        table(folder)
        server, url, analyst, owner = started(folder, 1, "")
        try:
            asyncio.run(attacked(url, analyst, owner, cases))
            kept = deaf(url) if not cases or "deaf" in cases else []
        finally:
            began = time.monotonic()
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(90)
        if kept:
            print(f"{'deaf':10} {'stopping':9} {time.monotonic() - began:5.2f} s")


if __name__ == "__main__":
    main()
