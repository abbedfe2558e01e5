"""Answers: a small table of noisy numbers, each with its noise interval, and the papers that belong to it."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from deniable.errors import NOTHING, InvalidParameter
from deniable.queries.intervals import Estimate, Share, smooth_reach
from deniable.queries.notes import cost_said, empty_note, left_out_notes, rest_said, rows_note, threshold_note
from deniable.queries.pricing import rank_note
from deniable.queries.ratios import Move, Quotient, interval, is_linear, moved_reach, quotient
from deniable.queries.recipes import Counted, is_cut, possible
from deniable.queries.shown import Cell, Interval, Shown
from deniable.tables.expressions import Call, Column, Expression, columns_used, same
from deniable.tables.operators import typed
from deniable.units import Guarantee

if TYPE_CHECKING:
    from deniable.ledger import Budget, Cost
    from deniable.queries.planner import Plan
    from deniable.queries.recipes import Drawn
    from deniable.queries.release import Released
    from deniable.tables.kinds import Domain


@final
@dataclass(frozen=True, slots=True)
class Receipt:
    """What was paid: the entry of the ledger, the cost, and what is left after it. A replay costs nothing."""

    entry: int
    """Which of the ledger's charges it was (`Ledger.charge`): this does not tell which other runs had ended by then."""
    question: str
    cost: Cost
    rest: Cost
    budget: Budget
    replayed: bool
    time: str
    """When it was charged, by the ledger's clock: a replay tells the table as it was then."""
    version: str | None = None
    """Which version of the data it is about, as the ledger calls it; None if that is not known."""

    @property
    def paid(self) -> str:
        """The cost in words; nothing, for an answer that was paid for before."""
        if self.replayed:
            return f"nothing (asked before; the answer is of {self.time[:10]})"
        return cost_said(self.cost, self.budget)

    @property
    def left(self) -> str:
        """What was left, in words."""
        return rest_said(self.rest, self.budget)

    def __str__(self) -> str:
        return f"charge {self.entry}: paid {self.paid}; left {self.left}"


@final
class Answer(Shown):
    """The noisy answer to a question, with the plan it was made by, its guarantee and its receipt."""

    __slots__ = ("_budget", "_plan", "_released", "guarantee", "receipt")

    def __init__(
        self, plan: Plan, released: Released, budget: Budget, guarantee: Guarantee, receipt: Receipt, confidence: float
    ) -> None:
        self._plan, self._released, self._budget = plan, released, budget
        self.guarantee, self.receipt = guarantee, receipt
        cells, intervals = _shown(plan, released, budget, confidence)
        counted = {recipe.name for recipe in plan.recipes if isinstance(recipe, Counted)}
        measures = {each.name for each in plan.question.measures}
        columns = plan.question.post.columns
        super().__init__(
            plan.question.names,
            cells,
            intervals,
            confidence,
            measured=frozenset(name for name, made in columns if measures & set(columns_used(made))),
            counts=frozenset(name for name, made in columns if isinstance(made, Column) and made.name in counted),
        )

    def _papers(self) -> str:
        return str(self.receipt)

    def _entry(self) -> int:
        return self.receipt.entry

    @property
    def budget(self) -> Budget:
        """The budget that it was paid from."""
        return self._budget

    @property
    def plan(self) -> Plan:
        """How the question was answered."""
        return self._plan

    @property
    def released(self) -> Released:
        """The noisy statistics that the cells were made from."""
        return self._released

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know when reading it, a sentence each: from the question, the public schema and the cost alone."""
        plan = self._plan
        said = [
            empty_note(plan),
            threshold_note(plan, self._released.threshold),
            rank_note(plan, self._budget, self._released.cost, self.confidence),
            rows_note(plan),
            *left_out_notes(plan),
        ]
        return tuple(each for each in said if each)

    def adding_up_to(self, total: Answer) -> Answer:
        """The same with its counts or sums moved such that they add up to a coarser answer; says so where it is shown.

        `total` asks for the same measure of the same rows, by fewer of the keys. Costs nothing. Asked for together in a
        batch, where the total is merged from both answers, this is the least-squares fit to both.
        """
        from deniable.queries.batch import added_up

        if not isinstance(total, Answer) or total.budget != self._budget:
            raise InvalidParameter("total", type(total).__name__, "must be an answer under the same budget")
        if total.receipt.version != self.receipt.version:
            raise InvalidParameter("total", NOTHING, "is about another version of the data", "ask both of one version")
        moved = added_up(total.plan, self._plan, total.released, self._released, self._budget)
        if moved is None:
            raise InvalidParameter(
                "total", NOTHING, "must ask for the same count or sum of the same rows, by fewer public keys",
                "SELECT ward, COUNT(*) … GROUP BY ward is a total of … GROUP BY ward, sex",
            )  # fmt: skip
        promise = Guarantee(self._budget.curve(moved.cost), self.guarantee.unit, assumptions=self.guarantee.assumptions)
        other = Answer(self._plan, moved, self._budget, promise, self.receipt, self.confidence)
        other.adjusted = f"moved to add up to the totals of charge {total.receipt.entry}"
        return other

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values: the table, the intervals, and where they come from (provenance)."""
        plan = self._plan
        return {
            "columns": list(self._names),
            "rows": [[_portable(cell) for cell in row] for row in self._cells],
            "intervals": [[None if each is None else list(each) for each in row] for row in self._intervals],
            "confidence": self.confidence,
            "kinds": [typed(made, plan.question.domains).domain.kind.value for _, made in plan.question.post.columns],
            "measured": sorted(self._measured),
            "counts": sorted(self._counts),
            "adjusted": self.adjusted,
            "notes": list(self.notes),
            "provenance": {
                "question": plan.question.hash,
                "tables": [table.name for table in plan.question.relation.tables],
                "unit": self.guarantee.unit.describe(),
                "guarantee": self.guarantee.curve.to_dict(),
                "entry": self.receipt.entry,
                "paid": self.receipt.paid,
                "left": self.receipt.left,
                "replayed": self.receipt.replayed,
                "time": self.receipt.time,
            },
        }

    def to_json(self) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2, allow_nan=False)


