"""Where a ledger is kept.

A store does three things: it begins a transaction that nobody else can write beside, it reads entries, and it appends
entries while moving the head of the chain from exactly where it was. Everything about money is decided above it, in
whole numbers of Python, inside that transaction; so another store needs no arithmetic of its own.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from pathlib import Path
from time import time as clock
from typing import Any, Final, NamedTuple, TypeVar, final

from deniable.errors import DeniableError, InvalidOperation, LedgerDamaged, LedgerUnavailable
from deniable.ledger.accounts import stamp
from deniable.ledger.budget import Cost
from deniable.ledger.entries import Entry, Heading, State, Terms, compact, cost_of, more_of

__all__ = [
    "COLUMNS",
    "RESTORE",
    "Head",
    "Seen",
    "Store",
    "Transaction",
    "Waiting",
    "as_row",
    "charges_with",
    "from_row",
    "genesis_of",
    "paid_up_to",
    "whole",
]

RESTORE = "restore the ledger from a copy; it answers nothing until then"

Result = TypeVar("Result")


@final
class Head(NamedTuple):
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
class Seen:
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


class Transaction(ABC):
    """A consistent view of a ledger; while writing, nobody else writes."""

    def __init__(self, genesis: str, seen: Seen | None = None) -> None:
        self._genesis = genesis
        self._seen = Seen() if seen is None else seen

    @property
    def genesis(self) -> str:
        """The first link of the chain: the hash of the heading, as it is stored."""
        return self._genesis

    @property
    @abstractmethod
    def head(self) -> Head:
        """Where the chain ends, as the store says."""

    @abstractmethod
    def first_link(self) -> object:
        """What entry 1 hangs from, as the store says; None if there is no entry 1."""

    @abstractmethod
    def page(self, *, after: int, most: int) -> list[Entry]:
        """The next entries by number."""

    @abstractmethod
    def closing(self, number: int) -> Entry | None:
        """The entry that closed this one."""

    @abstractmethod
    def keyed(self, key: str) -> Entry | None:
        """The RESERVED entry with this key."""

    @abstractmethod
    def newest_sealed(self, question: str, version: str | None) -> Entry | None:
        """The newest SEALED entry of this question about this version of the data (None: where none was named)."""

    @abstractmethod
    def newest_before(self, time: str) -> Entry | None:
        """The newest entry that is older than this time."""

    @abstractmethod
    def newest_paid(self, payer: str, *, before: str | None = None) -> Entry | None:
        """The newest RESERVED entry of this payer, if a time is given the newest that is older than it."""

    @abstractmethod
    def about(self, *accounts: str) -> list[Entry]:
        """The entries that set limits of these accounts, oldest first; without a name, those of all accounts."""

    @abstractmethod
    def links(self) -> list[Entry]:
        """The LINKED entries, oldest first."""

    @abstractmethod
    def own(self, name: str) -> str | None:
        """What the store keeps with the ledger and not in its chain: its `home`, its `secret`. Never exported."""

    @abstractmethod
    def keep(self, name: str, value: str) -> None:
        """Keep this with the ledger."""

    @abstractmethod
    def _insert(self, entries: Sequence[Entry], head: Head) -> None:
        """Write these entries and move the head from exactly `head` to the last of them."""

    @abstractmethod
    def part(self) -> AbstractContextManager[object]:
        """A part of this transaction: an exception undoes what was done in it, and nothing else."""

    @abstractmethod
    def check_file(self) -> None:
        """LedgerDamaged if what holds the entries, such as an index, is not whole."""

    def do(self, waiting: Sequence[Waiting]) -> None:
        """Do the work of each, in a part of its own where there are several."""
        for each in waiting:
            each.error = None  # it may be done again from the start
            try:
                with nullcontext() if len(waiting) == 1 else self.part():
                    each.result = each.work(self)
            except DeniableError as error:  # one of the database's own ends everything
                if len(waiting) == 1:
                    raise
                each.error = error
                self._seen.forget()

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
        if head.number == 0:
            if head.hash != self.genesis or self.page(after=0, most=1):
                raise LedgerDamaged(0, "does not belong to this chain", RESTORE)
            return None
        last = self.page(after=head.number - 1, most=2)
        if not last or last[0].number != head.number:
            raise LedgerDamaged(head.number, "is missing", RESTORE)
        if last[0].hash != head.hash or last[0].digest() != head.hash:
            raise LedgerDamaged(head.number, "was changed", RESTORE)
        if len(last) > 1:
            raise LedgerDamaged(last[1].number, "was added behind the end of the chain", RESTORE)
        link = self.first_link()
        if link != self.genesis:
            raise LedgerDamaged(1 if link is None else 0, "does not belong to this chain", RESTORE)
        self._seen.newest = last[0]
        return last[0]

    def terms(self, *accounts: str) -> list[Terms]:
        """What was ever set about these accounts, or about all, oldest first; LedgerDamaged if that was changed."""
        found = self._seen.terms.get(accounts)
        if found is None:
            found = [each.terms for each in whole(self.about(*accounts)) if each.terms is not None]
            self._seen.terms[accounts] = found
        return found

    def paid(self, payer: str) -> Cost:
        """Everything charged to this payer so far; LedgerDamaged if that was changed."""
        found = self._seen.paid.get(payer)
        if found is None:
            found = self._seen.paid[payer] = paid_up_to(self.newest_paid(payer))
        return found

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
        head = last = Head(0, self.genesis) if newest is None else Head(newest.number, newest.hash)
        entries = []
        for fields in given:
            known: dict[str, Any] = {"question": "", "cost": Cost(0, 0)} | fields
            # When a run ended depends on the data, so what closes an entry does not look at the clock.
            time = now if newest is None or known.get("closes") is None else newest.time
            charges = charges_with(newest, known["state"])
            newest = Entry(number=last.number + 1, time=time, previous=last.hash, charges=charges, **known).hashed()
            last = Head(newest.number, newest.hash)
            entries.append(newest)
        self._insert(entries, head)
        for entry in entries:
            self._seen.add(entry)
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
            self._keep(waiting)
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

    def _keep(self, waiting: Sequence[Waiting]) -> None:
        """One transaction for all of these; an exception says that nothing was kept."""
        with self.writing() as transaction:
            transaction.do(waiting)

    @abstractmethod
    def close(self) -> None:
        """Let go of everything. May be called twice."""


# --- rows of a table --------------------------------------------------------------------------------------------------

COLUMNS: Final = (
    *("number", "time", "state", "question", "units", "delta_units", "description", "key", "closes", "answer", "code"),
    *("spent_units", "spent_delta_units", "previous", "hash", "payer", "account", "more"),
)
"""`payer` and `account` are there to be looked up; `more` has them again, as they were hashed."""


def genesis_of(heading: str) -> str:
    """The first link of a chain: the hash of the text of its heading."""
    return sha256(heading.encode()).hexdigest()


def as_row(entry: Entry) -> tuple[Any, ...]:
    """An entry as a row of a table. Amounts are decimal text: no database's integer holds 38 digits."""
    more = entry.more()
    return (
        *(entry.number, entry.time, entry.state.value, entry.question),
        *(str(entry.cost.units), str(entry.cost.delta_units), entry.description, entry.key),
        *(entry.closes, entry.answer, entry.code, str(entry.spent.units), str(entry.spent.delta_units)),
        *(entry.previous, entry.hash, entry.payer, entry.account),
        None if more is None else compact(more),
    )


