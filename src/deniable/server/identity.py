"""Who a server is: the key that it signs with, and the secret by which it knows data again.

With another secret all data would be new and get a fresh budget. So the secret is kept with what was spent, in the
catalogue, beside the public half of the key. The private key is kept in the folder `state`, and nowhere else: its
signatures are evidence against whoever can write the database, so the database must not be able to sign. The secret is
encrypted with it, so that a copy of the database alone tells nobody whose ids are in the data. A server that has one of
the two and not the other does not start, and makes nothing anew.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from deniable.errors import DeniableError, LedgerMismatch, LedgerUnavailable, UnreadableRecord
from deniable.ledger import Checkpoint, Cost, Ledger, State, keys
from deniable.ledger.places import here, moved_from, resolved
from deniable.ledger.settling import derived
from deniable.server.catalogue import Catalogue, DatasetRecord
from deniable.server.datasets import ledger_place
from deniable.server.families import sure_marks
from deniable.server.holding import stopped
from deniable.server.settings import Settings

_KEY, _MARKS, _HOME = "key", "marks", "home"
_NONCE: Final = 12
_COPY: Final = (
    "copy the folder `state` of the server that began with this database here, or restore it; a key is replaced by "
    "`deniable rotate`, where the old one is. Nothing is made anew: known data would get a fresh budget"
)


def identified(settings: Settings, catalogue: Catalogue) -> tuple[keys.SigningKey, bytes]:
    """The key and the secret of this server: made when it first starts, and the same ever after.

    Several that start at the same moment agree: one of them makes both. LedgerUnavailable or LedgerMismatch where
    folder and database do not belong together.
    """
    with catalogue.registering():
        kept = catalogue.guards.own()
        _at_home(catalogue, kept.get(_HOME))
        if _KEY in kept:
            key = _key_of(settings.state, kept[_KEY])
            return key, _opened(kept[_MARKS], key)
        key, secret = _first(settings, catalogue)
        catalogue.guards.keep(_sealed(key, secret))
        return key, secret


def replaced(catalogue: Catalogue, old: keys.SigningKey, new: keys.SigningKey) -> None:
    """The key is another one from now on. Nothing is done where that was done before."""
    kept = catalogue.guards.own()
    if kept[_KEY] != new.public.hex:
        catalogue.guards.keep(_sealed(new, _opened(kept[_MARKS], old)))


def is_key(catalogue: Catalogue, key: keys.SigningKey) -> bool:
    """Whether this is the key that the catalogue knows."""
    return catalogue.guards.own().get(_KEY) == key.public.hex


def moved(settings: Settings, reason: str) -> int:
    """The state of a server that is stopped is at home where it is from now on; how many ledgers were elsewhere."""
    catalogue = Catalogue(settings.database or settings.state / "catalogue.sqlite")
    try:
        with stopped(settings.state, catalogue, "moved"):
            families = {record.family: record.name for record in catalogue.datasets()}
            many = sum(_moved(settings, family, name, reason) for family, name in families.items())
            if catalogue.file is not None:  # last: until then the server does not start, and this can be done again
                catalogue.guards.keep({_HOME: here(resolved(catalogue.file))})
            return many
    finally:
        catalogue.close()


def _moved(settings: Settings, family: str, name: str, reason: str) -> bool:
    """Whether the ledger of a family was elsewhere; it is at home here now."""
    with Ledger.inspect(ledger_place(settings, family), dataset=name) as before:
        known = before.verify()
    with Ledger.open(ledger_place(settings, family), dataset=name, moved=reason) as ledger:
        newest = known.number if known else 0
        return any(each.state is State.MOVED and each.number > newest for each in ledger.entries())


def strays(settings: Settings, catalogue: Catalogue) -> set[tuple[str, str]]:
    """Families of which something was spent, by a ledger or a checkpoint, and of which the catalogue knows nothing.

    Each with an empty name; and each family that it knows with the names in its ledger that the catalogue has
    forgotten, where something was spent since the ledger got the name.
    """
    records = catalogue.datasets()
    known, names = {record.family for record in records}, {record.name for record in records}
    assert settings.checkpoints is not None
    notes = [path for path in settings.checkpoints.glob("*.json") if path.stem not in known]
    found = {(each.stem, "") for each in notes if _spent(each)}
    for family, place, name in _ledgers(settings):
        forgotten = _forgotten(place, name, names)
        if family not in known:
            found |= {(family, "")} if forgotten else set()
        else:
            found |= {(family, each) for each in forgotten if each}  # a damaged ledger stops its own data alone
    return found


# -- folder and database -----------------------------------------------------------------------------------------------


def _key_of(state: Path, known: str) -> keys.SigningKey:
    """The key of the folder, if it is the one that the catalogue knows."""
    place, waiting = state / "server.key", state / "server.next.key"
    if waiting.exists() and keys.read(waiting).public.hex == known:
        fact = "the signing key was replaced, and that was broken off before its end"
        raise LedgerUnavailable(fact, "finish it: deniable rotate --config ...")
    if not place.exists():
        raise LedgerUnavailable(
            f"the database knows a server with the key {known}, and `state` has no server.key", _COPY
        )
    found = keys.read(place)
    if found.public.hex != known:
        raise LedgerMismatch("server.key", found.public.hex, known, _COPY)
    return found


def _first(settings: Settings, catalogue: Catalogue) -> tuple[keys.SigningKey, bytes]:
    """The key and the secret of a catalogue that knows of none: it is new, or from before they were written into it."""
    place, datasets = settings.state / "server.key", sorted(catalogue.datasets(), key=lambda each: each.made)
    if not datasets:
        if lost := {family for family, _ in strays(settings, catalogue)}:
            fact = (
                f"there are ledgers or checkpoints in which something was spent (families: {len(lost)}), "
                "and the catalogue knows nothing of them"
            )
            remedy = "restore the catalogue, or the `database` of the settings; if they are another server's, choose"
            raise LedgerUnavailable(fact, f"{remedy} other folders. Known data would get a fresh budget")
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
    fact = "the secret that data is known by (marks.secret in `state`) is not the one of this catalogue"
    raise LedgerUnavailable(fact, _COPY)


def _signers(settings: Settings, datasets: list[DatasetRecord]) -> list[keys.PublicKey]:
    """The keys of the oldest ledger that can be read: whoever made it is the server of this catalogue."""
    for record in datasets:
        try:
            with Ledger.inspect(ledger_place(settings, record.family), dataset=record.name) as ledger:
                if found := ledger.keys:
                    return found
        except DeniableError:
            continue
    raise LedgerUnavailable("not one of the ledgers that the catalogue knows can be read", "restore them from a copy")


def _secrets(state: Path, key: keys.SigningKey) -> Iterator[bytes]:
    """What the secret may be: it was a file of its own, and before that it was made from the first key."""
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
    """LedgerUnavailable if the file of the catalogue is a copy: two of them would both give budgets away."""
    if catalogue.file is None:
        return
    place = resolved(catalogue.file)
    if home is None:
        catalogue.guards.keep({_HOME: here(place)})
    elif (before := moved_from(home, place)) is not None:
        fact = f"the catalogue {str(place)!r} is at home elsewhere, or was copied there: it is the one of {before!r}"
        if before == str(place):
            fact = f"the catalogue {before!r} is another file than the one that was here: it was restored or copied"
        remedy = (
            "use the one at home; if this folder alone is used from now on: deniable moved --config ... --reason '...'"
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


# -- what was spent ----------------------------------------------------------------------------------------------------


def _ledgers(settings: Settings) -> Iterator[tuple[str, str | Path, str | None]]:
    """The ledgers of the server: the family of each, where it is, and a name to find it by where there are several."""
    for path in (settings.state / "ledgers").glob("*.ledger"):
        yield path.stem, path, None
    if settings.database is not None:
        from deniable.ledger.database import held

        for heading in held(settings.database):
            # A database may hold ledgers of others as well; the server names a family and an owner for each of its own.
            if heading.linked_as is not None and heading.owner is not None:
                yield heading.family, settings.database, heading.dataset


def _forgotten(place: str | Path, name: str | None, known: set[str]) -> set[str]:
    """The names in a ledger that are not known, where something was spent since it got them.

    A name since which nobody was charged was left by a registration that was broken off. A ledger that cannot be read
    has forgotten names for all that can be told: the empty one.
    """
    try:
        with Ledger.inspect(place, dataset=name) as ledger:
            if known.issuperset(ledger.names):
                return set()
            before = {each.name: each.spent for each in ledger.entries() if each.state is State.LINKED}
            charged = ledger.charged
            return {each for each in ledger.names if each not in known and charged != before.get(each, Cost(0, 0))}
    except DeniableError:
        return {""}


def _spent(path: Path) -> bool:
    try:
        return Checkpoint.read(json.loads(path.read_text(encoding="ascii"))).spent != Cost(0, 0)
    except (DeniableError, OSError, ValueError):
        return True
