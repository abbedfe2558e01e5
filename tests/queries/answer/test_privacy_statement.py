"""The methods paragraph: it says what is promised, on the safe side, in two dialects, and nothing of the data."""

from __future__ import annotations

import math
import re
from typing import Any

import pandas as pd
import pytest

import deniable as dn
from deniable import curves
from deniable.errors import InvalidParameter
from tests.queries.hospital import opened, visits

COUNT = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
BUDGETS: list[tuple[dn.Budget, dict[str, float], Any, float]] = [
    (dn.Budget(epsilon=1, delta=1e-6), {"epsilon": 0.5}, None, 1e-6),
    (dn.Budget.pure(epsilon=1), {"epsilon": 0.5}, curves.pure(epsilon=1), 0.0),
    (dn.Budget.pure(epsilon=1, delta=1e-7), {"epsilon": 0.5}, None, 1e-7),
    (dn.Budget.gaussian(mu=0.5), {"mu": 0.2}, curves.gaussian(mu=0.5), 1e-6),
    (dn.Budget.zcdp(rho=0.1), {"rho": 0.01}, curves.zcdp(rho=0.1), 1e-6),
]


@pytest.mark.parametrize(("budget", "cost", "curve", "delta"), BUDGETS)
def test_both_dialects_are_on_the_safe_side(
    budget: dn.Budget, cost: dict[str, float], curve: Any, delta: float
) -> None:
    with opened(budget=budget) as s:
        s.sql(COUNT, **cost)
        said = s.statement()
        text = " ".join(said.sentences)
        promise = s.guarantee.curve if curve is None else curve
    epsilon = float(re.search(r"private with ε = (\d+\.?\d*)", text)[1])  # type: ignore[index]
    true = promise.epsilon(delta=delta * (1 + 1e-12))
    assert true * (1 - 1e-9) <= epsilon <= true * 1.001
    factor = float(re.search(r"e\^ε = (\d+\.?\d*)", text)[1])  # type: ignore[index]
    assert math.exp(true) * (1 - 1e-9) <= factor <= math.exp(epsilon) * 1.002
    chance = float(re.search(r"right at most ([\d.]+) %", text)[1]) / 100  # type: ignore[index]
    assert (1 + promise.advantage()) / 2 <= chance * (1 + 1e-9) <= (1 + promise.advantage()) / 2 + 2e-4
    missed = float(re.search(r"least ([\d.]+) % of the time", text)[1]) / 100  # type: ignore[index]
    assert missed <= promise.beta(alpha=0.05) <= missed + 0.002
    assert "one person ('patient_id', at most 3 rows) added or removed" in text
    assert "So far 1 release was charged" in text
    assert f"deniable {dn.__version__}" in text
    assert ("Laplace" in text) == (budget.currency == "epsilon")


@pytest.mark.parametrize(
    ("budget", "delta", "says"),
    [
        (dn.Budget.pure(epsilon=699), 0.0, "at most e^ε = 3.732 × 10³⁰³."),
        (dn.Budget.pure(epsilon=800), 0.0, "at most e^ε = 2.727 × 10³⁴⁷."),  # above all floats
        (dn.Budget.pure(epsilon=1_000_000), 0.0, "at most e^ε = 3.034 × 10⁴³⁴²⁹⁴."),
        (dn.Budget(epsilon=2, delta=1e-6), 0.0, "does not bound how much the release changes the odds"),
    ],
)
def test_the_factor_of_the_odds_is_never_below_the_exponential(budget: dn.Budget, delta: float, says: str) -> None:
    """From ε = 700 on, and for an infinite ε, it was that of 700. (e^699 = 3.73115 × 10³⁰³, e^800 = 2.72637 × 10³⁴⁷,
    e^1000000 = 3.03322 × 10⁴³⁴²⁹⁴.)
    """
    with opened(budget=budget) as s:
        said = s.statement(delta=delta).sentences
    [odds] = [each for each in said if "odds of a guess" in each]
    assert says in odds
    assert ("e^ε" in odds) == ("e^ε" in says)


