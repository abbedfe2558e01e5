"""Entries as rows of a table, and back. A row whose hash is wrong does not become an entry: LedgerDamaged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

from deniable.errors import LedgerDamaged
from deniable.ledger.entries import Entry, State, compact, read_cost, read_optional_fields
from deniable.ledger.stores.entry_schema import ENTRY_COLUMNS

__all__ = ["COLUMNS", "RESTART", "RESTORE", "as_row", "from_row", "genesis_of", "gone_back"]

RESTORE: Final = "restore the ledger from a copy; nothing is answered until then"
RESTART: Final = "restore the newest copy of this ledger, and restart the server or program that uses it"

COLUMNS: Final = tuple(each.name for each in ENTRY_COLUMNS)


def genesis_of(heading: str) -> str:
    """The first link of a chain: the hash of the text of its heading."""
    return sha256(heading.encode()).hexdigest()


_MOST_KNOWN: Final = 1000
_LARGEST_KNOWN: Final = 4096
"""The most bytes of an answer whose entry is cached."""

_READ: Final[dict[str, tuple[tuple[Any, ...], Entry]]] = {}
"""A cache of rows that were written or verified, by their hashes. An equal row needs no new verification."""


def _is_small(entry: Entry) -> bool:
    return entry.answer is None or len(entry.answer) <= _LARGEST_KNOWN


def _remember(row: tuple[Any, ...], entry: Entry) -> None:
    if _is_small(entry):
        if len(_READ) >= _MOST_KNOWN:
            _READ.clear()
        _READ[entry.hash] = (row, entry)


def as_row(entry: Entry) -> tuple[Any, ...]:
    """An entry as a row of a table, in the order of `COLUMNS`."""
    row = _row_of(entry)
    _remember(row, entry)  # it is read again when it is closed
    return row


def _row_of(entry: Entry) -> tuple[Any, ...]:
    more = entry.more()
    return (
        *(entry.number, entry.time, entry.state.value, entry.question),
        *(str(entry.cost.units), str(entry.cost.delta_units), entry.description, entry.key),
        *(entry.closes, entry.answer, entry.code, str(entry.spent.units), str(entry.spent.delta_units)),
        *(entry.previous, entry.hash, entry.payer, entry.account),
        None if more is None else compact(more),
    )


def from_row(row: Sequence[Any]) -> Entry:
    """The entry of a row; LedgerDamaged if the row cannot be an entry, or has a wrong hash."""
    found = tuple(row)
    known = _READ.get(found[_LINK]) if isinstance(found[_LINK], str) else None
    if known is not None and known[0] == found:
        return known[1]
    entry = _entry_of(found)
    if entry.digest() != entry.hash:
        raise LedgerDamaged(entry.number, "was changed", RESTORE)
    _remember(found, entry)
    return entry


_LINK: Final = COLUMNS.index("hash")


def _entry_of(row: tuple[Any, ...]) -> Entry:
    number, when, state, question, units, delta_units, description, key, closes, answer, code, *rest = row
    spent_units, spent_delta_units, previous, link, payer, account, more = rest
    try:
        texts = [text for text in (when, question, description, key, code, previous, link) if text is not None]
        if not all(isinstance(text, str) for text in texts) or not isinstance(answer, bytes | None):
            raise TypeError
        fields: dict[str, Any] = {} if more is None else read_optional_fields(json.loads(more))
        found = Entry(
            number=number,
            time=when,
            state=State(state),
            question=question,
            cost=read_cost((units, delta_units)),
            description=description,
            key=key,
            closes=closes,
            answer=answer,
            code=code,
            spent=read_cost((spent_units, spent_delta_units)),
            previous=previous,
            hash=link,
            **fields,
        )
        if payer != found.payer or account != found.account:
            raise TypeError
        return found
    except (KeyError, TypeError, ValueError):  # InvalidParameter is a ValueError
        raise LedgerDamaged(number, "cannot be read", RESTORE) from None


def gone_back(number: int) -> LedgerDamaged:
    """The error about a chain that has lost this entry."""
    fault = f"is missing or differs: this chain had more than {number} entries before, so an older copy was restored"
    return LedgerDamaged(number, fault, RESTART)
