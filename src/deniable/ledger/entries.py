"""What a ledger consists of: a heading, and entries in a hash chain that never change.

The hash of an entry covers all of its fields and the hash of the entry before it. If you keep one hash, you can later
detect whether any entry up to it was changed, removed or reordered. The first link of the chain is the hash of the
heading: budget, unit, dataset, and a random serial number, so that no two ledgers have the same chain.

The hashed text is one JSON array in ASCII, without spaces. It contains the SHA-256 of an answer instead of the answer,
so that a history can be verified without answers. Fields that not every entry has (payer, limits, further names,
checkpoints) follow as one JSON object, which is left out if it is empty: entries from before these fields existed keep
their hashes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, TypeVar, final

from deniable import arguments
from deniable.arguments import NumberRange
from deniable.errors import NOTHING, DeniableError, InvalidParameter, UnreadableRecord
from deniable.ledger.budget import Budget, Cost
from deniable.ledger.renewal import Renewal
from deniable.units import Unit

__all__ = [
    "EVERYBODY",
    "FORMAT",
    "KEYS",
    "VERSIONS",
    "Checkpoint",
    "DeclaredVersion",
    "Entry",
    "Heading",
    "Rotation",
    "SignedStatement",
    "State",
    "Terms",
    "amounts",
    "checked_code",
    "checked_kind",
    "checked_name",
    "checked_question",
    "checked_text",
    "checked_version",
    "compact",
    "read_cost",
    "read_optional_fields",
]

FORMAT: Final = 1
"""Version of the text that is hashed."""

EVERYBODY: Final = "*"
"""The account of the whole dataset. Every cost is charged to it."""

KEYS: Final = "#keys"
"""The name under which stores index entries that replace the owner's key. No account may have this name."""

VERSIONS: Final = "#versions"
"""The name under which stores index entries that declare a version of the data. No account may have this name."""

Kind = TypeVar("Kind")

_HEX: Final = re.compile(r"[0-9a-f]{64}")
_CODE: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_VERSION: Final = re.compile(r"(?![0-9a-f]{32}\Z)[A-Za-z0-9][A-Za-z0-9._:+-]{0,99}")
_LONGEST: Final = 100_000
_LONGEST_NAME: Final = 500
"""Characters of a text that is looked up: every database can index it."""


@final
class State(StrEnum):
    """What an entry records."""

    RESERVED = "RESERVED"
    """The cost is charged. It stays charged whatever happens next."""

    SEALED = "SEALED"
    """The answer is stored, and may leave."""

    FAILED = "FAILED"
    """The run ended without an answer. The cost stays charged."""

    GRANTED = "GRANTED"
    """An account got a limit."""

    ADJUSTED = "ADJUSTED"
    """The owner changed a limit, with a signature."""

    LINKED = "LINKED"
    """The data got a further name. Under each of its names it spends from this ledger."""

    CHECKPOINT = "CHECKPOINT"
    """The owner signed the entry before this one, and so the whole chain up to it."""

    ROTATED = "ROTATED"
    """The owner replaced the key. The old key signed for the new one."""

    STATED = "STATED"
    """The owner made a statement about the data, with a signature."""

    DECLARED = "DECLARED"
    """The owner declared a version of a table. Its people go on spending from the same budget."""

    MOVED = "MOVED"
    """The file was moved. Somebody declared that no other copy is in use."""


