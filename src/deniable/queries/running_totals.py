"""Noise for running totals over days that arrive one by one. All totals cost one payment; their error grows slowly.

`TotalsNoise.step` is one of the three places where exact numbers meet noise; `answer.release` names them.

Let x_t be an exact statistic of step t (a count or sum of one group), and R the most that one person moves all steps
and groups together, in L1. With independent noise on every x_t, a sum of t steps has t times the variance of one step.

**Gaussian budgets.** Let f be the coefficients of (1 - x)^(-1/2), rounded to integers, and C the lower triangular
matrix with f on its diagonals. Step t releases y_t = (C·x)_t + z_t with independent noise. A person moves C·x by at
most R·‖f‖₂ in L2 (the triangle inequality over steps and groups), so σ = R‖f‖₂/μ makes all y together μ-GDP, also if
later data depend on earlier answers (Denisov, McMahan, Rush, Smith & Thakurta 2022, Theorem 2.1: C is lower
triangular). The total is Σ_k b_{t-k} y_k, where b are the coefficients of A·C⁻¹. Its standard deviation is about
(1 + log(T)/π)·R/μ, after a year 2.9 R/μ; a sum of 365 days with independent noise has √365 = 19 R/μ.

**Pure budgets.** Write t in base b. A block of level j has b^j steps. Step t closes one block; its level is the
position of the last digit of t that is not 0, from 0. Each row is in at most one block of each of the L levels, so each
level gets ε/L. The total after step t is a sum of blocks, and their number is the sum of the digits of t. b and L
minimise the mean variance over T steps; for a year b = 20 and L = 2. (Chan, Shi & Song 2011 have b = 2. For less than
2,000 steps this is worse than adding up single days.)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, reduce
from operator import mul
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable import arguments
from deniable.arguments import NumberRange
from deniable.ledger import Cost
from deniable.ledger.currency import Shape
from deniable.mechanisms.prefix_sums import MOST_CELLS, GaussianPrefixSums
from deniable.noise.entropy import checked_entropy
from deniable.queries.answer.release import LARGEST, Draw, Released, at_precision, exact_numbers, precise
from deniable.queries.plan.noise_families import FAMILIES, MARGIN
from deniable.queries.plan.noise_planner import pairs, shares, unthresholded

if TYPE_CHECKING:
    from deniable.ledger import Budget
    from deniable.mechanisms import Mechanism
    from deniable.noise import Entropy
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.queries.relations.exact_statistics import Group

_STEPS: Final = NumberRange(
    f"must be the largest number of days that will be answered: a whole number from 2 to {MOST_CELLS:,}",
    least=2,
    most=MOST_CELLS,
)

Step = tuple[list[list[int]], list[list[int]]]
"""(exact numbers, noisy numbers) of a step; both are indexed by part of the plan, then by group."""


def checked_steps(totals: Any) -> int:
    """The number of days to pay for; InvalidParameter if it is not an integer from 2 to `MOST_CELLS`."""
    return arguments.python_int("totals", totals, _STEPS)


@lru_cache(maxsize=64)
def blocks(steps: int) -> tuple[int, int]:
    """(b, L): the base and the number of levels of the blocks under a pure budget. If L is 1, blocks are single steps.

    >>> blocks(365), blocks(7)
    ((20, 2), (8, 1))
    """
    found = []
    for levels in range(1, steps.bit_length() + 1):
        base = 2
        while base**levels <= steps:
            base += 1
        variance = levels**2 * sum(_digits(t, base) for t in range(1, steps + 1))
        found.append((variance, base, levels))
    _, base, levels = min(found)
    return base, levels


def _digits(step: int, base: int) -> int:
    """The sum of the digits of a number in this base."""
    total = 0
    while step:
        step, digit = divmod(step, base)
        total += digit
    return total


class TotalsNoise(ABC):
    """The noise of the running totals of one question over at most `steps` steps, at one cost for all of them."""

    _made: Sequence[Mechanism]
    """The mechanism of each part of the plan."""

    def __init__(self, plan: NoisePlan, budget: Budget, cost: Cost, steps: int) -> None:
        self._plan, self._budget, self._cost, self._steps = plan, budget, cost, steps
        self._prepare()
        if not self.cost.units <= cost.units:
            raise AssertionError("the noise costs more than was charged")

    @abstractmethod
    def _prepare(self) -> None:
        """Make the mechanisms for `self._cost`."""

    @property
    @abstractmethod
    def cost(self) -> Cost:
        """The cost of all steps together, computed from the curves of the noise; at most the cost that was charged."""

    @abstractmethod
    def draw(self, count: int) -> Draw:
        """The noise in the total after `count` steps, as a number (`cells`) of independent draws at one cost."""

    @abstractmethod
    def deviations(self) -> list[float]:
        """The standard deviation of the noise in the total of the first part, after step 1, 2, and so on."""

    @abstractmethod
    def _row(self, count: int) -> list[int]:
        """The weights of the first `count` steps in the number that gets noise at the last of them."""

    @abstractmethod
    def _drawn(self, mechanism: Mechanism, groups: int, source: Entropy | None) -> list[int]:
        """The noise of one step for each group."""

    @abstractmethod
    def _total(self, noisy: Any) -> Any:
        """The totals of all groups, from the noisy numbers of all steps (one row for each step)."""

    def _price(self) -> Cost:
        """The cost of one draw of every mechanism, from the curves. A sum and its count that are drawn together (a
        pair) have one curve.
        """
        seconds = {pair.count for pair in pairs(self._plan, self._budget)}
        return self._budget.price(reduce(mul, (each.curve for i, each in enumerate(self._made) if i not in seconds)))

    def step(self, before: Sequence[Step], counts: Mapping[Group, Any], entropy: Entropy | None = None) -> Step:
        """Draw the noise of the next step. `before` has the earlier steps, oldest first; `counts` the exact statistics.

        The exact numbers in the result are private: later steps need them, and no answer may contain them.
        """
        source, plan, place = checked_entropy(entropy), self._plan, len(before)
        assert place < self._steps
        groups = plan.collect.known
        assert groups is not None
        exact, noisy = [], []
        for index, mechanism in enumerate(self._made):
            now = exact_numbers(plan, self._budget, index, groups, counts)
            summed = self._combined([*(each[0][index] for each in before), now], place + 1)
            added = self._drawn(mechanism, len(groups), source)
            exact.append(now)
            noisy.append([a + b for a, b in zip(summed, added, strict=True)])
        return exact, noisy

    def _combined(self, steps: list[list[int]], count: int) -> list[int]:
        """The exact numbers that get noise at the last of these `count` steps."""
        row = self._row(count)
        return [sum(a * b for a, b in zip(row, each, strict=True)) for each in zip(*steps, strict=True)]

    def released(self, steps: Sequence[Step]) -> Released:
        """The released totals after these steps, oldest first. They are computed from the noisy numbers alone."""
        plan, count = self._plan, len(steps)
        assert plan.collect.known is not None
        parts = tuple(
            self._total(np.array([noisy[index] for _, noisy in steps], dtype=object))
            for index in range(len(plan.parts))
        )
        draw, units, groups = self.draw(count), self.as_one(count).units, plan.collect.known
        return Released(
            groups, parts, self._cost, Cost(units), (units,) * len(groups), draws=(draw,),
            paired=bool(pairs(plan, self._budget)),
        )  # fmt: skip

    def as_one(self, count: int) -> Cost:
        """The cost at which a single question is as exact as the total after `count` steps."""
        draw = self.draw(count)
        return Cost(at_precision(precise(draw.cost.units, self._budget) / draw.cells, self._budget))


@final
class GaussianTotals(TotalsNoise):
    """Noise on the rows of C·x, shared by all totals."""

    _made: Sequence[GaussianPrefixSums]

    def _prepare(self) -> None:
        currency, level = self._budget.accounting, self._budget.level_down(self._cost) * MARGIN
        family, made = FAMILIES[currency.shape], []
        for part, weight in zip(self._plan.parts, shares(self._plan, self._budget), strict=True):
            mechanism = family.mechanism(self._steps, part.moves, weight, currency, level)
            assert isinstance(mechanism, GaussianPrefixSums)
            made.append(mechanism)
        self._made = made

    @property
    def cost(self) -> Cost:
        return self._price()

    def draw(self, count: int) -> Draw:
        """The noise in the total after `count` steps: one draw, at the cost at which a single question has the same
        standard deviation. If this cost differs between the parts of the plan, the lowest one is returned.
        """
        worst = max(
            (Fraction(float(made.spreads[count - 1])) / Fraction(one)) ** 2 if (one := alone.spread(i)) else Fraction(1)
            for alone in (unthresholded(self._plan, self._budget, self._cost.units),)
            for i, made in enumerate(self._made)
        )
        return Draw(Cost(math.floor(self._cost.units / worst)))

    def deviations(self) -> list[float]:
        return [float(each) for each in self._made[0].spreads]

    def _row(self, count: int) -> list[int]:
        return [int(each) for each in GaussianPrefixSums.matrices(self._steps)[0][count - 1, :count]]

    def _drawn(self, mechanism: Mechanism, groups: int, source: Entropy | None) -> list[int]:
        assert isinstance(mechanism, GaussianPrefixSums)
        return [int(each) for each in mechanism.noise.draw((groups,), source).tolist()]

    def _total(self, noisy: Any) -> Any:
        count = len(noisy)
        back = GaussianPrefixSums.matrices(self._steps)[1][count - 1, :count]
        return np.asarray(back @ noisy.astype(np.float64))


@final
class LaplaceTotals(TotalsNoise):
    """Noise on the sums of blocks of steps: ε/L for each of the L levels, at one of which every row is counted."""

    _made: Sequence[Any]

    def _prepare(self) -> None:
        self._base, self._levels = blocks(self._steps)
        self._each = Cost(self._cost.units // self._levels)
        self._made = unthresholded(self._plan, self._budget, self._each.units).mechanisms

    @property
    def cost(self) -> Cost:
        return Cost(self._price().units * self._levels)

    def draw(self, count: int) -> Draw:
        return Draw(self._each, _digits(count, self._base))

    def deviations(self) -> list[float]:
        one = unthresholded(self._plan, self._budget, self._each.units).spread(0)
        return [one * math.sqrt(_digits(t, self._base)) for t in range(1, self._steps + 1)]

    def _row(self, count: int) -> list[int]:
        size = 1
        while count % (size * self._base) == 0:
            size *= self._base
        return [0] * (count - size) + [1] * size

    def _drawn(self, mechanism: Any, groups: int, source: Entropy | None) -> list[int]:
        return [int(each) for each in mechanism.draw((groups,), source).tolist()]

    def _total(self, noisy: Any) -> Any:
        last, size, total = len(noisy), 1, np.zeros(noisy.shape[1:], dtype=object)
        while last:
            last, digit = divmod(last, self._base)
            for each in range(digit):
                total = total + noisy[(last * self._base + each + 1) * size - 1]
            size *= self._base
        return np.array([max(-LARGEST, min(LARGEST, each)) for each in total.tolist()], dtype=np.int64)


_KINDS: Final[Mapping[Shape, type[TotalsNoise]]] = MappingProxyType(
    {Shape.NORMAL: GaussianTotals, Shape.LAPLACE: LaplaceTotals}
)


def totals_noise(plan: NoisePlan, budget: Budget, cost: Cost, steps: int) -> TotalsNoise:
    """The noise of running totals of the shape that the budget pays for."""
    return _KINDS[budget.accounting.shape](plan, budget, cost, steps)
