"""The price of a batch: its cost and the expected error of each table, before anything is paid and without data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from deniable.numbers import percent
from deniable.queries.plan.answer_notes import budget_notes, cost_in_words, rest_in_words, short, wrapped
from deniable.queries.plan.estimators import Counted, Summed
from deniable.queries.plan.noise_planner import grid_step, noise, pairs
from deniable.queries.plan.pricing import TYPICAL_ROWS, Price, measured_columns

if TYPE_CHECKING:
    from deniable.ledger import Budget, Cost
    from deniable.queries.answer.joint_tables import Made
    from deniable.queries.plan.noise_planner import NoisePlan


@final
@dataclass(frozen=True, slots=True)
class Quote:
    """One question of a batch: its size, the expected error of each cell, and its part of the cost."""

    name: str
    """Its keys, joined by ×; "total" without keys."""
    words: str
    """Its description in the ledger."""
    cells: int | None
    """The number of groups; None if keys are not public."""
    errors: dict[str, float | None]
    """The half-width of the noise interval of a cell, by column; None: it depends on the data."""
    deviations: dict[str, float | None]
    """The standard error of a cell, by column; None: it depends on the data."""
    cost: Cost
    """The charge for it."""
    is_together: bool
    """Whether it is measured jointly with other tables."""
    by_rows: tuple[str, ...] = ()
    """Columns whose error depends on the size of a group; it is stated for `TYPICAL_ROWS`."""

    @classmethod
    def alone(cls, price: Price, words: str, cost: Cost) -> Quote:
        """A question that is measured separately."""
        plan = price.plan
        made = noise(plan, price.budget, price.cost)
        spreads: dict[str, float | None] = {}
        halves = {pair.count: pair.half for pair in pairs(plan, price.budget)}
        for recipe, uses in zip(plan.recipes, plan.uses, strict=True):
            step = 2.0**recipe.statistic.exponent if isinstance(recipe, Summed) else 1.0
            if uses[-1] in halves:  # n = ((H·n + S) + (H·n - S)) / 2H, a sum of two independent draws
                step = 2**-0.5 / halves[uses[-1]]
            is_single = isinstance(recipe, Counted | Summed)
            spreads[recipe.name] = float(made.deviation(uses[-1])) * step if is_single else None
        columns = measured_columns(plan)
        deviations = {name: None if of is None else spreads[of] for name, of in columns.items()}
        named = {recipe.name: recipe for recipe in plan.recipes}
        errors = price.errors()
        by_rows = tuple(
            name for name, of in columns.items()
            if errors[name] is not None and (of is None or named[of].depends_on_rows)
        )  # fmt: skip
        return cls(_name(plan), words, _cells(plan), errors, deviations, cost, False, by_rows)

    @classmethod
    def together(
        cls, plan: NoisePlan, columns: Sequence[int], made: Made, words: str, cost: Cost, confidence: float
    ) -> Quote:
        """A question that is measured jointly with others."""
        step = grid_step(plan)
        error, deviation = made.error(columns, confidence) * step, made.deviation(columns) * step
        named = measured_columns(plan)
        return cls(
            _name(plan), words, _cells(plan),
            {name: None if of is None else error for name, of in named.items()},
            {name: None if of is None else deviation for name, of in named.items()},
            cost, True,
        )  # fmt: skip

    def to_dict(self, budget: Budget) -> dict[str, Any]:
        """The quote as a JSON-ready dict."""
        return {
            "name": self.name,
            "question": self.words,
            "cells": self.cells,
            "errors": self.errors,
            "errors_at_rows": dict.fromkeys(self.by_rows, TYPICAL_ROWS),
            "standard_errors": self.deviations,
            "cost": cost_in_words(self.cost, budget),
            "together": self.is_together,
        }


def _name(plan: NoisePlan) -> str:
    return " × ".join(key.name for key in plan.question.keys) or "total"


def _cells(plan: NoisePlan) -> int | None:
    return None if plan.collect.known is None else len(plan.collect.known)


@final
@dataclass(frozen=True, slots=True)
class Quoted:
    """The price of a batch: its total cost, and the expected error of each table. Computed without reading data."""

    budget: Budget
    cost: Cost
    left: Cost
    confidence: float
    tables: tuple[Quote, ...]
    """One for each question, in order."""
    split: tuple[tuple[str, float], ...]
    """The tables or residuals that are measured jointly, each with its share of their cost."""

    @property
    def fits(self) -> bool:
        """Whether the rest of the budget covers the cost."""
        return self.cost <= self.left

    def __len__(self) -> int:
        return len(self.tables)

    def __getitem__(self, place: int) -> Quote:
        return self.tables[place]

    def to_dict(self) -> dict[str, Any]:
        """The price as a JSON-ready dict."""
        return {
            "cost": cost_in_words(self.cost, self.budget),
            "fits": self.fits,
            "left": rest_in_words(self.left, self.budget),
            "confidence": self.confidence,
            "tables": [each.to_dict(self.budget) for each in self.tables],
            "split": [[name, share] for name, share in self.split],
        }

    def lines(self) -> list[str]:
        """The price as lines of text."""
        rows = [("table", "cells", "standard error", f"± at {percent(self.confidence)} %", "share")]
        for each in self.tables:
            share = each.cost.units / self.cost.units if self.cost.units else 0.0
            cells = "unlisted" if each.cells is None else f"{each.cells:,}"
            for place, (column, error) in enumerate(each.errors.items()):
                deviation = each.deviations[column]
                name = f"{each.name}: {column}"
                errors = (short(deviation), short(error))
                rows.append((name, cells if place == 0 else "", *errors, f"{share:.1%}" if place == 0 else ""))
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        table = [
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]
        more = [f"cost     {cost_in_words(self.cost, self.budget)}"]
        if self.split:
            more.append("measured " + "; ".join(f"{name} ({share:.1%})" for name, share in self.split))
        by_rows = dict.fromkeys(f"{each.name}: {column}" for each in self.tables for column in each.by_rows)
        if by_rows:
            more.append(f"note     ± of {', '.join(by_rows)} is for a group of {TYPICAL_ROWS:,} rows")
        more += [f"note     {note}" for note in budget_notes(self.budget)]
        more.append(f"left     {rest_in_words(self.left, self.budget)}{'' if self.fits else ': too little'}")
        return [*table, *wrapped(more, " " * 9)]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__