@final
@dataclass(frozen=True, slots=True)
class Heading:
    """What a ledger is about. Fixed when the ledger is made."""

    budget: Budget
    unit: Unit
    dataset: str
    serial: str
    linked_as: str | None = None
    """The family, if one was given; see `family`."""

    owner: str | None = None
    """The owner's first public key (Ed25519, in hexadecimal). None if any key may sign adjustments and checkpoints."""

    renewal: Renewal | None = None
    """The budget of each period, if the budget renews; then `budget` is the budget of all periods together."""

    @property
    def family(self) -> str:
        """The common name of all datasets that share this budget; by default the serial number."""
        return self.serial if self.linked_as is None else self.linked_as

    @property
    def limits(self) -> dict[tuple[str, int | None], Cost]:
        """The limits that the ledger was made with, by account and window: of its lifetime and, if any, of a period."""
        found: dict[tuple[str, int | None], Cost] = {(EVERYBODY, None): self.budget.limit}
        if self.renewal is not None:
            found[EVERYBODY, self.renewal.window] = self.renewal.budget.limit
        return found

    def text(self) -> str:
        """The canonical form: this text is stored, and its hash is the first link of the chain."""
        record = {
            "budget": self.budget.to_dict(),
            "unit": self.unit.to_dict(),
            "dataset": self.dataset,
            "serial": self.serial,
        }
        renewal = None if self.renewal is None else self.renewal.to_dict()
        more = {"family": self.linked_as, "owner": self.owner, "renewal": renewal}
        return compact({"format": FORMAT, **record, **{name: each for name, each in more.items() if each is not None}})

    def genesis(self) -> str:
        """The first link of the chain."""
        return sha256(self.text().encode()).hexdigest()

    @classmethod
    def read(cls, text: str) -> Heading:
        """Parse a text made by `text`; UnreadableRecord for any other."""
        try:
            record = json.loads(text)
            who = Unit.from_dict(record["unit"])
            texts = record["dataset"], record["serial"], record.get("family"), record.get("owner")
            if not all(isinstance(each, str) for each in (*texts[:2], *(each for each in texts if each is not None))):
                raise TypeError
            budget, renewal = Budget.from_dict(record["budget"]), record.get("renewal")
            renewing = None if renewal is None else Renewal.from_dict(renewal)
            if renewing is not None and renewing.lifetime != budget:
                raise ValueError
            return cls(budget, who, *texts, renewing)
        except (AttributeError, DeniableError, KeyError, RecursionError, TypeError, ValueError) as error:
            because = f": {error}" if isinstance(error, DeniableError) else ""
            remedy = "name the ledger's own file, or one that it was exported to"
            raise UnreadableRecord(
                f"this file does not begin with the heading of a ledger{because}; {remedy}"
            ) from None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The limit of an account: in total (`window` is None), or in each window of `window` seconds.

    Windows begin at multiples of their length since 1970, UTC.
    """

    account: str
    limit: Cost
    window: int | None
    by: str
    signer: str | None = None
    signature: str | None = None

    def message(self, *, serial: str, number: int, previous: str, reason: str) -> bytes:
        """The bytes that an owner signs. They are valid at this place of this chain only."""
        where = ["deniable adjustment", FORMAT, serial, number, previous]
        return compact([*where, self.account, *amounts(self.limit), self.window, self.by, reason]).encode()

    def record(self) -> dict[str, object]:
        """Plain values, as they are hashed."""
        signed = {} if self.signature is None else {"signer": self.signer, "signature": self.signature}
        limits = {"limit": amounts(self.limit), "window": self.window}
        return {"account": self.account, **limits, "by": self.by, **signed}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """The signature of the old key for its successor."""

    signer: str
    successor: str
    by: str
    signature: str

    def message(self, *, serial: str, number: int, previous: str, reason: str) -> bytes:
        """The bytes that the old key signs. They are valid at this place of this chain only."""
        where = ["deniable rotation", FORMAT, serial, number, previous]
        return compact([*where, self.signer, self.successor, self.by, reason]).encode()

    def record(self) -> dict[str, object]:
        """Plain values, as they are hashed."""
        return {"signer": self.signer, "successor": self.successor, "by": self.by, "signature": self.signature}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignedStatement:
    """Who made the statement in the entry's description, and the owner's signature."""

    signer: str
    by: str
    signature: str

    def message(self, *, serial: str, number: int, previous: str, words: str) -> bytes:
        """The bytes that are signed. They are valid at this place of this chain only."""
        return compact(["deniable statement", FORMAT, serial, number, previous, self.signer, self.by, words]).encode()

    def record(self) -> dict[str, object]:
        """Plain values, as they are hashed."""
        return {"signer": self.signer, "by": self.by, "signature": self.signature}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredVersion:
    """A version of a table: the owner's name for the data of one moment. All versions spend from one budget.

    `content` is a keyed hash of the data, by which the same data are recognised later. It also covers the table and the
    version, so that two versions with equal data have different hashes: without the ledger's secret the hash reveals
    nothing, not even whether the data changed.
    """

    table: str
    version: str
    content: str
    schema: str | None = None
    """The public schema of that time, as JSON. None if it is too long to be stored."""

    def record(self) -> dict[str, object]:
        """Plain values, as they are hashed."""
        record: dict[str, object] = {"table": self.table, "version": self.version, "content": self.content}
        return record if self.schema is None else {**record, "schema": self.schema}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The signed number and hash of an entry: with it, later changes to the chain up to that entry are detected."""

    serial: str
    number: int
    hash: str
    spent: Cost
    time: str
    signer: str
    signature: str

    def message(self) -> bytes:
        """The bytes that the owner signs: the serial of the ledger, and the number, hash, sum and time of its end."""
        where = ["deniable checkpoint", FORMAT, self.serial, self.number, self.hash]
        return compact([*where, *amounts(self.spent), self.time]).encode()

    def record(self) -> dict[str, object]:
        """Plain values (JSON) that `read` reads back."""
        where = {"serial": self.serial, "number": self.number, "hash": self.hash, "spent": amounts(self.spent)}
        return {**where, "time": self.time, "signer": self.signer, "signature": self.signature}

    @classmethod
    def read(cls, record: object) -> Checkpoint:
        """The checkpoint of a record made by `record`; UnreadableRecord for anything else."""
        try:
            if not isinstance(record, dict):
                raise TypeError
            number, names = record["number"], ("serial", "hash", "time", "signer", "signature")
            texts = {name: record[name] for name in names}
            if type(number) is not int or number < 0 or not all(isinstance(each, str) for each in texts.values()):
                raise TypeError
            return cls(number=number, spent=read_cost(record["spent"]), **texts)
        except (KeyError, TypeError, ValueError):
            raise UnreadableRecord("this is not a checkpoint of a ledger") from None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a ledger. A change of state is a new entry; entries are never edited.

    A RESERVED entry charges `cost`. The SEALED or FAILED entry that `closes` it repeats the cost and charges nothing.
    `spent` is the sum of all charges up to and including this entry.

    Three fields depend on the data: a sealed `answer`; `version`, if the owner did not declare one, which reveals only
    whether the data of two entries are equal; and the `content` of a declared version, which reveals nothing. The
    duration of a run may depend on the data as well. Therefore an entry that closes another one has the `time` of the
    entry before it in the chain. Its position in the chain still reveals the order of events.
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
    payer: str | None = None
    """The account that pays in addition to the dataset; None if only the dataset pays."""

    payer_spent: Cost | None = None
    """Everything charged to the payer up to and including this entry; on RESERVED entries."""

    terms: Terms | None = None
    name: str | None = None
    """The further name of the data; on LINKED entries."""

    checkpoint: Checkpoint | None = None
    rotation: Rotation | None = None
    statement: SignedStatement | None = None
    version: str | None = None
    """The version of the data that is asked about, if known: as its owner declared it, otherwise a keyed hash of the
    rows. Answers about different versions are never merged."""

    declared: DeclaredVersion | None = None

    charges: int | None = None
    """The number of RESERVED entries up to and including this one; None in entries of older versions."""

    answer_hash: str | None = None
    """SHA-256 of the answer in an exported entry, which does not contain the answer itself."""

    @property
    def charge(self) -> int:
        """The number of a RESERVED entry among the charges: the number that its payer gets to see.

        Its `number` in the chain would reveal how many runs had ended before it. Entries of older versions, which did
        not count charges, return `number`.
        """
        return self.number if self.charges is None else self.charges

    @property
    def charged(self) -> Cost:
        """What this entry added to `spent`."""
        return self.cost if self.state is State.RESERVED else Cost(0, 0)

    def answer_digest(self) -> str | None:
        """The SHA-256 of the answer, in hexadecimal; None if the entry has no answer."""
        return self.answer_hash if self.answer is None else sha256(self.answer).hexdigest()

    def more(self) -> dict[str, object] | None:
        """The fields that not every entry has, as JSON values; None if this entry has none of them."""
        found: dict[str, object] = {}
        if self.payer is not None:
            found["payer"] = self.payer
        if self.payer_spent is not None:
            found["payer_spent"] = amounts(self.payer_spent)
        if self.terms is not None:
            found["terms"] = self.terms.record()
        if self.name is not None:
            found["name"] = self.name
        if self.checkpoint is not None:
            found["checkpoint"] = self.checkpoint.record()
        if self.rotation is not None:
            found["rotation"] = self.rotation.record()
        if self.statement is not None:
            found["statement"] = self.statement.record()
        if self.version is not None:
            found["version"] = self.version
        if self.declared is not None:
            found["declared"] = self.declared.record()
        if self.charges is not None:
            found["charges"] = self.charges
        return found or None

    @property
    def account(self) -> str | None:
        """The name under which stores index an entry about an account, the owner's keys or a version; else None."""
        if self.declared is not None:
            return VERSIONS
        return KEYS if self.rotation is not None else None if self.terms is None else self.terms.account

    def digest(self) -> str:
        """The hash that an entry with these fields must have."""
        who = [FORMAT, self.number, self.time, self.state, self.question, self.description, self.key]
        paid = [*amounts(self.cost), *amounts(self.spent)]
        fields = [*who, *paid, self.closes, self.answer_digest(), self.code, self.previous]
        more = self.more()
        return sha256(compact(fields if more is None else [*fields, more]).encode()).hexdigest()

    @classmethod
    def hashed(cls, **fields: Any) -> Entry:
        """An entry with these fields, and the hash computed from them."""
        made = cls(**fields)
        object.__setattr__(made, "hash", made.digest())  # the entry is frozen, and nobody else has it yet
        return made


