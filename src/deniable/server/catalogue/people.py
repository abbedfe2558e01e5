"""People in the catalogue: their names, tokens and invitations. The access log records every change.

Limits in a ledger belong to names. If two names looked the same, one person could have two limits, or be mistaken for
another. So names are ASCII, and no name may look like another (`look`).
"""

from __future__ import annotations

import re
import time
import unicodedata
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, final

from sqlalchemy import Boolean, Column, Connection, Float, String, Table, func, insert, select, update

from deniable.errors import InvalidParameter
from deniable.server.catalogue import access_log
from deniable.server.catalogue.access_log import BEARER, SERVER, LogEvent
from deniable.server.catalogue.catalogue_tables import METADATA
from deniable.server.catalogue.catalogue_tables import NAME as LENGTH
from deniable.server.error_words import NAME
from deniable.server.problems import Problem
from deniable.server.roles import Role

_SHAPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@-]*")
_ALIKE: Final = str.maketrans({"0": "o", "1": "l", "i": "l"})
"""Characters that look alike in many fonts, in lower case."""

_LONGEST: Final = 100
_HOUR: Final = 3600
"""Seconds."""

_FULL: Final = (
    "{0} has {1} tokens that are valid or were created within the hour, as many as one person may have; an admin can "
    "revoke one (DELETE /v1/tokens/...), or all of them by a new invitation"
)
_COMES_BY_ISSUER: Final = (
    "{0} signs in by OpenID Connect and needs no invitation; for a program, they create a token themselves, "
    "with POST /v1/tokens"
)


def checked_name(name: str) -> str:
    """The same name, if it is valid for a new person or dataset; else raises InvalidParameter.

    >>> checked_name("bob@example.org")
    'bob@example.org'
    """
    plain = unicodedata.normalize("NFKC", name)
    if name != name.strip():
        raise InvalidParameter("name", name, "must not begin or end with a space", f"write {plain.strip()!r}")
    if not 0 < len(name) <= _LONGEST or _SHAPE.fullmatch(name) is None:
        raise InvalidParameter("name", name, NAME)
    if "  " in name:
        raise InvalidParameter("name", name, "must not have two spaces in a row, which look like one")
    return name


def look(name: str) -> str:
    """A form of a name that is equal for names that look the same.

    >>> look("Bob"), look("b0b")
    ('bob', 'bob')
    """
    return unicodedata.normalize("NFKC", name).strip().casefold().translate(_ALIKE)


def issued_to(name: str) -> str:
    """The id in the log for all tokens of an issuer to this person; tokens of the server have other ids."""
    return f"oidc {name}"


_PEOPLE: Final = Table(
    "curator_people",
    METADATA,
    Column("name", String(LENGTH), primary_key=True),
    Column("role", String(20), nullable=False),
    Column("active", Boolean, nullable=False),
    Column("made", Float, nullable=False),
)
_TOKENS: Final = Table(
    "curator_tokens",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("person", String(LENGTH), nullable=False, index=True),
    Column("hash", String(300), nullable=False),
    Column("expires", Float, nullable=False),
    Column("revoked", Boolean, nullable=False),
    Column("made", Float, nullable=False),
)
_INVITATIONS: Final = Table(
    "curator_invitations",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("person", String(LENGTH), nullable=False, index=True),
    Column("hash", String(64), nullable=False),
    Column("expires", Float, nullable=False),
    Column("open", Boolean, nullable=False),
    Column("made", Float, nullable=False),
)


@final
@dataclass(frozen=True, slots=True)
class Person:
    """A person with a role, and the id of the token of this request."""

    name: str
    role: Role
    token: str = ""


@final
@dataclass(frozen=True, slots=True)
class TokenRecord:
    """The record of a token. It holds the hash of the secret; times are seconds since 1970."""

    id: str
    person: Person
    hash: str
    expires: float
    revoked: bool
    made: float
    active: bool

    def usable(self, now: float) -> bool:
        """Whether it is valid at this time."""
        return self.active and not self.revoked and now < self.expires


@final
@dataclass(frozen=True, slots=True)
class InvitationRecord:
    """The record of an invitation. It holds the hash of the secret."""

    id: str
    person: str
    hash: str
    expires: float
    open: bool

    def usable(self, now: float) -> bool:
        """Whether it can be redeemed at this time."""
        return self.open and now < self.expires


