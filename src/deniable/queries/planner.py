"""From a question to noise: what is collected, which noise goes on it, and what that costs. No data is read here.

Every part of a question (a statistic that several measures may share) gets a share of the cost. Under a Gaussian budget
part i gets μ_i² = w_i·μ² and noise of σ_i = Δ_i/μ_i, so the whole is one Gaussian vector with Σμ_i² = μ²; under a pure
budget ε_i = w_i·ε. Keys that are not public are one more part: a count of people, which a threshold turns into a yes or
no for each key, at a δ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, final

from deniable.curves import Curve
from deniable.curves.filters import UNIT
from deniable.curves.textbook_numbers import down as float_down
from deniable.errors import NOTHING, InvalidParameter, QuestionRefused
from deniable.ledger import Cost
from deniable.mechanisms import DiscreteLaplace, Gaussian, Mechanism
from deniable.mechanisms.histogram import least_threshold
from deniable.mechanisms.prefix import GaussianPrefixSums, LaplacePrefixSums, deviation_of
from deniable.queries.canonical import Form, Forms, relation_form, statistic_form
from deniable.queries.intervals import Shape
from deniable.queries.recipes import Recipe, recipe
from deniable.tables.statistics import Cells, Collect, Count, CountPersons, Moves, Statistic
from deniable.units import Relation as Neighbours

if TYPE_CHECKING:
    from deniable.ledger import Budget
    from deniable.queries.question import Question

MARGIN: Final = Fraction(2**40 - 1, 2**40)
"""Noise is made for a level this little below what is paid, so that roundings never cost more than was asked."""

MOST_NUMBERS: Final = 2**24
"""Noisy numbers in one answer: public groups times what is kept for each."""


@final
@dataclass(frozen=True, slots=True)
class Part:
    """A statistic, how far it can move, and its share of the cost."""

    statistic: Statistic
    moves: Moves
    weight: Fraction

    @property
    def is_running(self) -> bool:
        """Whether running totals of it are released, instead of itself."""
        return isinstance(self.statistic, Cells)


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """What one question collects and makes of it."""

    question: Question
    collect: Collect
    parts: tuple[Part, ...]
    recipes: tuple[Recipe, ...]
    uses: tuple[tuple[int, ...], ...]
    """For each recipe, which parts it needs."""
    people: int | None
    """The part whose noisy count decides which keys are shown; None where keys are public."""

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        return tuple(part.statistic for part in self.parts)


def plan(question: Question) -> Plan:
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
    parts = tuple(Part(statistic, move, share) for statistic, move in zip(collect.statistics, moves, strict=True))
    return Plan(question, collect, parts, recipes, tuple(uses), people)


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

    @property
    def curve(self) -> Curve:
        """What the noise promises, the threshold's δ apart."""
        curve = self.mechanisms[0].curve
        for mechanism in self.mechanisms[1:]:
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
        return deviation_of(mechanism)


@lru_cache(maxsize=1024)  # many questions share their noise
def noise_cost(noise: Noise, budget: Budget) -> Cost:
    """What the noise costs by the budget's own price of its curve, the threshold's δ apart."""
    return budget.price(noise.curve)


def noise(plan: Plan, budget: Budget, cost: Cost) -> Noise:
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
    return Noise(made.mechanisms, made.shape, threshold)


def unthresholded(plan: Plan, budget: Budget, units: int) -> Noise:
    """The noise alone that this many units pay for."""
    parts = tuple((part.statistic.width if part.is_running else None, part.moves, part.weight) for part in plan.parts)
    return _unthresholded(parts, budget, units)


@lru_cache(maxsize=1024)
def _unthresholded(parts: tuple[tuple[int | None, Moves, Fraction], ...], budget: Budget, units: int) -> Noise:
    level = budget.level_down(Cost(units)) * MARGIN
    made = tuple(_mechanism(cells, moves, weight, budget.currency, level) for cells, moves, weight in parts)
    return Noise(made, Shape.LAPLACE if budget.currency == "epsilon" else Shape.NORMAL, None)


@lru_cache(maxsize=1024)
def _mechanism(cells: int | None, moves: Moves, weight: Fraction, currency: str, level: Fraction) -> Mechanism:
    """Noise for a statistic that moves so far; of running totals over so many cells. Many questions share it."""
    try:
        return _made(cells, moves, weight, currency, level)
    except InvalidParameter:  # wider than 2^50 steps: known from the cost and the sensitivity alone
        raise InvalidParameter(
            "cost", NOTHING, "pays for so little that noise would drown everything", "spend more, or bound more tightly"
        ) from None


def _made(cells: int | None, moves: Moves, weight: Fraction, currency: str, level: Fraction) -> Mechanism:
    if currency == "epsilon":
        epsilon = level * weight
        if cells is not None:
            return LaplacePrefixSums(cells=cells, sensitivity=moves.l1, epsilon=epsilon)
        return DiscreteLaplace(sensitivity=moves.l1, epsilon=epsilon)
    square = (level**2 if currency == "mu2" else 2 * level) * weight
    mu = math.sqrt(square) * float(MARGIN)
    if cells is not None:
        return GaussianPrefixSums(cells=cells, sensitivity=moves.l1, mu=mu)
    return Gaussian.whole(sensitivity=moves.sensitivity, mu=mu)
