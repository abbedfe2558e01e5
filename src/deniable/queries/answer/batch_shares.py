"""Questions that are asked together: how they share a cost, and how they help each other.

Questions about disjoint rows (WHERE age < 30, WHERE age >= 30) cost together what the dearest of them costs. A person
with R rows in all has n_i of them in part i, and Σ n_i <= R. What n rows move is at most n/R of the L1 that the noise
was made for, and at most n/R of the square of its L2. So all parts together lose at most Σ μ_i²·n_i/R <= max μ_i², or
Σ ε_i·n_i/R <= max ε_i: they are one vector of noise with its joint sensitivity. That is so if a person is added or
removed; one who is replaced can leave one part and enter another, which are two moves.

A count by ward and a count by ward and sex overlap: such tables are measured together where a person's rows may all be
in one cell (`joint_tables`). Where they cannot, because rows were gathered for each person and ward
(`SELECT ward, many, COUNT(*) FROM (SELECT person, ward, COUNT(*) > 1 AS many ... GROUP BY person, ward) GROUP BY
ward,
many`), tables move less than residuals would allow for, and each is measured by itself. The finer one, summed up, is
then a second noisy answer to the coarser one. Merged by inverse variance both count. So the coarser question needs a
smaller share of the cost, and how large is chosen such that the variances, each relative to that of a question asked
alone, add up to as little as possible.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, final

import numpy as np

from deniable.ledger import Cost
from deniable.queries.answer.joint_tables import is_whole
from deniable.queries.answer.release import Draw, at_precision, precise
from deniable.queries.answer.shared_measurements import behind, total
from deniable.queries.plan.canonical_form import Form, Forms, expression_form, relation_form, statistic_form
from deniable.queries.plan.disjointness import disjoint
from deniable.queries.relations.exact_statistics import Collect, Count, CountPersons, ExactSum
from deniable.units import Relation as Neighbours

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from deniable.ledger import Budget
    from deniable.queries.answer.release import Released
    from deniable.queries.plan.noise_planner import NoisePlan


@final
@dataclass(frozen=True, slots=True)
class Help:
    """The finer question's cells sum up to the coarser one's: `into` gives the coarse cell of each fine one."""

    coarse: int
    fine: int
    into: tuple[int, ...]
    cells: int
    """The most fine cells in one coarse cell."""


def shares(
    plans: Sequence[NoisePlan], weights: Sequence[Fraction] | None = None, measured: Collection[int] = ()
) -> tuple[list[Fraction], list[Help]]:
    """The share of the cost at which each question is answered, and who helps whom.

    Each has a share in proportion to its statistics, times its weight. Questions about disjoint rows have one share,
    each of them the whole of it: see `charges`. Those that are `measured` together with others help nobody here.
    """
    together = parallel(plans)
    each = [len(plan.parts) * (weights[i] if weights else Fraction(1)) for i, plan in enumerate(plans)]
    most = {group: max(each[i] for i in group) for group in together}
    parts = [Fraction(0)] * len(plans)
    for group, weight in most.items():
        for i in group:
            parts[i] = weight / sum(most.values())
    alone = [i for group in together if len(group) == 1 for i in group if i not in measured]
    helps = []
    for coarse in alone:
        found = [one for fine in alone if (one := _help(plans, coarse, fine)) is not None]
        if found:
            helps.append(min(found, key=lambda one: one.cells))
    for help in helps:
        # Of the two shares' sum, a goes to the coarse one: 1/(a + (1-a)/m) + 1/(1-a) is least at a root of a quadratic.
        both = parts[help.coarse] + parts[help.fine]
        a = _best(help.cells)
        parts[help.coarse], parts[help.fine] = both * a, both * (1 - a)
    return parts, helps


def charges(plans: Sequence[NoisePlan], costs: Sequence[Cost]) -> list[Cost]:
    """What each question is charged: of disjoint ones, a part of what the dearest costs; all parts add up to that.

    δ is for keys that are not public, and is charged in full.
    """
    found = list(costs)
    for group in parallel(plans):
        whole, rest = divmod(max(costs[i].units for i in group), len(group))
        for place, i in enumerate(group):
            found[i] = Cost(whole + (place < rest), costs[i].delta_units)
    return found


def parallel(plans: Sequence[NoisePlan]) -> list[tuple[int, ...]]:
    """The questions in groups whose members ask about disjoint rows; most are alone."""
    groups: list[list[int]] = []
    for i, plan in enumerate(plans):
        fits = (
            group for group in groups
            if shares_out(plan.collect) and shares_out(plans[group[0]].collect)
            and disjoint([plans[j].collect.relation for j in (*group, i)])
        )  # fmt: skip
        found = next(fits, None)
        if found is None:
            groups.append([i])
        else:
            found.append(i)
    return [tuple(group) for group in groups]


def shares_out(collect: Collect) -> bool:
    """Whether n of a person's R rows move at most n/R of what all of them do, in L1 and in the square of L2.

    In L1 that is so if the noise was made for all R rows; where a bound cuts in earlier (people counted once, however
    many rows they have), two parts may both move fully. The squares of n rows, at most r in a group, add up to at most
    n·r; those of all R to R·r, if r divides R.
    """
    unit, reach = collect.relation.tables[0].unit, collect.reach
    people = any(isinstance(statistic, CountPersons) for statistic in collect.statistics)
    return (
        unit is not None
        and unit.relation is Neighbours.ADD_REMOVE
        and reach.in_all == reach.rows
        and reach.rows % reach.in_one_group == 0
        and (not people or reach.touched == reach.rows)
    )


def _best(cells: int) -> Fraction:
    tried = [Fraction(i, 64) for i in range(1, 33)]
    return min(tried, key=lambda a: 1 / (a + (1 - a) / cells) + 1 / (1 - a))


def _help(plans: Sequence[NoisePlan], coarse: int, fine: int) -> Help | None:
    """Whether a count or sum adds up to another: same rows, public keys, the coarse ones among the fine."""
    if coarse == fine:
        return None
    a, b = plans[coarse], plans[fine]
    if not all(
        len(p.parts) == 1 and isinstance(p.parts[0].statistic, Count | ExactSum) and p.people is None for p in (a, b)
    ):
        return None
    if a.collect.known is None or b.collect.known is None or a.parts[0].moves != b.parts[0].moves:
        return None
    (form, columns), (other, names) = relation_form(a.question.relation), relation_form(b.question.relation)
    if form != other or _measured(a, columns) != _measured(b, names):
        return None
    few = [expression_form(key.expression, columns) for key in a.question.keys]
    many = [expression_form(key.expression, names) for key in b.question.keys]
    if not set(few) < set(many):
        return None
    places = [many.index(each) for each in few]
    at = {group: i for i, group in enumerate(a.collect.known)}
    summed = [at.get(tuple(group[i] for i in places)) for group in b.collect.known]
    # All values of the other keys must be there, or a sum would miss rows: so each key's values must be all of its own.
    if any(each is None for each in summed) or not is_whole(b):
        return None
    into = tuple(each for each in summed if each is not None)
    return Help(coarse, fine, into, max(into.count(i) for i in set(into)))


def _measured(plan: NoisePlan, columns: Forms) -> Form:
    return statistic_form(plan.parts[0].statistic, columns)


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
    measured = behind((coarse, fine))
    draws = (*coarse.all_draws, *(Draw(each.cost, each.cells * help.cells) for each in fine.all_draws))
    each = (units,) * len(coarse.groups)
    return replace(
        coarse, parts=(values,), cost=total(measured), precision=precision, units=each, draws=draws, measured=measured
    )
