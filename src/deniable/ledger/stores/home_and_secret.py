"""What a ledger keeps beside its chain: where it is at home, and a secret of its own.

Neither is an entry, neither is exported. The secret is there so that what was decided by chance when a table was read
is decided alike when it is read again: which rows of a person are kept, and what a version of the data is called.
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
    """See to it that the ledger is at home where it was opened, and that it has a secret.

    One that has no home yet (it is new, or an older version made it) gets the place where it is, and a home without a
    time of birth gets that. LedgerUnavailable if it is at home elsewhere, unless `moved` says why.
    """
    with store.reading() as transaction:
        if transaction.own(_SECRET) is not None and _is_home(store, transaction.own(_HOME)):
            return
    store.write(lambda transaction: _settled(store, transaction, moved, secret or secrets.token_bytes(32)))
    store.flush()  # the log is found by the name of the file; what says where that is must not be in the log alone


def check_log(store: Store) -> None:
    """LedgerUnavailable if the newest entries of a file that is looked at stayed behind, under the name it had."""
    if store.file is None:
        return
    with store.reading() as transaction:
        home = transaction.own(_HOME)
    before = None if home is None else moved_from(home, store.file)
    waiting = None if before is None else left_behind(store.file, before)
    if waiting is not None:
        raise waiting


def _is_home(store: Store, home: str | None) -> bool:
    """Whether this ledger is at home where it is, and its home says all that can be said."""
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
    """The secret that was kept."""
    kept = transaction.own(_SECRET)
    if kept is None:
        raise LedgerDamaged(None, "has lost its secret", RESTORE)
    return bytes.fromhex(kept)


def derived(secret: bytes, purpose: str) -> bytes:
    """A secret for one purpose: whoever knows it knows nothing of those for others."""
    return hmac.new(secret, purpose.encode(), sha256).digest()
