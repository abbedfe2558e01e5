"""One server for each file of attacks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres import postgres  # noqa: F401  # a fixture
from tests.queries.conftest import spark  # noqa: F401  # a fixture
from tests.server.world import World, made


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long runs that could not be finished would have waited: nobody does here."""
    found: list[float] = []
    monkeypatch.setattr("deniable.queries.answer.timed_runs.sleep", found.append)
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    there = made(tmp_path_factory.mktemp("attacked"))
    with there.client:
        yield there
