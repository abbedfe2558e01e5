"""Datasets that cannot be opened: everybody is told what happened and what to do, and nobody where files lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deniable.server.app import served
from deniable.server.curator import Curator
from tests.server.test_same_rows import payroll, register
from tests.server.world import Client, World, made


def _written(pattern: str, text: str | None) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for path in list(folder.glob(pattern)):
            path.unlink()
            if text is not None:
                path.write_text(text)

    return change


WAYS: dict[str, tuple[Callable[[Path], None], str, bool]] = {
    "no ledgers": (_written("state/ledgers/*", None), "ledger_damaged", False),
    "no ledgers in their place": (_written("state/ledgers/*.ledger", "nothing " * 600), "ledger_damaged", False),
    "no checkpoints": (_written("state/checkpoints/*.json", None), "ledger_damaged", False),
    "no file": (_written("*.csv", None), "dataset_unavailable", True),
    "another file": (_written("*.csv", "a,b\n1,2\n"), "dataset_unavailable", True),
}


def again(world: World) -> World:
    """The same server, started again."""
    curator = Curator(world.curator.settings)
    return World(world.folder, curator, Client(served(curator)), world.tokens)


@pytest.mark.parametrize("how", WAYS)
def test_a_dataset_that_cannot_be_opened_said_nothing_more(how: str, tmp_path: Path) -> None:
    change, code, ready = WAYS[how]
    world = made(tmp_path)
    with world.client:
        assert world.ask(epsilon=0.5).status_code == 200
    change(tmp_path)
    world = again(world)
    with world.client:
        for who in ("ana", "olga"):
            told = world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 20", who=who, epsilon=0.5)
            assert (told.status_code, told.json()["code"]) == (503, code), told.text
            assert len(told.json().get("detail", "")) > 40
            assert str(tmp_path) not in told.text
            assert "visits.csv" not in told.text
        found = world.client.request("GET", "/ready")
        assert (found.status_code, found.json().get("failed")) == ((200, None) if ready else (503, ["ledgers"]))
        assert str(tmp_path) not in found.text


def test_a_server_that_lost_its_ledgers_while_it_ran_was_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deniable.server.operations.readiness._FRESH", -1.0)
    world = made(tmp_path)
    with world.client:
        assert register(world, "payroll", payroll(1)).status_code == 201
        ledgers = {each.family: each.name for each in world.curator.catalogue.datasets()}
        assert len(ledgers) == 2
        for many, family in enumerate(ledgers):
            assert world.client.request("GET", "/ready").status_code == 200, many  # the other one can be asked
            _written(f"state/ledgers/{family}.ledger*", None)(tmp_path)
        found = world.client.request("GET", "/ready")
        assert (found.status_code, found.json()["failed"]) == (503, ["ledgers"])
