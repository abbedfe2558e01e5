"""What a ledger consists of: a heading, and entries that are chained by hashes and never change.

Each hash covers the hash before it and every field of its entry, so whoever keeps one hash can tell later whether
anything up to it was changed, taken out, or put in another order. The first link is the hash of the heading: budget,
unit, dataset, and a random serial number that makes the chain of each ledger its own.

What is hashed is JSON text: one array, ASCII, without spaces. An answer enters through its own SHA-256, so a history
can be checked without the answers.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from typing import Final, final

from deniable.errors import DeniableError, InvalidParameter, UnreadableRecord
from deniable.ledger.budget import Budget, Cost
from deniable.units import Relation, Unit

__all__ = ["FORMAT", "Entry", "Heading", "State", "checked_code", "checked_question", "checked_text"]

FORMAT: Final = 1
"""Version of the ledger's format: of the hashed text as well as of the stored fields."""

_HEX: Final = re.compile(r"[0-9a-f]{64}")
_CODE: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_LONGEST: Final = 100_000


@final
class State(StrEnum):
    """What an entry says happened."""

    RESERVED = "RESERVED"
    """The cost is spent, from here on and whatever happens next."""

    SEALED = "SEALED"
    """The answer is stored. Only now may it leave."""

    FAILED = "FAILED"
    """There is no answer. The cost stays spent."""


@final
@dataclass(frozen=True, slots=True)
class Heading:
    """What a ledger is about. Fixed when it is made."""

    budget: Budget
    unit: Unit
    dataset: str
    serial: str

    def text(self) -> str:
        """The one way to write it: what is stored, and what the first link of the chain hashes."""
        unit = {"relation": self.unit.relation.value, "rows": self.unit.rows, "column": self.unit.column}
        record = {"budget": self.budget.to_dict(), "unit": unit, "dataset": self.dataset, "serial": self.serial}
        return json.dumps({"format": FORMAT, **record}, separators=(",", ":"))

    def genesis(self) -> str:
        """The first link of the chain."""
        return sha256(self.text().encode()).hexdigest()

    @classmethod
    def read(cls, text: str) -> Heading:
        """The heading that was written as this text."""
        try:
            record = json.loads(text)
            unit = record["unit"]
            who = Unit(Relation(unit["relation"]), rows=unit["rows"], column=unit["column"])
            return cls(Budget.from_dict(record["budget"]), who, record["dataset"], record["serial"])
        except (DeniableError, KeyError, TypeError, ValueError) as error:
            because = f": {error}" if isinstance(error, DeniableError) else ""
            raise UnreadableRecord(f"this is no heading of a ledger{because}") from None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a ledger. State changes are new entries, never edits.

    `cost` was charged when the RESERVED entry was written; the entry that `closes` it (SEALED or FAILED) repeats it and
    charges nothing. `spent` is everything charged up to and including this entry. Nothing here but a sealed `answer`
    depends on the data, and `time` is cut to seconds because how long a run took may.
    """

    number: int
    time: str
    state: State
    question: str
    cost: Cost
    description: str
    key: str | None = None
    closes: int | None = None
    answer: bytes | None = field(default=None, repr=False)
    code: str | None = None
    spent: Cost
    previous: str
    hash: str = ""

    @property
    def charged(self) -> Cost:
        """What this entry itself added to what is spent."""
        return self.cost if self.state is State.RESERVED else Cost(0, 0)

    def digest(self) -> str:
        """The hash that an entry with these fields must have."""
        answer = None if self.answer is None else sha256(self.answer).hexdigest()
        amounts = [str(n) for n in (self.cost.units, self.cost.delta_units, self.spent.units, self.spent.delta_units)]
        who = [FORMAT, self.number, self.time, self.state, self.question, self.description, self.key]
        fields = [*who, *amounts, self.closes, answer, self.code, self.previous]
        return sha256(json.dumps(fields, separators=(",", ":")).encode()).hexdigest()

    def hashed(self) -> Entry:
        """This entry with its hash filled in."""
        return replace(self, hash=self.digest())


# --- the border -------------------------------------------------------------------------------------------------------


def checked_question(question: str) -> str:
    """A canonical hash of a question."""
    if not isinstance(question, str) or not _HEX.fullmatch(question):
        rule = "must be a SHA-256 in hexadecimal: 64 characters of 0-9 and a-f"
        raise InvalidParameter("question", question, rule, "hash the canonical form of the question")
    return question


def checked_text(name: str, text: str) -> str:
    """Public text that every store can keep."""
    if not isinstance(text, str) or not text or len(text) > _LONGEST:
        raise InvalidParameter(name, text, f"must be text of 1 to {_LONGEST:,} characters")
    if "\0" in text or not _is_unicode(text):
        raise InvalidParameter(name, text, "must not contain NUL characters or halves of surrogate pairs")
    return text


def checked_code(code: str) -> str:
    """A word from a closed list. Not a sentence: sentences about failures have a way of quoting the data."""
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        raise InvalidParameter("code", code, "must be a short word of a-z, 0-9, '-' and '_', such as 'engine-failed'")
    return code


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
