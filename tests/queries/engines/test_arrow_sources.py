"""Tables of other systems, each written by the system itself: Postgres, Delta Lake, Iceberg, and an object store."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deniable as dn
from deniable.errors import InvalidParameter
from deniable.queries import DatabaseTable
from tests.postgres import Postgres, postgres  # noqa: F401  # a fixture

pa = pytest.importorskip("pyarrow")
from pyarrow import dataset, parquet  # noqa: E402

BUDGET = dn.Budget.pure(epsilon=10_000)
SCHEMA = {"x": dn.Domain.integer(0, 9), "ward": dn.Domain.text("A", "B")}
ROWS = {"who": [1, 1, 2, 3, None], "x": [1, 2, 3, 4, 5], "ward": ["A", "A", "B", None, "B"]}


def total(source: object, schema: Any = SCHEMA, question: str = "SELECT SUM(x) AS a FROM t") -> int:
    """The answer to a question, nearly without noise."""
    unit = dn.Unit.person("who", rows=2)
    with dn.session({"t": source}, unit=unit, budget=BUDGET, schema=schema) as s:
        found: Any = s.sql(question, epsilon=900)["a"][0]
        whole: int = round(found)
        return whole


# --- Postgres -------------------------------------------------------------------------------------------------------


@pytest.mark.postgres
def test_a_table_of_postgres_is_read_as_of_one_moment(postgres: Postgres) -> None:  # noqa: F811  # a fixture
    url = postgres.database()
    postgres.sql("CREATE TABLE visits (who bigint, x int, ward varchar(3))", url)
    postgres.sql("INSERT INTO visits VALUES (1,1,'A'), (1,2,'A'), (2,3,'B'), (3,4,NULL), (NULL,5,'B')", url)
    assert total(DatabaseTable(url, "visits")) == 10
    assert total(DatabaseTable(url, "visits"), question="SELECT COUNT(*) AS a FROM t WHERE ward = 'A'") == 2


@pytest.mark.postgres
def test_every_type_of_postgres_and_no_value_that_stops_a_registration(
    postgres: Postgres,  # noqa: F811  # a fixture
) -> None:
    """Values that other systems cannot hold are NULL: infinite dates, numbers beyond reals, years before 1."""
    url = postgres.database()
    postgres.sql("CREATE TYPE mood AS ENUM ('good', 'bad')", url)
    postgres.sql(
        "CREATE TABLE t (who uuid, i2 smallint, n numeric, r real, d date, s timestamp, z timestamptz, b boolean, "
        "m mood, c char(3), skipped int[])",
        url,
    )
    one = "'00000000-0000-0000-0000-00000000000"
    rows = [
        "7, 1.5, 0.25, '2024-02-29', '2024-02-29 12:00', '2024-02-29 23:00-02', true, 'good', 'A'",
        "7, 'NaN', 'Infinity', 'infinity', '-infinity', 'infinity', NULL, 'bad', NULL",
        "7, 1e400, 'NaN', '0044-03-15 BC', '0044-03-15 BC', '0044-03-15 BC', false, NULL, 'B'",
        "7, 1e-400, NULL, '10000-01-01', '294276-01-01', '9999-12-31 23:30-02', false, NULL, 'B'",
    ]
    for at, row in enumerate(rows):
        postgres.sql(f"INSERT INTO t VALUES ({one}{at}', {row}, ARRAY[1])", url)
    day = dn.Domain.date(dt.date(2020, 1, 1), dt.date(2030, 1, 1))
    moment = dn.Domain.timestamp(dt.datetime(2020, 1, 1), dt.datetime(2030, 1, 1))
    schema = {"i2": dn.Domain.integer(0, 9), "n": dn.Domain.real(0, 9), "r": dn.Domain.real(0, 9), "d": day}
    schema |= {"s": moment, "z": moment, "m": dn.Domain.text("good", "bad")}
    found = DatabaseTable(url, "t")

    def asked(what: str) -> int:
        return total(found, schema, f"SELECT {what} AS a FROM t")

    assert asked("SUM(i2)") == 28
    assert [asked(f"COUNT({name})") for name in ("n", "r", "d", "s", "z", "b", "m", "c")] == [2, 1, 1, 1, 1, 3, 2, 3]
    assert asked("SUM(4 * n)") == 6
    with dn.session({"t": found}, unit=dn.Unit.person("who", rows=1), budget=BUDGET, schema=schema) as s:
        assert "skipped" not in dict(s.tables["t"].columns)
        question = "SELECT COUNT(*) AS a FROM t WHERE z = TIMESTAMP '2024-03-01 01:00:00'"
        late: Any = s.sql(question, epsilon=900)["a"][0]
        assert round(late) == 1


@pytest.mark.postgres
def test_a_password_and_a_value_are_in_no_error(postgres: Postgres) -> None:  # noqa: F811  # a fixture
    url = postgres.database()
    assert url not in repr(DatabaseTable(url, "t"))
    with pytest.raises(InvalidParameter, match="table='nowhere': the database has no such table") as refused:
        total(DatabaseTable(url, "nowhere"))
    assert url not in str(refused.value)
    with pytest.raises(InvalidParameter, match="the database cannot be reached") as refused:
        total(DatabaseTable("postgresql://me:a-password@localhost:1/none", "t"))
    assert "a-password" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None


# --- Delta Lake, Iceberg --------------------------------------------------------------------------------------------


def test_the_current_rows_of_a_delta_table(tmp_path: Path) -> None:
    """An erased row is still in an old file, which the folder would show."""
    deltalake = pytest.importorskip("deltalake", reason="needs deltalake: pip install deltalake")
    place = str(tmp_path / "visits")
    deltalake.write_deltalake(place, pa.table(ROWS))
    deltalake.write_deltalake(place, pa.table({"who": [4], "x": [9], "ward": ["B"]}), mode="append")
    assert total(deltalake.DeltaTable(place)) == 19
    deltalake.DeltaTable(place).delete("who = 1")
    assert total(deltalake.DeltaTable(place)) == 16
    assert total(deltalake.DeltaTable(place, version=0)) == 10
    with pytest.raises(InvalidParameter, match="is a table of Delta Lake"):
        total(place)


def test_the_current_rows_of_an_iceberg_table(tmp_path: Path) -> None:
    reason = "needs pyiceberg: pip install 'pyiceberg[sql-sqlite]'"
    catalogues = pytest.importorskip("pyiceberg.catalog.sql", reason=reason)
    place = {"uri": f"sqlite:///{tmp_path}/catalogue.db", "warehouse": f"file://{tmp_path}/warehouse"}
    catalogue = catalogues.SqlCatalog("here", **place)
    catalogue.create_namespace("health")
    rows = pa.table(ROWS)
    table = catalogue.create_table("health.visits", schema=rows.schema)
    table.append(rows)
    table.append(pa.table({"who": [4], "x": [9], "ward": ["B"]}))
    assert total(table) == 19
    table.delete("who = 1")
    assert total(table) == 16


# --- an object store ------------------------------------------------------------------------------------------------


@pytest.fixture
def store() -> Iterator[Any]:
    """An S3 server of moto, in this process, with an empty bucket."""
    server = pytest.importorskip("moto.server", reason="needs an object store: pip install 'moto[server]'")
    from pyarrow.fs import S3FileSystem

    running = server.ThreadedMotoServer(port=0)
    running.start()
    host, port = running.get_host_and_port()
    files = S3FileSystem(
        access_key="a", secret_key="b", region="us-east-1", scheme="http", endpoint_override=f"{host}:{port}",
        allow_bucket_creation=True,
    )  # fmt: skip
    files.create_dir("lake")
    yield files
    running.stop()


def test_parquet_files_of_an_object_store(store: Any) -> None:
    for day in (1, 2):
        parquet.write_table(pa.table(ROWS), f"lake/visits/day={day}/0.parquet", filesystem=store)
    parts = dataset.partitioning(pa.schema([("day", pa.int64())]), flavor="hive")
    source = dataset.dataset("lake/visits", format="parquet", partitioning=parts, filesystem=store)
    schema = {**SCHEMA, "day": dn.Domain.integer(0, 9)}
    assert total(source, schema, "SELECT COUNT(*) AS a FROM t WHERE day = 2 AND x = 4") == 1


def test_no_reader_is_imported_before_it_is_needed() -> None:
    """The engine works without them, and starts as quickly as before."""
    code = "import sys, deniable.queries.engines.duckdb; print([m for m in ('deltalake','pyiceberg','psycopg') if m in sys.modules])"
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
