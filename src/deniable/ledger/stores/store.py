"""Where a ledger is kept.

A store does three things: it begins a transaction that nobody else can write beside, it reads entries, and it appends
entries while moving the head of the chain from exactly where it was. Everything about money is decided above it, in
whole numbers of Python, inside that transaction; so another store needs no arithmetic of its own.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from pathlib import Path
from time import time as clock
from typing import Any, Final, NamedTuple, TypeVar, final

from deniable.errors import DeniableError, InvalidOperation, LedgerDamaged, LedgerUnavailable
from deniable.ledger.budget import Cost
from deniable.ledger.entries import Entry, Heading, State, Terms
from deniable.ledger.spending_accounts import stamp
from deniable.ledger.stores.entry_rows import RESTORE, from_row, gone_back

__all__ = ["ChainHead", "Find", "Placed", "SeenChain", "Store", "Transaction", "Waiting", "charges_with"]

_REMEMBERED: Final = 4_096
"""Heads of a chain that a process remembers: as many questions may be under way at the same time."""

Result = TypeVar("Result")


@final
class ChainHead(NamedTuple):
    """Where the chain ends: the number and hash of the newest entry (0 and the heading's hash before the first)."""

    number: int
    hash: str


@final
class Waiting:
    """Work that waits for its turn to be written, and what came of it."""

    def __init__(self, work: Callable[[Transaction], Any]) -> None:
        self.work, self.over = work, False
        self.result: Any = None
        self.error: Exception | None = None

    def told(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


@final
class SeenChain:
    """What a transaction has read and found whole. It holds in the next one too, if a store knows that between the two
    nobody has written.
    """

    __slots__ = ("newest", "paid", "terms")

    def __init__(self) -> None:
        self.newest: Entry | None = None
        self.terms: dict[tuple[str, ...], list[Terms]] = {}
        self.paid: dict[str, Cost] = {}

    def forget(self) -> None:
        """What was read was undone."""
        self.newest = None
        self.terms.clear()
        self.paid.clear()

    def add(self, entry: Entry) -> None:
        """This was written now."""
        self.newest = entry
        if entry.terms is not None:
            self.terms.clear()
        if entry.payer is not None and entry.payer_spent is not None:
            self.paid[entry.payer] = entry.payer_spent


class Find(Enum):
    """What rows a transaction looks for, and by what."""

    PAGE = "the next by number: after, most"
    CLOSING = "the one that closed this: number"
    KEYED = "the RESERVED one with this key: key"
    SEALED = "the SEALED ones of this question, newest first: question"
    BEFORE = "the newest that is older: time"
    PAID = "the newest RESERVED one of a payer: payer"
    PAID_BEFORE = "the same, older than this: payer, time"
    ABOUT = "those that set limits of these accounts, oldest first: accounts"
    ABOUT_ALL = "those of all accounts"
    LINKS = "the LINKED ones, oldest first"


Placed = dict[int, str]
"""The hashes, by number, of entries that this process has written, or found where the chain has them."""

_MOST_PLACED: Final = 8_192
_PAGE: Final = 500
_AHEAD: Final = 32
"""Entries behind one that is read which must follow from it, if nothing that is known comes earlier."""


class Transaction(ABC):
    """A consistent view of a ledger; while writing, nobody else writes.

    A store finds rows, and this class alone makes entries of them: one that does not have its own hash, or that the
    `_AHEAD` entries behind it do not follow, is never given out. Whoever may write to the store, and changes a row and
    computes fewer hashes anew, is noticed when that row is read. Whoever computes more, or all up to the end, is
    noticed by whoever knows an old hash: the process that wrote or read it, a checkpoint, a note; and more, short of
    the end, by a look at the whole chain. A row that no lookup finds any more is noticed by such a look alone.
    """

    def __init__(self, genesis: str, placed: Placed, seen: SeenChain | None = None) -> None:
        self._genesis = genesis
        self._placed = placed
        self._seen = SeenChain() if seen is None else seen
        self._written: list[ChainHead] = []

    @property
    def genesis(self) -> str:
        """The first link of the chain: the hash of the heading, as it is stored."""
        return self._genesis

    @property
    def written(self) -> Sequence[ChainHead]:
        """What was appended here and not undone."""
        return self._written

    @property
    @abstractmethod
    def head(self) -> ChainHead:
        """Where the chain ends, as the store says."""

    @abstractmethod
    def link_of(self, number: int) -> object:
        """What this entry hangs from, as the store says; None if there is no such entry."""

    @abstractmethod
    def _rows(self, find: Find, values: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
        """The rows that are looked for, as they are stored. For this class alone, see `_placed_at`."""

    @abstractmethod
    def own(self, name: str) -> str | None:
        """What the store keeps with the ledger and not in its chain: its `home`, its `secret`. Never exported."""

    @abstractmethod
    def keep(self, name: str, value: str) -> None:
        """Keep this with the ledger."""

    @abstractmethod
    def _insert(self, entries: Sequence[Entry], head: ChainHead) -> None:
        """Write these entries and move the head from exactly `head` to the last of them."""

    @abstractmethod
    def part(self) -> AbstractContextManager[object]:
        """A part of this transaction: an exception undoes what was done in it, and nothing else."""

    @abstractmethod
    def check_file(self) -> None:
        """LedgerDamaged if what holds the entries, such as an index, is not whole."""

    @property
    def reached(self) -> ChainHead | None:
        """Where the chain ends now, if that was read or written here and not undone."""
        newest = self._seen.newest
        return None if newest is None else ChainHead(newest.number, newest.hash)

    def holds(self, head: ChainHead) -> bool:
        """Whether the chain has come past here: it has this entry, and no other of this number."""
        newest = self.newest()
        if newest is not None and newest.number == head.number:
            return newest.hash == head.hash
        if head.number == 0:
            return head.hash == self.genesis
        found = self.entry(head.number)
        return found is not None and found.hash == head.hash

    def follow(self, known: ChainHead | None) -> None:
        """LedgerDamaged if the chain does not hold where it was known to end: a copy was put back meanwhile."""
        if known is not None and not self.holds(known):
            raise gone_back(known.number)

    def do(self, waiting: Sequence[Waiting]) -> None:
        """Do the work of each, in a part of its own where there are several."""
        for each in waiting:
            each.error = None  # it may be done again from the start
            before = len(self._written)
            try:
                with nullcontext() if len(waiting) == 1 else self.part():
                    each.result = each.work(self)
            except DeniableError as error:  # one of the database's own ends everything
                if len(waiting) == 1:
                    raise
                each.error = error
                self._seen.forget()
                del self._written[before:]

    # -- reading: the only way from rows to entries --------------------------------------------------------------------

    def _found(self, find: Find, **values: object) -> list[Entry]:
        """The entries that are looked for, each whole and in its place."""
        found = [from_row(row) for row in self._rows(find, values)]
        behind: Entry | None = None
        for entry in reversed(found):  # then the entry behind is one that is known to be in its place
            behind = self._in_place(entry, behind)
        return found

    def _one(self, find: Find, **values: object) -> Entry | None:
        return next(iter(self._found(find, **values)), None)

    def _in_place(self, entry: Entry, behind: Entry | None = None) -> Entry:
        """This entry; LedgerDamaged if it is not the one that the chain has in its place. `behind` is in its own."""
        known = self._placed.get(entry.number)
        if known is None:
            if behind is None or behind.number != entry.number + 1:
                self._follow_up(entry)
            elif behind.previous != entry.hash:
                raise _displaced(entry.number)
            else:
                self.remember([ChainHead(entry.number, entry.hash)])
        elif known != entry.hash:
            raise gone_back(entry.number)
        return entry

    def _follow_up(self, entry: Entry) -> None:
        """LedgerDamaged if those behind it do not follow one from the other, up to one that is known or to the head.

        Where neither comes within reach, the entry alone is remembered: the last ones that were read have little behind
        them.
        """
        behind = [from_row(row) for row in self._rows(Find.PAGE, {"after": entry.number, "most": _AHEAD})]
        passed = [ChainHead(entry.number, entry.hash)]
        for each in behind:
            if (each.number - 1, each.previous) != passed[-1]:
                raise _displaced(passed[-1].number)
            known = self._placed.get(each.number)
            if known not in {None, each.hash}:
                raise gone_back(each.number)
            if known is not None:
                self.remember(passed)
                return
            passed.append(ChainHead(each.number, each.hash))
        if len(behind) == _AHEAD:
            self.remember(passed[:1])
        elif passed[-1] == self.head:
            self.remember(passed)
        else:
            raise _displaced(passed[-1].number)

    def remember(self, heads: Iterable[ChainHead]) -> None:
        """These are in their places, for good."""
        if len(self._placed) >= _MOST_PLACED:
            self._placed.clear()
        self._placed.update(heads)

    def page(self, *, after: int, most: int) -> list[Entry]:
        """The next entries by number."""
        return self._found(Find.PAGE, after=after, most=most)

    def history(self, *, after: int) -> Iterator[Entry]:
        """All entries behind this one, each whole; for a `Recount`, which says of the first that is not in its place
        what is wrong with it.
        """
        while True:
            before = after
            for row in self._rows(Find.PAGE, {"after": after, "most": _PAGE}):
                entry = from_row(row)
                after = entry.number
                yield entry
            if after == before:
                return

    def closing(self, number: int) -> Entry | None:
        """The entry that closed this one."""
        return self._one(Find.CLOSING, number=number)

    def keyed(self, key: str) -> Entry | None:
        """The RESERVED entry with this key."""
        return self._one(Find.KEYED, key=key)

    def newest_sealed(self, question: str, version: str | None) -> Entry | None:
        """The newest SEALED entry of this question about this version of the data (None: where none was named)."""
        rows = self._rows(Find.SEALED, {"question": question})
        found = next((each for each in map(from_row, rows) if each.version == version), None)
        return None if found is None else self._in_place(found)

    def newest_before(self, time: str) -> Entry | None:
        """The newest entry that is older than this time."""
        return self._one(Find.BEFORE, time=time)

    def newest_paid(self, payer: str, *, before: str | None = None) -> Entry | None:
        """The newest RESERVED entry of this payer, if a time is given the newest that is older than it."""
        if before is None:
            return self._one(Find.PAID, payer=payer)
        return self._one(Find.PAID_BEFORE, payer=payer, time=before)

    def about(self, *accounts: str) -> list[Entry]:
        """The entries that set limits of these accounts, oldest first; without a name, those of all accounts."""
        return self._found(Find.ABOUT, accounts=accounts) if accounts else self._found(Find.ABOUT_ALL)

    def links(self) -> list[Entry]:
        """The LINKED entries, oldest first."""
        return self._found(Find.LINKS)

    def entry(self, number: int) -> Entry | None:
        """The entry of this number."""
        found = self.page(after=number - 1, most=1)
        return found[0] if found and found[0].number == number else None

    def charge(self, number: int) -> Entry | None:
        """The RESERVED entry with this number among the charges."""
        low, high = 1, self.head.number
        while low < high:  # they grow with the entries
            middle = (low + high) // 2
            each = self.entry(middle)
            if each is None:
                raise LedgerDamaged(middle, "is missing", RESTORE)
            low, high = (low, middle) if each.charge >= number else (middle + 1, high)
        found = self.entry(low)
        return found if found is not None and (found.charge, found.state) == (number, State.RESERVED) else None

    def newest(self) -> Entry | None:
        """The newest entry; LedgerDamaged if the ends of the chain do not hold.

        This looks at both ends only, so that it costs the same in a long ledger. `Ledger.verify` looks at all of it.
        """
        if self._seen.newest is not None:
            return self._seen.newest
        head = self.head
        last = [from_row(row) for row in self._rows(Find.PAGE, {"after": max(0, head.number - 1), "most": 2})]
        if head.number == 0:
            if head.hash != self.genesis or last:
                raise LedgerDamaged(0, "does not belong to this chain", RESTORE)
            return None
        if not last or last[0].number != head.number:
            raise LedgerDamaged(head.number, "is missing", RESTORE)
        if last[0].hash != head.hash:
            raise LedgerDamaged(head.number, "was changed", RESTORE)
        if len(last) > 1:
            raise LedgerDamaged(last[1].number, "was added behind the end of the chain", RESTORE)
        link = self.link_of(1)
        if link != self.genesis:
            raise LedgerDamaged(1 if link is None else 0, "does not belong to this chain", RESTORE)
        self._seen.newest = last[0]
        return last[0]

    def terms(self, *accounts: str) -> list[Terms]:
        """What was ever set about these accounts, or about all, oldest first; LedgerDamaged if that was changed."""
        found = self._seen.terms.get(accounts)
        if found is None:
            found = [each.terms for each in self.about(*accounts) if each.terms is not None]
            self._seen.terms[accounts] = found
        return found

    def paid(self, payer: str) -> Cost:
        """Everything charged to this payer so far; LedgerDamaged if that was changed."""
        found = self._seen.paid.get(payer)
        if found is None:
            found = self._seen.paid[payer] = self.paid_up_to(payer)
        return found

    def paid_up_to(self, payer: str, *, before: str | None = None) -> Cost:
        """The same as it is stored, if a time is given of what is older than it."""
        newest = self.newest_paid(payer, before=before)
        return Cost(0, 0) if newest is None or newest.payer_spent is None else newest.payer_spent

    def spent(self) -> Cost:
        """Everything charged so far, from the newest entry."""
        newest = self.newest()
        return Cost(0, 0) if newest is None else newest.spent

    def now(self) -> str:
        """The time of the clock, or of the newest entry if that is later: time in a ledger never runs back."""
        newest, now = self.newest(), stamp(clock())
        return now if newest is None else max(now, newest.time)

    def append(self, **fields: Any) -> Entry:
        """Write the next entry of the chain and return it; see `append_all`."""
        return self.append_all([fields])[0]

    def append_all(self, given: Iterable[dict[str, Any]]) -> list[Entry]:
        """Write the next entries of the chain and return them.

        What is given are fields of `Entry`, without those that follow from its place in the chain.
        """
        newest, now = self.newest(), self.now()
        head = last = ChainHead(0, self.genesis) if newest is None else ChainHead(newest.number, newest.hash)
        entries = []
        for fields in given:
            known: dict[str, Any] = {"question": "", "cost": Cost(0, 0)} | fields
            # When a run ended depends on the data, so what closes an entry does not look at the clock.
            time = now if newest is None or known.get("closes") is None else newest.time
            charges = charges_with(newest, known["state"])
            newest = Entry.hashed(number=last.number + 1, time=time, previous=last.hash, charges=charges, **known)
            last = ChainHead(newest.number, newest.hash)
            entries.append(newest)
        self._insert(entries, head)
        for entry in entries:
            self._seen.add(entry)
            self._written.append(ChainHead(entry.number, entry.hash))
        return entries


class Store(ABC):
    """Where a ledger is kept. Safe to use from several threads.

    Threads that want to write at the same time are written together: whoever comes first does the work of all that wait
    by then, each in a part of its own of one transaction, and one flush of the disk makes all of it durable. Nobody is
    told anything before that.
    """

    def __init__(self, *, to_read: bool = False) -> None:
        self._queue: deque[Waiting] = deque()
        self._turn = threading.Lock()
        self._to_read = to_read
        self._reached: ChainHead | None = None
        self._passed: dict[int, str] = {}
        self._placed: Placed = {}

    @property
    def reached(self) -> ChainHead | None:
        """Where the chain ended when this store last wrote; None if that is not known."""
        return self._reached

    def holds(self, head: ChainHead) -> bool:
        """Whether the chain has come past here. Where this store wrote it nothing is read: whatever it wrote since
        follows from there, see `_keep`.
        """
        if self._passed.get(head.number) == head.hash:
            return True
        with self.reading() as transaction:
            return transaction.holds(head)

    @property
    @abstractmethod
    def path(self) -> Path | None:
        """The file, or None if it is kept in memory or in a database."""

    @property
    @abstractmethod
    def place(self) -> str | None:
        """What `Ledger.open` finds it by, in this process and others; None if only this process has it."""

    @property
    @abstractmethod
    def file(self) -> Path | None:
        """The file that it lies in, maybe beside others; None in memory and on a server."""

    @property
    def title(self) -> str:
        """The place in words, without a password."""
        return "in memory" if self.place is None else repr(self.place)

    @abstractmethod
    def open(self, new: Heading | None, *, dataset: str | None, family: str | None) -> Heading:
        """The heading of the ledger that is kept here; if there is none yet, it is made with the new heading.

        A store that keeps many ledgers finds one by the name of its data, and else by its family.
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[Transaction]:
        """A view that does not change while it is held."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Transaction]:
        """A view that nobody else writes beside: kept on leaving, and durable then; undone by an exception."""

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Do this while writing; again from the start, where a store could not keep it because of somebody else."""
        if self._to_read:
            raise InvalidOperation("this ledger was opened to look at; Ledger.open(...) opens it to spend")
        mine = Waiting(work)
        self._queue.append(mine)
        with self._turn:
            if not mine.over:
                self._write_waiting()
        result: Result = mine.told()
        return result

    def flush(self) -> None:  # noqa: B027  # most stores have nothing to do
        """Write what is in a log of its own into the file itself, where there is such a log."""

    def alone(self) -> None:
        """In a child after a fork: those who waited are threads of the parent."""
        self._queue, self._turn = deque(), threading.Lock()

    def _write_waiting(self) -> None:
        """Write for everybody who waits. What one of them did wrong is theirs; if nothing can be kept, all hear it."""
        waiting = [self._queue.popleft() for _ in range(len(self._queue))]
        try:
            self._reached = self._keep(waiting)
            self._remember(self._reached)
        except Exception as error:
            for each in waiting:
                each.error = error
        except BaseException:
            for each in waiting:
                each.error = LedgerUnavailable("who wrote for several was stopped", "ask again, with the same key")
            raise
        finally:
            for each in waiting:
                each.over = True

    def _keep(self, waiting: Sequence[Waiting]) -> ChainHead | None:
        """One transaction for all of these; where the chain ends then. An exception says that nothing was kept.

        Nothing is written behind a chain that has lost what this store wrote: a database can be restored, or a file be
        put back, below a program that runs.
        """
        with self.writing() as transaction:
            transaction.follow(self._newest_passed)
            transaction.do(waiting)
        transaction.remember(transaction.written)
        return transaction.reached

    @property
    def _newest_passed(self) -> ChainHead | None:
        return ChainHead(*next(reversed(self._passed.items()))) if self._passed else None

    def _remember(self, head: ChainHead | None) -> None:
        if head is None or self._passed.get(head.number) == head.hash:
            return
        self._passed[head.number] = head.hash
        if len(self._passed) > _REMEMBERED:
            self._passed.pop(next(iter(self._passed)))

    @abstractmethod
    def close(self) -> None:
        """Let go of everything. May be called twice."""


def _displaced(number: int) -> LedgerDamaged:
    return LedgerDamaged(number, "is not the one that the chain has in its place", RESTORE)


def charges_with(newest: Entry | None, state: State) -> int | None:
    """How many charges there are with an entry of this state behind the newest. After entries from before charges were
    counted, their numbers are taken as used, so that no number is used twice.
    """
    return (0 if newest is None else newest.charge) + (state is State.RESERVED)
