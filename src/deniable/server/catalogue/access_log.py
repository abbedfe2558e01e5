"""The access log: people added and closed, invitations, tokens, and the first use of a token on each day.

It is a hash chain: each entry holds the hash of the entry before, and is appended in the transaction that does what the
entry describes. So nobody can act under another name without a trace: owners and auditors read the log, and a changed
entry is detected. A person who can write to the database could replace the whole log; to detect that, keep its newest
hash elsewhere from time to time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, final

from sqlalchemy import Column, Connection, Integer, String, Table, Text, insert, select

from deniable.errors import LedgerDamaged
from deniable.server.catalogue.catalogue_tables import METADATA, NAME
from deniable.server.operations.security_events import logged

SERVER: Final = "the server's operator"
"""The actor of commands on the server's machine. No person has this name: names cannot contain an apostrophe."""

BEARER: Final = "the invitation's bearer"
"""The actor who redeems an invitation: its holder, who need not be the invited person. No person has this name."""

_START: Final = "0" * 64
_LOG: Final = Table(
    "curator_log",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("time", String(40), nullable=False),
    Column("event", String(20), nullable=False),
    Column("person", String(NAME), nullable=False, index=True),
    Column("by", String(NAME), nullable=False),
    Column("detail", Text, nullable=False),
    Column("before", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
)


@final
class LogEvent(StrEnum):
    """The kinds of entries."""

    ADDED = "added"
    CLOSED = "closed"
    INVITED = "invited"
    REDEEMED = "redeemed"
    ISSUED = "issued"
    REVOKED = "revoked"
    SIGNED_IN = "signed in"


_WAYS_IN: Final = (LogEvent.INVITED, LogEvent.REDEEMED, LogEvent.ISSUED)
"""Events that create a way to sign in under a name."""


@final
@dataclass(frozen=True, slots=True)
class LogLine:
    """One entry: the event, its person, and who caused it. `detail` is JSON with ids and roles, never secrets."""

    number: int
    time: str
    event: str
    person: str
    by: str
    detail: str
    before: str
    hash: str

    def wanted(self) -> str:
        """The hash of this entry, computed from its other fields."""
        record = {name: value for name, value in asdict(self).items() if name != "hash"}
        written = json.dumps(record, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(b"deniable log of people\n" + written.encode()).hexdigest()

    def record(self) -> dict[str, Any]:
        """The entry as a record, for the API and the console."""
        return {**asdict(self), "detail": json.loads(self.detail)}


def append(connection: Connection, event: LogEvent, person: str, by: str, detail: Mapping[str, Any]) -> None:
    """Append an entry, in a transaction of `Catalogue.writing`, which has one writer at a time."""
    newest = connection.execute(select(_LOG).order_by(_LOG.c.number.desc()).limit(1)).first()
    number, before = (1, _START) if newest is None else (newest.number + 1, newest.hash)
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = LogLine(number, time, event.value, person, by, json.dumps(dict(detail)), before, "")
    connection.execute(insert(_LOG).values(**{**asdict(line), "hash": line.wanted()}))
    logged(f"person_{event.name.lower()}", person=person, by=by, entry=number)


def newest(connection: Connection, before: int | None, most: int) -> list[LogLine]:
    """The newest `most` entries, or those before entry `before`; newest first."""
    asked = select(_LOG).order_by(_LOG.c.number.desc()).limit(most)
    rows = connection.execute(asked if before is None else asked.where(_LOG.c.number < before)).all()
    return [LogLine(*row) for row in rows]


def signed_in_by(connection: Connection, person: str, token: str) -> bool:
    """Whether a person ever signed in with this token (see `people.issued_to` for tokens of an issuer)."""
    asked = select(_LOG.c.number).where(_LOG.c.person == person, _LOG.c.event == LogEvent.SIGNED_IN.value)
    return connection.execute(asked.where(_LOG.c.detail == json.dumps({"token": token})).limit(1)).first() is not None


def since(connection: Connection, person: str, token: str) -> list[LogLine]:
    """Other invitations and tokens that were created for a person, newest first: since they last used this token on an
    earlier day, or since the token was created.
    """
    asked = select(_LOG).where(_LOG.c.person == person).order_by(_LOG.c.number.desc())
    found, today = [], ""
    for line in (LogLine(*row) for row in connection.execute(asked)):
        own, day = json.loads(line.detail).get("token") == token, line.time[:10]
        if own and (line.event in _WAYS_IN or day != (today := today or day)):
            break
        if not own and line.event in _WAYS_IN:
            found.append(line)
    return found


def verified(connection: Connection) -> tuple[int, str]:
    """Recompute the chain: the number of entries, and the newest hash. LedgerDamaged names the first bad entry."""
    rows = connection.execution_options(stream_results=True).execute(select(_LOG).order_by(_LOG.c.number))
    return _followed(LogLine(*row) for row in rows)


def _followed(lines: Iterable[LogLine]) -> tuple[int, str]:
    count, before = 0, _START
    for count, line in enumerate(lines, 1):
        remedy = "compare it with a copy that another person kept"
        if line.number != count:
            raise LedgerDamaged(count, "is missing from the access log", remedy)
        if line.before != before or line.hash != line.wanted():
            raise LedgerDamaged(count, "of the access log was changed", remedy)
        before = line.hash
    return count, before