class People(ABC):
    """The part of the catalogue about people. Records are never deleted, only closed."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Connection]:
        """A connection for reading."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction; there is one writer at a time."""

    # -- people --------------------------------------------------------------------------------------------------------

    def add_person(self, name: str, role: Role, *, by: str = SERVER) -> Person:
        """Add a person, or reopen a closed one in the same role; their spending is still under their name.

        Raises Problem `exists` if the name is taken or looks like another, and InvalidParameter if it is not valid.
        """
        with self.writing() as connection:
            if not _added(connection, name, role, by):
                raise Problem("exists", f"a person called {name!r} exists already; choose another name")
        return Person(name, role)

    def close_person(self, name: str, *, by: str = SERVER) -> None:
        """Close a person, and revoke their tokens and invitations for good.

        Raises Problem `invalid` for the last admin, because nobody could invite another one.
        """
        with self.writing() as connection:
            admins = select(_PEOPLE.c.name).where(_PEOPLE.c.role == str(Role.ADMIN), _PEOPLE.c.active)
            if [row.name for row in connection.execute(admins).all()] == [name]:
                raise Problem("invalid", f"{name} is the last admin here; invite another one first")
            done = connection.execute(update(_PEOPLE).where(_PEOPLE.c.name == name).values(active=False))
            if not done.rowcount:
                raise Problem("not_found", f"no person is called {name!r}; GET /v1/people lists everybody")
            _end(connection, name, by)
            access_log.append(connection, LogEvent.CLOSED, name, by, {})

    def person(self, name: str) -> Person | None:
        """The active person of this name, or None."""
        with self.reading() as connection:
            row = connection.execute(select(_PEOPLE).where(_PEOPLE.c.name == name, _PEOPLE.c.active)).first()
        return None if row is None else Person(row.name, Role(row.role))

    def people(self) -> list[tuple[Person, bool]]:
        """All people by name, and whether each is active."""
        with self.reading() as connection:
            rows = connection.execute(select(_PEOPLE).order_by(_PEOPLE.c.name)).all()
        return [(Person(row.name, Role(row.role)), row.active) for row in rows]

    # -- tokens --------------------------------------------------------------------------------------------------------

    def add_token(
        self, id: str, person: str, hash: str, expires: float, *, by: str = SERVER, most: int | None = None
    ) -> None:
        """Store a new token. Raises Problem `rate_limited` if the person has `most` tokens already.

        Expired tokens of the last hour count as well; otherwise a person could create short-lived tokens without end.
        """
        with self.writing() as connection:
            if most is not None:
                now, mine = time.time(), (_TOKENS.c.person == person) & ~_TOKENS.c.revoked
                counted = mine & ((_TOKENS.c.expires > now) | (_TOKENS.c.made > now - _HOUR))
                if connection.execute(select(func.count()).select_from(_TOKENS).where(counted)).scalar_one() >= most:
                    raise Problem("rate_limited", _FULL.format(person, most), headers={"Retry-After": str(_HOUR)})
            _add_token(connection, id, person, hash, expires)
            access_log.append(connection, LogEvent.ISSUED, person, by, {"token": id})

    def revoke_token(self, id: str, *, by: str = SERVER) -> None:
        """Revoke a token. Raises Problem `not_found`."""
        with self.writing() as connection:
            row = connection.execute(select(_TOKENS).where(_TOKENS.c.id == id)).first()
            if row is None:
                raise Problem("not_found", "no token has this id; GET /v1/people/NAME/tokens lists the ids")
            connection.execute(update(_TOKENS).where(_TOKENS.c.id == id).values(revoked=True))
            access_log.append(connection, LogEvent.REVOKED, row.person, by, {"token": id})

    def token(self, id: str) -> TokenRecord | None:
        """The record of a token, or None."""
        found = self._tokens(_TOKENS.c.id == id)
        return found[0] if found else None

    def tokens(self, person: str) -> list[TokenRecord]:
        """All tokens of a person, oldest first."""
        return self._tokens(_TOKENS.c.person == person)

    def _tokens(self, condition: Any) -> list[TokenRecord]:
        both = select(_TOKENS, _PEOPLE.c.role, _PEOPLE.c.active).join(_PEOPLE, _PEOPLE.c.name == _TOKENS.c.person)
        with self.reading() as connection:
            rows = connection.execute(both.where(condition).order_by(_TOKENS.c.made, _TOKENS.c.id)).all()
        return [_token(row) for row in rows]

    def signed_in(self, person: str, token: str) -> None:
        """Log the first use of a token on a day."""
        with self.writing() as connection:
            access_log.append(connection, LogEvent.SIGNED_IN, person, person, {"token": token})

    # -- invitations ---------------------------------------------------------------------------------------------------

    def invite(
        self, id: str, person: str, role: Role | None, hash: str, expires: float, *, by: str, issued: bool = False
    ) -> bool:
        """Store an invitation, and add or reopen the person if needed. Returns whether the person was known before.

        All tokens and older invitations of the person are revoked. So a lost token becomes useless to its finder, and a
        person who did not ask for the invitation notices it.

        `issued` says that the server accepts tokens of an issuer. Then a person who has used one cannot be invited:
        their own sign-in would still work, and they would not notice that another person uses their name.

        Raises Problem: `not_found` for a new person without a role, `exists` for a known person with another role, or
        `forbidden` for a person who signs in by OpenID Connect.
        """
        with self.writing() as connection:
            known = connection.execute(select(_PEOPLE).where(_PEOPLE.c.name == person)).first()
            wanted = role if role is not None or known is None else Role(known.role)
            if wanted is None:
                raise Problem("not_found", f"no person is called {person!r}; give a role to invite a new person")
            if known is not None and wanted != known.role:
                raise Problem("exists", f"{person!r} has the role {known.role}, and roles cannot be changed")
            if issued and access_log.signed_in_by(connection, person, issued_to(person)):
                raise Problem("forbidden", _COMES_BY_ISSUER.format(person))
            if known is None or not known.active:
                _added(connection, person, wanted, by)
            _end(connection, person, by)
            values = {"id": id, "person": person, "hash": hash, "expires": expires, "open": True, "made": time.time()}
            connection.execute(insert(_INVITATIONS).values(**values))
            again = known is not None
            access_log.append(connection, LogEvent.INVITED, person, by, {"invitation": id, "again": again})
        return again

    def invitation(self, id: str) -> InvitationRecord | None:
        """The record of an invitation, or None."""
        with self.reading() as connection:
            row = connection.execute(select(_INVITATIONS).where(_INVITATIONS.c.id == id)).first()
        return None if row is None else InvitationRecord(row.id, row.person, row.hash, row.expires, row.open)

    def invitations(self, person: str) -> list[InvitationRecord]:
        """The open invitations of a person, oldest first."""
        here = (_INVITATIONS.c.person == person) & _INVITATIONS.c.open & (_INVITATIONS.c.expires > time.time())
        with self.reading() as connection:
            rows = connection.execute(select(_INVITATIONS).where(here).order_by(_INVITATIONS.c.made)).all()
        return [InvitationRecord(row.id, row.person, row.hash, row.expires, row.open) for row in rows]

    def redeem(self, invitation: str, id: str, hash: str, expires: float) -> str | None:
        """Exchange an open invitation for a token. Returns the person's name; None if the invitation is not valid."""
        with self.writing() as connection:
            here = (_INVITATIONS.c.id == invitation) & _INVITATIONS.c.open & (_INVITATIONS.c.expires > time.time())
            row = connection.execute(select(_INVITATIONS.c.person).where(here)).first()
            active = None if row is None else select(_PEOPLE).where(_PEOPLE.c.name == row.person, _PEOPLE.c.active)
            if row is None or active is None or connection.execute(active).first() is None:
                return None
            connection.execute(update(_INVITATIONS).where(here).values(open=False))
            person = str(row.person)
            _add_token(connection, id, person, hash, expires)
            access_log.append(connection, LogEvent.REDEEMED, person, BEARER, {"invitation": invitation, "token": id})
        return person


