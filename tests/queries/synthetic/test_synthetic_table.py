"""What is read off a synthetic table, what it may cost, and what never leaves: prices, keys, rules, errors, SQL."""

from __future__ import annotations

import datetime as dt
import math
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deniable as dn
from deniable.curves.exact_amounts import UNIT
from deniable.errors import BudgetExceeded, EngineFailed, InvalidParameter, QuestionRefused
from deniable.ledger import Ledger
from deniable.queries.plan.noise_planner import plan_under
from deniable.queries.session import Session
from deniable.queries.synthetic import synthesis_measurement, synthesis_request, synthetic_records
from tests.wording import worded

pd = pytest.importorskip("pandas")
pytest.importorskip("duckdb")

SCHEMA = {
    "sex": dn.Domain.text("f", "m", nullable=False),
    "pregnant": dn.Domain.boolean(nullable=False),
    "age": dn.Domain.integer(0, 99, nullable=False),
    "city": dn.Domain.text(),
    "pay": dn.Domain.real(0, 100),
    "at": dn.Domain.timestamp("2024-01-01 00:00", "2024-12-31 00:00", nullable=False),
}
FEW = ["sex", "pregnant"]
BUDGETS = [dn.Budget.pure(epsilon=2), dn.Budget(epsilon=2, delta=1e-6), dn.Budget.zcdp(rho=0.2, delta=1e-6)]


def people(count: int = 4000) -> Any:
    generator = np.random.default_rng(5)
    sex, age = generator.choice(["f", "m"], count), generator.integers(0, 100, count)
    return pd.DataFrame(
        {
            "sex": sex,
            "pregnant": (sex == "f") & (age >= 16) & (generator.random(count) < 0.3),
            "age": age,
            "city": generator.choice(["Aa", "Bb", "Cc"], count, p=[0.6, 0.3, 0.1]),
            "pay": np.where(generator.random(count) < 0.2, np.nan, generator.random(count) * 100),
            "at": [
                dt.datetime(2024, 1, 1) + dt.timedelta(minutes=int(m)) for m in generator.integers(0, 500_000, count)
            ],
        }
    )


def opened(table: Any = None, budget: Any = None, unit: Any = None, schema: Any = None) -> Any:
    return dn.session(
        {"people": people() if table is None else table},
        unit=unit or dn.Unit.row(),
        budget=budget or dn.Budget(epsilon=5, delta=1e-6),
        schema={"people": schema or SCHEMA},
    )


