"""Answers: a small table of noisy numbers, each with its noise interval, and the papers that belong to it."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, Final, final

from deniable.errors import NOTHING, InvalidParameter, MissingExtra
from deniable.queries.intervals import Estimate, reach
from deniable.queries.notes import cost_said, empty_note, rest_said, rows_note, threshold_note, wrapped
from deniable.queries.recipes import Counted
from deniable.tables.expressions import Column, Expression, columns_used
from deniable.tables.operators import typed
from deniable.units import Guarantee

if TYPE_CHECKING:
    from deniable.ledger import Budget, Cost
    from deniable.plots.spec import Figure
    from deniable.queries.planner import Plan
    from deniable.queries.recipes import Drawn
    from deniable.queries.release import Released
    from deniable.tables.kinds import Domain

UNTOLD: Final = "–"
"""Stands for a measured number that is NULL: an average of what may be nobody, a quotient by 0."""

Cell = bool | int | float | str | dt.date | dt.datetime | None


@final
@dataclass(frozen=True, slots=True)
class Receipt:
    """What was paid: the entry of the ledger, the cost, and what is left after it. A replay costs nothing."""

    entry: int
    question: str
    cost: Cost
    rest: Cost
    budget: Budget
    replayed: bool
    time: str
    """When it was answered, by the ledger's clock: a replay tells the table as it was then."""

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
        return f"entry {self.entry}: paid {self.paid}; left {self.left}"


