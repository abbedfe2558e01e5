"""Sources whose names or values other readers take for something else: read as they are, or refused in words."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import deniable as dn
from deniable.errors import EngineFailed, InvalidParameter
from tests.queries.hospital import GAUSSIAN
from tests.wording import worded

SUM = "SELECT COUNT(*) AS n, SUM(x) AS s FROM t"
MU = 1000


def added(source: object, engine: object = "duckdb", **more: Any) -> tuple[int, ...]:
    declared = {"x": dn.Domain.integer(0, 1), **more}
    with dn.session({"t": source}, unit=dn.Unit.row(), budget=GAUSSIAN, schema=declared, engine=engine) as session:
        [row] = session.sql(SUM, mu=MU).rows
        return tuple(round(each) for each in row)


def write(path: Path, value: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".csv":
        path.write_text("x\n" + f"{value}\n" * 50, encoding="utf-8")
    else:
        pyarrow.parquet.write_table(pa.table({"x": [value] * 50}), path)
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_with_wildcards_in_its_name_is_not_read_as_another_file(ending: str, tmp_path: Path) -> None:
    """`a [2].csv` was read as `a 2.csv`, and `b*.parquet` along with `bc.parquet`."""
    for name, other in (
        ("a [2]", "a 2"), ("b*", "bc"), ("q?", "qr"), ("w{1}", "w1"), ("d[1]/x", "d1/x"), ("s]*]", "s]y]"),
    ):  # fmt: skip
        literal, near = (write(tmp_path / f"{each}.{ending}", at) for at, each in enumerate((name, other)))
        assert added(literal) == (50, 0), name
        assert added(near) == (50, 50), other
    assert added(tmp_path / "d[1]" / f"*.{ending}") == (50, 0)  # a folder that exists has no wildcards
    with pytest.raises(InvalidParameter, match="backslash"):
        added(write(tmp_path / f"back\\slash*.{ending}", 0))


@pytest.mark.slow
def test_a_file_with_wildcards_in_its_name_is_not_read_as_another_file_by_spark(spark: Any, tmp_path: Path) -> None:
    for name, other in (("a [2]", "a 2"), ("b*", "bc")):
        literal, near = (write(tmp_path / f"{each}.parquet", at) for at, each in enumerate((name, other)))
        assert added(literal, engine=spark) == (50, 0), name
        assert added(near, engine=spark) == (50, 50), other
    with pytest.raises(InvalidParameter, match="wildcard"):
        added(write(tmp_path / "a [2].csv", 0), engine=spark)


def test_a_long_value_of_one_person_does_not_stop_a_csv_file_from_being_read(tmp_path: Path) -> None:
    """One record of 2,000,000 bytes failed all of the file, also where it stood in a column that nobody declared."""
    path = tmp_path / "long.csv"
    for more in (2_000_000, 5_000_000):
        path.write_text("x,y\n" + "1,a\n" * 50 + f'1,"{"b" * more}\n"\n' + "0,c\n" * 10, encoding="utf-8")
        assert added(path) == (61, 51)


@pytest.mark.parametrize("kind", ["object", "string", "category"])
def test_text_that_is_no_unicode_is_missing_and_stops_nothing(kind: str) -> None:
    """Half of a character, as JSON and old file names leave it behind, failed the whole frame."""
    text = pd.Series(["a", "é", None, "a\ud800"] * 10, dtype=pd.StringDtype("python") if kind == "string" else object)
    if kind == "category":
        text = pd.Series(pd.Categorical.from_codes([0, 1, -1, 2] * 10, pd.Index(["a", "é", "a\ud800"], dtype=object)))
    frame = pd.DataFrame({"x": [1] * 40, "y": text})
    assert added(frame) == (40, 40)
    with dn.session(
        {"t": frame}, unit=dn.Unit.row(), budget=GAUSSIAN, schema={"x": dn.Domain.integer(0, 1)}
    ) as session:
        assert round(session.sql("SELECT COUNT(y) AS n FROM t", mu=MU).rows[0][0]) == 20


STRANGE = {
    "interval": pd.cut(pd.Series(range(10)), 3),
    "period": pd.Series(pd.period_range("2024-01", periods=10, freq="M")),
    "intervals": pd.Series(pd.interval_range(0, 10)),
    "sparse": pd.Series(pd.arrays.SparseArray([1] * 10)),
    "complex": pd.Series([1j] * 10),
    "longdouble": pd.Series([1] * 10, dtype="longdouble"),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_pandas_column_of_no_kind_is_left_alone_unless_it_is_declared(kind: str) -> None:
    """DuckDB's own error came out, also for columns that nobody declared."""
    frame = pd.DataFrame({"x": [1] * 10, "y": STRANGE[kind]})
    assert added(frame) == (10, 10)
    with worded(InvalidParameter, parameter="columns"):
        added(frame, y=dn.Domain.text())


def test_a_link_that_leads_nowhere_is_refused_in_words(tmp_path: Path) -> None:
    os.symlink("loop.csv", tmp_path / "loop.csv")
    os.symlink("gone", tmp_path / "dangling.csv")
    for name in ("loop.csv", "dangling.csv"):
        with pytest.raises(InvalidParameter, match="symbolic link"):
            added(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x\n1\n\n1\n", (2, 2)),
        ("x\n1\n\n\n", (1, 1)),
        ("\n".join(["x", "", "", ""]), (0, 0)),
        ("x\r\n1\r\n\r\n1\r\n", (2, 2)),
        ('x\n""\n\n1\n', (2, 1)),
    ],
)
def test_a_blank_line_of_a_file_with_one_column_is_no_record(
    text: str, expected: tuple[int, int], tmp_path: Path
) -> None:
    """It was refused, with the advice to end lines as they ended already; "" in quotes is a record."""
    (tmp_path / "a.csv").write_bytes(text.encode())
    assert added(tmp_path / "a.csv") == expected


@pytest.mark.slow
def test_a_table_too_wide_to_be_read_has_a_remedy(tmp_path: Path) -> None:
    """5,000 columns, of which one was declared: "the engine needed more memory", and nothing to do about it."""
    from deniable.queries.engines.duckdb import DuckDBEngine

    names = [f"c{at}" for at in range(2_000)]
    (tmp_path / "a.csv").write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n", encoding="utf-8")
    declared = dn.Domain.integer(0, 1)
    with (
        DuckDBEngine(memory="30MB", threads=1) as engine,
        worded(EngineFailed, code="space"),
    ):
        dn.session(
            {"t": tmp_path / "a.csv"}, unit=dn.Unit.row(), budget=GAUSSIAN, schema={"c1": declared}, engine=engine
        )
    whole = {"tables": {"t": {"columns": {"c1": {"kind": "integer", "low": 0, "high": 1}}}}}
    with dn.session({"t": tmp_path / "a.csv"}, unit=dn.Unit.row(), budget=GAUSSIAN, schema=whole) as session:
        assert round(session.sql("SELECT SUM(c1) AS s FROM t", mu=MU).rows[0][0]) == 1
