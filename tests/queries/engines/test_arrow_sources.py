"""Tables of other systems, each written by the system itself: Postgres, MySQL, Delta Lake, Iceberg, an object store."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deniable as dn
from deniable.errors import InvalidParameter
from deniable.queries import DatabaseTable
from tests.mariadb import MariaDB, mariadb  # noqa: F401  # a fixture
from tests.postgres import Postgres, postgres  # noqa: F401  # a fixture
from tests.wording import worded

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
    with worded(InvalidParameter, parameter="table", asked="nowhere") as refused:
        total(DatabaseTable(url, "nowhere"))
    assert url not in str(refused.value)
    with worded(InvalidParameter, parameter="source") as refused:
        total(DatabaseTable("postgresql://me:a-password@localhost:1/none", "t"))
    assert "a-password" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None


# --- MySQL ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_table_of_mysql(mariadb: MariaDB) -> None:  # noqa: F811  # a fixture
    mariadb.sql(
        "CREATE TABLE test.visits (who bigint, x int, ward varchar(3) CHARACTER SET latin1)",
        "INSERT INTO test.visits VALUES (1,1,'A'), (1,2,'A'), (2,3,'B'), (3,4,NULL), (NULL,5,'B')",
    )
    assert total(DatabaseTable(mariadb.url, "visits")) == 10
    assert (
        total(DatabaseTable(mariadb.url, "test.visits"), question="SELECT COUNT(*) AS a FROM t WHERE ward = 'A'") == 2
    )


@pytest.mark.slow
def test_every_type_of_mysql_and_no_value_that_stops_a_registration(
    mariadb: MariaDB,  # noqa: F811  # a fixture
) -> None:
    """Days that are not in the calendar and integers beyond 64 bits are NULL; reals keep all of their digits."""
    mariadb.sql(
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'",
        "CREATE TABLE test.t (who varchar(9), `i``1` tinyint, u bigint unsigned, n decimal(40, 2), f float, r double, "
        "d date, s datetime(6), z timestamp(3) NULL, b boolean, m enum('good', 'bad'), c char(3), y year, skipped blob)",
    )
    rows = (
        ("7, 18446744073709551615, 1.5, 16777217, 0.1, '2024-02-29', '2024-02-29 12:00:00.000001', "
         "'2024-02-29 23:00', true, 'good', 'A', 2024, x'ff'"),
        "7, 5, -1e30, 0.1, 1e308, '0000-00-00', '0000-00-00 00:00:00', NULL, NULL, 'bad', 'é', 0, ''",
        "7, NULL, NULL, NULL, NULL, '2024-02-31', '2024-00-10 00:00:00', NULL, false, NULL, 'B', NULL, NULL",
    )  # fmt: skip
    mariadb.sql(
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '-02:00', NAMES utf8mb4",
        *(f"INSERT INTO test.t VALUES ('p{at}', {row})" for at, row in enumerate(rows)),
    )
    day = dn.Domain.date(dt.date(2020, 1, 1), dt.date(2030, 1, 1))
    moment = dn.Domain.timestamp(dt.datetime(2020, 1, 1), dt.datetime(2030, 1, 1))
    schema = {"i`1": dn.Domain.integer(0, 9), "u": dn.Domain.integer(0, 9), "n": dn.Domain.real(-9, 9)}
    schema |= {"f": dn.Domain.real(0, 2e7), "r": dn.Domain.real(0, 9), "d": day, "s": moment, "z": moment}
    schema |= {"m": dn.Domain.text("good", "bad"), "c": dn.Domain.text("A", "é"), "b": dn.Domain.boolean()}
    schema |= {"y": dn.Domain.integer(0, 3000)}
    found = DatabaseTable(mariadb.url, "t")

    def asked(what: str) -> int:
        return total(found, schema, f"SELECT {what} AS a FROM t")

    counts = [asked(f"COUNT({name})") for name in ("u", "n", "f", "r", "d", "s", "z", "b", "m", "c", "y")]
    assert counts == [1, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2]
    assert asked('SUM("i`1")') == 21
    with dn.session({"t": found}, unit=dn.Unit.person("who", rows=1), budget=BUDGET, schema=schema) as s:
        assert "skipped" not in dict(s.tables["t"].columns)
        for about in (
            "z = TIMESTAMP '2024-03-01 01:00:00'",
            "s > TIMESTAMP '2024-02-29 12:00:00'",
            "f = 16777216",
            "r = 0.1",
            "c = 'é'",
        ):
            one: Any = s.sql(f"SELECT COUNT(*) AS a FROM t WHERE {about}", epsilon=900)["a"][0]
            assert round(one) == 1, about


@pytest.mark.slow
def test_a_password_of_mysql_is_in_no_error(mariadb: MariaDB) -> None:  # noqa: F811  # a fixture
    assert mariadb.url not in repr(DatabaseTable(mariadb.url, "t"))
    with worded(InvalidParameter, parameter="table", asked="nowhere") as refused:
        total(DatabaseTable(mariadb.url, "nowhere"))
    assert "a-password" not in str(refused.value)
    with worded(InvalidParameter, parameter="source") as refused:
        total(DatabaseTable(mariadb.url.replace("a-password", "another-password"), "t"))
    assert "another-password" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
    with worded(InvalidParameter, parameter="source"):
        total(DatabaseTable(f"{mariadb.url}&local_infile=1", "t"))


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
    with worded(InvalidParameter, parameter="source"):
        total(place)


@pytest.mark.parametrize("feature", ["deletionVectors", "columnMapping"])
def test_a_delta_table_with_features_that_its_reader_lacks_is_refused(feature: str, tmp_path: Path) -> None:
    """By the protocol of the log; a reader that does not know them would read erased rows, or other columns."""
    deltalake = pytest.importorskip("deltalake", reason="needs deltalake: pip install deltalake")
    place = tmp_path / "visits"
    deltalake.write_deltalake(str(place), pa.table(ROWS))
    [log] = (place / "_delta_log").glob("*.json")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    about = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature], "writerFeatures": [feature]}
    lines = [{"protocol": about} if "protocol" in each else each for each in lines]
    log.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    with worded(InvalidParameter, parameter="source"):
        total(deltalake.DeltaTable(str(place)))


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
    code = "import sys, deniable.queries.engines.duckdb; print([m for m in ('deltalake','pyiceberg','psycopg','pymysql') if m in sys.modules])"
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
