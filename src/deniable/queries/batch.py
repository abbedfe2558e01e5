"""Questions that are asked together: how they share a cost, and how they help each other.

A count by ward and a count by ward and sex overlap: the second, summed over sexes, is a second noisy answer to the
first. Merged by inverse variance both count. So the coarser question needs a smaller share of the cost, and how large
is chosen such that the variances, each relative to that of a question asked alone, add up to as little as possible.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, final

import numpy as np

from deniable.ledger import Cost
from deniable.queries.canonical import expression_form, relation_form
from deniable.queries.release import at_precision, precise
from deniable.tables.statistics import Count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.ledger import Budget
    from deniable.queries.planner import Plan
    from deniable.queries.release import Released


@final
@dataclass(frozen=True, slots=True)
class Help:
    """The finer question's cells sum up to the coarser one's: `into` gives the coarse cell of each fine one."""

    coarse: int
    fine: int
    into: tuple[int, ...]
    cells: int
    """The most fine cells in one coarse cell."""


def shares(plans: Sequence[Plan]) -> tuple[list[Fraction], list[Help]]:
    """The share of the cost for each question, and who helps whom."""
    weights = [len(plan.parts) for plan in plans]
    helps = []
    for coarse in range(len(plans)):
        found = [each for fine in range(len(plans)) if (each := _help(plans, coarse, fine)) is not None]
        if found:
            helps.append(min(found, key=lambda each: each.cells))
    parts = [Fraction(weight, sum(weights)) for weight in weights]
    for each in helps:
        # Of the two shares' sum, a goes to the coarse one: 1/(a + (1-a)/m) + 1/(1-a) is least at a root of a quadratic.
        both = parts[each.coarse] + parts[each.fine]
        a = _best(each.cells)
        parts[each.coarse], parts[each.fine] = both * a, both * (1 - a)
    return parts, helps


def _best(cells: int) -> Fraction:
    tried = [Fraction(i, 64) for i in range(1, 33)]
    return min(tried, key=lambda a: 1 / (a + (1 - a) / cells) + 1 / (1 - a))


def _help(plans: Sequence[Plan], coarse: int, fine: int) -> Help | None:
    """Whether one count can be summed up from the other: same rows, public keys, the coarse ones among the fine."""
    if coarse == fine:
        return None
    a, b = plans[coarse], plans[fine]
    if not all(len(p.parts) == 1 and isinstance(p.parts[0].statistic, Count) and p.people is None for p in (a, b)):
        return None
    if a.collect.known is None or b.collect.known is None or a.parts[0].moves != b.parts[0].moves:
        return None
    (form, columns), (other, names) = relation_form(a.question.relation), relation_form(b.question.relation)
    if form != other or _counted(a, columns) != _counted(b, names):
        return None
    few = [expression_form(key.expression, columns) for key in a.question.keys]
    many = [expression_form(key.expression, names) for key in b.question.keys]
    if not set(few) < set(many):
        return None
    places = [many.index(each) for each in few]
    at = {group: i for i, group in enumerate(a.collect.known)}
    summed = [at.get(tuple(group[i] for i in places)) for group in b.collect.known]
    # All values of the other keys must be there, or a sum would miss rows: so each key's values must be all of its own.
    if any(each is None for each in summed) or not _whole(b):
        return None
    into = tuple(each for each in summed if each is not None)
    return Help(coarse, fine, into, max(into.count(i) for i in set(into)))


def _counted(plan: Plan, columns: object) -> object:
    statistic = plan.parts[0].statistic
    assert isinstance(statistic, Count)
    return None if statistic.expression is None else expression_form(statistic.expression, columns)  # type: ignore[arg-type]


def _whole(plan: Plan) -> bool:
    """Whether every row is in a group: each key is never another value than those listed."""
    from deniable.queries.question import public_values

    for key in plan.question.keys:
        if key.values is None or public_values(key.expression, plan.question.relation) != key.values:
            return False
    return True


def helped(help: Help, released: Sequence[Released], budget: Budget) -> Released:
    """The coarse answer, merged with the sums of the fine one by inverse variance (that of the worst cell)."""
    coarse, fine = released[help.coarse], released[help.fine]
    sums = np.zeros(len(coarse.groups))
    np.add.at(sums, list(help.into), np.asarray(fine.parts[0], dtype=np.float64))
    own = precise(coarse.precision.units, budget)
    # Cells with fewer fine ones are known better than this says: their interval is a little too wide.
    more = precise(fine.precision.units, budget) / help.cells
    share = float(own / (own + more))
    values = share * np.asarray(coarse.parts[0], dtype=np.float64) + (1 - share) * sums
    units = at_precision(own + more, budget)
    precision = Cost(units, coarse.precision.delta_units)
    # What it says now rests on both answers, so both costs stand behind it.
    cost = coarse.cost + fine.cost
    return replace(coarse, parts=(values,), cost=cost, precision=precision, units=(units,) * len(coarse.groups))
