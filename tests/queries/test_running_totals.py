"""Running totals over days: their noise in closed form, their cost by the curve, and what a person can move."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable.errors import InvalidOperation, InvalidParameter, NotPrivateWarning
from deniable.ledger import Cost
from deniable.noise import ReplayEntropy
from deniable.queries.running_totals import TotalsNoise, blocks, totals_noise
from tests.queries.test_standing_questions import COUNT, MEAN, ROWS, SCHEMA, WARDS, opened, table
from tests.wording import worded

PURE, GAUSSIAN = dn.Budget.pure(epsilon=2), dn.Budget(epsilon=3, delta=1e-6)
NONE = dn.Budget.pure(epsilon=10_000)


def of(budget: dn.Budget, steps: int, text: str = COUNT, units: int | None = None) -> TotalsNoise:
    with opened(table(1), None, budget=budget) as session:
        return totals_noise(session._planned(text), budget, Cost(units or budget.limit.units), steps)


# -- numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [COUNT, WARDS, MEAN])
@pytest.mark.parametrize("budget", [NONE, dn.Budget.gaussian(mu=900)], ids=["pure", "gaussian"])
def test_without_noise_every_total_is_that_of_all_rows_so_far(budget: dn.Budget, text: str) -> None:
    """Every third day is answered: the rows between are counted with the next one."""
    frame = table(3, rows=500, days=12).assign(patient_id=range(500))
    with opened(frame, None, budget=budget) as session:
        standing = session.standing("year", [text], by="day", share=1, totals=12)
        for day in (1, 4, 5, 9, 11):
            rows = frame[frame["day"] <= day]
            [answer] = standing.reveal(day)
            if text is COUNT:
                assert answer["n"][0] == pytest.approx(len(rows), abs=0.6)
            elif text is WARDS:
                assert list(answer["n"])[:2] == pytest.approx([sum(rows["ward"] == each) for each in "AB"], abs=0.6)
            else:
                assert answer["mean"][0] == pytest.approx(rows["x"][rows["x"] > 2].mean(), abs=0.05)


def test_totals_go_on_after_restarts_and_without_the_old_rows(tmp_path: Path) -> None:
    """Rows of answered days are deleted: their exact sums are in the ledger, encrypted; rows used do not come back."""
    frame = table(4, rows=400).assign(patient_id=range(400))
    for day in range(6):
        now = frame[frame["day"] == day]
        with opened(now, tmp_path / "ledger", budget=NONE, version=f"v{day}") as session:
            standing = session.standing("year", [COUNT], by="day", epsilon=5000, totals=30)
            [answer] = standing.reveal(day)
            assert answer["n"][0] == (frame["day"] <= day).sum()
            assert standing.reveal(day)[0].rows == answer.rows
            assert session.standing("year").totals == 30
            assert session.ledger.charged == NONE.cost(epsilon=5000)
            session.ledger.verify()


def test_days_go_forward_and_end_with_what_was_paid(tmp_path: Path) -> None:
    with opened(table(1), None) as session:
        standing = session.standing("year", [COUNT], by="day", epsilon=1, totals=2)
        first = standing.reveal(3)
        with worded(InvalidOperation):
            standing.reveal(2)
        standing.reveal(4)
        with worded(InvalidOperation):
            standing.reveal(5)
        assert standing.reveal(3)[0].rows == first[0].rows
        assert standing.days() == [4, 3]
        assert repr(standing) == "<Standing 'year': 1 question about 'visits' by 'day', totals of 2 days>"
        for wrong in (1, 0, 5000, 2.5, "365", True):
            with worded(InvalidParameter, parameter="totals"):
                session.standing("other", [COUNT], by="day", epsilon=1, totals=wrong)  # type: ignore[arg-type]


def test_a_total_that_was_broken_off_is_the_same_when_it_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process stops after the day's numbers were sealed, and before the answer was: no second noise is drawn."""
    from deniable.queries.standing_questions import Standing

    with opened(table(1), None) as session:
        standing = session.standing("year", [COUNT], by="day", epsilon=1, totals=9)
        honest, seen = Standing._totalled, []

        def stops(self: Standing, day: Any, at: int, made: Any, steps: Any) -> Any:
            seen.append([list(each[1]) for each in steps])
            if len(seen) == 1:
                raise KeyboardInterrupt
            return honest(self, day, at, made, steps)

        monkeypatch.setattr(Standing, "_totalled", stops)
        with pytest.raises(KeyboardInterrupt):
            standing.reveal(0)
        standing.reveal(0)
        assert seen[0] == seen[1]


# -- cost and noise --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [PURE, GAUSSIAN, dn.Budget.zcdp(rho=0.1)], ids=str)
@pytest.mark.parametrize("text", [COUNT, WARDS, MEAN])
@pytest.mark.parametrize("steps", [2, 7, 365])
def test_the_curve_of_all_steps_costs_at_most_what_was_charged(budget: dn.Budget, text: str, steps: int) -> None:
    noise = of(budget, steps, text)
    assert 0.99 * budget.limit.units < noise.cost.units <= budget.limit.units


