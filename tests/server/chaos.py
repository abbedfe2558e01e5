"""A server that is killed again and again while people ask, and what must be true after every kill.

    python -m tests.server.chaos --kills 1000 [--worlds 2] [--postgres] [--seed N] [--json]

Six clients ask at once, each question with an idempotency key, and ask again with the same key until they know what
became of it. The server, one process or two, and its engines are killed with SIGKILL at random moments: while they
start, and while they work. After every kill the ledger is opened by itself, and

- its chain, sums, limits and signatures hold, and it goes on from the entry where it was before;
- every answer that a client has received is sealed there, under its key, with its charge before it;
- no key was charged twice, and all charges together are within the budget;
- the server has died of the kill and of nothing else, and has written no word of complaint.

After every third kill somebody puts an older copy of the ledger in its place, from before an answer that left: into the
same file, or as another one; in Postgres the newer entries are taken away. The server is started: it must refuse that
ledger whatever is asked, and say so in its log. It is killed, the right ledger is put back, and everything goes on.

A client that asks again with the key of an answer that it has, gets the same bytes. From time to time the server is let
live until everything that is open was settled; then a new world is begun, because a ledger is read from end to end
after every kill. Servers are forked from a process that has imported everything, so that starting takes less long.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from deniable.ledger import Budget, Cost, Entry, Ledger, State, keys
from deniable.server.catalogue.catalogue import Person
from deniable.server.curator import Curator
from deniable.server.datasets.ledger_witness import Witness
from deniable.server.operations.server_processes import listening, serve
from deniable.server.operations.settings import Settings
from deniable.server.request_bodies import BudgetBody
from deniable.server.roles import Role
from tests.server.restoring import Shelf

SCHEMA = """\
version: 1
tables:
  visits:
    person: patient_id
    rows: 1
    columns:
      ward: {kind: text, keys: [A, B, C], nullable: false}
      age: {kind: integer, low: 0, high: 100, nullable: false}
"""
EPSILON, LIMIT = 0.01, 3.0
"""A question, and the budget: 300 of them."""

LIVES = 20
"""Kills of one world."""

CLIENTS = 6
PATIENCE = 60.0
"""Seconds in which a server must be there, or settle what is open. Far more than it needs."""


# --- servers ----------------------------------------------------------------------------------------------------------


class Nursery:
    """A process that has imported everything and forks servers. Made before this process has threads."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.number = os.fork()
        if self.number == 0:
            ours.close()
            _forking(theirs)
        theirs.close()
        self._socket, self._wire = ours, ours.makefile("rw", encoding="utf-8")

    def _ask(self, *words: object) -> Any:
        self._wire.write(json.dumps(words) + "\n")
        self._wire.flush()
        return json.loads(self._wire.readline())

    def start(self, settings: dict[str, Any], log: Path, processes: int, sabotage: str | None) -> int:
        return int(self._ask("start", settings, str(log), processes, sabotage))

    def ended(self, number: int) -> int:
        """Wait for a server that was killed; how it ended."""
        return int(self._ask("wait", number))

    def close(self) -> None:
        self._wire.close()
        self._socket.close()
        os.kill(self.number, signal.SIGKILL)
        os.waitpid(self.number, 0)


def _forking(wire: socket.socket) -> None:
    from deniable.queries.engines.duckdb import DuckDBEngine  # noqa: F401  # so that every server has it

    lines = wire.makefile("rw", encoding="utf-8")
    for line in lines:
        verb, *rest = json.loads(line)
        if verb == "wait":
            said = os.waitstatus_to_exitcode(os.waitpid(rest[0], 0)[1])
        else:
            said = os.fork()
            if said == 0:
                _serving(*rest)
        lines.write(f"{said}\n")
        lines.flush()
    os._exit(0)


def _serving(given: dict[str, Any], log: str, processes: int, sabotage: str | None) -> None:
    os.setsid()
    if sabotage is not None:
        SABOTAGE[sabotage]()
    words = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(words, 1)
    os.dup2(words, 2)
    try:
        settings = Settings(**given)
        place = listening(settings)
        if processes == 2:
            os.fork()  # both wait at one socket
        serve(Curator(settings), place)
    except BaseException as error:
        os.write(2, f"stopped by itself: {type(error).__name__}: {error}\n".encode())
    os._exit(1)


