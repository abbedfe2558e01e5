"""Covariance, correlation and lines of least squares from noisy moments; and what is said of aggregates not taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable.errors import QuestionRefused
from deniable.queries.answer.answer import Answer
from deniable.queries.answer.receipt import Receipt
from deniable.queries.answer.release import release
from deniable.queries.plan.noise_planner import noise, plan
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.sql.sql_reader import parse
from deniable.testing import statistics
from tests.queries.hospital import BUDGETS, opened
from tests.wording import worded

ASKED = (
    "COVAR_POP",
    "COVAR_SAMP",
    "CORR",
    "REGR_SLOPE",
    "REGR_INTERCEPT",
    "REGR_R2",
    "REGR_AVGX",
    "REGR_AVGY",
    "REGR_COUNT",
    "REGR_SXX",
    "REGR_SYY",
    "REGR_SXY",
)
SCHEMA = {"x": dn.Domain.real(0, 10), "y": dn.Domain.real(-20, 60), "g": dn.Domain.text("a", "b", nullable=False)}


def table(missing: bool) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    x = rng.uniform(1, 9, 4000)
    found = pd.DataFrame({"x": x, "y": 3 * x + rng.normal(5, 6, 4000).clip(-15, 25), "g": rng.choice(["a", "b"], 4000)})
    if missing:
        found.loc[rng.random(4000) < 0.1, "x"] = np.nan
        found.loc[rng.random(4000) < 0.1, "y"] = np.nan
    return found


def truth(rows: pd.DataFrame) -> dict[str, float]:
    """By NumPy and pandas, over the rows where both are known."""
    both = rows.dropna()
    slope, intercept = np.polyfit(both["x"], both["y"], 1)
    return {
        "COVAR_POP": float(np.cov(both["y"], both["x"], ddof=0)[0, 1]),
        "COVAR_SAMP": float(both["y"].cov(both["x"])),
        "CORR": float(both["y"].corr(both["x"])),
        "REGR_SLOPE": float(slope),
        "REGR_INTERCEPT": float(intercept),
        "REGR_R2": float(both["y"].corr(both["x"])) ** 2,
        "REGR_AVGX": float(both["x"].mean()),
        "REGR_AVGY": float(both["y"].mean()),
        "REGR_COUNT": float(len(both)),
        "REGR_SXX": float(((both["x"] - both["x"].mean()) ** 2).sum()),
        "REGR_SYY": float(((both["y"] - both["y"].mean()) ** 2).sum()),
        "REGR_SXY": float(((both["x"] - both["x"].mean()) * (both["y"] - both["y"].mean())).sum()),
    }


@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize("missing", [False, True])
def test_aggregates_of_two_columns_are_what_they_are_without_noise(missing: bool, kind: str) -> None:
    rows = table(missing)
    schema = SCHEMA if missing else {**SCHEMA, **{n: replace(SCHEMA[n], nullable=False) for n in "xy"}}
    with dn.session({"t": rows}, unit=dn.Unit.row(), budget=BUDGETS[kind], schema=schema) as s:
        asked = ", ".join(f"{name}(y, x) AS {name}" for name in ASKED)
        found = s.sql(f"SELECT {asked} FROM t", share=0.4)
        for name, right in truth(rows).items():
            [value], [interval] = found[name], found.interval(name)
            assert value == pytest.approx(right, rel=1e-2), name
            assert interval is not None
            assert interval[0] <= interval[1]
        by = s.sql("SELECT g, CORR(y, x) AS r FROM t GROUP BY g ORDER BY r DESC", share=0.4)
        for g, r in by.rows:
            assert r == pytest.approx(truth(rows[rows["g"] == g])["CORR"], rel=1e-2)
        part = s.sql("SELECT CORR(y, x) FILTER (WHERE g = 'a') AS r FROM t", share=0.4)
        assert part["r"][0] == pytest.approx(truth(rows[rows["g"] == "a"])["CORR"], rel=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "pure"])
def test_intervals_of_covariance_and_correlation_hold_what_they_say(kind: str) -> None:
    """500 releases: an interval that holds less than 84 % is blamed, one that holds 95 % once in 1e9."""
    budget, rows = BUDGETS[kind], table(missing=True)
    with dn.session({"t": rows}, unit=dn.Unit.row(), budget=budget, schema=SCHEMA) as s:
        text = "SELECT COVAR_SAMP(y, x) AS c, CORR(y, x) AS r, REGR_SLOPE(y, x) AS b FROM t"
        made = plan(parse(text, s.tables))
        counts: Any = s._engine.collect(made.collect)
        cost = budget.cost(mu=1) if kind == "gaussian" else budget.cost(epsilon=6)
        drawn, right = noise(made, budget, cost), truth(rows)
        receipt: Any = Receipt(1, "", cost, cost, budget, False, "")
        held, trials = {"c": 0, "r": 0, "b": 0}, 500
        for _ in range(trials):
            answer = Answer(made, release(made, drawn, cost, counts), budget, s.guarantee, receipt, 0.95)
            for name, of in (("c", "COVAR_SAMP"), ("r", "CORR"), ("b", "REGR_SLOPE")):
                [interval] = answer.interval(name)
                assert interval is not None
                held[name] += interval[0] <= right[of] <= interval[1]
    for name, hits in held.items():
        assert statistics.at_most(hits, trials, probability=0.94) > 1e-9 / 6, (name, hits / trials)
        assert statistics.at_least(hits, trials, probability=0.98) > 1e-9 / 6, (name, hits / trials)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("MODE(ward)", "MODE is not supported; the most frequent values are those of the largest groups"),
        ("MODE() WITHIN GROUP (ORDER BY ward)", "MODE is not supported"),
        ("APPROX_TOP_K(ward, 3)", "is not supported; the most frequent"),
        ("KURTOSIS(cost)", "KURTOSIS is not supported; moments"),
        ("SKEWNESS(cost)", "SKEWNESS is not supported"),
        ("BOOL_AND(age > 3)", "is not supported; .* conditions can be counted"),
        ("BIT_XOR(age)", "is not supported"),
        ("ANY_VALUE(ward)", "would show values of single people"),
        ("FIRST(ward)", "would show values of single people"),
        ("ARG_MAX(ward, cost)", "would show values of single people"),
        ("STRING_AGG(ward, ',')", "would show values of single people"),
        ("LIST(ward)", "would show values of single people"),
        ("SUM(CORR(cost, age))", "an aggregate must be in SELECT"),
        ("CORR(weight, age)", "bounds"),
        ("CORR(ward, age)", "CORR needs two numbers, and ward is of kind text"),
        ("REGR_SLOPE(cost, diagnosis)", "REGR_SLOPE needs two numbers, and diagnosis is of kind text"),
        ("CORR(age > 3, age)", "CORR needs two numbers, and .* is of kind boolean; make it a number: CASE"),
        ("CORR(age)", "CORR needs more arguments"),
        ("REGR_SLOPE(age)", "REGR_SLOPE needs two numbers, not one"),
    ],
)
def test_a_refusal_gives_the_true_reason(call: str, said: str) -> None:
    """A covariance, a mode and a kurtosis were said to show what single people said, which they do not."""
    with pytest.raises(QuestionRefused, match=said) as refused:
        parse(f"SELECT {call} FROM visits", EXAMPLE)
    example = refused.value.rewrite.removeprefix("for example: ")
    if refused.value.rewrite != example:
        assert parse(example, EXAMPLE).measures


def test_a_price_speaks_of_the_columns_that_were_asked_and_not_of_the_moments_behind_them() -> None:
    with opened() as s:
        price = s.price("SELECT CORR(cost, age) AS r, COUNT(*) AS n, AVG(cost) / AVG(age) AS q FROM visits", mu=1)
        found = price.errors()
        assert [*found] == ["r", "n", "q"]
        assert (found["r"], found["q"]) == (None, None)
        assert (found["n"] or 0) > 0
        said = [line for line in price.lines() if line.startswith("error")]
        assert [line.split()[1] for line in said] == ["r:", "n:", "q:"]


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ("CORR(x, 1)", "CORR needs numbers that vary, and 1 is the same in all rows"),
        ("CORR(1, x)", "CORR needs numbers that vary"),
        ("REGR_SLOPE(x, 1)", "REGR_SLOPE needs numbers that vary"),
        ("REGR_INTERCEPT(x, 2 - 1)", "REGR_INTERCEPT needs numbers that vary"),
        ("REGR_R2(1, x)", "REGR_R2 needs numbers that vary"),
        ("REGR_R2(x, 1)", "REGR_R2 needs numbers that vary"),
        ("CORR(x, g)", "CORR needs public bounds of both numbers, and g has none; write LEAST.GREATEST.g, 0., 100."),
        ("AVG(CAST(g AS DOUBLE))", "AVG.LEAST.GREATEST.CAST.g AS DOUBLE., 0., 100"),
        ("MEDIAN(g + 1)", "MEDIAN.LEAST.GREATEST.…, 0., 100"),
    ],
)
def test_what_is_not_defined_was_0_without_noise(asked: str, rule: str) -> None:
    """CORR(x, 1) came as 0 ± 0; and what was refused named columns that are not there."""
    frame = pd.DataFrame({"x": [1.0, 2.0], "g": [0, 1]})
    schema = {"x": dn.Domain.real(0, 3), "g": dn.Domain.integer()}
    made = dn.session({"t": frame}, unit=dn.Unit.row(), budget=dn.Budget.gaussian(mu=1), schema=schema)
    with made as s, pytest.raises(QuestionRefused, match=rule):
        s.price(f"SELECT {asked} AS a FROM t", mu=1)


def test_bins_are_told_of_a_column_that_is_there() -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0]})
    made = dn.session(
        {"t": frame}, unit=dn.Unit.row(), budget=dn.Budget.gaussian(mu=1), schema={"x": dn.Domain.real(0, 3)}
    )
    with made as s, worded(QuestionRefused, code="key"):
        s.price("SELECT x, COUNT(*) AS n FROM t GROUP BY x", mu=1)


def test_distinct_pairs_are_said_to_be_counted_only() -> None:
    """CORR(DISTINCT y, x) "takes more arguments", though it had two."""
    with opened() as s:
        for call in ("CORR(DISTINCT age, cost)", "REGR_SLOPE(DISTINCT cost, age)", "COVAR_POP(DISTINCT age, cost)"):
            with worded(QuestionRefused, code="aggregate"):
                s.price(f"SELECT {call} AS a FROM visits", mu=1)


FEW = pd.DataFrame({"g": [0, 1, 2, 7] * 100, "x": [1.0, 2.0, 3.0, 3.5] * 100, "c": [5.0] * 400})


def test_listed_keys_are_bounds() -> None:
    """CORR(x, g) and AVG(g) asked for bounds of g, whose keys were listed; a value that is not listed stays out."""
    schema = {"g": dn.Domain.integer(keys=[0, 1, 2]), "x": dn.Domain.real(0, 4)}
    with dn.session({"t": FEW}, unit=dn.Unit.row(), budget=dn.Budget.gaussian(mu=1e3), schema=schema) as s:
        [row] = s.sql("SELECT CORR(x, g) AS r, AVG(g) AS a, MAX(g) AS m, SUM(g) AS s FROM t", mu=500).rows
        assert row[0] == pytest.approx(1, abs=0.01)
        assert row[1] == pytest.approx(1, abs=0.01)  # of 0, 1 and 2: the 7 is NULL, and not the nearest key
        assert row[2] == 2
        assert row[3] == pytest.approx(300, abs=1)


def test_a_number_without_an_interval_is_not_passed_off_as_exact() -> None:
    """REGR_SLOPE(x, c) of a column that is the same in all rows was a number without an interval, and without a word."""
    schema = {"x": dn.Domain.real(0, 4), "c": dn.Domain.real(0, 10)}
    asked = "SELECT REGR_SLOPE(x, c) FILTER (WHERE x > {}) AS b, AVG(x) AS a FROM t"
    with dn.session({"t": FEW}, unit=dn.Unit.row(), budget=dn.Budget.gaussian(mu=1e3), schema=schema) as s:
        answers = [s.sql(asked.format(-i), mu=1) for i in range(1, 31)]
        without = [answer for answer in answers if answer.interval("b") == (None,)]
        # The noise of c's variance passes for a variance in 1 answer of 30 (an interval at 95 % errs so often on that
        # side): that 20 of 30 answers do has a chance below 1e-20.
        assert len(without) > 10
        for answer in without:
            said = "b: a number without ± has no noise interval" in " ".join(answer.notes)
            assert said == (answer["b"][0] is not None)
            assert said or "means no value" in str(answer)
        answer = s.sql("SELECT AVG(x) AS a FROM t", mu=1)
        assert "without ±" not in str(answer)


def test_a_slope_of_constant_data_is_missing_without_a_word() -> None:
    # x has bounds, and no spread: its noisy variance is 0 in about half of all answers, and then there is no slope.
    rows = pd.DataFrame({"x": np.full(400, 7), "y": np.arange(400) % 50})
    schema = {"x": dn.Domain.integer(0, 100), "y": dn.Domain.integer(0, 100)}
    budget = dn.Budget(epsilon=8, delta=1e-6)
    with dn.session({"t": rows}, unit=dn.Unit.row(), budget=budget, schema=schema) as s:
        asked = "SELECT COUNT(*) AS n, REGR_SLOPE(y, x) FILTER (WHERE y > {}) AS slope FROM t"
        answers = [s.sql(asked.format(-i), epsilon=0.3) for i in range(1, 33)]
    missing = [answer for answer in answers if answer["slope"][0] is None]
    assert missing  # none with a chance of about 2^-32
    assert all(answer.notes[0].startswith("slope: a missing number") for answer in missing)
