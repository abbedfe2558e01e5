"""The best Gaussian noise for several tables: residuals are measured, and the tables are computed from them.

Every table is a sum of residuals P_A x_A (see `table_noise`), and residuals of different A are orthogonal. Noise of
standard deviation σ_A in the residual A adds σ_A² p_A / n_{S∖A}² to the variance of each cell of every table S that
has the columns A, with p_A = Π_{i∈A} (1 - 1/n_i). One row changes the residual by p_A in squared L2, so it costs
μ_A² = p_A / σ_A². With weights w_S of the tables' cells the sum of variances is Σ_A v_A σ_A², where

    v_A = Σ_{S⊇A} w_S n_S p_A / n_{S∖A}²,

and by Cauchy-Schwarz it is least, given Σ_A p_A / σ_A² = μ², for σ_A² = √(p_A / v_A) · Σ_B √(v_B p_B) / μ²:

    least sum = (Σ_A √(v_A p_A))² / μ².

No other Gaussian noise, on residuals or not, has a smaller sum: a theorem of Xiao, He, Zhang & Kifer (ResidualPlanner,
NeurIPS 2023).

**Integers.** Noise is drawn on integers. P x is not an integer, but n_A P x is, with n_A = Π_{i∈A} n_i, and one row
changes it by n_A² p_A = Π n_i (n_i - 1) in squared L2. Rounded Gaussian noise of width n_A σ_A is added to it, and then
averages are subtracted again, which is post-processing. (Adding rounded noise to x_A and subtracting averages
afterwards costs more: rounding must come after the sum, and the sum changes by 1, not by p_A.)

**People.** A person whose rows add up to at most K in absolute value changes residuals most if all rows are in one
cell, because a convex function is largest at a corner: by K² p_A. Replacing a person takes K out of a cell a and adds K
to a cell b; the residual A then changes by K² ‖P_A (e_b - e_a)‖², which depends on the columns in which a and b differ.
All residuals change together, so the cost is the maximum over these sets of columns, not the sum of the maxima.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np

from deniable.errors import InvalidParameter
from deniable.synth.table_noise import Columns, size_of, subsets

_MOST_PATTERNS: Final = 8
"""The most columns for which all sets of columns in which two cells may differ are tried."""
_ROUNDS: Final = 2000
_FEWER: Final = 100
"""The number of rounds while the weights still change."""
_NEAR: Final = 1e-10


@final
class Exchange(Enum):
    """How neighbouring tables differ: a person is added, or replaced, with contributions of one sign or of both."""

    ADDED = "added or removed"
    REPLACED = "replaced, and all that rows add has one sign"
    REPLACED_SIGNED = "replaced, with either sign"


Moved = Mapping[Columns, Fraction]
"""The change of each residual in squared L2 for K = 1, for one way in which neighbours differ."""


@final
@dataclass(frozen=True, slots=True)
class Workload:
    """The tables to measure. `sizes` are the numbers of values of the columns, `tables` the columns of each table, and
    `weights` the weight of one cell of each table.
    """

    sizes: tuple[int, ...]
    tables: tuple[Columns, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.tables or len(self.tables) != len(self.weights):
            raise InvalidParameter("tables", len(self.tables), "must be at least one, each with a weight")
        if any(n < 1 for n in self.sizes):
            raise InvalidParameter("sizes", self.sizes, "must be at least 1")
        if any(not (math.isfinite(w) and w > 0) for w in self.weights):
            raise InvalidParameter("weights", self.weights, "must be finite and above 0")
        for each in self.tables:
            if list(each) != sorted(set(each)) or any(not 0 <= i < len(self.sizes) for i in each):
                raise InvalidParameter("tables", each, "must be different columns, in increasing order")

    @property
    def residuals(self) -> tuple[Columns, ...]:
        """The residuals to measure: every subset of a table's columns, without columns of one value."""
        return _residuals(self.sizes, self.tables)

    def needs(self) -> dict[Columns, float]:
        """v_A: how much the weighted sum of variances grows with σ_A²."""
        found = dict.fromkeys(self.residuals, 0.0)
        for table, weight in zip(self.tables, self.weights, strict=True):
            for residual, by in self.spread(table).items():
                found[residual] += weight * size_of(self.sizes, table) * by
        return found

    def spread(self, table: Columns) -> Mapping[Columns, float]:
        """By how much the variance of a cell of a table grows with each σ_A²: p_A / n_{S∖A}²."""
        return _spread(self.sizes, table)