# -- what is paid ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", BUDGETS, ids=["pure", "gaussian", "zcdp"])
def test_a_price_is_what_is_charged_and_reads_nothing(budget: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(budget=budget) as s:
        engine = type(s._engine)
        kept = engine.collect
        monkeypatch.setattr(engine, "collect", lambda *_: pytest.fail("data was read"))
        price = s.price_synthesis(columns=[*FEW, "age"], share=0.5)
        assert s.ledger.charged.units == 0
        monkeypatch.setattr(engine, "collect", kept)
        made = s.synthesize(columns=[*FEW, "age"], share=0.5)
        assert made.receipt.cost == price.cost
        told = [each.variance**0.5 for each in made.marginals]
        assert list(price.deviations) == pytest.approx(told)
        laplace = math.sqrt(1 / (2 + 1 / told[3] ** 2))  # its E|x|, in standard deviations
        mean = laplace if budget.currency == "epsilon" else math.sqrt(2 / math.pi)
        assert price.errors(rows=4000)["sex × pregnant"] == pytest.approx(min(1, told[3] * mean * 4 / 2 / 4000))
        assert set(price.to_dict()) == {"cost", "fits", "least_rows", "deviations", "thresholds", "question"}
        assert "of use" in str(price)


def test_it_is_charged_before_data_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened() as s:
        engine, seen = type(s._engine), []
        kept = engine.collect

        def looked(self: Any, question: Any) -> Any:
            seen.append(s.ledger.charged.units)
            return kept(self, question)

        monkeypatch.setattr(engine, "collect", looked)
        made = s.synthesize(columns=[*FEW, "city"], unlisted=["city"], epsilon=1)
        assert len(seen) == 7
        assert set(seen) == {made.receipt.cost.units}


def test_a_run_that_fails_stays_charged_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened() as s:
        monkeypatch.setattr(synthesis_measurement, "_settled", lambda *_: [][1])
        with pytest.raises(EngineFailed) as told:
            s.synthesize(columns=[*FEW, "city"], unlisted=["city"], epsilon=1)
        assert told.value.__cause__ is None
        assert s.ledger.charged.units > 0


def test_what_was_bought_is_read_when_nothing_is_left() -> None:
    with opened() as s:
        made = s.synthesize(columns=FEW, share=1)
        again = s.synthesize(columns=FEW, share=1)
        assert again.receipt.replayed
        assert (again.marginals[0].counts == made.marginals[0].counts).all()
        with pytest.raises(BudgetExceeded):
            s.synthesize(columns=["sex", "age"], share=1)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("relation", ["add", "replace"])
def test_no_neighbours_of_a_tiny_table_are_told_apart_by_more(rows: int, relation: str) -> None:
    """Brute force: every person that can come, go or be replaced. The loss of discrete Laplace noise is |change|/scale in
    each cell, the same for the answer that tells most; summed over all cells of all counts it is at most what is paid.
    """
    kinds = list(product([False, True], repeat=2))
    budget, schema = dn.Budget.pure(epsilon=1), {name: dn.Domain.boolean(nullable=False) for name in "ab"}
    unit = dn.Unit.person("pid", rows=rows) if relation == "add" else dn.Unit.replaced_person("pid", rows=rows)
    base = [(0, False, True), (1, True, True)]
    worst = 0.0
    scales, vectors = [], []
    for mine in combinations_with_replacement(kinds, rows):
        table = pd.DataFrame([*base, *((2, *kind) for kind in mine)], columns=["pid", "a", "b"])
        with opened(table, budget, unit, {**schema, "pid": dn.Domain.integer(0, 9)}) as s:
            asked = synthesis_request.asked("people", ["a", "b"], tables=s._tables)
            made = s.synthesize(columns=["a", "b"], share=1)
            scales = [1 / (2 * math.asinh(1 / math.sqrt(2 * each.variance))) for each in made.marginals]
            exact = [s._engine.collect(plan_under(each, budget).collect) for each in asked.questions]
            vectors.append([np.array([int(n[0]) for n in each.values()]) for each in exact])
            charged = made.receipt.cost.units * float(UNIT)
    with opened(
        pd.DataFrame(base, columns=["pid", "a", "b"]), budget, unit, {**schema, "pid": dn.Domain.integer(0, 9)}
    ) as s:
        without = [
            np.array([int(n[0]) for n in s._engine.collect(plan_under(each, budget).collect).values()])
            for each in synthesis_request.asked("people", ["a", "b"], tables=s._tables).questions
        ]
    pairs = [(one, without) for one in vectors] if relation == "add" else list(product(vectors, vectors))
    for one, other in pairs:
        worst = max(worst, sum(np.abs(x - y).sum() / scale for x, y, scale in zip(one, other, scales, strict=True)))
    assert worst <= charged * (1 + 1e-9)
    assert worst > 0.99 * charged


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"method": "trees"}, "is not a known method"),
        ({"method": "independent", "target": "sex"}, 'target and method="independent" each say'),
        ({"workload": [("sex", "age")], "target": "sex"}, "workload and target each say"),
        ({"bins": pd.Series({"age": 5})}, "must map columns to numbers"),
        ({"workload": [("sex", "nowhere")]}, "not one of the columns"),
        ({"workload": [("sex", "sex")]}, "each once"),
        ({"workload": "sex"}, "must list columns"),
        ({"workload": [("sex", "age", "pregnant", "pay")]}, "1 to 3 columns"),
        ({"forbid": {"sex": "m"}}, "must be a list"),
        ({"forbid": ["sex"]}, "must be rules that give values"),
        ({"forbid": [{}]}, "must be rules that give values"),
        ({"forbid": [{"nowhere": 1}]}, "not one of the columns"),
        ({"forbid": [{"sex": "x"}]}, "cannot have"),
        ({"forbid": [{"sex": None}]}, "cannot have"),
        ({"forbid": [{"age": "old"}]}, "of the kind of age"),
        ({"forbid": [{"age": (200, 300)}]}, "names no value"),
        ({"forbid": [{"age": 1}] * 101}, "at most 100"),
        ({"forbid": [{"sex": [["m"]]}]}, "cannot have"),
        ({"forbid": [{"sex": {"m": 1}}]}, "cannot have"),
        ({"forbid": [{"sex": ["f", "m"]}]}, "every possible row"),
        ({"forbid": [{"sex": "f", "age": (None, 50)}, {"age": (51, None)}, {"sex": "m"}]}, "every possible row"),
        ({"workload": [5]}, "must list columns"),
        ({"columns": [["sex"]]}, "by name"),
        ({"columns": "sex"}, r'write columns=\["sex"\]'),
        ({"bins": {"age": 1000}}, "for age"),
        ({"forbid": [{"at": ("2024-02-01", None)}]}, "with its time"),
        ({"unlisted": "city"}, "must be a list"),
        ({"unlisted": ["sex"]}, "has keys or bounds"),
        ({"unlisted": ["nowhere"]}, "not one of the columns"),
        ({"rows": 0}, "about how many rows"),
        ({"rows": 3}, "is too small for 3 rows"),
        ({"rows": 1}, "is too small for 1 row:"),
        ({"epsilon": None, "share": 1e-20}, "is too small for"),
        ({"delta": 1e-9}, "unlisted keys"),
        ({"bins": {"age": 100, "pay": 256, "at": 256}, "workload": [("age", "pay", "at")]}, "cells"),
    ],
)
def test_bad_input_is_refused_and_nothing_charged(asked: dict[str, Any], said: str) -> None:
    with opened(people(50)) as s:
        given = {"epsilon": 1, "columns": ["sex", "pregnant", "age", "pay", "at"], **asked}
        with pytest.raises(InvalidParameter, match=said):
            s.synthesize(**given)
        assert s.ledger.charged.units == 0


