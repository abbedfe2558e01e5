"""A file of the server that was cut to nothing gives no budget back: the server says so, and makes nothing anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deniable.errors import DeniableError
from deniable.server.catalogue.catalogue import Person
from deniable.server.curator import Curator
from deniable.server.problems import Problem
from deniable.server.roles import Role
from tests.server.world import World, made

OLGA = Person("olga", Role.OWNER)
COUNT = "SELECT COUNT(*) AS n FROM visits WHERE town = 'x{}'"


def stopped(folder: Path) -> World:
    """A server that has answered something, and was closed."""
    there = made(folder)
    there.curator.ask(OLGA, "visits", COUNT.format(1), {"epsilon": 0.1, "confidence": 0.95})
    there.curator.close()
    return there


def asked_anew(there: World) -> None:
    curator = Curator(there.curator.settings)
    try:
        curator.ask(OLGA, "visits", COUNT.format(2), {"epsilon": 0.1, "confidence": 0.95})
    finally:
        curator.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "length", "words"),
    [
        ("catalogue.id", 0, "belongs to another database"),
        ("catalogue.sqlite", 0, "this catalogue is empty; restore the catalogue"),
        ("catalogue.sqlite", 4096, "restore it from a copy"),
        ("checkpoints/*.json", 0, "ledger_damaged"),
        ("ledgers/*.ledger", 0, "is empty.*restore its newest copy"),
        ("ledgers/*.ledger", 1, "ledger_damaged"),
        ("ledgers/*.ledger", 4096, "is damaged"),
        ("server.key", 0, "is not a private Ed25519 key"),
    ],
)
def test_a_file_that_was_cut_gives_no_budget_back(tmp_path: Path, pattern: str, length: int, words: str) -> None:
    there = stopped(tmp_path)
    [path] = (tmp_path / "state").glob(pattern)
    assert path.stat().st_size > length
    os.truncate(path, length)
    with pytest.raises((DeniableError, Problem), match=words):
        asked_anew(there)


def test_no_other_file_of_a_server_could_be_cut(tmp_path: Path) -> None:
    stopped(tmp_path)
    state = tmp_path / "state"
    known = {"catalogue.id", "catalogue.sqlite", "server.key", "server.pub"}  # the last one is for people to copy
    found = {path.relative_to(state) for path in state.rglob("*") if path.is_file() and path.suffix != ".lock"}
    assert {str(each) for each in found if each.parent == Path()} == known
    assert {(each.parent.name, each.suffix) for each in found if each.parent != Path()} == {
        ("checkpoints", ".json"),
        ("ledgers", ".ledger"),
    }
