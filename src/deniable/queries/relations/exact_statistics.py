"""Exact statistics: the integers that an engine computes for each group before noise, with their sensitivity."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, final

from deniable.errors import QuestionRefused
from deniable.numbers import root_up, up
from deniable.queries.relations.operator_bounds import only_null
from deniable.queries.relations.operators import typed
from deniable.queries.relations.question_length import check_length, parts
from deniable.queries.relations.relation_nodes import Bound, FilterRows, PerPerson, Union
from deniable.queries.relations.work_bound import check_work
from deniable.tables.expressions import Column, columns_used, same
from deniable.tables.kinds import NUMBERS, Kind
from deniable.units import Relation as Neighbours
from deniable.units import Sensitivity

if TYPE_CHECKING:
    from deniable.queries.relations.relation_nodes import RelationNode
    from deniable.tables.expressions import Expression
    from deniable.tables.kinds import Domain, Scalar

Group = tuple["Scalar | None", ...]
"""The values of the keys of one group; () when there are no keys."""


@final
@dataclass(frozen=True, slots=True)
class Reach:
    """How much of a grouped result one person can affect: `rows` in total, `groups` groups, `each` rows in a group.

    `groups` or `each` is None if it has no bound of its own; `rows` bounds it in any case.
    """

    rows: int
    groups: int | None
    each: int | None

    @property
    def in_one_group(self) -> int:
        """The most rows of a person in one group."""
        return self.rows if self.each is None else min(self.rows, self.each)

    @property
    def in_all(self) -> int:
        """The most rows of a person in all groups together."""
        return self.rows if self.groups is None else min(self.rows, self.groups * self.in_one_group)

    @property
    def touched(self) -> int:
        """The most groups that a person can affect."""
        return self.rows if self.groups is None else min(self.rows, self.groups)

    @property
    def squares(self) -> int:
        """The largest possible sum of squared rows per group: as many full groups as possible, and one remainder.

        Moving a row from a smaller group to a larger one never lowers the sum, so this arrangement is the maximum.
        """
        full, rest = divmod(self.in_all, self.in_one_group)
        return full * self.in_one_group**2 + rest**2


@final
@dataclass(frozen=True, slots=True)
class Moves:
    """The sensitivity of a vector of integers, exactly: L1 norm, squared L2 norm, L∞ norm."""

    l1: int
    l2_squared: int
    linf: int

    def within(self, coordinates: int | None) -> Moves:
        """The sensitivity for a vector of at most `coordinates` numbers: ‖v‖₁ ≤ n‖v‖∞ and ‖v‖₂² ≤ n‖v‖∞²."""
        if coordinates is None:
            return self
        n = coordinates
        return Moves(min(self.l1, n * self.linf), min(self.l2_squared, n * self.linf**2), self.linf)

    @property
    def sensitivity(self) -> Sensitivity:
        """The norms as floats, rounded up."""
        return Sensitivity(
            l1=_up(Fraction(self.l1)), l2=_up(root_up(Fraction(self.l2_squared))), linf=_up(Fraction(self.linf))
        )


@dataclass(frozen=True, slots=True, eq=False)
class Statistic(ABC):
    """One or more integers for each group."""

    @abstractmethod
    def moves(self, reach: Reach, neighbours: Neighbours) -> Moves:
        """The sensitivity over all groups, for neighbours that differ by one person with this `reach`."""

    @abstractmethod
    def check(self, relation: RelationNode) -> None:
        """Raise `QuestionRefused` if the statistic cannot be computed on this relation."""

    @property
    def width(self) -> int:
        """The number of integers for each group."""
        return 1


@final
@dataclass(frozen=True, slots=True, eq=False)
class Count(Statistic):
    """The number of rows, or of rows where the expression is not NULL."""

    expression: Expression | None = None

    def moves(self, reach: Reach, neighbours: Neighbours) -> Moves:
        return _of_rows(reach, neighbours, 0, 1)

    def check(self, relation: RelationNode) -> None:
        if self.expression is not None:
            typed(self.expression, relation.columns)


@final
@dataclass(frozen=True, slots=True, eq=False)
class CountPersons(Statistic):
    """The number of people with at least one row (where the expression is not NULL)."""

    expression: Expression | None = None

    def moves(self, reach: Reach, neighbours: Neighbours) -> Moves:
        return _of_rows(Reach(reach.touched, reach.groups, 1), neighbours, 0, 1)

    def check(self, relation: RelationNode) -> None:
        if not relation.people:
            raise QuestionRefused("unit", "every row is its own person here: count rows instead", "write COUNT(*)")
        if self.expression is not None:
            typed(self.expression, relation.columns)


@final
@dataclass(frozen=True, slots=True, eq=False)
class CountDistinct(Statistic):
    """The number of distinct values other than NULL."""

    expression: Expression

    def moves(self, reach: Reach, neighbours: Neighbours) -> Moves:
        # Adding or removing a row changes the number of distinct values in its group by at most one.
        return _of_rows(reach, neighbours, 0, 1)

    def check(self, relation: RelationNode) -> None:
        typed(self.expression, relation.columns)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ExactSum(Statistic):
    """The sum over rows of floor(clamp(x, low, high)/2^exponent + 1/2), where x is not NULL: an exact integer.

    Each row is rounded to the grid before it is added, so the sum does not depend on the order of rows or the engine.
    The sensitivity rests on the clamp to `grid` alone, never on assumptions about x.
    """

    expression: Expression
    low: Fraction
    high: Fraction
    exponent: int

    @property
    def grid(self) -> tuple[int, int]:
        """The bounds in grid steps, to which the addend of a row is clamped."""
        return _cell(self.low, self.exponent), _cell(self.high, self.exponent)

    def addend(self, value: int | float) -> int:
        """The addend of one row, in grid steps.

        An integer is rounded exactly. A real is clamped, divided by the power of two and increased by 1/2 in floating
        point, as an engine does, then floored; the final clamp is on integers.
        """
        low, high = self.grid
        if isinstance(value, int):
            return min(max(_cell(Fraction(value), self.exponent), low), high)
        clamped = min(max(value, float(self.low)), float(self.high))
        return min(max(math.floor(clamped / 2.0**self.exponent + 0.5), low), high)

    def moves(self, reach: Reach, neighbours: Neighbours) -> Moves:
        return _of_rows(reach, neighbours, *self.grid)

    def check(self, relation: RelationNode) -> None:
        if typed(self.expression, relation.columns).domain.kind not in NUMBERS:
            raise QuestionRefused("kinds", "a sum needs numbers", "write CAST(a AS DOUBLE)")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Cells(Statistic):
    """The number of rows in each cell [edges[i], edges[i + 1]) of a public partition; the last cell is closed.

    Values outside are counted in the first or the last cell. One integer for each cell.
    """

    expression: Expression
    edges: tuple[Fraction, ...]

    @property
    def width(self) -> int:
        return len(self.edges) - 1

    def moves(self, reach: Reach, neighbours: Neighbours) -> Moves:
        # Each row is in one cell of one group; all of them in the same cell is the worst.
        return _of_rows(reach, neighbours, 0, 1)

    def check(self, relation: RelationNode) -> None:
        if typed(self.expression, relation.columns).domain.kind not in NUMBERS:
            raise QuestionRefused("kinds", "a histogram needs numbers", "write CAST(a AS DOUBLE)")
        if len(self.edges) < 2 or any(a >= b for a, b in zip(self.edges, self.edges[1:], strict=False)):
            raise QuestionRefused("bounds", "the edges of a histogram must increase", "give low < high")


Number = int | float


@final
class Filling(NamedTuple):
    """Marks a question of a cached shape: questions of one `shape` differ only in the `numbers` of their conditions.

    Numbers are in the order of the conditions.
    """

    shape: str
    numbers: tuple[Number, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Collect:
    """A query to an engine: statistics of a relation by group.

    `known` lists the groups to report, in this order, also those without rows; other groups are dropped. If `known` is
    None, all groups that occur in the data are reported. They are NOT public: only a threshold may decide which of them
    are published.
    """

    relation: RelationNode
    keys: tuple[tuple[str, Expression], ...]
    known: tuple[Group, ...] | None
    statistics: tuple[Statistic, ...]
    filling: Filling | None = field(default=None, repr=False)
    """Allows an engine to reuse SQL of the same shape; None if the question has no cached shape."""

    def __post_init__(self) -> None:
        for name, key in self.keys:
            if typed(key, self.relation.columns).domain.kind is Kind.REAL and self.known is None:
                raise QuestionRefused(
                    "key",
                    f"{name!r} is a real number, which must be put into public bins to be a key",
                    "FLOOR(a / 10) * 10",
                )
        for statistic in self.statistics:
            statistic.check(self.relation)
        written = parts(self)
        check_length(written)
        check_work(self, written)

    @property
    def reach(self) -> Reach:
        """How much of the result one person can affect, from the relation's rows, the groups, and a bound on them."""
        rows = self.relation.rows
        groups = 1 if not self.keys else None if self.known is None else max(1, len(self.known))
        each = None
        relation = self.relation
        while isinstance(relation, FilterRows | Bound):  # leaving rows out only lowers what a bound below allows
            if isinstance(relation, Bound) and _same_keys(relation.keys, tuple(key for _, key in self.keys)):
                groups = relation.groups if groups is None else min(groups, relation.groups)
                each = relation.rows_per_group if each is None else min(each, relation.rows_per_group)
            relation = relation.child
        if isinstance(relation, PerPerson) and relation.keys:
            ours = {key.name for _, key in self.keys if isinstance(key, Column)}
            if {
                name for name, _ in relation.keys
            } <= ours:  # gathered by these keys, a person has one row in each group
                each = 1
        return Reach(rows, groups, each)

    def reach_of(self, statistic: Statistic) -> Reach:
        """`reach`, without the rows of the parts of a union in which the statistic's expression is always NULL.

        If the keys are constants in each of the other parts, a person affects one group for each of them.

        Rows in which it is NULL add nothing to any statistic with an expression. If all columns that the expression
        reads are the constant NULL in a part, its value is the same in every row of the part; it is computed here to
        see whether it is NULL.
        """
        expression: Expression | None = getattr(statistic, "expression", None)
        whole, relation = self.reach, self.relation
        if expression is None or not isinstance(relation, Union) or relation.disjoint:
            return whole
        used = set(columns_used(expression))
        if not used or typed(expression, relation.columns).value(dict.fromkeys(used)) is not None:
            return whole
        read = [part for part in relation.parts if not all(only_null(part.columns[name]) for name in used)]
        groups = whole.groups
        if self.keys and read and all(map(self._is_one_group, read)):
            groups = len(read) if groups is None else min(groups, len(read))
        return Reach(max(1, min(whole.rows, sum(part.rows for part in read))), groups, whole.each)

    def _is_one_group(self, part: RelationNode) -> bool:
        """Whether all rows of a part of a union are in one group, because each key is a constant there."""
        domains = [part.columns[key.name] if isinstance(key, Column) else None for _, key in self.keys]
        return all(each is not None and _is_constant(each) for each in domains)

    def moves(self, neighbours: Neighbours) -> tuple[Moves, ...]:
        """The sensitivity of each statistic over all groups, in exact numbers."""
        coordinates = 1 if not self.keys else None if self.known is None else max(1, len(self.known))
        return tuple(
            statistic.moves(self.reach_of(statistic), neighbours).within(
                None if coordinates is None else coordinates * statistic.width
            )
            for statistic in self.statistics
        )

    def moved_by_sides(self, half: int, neighbours: Neighbours) -> Moves:
        """The sensitivity of the vector (H·n + S, H·n - S) over all groups, for a sum S of integers from -H to H and
        a number n of rows: a row changes it by at most 2H in L1.
        """
        return _of_rows(self.reach, neighbours, 0, 2 * half)

    def sensitivities(self, neighbours: Neighbours) -> tuple[Sensitivity, ...]:
        """The sensitivity of each statistic over all groups, as floats; `moves` has the exact numbers."""
        return tuple(each.sensitivity for each in self.moves(neighbours))