def test_whose_row_it_is_was_refused_with_advice_for_other_questions() -> None:
    with opened(people(50).assign(who=range(50)), unit=dn.Unit.person("who", rows=1)) as s:
        with worded(InvalidParameter):
            s.synthesize(columns=["sex", "who"], epsilon=1)
        with pytest.raises(InvalidParameter, match=r"write columns=\[...\]"):
            s.synthesize("people", ["sex"], epsilon=1)
        assert s.ledger.charged.units == 0


def test_a_rule_up_to_the_last_day_of_all_was_an_error_of_python() -> None:
    """Bins begin behind the end of a range, and behind the last day there is none."""
    with opened(people(50)) as s:
        for ends in ((None, dt.datetime.max), ("2024-07-01 00:00", dt.datetime.max)):
            price = s.price_synthesis(columns=["sex", "at"], epsilon=1, forbid=[{"at": ends, "sex": "m"}])
            assert price.asked.forbidden.boxes
    table = pd.DataFrame({"day": [dt.date(2024, 5, 5)] * 9})
    with opened(table, schema={"day": dn.Domain.date("2024-01-01", "9999-12-31", nullable=False)}) as s:
        assert s.price_synthesis(epsilon=1, forbid=[{"day": (dt.date(2025, 1, 1), dt.date.max)}]).fits


def test_a_price_for_no_rows_is_refused() -> None:
    with opened(people(50)) as s:
        price = s.price_synthesis(columns=["sex"], epsilon=1)
        for rows in (0, -1, True, 1.5):
            with pytest.raises(InvalidParameter, match="rows"):
                price.errors(rows=rows)


def test_the_widest_reals_have_bins_on_both_sides_of_nought() -> None:
    """Their width is more than the largest float."""
    schema = {"x": dn.Domain.real(-1.7e308, 1.7e308, nullable=False)}
    with opened(
        pd.DataFrame({"x": [-1e308] * 500 + [1e308] * 500}), dn.Budget(epsilon=20, delta=1e-6), schema=schema
    ) as s:
        made = s.synthesize(epsilon=20, bins={"x": 4})
        assert [round(cell.count, -2) for cell in made.table("x").cells] == [500, 0, 0, 500]
        drawn = made.rows(100).to_pandas().x
        assert ((drawn < -8e307) | (drawn > 8e307)).all()


