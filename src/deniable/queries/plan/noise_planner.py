"""From a question to noise: what is collected, which noise goes on it, and what that costs. No data is read here.

Every part of a question (a statistic that several measures may share) gets a share of the cost. Under a Gaussian budget
part i gets μ_i² = w_i·μ² and noise of σ_i = Δ_i/μ_i, so the whole is one Gaussian vector with Σμ_i² = μ²; under a pure
budget ε_i = w_i·ε, and a sum that is averaged shares its part with its count (`SumAndCount`). Keys that are not
public are one more part: a count of people, which a threshold turns into a yes or no for each key, at a δ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
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
from deniable.queries.plan.estimators import Averaged, Recipe, Summed, Varied, rank_error, recipe
from deniable.queries.plan.noise_families import FAMILIES, MARGIN, family_of
from deniable.queries.plan.single_quantile import picked
from deniable.queries.relations.exact_statistics import Cells, Collect, Count, CountPersons, ExactSum, Moves, Statistic
from deniable.units import Relation as Neighbours

if TYPE_CHECKING:
    from deniable.ledger import Budget
    from deniable.ledger.currency import Currency
    from deniable.queries.plan.question import Question

Made = TypeVar("Made")

MOST_NUMBERS: Final = 2**24
"""Noisy numbers in one answer: public groups times what is kept for each."""

MOST_COUNTED: Final = 2**22
"""Cells in all groups together, from which quantiles are drawn one by one."""

_MOST_KEPT: Final = 64
"""What is kept for the plans of one shape: at several costs and confidences."""

_SMALL: Final = Fraction(1, 1000)
"""An ε at which two kinds of noise are compared."""


@final
@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A statistic, how far it can move, and its share of the cost."""

    statistic: Statistic
    moves: Moves
    weight: Fraction
    q: Fraction | None = None
    """Of cells: the quantile whose cell is drawn, where no running totals are released."""

    @property
    def is_running(self) -> bool:
        """Whether running totals of it are released, instead of itself."""
        return isinstance(self.statistic, Cells) and self.q is None

    @property
    def is_ranked(self) -> bool:
        """Whether what is read off it is the value at a rank: how far it is off depends on how the values lie."""
        return isinstance(self.statistic, Cells)


@final
@dataclass(frozen=True, slots=True)
class SumAndCount:
    """A sum S of numbers between -H and H, and the number n of its rows: under a pure budget they are released as
    H·n + S and H·n - S.

    A row adds (H + s, H - s), which moves them by 2H in L1 whatever s is; if it were counted and not added, or added
    and not counted, by no more. So one ε is enough for both, where S and n by themselves need one each. S is half the
    difference and n the sum over 2H. (Under a Gaussian budget nothing would be gained: the noise would be as wide.)
    Source: `deniable.mechanisms.Mean`.
    """

    total: int
    """The place of S among the parts."""
    count: int
    """The place of n."""
    half: int
    """H."""
    moves: Moves


