"""Synthetic tables from a session: one entry, paid before data is read, read again at no cost, and within the schema."""

from __future__ import annotations

import datetime as dt
import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deniable as dn
from deniable import audit
from deniable.curves.exact_amounts import UNIT
from deniable.errors import BudgetExceeded, InvalidParameter, QuestionRefused
from deniable.ledger import Ledger
from deniable.queries.session import Session

pd = pytest.importorskip("pandas")
pytest.importorskip("duckdb")

SCHEMA = {
    "age": dn.Domain.integer(18, 90),
    "sex": dn.Domain.text("f", "m", nullable=False),
    "pay": dn.Domain.real(0.0, 100.0),
    "since": dn.Domain.date("2020-01-01", "2021-12-31", nullable=False),
    "smokes": dn.Domain.boolean(nullable=False),
    "free": dn.Domain.text(),
}
COLUMNS = ["age", "sex", "pay", "since", "smokes"]


def people(count: int = 5000) -> Any:
    generator = np.random.default_rng(4)
    sex = generator.choice(["f", "m"], count)
    age = generator.integers(18, 91, count).astype(float)
    age[generator.random(count) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "age": pd.array([None if np.isnan(each) else int(each) for each in age], dtype="Int64"),
            "sex": sex,
            "pay": np.where(sex == "f", generator.uniform(0, 50, count), generator.uniform(50, 100, count)),
            "since": [dt.date(2020, 1, 1) + dt.timedelta(days=int(each)) for each in generator.integers(0, 731, count)],
            "smokes": generator.random(count) < np.where(sex == "f", 0.1, 0.6),
            "free": "x",
        }
    )


def opened(tmp_path: Path, budget: Any = None, unit: Any = None, **more: Any) -> Any:
    path = tmp_path / "people.parquet"
    people().to_parquet(path)
    return dn.session(
        path, unit=unit or dn.Unit.row(), budget=budget or dn.Budget(epsilon=5, delta=1e-9), schema=SCHEMA, **more
    )


def test_rows_are_like_the_tables_and_within_the_schema(tmp_path: Path) -> None:
    with opened(tmp_path) as s:
        made = s.synthesize(columns=COLUMNS, bins={"pay": 10}, share=1)
        assert made.columns == tuple(COLUMNS)
        rows = made.rows(4000).to_pandas()
    assert len(rows) == 4000
    assert abs(made.count - 5000) < 100
    assert set(rows.sex) == {"f", "m"}
    assert rows.age.dropna().between(18, 90).all()
    assert 0.05 < rows.age.isna().mean() < 0.15
    assert rows.pay.dropna().between(0, 100).all()
    assert {type(each) for each in rows.since} == {dt.date}
    assert rows.since.min() >= dt.date(2020, 1, 1)
    assert rows.since.max() <= dt.date(2021, 12, 31)
    assert rows.smokes.dtype == bool
    # What goes together in the table goes together in the rows.
    assert rows[rows.sex == "m"].smokes.mean() - rows[rows.sex == "f"].smokes.mean() == pytest.approx(0.5, abs=0.1)
    assert (rows[rows.sex == "f"].pay.dropna() < 55).mean() > 0.9
    with pytest.raises(InvalidParameter, match="each once"):
        made.table("sex", "sex")
    cells = {cell[:2]: cell[2] for cell in made.table("sex", "smokes")}
    assert cells["m", True] == pytest.approx(1500, rel=0.15)


def paid(made: Any, budget: Any) -> float:
    """What the noise of all counts is worth together, from the variances told, over what was charged.

    One row moves one cell of each marginal by one: Gaussian noise of variance v costs μ² = 1/v and ρ = 1/(2v), where
    rounding adds 1/12 to the variance; geometric noise costs ε with v = 2·e^ε/(e^ε - 1)².
    """
    charged = made.receipt.cost.units * float(UNIT)
    variances = [each.variance for each in made.marginals]
    worth = {
        "mu2": lambda v: 1 / (v - 1 / 12),
        "rho": lambda v: 1 / (2 * (v - 1 / 12)),
        "epsilon": lambda v: 2 * math.asinh(1 / math.sqrt(2 * v)),
    }[budget.currency]
    return math.fsum(map(worth, variances)) / charged


@pytest.mark.parametrize(
    "budget",
    [dn.Budget.pure(epsilon=2), dn.Budget(epsilon=2, delta=1e-6), dn.Budget.zcdp(rho=0.2)],
    ids=["pure", "gaussian", "zcdp"],
)
def test_all_counts_together_are_worth_what_is_charged(tmp_path: Path, budget: Any) -> None:
    """Neither less is charged than the noise is worth, nor more by a thousandth."""
    with opened(tmp_path, budget=budget) as s:
        made = s.synthesize(columns=["age", "sex", "smokes"], share=0.5)
        assert len(made.marginals) == 6
        assert paid(made, budget) == pytest.approx(1, abs=1e-3)
        assert made.receipt.cost.units == pytest.approx(budget.limit.units / 2, rel=1e-6)
        assert s.ledger.charged.units == made.receipt.cost.units