def from_row(row: Sequence[Any]) -> Entry:
    """The entry of a row; LedgerDamaged if no entry was ever written like this."""
    number, when, state, question, units, delta_units, description, key, closes, answer, code, *rest = row
    spent_units, spent_delta_units, previous, link, payer, account, more = rest
    try:
        texts = [text for text in (when, question, description, key, code, previous, link) if text is not None]
        if not all(isinstance(text, str) for text in texts) or not isinstance(answer, bytes | None):
            raise TypeError
        fields: dict[str, Any] = {} if more is None else more_of(json.loads(more))
        found = Entry(
            number=number,
            time=when,
            state=State(state),
            question=question,
            cost=cost_of((units, delta_units)),
            description=description,
            key=key,
            closes=closes,
            answer=answer,
            code=code,
            spent=cost_of((spent_units, spent_delta_units)),
            previous=previous,
            hash=link,
            **fields,
        )
        if payer != found.payer or account != found.account:
            raise TypeError
        return found
    except (KeyError, TypeError, ValueError):  # InvalidParameter is a ValueError
        raise LedgerDamaged(number, "cannot be read", RESTORE) from None


def charges_with(newest: Entry | None, state: State) -> int | None:
    """How many charges there are with an entry of this state behind the newest. After entries from before charges were
    counted, their numbers are taken as used, so that no number is used twice.
    """
    return (0 if newest is None else newest.charge) + (state is State.RESERVED)


def whole(entries: list[Entry]) -> list[Entry]:
    """These entries; LedgerDamaged if one of them is not what was written."""
    for each in entries:
        if each.digest() != each.hash:
            raise LedgerDamaged(each.number, "was changed", RESTORE)
    return entries


def paid_up_to(newest: Entry | None) -> Cost:
    """What a payer has paid up to and including this entry."""
    if newest is None:
        return Cost(0, 0)
    whole([newest])
    return newest.payer_spent or Cost(0, 0)