def _portable(cell: Cell) -> Any:
    return cell.isoformat() if isinstance(cell, dt.date | dt.datetime) else cell


# -- from noisy statistics to cells ----------------------------------------------------------------------------------


def _shown(
    plan: Plan, released: Released, budget: Budget, confidence: float
) -> tuple[tuple[tuple[Cell, ...], ...], tuple[tuple[Interval, ...], ...]]:
    question = plan.question
    drawn = released.drawn(plan, budget)
    estimates: list[dict[str, Estimate]] = []
    rows: list[dict[str, Cell]] = []
    for group, numbers in zip(released.groups, drawn, strict=True):
        found = _estimates(plan, numbers, confidence)
        estimates.append(found)
        keys = {key.name: value for key, value in zip(question.keys, group, strict=True)}
        rows.append(keys | {name: each.value for name, each in found.items()})
    domains = question.domains
    chosen = question.post.select(rows, domains)
    cells = tuple(values for _, values in chosen)
    readers = [_Interval(plan, expression, domains, confidence) for _, expression in question.post.columns]
    intervals = tuple(tuple(reader.around(rows[i], estimates[i], drawn[i]) for reader in readers) for i, _ in chosen)
    return cells, intervals


def _estimates(plan: Plan, drawn: Sequence[Drawn], confidence: float) -> dict[str, Estimate]:
    return {
        recipe.name: recipe.estimate([drawn[i] for i in uses], confidence)
        for recipe, uses in zip(plan.recipes, plan.uses, strict=True)
    }


