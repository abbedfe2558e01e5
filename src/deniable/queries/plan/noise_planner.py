"""The noise planner: which statistics a question collects, which noise they get, and what that costs. Reads no data.

A question is divided into parts. A part is one statistic, which several measures may share; it gets a share w_i of the
cost. Under a Gaussian budget part i gets μ_i² = w_i·μ² and noise of σ_i = Δ_i/μ_i, so the whole is one Gaussian vector
with Σμ_i² = μ². Under a pure budget ε_i = w_i·ε, and a sum that is averaged shares its part with its count
(`SumAndCount`). Parts about different rows have one share together (`exclusive_statistics`). If keys are not public,
one part counts the people of each key; a key is published if its noisy count reaches a threshold, which costs a δ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from deniable.curves import Curve
from deniable.curves.decimal_arithmetic import down as float_down
from deniable.curves.filters import UNIT
from deniable.errors import NOTHING, InvalidParameter, QuestionRefused
from deniable.ledger import Cost
from deniable.ledger.currency import Shape
from deniable.mechanisms import Mechanism
from deniable.mechanisms.histogram import least_threshold
from deniable.mechanisms.piecewise_exponential import QuantileOfCounts
from deniable.mechanisms.prefix_sums import GaussianPrefixSums, LaplacePrefixSums, deviation_of
from deniable.queries.plan.canonical_form import Form, Forms, relation_form, statistic_form
from deniable.queries.plan.dated_extremes import dated
from deniable.queries.plan.estimators import recipe
from deniable.queries.plan.exclusive_statistics import Class, classes
from deniable.queries.plan.noise_families import FAMILIES, MARGIN, family_of
from deniable.queries.plan.ranked_estimators import rank_error
from deniable.queries.plan.recipes import Recipe
from deniable.queries.plan.single_quantile import picked
from deniable.queries.relations.exact_statistics import Cells, Collect, Count, CountPersons, ExactSum, Moves, Statistic
from deniable.units import Relation as Neighbours

if TYPE_CHECKING:
    from deniable.ledger import Budget
    from deniable.ledger.currency import Currency
    from deniable.queries.plan.question import Question

Made = TypeVar("Made")

MOST_NUMBERS: Final = 2**24
"""The most noisy numbers in one answer: public groups times the numbers stored for each."""

MOST_COUNTED: Final = 2**22
"""The most cells, over all groups, from which single quantiles are drawn."""

_MOST_KEPT: Final = 64
"""Cached results for the plans of one shape, for several costs and confidences."""

_SMALL: Final = Fraction(1, 1000)
"""The ε at which two kinds of noise are compared."""


@final
@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A statistic, its sensitivity, and its share of the cost."""

    statistic: Statistic
    moves: Moves
    weight: Fraction
    q: Fraction | None = None
    """For `Cells`: the quantile whose cell the exponential mechanism draws; None if running totals are released."""

    @property
    def is_running(self) -> bool:
        """Whether its running totals are released."""
        return isinstance(self.statistic, Cells) and self.q is None

    @property
    def is_ranked(self) -> bool:
        """Whether it serves quantiles, whose error in the column's units depends on the distribution of the data."""
        return isinstance(self.statistic, Cells)


@final
@dataclass(frozen=True, slots=True)
class SumAndCount:
    """A sum S of numbers between -H and H, and the number n of its rows, released together under a pure budget.

    They are released as H·n + S and H·n - S. A row adds (H + s, H - s), which changes the vector by 2H in L1 for every
    s; a row that only one of the two includes changes it by no more. So one ε covers both, while S and n on their own
    need one each. S is half the difference, and n is the sum divided by 2H. A Gaussian budget would gain nothing: the
    noise would be as wide. Source: `deniable.mechanisms.Mean`.
    """

    total: int
    """The index of S among the parts."""
    count: int
    """The index of n among the parts."""
    half: int
    """H, in steps of the sum's grid."""
    moves: Moves