def test_columns_of_a_domain_without_end_are_refused() -> None:
    """A thousand million cells, from columns that are each small enough."""
    keys = dn.Domain.integer(keys=range(1000), nullable=False)
    schema = dict.fromkeys("abc", keys)
    with opened(pd.DataFrame({name: [1, 2] for name in "abc"}), schema=schema) as s:
        with pytest.raises(InvalidParameter, match="values together"):
            s.synthesize(target="a", epsilon=1)
        with pytest.raises(InvalidParameter, match="cells"):
            s.synthesize(columns=["a", "b"], epsilon=1)
        assert s.ledger.charged.units == 0


def test_a_real_number_has_no_keys_to_find_and_text_has_no_bounds() -> None:
    schema = {"x": dn.Domain.real(), "t": dn.Domain.text()}
    with opened(pd.DataFrame({"x": [1.0], "t": ["a"]}), schema=schema) as s:
        with worded(InvalidParameter):
            s.synthesize(unlisted=["x", "t"], epsilon=1)
        with worded(InvalidParameter, parameter="columns"):
            s.synthesize(columns=["t"], epsilon=1)
        assert s.ledger.charged.units == 0


# -- keys that nobody listed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", BUDGETS[1:], ids=["gaussian", "zcdp"])
def test_keys_are_found_and_a_rare_one_is_never_shown(budget: Any) -> None:
    """A key of one person is shown with the probability δ that was paid for keys: 1e-9, and 1e-8 of the other budget.
    Of 1,000 rows 600 ± 100 is 6.5 deviations.
    """
    table = people()
    table.loc[0, "city"] = "of one person"
    with opened(table, budget) as s:
        price = s.price_synthesis(columns=["sex", "city"], unlisted=["city"], share=0.5)
        [threshold] = price.thresholds
        assert 10 < threshold < 400
        made = s.synthesize(columns=["sex", "city"], unlisted=["city"], share=0.5)
        assert made.receipt.cost == price.cost
        assert made.receipt.cost.delta_units > 0
        assert made.asked.columns[1].values == ("Aa", "Bb", "Cc", None)
        rows = made.rows(1000).to_pandas()
        assert set(rows.city.dropna()) == {"Aa", "Bb", "Cc"}
        assert (rows.city == "Aa").mean() == pytest.approx(0.6, abs=0.1)
        for told in (repr(made), str(price), repr(made.quality), repr(made.table("city")), str(s.ledger.entries())):
            assert "of one person" not in told
        again = s.synthesize(columns=["city", "sex"], unlisted=["city"], share=0.1)
        assert again.receipt.replayed
        assert again.asked.columns == made.asked.columns
        assert (again.marginals[-1].counts == made.marginals[-1].counts).all()


def test_the_noise_of_found_keys_adds_up_to_what_is_charged() -> None:
    """μ² of the count that finds them, of all other counts, and nothing else: within a thousandth."""
    with opened() as s:
        made = s.synthesize(columns=["sex", "city"], unlisted=["city"], share=0.5, delta=1e-8)
        charged = made.receipt.cost.units * float(UNIT)
        counted = math.fsum(1 / (each.variance - 1 / 12) for each in made.marginals)
        assert counted / charged == pytest.approx(0.9, abs=1e-3)
        assert made.receipt.cost.delta_units * float(UNIT) == pytest.approx(1e-8, rel=1e-6)


def test_finding_keys_needs_a_delta() -> None:
    with opened(budget=dn.Budget.pure(epsilon=1)) as s:
        with pytest.raises(QuestionRefused, match="delta"):
            s.synthesize(columns=["sex", "city"], unlisted=["city"], share=0.5)
        assert s.ledger.charged.units == 0


def test_a_table_where_no_key_is_found_is_answered() -> None:
    table = pd.DataFrame({"t": [f"unique {i}" for i in range(300)], "b": [True, False] * 150})
    with opened(table, schema={"t": dn.Domain.text(), "b": dn.Domain.boolean(nullable=False)}) as s:
        made = s.synthesize(unlisted=["t"], epsilon=1)
        assert made.asked.columns[0].values == (None,)
        assert set(made.rows(20).columns["t"]) == {None}


