"""Several Parquet files as one table, which do not have the same columns, or not of the same types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import deniable as dn
from deniable.errors import InvalidParameter

pa = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

from tests.wording import worded  # noqa: E402

PLAIN = {"x": [1, 2, 3], "y": ["a", "b", "c"]}


def asked(folder: Path, *tables: dict[str, list[Any]], domain: dn.Domain | None = None) -> float:
    """The sum of x, nearly without noise."""
    for at, each in enumerate(tables):
        parquet.write_table(pa.table(each), folder / f"{at}.parquet")
    schema = {"x": domain or dn.Domain.integer(0, 9)}
    with dn.session({"t": folder}, unit=dn.Unit.row(), budget=dn.Budget.pure(epsilon=1000), schema=schema) as s:
        [total] = s.sql("SELECT SUM(x) AS a FROM t", epsilon=900)["a"]
        return float(total)


@pytest.mark.parametrize("other", [{"y": ["a"], "x": [3]}, {"X": [3], "Y": ["a"]}, {"x": [3], "z": [1], "y": ["a"]}])
def test_another_order_other_case_and_more_columns_are_taken(tmp_path, other) -> None:
    assert asked(tmp_path, PLAIN, other) == pytest.approx(9, abs=0.5)


def test_a_column_of_the_same_name_twice_is_refused(tmp_path) -> None:
    with worded(InvalidParameter, parameter="source", asked="1.parquet"):
        asked(tmp_path, PLAIN, {"x": [1], "X": [2], "y": ["a"]})


@pytest.mark.parametrize("order", [1, -1])
def test_a_column_that_a_file_has_not_is_missing_in_its_rows(tmp_path, order) -> None:
    tables = [PLAIN, {"y": ["a", "b"]}, {"x": [4]}][::order]
    assert asked(tmp_path, *tables) == pytest.approx(10, abs=0.5)


def test_a_file_without_ids_is_refused_because_its_rows_would_be_left_out(tmp_path) -> None:
    for at, each in enumerate([{"who": [1, 2], "x": [1, 2]}, {"x": [3]}]):
        parquet.write_table(pa.table(each), tmp_path / f"{at}.parquet")
    given = {"unit": dn.Unit.person("who", rows=2), "budget": dn.Budget.pure(epsilon=1)}
    with worded(InvalidParameter):
        dn.session({"t": tmp_path}, **given)


def test_folders_of_hive_are_columns(tmp_path) -> None:
    """Values of folders are texts, which the schema makes numbers; a later file may have one column more."""
    parts = {"year=2024/ward=A": {"x": [1, 2]}, "year=2025/ward=B%20C": {"x": [3], "y": ["q"]}}
    parts["year=__HIVE_DEFAULT_PARTITION__/ward=A"] = {"x": [4]}
    for folder, each in parts.items():
        (tmp_path / folder).mkdir(parents=True)
        parquet.write_table(pa.table(each), tmp_path / folder / "0.parquet")
    schema = {
        "x": dn.Domain.integer(0, 9),
        "year": dn.Domain.integer(2020, 2030),
        "ward": dn.Domain.text("A", "B C"),
        "y": dn.Domain.text("q"),
    }
    with dn.session({"t": tmp_path}, unit=dn.Unit.row(), budget=dn.Budget.pure(epsilon=5000), schema=schema) as s:

        def found(sql):
            return [round(each) for each in s.sql(sql, epsilon=900)["a"]]

        assert found("SELECT year, SUM(x) AS a FROM t WHERE year IN (2024, 2025) GROUP BY year") == [3, 3]
        assert found("SELECT ward, SUM(x) AS a FROM t WHERE ward IN ('A', 'B C') GROUP BY ward") == [7, 3]
        assert found("SELECT COUNT(*) AS a FROM t WHERE year IS NULL") == [1]
        assert found("SELECT COUNT(*) AS a FROM t WHERE y = 'q'") == [1]


def test_one_file_below_a_folder_of_hive_has_its_own_columns_only(tmp_path) -> None:
    (tmp_path / "year=2024").mkdir()
    parquet.write_table(pa.table(PLAIN), tmp_path / "year=2024" / "0.parquet")
    given = {"unit": dn.Unit.row(), "budget": dn.Budget.pure(epsilon=1)}
    with dn.session({"t": tmp_path / "year=2024" / "0.parquet"}, **given) as s:
        assert "year" not in dict(s.tables["t"].columns)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("values", "total"),
    [(["1", "2", "q"], 9), (["1", "2", "3"], 12), ([1.0, 2.0, None], 9), ([None, None, None], 6), ([1.0, float("nan")], 7)],
)  # fmt: skip
def test_a_value_of_another_type_in_a_later_file_stopped_everything(tmp_path, values, total, order) -> None:
    """What is no number is missing, whichever file comes first."""
    tables = [PLAIN, {"x": values, "y": ["a"] * len(values)}][::order]
    assert asked(tmp_path, *tables) == pytest.approx(total, abs=0.5)


def test_a_real_number_in_a_later_file_is_not_rounded(tmp_path) -> None:
    assert asked(tmp_path, PLAIN, {"x": [0.5], "y": ["a"]}, domain=dn.Domain.real(0, 9)) == pytest.approx(6.5, abs=0.25)
