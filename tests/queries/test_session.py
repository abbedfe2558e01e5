"""Sessions: what is charged and when, replay, refining, failure, and that a price touches no data."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable.errors import (
    BudgetExceeded,
    InvalidOperation,
    InvalidParameter,
    LedgerMismatch,
    QuestionRefused,
)
from deniable.ledger import Cost, Ledger
from deniable.ledger.entries import State
from deniable.queries.answer.remaining_budget import Remaining
from deniable.queries.engines.duckdb import DuckDBEngine
from deniable.queries.engines.engine import Engine
from deniable.queries.relations.exact_statistics import Collect
from tests.queries.hospital import BUDGETS, GAUSSIAN, SCHEMA, UNIT, opened, visits
from tests.wording import worded

WARDS = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"


class Tripwire(Engine):
    """Registers nothing, and fails if anybody asks it for data."""

    def __init__(self, error: Exception | None = None) -> None:
        self.touched = 0
        self.error = error

    def register(self, name: str, source: object, table: Any, secret: bytes, progress: Any = None) -> Any:
        return table

    def collect(self, question: Collect) -> Any:
        self.touched += 1
        raise self.error or AssertionError("data was read")

    def sql(self, question: Collect) -> str:
        return "SELECT 1"

    def close(self) -> None:
        pass


# -- spending --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BUDGETS)
def test_an_answer_is_charged_before_it_is_given_and_replayed_for_nothing(kind: str) -> None:
    with opened(budget=BUDGETS[kind]) as s:
        before = s.ledger.remaining
        first = s.sql(WARDS, share=0.001)
        spent = s.ledger.charged
        assert spent == first.receipt.cost
        assert before.units - s.ledger.remaining.units == spent.units
        again = s.sql("select ward, count(*) as n from visits v group by ward", **own(kind, 1e-9))
        assert again.rows == first.rows
        assert again.receipt.replayed
        assert s.ledger.charged == spent
        assert [entry.state for entry in s.ledger.entries()] == [State.RESERVED, State.SEALED]


@pytest.mark.parametrize("kind", BUDGETS)
def test_a_share_of_a_budget_that_is_spent_still_reads_old_answers(kind: str) -> None:
    town = "SELECT town, COUNT(*) AS n FROM visits GROUP BY town"
    with opened(budget=BUDGETS[kind]) as s:
        first = s.batch([WARDS, town], share=0.5)
        last = s.sql("SELECT COUNT(*) AS n FROM visits", share=1)
        assert s.ledger.remaining.units == 0
        again = s.sql("SELECT COUNT(*) AS n FROM visits", share=1)
        assert again.receipt.replayed
        assert again.rows == last.rows
        assert [each.rows for each in s.batch([WARDS, town], share=0.5)] == [each.rows for each in first]
        with pytest.raises(BudgetExceeded):
            s.batch([WARDS, "SELECT COUNT(*) AS n FROM visits WHERE age > 5"], share=0.5)
        with pytest.raises(InvalidParameter):
            s.sql(WARDS, share=1, confidence=2.0)


def test_a_replay_says_when_it_was_answered(tmp_path: Path) -> None:
    """Of the same table. Another one is asked anew: an old answer would be told as if it were about it."""
    path = tmp_path / "visits.ledger"
    with opened(ledger=path) as s:
        first = s.sql(WARDS, mu=1)
        charged = s.ledger.entry(1)
        assert charged is not None
        assert first.receipt.time == charged.time
        assert "the answer is of" not in str(first)
    with opened(visits().head(10), ledger=path) as s:
        assert not s.sql(WARDS, mu=1).receipt.replayed
    with opened(ledger=path) as s:
        again = s.sql(WARDS, mu=1)
        assert again.rows == first.rows
        assert f"asked before; the answer is of {charged.time[:10]}" in " ".join(str(again).split())
        assert again.to_dict()["provenance"]["time"] == charged.time


def test_a_text_that_was_never_met_is_looked_for_by_the_charge_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    real = Ledger.replay
    monkeypatch.setattr(Ledger, "replay", lambda self, asked, **of: looked.append(asked) or real(self, asked, **of))
    with opened() as s:
        first = s.sql(WARDS, mu=1)
        assert looked == []
        assert s.sql(WARDS, mu=1).receipt.replayed
        assert looked == [first.receipt.question]
        again = s.sql(f"{WARDS} ", mu=0.5)  # another text of the same question: it is never charged twice
        assert (again.receipt.replayed, again.rows, len(looked)) == (True, first.rows, 1)
        assert again.receipt.entry == first.receipt.entry
        assert again.receipt.rest == s.ledger.remaining


@pytest.mark.parametrize("what", ["noise", "cells"])
def test_an_answer_that_is_there_is_given_after_a_restart_whatever_a_new_one_would_need(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could draw it now: the noise of so small a cost is refused, or so large an answer."""
    path = tmp_path / "visits.ledger"
    with opened(ledger=path) as s:
        first = s.sql(WARDS, mu=1)
    with opened(ledger=path) as s:
        if what == "noise":
            other = "SELECT COUNT(*) AS n FROM visits WHERE age > 7"
            with pytest.raises(InvalidParameter, match="pure noise"):
                s.sql(other, mu=1e-15)
            again = s.sql(WARDS, mu=1e-15)
        else:
            s.limit_answers(cells=1)
            again = s.sql(WARDS, mu=1)
        assert (again.receipt.replayed, again.rows) == (True, first.rows)


