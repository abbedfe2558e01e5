"""How an answer looks, wherever it was made: cells with noise intervals, for people, notebooks and dataframes."""

from __future__ import annotations

import copy
import datetime as dt
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Self

from deniable.errors import InvalidParameter, MissingExtra

if TYPE_CHECKING:
    from deniable.plots.spec import Figure

Cell = bool | int | float | str | dt.date | dt.datetime | None
Interval = tuple[float, float] | None


class Shown(ABC):
    """Rows of cells by column name, and a noise interval for each measured cell.

    The interval says how far noise may have moved the number from what the (bounded) data says: it holds the number
    without noise with probability `confidence`. It says nothing about sampling, or about rows that were left out.
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

    # -- looking at it -------------------------------------------------------------------------------------------------

    def _said(self, row: int, column: int) -> str:
        return spoken(self._cells[row][column], self._intervals[row][column])

    def _caption(self) -> str:
        said = [f"± is the noise interval at {100 * self.confidence:g} %", self.adjusted, self._papers()]
        return "; ".join(each for each in said if each)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self._cells)} rows of {', '.join(self._names)}; entry {self._entry()}>"

    def __str__(self) -> str:
        table = [list(self._names), *([self._said(i, j) for j in range(len(self._names))] for i in range(len(self)))]
        widths = [max(len(row[j]) for row in table) for j in range(len(self._names))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        ]
        lines.insert(1, "  ".join("─" * width for width in widths))
        return "\n".join([*lines, self._caption()])

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table()
        for name in self._names:
            table.add_column(name, justify="right" if name in self._measured else "left")
        for i in range(len(self)):
            table.add_row(*(Text(self._said(i, j)) for j in range(len(self._names))))
        return Group(table, Text(self._caption(), "dim"))

    def _repr_html_(self) -> str:
        heads = "".join(f"<th>{escape(name)}</th>" for name in self._names)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(self._said(i, j))}</td>" for j in range(len(self._names))) + "</tr>"
            for i in range(len(self))
        )
        caption = f"<caption>{escape(self._caption())}</caption>"
        return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"

    def plot(self, column: str | None = None) -> Figure:
        """A measure as points with noise intervals, one for each row (`plots.render` draws it)."""
        from deniable.plots.figures import intervals as drawn

        measured = [name for name in self._names if any(each is not None for each in self.interval(name))]
        if not measured:
            raise InvalidParameter("column", column, "this answer has no measured column to draw")
        chosen = measured[0] if column is None else column
        self._place(chosen)
        others = [name for name in self._names if name not in measured]
        points = []
        for i, (value, bounds) in enumerate(zip(self[chosen], self.interval(chosen), strict=True)):
            if isinstance(value, int | float) and bounds is not None:
                name = " · ".join(spoken(self[other][i], None) for other in others) or chosen
                points.append((name, float(value), *bounds))
        title = f"{chosen} with noise intervals at {100 * self.confidence:g} %"
        return drawn(points, label=chosen, by=", ".join(others), title=title)


def spoken(cell: Cell, interval: tuple[float, float] | None) -> str:
    """A cell for people: as many digits as the noise leaves, and the noise after ±."""
    if cell is None:
        return "–"
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