def test_at_most_so_many_keys_are_kept_and_those_the_commonest() -> None:
    with opened() as s:
        made = s.synthesize(columns=["sex", "city"], unlisted=["city"], bins={"city": 2}, share=1)
        assert made.asked.columns[1].values == ("Aa", "Bb", None)
        cells = {cell[0]: cell[1] for cell in made.table("city")}
        assert cells[None] == pytest.approx(400, abs=200)


# -- facts -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_forbidden_is_in_no_row() -> None:
    rules: list[dict[str, Any]] = [
        {"sex": "m", "pregnant": True},
        {"age": (None, 15), "pregnant": True},
        {"pay": None, "sex": ["f"]},
        {"at": ("2024-06-10 00:00", None), "age": [50, 51]},
        {"pay": (12.5, 20), "sex": "m"},
    ]
    with opened() as s:
        made = s.synthesize(
            columns=["sex", "pregnant", "age", "pay", "at"], forbid=rules, bins={"age": 7, "pay": 5, "at": 4}, share=1
        )
        rows = made.rows(3000).to_pandas()
        assert len(rows) == 3000
        assert not (rows.pregnant & (rows.sex == "m")).any()
        assert not (rows.pregnant & (rows.age < 16)).any()
        assert not (rows.pay.isna() & (rows.sex == "f")).any()
        assert not (rows.age.isin([50, 51]) & (rows["at"] >= dt.datetime(2024, 6, 10))).any()
        assert not (rows.pay.between(12.5, 20) & (rows.sex == "m")).any()
        assert rows.pregnant.mean() == pytest.approx(people().pregnant.mean(), abs=0.04)
        cell = next(each for each in made.table("sex", "pregnant").cells if each.values == ("m", True))
        assert (cell.count, cell.error) == (0, 0)


@pytest.mark.parametrize(
    ("domain", "first", "values"),
    [
        (dn.Domain.real(1e15, 1e15 + 4, nullable=False), 1e15 + 1, np.linspace(1e15, 1e15 + 4, 33)),
        (
            dn.Domain.timestamp(dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 8), nullable=False),
            dt.datetime(2024, 1, 1, 0, 0, 0, 3),
            [dt.datetime(2024, 1, 1, 0, 0, 0, us) for us in range(9)],
        ),
    ],
)
def test_a_value_was_rounded_up_to_one_that_is_forbidden(domain: dn.Domain, first: Any, values: Any) -> None:
    """Of narrow bins: a value drawn near the end of one became the first value of the next."""
    data = pd.DataFrame({"x": np.resize(values, 2000)})
    with dn.session({"t": data}, unit=dn.Unit.row(), budget=BUDGETS[1], schema={"x": domain}) as s:
        rows = s.synthesize(columns=["x"], bins={"x": 2}, forbid=[{"x": (first, None)}], share=1).rows(2000).to_pandas()
    assert rows.x.max() < first
    assert rows.x.nunique() == sum(1 for each in values if each < first), "and all values before it are drawn"


def test_rules_cost_nothing_and_change_no_entry() -> None:
    with opened() as s:
        first = s.synthesize(columns=FEW, epsilon=1)
        ruled = s.synthesize(columns=FEW, forbid=[{"sex": "m", "pregnant": True}], epsilon=1)
        assert ruled.receipt.replayed
        assert (first.marginals[2].counts == ruled.marginals[2].counts).all()


def test_rules_were_not_told_where_the_guarantee_is() -> None:
    with opened() as s:
        plain = s.synthesize(columns=FEW, epsilon=1)
        ruled = s.synthesize(columns=FEW, forbid=[{"sex": "m", "pregnant": True}], epsilon=1)
        told = "the rules about impossible combinations (sex × pregnant) were not made from the data"
        assert ruled.guarantee.assumptions == (*plain.guarantee.assumptions, told)
        assert "By declared rules about sex × pregnant, no row has an impossible combination" in " ".join(
            ruled.statement().sentences
        )
        assert "rules" not in " ".join(plain.statement().sentences)
        said = {"table": "people", "columns": FEW, "forbid": [{"sex": "m", "pregnant": True}]}
        again = synthetic_records.read_record(synthetic_records.record_of(ruled, said, s.tables))
        assert again.guarantee.assumptions[-1] == told
        assert again.statement().sentences == ruled.statement().sentences


