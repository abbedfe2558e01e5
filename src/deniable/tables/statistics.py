"""What an engine computes before noise: integers, for each group, whose sensitivity is known in advance."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from deniable.tables.expressions import Expression
    from deniable.tables.kinds import Scalar
    from deniable.tables.plan import Relation

Group = tuple["Scalar | None", ...]
"""The values of the keys of one group; () when there are no keys."""


@dataclass(frozen=True, slots=True)
class Statistic(ABC):
    """One or more integers for each group."""


@final
@dataclass(frozen=True, slots=True)
class Count(Statistic):
    """The number of rows, or of rows where the expression is not NULL."""

    expression: Expression | None = None


@final
@dataclass(frozen=True, slots=True)
class CountPersons(Statistic):
    """The number of people with at least one row (where the expression is not NULL)."""

    expression: Expression | None = None


@final
@dataclass(frozen=True, slots=True)
class CountDistinct(Statistic):
    """The number of different values that are not NULL."""

    expression: Expression


@final
@dataclass(frozen=True, slots=True)
class Sum(Statistic):
    """The sum over rows of floor(clamp(x, low, high)/2^exponent + 1/2), where x is not NULL: an exact integer.

    In any order, on any engine: each row is rounded to the grid before it is added.
    """

    expression: Expression
    low: Fraction
    high: Fraction
    exponent: int


@final
@dataclass(frozen=True, slots=True)
class Cells(Statistic):
    """The number of rows in each cell [edges[i], edges[i + 1]) of a public partition; the last cell is closed.

    Values outside are counted in the first or the last cell. One integer for each cell.
    """

    expression: Expression
    edges: tuple[Fraction, ...]


@final
@dataclass(frozen=True, slots=True)
class Collect:
    """All that an engine is asked in one question: statistics of a relation, by group.

    `known` lists the groups to report, present or not, in this order (None: whichever appear; they are NOT public, and
    only a threshold may decide which are shown). Groups outside `known` are dropped.
    """

    relation: Relation
    keys: tuple[tuple[str, Expression], ...]
    known: tuple[Group, ...] | None
    statistics: tuple[Statistic, ...]


@final
@dataclass(frozen=True, slots=True)
class Reach:
    """How much of a grouped result one person can touch: `rows` in all, in at most `groups` groups, `each` in a group.

    None: no bound but the others'.
    """

    rows: int
    groups: int | None
    each: int | None
