"""How an answer looks, wherever it was made: cells with noise intervals, for people, notebooks and dataframes."""

from __future__ import annotations

import copy
import datetime as dt
import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final, Self

from deniable.errors import NOTHING, InvalidParameter, MissingExtra
from deniable.queries.notes import wrapped

if TYPE_CHECKING:
    from deniable.plots.spec import Figure

UNTOLD: Final = "–"
"""Stands for a measured number that is NULL: an average of what may be nobody, a quotient by 0."""

Cell = bool | int | float | str | dt.date | dt.datetime | None
Interval = tuple[float, float] | None


class Shown(ABC):
    """Rows of cells by column name, and a noise interval for each measured cell.

    The interval says how far noise may have moved the number from what the (bounded) data says: it holds the number
    without noise with probability `confidence`; where keys are not public, given that this key is shown. It says
    nothing about sampling, or about rows that were left out.
    """

    __slots__ = ("_cells", "_counts", "_intervals", "_measured", "_names", "adjusted", "confidence")

    def __init__(
        self,
        names: Sequence[str],
        cells: Sequence[Sequence[Cell]],
        intervals: Sequence[Sequence[Interval]],
        confidence: float,
        *,
        measured: frozenset[str],
        counts: frozenset[str],
    ) -> None:
        self._names, self.confidence = tuple(names), confidence
        self._cells = tuple(tuple(row) for row in cells)
        self._intervals = tuple(tuple(row) for row in intervals)
        self._measured, self._counts = measured, counts
        self.adjusted = ""
        """What was done to the numbers afterwards, in words; nothing, as they come."""

    @abstractmethod
    def _papers(self) -> str:
        """What was paid, in words."""

    @abstractmethod
    def _entry(self) -> int:
        """The entry of the ledger."""

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """What to know when reading it, a sentence each: from the question, the public schema and the cost alone."""

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

    def nonnegative(self) -> Self:
        """The same with counts below 0 raised to 0, as they are without noise; says so wherever it is shown.

        Costs nothing. Each count comes nearer to the truth; sums of many such counts become too large.
        """
        raised = [name in self._counts for name in self._names]
        other = copy.copy(self)
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

    # -- taking it elsewhere -------------------------------------------------------------------------------------------

    def _flat(self, *, intervals: bool) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for name, measured in zip(self._names, self._noisy, strict=True):
            found[name] = _alike(self[name])
            bounds = self.interval(name)
            if intervals and measured:  # whether there are any: which columns there are is no matter of noise
                found[f"{name}_low"] = _alike([None if each is None else each[0] for each in bounds])
                found[f"{name}_high"] = _alike([None if each is None else each[1] for each in bounds])
        return found

    def _untold(self, *, intervals: bool) -> list[str]:
        """The columns of ends of which none is told: numbers all the same."""
        measured = [name for name, noisy in zip(self._names, self._noisy, strict=True) if noisy and intervals]
        none = [name for name in measured if all(each is None for each in self.interval(name))]
        return [f"{name}_{end}" for name in none for end in ("low", "high")]

    def to_pandas(self, *, intervals: bool = False) -> Any:
        """As a pandas DataFrame; with `intervals`, columns NAME_low and NAME_high beside each measure.

        Whole numbers and truths among which some are missing stay what they are: Int64 and boolean, with <NA>.
        """
        pd = _library("pandas", None)
        columns, ends = self._flat(intervals=intervals), self._untold(intervals=intervals)
        return pd.DataFrame(
            {
                name: pd.Series(cells, dtype="float64" if name in ends else _nullable(cells))
                for name, cells in columns.items()
            }
        )

    def to_polars(self, *, intervals: bool = False) -> Any:
        """As a polars DataFrame."""
        polars, ends = _library("polars", None), self._untold(intervals=intervals)
        return polars.DataFrame(self._flat(intervals=intervals), schema_overrides=dict.fromkeys(ends, polars.Float64))

    def to_arrow(self, *, intervals: bool = False) -> Any:
        """As an Arrow table."""
        arrow, ends = _library("pyarrow", "sql"), self._untold(intervals=intervals)
        columns = self._flat(intervals=intervals)
        real = arrow.float64()
        return arrow.table({name: arrow.array(c, type=real if name in ends else None) for name, c in columns.items()})

    # -- looking at it -------------------------------------------------------------------------------------------------

    @property
    def _noisy(self) -> tuple[bool, ...]:
        """For each column, whether it was computed from noisy numbers; else it shows keys."""
        return tuple(name in self._measured for name in self._names)

    def _texts(self) -> list[list[str]]:
        """All cells for people."""
        return [
            [
                spoken(cell, around) if noisy else key_said(cell)
                for cell, around, noisy in zip(row, intervals, self._noisy, strict=True)
            ]
            for row, intervals in zip(self._cells, self._intervals, strict=True)
        ]

    def _caption(self) -> list[str]:
        untold = any(cell is None for row in self._cells for cell, noisy in zip(row, self._noisy, strict=True) if noisy)
        told = any(each is not None for row in self._intervals for each in row)
        said = [
            f"± is the noise interval at {100 * self.confidence:g} %" if told else "",
            f"{UNTOLD} is a number that cannot be told" if untold else "",
            self.adjusted,
            *self.notes,
            self._papers(),
        ]
        return [each for each in said if each]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self._cells)} rows of {', '.join(self._names)}; entry {self._entry()}>"

    def __str__(self) -> str:
        table = [list(self._names), *self._texts()]
        widths = [max(len(row[j]) for row in table) for j in range(len(self._names))]
        lines = [
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, self._noisy, strict=True)
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
        for name, right in zip(self._names, self._noisy, strict=True):
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
            raise InvalidParameter("column", column, "this answer has no measured column with an interval to draw")
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


def _library(name: str, extra: str | None) -> Any:
    """A library that answers are taken to; `extra` is the one of ours that brings it, if any does."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtra(name, extra) from None


def _alike(cells: Sequence[Cell]) -> list[Any]:
    """One column: whole numbers among floats are floats too."""
    if any(isinstance(cell, float) for cell in cells):
        return [float(cell) if isinstance(cell, int) else cell for cell in cells]
    return list(cells)


def _nullable(cells: Sequence[Cell]) -> str | None:
    """The dtype of pandas that keeps what is there beside what is missing; None: as pandas finds it."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if None not in cells or len(kinds) != 1:
        return None
    return {int: "Int64", bool: "boolean"}.get(kinds.pop())


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
