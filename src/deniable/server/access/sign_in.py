"""The reception: who is here, how they come to their tokens, and the log that tells it.

An admin names people and never holds their tokens: they get an invitation, which whoever is invited exchanges for a
token, once. An admin who redeems it in their stead leaves a line in the log, and the invited person without an entry.
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
"""Entries of the log on a page."""

_SHAPE: Final = re.compile(r"dni_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_SPENT: Final = "this invitation opens nothing: it may be mistyped, out of date, or redeemed before; ask for another"


@final
class Reception:
    """People and their tokens, for the API, the console and the command line."""

    def __init__(self, catalogue: Catalogue, gate: TokenGate, key: SigningKey, *, days: float, tokens: int) -> None:
        self._catalogue, self._gate, self._key = catalogue, gate, key
        self._days, self._tokens = days, tokens

    # -- people --------------------------------------------------------------------------------------------------------

    def people(self) -> list[dict[str, Any]]:
        """Everybody."""
        return [
            {"name": person.name, "role": person.role, "active": active} for person, active in self._catalogue.people()
        ]

    def analysts(self) -> list[str]:
        """The names of the analysts."""
        return [person.name for person, active in self._catalogue.people() if active and person.role is Role.ANALYST]

    def add_person(self, by: Person, name: str, role: Role) -> dict[str, Any]:
        """Somebody new, without a way in: for who comes by OpenID Connect, or is invited later."""
        person = self._catalogue.add_person(name, role, by=by.name)
        return {"name": person.name, "role": person.role}

    def close_person(self, by: Person, name: str) -> None:
        """Nobody comes in under this name any more."""
        self._catalogue.close_person(name, by=by.name)
        self._gate.forget()

    # -- invitations ---------------------------------------------------------------------------------------------------

    def invite(self, by: Person, name: str, role: Role | None, days: float | None) -> dict[str, Any]:
        """An invitation for somebody, told once. Of somebody who is here, every token ends with it."""
        id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        expires = time.time() + (INVITATION_DAYS if days is None else days) * 86400
        issued = self._gate.has_issuer
        again = self._catalogue.invite(id, name, role, _digest(secret), expires, by=by.name, issued=issued)
        self._gate.forget()
        return {"invitation": f"dni_{id}_{secret}", "id": id, "person": name, "again": again, "expires": int(expires)}

    def redeem(self, invitation: str) -> dict[str, Any]:
        """The token of whoever was invited, told once. What is wrong with an invitation is said in one way."""
        shape = _SHAPE.fullmatch(invitation.strip())
        id, secret = ("", "") if shape is None else shape.groups()
        found = self._catalogue.invitation(id)
        # 256 random bits need no slow hash: nobody can try them all.
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
        """What is kept of the invitations of somebody that can still be redeemed."""
        return [{"id": each.id, "expires": int(each.expires)} for each in self._catalogue.invitations(name)]

    # -- tokens --------------------------------------------------------------------------------------------------------

    def issue(self, name: str, days: float | None, *, by: str = access_log.SERVER) -> dict[str, Any]:
        """A token for somebody, told once: for themselves, as many as one person may have; or for the operator at the
        machine, who is never shut out.
        """
        if days is not None and days > self._days:
            rule = f"is at most {self._days:g} on this server"
            raise InvalidParameter("days", days, rule, "ask for fewer, or leave it out")
        if self._catalogue.person(name) is None:
            raise Problem("not_found", f"there is nobody called {name!r}")
        token, id, hash = self._gate.new_token()
        expires = time.time() + (self._days if days is None else days) * 86400
        most = None if by == access_log.SERVER else self._tokens
        self._catalogue.add_token(id, name, hash, expires, by=by, most=most)
        return {"token": token, "id": id, "person": name, "expires": int(expires)}

    def tokens(self, name: str) -> list[dict[str, Any]]:
        """What is kept of somebody's tokens."""
        if self._catalogue.person(name) is None:
            raise Problem("not_found", f"there is nobody called {name!r}")
        return [
            {"id": each.id, "made": int(each.made), "expires": int(each.expires), "revoked": each.revoked}
            for each in self._catalogue.tokens(name)
        ]

    def revoke(self, by: Person, id: str) -> None:
        """This token opens nothing any more."""
        self._catalogue.revoke_token(id, by=by.name)
        self._gate.forget()

    # -- the log -------------------------------------------------------------------------------------------------------

    def log(self, before: int | None = None) -> dict[str, Any]:
        """The newest entries of the log, or those before one. `before` of what is returned begins the next page."""
        with self._catalogue.reading() as connection:
            found = access_log.newest(connection, before, PAGE + 1)
        shown = [each.told() for each in found[:PAGE]]
        return {"entries": shown, "before": found[PAGE - 1].number if len(found) > PAGE else None}

    def since(self, person: Person) -> list[dict[str, Any]]:
        """The invitations and tokens that were made in somebody's name beside the one that they come with, since they
        last came with it on an earlier day. Whoever did not ask for them sees it here.
        """
        with self._catalogue.reading() as connection:
            return [each.told() for each in access_log.since(connection, person.name, person.token)]

    def log_status(self) -> dict[str, Any]:
        """Every hash of the log recomputed, and its newest one, signed: keep that elsewhere, and compare it later."""
        with self._catalogue.reading() as connection:
            many, newest = access_log.verified(connection)
        signature = self._key.sign(f"deniable log of people\n{many} {newest}".encode())
        return {"entries": many, "hash": newest, "key": self._key.public.hex, "signature": signature}


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
