"""Find the store of a place, and check that the ledger in it is the expected one."""

from __future__ import annotations

import os
import re
from typing import Final

from deniable.errors import InvalidParameter, LedgerDamaged, LedgerMismatch, require_path
from deniable.ledger.entries import Heading, State
from deniable.ledger.ledger_export import NotedHead
from deniable.ledger.stores.ledger_places import resolved
from deniable.ledger.stores.sqlite_store import SQLiteStore
from deniable.ledger.stores.store import Store, Transaction

__all__ = ["Place", "checked_place", "mismatch", "name_data", "opened", "store_at"]

Place = str | os.PathLike[str]
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://")
_IN_MEMORY: Final = ":memory:"


def store_at(place: Place | None, *, to_read: bool = False) -> Store:
    """The store of a place: a database for a URL, a file for any other text, memory for None."""
    if place is None:
        return SQLiteStore(None, to_read=to_read)
    path = checked_place(place)
    if isinstance(place, str) and _URL.match(place):
        from deniable.ledger.stores.database_store import DatabaseStore  # SQLAlchemy comes with an extra

        return DatabaseStore(place, to_read=to_read)
    return SQLiteStore(resolved(path), to_read=to_read)


def opened(
    store: Store, new: Heading | None, notes: list[NotedHead], dataset: str | None, family: str | None
) -> Heading:
    """Open the ledger of a store; LedgerDamaged if the ledger is missing although a note says that it existed."""
    try:
        return store.open(new, dataset=dataset, family=family)
    except InvalidParameter as error:
        if not notes or error.parameter != "budget":
            raise
    known = max(each.number for each in notes)
    fault = f"is missing: this place has no ledger, but a checkpoint names one with {known} entries"
    raise LedgerDamaged(min(known, 1), fault, "restore its newest copy; a new ledger would forget what was spent")


def checked_place(place: object) -> str:
    """The place as text; InvalidParameter if it is not a path, or is ":memory:"."""
    path = require_path("ledger", place, "visits.ledger")
    if path == _IN_MEMORY:
        rule = "would make a file with this name"
        raise InvalidParameter("ledger", path, rule, "leave it out for a ledger in memory")
    return path


def mismatch(field: str, asked: object, found: object) -> LedgerMismatch:
    """The error for a ledger whose `field` has another value than the caller asked for."""
    remedy = "open it with its original values; a second ledger would spend the budget twice"
    return LedgerMismatch(field, repr(asked), repr(found), remedy)


def name_data(store: Store, heading: Heading, dataset: str, family: str | None, version: str | None) -> None:
    """Check that `dataset` is a name of the data; with a family, append a LINKED entry if it is a new name."""

    def link(transaction: Transaction) -> None:
        known = {heading.dataset: None, **{each.name: each.version for each in transaction.links()}}
        if dataset not in known:
            words = f"also known as {dataset}"
            fields = {"description": words, "spent": transaction.spent(), "name": dataset, "version": version}
            transaction.append(state=State.LINKED, **fields)
        elif version is not None and known[dataset] != version:
            asked, found = "for this data", "for other data, or for data of an unknown version"
            raise LedgerMismatch(f"name {dataset!r}", asked, found, "choose another name")

    with store.reading() as transaction:
        is_named = dataset in [heading.dataset, *(each.name for each in transaction.links())]
    if not is_named and family is None:
        raise mismatch("dataset", dataset, heading.dataset)
    if not is_named or version is not None:
        store.write(link)
