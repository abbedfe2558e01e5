"""DuckDB: its sources, that it is locked before the first question, its caps, and that it says nothing when it fails."""

from __future__ import annotations

import datetime as dt
import gzip
import os
import threading
import traceback
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from deniable.errors import ENGINE_FAILURES, EngineFailed, InvalidOperation, InvalidParameter
from deniable.queries.engines.engine import DatabaseTable
from deniable.queries.relations.exact_statistics import Collect, Count, CountPersons, ExactSum
from deniable.queries.relations.relation_nodes import Source
from deniable.tables.expressions import col
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table
from deniable.units import Unit
from tests.queries.engines.kitchen import SECRET
from tests.wording import worded

duckdb = pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow")

from deniable.queries.engines.duckdb import DuckDBEngine  # noqa: E402

PEOPLE = Table.of("t", Unit.person("who", rows=2), v=Domain.integer(), x=Domain.real(0, 10))
ROWS = [("a", 1, 0.5), ("a", 2, None), ("a", 3, 99.0), ("b", None, 2.0), ("", 5, 1.0), (None, 6, 1.0)]
ARROW = pa.table({"who": [row[0] for row in ROWS], "v": [row[1] for row in ROWS], "x": [row[2] for row in ROWS]})
SUMS = (Count(), CountPersons(), ExactSum(col("x"), Fraction(0), Fraction(10), -4))


def answer(source: object, table: Table = PEOPLE) -> Any:
    with DuckDBEngine(threads=1) as engine:
        registered = engine.register("t", source, table, SECRET)
        return engine.collect(Collect(Source(registered), (("v", col("v")),), None, SUMS))


# --- sources --------------------------------------------------------------------------------------------------------


def test_every_source_of_the_same_rows_gives_the_same_answer(tmp_path: Path) -> None:
    import pandas as pd
    import polars as pl
    import pyarrow.parquet as pq

    expected = answer(ARROW)
    assert sum(n for n, _, _ in expected.values()) == 4
    polars = pl.from_arrow(ARROW)
    assert isinstance(polars, pl.DataFrame)
    pandas = pd.DataFrame(
        {
            "who": ["a", "a", "a", "b", "", None],
            "v": pd.array([1, 2, 3, None, 5, 6], dtype="Int64"),
            "x": [0.5, None, 99.0, 2.0, 1.0, 1.0],
        }
    )
    categorical = pandas.assign(who=pandas["who"].astype("category"))
    objects = pandas.assign(who=pandas["who"].astype(object), v=pandas["v"].astype(object))
    pq.write_table(ARROW.slice(0, 2), tmp_path / "one.parquet")
    pq.write_table(ARROW.slice(2), tmp_path / "two.parquet")
    lines = ["who,extra,v,x", "a,,1,0.5", "a,,2,", "a,,3,99.0", "b,,,2", '"",,5,1', ",,6,1", "short", "a,,1,0.5,long"]
    text = "\n".join(lines[:-2]) + "\n"
    (tmp_path / "rows.csv").write_text("\ufeff" + text, encoding="utf-8")
    (tmp_path / "rows.tsv").write_text(text.replace(",", "\t"))
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(text.encode()))
    with duckdb.connect(str(tmp_path / "rows.duckdb")) as connection:
        connection.register("rows", ARROW)
        connection.execute('CREATE TABLE "a table" AS FROM rows')
    sources = [
        polars, polars.lazy(), pandas, categorical, objects, ARROW.to_reader(), ARROW.combine_chunks(),
        tmp_path / "*.parquet", str(tmp_path), tmp_path / "rows.csv", str(tmp_path / "rows.tsv"), tmp_path / "rows.csv.gz",
        DatabaseTable(tmp_path / "rows.duckdb", "a table"),
    ]  # fmt: skip
    for source in sources:
        assert answer(source) == expected, type(source)