@lru_cache(maxsize=1024)  # many rounds of weights ask for the same tables
def _spread(sizes: tuple[int, ...], table: Columns) -> Mapping[Columns, float]:
    kept = [i for i in table if sizes[i] > 1]
    found = {
        a: float(moved_by_row(sizes, a)) / size_of(sizes, [i for i in table if i not in a]) ** 2 for a in subsets(kept)
    }
    return MappingProxyType(found)


@lru_cache(maxsize=256)
def _residuals(sizes: tuple[int, ...], tables: tuple[Columns, ...]) -> tuple[Columns, ...]:
    found = {a for table in tables for a in subsets([i for i in table if sizes[i] > 1])}
    return tuple(sorted(found, key=lambda a: (len(a), a)))


def moved_by_row(sizes: Sequence[int], residual: Columns) -> Fraction:
    """p_A: the squared L2 norm of the change of the residual by one row.

    >>> moved_by_row([20, 10, 2], (0, 2))
    Fraction(19, 40)
    """
    return math.prod((Fraction(sizes[i] - 1, sizes[i]) for i in residual), start=Fraction(1))


def whole(table: Any) -> Any:
    """n_A P x for an array x of integers with an axis for each column, as exact integers."""
    for axis in range(table.ndim):
        table = table * table.shape[axis] - table.sum(axis=axis, keepdims=True)
    return table


def moves(sizes: tuple[int, ...], residuals: tuple[Columns, ...], exchange: Exchange) -> tuple[Moved, ...]:
    """All ways in which residuals can change together that may be the worst case, for K = 1."""
    once: Moved = {a: moved_by_row(sizes, a) for a in residuals}
    if exchange is Exchange.ADDED:
        return (once,)
    if exchange is Exchange.REPLACED_SIGNED:
        return ({a: 4 * p for a, p in once.items()},)
    columns = sorted({i for a in residuals for i in a})
    if len(columns) > _MOST_PATTERNS:  # the worst case of each residual separately: an upper bound
        return ({a: max(once[a], *(_replaced(sizes, a, d, once[a]) for d in subsets(a))) for a in residuals},)
    return once, *({a: _replaced(sizes, a, d, once[a]) for a in residuals} for d in subsets(columns) if d)


def _replaced(sizes: Sequence[int], residual: Columns, differs: Columns, once: Fraction) -> Fraction:
    """‖P_A (e_b - e_a)‖² for cells that differ in these columns: 2 p_A - 2 Π ([a_i = b_i] - 1/n_i)."""
    common = Fraction(1)
    for i in residual:
        common *= Fraction(-1, sizes[i]) if i in differs else Fraction(sizes[i] - 1, sizes[i])
    return 2 * (once - common)


def cost(moved: Sequence[Moved], precisions: Mapping[Columns, Any]) -> Any:
    """μ² at these 1/σ_A², for K = 1, by the worst case in `moved`. Exact if the precisions are."""
    return max(sum(by[a] * precisions[a] for a in precisions) for by in moved)


def best(workload: Workload, exchange: Exchange = Exchange.ADDED) -> dict[Columns, float]:
    """1/σ_A² with the least weighted sum of variances at μ = 1 and K = 1.

    >>> six = ((0, 1, 2), (0, 1), (0,), (1,), (2,), ())
    >>> workload = Workload((20, 10, 2), six, (1.0,) * 6)
    >>> round(variance_sum(workload, best(workload)), 2)
    1173.9
    """
    needs = workload.needs()
    return _best(needs, moves(workload.sizes, workload.residuals, exchange))


