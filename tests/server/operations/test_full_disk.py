"""Postgres on a disk that is full: what was charged stays charged, everybody is told a closed code, and it goes on."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deniable.ledger import State
from tests.postgres import server
from tests.server.world import WARDS, World, made

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small disk of its own, where Postgres's user can go."""
    place = Path(tempfile.mkdtemp(prefix="disk-"))
    place.chmod(0o755)
    command = ["mount", "-t", "tmpfs", "-o", "size=120m,mode=777", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk, and not everywhere")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
        place.rmdir()


@pytest.fixture
def world(disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with monkeypatch.context() as there:
        there.setattr(tempfile, "tempdir", str(disk))
        running = server()
        postgres = running.__enter__()
    try:
        folder = tmp_path / "server"
        folder.mkdir()
        world = made(folder, database=postgres.database())
        with world.client:
            yield world
    finally:
        running.__exit__(None, None, None)


def filled(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return ballast


def test_a_full_disk_is_survived(world: World, disk: Path) -> None:
    first = world.ask(WARDS, key="one", epsilon=0.5)
    assert first.status_code == 200, first.text
    ballast = filled(disk)
    refused = set()
    for number in range(60):  # until the last free page in what is allocated already is used up
        asked = f"SELECT ward, COUNT(*) AS n FROM visits WHERE age <> {1000 + number} GROUP BY ward"
        answer = world.ask(asked, key=f"full-{number}", epsilon=0.01)
        if answer.status_code != 200:
            refused.add((answer.status_code, answer.json()["code"]))
    assert refused == {(503, "ledger_unavailable")}
    ballast.unlink()
    assert world.ask(WARDS, key="one", epsilon=0.5).content == first.content
    assert world.ask("SELECT COUNT(*) AS n FROM visits", key="after", epsilon=0.1).status_code == 200
    assert world.call("ada", "GET", "/v1/ledger/visits/status").status_code == 200
    entries = list(world.ledger.entries())
    charged = sum(each.cost.units for each in entries if each.state is State.RESERVED)
    assert world.ledger.charged.units == charged
    assert len({each.key for each in entries if each.state is State.RESERVED}) == sum(
        each.state is State.RESERVED for each in entries
    )
