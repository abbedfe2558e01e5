"""Several Parquet files as one table, which do not have the same columns, or not of the same types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import deniable as dn
from deniable.errors import InvalidParameter

pa = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

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


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"y": ["a"]}, "has no column 'x'"),
        ({"x": [1]}, "has no column 'y'"),
        ({"x": [1], "X": [2], "y": ["a"]}, "has several columns 'x'"),
    ],
)
def test_a_column_that_a_later_file_has_not_was_a_source_that_could_not_be_read(tmp_path, other, said) -> None:
    with pytest.raises(
        InvalidParameter, match=rf"source='1.parquet': {said}, .*; write the files with the same columns"
    ):
        asked(tmp_path, PLAIN, other)


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
