"""Every test that asks for a kitchen runs on every engine; Spark is left out by -m "not spark"."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.queries.engines.kitchen import DuckDBKitchen, Kitchen, SparkKitchen


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "spark: needs Java and pyspark, and minutes; leave out with -m 'not spark'")


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def kitchen(request: pytest.FixtureRequest) -> Iterator[Kitchen]:
    made: Kitchen = DuckDBKitchen() if request.param == "duckdb" else SparkKitchen(request.getfixturevalue("spark"))
    yield made
    made.close()