def own(kind: str, amount: float) -> dict[str, float]:
    return {{"gaussian": "mu", "pure": "epsilon", "zcdp": "rho"}[kind]: amount}


def test_more_exact_than_what_is_known_is_a_new_answer() -> None:
    with opened() as s:
        first = s.sql(WARDS, mu=0.1)
        second = s.sql(WARDS, mu=0.2)
        assert not second.receipt.replayed
        assert second.rows != first.rows
        assert s.sql(WARDS, mu=0.15).rows == second.rows


@pytest.mark.parametrize("kind", BUDGETS)
def test_the_budget_is_never_overspent(kind: str) -> None:
    small = {"gaussian": dn.Budget.gaussian(mu=1), "pure": dn.Budget.pure(epsilon=1), "zcdp": dn.Budget.zcdp(rho=1)}[
        kind
    ]
    with opened(budget=small) as s:
        price = s.price(WARDS, **own(kind, 0.5))
        answered = 0
        for age in range(100):
            try:
                s.sql(f"SELECT ward, COUNT(*) AS n FROM visits WHERE age > {age} GROUP BY ward", **own(kind, 0.5))
            except BudgetExceeded:
                break
            answered += 1
        assert answered == price.times == {"gaussian": 4, "pure": 2, "zcdp": 2}[kind]
        assert s.ledger.charged <= small.limit
        with pytest.raises(BudgetExceeded):
            s.sql("SELECT COUNT(*) FROM visits", share=1)


def test_threads_share_a_session_and_its_budget() -> None:
    with opened(budget=dn.Budget.pure(epsilon=1)) as s:
        granted: list[int] = []

        def ask(number: int) -> None:
            for age in range(5):
                try:
                    s.sql(f"SELECT COUNT(*) AS n FROM visits WHERE age > {number * 5 + age}", epsilon=0.1)
                    granted.append(1)
                except BudgetExceeded:
                    pass

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(granted) == 10
        s.ledger.verify()


def test_what_cannot_run_is_not_charged() -> None:
    with opened(budget=dn.Budget.pure(epsilon=1), engine=Tripwire()) as s:
        for text, cost in (
            ("SELECT town, COUNT(*) FROM visits GROUP BY town", {"epsilon": 0.1}),
            ("SELECT SUM(cost) FROM visits", {"epsilon": "1e-29"}),
            ("SELECT * FROM visits", {"epsilon": 0.1}),
            (WARDS, {"epsilon": 0}),
            (WARDS, {}),
            (WARDS, {"epsilon": 0.1, "share": 0.1}),
            (WARDS, {"epsilon": 0.1, "delta": 1e-9}),
            (WARDS, {"epsilon": 0.1, "confidence": 1.0}),
        ):
            with pytest.raises((QuestionRefused, InvalidParameter)):
                s.sql(text, **cost)
        assert s.ledger.charged.units == 0
        assert list(s.ledger.entries()) == []


