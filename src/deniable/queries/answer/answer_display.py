"""Display of answers, local or remote: cells with noise intervals for terminals, notebooks and dataframes."""

from __future__ import annotations

import copy
import datetime as dt
import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from deniable import arguments
from deniable.arguments import NumberRange
from deniable.errors import NOTHING, InvalidParameter, MissingExtra
from deniable.numbers import percent, plain
from deniable.queries.plan.answer_notes import wrapped

if TYPE_CHECKING:
    from deniable.plots.figure_spec import Figure

NO_VALUE: Final = "–"
"""Printed for a noisy number that is NULL: the average of a group that may be empty, a quotient by 0."""

ROUNDING_BASE: Final = NumberRange("must be a whole number from 1 to 10⁹", least=1, most=10**9)

Cell = bool | int | float | str | dt.date | dt.datetime | None
Interval = tuple[float, float] | None


class Shown(ABC):
    """Rows of cells by column name, and a noise interval for each noisy cell.

    An interval covers the number that the (bounded) data gives without noise, with probability `confidence`. If keys
    are not public, the probability is conditional on the key being published. It does not cover the error of sampling,
    or of rows that were left out.
    """

    __slots__ = (
        "_cells",
        "_counts",
        "_intervals",
        "_measured",
        "_names",
        "_suppressed",
        "_touched",
        "adjustments",
        "confidence",
    )

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
        self.adjustments: tuple[str, ...] = ()
        """Descriptions of the changes made to the released numbers, in order."""
        self._suppressed = False
        self._touched = False
        """Whether numbers were changed one by one or suppressed; then they cannot be fitted."""

    @abstractmethod
    def _papers(self) -> str:
        """The receipt as text."""

    @abstractmethod
    def _entry(self) -> int:
        """The number of the charge in the ledger."""

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """What a reader should know, one sentence each, from public facts and the noisy numbers."""

    @property
    def adjusted(self) -> str:
        """The adjustments as one line; "" if there are none."""
        return "; then ".join(self.adjustments)

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self._names

    @property
    def measured(self) -> frozenset[str]:
        """The names of the noisy columns."""
        return self._measured

    @property
    def counted(self) -> frozenset[str]:
        """The names of the columns that are counts."""
        return self._counts

    @property
    def rows(self) -> tuple[tuple[Cell, ...], ...]:
        """All cells by row."""
        return self._cells

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[dict[str, Cell]]:
        return (dict(zip(self._names, row, strict=True)) for row in self._cells)

    def __getitem__(self, column: str) -> tuple[Cell, ...]:
        """The cells of a column; `InvalidParameter` for an unknown name."""
        return tuple(row[self._place(column)] for row in self._cells)

    def interval(self, column: str) -> tuple[tuple[float, float] | None, ...]:
        """The noise interval (low, high) of each cell of a column; None for keys and numbers without an interval."""
        place = self._place(column)
        return tuple(row[place] for row in self._intervals)

    @property
    def value(self) -> Cell:
        """The only cell of an answer with one row and one column; otherwise raises `InvalidParameter`."""
        if len(self._cells) != 1 or len(self._names) != 1:
            raise InvalidParameter(
                "value",
                f"{len(self._cells)} × {len(self._names)}",
                "needs an answer with one row and one column",
                "read `rows`, or a column by its name",
            )
        return self._cells[0][0]

    def _place(self, column: str) -> int:
        if column not in self._names:
            raise InvalidParameter("column", column, f"must be one of {', '.join(self._names)}")
        return self._names.index(column)

    def nonnegative(self) -> Self:
        """A copy with counts below 0 raised to 0. Free; the copy mentions it wherever it is displayed.

        Each count comes closer to the truth, but sums of many such counts become too large.
        """
        return self._changed(lambda count: max(count, 0), "counts below 0 were raised to 0", least=0.0)

    def rounded(self, *, base: int = 1) -> Self:
        """A copy with each count rounded to a multiple of `base` (1 to 10^9), independently of the others. Free."""
        base = arguments.python_int("base", plain(base), ROUNDING_BASE)
        to = "whole numbers" if base == 1 else f"multiples of {base}"
        return self._changed(lambda count: base * round(count / base), f"each count was rounded to {to} by itself")

    def suppressed(self, *, below: int | float) -> Self:
        """A copy that hides counts below a number, with their intervals. Free.

        This helps readers, who should not rely on counts that are mostly noise. It adds no privacy, because the counts
        were noisy before; a hidden count may follow from a total and the counts beside it.

        Noise can lift a small count above the number b, and then the count is displayed because it is wrong. So an
        interval that reaches below b starts at 0, which keeps the coverage of displayed counts. For a true count t
        below b and a half-width h, an interval misses if the noise exceeds h + b - t, given that it is at least b - t.
        That has at most twice the 2.5 % probability of exceeding h, because the tail of the noise is not heavier than
        exponential. A true count above b is displayed at least half of the time.
        """
        below = plain(below)  # stays an int if it is one: it is displayed
        arguments.python_float("below", below, NumberRange("must be a number above 0", above=0, below=math.inf))

        def is_small(cell: Cell, name: str) -> bool:
            return name in self._counts and isinstance(cell, int | float) and cell < below

        other = copy.copy(self)
        small = [[is_small(cell, name) for cell, name in zip(row, self._names, strict=True)] for row in self._cells]
        other._cells, other._intervals = (
            tuple(tuple(None if out else cell for cell, out in zip(*each, strict=True)) for each in pairs)
            for pairs in (zip(self._cells, small, strict=True), zip(self._intervals, small, strict=True))
        )
        other._intervals = tuple(
            tuple(
                (min(each[0], 0), each[1]) if each is not None and name in self._counts and each[0] <= below else each
                for each, name in zip(row, self._names, strict=True)
            )
            for row in other._intervals
        )
        other._suppressed = other._touched = True
        words = (
            f"counts below {below:,} are not shown ({NO_VALUE}), and intervals that reach below {below:,} begin at 0"
        )
        other.adjustments = (*self.adjustments, words)
        return other

    def _changed(self, change: Callable[[float], float], words: str, least: float = -math.inf) -> Self:
        """A copy with each count changed by itself, and intervals extended to contain the new counts."""
        counts = [name in self._counts for name in self._names]
        cells, intervals = [], []
        for row, around in zip(self._cells, self._intervals, strict=True):
            new = [
                change(cell) if one and isinstance(cell, int | float) else cell
                for cell, one in zip(row, counts, strict=True)
            ]
            cells.append(tuple(new))
            intervals.append(
                tuple(
                    interval_of_changed(each, cell, least=least)
                    if one and each is not None and isinstance(cell, int | float)
                    else each
                    for each, cell, one in zip(around, new, counts, strict=True)
                )
            )
        other = copy.copy(self)
        other._cells, other._intervals = tuple(cells), tuple(intervals)
        other._touched, other.adjustments = True, (*self.adjustments, words)
        return other

    # -- taking it elsewhere -------------------------------------------------------------------------------------------

    def _flat(self, *, intervals: bool) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for name, measured in zip(self._names, self._noisy, strict=True):
            found[name] = _alike(self[name])
            bounds = self.interval(name)
            if intervals and measured:  # also if all are None, so that the columns do not depend on noise
                found[f"{name}_low"] = _alike([None if each is None else each[0] for each in bounds])
                found[f"{name}_high"] = _alike([None if each is None else each[1] for each in bounds])
        return found

    def _missing_ends(self, *, intervals: bool) -> list[str]:
        """The columns of interval ends that are all missing, which must still be typed as numbers."""
        measured = [name for name, noisy in zip(self._names, self._noisy, strict=True) if noisy and intervals]
        missing = [name for name in measured if all(each is None for each in self.interval(name))]
        return [f"{name}_{end}" for name in missing for end in ("low", "high")]

    def to_pandas(self, *, intervals: bool = False) -> Any:
        """A pandas DataFrame; with `intervals`, columns NAME_low and NAME_high beside each noisy column.

        Integers and booleans with missing values keep their type (Int64 and boolean, with <NA>). Raises `MissingExtra`
        without pandas.
        """
        pd = library("pandas", None)
        columns, ends = self._flat(intervals=intervals), self._missing_ends(intervals=intervals)
        return pd.DataFrame(
            {
                name: pd.Series(cells, dtype="float64" if name in ends else nullable(cells))
                for name, cells in columns.items()
            }
        )

    def to_polars(self, *, intervals: bool = False) -> Any:
        """A polars DataFrame, with columns as in `to_pandas`."""
        polars, ends = library("polars", None), self._missing_ends(intervals=intervals)
        return polars.DataFrame(self._flat(intervals=intervals), schema_overrides=dict.fromkeys(ends, polars.Float64))

    def to_arrow(self, *, intervals: bool = False) -> Any:
        """An Arrow table, with columns as in `to_pandas`."""
        arrow, ends = library("pyarrow", "sql"), self._missing_ends(intervals=intervals)
        columns = self._flat(intervals=intervals)
        real = arrow.float64()
        return arrow.table({name: arrow.array(c, type=real if name in ends else None) for name, c in columns.items()})

    def to_csv(self, path: str | Path | None = None) -> str:
        """CSV (RFC 4180, UTF-8) with columns NAME_low and NAME_high beside each noisy one; written to `path` if given.

        With a path, PATH-metadata.json is written too; it describes the columns and has the notes (W3C, CSV on the
        Web).
        """
        from deniable.queries.answer import answer_files

        one = answer_files.sheet(self, None)
        text = answer_files.saved(answer_files.as_csv(one), path)
        if path is not None:
            answer_files.saved(answer_files.about_csv(one, Path(path).name), f"{path}-metadata.json")
        return text

    def to_excel_csv(self, path: str | Path | None = None, *, title: str | None = None, separator: str = ",") -> str:
        """CSV for a spreadsheet: with a byte-order mark, formulas disarmed, and the notes below the table.

        `separator` is a comma, a semicolon or a tab. Written to `path` if given.
        """
        from deniable.queries.answer import answer_files

        return answer_files.saved(answer_files.as_excel_csv(answer_files.sheet(self, title), separator=separator), path)

    def to_parquet(self, path: str | Path) -> None:
        """Write a Parquet file with the notes in its metadata."""
        from deniable.queries.answer import answer_files

        answer_files.to_parquet(answer_files.sheet(self, None), path)

    def to_latex(self, path: str | Path | None = None, *, title: str | None = None, label: str = "") -> str:
        """A LaTeX table with a caption, a column for each interval, and the notes below; written to `path` if given."""
        from deniable.queries.answer import answer_files

        return answer_files.saved(answer_files.as_latex(answer_files.sheet(self, title), label=label), path)

    def to_html(self, path: str | Path | None = None, *, title: str | None = None) -> str:
        """An HTML page with a caption, a column for each interval, and the notes below; written to `path` if given."""
        from deniable.queries.answer import answer_files

        one = answer_files.sheet(self, title)
        return answer_files.saved(answer_files.as_html([one], title=one.title), path)

    # -- looking at it -------------------------------------------------------------------------------------------------

    @property
    def _noisy(self) -> tuple[bool, ...]:
        """For each column, whether it is computed from noisy numbers (and not from keys)."""
        return tuple(name in self._measured for name in self._names)

    def _texts(self) -> list[list[str]]:
        """All cells as text."""
        return [
            [
                cell_text(cell, around) if noisy else key_text(cell)
                for cell, around, noisy in zip(row, intervals, self._noisy, strict=True)
            ]
            for row, intervals in zip(self._cells, self._intervals, strict=True)
        ]

    def _caption(self) -> list[str]:
        return [*self._remarks(), self._papers()]

    def _remarks(self) -> list[str]:
        """The lines below the numbers, without the receipt."""
        has_missing = any(
            cell is None for row in self._cells for cell, noisy in zip(row, self._noisy, strict=True) if noisy
        )
        has_intervals = any(each is not None for row in self._intervals for each in row)
        remarks = [
            f"± is the noise interval at {percent(self.confidence)} %" if has_intervals else "",
            f"{NO_VALUE} means no value (for example the mean of an empty group)"
            if has_missing and not self._suppressed
            else "",
            self.adjusted,
            *self.notes,
        ]
        return [each for each in remarks if each]

    def __repr__(self) -> str:
        rows = "1 row" if len(self._cells) == 1 else f"{len(self._cells)} rows"
        return f"<{type(self).__name__}: {rows} of {', '.join(self._names)}; entry {self._entry()}>"

    def __str__(self) -> str:
        return "\n".join([*self._lines(), *wrapped(self._caption())])

    def _lines(self) -> list[str]:
        return laid_out(self._names, self._texts(), self._noisy)

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
        """A figure of a noisy column, one point with its noise interval for each row.

        Example: `answer.plot("n").save("n.png")`. By default the first column with intervals. Raises
        `InvalidParameter` if there is nothing to draw.
        """
        from deniable.plots.curve_figures import intervals as drawn

        if not self._cells:
            raise InvalidParameter("answer", NOTHING, "has no rows to draw", "; ".join(self.notes))
        measured = [name for name in self._names if any(each is not None for each in self.interval(name))]
        if not measured:
            raise InvalidParameter("column", column, "cannot be drawn: no column of this answer has intervals")
        chosen = measured[0] if column is None else column
        self._place(chosen)
        others = [name for name in self._names if name not in measured]
        points = []
        for i, (value, bounds) in enumerate(zip(self[chosen], self.interval(chosen), strict=True)):
            if isinstance(value, int | float) and bounds is not None:
                name = " · ".join(key_text(self[other][i]) for other in others) or chosen
                points.append((name, float(value), *bounds))
        title = f"{chosen} with noise intervals at {percent(self.confidence)} %"
        left_out = len(self._cells) - len(points)
        if not points:
            raise InvalidParameter(
                "column", chosen, "has no number with an interval to draw", f"draw {', '.join(measured)}"
            )
        rows = "1 row is" if left_out == 1 else f"{left_out} rows are"
        note = f"{rows} not drawn, for lack of a value or an interval." if left_out else ""
        return drawn(points, label=chosen, by=", ".join(others), title=title, note=note)


