"""Verify a growing ledger repeatedly: entries that were verified before are not verified each time.

`Growing` remembers the number and hash of the newest verified entry, and the sums up to it. `verify` checks that this
entry is still in its place, and recomputes only the entries after it. If the entry is missing or has another hash, the
whole history is recomputed, and the error names the first wrong entry.

A change to an older entry, with the newest entries intact, is detected only when the whole history is recomputed. This
happens at the first call, at the first call more than ten minutes after the last time, and on request
(`verify_whole`). It takes time in proportion to the length of the history. Threads that ask for it at the same time
share one run, which begins after the last of them asked. Threads that only verify new entries do not wait for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final, final

from deniable.errors import LedgerDamaged, LedgerUnavailable
from deniable.ledger.history_verification import Recount

if TYPE_CHECKING:
    from deniable.ledger.entries import Entry
    from deniable.ledger.keys import PublicKey
    from deniable.ledger.ledger import Ledger
    from deniable.ledger.stores.store import Transaction

_AT_ONCE: Final = 500
"""Entries that are read in one transaction, after which other readers get their turn."""

_WHOLE_EVERY: Final = 600.0
"""Seconds after which `verify` recomputes the whole history again."""


@final
class Growing:
    """A ledger that this process verifies from time to time. Safe to share between threads."""

    def __init__(
        self, ledger: Ledger, key: PublicKey | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ledger, self._key, self._clock = ledger, key, clock
        self._whole = 0.0
        self._recount: Recount | None = None
        self._turn = threading.Lock()
        """Guards `_whole` (the time of the last whole run) and `_recount`: one thread at a time verifies new entries.
        """
        self._run_ended = threading.Condition()
        self._begun = self._ended = 0
        self._newest: Entry | None = None
        self._fault: Exception | None = None
        """The error of the last run over the whole history; None if it found nothing wrong."""

    def verify(self) -> Entry | None:
        """Recompute the entries since the last call, and return the newest. LedgerDamaged names the first wrong one."""
        with self._turn:
            recount, self._recount = self._recount, None  # kept again below, unless an entry is wrong
            is_old = self._clock() - self._whole > _WHOLE_EVERY
            if recount is not None and not is_old:
                with self._ledger._store.reading() as transaction:
                    is_there = _is_there(recount, transaction)
                if is_there:
                    newest = self._counted(recount, whole=False)
                    self._recount = recount
                    return newest
        return self.verify_whole()

    def verify_whole(self) -> Entry | None:
        """Recompute the whole history. Returns the newest entry; LedgerDamaged names the first wrong one."""
        with self._run_ended:
            wanted = self._begun + 1  # the next run to begin: it reads all entries that exist now
            while self._begun > self._ended < wanted:
                self._run_ended.wait()
            is_mine = self._ended < wanted
            if is_mine:
                self._begun = wanted
        if is_mine:
            self._verify_for_all()
        with self._run_ended:
            newest, fault = self._newest, self._fault
        if fault is not None:
            raise fault
        return newest

    def _verify_for_all(self) -> None:
        """Recompute the whole history for all threads that wait for it."""
        newest: Entry | None = None
        fault: Exception | None = LedgerUnavailable(
            "the verification of the whole ledger was interrupted", "verify again"
        )
        try:
            newest, fault = self._verified_whole(), None
        except Exception as error:  # raised in each of these threads
            fault = error
        finally:
            if fault is not None:
                with self._turn:
                    self._recount = None
            with self._run_ended:
                self._ended, self._newest, self._fault = self._begun, newest, fault
                self._run_ended.notify_all()

    def _verified_whole(self) -> Entry | None:
        with self._ledger._store.reading() as transaction:
            recount = Recount(self._ledger._heading, transaction.genesis, self._key)
        newest = self._counted(recount, whole=True)
        with self._turn:
            self._recount, self._whole = recount, self._clock()
        return newest

    def _counted(self, recount: Recount, *, whole: bool) -> Entry | None:
        """Add the entries after the last counted one to the recount. Returns the newest entry.

        A store has one reader at a time, so entries are read in pieces, and others can read in between. The hash chain
        connects the pieces; the last piece is read in one transaction with the head of the chain.
        """
        while True:
            with self._ledger._store.reading() as transaction:
                head, some = transaction.head, list(islice(transaction.history(after=recount.number), _AT_ONCE))
                if whole and len(some) < _AT_ONCE:
                    transaction.check_file()
            for entry in some:
                recount.add(entry)
            if len(some) < _AT_ONCE:
                return recount.end(head.number, head.hash)


def _is_there(recount: Recount, transaction: Transaction) -> bool:
    """Whether the newest verified entry is still in its place."""
    try:
        found = transaction.entry(recount.number) if recount.number else None
    except LedgerDamaged:
        return False
    return found is not None and found.hash == recount.link