def test_it_is_one_entry_that_is_read_again_for_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as s:
        made = s.synthesize(columns=["age", "sex", "smokes"], epsilon=1)
        assert made.receipt.entry == 1
        assert made.guarantee.curve.epsilon(delta=1e-9) == pytest.approx(1, abs=1e-2)
        again = s.synthesize(columns=["smokes", "age", "sex"], epsilon=1)
        assert again.receipt.replayed
        assert again.receipt.entry == 1
        assert again.columns == ("smokes", "age", "sex")
        assert tuple(again.rows(2).columns) == again.columns
        for one, other in zip(made.marginals, again.marginals, strict=True):
            assert (one.counts == other.counts).all()
            assert one.variance == other.variance
        less = s.synthesize(columns=["age", "sex", "smokes"], epsilon=0.5)
        assert less.receipt.replayed
        more = s.synthesize(columns=["age", "sex", "smokes"], epsilon=2)
        assert not more.receipt.replayed
        assert more.marginals[0].variance < 0.5 * made.marginals[0].variance
        other = s.synthesize(columns=["sex", "smokes"], epsilon=0.1)
        assert not other.receipt.replayed
        assert other.receipt.entry == 3


def test_what_the_fit_cannot_follow_is_told(tmp_path: Path) -> None:
    """700 values that decide each other: more than the components that there are."""
    count = 700
    table = pd.DataFrame({"a": np.arange(70_000) % count, "b": np.arange(70_000) % count})
    keys = dn.Domain.integer(keys=range(count), nullable=False)
    with dn.session(
        table, unit=dn.Unit.row(), budget=dn.Budget(epsilon=5, delta=1e-9), schema={"a": keys, "b": keys}
    ) as s:
        with pytest.raises(InvalidParameter, match="cells"):
            s.synthesize(share=1)
        assert s.spent.epsilon(delta=1e-9) == 0


@pytest.mark.slow
def test_values_that_decide_each_other_do_so_in_the_rows() -> None:
    """Eighty values take more components than a fit begins with: a fit of sixty had two thirds of the rows right."""
    table = pd.DataFrame({"a": np.arange(16_000) % 80, "b": np.arange(16_000) % 80})
    keys = dn.Domain.integer(keys=range(80), nullable=False)
    with dn.session(
        table, unit=dn.Unit.row(), budget=dn.Budget(epsilon=5, delta=1e-9), schema={"a": keys, "b": keys}
    ) as s:
        made = s.synthesize(share=1)
        rows = made.rows(10_000).to_pandas()
        assert (rows.a == rows.b).mean() > 0.85
        assert made.model.misfit < 1.5
        assert made.notes == ()


def test_noise_as_large_as_the_table_is_told(tmp_path: Path) -> None:
    with opened(tmp_path) as s:
        made = s.synthesize(columns=["sex", "smokes"], epsilon=1e-6)
        assert any("noise is as large" in each for each in made.notes)
        assert "noise is as large" in repr(made)
        fine = s.synthesize(columns=["sex", "smokes"], epsilon=1)
        assert fine.notes == ()


def test_so_much_that_no_noise_is_left_is_answered(tmp_path: Path) -> None:
    with opened(tmp_path, budget=dn.Budget.pure(epsilon=1000)) as s:
        made = s.synthesize(columns=["sex", "smokes"], share=1)
        assert len(made.rows(10)) == 10


@pytest.mark.parametrize(
    "budget",
    [dn.Budget.pure(epsilon=2), dn.Budget(epsilon=2, delta=1e-6), dn.Budget.zcdp(rho=0.2)],
    ids=["pure", "gaussian", "zcdp"],
)
def test_the_variance_of_every_count_is_told(tmp_path: Path, budget: Any) -> None:
    """The mean square of some 20,000 noisy counts' errors, over the variance told: within 6.5 standard errors of 1 (of
    Laplace noise, whose squares vary most: 10 %). False alarm: 1e-9.
    """
    with opened(tmp_path, budget=budget) as s:
        made = s.synthesize(columns=["age", "sex", "pay"], bins={"age": 73, "pay": 256}, share=1)
    table, places = people(), []
    for column in made._asked.columns:
        starts = [each for each in column.values if each is not None]
        if column.binned:
            above = np.searchsorted(starts, table[column.name].astype(float).fillna(-1), "right") - 1
            places.append(np.where(table[column.name].isna(), len(starts), above))
        else:
            places.append(np.array([column.values.index(each) for each in table[column.name]]))
    squares, cells = 0.0, 0
    for each in made.marginals:
        true = np.zeros(each.counts.shape)
        np.add.at(true, tuple(places[place] for place in each.columns), 1)
        squares += float(((each.counts - true) ** 2).sum() / each.variance)
        cells += each.counts.size
    assert cells > 19_000
    assert abs(squares / cells - 1) < 6.5 * np.sqrt(5 / cells)


