"""Where a ledger may be kept: the same tests for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres import postgres  # noqa: F401  # a fixture

PLACES = ["memory", "file", "database", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path | None:
    """A new place for a ledger: nothing, a file, a URL of SQLite, a URL of Postgres."""
    if request.param == "memory":
        return None
    if request.param == "file":
        return tmp_path / "ledger.sqlite"
    if request.param == "database":
        return f"sqlite:///{tmp_path}/ledgers.db"
    return request.getfixturevalue("postgres").database()
