"""Whether one person, or a stranger, can keep others waiting: python benchmarks/stops.py.

`deniable serve` is started as people start it. The median and the longest of twenty requests, quiet and attacked:

questions   24 slow questions of one person in flight, all the while; another person asks, and an auditor reads
tokens      300 wrong tokens at once; somebody who is signed in asks who they are
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
from server import started, table

SLOW = "SELECT " + ", ".join(f"COUNT(DISTINCT cost + {i}) AS d{i}" for i in range(40)) + " FROM visits WHERE cost < {}"


async def timed(request: Callable[[], Awaitable[httpx.Response]]) -> str:
    """Twenty of them, one after the other."""
    times = []
    for _ in range(20):
        began = time.monotonic()
        answer = await request()
        assert answer.status_code == 200, answer.text
        times.append(time.monotonic() - began)
        await asyncio.sleep(0.1)
    return f"median {statistics.median(times):5.2f} s, longest {max(times):5.2f} s"


async def attacked(url: str, analyst: str, owner: str) -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=120, trust_env=False, limits=limits) as web:

        def ask(token: str, sql: str) -> Awaitable[httpx.Response]:
            body = {"dataset": "visits", "sql": sql, "epsilon": 1e-6}
            return web.post("/v1/questions", json=body, headers={"Authorization": f"Bearer {token}"})

        def other() -> Awaitable[httpx.Response]:
            return ask(owner, f"SELECT COUNT(*) AS n FROM visits WHERE cost < {random.random() * 2000}")

        def read() -> Awaitable[httpx.Response]:
            return web.get("/v1/ledger/visits/status", headers={"Authorization": f"Bearer {owner}"})

        def me() -> Awaitable[httpx.Response]:
            return web.get("/v1/me", headers={"Authorization": f"Bearer {analyst}"})

        for name, request in (("question", other), ("read", read), ("who", me)):
            print(f"quiet      {name:9} {await timed(request)}")

        async def hostile() -> None:
            while True:
                await ask(analyst, SLOW.format(random.random() * 1e6))

        running = [asyncio.create_task(hostile()) for _ in range(24)]
        await asyncio.sleep(2)
        for name, request in (("question", other), ("read", read)):
            print(f"questions  {name:9} {await timed(request)}")
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

        flood = await asyncio.create_subprocess_exec(sys.executable, __file__, "--flood", url)
        print(f"tokens     who       {await timed(me)}")
        await flood.wait()


async def flooded(url: str) -> None:
    """300 wrong tokens at once, by hand and in a process of its own: the flood must not slow down who measures."""
    host, port = url.removeprefix("http://").split(":")

    async def wrong() -> None:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(host, int(port))
            text = f"dn_{random.getrandbits(64):016x}_{'a' * 43}"
            writer.write(f"GET /v1/me HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {text}\r\n\r\n".encode())
            await reader.read(1000)
            writer.close()

    await asyncio.gather(*(wrong() for _ in range(300)))


def main() -> None:
    if sys.argv[1:2] == ["--flood"]:
        asyncio.run(flooded(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        table(folder)
        server, url, analyst, owner = started(folder, 1)
        try:
            asyncio.run(attacked(url, analyst, owner))
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(90)


if __name__ == "__main__":
    main()
