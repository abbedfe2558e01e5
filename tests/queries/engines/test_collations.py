"""Texts are compared byte by byte, whatever their columns in a source say.

A proof that x = 'n' and x = 'N' are about different rows needs that; and where both were one group, a person could
decide which of the two spellings names it, and so move all its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import deniable as dn
from deniable.queries import DatabaseTable
from deniable.queries.session import Session

ROWS = [("p", "n"), ("p", "N"), ("P", "N")]
COLLATED = {"duckdb": ["NOCASE", "NOACCENT.NOCASE"], "spark": ["UTF8_LCASE", "UNICODE_CI"]}
Opened = Callable[[str], Session]


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Opened]]:
    """A session on a table of two columns of texts with a collation."""
    sessions: list[Session] = []

    def on(source: Any, **engine: Any) -> Session:
        about: dict[str, Any] = {"unit": dn.Unit.person("who", rows=2), "budget": dn.Budget.pure(epsilon=1)}
        sessions.append(dn.session({"t": source}, schema={"x": dn.Domain.text("n", "N")}, **about, **engine))
        return sessions[-1]

    def in_duckdb(collation: str) -> Session:
        duckdb = pytest.importorskip("duckdb")
        place = tmp_path / f"{collation}.duckdb"
        with duckdb.connect(place) as made:
            made.execute(f"CREATE TABLE t (who VARCHAR COLLATE {collation}, x VARCHAR COLLATE {collation})")
            made.executemany("INSERT INTO t VALUES (?, ?)", ROWS)
            made.execute("CREATE VIEW v AS SELECT * FROM t")
        return on(DatabaseTable(place, "v"))

    def in_spark(collation: str) -> Session:
        from deniable.queries.engines.spark import SparkEngine

        spark = request.getfixturevalue("spark")
        kind = f"string collate {collation}"
        frame = spark.createDataFrame(ROWS, "who string, x string")
        source = frame.selectExpr(f"cast(who as {kind}) as who", f"cast(x as {kind}) as x")
        return on(source, engine=SparkEngine(spark))

    yield request.param, in_duckdb if request.param == "duckdb" else in_spark
    for each in sessions:
        each.close()


def test_texts_with_a_collation_are_compared_byte_by_byte(opened: tuple[str, Opened]) -> None:
    engine, open_one = opened
    for collation in COLLATED[engine]:
        session = open_one(collation)

        def exact(text: str) -> Any:
            return session._engine.collect(session._planned(text).collect)  # noqa: B023

        for text, count in (("n", 1), ("N", 2)):
            assert exact(f"SELECT COUNT_IF(x = '{text}') AS n FROM t") == {(): (count,)}
        assert exact("SELECT x, COUNT(*) AS n FROM t GROUP BY x") == {("n",): (1,), ("N",): (2,), (None,): (0,)}
        assert exact("SELECT COUNT(DISTINCT x) AS n FROM t") == {(): (2,)}
        assert exact("SELECT COUNT(DISTINCT who) AS n FROM t") == {(): (2,)}
