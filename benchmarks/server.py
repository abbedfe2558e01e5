"""The server under load: answered questions and prices a second, and how long they take.

    python benchmarks/server.py [--seconds 10] [--clients 64] [--processes N] [--json OUT] [--strict]
    python benchmarks/server.py --bare [...]
    python benchmarks/server.py --before FOLDER [--turns 5] [--seconds 2] [...]
    python benchmarks/server.py --timing

`deniable serve` is started as people start it, on a table of 10,000 rows with SQLite, and asked over HTTP by clients
that keep their connections. Five loads, one after the other:

questions   every question is a new one, so each is planned, charged, run, sealed and noted: no replay. They differ in
            the numbers that columns are compared with, as those of a page with a slider do, and are planned by shape
shapes      the same, and no two of them have one shape: each is read and planned from the start
replays     a hundred questions that were answered before, in turn: nothing is charged and nothing is run
prices      a hundred questions in turn, as somebody does who types and changes the cost
new prices  every question is a new one

Latencies contain the wait for the public time grid. CPU milliseconds are those of the server and its engines; the
clients' own CPU time is printed beside them, because clients share the machine's cores. `slow` says how much longer a
plain loop took than it did at its fastest: on a machine that does other things, CPU time is worth less. The Python
build is printed as well: Python of a distribution needs a sixth less CPU time than one built without profiles, as pyenv
builds it.

`--bare` asks FastAPI and DuckDB with a token and nothing else (`benchmarks/bare.py`) the same new questions in the same
run, and prints the CPU time of each load as a multiple of the bare server's.

`--before` is for a machine that does other things: this server, that of another checkout and the bare one are asked in
turns, and the medians of their CPU times are printed.

`--timing` asks 500 questions, in turns of this table and of its neighbour in which one more person has 30,000 rows: the
medians, how many answers left after the first step of the grid, and the p-value of Welch's t-test.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

REACH = {"questions": 200.0, "prices": 1000.0}
"""A second, at least. The other loads have no goal."""

SCHEMA = """\
version: 1
tables:
  visits:
    person: patient_id
    rows: 3
    columns:
      ward: {kind: text, keys: [A, B, C], nullable: false}
      age: {kind: integer, low: 0, high: 100, nullable: false}
      cost: {kind: real, low: 0, high: 2000}
"""
ROWS = 10_000


def table(folder: Path, *, heavy: int = 0) -> None:
    """A hospital, and one person with so many rows more."""
    rng = random.Random(7)
    (folder / "data").mkdir()
    with (folder / "data" / "visits.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["patient_id", "ward", "age", "cost"])
        for _ in range(ROWS):
            writer.writerow([rng.randrange(4000), rng.choice("ABC"), rng.randrange(100), round(rng.random() * 2000, 2)])
        for _ in range(heavy):
            writer.writerow([10**6, rng.choice("ABC"), rng.randrange(100), round(rng.random() * 2000, 2)])


UNLIMITED = "rate = 1e6\nburst = 1000000\n"


def started(
    folder: Path, processes: int, settings: str = UNLIMITED, checkout: Path | None = None
) -> tuple[subprocess.Popen[str], str, str, str]:
    """The server, of another checkout if one is named, its address, and the tokens of an analyst and of the owner."""
    config = folder / "server.toml"
    config.write_text(
        f'state = "state"\ndata = ["data"]\n{settings}port = 0\nprocesses = {processes}\n', encoding="utf-8"
    )
    command = [sys.executable, "-m", "deniable", "serve", "--config", str(config), "--invite", "root"]
    environment = {**os.environ} if checkout is None else {**os.environ, "PYTHONPATH": str(checkout / "src")}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment)
    assert server.stdout is not None
    admin = server.stdout.readline().split()[1]
    url = server.stdout.readline().strip()
    import httpx

    with httpx.Client(base_url=url, timeout=60, trust_env=False) as web:

        def post(path: str, token: str, body: dict[str, Any]) -> Any:
            response = web.post(path, json=body, headers={"Authorization": f"Bearer {token}"} if token else {})
            response.raise_for_status()
            return response.json()

        tokens = {}
        for name, role in (("olga", "owner"), ("ana", "analyst")):
            invited = post("/v1/invitations", admin, {"person": name, "role": role})
            tokens[role] = post("/redeem", admin, {"invitation": invited["invitation"]})["token"]
        budget = {"epsilon": 1000.0, "delta": 1e-6}
        body = {"name": "visits", "sources": {"visits": "visits.csv"}, "schema": SCHEMA, "budget": budget}
        post("/v1/datasets", tokens["owner"], body)
        post("/v1/datasets/visits/grants", tokens["owner"], {"analyst": "ana"})
    return server, url, tokens["analyst"], tokens["owner"]


def bare(folder: Path, processes: int) -> tuple[subprocess.Popen[bytes], str]:
    """FastAPI and DuckDB with nothing in between, and where they listen."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "bare:app",
        "--app-dir",
        str(Path(__file__).parent),
        "--port",
        str(port),
    ]
    command += ["--workers", str(processes), "--log-level", "warning", "--no-access-log"]
    environment = {**os.environ, "BARE_TABLE": str(folder / "data" / "visits.csv"), "BARE_TOKEN": "none"}
    server = subprocess.Popen(command, env=environment, start_new_session=True)
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            break
        time.sleep(0.1)
    return server, f"http://127.0.0.1:{port}"