def _seal_late() -> None:
    """Answers leave before they are sealed."""
    seal = Ledger.seal

    def sealed(ledger: Ledger, entry: Entry, answer: bytes) -> Entry:
        threading.Timer(0.2, seal, (ledger, entry, answer)).start()
        return replace(entry, number=entry.number + 1, state=State.SEALED, closes=entry.number, answer=answer)

    Ledger.seal = sealed  # type: ignore[method-assign]


def _charge_nothing() -> None:
    """Questions are written down, and cost nothing."""
    reserve = Ledger.reserve_or_replay
    Ledger.reserve_or_replay = lambda ledger, cost, **ask: reserve(  # type: ignore[method-assign]
        ledger, Cost(0, 0), **ask | {"enough": lambda sealed: False}
    )


def _note_nothing() -> None:
    """Nobody but the ledger knows how far it is: the catalogue keeps no head, and nothing is signed."""
    Witness.released = Witness.note = Witness.opened = lambda *_: None  # type: ignore[method-assign,assignment]


SABOTAGE = {"seal late": _seal_late, "charge nothing": _charge_nothing, "note nothing": _note_nothing}
"""Mistakes that must be found out."""


def family(number: int) -> list[int]:
    """A process and everything below it."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = [number]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def _kill(number: int) -> None:
    """Kill a server, the one that it forked, and their engines; one that is just being started ends with its pipe."""
    for each in family(number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(number, signal.SIGKILL)


# --- a world ----------------------------------------------------------------------------------------------------------


@dataclass
class Account:
    """What the clients of one world know."""

    open: dict[str, str] = field(default_factory=dict)
    """Keys of which nobody knows yet what became of them, with their questions."""

    answered: dict[str, bytes] = field(default_factory=dict)
    unanswered: set[str] = field(default_factory=set)
    """Keys that were charged and have no answer: the server died between."""

    wrong: list[str] = field(default_factory=list)
    count: Counter[str] = field(default_factory=Counter)


def own_port() -> int:
    """A port that nobody is given while a server of ours is down: below those that systems hand out by themselves."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


