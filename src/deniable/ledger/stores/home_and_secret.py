"""What a ledger keeps beside its chain: its home, and a secret.

Neither is an entry, and neither is exported. The home is the place of the file; see `ledger_places`. The secret seeds
the random choices that are made when a table is read (which rows of a person are kept, the name of a version of the
data), so that they are the same each time the table is read.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256

from deniable.errors import LedgerDamaged
from deniable.ledger.entries import State
from deniable.ledger.stores.entry_rows import RESTORE
from deniable.ledger.stores.ledger_places import here, lacks_birth, left_behind, moved_from, refused
from deniable.ledger.stores.store import Store, Transaction

__all__ = ["check_log", "derived", "secret_of", "settle"]

_HOME, _SECRET = "home", "secret"


def settle(store: Store, moved: str | None, secret: bytes | None = None) -> None:
    """Check that the ledger is at its home, and store its home and secret if they are missing.

    A new ledger, or one of an older version, gets the place where it is opened as its home. A home without the time at
    which the file was made gets that time. LedgerUnavailable if the home is elsewhere and `moved` is None.
    """
    with store.reading() as transaction:
        if transaction.own(_SECRET) is not None and _is_home(store, transaction.own(_HOME)):
            return
    store.write(lambda transaction: _settled(store, transaction, moved, secret or secrets.token_bytes(32)))
    store.flush()  # SQLite finds the log by the name of the file, so the home must not be in the log alone


def check_log(store: Store) -> None:
    """Raise LedgerUnavailable if a file was renamed without its log, which has the newest entries."""
    if store.file is None:
        return
    with store.reading() as transaction:
        home = transaction.own(_HOME)
    before = None if home is None else moved_from(home, store.file)
    waiting = None if before is None else left_behind(store.file, before)
    if waiting is not None:
        raise waiting


def _is_home(store: Store, home: str | None) -> bool:
    """Whether this ledger is at its home, and the home is recorded completely."""
    if store.file is None:
        return True
    return home is not None and moved_from(home, store.file) is None and not lacks_birth(home, store.file)


def _settled(store: Store, transaction: Transaction, moved: str | None, secret: bytes) -> None:
    if transaction.own(_SECRET) is None:
        transaction.keep(_SECRET, secret.hex())
    file, home = store.file, transaction.own(_HOME)
    if file is None or _is_home(store, home):
        return
    if home is not None and (before := moved_from(home, file)) is not None:
        if moved is None:
            raise refused(file, before)
        if (waiting := left_behind(file, before)) is not None:
            raise waiting
        transaction.append(state=State.MOVED, description=moved, spent=transaction.spent())
    transaction.keep(_HOME, here(file))


def secret_of(transaction: Transaction) -> bytes:
    """The secret of the ledger; LedgerDamaged if it is missing."""
    kept = transaction.own(_SECRET)
    if kept is None:
        raise LedgerDamaged(None, "has lost its secret", RESTORE)
    return bytes.fromhex(kept)


def derived(secret: bytes, purpose: str) -> bytes:
    """A secret for one purpose (HMAC-SHA-256): it reveals nothing about the secrets for other purposes."""
    return hmac.new(secret, purpose.encode(), sha256).digest()
