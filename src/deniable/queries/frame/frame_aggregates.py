"""What a dataframe asks of its groups: `count()`, `mean("cost")`, `quantile("cost", 0.9)` …

In a module of their own, because `sum`, `min` and `max` are the right names and Python's built-in ones are not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from deniable.tables.expressions import Expression, col


@final
@dataclass(frozen=True, slots=True, eq=False)
class Aggregation:
    """An aggregate by its name, of an expression; None: of the rows themselves."""

    function: str
    expression: Expression | None
    options: Mapping[str, float] = field(default_factory=dict)


def _of(value: str | Expression) -> Expression:
    return col(value) if isinstance(value, str) else value


def count(value: str | Expression | None = None) -> Aggregation:
    """The number of rows, or of those where `value` is not NULL."""
    return Aggregation("count", None if value is None else _of(value))


def count_persons() -> Aggregation:
    """The number of people."""
    return Aggregation("count_persons", None)


def count_distinct(value: str | Expression) -> Aggregation:
    """The number of different values."""
    return Aggregation("count_distinct", _of(value))


def sum(value: str | Expression) -> Aggregation:
    """The sum of a number with public bounds."""
    return Aggregation("sum", _of(value))


def mean(value: str | Expression) -> Aggregation:
    """The average of a number with public bounds."""
    return Aggregation("avg", _of(value))


def var(value: str | Expression, *, ddof: int = 1) -> Aggregation:
    """The variance of a number with public bounds: of the sample (`ddof` 1), or of the rows as they are (0)."""
    return Aggregation("var", _of(value), {"ddof": ddof})


def std(value: str | Expression, *, ddof: int = 1) -> Aggregation:
    """The standard deviation of a number with public bounds."""
    return Aggregation("stddev", _of(value), {"ddof": ddof})


def median(value: str | Expression) -> Aggregation:
    """The value in the middle."""
    return Aggregation("quantile", _of(value), {"q": 0.5})


def quantile(value: str | Expression, q: float) -> Aggregation:
    """The value with the fraction `q` of rows below it."""
    return Aggregation("quantile", _of(value), {"q": float(q)})


def min(value: str | Expression) -> Aggregation:
    """The least value: a private extreme, so rather one that few rows lie below."""
    return Aggregation("min", _of(value))


def max(value: str | Expression) -> Aggregation:
    """The largest value: a private extreme."""
    return Aggregation("max", _of(value))
