"""The identity of a server: the key that it signs with, and the secret by which it recognises data.

- *The secret* keys the marks by which data is recognised (`datasets.data_marks`). With another secret, known data would
  look new and get a fresh budget. So the secret is stored in the catalogue, next to the records of spending. It is
  encrypted with the private key, so that a copy of the database alone does not reveal whose ids are in the data.
- *The private key* is stored only in the folder `state`. Its signatures are evidence against a person who can write to
  the database, so the database must not hold it. The catalogue stores the public key.
- *The folder* stores the id of its catalogue from the first registration on, because with an empty catalogue all
  spending would be forgotten.

A server whose folder and catalogue do not belong together does not start, and creates nothing.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from deniable.errors import DeniableError, LedgerMismatch, LedgerUnavailable, UnreadableRecord
from deniable.ledger import Ledger, State, keys
from deniable.ledger.stores.home_and_secret import derived
from deniable.ledger.stores.ledger_places import here, moved_from, resolved
from deniable.server.catalogue.catalogue import Catalogue, DatasetRecord
from deniable.server.datasets.data_marks import sure_marks
from deniable.server.datasets.forgotten_spending import strays
from deniable.server.datasets.open_datasets import ledger_place
from deniable.server.operations.settings import Settings
from deniable.server.operations.state_holding import stopped

_KEY, _MARKS, _HOME, _ID = "key", "marks", "home", "id"
_NONCE: Final = 12
_COPY: Final = (
    "restore the folder `state` of the server that created this database, or copy it here; to replace a key, run "
    "`deniable rotate` with the folder of the old key. The server creates no new key or secret, because known data "
    "would get a fresh budget"
)
_OTHER: Final = (
    "restore the catalogue, or name in the settings the `database` that this folder was used with; for a new server, "
    "choose another `state`. Otherwise known data would get a fresh budget"
)


def identified(settings: Settings, catalogue: Catalogue) -> tuple[keys.SigningKey, bytes]:
    """The key and the secret of this server, which are created at its first start.

    Processes that start at the same time get the same ones. Raises LedgerUnavailable or LedgerMismatch if folder and
    database do not belong together.
    """
    with catalogue.registering():
        kept = catalogue.guards.own()
        _at_home(catalogue, kept.get(_HOME))
        if _KEY in kept:
            key = _key_of(settings.state, kept[_KEY])
            secret = _opened(kept[_MARKS], key)
        else:
            key, secret = _first(settings, catalogue)
            catalogue.guards.keep(_sealed(key, secret))
        if catalogue.datasets():
            claim(settings.state, catalogue)
        return key, secret


def claim(state: Path, catalogue: Catalogue) -> None:
    """Bind the folder to this catalogue, before anything can be spent. The caller holds `Catalogue.registering`.

    Raises LedgerUnavailable if the folder belongs to another catalogue.
    """
    place, known = _belongs(state), catalogue.guards.own().get(_ID)
    noted = place.read_text(encoding="ascii") if place.exists() else None
    if known is None:  # a new catalogue, or one of an old version, which had no id
        known = noted or secrets.token_hex(16)
        catalogue.guards.keep({_ID: known})
    if noted is None:
        half = place.with_suffix(f".{secrets.token_hex(8)}")
        with half.open("x", encoding="ascii") as file:
            file.write(known)
            file.flush()
            os.fsync(file.fileno())
        half.replace(place)
    elif noted != known:
        raise LedgerUnavailable("the folder `state` belongs to another database", _OTHER)


def replaced(catalogue: Catalogue, old: keys.SigningKey, new: keys.SigningKey) -> None:
    """Store the new public key, and encrypt the secret with the new key. Does nothing if that was done before."""
    kept = catalogue.guards.own()
    if kept[_KEY] != new.public.hex:
        catalogue.guards.keep(_sealed(new, _opened(kept[_MARKS], old)))


def is_key(catalogue: Catalogue, key: keys.SigningKey) -> bool:
    """Whether this key is the server's, according to the catalogue."""
    return catalogue.guards.own().get(_KEY) == key.public.hex


def moved(settings: Settings, reason: str) -> int:
    """Declare the present place of a stopped server's state as its home. Returns how many ledgers were moved.

    Raises LedgerUnavailable while the server runs.
    """
    catalogue = Catalogue(settings.database or settings.state / "catalogue.sqlite")
    try:
        with stopped(settings.state, catalogue, "moved"):
            families = {record.family: record.name for record in catalogue.datasets()}
            many = sum(_moved(settings, family, name, reason) for family, name in families.items())
            if catalogue.file is not None:  # last: until then the server does not start, and this can be repeated
                catalogue.guards.keep({_HOME: here(resolved(catalogue.file))})
            return many
    finally:
        catalogue.close()


def _moved(settings: Settings, family: str, name: str, reason: str) -> bool:
    """Declare the present place of a family's ledger as its home; whether it was another one before."""
    with Ledger.inspect(ledger_place(settings, family), dataset=name) as before:
        known = before.verify()
    with Ledger.open(ledger_place(settings, family), dataset=name, moved=reason) as ledger:
        newest = known.number if known else 0
        return any(each.state is State.MOVED and each.number > newest for each in ledger.entries())


# -- folder and database -----------------------------------------------------------------------------------------------


