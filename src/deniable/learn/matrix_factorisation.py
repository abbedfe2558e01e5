"""DP-FTRL by banded matrix factorisation: noise that is correlated over the steps and partly cancels in their sum.

Batches come in a fixed public order. Nothing is sampled, and the records of a step need not be secret.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Self, final

from deniable.curves import curve_arguments
from deniable.curves.curve_display import rounded_up
from deniable.curves.meaning.weakness_advice import weaknesses
from deniable.errors import InvalidParameter
from deniable.learn.adaptive_clipping import AdaptiveNorm
from deniable.learn.buffered_noise import (
    Buffers,
    buffered_amplitude,
    buffered_sensitivity,
    chebyshev_buffers,
    check_buffers,
)
from deniable.learn.epoch_batches import Places
from deniable.learn.plans import Clipping, Flat, Plan, check_declared_records, clipping, noun, protected
from deniable.numbers import above, root_up, up
from deniable.units import Unit

if TYPE_CHECKING:
    from deniable.curves import Curve
    from deniable.noise import Entropy

__all__ = ["DPFTRL", "prefix_amplitude", "sensitivity_squared", "square_root_coefficients"]

RESOLUTION = 2**12
"""Coefficients are rounded to multiples of 1/4096. Any coefficients are valid, and these are exact as floats."""


def square_root_coefficients(bands: int) -> tuple[Fraction, ...]:
    """The first coefficients of (1 - x)^(-1/2), rounded to multiples of 1/4096: c_0 = 1, c_j ≈ c_{j-1}(2j - 1)/(2j).

    The lower-triangular Toeplitz matrix C with all coefficients is the square root of the matrix of prefix sums. This
    factorisation is nearly optimal (Fichtenberger, Henzinger & Upadhyay 2023). With the first `bands` coefficients, C
    is the banded square root (Kalinin & Lampert 2024).

    >>> [str(c) for c in square_root_coefficients(3)]
    ['1', '1/2', '3/8']
    """
    exact, found = Fraction(1), []
    for j in range(curve_arguments.integer("bands", bands, 1)):
        if j:
            exact *= Fraction(2 * j - 1, 2 * j)
        found.append(Fraction(round(exact * RESOLUTION), RESOLUTION))
    return tuple(found)


def sensitivity_squared(
    coefficients: Sequence[Fraction], *, steps: int, separation: int, participations: int
) -> Fraction:
    """The exact squared L2 sensitivity of G -> CG, where C is banded lower-triangular Toeplitz with these coefficients.

    One record changes at most `participations` rows of G, each by a vector of length at most 1, and two such rows are
    at least `separation` steps apart. With columns C_i and changes x_i the squared change is Σ_ij <C_i, C_j><x_i, x_j>.
    If C has at most `separation` bands, columns that far apart have no common row, so only the terms with i = j remain:
    Σ_i ‖C_i‖²‖x_i‖², at most the largest Σ_i ‖C_i‖² (Choquette-Choo et al. 2023, Theorem 2). Only the last row cuts
    columns off, so the earliest rows have the largest columns: 0, b, 2b, ... Raises if there are more bands than
    `separation`.

    >>> sensitivity_squared(square_root_coefficients(2), steps=8, separation=4, participations=2)
    Fraction(5, 2)
    """
    bands = len(coefficients)
    if bands > separation:
        remedy = "use fewer bands, or smaller batches, so that a record takes part again later"
        raise InvalidParameter("bands", bands, f"must be at most the separation, {separation} steps", remedy)
    total = Fraction(0)
    for place in range(0, steps, separation)[:participations]:
        total += sum((c * c for c in coefficients[: steps - place]), start=Fraction(0))
    return total


def prefix_amplitude(coefficients: Sequence[Fraction], steps: int) -> float:
    """The largest standard deviation of the noise C⁻¹Z in a prefix sum, for Z of variance 1 and C Toeplitz.

    It is the largest row norm of B = A C⁻¹, where A computes prefix sums. Independent noise (one band) has √steps.
    """
    inverse: list[float] = []
    total, worst = 0.0, 0.0
    column = [float(c) for c in coefficients]
    prefix = 0.0
    for t in range(steps):
        value = (1.0 if t == 0 else 0.0) - math.fsum(
            column[j] * inverse[t - j] for j in range(1, min(t, len(column) - 1) + 1)
        )
        inverse.append(value)
        prefix += value
        total += prefix * prefix
        worst = max(worst, total)
    return math.sqrt(worst)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class DPFTRL(Plan):
    """Gradient descent on batches in a fixed order with noise C⁻¹Z: banded matrix factorisation (DP-FTRL, DP-MF).

    Step t releases M_t = Σ_{j < bands} c_j g_{t-j} + Z_t. Here g_t is the sum of the clipped gradients of batch t, and
    Z_t ~ N(0, (noise·clip)²) in each coordinate. The model moves along C⁻¹M = g + C⁻¹Z, which is post-processing. Each
    record is in the same batch of every epoch, so it takes part `epochs` times, one epoch of steps apart.

    Promise: for all D, D′ that differ by one record present or blank (its place in the order stays), distinguishing the
    runs is at least as hard as N(0, 1) from N(μ, 1) with μ = `sensitivity`/noise, even if gradients depend on earlier
    releases (Denisov et al. 2022, Theorem 2.1; sensitivity: Choquette-Choo et al. 2023, see `sensitivity_squared`).

    >>> from deniable import learn
    >>> plan = learn.DPFTRL(clip=1.0, batch_size=500, records=60_000, epochs=2, bands=16)
    >>> plan.steps, round(plan.sensitivity, 4)
    (240, 1.9...)
    >>> plan = plan.calibrate(epsilon=3, delta=1e-5)
    >>> plan.curve.epsilon(delta=1e-5) <= 3
    True

    With `buffers` in place of `bands`, C has no last band, and a run needs the memory of `buffers` gradients: see
    `buffered_noise`.

    >>> learn.DPFTRL(clip=1.0, batch_size=500, records=60_000, epochs=2, buffers=6).steps
    240
    """

    clip: Clipping
    batch_size: int
    records: int
    epochs: int
    bands: int | None
    buffers: Buffers | None
    noise: float | None
    unit: Unit

    def __init__(
        self,
        *,
        clip: float | Clipping,
        batch_size: int,
        records: int,
        epochs: int,
        bands: int | None = None,
        buffers: int | None = None,
        noise: float | None = None,
        unit: Unit | None = None,
    ) -> None:
        fill = object.__setattr__
        fill(self, "clip", clipping(clip))
        if isinstance(self.clip, AdaptiveNorm):
            rule = "must not adapt for a fixed order of records: the curve does not cover the noisy counts of the steps"
            raise InvalidParameter("clip", self.clip, rule, "use DPSGD, or clip=Automatic(...)")
        fill(self, "records", curve_arguments.integer("records", records, 1))
        fill(self, "batch_size", curve_arguments.integer("batch_size", batch_size, 1))
        fill(self, "epochs", curve_arguments.integer("epochs", epochs, 1))
        is_banded = curve_arguments.exactly_one(bands=bands, buffers=buffers) == "bands"
        fill(self, "bands", curve_arguments.integer("bands", bands, 1) if is_banded else None)
        fill(self, "buffers", None if is_banded else chebyshev_buffers(check_buffers(buffers)))
        fill(self, "noise", None if noise is None else curve_arguments.positive("noise", noise))
        fill(self, "unit", protected(unit))
        if self.batch_size > self.records:
            raise InvalidParameter("batch_size", batch_size, f"must be at most the {records} records")
        self._moved(self.steps)

    def _with(self, noise: float) -> Self:
        return type(self)(
            clip=self.clip,
            batch_size=self.batch_size,
            records=self.records,
            epochs=self.epochs,
            bands=self.bands,
            buffers=None if self.buffers is None else len(self.buffers),
            noise=noise,
            unit=self.unit,
        )

    @property
    def separation(self) -> int:
        """The number of steps in an epoch, after which a record takes part again."""
        return -(-self.records // self.batch_size)

    @property
    def steps(self) -> int:  # type: ignore[override]  # computed from the other fields; DPSGD stores it
        """The number of steps of the whole run."""
        return self.separation * self.epochs

    @property
    def coefficients(self) -> tuple[Fraction, ...] | None:
        """The first column of the matrix C; None if the factorisation is given by buffers."""
        return None if self.bands is None else square_root_coefficients(self.bands)

    def _moved(self, steps: int) -> float:
        """The L2 sensitivity of CG over the first `steps` steps, in units of the clipping norm, rounded up."""
        if self.buffers is not None:
            return buffered_sensitivity(
                self.buffers, steps=steps, separation=self.separation, participations=self.epochs
            )
        column = self.coefficients
        assert column is not None
        return up(
            root_up(sensitivity_squared(column, steps=steps, separation=self.separation, participations=self.epochs))
        )

    @property
    def sensitivity(self) -> float:
        """The L2 sensitivity of CG to one record over the whole run, in units of the clipping norm, rounded up."""
        return self._moved(self.steps)

    def drawn(self, records: Places, step: int, entropy: Entropy | None) -> Places:
        """The batch whose turn it is, in the fixed order."""
        start = step % self.separation * self.batch_size
        return records[(records >= start) & (records < start + self.batch_size)]

    def expected_batch(self, records: int) -> float:
        return float(self.batch_size)

    def check_records(self, count: int) -> None:
        check_declared_records(self.records, count, self.unit)

    @property
    def cheaper_by(self) -> str:
        return "or fewer steps"

    @property
    def curve(self) -> Curve:
        return self.so_far(self.steps)

    def so_far(self, steps: int) -> Curve:
        from deniable import curves

        if steps == 0:
            return curves.identity()
        return curves.gaussian(mu=above(self._moved(steps) / self.calibrated()))

    @property
    def is_gaussian(self) -> bool:
        return True

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            f"the number and order of the {noun(self.unit, 2)} are public: one is removed by blanking it, added in "
            "place of a blank",
            "checkpoints made during the run are kept secret",
        )

    @property
    def amplitude(self) -> float:
        """The largest standard deviation of the noise in a prefix sum of gradients, in units of noise × clip."""
        if self.buffers is not None:
            return buffered_amplitude(self.buffers, self.steps)
        assert self.coefficients is not None
        return prefix_amplitude(self.coefficients, self.steps)

    @property
    def _memory(self) -> str:
        if self.buffers is not None:
            return f"over all steps, by {len(self.buffers)} buffer{'s' if len(self.buffers) > 1 else ''}"
        return f"over {self.bands} step{'s' if self.bands != 1 else ''}"

    def explain(self, *, delta: float = 1e-5) -> str:
        """The plan and its guarantee in words, with ε at `delta`."""
        lines = [
            f"{self.epochs} epoch{'s' if self.epochs > 1 else ''} of {self.separation} steps over {self.records} "
            f"{noun(self.unit, 2)} in a fixed order, {self.batch_size} at a time.",
            f"{self.clip.describe()}; noise is correlated {self._memory}.",
        ]
        if self.noise is None:
            lines.append("The noise is not chosen yet: plan.calibrate(epsilon=, delta=).")
            return "\n".join(lines)
        independent = math.sqrt(self.steps * self.epochs)
        lines.append(
            f"The noise in a sum of gradients has a standard deviation of at most {self.amplitude * self.sigma:.4g}; "
            f"independent noise with the same guarantee would need {independent * self.sigma / self.sensitivity:.4g}."
        )
        epsilon = self.curve.epsilon(delta=delta)
        lines.append(
            f"Between data that differ by one {noun(self.unit)} blanked, an attacker who sees every step reaches at "
            f"most ε = {rounded_up(epsilon)} at δ = {delta:g}."
        )
        lines += weaknesses(epsilon=epsilon, delta=delta, people=self.records)
        return "\n".join(lines)

    def __repr__(self) -> str:
        clip = f"{self.clip.norm!r}" if isinstance(self.clip, Flat) else repr(self.clip)
        noise = "" if self.noise is None else f", noise={self.noise:.6g}"
        unit = "" if self.unit.column is None else f", unit={self.unit!r}"
        memory = f"bands={self.bands}" if self.buffers is None else f"buffers={len(self.buffers)}"
        return (
            f"DPFTRL(clip={clip}, batch_size={self.batch_size}, records={self.records}, epochs={self.epochs}, "
            f"{memory}{unit}{noise})"
        )
