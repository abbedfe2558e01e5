"""The expected error of fitted marginals, from public facts alone: the noisy counts, their variance and the fit.

A fit has two kinds of error. **Chance** is estimated by a parametric bootstrap (Efron & Tibshirani 1993, chapter 6.5):
a table of as many rows is drawn from the fit, its counts get the same noise, a mixture is fitted to them in the same
way, and the error of this second fit relative to the drawn table estimates the error of the first. **Bias**, from
dependence that a mixture cannot represent, is estimated by the covariance penalty (Efron 2004): a fit f to noisy counts
y of variance σ² has the expected square error E(f - truth)² = E(y - f)² - σ² + 2·cov(f, y) in a cell. The first term is
observed, and the covariance is estimated from the second fits and their noise. The excess over chance is added. Without
the covariance, a fit that follows some of the noise would look better than it is.

Rows drawn from a fit have a larger error than the fit, because whole rows cannot match every probability. The
difference is estimated by drawing rows from the fit.

Nothing is known about columns that were not measured together: their dependence, beyond what was measured, is the
mixture's guess, and no error can be stated for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

import numpy as np

from deniable.synth.marginals import Marginal, total
from deniable.synth.mixture import Mixture, refitted
from deniable.synth.raking import raked
from deniable.synth.row_drawing import draw, independent, sweeps_for
from deniable.synth.structural_zeros import Forbidden

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_COPIES: Final = 4
"""The number of second fits. A mean square of so few errors is uncertain, so `_moderated` shrinks it to the average."""
_MOST_DRAWN: Final = 300_000
"""The most rows of a drawn table. In larger ones sampling error is negligible and is left out."""
_HALF_NORMAL: Final = float(np.sqrt(2 / np.pi))
"""E|x| of a normal x with standard deviation 1."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Doubt:
    """The expected errors of a fit."""

    mixture: Mixture
    copies: tuple[tuple[Mixture, NDArray[np.int64] | None, tuple[NDArray[np.float32], ...]], ...]
    """The second fits, each with the rows it was fitted to (None if the table is too large) and the noise of its
    counts."""
    measured: tuple[Marginal, ...]
    forbidden: Forbidden
    sample: NDArray[np.int64]
    """Rows of the mixture, as synthetic rows are drawn: as many as the table has, or a part of them if it is large."""

    @classmethod
    def of(
        cls,
        mixture: Mixture,
        measured: Sequence[Marginal],
        forbidden: Forbidden,
        generator: np.random.Generator | None = None,
    ) -> Doubt:
        """Run the bootstrap: fit mixtures to noisy counts of tables that are drawn from this mixture."""
        generator = generator or np.random.default_rng()
        rows, copies = total(measured), []
        for _ in range(_COPIES):
            drawn = independent(mixture, round(rows), generator, forbidden) if rows <= _MOST_DRAWN else None
            counts, noises = [], []
            for each in measured:
                noise = generator.normal(0.0, each.variance**0.5, each.counts.shape)
                noise = noise if each.zeros is None else np.where(each.zeros, 0.0, noise)
                noises.append(noise.astype(np.float32))
                counts.append(replace(each, counts=_counted(drawn, each.columns, mixture, forbidden) * rows + noise))
            fitted = refitted(mixture.sizes, counts, mixture, generator)
            copies.append((raked(fitted, counts, forbidden), drawn, tuple(noises)))
        sweeps = sweeps_for(round(rows), len(mixture.sizes))
        sample = draw(mixture, min(round(rows), _MOST_DRAWN), generator, forbidden, sweeps)
        return cls(mixture, tuple(copies), tuple(measured), forbidden, sample)

    def cells(self, *places: int) -> Array | None:
        """The expected root mean square error of each cell, as a probability; None if columns were not measured
        together.
        """
        off = self._off(places)
        left = self._bias_square(places, off)
        if left is None:
            return None
        pooled = _moderated(np.mean([each**2 for each in off], axis=0)) + left
        # Impossible combinations are known to be 0, without error.
        return np.asarray(np.where(self.forbidden.certain(places, pooled.shape), 0.0, np.sqrt(pooled)))

    def variation(self, *places: int, in_rows: bool = False) -> float | None:
        """The expected total variation error of the fit, or of as many synthetic rows as the table has; None if
        columns were not measured together.
        """
        off = self._off(places)
        left = self._bias_square(places, off)
        if left is None:
            return None
        drawn = self._drawn(places) if in_rows else 0.0
        chance = float(np.mean([np.abs(each + drawn).sum() / 2 for each in off]))
        # The bias is assumed to grow with the square root of a cell's probability.
        roots = float(np.sqrt(self.forbidden.marginal(self.mixture, *places)).sum())
        return min(1.0, float(np.hypot(chance, _HALF_NORMAL * np.sqrt(left * off[0].size) * roots / 2)))

    def _off(self, places: Sequence[int]) -> list[Array]:
        """The error of each second fit relative to its table."""
        return [
            self.forbidden.marginal(fitted, *places) - _counted(drawn, places, self.mixture, self.forbidden)
            for fitted, drawn, _ in self.copies
        ]

    def _drawn(self, places: Sequence[int]) -> Array:
        """The error of synthetic rows relative to the fit. It falls at least with the square root of their number."""
        fitted = self.forbidden.marginal(self.mixture, *places)
        off = _counted(self.sample, places, self.mixture, self.forbidden) - fitted
        return np.asarray(off * math.sqrt(len(self.sample) / max(len(self.sample), total(self.measured))))

    def _bias_square(self, places: Sequence[int], chance: Sequence[Array]) -> float | None:
        """The mean square error of a cell beyond chance; None if no measured marginal has all of these columns."""
        holding = [(at, each) for at, each in enumerate(self.measured) if set(places) <= set(each.columns)]
        if not holding:
            return None
        rows, found = total(self.measured), []
        for at, each in holding:
            others = tuple(axis for axis, column in enumerate(each.columns) if column not in places)
            noise = each.variance / rows**2 * math.prod(each.counts.shape[axis] for axis in others)
            found.append((noise, at, others))
        noise, at, others = min(found)
        each = self.measured[at]
        if each.zeros is not None:
            noise *= 1 - float(each.zeros.mean())
        off = (self.forbidden.marginal(self.mixture, *each.columns) - each.counts / rows).sum(axis=others)
        order = np.argsort(places)  # the counts have their columns in rising order
        follows = [
            float(np.mean(noises[at].sum(axis=others) / rows * one.transpose(order)))
            for one, (*_, noises) in zip(chance, self.copies, strict=True)
        ]
        expected = float(np.mean(off**2)) - noise + 2 * float(np.mean(follows))
        return max(0.0, float(expected - np.mean([np.mean(one**2) for one in chance])))


