"""The choice of tables by the data: which marginals are counted for a synthetic table, as a part of its one entry.

    "mst"         a spanning tree of the d columns. It chooses d - 1 pairs, each time the pair whose counts the fit to
                  single columns predicts worst, among the pairs that close no cycle. Then it counts the chosen pairs.
    "adaptive"    in rounds: choose the tables that the current fit predicts worst, count them, and fit again. If a
                  round changes the fit by less than its noise, later rounds are half as many, each at twice the cost.

The first follows MST (McKenna, Miklau & Sheldon 2021), the second AIM (McKenna, Mullins, Sheldon & Miklau 2022); the
fit is ours. A choice is made by the exponential mechanism, exactly (`mechanisms.Exponential`). This is one of the three
places where exact numbers meet noise; `answer.release` names them.

**Scores and their sensitivity.** The score of a table c is

    u_c(D) = w_c · (Σ over cells |n_c(D) - m_c| - e_c)

with the exact counts n_c(D) and what is public by then: the fitted counts m_c, the noise e_c that a fit would keep,
and the weight 0 < w_c <= 1. Between neighbours D and D′ only n_c differs. By the triangle inequality, with every public
number fixed, |u_c(D) - u_c(D′)| <= w_c · Σ |n_c(D) - n_c(D′)| <= Δ, where Δ is the L1 sensitivity of the counts, the
same that scales Laplace noise: 1 if a row comes or goes, 2 if a row is replaced, r if a person with at most r rows
comes or goes, and 2r if such a person is replaced. One row can move the score of one table up and that of another down,
so scores are not monotone, and the mechanism needs its factor 2. The m_c are rounded to multiples of 1/1024, so that
every score is an exact rational: no float decides, and the bound holds to the last digit.

**Costs.** Every choice and every count is paid from the amount that was charged in advance. What each of them costs is
known before it is made, from public facts and earlier releases. A ledger's filter allows costs that are chosen in
this way (`curves.filters`), and the sum stays within the charge, whatever is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable.ledger import Budget, Cost
from deniable.mechanisms import Exponential
from deniable.queries.answer.release import Released, release
from deniable.queries.answer.shared_measurements import Measurement
from deniable.queries.plan.noise_families import MARGIN, family_of
from deniable.queries.plan.noise_planner import Noise, NoisePlan, noise, noise_cost
from deniable.queries.synthetic.synthetic_table import noisy_marginal, placed
from deniable.synth import Marginal, Mixture, fit
from deniable.synth.marginals import total
from deniable.synth.mixture import MOST_WORK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable.queries.relations.exact_statistics import Collect
    from deniable.queries.synthetic.synthesis_request import Synthesis

_FOR_CHOICES: Final = Fraction(1, 10)
"""The share of choices in the cost of choices and chosen counts."""
_ROUNDS: Final = 4
"""The number of rounds of "adaptive", if each changes the fit by more than its noise. A round chooses one table less
than there are columns.
"""
_NOISE_KEPT: Final = 0.3
"""The part of a count's noise that is expected to stay in the fit, and that is subtracted in a score. AIM subtracts all
of it; a mixture removes most. On ten columns of Adult, two-way errors were 0.136, 0.096 and 0.100 at ε = 0.1 if all,
three tenths or nothing was subtracted, and 0.038 and 0.032 at ε = 1 with all and three tenths (one run each)."""
_STEP: Final = 1024
"""Fitted counts are rounded to multiples of 1/_STEP."""
_MOST_ROWS: Final = 2.0**40
"""The most rows in fitted counts, so that sums of distances fit into 63 bits."""
_FIT_WORK: Final = MOST_WORK / _ROUNDS
"""The most work of a fit between rounds; all of them together take at most as long as the last fit."""
_SHRINKS: Final = 40


@lru_cache(maxsize=256)
def affordable_choice(budget: Budget, units: int, sensitivity: int) -> Exponential:
    """The exponential mechanism that these units of a budget pay for, by its certified price."""
    epsilon, shrink = budget.accounting.choice_epsilon(units) * MARGIN, Fraction(1, 2**40)
    for _ in range(_SHRINKS):
        made = Exponential(sensitivity=sensitivity, epsilon=epsilon)
        if budget.price(made.curve).units <= units:
            return made
        epsilon, shrink = epsilon * (1 - shrink), 2 * shrink
    raise AssertionError("the choice costs more than was charged")


def in_order(collect: Collect, collected: Sequence[Mapping[Any, Any]]) -> NDArray[np.int64]:
    """Exact counts, the only ones that were collected, in the order of their public groups."""
    [counts] = collected
    assert collect.known is not None
    return np.array([int(counts[group][0]) for group in collect.known], dtype=np.int64)


@final
@dataclass(frozen=True, slots=True)
class SelectionPlan:
    """The amount for choices and chosen counts, and the tables to choose from. Made before any data is read."""

    asked: Synthesis
    budget: Budget
    plans: tuple[NoisePlan, ...]
    """The plan of the count by each candidate."""
    units: int

    @property
    def is_tree(self) -> bool:
        """Whether a spanning tree of pairs is chosen ("mst"), not tables in rounds ("adaptive")."""
        return self.asked.counting.is_tree

    @property
    def at_once(self) -> int:
        """The number of choices in one round: one less than there are columns, or all tables if they are fewer."""
        return min(len(self.asked.columns) - 1, len(self.plans))

    @property
    def most(self) -> int:
        """The most tables that are chosen."""
        return self.at_once * (1 if self.is_tree else _ROUNDS)

    @property
    def sensitivity(self) -> int:
        """Δ of the scores: the largest L1 sensitivity of a count."""
        return max(each.parts[0].moves.l1 for each in self.plans)

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise in a cell of a chosen table; of a tree, if all tables cost the same."""
        _, counting = self.divided(self.units // self.most)
        return float(noise(self.plans[0], self.budget, Cost(counting)).deviation(0))

    @property
    def is_affordable(self) -> bool:
        """Whether every choice and every count gets some of the cost, however they turn out."""
        choosing, counting = self.divided(self.units // self.most)
        return min(choosing, counting if not self.is_tree else self._least_of_tree()) > 0

    def check(self) -> None:
        """Make the noise of the cheapest choice and of the cheapest count of each table, as they can occur.

        If such noise is impossible, its error is raised here, before anything is charged. Every later choice and count
        pays at least as much, so its noise is possible as well.
        """
        choosing, counting = self.divided(self.units // self.most)
        affordable_choice(self.budget, choosing, self.sensitivity)
        least = self._least_of_tree() if self.is_tree else counting
        for each in self.plans:
            self.noise(each, least)

    def _least_of_tree(self) -> int:
        """The least units that the count of a pair of a tree can get."""
        sizes = sorted(self._weight(place) for place in range(len(self.plans)))
        whole = self.units - self.at_once * self.divided(self.units // self.most)[0]
        others = sum(sizes[len(sizes) - self.at_once + 1 :])
        return math.floor(whole * sizes[0] / (sizes[0] + others))

    @staticmethod
    def divided(units: int) -> tuple[int, int]:
        """(units of a choice, units of the count of the chosen table)."""
        choosing = math.floor(units * _FOR_CHOICES)
        return choosing, units - choosing

    def _weight(self, place: int) -> int:
        """Counts of a tree share their cost in proportion to the square root of their cells."""
        return math.isqrt(10**6 * math.prod(self.asked.sizes[i] for i in self.asked.candidates[place]))

    def noise(self, plan: NoisePlan, units: int) -> Noise:
        """The noise of a count that these units pay for."""
        drawn = noise(plan, self.budget, Cost(units))
        if not noise_cost(drawn, self.budget).units <= units:
            raise AssertionError("the noise costs more than was charged")
        return drawn

    def tree_units(self, chosen: Sequence[int], units: int) -> list[int]:
        """The units that the count of each chosen pair of a tree costs."""
        weights = [self._weight(place) for place in chosen]
        return [units * each // sum(weights) for each in weights]


@final
class TableSelection:
    """The choice of tables in progress. It keeps exact counts, but releases only choices and noisy counts."""

    def __init__(
        self, plan: SelectionPlan, single: Sequence[Marginal], exact: Sequence[NDArray[np.int64]], mark: str
    ) -> None:
        self._plan, self._exact, self._mark, self._left = plan, exact, mark, plan.units
        self._known = list(single)
        self.chosen: list[tuple[int, ...]] = []
        self.counted_by: list[NoisePlan] = []
        """The plan of the count by each chosen table."""
        self.released: list[Released] = []

    def run(self) -> None:
        """Choose and count until the amount is spent."""
        if self._plan.is_tree:
            self._grow_tree()
        else:
            self._adapt()

    def _grow_tree(self) -> None:
        plan = self._plan
        choosing, _ = plan.divided(plan.units // plan.most)
        scores = self._scores(self._fitted(), range(len(plan.plans)), 0.0)
        parts, found = list(range(len(plan.asked.columns))), []  # for each column, the tree of the forest that it is in
        for _ in range(plan.at_once):
            apart = [i for i, (one, two) in enumerate(plan.asked.candidates) if parts[one] != parts[two]]
            place = self._choose(scores, apart, choosing)
            found.append(place)
            one, two = plan.asked.candidates[place]
            parts = [parts[one] if each == parts[two] else each for each in parts]
        for place, units in zip(found, plan.tree_units(found, self._left), strict=True):
            self._count(place, units)

    def _adapt(self) -> None:
        plan, model = self._plan, self._fitted()
        each = plan.units // plan.most
        while True:
            # If less than one and a half rounds' cost is left, this round is the last, and takes all of it.
            is_last = 2 * self._left < 3 * each * plan.at_once
            choosing, counting = plan.divided(self._left // plan.at_once if is_last else each)
            deviation = float(plan.noise(plan.plans[0], counting).deviation(0))
            scores, rest = self._scores(model, range(len(plan.plans)), deviation), list(range(len(plan.plans)))
            found = []
            for _ in range(plan.at_once):
                found.append(self._choose(scores, rest, choosing))
                rest.remove(found[-1])
            for place in found:
                self._count(place, counting)
            if is_last:
                return
            before, model = model, self._fitted()
            if self._changed(before, model, found, deviation) <= 1:
                each *= 2

    def _fitted(self) -> Mixture:
        return fit(self._plan.asked.sizes, self._known, fits=1, work=_FIT_WORK)

    def _scores(self, model: Mixture, places: Iterable[int], deviation: float) -> list[Fraction]:
        """The score of each table, exactly."""
        plan = self._plan
        rows = min(total(self._known), _MOST_ROWS)
        found = []
        for place in places:
            columns = plan.asked.candidates[place]
            shares = np.nan_to_num(model.marginal(*columns), posinf=0.0, neginf=0.0)
            fitted = np.rint(shares * (rows * _STEP)).astype(np.int64)
            known = plan.plans[place].collect.known
            assert known is not None
            counts = placed(plan.asked, columns, zip(known, self._exact[place].tolist(), strict=True)).astype(np.int64)
            distance = Fraction(int(np.abs(counts * _STEP - fitted).sum()), _STEP)
            expected = Fraction(_NOISE_KEPT * self._expected_noise(place, deviation))
            found.append(plan.asked.weights[place] * (distance - expected))
        return found

    def _expected_noise(self, place: int, deviation: float) -> float:
        """The expected sum of absolute noise in a table."""
        cells = math.prod(self._plan.asked.sizes[i] for i in self._plan.asked.candidates[place])
        return family_of(self._plan.budget).mean_distance(deviation) * cells

    def _changed(self, before: Mixture, after: Mixture, places: Sequence[int], deviation: float) -> float:
        """By how much the fit of these tables changed, relative to the noise of their counts: the mean."""
        rows, found = total(self._known), []
        for place in places:
            columns = self._plan.asked.candidates[place]
            moved = float(np.abs(after.marginal(*columns) - before.marginal(*columns)).sum()) * rows
            found.append(moved / max(self._expected_noise(place, deviation), 1e-9))
        return float(np.mean(found))

    def _spend(self, units: int) -> None:
        if not 0 < units <= self._left:
            raise AssertionError("the choices cost more than was charged")
        self._left -= units

    def _choose(self, scores: Sequence[Fraction], places: Sequence[int], units: int) -> int:
        """One of these tables, by the exponential mechanism."""
        self._spend(units)
        drawn = affordable_choice(self._plan.budget, units, self._plan.sensitivity)
        return places[drawn.release([scores[place] for place in places])]

    def _count(self, place: int, units: int) -> None:
        """Count by a chosen table, with noise."""
        self._spend(units)
        plan, columns = self._plan.plans[place], self._plan.asked.candidates[place]
        assert plan.collect.known is not None
        counts: dict[Any, Any] = {
            group: (number,) for group, number in zip(plan.collect.known, self._exact[place].tolist(), strict=True)
        }
        found = release(plan, self._plan.noise(plan, units), Cost(units), counts)
        self.released.append(replace(found, measured=(Measurement(self._mark, Cost(units)),)))
        self.chosen.append(columns)
        self.counted_by.append(plan)
        self._known.append(noisy_marginal(self._plan.asked, columns, plan, self.released[-1], self._plan.budget))
