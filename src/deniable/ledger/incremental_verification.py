"""Verifying a ledger that grows, again and again: what was verified before is remembered, and the rest recomputed.

What is remembered is the number and the hash of the newest entry that was verified, with the sums up to there. Where
the ledger holds another entry there, or none, all of it is recomputed, and the first wrong entry is named. An older
entry that was changed below an untouched newest one is noticed by a whole look alone: the first is one, so is one in
ten minutes, and whoever wants to be sure takes one.

A whole look takes as long as the history is long. Those who want one at the same time share it: one that begins after
they came. And nobody waits for one who wants to see only what is new.
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
"""Entries that are read before others may: as many as stores read at once."""

_WHOLE_EVERY: Final = 600.0
"""Seconds after which a look is a whole one again."""


@final
class Growing:
    """A ledger that is verified from time to time in this process. Threads may share it."""

    def __init__(
        self, ledger: Ledger, key: PublicKey | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ledger, self._key, self._clock = ledger, key, clock
        self._whole = 0.0
        self._recount: Recount | None = None
        self._turn = threading.Lock()
        """Of both, and of looks at what is new."""
        self._looks = threading.Condition()
        self._begun = self._ended = 0
        self._newest: Entry | None = None
        self._fault: Exception | None = None
        """What the whole look found that ended last."""

    def verify(self) -> Entry | None:
        """The newest entry, with everything since the last look recomputed; LedgerDamaged names the first wrong one."""
        with self._turn:
            recount, self._recount = self._recount, None  # one that met a wrong entry is of no further use
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
        """The same for everything."""
        with self._looks:
            wanted = self._begun + 1  # the next one to begin: it sees all that is there now
            while self._begun > self._ended < wanted:
                self._looks.wait()
            is_mine = self._ended < wanted
            if is_mine:
                self._begun = wanted
        if is_mine:
            self._look()
        with self._looks:
            newest, fault = self._newest, self._fault
        if fault is not None:
            raise fault
        return newest

    def _look(self) -> None:
        """Look at everything, for all who wait for it."""
        newest: Entry | None = None
        fault: Exception | None = LedgerUnavailable("a look at the whole ledger was broken off", "look again")
        try:
            newest, fault = self._looked(), None
        except Exception as error:  # told to each of them
            fault = error
        finally:
            if fault is not None:
                with self._turn:
                    self._recount = None
            with self._looks:
                self._ended, self._newest, self._fault = self._begun, newest, fault
                self._looks.notify_all()

    def _looked(self) -> Entry | None:
        with self._ledger._store.reading() as transaction:
            recount = Recount(self._ledger._heading, transaction.genesis, self._key)
        newest = self._counted(recount, whole=True)
        with self._turn:
            self._recount, self._whole = recount, self._clock()
        return newest

    def _counted(self, recount: Recount, *, whole: bool) -> Entry | None:
        """The newest entry, with everything recomputed that is behind what was counted.

        In pieces, since a store has one reader at a time: others read in between. What is read later hangs on what was
        read before, and the last piece is read together with the head of the chain.
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
    """Whether the newest entry that was verified is still in its place."""
    try:
        found = transaction.entry(recount.number) if recount.number else None
    except LedgerDamaged:
        return False
    return found is not None and found.hash == recount.link
