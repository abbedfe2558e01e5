"""The server is killed while people ask; `python -m tests.server.chaos --kills 1000` is the same for longer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.postgres import postgres  # noqa: F401  # a fixture
from tests.server.chaos import kills

pytestmark = pytest.mark.slow


def test_thirty_kills_forget_nothing() -> None:
    found = kills(30, seed=6)
    assert (found["kills"], found["worlds"]) == (30, 2)
    assert found["answers"] > 30  # people were answered all the while
    assert found["given again"] > 0
    assert found["cut off"] > 0
    assert found["older copies refused"] >= 8


@pytest.mark.postgres
def test_kills_forget_nothing_in_postgres(postgres: Any) -> None:  # noqa: F811
    found = kills(8, seed=7, database=postgres.database)
    assert (found["kills"], found["answers"] > 8, found["older copies refused"]) == (8, True, 2)


@pytest.mark.parametrize(
    ("sabotage", "said"),
    [
        ("seal late", "its answer is not in the ledger"),
        ("charge nothing", "paid another amount"),
        ("note nothing", "an older copy was accepted"),
    ],
)
def test_a_server_that_breaks_a_promise_is_found_out(sabotage: str, said: str) -> None:
    with pytest.raises(AssertionError) as found:
        kills(20, seed=8, sabotage=sabotage)
    assert said in str(found.value)