async def asked(reader: Any, writer: Any, path: str, token: str, body: dict[str, Any]) -> int:
    """One request on an open connection; its status. By hand, because a client library costs more than the server."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        f"Idempotency-Key: {random.getrandbits(128):032x}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    writer.write(head.encode() + data)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
    assert length is not None
    await reader.readexactly(int(length[1]))
    return int(answer[9:12])


async def load(
    url: str, token: str, clients: int, seconds: float, path: str, question: Callable[[int], str]
) -> tuple[list[float], float]:
    """Latencies of what was answered with 200, and how long it took altogether. Anything else is an error here."""
    host, port = url.removeprefix("http://").split(":")
    times: list[float] = []
    numbers = iter(range(10**9))
    end = time.monotonic() + seconds

    async def client() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        while time.monotonic() < end:
            began = time.monotonic()
            body = {"dataset": "visits", "sql": question(next(numbers)), "epsilon": 0.01}
            status = await asked(reader, writer, path, token, body)
            if status != 200:
                raise SystemExit(f"{path} answered {status}")
            times.append(time.monotonic() - began)
        writer.close()

    began = time.monotonic()
    work: list[Awaitable[None]] = [client() for _ in range(clients)]
    await asyncio.gather(*work)
    return times, time.monotonic() - began


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and everything below it that still lives."""
    parents, used = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
        used[int(folder.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return sum(used.get(each, 0.0) for each in found)


def loops() -> list[float]:
    """CPU seconds of a plain loop, a few times."""
    found = []
    for _ in range(40):
        began, total = time.thread_time(), 0
        for number in range(50_000):
            total += number * number % 7
        found.append(time.thread_time() - began)
        time.sleep(0.005)
    return sorted(found)


def measured(server: Any, run: Callable[[], Any]) -> dict[str, float]:
    before, own = cpu_of(server.pid), resource.getrusage(resource.RUSAGE_SELF)
    times, took = asyncio.run(run())
    after, mine = cpu_of(server.pid), resource.getrusage(resource.RUSAGE_SELF)
    times.sort()
    count = len(times)
    return {
        "answered": count,
        "per_second": count / took,
        "cpu_ms_each": 1e3 * (after - before) / count,
        "per_second_of_two_cores": 2 * count / (after - before),
        "client_cpu_ms_each": 1e3 * (mine.ru_utime - own.ru_utime + mine.ru_stime - own.ru_stime) / count,
        "p50_ms": 1e3 * times[count // 2],
        "p99_ms": 1e3 * times[int(count * 0.99)],
    }


def compared(folder: Path, given: argparse.Namespace, question: Callable[[int], str]) -> dict[str, float]:
    """The same questions to the bare server."""
    server, url = bare(folder, given.processes)
    try:
        asyncio.run(load(url, "none", given.clients, 1.0, "/v1/questions", question))
        return measured(server, lambda: load(url, "none", given.clients, given.seconds, "/v1/questions", question))
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def in_turns(given: argparse.Namespace) -> None:
    """The medians of CPU milliseconds of two checkouts and of the bare server, which are asked one after the other."""
    loads = {
        "questions": ("/v1/questions", _distinct),
        "shapes": ("/v1/questions", lambda number: _distinct(number).replace("AS n", f"AS n{number}")),
        "replays": ("/v1/questions", _usual),
        "prices": ("/v1/questions:price", _usual),
        "new prices": ("/v1/questions:price", _distinct),
    }
    found: dict[tuple[str, str], list[float]] = {}
    fresh = iter(range(10**9))
    with contextlib.ExitStack() as held:
        servers: dict[str, tuple[subprocess.Popen[Any], str, str]] = {}
        for name, checkout in (("before", given.before.resolve()), ("now", None)):
            folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
            table(folder)
            server, url, token, _ = started(folder, given.processes, checkout=checkout)
            held.callback(_stopped, server)
            servers[name] = (server, url, token)
        plain, url = bare(folder, given.processes)
        held.callback(_stopped, plain)
        servers["bare"] = (plain, url, "none")
        for turn in range(-1, given.turns):  # the first one opens tables, and is not counted
            for load_of, (path, question) in loads.items():
                for name, (server, url, token) in servers.items():
                    if name == "bare" and load_of != "questions":
                        continue
                    # Each server is asked what it was never asked, but for the hundred usual questions.
                    asked = question if question is _usual else lambda _, make=question: make(next(fresh))
                    run = partial(load, url, token, given.clients, given.seconds, path, asked)
                    cpu = measured(server, run)["cpu_ms_each"]
                    if turn >= 0:
                        found.setdefault((load_of, name), []).append(cpu)
    alone = median(found.pop(("questions", "bare")))
    print(f"bare       {alone:5.2f} CPU ms each")
    for load_of in loads:
        old, new = found[load_of, "before"], found[load_of, "now"]
        print(
            f"{load_of:10} {median(old):5.2f} before ({min(old):.2f} to {max(old):.2f}, {median(old) / alone:.2f} x), "
            f"{median(new):5.2f} now ({min(new):.2f} to {max(new):.2f}, {median(new) / alone:.2f} x)"
        )
    print(f"{given.turns} turns of {given.seconds:g} s each, load average {os.getloadavg()[0]:.1f}")


def _stopped(server: subprocess.Popen[Any]) -> None:
    os.killpg(server.pid, signal.SIGTERM)
    server.wait(60)


def timing() -> None:
    """Whether the times tell neighbours apart. Both are asked in turns, so that a busy machine is busy for both."""
    from scipy import stats

    names, steps = ("without", "with"), 520
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        servers = []
        for place, heavy in ((one, 0), (other, 30_000)):
            table(Path(place), heavy=heavy)
            servers.append(started(Path(place), 1))
        try:
            found = asyncio.run(_in_turns([(url, token) for _, url, token, _ in servers], steps))
        finally:
            for server, *_ in servers:
                os.killpg(server.pid, signal.SIGTERM)
                server.wait(60)
    for name, times in zip(names, found, strict=True):
        middle, first = sorted(times)[len(times) // 2], sum(each < 75 for each in times)
        print(f"{name:8} a heavy person: median {middle:6.1f} ms, {first} of {len(times)} in the first step")
    print(f"Welch's t-test: p = {stats.ttest_ind(*found, equal_var=False).pvalue:.3g}")


async def _in_turns(servers: list[tuple[str, str]], steps: int) -> list[list[float]]:
    """Milliseconds of each server's answers, the first twenty left out."""
    open_ones = []
    for url, token in servers:
        host, port = url.removeprefix("http://").split(":")
        open_ones.append((*await asyncio.open_connection(host, int(port)), token))
    times: list[list[float]] = [[] for _ in servers]
    for number in range(steps):
        for at, (reader, writer, token) in enumerate(open_ones):
            body = {"dataset": "visits", "sql": _distinct(number), "epsilon": 0.01}
            began = time.monotonic()
            status = await asked(reader, writer, "/v1/questions", token, body)
            if status != 200:
                raise SystemExit(f"/v1/questions answered {status}")
            times[at].append(1e3 * (time.monotonic() - began))
    for _, writer, _ in open_ones:
        writer.close()
    return [each[20:] for each in times]


def _usual(number: int) -> str:
    return f"SELECT ward, COUNT(*) AS n FROM visits WHERE age > {number % 100} GROUP BY ward"


def _distinct(number: int) -> str:
    return f"SELECT ward, COUNT(*) AS n FROM visits WHERE age > {number % 97} AND cost < {number}.5 GROUP BY ward"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--strict", action="store_true", help="exit 1 if a goal is missed")
    parser.add_argument("--bare", action="store_true", help="beside FastAPI and DuckDB with nothing in between")
    parser.add_argument("--before", type=Path, help="in turns with the server of another checkout, and the bare one")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--timing", action="store_true", help="whether a heavy person can be seen in the times")
    given = parser.parse_args()
    if given.timing:
        timing()
        return
    if given.before is not None:
        in_turns(given)
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        table(folder)
        server, url, token, _ = started(folder, given.processes)
        try:
            rng = random.Random(1)

            def fresh(number: int) -> str:
                rows = f"visits WHERE age > {number % 97} AND cost < {number + rng.random():.6f}"
                return f"SELECT ward, COUNT(*) AS n FROM {rows} GROUP BY ward"

            def unmet(number: int) -> str:
                return fresh(number).replace("AS n", f"AS n{number}")

            def run(path: str, question: Callable[[int], str], seconds: float) -> Callable[[], Any]:
                return lambda: load(url, token, given.clients, seconds, path, question)

            ask, price = "/v1/questions", "/v1/questions:price"
            asyncio.run(run(ask, fresh, 1.0)())  # every process has opened its tables then
            asyncio.run(run(ask, _usual, 2.0)())
            plain = loops()
            results = {
                "questions": measured(server, run(ask, fresh, given.seconds)),
                "shapes": measured(server, run(ask, unmet, given.seconds)),
                "replays": measured(server, run(ask, _usual, given.seconds)),
                "prices": measured(server, run(price, _usual, given.seconds)),
                "new prices": measured(server, run(price, fresh, given.seconds)),
            }
            if given.bare:
                results["bare"] = compared(folder, given, fresh)
            plain = sorted(plain + loops())
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(60)
    for name, found in results.items():
        goal = f" (goal {REACH[name]:.0f})" if name in REACH else ""
        print(
            f"{name:10} {found['per_second']:6.0f} /s{goal:12}"
            f" p50 {found['p50_ms']:4.0f} ms, p99 {found['p99_ms']:4.0f} ms"
            f"   CPU ms each: server {found['cpu_ms_each']:5.2f}, client {found['client_cpu_ms_each']:4.2f}"
            f"   so {found['per_second_of_two_cores']:5.0f} /s if two cores did nothing else"
        )
    if given.bare:
        alone = results["bare"]["cpu_ms_each"]
        times = [f"{name} {found['cpu_ms_each'] / alone:.2f} x" for name, found in results.items() if name != "bare"]
        print(f"CPU beside FastAPI and DuckDB alone: {', '.join(times)}")
    print(f"slow {plain[len(plain) // 2] / plain[0]:.2f}, load average {os.getloadavg()[0]:.1f}; Python {sys.version}")
    if given.json is not None:
        given.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    if given.strict and any(results[name]["per_second"] < goal for name, goal in REACH.items()):
        sys.exit(1)


if __name__ == "__main__":
    main()