@final
class Answer:
    """The noisy answer to a question: rows of cells by column name, and a noise interval for each measured cell.

    The interval says how far noise may have moved the number from what the (bounded) data says: it holds the number
    without noise with probability `confidence`. It says nothing about sampling, or about rows that were left out.
    """

    __slots__ = (
        "_budget",
        "_cells",
        "_intervals",
        "_names",
        "_plan",
        "_released",
        "adjusted",
        "confidence",
        "guarantee",
        "receipt",
    )

    def __init__(
        self, plan: Plan, released: Released, budget: Budget, guarantee: Guarantee, receipt: Receipt, confidence: float
    ) -> None:
        self._plan, self._released, self._budget = plan, released, budget
        self.guarantee, self.receipt, self.confidence = guarantee, receipt, confidence
        self._names = plan.question.names
        self._cells, self._intervals = _shown(plan, released, budget, confidence)
        self.adjusted = ""
        """What was done to the numbers afterwards, in words; nothing, as they come."""

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

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self._names

    @property
    def rows(self) -> tuple[tuple[Cell, ...], ...]:
        """All cells, row by row."""
        return self._cells

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[dict[str, Cell]]:
        return (dict(zip(self._names, row, strict=True)) for row in self._cells)

    def __getitem__(self, column: str) -> tuple[Cell, ...]:
        """One column."""
        return tuple(row[self._place(column)] for row in self._cells)

    def interval(self, column: str) -> tuple[tuple[float, float] | None, ...]:
        """The noise interval of each cell of a column; None for keys and for what cannot be said."""
        place = self._place(column)
        return tuple(row[place] for row in self._intervals)

    @property
    def value(self) -> Cell:
        """The one number of an answer of one row and one column."""
        if len(self._cells) != 1 or len(self._names) != 1:
            raise InvalidParameter(
                "value",
                f"{len(self._cells)} × {len(self._names)}",
                "is for answers of one cell",
                "read rows or a column",
            )
        return self._cells[0][0]

    def _place(self, column: str) -> int:
        if column not in self._names:
            raise InvalidParameter("column", column, f"must be one of {', '.join(self._names)}")
        return self._names.index(column)

    def nonnegative(self) -> Answer:
        """The same with counts below 0 raised to 0, as they are without noise; says so wherever it is shown.

        Costs nothing. Each count comes nearer to the truth; sums of many such counts become too large.
        """
        counts = {recipe.name for recipe in self._plan.recipes if isinstance(recipe, Counted)}
        raised = [
            isinstance(expression, Column) and expression.name in counts
            for _, expression in self._plan.question.post.columns
        ]
        other = Answer(
            self._plan, self._released, self._budget, self.guarantee, self.receipt, self.confidence
        )  # fmt: skip
        other._cells = tuple(
            tuple(
                max(cell, 0) if up and isinstance(cell, int | float) else cell
                for cell, up in zip(row, raised, strict=True)
            )
            for row in self._cells
        )
        other._intervals = tuple(
            tuple(
                (max(i[0], 0), max(i[1], 0)) if up and i is not None else i for i, up in zip(row, raised, strict=True)
            )
            for row in self._intervals
        )
        other.adjusted = "counts below 0 were raised to 0"
        return other

    def adding_up_to(self, total: Answer) -> Answer:
        """The same with its counts or sums moved such that they add up to a coarser answer; says so where it is shown.

        `total` asks for the same measure of the same rows, by fewer of the keys. Costs nothing. Asked for together in a
        batch, where the total is merged from both answers, this is the least-squares fit to both.
        """
        from deniable.queries.batch import added_up

        if not isinstance(total, Answer) or total.budget != self._budget:
            raise InvalidParameter("total", type(total).__name__, "must be an answer under the same budget")
        moved = added_up(total.plan, self._plan, total.released, self._released, self._budget)
        if moved is None:
            raise InvalidParameter(
                "total", NOTHING, "must ask for the same count or sum of the same rows, by fewer public keys",
                "SELECT ward, COUNT(*) … GROUP BY ward is a total of … GROUP BY ward, sex",
            )  # fmt: skip
        promise = Guarantee(self._budget.curve(moved.cost), self.guarantee.unit, assumptions=self.guarantee.assumptions)
        other = Answer(self._plan, moved, self._budget, promise, self.receipt, self.confidence)
        other.adjusted = f"moved to add up to the totals of entry {total.receipt.entry}"
        return other

    # -- taking it elsewhere -------------------------------------------------------------------------------------------

    def _flat(self, *, intervals: bool) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for name in self._names:
            found[name] = list(self[name])
            bounds = self.interval(name)
            if intervals and any(each is not None for each in bounds):
                found[f"{name}_low"] = [None if each is None else each[0] for each in bounds]
                found[f"{name}_high"] = [None if each is None else each[1] for each in bounds]
        return found

    def to_pandas(self, *, intervals: bool = False) -> Any:
        """As a pandas DataFrame; with `intervals`, columns NAME_low and NAME_high beside each measure."""
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtra("pandas", "sql") from None
        return pd.DataFrame(self._flat(intervals=intervals))

    def to_polars(self, *, intervals: bool = False) -> Any:
        """As a polars DataFrame."""
        try:
            import polars as pl
        except ImportError:
            raise MissingExtra("polars", "sql") from None
        return pl.DataFrame(self._flat(intervals=intervals))

    def to_arrow(self, *, intervals: bool = False) -> Any:
        """As an Arrow table."""
        try:
            import pyarrow as pa
        except ImportError:
            raise MissingExtra("pyarrow", "sql") from None
        return pa.table(self._flat(intervals=intervals))

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values: the table, the intervals, and where they come from (provenance)."""
        plan = self._plan
        return {
            "columns": list(self._names),
            "rows": [[_portable(cell) for cell in row] for row in self._cells],
            "intervals": [[None if each is None else list(each) for each in row] for row in self._intervals],
            "confidence": self.confidence,
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

    # -- looking at it -------------------------------------------------------------------------------------------------

    @property
    def _measured(self) -> tuple[bool, ...]:
        """For each column, whether it was computed from noisy numbers; else it shows keys."""
        measures = {measure.name for measure in self._plan.question.measures}
        return tuple(bool(measures & set(columns_used(each))) for _, each in self._plan.question.post.columns)

    def _texts(self) -> list[list[str]]:
        """All cells for people."""
        noisy = self._measured
        return [
            [
                spoken(cell, around) if measured else key_said(cell)
                for cell, around, measured in zip(row, intervals, noisy, strict=True)
            ]
            for row, intervals in zip(self._cells, self._intervals, strict=True)
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know when reading it, a sentence each: from the question, the public schema and the cost alone."""
        plan = self._plan
        said = [empty_note(plan), threshold_note(plan, self._released.threshold), rows_note(plan)]
        return tuple(each for each in said if each)

    def _caption(self) -> list[str]:
        untold = any(
            cell is None for row in self._cells for cell, noisy in zip(row, self._measured, strict=True) if noisy
        )
        said = [
            f"± is the noise interval at {100 * self.confidence:g} %",
            f"{UNTOLD} is a number that cannot be told" if untold else "",
            self.adjusted,
            *self.notes,
            str(self.receipt),
        ]
        return [each for each in said if each]

    def __repr__(self) -> str:
        return f"<Answer: {len(self._cells)} rows of {', '.join(self._names)}; entry {self.receipt.entry}>"

    def __str__(self) -> str:
        table = [list(self._names), *self._texts()]
        widths = [max(len(row[j]) for row in table) for j in range(len(self._names))]
        lines = [
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, self._measured, strict=True)
            ).rstrip()
            for row in table
        ]
        lines.insert(1, "  ".join("─" * width for width in widths))
        return "\n".join([*lines, *wrapped(self._caption())])

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table()
        for name, right in zip(self._names, self._measured, strict=True):
            table.add_column(name, justify="right" if right else "left")
        for row in self._texts():
            table.add_row(*(Text(cell) for cell in row))
        return Group(table, Text("\n".join(self._caption()), "dim"))

    def _repr_html_(self) -> str:
        heads = "".join(f"<th>{escape(name)}</th>" for name in self._names)
        rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self._texts())
        caption = f"<caption>{'<br>'.join(escape(each) for each in self._caption())}</caption>"
        return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"

    def plot(self, column: str | None = None) -> Figure:
        """A measure as points with noise intervals, one for each row: `answer.plot("n").save("n.png")`."""
        from deniable.plots.figures import intervals as drawn

        if not self._cells:
            raise InvalidParameter("answer", NOTHING, "has no rows to draw", "; ".join(self.notes))
        measured = [name for name in self._names if any(each is not None for each in self.interval(name))]
        if not measured:
            raise InvalidParameter("column", column, "this answer has no measured column to draw")
        chosen = measured[0] if column is None else column
        self._place(chosen)
        others = [name for name in self._names if name not in measured]
        points = []
        for i, (value, bounds) in enumerate(zip(self[chosen], self.interval(chosen), strict=True)):
            if isinstance(value, int | float) and bounds is not None:
                name = " · ".join(key_said(self[other][i]) for other in others) or chosen
                points.append((name, float(value), *bounds))
        title = f"{chosen} with noise intervals at {100 * self.confidence:g} %"
        left_out = len(self._cells) - len(points)
        if not points:
            raise InvalidParameter("column", chosen, "has no number that can be drawn", f"draw {', '.join(measured)}")
        rows = "1 row is" if left_out == 1 else f"{left_out} rows are"
        note = f"{rows} not drawn, because the number cannot be told." if left_out else ""
        return drawn(points, label=chosen, by=", ".join(others), title=title, note=note)


