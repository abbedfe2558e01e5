"""Requests to charge a cost, with their arguments checked."""

from __future__ import annotations

from typing import Final, NamedTuple

from deniable.ledger.budget import Cost
from deniable.ledger.entries import Entry, checked_kind, checked_name, checked_question, checked_text
from deniable.ledger.stores.store import Transaction

__all__ = ["REUSED", "Ask", "ask_of", "keyed_of"]

REUSED: Final = "was used for another question"
"""What an error says about an idempotency key that comes again with another request."""


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
    """The RESERVED entry with this idempotency key; None without a key, or if there is none."""
    return None if key is None else transaction.keyed(key)
