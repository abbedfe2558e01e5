"""Sums of log-moments over the laws of a product.

A product of a hundred laws is evaluated again and again, each time with one more law. A `MomentSum` keeps the sums of
its lines, and the sum of the longer product begins with them. The additions are the same as without kept lines. So an
answer depends on what was asked before only by rounding, and the bounds count that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deniable.curves.composition.contour_moments import SHORT_LINE, Complexes, LineMoment, LineValues, moment_of
from deniable.curves.composition.tilt_plan import Factor
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats

MOST_LINES = 16
"""The most lines that a sum keeps."""


class PartialLine(NamedTuple):
    """Σ uses × log M at points of a line over some laws, the sum of the errors, the sum of the absolute values, and
    where the moment of a law is not known.
    """

    values: Complexes
    errors: Floats
    sizes: Floats
    unknown: NDArray[np.bool_]

    def plus(self, moment: LineMoment, uses: int, c: float, frequencies: Floats) -> PartialLine:
        """This sum with one more law."""
        one = moment.line(c, frequencies)
        known = np.isfinite(one.errors)
        return PartialLine(
            self.values + uses * one.values,
            self.errors + uses * np.where(known, one.errors, 0.0),
            self.sizes + uses * np.abs(one.values),
            self.unknown | ~known,
        )

    def finished(self, laws: int) -> LineValues:
        """The moments of a product of so many laws, with the rounding errors of the sums."""
        errors = self.errors + 4 * UNIT_ROUNDOFF * laws * self.sizes
        # Where one factor is not known, the real part of the sum stays an upper bound.
        return LineValues(
            np.where(self.unknown, self.values + errors, self.values), np.where(self.unknown, np.inf, errors)
        )


class MomentSum:
    """The moments of some laws of a product. All uses together leave out outcomes of the P-mass `lost`."""

    __slots__ = ("_begun", "_lines", "lost", "moments")

    def __init__(self, factors: Sequence[Factor], negligible: float, tilt: float) -> None:
        found = []
        for law, uses in factors:
            moment = moment_of(law, uses, negligible, tilt)
            assert moment is not None  # `contour_panel.suits`: a law that is left out would cost nothing
            found.append((moment, uses))
        self._fill(tuple(found))
        self._begun: tuple[int, dict[tuple[float, float, int], PartialLine]] = (0, {})

    def _fill(self, moments: tuple[tuple[LineMoment, int], ...]) -> None:
        self.moments = moments
        self.lost = math.fsum(uses * moment.lost for moment, uses in moments) * (1 + 1e-9)
        self._lines: dict[tuple[float, float, int], PartialLine] = {}

    def plus(self, factors: Sequence[Factor], negligible: float, tilt: float) -> MomentSum:
        """The moments of these laws and of more laws; the lines of this sum are begun."""
        more = MomentSum(factors, negligible, tilt)
        more._begun = (len(self.moments), self._lines)
        more._fill((*self.moments, *more.moments))
        return more

    def line(self, c: float, frequencies: Floats) -> PartialLine:
        """The sum at the points of a line."""
        asked = (c, float(frequencies[-1]), len(frequencies))
        found = self._lines.get(asked)
        if found is None:
            done, lines = self._begun
            found = lines.get(asked)
            if found is None:
                done, count = 0, len(frequencies)
                found = PartialLine(
                    np.zeros(count, dtype=complex), np.zeros(count), np.zeros(count), np.zeros(count, dtype=bool)
                )
            for moment, uses in self.moments[done:]:
                found = found.plus(moment, uses, c, frequencies)
            if len(frequencies) <= SHORT_LINE and len(self._lines) < MOST_LINES:
                self._lines[asked] = found
        return found

    def line_with(self, others: MomentSum, c: float, frequencies: Floats) -> LineValues:
        """The moments of the product of these laws and of others."""
        found = self.line(c, frequencies)
        for moment, uses in others.moments:
            found = found.plus(moment, uses, c, frequencies)
        return found.finished(len(self.moments) + len(others.moments))