def key_said(cell: Cell) -> str:
    """A key for people: NULL by its name, and in one line whatever is in it."""
    if cell is None:
        return "NULL"
    said = str(cell) if isinstance(cell, int) else spoken(cell, None)  # years have no thousands
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in said)


def spoken(cell: Cell, interval: tuple[float, float] | None) -> str:
    """A cell for people: as many digits as the noise leaves, and the noise after ±."""
    if cell is None:
        return UNTOLD
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return str(cell)
    if interval is None:
        return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.6g}"
    low, high = interval
    half = max(high - cell, cell - low)
    digits = 0 if half == 0 else max(0, 1 - math.floor(math.log10(half)))
    digits = 0 if isinstance(cell, int) else min(digits, 12)
    shown = f"{cell:,.{digits}f}"
    if math.isclose(high - cell, cell - low, rel_tol=0.05, abs_tol=1e-12):
        return f"{shown} ± {half:,.{digits}f}"
    return f"{shown} ({low:,.{digits}f} … {high:,.{digits}f})"


def _portable(cell: Cell) -> Any:
    return cell.isoformat() if isinstance(cell, dt.date | dt.datetime) else cell


# -- from noisy statistics to cells ----------------------------------------------------------------------------------

Interval = tuple[float, float] | None


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

    __slots__ = ("_confidence", "_expression", "_parts", "_plan", "_used", "_value")

    def __init__(self, plan: Plan, expression: Expression, domains: Mapping[str, Domain], confidence: float) -> None:
        self._plan, self._expression, self._confidence = plan, expression, confidence
        names = {recipe.name: uses for recipe, uses in zip(plan.recipes, plan.uses, strict=True)}
        self._used = [name for name in dict.fromkeys(columns_used(expression)) if name in names]
        self._parts = sorted({part for name in self._used for part in names[name]})
        self._value = typed(expression, domains).value

    def around(self, row: Mapping[str, Any], estimates: Mapping[str, Estimate], drawn: Sequence[Drawn]) -> Interval:
        if not self._used:
            return None
        if isinstance(self._expression, Column):
            one = estimates[self._expression.name]
            return None if one.low is None or one.high is None else (one.low, one.high)
        middle = self._value(row)
        if isinstance(middle, bool) or not isinstance(middle, int | float):
            return None
        if any(self._plan.parts[part].is_running for part in self._parts):
            return self._by_measures(row, estimates, float(middle))
        return self._by_parts(row, drawn, float(middle))

    def _by_parts(self, row: Mapping[str, Any], drawn: Sequence[Drawn], middle: float) -> Interval:
        """How far each noisy statistic moves the result, to first order: measures that share one move together."""
        moves = []
        for part in self._parts:
            one = drawn[part]
            ends = []
            for sign in (-1, 1):
                numbers = [*drawn]
                numbers[part] = replace(one, values=one.values + sign * one.deviations)
                moved = _estimates(self._plan, numbers, self._confidence)
                ends.append(self._value({**row, **{name: moved[name].value for name in self._used}}))
            low, high = ends
            if not isinstance(low, int | float) or not isinstance(high, int | float):
                return None
            moves.append(abs(float(high) - float(low)) / 2)
        half = reach(drawn[self._parts[0]].shape, moves, self._confidence)
        return middle - half, middle + half

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
