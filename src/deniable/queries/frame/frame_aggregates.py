"""The aggregates of a frame: `count()`, `mean("cost")`, `quantile("cost", 0.9)` …

They have a module of their own, because `sum`, `min` and `max` hide Python's built-in functions here. A value is the
name of a column or an expression. From `sum` on, it must be a number with public bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from deniable.tables.expressions import Expression, col


@final
@dataclass(frozen=True, slots=True, eq=False)
class Aggregation:
    """The name of an aggregate, its expression (None: the rows themselves), and its options."""

    function: str
    expression: Expression | None
    options: Mapping[str, float] = field(default_factory=dict)


def _of(value: str | Expression) -> Expression:
    return col(value) if isinstance(value, str) else value


def count(value: str | Expression | None = None) -> Aggregation:
    """The number of rows, or of rows in which `value` is not NULL."""
    return Aggregation("count", None if value is None else _of(value))


def count_persons() -> Aggregation:
    """The number of people with at least one row."""
    return Aggregation("count_persons", None)


def count_distinct(value: str | Expression) -> Aggregation:
    """The number of distinct values other than NULL."""
    return Aggregation("count_distinct", _of(value))


def sum(value: str | Expression) -> Aggregation:
    """The sum of a number with public bounds, to which its values are clamped; NULLs are skipped."""
    return Aggregation("sum", _of(value))


def mean(value: str | Expression) -> Aggregation:
    """The average of a number with public bounds, to which its values are clamped; NULLs are skipped."""
    return Aggregation("avg", _of(value))


def var(value: str | Expression, *, ddof: int = 1) -> Aggregation:
    """The variance of a number: divided by n - 1 (`ddof` 1, a sample) or by n (0, a population)."""
    return Aggregation("var", _of(value), {"ddof": ddof})


def std(value: str | Expression, *, ddof: int = 1) -> Aggregation:
    """The standard deviation of a number, with `ddof` as in `var`."""
    return Aggregation("stddev", _of(value), {"ddof": ddof})


def median(value: str | Expression) -> Aggregation:
    """The median of a number with public bounds: `quantile` at 0.5."""
    return Aggregation("quantile", _of(value), {"q": 0.5})


def quantile(value: str | Expression, q: float) -> Aggregation:
    """The quantile `q` (0 to 1) of a number: a fraction `q` of the rows is below it."""
    return Aggregation("quantile", _of(value), {"q": float(q)})


def min(value: str | Expression) -> Aggregation:
    """The smallest value, as far as privacy allows: a value with few rows below it."""
    return Aggregation("min", _of(value))


def max(value: str | Expression) -> Aggregation:
    """The largest value, as far as privacy allows: a value with few rows above it."""
    return Aggregation("max", _of(value))
