"""Where a ledger is kept.

A store does three things: it begins a transaction that nobody else can write beside, it reads entries, and it appends
entries while moving the head of the chain from exactly where it was. Everything about money is decided above it, in
whole numbers of Python, inside that transaction; so another store needs no arithmetic of its own.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, final

from deniable.errors import LedgerDamaged
from deniable.ledger.budget import Cost
from deniable.ledger.entries import Entry, Heading, State

__all__ = ["RESTORE", "Head", "Store", "Transaction"]

RESTORE = "restore the ledger from a copy; it answers nothing until then"


@final
class Head(NamedTuple):
    """Where the chain ends: the number and hash of the newest entry (0 and the heading's hash before the first)."""

    number: int
    hash: str


class Transaction(ABC):
    """A consistent view of a ledger; while writing, nobody else writes."""

    def __init__(self, heading: str) -> None:
        self._genesis = sha256(heading.encode()).hexdigest()

    @property
    def genesis(self) -> str:
        """The first link of the chain: the hash of the heading."""
        return self._genesis

    @property
    @abstractmethod
    def head(self) -> Head:
        """Where the chain ends, as the store says."""

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
    def newest_sealed(self, question: str) -> Entry | None:
        """The newest SEALED entry of this question."""

    @abstractmethod
    def _insert(self, entry: Entry, head: Head) -> None:
        """Write an entry and move the head from exactly `head` to it."""

    @abstractmethod
    def check_file(self) -> None:
        """LedgerDamaged if what holds the entries, such as an index, is not whole."""

    def entry(self, number: int) -> Entry | None:
        """The entry of this number."""
        found = self.page(after=number - 1, most=1)
        return found[0] if found and found[0].number == number else None

    def spent(self) -> Cost:
        """Everything charged so far, from the newest entry; LedgerDamaged if the ends of the chain do not hold.

        This looks at both ends only, so that it costs the same in a long ledger. `Ledger.verify` looks at all of it.
        """
        head = self.head
        if head.number == 0:
            if head.hash != self.genesis or self.page(after=0, most=1):
                raise LedgerDamaged(0, "does not belong to this chain", RESTORE)
            return Cost(0, 0)
        last = self.page(after=head.number - 1, most=2)
        if not last or last[0].number != head.number:
            raise LedgerDamaged(head.number, "is missing", RESTORE)
        if last[0].hash != head.hash or last[0].digest() != head.hash:
            raise LedgerDamaged(head.number, "was changed", RESTORE)
        if len(last) > 1:
            raise LedgerDamaged(last[1].number, "was added behind the end of the chain", RESTORE)
        first = last[0] if head.number == 1 else self.entry(1)
        if first is None or first.previous != self.genesis:
            raise LedgerDamaged(0 if first else 1, "does not belong to this chain", RESTORE)
        return last[0].spent

    def append(
        self,
        *,
        state: State,
        question: str,
        cost: Cost,
        description: str,
        key: str | None,
        spent: Cost,
        closes: int | None = None,
        answer: bytes | None = None,
        code: str | None = None,
    ) -> Entry:
        """Write the next entry of the chain and return it."""
        head = self.head
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        unhashed = Entry(
            number=head.number + 1,
            time=now,
            state=state,
            question=question,
            cost=cost,
            description=description,
            key=key,
            closes=closes,
            answer=answer,
            code=code,
            spent=spent,
            previous=head.hash,
        )
        entry = unhashed.hashed()
        self._insert(entry, head)
        return entry


class Store(ABC):
    """Where a ledger is kept. Safe to use from several threads."""

    @property
    @abstractmethod
    def path(self) -> Path | None:
        """The file, or None if there is none that another process could open."""

    @abstractmethod
    def open(self, new: Heading | None) -> Heading:
        """The heading of the ledger that is kept here; if there is none yet, it is made with the new heading."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Transaction]:
        """A view that does not change while it is held."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Transaction]:
        """A view that nobody else writes beside: kept on leaving, and durable then; undone by an exception."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything. May be called twice."""