# -- prices ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BUDGETS)
def test_a_price_reads_no_data_and_is_what_is_charged(kind: str) -> None:
    wire = Tripwire()
    with opened(budget=BUDGETS[kind], engine=wire) as s:
        for text in (WARDS, "SELECT town, AVG(cost), MEDIAN(age) FROM visits GROUP BY town"):
            for cost in (own(kind, 0.5), {"share": 0.25}):
                price = s.price(text, **cost)
                assert str(price)
                assert price.to_dict()
                assert s.explain(price)
                assert dn.explain(price)
        assert wire.touched == 0
        assert s.ledger.charged.units == 0
    with opened(budget=BUDGETS[kind]) as s:
        price = s.price(WARDS, **own(kind, 0.5))
        assert s.sql(WARDS, **own(kind, 0.5)).receipt.cost == price.cost


def test_a_price_does_not_open_the_file(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    visits().to_csv(path, index=False)
    with dn.session(path, unit=UNIT, budget=GAUSSIAN, schema=SCHEMA) as s:
        path.unlink()
        path.mkdir()  # whoever opens it now, fails
        s.price(WARDS, mu=1)
        assert len(s.sql(WARDS, mu=1)) == 3  # registered once, read never again


@pytest.mark.parametrize(
    ("where", "none"),
    [
        ("WHERE ward = 'surgery'", True),
        ("WHERE ward LIKE 'X%'", True),
        ("WHERE age = 200", True),
        ("WHERE cost > 3000", True),
        ("WHERE cost < 0", True),
        ("WHERE cost <= 0", False),
        ("WHERE ward IS NULL", True),
        ("WHERE cost IS NULL", False),
        ("WHERE town = 'Ghent' AND town = 'Lyon'", True),
        ("WHERE stay > 10 AND stay < 5", True),
        ("WHERE 1 = 2", True),
        ("WHERE 1 = 1", False),
        ("WHERE town = 'nowhere'", False),
        ("WHERE ward = 'surgery' OR age > 3", False),
        ("JOIN visits AS b ON visits.patient_id = b.patient_id WHERE b.ward = 'X'", True),
        ("LEFT JOIN (SELECT * FROM visits WHERE ward = 'X') AS b ON visits.patient_id = b.patient_id", False),
        ("JOIN (SELECT * FROM visits WHERE ward = 'X') AS b ON visits.patient_id = b.patient_id", True),
        ("WHERE patient_id IN (SELECT patient_id FROM visits WHERE age > 500)", True),
    ],
)  # fmt: skip
def test_what_no_row_can_fulfil_is_told_before_it_is_paid_for(where: str, none: bool) -> None:
    with opened(engine=Tripwire()) as s:
        price = s.price(f"SELECT COUNT(*) AS n FROM visits {where}", mu=1)
        assert ("no row can fulfil" in str(price)) is none
        assert bool(price.to_dict()["note"]) is none


def test_an_answer_says_that_no_row_can_fulfil_its_conditions() -> None:
    with opened() as s:
        text = "SELECT ward, COUNT(*) AS n FROM visits WHERE ward = 'surgery' GROUP BY ward"
        assert "no row can fulfil the conditions" in str(s.sql(text, mu=1))
        assert "no row can fulfil the conditions" not in str(s.sql(WARDS, mu=1))


@pytest.mark.parametrize("kind", BUDGETS)
def test_accuracy_can_be_asked_for_and_is_kept(kind: str) -> None:
    with opened(budget=BUDGETS[kind]) as s:
        price = s.price(WARDS, within=12)
        [(_, error)] = price.errors().items()
        assert 11.99 < float(error or 0) <= 12
        answer = s.sql(WARDS, within=12)
        for value, (low, high) in zip(answer["n"], answer.interval("n"), strict=True):  # type: ignore[misc]
            assert high - value == value - low <= 12
        both = s.price("SELECT COUNT(*) AS n, SUM(age) AS a FROM visits", within={"a": 1000})
        assert (both.errors()["a"] or 0) <= 1000
        with worded(InvalidParameter):
            s.price("SELECT AVG(age) AS a FROM visits", within=1)
        # Whole noise that is 0 at 95 % of all times is as near as anybody may ask.
        assert s.price(WARDS, within=1e-20).cost == s.price(WARDS, within=0.9).cost


def test_bigquery_options_are_a_cost() -> None:
    text = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=0.5, delta=1e-9, privacy_unit_column=patient_id) ward, COUNT(*) AS n FROM visits GROUP BY ward"
    with opened(budget=dn.Budget(epsilon=10, delta=1e-6)) as s:
        assert s.sql(text).receipt.cost == s.budget.cost(epsilon=0.5)


