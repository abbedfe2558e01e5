"""How far each ledger was, kept apart from the ledgers: an older copy that is put back is seen.

The catalogue has the newest entry of each family, its number and hash. It is written when a ledger is opened, in the
same transaction in which a release is noted, and after whatever else was written: so every answer that ever left is a
checkpoint. The ledger comes first: a process that is killed between the two leaves a catalogue that knows less, and
that is no contradiction. The folder of checkpoints has the same with the server's signature, at the start and then
after so many releases or seconds, for the case that catalogue and ledgers are put back together.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from deniable.errors import DeniableError, InvalidParameter, LedgerDamaged
from deniable.ledger import Ledger, write_checkpoint
from deniable.ledger.entries import Checkpoint
from deniable.ledger.export import Note
from deniable.ledger.keys import SigningKey
from deniable.server.catalogue import Catalogue, ReleaseRecord
from deniable.server.guards import Head
from deniable.server.locks import exclusive
from deniable.server.problems import REPLACED, Problem
from deniable.server.settings import Settings

if TYPE_CHECKING:
    from deniable.ledger.ledger import Noted

RELEASES: Final = 100
"""After so many of one family a checkpoint is signed."""

SECONDS: Final = 30.0
"""Or after so long, if there was any."""

_COVERED: Final = 100_000
_LOG: Final = logging.getLogger("deniable.server")
_RESTART: Final = "put back the newest copy of this ledger, and restart the server"
_MISSING: Final = (
    "this family had a signed checkpoint, and the folder of checkpoints has it no more: put the file {}.json back. "
    "If it is lost for good, stop the server and run `deniable rotate --config ... --reason ...`: it signs a new one. "
    "Servers on one database share this folder"
)


@final
class Witness:
    """What this server knows of its ledgers. Threads may share it."""

    def __init__(self, settings: Settings, catalogue: Catalogue, key: SigningKey) -> None:
        assert settings.checkpoints is not None
        self._folder, self._catalogue, self._key = settings.checkpoints, catalogue, key
        self._noted: dict[str, int] = {}
        self._broken: dict[str, LedgerDamaged] = {}
        self._replaced: set[str] = set()
        self._covered: set[tuple[str, int]] = set()
        self._since: dict[str, int] = {}
        self._timers: dict[str, threading.Timer] = {}
        self._turn = threading.Lock()

    def known(self, family: str, *, lost: bool = False) -> list[Noted]:
        """What the ledger of a family must contain. Problem `ledger_damaged` where a checkpoint was taken away, unless
        it may be `lost`.
        """
        place, head = self.place(family), self._catalogue.guards.head(family)
        if head is not None and head.signed and not place.exists() and not lost:
            raise Problem("ledger_damaged", _MISSING.format(family))
        notes: list[Noted] = [] if head is None else [Note(head.serial, head.number, head.hash, None)]
        return [*notes, place] if place.exists() else notes

    def check(self, family: str) -> None:
        """Problem `not_ready` where the ledger of a family did not let this server sign: its key was replaced there."""
        if family in self._replaced:
            raise Problem("not_ready", REPLACED)

    def place(self, family: str) -> Path:
        """Where the newest signed checkpoint of a family is kept."""
        return self._folder / f"{family}.json"

    # -- noting --------------------------------------------------------------------------------------------------------

    def opened(self, family: str, ledger: Ledger) -> None:
        """A ledger that holds all that was known of it."""
        self.note(family, ledger)
        with contextlib.suppress(DeniableError, OSError):  # a full disk: the catalogue knows it, and it is tried again
            self.sign(family, ledger)

    def note(self, family: str, ledger: Ledger) -> None:
        """Something was written that is no release: a limit, a name, a failed run."""
        self._keep_head([], family, ledger)
        self._later(family, ledger)

    def released(self, family: str, ledger: Ledger, releases: list[ReleaseRecord], entries: list[int]) -> None:
        """These answers are about to leave; `entries` paid for them, now or before."""
        seen = {(family, entry) for entry in entries}
        if not releases and seen <= self._covered and family not in self._broken:
            return  # a replay of what was noted by this process
        self._keep_head(releases, family, ledger)
        if len(self._covered) > _COVERED:
            self._covered.clear()
        self._covered |= seen
        self._later(family, ledger)

    def _keep_head(self, releases: list[ReleaseRecord], family: str, ledger: Ledger) -> None:
        """Write how far the ledger is. One that went back below an open server is not believed until it is restarted.

        A database can be restored while the server runs: it connects again, and catalogue and ledger agree.
        """
        before = self._noted.get(family, 0)  # looked up first: others may note more while the ledger is read
        head = ledger.head
        if head.number < before:
            fault = f"is missing: {before} entries were there while this server ran"
            self._broken[family] = LedgerDamaged(head.number + 1, fault, _RESTART)
        if family in self._broken:
            raise self._broken[family]
        self._catalogue.add_releases(releases, Head(family, head.serial, head.number, head.hash))
        with self._turn:
            self._noted[family] = max(head.number, self._noted.get(family, 0))

    # -- signing -------------------------------------------------------------------------------------------------------

    def checkpoint(self, family: str, ledger: Ledger) -> None:
        """Sign everything up to now, in the chain too, and keep that where the ledger is not."""
        with self._signing(family):
            self._keep(family, ledger.checkpoint(self._key))

    def sign(self, family: str, ledger: Ledger) -> None:
        """The same without an entry of the chain."""
        with self._signing(family):
            self._keep(family, ledger.signed_head(self._key))

    @contextlib.contextmanager
    def _signing(self, family: str) -> Iterator[None]:
        place = self.place(family)
        place.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(place.with_suffix(".lock")):  # what is noted last, in all processes, must be the newest
            try:
                yield
            except InvalidParameter as error:
                if error.parameter != "key":
                    raise
                self._replaced.add(family)
                raise Problem("not_ready", REPLACED) from None

    def _keep(self, family: str, checkpoint: Checkpoint) -> None:
        write_checkpoint(self.place(family), checkpoint)
        self._catalogue.guards.signed(family, checkpoint.number)

    def _later(self, family: str, ledger: Ledger) -> None:
        """Sign it soon: after so many releases, or so long after the first."""
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
                "no checkpoint of family %s could be signed; the next one is tried after its next answer", family
            )

    def close(self) -> None:
        """Nothing is signed any more."""
        with self._turn:
            timers, self._timers = list(self._timers.values()), {}
        for each in timers:
            each.cancel()


def refused(family: str) -> LedgerDamaged:
    """What is said of a ledger that is not there."""
    fault = f"is missing: the ledger of family {family} is gone, and entries of it are known"
    return LedgerDamaged(1, fault, "put back its newest copy; a new one would forget what was spent")
