"""Checking a signed privacy label, and that the numbers beside it are those that were released. Needs no server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, final

from deniable.errors import UnreadableRecord
from deniable.ledger.keys import PublicKey

BINDING: Final = 3
"""The version from which on a label holds a digest of the numbers."""


@final
@dataclass(frozen=True, slots=True)
class CheckedLabel:
    """What was found out about a label."""

    release: str
    version: int
    numbers: bool
    """Whether the numbers were compared, and are those of the release."""

    def lines(self) -> list[str]:
        """What is verified and what is not, in words."""
        said = [f"The label of {self.release} is as it was signed with this key."]
        if self.numbers:
            said.append("The columns and rows of the answer are those that were released under it.")
        elif self.version < BINDING:
            said.append(
                f"It is of version {self.version} and does not bind the numbers: any answer could stand beside it."
            )
        else:
            said.append("No answer was compared: give one to see whether its numbers are those that were released.")
        return said


def answer_digest(answer: Mapping[str, Any]) -> str:
    """The SHA-256 of what an answer tells: its columns and rows, as JSON text in one form.

    >>> answer_digest({"columns": ["n"], "rows": [[5]]}) == answer_digest({"rows": [[5.0]], "columns": ["n"]})
    True
    """
    try:
        told = {"columns": list(answer["columns"]), "rows": [[_plain(cell) for cell in row] for row in answer["rows"]]}
        text = json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (KeyError, TypeError, ValueError):
        raise UnreadableRecord("this is no answer: it needs columns and rows") from None
    return sha256(b"deniable answer\n" + text.encode()).hexdigest()


def _plain(cell: object) -> object:
    """5.0 and 5 are one number: not everybody who writes JSON tells them apart."""
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


def label_message(label: Mapping[str, Any]) -> bytes:
    """What is signed of a label: everything but the signature."""
    unsigned = {name: value for name, value in label.items() if name != "signature"}
    return b"deniable label\n" + json.dumps(unsigned, sort_keys=True, separators=(",", ":")).encode()


def check_label(label: Mapping[str, Any], key: PublicKey) -> None:
    """UnreadableRecord unless exactly this label was signed with this key.

    Give the key that you trust, not the one the label names: whoever edits a label can sign it anew with another key.
    """
    if label.get("key") != key.hex:
        raise UnreadableRecord(
            "this label was signed with another key; a server signs labels with its newest one: ask for /v1/key of it"
        )
    signature = label.get("signature")
    if not isinstance(signature, str) or not key.signed(label_message(label), signature):
        raise UnreadableRecord("this label is not as it was signed")


def verify_label(label: Mapping[str, Any], answer: Mapping[str, Any] | None, key: PublicKey) -> CheckedLabel:
    """Check a label with a key that you trust and, if there is one, the answer that stands beside it.

    UnreadableRecord where the label is not as it was signed, or the answer is not the one that was released under it.
    Labels from before version 3 do not bind the numbers: of those only the signature is checked, and `numbers` says so.
    """
    check_label(label, key)
    version = label.get("version")
    release, version = str(label.get("release")), version if isinstance(version, int) else 0
    if answer is None or version < BINDING:
        return CheckedLabel(release, version, numbers=False)
    if label.get("answer") != answer_digest(answer):
        raise UnreadableRecord("these are not the numbers that were released under this label")
    entry = answer.get("provenance", {}).get("entry") if isinstance(answer.get("provenance"), Mapping) else None
    if entry is not None and entry != label["ledger"]["entry"]:
        raise UnreadableRecord("this label is of another release than the answer says it is")
    return CheckedLabel(release, version, numbers=True)