@final
class _Interval:
    """The noise interval of one column of the result."""

    __slots__ = (
        "_confidence",
        "_expression",
        "_far",
        "_made",
        "_parts",
        "_plan",
        "_quotient",
        "_root",
        "_used",
        "_value",
    )

    def __init__(self, plan: Plan, expression: Expression, domains: Mapping[str, Domain], confidence: float) -> None:
        self._plan, self._expression, self._confidence = plan, expression, confidence
        names = {recipe.name: (recipe, uses) for recipe, uses in zip(plan.recipes, plan.uses, strict=True)}
        self._used = [name for name in dict.fromkeys(columns_used(expression)) if name in names]
        self._made = [(name, *names[name]) for name in self._used]
        self._parts = sorted({part for _, _, uses in self._made for part in uses})
        self._value = typed(expression, domains).value
        self._quotient = quotient(expression, domains)
        # The law of whole noise takes some milliseconds, once for all rows.
        self._far = moved_reach if is_linear(expression) else smooth_reach
        root = _squared(expression)
        self._root = None if root is None else _Interval(plan, root, domains, confidence)

    def around(self, row: Mapping[str, Any], estimates: Mapping[str, Estimate], drawn: Sequence[Drawn]) -> Interval:
        if not self._used:
            return None
        if isinstance(self._expression, Column):
            one = estimates[self._expression.name]
            return None if one.low is None or one.high is None else (one.low, one.high)
        middle = self._value(row)
        if isinstance(middle, bool) or not isinstance(middle, int | float):
            return None
        if self._root is not None:
            ends = self._root.around(row, estimates, drawn)
            return None if ends is None else _square(*ends)
        if any(self._plan.parts[part].is_ranked for part in self._parts):
            return self._by_measures(row, estimates, float(middle))
        return self._by_parts(row, drawn, float(middle))

    def _by_parts(self, row: Mapping[str, Any], drawn: Sequence[Drawn], middle: float) -> Interval:
        """By how far each noisy statistic moves the result, to first order; the count that decided to show the key is
        tried at all that it may stand for.
        """
        cut = next((part for part in self._parts if is_cut(drawn[part], self._confidence)), None)
        if cut is None:
            around = self._moved(row, drawn, self._parts, self._confidence)
            # A count that was rounded may lie beyond the ends.
            return None if around is None else (min(around[0], middle), max(around[1], middle))
        others = [part for part in self._parts if part != cut]
        counts, rest = possible(drawn[cut], self._confidence)
        ends = [middle]
        for count in counts:
            numbers = [*drawn]
            numbers[cut] = count
            around = self._moved(row, numbers, others, rest)
            if around is None:
                return None
            ends += around
        return min(ends), max(ends)

    def _at(self, row: Mapping[str, Any], drawn: Sequence[Drawn]) -> Quotient | None:
        """The result, if these were the noisy statistics; None if that is no number."""
        values = {name: recipe.middle([drawn[i] for i in uses], self._confidence) for name, recipe, uses in self._made}
        return self._quotient({**row, **values})

    def _moved(
        self, row: Mapping[str, Any], drawn: Sequence[Drawn], parts: Sequence[int], confidence: float
    ) -> Interval:
        """How far these statistics move the result, to first order: measures that share one move together."""
        middle = self._at(row, drawn)
        moves: list[Move] = []
        for part in parts:
            one = drawn[part]
            step = max(1, round(one.deviations))  # a whole one: a linear expression then moves exactly
            ends = []
            for sign in (-1, 1):
                numbers = [*drawn]
                numbers[part] = replace(one, values=one.values + sign * step)
                ends.append(self._at(row, numbers))
            low, high = ends
            if low is None or high is None:
                return None
            move = Quotient((high.above - low.above) / (2 * step), (high.below - low.below) / (2 * step))
            shares = one.shares or [Share.between(one.shape, length) for length in one.noises()]
            moves += [Move(move, share) for share in shares]
        return None if middle is None else interval(middle, moves, drawn[self._parts[0]].shape, confidence, self._far)

    def _by_measures(self, row: Mapping[str, Any], estimates: Mapping[str, Estimate], middle: float) -> Interval:
        """With a quantile among them: how far each measure's interval moves the result, as if they were independent."""
        down, up = 0.0, 0.0
        for name in self._used:
            moved = [self._value({**row, name: end}) for end in (estimates[name].low, estimates[name].high)]
            ends = [float(each) - middle for each in moved if isinstance(each, int | float)]
            if len(ends) < 2:
                return None
            down, up = down + min(0.0, *ends) ** 2, up + max(0.0, *ends) ** 2
        return middle - math.sqrt(down), middle + math.sqrt(up)


def _squared(expression: Expression) -> Expression | None:
    """What an expression is the square of; None if it is no square."""
    if isinstance(expression, Call) and expression.operator == "multiply":
        a, b = expression.arguments
        return a if same(a, b) else None
    return None


def _square(low: float, high: float) -> tuple[float, float]:
    """The squares of all numbers between two ends. To first order, a square does not move where it is 0."""
    ends = low * low, high * high
    return 0.0 if low <= 0 <= high else min(ends), max(ends)
