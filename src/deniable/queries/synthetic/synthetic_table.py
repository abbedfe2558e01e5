"""Synthetic tables: rows, tables and answers from a fitted distribution, with their expected error.

All of it is computed from released noisy counts. No data is read and nothing is spent, so numpy's random generator is
sufficient.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable.errors import NOTHING, InvalidParameter, type_of
from deniable.queries.answer.answer_display import NO_VALUE, key_text, laid_out, library, nullable
from deniable.queries.answer.answer_files import in_folder
from deniable.queries.plan.answer_notes import wrapped
from deniable.queries.plan.refusals import choices
from deniable.queries.synthetic.synthesis_request import MOST_ROWS, row_count
from deniable.synth import Doubt, Marginal, Mixture, draw, fit, raked
from deniable.synth.marginals import total, total_deviation
from deniable.synth.mixture import FITS, MOST_WORK
from deniable.tables.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from deniable.ledger import Budget
    from deniable.queries.answer.joint_entry import MeasuredTogether
    from deniable.queries.answer.privacy_statement import Statement
    from deniable.queries.answer.receipt import Receipt
    from deniable.queries.answer.release import Released
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.queries.synthetic.synthesis_request import Synthesis
    from deniable.tables.kinds import Scalar
    from deniable.units import Guarantee

_FAR: Final = 1.5
_LEAST_VARIANCE: Final = 1e-4
"""The smallest variance that a fit uses: at a very high cost, counts have no noise."""
_FITS_OF_A_TREE: Final = 8
"""The number of fits that are combined for a tree of pairs. Most pairs were not counted; single fits guess differently
about them, and the differences average out. Each fit has fewer counts to follow, so less work is enough for all."""
_SHOWN: Final = 20
_ARROW: Final = {
    Kind.TEXT: "string", Kind.INTEGER: "int64", Kind.REAL: "double", Kind.BOOLEAN: "bool", Kind.DATE: "date32",
    Kind.TIMESTAMP: "timestamp[us]",
}  # fmt: skip
MARK: Final = "Computed from synthetic rows, not from the data: there is no interval, and the error is not known."


@final
class Synthetic:
    """A distribution of a table's columns, fitted to noisy counts. Rows, tables and SQL answers from it are free."""

    def __init__(self, asked: Synthesis, measured: MeasuredTogether, rows: int | None = None) -> None:
        self._asked, self._measured, self._stated_rows = asked, measured, rows
        self.guarantee: Guarantee = measured.guarantee
        self.receipt: Receipt = measured.receipt

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        return self._asked.names

    @property
    def asked(self) -> Synthesis:
        """The plan of the table, with the keys that were found."""
        return self._asked

    @cached_property
    def marginals(self) -> tuple[Marginal, ...]:
        """The noisy counts that the distribution is fitted to."""
        together = self._measured
        return tuple(
            noisy_marginal(self._asked, places, plan, released, together.budget)
            for places, plan, released in zip(self._asked.measured, together.plans, together.released, strict=True)
        )

    @cached_property
    def model(self) -> Mixture:
        """The fitted distribution, before impossible combinations are removed. Fitting may take half a minute."""
        is_tree = self._asked.counting.is_tree
        fits, work = (_FITS_OF_A_TREE, 0.7 * MOST_WORK) if is_tree else (FITS, None)
        return raked(fit(self._asked.sizes, self._known, fits=fits, work=work), self._known, self._asked.forbidden)

    @cached_property
    def count(self) -> int:
        """The number of rows of the table: as the caller stated, or estimated from the noisy counts."""
        return self._stated_rows or min(round(total(self.marginals)), MOST_ROWS)

    @property
    def stated_rows(self) -> int | None:
        """The number of rows of the table as the caller stated it, by `rows=` of `synthesize`; None if not stated."""
        return self._stated_rows

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings about the table, one sentence each: a poor fit, or too much noise."""
        sentences = []
        if (misfit := self.model.misfit) > _FAR:
            sentences.append(
                f"The fit is {misfit:.1f} times as far from the noisy counts as their noise accounts for: some columns "
                "depend on each other more than it can represent. Ask for their table directly, or give fewer bins."
            )
            if self._asked.ruled:
                sentences.append("It may also be that rows of the table break the rules of forbid=.")
            if self.model.cut_short:
                sentences.append(
                    "The fit was stopped at its limit of work (about half a minute) while it was still improving: "
                    "give fewer columns or bins."
                )
        deviation = min(each.variance for each in self.marginals) ** 0.5
        if deviation * 10 > self.count:
            sentences.append(
                "The noise is as large as the table: the rows are almost pure noise. Spend more, or take fewer columns."
            )
        return tuple(sentences)

    def statement(self, *, delta: float | None = None) -> Statement:
        """A methods paragraph for a paper or a regulator. ε is stated at `delta`, by default the budget's δ."""
        from deniable.queries.answer import privacy_statement

        return privacy_statement.of_synthetic(self, delta)

    def rows(self, count: int | None = None) -> SyntheticRows:
        """Draw synthetic rows: `count` of them (1 to 10⁹), by default as many as the table has. Free."""
        many = self.count if count is None else row_count("count", count)
        generator = np.random.default_rng()
        places = draw(self.model, many, generator, self._asked.forbidden)
        drawn = {each.name: each.drawn(places[:, i], generator) for i, each in enumerate(self._asked.columns)}
        kinds = {each.name: each.domain.kind for each in self._asked.columns}
        return SyntheticRows({name: drawn[name] for name in self.columns}, kinds)

    def table(self, *columns: str) -> FittedCounts:
        """The fitted counts by some columns, each with its expected standard error. Free.

        The error combines the error of the cell's share of the rows and, unless the caller stated the number of rows,
        the error of their noisy number. Raises `InvalidParameter` for unknown columns or more than a million cells.
        """
        places = self._places(columns)
        off, shares = self._doubt.cells(*places), self._marginal(*places)
        counts, rows_off = shares * self.count, 0.0 if self._stated_rows else total_deviation(self.marginals)
        cells = list(itertools.product(*(self._asked.columns[place].values for place in places)))
        known = None if off is None else np.hypot(off * self.count, shares * rows_off).ravel()
        errors = [None] * len(cells) if known is None else [float(each) for each in known]
        binned = [each.name for each in (self._asked.columns[place] for place in places) if each.coarse]
        return FittedCounts(columns, cells, [float(each) for each in counts.ravel()], errors, binned)

    def sql(self, question: str, *, count: int | None = None) -> Worked:
        """Run SQL (DuckDB's dialect) over synthetic rows, under the table's own name. Free.

        The result is not an answer about the data, and is marked as such. All questions use the same rows; with
        `count`, so many new rows are drawn. Raises `InvalidParameter` if the SQL is not one SELECT or fails.
        """
        from deniable.queries.engines.public_rows import answered

        if not isinstance(question, str):
            raise InvalidParameter("question", type_of(question), "must be SQL")
        rows = self._rows if count is None else self.rows(count)
        return Worked(*answered(self._asked.table, rows.to_arrow(), question))

    @cached_property
    def quality(self) -> Quality:
        """The expected error of each measured table, fitted and in synthetic rows, from public numbers alone.

        (`Session.measured_errors` compares with the data, for the owner alone.)
        """
        found, in_rows = {}, {}
        for places in self._asked.measured:
            names = tuple(self._asked.columns[place].name for place in places)
            fitted, drawn = self._doubt.variation(*places), self._doubt.variation(*places, in_rows=True)
            assert fitted is not None
            assert drawn is not None
            found[names], in_rows[names] = fitted, drawn
        return Quality(found, in_rows)

    def variation(self, exact: Sequence[Mapping[Any, int]]) -> dict[tuple[str, ...], float]:
        """The total variation distance of each fitted table to exact counts, which are in the same order."""
        found = {}
        for places, each in zip(self._asked.measured, exact, strict=True):
            true = placed(self._asked, places, each.items())
            off = self._marginal(*places) - true / max(1.0, float(true.sum()))
            found[tuple(self._asked.columns[place].name for place in places)] = float(np.abs(off).sum() / 2)
        return found

    @cached_property
    def _known(self) -> tuple[Marginal, ...]:
        return tuple(self._asked.forbidden.known(self.marginals))

    @cached_property
    def _doubt(self) -> Doubt:
        return Doubt.of(self.model, self._known, self._asked.forbidden)

    @cached_property
    def _rows(self) -> SyntheticRows:
        return self.rows()

    def _marginal(self, *places: int) -> NDArray[np.float64]:
        return self._asked.forbidden.marginal(self.model, *places)

    def _places(self, columns: Sequence[str]) -> list[int]:
        names = [each.name for each in self._asked.columns]
        if any(not isinstance(each, str) for each in columns):
            raise InvalidParameter("columns", NOTHING, "must be given by name", 'write table("sex", "age")')
        if not columns or len(set(columns)) != len(columns) or any(each not in names for each in columns):
            raise InvalidParameter("columns", columns, "must be columns of the table, each once", choices("", names))
        places = [names.index(each) for each in columns]
        cells = int(np.prod([self._asked.sizes[place] for place in places], dtype=object))
        if cells > MOST_SHOWN:
            raise InvalidParameter("columns", cells, f"must have at most {MOST_SHOWN:,} cells together", "name fewer")
        return places

    def __repr__(self) -> str:
        return "\n".join(
            [f"Synthetic rows of {self._asked.table} ({', '.join(self.columns)}); {self.receipt}", *self.notes]
        )


