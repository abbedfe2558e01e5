"""Forests whose trees do not depend on the rows. Only the values of their leaves are learned, by noisy gradient steps.

1. *Counts.* The noisy number of rows decides the number of steps: with more rows for the same noise, more steps help.
   The noisy counts of the classes give the score that all rows begin with.
2. *Trees.* Features and thresholds of all nodes are drawn at random. For tables that are large for their noise, half of
   the trees have their thresholds at random quantiles of a noisy histogram, instead of evenly between the bounds.
3. *Steps.* Each step releases, for every leaf of all trees at once, the noisy sum of the residuals of its rows, and all
   leaf values move along it, with momentum.

A row is in one leaf of each of T trees, so it moves all sums of a step together by √T times its residual, which is
clipped. The noise on a score, a sum of T leaf values, does not depend on T: more trees cost time, not privacy.

Random trees are from Fan, Wang, Yu & Ma (2003), "Is random model better?"; the steps are functional gradient descent
(Friedman 2001), with all trees in each step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, final

import numpy as np
from sklearn.utils import check_random_state

from deniable.curves import curve_arguments
from deniable.errors import InvalidParameter
from deniable.learn.sklearn.fit_budget import Ints, Purse
from deniable.learn.sklearn.integer_rows import STEPS, Box, Floats, binned, shrunk
from deniable.learn.sklearn.linear_models import MOST_STEPS, left
from deniable.learn.sklearn.noisy_newton import FINE, REACH, UNIT, LogisticLoss
from deniable.learn.sklearn.private_estimator import Private, ProbabilityClassifier, stores_arguments

COUNT_SHARE: Final = Fraction(1, 100)
"""The share of μ² for the number of rows of each class."""
HISTOGRAM_SHARE: Final = Fraction(1, 20)
"""The share of μ² that pays for the histogram of a large table."""
CELLS: Final = 32
CLEAR: Final = 8
"""A histogram is bought if its average cell has at least this many rows for each standard deviation of its noise."""
CAUTION: Final = 10
"""Standard deviations of noise that are added to each class count, so that uncertain counts give nearly even odds."""
PACE: Final = (0.5, 1 / 60)
"""With n rows there are max(½√(μn), μn/60) steps: found by trying, on tables with μn between 12 and 3,600."""
ENOUGH: Final = 64
"""The most steps, unless they are given."""
MOMENTUM: Final = 0.7
RATE: Final = 3.0
"""The length of a step, in units of the inverse of the largest curvature. Gradient descent with momentum m is stable up
to 2(1 + m) (Polyak 1964).
"""
VALUE: Final = FINE * 2**10
"""Leaf values are integers in units of 1/VALUE during a fit, so that the scores of its rows are exact."""
LARGEST_VALUE: Final = 2.0**10
SHALLOW: Final = 3
DEEP: Final = 6
FEW: Final = 60
"""Trees are deep, unless `max_depth` says otherwise, if μn is less than this: with so much noise only large differences
count, and deep trees find them in a small part of wide bounds too.
"""
DEEPEST: Final = 16
LARGEST_FOREST: Final = 2**20


@final
@dataclass(frozen=True, slots=True)
class Trees:
    """Complete binary trees of one depth. Node i has the children 2i + 1, for at most its threshold, and 2i + 2."""

    features: Ints
    """The feature of each node, with a row for each tree."""
    thresholds: Ints
    """The threshold of each node in steps, from −STEPS to STEPS − 1, so that both sides can have rows."""

    @classmethod
    def drawn(cls, random: Any, *, depth: int, quantiles: Floats) -> Trees:
        """Random trees. The feature of each node is uniform, and so is its threshold within the node's cell: on a scale
        on which the intervals between `quantiles` (tree, feature, point) have equal lengths.
        """
        (trees, width, points), nodes = quantiles.shape, 2**depth - 1
        features = random.randint(width, size=(trees, nodes))
        shares = np.zeros((trees, nodes))
        for node in range(nodes):
            low, high = np.zeros(trees), np.ones(trees)
            below = node
            while below:
                above = (below - 1) // 2
                same, cut = features[:, above] == features[:, node], shares[:, above]
                if below % 2:
                    high = np.where(same, np.minimum(high, cut), high)
                else:
                    low = np.where(same, np.maximum(low, cut), low)
                below = above
            shares[:, node] = low + random.uniform(size=trees) * (high - low)
        start = np.minimum((shares * (points - 1)).astype(np.int64), points - 2)
        tree = np.arange(trees)[:, None]
        one, other = quantiles[tree, features, start], quantiles[tree, features, start + 1]
        cuts = np.floor(one + (shares * (points - 1) - start) * (other - one)).astype(np.int64)
        return cls(features, np.clip(cuts, -STEPS, STEPS - 1))

    @property
    def leaves(self) -> int:
        """The number of leaves of one tree."""
        return int(self.features.shape[1]) + 1

    def places(self, steps: Floats) -> Ints:
        """The leaf of each row, with a line for each tree. A row's leaves depend on that row alone."""
        columns, nodes = np.ascontiguousarray(steps.T).ravel(), self.leaves - 1
        found = np.zeros((len(self.features), len(steps)), dtype=np.int64)
        for place, features, thresholds in zip(found, self.features, self.thresholds, strict=True):
            for _ in range(nodes.bit_length()):
                asked = columns[features[place] * len(steps) + np.arange(len(steps))]
                place += place + 1 + (asked > thresholds[place])
            place -= nodes
        return found


