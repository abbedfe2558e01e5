"""What people read of a synthetic table: its tables, errors, notes, types and methods paragraph."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import deniable as dn
from deniable.errors import InvalidParameter, UnreadableRecord
from deniable.queries.synthetic import synthetic_records
from deniable.synth import mixture
from tests.queries.synthetic.test_synthetic_table import BUDGETS, FEW, opened, people
from tests.wording import worded

pd = pytest.importorskip("pandas")


def test_a_fitted_table_calls_its_error_a_standard_error_and_says_what_a_bin_is() -> None:
    """`±` is an interval at 95 % everywhere else; and 33 was the bin from 33 to 35 without a word."""
    made = opened().synthesize(columns=["sex", "age"], epsilon=2)
    head, rule, first, *_ = str(made.table("sex")).splitlines()
    assert head.split() == ["sex", "count", "standard", "error"]
    assert set(rule) == {"─", " "}
    assert first.startswith("f ")
    assert "±" not in str(made.table("sex", "age"))
    assert str(made.table("age")).endswith("A value of age stands for the bin that starts with it.")
    assert made.table("sex").notes == ()
    answered = str(made.sql("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex ORDER BY sex")).splitlines()
    assert answered[0].split() == ["sex", "n"]
    assert answered[2].startswith("f ")


def test_a_bin_of_one_value_is_that_value() -> None:
    """Of a column of 0 and 1 it was said that each stands for a bin."""
    table = pd.DataFrame({"yes": [0, 1] * 100, "age": [3, 40] * 100})
    schema = {"yes": dn.Domain.integer(0, 1), "age": dn.Domain.integer(0, 99)}
    made = opened(table, schema=schema).synthesize(epsilon=1)
    assert made.table("yes").notes == ()
    assert made.table("yes", "age").notes == ("A value of age stands for the bin that starts with it.",)


@pytest.mark.slow
@pytest.mark.parametrize("budget", BUDGETS, ids=["pure", "gaussian", "zcdp"])
def test_the_standard_error_of_a_count_left_out_that_of_the_number_of_rows(budget: Any) -> None:
    """A column of one value: its count is the noisy number of rows, and was told with an error of 0."""
    table, schema = pd.DataFrame({"only": ["a"] * 900}), {"only": dn.Domain.text("a", nullable=False)}
    with opened(table, budget, schema=schema) as s:
        noise = s.price_synthesis(share=0.01).deviations[0]
        assert noise > 1
        assert s.synthesize(share=0.01).table("only").cells[0].error == pytest.approx(noise, rel=1e-6)
        assert s.synthesize(share=0.01, rows=900).table("only").cells[0].error == 0
    with opened(budget=budget) as s:
        price, made = s.price_synthesis(columns=FEW, share=0.1), s.synthesize(columns=FEW, share=0.1)
        sums = [1 / (size * deviation**2) for size, deviation in zip((2, 2, 4), price.deviations, strict=True)]
        for cell in made.table("sex").cells:
            assert cell.error is not None
            assert cell.error >= cell.count / made.count * sum(sums) ** -0.5


def test_whole_numbers_stay_whole_where_some_are_missing() -> None:
    """pandas makes floats of them: an age of 34.0."""
    rows = synthesis_rows({"age": [3, None], "ok": [None, True], "sex": ["f", None]})
    assert [str(each) for each in rows.to_pandas().dtypes[:2]] == ["Int64", "boolean"]
    assert rows.to_pandas().age[0] == 3


def synthesis_rows(columns: dict[str, list[Any]]) -> Any:
    from deniable.queries.synthetic.synthetic_table import SyntheticRows

    return SyntheticRows(columns, {})


def test_the_size_of_noise_is_told_in_plain_numbers() -> None:
    """5.56e+04 to 2e+05 rows were said, and 50.4 to 50.4."""
    session = opened()
    assert "e+" not in str(session.price_synthesis(columns=["sex", "age"], epsilon=0.0001))
    assert " to " not in str(session.price_synthesis(columns=["sex"], epsilon=0.1)).splitlines()[2]


@pytest.mark.parametrize("budget", BUDGETS, ids=["pure", "gaussian", "zcdp"])
def test_a_synthetic_table_has_a_methods_paragraph(budget: Any) -> None:
    """The same for whoever has the record of it, and nothing of the data is in it."""
    session = opened(budget=budget)
    made = session.synthesize(columns=["sex", "age"], share=0.5)
    said = str(made.statement()).replace("\n", " ")
    assert "This synthetic table is" in said
    assert "Rows were counted by sex, age, sex × age, with noise." in said
    assert "sex: one of f, m; age: integer from 0 to 99" in said
    assert "intervals are for the number" not in said
    asked = {"table": None, "columns": ["sex", "age"], "target": None, "bins": None}
    record = synthetic_records.record_of(made, asked, session.tables)
    assert synthetic_records.read_record(record).statement() == made.statement()
    fewer = opened(people(50), budget=budget).synthesize(columns=["sex", "age"], share=0.5)
    assert fewer.statement() == made.statement()


def test_a_record_forgot_the_rows_that_the_caller_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read of it had the noisy number of rows, and the error of that number in each count."""
    monkeypatch.setattr(mixture, "_MOST_STEPS", 40)  # how well a single value is fitted does not matter here
    table, schema = pd.DataFrame({"only": ["a"] * 900}), {"only": dn.Domain.text("a", nullable=False)}
    session = opened(table, BUDGETS[0], schema=schema)
    made = session.synthesize(share=0.01, rows=7_000)
    said = {"table": None, "columns": ["only"], "target": None, "bins": None}
    record = json.loads(json.dumps(synthetic_records.record_of(made, said, session.tables)))
    again = synthetic_records.read_record(record)
    assert record["count"] == made.count == again.count == 7_000
    assert again.table("only").cells[0].error == made.table("only").cells[0].error == 0
    older = {name: value for name, value in record.items() if name != "stated_rows"}
    assert synthetic_records.read_record(older).count == session.synthesize(share=0.01).count
    assert synthetic_records.read_record(older).table("only").cells[0].error > 1
    for wrong in (0, -1, True, "7000", 1e400, 10**10, [7000]):
        with pytest.raises(UnreadableRecord):
            synthetic_records.read_record({**record, "stated_rows": wrong})


