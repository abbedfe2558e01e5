"""How far each ledger was, kept apart from the ledgers: an older copy that is put back is seen.

The catalogue has the newest entry of each family, its number and hash. It is written when a ledger is opened, in the
same transaction in which a release is noted, and after whatever else was written: so every answer that ever left is a
checkpoint. This process remembers it too, and nothing is noted or signed of a chain that has not come past there: a
database can be restored, with its catalogue, below a server that runs. The ledger comes first: a process that is killed
between the two leaves a catalogue that knows less, and that is no contradiction. The folder of checkpoints has the same
with the server's signature, at the start and then after so many releases or seconds, for the case that catalogue and
ledgers are put back together; no checkpoint is replaced by one of a history that does not have it.
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
from deniable.ledger.ledger_export import Note, newest_note
from deniable.ledger.stores.entry_rows import gone_back
from deniable.server.catalogue.catalogue import Catalogue, ReleaseRecord
from deniable.server.catalogue.catalogue_tables import WitnessedHead
from deniable.server.operations.file_locks import exclusive
from deniable.server.operations.settings import Settings
from deniable.server.problems import REPLACED, Problem

if TYPE_CHECKING:
    from deniable.ledger.ledger import Noted

RELEASES: Final = 100
"""After so many of one family a checkpoint is signed."""

SECONDS: Final = 30.0
"""Or after so long, if there was any."""

_COVERED: Final = 100_000
_LOG: Final = logging.getLogger("deniable.server")
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
        self._noted: dict[str, Note] = {}
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

    def released(self, family: str, ledger: Ledger, releases: list[ReleaseRecord], told: list[ReleaseRecord]) -> None:
        """These answers are about to leave: `releases` are new, and of what is `told` some may be paid for before."""
        seen = {(family, each.entry) for each in told}
        if not releases and seen <= self._covered and family not in self._broken:
            return  # a replay of what was noted by this process
        again = [each for each in told if each not in releases and (family, each.entry) not in self._covered]
        missing = [each for each in again if not self._is_noted(each, ledger)]
        # A process ended after it had sealed these and before it noted them. Whoever paid is told them again, and would
        # get neither a label nor rows of them without the note.
        lost = [each for each in missing if (paid := ledger.charge(each.entry)) and paid.payer == each.person]
        self._keep_head(releases, family, ledger, lost)
        if len(self._covered) > _COVERED:
            self._covered.clear()
        self._covered |= seen - {(family, each.entry) for each in missing if each not in lost}
        self._later(family, ledger)

    def _is_noted(self, release: ReleaseRecord, ledger: Ledger) -> bool:
        """Whether the catalogue knows of this charge, under any name of the data."""
        return any(self._catalogue.release(name, release.entry) is not None for name in ledger.names)

    def _keep_head(
        self, releases: list[ReleaseRecord], family: str, ledger: Ledger, lost: Iterable[ReleaseRecord] = ()
    ) -> None:
        """Write how far the ledger is. One that went back below an open server is not believed until it is restarted.

        A database can be restored while the server runs: it connects again, and catalogue and ledger agree.
        """
        before = self._noted.get(family)
        # What was just released was sealed by this process, which knows where that was: nothing is read.
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
        """Sign everything up to now, in the chain too, and keep that where the ledger is not."""
        with self._signing(family) as known:
            self._keep(family, ledger.checkpoint(self._key, after=known))

    def sign(self, family: str, ledger: Ledger) -> None:
        """The same without an entry of the chain."""
        with self._signing(family) as known:
            self._keep(family, ledger.signed_head(self._key, after=known))

    @contextlib.contextmanager
    def _signing(self, family: str) -> Iterator[list[Noted]]:
        """What must be in a history that is signed now: what this process noted, and the checkpoint to be replaced."""
        place = self.place(family)
        place.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(place.with_suffix(".lock")):  # what is noted last, in all processes, must be the newest
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
