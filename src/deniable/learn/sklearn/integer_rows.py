"""Rows as integers: clamped to public bounds, one row at a time, and summed exactly.

A feature x becomes an integer number of steps from −S to S with S = 2¹⁶: x is clamped to its bounds, NaN counts as the
middle, an infinity as the bound on its side. The result for a row depends on that row alone: only elementwise
operations with correct IEEE 754 rounding are used, so no other row can change the last digit. (A matrix product of
floats is different: its rounding depends on the number of rows.) Products and sums of steps are exact in any order,
because every partial sum is an integer below 2⁵³.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from deniable.errors import NOTHING, InvalidParameter, PublicTuple
from deniable.learn.sklearn.fit_budget import Ints, Purse
from deniable.mechanisms import Bounds, rational_parameters
from deniable.numbers import float_root_down
from deniable.units import Unit

Floats = NDArray[np.float64]

STEPS: Final = 2**16
"""Half the width of a feature, in steps."""
EXACT: Final = 2**53
"""Integers up to here are floats without rounding."""
NARROWEST: Final = 1e-100
WIDEST: Final = 1e100
"""The range of the distance between bounds, so that its square, and weights divided by it, stay finite."""
FAR: Final = 300
"""The same limit for the exponents of `Bought`."""
HAIR: Final = 1 - 2.0**-40
"""Shrinking aims slightly below the allowed length, so that rounding does not exceed it."""


@final
@dataclass(frozen=True, slots=True)
class Bought:
    """Bounds found privately: for each feature, powers of two that contain more rows than noise (`mechanisms.Bounds`).

    For all neighbours D, D′: one noisy histogram for each feature, paid with `share` of the μ² of the fit. A feature
    whose rows do not exceed the noise gets (−1, 1). `exponents` is the range of powers of two to consider.

    >>> Bought(share=0.1)
    Bought(share=0.1, exponents=(-10, 20))
    """

    share: float
    exponents: tuple[int, int] = (-10, 20)

    def release(self, X: Floats, purse: Purse) -> Box:
        """Find the bounds of all features of X, paid from `purse`."""
        features = X.shape[1]
        level = purse.level(share=part("share", self.share))
        found = Bounds(unit=Unit.row(), mu=float_root_down(Fraction(level) ** 2 / features), exponents=self.exponents)
        if found.exponents[0] < -FAR or found.exponents[1] > FAR:
            raise InvalidParameter("exponents", self.exponents, f"must lie between -{FAR} and {FAR}")
        ends = [found.release(X[:, j]) or (-1.0, 1.0) for j in range(features)]
        return Box(np.array([low for low, _ in ends]), np.array([high for _, high in ends]))


def part(name: str, share: Any) -> Fraction:
    """A share as an exact fraction. Raises unless it lies strictly between 0 and 1."""
    found = rational_parameters.positive(name, share)
    if not found < 1:
        raise InvalidParameter(name, share, "must be above 0 and below 1")
    return found


@final
@dataclass(frozen=True, slots=True)
class Box:
    """Public bounds, one pair for each feature."""

    low: Floats
    high: Floats

    @classmethod
    def of(cls, bounds: Any, *, features: int, names: Any = None, parameter: str = "bounds") -> Box:
        """Read bounds from (low, high), where each end is a number for all features or a list with one for each; or
        from a dict with a pair for each named column. Raises `InvalidParameter` for anything else.
        """
        if bounds is None:
            remedy = "give (low, high) from the code book, never from the data; or Bought(share=0.1)"
            raise InvalidParameter(parameter, NOTHING, "is missing", remedy)
        if isinstance(bounds, Mapping):
            return cls._of_names(bounds, names, parameter)
        if isinstance(bounds, list) and bounds and all(isinstance(end, tuple | list) for end in bounds):
            remedy = "for pairs by feature, write tuple(zip(*pairs))"  # with two features, it would be ambiguous
            raise InvalidParameter(parameter, bounds, "must be a pair (lows, highs), not a list of pairs", remedy)
        if not isinstance(bounds, Sequence | np.ndarray) or isinstance(bounds, str) or len(bounds) != 2:
            remedy = "" if parameter == "target_bounds" else "or a dict of pairs by column"
            raise InvalidParameter(parameter, bounds, "must be a pair (low, high)", remedy)
        ends = [_ends(parameter, end, features) for end in bounds]
        label = list(range(features)) if names is None else list(names)
        return cls._checked(ends[0], ends[1], label, parameter)

    @classmethod
    def _of_names(cls, bounds: Mapping[Any, Any], names: Any, parameter: str) -> Box:
        if names is None:
            remedy = "give (low, high), or a frame whose columns have texts as names: frame.rename(columns=str)"
            raise InvalidParameter(parameter, NOTHING, "names columns, but X has no names", remedy)
        pairs = []
        for name in names:
            pair = bounds.get(name)
            if not isinstance(pair, Sequence | np.ndarray) or isinstance(pair, str) or len(pair) != 2:
                raise InvalidParameter(parameter, NOTHING, f"must have a pair (low, high) for column {name!r}")
            pairs.append([_ends(parameter, end, 1, f" for column {name!r}")[0] for end in pair])
        low, high = np.array(pairs).T
        return cls._checked(low, high, list(names), parameter)

    @classmethod
    def _checked(cls, low: Floats, high: Floats, names: list[Any], parameter: str) -> Box:
        for name, a, b in zip(names, low.tolist(), high.tolist(), strict=True):
            of = "" if parameter == "target_bounds" else f"of feature {name!r} "
            if not (math.isfinite(a) and math.isfinite(b) and a < b):
                raise InvalidParameter(parameter, PublicTuple((a, b)), f"{of}must be finite, and low less than high")
            if not NARROWEST <= b - a <= WIDEST:
                raise InvalidParameter(parameter, PublicTuple((a, b)), f"{of}must be 1e-100 to 1e100 apart")
        return cls(low, high)

    @property
    def middle(self) -> Floats:
        return self.low / 2 + self.high / 2

    @property
    def half(self) -> Floats:
        """Half of the width."""
        return self.high / 2 - self.low / 2

    def clamp(self, X: Floats) -> Floats:
        """The numbers clamped to their bounds; NaN becomes the middle."""
        return np.clip(np.where(np.isnan(X), self.middle, X), self.low, self.high)

    def steps(self, X: Floats) -> Floats:
        """Each number in steps from the middle of its bounds, an integer from −STEPS to STEPS."""
        with np.errstate(all="ignore"):
            share = (self.clamp(X) - self.middle) / self.half
        return np.clip(np.rint(np.nan_to_num(share) * STEPS), -STEPS, STEPS)


def _ends(parameter: str, end: Any, features: int, where: str = "") -> Floats:
    try:
        found = np.asarray(end, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidParameter(parameter, NOTHING, f"must hold numbers{where}") from None
    if found.ndim == 0:
        return np.full(features, float(found))
    if found.shape != (features,):
        raise InvalidParameter(parameter, NOTHING, f"must hold one number, or one for each of {features} features")
    return found


def with_one(steps: Floats) -> Floats:
    """Rows with a constant in front, for the intercept: STEPS, the largest value of a feature."""
    return np.concatenate([np.full((len(steps), 1), float(STEPS)), steps], axis=1)


def longest(row_norm: Any, width: int) -> int:
    """The largest squared length of a row of `width` numbers, in steps²: from the bounds, or from `row_norm`, which is
    in units of half the width of the bounds.
    """
    corner = width * STEPS**2
    if row_norm is None:
        return corner
    return min(corner, rational_parameters.floor(rational_parameters.positive("row_norm", row_norm) ** 2 * STEPS**2))


def shrunk(rows: Floats, square: int) -> Floats:
    """Rows scaled down to a squared length of at most `square`, each independently.

    The lengths are checked in integers afterwards, and a row that rounding left too long becomes 0.
    """
    if square >= rows.shape[1] * STEPS**2:
        return rows  # the bounds allow no longer row
    lengths = squares(rows)
    factor = np.minimum(1.0, math.sqrt(square) / np.sqrt(np.maximum(lengths, 1)) * HAIR)
    shorter = np.where((lengths > square)[:, None], np.trunc(rows * factor[:, None]), rows)
    return np.where((squares(shorter) <= square)[:, None], shorter, 0.0)


def squares(rows: Floats) -> Ints:
    """The exact squared length of each row."""
    whole = rows.astype(np.int64)
    return np.asarray(np.einsum("ij,ij->i", whole, whole))


def products(left: Floats, right: Floats, *, largest: int) -> Ints:
    """leftᵀ right, exactly, for integers whose products are at most `largest` in absolute value."""
    block = max(1, EXACT // max(1, largest))
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.int64)
    for start in range(0, len(left), block):
        total += (left[start : start + block].T @ right[start : start + block]).astype(np.int64)
    return total


def binned(places: Ints, weights: Floats, *, bins: int, largest: int) -> Ints:
    """The exact sum in each bin of integer weights, which are at most `largest` in absolute value."""
    block = max(1, EXACT // max(1, largest))
    total = np.zeros(bins, dtype=np.int64)
    for start in range(0, len(places), block):
        part = slice(start, start + block)
        total += np.bincount(places[part], weights=weights[part], minlength=bins).astype(np.int64)
    return total


# -- second moments --------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Gram:
    """A noisy matrix of second moments UᵀU, in units of rows (divided by STEPS²)."""

    matrix: Floats
    sigma: float
    """The standard deviation of the noise on each entry."""

    @classmethod
    def release(cls, U: Floats, purse: Purse, *, share: Fraction, square: int) -> Gram:
        """Release the upper triangle of UᵀU, for rows of squared length at most `square` and entries up to STEPS.

        A row u adds u_i u_j for i ≤ j. This vector has squared length (‖u‖⁴ + Σu_i⁴)/2 ≤ (q² + S² q)/2 with
        q = `square`, because Σu_i⁴ ≤ S² ‖u‖². For all neighbours D, D′ the triangles differ by the triangle of one row.
        """
        width = U.shape[1]
        upper = np.triu_indices(width)
        sums = purse.sums(share=share, square=(square * square + STEPS**2 * square) // 2, size=len(upper[0]))
        noisy = sums.release(products(U, U, largest=STEPS**2)[upper])
        matrix = np.zeros((width, width))
        matrix[upper] = noisy.astype(np.float64) / STEPS**2
        matrix = matrix + np.triu(matrix, 1).T
        return cls(matrix, sums.sigma / STEPS**2)
