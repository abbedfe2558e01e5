"""Every source that the guides name opens a session, with a schema by column and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import deniable as dn
from deniable.errors import EngineFailed, InvalidParameter
from deniable.ledger import Ledger
from deniable.queries import DatabaseTable
from deniable.tables.kinds import Kind
from tests.queries.hospital import GAUSSIAN, SCHEMA, UNIT, opened, visits
from tests.test_csv_structure import BAD, GOOD, python, same
from tests.test_csv_structure import read as rows_read
from tests.wording import worded

WARDS = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
MU = 1000  # with every row its own person, half a row is 500 standard deviations


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "hospital.duckdb"
    frame = visits()  # noqa: F841  # DuckDB finds it by its name
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE visits AS SELECT *, [1] AS parts, DATE '2024-01-01' AS day FROM frame")
        connection.execute('CREATE TABLE "my wards" AS SELECT 1 AS ward')
    return path


def counted(**more: Any) -> Any:
    with dn.session(**{"unit": dn.Unit.row(), "budget": GAUSSIAN, "schema": SCHEMA, **more}) as s:
        return {row[0]: round(row[1]) for row in s.sql(WARDS, mu=MU).rows}, s.tables["visits"]


def test_a_table_of_a_database_needs_no_more_than_a_frame(database: Path) -> None:
    expected, _ = counted(source={"visits": visits()})
    for source in ({"visits": DatabaseTable(database, "visits")}, DatabaseTable(database, "visits")):
        found, table = counted(source=source)
        assert found == expected
        assert table.column("day").kind is Kind.DATE
        assert "parts" not in dict(table.columns)  # a list is of no kind
    with dn.session(DatabaseTable(database, "my wards"), unit=dn.Unit.row(), budget=GAUSSIAN) as s:
        assert list(s.tables) == ["my_wards"]


def test_what_is_near_to_a_table_of_a_database_is_refused_in_our_words(database: Path) -> None:
    with duckdb.connect(str(database), read_only=True) as connection:
        for source, rule in (
            (connection.table("visits"), "DatabaseTable"),
            (connection, "must be a path"),
            (database, r"deniable\.queries\.DatabaseTable\(path, table\)"),
            (DatabaseTable(database, "visit"), "it has my wards, visits"),
            (DatabaseTable(database.with_name("x.duckdb"), "visits"), "no such file"),
        ):
            with pytest.raises(InvalidParameter, match=rule):
                counted(source={"visits": source})
    whole = {"tables": {"visits": {"columns": {"ward": {"kind": "text"}}}}}
    with worded(InvalidParameter, parameter="table"):
        counted(source={"visits": DatabaseTable(database, "visit")}, schema=whole)


@pytest.mark.spark
def test_spark_takes_a_frame_or_a_name_and_lets_go_of_both(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpersist(*_: object) -> None:
        raise AssertionError("through Spark Connect its plan names a view that is gone")

    before = spark.sparkContext._jsc.getPersistentRDDs().size()  # other tests of this process may hold some,
    views = {table.name for table in spark.catalog.listTables()}  # and views
    expected, _ = counted(source={"visits": visits()})
    visits().to_parquet(tmp_path / "visits.parquet")
    frame = spark.read.parquet(str(tmp_path / "visits.parquet"))
    monkeypatch.setattr(type(frame), "unpersist", unpersist)
    frame.createOrReplaceTempView("all_visits")
    for source in (frame, "all_visits"):
        assert counted(source={"visits": source}, engine=spark)[0] == expected
    assert spark.sparkContext._jsc.getPersistentRDDs().size() <= before
    assert {table.name for table in spark.catalog.listTables()} - views == {"all_visits"}
    spark.catalog.dropTempView("all_visits")
    with worded(InvalidParameter):
        counted(source={"visits": "all_visits"}, engine=spark)


@pytest.mark.spark
def test_spark_reads_a_csv_file_as_python_does_or_refuses_it(spark: Any, tmp_path: Path) -> None:
    path, names = tmp_path / "rows.csv", ["a", "b"]
    read = 0
    for case, data in GOOD.items():
        path.write_bytes(data)
        expected = python(data, 2)
        assert expected is not None
        try:
            found = rows_read(path, names, _on(spark))
        except (EngineFailed, InvalidParameter):
            continue
        assert same(found, expected), case
        read += 1
    assert read >= 8
    for data, rule in BAD.values():
        path.write_bytes(data)
        with pytest.raises(InvalidParameter, match=rule):
            rows_read(path, names, _on(spark))


@pytest.mark.spark
def test_spark_counts_what_duckdb_counts_and_names_versions(spark: Any, tmp_path: Path) -> None:
    visits().to_parquet(tmp_path / "visits.parquet")
    visits().iloc[::-1].to_parquet(tmp_path / "other.parquet")
    visits().iloc[1:].to_parquet(tmp_path / "less.parquet")
    ledger = Ledger.open(budget=GAUSSIAN, unit=UNIT, dataset="visits")
    found = []
    for name in ("visits", "other", "less"):
        with opened(tmp_path / f"{name}.parquet", ledger=ledger, engine=spark) as session:
            found.append(session.registration["visits"])
    with opened(tmp_path / "visits.parquet", ledger=ledger) as session:
        assert session.registration["visits"].to_dict() == found[0].to_dict() == found[1].to_dict()
    assert found[0].version == found[1].version != found[2].version
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(InvalidParameter, match="Delta Lake"):
        opened(tmp_path / "visits.parquet", engine=spark)


def _on(spark: Any) -> Any:
    from deniable.queries.engines.spark import SparkEngine

    return SparkEngine(spark)