MOST_SHOWN: Final = 1_000_000
"""The most cells of one fitted table."""


def noisy_marginal(
    asked: Synthesis, places: tuple[int, ...], plan: NoisePlan, released: Released, budget: Budget
) -> Marginal:
    """Released counts as a marginal for a fit."""
    numbers = np.asarray(released.parts[0], dtype=float)
    counts = placed(asked, places, zip(released.groups, numbers, strict=True))
    return Marginal(places, counts, max(released.deviation(plan, budget, 0) ** 2, _LEAST_VARIANCE))


def placed(asked: Synthesis, places: Sequence[int], counts: Any) -> NDArray[np.float64]:
    """Counts by group as an array, with an axis for each column."""
    at = [{value: i for i, value in enumerate(asked.columns[place].values)} for place in places]
    found = np.zeros([len(each) for each in at])
    for group, number in counts:
        where = [each.get(value) for each, value in zip(at, group, strict=True)]
        if None not in where:  # the engine also returns a group for missing values, which some columns do not have
            found[tuple(where)] = number
    return found


@final
@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a fitted table."""

    values: tuple[Scalar | None, ...]
    count: float
    error: float | None
    """The expected root mean square error; None if the columns were not measured together."""


@final
class FittedCounts(Sequence[tuple[Any, ...]]):
    """Fitted counts by some columns: a sequence of (values …, count, expected error)."""

    def __init__(
        self,
        columns: Sequence[str],
        cells: Sequence[tuple[Scalar | None, ...]],
        counts: Sequence[float],
        errors: Sequence[float | None],
        binned: Sequence[str] = (),
    ) -> None:
        self.columns, self._binned = tuple(columns), tuple(binned)
        self.cells = tuple(Cell(*each) for each in zip(cells, counts, errors, strict=True))

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, index: Any) -> Any:
        found = self.cells[index]
        return [_flat(each) for each in found] if isinstance(index, slice) else _flat(found)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return map(_flat, self.cells)

    def to_pandas(self) -> Any:
        """A pandas DataFrame with the further columns `count` and `error`."""
        names = _named([*self.columns, "count", "error"])
        return library("pandas", None).DataFrame.from_records(list(self), columns=names)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for readers of the table, one sentence each: values that stand for bins, and unknown errors."""
        sentences = []
        if self._binned:
            sentences.append(f"A value of {', '.join(self._binned)} stands for the bin that starts with it.")
        if any(each.error is None for each in self.cells):
            sentences.append(
                "These columns were not measured together: the table is a guess, and its error is not known."
            )
        return tuple(sentences)

    def __repr__(self) -> str:
        rows = [
            [
                *(key_text(value) for value in each.values),
                f"{each.count:,.1f}",
                NO_VALUE if each.error is None else f"{each.error:,.1f}",
            ]
            for each in self.cells[:_SHOWN]
        ]
        right = [*(False for _ in self.columns), True, True]
        lines = laid_out([*self.columns, "count", "standard error"], rows, right)
        if len(self) > _SHOWN:
            lines.append(f"… {len(self) - _SHOWN:,} more")
        return "\n".join([*lines, *wrapped(self.notes)])