@final
@dataclass(frozen=True, slots=True)
class NoisePlan:
    """How one question is answered: the statistics to collect, and the estimators for its measures."""

    question: Question
    collect: Collect
    parts: tuple[PlannedPart, ...]
    recipes: tuple[Recipe, ...]
    uses: tuple[tuple[int, ...], ...]
    """For each recipe, the indices of the parts that it needs."""
    people: int | None
    """The index of the part whose noisy count decides which keys are published; None if keys are public."""
    pairs: tuple[SumAndCount, ...] = ()
    """Sums and counts that a pure budget releases together; use the function `pairs`."""
    classes: tuple[Class, ...] = ()
    """The parts in classes about different rows; use the function `classes_of`."""
    paired_classes: tuple[Class, ...] = ()
    """The same with the two parts of each pair as one item."""
    totals: NoisePlan | None = None
    """If this plan draws a quantile as one cell: the plan by running totals, which earlier answers may have used."""
    _kept: dict[Hashable, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """A cache that plans of one shape (`queries.sql.question_templates`) share."""

    def kept(self, name: Hashable, work: Callable[[], Made]) -> Made:
        """The cached result of `work()` under `name`. It must not depend on the constants of conditions."""
        found: Made | None = self._kept.get(name)
        if found is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            found = self._kept[name] = work()
        return found

    @property
    def is_picked(self) -> bool:
        """Whether its only number is a cell drawn by the exponential mechanism (`single_quantile.Picked`)."""
        return self.totals is not None

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """The statistic of each part."""
        return tuple(part.statistic for part in self.parts)


def plan(question: Question) -> NoisePlan:
    """The plan of a question, with equal shares for all parts.

    Raises `QuestionRefused` if the answer would have too many noisy numbers.
    """
    relation = question.relation
    known = question.known
    found: dict[Form, Statistic] = {}
    _, columns = relation_form(relation)
    recipes = tuple(dated(measure, relation) or recipe(measure, relation) for measure in question.measures)
    uses = []
    for each in recipes:
        uses.append(tuple(_place(found, statistic, columns) for statistic in each.statistics()))
    people = None
    if known is None:
        # If each person has at most one row, a count of rows counts people, and the question may need it anyway.
        each_once = not relation.people or relation.rows == 1
        people = _place(found, Count() if each_once else CountPersons(), columns)
    keys = tuple((key.name, key.expression) for key in question.keys)
    numbers = (1 if known is None else len(known)) * sum(statistic.width for statistic in found.values())
    if numbers > MOST_NUMBERS:
        raise QuestionRefused(
            "key",
            f"this needs more than {MOST_NUMBERS:,} noisy numbers: a quantile needs running totals in each group",
            "group by fewer or coarser keys, or ask quantiles by themselves",
        )
    collect = Collect(relation, keys, known, tuple(found.values()))
    by = _neighbours(question)
    alone = classes(collect, [(i,) for i in range(len(found))], by)
    share = Fraction(1, max(1, len(alone)))
    parts = tuple(
        PlannedPart(statistic, move, share)
        for statistic, move in zip(collect.statistics, collect.moves(by), strict=True)
    )
    paired = _paired(collect, recipes, uses, people, by)
    with_pairs = classes(collect, _items(len(found), paired), by) if paired else alone
    with_sums = {pair.count: (pair.total, pair.count) for pair in paired}
    uses = [with_sums.get(each[0], each) if len(each) == 1 else each for each in uses]
    return NoisePlan(question, collect, parts, recipes, tuple(uses), people, paired, alone, with_pairs)


def plan_under(question: Question, budget: Budget) -> NoisePlan:
    """The plan of a question under a budget: `plan`, except for a single quantile under a pure budget.

    Running totals answer all quantiles at once. For one quantile and nothing else, the exponential mechanism draws its
    cell at the same cost; it is used if its rank error is smaller, which is known without data. With keys that are not
    public, running totals are kept, because the count that decides about keys shares the cost.
    """
    totals = plan(question)
    if not family_of(budget).draws_quantiles or totals.people is not None or len(totals.recipes) != 1:
        return totals
    [measure], known = question.measures, totals.collect.known
    assert known is not None
    found = picked(measure, question.relation, MOST_COUNTED // max(1, len(known)))
    if found is None or not _is_nearer(found.q, found.cells.width, totals.statistics[0].width):
        return totals
    collect = replace(totals.collect, statistics=(found.cells,))
    [moves] = collect.moves(_neighbours(question))
    part = PlannedPart(found.cells, moves, Fraction(1), found.q)
    return NoisePlan(question, collect, (part,), (found,), ((0,),), None, classes=(((0,),),), totals=totals)


@lru_cache(maxsize=256)
def _is_nearer(q: Fraction, points: int, cells: int) -> bool:
    """Whether the exponential mechanism over so many points has a smaller rank error at 95 % than running totals.

    Unless noise is negligible, both errors are proportional to sensitivity/ε, so comparing them at one ε is enough.
    """
    drawn = QuantileOfCounts(q=q, cells=points, sensitivity=1, epsilon=_SMALL)
    totals = LaplacePrefixSums(cells=cells, sensitivity=1, epsilon=_SMALL)
    return drawn.error(confidence=0.95) < rank_error(totals.differences(float(q)), Shape.LAPLACE, 0.95)


def _paired(
    collect: Collect, recipes: tuple[Recipe, ...], uses: list[tuple[int, ...]], people: int | None, by: Neighbours
) -> tuple[SumAndCount, ...]:
    """The pairs of a sum and a count that no other sum uses, that every recipe can read as a pair, and whose count does
    not decide about keys.

    (Three sums that share a count are more accurate if the count is released by itself; two are equally accurate.)
    """
    sums: dict[int, set[int]] = {}
    taken = set[int]()
    for each, places in zip(recipes, uses, strict=True):
        if not each.reads_pairs:
            taken.update(places)
        elif len(places) > 1:
            taken.update(places[:-2])
            sums.setdefault(places[-1], set()).add(places[-2])
    found = []
    for count, totals in sums.items():
        if count == people or len(totals) > 1 or (totals | {count}) & taken:
            continue
        [total] = totals
        statistic = collect.statistics[total]
        assert isinstance(statistic, ExactSum)
        half = max(1, *(abs(end) for end in statistic.grid))
        found.append(SumAndCount(total, count, half, collect.moved_by_sides(half, by)))
    return tuple(found)


def pairs(plan: NoisePlan, budget: Budget) -> tuple[SumAndCount, ...]:
    """The pairs that are released together under this budget."""
    return plan.pairs if family_of(budget).releases_pairs else ()


def _items(parts: int, paired: Iterable[SumAndCount]) -> list[tuple[int, ...]]:
    """The indices of the parts, with the two of each pair together."""
    counts = {pair.count: pair for pair in paired}
    totals = {pair.total: pair for pair in counts.values()}
    found: list[tuple[int, ...]] = []
    for i in range(parts):
        if i not in counts:
            found.append((i, totals[i].count) if i in totals else (i,))
    return found


def classes_of(plan: NoisePlan, budget: Budget) -> tuple[Class, ...]:
    """The parts in classes, with the pairs that are released together under this budget. One share pays for a class."""
    return plan.paired_classes if pairs(plan, budget) else plan.classes


def shares_rows(plan: NoisePlan, budget: Budget) -> bool:
    """Whether one share of the cost pays for several parts, because they are about different rows."""
    return any(len(each) > 1 for each in classes_of(plan, budget))


def one_by_one(plan: NoisePlan) -> NoisePlan:
    """The same plan, in which every part has a share of its own, also if it is about different rows."""
    parts = tuple(replace(part, weight=Fraction(1, len(plan.parts))) for part in plan.parts)
    alone = tuple(((i,),) for i in range(len(parts)))
    with_pairs = tuple((item,) for item in _items(len(parts), plan.pairs))
    return replace(plan, parts=parts, classes=alone, paired_classes=with_pairs)


def shares(plan: NoisePlan, budget: Budget) -> tuple[Fraction, ...]:
    """The share of the cost of each part: the same for all classes. The parts of a class each have the share that pays
    for all of them.
    """
    return (Fraction(1, max(1, len(classes_of(plan, budget)))),) * len(plan.parts)


def _neighbours(question: Question) -> Neighbours:
    """The neighbouring relation, add/remove or replace, which is the same for all tables of a session."""
    unit = question.relation.tables[0].unit
    assert unit is not None
    return unit.relation


def _place(found: dict[Form, Statistic], statistic: Statistic, columns: Forms) -> int:
    """The index of a statistic among those to collect; equal statistics are collected, and paid for, once.

    Statistics are compared by canonical form, as questions are by hash. So all spellings of a question have the same
    parts in the same order, and one spelling can read an answer that was stored for another.
    """
    form = statistic_form(statistic, columns)
    found.setdefault(form, statistic)
    return list(found).index(form)


# -- noise -----------------------------------------------------------------------------------------------------------


def grid_step(plan: NoisePlan) -> float:
    """The grid step of the first statistic of a plan; 1 for a count."""
    statistic = plan.parts[0].statistic
    return 2.0**statistic.exponent if isinstance(statistic, ExactSum) else 1.0


@final
@dataclass(frozen=True, slots=True)
class Noise:
    """The mechanisms of a plan at one cost."""

    mechanisms: tuple[Mechanism, ...]
    shape: Shape
    threshold: int | None
    """The noisy number of people that a key must reach to be published; None if keys are public."""
    seconds: frozenset[int] = frozenset()
    """The indices of the second part of each pair, which the mechanism of the first part already pays for."""
    beside: frozenset[int] = frozenset()
    """The indices of parts that the part of their class with the highest cost pays for."""

    @property
    def curve(self) -> Curve:
        """A curve with the price of the noise, without the δ of the threshold: of each class it has the dearest part.

        Under a pure budget only its ε at δ = 0 holds for all parts: a count that moves by 1 has a larger δ at smaller ε
        than a sum that moves by many steps.
        """
        first, *others = (each for i, each in enumerate(self.mechanisms) if i not in self.seconds | self.beside)
        curve = first.curve
        for mechanism in others:
            curve = curve * mechanism.curve
        return curve

    def spread(self, part: int) -> float:
        """The standard deviation of one draw of a part's noise; for running totals, of one measured combination."""
        mechanism: Any = self.mechanisms[part]
        return deviation_of(
            mechanism.noise if isinstance(mechanism, GaussianPrefixSums | LaplacePrefixSums) else mechanism
        )

    def deviation(self, part: int) -> Any:
        """The standard deviation of a part's noise; an array over totals for running totals, NaN for a drawn cell."""
        mechanism: Any = self.mechanisms[part]
        if isinstance(mechanism, GaussianPrefixSums | LaplacePrefixSums):
            return mechanism.spreads
        # No noise is added to a drawn cell; its error depends on the distribution of the values.
        return math.nan if isinstance(mechanism, QuantileOfCounts) else deviation_of(mechanism)


@lru_cache(maxsize=1024)  # many questions share their noise
def noise_cost(noise: Noise, budget: Budget) -> Cost:
    """The budget's price of the curve of the noise, without the δ of the threshold."""
    return budget.price(noise.curve)


def noise(plan: NoisePlan, budget: Budget, cost: Cost) -> Noise:
    """The noise that a cost pays for. The budget's price of its curve is at most `cost`.

    Raises `QuestionRefused` if a threshold is needed and the cost has no δ, and `InvalidParameter` if the cost is so
    small that the noise would be wider than 2^50 steps.
    """
    made = unthresholded(plan, budget, cost.units)
    if plan.people is None:
        return made
    if cost.delta_units == 0:
        raise QuestionRefused(
            "key",
            "keys that are not public are shown above a threshold, which needs a delta, but no delta is given or left",
            "declare the keys in the schema, or use a budget with a delta",
        )
    reach = plan.collect.reach
    people = isinstance(plan.parts[plan.people].statistic, CountPersons)
    rows, each = (reach.touched, 1) if people else (reach.in_all, reach.in_one_group)
    counted: Any = made.mechanisms[plan.people]
    threshold = least_threshold(counted, rows=rows, each=each, delta=float_down(cost.delta_units * UNIT))
    return replace(made, threshold=threshold)


def unthresholded(plan: NoisePlan, budget: Budget, units: int) -> Noise:
    """The noise that this many units pay for, without a threshold. Cached."""
    return plan.kept((budget, units), lambda: _noise_of(plan, budget, units))


def _noise_of(plan: NoisePlan, budget: Budget, units: int) -> Noise:
    paired = pairs(plan, budget)
    together = {place: pair.moves for pair in paired for place in (pair.total, pair.count)}
    parts = tuple(
        (part.statistic.width if part.is_ranked else None, part.q, together.get(i, part.moves), share)
        for i, (part, share) in enumerate(zip(plan.parts, shares(plan, budget), strict=True))
    )
    several = tuple(each for each in classes_of(plan, budget) if len(each) > 1)
    return _unthresholded(parts, frozenset(pair.count for pair in paired), several, budget, units)


@lru_cache(maxsize=1024)
def _unthresholded(
    parts: tuple[tuple[int | None, Fraction | None, Moves, Fraction], ...],
    seconds: frozenset[int],
    several: tuple[Class, ...],
    budget: Budget,
    units: int,
) -> Noise:
    level = budget.level_down(Cost(units)) * MARGIN
    made = tuple(_mechanism(cells, q, moves, weight, budget.accounting, level) for cells, q, moves, weight in parts)
    beside = set[int]()
    for each in several:  # their noise is made for one level, but roundings differ
        *others, _ = sorted((item[0] for item in each), key=lambda i: budget.price(made[i].curve).units)
        beside.update(others)
    return Noise(made, budget.accounting.shape, None, seconds, frozenset(beside))


@lru_cache(maxsize=1024)
def _mechanism(
    cells: int | None, q: Fraction | None, moves: Moves, weight: Fraction, currency: Currency, level: Fraction
) -> Mechanism:
    """The mechanism for a statistic of this sensitivity, at a share (`weight`) of a level. It is cached, because many
    questions share it. With `cells` None the statistic is a number, with `cells` alone running totals over so many
    cells, with `cells` and `q` one cell that is drawn.
    """
    family = FAMILIES[currency.shape]
    try:
        if cells is not None and q is not None:
            assert family.draws_quantiles  # the exponential mechanism has no other level than a pure ε
            return QuantileOfCounts(q=q, cells=cells, sensitivity=moves.l1, epsilon=level * weight)
        return family.mechanism(cells, moves, weight, currency, level)
    except InvalidParameter:  # wider than 2^50 steps: known from the cost and the sensitivity alone
        raise InvalidParameter(
            "cost", NOTHING, "is so small that the result would be pure noise", "spend more, or bound more tightly"
        ) from None
