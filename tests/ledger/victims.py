"""Processes that spend from a ledger until they are killed, and what must be true afterwards.

A victim tells its parent through a pipe what it was granted and what it gave out, the moment it happens. After the kill
the ledger must know all of that, must add up, and must go on working.
"""

from __future__ import annotations

import hashlib
import os
import random
import resource
import select
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import event

from deniable.errors import InvalidParameter, LedgerUnavailable
from deniable.ledger import Budget, Cost, Ledger, State, keys
from deniable.ledger.entries import Heading
from deniable.ledger.stores import database_store, sqlite_store
from deniable.ledger.stores.sqlite_store import SQLiteStore, _SQLiteTransaction
from deniable.ledger.stores.store import SeenChain, Transaction
from deniable.units import Unit

BUDGET = Budget.pure(epsilon=1000, delta=1e-3)
COST = BUDGET.cost(epsilon="0.01", delta="1e-12")
ABOUT = {"budget": BUDGET, "unit": Unit.row(), "dataset": "victims"}
OWNER = keys.SigningKey.generate()
Place = str | Path
LONGEST_LIFE = 0.06
"""Seconds that a victim lives, or lives on after its first grant, at most; many live much shorter."""


def hashed(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()


def opened(place: Place) -> Ledger:
    """The ledger there; "URL#name" is one of many in a database."""
    url, _, name = str(place).partition("#")
    return Ledger.open(url, **ABOUT | ({"dataset": name} if name else {}))


def spend(place: Place, tell: Callable[[str], None], questions: int, chance: random.Random) -> None:
    """Ask and answer; `tell` is where an answer leaves."""
    with opened(place) as ledger:
        for number in range(questions):
            question = hashed((os.getpid(), number))
            if number % 4 == 1:
                asks = [(COST, question, "part"), (COST, question, "part")]
                entries = ledger.reserve_all(asks)
            elif number % 4 == 3:
                if ledger.left("anna") == Cost(0):
                    ledger.grant("anna", BUDGET.limit, by="owner")
                    ledger.grant("anna", BUDGET.limit, window=60, by="owner")
                entries = [ledger.reserve(COST, question=question, description="a share", payer="anna")]
                ledger.checkpoint(OWNER)
            else:
                entries = [ledger.reserve(COST, question=question, description="one")]
            for entry in entries:
                tell(f"granted {entry.number} {entry.hash}")
            for entry in entries:
                if number % 4 == 2:
                    ledger.fail(entry, "failed")
                    tell(f"failed {entry.number} -")
                else:
                    answer = chance.randbytes(chance.choice((8, 200, 9000)))
                    ledger.seal(entry, answer)
                    tell(f"answered {entry.number} {hashed(answer)}")
        tell("done 0 -")


def fork(work: Callable[[Callable[[str], None]], None]) -> tuple[int, int]:
    """(process, pipe) of a child that does this work."""
    reader, writer = os.pipe()
    process = os.fork()
    if process:
        os.close(writer)
        return process, reader
    try:
        work(lambda line: os.write(writer, f"{line}\n".encode()) and None)
        os._exit(0)
    finally:
        os._exit(1)


def told_by(process: int, pipe: int) -> tuple[list[list[str]], int]:
    """Everything a child said before it ended, and how it ended."""
    with os.fdopen(pipe) as said:
        lines = [line.split() for line in said.read().split("\n")[:-1]]  # the last line may be torn
    return lines, os.waitpid(process, 0)[1]


@dataclass
class Account:
    """What the victims of one ledger were granted and gave out."""

    place: Place
    granted: dict[int, str] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    answered: dict[int, str] = field(default_factory=dict)

    def add(self, lines: list[list[str]]) -> None:
        for what, number, detail in lines:
            if what == "granted":
                self.granted[int(number)] = detail
            elif what == "answered":
                self.answered[int(number)] = detail
            elif what == "failed":
                self.failed.add(int(number))

    def check(self) -> int:
        """How much was charged to somebody who did not live to say so. AssertionError if anything was forgotten."""
        with opened(self.place) as ledger:
            ledger.verify()
            entries = {entry.number: entry for entry in ledger.entries()}
            closings = {entry.closes: entry for entry in entries.values() if entry.closes}
            reserved = {number: entry.hash for number, entry in entries.items() if entry.state is State.RESERVED}
            assert ledger.charged == Cost(COST.units * len(reserved), COST.delta_units * len(reserved))
            for number, link in self.granted.items():
                assert number in reserved, f"forgot the spend of entry {number}"
                assert reserved[number] == link, f"another history at entry {number}"
            for number, answer in self.answered.items():
                assert hashed(closings[number].answer) == answer, f"gave out what was not sealed, entry {number}"
            for number in self.failed:
                assert closings[number].state is State.FAILED
            unheard = len(reserved) - len(self.granted)
            # And it goes on working; what was seen once must be there for good.
            after = ledger.reserve(COST, question=hashed("after"), description="after")
            ledger.seal(after, b"")
            self.granted |= {**reserved, after.number: after.hash}
        return unheard


def in_folder(folder: Path, name: str) -> Callable[[int], Place]:
    """A new file for each number."""
    return lambda number: folder / f"{name}-{number}"


def random_kills(places: Callable[[int], Place], kills: int, seed: int, tick: Callable[[], None]) -> dict[str, int]:
    """SIGKILL victims at random moments, one to three at a time on the same ledger; counts of what was seen."""
    chance = random.Random(seed)
    seen = {"kills": 0, "granted": 0, "answered": 0, "unheard": 0, "ledgers": 0}
    account = Account("none")
    while seen["kills"] < kills:
        if seen["ledgers"] == 0 or chance.random() < 0.15:
            seen["ledgers"] += 1
            account = Account(places(seen["ledgers"]))
        children = []
        for _ in range(min(chance.choice((1, 1, 2, 3)), kills - seen["kills"])):
            own = random.Random(chance.random())
            children.append(fork(lambda tell, own=own, place=account.place: spend(place, tell, 10**6, own)))
        if chance.random() < 0.4:  # let one of them do some work first, however slow the machine is
            select.select([pipe for _, pipe in children], [], [], 60)
        for process, _ in children:
            time.sleep(chance.random() ** 2 * LONGEST_LIFE)
            os.kill(process, signal.SIGKILL)
        for child in children:
            lines, ended = told_by(*child)
            assert os.WIFSIGNALED(ended), f"a victim died by itself: {ended}"
            account.add(lines)
            seen["kills"] += 1
            seen["granted"] += sum(line[0] == "granted" for line in lines)
            seen["answered"] += sum(line[0] == "answered" for line in lines)
            tick()
        unheard = account.check()
        assert 0 <= unheard <= 2 * len(children), "more was charged than was under way"
        seen["unheard"] += unheard
    return seen


def exact_kills(
    places: Callable[[int], Place],
    questions: int,
    tick: Callable[[], None],
    sabotage: Callable[[], None] = lambda: None,
) -> int:
    """SIGKILL a victim before its n-th SQL statement, for every n from making the file to closing it; how many n."""
    statement = 0
    while True:
        statement += 1
        account = Account(places(statement))

        def work(tell: Callable[[str], None], last: int = statement, place: Place = account.place) -> None:
            sabotage()
            kill_before(last)
            spend(place, tell, questions, random.Random(last))

        lines, ended = told_by(*fork(work))
        account.add(lines)
        if not os.WIFSIGNALED(ended):
            assert lines[-1][0] == "done", f"a victim died by itself: {ended}"
            return statement - 1
        assert account.check() in (0, 1, 2)
        tick()


def opening_kills(places: Callable[[int], Place], opening: Callable[[Place], Ledger], window: int) -> tuple[int, int]:
    """SIGKILL a process before its n-th SQL statement while it opens a new ledger with a limit of each window, for every n.

    How many n, and how many of these ledgers can be opened afterwards and spend without the limit of a window.
    """
    statement, unlimited = 0, 0
    while True:
        statement += 1
        place = places(statement)

        def work(tell: Callable[[str], None], last: int = statement, place: Place = place) -> None:
            kill_before(last)
            opening(place).close()

        _, ended = told_by(*fork(work))
        try:
            with Ledger.open(str(place), dataset="victims") as ledger:
                unlimited += window not in [each.window for each in ledger.accounts()]
        except InvalidParameter:  # the ledger was not made
            pass
        if not os.WIFSIGNALED(ended):
            assert ended == 0
            return statement - 1, unlimited


def kill_before(last: int) -> None:
    """From now on in this process, the n-th SQL statement is the last thing that does not happen."""
    count = 0
    connect = SQLiteStore._connected

    def traced(statement: str) -> None:
        nonlocal count
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def connected(store: SQLiteStore, **options: bool) -> sqlite3.Connection:
        connection = connect(store, **options)
        connection.set_trace_callback(traced)
        return connection

    SQLiteStore._connected = connected  # type: ignore[method-assign]
    create = sqlite_store._create

    def created(connection: sqlite3.Connection, new: Heading) -> None:
        connection.set_trace_callback(traced)  # of the temporary file in which a ledger is made
        create(connection, new)

    sqlite_store._create = created
    make = database_store._Pool.__init__

    def made(pool: database_store._Pool, url: str) -> None:
        make(pool, url)
        event.listen(pool.engine, "before_cursor_execute", lambda *_: traced(""))
        event.listen(pool.engine, "commit", lambda *_: traced("COMMIT"))

    database_store._Pool.__init__ = made  # type: ignore[method-assign]


def commit_late() -> None:
    """Break the ledger of this process: each transaction is kept only when the next one begins. Must be found out."""

    @contextmanager
    def transaction(store: SQLiteStore, begin: str) -> Iterator[Transaction]:
        connection = store._connected()
        if connection.in_transaction:
            connection.execute("COMMIT")
        connection.execute(begin)
        yield _SQLiteTransaction(connection, store._genesis, store._placed, SeenChain())

    SQLiteStore._transaction = transaction  # type: ignore[method-assign]
    SQLiteStore.flush = lambda store: None  # type: ignore[method-assign]  # no log can be written out within a transaction


def full_disk(places: Callable[[int], Place], limits: range) -> int:
    """Spend where no file may grow beyond a limit, for many limits; how often a grant could not be written."""
    refused = 0
    for limit in limits:
        account = Account(places(limit))

        def work(tell: Callable[[str], None], limit: int = limit, place: Place = account.place) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            try:
                spend(place, tell, 10**6, random.Random(limit))
            except LedgerUnavailable as error:
                tell("full 0 -" if "the disk is full or failing" in error.reason else "other 0 -")

        lines, ended = told_by(*fork(work))
        assert (lines[-1][0], ended) == ("full", 0)
        account.add(lines)
        refused += 1
        assert account.check() in (0, 1, 2)
    return refused


def read_only(folder: Path) -> list[str]:
    """What a user who may only read is told: with a folder he may write to, and without."""
    said = []
    for writable in (True, False):
        place = folder / f"writable-{writable}"
        place.mkdir()
        with Ledger.open(place / "ledger", **ABOUT) as ledger:
            ledger.reserve(COST, question=hashed(1), description="before")
        before = (place / "ledger").read_bytes()
        (place / "ledger").chmod(0o444)
        place.chmod(0o777 if writable else 0o555)

        def work(tell: Callable[[str], None], path: Path = place / "ledger") -> None:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            try:
                with Ledger.open(path, **ABOUT) as ledger:
                    tell(f"charged {ledger.charged == COST}")
                    ledger.reserve(COST, question=hashed(2), description="x")
            except LedgerUnavailable as error:
                tell(error.reason)

        lines, ended = told_by(*fork(work))
        assert ended == 0
        said.append(" / ".join(" ".join(line) for line in lines))
        place.chmod(0o755)
        assert (place / "ledger").read_bytes() == before
    return said
