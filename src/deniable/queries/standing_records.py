"""What the ledger stores about standing questions: declarations, and encrypted numbers of each day that never leave it.

A declaration is an entry that is charged once. All other entries cost nothing. Entries with encrypted numbers form a
chain: the idempotency key of an entry names the entry before it. So two processes cannot both append to the chain, and
no entry is ever replaced. The numbers are encrypted with a key derived from the ledger's secret, and an export does not
contain them.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import numpy as np

from deniable.errors import InvalidOperation, InvalidParameter
from deniable.ledger import Cost, State
from deniable.queries.standing_days import PEOPLE

if TYPE_CHECKING:
    from deniable.ledger import Entry, Ledger

_NONCE: Final = 12
_MOST_TRIES: Final = 1000
_INTERRUPTED: Final = "interrupted"
_NAMES: Final = sha256(b"deniable names of standing questions").hexdigest()


# -- declarations --------------------------------------------------------------------------------------------------


def declaration(ledger: Ledger, name: str) -> dict[str, Any] | None:
    """The stored declaration of the standing questions `name`; None if there is no declaration of this name."""
    sealed = ledger.answer(_declaration_question(name))
    return None if sealed is None or sealed.answer is None else dict(json.loads(sealed.answer))


def declare(ledger: Ledger, name: str, record: dict[str, Any], cost: Cost, payer: str | None) -> None:
    """Charge a set once, and store its declaration; InvalidParameter if another declaration has this name."""
    text = json.dumps(record)
    question, key = _declaration_question(name), declaration_key(name)
    words = f"standing {name}: {sha256(text.encode()).hexdigest()}"
    known = ledger.keyed(key)
    if known is None:
        entry = ledger.reserve(cost, question=question, description=words, key=key, payer=payer)
    elif known.description != words:
        rule = "is the name of another set of standing questions"
        raise InvalidParameter("name", name, rule, f"read it with standing({name!r}), or choose another name")
    else:
        entry = known
    if entry.state is State.RESERVED and ledger.closing(entry.number) is None:  # also after a crash in between
        ledger.seal(entry, text.encode())
    _list(ledger, name)


def declaration_key(name: str) -> str:
    """The idempotency key of the charge of a declaration."""
    return f"standing {name} declared"


def names(ledger: Ledger) -> list[str]:
    """The names of all declared sets, oldest first."""
    return [record["name"] for record, _ in _linked(ledger, _NAMES)][::-1]


def _list(ledger: Ledger, name: str) -> None:
    while True:
        known = list(_linked(ledger, _NAMES))
        if any(record["name"] == name for record, _ in known):
            return
        last = known[0][1].number if known else 0
        entry = begun(ledger, f"standing names after {last}", _NAMES, f"standing {name}: its name", None)
        if entry.state is not State.SEALED:  # otherwise another process has continued the list meanwhile
            ledger.seal(entry, json.dumps({"name": name, "previous": last}).encode())


def _declaration_question(name: str) -> str:
    return sha256(f"deniable standing {name}".encode()).hexdigest()


# -- entries without a cost ------------------------------------------------------------------------------------------


def begun(ledger: Ledger, key: str, question: str, words: str, version: str | None) -> Entry:
    """A new RESERVED entry of cost 0, which only the caller can seal; or the SEALED entry that the key has already.

    An open entry was left by a process that stopped, or belongs to a process that still runs. It is closed as failed.
    An entry can be closed only once, so the process that began it can no longer seal it, and two different answers are
    never released. Raises InvalidOperation after too many unfinished attempts.
    """
    for number in range(_MOST_TRIES):
        entry = ledger.keyed(f"{key}#{number}")
        if entry is None:
            return ledger.reserve(Cost(0), question=question, description=words, key=f"{key}#{number}", version=version)
        closing = ledger.closing(entry.number)
        if closing is None:
            ledger.fail(entry, _INTERRUPTED)
        elif closing.state is State.SEALED:
            return closing
    raise InvalidOperation(f"this was begun {_MOST_TRIES:,} times and never finished; declare a new set")


def sealed(ledger: Ledger, key: str) -> Entry | None:
    """The SEALED entry of an attempt that `begun` started with this key; None if no attempt was finished."""
    for number in range(_MOST_TRIES):
        entry = ledger.keyed(f"{key}#{number}")
        if entry is None:
            return None
        closing = ledger.closing(entry.number)
        if closing is not None and closing.state is State.SEALED:
            return closing
    return None


def _linked(ledger: Ledger, question: str) -> Iterator[tuple[dict[str, Any], Entry]]:
    """(public part, SEALED entry) of a chain, newest first."""
    entry = ledger.answer(question)
    while entry is not None and entry.answer is not None:
        head = json.loads(entry.answer.partition(b"\n")[0])
        yield head, entry
        entry = ledger.entry(head["previous"]) if head["previous"] else None


@final
class DayRecord(NamedTuple):
    """The decrypted record of a day, and the number of its entry."""

    day: str
    record: bytes
    number: int


@final
class EncryptedDays:
    """A chain of encrypted records, at most one for each day of a set of standing questions."""

    def __init__(self, ledger: Ledger, name: str, what: str) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # late: most sessions have no standing questions

        self._ledger, self._name, self._what = ledger, name, what
        self._question = sha256(f"deniable {what} by standing {name}".encode()).hexdigest()
        self._cipher = AESGCM(ledger.secret_for(f"{what} by standing questions"))

    def days(self) -> list[str]:
        """The days that have a record, newest record first."""
        return [head["day"] for head, _ in _linked(self._ledger, self._question)]

    def records(self) -> list[DayRecord]:
        """The record of each day, newest first."""
        found = _linked(self._ledger, self._question)
        return [DayRecord(head["day"], self._opened(entry), entry.number) for head, entry in found]

    def begin(self, day: str, known: Sequence[DayRecord]) -> Entry | None:
        """An open entry for the record of this day, after the known records; None if another process has added a record
        since.
        """
        key = f"standing {self._name} {self._what} after {known[0].number if known else 0}"
        words = f"standing {self._name}: {self._what} on {day}"
        entry = begun(self._ledger, key, self._question, words, None)
        return None if entry.state is State.SEALED else entry

    def seal(self, entry: Entry, day: str, known: Sequence[DayRecord], record: bytes) -> None:
        """Seal the record of a day in an entry that `begin` opened."""
        nonce, last = secrets.token_bytes(_NONCE), known[0].number if known else 0
        head = json.dumps({"day": day, "previous": last}).encode()
        self._ledger.seal(entry, head + b"\n" + nonce + self._cipher.encrypt(nonce, record, head))

    def _opened(self, sealed: Entry) -> bytes:
        assert sealed.answer is not None
        head, _, rest = sealed.answer.partition(b"\n")
        return self._cipher.decrypt(rest[:_NONCE], rest[_NONCE:], head)


def people_in(record: bytes) -> Any:
    """The numbers of rows of a record, as an array of `PEOPLE`."""
    return np.frombuffer(record, dtype=PEOPLE)


def total_rows(parts: Sequence[Any]) -> Any:
    """The rows that each person has used on all days, from arrays of `PEOPLE`."""
    if not parts:
        return np.empty(0, dtype=PEOPLE)
    together = np.concatenate(parts)
    who, places = np.unique(together["who"], return_inverse=True)
    found = np.empty(len(who), dtype=PEOPLE)
    found["who"] = who
    found["rows"] = np.bincount(places, weights=together["rows"], minlength=len(who))
    return found
