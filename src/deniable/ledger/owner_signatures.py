"""What an owner signs: adjustments, statements, checkpoints, and the next key.

The heading contains the owner's first key. A ROTATED entry replaces it: the old key signs for the new one. So the first
key is enough to verify all later ones by reading the history; see `history_verification`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deniable.errors import InvalidOperation, InvalidParameter, LedgerDamaged, LedgerMismatch
from deniable.ledger.entries import KEYS, Checkpoint, Entry, Heading, Rotation, SignedStatement, State, Terms
from deniable.ledger.keys import SigningKey, is_signed
from deniable.ledger.stores.entry_rows import RESTORE
from deniable.ledger.stores.store import ChainHead, Transaction

if TYPE_CHECKING:
    from deniable.ledger.ledger_export import NotedHead  # a name for types; the import would be circular

__all__ = ["adjusted", "checkpointed", "in_history", "keys_of", "rotated", "rotation_fault", "signed_head", "stated"]

_NEWEST = "restore the newest copy of this ledger; an older copy lacks charges, so nothing is answered from it"


def keys_of(heading: Heading, transaction: Transaction, *, up_to: int | None = None) -> list[str]:
    """The owner's keys up to entry `up_to`, oldest first; the last one may sign. Empty if any key may sign."""
    if heading.owner is None:
        return []
    known = [heading.owner]
    for entry in transaction.about(KEYS):
        if up_to is None or entry.number <= up_to:
            if (fault := rotation_fault(heading, entry, known)) is not None:
                raise LedgerDamaged(entry.number, fault, RESTORE)
            assert entry.rotation is not None
            known.append(entry.rotation.successor)
    return known


def rotation_fault(heading: Heading, entry: Entry, known: Sequence[str]) -> str | None:
    """The fault of an entry that should replace the last of these keys; None if it is valid."""
    made = entry.rotation
    if made is None or entry.state is not State.ROTATED or not known or made.successor in known:
        return "is not a valid replacement of a key"
    where: dict[str, Any] = {"serial": heading.serial, "number": entry.number, "previous": entry.previous}
    if not is_signed(made.signer, made.message(**where, reason=entry.description), made.signature):
        return "has an invalid signature"
    if made.signer != known[-1]:
        return f"is signed with {'a key that was replaced' if made.signer in known else 'another key'}"
    return None


def adjusted(heading: Heading, transaction: Transaction, terms: Terms, reason: str, key: SigningKey) -> Entry:
    """Append the signed entry that changes a limit."""
    head, terms = _end(transaction), replace(terms, signer=_signer(heading, transaction, key))
    message = terms.message(serial=heading.serial, number=head.number + 1, previous=head.hash, reason=reason)
    signed = replace(terms, signature=key.sign(message))
    return transaction.append(state=State.ADJUSTED, description=reason, spent=transaction.spent(), terms=signed)


def rotated(heading: Heading, transaction: Transaction, successor: str, by: str, reason: str, key: SigningKey) -> Entry:
    """Append the signed entry that replaces the owner's key."""
    known = keys_of(heading, transaction)
    if not known:
        raise InvalidOperation(
            "this ledger was made without an owner, so any key may sign and no key can be replaced; name an owner when "
            "you make a ledger: Ledger.open(..., owner=key.public)"
        )
    if successor in known:
        raise InvalidParameter("successor", successor, "is or was a key of this ledger", "make a new key")
    head = _end(transaction)
    plain = Rotation(signer=_signer(heading, transaction, key), successor=successor, by=by, signature="")
    message = plain.message(serial=heading.serial, number=head.number + 1, previous=head.hash, reason=reason)
    signed = replace(plain, signature=key.sign(message))
    return transaction.append(state=State.ROTATED, description=reason, spent=transaction.spent(), rotation=signed)


def stated(heading: Heading, transaction: Transaction, words: str, by: str, key: SigningKey) -> Entry:
    """Append a signed statement."""
    head, plain = _end(transaction), SignedStatement(signer=_signer(heading, transaction, key), by=by, signature="")
    message = plain.message(serial=heading.serial, number=head.number + 1, previous=head.hash, words=words)
    signed = replace(plain, signature=key.sign(message))
    return transaction.append(state=State.STATED, description=words, spent=transaction.spent(), statement=signed)


def checkpointed(
    heading: Heading, transaction: Transaction, key: SigningKey, after: Sequence[NotedHead] = ()
) -> Checkpoint:
    """Append a checkpoint of the newest entry. If that entry is already a checkpoint by this key, return it instead.

    LedgerDamaged if the chain does not contain one of the notes in `after`.
    """
    for each in after:
        in_history(heading, transaction, each)
    signer, newest = _signer(heading, transaction, key), transaction.newest()
    if newest is not None and newest.checkpoint is not None and newest.checkpoint.signer == signer:
        return newest.checkpoint
    noted = signed_head(heading, transaction, key)
    words = f"checkpoint of entry {noted.number}"
    transaction.append(state=State.CHECKPOINT, description=words, spent=noted.spent, checkpoint=noted)
    return noted


def signed_head(
    heading: Heading, transaction: Transaction, key: SigningKey, after: Sequence[NotedHead] = ()
) -> Checkpoint:
    """A checkpoint of the newest entry, without an entry in the chain. `after`: see `checkpointed`."""
    for each in after:
        in_history(heading, transaction, each)
    head, signer = _end(transaction), _signer(heading, transaction, key)
    where = Checkpoint(
        serial=heading.serial,
        number=head.number,
        hash=head.hash,
        spent=transaction.spent(),
        time=transaction.now(),
        signer=signer,
        signature="",
    )
    return replace(where, signature=key.sign(where.message()))


def in_history(heading: Heading, transaction: Transaction, note: NotedHead) -> None:
    """Raise LedgerDamaged if the chain does not contain what the note names, and LedgerMismatch if the note is about
    another ledger.
    """
    serial, number, link, signer = note
    if serial and serial != heading.serial:
        remedy = "open it with its original values; a second ledger would spend the budget twice"
        raise LedgerMismatch("serial number", repr(serial), repr(heading.serial), remedy)
    keys = keys_of(heading, transaction, up_to=number)
    if signer is not None and keys and signer != keys[-1]:
        raise InvalidParameter(
            "checkpoint", number, "is signed with another key than the owner's", "give one that the owner signed"
        )
    head = transaction.head
    if head.number < number:
        fault = f"is missing: this ledger is older than its checkpoint, which was taken at entry {number}"
        raise LedgerDamaged(head.number + 1, fault, _NEWEST)
    found = transaction.entry(number) if number else None
    if link and (transaction.genesis if number == 0 else found and found.hash) != link:
        raise LedgerDamaged(number, "has another hash than in the checkpoint: this is another history", _NEWEST)


def _signer(heading: Heading, transaction: Transaction, key: SigningKey) -> str:
    known = keys_of(heading, transaction)
    if known and known[-1] != key.public.hex:
        was = "was replaced" if key.public.hex in known else "is not the key of this ledger's owner"
        raise InvalidParameter("key", key.public.hex, was, "sign with the owner's key")
    return key.public.hex


def _end(transaction: Transaction) -> ChainHead:
    newest = transaction.newest()
    return ChainHead(0, transaction.genesis) if newest is None else ChainHead(newest.number, newest.hash)