@pytest.mark.parametrize("line", [b"short", b'b,"2\n",3,and,more', b"c,\xff\xfe,1"])
def test_a_csv_with_lines_that_are_no_rows_is_refused_and_nothing_left_out(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "odd.csv"
    path.write_bytes(b"who,v,x\na,1,0.5\n" + line + b'\nd,4,"1"\n"e""e",5,1\n')
    with DuckDBEngine(threads=1) as engine, worded(InvalidParameter):
        engine.register("t", path, PEOPLE, SECRET)
    path.write_bytes(b'who,v,x\na,1,0.5\nd,4,"1"\n"e""e",5,1\n')
    with DuckDBEngine(threads=1) as engine:
        table = engine.register("t", path, PEOPLE, SECRET)
        found = engine.collect(Collect(Source(table), (("v", col("v")),), None, (CountPersons(),)))
    assert found == {(1,): (1,), (4,): (1,), (5,): (1,)}


def test_a_victims_row_does_not_change_how_a_file_is_read(tmp_path: Path) -> None:
    """A reader that guessed types or separators from the data would read other rows differently with this one there."""
    rows = ["a;b,1,0.5", "b,2,1", "c,3,1e0"]
    found = []
    for more in ([], ["victim,not a number,x;y"], ["vic\ttim,,"], ["'victim',#,1"]):
        path = tmp_path / "rows.csv"
        path.write_text("\n".join(["who,v,x", *more, *rows]) + "\n")
        with DuckDBEngine(threads=1) as engine:
            table = engine.register("t", path, PEOPLE, SECRET)
            got = engine.collect(Collect(Source(table), (("v", col("v")),), None, SUMS))
            found.append({group: numbers for group, numbers in got.items() if group != (None,)})
    assert found[0] == found[1] == found[2] == found[3]


def test_names_of_a_source_that_duckdb_would_change_are_kept(tmp_path: Path) -> None:
    import pandas as pd
    import pyarrow.parquet as pq

    table = Table.of("t", Unit.row(), A=Domain.integer())
    arrow = pa.table([pa.array([1]), pa.array([2]), pa.array([[3]])], names=["a", "A", "a_1"])
    pq.write_table(arrow, tmp_path / "cased.parquet")
    pandas = pd.DataFrame([[1, 2, [3]]], columns=["a", "A", "a_1"])
    for source in (arrow, tmp_path / "cased.parquet", pandas):
        with DuckDBEngine() as engine:
            registered = engine.register("t", source, table, SECRET)
            assert engine.collect(Collect(Source(registered), (("A", col("A")),), None, (Count(),))) == {(2,): (1,)}
    twice = pa.table([pa.array([1]), pa.array([2])], names=["A", "A"])
    with DuckDBEngine() as engine, worded(InvalidParameter, parameter="columns") as caught:
        engine.register("t", twice, table, SECRET)
    assert caught.value.asked == "A"


def test_sources_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.xlsx").write_bytes(b"")
    (tmp_path / "x.duckdb").write_bytes(b"")
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfe\n")
    refused = [
        (tmp_path / "none.csv", "no such file"), (tmp_path / "x.xlsx", "must have the ending"), (tmp_path / "x.duckdb", "several tables"),
        (tmp_path / "bad.csv", "UTF-8"), ({"v": [1]}, "a dict cannot be read"), (DatabaseTable(tmp_path / "no.duckdb", "t"), "no such file"),
    ]  # fmt: skip
    with DuckDBEngine() as engine:
        for source, rule in refused:
            with pytest.raises(InvalidParameter, match=rule):
                engine.register("t", source, PEOPLE, SECRET)
        (tmp_path / "broken.parquet").write_bytes(b"PAR1 secret PAR1")
        with pytest.raises(EngineFailed) as caught:
            engine.register("t", tmp_path / "broken.parquet", PEOPLE, SECRET)
        assert caught.value.code == "source"


# --- locked ---------------------------------------------------------------------------------------------------------

FORBIDDEN = [
    "FROM read_csv('/etc/hostname')", "FROM read_text('/etc/hostname')", "FROM glob('/*')", "ATTACH '/tmp/x.duckdb' AS x",
    "COPY (SELECT 1) TO '/tmp/x.csv'", "INSTALL httpfs", "LOAD httpfs", "SET threads = 1", "SET enable_external_access = true",
    "SET lock_configuration = false", "EXPORT DATABASE '/tmp/x'", "FROM 'https://example.org/x.parquet'", "FROM arrow", "FROM df",
]  # fmt: skip


def test_after_the_first_question_no_file_extension_or_setting_can_be_reached(tmp_path: Path) -> None:
    with DuckDBEngine() as engine:
        table = engine.register("t", ARROW, PEOPLE, SECRET)
        engine.collect(Collect(Source(table), (), None, (Count(),)))
        arrow = df = ARROW  # noqa: F841 (a frame in sight is not a table)
        for statement in FORBIDDEN:
            with pytest.raises(EngineFailed):
                engine._ask(statement)
        with worded(InvalidOperation):
            engine.register("u", ARROW, PEOPLE, SECRET)
        assert "people" not in {row[0] for row in engine._ask("SELECT table_name FROM duckdb_tables()")}


@pytest.mark.parametrize(("rows", "asked", "threads"), [(122_880, None, 1), (122_881, None, 2), (9, 2, 2)])
def test_a_table_of_one_piece_is_read_by_one_thread(rows: int, asked: int | None, threads: int) -> None:
    """Others could not help, and to wake them takes time; but who says how many, gets so many."""
    with DuckDBEngine(threads=asked) as engine:
        if asked is None:
            engine._run("SET threads = 2")  # as on a machine with two cores
        every = Table.of("t", Unit.row(), v=Domain.integer())
        table = engine.register("t", pa.table({"v": pa.array(range(rows))}), every, SECRET)
        engine.register("short", pa.table({"v": [1]}), every, SECRET)  # the longest decides
        assert engine.collect(Collect(Source(table), (), None, (Count(),))) == {(): (rows,)}
        assert engine._ask("SELECT current_setting('threads')") == [(threads,)]


def test_a_failure_says_its_code_and_nothing_of_the_data() -> None:
    with DuckDBEngine() as engine:
        engine.register("t", pa.table({"who": ["a-secret@example.org"], "v": [1], "x": [1.0]}), PEOPLE, SECRET)
        for statement in ("SELECT CAST(who AS INT) FROM t0", "SELECT error(\"c0_v\"::VARCHAR || 'a-secret') FROM t0"):
            with pytest.raises(EngineFailed) as caught:
                engine._ask(statement)
            assert caught.value.code in ENGINE_FAILURES
            assert caught.value.__cause__ is None
            assert caught.value.__context__ is None
            shown = "".join(traceback.format_exception(caught.value))
            assert "a-secret@" not in shown
            assert "Conversion" not in shown


# --- caps -----------------------------------------------------------------------------------------------------------

SLOW = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"


def test_a_question_that_takes_too_long_is_stopped() -> None:
    with DuckDBEngine(seconds=0.2, threads=1) as engine:
        with pytest.raises(EngineFailed) as caught:
            engine._ask(SLOW)
        assert caught.value.code == "time"
        assert engine._ask("SELECT 42") == [(42,)]


def test_a_question_that_needs_too_much_memory_is_stopped() -> None:
    with DuckDBEngine(memory="50MB", threads=1) as engine:
        with pytest.raises(EngineFailed) as caught:
            engine._ask("SELECT list(range) FROM range(100000000)")
        assert caught.value.code == "space"


def test_tables_larger_than_memory_are_filed_and_removed() -> None:
    rows = 400_000
    source = pa.table(
        {"who": pa.array([str(n % 5000) for n in range(rows)]), "v": pa.array(range(rows)), "x": pa.array([1.0] * rows)}
    )
    with DuckDBEngine(memory="60MB", threads=1) as engine:
        table = engine.register("t", source.to_reader(max_chunksize=10_000), PEOPLE, SECRET)
        assert os.path.exists(os.path.join(engine._folder.path, "tables.duckdb"))
        assert os.stat(engine._folder.path).st_mode & 0o077 == 0
        found = engine.collect(Collect(Source(table), (), None, (Count(), CountPersons())))
        assert found == {(): (10_000, 5_000)}
    assert not os.path.exists(engine._folder.path)


def test_progress_is_told() -> None:
    told: list[float] = []
    rows = 300_000
    source = pa.table(
        {"who": pa.array([str(n % 5000) for n in range(rows)]), "v": pa.array(range(rows)), "x": pa.array([1.0] * rows)}
    )
    with DuckDBEngine(threads=1) as engine:
        engine.register("t", source, PEOPLE, SECRET, progress=told.append)
    assert told[-1] == 1.0
    assert all(0 <= share <= 1 for share in told)


def test_many_threads_ask_at_once() -> None:
    with DuckDBEngine(threads=2) as engine:
        table = engine.register("t", ARROW, PEOPLE, SECRET)
        question = Collect(Source(table), (("v", col("v")),), None, SUMS)
        expected, wrong = engine.collect(question), []

        def ask() -> None:
            for _ in range(10):
                if engine.collect(question) != expected:
                    wrong.append(1)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="memory"):
        DuckDBEngine(memory="lots")
    with pytest.raises(InvalidParameter, match="seconds"):
        DuckDBEngine(seconds=0)


def test_pandas_moments_of_nanoseconds_are_rounded_to_microseconds() -> None:
    import pandas as pd

    frame = pd.DataFrame({"m": pd.to_datetime([1_500, -1_500, 1_499, None], unit="ns")})
    table = Table.of("t", Unit.row(), m=Domain.timestamp())
    with DuckDBEngine() as engine:
        registered = engine.register("t", frame, table, SECRET)
        found = engine.collect(Collect(Source(registered), (("m", col("m")),), None, (Count(),)))
    start, tick = dt.datetime(1970, 1, 1), dt.timedelta(microseconds=1)
    assert found == {(None,): (1,), (start - 2 * tick,): (1,), (start + tick,): (1,), (start + 2 * tick,): (1,)}
