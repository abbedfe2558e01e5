"""Spark through Spark Connect: a client that shares no process with Spark gets the same cells as DuckDB gives."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.queries.engines.connect import cells
from tests.queries.engines.kitchen import DuckDBKitchen

MISSING = [each for each in ("pyspark", "pandas", "grpc", "grpc_status", "zstandard") if not find_spec(each)]


@pytest.mark.spark
@pytest.mark.skipif(bool(MISSING), reason=f"Spark Connect needs {', '.join(MISSING)}: pip install 'pyspark[connect]'")
def test_spark_connect_gives_the_cells_that_duckdb_gives(tmp_path: Path) -> None:
    out = tmp_path / "cells.txt"
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-m", "tests.queries.engines.connect", str(out)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    expected = cells(DuckDBKitchen())
    assert out.read_text().splitlines() == expected.splitlines()
    assert len(expected.splitlines()) == 9
    assert all(line != "[]" for line in expected.splitlines())