def quantiles_of(purse: Purse, rows: Floats, share: Fraction) -> Floats:
    """For each feature, the ends of CELLS intervals that are equally likely by a noisy histogram, in steps.

    A row adds 1 to a cell of each of d features: a vector of squared length d. Cells whose count does not exceed the
    noise share the remaining mass, at least a tenth, evenly.
    """
    features = rows.shape[1]
    cells = np.minimum((rows.astype(np.int64) + STEPS) // (2 * STEPS // CELLS), CELLS - 1)
    exact = np.array([np.bincount(cells[:, j], minlength=CELLS) for j in range(features)], dtype=np.int64)
    sums = purse.sums(share=share, square=features, size=exact.size)
    noisy = sums.release(exact).astype(np.float64)
    seen = np.where(noisy > 2 * sums.sigma, noisy, 0.0)
    total = max(1.0, float(noisy.sum(axis=1).mean()))
    law = seen + np.maximum(total - seen.sum(axis=1), total / 10)[:, None] / CELLS
    below = np.concatenate([np.zeros((features, 1)), law.cumsum(axis=1)], axis=1)
    ends, even = np.linspace(-STEPS, STEPS, CELLS + 1), np.linspace(0, 1, CELLS + 1)
    return np.array([np.interp(even, each / each[-1], ends) for each in below])


@final
class LeafValues:
    """The values of all leaves while they are learned, in whole units of 1/VALUE, and the exact scores of the rows."""

    def __init__(self, places: Ints, *, leaves: int, intercept: Floats, kept: int) -> None:
        self._places, self._leaves, self._kept = places, leaves, kept
        self._start = np.rint(intercept * VALUE).astype(np.int64)
        self.values = np.zeros((len(places), leaves, len(intercept)))
        self._speed, self._sum = np.zeros_like(self.values), np.zeros_like(self.values)

    def scores(self) -> Ints:
        """The score of each row in units of 1/VALUE. A sum of integers, so it depends on that row alone."""
        found = np.tile(self._start, (self._places.shape[1], 1))
        for place, values in zip(self._places, self.values.astype(np.int64), strict=True):
            found += values[place]
        return found

    def sums(self, residuals: Floats, *, largest: int) -> Ints:
        """The exact sum of the residuals in each leaf (tree, leaf, output)."""
        columns = np.ascontiguousarray(residuals.T)
        found = np.empty(self.values.shape, dtype=np.int64)
        for place, sums in zip(self._places, found, strict=True):
            for output, column in enumerate(columns):
                sums[:, output] = binned(place, column, bins=self._leaves, largest=largest)
        return found

    def move(self, step: Floats, *, left: int) -> None:
        """Move all values along `step`, with momentum; `left` steps will follow."""
        self._speed = MOMENTUM * self._speed + step
        most = LARGEST_VALUE * VALUE
        self.values = np.rint(np.clip(self.values + self._speed * VALUE, -most, most))
        if left < self._kept:
            self._sum += self.values / (self._kept * VALUE)

    @property
    def mean(self) -> Floats:
        """The mean of the values over the last `kept` steps, in units of scores."""
        return self._sum


class _Forest(Private):
    bounds: Any
    n_estimators: Any
    max_depth: Any
    steps: Any
    random_state: Any
    trees_: Trees
    leaf_values_: Floats
    """The contribution of each leaf to the scores (tree, leaf, output)."""
    intercept_: Floats
    box_: Box

    def _grown(
        self, purse: Purse, rows: Floats, *, total: float, level: float, share: Fraction
    ) -> tuple[Trees, Fraction]:
        """Trees for rows in steps, and the share of μ² that they cost. `total` is the noisy number of rows, `level` is
        the μ of all of `share`.
        """
        trees = curve_arguments.integer("n_estimators", self.n_estimators, 1)
        usual = DEEP if total * level < FEW else SHALLOW
        depth = usual if self.max_depth is None else curve_arguments.integer("max_depth", self.max_depth, 1)
        if depth > DEEPEST or trees * 2**depth > LARGEST_FOREST:
            rule = f"must be at most {DEEPEST}, and all trees together must have at most {LARGEST_FOREST:,} leaves"
            raise InvalidParameter("max_depth", depth, rule)
        features, cost = rows.shape[1], Fraction(0)
        laws = [np.tile(np.linspace(-STEPS, STEPS, CELLS + 1), (features, 1))]
        if total / CELLS > CLEAR * math.sqrt(features / HISTOGRAM_SHARE) / level:
            cost = share * HISTOGRAM_SHARE
            laws.append(quantiles_of(purse, rows, cost))
        random = check_random_state(self.random_state)
        quantiles = np.stack(laws)[np.arange(trees) % len(laws)]
        return Trees.drawn(random, depth=depth, quantiles=quantiles), cost

    def _rounds(self, strength: float) -> int:
        """The number of steps: as given, or from `strength`, the number of rows times μ."""
        if self.steps is None:
            return int(min(max(PACE[0] * math.sqrt(strength), PACE[1] * strength, 1), ENOUGH))
        found = curve_arguments.integer("steps", self.steps, 1)
        if found > MOST_STEPS:
            raise InvalidParameter("steps", self.steps, f"must be at most {MOST_STEPS:,}")
        return found

    def _scores(self, X: Any) -> Floats:
        """The sum of leaf values for each output. A row's score depends on that row alone, to the last digit."""
        asked = self._asked(X)
        found = np.tile(self.intercept_, (len(asked), 1))
        for place, values in zip(self.trees_.places(self.box_.steps(asked)), self.leaf_values_, strict=True):
            found += values[place]
        return found


@final
class RandomForestClassifier(_Forest, ProbabilityClassifier):
    """A forest of random trees whose leaf values are fitted together, by noisy gradient steps of the logistic loss.

    For all neighbours D, D′ that differ by one row: the row adds 1 to the count of its class. In each step it adds its
    residual to one leaf of each of T trees: a vector of √T times the length of the residual, which is clipped at the
    largest length that it has before the first step (½ for two classes of the same size). If a histogram is bought, the
    row adds 1 to a cell of each of d features, a vector of length √d. All releases have Gaussian noise and are together
    μ-GDP. The trees are public.

    There are `n_estimators` trees of depth `max_depth`. This depth and the number of `steps` come from the noisy number
    of rows, unless they are given. `random_state` affects the trees only, not the noise.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (4000, 2))
    >>> y = X[:, 0] * X[:, 1] > 0
    >>> model = RandomForestClassifier(classes=[False, True], bounds=(-3, 3), epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(X, y).score(X, y) > 0.85
    True
    """

    @stores_arguments
    def __init__(
        self,
        *,
        classes: Any,
        bounds: Any,
        epsilon: Any = None,
        delta: Any = None,
        mu: Any = None,
        session: Any = None,
        n_estimators: Any = 200,
        max_depth: Any = None,
        steps: Any = None,
        random_state: Any = None,
    ) -> None: ...

    def _learn(self, purse: Purse, *data: Any) -> dict[str, Any]:
        X, y, classes = data
        box, share = self._box(self.bounds, X, purse), left(self.bounds)
        rows, many = box.steps(X), len(classes)
        counting = purse.sums(share=share * COUNT_SHARE, square=1, size=many)
        counts = np.maximum(counting.release(np.bincount(y, minlength=many)).astype(np.float64), 0.0)
        total = max(float(counts.sum()), counting.sigma)
        level = 1 / (counting.sigma * math.sqrt(COUNT_SHARE))
        trees, cost = self._grown(purse, rows, total=total, level=level, share=share)
        steps = self._rounds(total * level)
        prior = (counts + CAUTION * counting.sigma) / (counts.sum() + many * CAUTION * counting.sigma)
        intercept = np.log(prior[1:] / prior[:1]) if many == 2 else np.log(prior)
        held = LeafValues(trees.places(rows), leaves=trees.leaves, intercept=intercept, kept=steps - steps // 2)
        loss, clip = LogisticLoss(), _longest_residual(prior)
        curvature = loss.curvature * (1 if many == 2 else 2)
        size = held.values.size
        square = len(trees.features) * clip * clip
        sums = purse.sums(share=share * (1 - COUNT_SHARE) - cost, square=square, size=size, times=steps)
        rate = min(RATE, steps) / (curvature * total * len(trees.features) * UNIT)
        for step in range(steps):
            places = np.clip(held.scores() // (VALUE // FINE), -REACH * FINE, REACH * FINE)
            residuals = shrunk(-loss.derivatives(places, y).astype(np.float64), clip * clip)
            noisy = sums.release(held.sums(residuals, largest=UNIT)).astype(np.float64)
            held.move(rate * noisy, left=steps - 1 - step)
        return {
            "trees_": trees,
            "leaf_values_": held.mean,
            "intercept_": intercept,
            "classes_": classes,
            "box_": box,
        }


def _longest_residual(prior: Floats) -> int:
    """The largest length of y − p at p = `prior`, in UNITs: max p for two classes, else max_k √((1 − p_k)² + Σ p_j²)
    over the other classes j.
    """
    if len(prior) == 2:
        return math.ceil(float(prior.max()) * UNIT)
    squares = (prior**2).sum() - prior**2 + (1 - prior) ** 2
    return math.ceil(math.sqrt(float(squares.max())) * UNIT)
