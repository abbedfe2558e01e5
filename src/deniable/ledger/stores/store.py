"""Where a ledger is kept: the interface of all stores, and what they have in common.

A store does three things. It begins a transaction in which it is the only writer; it finds rows; and it inserts entries
while moving the head of the chain, on the condition that the head is still where the transaction read it. All decisions
about budgets are made above it, inside such a transaction, in Python's integers. So a new store contains no arithmetic.

**From rows to entries.** `Transaction` is the only code that makes entries of rows. It computes the hash of every row
that it reads, and checks that the entries after it follow from it in the chain (`_in_place`). To keep this cheap in a
long ledger it checks at most `_AHEAD` entries, and stops at the first whose hash this process already knows (`Placed`).

**Many writers.** `Store.write` puts the work of a thread into a queue. The thread that gets the lock does the work of
all threads that wait (`Waiting`), each in a savepoint of its own, in one transaction. One flush to the disk then makes
all of it durable, and only then do the threads get their results.

**Going back.** A store remembers the heads of the chain that it has written (`_passed`), and writes nothing to a chain
that has lost one of them: then somebody restored an older copy while this program was running.
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
"""The number of heads of a chain that a store remembers. It bounds the number of questions in progress at one time."""

Result = TypeVar("Result")


@final
class ChainHead(NamedTuple):
    """The end of the chain: number and hash of the newest entry; 0 and the hash of the heading before the first."""

    number: int
    hash: str


@final
class Waiting:
    """The work of one thread that waits to be written, and its result or error."""

    def __init__(self, work: Callable[[Transaction], Any]) -> None:
        self.work, self.over = work, False
        self.result: Any = None
        self.error: Exception | None = None

    def outcome(self) -> Any:
        """The result of the work, once it is `over`; raises the error of the work if it has one."""
        if self.error is not None:
            raise self.error
        return self.result


@final
class SeenChain:
    """What a transaction has read and verified. The next transaction may use it, if nobody has written in between."""

    __slots__ = ("newest", "paid", "terms")

    def __init__(self) -> None:
        self.newest: Entry | None = None
        self.terms: dict[tuple[str, ...], list[Terms]] = {}
        self.paid: dict[str, Cost] = {}

    def forget(self) -> None:
        """Forget everything: what was read has been rolled back."""
        self.newest = None
        self.terms.clear()
        self.paid.clear()

    def add(self, entry: Entry) -> None:
        """Take note of an entry that was just written."""
        self.newest = entry
        if entry.terms is not None:
            self.terms.clear()
        if entry.payer is not None and entry.payer_spent is not None:
            self.paid[entry.payer] = entry.payer_spent


class Find(Enum):
    """The queries of a transaction: which rows of the table of entries it reads, and in which order. The value is the
    SQL after WHERE, the same for all stores. It has named parameters, uses only what SQLite and Postgres have in
    common, and joins its conditions by AND alone, because a table with several ledgers adds the condition on the ledger
    in front.
    """

    PAGE = "number > :after ORDER BY number LIMIT :most"
    """The next entries by number."""
    CLOSING = "closes = :number"
    """The entry that closes the entry `number`."""
    KEYED = "key = :key AND state = 'RESERVED'"
    SEALED = "question = :question AND state = 'SEALED' ORDER BY number DESC"
    BEFORE = "time < :time ORDER BY time DESC, number DESC LIMIT 1"
    """The newest entry before `time`."""
    PAID = "payer = :payer AND state = 'RESERVED' ORDER BY time DESC, number DESC LIMIT 1"
    """The newest charge of a payer."""
    PAID_BEFORE = "payer = :payer AND state = 'RESERVED' AND time < :time ORDER BY time DESC, number DESC LIMIT 1"
    """The newest charge of a payer before `time`."""
    ABOUT = "account IN :accounts ORDER BY number"
    """The entries that set limits of these accounts. Each store writes the list of accounts in its own SQL."""
    ABOUT_ALL = "account IS NOT NULL ORDER BY number"
    LINKS = "state = 'LINKED' ORDER BY number"


Placed = dict[int, str]
"""The hashes, by number, of entries that this process has written or verified to be in the chain."""

_MOST_PLACED: Final = 8_192
_PAGE: Final = 500
_AHEAD: Final = 32
"""When an entry is read, so many later entries are checked to follow it, unless one of them is known already."""


class Transaction(ABC):
    """A consistent view of a ledger. In a writing transaction nobody else writes.

    An entry is returned only if its row has the right hash and the next `_AHEAD` entries follow from it. What this
    detects, if somebody with write access to the store changes a row:

    - they recompute the hashes of fewer than `_AHEAD` later entries: detected when the row is read;
    - they recompute more, but not all up to the end: detected by `Ledger.verify`;
    - they recompute all up to the end: detected by anyone who knows an old hash (a process that read or wrote the
      entry, a checkpoint, a note);
    - they remove a row, so that queries do not find it: detected by `Ledger.verify`.
    """

    def __init__(self, genesis: str, placed: Placed, seen: SeenChain | None = None) -> None:
        self._genesis = genesis
        self._placed = placed
        self._seen = SeenChain() if seen is None else seen
        self._written: list[ChainHead] = []

    @property
    def genesis(self) -> str:
        """The first link of the chain: the hash of the stored heading."""
        return self._genesis

    @property
    def written(self) -> Sequence[ChainHead]:
        """The heads of all entries that were appended in this transaction and not rolled back."""
        return self._written

    @property
    @abstractmethod
    def head(self) -> ChainHead:
        """The end of the chain, as stored."""

    @abstractmethod
    def link_of(self, number: int) -> object:
        """The stored `previous` hash of this entry; None if there is no such entry."""

    @abstractmethod
    def _rows(self, find: Find, values: Mapping[str, Any]) -> AbstractContextManager[Iterable[Sequence[Any]]]:
        """The rows that a query finds, unverified; the cursor is closed at the end of the block, also after an error.

        Only this class may call it; see `_in_place`.
        """

    @abstractmethod
    def own(self, name: str) -> str | None:
        """A value that the store keeps beside the chain, its "home" or its "secret"; None if unset. Never exported."""

    @abstractmethod
    def keep(self, name: str, value: str) -> None:
        """Store a value beside the chain; see `own`."""

    @abstractmethod
    def _insert(self, entries: Sequence[Entry], head: ChainHead) -> None:
        """Insert these entries and move the head to the last of them; LedgerUnavailable if it is not at `head`."""

    @abstractmethod
    def part(self) -> AbstractContextManager[object]:
        """A savepoint: an exception inside undoes what was done inside, and nothing else."""

    @abstractmethod
    def check_file(self) -> None:
        """Raise LedgerDamaged if the file or database itself is corrupt, for example an index."""

    @property
    def reached(self) -> ChainHead | None:
        """The end of the chain, if this transaction has read or written it; else None."""
        newest = self._seen.newest
        return None if newest is None else ChainHead(newest.number, newest.hash)

    def holds(self, head: ChainHead) -> bool:
        """Whether the chain contains an entry with this number and hash."""
        newest = self.newest()
        if newest is not None and newest.number == head.number:
            return newest.hash == head.hash
        if head.number == 0:
            return head.hash == self.genesis
        found = self.entry(head.number)
        return found is not None and found.hash == head.hash

    def follow(self, known: ChainHead | None) -> None:
        """Raise LedgerDamaged if the chain does not contain this entry: an older copy was restored meanwhile."""
        if known is not None and not self.holds(known):
            raise gone_back(known.number)

    def do(self, waiting: Sequence[Waiting]) -> None:
        """Run the work of each waiting thread. If several wait, each work runs in its own savepoint."""
        for each in waiting:
            each.error = None  # of an earlier attempt
            before = len(self._written)
            try:
                with nullcontext() if len(waiting) == 1 else self.part():
                    each.result = each.work(self)
            except DeniableError as error:  # other errors end the whole transaction
                if len(waiting) == 1:
                    raise
                each.error = error
                self._seen.forget()
                del self._written[before:]

    # -- reading: the only way from rows to entries --------------------------------------------------------------------

    def _found(self, find: Find, **values: object) -> list[Entry]:
        """The entries that a query finds, each verified by its hash and its place in the chain."""
        with self._rows(find, values) as rows:
            found = [from_row(row) for row in rows]
        behind: Entry | None = None
        for entry in reversed(found):  # newest first: then the later entry is verified already
            behind = self._in_place(entry, behind)
        return found

    def _one(self, find: Find, **values: object) -> Entry | None:
        return next(iter(self._found(find, **values)), None)

    def _in_place(self, entry: Entry, behind: Entry | None = None) -> Entry:
        """The entry itself. Raises LedgerDamaged if the chain has another entry at this number. `behind` is a later
        entry that is verified already.
        """
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
        """Raise LedgerDamaged unless the later entries follow one from the other, up to a known one or to the head.

        At most `_AHEAD` entries are read. If they contain neither a known entry nor the head, only `entry` itself is
        remembered as verified, because fewer entries were checked after the others.
        """
        with self._rows(Find.PAGE, {"after": entry.number, "most": _AHEAD}) as rows:
            behind = [from_row(row) for row in rows]
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
        """Remember these entries as verified."""
        if len(self._placed) >= _MOST_PLACED:
            self._placed.clear()
        self._placed.update(heads)

    def page(self, *, after: int, most: int) -> list[Entry]:
        """At most `most` entries after number `after`, oldest first."""
        return self._found(Find.PAGE, after=after, most=most)

    def history(self, *, after: int) -> Iterator[Entry]:
        """All entries after number `after`, each with the right hash. Their order in the chain is not checked: a
        `Recount` does that, and says what is wrong.
        """
        while True:
            before = after
            with self._rows(Find.PAGE, {"after": after, "most": _PAGE}) as rows:
                page = list(rows)  # no cursor stays open while the caller has an entry
            for row in page:
                entry = from_row(row)
                after = entry.number
                yield entry
            if after == before:
                return

    def closing(self, number: int) -> Entry | None:
        """The entry that closes the RESERVED entry of this number; None if it is open."""
        return self._one(Find.CLOSING, number=number)

    def keyed(self, key: str) -> Entry | None:
        """The RESERVED entry with this idempotency key; None if no entry has it."""
        return self._one(Find.KEYED, key=key)

    def newest_sealed(self, question: str, version: str | None) -> Entry | None:
        """The newest SEALED entry of this question and version (None: entries without a version)."""
        with self._rows(Find.SEALED, {"question": question}) as rows:
            found = next((each for each in map(from_row, rows) if each.version == version), None)
        return None if found is None else self._in_place(found)

    def newest_before(self, time: str) -> Entry | None:
        """The newest entry that is older than this time."""
        return self._one(Find.BEFORE, time=time)

    def newest_paid(self, payer: str, *, before: str | None = None) -> Entry | None:
        """The newest RESERVED entry of this payer, or the newest one before a time."""
        if before is None:
            return self._one(Find.PAID, payer=payer)
        return self._one(Find.PAID_BEFORE, payer=payer, time=before)

    def about(self, *accounts: str) -> list[Entry]:
        """The entries that set limits of these accounts, oldest first; without a name, of all accounts."""
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
        while low < high:  # the count of charges grows with the entries: bisection
            middle = (low + high) // 2
            each = self.entry(middle)
            if each is None:
                raise LedgerDamaged(middle, "is missing", RESTORE)
            low, high = (low, middle) if each.charge >= number else (middle + 1, high)
        found = self.entry(low)
        return found if found is not None and (found.charge, found.state) == (number, State.RESERVED) else None

    def newest(self) -> Entry | None:
        """The newest entry, or None; LedgerDamaged if one of the two ends of the chain is wrong.

        Only the first and the newest entry are checked, so a long ledger is as fast as a short one. `Ledger.verify`
        checks all entries.
        """
        if self._seen.newest is not None:
            return self._seen.newest
        head = self.head
        with self._rows(Find.PAGE, {"after": max(0, head.number - 1), "most": 2}) as rows:
            last = [from_row(row) for row in rows]
        if head.number == 0:
            if head.hash != self.genesis or last:
                raise LedgerDamaged(0, "does not belong to this chain", RESTORE)
            return None
        if not last or last[0].number != head.number:
            raise LedgerDamaged(head.number, "is missing", RESTORE)
        if last[0].hash != head.hash:
            raise LedgerDamaged(head.number, "was changed", RESTORE)
        if len(last) > 1:
            raise LedgerDamaged(last[1].number, "was added after the end of the chain", RESTORE)
        link = self.link_of(1)
        if link != self.genesis:
            raise LedgerDamaged(1 if link is None else 0, "does not belong to this chain", RESTORE)
        self._seen.newest = last[0]
        return last[0]

    def terms(self, *accounts: str) -> list[Terms]:
        """All limits that were ever set for these accounts, or for all accounts, oldest first."""
        found = self._seen.terms.get(accounts)
        if found is None:
            found = [each.terms for each in self.about(*accounts) if each.terms is not None]
            self._seen.terms[accounts] = found
        return found

    def paid(self, payer: str) -> Cost:
        """The sum of all charges to this payer."""
        found = self._seen.paid.get(payer)
        if found is None:
            found = self._seen.paid[payer] = self.paid_up_to(payer)
        return found

    def paid_up_to(self, payer: str, *, before: str | None = None) -> Cost:
        """The sum of all charges to this payer, or of those before a time, as its newest entry states it."""
        newest = self.newest_paid(payer, before=before)
        return Cost(0, 0) if newest is None or newest.payer_spent is None else newest.payer_spent

    def spent(self) -> Cost:
        """The sum of all charges, as the newest entry states it."""
        newest = self.newest()
        return Cost(0, 0) if newest is None else newest.spent

    def now(self) -> str:
        """The time of the clock, or of the newest entry if that is later: times in a ledger never decrease."""
        newest, now = self.newest(), stamp(clock())
        return now if newest is None else max(now, newest.time)

    def append(self, **fields: Any) -> Entry:
        """Write the next entry of the chain and return it; see `append_all`."""
        return self.append_all([fields])[0]

    def append_all(self, given: Iterable[dict[str, Any]]) -> list[Entry]:
        """Write the next entries of the chain and return them.

        `given` are fields of `Entry`, without number, time, previous, hash and charges, which follow from the chain.
        """
        newest, now = self.newest(), self.now()
        head = last = ChainHead(0, self.genesis) if newest is None else ChainHead(newest.number, newest.hash)
        entries = []
        for fields in given:
            known: dict[str, Any] = {"question": "", "cost": Cost(0, 0)} | fields
            # The end of a run depends on the data, so an entry that closes another one does not read the clock.
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

    Threads that write at the same time share one transaction and one flush to the disk; see the module.
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
        """The end of the chain after the last write of this store; None before its first."""
        return self._reached

    def holds(self, head: ChainHead) -> bool:
        """Whether the chain contains this entry. If this store wrote the entry, nothing is read: `_keep` has checked
        at each later write that the chain still contained it.
        """
        if self._passed.get(head.number) == head.hash:
            return True
        with self.reading() as transaction:
            return transaction.holds(head)

    @property
    @abstractmethod
    def path(self) -> Path | None:
        """The file of this ledger alone; None in memory and in a database."""

    @property
    @abstractmethod
    def place(self) -> str | None:
        """The path or URL by which `Ledger.open` finds it, also from other processes; None in memory."""

    @property
    @abstractmethod
    def file(self) -> Path | None:
        """The file that contains it, perhaps with other ledgers; None in memory and on a database server."""

    @property
    def title(self) -> str:
        """The place for errors and reprs, without a password."""
        return "in memory" if self.place is None else repr(self.place)

    @abstractmethod
    def open(self, new: Heading | None, *, dataset: str | None, family: str | None) -> Heading:
        """Open the ledger or, if it does not exist, make it with the heading `new`. Returns its heading.

        A store with many ledgers finds one by the name of its data, or else by its family. InvalidParameter if there is
        no ledger and `new` is None.
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[Transaction]:
        """A reading transaction: a view that does not change."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Transaction]:
        """A writing transaction, without other writers. Leaving it makes it durable; an exception rolls it back."""

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Run `work` in a writing transaction and return its result.

        A store may run it again from the start, if another writer made the first attempt fail.
        """
        if self._to_read:
            raise InvalidOperation(
                "this ledger was opened for reading only; open it for charging with Ledger.open(...)"
            )
        mine = Waiting(work)
        self._queue.append(mine)
        with self._turn:
            if not mine.over:
                self._write_waiting()
        result: Result = mine.outcome()
        return result

    def flush(self) -> None:  # noqa: B027  # most stores have nothing to do
        """Copy the write-ahead log into the file, if there is one."""

    def alone(self) -> None:
        """Reset the queue in a child process after a fork: the waiting threads exist in the parent only."""
        self._queue, self._turn = deque(), threading.Lock()

    def _write_waiting(self) -> None:
        """Write for all threads that wait. Each gets its own error; if the transaction fails, all get that error."""
        waiting = [self._queue.popleft() for _ in range(len(self._queue))]
        try:
            self._reached = self._keep(waiting)
            self._remember(self._reached)
        except Exception as error:
            for each in waiting:
                each.error = error
        except BaseException:
            for each in waiting:
                each.error = LedgerUnavailable(
                    "the thread that was writing this charge was interrupted", "ask again, with the same key"
                )
            raise
        finally:
            for each in waiting:
                each.over = True

    def _keep(self, waiting: Sequence[Waiting]) -> ChainHead | None:
        """Do all of this work in one transaction, and return the new end of the chain. On an exception nothing is kept.

        Raises LedgerDamaged, and writes nothing, if the chain has lost an entry that this store wrote: somebody
        restored an older database or file while this program was running.
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
        """Release files and connections. May be called twice."""


def _displaced(number: int) -> LedgerDamaged:
    return LedgerDamaged(number, "is not the entry that the chain has at this number", RESTORE)


def charges_with(newest: Entry | None, state: State) -> int | None:
    """The number of charges up to and including an entry of this state after `newest`.

    Entries of older versions did not count charges. Their numbers count as used, so that no number is used twice.
    """
    return (0 if newest is None else newest.charge) + (state is State.RESERVED)
