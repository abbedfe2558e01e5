"""What a ledger is asked to charge for, checked at the border."""

from __future__ import annotations

from typing import Final, NamedTuple

from deniable.ledger.budget import Cost
from deniable.ledger.entries import Entry, checked_kind, checked_name, checked_question, checked_text
from deniable.ledger.stores.store import Transaction

__all__ = ["REUSED", "Ask", "ask_of", "keyed_of"]

REUSED: Final = "was used for another question"
"""The rule of the refusal where a key comes again with something else."""


class Ask(NamedTuple):
    """One charge, and what for."""

    cost: Cost
    question: str
    description: str
    key: str | None = None
    version: str | None = None


def ask_of(
    cost: Cost, question: str, description: str, key: str | None = None, version: str | None = None
) -> Ask:  # fmt: skip
    """The charge, if all of it can be kept."""
    checked = checked_question(question), checked_text("description", description)
    names = (None if text is None else checked_name(name, text) for name, text in (("key", key), ("version", version)))
    return Ask(checked_kind(Cost, "cost", cost), *checked, *names)


def keyed_of(transaction: Transaction, key: str | None) -> Entry | None:
    """The entry that was charged under this key, where one is given."""
    return None if key is None else transaction.keyed(key)
