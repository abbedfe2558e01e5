"""Every test that asks for a kitchen runs on every engine; Spark is left out by -m "not spark"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.queries.engines.kitchen import DuckDBKitchen, Kitchen, SparkKitchen


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "spark: needs Java and pyspark, and minutes; leave out with -m 'not spark'")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    pyspark = pytest.importorskip("pyspark.sql")
    session = (
        pyspark.SparkSession.builder.master("local[1]")
        .appName("deniable")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "America/New_York")  # whatever it is, no answer may depend on it
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def kitchen(request: pytest.FixtureRequest) -> Iterator[Kitchen]:
    made: Kitchen = DuckDBKitchen() if request.param == "duckdb" else SparkKitchen(request.getfixturevalue("spark"))
    yield made
    made.close()