def _is_constant(domain: Domain) -> bool:
    """Whether a domain has one value, which may be NULL."""
    return only_null(domain) or (domain.keys is not None and len(domain.keys) == 1 and not domain.nullable)


def _same_keys(left: tuple[Expression, ...], right: tuple[Expression, ...]) -> bool:
    """Whether two lists of keys make the same groups: each key of one is in the other. (g, g) and (g, x) do not."""
    return all(any(same(a, b) for b in right) for a in left) and all(any(same(a, b) for a in left) for b in right)


def _of_rows(reach: Reach, neighbours: Neighbours, low: int, high: int) -> Moves:
    """The sensitivity of a sum over rows of integers from `low` to `high`.

    A person's rows add a vector v with |v_g| ≤ n_g·M, M = max(|low|, |high|), so ‖v‖₁ ≤ M·Σn_g, ‖v‖₂² ≤ M²·Σn_g² and
    ‖v‖∞ ≤ M·max n_g. Replacing a person adds v and takes away u. If all values have one sign, u·v ≥ 0, so ‖v − u‖₂² ≤
    ‖u‖₂² + ‖v‖₂², and no coordinate moves further than the larger of the two; else only the triangle inequality holds.
    """
    most = max(abs(low), abs(high), 1)  # a sum of zeros has sensitivity 0, for which 1 is an upper bound
    once = Moves(most * reach.in_all, most**2 * reach.squares, most * reach.in_one_group)
    if neighbours is Neighbours.ADD_REMOVE:
        return once
    if low >= 0 or high <= 0:
        return Moves(2 * once.l1, 2 * once.l2_squared, once.linf)
    return Moves(2 * once.l1, 4 * once.l2_squared, (high - low) * reach.in_one_group)


def _cell(value: Fraction, exponent: int) -> int:
    return math.floor(value / Fraction(2) ** exponent + Fraction(1, 2))


def _up(exact: Fraction) -> float:
    try:
        return up(exact)
    except OverflowError:
        raise QuestionRefused(
            "bounds", "the bounds are too wide for a finite sensitivity", "give tighter bounds"
        ) from None