def _best(needs: Mapping[Columns, float], moved: Sequence[Moved], rounds: int = _ROUNDS) -> dict[Columns, float]:
    """With several ways to change, the dual problem is solved: for a mixture λ of them the closed form holds with the
    mean of p_A, and the value (Σ √(v_A p_A(λ)))² is concave in λ. Its gradient has the costs of the ways, so ways with
    a higher cost get more weight. The result is scaled to cost 1 in the worst case.
    """
    residuals = list(needs)
    need = np.array([needs[a] for a in residuals])
    ways = np.array([[float(by[a]) for a in residuals] for by in moved])
    mixture = np.full(len(moved), 1 / len(moved))
    least, found = math.inf, need
    for _ in range(rounds if len(moved) > 1 else 1):
        tried = np.sqrt(need / (mixture @ ways))
        costs = ways @ tried
        worst, middle = float(costs.max()), float(mixture @ costs)
        value = worst * float((need / tried).sum())
        if value < least:
            least, found = value, tried / worst
        if worst <= middle * (1 + _NEAR):
            break
        mixture = mixture * costs / middle
    return dict(zip(residuals, found.tolist(), strict=True))


def fair(workload: Workload, limits: Sequence[float], exchange: Exchange = Exchange.ADDED) -> dict[Columns, float]:
    """1/σ_A² with the least weighted sum of variances at μ = 1 and K = 1 such that no table has a larger variance than
    its limit. The limit of a table is its variance if it is measured alone, with an equal share of μ².

    Such noise always exists. If each table S is measured alone, with variance limit_S in each cell, it determines the
    residual A with precision 1/(limit_S n_{S∖A}), and the least-squares fit to all tables has the precisions
    τ_A = Σ_{S⊇A} 1/(limit_S n_{S∖A}). Measuring residuals with these precisions costs no more than measuring the
    tables, because Σ_{A⊆S} ‖P_A d_A‖² / n_{S∖A} = ‖d_S‖² for every change d by a person, and a least-squares fit has
    nowhere a larger variance than the measurement. So τ is feasible.

    The search: solve `best` with weights that are raised for every table above its limit. Variances are convex in the
    precisions, so some mixture of that solution and of τ is within all limits; the one closest to the solution is kept.
    """
    residuals, sizes = workload.residuals, workload.sizes
    spreads = [workload.spread(table) for table in workload.tables]
    moved = moves(sizes, residuals, exchange)
    inside = _equal(workload, limits)
    inside /= float(cost(moved, dict(zip(residuals, inside.tolist(), strict=True))))
    by = np.array([[spread.get(a, 0.0) for a in residuals] for spread in spreads]) / np.array(limits)[:, None]
    first = np.array(workload.weights)
    cells = np.array([size_of(sizes, table) for table in workload.tables]) * np.array(limits)
    needs = (first * cells) @ by
    enough = max(1.0, float((by @ (1 / inside)).max()))
    weights, found = first, inside
    for _ in range(_FEWER):
        need = dict(zip(residuals, ((weights * cells) @ by).tolist(), strict=True))
        shape = np.array(list(_best(need, moved, _FEWER).values()))
        low, high = (0.0, 0.0) if float((by @ (1 / shape)).max()) <= enough else (0.0, 1.0)
        while high - low > 1e-9:  # the smallest admixture of the feasible solution
            middle = (low + high) / 2
            fits = float((by @ (1 / (shape + middle * (inside - shape)))).max()) <= enough
            low, high = (low, middle) if fits else (middle, high)
        tried = shape + high * (inside - shape)
        if needs @ (1 / tried) < needs @ (1 / found):
            found = tried
        raised = np.maximum(first, weights * (by @ (1 / shape)))
        if float(np.abs(raised / weights - 1).max()) < 1e-6:
            break
        weights = raised
    return dict(zip(residuals, found.tolist(), strict=True))


def variance(workload: Workload, table: Columns, precisions: Mapping[Columns, float]) -> float:
    """The variance of each cell of a table."""
    return math.fsum(by / precisions[a] for a, by in workload.spread(table).items())


def variance_sum(workload: Workload, precisions: Mapping[Columns, float]) -> float:
    """The weighted sum of the variances of all cells."""
    return math.fsum(need / precisions[a] for a, need in workload.needs().items())


UNTARGETED: Final = 1e-6
"""The weight of a table without a target, relative to the smallest weight of the others, whatever the targets are
counted in. Such a table gets about a thousandth of the cost under a Gaussian budget, a hundredth under a pure one."""