def _moderated(squares: Array) -> Array:
    """The expected square error of each cell, given the mean of `_COPIES` observed squares in each.

    Single means scatter by chance (by half of their square, for normal errors), so an error that was divided by the
    root of its own mean would look too large. Each is averaged with the mean over all cells. The weight of that mean
    follows from how much the cells differ beyond chance: it is the posterior mean under an inverse gamma prior with
    the mean and the variance that are seen, as for the moderated variances of Smyth (2004).
    """
    mean = float(squares.mean())
    if mean == 0:
        return squares
    differing = float(np.mean((squares / mean) ** 2)) / (1 + 2 / _COPIES) - 1
    if differing <= 0:
        return np.full_like(squares, mean)
    weight = 2 + 2 / differing
    return np.asarray((_COPIES * squares + weight * mean) / (_COPIES + weight))


def _counted(rows: NDArray[np.int64] | None, places: Sequence[int], mixture: Mixture, forbidden: Forbidden) -> Array:
    """The shares of a drawn table by some columns; if no table was drawn, the probabilities of the mixture."""
    if rows is None:
        return forbidden.marginal(mixture, *places)
    shape = [mixture.sizes[place] for place in places]
    at = np.ravel_multi_index(tuple(rows[:, place] for place in places), shape)
    found = np.bincount(at, minlength=int(np.prod(shape))).reshape(shape)
    return np.asarray(found / max(1, len(rows)), dtype=np.float64)
