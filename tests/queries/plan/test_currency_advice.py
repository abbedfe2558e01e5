"""What the other currency would give: against closed forms, and where the two meet."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

import deniable as dn
from deniable.queries.session import Session

FRAME = pd.DataFrame({"x": [1]})
COUNT = "SELECT COUNT(*) AS n FROM t"
GAUSSIAN, PURE = dn.Budget(epsilon=1, delta=1e-6), dn.Budget.pure(epsilon=1)


def opened(budget: dn.Budget) -> Session:
    return dn.session({"t": FRAME}, unit=dn.Unit.row(), budget=budget, schema={"x": dn.Domain.integer(0, 9)})


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, Session]]:
    with opened(GAUSSIAN) as a, opened(PURE) as b:
        yield {"gaussian": a, "pure": b}


def laplace(epsilon: float) -> float:
    """The half-width that discrete Laplace noise exceeds with 5 %: 2r^(t+1)/(1+r) ≤ 0.05, the smallest whole t."""
    r = math.exp(-epsilon)
    return math.ceil(math.log(0.05 * (1 + r) / 2) / math.log(r) - 1)


def test_one_question_has_three_times_the_noise_under_the_default_budget(sessions: dict[str, Session]) -> None:
    found = sessions["gaussian"].price(COUNT, share=1).other_currency()
    assert found is not None
    assert found.questions == 1
    assert found.errors["n"] == laplace(1) == 3
    assert found.here["n"] == pytest.approx(1.96 / 0.2355, abs=0.6)
    assert found.is_better
    assert found.budget.epsilon == 1
    told = " ".join(str(sessions["gaussian"].price(COUNT, share=1)).split())
    assert "a budget of pure epsilon 1 would pay for 1 such question with n ± 3 (here ± 8)" in told


@pytest.mark.parametrize("where", ["gaussian", "pure"])
def test_the_two_meet_where_their_formulas_do(sessions: dict[str, Session], where: str) -> None:
    """k questions: 1.96·√k/μ against the quantile of Laplace noise at ε/k. One is said to be better, never both."""
    for many in (1, 2, 4, 6, 12, 20, 50):
        session = sessions[where]
        found = session.price(COUNT, share=(1 - 1e-9) / many).other_currency()
        assert found is not None
        assert found.questions == many
        normal, wide = 1.96 * math.sqrt(many) / 0.2355, laplace(1 / found.questions)
        expected = {"gaussian": wide, "pure": normal}[where]
        assert found.errors["n"] == pytest.approx(expected, abs=1.01 + 0.1 * many / 10)
        better = {"gaussian": wide <= 0.85 * normal, "pure": normal <= 0.85 * wide}[where]
        worse = {"gaussian": wide >= normal, "pure": normal >= wide}[where]
        assert found.is_better or not better
        assert not (found.is_better and worse)


def test_no_advice_where_there_is_no_comparison(sessions: dict[str, Session]) -> None:
    for budget in (dn.Budget.gaussian(mu=1), dn.Budget.zcdp(rho=0.1)):
        with opened(budget) as session:
            assert session.price(COUNT, share=1).other_currency() is None
    assert sessions["pure"].price("SELECT MEDIAN(x) AS m FROM t", epsilon=0.5).other_currency() is None
    assert sessions["gaussian"].price(COUNT, epsilon=3).other_currency() is None  # more than the whole budget
    prices: list[Any] = [sessions[each].price(COUNT, epsilon=0.1) for each in ("gaussian", "pure")]
    assert not prices[0].other_currency().is_better  # 74 questions: Gaussian noise is right
