"""The plan of a dashboard: no enumerated plan is cheaper, the budget pays for it, and nothing is spent."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

import deniable as dn
from deniable.errors import InvalidParameter, QuestionRefused
from deniable.ledger import Budget, Ledger
from deniable.queries import DashboardPlan, plan_dashboard
from deniable.queries.engines.price_engine import Unread
from deniable.queries.session import Session
from tests.queries.test_standing_questions import COUNT, SCHEMA, WARDS, opened, table
from tests.wording import worded

FINE = "SELECT ward, x, COUNT(*) AS n FROM visits GROUP BY ward, x"
PEOPLE = "SELECT COUNT(DISTINCT patient_id) AS n FROM visits"
MEDIAN = "SELECT MEDIAN(x) AS m FROM visits"


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with opened(table(1)) as found:
        yield found


def every_plan(session: Session, questions: list[str], near: list[float], times: int, budget: Budget) -> list[int]:
    """The cost of every plan, written down independently: each question is marked as standing, or with the number of
    the batch that it is asked in on every refresh; a batch of one is the question alone.
    """
    costs: list[int] = []
    with Ledger.open(budget=budget, unit=session.unit, dataset="enumerated") as ledger:
        priced = Session(Unread(), dict(session.tables), ledger, keeps=True)
        alone = [priced.price(each, within=n).cost.units for each, n in zip(questions, near, strict=True)]
        stands = [each != PEOPLE for each in questions]
        known: dict[tuple[int, ...], int] = {}
        for marks in product(range(len(questions) + 1), repeat=len(questions)):  # 0: it stands
            if any(mark == 0 and not stands[i] for i, mark in enumerate(marks)):
                continue
            total = sum(alone[i] for i, mark in enumerate(marks) if mark == 0)
            for batch in set(marks) - {0}:
                block = tuple(i for i, mark in enumerate(marks) if mark == batch)
                if block not in known:
                    within: Any = [near[i] for i in block]
                    known[block] = (
                        alone[block[0]]
                        if len(block) == 1
                        else priced.price_batch([questions[i] for i in block], within=within).cost.units
                    )
                total += times * known[block]
            costs.append(total)
    return costs


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("near", [[50, 50, 50], [100, 5, 30]])
@pytest.mark.parametrize("questions", [[COUNT, WARDS, FINE], [COUNT, WARDS, PEOPLE]], ids=["sums", "people"])
@pytest.mark.slow
def test_no_enumerated_plan_is_cheaper(session: Session, questions: list[str], near: list[float], times: int) -> None:
    """All 64 markings, in both currencies; ε of Gaussian plans at δ by bisection on the certified curve."""
    found = plan_dashboard(session, questions, within=near, refreshes=times, by="day", delta="1e-6")
    pure = min(every_plan(session, questions, near, times, Budget.pure(epsilon=10**5)))
    normal = min(every_plan(session, questions, near, times, Budget.gaussian(mu=300)))
    mu = float(Fraction(normal, 10**30)) ** 0.5
    epsilons = {"epsilon": pure / 1e30, "mu2": float(dn.curves.gaussian(mu=mu).epsilon(delta=9e-7))}
    chosen = min(epsilons, key=lambda each: epsilons[each])
    assert found.budget.accounting.name == chosen
    total = sum(each.cost.units for each in found.blocks)
    assert total == pytest.approx({"epsilon": pure, "mu2": normal}[chosen], rel=1e-5)  # `within` is found to 1e-6
    assert epsilons[chosen] <= float(found.epsilon) <= 1.0011 * epsilons[chosen]  # rounded up to four digits


def test_the_budget_pays_for_the_plan_and_the_errors_are_kept(session: Session) -> None:
    before = session.ledger.charged
    for times, questions in ((1, [COUNT, WARDS]), (365, [COUNT, WARDS, FINE, PEOPLE])):
        found = plan_dashboard(session, questions, within=50, refreshes=times, by="day")
        total = sum(each.cost.units for each in found.blocks)
        assert total <= found.budget.limit.units
        assert sorted(each for block in found.blocks for each in block.questions) == sorted(questions)
    assert session.ledger.charged == before
    standing = [block for block in found.blocks if block.way == "stands"]
    with opened(table(1), None, budget=found.budget) as other:
        level = Fraction(found.budget.level_up(standing[0].cost))
        made = other.standing("daily", [COUNT], by="day", mu=level)
        assert made.prices()[0].errors()["n"] == pytest.approx(50, rel=0.02)


def test_a_standing_question_about_different_rows_keeps_its_errors(session: Session) -> None:
    """Standing, both halves are paid for; the plan had the price of one, and the errors were twice as large."""
    halves = "SELECT COUNT_IF(x > 3) AS a, COUNT_IF(NOT x > 3) AS b FROM visits"
    found = plan_dashboard(session, [halves], within=50, refreshes=365, by="day")
    [block] = found.blocks
    assert block.way == "stands"
    with opened(table(1), None, budget=found.budget) as other:
        made = other.standing("daily", [halves], by="day", share=1)
        assert made.prices()[0].errors()["a"] == pytest.approx(50, rel=0.02)
    once = plan_dashboard(session, [halves], within=50, refreshes=1, by="day")
    assert once.blocks[0].way == "alone"
    assert once.epsilon < found.epsilon


def test_many_refreshes_stand_and_few_are_shared(session: Session) -> None:
    year = plan_dashboard(session, [COUNT, WARDS, FINE], within=50, refreshes=365, by="day")
    assert {each.way for each in year.blocks} == {"stands"}
    once = plan_dashboard(session, [COUNT, WARDS, FINE], within=50, refreshes=1)
    assert "together" in {each.way for each in once.blocks}
    single = plan_dashboard(session, [COUNT], within=50, refreshes=1)
    assert single.budget.accounting.name == "epsilon"  # one question: Laplace
    tiles = [f"SELECT COUNT(*) AS n FROM visits WHERE x < {i}" for i in range(1, 12)]
    many = plan_dashboard(session, tiles, within=50, refreshes=365, by="day")
    assert many.budget.accounting.name == "mu2"  # eleven: Gaussian
    assert many.epsilon < Decimal(str(dict(many.others)["cheapest with Laplace noise"]))


def test_more_questions_than_are_tried_exhaustively(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """By merging: never dearer than all alone, and the exhaustive plan is never dearer than the merged one."""
    questions = [COUNT, WARDS, FINE, PEOPLE]
    exact = plan_dashboard(session, questions, within=50, refreshes=1)
    monkeypatch.setattr("deniable.queries.dashboard_plan.EXHAUSTIVE", 1)
    merged = plan_dashboard(session, questions, within=50, refreshes=1)
    assert exact.epsilon <= merged.epsilon <= min(epsilon for words, epsilon in merged.others if "alone" in words)


def test_what_is_said(session: Session) -> None:
    found = plan_dashboard(session, [COUNT, PEOPLE], within=[50, 60], refreshes=365, by="day")
    assert isinstance(found, DashboardPlan)
    lines = str(found).splitlines()
    assert lines[0].startswith("cheapest epsilon ")
    assert any(each.startswith("stands   paid once, in all ") for each in lines)
    assert any(each.startswith("alone    paid 365 times, in all ") for each in lines)
    assert found.to_dict()["blocks"][0]["way"] == "stands"
    for wrong, parameter in (
        ({"questions": COUNT}, "questions"),
        ({"questions": []}, "questions"),
        ({"questions": [COUNT] * 101}, "questions"),
        ({"questions": 5}, "questions"),
        ({"questions": [5]}, "questions"),
        ({"within": [1, 2]}, "within"),
        ({"within": "5"}, "within"),
        ({"within": ["5"]}, "within"),
        ({"within": None}, "within"),
        ({"within": True}, "within"),
        ({"within": {"n": 5}}, "within"),
        ({"within": 10**400}, "within"),
        ({"refreshes": 0}, "refreshes"),
        ({"delta": 0}, "delta"),
        ({"by": "ward"}, "by"),
    ):
        asked: dict[str, Any] = {"questions": [COUNT], "within": 50, "by": "day", **wrong}
        with worded(InvalidParameter, parameter=parameter):
            plan_dashboard(session, asked.pop("questions"), **asked)
    with opened(table(1).assign(town="x"), None, schema={**SCHEMA, "town": dn.Domain.text()}) as other:
        for refused in ("SELECT town, COUNT(*) AS n FROM visits GROUP BY town", "SELECT AVG(x) AS a FROM visits"):
            with pytest.raises((QuestionRefused, InvalidParameter)):
                plan_dashboard(other, [refused], within=50)
        [ranked] = plan_dashboard(other, [MEDIAN], within=50, by="day").to_dict()["blocks"]
        assert ranked["way"] == "alone"  # within 50 rows of the median's rank, bought anew on each refresh
