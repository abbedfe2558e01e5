"""The noise of several tables under pure ε: which tables are measured, and the share of ε of each.

Measuring residuals does not help here: the cost is by L1 sensitivity, and a row changes all cells of a residual. So
ordinary tables are measured, with Laplace noise of variance s_M in each cell, and all tables are fitted to them by
least squares. A table M contains the residual A (see `table_noise`) in its sums over the other columns, with variance
s_M n_{M∖A} in each cell. The residuals of one measured table are uncorrelated, so the fit merges each residual:

    τ_A = Σ_{M⊇A} 1 / (s_M n_{M∖A}),    variance of a cell of S: Σ_{A⊆S} p_A / (n_{S∖A}² τ_A).

The shares are found by descent from several starts, because the problem is not convex. Simple solutions are among the
candidates, so the result is never worse than any of them in the weighted sum of variances: an equal share for each
requested table, and each single table alone that determines all others (the finest one, if the caller offers it).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from deniable.synth.residual_noise import UNTARGETED, Workload, moved_by_row
from deniable.synth.table_noise import Columns, MeasuredSource, TableNoise, size_of, subsets

_ROUNDS: Final = 400
_STARTS: Final = 8
"""The number of tables, the largest ones, from which a descent starts."""
_SMALLEST: Final = 1e-3
"""A share below this is dropped, if that is better."""
_LEAST: Final = 1e-12
"""The smallest variance, for costs so high that the noise is 0."""

_SEARCHED: Final = 32
"""The most tables for which `fair` searches over all shares. More tables get fewer starts: prices must be fast."""
_CLOSER: Final = 30
"""The number of times `closest` changes its weights."""
_SURE: Final = 1e-7
"""The margin of the search below each limit, larger than its numerical error."""

Variance = Callable[[float], float]
"""The variance of the noise on a count that gets a share of ε."""
Shares = Mapping[Columns, float]
Reach = Mapping[Columns, float]
"""The L1 sensitivity of a table, relative to the others; 1 if missing."""
NOTHING_ELSE: Final[Reach] = MappingProxyType({})


def nominal(share: float) -> float:
    """The variance of Laplace noise at a share of ε = 1, for a count of sensitivity 1."""
    return 2 / share**2


def finest(tables: Sequence[Columns]) -> Columns:
    """The columns of all tables together. Every table is a sum of the table by these columns."""
    return tuple(sorted({i for table in tables for i in table}))


def precisions(workload: Workload, measured: Mapping[Columns, float]) -> dict[Columns, float]:
    """τ_A for tables that were measured with these variances; 0 for a residual that no table contains."""
    found = dict.fromkeys(workload.residuals, 0.0)
    for table, s in measured.items():
        for a in subsets([i for i in table if workload.sizes[i] > 1]):
            if a in found:
                found[a] += 1 / (max(s, _LEAST) * size_of(workload.sizes, [i for i in table if i not in a]))
    return found


def variance_sum(workload: Workload, measured: Mapping[Columns, float]) -> float:
    """The weighted sum of variances after the fit to tables that were measured with these variances."""
    precision = precisions(workload, measured)
    if any(t == 0 for t in precision.values()):
        return math.inf
    return math.fsum(need / precision[a] for a, need in workload.needs().items())


def naive(workload: Workload) -> dict[Columns, float]:
    """An equal share for each table."""
    tables = dict.fromkeys(workload.tables)
    return dict.fromkeys(tables, 1 / len(tables))


def variances(shares: Shares, variance: Variance, reach: Reach) -> dict[Columns, float]:
    """The variance of each measured table, at its share of ε divided by its relative sensitivity."""
    return {table: variance(f / reach.get(table, 1.0)) for table, f in shares.items()}


def best(
    workload: Workload,
    candidates: Sequence[Columns] = (),
    variance: Variance = nominal,
    reach: Reach = NOTHING_ELSE,
) -> dict[Columns, float]:
    """The share of ε of each measured table, among the requested ones and some further candidates.

    Never worse than equal shares, or than one candidate alone, in the weighted sum of variances by `variance`.
    """
    tables = list(dict.fromkeys((*workload.tables, *candidates)))
    starts = [_even(tables, workload.tables), _even(tables, tables)]
    largest = sorted(tables, key=lambda each: -size_of(workload.sizes, each))
    starts += [_even(tables, (each,), rest=0.1) for each in largest[:_STARTS]]
    found = [naive(workload), *({each: 1.0} for each in tables)]
    found += [_descended(workload, tables, np.array(start), reach) for start in starts]
    return min(found, key=lambda shares: variance_sum(workload, variances(shares, variance, reach)))


def fair(
    workload: Workload,
    candidates: Sequence[Columns] = (),
    variance: Variance = nominal,
    reach: Reach = NOTHING_ELSE,
) -> dict[Columns, float]:
    """Like `best`, with no table less precise than it would be alone at an equal share.

    Equal shares are among the candidates: their least-squares fit is nowhere less precise than the measurement. Other
    candidates give one table more than the rest, or come from sequential quadratic programming from several starts, and
    are used only if they meet every limit.
    """
    from scipy.optimize import minimize

    tables = list(dict.fromkeys((*workload.tables, *candidates)))
    equal = naive(workload)
    most = [max(each, _LEAST) for each in variances(equal, variance, reach).values()]
    limits = np.array([most[list(equal).index(table)] for table in workload.tables])
    factors = _precision_factors(workload, tables)
    spreads = [workload.spread(table) for table in workload.tables]
    by = np.array([[each.get(a, 0.0) for a in workload.residuals] for each in spreads]) / limits[:, None]
    needs = np.array(list(workload.needs().values()))

    def precise(shares: Any) -> Any:
        """1/s of each table."""
        each = (variance(max(f, _SMALLEST**2) / reach.get(t, 1.0)) for f, t in zip(shares, tables, strict=True))
        return np.array([1 / max(s, _LEAST) for s in each])

    def slopes(shares: Any) -> Any:
        step = 1e-6
        return (precise(shares + step) - precise(shares)) / step

    def worth(shares: Any) -> float:
        return float(np.log(needs @ (1 / (factors @ precise(shares)))))

    def worth_slopes(shares: Any) -> Any:
        known = factors @ precise(shares)
        return -((needs / known**2) @ factors) * slopes(shares) / (needs @ (1 / known))

    def room(shares: Any) -> Any:
        """The distance of each table to its limit; a solution must not have a negative one."""
        return 1 - by @ (1 / (factors @ precise(shares)))

    def room_slopes(shares: Any) -> Any:
        return ((by / (factors @ precise(shares)) ** 2) @ factors) * slopes(shares)

    limited: Any = [
        {"type": "eq", "fun": lambda f: f.sum() - 1, "jac": np.ones_like},
        {"type": "ineq", "fun": lambda f: room(f) - _SURE, "jac": room_slopes},
    ]
    start = np.array([equal.get(table, 0.0) for table in tables])
    found = [start]
    largest = sorted(range(len(tables)), key=lambda place: -size_of(workload.sizes, tables[place]))
    for place in largest[:_STARTS]:  # more for one table, the same for all others
        one = np.eye(len(tables))[place]
        found += [start + share / 64 * (one - start) for share in range(1, 64)]
    starts = [0.5 * (start + np.eye(len(tables))[place]) for place in largest[: 2 * _SEARCHED // len(tables)]]
    for first in (start, *starts) if len(tables) <= _SEARCHED else ():
        solved: Any = minimize(
            worth, first, jac=worth_slopes, method="SLSQP", bounds=[(0.0, 1.0)] * len(tables), constraints=limited,
            options={"maxiter": 60, "ftol": 1e-9},
        )  # fmt: skip
        near = np.clip(np.nan_to_num(solved.x), 0.0, 1.0)
        found += [each / max(each.sum(), _LEAST) for each in (np.where(near < _SMALLEST, 0.0, near), near)]
    chosen = min((each for each in found if each is start or float(room(each).min()) >= 0), key=worth)
    return {table: float(f) for table, f in zip(tables, chosen, strict=True) if f > 0}


def simple(
    workload: Workload, finest_too: bool, variance: Variance = nominal, reach: Reach = NOTHING_ELSE
) -> list[float]:
    """The smaller variance of a cell of each table by the two simple splits: every table measured alone, with an equal
    share of ε; or, with `finest_too`, the finest table measured alone and added up.
    """
    equal = variances(naive(workload), variance, reach)
    found = [equal[table] for table in workload.tables]
    if not finest_too:
        return found
    whole = finest(workload.tables)
    one = variance(1 / reach.get(whole, 1.0))
    cells = [size_of(workload.sizes, whole) // size_of(workload.sizes, table) for table in workload.tables]
    return [min(limit, one * count) for limit, count in zip(found, cells, strict=True)]


def closest(
    workload: Workload,
    targets: Sequence[float | None],
    candidates: Sequence[Columns] = (),
    variance: Variance = nominal,
    reach: Reach = NOTHING_ELSE,
) -> dict[Columns, float]:
    """Shares of the cost that make the largest ratio of a table's variance to its target as small as the search can. A
    target of None means that the table has no target.

    The weights of `best` are raised for tables above the others in this ratio. Equal shares, and each table alone that
    determines all others, are among the candidates, so neither has a smaller ratio.
    """
    sizes, tables = workload.sizes, workload.tables
    given = [(place, max(each, _LEAST)) for place, each in enumerate(targets) if each is not None]
    weights = [UNTARGETED / (size_of(sizes, table) * max(target for _, target in given)) for table in tables]
    for place, target in given:
        weights[place] = 1 / (size_of(sizes, tables[place]) * target)

    def ratios(shares: Shares) -> list[float]:
        measured = variances(shares, variance, reach)
        if any(t == 0 for t in precisions(workload, measured).values()):  # some table is not determined
            return [math.inf]
        return [cell_variance(workload, tables[place], measured) / target for place, target in given]

    found = [naive(workload), *({each: 1.0} for each in dict.fromkeys((*tables, *candidates)))]
    for _ in range(_CLOSER):
        found.append(best(Workload(sizes, tables, tuple(weights)), candidates, variance, reach))
        over = ratios(found[-1])
        for (place, _), each in zip(given, over, strict=True):
            weights[place] *= max(each / max(over), _LEAST) ** 0.5
    return min(found, key=lambda shares: max(ratios(shares)))


def _precision_factors(workload: Workload, tables: Sequence[Columns]) -> Any:
    """A matrix by residual and table: the factor from the precision of a table to the precision of the residual."""
    return np.array(
        [
            [1 / size_of(workload.sizes, [i for i in t if i not in a]) if set(a) <= set(t) else 0.0 for t in tables]
            for a in workload.residuals
        ]
    )  # fmt: skip


def _even(tables: Sequence[Columns], of: Sequence[Columns], rest: float = 0.01) -> list[float]:
    """Equal shares for the tables `of`, and together about `rest` for the others."""
    chosen = set(of)
    raw = [1.0 if each in chosen else rest / len(tables) for each in tables]
    return [each / sum(raw) for each in raw]


def _descended(workload: Workload, tables: Sequence[Columns], shares: np.ndarray, reach: Reach) -> dict[Columns, float]:
    """Multiplicative steps: at the best shares, those above 0 have equal slopes -∂/∂f = Σ_A v_A/τ_A² · f / n_{M∖A}."""
    needs = workload.needs()
    need = np.array([needs[a] for a in workload.residuals])
    factors = _precision_factors(workload, tables) / np.array([reach.get(t, 1.0) ** 2 for t in tables])

    def worth(f: np.ndarray) -> float:
        with np.errstate(divide="ignore"):
            return float(np.sum(2 * need / (factors @ f**2)))

    value, step = worth(shares), 0.5
    for _ in range(_ROUNDS):
        slopes = shares * ((need / (factors @ shares**2) ** 2) @ factors)
        tried = shares * (slopes / max(slopes.max(), 1e-300)) ** step
        tried /= tried.sum()
        after = worth(tried)
        if after > value:
            step /= 2
            if step < 1e-3:
                break
        else:
            near = value - after < 1e-12 * value
            shares, value = tried, after
            if near:
                break
    for place in np.argsort(shares):
        if 0 < shares[place] < _SMALLEST:
            fewer = np.where(np.arange(len(shares)) == place, 0.0, shares)
            fewer /= fewer.sum()
            if worth(fewer) <= value * (1 + 1e-6):
                shares, value = fewer, worth(fewer)
    return {table: float(f) for table, f in zip(tables, shares, strict=True) if f > 0}


def law(workload: Workload, measured: Mapping[Columns, tuple[float, float]]) -> TableNoise:
    """The noise of all tables after the fit, for tables measured with noise of these widths and variances."""
    precision = precisions(workload, {table: s for table, (_, s) in measured.items()})
    sources = []
    for table, (width, s) in measured.items():
        loads = []
        for a in subsets([i for i in table if workload.sizes[i] > 1]):
            if a in precision:
                by = 1 / (max(s, _LEAST) * size_of(workload.sizes, [i for i in table if i not in a]))
                loads.append((a, by / precision[a]))
        sources.append(MeasuredSource(table, width, tuple(loads)))
    return TableNoise(workload.sizes, tuple(sources))


def cell_variance(workload: Workload, table: Columns, measured: Mapping[Columns, float]) -> float:
    """The variance of a cell of a table after the fit."""
    precision = precisions(workload, measured)
    return math.fsum(
        float(moved_by_row(workload.sizes, a))
        / size_of(workload.sizes, [i for i in table if i not in a]) ** 2
        / precision[a]
        for a in subsets([i for i in table if workload.sizes[i] > 1])
    )