@final
class Quality(dict[tuple[str, ...], float]):
    """The expected total variation error of each fitted table by its columns, from public numbers alone."""

    def __init__(self, fitted: Mapping[tuple[str, ...], float], in_rows: Mapping[tuple[str, ...], float]) -> None:
        super().__init__(fitted)
        self.in_rows: Final = dict(in_rows)
        """The expected error of as many synthetic rows as the table has. Fewer rows have a larger error."""

    def __missing__(self, columns: object) -> float:
        """The error of a table by the name of its only column, or by its columns in another order."""
        names = [columns] if isinstance(columns, str) else list(columns) if isinstance(columns, tuple) else []
        for each in self:
            if len(each) == len(names) and set(each) == set(names):
                return self[each]
        rule = "was not measured, so its error is not known"
        raise InvalidParameter("columns", columns, rule, "look at list(quality)")

    @property
    def mean(self) -> float:
        """The mean error of the tables with the most columns."""
        return _mean_of_most(self)

    @property
    def mean_in_rows(self) -> float:
        """The mean error of the tables with the most columns, in synthetic rows."""
        return _mean_of_most(self.in_rows)

    def __repr__(self) -> str:
        worst = sorted(self.items(), key=lambda each: -each[1])
        lines = ["expected total variation error of the fitted counts and of as many synthetic rows, the worst first"]
        lines += [
            f"  {each:.4f}  {self.in_rows[columns]:.4f}  {' × '.join(columns)}" for columns, each in worst[:_SHOWN]
        ]
        if len(self) > _SHOWN:
            lines.append(f"  … {len(self) - _SHOWN:,} more")
        return "\n".join(lines)