def test_nothing_of_the_data_is_in_it() -> None:
    """Two tables that differ in everything but the schema have the same statement."""
    other = visits(rows=50)
    other["cost"] = 1.0
    said = []
    for table in (visits(), other):
        with opened(table, budget=dn.Budget(epsilon=1, delta=1e-6)) as s:
            answer = s.sql(COUNT, epsilon=0.5)
            said.append((s.statement().text(), answer.statement().text(), answer.nonnegative().statement().text()))
    assert said[0] == said[1]


def test_a_session_without_releases_and_an_answer_have_one() -> None:
    with opened(budget=dn.Budget(epsilon=1, delta=1e-6)) as s:
        assert "So far nothing was released." in s.statement().sentences
        answer = s.sql(COUNT, epsilon=0.5)
        text = " ".join(answer.statement().sentences)
        assert "This table is (ε, δ)-differentially private" in text
        assert "ward: one of A, B, C" in text
        assert "age: integer from 0 to 100" in text
        assert "town: text, without bounds or keys" in text
        assert "The 95 % intervals" in " ".join(answer.statement().sentences)
        assert "Adjustments" not in answer.statement().text()
        adjusted = answer.nonnegative().rounded(base=5).suppressed(below=10).statement()
        [steps] = [said[0] for name, said in adjusted.sections if name == "Adjustments"]
        assert steps.index("(1) counts below 0 were raised") < steps.index("(2) rounded") < steps.index("(3) counts")
        assert answer.statement(delta=1e-9).sentences[0] != answer.statement().sentences[0]


def test_what_is_public_by_law_is_said() -> None:
    with opened(budget=dn.Budget(epsilon=1, delta=1e-6)) as s:
        fixed = s.sql(COUNT, epsilon=0.5).adding_up_to(invariants={(): 1500})
        assert "The total was public before" in " ".join(fixed.statement().sentences)


def test_plain_text_markdown_and_latex() -> None:
    with opened(budget=dn.Budget(epsilon=1, delta=1e-6)) as s:
        said = s.statement()
    assert str(said) == said.text()
    assert all(len(line) <= 80 for line in said.text().splitlines())
    assert said.markdown().startswith("**Protection.** ")
    assert r"patient\_id" in said.markdown()
    assert r"$\varepsilon$ = 1 at $\delta$ = 10$^{-6}$" in said.latex()
    assert r"$e^{\varepsilon}$" in said.latex()
    assert r"patient\_id" in said.latex()
    assert not re.search("[εδμ⁻]", said.latex())


@pytest.mark.parametrize("delta", [-1, 1, 2.0, math.nan, True, "1e-6"])
def test_a_delta_that_is_none_is_refused(delta: Any) -> None:
    with opened() as s, pytest.raises(InvalidParameter, match="below 1"):
        s.statement(delta=delta)


def test_long_lists_public_tables_and_dates_are_told() -> None:
    frame = pd.DataFrame({"k": range(40), "day": pd.date_range("2024-01-01", periods=40)})
    floors = pd.DataFrame({"k": range(40), "floor": [0, 1] * 20})
    keys = dn.Domain.integer(keys=range(40), nullable=False)
    schema = {
        "t": {"k": keys, "day": dn.Domain.date("2024-01-01", "2024-12-31")},
        "floors": {"k": keys, "floor": dn.Domain.integer(keys=[0, 1], nullable=False)},
    }
    budget = dn.Budget.pure(epsilon=1)
    with dn.session({"t": frame}, unit=dn.Unit.row(), budget=budget, schema=schema, public={"floors": floors}) as s:
        text = " ".join(s.statement().sentences)
    assert "k: one of 40 listed values" in text
    assert "day: date from 2024-01-01 to 2024-12-31" in text
    assert "The whole table floors is public." in text
    assert "one row added or removed" in text
