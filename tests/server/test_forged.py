"""Whoever may write to the ledger's file changes an answer in it: the server tells and signs no forged number."""

from __future__ import annotations

import json
import sqlite3
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from deniable.errors import LedgerDamaged
from deniable.ledger.stores.entry_rows import COLUMNS, _entry_of
from deniable.server.app import served
from deniable.server.catalogue.catalogue import Person
from deniable.server.curator import Curator
from deniable.server.roles import Role
from tests.server.world import Client, World, made

NEVER = "SELECT COUNT(*) AS n FROM visits WHERE town = 'x{}'"
_READ = f"SELECT {', '.join(COLUMNS)} FROM entries WHERE number = ?"


@pytest.fixture(params=["running", "restarted"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[World, str, bool]]:
    """A server after five answers, the third release, and whether it was started anew before it is asked again."""
    world, is_new = made(tmp_path), request.param == "restarted"
    with world.client:
        found = [world.ask(NEVER.format(number), epsilon=0.5).json()["release"] for number in range(5)]
        if not is_new:
            yield world, found[2], is_new
    if is_new:
        curator = Curator(world.curator.settings)
        fresh = World(tmp_path, curator, Client(served(curator)), world.tokens)
        with fresh.client:
            yield fresh, found[2], is_new


def forged(folder: Path, *, rows: int) -> None:
    """Another answer in the third SEALED row; the hashes of so many rows from there on follow it (-1: all, and the
    head of the chain as well).
    """
    [path] = (folder / "state" / "ledgers").glob("*.ledger")
    with closing(sqlite3.connect(path, isolation_level=None)) as shell:
        for (name,) in shell.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            shell.execute(f"DROP TRIGGER {name}")
        [number] = shell.execute(
            "SELECT number FROM entries WHERE state = 'SEALED' ORDER BY number LIMIT 1 OFFSET 2"
        ).fetchone()
        [answer] = shell.execute("SELECT answer FROM entries WHERE number = ?", (number,)).fetchone()
        shell.execute("UPDATE entries SET answer = ? WHERE number = ?", (_other(answer), number))
        [newest] = shell.execute("SELECT max(number) FROM entries").fetchone()
        last, link = newest if rows < 0 else min(newest, number + rows - 1), None
        for at in range(number, last + 1):
            entry = _entry_of(shell.execute(_READ, (at,)).fetchone())
            entry = entry if link is None else replace(entry, previous=link)
            link = entry.digest()
            shell.execute("UPDATE entries SET previous = ?, hash = ? WHERE number = ?", (entry.previous, link, at))
        if rows < 0:
            shell.execute("UPDATE head SET hash = ?", (link,))
        elif rows > 1:
            shell.execute("UPDATE entries SET previous = ? WHERE number = ?", (link, last + 1))


def _other(answer: bytes) -> bytes:
    """The same answer with another number."""
    said = json.loads(answer)
    said["parts"][0][1] = b64encode((1_000_000).to_bytes(8, "little")).decode()
    return json.dumps(said, separators=(",", ":")).encode()


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3, -1])
def test_a_label_was_signed_over_a_forged_number(there: tuple[World, str, bool], rows: int) -> None:
    world, release, _ = there
    forged(world.folder, rows=rows)
    label = world.call("ana", "GET", f"/v1/labels/{release}")
    assert (label.status_code, label.json()["code"]) == (503, "ledger_damaged"), label.text


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3, -1])
def test_a_label_was_signed_over_a_number_forged_after_a_look_at_the_whole_chain(
    there: tuple[World, str, bool], rows: int
) -> None:
    world, release, _ = there
    before, _, number = release.rpartition(":")
    assert world.call("ana", "GET", f"/v1/labels/{before}:{int(number) + 2}").status_code == 200
    forged(world.folder, rows=rows)
    label = world.call("ana", "GET", f"/v1/labels/{release}")
    assert (label.status_code, label.json()["code"]) == (503, "ledger_damaged"), label.text


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 2, 3])
def test_a_forged_number_was_told_again(there: tuple[World, str, bool], rows: int) -> None:
    world, release, is_new = there
    forged(world.folder, rows=rows)
    for said in (
        world.ask(NEVER.format(2), epsilon=0.5),
        world.ask(NEVER.format(2), path=":refine", epsilon=0.6),
    ):
        assert (said.status_code, said.json()["code"]) == (503, "ledger_damaged"), said.text
    with pytest.raises(LedgerDamaged):
        world.curator.released(Person("ana", Role.ANALYST), release)
    if not rows:  # a fresh process knows no hashes: it trusts no limit either that stands before a row that is damaged
        assert world.ask(NEVER.format(4), epsilon=0.5).status_code == (503 if is_new else 200)