@final
@dataclass(frozen=True, slots=True)
class NoisePlan:
    """What one question collects and makes of it."""

    question: Question
    collect: Collect
    parts: tuple[PlannedPart, ...]
    recipes: tuple[Recipe, ...]
    uses: tuple[tuple[int, ...], ...]
    """For each recipe, which parts it needs."""
    people: int | None
    """The part whose noisy count decides which keys are shown; None where keys are public."""
    pairs: tuple[SumAndCount, ...] = ()
    """Sums and counts that a pure budget releases together; see `pairs`."""
    totals: NoisePlan | None = None
    """Of a quantile that is drawn as one cell: the plan by running totals, which earlier answers may have used."""
    _kept: dict[Hashable, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What was worked out before; plans of one shape (`queries.sql.question_templates`) share it."""

    def kept(self, name: Hashable, work: Callable[[], Made]) -> Made:
        """What `work` makes, once for all plans of one shape: it depends on no number of a condition."""
        found: Made | None = self._kept.get(name)
        if found is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            found = self._kept[name] = work()
        return found

    @property
    def is_picked(self) -> bool:
        """Whether its one number is a cell drawn by the exponential mechanism (`picked.Picked`)."""
        return self.totals is not None

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        return tuple(part.statistic for part in self.parts)


def plan(question: Question) -> NoisePlan:
    """The plan of a question. Refuses what has no bounded sensitivity."""
    relation = question.relation
    known = question.known
    found: dict[Form, Statistic] = {}
    _, columns = relation_form(relation)
    recipes = tuple(recipe(measure, relation) for measure in question.measures)
    uses = []
    for each in recipes:
        uses.append(tuple(_place(found, statistic, columns) for statistic in each.statistics()))
    people = None
    if known is None:
        # Where nobody owns more than one row, a count of rows is a count of people, and may be asked for anyway.
        each_once = not relation.people or relation.rows == 1
        people = _place(found, Count() if each_once else CountPersons(), columns)
    keys = tuple((key.name, key.expression) for key in question.keys)
    numbers = (1 if known is None else len(known)) * sum(statistic.width for statistic in found.values())
    if numbers > MOST_NUMBERS:
        raise QuestionRefused(
            "key",
            f"this would be more than {MOST_NUMBERS:,} noisy numbers: a quantile keeps running totals for each group",
            "group by fewer or coarser keys, or ask quantiles by themselves",
        )
    collect = Collect(relation, keys, known, tuple(found.values()))
    moves = collect.moves(_neighbours(question))
    share = Fraction(1, max(1, len(found)))
    parts = tuple(
        PlannedPart(statistic, move, share) for statistic, move in zip(collect.statistics, moves, strict=True)
    )
    paired = _paired(collect, recipes, uses, people, _neighbours(question))
    with_sums = {pair.count: (pair.total, pair.count) for pair in paired}
    uses = [with_sums.get(each[0], each) if len(each) == 1 else each for each in uses]
    return NoisePlan(question, collect, parts, recipes, tuple(uses), people, paired)


def plan_under(question: Question, budget: Budget) -> NoisePlan:
    """The plan of a question under a budget: that of `plan`, but for a single quantile under a pure budget.

    Running totals tell all quantiles at once. Where one is asked and nothing else, the exponential mechanism tells its
    cell alone, at the same cost; it is taken where its rank error is smaller. All of this is known without any data.
    Keys that are not public keep running totals: their count decides about them, and shares the cost.
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
    return NoisePlan(question, collect, (part,), (found,), ((0,),), None, totals=totals)


@lru_cache(maxsize=256)
def _is_nearer(q: Fraction, points: int, cells: int) -> bool:
    """Whether the exponential mechanism over so many points has a smaller rank error at 95 % than running totals over
    so many cells. Both are in proportion to sensitivity/ε where there is noise to speak of, so one level is enough.
    """
    drawn = QuantileOfCounts(q=q, cells=points, sensitivity=1, epsilon=_SMALL)
    totals = LaplacePrefixSums(cells=cells, sensitivity=1, epsilon=_SMALL)
    return drawn.error(confidence=0.95) < rank_error(totals.differences(float(q)), Shape.LAPLACE, 0.95)


def _paired(
    collect: Collect, recipes: tuple[Recipe, ...], uses: list[tuple[int, ...]], people: int | None, by: Neighbours
) -> tuple[SumAndCount, ...]:
    """The sums whose count is no other sum's, and decides about no key. (Three sums that share a count are told more
    exactly if that count is released by itself; two are as good as.)
    """
    sums: dict[int, set[int]] = {}
    for each, places in zip(recipes, uses, strict=True):
        if isinstance(each, Averaged | Varied):
            sums.setdefault(places[-1], set()).add(places[-2])
    taken = {places[-1] for each, places in zip(recipes, uses, strict=True) if isinstance(each, Summed)}
    found = []
    for count, totals in sums.items():
        if count == people or len(totals) > 1 or totals & taken:
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


def shares(plan: NoisePlan, budget: Budget) -> tuple[Fraction, ...]:
    """The share of the cost of each part; of a pair that is released together, that of both."""
    paired = pairs(plan, budget)
    return (
        (Fraction(1, max(1, len(plan.parts) - len(paired))),) * len(plan.parts)
        if paired
        else tuple(part.weight for part in plan.parts)
    )


def _neighbours(question: Question) -> Neighbours:
    """Add/remove or replace: the same for all tables of a session."""
    unit = question.relation.tables[0].unit
    assert unit is not None
    return unit.relation


def _place(found: dict[Form, Statistic], statistic: Statistic, columns: Forms) -> int:
    """Where a statistic stands among those to collect; two that mean the same are one, and paid for once.

    By their forms, as the hash of a question: so all spellings of a question have the same parts in the same order, and
    an answer that one of them stored can be read by another.
    """
    form = statistic_form(statistic, columns)
    found.setdefault(form, statistic)
    return list(found).index(form)


# -- noise -----------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Noise:
    """The mechanisms of a plan at one cost."""

    mechanisms: tuple[Mechanism, ...]
    shape: Shape
    threshold: int | None
    """The noisy number of people from which on a key is shown."""
    seconds: frozenset[int] = frozenset()
    """The second part of each pair: its noise is that of a vector whose first number is another part."""

    @property
    def curve(self) -> Curve:
        """What the noise promises, the threshold's δ apart."""
        first, *others = (each for i, each in enumerate(self.mechanisms) if i not in self.seconds)
        curve = first.curve
        for mechanism in others:
            curve = curve * mechanism.curve
        return curve

    def spread(self, part: int) -> float:
        """The standard deviation of one draw of a part's noise."""
        mechanism: Any = self.mechanisms[part]
        return deviation_of(
            mechanism.noise if isinstance(mechanism, GaussianPrefixSums | LaplacePrefixSums) else mechanism
        )

    def deviation(self, part: int) -> Any:
        """The standard deviation of a part's noise; of each total, for running totals."""
        mechanism: Any = self.mechanisms[part]
        if isinstance(mechanism, GaussianPrefixSums | LaplacePrefixSums):
            return mechanism.spreads
        # A cell that was drawn has no noise added to it: what it is off by depends on how the values lie.
        return math.nan if isinstance(mechanism, QuantileOfCounts) else deviation_of(mechanism)


@lru_cache(maxsize=1024)  # many questions share their noise
def noise_cost(noise: Noise, budget: Budget) -> Cost:
    """What the noise costs by the budget's own price of its curve, the threshold's δ apart."""
    return budget.price(noise.curve)


def noise(plan: NoisePlan, budget: Budget, cost: Cost) -> Noise:
    """The noise that a cost pays for. Everything released with it is at most as dear, by the budget's own price."""
    made = unthresholded(plan, budget, cost.units)
    if plan.people is None:
        return made
    if cost.delta_units == 0:
        raise QuestionRefused(
            "key",
            "keys that are not public are shown above a threshold, which needs a delta, and none is given or left",
            "declare the keys in the schema, or use a budget with a delta",
        )
    reach = plan.collect.reach
    people = isinstance(plan.parts[plan.people].statistic, CountPersons)
    rows, each = (reach.touched, 1) if people else (reach.in_all, reach.in_one_group)
    counted: Any = made.mechanisms[plan.people]
    threshold = least_threshold(counted, rows=rows, each=each, delta=float_down(cost.delta_units * UNIT))
    return Noise(made.mechanisms, made.shape, threshold, made.seconds)


def unthresholded(plan: NoisePlan, budget: Budget, units: int) -> Noise:
    """The noise alone that this many units pay for."""
    return plan.kept((budget, units), lambda: _noise_of(plan, budget, units))


def _noise_of(plan: NoisePlan, budget: Budget, units: int) -> Noise:
    paired = pairs(plan, budget)
    together = {place: pair.moves for pair in paired for place in (pair.total, pair.count)}
    parts = tuple(
        (part.statistic.width if part.is_ranked else None, part.q, together.get(i, part.moves), share)
        for i, (part, share) in enumerate(zip(plan.parts, shares(plan, budget), strict=True))
    )
    return _unthresholded(parts, frozenset(pair.count for pair in paired), budget, units)


@lru_cache(maxsize=1024)
def _unthresholded(
    parts: tuple[tuple[int | None, Fraction | None, Moves, Fraction], ...],
    seconds: frozenset[int],
    budget: Budget,
    units: int,
) -> Noise:
    level = budget.level_down(Cost(units)) * MARGIN
    made = tuple(_mechanism(cells, q, moves, weight, budget.accounting, level) for cells, q, moves, weight in parts)
    return Noise(made, budget.accounting.shape, None, seconds)


@lru_cache(maxsize=1024)
def _mechanism(
    cells: int | None, q: Fraction | None, moves: Moves, weight: Fraction, currency: Currency, level: Fraction
) -> Mechanism:
    """Noise for a statistic that moves so far; of running totals over so many cells, or of one that is drawn from them.

    Many questions share it.
    """
    family = FAMILIES[currency.shape]
    try:
        if cells is not None and q is not None:
            assert family.draws_quantiles  # the exponential mechanism has no other level than a pure ε
            return QuantileOfCounts(q=q, cells=cells, sensitivity=moves.l1, epsilon=level * weight)
        return family.mechanism(cells, moves, weight, currency, level)
    except InvalidParameter:  # wider than 2^50 steps: known from the cost and the sensitivity alone
        raise InvalidParameter(
            "cost", NOTHING, "pays for so little that noise would drown everything", "spend more, or bound more tightly"
        ) from None
