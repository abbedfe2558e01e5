"""The reception: who is here, and how they come to their tokens."""

from __future__ import annotations

from typing import Any, final

from deniable.server.auth import Gate
from deniable.server.catalogue import Catalogue
from deniable.server.problems import Problem
from deniable.server.roles import Role


@final
class Reception:
    """People and their tokens, for the API, the console and the command line."""

    def __init__(self, catalogue: Catalogue, gate: Gate, days: float) -> None:
        self._catalogue, self._gate, self._days = catalogue, gate, days

    def people(self) -> list[dict[str, Any]]:
        """Everybody."""
        return [
            {"name": person.name, "role": person.role, "active": active} for person, active in self._catalogue.people()
        ]

    def analysts(self) -> list[str]:
        """The names of the analysts."""
        return [person.name for person, active in self._catalogue.people() if active and person.role is Role.ANALYST]

    def add_person(self, name: str, role: Role) -> dict[str, Any]:
        """Somebody new."""
        person = self._catalogue.add_person(name, role)
        return {"name": person.name, "role": person.role}

    def close_person(self, name: str) -> None:
        """Nobody comes in under this name any more."""
        self._catalogue.close_person(name)
        self._gate.forget()

    def issue(self, name: str, days: float | None) -> dict[str, Any]:
        """A token for somebody, told once."""
        if self._catalogue.person(name) is None:
            raise Problem("not_found", f"there is nobody called {name!r}")
        token, id, expires = self._gate.issue(name, days=self._days if days is None else days)
        return {"token": token, "id": id, "person": name, "expires": int(expires)}

    def tokens(self, name: str) -> list[dict[str, Any]]:
        """What is kept of somebody's tokens."""
        if self._catalogue.person(name) is None:
            raise Problem("not_found", f"there is nobody called {name!r}")
        return [
            {"id": each.id, "made": int(each.made), "expires": int(each.expires), "revoked": each.revoked}
            for each in self._catalogue.tokens(name)
        ]

    def revoke(self, id: str) -> None:
        """This token opens nothing any more."""
        self._catalogue.revoke_token(id)
        self._gate.forget()
