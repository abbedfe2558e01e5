"""Replaces the signing key of a server: the old key vouches for the new one in every ledger, then the file is replaced.

If a run is interrupted, the next run finishes it: the new key waits in a separate file until every ledger has it. Until
then the server refuses ledgers that already have the new key.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from deniable.ledger import Ledger, keys
from deniable.server.catalogue.catalogue import Catalogue
from deniable.server.datasets.ledger_witness import Witness
from deniable.server.datasets.open_datasets import ledger_place
from deniable.server.operations.server_identity import identified, is_key, replaced
from deniable.server.operations.settings import Settings
from deniable.server.operations.state_holding import stopped


def rotate(settings: Settings, *, by: str, reason: str) -> tuple[keys.PublicKey, int]:
    """Replace the key; `by` and `reason` go into the ledgers. Returns the new public key and the number of ledgers.

    Raises LedgerUnavailable while the server runs.
    """
    catalogue = Catalogue(settings.database or settings.state / "catalogue.sqlite")
    try:
        with stopped(settings.state, catalogue, "rotate"):
            return _rotated(settings, catalogue, by, reason)
    finally:
        catalogue.close()


def _rotated(settings: Settings, catalogue: Catalogue, by: str, reason: str) -> tuple[keys.PublicKey, int]:
    place, waiting = settings.state / "server.key", settings.state / "server.next.key"
    if not (
        waiting.exists() and is_key(catalogue, keys.read(waiting))
    ):  # otherwise the last run was interrupted just before its end
        identified(settings, catalogue)
    old = keys.read(place)
    new = keys.read(waiting) if waiting.exists() else keys.new(waiting)
    families = {record.family: record.name for record in catalogue.datasets()}
    _in_ledgers(settings, Witness(settings, catalogue, new), families, old, new, by, reason)
    replaced(catalogue, old, new)
    _kept(place, old.public)
    half = settings.state / ".server.pub"
    half.write_bytes(new.public.pem())
    half.replace(place.with_suffix(".pub"))
    waiting.replace(place)  # from here on the rotation is complete
    waiting.with_suffix(".pub").unlink(missing_ok=True)
    return new.public, len(families)


def _in_ledgers(
    settings: Settings,
    witness: Witness,
    families: dict[str, str],
    old: keys.SigningKey,
    new: keys.SigningKey,
    by: str,
    reason: str,
) -> None:
    """Let the old key vouch for the new one in the ledger of every family. Refuses a ledger that was rolled back.

    A lost checkpoint is signed again: the operator runs this command on purpose, and the ledger records it.
    """
    place = settings.state / "server.key"
    for family, name in families.items():
        known = witness.known(family, lost=True)
        with Ledger.open(ledger_place(settings, family), dataset=name, family=family, checkpoint=known) as ledger:
            if ledger.owner != new.public:
                ledger.rotate(new.public, by=by, reason=reason, key=_signer(place, old, ledger))
            witness.checkpoint(family, ledger)
            witness.note(family, ledger)
    witness.close()


def _signer(place: Path, old: keys.SigningKey, ledger: Ledger) -> keys.SigningKey:
    """The key that a ledger has as its owner: an older one if its server was not stopped during the last rotation."""
    kept = [] if ledger.owner is None else [place.with_name(f"server.{ledger.owner.hex[:16]}.key")]
    return next((found for path in kept if path.exists() and (found := keys.read(path)).public == ledger.owner), old)


def _kept(place: Path, public: keys.PublicKey) -> None:
    """Keep a copy of the old key under another name: auditors start from its public half."""
    for suffix in (".key", ".pub"):
        copy = place.with_name(f"server.{public.hex[:16]}{suffix}")
        if not copy.exists():
            shutil.copy2(place.with_suffix(suffix), copy)
