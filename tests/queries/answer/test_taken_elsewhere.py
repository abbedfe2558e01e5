"""Answers as data frames: what stays what it is, and what is said where a library is missing."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import deniable as dn
from deniable.errors import MissingExtra
from deniable.queries.answer.answer import Answer
from tests.wording import worded

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def answer() -> Answer:
    table = pd.DataFrame({"k": [0, 1, None] * 300, "b": [True, None, False] * 300, "x": [1.0, 2.5, 0.5] * 300})
    schema = {"k": dn.Domain.integer(keys=[0, 1]), "b": dn.Domain.boolean(), "x": dn.Domain.real(0, 3)}
    budget = dn.Budget.pure(epsilon=1000)
    with dn.session({"t": table}, unit=dn.Unit.row(), budget=budget, schema=schema) as s:
        return s.sql("SELECT k, b, COUNT(*) AS n, SUM(x) AS s, AVG(x) AS m FROM t GROUP BY k, b", epsilon=100)


def test_whole_keys_among_which_one_is_missing_stay_whole(answer: Answer) -> None:
    """They came as 0.0 and 1.0, with NaN for what is missing."""
    frame = answer.to_pandas(intervals=True)
    assert str(frame["k"].dtype) == "Int64"
    assert str(frame["b"].dtype) == "boolean"
    assert str(frame["n"].dtype) == "int64"
    assert [None if pd.isna(each) else each for each in frame["k"]] == list(answer["k"])
    assert [None if pd.isna(each) else bool(each) for each in frame["b"]] == list(answer["b"])
    assert frame["k"].isna().sum() == 3


def test_all_conversions_say_the_same(answer: Answer) -> None:
    """Sums that happen to be whole stand beside such that are not: as polars has it, one column is of one kind."""
    pandas, arrow = answer.to_pandas(intervals=True), answer.to_arrow(intervals=True)
    polars = answer.to_polars(intervals=True)
    assert list(pandas) == arrow.column_names == polars.columns
    for name in pandas:
        rows = [None if pd.isna(each) else each for each in pandas[name]]
        assert rows == arrow.column(name).to_pylist() == polars[name].to_list()


@pytest.mark.parametrize("limit", [0, 1])
def test_the_columns_of_ends_came_and_went_with_the_noise(limit: int) -> None:
    """Where no row had an interval, or there were no rows, there were no columns v_low and v_high."""
    table = pd.DataFrame({"x": [1.0]})
    budget = dn.Budget.gaussian(mu=10)
    schema = {"x": dn.Domain.real(0, 3)}
    with dn.session({"t": table}, unit=dn.Unit.row(), budget=budget, schema=schema) as s:
        assert str(s.price("SELECT COUNT(*) AS n FROM t", mu=9)).endswith("about 1 such question")
        found = s.sql(f"SELECT 5 / (COUNT(*) - COUNT(*)) AS v FROM t LIMIT {limit}", mu=0.01)
    assert set(found.interval("v")) <= {None}
    assert "±" not in str(found), "no interval is shown that this could be about"
    pandas, arrow = found.to_pandas(intervals=True), found.to_arrow(intervals=True)
    polars = found.to_polars(intervals=True)
    assert list(pandas) == arrow.column_names == polars.columns == ["v", "v_low", "v_high"]
    for end in ("v_low", "v_high"):
        assert str(pandas[end].dtype) == "float64"
        assert str(polars[end].dtype) == "Float64"
        assert str(arrow.column(end).type) == "double"


@pytest.mark.parametrize(("call", "package", "extra"), [
    ("to_pandas", "pandas", None),
    ("to_polars", "polars", None),
    ("to_arrow", "pyarrow", "sql"),
])  # fmt: skip
def test_a_conversion_names_what_brings_its_library(
    answer: Answer, call: str, package: str, extra: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str, package: str | None = None) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with worded(MissingExtra, package=package, extra=extra):
        getattr(answer, call)()


def extras() -> dict[str, set[str]]:
    """For each extra, the packages that it brings, by way of others too."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]

    def brought(extra: str) -> Iterator[str]:
        for each in declared[extra]:
            inner = re.match(r"deniable\[(.*)\]", each)
            if inner:
                for one in inner[1].split(","):
                    yield from brought(one)
            else:
                yield re.split(r"[\[<>=; ]", each)[0].lower()

    return {extra: set(brought(extra)) for extra in declared}


def test_every_extra_that_an_error_names_brings_the_package() -> None:
    known, seen = extras(), 0
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "MissingExtra(" in text else ():
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "MissingExtra":
                continue
            package, extra = node.args
            names = [each.value for each in ast.walk(package) if isinstance(each, ast.Constant)]
            if not isinstance(extra, ast.Constant):
                continue
            seen += 1
            if extra.value is None:
                assert not any(name in brought for name in names for brought in known.values()), (path, names)
            else:
                assert all(str(name).lower() in known[extra.value] for name in names), (path, names, extra.value)
    assert seen >= 15
