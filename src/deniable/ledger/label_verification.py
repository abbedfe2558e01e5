"""Verify a signed privacy label, and that the numbers beside it are the released ones. Works without a server."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, final

from deniable.errors import LedgerDamaged, UnreadableRecord
from deniable.ledger.keys import PublicKey
from deniable.ledger.ledger_export import verify_export

_NEEDED: Final = frozenset({"release", "version", "key", "signature"})
BINDING: Final = 3
"""The first version of labels that contain a hash of the numbers."""


@final
@dataclass(frozen=True, slots=True)
class CheckedLabel:
    """The result of verifying a label."""

    release: str
    version: int
    numbers: bool
    """Whether an answer was compared with the label, and is the released one."""

    signer: str
    """The key that signed it."""

    replaced: bool = False
    """Whether the owner has replaced this key since."""

    vouched: bool = False
    """Whether the key is trusted through the ledger, in which the given key signed for it."""

    def lines(self) -> list[str]:
        """Sentences that state what was verified and what was not."""
        how = f"with {self.signer}, for which your key vouched in the ledger" if self.vouched else "with this key"
        sentences = [f"The label of {self.release} is as it was signed {how}."]
        if self.replaced:
            sentences.append(
                "The owner has replaced that key: request the label again to get one signed with the newest key."
            )
        if self.numbers:
            sentences.append("The columns and rows of the answer are those that were released under this label.")
        elif self.version < BINDING:
            sentences.append(f"The label has version {self.version}, which does not cover the numbers of the answer.")
        else:
            sentences.append(
                "No answer was compared: give the answer to check whether its numbers are the released ones."
            )
        return sentences


def answer_digest(answer: Mapping[str, Any]) -> str:
    """The SHA-256 of the columns and rows of an answer, in canonical JSON.

    >>> answer_digest({"columns": ["n"], "rows": [[5]]}) == answer_digest({"rows": [[5.0]], "columns": ["n"]})
    True
    """
    columns, rows = answer.get("columns"), answer.get("rows")
    # A text or a mapping can be iterated too, but would be hashed as a different table from the one on display.
    if not isinstance(columns, list) or not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise UnreadableRecord("this is not an answer: it needs lists of columns and rows")
    try:
        table = {"columns": columns, "rows": [[_plain(cell) for cell in row] for row in rows]}
        text = json.dumps(table, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise UnreadableRecord("this is not an answer: its columns and rows cannot be written as JSON") from None
    return sha256(b"deniable answer\n" + text.encode()).hexdigest()


def _plain(cell: object) -> object:
    """5.0 as 5: some programs write whole floats without a point."""
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


def label_message(label: Mapping[str, Any]) -> bytes:
    """The bytes of a label that are signed: everything except the signature."""
    unsigned = {name: value for name, value in label.items() if name != "signature"}
    return b"deniable label\n" + json.dumps(unsigned, sort_keys=True, separators=(",", ":")).encode()


def check_label(label: Mapping[str, Any], key: PublicKey) -> None:
    """Raise UnreadableRecord unless exactly this label was signed with this key.

    Give a key that you trust, and not the one in the label: a forger can sign a changed label with a key of their own.
    """
    if not label.keys() >= _NEEDED:
        raise UnreadableRecord(f"this is not a label: it needs {', '.join(sorted(_NEEDED))}")
    if label["key"] != key.hex:
        raise UnreadableRecord(
            "this label was signed with another key than the given one; a server signs labels with its newest key: get "
            "that from /v1/key, or give the exported ledger too, in which your key signs for the newer ones"
        )
    signature = label.get("signature")
    if not isinstance(signature, str) or not key.signed(label_message(label), signature):
        raise UnreadableRecord(
            "the signature of this label is invalid: the label was changed, or signed with another key"
        )


def verify_label(
    label: Mapping[str, Any],
    answer: Mapping[str, Any] | None,
    key: PublicKey,
    *,
    ledger: str | os.PathLike[str] | None = None,
) -> CheckedLabel:
    """Verify a label with a key that you trust and, if given, the answer beside it.

    A server signs labels with its newest key. If you know only the owner's first key, give the exported `ledger` too:
    it is verified with the first key, and each key in it signed for the next.

    UnreadableRecord if the label was changed, or the answer is not the one that was released under it. Labels before
    version 3 do not contain a hash of the numbers; then only the signature is verified, and `numbers` is False.
    """
    known = (key.hex,) if ledger is None else _keys(label, key, ledger)
    signer = PublicKey(label["key"]) if label.get("key") in known else key
    check_label(label, signer)
    version = label["version"] if isinstance(label["version"], int) else 0
    about = signer.hex, signer.hex != known[-1], signer != key
    if answer is None or version < BINDING:
        return CheckedLabel(str(label["release"]), version, False, *about)
    if label.get("answer") != answer_digest(answer):
        raise UnreadableRecord("these are not the numbers that were released under this label")
    entry = answer.get("provenance", {}).get("entry") if isinstance(answer.get("provenance"), Mapping) else None
    if entry is not None and entry != label["ledger"]["entry"]:
        raise UnreadableRecord("the answer belongs to another release than this label")
    return CheckedLabel(str(label["release"]), version, True, *about)


def _keys(label: Mapping[str, Any], key: PublicKey, ledger: str | os.PathLike[str]) -> tuple[str, ...]:
    """The owner's keys in the exported ledger of a label, oldest first; the first must be `key`."""
    try:
        found = verify_export(ledger, key=key)
    except LedgerDamaged as damaged:
        raise UnreadableRecord(f"the ledger cannot be verified with this key: {damaged}") from None
    named = label.get("ledger")
    if not isinstance(named, Mapping) or named.get("serial") != found.heading.serial:
        raise UnreadableRecord("this is not the ledger that the label names")
    return found.keys or (key.hex,)
