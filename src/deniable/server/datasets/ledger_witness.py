"""Rollback protection: the newest entry of each ledger is stored outside of the ledger, to detect an older copy.

An older copy of a ledger has forgotten spending. Three places remember the newest entry (its number and hash):

1. *The catalogue*, for each family of datasets. It is written when a ledger is opened, in the transaction that records
   a release, and after every other write. So each answer that was sent is a checkpoint.
2. *This process.* A database can be restored under a running server, catalogue and ledger together. So the process
   neither notes nor signs a chain that does not contain the entry it remembers.
3. *The folder of checkpoints*, with the server's signature, for the case that catalogue and ledger are restored while
   the server is stopped. It is written at the start, and after `RELEASES` releases or `SECONDS` seconds. A checkpoint
   is only replaced by one of a history that contains it.

The ledger is written before the catalogue. If a process is killed in between, the catalogue knows less than the ledger,
which is consistent.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from deniable.errors import DeniableError, InvalidParameter, LedgerDamaged
from deniable.ledger import Ledger, write_checkpoint
from deniable.ledger.entries import Checkpoint
from deniable.ledger.keys import SigningKey
from deniable.ledger.ledger_export import NotedHead, newest_note
from deniable.ledger.stores.entry_rows import gone_back
from deniable.server.catalogue.catalogue import Catalogue, ReleaseRecord
from deniable.server.catalogue.catalogue_tables import WitnessedHead
from deniable.server.operations.file_locks import exclusive
from deniable.server.operations.settings import Settings
from deniable.server.problems import REPLACED, Problem

if TYPE_CHECKING:
    from deniable.ledger.ledger import Noted

RELEASES: Final = 100
"""A checkpoint of a family is signed after this many releases."""

SECONDS: Final = 30.0
"""Or this many seconds after the first of them."""

_COVERED: Final = 100_000
_LOG: Final = logging.getLogger("deniable.server")
_MISSING: Final = (
    "the signed checkpoint of this family is missing from the folder of checkpoints: restore the file {}.json. "
    "If it is lost for good, stop the server and run `deniable rotate --config ... --reason ...`: it signs a new one. "
    "Servers on one database share this folder"
)


@final
class Witness:
    """Remembers the newest entries of the server's ledgers. Threads may share it."""

    def __init__(self, settings: Settings, catalogue: Catalogue, key: SigningKey) -> None:
        assert settings.checkpoints is not None
        self._folder, self._catalogue, self._key = settings.checkpoints, catalogue, key
        self._noted: dict[str, NotedHead] = {}
        self._broken: dict[str, LedgerDamaged] = {}
        self._replaced: set[str] = set()
        self._covered: set[tuple[str, int]] = set()
        self._since: dict[str, int] = {}
        self._timers: dict[str, threading.Timer] = {}
        self._turn = threading.Lock()

    def known(self, family: str, *, lost: bool = False) -> list[Noted]:
        """The entries and checkpoints that the ledger of a family must contain.

        Raises Problem `ledger_damaged` if a signed checkpoint is missing, unless it may be `lost`.
        """
        place, head = self.place(family), self._catalogue.guards.head(family)
        if head is not None and head.signed and not place.exists() and not lost:
            raise Problem("ledger_damaged", _MISSING.format(family))
        notes: list[Noted] = [] if head is None else [NotedHead(head.serial, head.number, head.hash, None)]
        return [*notes, place] if place.exists() else notes

    def check(self, family: str) -> None:
        """Raise Problem `not_ready` if the ledger of a family refused this server's key because it was replaced."""
        if family in self._replaced:
            raise Problem("not_ready", REPLACED)

    def place(self, family: str) -> Path:
        """The file of the newest signed checkpoint of a family."""
        return self._folder / f"{family}.json"

    # -- noting --------------------------------------------------------------------------------------------------------

    def opened(self, family: str, ledger: Ledger) -> None:
        """Note and sign a ledger that was opened, and contains all of `known`."""
        self.note(family, ledger)
        with contextlib.suppress(
            DeniableError, OSError
        ):  # such as a full disk: the catalogue has the entry, and signing is tried again
            self.sign(family, ledger)

    def note(self, family: str, ledger: Ledger) -> None:
        """Note entries that are not releases: a limit, a name, a failed run. Raises LedgerDamaged after a rollback."""
        self._keep_head([], family, ledger)
        self._later(family, ledger)

    def released(
        self, family: str, ledger: Ledger, releases: list[ReleaseRecord], answered: list[ReleaseRecord]
    ) -> None:
        """Note answers before they are sent. `releases` are the new ones; `answered` are all, also replayed ones.

        Raises LedgerDamaged after a rollback.
        """
        seen = {(family, each.entry) for each in answered}
        if not releases and seen <= self._covered and family not in self._broken:
            return  # replays of answers that this process has noted
        again = [each for each in answered if each not in releases and (family, each.entry) not in self._covered]
        missing = [each for each in again if not self._is_noted(each, ledger)]
        # A process was killed after it sealed these and before it noted them. Without the note, the person who paid
        # would get neither a label nor rows.
        lost = [each for each in missing if (paid := ledger.charge(each.entry)) and paid.payer == each.person]
        self._keep_head(releases, family, ledger, lost)
        if len(self._covered) > _COVERED:
            self._covered.clear()
        self._covered |= seen - {(family, each.entry) for each in missing if each not in lost}
        self._later(family, ledger)

    def _is_noted(self, release: ReleaseRecord, ledger: Ledger) -> bool:
        """Whether the catalogue has this release, under any name of the data."""
        return any(self._catalogue.release(name, release.entry) is not None for name in ledger.names)

    def _keep_head(
        self, releases: list[ReleaseRecord], family: str, ledger: Ledger, lost: Iterable[ReleaseRecord] = ()
    ) -> None:
        """Store the newest entry. A ledger that lost entries while the server ran is refused until a restart.

        The check uses this process's memory: after a database is restored, catalogue and ledger agree with each other.
        """
        before = self._noted.get(family)
        # This process sealed new releases itself, and knows their place without reading.
        head = (ledger.reached if releases else None) or ledger.head
        if before is not None and family not in self._broken and not ledger.holds(before):
            self._broken[family] = gone_back(before.number)
        if family in self._broken:
            raise self._broken[family]
        self._catalogue.add_releases([*releases, *lost], WitnessedHead(family, head.serial, head.number, head.hash))
        with self._turn:
            self._noted[family] = max(head, self._noted.get(family, head), key=lambda each: each.number)

    # -- signing -------------------------------------------------------------------------------------------------------

    def checkpoint(self, family: str, ledger: Ledger) -> None:
        """Sign the newest entry, and store the signature as an entry of the ledger and in the folder of checkpoints."""
        with self._signing(family) as known:
            self._keep(family, ledger.checkpoint(self._key, after=known))

    def sign(self, family: str, ledger: Ledger) -> None:
        """Sign the newest entry, and store the signature in the folder of checkpoints only."""
        with self._signing(family) as known:
            self._keep(family, ledger.signed_head(self._key, after=known))

    @contextlib.contextmanager
    def _signing(self, family: str) -> Iterator[list[Noted]]:
        """Around signing: yields the entries that the history must contain, for one process at a time."""
        place = self.place(family)
        place.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(place.with_suffix(".lock")):  # so that the last process to write has the newest entry
            known: list[Noted] = [self._noted[family]] if family in self._noted else []
            try:
                yield [*known, place] if place.exists() else known
            except LedgerDamaged as error:
                self._broken.setdefault(family, error)
                raise
            except InvalidParameter as error:
                if error.parameter != "key":
                    raise
                self._replaced.add(family)
                raise Problem("not_ready", REPLACED) from None

    def _keep(self, family: str, checkpoint: Checkpoint) -> None:
        place = self.place(family)
        if not place.exists() or newest_note(place).number <= checkpoint.number:
            write_checkpoint(place, checkpoint)
        self._catalogue.guards.signed(family, checkpoint.number)

    def _later(self, family: str, ledger: Ledger) -> None:
        """Schedule a signature: after `RELEASES` releases, or `SECONDS` after the first."""
        with self._turn:
            many = self._since[family] = self._since.get(family, 0) + 1
            if family in self._timers and many != RELEASES:
                return
            if family in self._timers:
                self._timers.pop(family).cancel()
            timer = threading.Timer(0.0 if many >= RELEASES else SECONDS, self._sign_now, (family, ledger))
            timer.daemon = True
            self._timers[family] = timer
            timer.start()

    def _sign_now(self, family: str, ledger: Ledger) -> None:
        with self._turn:
            self._timers.pop(family, None)
            self._since.pop(family, None)
        try:
            self.sign(family, ledger)
        except (DeniableError, Problem, OSError):
            _LOG.warning(
                "the checkpoint of family %s could not be signed; the server tries again after the next answer", family
            )

    def close(self) -> None:
        """Cancel scheduled signatures."""
        with self._turn:
            timers, self._timers = list(self._timers.values()), {}
        for each in timers:
            each.cancel()