class World:
    """A folder, a port, a budget, and clients that go on from one life of the server to the next."""

    def __init__(self, nursery: Nursery, chance: random.Random, database: str | None, sabotage: str | None) -> None:
        self.nursery, self.chance, self.account, self.sabotage = nursery, chance, Account(), sabotage
        self.folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        self.log = self.folder / "log"
        with (self.folder / "visits.csv").open("w") as file:
            file.write("patient_id,ward,age\n")
            file.writelines(f"{n},{chance.choice('ABC')},{chance.randrange(100)}\n" for n in range(500))
        self.port = own_port()
        self.settings: dict[str, Any] = {
            "state": str(self.folder / "state"), "data": [str(self.folder)], "port": self.port, "grid": 0.005,
            "rate": 1e6, "burst": 10**6, "database": database,
        }  # fmt: skip
        self.token, self.ledger_at, self.family = self._prepared()
        self.key = keys.read(self.folder / "state" / "server.key").public
        self.last: Entry | None = None
        self.left = 0
        """The newest entry whose answer a client has."""
        self.shelf = Shelf(self.folder / "state" / "ledgers", database)
        self.copies: list[tuple[int, Any]] = []
        """The ledger as it was before, with the number of its newest entry."""
        self.numbers = iter(range(10**9))
        self.turn = threading.Lock()
        self.check()

    def _prepared(self) -> tuple[str, Any, str]:
        curator = Curator(Settings(**self.settings))
        try:
            owner = curator.catalogue.add_person("olga", Role.OWNER)
            ana = curator.catalogue.add_person("ana", Role.ANALYST)
            budget = BudgetBody(epsilon=LIMIT)
            curator.register(owner, "visits", {"visits": "visits.csv"}, SCHEMA, budget)
            curator.grant(owner, "visits", ana.name, None, None)
            token = str(curator.reception.issue("ana", None)["token"])
            record = curator.visible(Person("olga", Role.OWNER), "visits")
        finally:
            curator.close()
        place = self.settings["database"] or self.folder / "state" / "ledgers" / f"{record.family}.ledger"
        return token, place, record.family

    # -- clients -------------------------------------------------------------------------------------------------------

    def post(self, key: str, sql: str) -> tuple[int, bytes] | None:
        """One request; None if the server was not there to the end."""
        body = json.dumps({"dataset": "visits", "sql": sql, "epsilon": EPSILON})
        headers = {
            "Authorization": f"Bearer {self.token}", "Idempotency-Key": key, "Content-Type": "application/json",
        }  # fmt: skip
        return self._request("POST", "/v1/questions", body, headers)

    def _request(self, *what: Any) -> tuple[int, bytes] | None:
        web = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            web.request(*what)
            with web.getresponse() as answer:
                return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            web.close()

    def client(self, seed: int, stop: threading.Event) -> None:
        chance = random.Random(seed)
        while not stop.is_set():
            with self.turn:
                old = list(self.account.open)
                if old and chance.random() < 0.3:
                    key, sql, known = (chosen := chance.choice(old)), self.account.open[chosen], None
                elif self.account.answered and chance.random() < 0.15:
                    key = chance.choice(list(self.account.answered))
                    sql, known = self._sql(int(key.partition("-")[2])), self.account.answered[key]
                else:
                    number = next(self.numbers)
                    key, sql, known = f"key-{number}", self._sql(number), None
                    self.account.open[key] = sql
            told = self.post(key, sql)
            if told is None:
                self.account.count["cut off"] += 1
                time.sleep(0.01)
            else:
                with self.turn:
                    self._heard(key, known, *told)

    @staticmethod
    def _sql(number: int) -> str:
        return f"SELECT ward, COUNT(*) AS n FROM visits WHERE age <> {1000 + number} GROUP BY ward"

    def _heard(self, key: str, known: bytes | None, status: int, body: bytes) -> None:
        account, code = self.account, "" if status == 200 else json.loads(body).get("code", "?")
        before = account.answered.get(key) if known is None else known
        if status == 200:
            if before is not None and before != body:
                account.wrong.append(f"{key}: other bytes for the same key")
            account.answered[key] = body
            account.count["answers" if before is None else "given again"] += 1
        elif before is not None and (known is not None or code != "key_pending"):
            account.wrong.append(f"{key}: was answered, and is now {code}")
        elif code == "key_pending":
            # Two of us may ask with one key at the same time, and the other may hear the answer before we hear that there
            # is none yet; whether it was lost is known when nobody works on it.
            account.count["no answer yet"] += 1
            return
        elif code == "budget_exceeded":
            account.count["refused"] += 1
        elif code in {"run_failed", "busy"}:
            account.count[code] += 1
            if code == "busy":
                return
            account.unanswered.add(key)
        else:
            account.wrong.append(f"{key}: {status} {code}")
        account.open.pop(key, None)

    # -- lives ---------------------------------------------------------------------------------------------------------

    def there(self) -> bool:
        told = self._request("GET", "/health")
        return told is not None and told[0] == 200

    def life(self, *, settle: bool = False, heard: bool = False) -> float:
        """Start the server, let people ask, kill it, look at the ledger; the seconds from start to its first word.

        With `heard` somebody has heard something by then.
        """
        began = time.monotonic()
        processes = 1 + (self.chance.random() < 0.25)
        number = self.nursery.start(self.settings, self.log, processes, self.sabotage)
        stop = threading.Event()
        seeds = [self.chance.getrandbits(64) for _ in range(CLIENTS)]
        clients = [threading.Thread(target=self.client, args=(seed, stop)) for seed in seeds]
        ready = float("nan")
        try:
            early = not settle and not heard and self.chance.random() < 0.2
            if early:
                time.sleep(self.chance.uniform(0, 0.4))
            else:
                while not self.there():
                    assert time.monotonic() - began < PATIENCE, "the server did not start: " + self.complaints()
                    time.sleep(0.01)
                ready = time.monotonic() - began
                for each in clients:
                    each.start()
                if settle:
                    stop.set()
                    for each in clients:
                        each.join()
                    self._settle()
                else:
                    known = self._heard_so_far()
                    while (
                        heard or self.chance.random() < 0.9
                    ) and self._heard_so_far() == known:  # often it has answered
                        assert time.monotonic() - began < PATIENCE, "nobody is answered: " + self.complaints()
                        time.sleep(0.1)
                    time.sleep(self.chance.uniform(0, 1.0))
        finally:
            _kill(number)
            ended = self.nursery.ended(number)
            stop.set()
            for each in clients:
                if each.ident is not None:
                    each.join()
        self._wait_for_port()
        assert ended == -signal.SIGKILL, f"the server ended by itself: {ended}; {self.complaints()}"
        assert not self.complaints(), self.complaints()
        assert not self.account.wrong, self.account.wrong
        self.check()
        return ready

    def _heard_so_far(self) -> int:
        return len(self.account.answered) + self.account.count["refused"]

    def _wait_for_port(self) -> None:
        """Until everybody who was killed has let go of it: the dead are waited for by their parents, who are dead too."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return socket.create_server(("127.0.0.1", self.port)).close()
            except OSError:
                assert time.monotonic() < deadline, "somebody outlives the server and keeps its port"
                time.sleep(0.01)

    def _settle(self) -> None:
        """Ask for everything that is open, one after the other, until it is known what became of it."""
        deadline = time.monotonic() + PATIENCE
        fresh = next(self.numbers)
        self.account.open[f"key-{fresh}"] = self._sql(fresh)  # and for something new: it still answers
        for key, sql in list(self.account.open.items()):
            while key in self.account.open:
                told = self.post(key, sql)
                assert told is not None, f"{key} is not settled"
                assert time.monotonic() < deadline, f"{key} is not settled in time"
                if told[0] == 409 and json.loads(told[1])["code"] == "key_pending":
                    self.account.unanswered.add(key)
                    del self.account.open[key]
                else:
                    self._heard(key, None, *told)

    def complaints(self) -> str:
        """What the server wrote, but for what happens every day."""
        said = self.log.read_text().splitlines() if self.log.exists() else []
        return "\n".join(line for line in said if '"level": "INFO"' not in line)[-2000:]

    def check(self) -> None:
        """What must be true of the ledger, whatever happened."""
        with Ledger.open(self.ledger_at, dataset="visits") as ledger:
            newest = ledger.verify(self.key)
            entries = {each.number: each for each in ledger.entries()}
            limit, charged = ledger.budget.limit, ledger.charged
        if self.last is not None:
            assert entries.get(self.last.number) == self.last, "the ledger has forgotten something"
        self.last = newest
        if newest is not None and (not self.copies or self.copies[-1][0] < newest.number):
            self.copies.append((newest.number, self.shelf.copied()))
        reserved = [each for each in entries.values() if each.state is State.RESERVED]
        assert sum((each.cost for each in reserved), start=Cost(0, 0)) == charged <= limit, "overspent"
        named = [each.key for each in reserved]
        assert len(named) == len(set(named)), "a key was charged twice"
        by_key = {each.key: each for each in reserved}
        by_charge = {each.charge: each.number for each in reserved}
        closing = {each.closes: each for each in entries.values() if each.closes is not None}
        for key, body in self.account.answered.items():
            said = json.loads(body)["provenance"]
            sealed = closing.get(by_charge.get(said["entry"]))
            paid = by_key.get(sha256(f"ana\0{key}".encode()).hexdigest())
            assert sealed is not None, f"{key}: its answer is not in the ledger"
            assert sealed.state is State.SEALED, f"{key}: its answer is not in the ledger, but something else is"
            assert paid is not None, f"{key}: its answer was not paid for"
            assert said["entry"] == paid.charge, f"{key}: something else was paid for"
            assert sealed.question == said["question"], f"{key}: its entry is of another question"
            assert paid.cost == Budget.pure(epsilon=LIMIT).cost(epsilon=EPSILON), f"{key}: paid another amount"
            self.left = max(self.left, sealed.number)
        for key in self.account.unanswered:
            assert sha256(f"ana\0{key}".encode()).hexdigest() in by_key, f"{key}: said to be charged, and is not"

    # -- older copies --------------------------------------------------------------------------------------------------

    def restore_older(self) -> bool:
        """An older ledger in the place of the newest, a start, a refusal, and the newest again; False if none was."""
        older = [copy for number, copy in self.copies if number < self.left]
        if not older:
            return False
        copy = older[-1] if self.chance.random() < 0.5 else self.chance.choice(older)
        # As another file it is refused by the file's number alone, so a sabotaged server gets it in place.
        in_place = self.sabotage is not None or self.chance.random() < 0.5
        with self.shelf.instead(copy, in_place=in_place):
            number = self.nursery.start(self.settings, self.log, 1, self.sabotage)
            try:
                began = time.monotonic()
                while not self.there():
                    assert time.monotonic() - began < PATIENCE, "the server did not start: " + self.complaints()
                    time.sleep(0.01)
                old = self.chance.choice(list(self.account.answered))
                for key in (f"older-{old}", f"older-{next(self.numbers)}"):
                    told = self.post(key, self._sql(int(key.rpartition("-")[2])))
                    assert told is not None, "the server was not there"
                    refused = told[0] == 503 and json.loads(told[1])["code"] in {"ledger_damaged", "ledger_unavailable"}
                    assert refused, f"an older copy was accepted: {told[0]}"
            finally:
                _kill(number)
                self.nursery.ended(number)
            self._wait_for_port()
            said = self.complaints().splitlines()
            words = "is refused", "another file", '"event": "ledger_damaged"', '"event": "ledger_unavailable"'
            assert all(any(each in line for each in words) for line in said), said
            self.log.write_text("")
        self.check()
        return True

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def kills(
    count: int,
    seed: int,
    *,
    database: Callable[[], str | None] = lambda: None,
    tell: Callable[[int], None] = lambda done: None,
    sabotage: str | None = None,
) -> Counter[str]:
    """So many kills, in one world after the other; what happened. AssertionError says what must not happen."""
    chance, total = random.Random(seed), Counter[str]()
    nursery = Nursery()
    try:
        while total["kills"] < count:
            world = World(nursery, chance, database(), sabotage)
            try:
                for _ in range(min(LIVES, count - total["kills"])):
                    third = total["kills"] % 3 == 2
                    ready = world.life(heard=third)
                    total += Counter(kills=1, early=int(ready != ready))
                    if third:
                        total += Counter({"older copies refused": int(world.restore_older())})
                    tell(total["kills"])
                world.life(settle=True)
                assert not world.account.open
                total += world.account.count
                total += Counter(worlds=1, unanswered=len(world.account.unanswered), entries=world.last.number)
            finally:
                world.close()
    finally:
        nursery.close()
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--worlds", type=int, default=2, help="that are there at the same time")
    parser.add_argument("--postgres", action="store_true", help="keep everything in Postgres")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if given.seed is None else given.seed
    began = time.monotonic()
    if given.worlds > 1:
        command = [sys.executable, "-m", "tests.server.chaos", "--worlds", "1", "--json"]
        command += ["--postgres"] if given.postgres else []
        shares = [
            given.kills * (at + 1) // given.worlds - given.kills * at // given.worlds for at in range(given.worlds)
        ]
        running = [
            subprocess.Popen([*command, "--kills", str(n), "--seed", str(seed + at)], stdout=subprocess.PIPE, text=True)
            for at, n in enumerate(shares)
        ]
        total = Counter[str]()
        for each in running:
            said, _ = each.communicate()
            if each.returncode:
                sys.exit(f"failed, with --seed {seed}")
            total += Counter(json.loads(said))
    else:
        from rich.progress import Progress

        from tests.postgres import server

        with contextlib.ExitStack() as stack:
            postgres = stack.enter_context(server()) if given.postgres else None
            shown = stack.enter_context(Progress(disable=given.json))
            task = shown.add_task("kills", total=given.kills)
            total = kills(
                given.kills,
                seed,
                database=(lambda: None) if postgres is None else postgres.database,
                tell=lambda done: shown.update(task, completed=done),
            )
    if given.json:
        print(json.dumps(total))
        return
    took = time.monotonic() - began
    print(
        f"{total['kills']} kills in {took:.0f} s ({took / total['kills']:.2f} s each), seed {seed}: 0 forgotten spends, "
    )
    print("0 overspends, 0 damaged ledgers, every restart clean, 0 budgets regained by an older copy")
    print(", ".join(f"{name} {number:,}" for name, number in sorted(total.items())))


if __name__ == "__main__":
    main()