@pytest.mark.parametrize("epsilon", [0.02, 2])
def test_laplace_noise_was_told_as_normal_noise(epsilon: float) -> None:
    """E|x| of discrete Laplace noise is 13 % less than that of normal noise as wide."""
    with opened(budget=BUDGETS[0]) as s:
        price = s.price_synthesis(columns=["sex"], epsilon=epsilon)
    values, half = np.arange(1, 20_000), math.exp(-epsilon)
    mean = 2 * float((values * half**values).sum()) * (1 - half) / (1 + half)
    assert price.errors(rows=10**6)["sex"] == pytest.approx(mean * 2 / 2 / 10**6, rel=1e-6)


# -- what is measured ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_workload_says_what_is_counted() -> None:
    with opened() as s:
        columns = [*FEW, "age"]
        alone = s.synthesize(columns=columns, method="independent", share=0.2)
        assert [each.columns for each in alone.marginals] == [(0,), (1,), (2,)]
        named = s.synthesize(columns=columns, workload=[("age", "sex"), ("pregnant",)], share=0.2)
        assert [each.columns for each in named.marginals] == [(0,), (1,), (2,), (0, 2)]
        three = s.synthesize(columns=columns, workload=[("sex", "pregnant", "age")], share=0.2)
        assert three.marginals[-1].counts.shape == (2, 2, 32)
        assert three.table("sex", "age").cells[0].error is not None
        unknown = named.table("sex", "pregnant")
        assert {each.error for each in unknown.cells} == {None}
        assert "not measured together" in repr(unknown)


# -- what is read off ------------------------------------------------------------------------------------------------


def test_tables_and_quality_tell_their_errors() -> None:
    """Over all cells and tables, most are within two expected errors of the data, and errors are not boundless."""
    with opened() as s:
        made = s.synthesize(columns=[*FEW, "age"], bins={"age": 10}, share=1)
        table = made.table("sex", "pregnant")
        true = people().groupby(FEW).size()
        for cell in table.cells:
            assert cell.error is not None
            assert cell.error < 400
            assert abs(cell.count - true.get(cell.values, 0)) < 6 * cell.error + 10
        assert list(table.to_pandas().columns) == ["sex", "pregnant", "count", "error"]
        assert len(list(table)) == len(table) == 4
        assert table[0][:2] == ("f", False)
        assert set(made.quality) == {
            ("sex",),
            ("pregnant",),
            ("age",),
            ("sex", "pregnant"),
            ("sex", "age"),
            ("pregnant", "age"),
        }
        assert made.quality["sex"] == made.quality["sex",]
        assert made.quality["age", "sex"] == made.quality["sex", "age"]
        for unknown in ("nowhere", ("sex", "pregnant", "age"), 5):
            with worded(InvalidParameter):
                made.quality[unknown]
        assert 0 < made.quality.mean < made.quality.mean_in_rows < 0.2
        assert set(made.quality.in_rows) == set(made.quality)
        assert "sex × age" in repr(made.quality)


def test_measured_errors_are_exact_and_for_the_owner_alone() -> None:
    with opened() as s:
        made = s.synthesize(columns=FEW, share=1)
        charged = s.ledger.charged
        found = s.measured_errors(made)
        assert s.ledger.charged == charged
        true = people().groupby(FEW).size()
        fitted = {cell.values: cell.count / made.count for cell in made.table(*FEW).cells}
        off = sum(abs(fitted[key] - true.get(key, 0) / 4000) for key in fitted) / 2
        assert found.errors[tuple(FEW)] == pytest.approx(off, abs=1e-9)
        assert "NOT PRIVATE" in repr(found)
        assert not any(character.isdigit() for character in repr(found))
        assert "NOT PRIVATE" in found.describe()
        with pytest.raises(InvalidParameter, match="what synthesize"):
            s.measured_errors("made")
    other = opened(people(9), schema={**SCHEMA, "age": dn.Domain.integer(0, 50)})
    with other, pytest.raises(InvalidParameter, match="another table"):
        other.measured_errors(made)