def _added(connection: Connection, name: str, role: Role, by: str) -> bool:
    """Add a person, or reopen one who was closed. Returns False if the person is active, or was closed with another
    role.
    """
    known = connection.execute(select(_PEOPLE)).all()
    found = next((row for row in known if row.name == name), None)
    if found is not None:
        if found.active or found.role != role:
            return False
        connection.execute(update(_PEOPLE).where(_PEOPLE.c.name == name).values(active=True))
    else:
        checked_name(name)
        if (like := next((row.name for row in known if look(row.name) == look(name)), None)) is not None:
            raise Problem("exists", f"{name!r} looks like {like!r}, who exists already; choose another name")
        connection.execute(insert(_PEOPLE).values(name=name, role=role, active=True, made=time.time()))
    access_log.append(connection, LogEvent.ADDED, name, by, {"role": Role(role).value, "again": found is not None})
    return True


def _add_token(connection: Connection, id: str, person: str, hash: str, expires: float) -> None:
    values = {"id": id, "person": person, "hash": hash, "expires": expires, "revoked": False}
    connection.execute(insert(_TOKENS).values(**values, made=time.time()))


def _end(connection: Connection, person: str, by: str) -> None:
    """Revoke all tokens and invitations of a person, with one entry in the log for all of them.

    Not one entry for each token: the catalogue has one writer at a time, and everybody would wait.
    """
    mine = (_TOKENS.c.person == person) & ~_TOKENS.c.revoked
    ended = connection.execute(update(_TOKENS).where(mine).values(revoked=True)).rowcount
    if ended:
        access_log.append(connection, LogEvent.REVOKED, person, by, {"tokens": ended})
    connection.execute(update(_INVITATIONS).where(_INVITATIONS.c.person == person).values(open=False))


def _token(row: Any) -> TokenRecord:
    whose = Person(row.person, Role(row.role), row.id)
    return TokenRecord(row.id, whose, row.hash, row.expires, row.revoked, row.made, row.active)
