"""Statistics of one question that are about different rows, as COUNT_IF(a) and COUNT_IF(NOT a): one share pays for all.

**Proof.** Let neighbours add or remove one person with r_g rows in group g of the relation. Then Σ r_g is at most A,
and Σ r_g² is at most Q (`Reach.in_all` and `Reach.squares`). Statistic j reads rows in which its condition is
true, so it moves in group g by at most M_j·r_jg, where r_jg of these rows meet the condition; its sensitivity is
L1_j = M_j·A and L2_j² = M_j²·Q. No row meets two conditions, so Σ_j r_jg <= r_g. Then

    Σ_j Σ_g (M_j·r_jg)/L1_j      = Σ_g Σ_j r_jg / A  <= 1,
    Σ_j Σ_g (M_j·r_jg)²/L2_j²    <= Σ_g r_g² / Q     <= 1.

Laplace noise of ε_j on statistic j loses at most ε_j times its term of the first sum, so all lose at most max ε_j
together. Gaussian noise of μ_j loses at most μ_j² times its term of the second sum, so all lose at most max μ_j². The
same holds for a pair (H·n + S, H·n - S), which a row moves by at most 2H in L1.

A person who is replaced can leave the rows of one statistic and enter those of another, and a count of people moves by
one for any number of rows. Both are paid for one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from deniable.queries.plan.disjointness import exclusive
from deniable.queries.relations.exact_statistics import Collect, Count, CountDistinct, ExactSum, Statistic
from deniable.queries.relations.operator_table import OPERATORS
from deniable.tables.expressions import Call, Expression, Literal
from deniable.units import Relation as Neighbours

if TYPE_CHECKING:
    from collections.abc import Iterable

Item = tuple[int, ...]
"""The indices of statistics that are released together: one, or a sum and its count."""
Class = tuple[Item, ...]
"""Items of which no two read the same row; most classes have one item."""

_MOST_COMPARED: Final = 400
"""The most conditions that are compared with another one; further items are paid for one by one."""


def classes(collect: Collect, items: Sequence[Item], by: Neighbours) -> tuple[Class, ...]:
    """The items in classes, each in the first class in which no item may read a row that it reads."""
    conditions = [_common(collect, item) for item in items] if by is Neighbours.ADD_REMOVE else [None] * len(items)
    found: list[list[int]] = []
    left = _MOST_COMPARED
    for place, condition in enumerate(conditions):
        mates = None
        if condition is not None:
            for group in found:
                others = [conditions[each] for each in group]
                left -= len(group)
                if left >= 0 and all(b is not None and exclusive(condition, b, collect.relation) for b in others):
                    mates = group
                    break
        if mates is None:
            found.append([place])
        else:
            mates.append(place)
    return tuple(tuple(items[place] for place in mates) for mates in found)


def _common(collect: Collect, item: Item) -> Expression | None:
    """A condition that all rows meet that the statistics of an item read; None if none is known."""
    found = [_condition(collect, collect.statistics[each]) for each in item]
    first = found[0]
    return first if all(each is not None and repr(each) == repr(first) for each in found) else None


def _condition(collect: Collect, statistic: Statistic) -> Expression | None:
    """A condition that is true of all rows that add something to a statistic; None if none is known, or if the
    sensitivity of the statistic is not that of a sum over the rows of the whole relation.
    """
    if not isinstance(statistic, Count | CountDistinct | ExactSum) or statistic.expression is None:
        return None
    if collect.reach_of(statistic) != collect.reach:  # it assumes fewer rows than those that are divided
        return None
    match statistic.expression:
        case Call(operator="case", arguments=(condition, _, Literal(value=int() | float() as other))) if (
            # An engine adds an integer as it is, or as a real, if the other case is a real. Both may round differently.
            isinstance(statistic, ExactSum) and not any(map(statistic.addend, (other, float(other))))
        ):
            return condition
    return _where_known(statistic.expression)


def _where_known(expression: Expression) -> Expression | None:
    """A condition that is true wherever an expression is not NULL."""
    match expression:
        case Call(operator="case", arguments=(condition, _, Literal(value=None))):
            return condition
        case Call(operator=operator, arguments=arguments) if OPERATORS[operator].strict:
            return _first(map(_where_known, arguments))
    return None


def _first(found: Iterable[Expression | None]) -> Expression | None:
    return next((each for each in found if each is not None), None)
