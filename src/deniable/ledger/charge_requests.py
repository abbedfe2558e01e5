"""Requests to charge a cost, with their arguments checked, and the end of a charge."""

from __future__ import annotations

from typing import Final, NamedTuple

from deniable.errors import InvalidParameter
from deniable.ledger.budget import Cost
from deniable.ledger.entries import Entry, State, checked_kind, checked_name, checked_question, checked_text
from deniable.ledger.stores.store import Transaction

__all__ = ["REUSED", "Ask", "answered_before", "ask_of", "closed", "keyed_of"]

REUSED: Final = "was used for another question"
"""The rule in the error about an idempotency key that is sent again with a different request."""


class Ask(NamedTuple):
    """A cost to charge, and the question that it is for. See `Ledger.reserve`."""

    cost: Cost
    question: str
    description: str
    key: str | None = None
    version: str | None = None


def ask_of(
    cost: Cost, question: str, description: str, key: str | None = None, version: str | None = None
) -> Ask:  # fmt: skip
    """The request, if every store can keep its texts; else InvalidParameter."""
    checked = checked_question(question), checked_text("description", description)
    names = (None if text is None else checked_name(name, text) for name, text in (("key", key), ("version", version)))
    return Ask(checked_kind(Cost, "cost", cost), *checked, *names)


def keyed_of(transaction: Transaction, key: str | None) -> Entry | None:
    """The RESERVED entry with this idempotency key; None if `key` is None or no entry has it."""
    return None if key is None else transaction.keyed(key)


def answered_before(transaction: Transaction, ask: Ask, payer: str | None, known: Entry) -> Entry:
    """The SEALED entry of the first request with this key, which is `known`.

    InvalidParameter if that request was a different one, or has no answer.
    """
    if (known.cost, known.question, known.description, known.key, known.version, known.payer) != (*ask, payer):
        raise InvalidParameter("key", ask.key, REUSED, "use a new key for each question")
    closing = transaction.closing(known.number)
    if closing is None or closing.state is not State.SEALED:
        rule = f"was used for charge {known.charge}, which has no answer" + (" yet" if closing is None else "")
        raise InvalidParameter(
            "key", ask.key, rule, "that charge stays; wait for its answer, or ask again with a new key"
        )
    return closing


def closed(transaction: Transaction, entry: Entry, state: State, answer: bytes | None, code: str | None) -> Entry:
    """The SEALED or FAILED entry that closes a RESERVED one, appended; InvalidParameter if it is closed already."""
    newest = transaction.newest()
    found = newest if newest is not None and newest.number == entry.number else transaction.entry(entry.number)
    if found is not entry and found != entry:
        raise InvalidParameter(
            "entry", entry.number, "is not an entry of this ledger", "give what its reserve(...) returned"
        )
    before = transaction.closing(entry.number)
    if before is not None:
        rule = f"was {before.state} by entry {before.number}"
        raise InvalidParameter("entry", entry.number, rule, "an entry can be closed only once; ask again")
    return transaction.append(
        state=state,
        question=entry.question,
        cost=entry.cost,
        description=entry.description,
        key=entry.key,
        payer=entry.payer,
        version=entry.version,
        closes=entry.number,
        answer=answer,
        code=code,
        spent=transaction.spent(),
    )