# --- plain values -----------------------------------------------------------------------------------------------------


def compact(value: object) -> str:
    """The canonical JSON text of a value: ASCII, without spaces."""
    return _COMPACT(value)


_COMPACT: Final = json.JSONEncoder(separators=(",", ":")).encode


def amounts(cost: Cost) -> list[str]:
    """A cost as it is hashed and stored: both columns in whole units, as decimal text."""
    return [str(cost.units), str(cost.delta_units)]


def read_cost(texts: object) -> Cost:
    """The cost that was written as these two texts; TypeError for anything else."""
    if not isinstance(texts, list | tuple) or len(texts) != 2:
        raise TypeError
    for text in texts:  # the canonical spelling only: no sign, no spaces, ASCII digits
        if not isinstance(text, str) or not (text.isascii() and text.isdigit()) or len(text) > 100:
            raise TypeError
    return Cost(int(texts[0]), int(texts[1]))


def read_optional_fields(record: object) -> dict[str, object]:
    """The fields of an `Entry` that were written by `Entry.more`; TypeError or KeyError for anything else."""
    if record is None:
        return {}
    if not isinstance(record, dict) or not record:
        raise TypeError
    found: dict[str, object] = {}
    for name in ("payer", "name", "version"):
        if name in record:
            found[name] = _text(record[name])
    if "payer_spent" in record:
        found["payer_spent"] = read_cost(record["payer_spent"])
    if "terms" in record:
        found["terms"] = _terms(record["terms"])
    if "checkpoint" in record:
        found["checkpoint"] = Checkpoint.read(record["checkpoint"])
    if "rotation" in record:
        found["rotation"] = _rotation(record["rotation"])
    if "statement" in record:
        found["statement"] = _statement(record["statement"])
    if "declared" in record:
        found["declared"] = _declared(record["declared"])
    if "charges" in record:
        if type(record["charges"]) is not int or record["charges"] < 0:
            raise TypeError
        found["charges"] = record["charges"]
    if found.keys() != record.keys():
        raise TypeError
    return found


