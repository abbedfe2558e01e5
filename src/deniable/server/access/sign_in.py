"""People, their invitations and tokens, and the log of all three.

An admin adds people and never holds their tokens: the admin gets an invitation, which the invited person exchanges for
a token, once. An admin who redeems an invitation themselves leaves an entry in the log, and the invited person notices,
because the invitation no longer works.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from hashlib import sha256
from typing import Any, Final, final

from deniable.errors import InvalidParameter
from deniable.ledger.keys import SigningKey
from deniable.server.access.bearer_tokens import TokenGate
from deniable.server.catalogue import access_log
from deniable.server.catalogue.catalogue import Catalogue
from deniable.server.catalogue.people import Person
from deniable.server.problems import Problem
from deniable.server.roles import Role

INVITATION_DAYS: Final = 7.0
PAGE: Final = 100
"""Entries of the log per page."""

_SHAPE: Final = re.compile(r"dni_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_SPENT: Final = "this invitation is not valid: it may be mistyped, expired, or redeemed before; ask for another"


@final
class Reception:
    """People and their tokens, for the API, the console and the command line."""

    def __init__(self, catalogue: Catalogue, gate: TokenGate, key: SigningKey, *, days: float, tokens: int) -> None:
        self._catalogue, self._gate, self._key = catalogue, gate, key
        self._days, self._tokens = days, tokens

    # -- people --------------------------------------------------------------------------------------------------------

    def people(self) -> list[dict[str, Any]]:
        """All people, with their role, and whether they are active."""
        return [
            {"name": person.name, "role": person.role, "active": active} for person, active in self._catalogue.people()
        ]

    def analysts(self) -> list[str]:
        """The names of the active analysts."""
        return [person.name for person, active in self._catalogue.people() if active and person.role is Role.ANALYST]

    def add_person(self, by: Person, name: str, role: Role) -> dict[str, Any]:
        """Add a person without a token, who signs in by OpenID Connect or is invited later."""
        person = self._catalogue.add_person(name, role, by=by.name)
        return {"name": person.name, "role": person.role}

    def close_person(self, by: Person, name: str) -> None:
        """Close the account of a person: none of their tokens works any more."""
        self._catalogue.close_person(name, by=by.name)
        self._gate.forget()

    # -- invitations ---------------------------------------------------------------------------------------------------

    def invite(self, by: Person, name: str, role: Role | None, days: float | None) -> dict[str, Any]:
        """A new invitation, shown once. Revokes all tokens of a person who has any. `days` is its lifetime."""
        id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        expires = time.time() + (INVITATION_DAYS if days is None else days) * 86400
        issued = self._gate.has_issuer
        again = self._catalogue.invite(id, name, role, _digest(secret), expires, by=by.name, issued=issued)
        self._gate.forget()
        return {"invitation": f"dni_{id}_{secret}", "id": id, "person": name, "again": again, "expires": int(expires)}

    def redeem(self, invitation: str) -> dict[str, Any]:
        """Exchange an invitation for a token, which is shown once.

        Raises Problem `unauthorized`, with the same words whatever is wrong with the invitation.
        """
        shape = _SHAPE.fullmatch(invitation.strip())
        id, secret = ("", "") if shape is None else shape.groups()
        found = self._catalogue.invitation(id)
        # A secret of 256 random bits needs no slow hash: it cannot be guessed.
        known = hmac.compare_digest(_digest(secret), "" if found is None else found.hash)
        if found is None or not known or not found.usable(time.time()):
            raise Problem("unauthorized", _SPENT)
        token, number, hash = self._gate.new_token()
        expires = time.time() + self._days * 86400
        person = self._catalogue.redeem(id, number, hash, expires)
        if person is None:
            raise Problem("unauthorized", _SPENT)
        return {"token": token, "id": number, "person": person, "expires": int(expires)}

    def invitations(self, name: str) -> list[dict[str, Any]]:
        """The open invitations of a person: id and expiry (seconds since 1970)."""
        return [{"id": each.id, "expires": int(each.expires)} for each in self._catalogue.invitations(name)]

    # -- tokens --------------------------------------------------------------------------------------------------------

    def issue(self, name: str, days: float | None, *, by: str = access_log.SERVER) -> dict[str, Any]:
        """A new token for a person, shown once. `days` is its lifetime, at most `Settings.token_days`.

        The number of tokens of a person is limited, except for those that the operator issues on the command line.
        """
        if days is not None and days > self._days:
            rule = f"must be at most {self._days:g} on this server"
            raise InvalidParameter("days", days, rule, "ask for fewer, or leave it out")
        if self._catalogue.person(name) is None:
            raise Problem("not_found", f"no person is called {name!r}; GET /v1/people lists everybody")
        token, id, hash = self._gate.new_token()
        expires = time.time() + (self._days if days is None else days) * 86400
        most = None if by == access_log.SERVER else self._tokens
        self._catalogue.add_token(id, name, hash, expires, by=by, most=most)
        return {"token": token, "id": id, "person": name, "expires": int(expires)}

    def tokens(self, name: str) -> list[dict[str, Any]]:
        """The tokens of a person: id, times (seconds since 1970), and whether each is revoked."""
        if self._catalogue.person(name) is None:
            raise Problem("not_found", f"no person is called {name!r}; GET /v1/people lists everybody")
        return [
            {"id": each.id, "made": int(each.made), "expires": int(each.expires), "revoked": each.revoked}
            for each in self._catalogue.tokens(name)
        ]

    def revoke(self, by: Person, id: str) -> None:
        """Revoke a token."""
        self._catalogue.revoke_token(id, by=by.name)
        self._gate.forget()

    # -- the log -------------------------------------------------------------------------------------------------------

    def log(self, before: int | None = None) -> dict[str, Any]:
        """A page of the log: its newest entries, or those before entry `before`.

        `before` of the result is the argument for the next page; None on the last.
        """
        with self._catalogue.reading() as connection:
            found = access_log.newest(connection, before, PAGE + 1)
        shown = [each.record() for each in found[:PAGE]]
        return {"entries": shown, "before": found[PAGE - 1].number if len(found) > PAGE else None}

    def since(self, person: Person) -> list[dict[str, Any]]:
        """Invitations and tokens that were created for this person since they last used their present token on an
        earlier day. Shown to the person, so that they notice any that they did not ask for.
        """
        with self._catalogue.reading() as connection:
            return [each.record() for each in access_log.since(connection, person.name, person.token)]

    def log_status(self) -> dict[str, Any]:
        """Recompute every hash of the log, and sign the newest one. Keep the result elsewhere, to compare it later."""
        with self._catalogue.reading() as connection:
            many, newest = access_log.verified(connection)
        signature = self._key.sign(f"deniable log of people\n{many} {newest}".encode())
        return {"entries": many, "hash": newest, "key": self._key.public.hex, "signature": signature}


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