def test_a_column_that_is_missing_in_the_first_rows_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rows that were written decided about the type, and missing values alone have none."""
    monkeypatch.setattr(synthetic_records, "_AT_ONCE", 5)
    names = pd.DataFrame({"name": [None] * 3000 + ["x"] * 60})
    with opened(names, dn.Budget(epsilon=20, delta=1e-6), schema={"name": dn.Domain.text("x")}) as s:
        made = s.synthesize(epsilon=20)
        assert str(made.rows(1).to_arrow().schema.field("name").type) == "string"
        path = tmp_path / "rows.parquet"
        synthetic_records.write_rows(made, 600, path, "parquet")
        assert set(pd.read_parquet(path).name.dropna()) == {"x"}


def test_types_are_those_of_the_schema() -> None:
    with opened() as s:
        made = s.synthesize(columns=["sex", "pregnant", "age", "pay", "at"], epsilon=3)
        types = {each.name: str(each.type) for each in made.rows(20).to_arrow().schema}
        assert types == {"sex": "string", "pregnant": "bool", "age": "int64", "pay": "double", "at": "timestamp[us]"}


def test_sql_is_answered_from_synthetic_rows_and_says_so() -> None:
    with opened() as s:
        made = s.synthesize(columns=["sex", "age"], share=1)
        found = made.sql("SELECT sex, COUNT(*) AS n, AVG(age) AS a FROM people GROUP BY sex ORDER BY sex")
        assert found.columns == ("sex", "n", "a")
        assert [row[0] for row in found] == ["f", "m"]
        assert sum(row[1] for row in found) == made.count
        assert "synthetic rows" in repr(found)
        assert "synthetic rows" in found.to_pandas().attrs["note"]
        assert made.sql("SELECT COUNT(*) FROM people", count=7).rows == ((7,),)
        with worded(InvalidParameter, parameter="question"):
            made.sql("SELECT COUNT(*) FROM person")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "COPY people TO 'out.csv'",
        "ATTACH 'x.db'",
        "SET memory_limit = '9GB'",
        "SELECT 1; SELECT 2",
        "INSTALL httpfs",
        "SELECT * FROM outside",
        "",
        "not sql",
    ],
)
def test_sql_reaches_nothing_but_the_rows(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outside = pd.DataFrame({"x": [1]})
    assert len(outside) == 1
    with opened(people(100)) as s:
        made = s.synthesize(columns=["sex"], share=1)
        with pytest.raises(InvalidParameter):
            made.sql(text)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_audited_key_finding_keeps_its_promise_and_a_twin_without_noise_is_caught() -> None:
    """One person who alone has a key, in or out. False alarm: 1e-9. The twin shows every key that somebody has."""
    from deniable import audit

    common = ["Aa"] * 40
    tables = [pd.DataFrame({"t": [*common, *extra]}) for extra in ([], ["alone"])]
    budget, unit = dn.Budget(epsilon=1, delta=1e-3, keys_delta=5e-4), dn.Unit.row()
    sessions = [opened(table, budget, unit, {"t": dn.Domain.text()}) for table in tables]

    def told(which: int) -> Any:
        first = sessions[which]
        fresh = Session(first._engine, first._tables, Ledger.open(budget=budget, unit=unit, dataset="rows"))
        made = fresh.synthesize(unlisted=["t"], share=1, delta=1e-4)
        return [float(len(made.asked.columns[0].values)), float(made.marginals[0].counts[0])]

    def broken(which: int) -> Any:
        return [*told(which), float("alone" in set(tables[which].t))]

    claim = dn.curves.approximate(epsilon=1, delta=1e-3)
    fair = audit.measure(told, neighbours=(0, 1), claim=claim, trials=200, confidence=1 - 1e-9)
    caught = audit.measure(broken, neighbours=(0, 1), claim=claim, trials=100, confidence=1 - 1e-9)
    for each in sessions:
        each.close()
    assert not fair.refuted
    assert caught.refuted