def least(
    sizes: tuple[int, ...],
    tables: tuple[Columns, ...],
    targets: Sequence[float | None],
    exchange: Exchange = Exchange.ADDED,
) -> tuple[Workload, dict[Columns, float]]:
    """(the workload with its weights, the precision of each residual) of the least μ² at which each table meets its
    target variance, for K = 1. A target of None means that the table has no target.

    The weights of `best` are the multipliers of the targets: they grow for tables above their target and shrink for
    tables below. The result is scaled so that every target is met.
    """
    given = [(place, each) for place, each in enumerate(targets) if each is not None]
    if not given:
        raise InvalidParameter("targets", "none", "at least one table needs one")
    weights = [UNTARGETED / (size_of(sizes, table) * max(target for _, target in given)) for table in tables]
    for place, target in given:
        weights[place] = 1 / (size_of(sizes, tables[place]) * target)
    found: tuple[float, Workload, dict[Columns, float]] | None = None
    workload = Workload(sizes, tables, tuple(weights))
    moved = moves(sizes, workload.residuals, exchange)
    for _ in range(_ROUNDS // 4):
        workload = Workload(sizes, tables, tuple(weights))
        shape = _best(workload.needs(), moved, _FEWER)
        over = [variance(workload, tables[place], shape) / target for place, target in given]
        scale = max(over)
        if found is None or scale < found[0]:
            found = scale, workload, {a: t * scale for a, t in shape.items()}
        slack = math.fsum(weights[p] * size_of(sizes, tables[p]) * t * o for (p, t), o in zip(given, over, strict=True))
        whole_weight = math.fsum(weights[p] * size_of(sizes, tables[p]) * t for p, t in given)
        if scale <= slack / whole_weight * (1 + 1e-7):  # all tables with weight are equally close to their targets
            break
        for (place, target), each in zip(given, over, strict=True):
            low = 1e-9 / (size_of(sizes, tables[place]) * target)
            weights[place] = max(weights[place] * each / scale, low)
    assert found is not None
    return found[1], found[2]


_ALONE: Final = {Exchange.ADDED: 1, Exchange.REPLACED: 2, Exchange.REPLACED_SIGNED: 4}
"""The square of the L2 sensitivity of a table with several cells, for K = 1."""


def simple(workload: Workload, limits: Sequence[float], exchange: Exchange = Exchange.ADDED) -> list[float]:
    """The smaller variance of a cell of each table by the two simple splits at μ = 1 and K = 1: every table measured
    alone, with an equal share of μ² (`limits`); or the finest table measured alone and added up.
    """
    whole = size_of(workload.sizes, sorted({i for table in workload.tables for i in table}))
    alone = 1 if exchange is Exchange.REPLACED and whole == 1 else _ALONE[exchange]  # a total moves once
    sums = [alone * (whole // size_of(workload.sizes, table)) for table in workload.tables]
    return [float(min(limit, each)) for limit, each in zip(limits, sums, strict=True)]


def closest(workload: Workload, limits: Sequence[float], exchange: Exchange = Exchange.ADDED) -> dict[Columns, float]:
    """1/σ_A² at μ = 1 and K = 1 whose largest ratio of a table's variance to `simple` is minimal.

    By `least` to 1e-7 if rows are added or removed, and within 1 % if they are replaced. Neither simple split has a
    smaller ratio: the precisions that they give are compared.
    """
    residuals, sizes = workload.residuals, workload.sizes
    goals = simple(workload, limits, exchange)
    columns = sorted({i for table in workload.tables for i in table})
    white = {a: 1 / size_of(sizes, [i for i in columns if i not in a]) for a in residuals}
    equal = dict(zip(residuals, _equal(workload, limits).tolist(), strict=True))
    moved = moves(sizes, residuals, exchange)
    found = []
    for shape in (least(sizes, workload.tables, goals, exchange)[1], white, equal):
        scale = float(cost(moved, shape))
        tried = {a: each / scale for a, each in shape.items()}
        ratio = max(variance(workload, table, tried) / goal for table, goal in zip(workload.tables, goals, strict=True))
        found.append((ratio, tried))
    return min(found, key=lambda each: each[0])[1]


def _equal(workload: Workload, limits: Sequence[float]) -> Any:
    """For each residual A, the precision τ_A of the fit to tables that are measured separately, with the variances
    `limits`.
    """
    return np.array(
        [
            math.fsum(
                1 / (limit * size_of(workload.sizes, [i for i in table if i not in a]))
                for table, limit in zip(workload.tables, limits, strict=True)
                if set(a) <= set(table)
            )
            for a in workload.residuals
        ]
    )
