"""Products of many different laws: a tree of convolutions, whose partial products are kept for the next question.

`compose` transforms every law in the window of the whole product. That is best for a few laws, each used many times.
Ten thousand different laws are better multiplied in a tree: narrow windows at its leaves, one wide window at its root,
and a grid that grows coarser on the way. A node of the tree is a tilted lattice law (see `compose` for tilting), one
row of a `Rows`.

All grid laws here are upper bounds. They also give the lower bound. To put a loss l on a lattice, `lattice.above`
splits its mass between the two neighbours of l so that P- and Q-mass are kept; `_twice_the_step` does the same with
every other point of a lattice. So the lattice loss is Y = X + Ξ, where X is the exact loss of the product and
E[e^-Ξ | X] = 1. Each split moves a loss inside an interval of one step, so Ξ is sub-Gaussian with the variance proxy
V = Σ step² / 4 over all splits. δ(ε) of Y exceeds δ(ε) of X only where X and Y lie on different sides of ε. This gives
(docs/theory/certified-curves.md, "Many different laws")

    δ_Y(ε) - √V e^√V E[e^(-(ε-Y)²/2τ)]  <=  δ_X(ε)  <=  δ_Y(ε),      τ = V (1+√V)/(1-√V).

Every `Rows` carries `ErrorSums`. If y is the computed law and Y the exact one, both tilted by θ with the log-moment K,
then |δ_y(ε) - δ_Y(ε)| <= error · e^(K - θε) at every ε. Errors of this form add up in products, and an error of the
masses enters with its 1-norm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np

from deniable.curves.composition import lattice
from deniable.curves.composition.compose import FFT_CONSTANT, lattice_points
from deniable.curves.composition.delta_panel import DeltaPanel
from deniable.curves.composition.rounded_panel import RoundedPanel
from deniable.curves.composition.tilt_plan import FLOOR, Factor
from deniable.curves.laws.closed_form import LaplaceColumn, LaplaceLaw
from deniable.curves.laws.law import Law
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats

LEAST = 24
"""A product of at least this many different factors is multiplied by a tree."""

LEAVES = 64
"""The number of short laws that are put on the lattice together, one in each row of an array. Long laws come in smaller
groups.
"""

MOST_POINTS = 2**23
"""The most lattice points of all leaves together, once for each squaring, and 16 times the most of one leaf: beyond
that `compose` is faster."""

RARE = 8
"""A kind of laws with at least 1 / RARE of all uses gets the step of the tree; rarer kinds get longer steps."""

TRIMMED = 1e-12
"""Tilted mass that may be cut off either end of a row."""

COARSER = 0.15
"""A row of c uses gets a step whose square is at most COARSER · c times the squared step of the leaves."""

STEEPEST = 0.25
"""Largest θ × step: beyond it a coarser step would change the tilted masses too much."""

MOST_DOUBT = 0.05
"""Largest √V for which the lower bound is proved."""


class ErrorSums(NamedTuple):
    """Error bounds and moments of a product of laws. Each is a sum over the factors: if two laws are multiplied, the
    entries of the product are the sums of their entries.
    """

    log_moment: float = 0.0
    """K, the log of the total of the tilted masses."""
    error: float = 0.0
    """The factor of e^(K - θε) in the bound on the error of δ(ε)."""
    dropped: float = 0.0
    """Tilted mass that a lower bound must not count."""
    variance: float = 0.0
    """The variance proxy V of all splits."""
    drift: float = 0.0
    """How far losses may have moved up for other reasons than splits, plus the rounding errors of positions."""
    alive: float = 0.0
    """log P(finite loss), as the grid laws count it."""
    uses: float = 0.0

    def plus(self, other: ErrorSums) -> ErrorSums:
        """The entries of the product of two laws."""
        return ErrorSums(*(one + two for one, two in zip(self, other, strict=True)))

    def times(self, uses: int) -> ErrorSums:
        """The entries of a law that is used `uses` times."""
        return ErrorSums(*(one * uses for one in self))


@dataclass(frozen=True, slots=True)
class Rows:
    """Tilted lattice laws with one common step, one in each row. `sums` is about the product of all rows."""

    starts: Floats
    weights: Floats
    step: float
    uses: int
    """Uses in each row."""
    sums: ErrorSums


class TreePlan(NamedTuple):
    """How the rows of a product are built: tilt, step of the leaves, and the P-mass that each use may lose."""

    theta: float
    step: float
    tail: float


def step_for(uses: float, theta: float, spread: float, width: float) -> float:
    """The step of the leaves that gives a bracket of ε of about `width`. Splitting all losses to the lattice has the
    variance proxy V, about 0.4 uses step² in the whole tree, and widens the bracket by about (θ+1)(V/3 + √(2π) V).
    `spread` is the standard deviation of the tilted loss; if it is small, 1/spread takes the place of θ+1. The step is
    rounded down to a quarter of an octave, so that similar questions share partial products.
    """
    step = math.sqrt(width / (1.15 * uses * max(theta + 1, 1 / spread)))
    return float(2.0 ** (math.floor(4 * math.log2(step)) / 4))


Kinds = dict[tuple[int, int, int], tuple[Law, ...]]
"""Laws by the logarithm of their number of lattice points, by whether they are Laplace laws, and by uses."""


def kinds_of(factors: Sequence[Factor], tree: TreePlan, before: Kinds) -> Kinds:
    """The laws grouped by kind, appended to the groups in `before`."""
    found: dict[tuple[int, int, int], list[Law]] = {}
    for law, uses in factors:
        laplace = type(law) is LaplaceLaw
        low, high = (law.lowest, law.highest) if laplace else lattice.reach(law, tree.tail)
        points = min((high - low) / tree.step + 2, 1e300)
        found.setdefault((math.ceil(math.log2(points)), int(laplace), uses), []).append(law)
    return {**before, **{key: (*before.get(key, ()), *laws) for key, laws in found.items()}}


def _doublings(head: Kinds, rest: Kinds, tree: TreePlan) -> list[tuple[tuple[int, int, int], bool, int]] | None:
    """Every kind, whether it belongs to the head, and how often the step of its leaves is doubled (rare kinds add
    little to V). None if there are too many lattice points.
    """
    kinds = sorted([*((key, True) for key in head), *((key, False) for key in rest)])
    counts = [len((head if is_head else rest)[key]) * key[2] for key, is_head in kinds]
    most = math.floor(math.log2(STEEPEST / (tree.theta * tree.step + 1e-300)))
    found, total = [], 0.0
    for (key, is_head), count in zip(kinds, counts, strict=True):
        doublings = max(min(math.floor(0.5 * math.log2(sum(counts) / (RARE * count))), most), 0)
        points = 2.0 ** min(key[0] - doublings, 1000)
        total += points * count / key[2] * key[2].bit_length()
        if points > MOST_POINTS / 16 or total > MOST_POINTS:
            return None
        found.append((key, is_head, doublings))
    return sorted(found, key=lambda kind: kind[0][0] - kind[2])


def panels(
    head: Kinds, rest: Kinds, lossy: Sequence[Factor], tree: TreePlan, blocks: dict[tuple[int, ...], Rows]
) -> tuple[DeltaPanel, RoundedPanel] | None:
    """An upper and a lower bound on δ(ε) of a product. `blocks` keeps the partial products of the `head`; `lossy` are
    the factors that have an infinite loss.
    """
    kinds = _doublings(head, rest, tree)
    if kinds is None:
        return None
    row: Rows | None = None
    used: dict[tuple[int, ...], Rows] = {}
    for key, is_head, doublings in kinds:
        laws = (head if is_head else rest)[key]
        place = (*key, doublings)
        kept, found = (blocks, used) if is_head else ({}, {})
        for part in _parts(laws, place, tree, kept, found):
            row = part if row is None else _row_by_row(row, part, tree)
    blocks.clear()
    blocks.update(used)
    assert row is not None
    return _panels_of(row, lossy, tree)


def _parts(
    laws: tuple[Law, ...],
    place: tuple[int, int, int, int],
    tree: TreePlan,
    kept: Mapping[tuple[int, ...], Rows],
    found: dict[tuple[int, ...], Rows],
) -> list[Rows]:
    """The laws of one kind as two rows at most: the last laws, which do not fill a block, and the product of all blocks
    before them. One more law changes the first row, and few blocks. Rows are taken from `kept` and put into `found`.
    """
    points, _, uses, doublings = place
    leaves = max(LEAVES >> max(points - doublings - 13, 0), 4)

    def block(end: int, size: int) -> Rows:
        at = (*place, end, size)
        found[at] = kept.get(at) or _block(laws[end - size : end], uses, tree, tree.step * 2**doublings, leaves)
        return found[at]

    rest = len(laws) % leaves
    full = len(laws) - rest
    rows = [block(len(laws), rest)] if rest else []
    if not full:
        return rows
    blocks, end = [], full
    for bit in range((full // leaves).bit_length()):
        if full // leaves >> bit & 1:
            blocks.append(block(end, leaves << bit))
            end -= leaves << bit
    at = (*place, full)
    found[at] = kept.get(at) or reduce(lambda one, two: _row_by_row(one, two, tree), blocks)
    return [*rows, found[at]]


def _block(laws: tuple[Law, ...], uses: int, tree: TreePlan, step: float, leaves: int) -> Rows:
    """The product of the laws of a block, each used `uses` times, in one row. `step` is the step of the leaves."""
    if len(laws) > leaves:
        half = len(laws) // 2
        one, two = (_block(part, uses, tree, step, leaves) for part in (laws[:half], laws[half:]))
        return _row_by_row(one, two, tree)
    rows = _power(_leaves(laws, tree._replace(step=step)), uses, tree)
    while len(rows.weights) > 1:
        rows = _coarser(_product_of_groups(rows, 4 if len(rows.weights) > 2 else 2), tree)
    return rows


# -- leaves ----------------------------------------------------------------------------------------------------------


def _leaves(laws: Sequence[Law], tree: TreePlan) -> Rows:
    """One use of each law on the lattice, tilted."""
    if isinstance(laws[0], LaplaceLaw):
        return _laplace_leaves(np.array([[law.highest] for law in laws]), tree)
    leaves = [_leaf(law, tree) for law in laws]
    width = max(leaf.weights.shape[1] for leaf in leaves)
    weights = np.zeros((len(leaves), width))
    sums = ErrorSums()
    for row, leaf in zip(weights, leaves, strict=True):
        row[: leaf.weights.shape[1]] = leaf.weights[0]
        sums = sums.plus(leaf.sums)
    return Rows(np.concatenate([leaf.starts for leaf in leaves]), weights, tree.step, 1, sums)


def _laplace_leaves(shifts: Floats, tree: TreePlan) -> Rows:
    """The rows of Laplace laws: each lattice ends at the largest loss, which has half of the mass."""
    cells = max(math.ceil(2 * float(np.max(shifts)) / tree.step), 1)
    points = shifts + tree.step * np.arange(-cells, 1.0)
    masses, infinity, excess = lattice.chords(LaplaceColumn(shifts), points)
    return _tilted(points, masses, infinity, excess, np.zeros(len(shifts)), tree)


def _leaf(law: Law, tree: TreePlan) -> Rows:
    """One law as a row."""
    points = lattice_points(law, "upper", tree.step, lattice.reach(law, tree.tail))
    masses, infinity, excess = lattice.chords(law, points)
    last = float(masses[-1])
    if not math.isfinite(law.highest) and last <= 2 * tree.tail:
        # As in `compose`: mass near the end of the lattice counts as infinite loss, because tilting would magnify it.
        masses[-1], infinity = 0.0, np.minimum(infinity + last, 1.0)
    first = law.tails(points[:1] - 2e-9 * tree.step)
    left = 1.0 - first.first * (1 - np.asarray(first.error))
    return _tilted(points[None, :], masses[None, :], np.atleast_1d(infinity), excess[None, :], left, tree)


def _tilted(points: Floats, masses: Floats, infinity: Floats, excess: Floats, left: Floats, tree: TreePlan) -> Rows:
    """Rows of masses tilted by θ, with their `ErrorSums`. `left` is the P-mass that was moved up to the first
    point.
    """
    exponent = tree.theta * points
    top = np.maximum(exponent[:, :1], exponent[:, -1:])
    growth = np.exp(exponent - top)
    weights = (masses + FLOOR) * growth
    total = np.sum(weights, axis=1, keepdims=True)
    weights /= total
    largest = float(np.max(np.abs(points)))
    tilt = UNIT_ROUNDOFF * (64 + 4 * tree.theta * largest)
    # Raising the mass above l by η raises δ(ε) for ε < l by at most η × step (lemma 2).
    raised = np.sum(excess * growth[:, 1:], axis=1, keepdims=True) * math.expm1(tree.step) / total
    moved = left[:, None] * growth[:, :1] / total
    rows = len(points)
    return Rows(
        points[:, 0].copy(),
        weights,
        tree.step,
        1,
        ErrorSums(
            log_moment=math.fsum((top + np.log(total)).ravel().tolist()),
            error=rows * tilt,
            dropped=float(np.sum(raised + moved)) * 1.001,
            variance=rows * tree.step**2 / 4,
            drift=rows * (4e-9 * tree.step + 4 * UNIT_ROUNDOFF * (largest + tree.step * points.shape[1])),
            alive=float(np.sum(np.log1p(-np.minimum(infinity, 1 - 1e-16)))),
            uses=float(rows),
        ),
    )


# -- products --------------------------------------------------------------------------------------------------------


def _power(rows: Rows, uses: int, tree: TreePlan) -> Rows:
    """Every row used `uses` times, by repeated squaring."""
    found: Rows | None = None
    while True:
        if uses & 1:
            found = rows if found is None else _row_by_row(found, rows, tree)
        uses >>= 1
        if not uses:
            assert found is not None
            return found
        rows = _row_by_row(rows, rows, tree)


def _row_by_row(one: Rows, two: Rows, tree: TreePlan) -> Rows:
    """The product of each row of the first with the same row of the second."""
    one, two = _same_step(one, two, tree)
    count, width = len(one.starts), max(one.weights.shape[1], two.weights.shape[1])
    weights = np.zeros((2 * count, width))
    weights[::2, : one.weights.shape[1]] = one.weights
    weights[1::2, : two.weights.shape[1]] = two.weights
    both = Rows(np.stack((one.starts, two.starts), axis=1).ravel(), weights, one.step, 1, one.sums.plus(two.sums))
    return _coarser(replace(_product_of_groups(both, 2), uses=one.uses + two.uses), tree)


def _same_step(one: Rows, two: Rows, tree: TreePlan) -> tuple[Rows, Rows]:
    while one.step < two.step:
        one = _twice_the_step(one, tree)
    while two.step < one.step:
        two = _twice_the_step(two, tree)
    return one, two


def _product_of_groups(rows: Rows, size: int) -> Rows:
    """The products of groups of `size` neighbouring rows. A last group that is too small is filled with laws that
    reveal nothing.
    """
    from scipy import fft

    missing = -len(rows.weights) % size
    weights, starts = rows.weights, rows.starts
    if missing:
        nothing = np.zeros((missing, weights.shape[1]))
        nothing[:, 0] = 1.0
        weights, starts = np.concatenate((weights, nothing)), np.concatenate((starts, np.zeros(missing)))
    points = size * (weights.shape[1] - 1) + 1
    length = max(int(fft.next_fast_len(points, real=True)), 16)
    values = fft.rfft(weights, length, axis=1)
    values = values.reshape(-1, size, values.shape[1])
    product = values[:, 0].copy()
    for index in range(1, size):
        product *= values[:, index]
    found = np.maximum(fft.irfft(product, length, axis=1)[:, :points], 0.0)
    # Errors of the transforms in the 2-norm: forward, pointwise products, inverse. The 1-norm is at most √length times
    # that. Spectra are at most 1, so errors of one factor are not magnified by the others.
    norms = np.sqrt(np.einsum("ij,ij->i", weights, weights))
    rounding = (FFT_CONSTANT * math.log2(length) + 8 * size) * UNIT_ROUNDOFF * 1.01
    error = math.sqrt(length) * rounding * (float(np.sum(norms)) + len(found) * float(np.max(norms)))
    sums = rows.sums._replace(
        error=rows.sums.error + error,
        drift=rows.sums.drift + 4 * size * UNIT_ROUNDOFF * float(np.sum(np.abs(starts))),
    )
    return _trimmed(Rows(starts.reshape(-1, size).sum(axis=1), found, rows.step, rows.uses * size, sums))


def _trimmed(rows: Rows) -> Rows:
    """The rows without the ends whose tilted mass is negligible."""
    weights = rows.weights
    from_left = np.max(np.cumsum(weights, axis=1), axis=0)
    first = int(np.searchsorted(from_left, TRIMMED))
    from_right = np.max(np.cumsum(weights[:, ::-1], axis=1), axis=0)
    last = weights.shape[1] - int(np.searchsorted(from_right, TRIMMED))
    if first >= last or first + weights.shape[1] - last < 8:
        return rows
    sums = rows.sums._replace(error=rows.sums.error + 2.001 * TRIMMED * len(weights))
    kept = np.ascontiguousarray(weights[:, first:last])
    return replace(rows, starts=rows.starts + first * rows.step, weights=kept, sums=sums)


def _coarser(rows: Rows, tree: TreePlan) -> Rows:
    """The rows on a coarser lattice, if there are enough uses in each."""
    while (2 * rows.step) ** 2 <= COARSER * rows.uses * tree.step**2 and 2 * rows.step * tree.theta <= STEEPEST:
        rows = _twice_the_step(rows, tree)
    return rows


def _twice_the_step(rows: Rows, tree: TreePlan) -> Rows:
    """Every second point is split between its two neighbours so that P- and Q-mass are kept: the shares of P are
    1/(1+e^h) down and e^h/(1+e^h) up.
    """
    h, theta = rows.step, tree.theta
    weights = rows.weights
    if weights.shape[1] % 2 == 0:
        weights = np.concatenate((weights, np.zeros((len(weights), 1))), axis=1)
    odd = weights[:, 1::2]
    found = weights[:, ::2].copy()
    found[:, :-1] += odd * (math.exp(-theta * h) / (1 + math.exp(h)))
    found[:, 1:] += odd * (math.exp(theta * h) / (1 + math.exp(-h)))
    total = np.sum(found, axis=1, keepdims=True)
    found /= total
    count = len(found)
    sums = rows.sums._replace(
        log_moment=rows.sums.log_moment + math.fsum(np.log(total).ravel().tolist()),
        error=rows.sums.error + count * 64 * UNIT_ROUNDOFF,
        variance=rows.sums.variance + count * h * h,
        drift=rows.sums.drift + 4 * UNIT_ROUNDOFF * float(np.sum(np.abs(rows.starts))),
    )
    return replace(rows, weights=found, step=2 * h, sums=sums)


# -- panels ----------------------------------------------------------------------------------------------------------


def _panels_of(row: Rows, factors: Sequence[Factor], tree: TreePlan) -> tuple[DeltaPanel, RoundedPanel] | None:
    """The bounds on δ(ε) that the one row of a product gives."""
    theta, sums, weights = tree.theta, row.sums, row.weights[0]
    points = float(row.starts[0]) + row.step * np.arange(len(weights))
    centre = float(np.sum(weights * points))
    spread = math.sqrt(float(np.sum(weights * (points - centre) ** 2)))
    away = points - centre
    if (theta + 1) * float(np.max(np.abs(away))) > 600.0 or not math.sqrt(sums.variance) <= MOST_DOUBT:
        return None
    tilted_back = weights * np.exp(-theta * away)
    heads, seconds = (
        np.append(np.cumsum(each[::-1])[::-1], 0.0) for each in (tilted_back, tilted_back * np.exp(-away))
    )
    relative = 64 * UNIT_ROUNDOFF * (abs(sums.log_moment) + abs(theta * centre) + 64 + sums.uses)
    lossy = [(f.law.infinity * (1 - f.law.infinity_error), f.uses) for f in factors]
    never = math.fsum(uses * math.log1p(-min(infinity, 1 - 1e-16)) for infinity, uses in lossy)
    surely = -math.expm1(never) * (1 - 1e-14)
    infinity = -math.expm1(sums.alive) * (1 + 1e-14)
    upper = DeltaPanel(
        side="upper",
        theta=theta,
        centre=centre + sums.drift,
        origin=centre + sums.drift,
        start=float(row.starts[0]) + sums.drift,
        step=row.step,
        stride=row.step,
        spread=spread,
        length=len(weights),
        log_scale=sums.log_moment - theta * centre,
        heads=heads,
        seconds=seconds,
        noise=sums.error * 1.01,
        alias=0.0,
        left_out=0.0,
        right_out=0.0,
        relative=relative,
        infinity=infinity,
    )
    lower = replace(
        upper,
        side="lower",
        centre=centre,
        origin=centre,
        start=float(row.starts[0]),
        noise=(sums.error + sums.dropped) * 1.01,
        infinity=surely,
    )
    return upper, RoundedPanel(lower, tilted_back, sums.variance, sums.drift, max(infinity - surely, 0.0))
