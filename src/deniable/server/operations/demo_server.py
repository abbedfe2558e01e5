"""`deniable serve --demo`: a real health table, and one person with a token in each role."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from deniable.server.catalogue.catalogue import Person
from deniable.server.curator import Curator
from deniable.server.operations.settings import Settings
from deniable.server.request_bodies import BudgetBody
from deniable.server.roles import Role

DATASET: Final = "people"
PEOPLE: Final = {Role.OWNER: "olga", Role.ANALYST: "ana", Role.AUDITOR: "ada", Role.ADMIN: "adam"}


def prepared(curator: Curator, source: str, schema: str) -> dict[Role, str]:
    """Add the people and register the table. Returns a token for each role, valid for one day."""
    for role, name in PEOPLE.items():
        curator.catalogue.add_person(name, role)
    owner = Person(PEOPLE[Role.OWNER], Role.OWNER)
    curator.register(owner, DATASET, {"people": source}, schema, BudgetBody(epsilon=1.0, delta=1e-6))
    curator.grant(owner, DATASET, PEOPLE[Role.ANALYST], None, None)
    return {role: curator.reception.issue(name, 1.0)["token"] for role, name in PEOPLE.items()}


def settings_in(folder: Path, *, host: str, port: int) -> Settings:
    """Settings with state and data below one folder."""
    return Settings(state=folder / "state", data=(folder,), host=host, port=port)
