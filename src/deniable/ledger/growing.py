"""Verifying a ledger that grows, again and again: what was verified before is remembered, and the rest recomputed.

What is remembered is the number and the hash of the newest entry that was verified, with the sums up to there. Where
the ledger holds another entry there, or none, all of it is recomputed, and the first wrong entry is named. An older
entry that was changed below an untouched newest one is noticed by a whole look alone: the first is one, so is one in
ten minutes, and whoever wants to be sure takes one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from deniable.ledger.recount import Recount

if TYPE_CHECKING:
    from deniable.ledger.entries import Entry
    from deniable.ledger.keys import PublicKey
    from deniable.ledger.ledger import Ledger

_PAGE: Final = 500
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

    def verify(self) -> Entry | None:
        """The newest entry, with everything since the last look recomputed; LedgerDamaged names the first wrong one."""
        with self._turn:
            is_old = self._clock() - self._whole > _WHOLE_EVERY
            return self._verified(None if is_old else self._recount)

    def verify_whole(self) -> Entry | None:
        """The same for everything."""
        with self._turn:
            return self._verified(None)

    def _verified(self, recount: Recount | None) -> Entry | None:
        self._recount = None  # one that met a wrong entry is of no further use
        with self._ledger._store.reading() as transaction:
            head = transaction.head
            before = None if recount is None or not recount.number else transaction.entry(recount.number)
            is_known = recount is not None and before is not None and before.digest() == before.hash == recount.link
            if recount is None or not is_known:
                recount = Recount(self._ledger._heading, transaction.genesis, self._key)
            while page := transaction.page(after=recount.number, most=_PAGE):
                for entry in page:
                    recount.add(entry)
            newest = recount.end(head.number, head.hash)
            if not is_known:
                transaction.check_file()
                self._whole = self._clock()
        self._recount = recount
        return newest