@pytest.mark.parametrize("budget", [PURE, GAUSSIAN], ids=str)
def test_no_history_of_one_person_moves_the_released_numbers_further_than_the_noise_was_made_for(
    budget: dn.Budget,
) -> None:
    """By brute force over all ways to spread a person's rows over 5 days, and two groups: L1 per level, and L2.

    Independent of the code's own bounds: exact numbers go through `_combined`, the sensitivity comes from the noise.
    """
    steps, noise = 5, of(budget, 5)
    [mechanism] = noise._made
    worst = 0.0
    for history in product(range(ROWS + 1), repeat=2 * steps):
        if sum(history) > ROWS:
            continue
        days = [list(history[2 * t : 2 * t + 2]) for t in range(steps)]
        moved = [noise._combined(days[: t + 1], t + 1) for t in range(steps)]
        if budget is GAUSSIAN:
            worst = max(worst, math.sqrt(sum(x * x for each in moved for x in each)))
        else:
            worst = max(worst, sum(abs(x) for each in moved for x in each))
    if budget is GAUSSIAN:
        found = float(mechanism.noise.sensitivity)
        assert worst <= found <= 1.0001 * worst
    else:  # each of the levels is paid for
        assert worst == blocks(steps)[1] * mechanism.sensitivity


@pytest.mark.parametrize("budget", [PURE, GAUSSIAN], ids=str)
def test_the_noise_of_totals_has_the_stated_deviation(budget: dn.Budget) -> None:
    """4,000 groups × 11 steps of empty data, against the deviation that intervals and prices state.

    The variance of 4,000 draws has a relative standard deviation of √(5/4000) = 0.036 at most (kurtosis 6 of a Laplace
    draw), the deviation half of that. 0.13 is beyond 7 of them: below 1e-9 for all steps; and the noise is fixed.
    """
    schema = {"key": dn.Domain.integer(keys=range(4000), nullable=False)}
    frame = pd.DataFrame({"patient_id": [1], "day": [0], "key": [0]})
    schema |= {"day": dn.Domain.integer(0, 400)}
    with opened(frame, None, budget=budget, schema=schema) as session:
        plan = session._planned("SELECT key, COUNT(*) AS n FROM visits GROUP BY key")
    made, steps = totals_noise(plan, budget, Cost(budget.limit.units), 11), []
    assert plan.collect.known is not None
    empty = dict.fromkeys(plan.collect.known, (0,))
    entropy = ReplayEntropy(7)
    for _ in range(11):
        with pytest.warns(NotPrivateWarning):
            steps.append(made.step(steps, empty, entropy))
    for count, stated in enumerate(made.deviations(), 1):
        released = made.released(steps[:count])
        found = float(np.std(released.parts[0].astype(float)))
        assert found == pytest.approx(stated, rel=0.13)
        assert released.deviation(plan, budget, 0) == pytest.approx(stated, rel=0.01)


def test_a_year_of_totals_beside_adding_up_days() -> None:
    """R = 3 at μ: independent formulas. Adding up: √t·R/μ. The root of the prefix sums: ‖f‖₂²·R/μ, f_k = C(2k,k)/4^k."""
    noise = of(GAUSSIAN, 365)
    mu = GAUSSIAN.level(GAUSSIAN.limit)
    f = np.cumprod([1.0, *(1 - 1 / (2 * k) for k in range(1, 365))])
    expected = [math.sqrt(float(f @ f) * float(f[:t] @ f[:t])) * ROWS / mu for t in (1, 30, 365)]
    found = [noise.deviations()[t - 1] for t in (1, 30, 365)]
    assert found == pytest.approx(expected, rel=1e-3)
    assert math.sqrt(365) * ROWS / mu / found[-1] == pytest.approx(6.5, abs=0.1)
    pure = of(PURE, 365).deviations()
    added = [math.sqrt(2 * t) * ROWS / 2 for t in range(1, 366)]
    assert float(np.sqrt(np.mean(np.square(added)) / np.mean(np.square(pure)))) == pytest.approx(1.6, abs=0.01)


def test_blocks_are_the_best_of_all_bases() -> None:
    """By brute force over bases and levels: the mean variance of all totals, in units of one draw at the whole ε."""

    def mean(steps: int, base: int, levels: int) -> float:
        digits = [sum((t // base**j) % base for j in range(levels)) for t in range(1, steps + 1)]
        return levels**2 * sum(digits) / steps

    for steps in (2, 5, 30, 90, 200):
        base, levels = blocks(steps)
        assert base**levels > steps
        every = [mean(steps, b, n) for b in range(2, steps + 2) for n in range(1, 12) if b**n > steps]
        assert mean(steps, base, levels) <= min(every) * 1.000001


@pytest.mark.parametrize(
    "changed",
    [
        {"x": dn.Domain.integer(0, 1)},  # noise for 1 on totals that hold a 10
        {"y": dn.Domain.real(0, 1000)},  # exact numbers on another grid
        {"ward": dn.Domain.text("B", "A")},  # groups in another order
        {"ward": dn.Domain.text("A", "C")},
        {"ward": dn.Domain.text("A", "B", "C")},
    ],
)
def test_another_schema_does_not_continue_totals(tmp_path: Path, changed: dict[str, Any]) -> None:
    schema = {**SCHEMA, "y": dn.Domain.real(0, 100)}
    frame = table(4).assign(y=50.0)
    text = "SELECT ward, SUM(x) AS x, SUM(y) AS y FROM visits GROUP BY ward"
    with opened(frame, tmp_path / "ledger", schema=schema) as session:
        session.standing("year", [text], by="day", epsilon=1, totals=3).reveal(0)
    with opened(frame, tmp_path / "ledger", schema={**schema, **changed}) as session:
        before = len(list(session.ledger.entries()))
        with worded(InvalidOperation):
            session.standing("year").reveal(1)
        assert len(list(session.ledger.entries())) == before
    with opened(frame, tmp_path / "ledger", schema=schema) as session:
        session.standing("year").reveal(1)
