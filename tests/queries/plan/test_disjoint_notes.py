"""A price says where two measures are about different rows, and what it says is cheaper is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import deniable as dn
from deniable.queries.session import Session

pandas = pytest.importorskip("pandas")
pytest.importorskip("duckdb")

SCHEMA = {
    "x": dn.Domain.real(0, 100, nullable=False),
    "k": dn.Domain.integer(0, 9, nullable=False),
    "arm": dn.Domain.text("c", "t", nullable=False),
}


@pytest.fixture
def s() -> Iterator[Session]:
    frame = pandas.DataFrame({"who": [1, 1, 2], "x": [1.0, 2.0, 3.0], "k": [1, 5, 6], "arm": ["c", "t", "t"]})
    with dn.session(
        {"t": frame}, unit=dn.Unit.person("who", rows=4), budget=dn.Budget.gaussian(mu=10), schema=SCHEMA
    ) as found:
        yield found


@pytest.mark.parametrize(
    "measures",
    [
        "COUNT_IF(k > 3) AS a, COUNT_IF(NOT k > 3) AS b",
        "COUNT(*) FILTER (WHERE k > 3) AS a, COUNT(*) FILTER (WHERE k <= 3) AS b",
        "SUM(CASE WHEN arm = 't' THEN x ELSE 0 END) AS a, SUM(CASE WHEN arm = 'c' THEN x ELSE 0 END) AS b",
        "SUM(CASE WHEN x > k THEN 1 ELSE 0 END) AS a, SUM(CASE WHEN NOT x > k THEN 1 ELSE 0 END) AS b",
        "AVG(CASE WHEN arm = 't' THEN x END) AS a, AVG(CASE WHEN arm = 'c' THEN x END) AS b",
    ],
)
def test_halves_are_told(s: Session, measures: str) -> None:
    said = " ".join(str(s.price(f"SELECT {measures} FROM t", mu=1)).split())
    assert "a and b are about different rows, and are paid for one by one" in said


@pytest.mark.parametrize(
    "measures",
    [
        "COUNT_IF(k > 3) AS a, COUNT_IF(k > 5) AS b",
        "COUNT_IF(k > 3) AS a, COUNT(*) AS b",
        "AVG(CASE WHEN arm = 't' THEN x ELSE 0 END) AS a, AVG(CASE WHEN arm = 'c' THEN x ELSE 0 END) AS b",
        "SUM(CASE WHEN arm = 't' THEN x ELSE 1 END) AS a, SUM(CASE WHEN arm = 'c' THEN x ELSE 1 END) AS b",
        "COUNT(DISTINCT CASE WHEN k > 3 THEN who END) AS a, COUNT(DISTINCT CASE WHEN k <= 3 THEN who END) AS b",
    ],
)
def test_others_are_not(s: Session, measures: str) -> None:
    assert "different rows" not in " ".join(str(s.price(f"SELECT {measures} FROM t", mu=1)).split())


def test_what_is_suggested_has_the_noise_of_one(s: Session) -> None:
    apart = s.price("SELECT COUNT_IF(k > 3) AS a, COUNT_IF(NOT k > 3) AS b FROM t", mu=0.1).errors()["a"]
    one = s.price("SELECT COUNT_IF(k > 3) AS a FROM t", mu=0.1).errors()["a"]
    grouped = s.price("SELECT k > 3 AS old, COUNT(*) AS n FROM t GROUP BY old", mu=0.1).errors()["n"]
    texts = [f"SELECT COUNT(*) AS n FROM t WHERE {each}" for each in ("k > 3", "NOT k > 3")]
    batch = [table.errors["n"] for table in s.price(texts, mu=0.1).tables]
    assert one == grouped
    assert batch == [one, one]
    assert apart == pytest.approx(2**0.5 * one, rel=0.02)  # type: ignore[operator]
