"""How the questions of a batch share a cost, and how they improve each other.

**Disjoint rows.** Questions about disjoint rows (WHERE age < 30, WHERE age >= 30) together cost as much as the most
expensive of them (parallel composition). A person with R rows has n_i of them in part i, and Σ n_i <= R. n rows
contribute at most n/R of the L1 sensitivity, and at most n/R of the squared L2 sensitivity. So all parts together lose
at most Σ μ_i²·n_i/R <= max μ_i², or Σ ε_i·n_i/R <= max ε_i. This holds if neighbours add or remove a person. It does
not hold if they replace one, who can leave one part and enter another.

**Overlapping tables.** A count by ward and a count by ward and sex overlap. Such tables are measured jointly if all of
a person's rows may be in one cell (`joint_tables`). Otherwise, for example after grouping by person and ward in a
sub-query, tables have a smaller sensitivity than a joint measurement would assume, and each is measured by itself. The
finer table, summed, is then a second noisy answer to the coarser question, and both are merged by inverse variance. So
the coarser question needs a smaller share of the cost. The shares minimise the sum of both variances, each relative to
the variance of the question asked alone.
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
from deniable.queries.relations.relation_nodes import filtered
from deniable.units import Relation as Neighbours

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from deniable.ledger import Budget
    from deniable.queries.answer.release import Released
    from deniable.queries.plan.noise_planner import NoisePlan


@final
@dataclass(frozen=True, slots=True)
class Help:
    """A finer question whose cells sum up to a coarser one's. `into` has the coarse cell of each fine cell."""

    coarse: int
    fine: int
    into: tuple[int, ...]
    cells: int
    """The most fine cells in one coarse cell."""


def shares(
    plans: Sequence[NoisePlan], weights: Sequence[Fraction] | None = None, measured: Collection[int] = ()
) -> tuple[list[Fraction], list[Help]]:
    """(the share of the cost of each question, which questions improve which).

    A share is proportional to the number of statistics (those about different rows count as one) times the weight.
    Questions about disjoint rows all have the same share, which is charged once (`charges`). Questions with an index in
    `measured` are measured jointly elsewhere and do not take part in helping.
    """
    together = parallel(plans)
    each = [len(plan.classes) * (weights[i] if weights else Fraction(1)) for i, plan in enumerate(plans)]
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
        # A fraction a of both shares goes to the coarse question; it minimises 1/(a + (1-a)/m) + 1/(1-a).
        both = parts[help.coarse] + parts[help.fine]
        a = _best(help.cells)
        parts[help.coarse], parts[help.fine] = both * a, both * (1 - a)
    return parts, helps


def charges(plans: Sequence[NoisePlan], costs: Sequence[Cost]) -> list[Cost]:
    """The charge for each question. Disjoint questions divide the cost of the most expensive one among them.

    δ, which is for keys that are not public, is charged in full for each.
    """
    found = list(costs)
    for group in parallel(plans):
        whole, rest = divmod(max(costs[i].units for i in group), len(group))
        for place, i in enumerate(group):
            found[i] = Cost(whole + (place < rest), costs[i].delta_units)
    return found


def parallel(plans: Sequence[NoisePlan]) -> list[tuple[int, ...]]:
    """The indices of the questions in groups; the members of a group ask about disjoint rows. Most groups consist of
    one plan.
    """
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
    """Whether n of a person's R rows contribute at most n/R of the sensitivity, in L1 and in squared L2.

    R are the rows of the relation that the parts filter. In L1 this holds if the sensitivity assumes all R rows. It
    fails if a filter leaves fewer (the first row of each person), or if a bound applies earlier (people are counted
    once, whatever their number of rows): two parts may then both change fully. In squared L2, n rows with at most r in
    a group contribute at most n·r, and all R rows contribute R·r if r divides R.
    """
    unit, reach = collect.relation.tables[0].unit, collect.reach
    people = any(isinstance(statistic, CountPersons) for statistic in collect.statistics)
    return (
        unit is not None
        and unit.relation is Neighbours.ADD_REMOVE
        and reach.in_all == reach.rows == filtered(collect.relation).rows
        and reach.rows % reach.in_one_group == 0
        and (not people or reach.touched == reach.rows)
    )


def _best(cells: int) -> Fraction:
    tried = [Fraction(i, 64) for i in range(1, 33)]
    return min(tried, key=lambda a: 1 / (a + (1 - a) / cells) + 1 / (1 - a))


def _help(plans: Sequence[NoisePlan], coarse: int, fine: int) -> Help | None:
    """How the cells of one count or sum add up to another: same rows, public keys, all coarse keys among the fine
    ones. None if they do not add up.
    """
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
    # Every value of the other keys must be listed, or a sum would miss rows.
    if any(each is None for each in summed) or not is_whole(b):
        return None
    into = tuple(each for each in summed if each is not None)
    return Help(coarse, fine, into, max(into.count(i) for i in set(into)))


def _measured(plan: NoisePlan, columns: Forms) -> Form:
    return statistic_form(plan.parts[0].statistic, columns)


def helped(help: Help, released: Sequence[Released], budget: Budget) -> Released:
    """The coarse answer merged with the sums of the fine answer, weighted by inverse variance (of the worst cell)."""
    coarse, fine = released[help.coarse], released[help.fine]
    sums = np.zeros(len(coarse.groups))
    np.add.at(sums, list(help.into), np.asarray(fine.parts[0], dtype=np.float64))
    own = precise(coarse.precision.units, budget)
    # Conservative for cells with fewer fine cells: their interval is a little too wide.
    more = precise(fine.precision.units, budget) / help.cells
    share = float(own / (own + more))
    values = share * np.asarray(coarse.parts[0], dtype=np.float64) + (1 - share) * sums
    units = at_precision(own + more, budget)
    precision = Cost(units, coarse.precision.delta_units)
    # The result rests on both answers, so its cost is that of both.
    measured = behind((coarse, fine))
    draws = (*coarse.all_draws, *(Draw(each.cost, each.cells * help.cells) for each in fine.all_draws))
    each = (units,) * len(coarse.groups)
    return replace(
        coarse, parts=(values,), cost=total(measured), precision=precision, units=each, draws=draws, measured=measured
    )
