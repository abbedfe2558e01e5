"""Controlled rounding: tables rounded to multiples of a base that still add up.

Every cell of every table, and every controlled margin, is rounded to one of its two neighbours, and the rounded tables
add up exactly. Of all such roundings the closest in L2 is taken. For tables by one or two keys one always exists
(Causey, Cox & Ernst 1985: it is a network flow). With three or more keys it may not exist; then fewer margins are
controlled, and as a last resort cells may move to the second neighbour, with the least sum of absolute distances. Each
attempt is an integer programme, solved by HiGHS to a relative gap of 1e-5 or until its time is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from deniable.errors import InvalidOperation
from deniable.synth.least_squares_fit import Axes, Floats
from deniable.synth.table_noise import subsets, summed

SECONDS: Final = 20.0
"""The time limit of each attempt, in seconds."""
MOST_CONTROLLED: Final = 20_000
"""The most cells of all margins together for which every margin is controlled."""
MOST_KEYS: Final = 4
"""The most keys of a table whose every margin is controlled. Of a table by more keys, only the table and the sums that
it shares with other tables are controlled."""
_WHOLE: Final = 1e-6
"""Numbers within this distance of a multiple count as that multiple."""


@final
class Control(Enum):
    """Which margins a rounding controls: sums of the tables that are themselves rounded to a neighbour."""

    EVERY_MARGIN = "every margin is a rounded margin"
    TABLES = "the tables add up, and every number in them is a rounded number; other margins may be further off"
    WIDER = "the tables add up, but some numbers are not at a nearest multiple: no such rounding was found"


@final
@dataclass(frozen=True, slots=True)
class RoundedTables:
    """Rounded tables in their original order, and which margins are controlled."""

    tables: tuple[NDArray[np.int64], ...]
    control: Control


def controlled(tables: Sequence[tuple[Axes, Floats]], *, base: int = 1) -> RoundedTables:
    """Round tables that add up to multiples of `base` that add up too.

    >>> found = controlled([((0, 1), np.array([[1.4, 2.4], [0.4, 3.4]])), ((0,), np.array([3.8, 3.8]))])
    >>> found.tables[0].sum(axis=1).tolist() == found.tables[1].tolist(), found.control.name
    (True, 'EVERY_MARGIN')
    """
    if any(not counts.size for _, counts in tables):  # a key without values: all sums are empty
        return RoundedTables(tuple(np.zeros(counts.shape, np.int64) for _, counts in tables), Control.EVERY_MARGIN)
    given = {axes: counts / base for axes, counts in tables}
    every = {
        part: summed(counts, axes, part)
        for axes, counts in given.items()
        for part in subsets(axes)
        if len(axes) <= MOST_KEYS
    } | given  # fmt: skip
    few = dict(given)
    while True:  # tables must agree on their common margins
        met = {tuple(sorted(set(a) & set(b))): a for a, b in combinations(few, 2)}
        new = {part: summed(few[a], a, part) for part, a in met.items() if part not in few}
        if not new:
            break
        few |= new
    attempts: list[tuple[Mapping[Axes, Floats], Control, int]] = [(few, Control.TABLES, 0), (few, Control.WIDER, 1)]
    if sum(each.size for each in every.values()) <= MOST_CONTROLLED:
        is_every = all(len(axes) <= MOST_KEYS for axes in given)
        attempts.insert(0, (every | few, Control.EVERY_MARGIN if is_every else Control.TABLES, 0))
    for family, control, further in attempts:
        found = _solved(family, frozenset(given), further)
        if found is not None:
            return RoundedTables(tuple(np.asarray(found[axes] * base) for axes, _ in tables), control)
    raise InvalidOperation(f"no rounding was found within {SECONDS:g} s; round fewer or smaller tables at once")


def _solved(
    family: Mapping[Axes, Floats], wanted: frozenset[Axes], further: int
) -> dict[Axes, NDArray[np.int64]] | None:
    """The closest rounding of a family of tables; None if the solver found no rounding. A variable of the integer
    program is the number of steps by which a cell is rounded above its floor.
    """
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    near = {axes: np.rint(counts) for axes, counts in family.items()}
    flat = {
        axes: np.where(np.abs(counts - near[axes]) <= _WHOLE, near[axes], counts) for axes, counts in family.items()
    }
    floors = {axes: np.floor(counts).astype(np.int64) for axes, counts in flat.items()}
    starts, total = {}, 0
    for axes, counts in flat.items():
        starts[axes] = total
        total += counts.size
    low, high, cost = np.zeros(total), np.zeros(total), np.zeros(total)
    for axes, counts in flat.items():
        at = slice(starts[axes], starts[axes] + counts.size)
        rest = (counts - floors[axes]).ravel()
        high[at] = (rest > 0) + further
        # A non-negative count must not become negative.
        low[at] = -further * ((floors[axes].ravel() > 0) | (counts.ravel() < 0))
        if axes in wanted:
            cost[at] = 1 - 2 * rest  # (f + 1 - z)² - (f - z)²
    rows, right = [], []
    for coarse, fine in _covers(family):
        places = np.arange(flat[fine].size).reshape(flat[fine].shape) + starts[fine]
        kept = [i for i, axis in enumerate(fine) if axis in coarse]
        others = [i for i, axis in enumerate(fine) if axis not in coarse]
        summands = np.transpose(places, kept + others).reshape(flat[coarse].size, -1)
        width = summands.shape[1]
        mine = np.arange(flat[coarse].size)
        data = np.concatenate((np.ones(summands.size), -np.ones(mine.size)))
        lines = np.concatenate((np.repeat(mine, width), mine))
        columns = np.concatenate((summands.ravel(), mine + starts[coarse]))
        rows.append(sparse.csr_matrix((data, (lines, columns)), shape=(mine.size, total)))
        right.append((floors[coarse] - summed(floors[fine].astype(np.float64), fine, coarse)).ravel())
    constraints: Any = []
    if rows:
        exact = np.concatenate(right)
        constraints = [LinearConstraint(sparse.vstack(rows, format="csr"), exact, exact)]
    if further:
        found = _nearest_absolute(flat, floors, wanted, constraints, low, high)
    else:
        solution = milp(
            cost, integrality=np.ones(total, np.int64), bounds=Bounds(low, high), constraints=constraints,
            options={"time_limit": SECONDS, "mip_rel_gap": 1e-5},
        )  # fmt: skip
        found = solution.x
    if found is None:
        return None
    steps = np.rint(found).astype(np.int64)
    return {
        axes: floors[axes] + steps[starts[axes] : starts[axes] + floors[axes].size].reshape(floors[axes].shape)
        for axes in wanted
    }


def _nearest_absolute(
    flat: Mapping[Axes, Floats],
    floors: Mapping[Axes, Any],
    wanted: frozenset[Axes],
    constraints: Any,
    low: Floats,
    high: Floats,
) -> Any:
    """The rounding with the least sum of absolute distances, which are variables of the programme. (With more than two
    neighbours to choose from, the sum of squares is not linear.)
    """
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    total = len(low)
    rest = np.concatenate([(flat[axes] - floors[axes]).ravel() for axes in flat])
    cost = np.concatenate([np.full(flat[axes].size, float(axes in wanted)) for axes in flat])
    one = sparse.identity(total, format="csr")
    bounded = [
        LinearConstraint(sparse.hstack([one, -one], format="csr"), -np.inf, rest),
        LinearConstraint(sparse.hstack([one, one], format="csr"), rest, np.inf),
    ]
    wide = [
        LinearConstraint(sparse.hstack([each.A, sparse.csr_matrix(each.A.shape)], format="csr"), each.lb, each.ub)
        for each in constraints
    ]
    solution = milp(
        np.concatenate((np.zeros(total), cost)),
        integrality=np.concatenate((np.ones(total, np.int64), np.zeros(total, np.int64))),
        bounds=Bounds(np.concatenate((low, np.zeros(total))), np.concatenate((high, np.full(total, np.inf)))),
        constraints=wide + bounded,
        options={"time_limit": SECONDS, "mip_rel_gap": 1e-5},
    )
    return None if solution.x is None else solution.x[:total]


def _covers(family: Mapping[Axes, Floats]) -> list[tuple[Axes, Axes]]:
    """Pairs of a table and its next finer tables; sums along these pairs imply all other sums."""
    below = [(a, b) for a in family for b in family if set(a) < set(b)]
    return [(a, b) for a, b in below if not any(set(a) < set(c) < set(b) for c in family)]