# -- refining --------------------------------------------------------------------------------------------------------


def test_max_groups_contributed_bounds_what_a_person_adds_and_buys_less_noise() -> None:
    """Every patient has been in all three wards: with one ward each, as many people are counted as there are."""
    table = pd.DataFrame({"patient_id": np.repeat(np.arange(500), 3), "ward": ["A", "B", "C"] * 500})
    many = "SELECT ward, COUNT(DISTINCT patient_id) AS n FROM visits GROUP BY ward"
    few = many.replace("SELECT ward", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 1) ward")
    schema = {"ward": dn.Domain.text("A", "B", "C", nullable=False)}
    with dn.session({"visits": table}, unit=UNIT, budget=GAUSSIAN, schema=schema) as s:
        narrow, wide = (s.price(each, mu="1/10").errors()["n"] for each in (few, many))
        assert narrow is not None
        assert wide is not None
        assert narrow < wide
        assert sum(s.sql(many, mu=50).to_pandas()["n"]) == pytest.approx(1500, abs=10)
        assert sum(s.sql(few, mu=50).to_pandas()["n"]) == pytest.approx(500, abs=10)  # of a noise of 0.02
        assert "at most 1" in s.explain(few)


def test_where_a_table_lies_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory or in a file: that depends on how large it is."""
    from deniable.queries.engines import duckdb

    with opened() as s:
        held = s.explain(WARDS)
    monkeypatch.setattr(duckdb, "_MOST_IN_MEMORY", 0)
    with opened() as s:
        assert s.explain(WARDS) == held


@pytest.mark.slow
def test_refining_adds_precision_as_it_adds_cost() -> None:
    """Two answers at μ merge into one at √2·μ: the error over 360 refined numbers has that deviation, within 24 %.

    The root of a mean of 360 squares has a deviation of 1/√720 = 3.7 %, so 24 % is 6.4 of them: 1e-10. Noise that had
    not been merged would be 41 % wider.
    """
    table = visits()
    with opened(table, unit=dn.Unit.person("patient_id", rows=1000)) as s:
        truth = table.groupby("ward").size()
        found = []
        for age in range(120):
            text = f"SELECT ward, COUNT(*) AS n FROM visits WHERE age > -{age + 1} GROUP BY ward"
            answer = s.sql(text, mu=3)
            better = s.refine(answer, mu=3)
            found += [value - truth[ward] for ward, value in zip(better["ward"], better["n"], strict=True)]
            assert better.receipt.cost == answer.receipt.cost
        half = (better.interval("n")[0][1] - better.interval("n")[0][0]) / 2  # type: ignore[index]
        claimed = half / 1.959964
        assert abs(claimed / (1000 / 3 / np.sqrt(2)) - 1) < 1e-3
        assert abs(np.sqrt(np.mean(np.square(found))) / claimed - 1) < 0.24
        assert s.sql(text, mu=4.2).receipt.replayed, "what it is worth now is what both cost together"


def test_the_ledger_says_what_was_refined_in_the_words_of_the_question() -> None:
    with opened() as s:
        built = s.ask(s.table("visits").group_by("sex").agg(n=dn.count()), mu=1)
        for answer in (s.sql(WARDS, mu=1), built):
            first = s.ledger.charge(answer.receipt.entry)
            again = s.refine(s.refine(answer, mu=1), mu=1)
            found = s.ledger.charge(again.receipt.entry)
            assert first is not None
            assert found is not None
            assert found.description == f"refined: {first.description}"


@pytest.mark.parametrize("kind", BUDGETS)
def test_refining_one_answer_twice_keeps_both_purchases(kind: str) -> None:
    with opened(budget=BUDGETS[kind]) as s:
        first = s.sql(WARDS, **own(kind, 0.5))
        chain = s.refine(s.refine(first, **own(kind, 0.5)), **own(kind, 0.5))
    with opened(budget=BUDGETS[kind]) as s:
        first = s.sql(WARDS, **own(kind, 0.5))
        s.refine(first, **own(kind, 0.5))
        twice = s.refine(first, **own(kind, 0.5))
        assert twice.released.precision == chain.released.precision
        assert twice.released.cost == chain.released.cost == s.ledger.charged
        cheap = s.sql(WARDS, **own(kind, 0.1))
        assert cheap.rows == twice.rows


def test_a_key_that_only_one_answer_shows_keeps_that_answers_noise() -> None:
    with opened() as s:
        text = "SELECT town, COUNT(*) AS n FROM visits GROUP BY town"
        answer = s.sql(text, mu=0.35)
        for _ in range(5):
            answer = s.refine(answer, mu=0.35)
        units = dict(zip(answer.released.groups, answer.released.units, strict=True))
        assert units[("Ghent",)] == answer.released.precision.units
        for group, each in units.items():
            assert each <= answer.released.precision.units, group
        assert list(answer["town"]) == sorted(answer["town"])  # type: ignore[type-var]


def test_an_answer_of_another_table_is_not_refined() -> None:
    with opened() as s, opened(unit=dn.Unit.person("patient_id", rows=2)) as other:
        with pytest.raises(InvalidParameter, match="other tables"):
            other.refine(s.sql(WARDS, mu=1), mu=1)
        with worded(InvalidParameter, parameter="answer"):
            s.refine("SELECT 1", mu=1)  # type: ignore[arg-type]


# -- opening ---------------------------------------------------------------------------------------------------------


def test_two_sessions_on_one_file_share_one_budget(tmp_path: Path) -> None:
    path, budget = tmp_path / "visits.ledger", dn.Budget.pure(epsilon=1)
    with opened(budget=budget, ledger=path) as s:
        first = s.sql(WARDS, epsilon=0.6)
    with opened(budget=budget, ledger=path) as s:
        assert s.sql(WARDS, epsilon=0.6).rows == first.rows
        with pytest.raises(BudgetExceeded):
            s.sql("SELECT COUNT(*) FROM visits", epsilon=0.6)
    with pytest.raises(LedgerMismatch):
        opened(budget=dn.Budget.pure(epsilon=2), ledger=path)


def test_a_ledger_that_is_given_must_fit_and_stays_open() -> None:
    ledger = Ledger.open(budget=GAUSSIAN, unit=UNIT, dataset="visits")
    with opened(ledger=ledger) as s:
        s.sql(WARDS, mu=1)
    assert ledger.charged.units > 0
    with pytest.raises(LedgerMismatch):
        opened(ledger=ledger, unit=dn.Unit.replaced_person("patient_id", rows=4))
    with pytest.raises(LedgerMismatch):
        opened(ledger=ledger, budget=dn.Budget.pure(epsilon=1))


def test_what_cannot_be_opened() -> None:
    table = visits()
    with worded(InvalidParameter):
        dn.session({"visits": table}, budget=GAUSSIAN)
    with worded(InvalidParameter):
        dn.session({"visits": table}, unit=UNIT)
    with worded(InvalidParameter, parameter="source"):
        dn.session({}, unit=UNIT, budget=GAUSSIAN, public={"wards": pd.DataFrame({"ward": ["A"]})})
    units = {"a": UNIT, "b": dn.Unit.row()}
    with worded(InvalidParameter):
        dn.session({"a": table, "b": table}, unit=units, budget=GAUSSIAN)
    units = {"a": UNIT, "b": dn.Unit.replaced_person("patient_id", rows=3)}
    with worded(InvalidParameter, parameter="unit"):
        dn.session({"a": table, "b": table}, unit=units, budget=GAUSSIAN)
    with worded(InvalidParameter, parameter="schema"):
        dn.session({"visits": table}, unit=UNIT, budget=GAUSSIAN, schema={"wart": dn.Domain.text()})


def test_a_closed_session_answers_nothing() -> None:
    s = opened()
    s.close()
    s.close()
    with pytest.raises(InvalidOperation, match="closed"):
        s.sql(WARDS, mu=1)


def test_sql_and_dataframes_are_one_question() -> None:
    with opened() as s:
        question = s.table("visits").filter(dn.col("age") > 60).group_by("ward").agg(n=dn.count(), cost=dn.mean("cost"))
        answer = s.ask(question, mu=1)
        again = s.sql("SELECT ward, COUNT(*) AS n, AVG(cost) AS cost FROM visits WHERE age > 60 GROUP BY ward", mu=1)
        assert again.receipt.replayed
        assert again.rows == answer.rows
        assert s.price(question, mu=1).cost == answer.receipt.cost


def test_the_tables_can_be_listed() -> None:
    with opened() as s:
        lines = str(s.tables).splitlines()
        assert lines[0] == "visits: protects one person ('patient_id', at most 3 rows) added or removed"
        assert "  age         integer(0, 100, nullable=False)" in lines
        assert repr(s.tables) == str(s.tables)
        assert s.tables["visits"].name == "visits"


def test_an_answer_can_be_explained() -> None:
    with opened() as s:
        answer = s.sql(WARDS, mu=1)
        assert s.explain(answer) == s.explain(WARDS)
        assert s.explain(WARDS).startswith(dn.explain(answer))


def test_what_is_left_speaks_in_questions() -> None:
    with opened(budget=dn.Budget(epsilon=1, delta=1e-6)) as s:
        assert "counts at ±" in str(s.remaining)
        many = s.remaining.counts(within=60)
        assert s.price("SELECT COUNT(*) AS n FROM visits", within=60).times == pytest.approx(many, rel=0.05, abs=1)
        assert s.spent.epsilon(delta=0) == 0
        s.sql(WARDS, epsilon=0.5)
        assert s.spent.epsilon(delta=9e-7) == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("kind", BUDGETS)
def test_a_guarantee_covers_what_was_charged(kind: str) -> None:
    with opened(budget=BUDGETS[kind]) as s:
        answer = s.sql("SELECT town, COUNT(*) AS n FROM visits GROUP BY town", **own(kind, 0.5))
        curve = answer.guarantee.curve
        assert curve.delta(epsilon=1e9) >= float(answer.receipt.cost.delta_units * 1e-30) * (1 - 1e-9) > 0
        assert answer.guarantee.unit == UNIT
        better = s.refine(answer, **own(kind, 0.5))
        assert better.guarantee.curve.delta(epsilon=1.0) > curve.delta(epsilon=1.0)


def test_the_default_engine_is_duckdb() -> None:
    with opened() as s:
        assert isinstance(s._engine, DuckDBEngine)
    with pytest.raises(InvalidParameter, match="must be"):
        opened(engine="oracle")


def test_a_session_that_is_refused_leaves_no_account_behind(tmp_path: Path) -> None:
    """A mistyped person opened an account for a unit that nobody can have; the right one then did not fit it."""
    path = tmp_path / "visits.ledger"
    for wrong, rule in (
        ({"unit": dn.Unit.person("Patient_ID", rows=3)}, "did you mean 'patient_id'"),
        ({"unit": dn.Unit.person("who", rows=3)}, "name a column of this data"),
        ({"schema": {"waard": dn.Domain.text()}}, "did you mean 'ward'"),
        ({"schema": {"ward": ["A"]}}, "must be a Domain"),
        ({"schema": {"tables": {"visits": {"columns": {"wart": {"kind": "text"}}}}}}, "no such column"),
        ({"unit": dn.Unit.person("who", rows=3), "engine": Tripwire()}, "is not a column"),
    ):
        with pytest.raises(InvalidParameter, match=rule):
            dn.session(
                {"visits": visits()}, **{"unit": UNIT, "budget": GAUSSIAN, "schema": SCHEMA, "ledger": path, **wrong}
            )
        assert not path.exists()
    with opened(ledger=path) as s:
        s.sql(WARDS, mu=1)
    assert path.exists()


def test_an_account_that_does_not_fit_is_refused_before_data_is_read(tmp_path: Path) -> None:
    class Reader(Tripwire):
        def register(self, *given: Any, **more: Any) -> Any:
            raise AssertionError("data was read")

    with opened(ledger=tmp_path / "visits.ledger"):
        pass
    with pytest.raises(LedgerMismatch):
        opened(ledger=tmp_path / "visits.ledger", unit=dn.Unit.row(), engine=Reader())


def test_the_years_and_months_of_dates_within_bounds_are_public() -> None:
    frame = pd.DataFrame({"day": [dt.date(2023, 11, 5), dt.date(2024, 1, 9), dt.date(1999, 1, 1)]})
    bounds = dn.Domain.date(dt.date(2023, 11, 1), dt.date(2024, 2, 29), nullable=False)
    with dn.session(
        {"visits": frame}, unit=dn.Unit.row(), budget=dn.Budget.gaussian(mu=1000), schema={"day": bounds}
    ) as s:
        # No δ is left for thresholds, so all keys must be public. Half a row is 100 standard deviations of noise.
        months = s.sql("SELECT DATE_TRUNC('month', day) AS m, COUNT(*) AS n FROM visits GROUP BY m ORDER BY m", mu=200)
        years = s.sql("SELECT YEAR(day) AS y, MONTH(day) AS m, COUNT(*) AS n FROM visits GROUP BY y, m", mu=200)
    found = {row[0]: round(row[1]) for row in months.rows}
    assert found == {dt.date(2023, 11, 1): 2, dt.date(2023, 12, 1): 0, dt.date(2024, 1, 1): 1, dt.date(2024, 2, 1): 0}
    assert {row[0] for row in years.rows} == {2023, 2024}
    assert {row[:2]: round(row[2]) for row in years.rows}[2023, 11] == 2


@pytest.mark.parametrize("kind", BUDGETS)
def test_the_yardstick_is_the_nearest_round_distance_with_ten_counts(kind: str) -> None:
    budget, unit = BUDGETS[kind], dn.Unit.person("patient_id", rows=3)
    widths = [a * 10**n for n in range(1, 7) for a in (1, 2, 5)]
    last = (0, 0)
    for share in (1, 3, 10, 100, 10**4, 10**8, 10**40):
        rest = Remaining(budget, Cost(budget.limit.units // share), unit)
        within, many = rest.yardstick()
        assert many == rest.counts(within=within)
        assert many >= 10 or within == widths[-1]
        if within > widths[0]:
            assert rest.counts(within=widths[widths.index(within) - 1]) < 10, "a nearer one has not ten"
        assert within >= last[0], "less left is never said to be nearer"
        last = (within, many)
        assert rest.said() in str(rest)
    assert Remaining(budget, Cost(0, 0), unit).said() == "no more counts"


def test_an_amount_without_a_name_or_with_an_unknown_one_is_refused_in_our_words() -> None:
    with opened() as s:
        answer = s.sql(WARDS, mu=0.1)
        spent = s.ledger.spent
        calls: tuple[tuple[Any, object], ...] = (
            *((each, WARDS) for each in (s.sql, s.ask, s.price)),
            (s.refine, answer),
            (s.batch, [WARDS]),
        )
        for call, about in calls:
            with worded(InvalidParameter, parameter="cost"):
                call(about, "0.1")
            with worded(InvalidParameter, parameter="eps", asked=0.1) as refused:
                call(about, eps=0.1)
            assert f" {call.__name__}();" in str(refused.value)
        assert s.ledger.spent == spent
