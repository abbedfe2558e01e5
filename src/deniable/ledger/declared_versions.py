"""Versions of the data in a ledger: one budget for all of them, however often the data changes.

A table that grows, is corrected or loses rows is another table of the same people. Its owner declares each version by a
name. Declaring is a public event: that it happens, and when, must not depend on any person's rows. So an answer is
replayed or charged by the names of versions, and never because the data are found to be equal or to have changed.
"""

from __future__ import annotations

from deniable.errors import LedgerMismatch
from deniable.ledger.entries import VERSIONS, DeclaredVersion, State, checked_name, checked_version
from deniable.ledger.stores.store import Transaction

__all__ = ["declared_in", "recorded"]


def declared_in(transaction: Transaction) -> list[DeclaredVersion]:
    """All declared versions, oldest first."""
    return [each.declared for each in transaction.about(VERSIONS) if each.declared is not None]


def recorded(transaction: Transaction, given: DeclaredVersion) -> None:
    """Append a DECLARED entry, unless the ledger has one for this version. Raises LedgerMismatch if the ledger knows
    the version with other content.
    """
    checked_name("table", given.table)
    checked_version(given.version)
    for known in declared_in(transaction):
        if (known.table, known.version) == (given.table, given.version):
            if known.content != given.content:
                raise other_data(given.table, given.version)
            return
    words = f"version {given.version} of {given.table}"
    transaction.append(state=State.DECLARED, description=words, spent=transaction.spent(), declared=given)


def other_data(table: str, version: str) -> LedgerMismatch:
    """The error about a table with other rows or columns than the declared version has."""
    remedy = 'if the data changed, declare it under a new name: version="..."; its people keep one budget'
    return LedgerMismatch(f"version {version!r} of {table!r}", "with this data", "with other data", remedy)