def _belongs(state: Path) -> Path:
    """The file with the id of the folder's catalogue."""
    return state / "catalogue.id"


def _key_of(state: Path, known: str) -> keys.SigningKey:
    """The key in the folder. Raises if it is missing, or not `known`, the key of the catalogue."""
    place, waiting = state / "server.key", state / "server.next.key"
    if waiting.exists() and keys.read(waiting).public.hex == known:
        fact = "the replacement of the signing key was interrupted before it was complete"
        raise LedgerUnavailable(fact, "finish it: deniable rotate --config ...")
    if not place.exists():
        raise LedgerUnavailable(
            f"the database belongs to a server with the key {known}, and `state` has no server.key", _COPY
        )
    found = keys.read(place)
    if found.public.hex != known:
        raise LedgerMismatch("server.key", found.public.hex, known, _COPY)
    return found


def _first(settings: Settings, catalogue: Catalogue) -> tuple[keys.SigningKey, bytes]:
    """The key and the secret for a catalogue without them: a new one, or one of an old version."""
    place, datasets = settings.state / "server.key", sorted(catalogue.datasets(), key=lambda each: each.made)
    if not datasets:
        if _belongs(settings.state).exists():
            raise LedgerUnavailable(
                "the folder `state` belongs to a catalogue with datasets, and this catalogue is empty", _OTHER
            )
        if lost := {family for family, _ in strays(settings, catalogue)}:
            fact = (
                f"ledgers or checkpoints with spending exist (families: {len(lost)}), "
                "and the catalogue does not contain them"
            )
            remedy = (
                "restore the catalogue, or the `database` of the settings; if they belong to another server, choose"
            )
            raise LedgerUnavailable(fact, f"{remedy} other folders. Otherwise known data would get a fresh budget")
        key = keys.read(place) if place.exists() else keys.new(place)
        return key, next(_secrets(settings.state, key))
    if not place.exists():
        raise LedgerUnavailable("the catalogue has datasets, and `state` has no server.key", _COPY)
    key = keys.read(place)
    signers = _signers(settings, datasets)
    if key.public not in signers:
        raise LedgerMismatch("server.key", key.public.hex, signers[-1].hex, _COPY)
    for secret in _secrets(settings.state, key):
        if _recognises(catalogue, datasets[0], secret):
            return key, secret
    fact = "the secret by which data is recognised (marks.secret in `state`) does not belong to this catalogue"
    raise LedgerUnavailable(fact, _COPY)


def _signers(settings: Settings, datasets: list[DatasetRecord]) -> list[keys.PublicKey]:
    """The keys of the oldest readable ledger. The server of this catalogue has the last of them."""
    for record in datasets:
        try:
            with Ledger.inspect(ledger_place(settings, record.family), dataset=record.name) as ledger:
                if found := ledger.keys:
                    return found
        except DeniableError:
            continue
    raise LedgerUnavailable("none of the ledgers in the catalogue can be read", "restore them from a copy")


def _secrets(state: Path, key: keys.SigningKey) -> Iterator[bytes]:
    """Candidates for the secret: old versions kept it in a file, and still older ones derived it from the first key."""
    if (place := state / "marks.secret").exists():
        yield place.read_bytes()
    older = (keys.read(path) for path in sorted(state.glob("server.*.key")) if path.name != "server.next.key")
    for each in (key, *older):
        yield sha256(b"marks of families" + each.pem()).digest()


def _recognises(catalogue: Catalogue, record: DatasetRecord, secret: bytes) -> bool:
    wanted = {
        mark
        for table, path in record.sources.items()
        for mark in sure_marks(secret, record.contents.get(table, ""), path)
    }
    return record.family in catalogue.marked(wanted)


def _at_home(catalogue: Catalogue, home: str | None) -> None:
    """Raise LedgerUnavailable if the file of the catalogue is a copy: two copies would both grant the budget."""
    if catalogue.file is None:
        return
    place = resolved(catalogue.file)
    if home is None:
        catalogue.guards.keep({_HOME: here(place)})
    elif (before := moved_from(home, place)) is not None:
        fact = f"the catalogue {str(place)!r} belongs to the path {before!r}: it was moved or copied"
        if before == str(place):
            fact = f"the catalogue {before!r} is not the file that was here before: it was restored or copied"
        remedy = (
            "use the catalogue at its own path; if only this folder is used from now on, run "
            "deniable moved --config ... --reason '...'"
        )
        raise LedgerUnavailable(fact, remedy)


# -- what is kept ------------------------------------------------------------------------------------------------------


def _sealed(key: keys.SigningKey, secret: bytes) -> dict[str, str]:
    nonce = secrets.token_bytes(_NONCE)
    hidden = _cipher(key).encrypt(nonce, secret, key.public.hex.encode())
    return {_KEY: key.public.hex, _MARKS: (nonce + hidden).hex()}


def _opened(kept: str, key: keys.SigningKey) -> bytes:
    try:
        raw = bytes.fromhex(kept)
        return _cipher(key).decrypt(raw[:_NONCE], raw[_NONCE:], key.public.hex.encode())
    except (InvalidTag, ValueError):
        raise UnreadableRecord("the secret in the catalogue was changed; restore the catalogue from a copy") from None


def _cipher(key: keys.SigningKey) -> AESGCM:
    return AESGCM(derived(key.pem(), "the secret of marks"))
