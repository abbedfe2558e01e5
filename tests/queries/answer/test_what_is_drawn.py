"""What is measured for tables of a batch: the exact numbers, and noise that is no smaller than what was charged."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable.curves.filters import UNIT
from deniable.mechanisms import additive_noise
from deniable.queries.answer import batch_answers
from deniable.queries.answer.joint_tables import Jointly
from deniable.queries.plan.noise_planner import plan
from deniable.queries.sql.sql_reader import parse
from deniable.synth import residual_noise
from deniable.synth.residual_noise import Exchange
from tests.queries.hospital import BUDGETS

COSTS: dict[str, dict[str, Any]] = {"gaussian": {"mu": 1}, "pure": {"epsilon": 1}, "zcdp": {"rho": 0.5}}
ROWS = pd.DataFrame(
    [(a, b, c) for i, (a, b, c) in enumerate(np.ndindex(2, 3, 2)) for _ in range(1 + (i * i) % 17)], columns=list("abc")
)
SCHEMA = {
    name: dn.Domain.integer(keys=tuple(range(n)), nullable=False) for name, n in zip("abc", (2, 3, 2), strict=True)
}


def asked(*keys: str) -> str:
    return f"SELECT {', '.join((*keys, 'COUNT(*) AS n'))} FROM t" + (f" GROUP BY {', '.join(keys)}" if keys else "")


def opened(kind: str, unit: dn.Unit) -> Any:
    return dn.session({"t": ROWS}, unit=unit, budget=BUDGETS[kind], schema=SCHEMA)


@pytest.mark.parametrize("kind", BUDGETS)
def test_without_noise_every_table_of_a_batch_is_exact(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys depend on each other, so that a residual of two or three keys at a wrong scale is seen."""
    for each in vars(additive_noise).values():
        if isinstance(each, type) and "draw" in vars(each):
            monkeypatch.setattr(each, "draw", lambda self, size, entropy: np.zeros(size, dtype=np.int64))
    keys = [by for n in range(4) for by in combinations("abc", n)]
    with opened(kind, dn.Unit.row()) as s:
        for by, answer in zip(keys, s.batch([asked(*by) for by in keys], **COSTS[kind]), strict=True):
            exact = ROWS.groupby(list(by)).size().to_dict() if by else {(): len(ROWS)}
            for row in answer:
                at = tuple(row[name] for name in by)
                assert row["n"] == pytest.approx(exact[at[0] if len(at) == 1 else at], abs=1e-6)


def test_a_helper_table_of_replaced_rows_is_paid_for() -> None:
    """A replaced row moves two cells of every table, also of one that nobody asked for."""
    with opened("pure", dn.Unit.replaced_row()) as s:
        plans = [plan(parse(asked(*by), s.tables)) for by in combinations("abc", 2)]
        tables, cost = Jointly.of(plans), s.budget.cost(epsilon=1)
        made = tables.made(s.budget, cost, [1.0] * 3)
        assert (0, 1, 2) in [columns for columns, _ in made.mechanisms]
        spent = sum(2 / float(mechanism.width) for _, mechanism in made.mechanisms)  # type: ignore[attr-defined]
        assert 0.99 <= spent <= 1


@pytest.mark.parametrize("kind", ["gaussian", "zcdp"])
def test_what_is_new_in_a_batch_is_paid_for(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    before = batch_answers.release_jointly

    def release(tables: Jointly, made: Any, counts: Any) -> Any:
        seen.append((tables, made))
        return before(tables, made, counts)

    monkeypatch.setattr(batch_answers, "release_jointly", release)
    with opened(kind, dn.Unit.row()) as s:
        s.batch([asked("a", "b"), asked("a")], **dict.fromkeys(COSTS[kind], 0.3))
        s.batch([asked("a", "b"), asked("b", "c"), asked()], **dict.fromkeys(COSTS[kind], 0.2))
        assert len(seen) == 2
        assert len(seen[1][0].plans) < 3  # the first table is read again
        moved = sum(
            float(residual_noise.moved_by_row(tables.sizes, residual)) * (scale / float(mechanism.width)) ** 2
            for tables, made in seen
            for (residual, mechanism), scale in zip(made.mechanisms, made.scales, strict=True)
        )
        charged = float(s.budget.accounting.mu2_units(s.ledger.charged.units) * UNIT)
        assert 0.99 * charged <= moved <= charged


def test_replaced_rows_cost_no_less_by_many_keys() -> None:
    """By more than 8 keys not all ways to differ are tried; what is claimed must still cover each of them."""
    sizes, rng = (2, 3) * 5, np.random.default_rng(7)
    residuals = tuple(by for n in range(3) for by in combinations(range(10), n))
    [claimed] = residual_noise.moves(sizes, residuals, Exchange.REPLACED)
    for _ in range(50):
        first, second = (tuple(int(rng.integers(n)) for n in sizes) for _ in range(2))
        for residual in residuals:
            table = np.zeros([sizes[i] for i in residual])
            table[tuple(first[i] for i in residual)] += 1
            table[tuple(second[i] for i in residual)] -= 1
            square = (residual_noise.whole(table) / max(table.size, 1)) ** 2
            assert float(np.sum(square)) <= float(claimed[residual]) + 1e-9