def _terms(record: object) -> Terms:
    if not isinstance(record, dict):
        raise TypeError
    window = record["window"]
    if window is not None and (type(window) is not int or window < 1):
        raise TypeError
    signed = {name: _text(record[name]) for name in ("signer", "signature") if name in record}
    account, by = _text(record["account"]), _text(record["by"])
    return Terms(account=account, limit=read_cost(record["limit"]), window=window, by=by, **signed)


def _rotation(record: object) -> Rotation:
    if not isinstance(record, dict):
        raise TypeError
    signer, successor = _text(record["signer"]), _text(record["successor"])
    if not (_HEX.fullmatch(signer) and _HEX.fullmatch(successor)):
        raise TypeError
    return Rotation(signer=signer, successor=successor, by=_text(record["by"]), signature=_text(record["signature"]))


def _statement(record: object) -> SignedStatement:
    if not isinstance(record, dict):
        raise TypeError
    return SignedStatement(**{name: _text(record[name]) for name in ("signer", "by", "signature")})


def _declared(record: object) -> DeclaredVersion:
    if not isinstance(record, dict):
        raise TypeError
    return DeclaredVersion(**{name: _text(each) for name, each in record.items()})


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


# --- checks of arguments ----------------------------------------------------------------------------------------------


def checked_kind(kind: type[Kind], name: str, value: object) -> Kind:
    """The value, if it is of this class; else InvalidParameter."""
    if not isinstance(value, kind):
        shown = NOTHING if isinstance(value, bytes) else value
        raise InvalidParameter(name, shown, f"must be a {kind.__name__}")
    return value


def checked_number(number: int) -> int:
    """A number that an entry can have: from 1 to 2^63 - 1."""
    return arguments.python_int("number", number, _NUMBERS)


_NUMBERS: Final = NumberRange("must be a whole number, at least 1", least=1, below=2**63)


def checked_question(question: str) -> str:
    """The hash of a question: 64 hexadecimal digits."""
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


def checked_name(name: str, text: str) -> str:
    """Public text that can be looked up: a key, an account, a dataset."""
    if not isinstance(text, str) or not text or len(text) > _LONGEST_NAME:
        raise InvalidParameter(name, text, f"must be text of 1 to {_LONGEST_NAME} characters")
    return checked_text(name, text)


def checked_version(version: str) -> str:
    """The name of a version, which is public and can stand in a path: letters, digits and . _ : + -"""
    return checked_path_name("version", version, 'write a date or a number: "2026-11-18"')


def checked_path_name(parameter: str, name: str, remedy: str) -> str:
    """A public name that can stand in a path: letters, digits and . _ : + -"""
    if not isinstance(name, str) or not _VERSION.fullmatch(name):
        rule = "must be 1 to 100 letters, digits and . _ : + -, begin with a letter or digit, and not be a hash"
        raise InvalidParameter(parameter, name, rule, remedy)
    return name


def checked_code(code: str) -> str:
    """A short code for a failure. Sentences are not accepted, because error messages often quote the data."""
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        raise InvalidParameter("code", code, "must be a short word of a-z, 0-9, '-' and '_', such as 'engine-failed'")
    return code


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
