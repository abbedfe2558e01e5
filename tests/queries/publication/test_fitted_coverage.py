"""How often intervals hold after every adjustment, to less than half a per cent.

A fit is linear in the draws. What one draw adds to each number is read off the library's own code, by a draw of 1; then
40,000 draws of the real noise are put through that. 94.2 % at 95 % is 7.3 standard errors too few, which chance brings
about less than once in 1e12; there are about 1,300 numbers below. 90 % are seen always. What follows is not linear, but may
lose nothing: an interval that held the truth before must hold it afterwards, every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable import queries
from deniable.queries.answer.answer import Answer
from deniable.queries.answer.joint_tables import Jointly, Made, published
from deniable.queries.answer.receipt import Receipt
from deniable.queries.answer.release import Released, release_jointly
from deniable.queries.answer.shared_measurements import Measurement
from deniable.queries.plan.noise_planner import noise, plan_under
from deniable.queries.session import Session
from deniable.queries.sql.sql_reader import parse

A, B = ("x", "y", "z"), ("p", "q", "r", "s")
CELLS = np.array([[0, 0, 1, 4], [3, 5, 8, 13], [0, 1, 40, 6]])
TRUTH = {"fine": CELLS.ravel(), "a": CELLS.sum(axis=1), "b": CELLS.sum(axis=0), "all": CELLS.sum(keepdims=True).ravel()}
TEXTS = [
    "SELECT a, b, COUNT(*) AS n FROM w GROUP BY a, b", "SELECT a, COUNT(*) AS n FROM w GROUP BY a",
    "SELECT b, COUNT(*) AS n FROM w GROUP BY b", "SELECT COUNT(*) AS n FROM w",
]  # fmt: skip
BUDGETS = {
    "mu": dn.Budget.gaussian(mu=1000), "rho": dn.Budget.zcdp(rho=1000), "epsilon": dn.Budget.pure(epsilon=1000)
}  # fmt: skip
DRAWS = 40_000
LEAST = 0.942
LAW = {"a": {a: int(n) for a, n in zip(A, TRUTH["a"], strict=True)}}


class Given:
    """Draws what it was told to."""

    def __init__(self, drawn: Any) -> None:
        self.drawn = drawn

    def draw(self, shape: Any, source: Any) -> Any:
        return self.drawn.reshape(shape)


class World:
    """Four tables that are measured together or apart, with noise that is given."""

    def __init__(self, s: Session, name: str, level: float) -> None:
        self.s = s
        amount = {"mu": level, "rho": level**2 / 2, "epsilon": level}[name]
        self.plans = [plan_under(parse(text, s.tables), s.budget) for text in TEXTS]
        self.tables = Jointly.of(self.plans)
        self.made: Made = self.tables.made(s.budget, s.budget.cost(**{name: amount}), [1.0] * 4)
        self.costs = [s.budget.cost(**{name: amount * part}) for part in (0.5, 0.3, 0.6, 0.25)]
        self.apart = [noise(p, s.budget, c).mechanisms[0] for p, c in zip(self.plans, self.costs, strict=True)]
        self.marks = 0

    def mechanisms(self, *, together: bool) -> list[tuple[Any, int]]:
        """Each with the number of its draws."""
        if together:
            return [(m, int(np.prod([self.tables.sizes[i] for i in at]))) for at, m in self.made.mechanisms]
        return list(zip(self.apart, (12, 3, 4, 1), strict=True))

    def answers(self, drawn: Sequence[Any], *, together: bool, exact: bool = True) -> list[Answer]:
        """The tables with these draws on the true counts, or on nothing."""
        self.marks += 1
        truth = [each if exact else 0 * each for each in TRUTH.values()]
        if together:
            made = replace(self.made, mechanisms=tuple(
                (at, Given(each)) for (at, _), each in zip(self.made.mechanisms, drawn, strict=True)
            ))  # fmt: skip
            counted = [
                {
                    group: (int(n),)
                    for group, n in zip(
                        collect.known or (), truth[[p.collect for p in self.plans].index(collect)], strict=True
                    )
                }
                for _, collect in self.tables.collects(self.made)
            ]
            found = release_jointly(self.tables, made, counted)
            released = published(self.tables, self.made, found, {}, self.s.budget, f"m:{self.marks}")
        else:
            released = []
            for i, (plan, cost) in enumerate(zip(self.plans, self.costs, strict=True)):
                assert plan.collect.known is not None
                mark = (Measurement(f"m:{self.marks}.{i}", cost),)
                units = (cost.units,) * len(truth[i])
                released.append(Released(plan.collect.known, (truth[i] + drawn[i],), cost, cost, units, measured=mark))
        return [
            Answer(p, r, self.s.budget, self.s.guarantee, Receipt(i + 1, "", r.cost, r.cost, self.s.budget, False, ""), 0.95)
            for i, (p, r) in enumerate(zip(self.plans, released, strict=True))
        ]  # fmt: skip


@pytest.fixture(scope="module", params=BUDGETS)
def kind(request: pytest.FixtureRequest) -> Iterator[tuple[str, Session]]:
    frame = pd.DataFrame([(a, b) for a in A for b in B], columns=["a", "b"])
    schema = {"a": dn.Domain.text(*A, nullable=False), "b": dn.Domain.text(*B, nullable=False)}
    with dn.session({"w": frame}, unit=dn.Unit.row(), budget=BUDGETS[request.param], schema=schema) as s:
        yield request.param, s


def linear(tables: Sequence[Answer]) -> dict[str, list[Answer]]:
    """All that is linear, and the tables that it gives."""
    fine, a, b, all_rows = tables
    return {
        "asked": list(tables),
        "fitted": list(queries.publish(tables).tables),
        "exact totals": list(queries.publish(tables, invariants=LAW).tables),
        "to one total": [fine.adding_up_to(a)],
        "to two totals": [fine.adding_up_to(a, b)],
        "rolled up": [fine.rollup("a"), fine.rollup()],
        "fitted with sums": list(queries.publish([fine, fine.rollup("a"), b, all_rows]).tables),
    }


def numbers(found: dict[str, list[Answer]]) -> dict[tuple[str, int], Any]:
    return {
        (step, place): np.array(answer["n"], dtype=float)
        for step, answers in found.items()
        for place, answer in enumerate(answers)
    }


def halves(answer: Answer) -> Any:
    return np.array([(low - n, high - n) for n, (low, high) in zip(answer["n"], answer.interval("n"), strict=True)])  # type: ignore[misc, operator]


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.4, 2.5])
@pytest.mark.parametrize("together", [True, False], ids=["together", "apart"])
def test_intervals_hold_95_of_100_after_every_linear_step(
    kind: tuple[str, Session], together: bool, level: float
) -> None:
    world = World(kind[1], kind[0], level)
    mechanisms = world.mechanisms(together=together)
    drawn = [np.asarray(m.draw((n, DRAWS), None), dtype=float) for m, n in mechanisms]
    first = [each[:, 0].astype(np.int64) for each in drawn]
    if not together:  # totals that agree by chance are met as they are, which is another fit
        first[1][0] += 5 + abs(int(first[1].sum()) - int(first[2].sum()))
    there = linear(world.answers(first, together=together))
    before, moves = numbers(there), {}
    for which, (_, cells) in enumerate(mechanisms):
        for cell in range(cells):
            again = [each.copy() for each in first]
            again[which][cell] += 1
            after = numbers(linear(world.answers(again, together=together)))
            moves[which, cell] = {at: after[at] - before[at] for at in before}
    for (step, place), _ in before.items():
        total = sum(np.outer(by[step, place], drawn[which][cell]) for (which, cell), by in moves.items())
        around = halves(there[step][place])[:, :, None]
        held = ((-around[:, 1] - 1e-9 <= total) & (total <= -around[:, 0] + 1e-9)).mean(axis=1)
        assert held.min() >= LEAST, (step, place, held)
    narrow = ((-0.83 * around[:, 1] <= total) & (total <= -0.83 * around[:, 0])).mean(axis=1)
    assert narrow.min() < LEAST, "an interval that holds 90 % is seen"


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False], ids=["together", "apart"])
def test_what_is_not_linear_loses_no_truth_that_was_held(kind: tuple[str, Session], together: bool) -> None:
    world = World(kind[1], kind[0], 0.4)
    for _ in range(3):
        drawn = [np.asarray(m.draw((n,), None)) for m, n in world.mechanisms(together=together)]
        tables = world.answers(drawn, together=together)
        for law in (None, LAW):
            fit = queries.publish(tables, invariants=law)
            steps: list[Callable[[], queries.Publication]] = [
                fit.nonnegative, fit.rounded, lambda fit=fit: fit.rounded(base=5),  # type: ignore[misc]
                lambda fit=fit: fit.nonnegative().rounded(),  # type: ignore[misc]
                lambda fit=fit: fit.nonnegative().rounded(base=5),  # type: ignore[misc]
            ]  # fmt: skip
            for step in steps:
                for one, other, truth in zip(fit.tables, step().tables, TRUTH.values(), strict=True):
                    for was, now, n in zip(one.interval("n"), other.interval("n"), truth, strict=True):
                        assert was is not None
                        assert now is not None
                        held = was[0] - 1e-9 <= n <= was[1] + 1e-9
                        assert not held or now[0] - 1e-9 <= n <= now[1] + 1e-9