def _mean_of_most(errors: Mapping[tuple[str, ...], float]) -> float:
    most = max(map(len, errors))
    return float(np.mean([each for columns, each in errors.items() if len(columns) == most]))


@final
class MeasuredErrors:
    """The error of a synthetic table compared with the data, in total variation by columns.

    NOT PRIVATE: for the owner alone, never for users of the synthetic table.
    """

    def __init__(self, table: str, errors: Mapping[tuple[str, ...], float]) -> None:
        self.table, self.errors = table, dict(errors)

    def describe(self) -> str:
        """The errors as text, the largest first."""
        lines = [f"{self.table}: total variation distance to the data, NOT PRIVATE, for the owner alone"]
        worst = sorted(self.errors.items(), key=lambda each: -each[1])
        return "\n".join([*lines, *(f"  {each:.4f}  {' × '.join(columns)}" for columns, each in worst)])

    def __repr__(self) -> str:
        return f"<MeasuredErrors of {self.table!r}: NOT PRIVATE, for the owner alone; see describe()>"


@final
class Worked:
    """The result of SQL over synthetic rows. It is marked as such wherever it is displayed."""

    notes: tuple[str, ...] = (MARK,)

    def __init__(self, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        self.columns, self.rows = tuple(columns), tuple(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def to_pandas(self) -> Any:
        """A pandas DataFrame; `attrs["note"]` says that it comes from synthetic rows."""
        found = library("pandas", None).DataFrame.from_records(list(self.rows), columns=list(self.columns))
        found.attrs["note"] = MARK
        return found

    def __repr__(self) -> str:
        shown = self.rows[:_SHOWN]
        right = [
            all(isinstance(row[j], int | float) and not isinstance(row[j], bool) for row in shown if row[j] is not None)
            for j in range(len(self.columns))
        ]
        lines = laid_out(self.columns, [[_short(cell) for cell in row] for row in shown], right)
        if len(self) > _SHOWN:
            lines.append(f"… {len(self) - _SHOWN:,} more")
        return "\n".join([*lines, *wrapped([MARK], "")])


@final
class SyntheticRows:
    """Synthetic rows, as a list of values for each column."""

    def __init__(self, columns: dict[str, list[Scalar | None]], kinds: Mapping[str, Kind]) -> None:
        self.columns, self._kinds = columns, kinds

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def to_pandas(self) -> Any:
        """A pandas DataFrame. Integers and booleans with missing values are Int64 and boolean."""
        pd = library("pandas", None)
        return pd.DataFrame({name: pd.Series(cells, dtype=nullable(cells)) for name, cells in self.columns.items()})

    def to_polars(self) -> Any:
        """A polars DataFrame."""
        return library("polars", None).DataFrame(self.columns)

    def to_arrow(self) -> Any:
        """An Arrow table with types from the schema."""
        arrow = library("pyarrow", "sql")
        # Without the schema, a column of missing values would get a type of its own.
        typed = [(name, arrow.type_for_alias(_ARROW[self._kinds[name]])) for name in self.columns]
        return arrow.table(self.columns, schema=arrow.schema(typed))

    def to_parquet(self, path: str | Path) -> None:
        """Write a Parquet file."""
        library("pyarrow.parquet", "sql").write_table(self.to_arrow(), str(in_folder(path)))

    def __repr__(self) -> str:
        return f"{len(self):,} synthetic rows of {', '.join(self.columns)}"


def _flat(cell: Cell) -> tuple[Any, ...]:
    return (*cell.values, cell.count, cell.error)


def _short(cell: Any) -> str:
    return "NULL" if cell is None else f"{cell:,.6g}" if isinstance(cell, float) else str(cell)


def _named(names: Sequence[str]) -> list[str]:
    """Unique names: a column of the table may be called `count`."""
    found: list[str] = []
    for name in names:
        while name in found:
            name = f"{name}_"
        found.append(name)
    return found