def test_a_person_with_several_rows_is_protected_as_a_whole(tmp_path: Path) -> None:
    table = people().assign(pid=np.arange(5000) // 5)
    path = tmp_path / "visits.parquet"
    table.to_parquet(path)
    found = {}
    for rows in (1, 5):
        with dn.session(
            path, unit=dn.Unit.person("pid", rows=rows), budget=dn.Budget(epsilon=1, delta=1e-9),
            schema={**SCHEMA, "pid": dn.Domain.integer()},
        ) as s:  # fmt: skip
            made = s.synthesize(columns=["sex", "smokes"], share=1)
            assert "pid" not in made.columns
            found[rows] = made.marginals[-1].variance
    # A person with five rows moves one cell by 5 at most, or several by less: L2 sensitivity 5.
    assert found[5] == pytest.approx(25 * found[1], rel=0.02)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"columns": ["free"]}, "neither keys nor bounds"),
        ({"columns": ["sex", "sex"]}, "is named twice"),
        ({"columns": []}, "1 to 64"),
        ({"columns": ["sex"], "bins": {"sex": 3}}, "has keys"),
        ({"columns": ["age"], "bins": 3}, "must map columns to numbers"),
        ({"columns": ["age"], "bins": {"age": 1}}, "from 2 to 256"),
        ({"columns": ["age"], "bins": {"age": True}}, "from 2 to 256"),
        ({"columns": ["age"], "bins": {"pay": 4}}, "not one of the columns"),
        ({"columns": ["age", "pay", "since"], "bins": {"age": 73, "pay": 256, "since": 256}, "target": "age"}, "cells"),
        ({"columns": ["age"], "target": "sex"}, "not one of the columns"),
        ({"columns": ["age"], "within": 5}, "within"),
        ({}, "neither keys nor bounds"),
    ],
)
def test_what_cannot_be_made_is_refused_and_nothing_charged(tmp_path: Path, asked: dict[str, Any], said: str) -> None:
    with opened(tmp_path) as s:
        cost = {} if "within" in asked else {"epsilon": 1}
        with pytest.raises(InvalidParameter, match=said):
            s.synthesize(**asked, **cost)
        with pytest.raises((QuestionRefused, InvalidParameter)):
            s.synthesize(columns=["nowhere"], epsilon=1)
        assert s.spent.epsilon(delta=1e-9) == 0
        with pytest.raises(BudgetExceeded):
            s.synthesize(columns=["sex", "smokes"], epsilon=6)
        assert s.spent.epsilon(delta=1e-9) == 0


@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_of_hardly_any_rows_is_answered(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "few.parquet"
    people(10).head(rows).to_parquet(path)
    with dn.session(path, unit=dn.Unit.row(), budget=dn.Budget(epsilon=1, delta=1e-9), schema=SCHEMA) as s:
        made = s.synthesize(columns=["sex", "smokes"], share=1)
        assert made.count >= 1
        assert len(made.rows(3)) == 3


@pytest.mark.slow
def test_audited_it_keeps_its_promise_and_a_broken_twin_is_caught(tmp_path: Path) -> None:
    """One row more or less, seen through all noisy counts. False alarm: 1e-9."""
    paths = []
    for count in (3, 4):
        paths.append(tmp_path / f"rows{count}.parquet")
        pd.DataFrame({"a": [True, False, True, True][:count], "b": [True, True, False, True][:count]}).to_parquet(
            paths[-1]
        )
    schema = {name: dn.Domain.boolean(nullable=False) for name in "ab"}
    budget, unit = dn.Budget.pure(epsilon=1), dn.Unit.row()
    with ExitStack() as kept:
        sessions = [kept.enter_context(dn.session(path, unit=unit, budget=budget, schema=schema)) for path in paths]

        def told(which: int) -> Any:
            """With a ledger of its own each time, so that nothing is given again."""
            first = sessions[which]
            made = Session(
                first._engine, first._tables, Ledger.open(budget=budget, unit=unit, dataset="rows")
            ).synthesize(share=1)
            return np.concatenate([each.counts.ravel() for each in made.marginals]).tolist()

        def broken(which: int) -> Any:
            """As if the counts by single columns cost nothing: one is released without its noise."""
            return [*told(which)[4:], float(pd.read_parquet(paths[which]).a.sum())]

        claim = dn.curves.pure(epsilon=1)
        fair = audit.measure(told, neighbours=(0, 1), claim=claim, trials=400, confidence=1 - 1e-9)
        caught = audit.measure(broken, neighbours=(0, 1), claim=claim, trials=100, confidence=1 - 1e-9)
    assert not fair.refuted
    assert caught.refuted