def interval_of_changed(
    interval: tuple[float, float], number: float, *, least: float = -math.inf, whole: bool = False
) -> tuple[float, float]:
    """The interval of a changed number: cut to the range of possible true numbers, and extended to contain the number.

    >>> interval_of_changed((-3.2, 4.7), 5, least=0, whole=True)
    (0, 5)
    """
    low, high = (max(each, least) for each in interval)
    if whole:
        low, high = math.ceil(low - _TOLERANCE), math.floor(high + _TOLERANCE)
    return min(low, number), max(high, number)


_TOLERANCE: Final = 1e-9
"""Tolerance for the rounding error of an integer end."""


def laid_out(names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """A table as lines of text: names, a rule, rows. `right` says which columns are right-aligned."""
    table = [list(names), *rows]
    widths = [max(len(row[j]) for row in table) for j in range(len(names))]
    lines = [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in table
    ]
    lines.insert(1, "  ".join("─" * width for width in widths))
    return lines


def library(name: str, extra: str | None) -> Any:
    """Import an optional library; `MissingExtra` without it. `extra` is our extra that installs it, if there is one."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtra(name, extra) from None


def _alike(cells: Sequence[Cell]) -> list[Any]:
    """The cells of a column, with integers turned into floats if there are floats among them."""
    if any(isinstance(cell, float) for cell in cells):
        return [float(cell) if isinstance(cell, int) else cell for cell in cells]
    return list(cells)


def nullable(cells: Sequence[Cell]) -> str | None:
    """The nullable pandas dtype for a column with missing values; None: let pandas infer it."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if None not in cells or len(kinds) != 1:
        return None
    return {int: "Int64", bool: "boolean"}.get(kinds.pop())


def key_text(cell: Cell) -> str:
    """A key as text in one line; None is "NULL"."""
    if cell is None:
        return "NULL"
    text = str(cell) if isinstance(cell, int) else cell_text(cell, None)  # no thousands separators: it may be a year
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def cell_text(cell: Cell, interval: tuple[float, float] | None) -> str:
    """A noisy cell as text, with as many digits as the noise justifies, and the half-width after ±.

    An asymmetric interval is printed as (low … high).
    """
    if cell is None:
        return NO_VALUE
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


def portable(cell: Cell) -> Any:
    """A cell as a JSON value."""
    return cell.isoformat() if isinstance(cell, dt.date | dt.datetime) else cell