def test_numpy_numbers_of_bins_and_rows_were_refused() -> None:
    session = opened()
    made = session.synthesize(columns=["sex", "age"], bins={"age": np.int64(4)}, epsilon=1, rows=np.int32(4_000))
    assert session.synthesize(columns=["sex", "age"], bins={"age": 4}, epsilon=1).receipt.replayed
    assert len(made.rows(np.int64(20)).to_pandas()) == 20
    assert session.price_synthesis(columns=["sex"], epsilon=1).errors(rows=np.int64(500))
    wrong: Any
    for wrong in (np.float64(4), np.bool_(True), np.int64(0), np.array([4]), "4"):
        with pytest.raises(InvalidParameter, match="bins"):
            session.price_synthesis(columns=["age"], bins={"age": wrong}, epsilon=1)
        with pytest.raises(InvalidParameter, match="count"):
            made.rows(wrong)
        with pytest.raises(InvalidParameter, match="rows"):
            session.synthesize(columns=["sex"], epsilon=1, rows=wrong)


def test_wrong_arguments_of_synthetic_tables_ended_in_errors_of_python() -> None:
    session = opened()
    wrong: Any = 5
    with worded(InvalidParameter):
        session.price_synthesis(columns=wrong, epsilon=1)
    for wrong in (None, "", 0):
        with worded(InvalidParameter):
            session.price_synthesis(columns=["sex", "age"], workload=[("sex", wrong)], epsilon=1)
    with worded(InvalidParameter):
        session.price_synthesis(columns=["sex", "age"], workload=[()], epsilon=1)
    made = session.synthesize(columns=["sex"], epsilon=1)
    wrong = ["sex"]
    with worded(InvalidParameter):
        made.table(wrong)
    with worded(InvalidParameter):
        session.price_synthesis(columns=["age"], forbid=[{"age": (50, 20)}], epsilon=1)
    with worded(InvalidParameter):
        session.synthesize(columns=["sex"], epsilon=1, rows=2e4)  # type: ignore[arg-type]  # a float on purpose


@pytest.mark.parametrize(
    ("kind", "buys", "finds"), [("text", False, True), ("real", True, False), ("date", True, True)]
)
def test_the_ways_to_public_values_were_told_for_kinds_that_have_none(kind: str, buys: bool, finds: bool) -> None:
    """Bounds of texts cannot be bought, and keys of reals are not looked for."""
    session = opened(pd.DataFrame({"x": ["2020-01-01"]}), schema={"x": getattr(dn.Domain, kind)()})
    with pytest.raises(InvalidParameter) as refused:
        session.price_synthesis(columns=["x"], epsilon=1)
    assert ("buy bounds" in refused.value.remedy, "unlisted" in refused.value.remedy) == (buys, finds)


def test_keys_with_a_comma_read_as_two_keys_in_the_statement() -> None:
    keys = ("Łódź, 50 %", 'Val "d\'Aoste"', "", "b; c")
    session = opened(pd.DataFrame({"x": list(keys)}), schema={"x": dn.Domain.text(*keys)})
    said = " ".join(session.statement().sentences)
    assert 'x: one of “Łódź, 50 %”, Val "d\'Aoste", “”, “b; c”.' in said


def test_a_poor_fit_names_rules_that_the_rows_break() -> None:
    table = pd.DataFrame({"a": ["x", "y"] * 3000, "b": ["x", "y"] * 3000})
    schema = {name: dn.Domain.text("x", "y", nullable=False) for name in "ab"}
    session = opened(table, schema=schema)
    kept = session.synthesize(epsilon=1, forbid=[{"a": "x", "b": "y"}])
    broken = session.synthesize(epsilon=1, forbid=[{"a": "x", "b": "x"}])
    assert not kept.notes
    assert any("break the rules" in note for note in broken.notes)
