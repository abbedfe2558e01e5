"""Banded matrix factorisation with sampling: correlated noise and amplification by sampling in one plan.

With `bands` b, the records are divided into b groups by their number in the dataset. Step t draws from group t mod b
only, each record of it with probability q. The noise is C⁻¹Z as in `DPFTRL`, where C is lower-triangular Toeplitz with
b bands c = (c_0, ..., c_{b-1}).

**The curve** (Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta & Xu 2023, "(Amplified) Banded Matrix
Factorization: A unified approach to private training"; the proof follows). The release is M = CG + Z, where G has the
sums of clipped gradients in units of the clipping norm and Z has standard deviation `noise`. A record of group j can
take part in the steps t = j, j + b, j + 2b, ..., each by its own coin. In step t it adds its gradient g to row t of G,
and so c_0 g, ..., c_{b-1} g to the rows t, ..., t + b - 1 of M. These blocks of b rows do not overlap for different t.
Given the coins of all other records, a block is a Gaussian mechanism whose mean moves by the vector (c_0 g, ...,
c_{b-1} g), of length ‖c‖‖g‖ <= ‖c‖, with probability q, and does not move otherwise. All gradients, also those of other
records, are functions of the data and of earlier releases, so blocks compose adaptively:

    gaussian(sigma=noise/‖c‖).sampled(rate=q) ** ⌈steps/b⌉.

With one band this is `DPSGD`. More bands have noise that cancels better, but q is b times the share of the records in a
step, so sampling gains less: try several.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Self, final

from deniable.curves import curve_arguments
from deniable.curves.curve_display import rounded_up
from deniable.curves.meaning.weakness_advice import weaknesses
from deniable.errors import InvalidParameter
from deniable.learn.adaptive_clipping import AdaptiveNorm
from deniable.learn.epoch_batches import Places
from deniable.learn.matrix_factorisation import prefix_amplitude, square_root_coefficients
from deniable.learn.plans import Clipping, Flat, Plan, check_declared_records, clipping, noun, protected
from deniable.numbers import above, root_up, up
from deniable.units import Unit

if TYPE_CHECKING:
    from deniable.curves import Curve
    from deniable.noise import Entropy

__all__ = ["BandMF"]


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class BandMF(Plan):
    """Gradient descent on samples from b groups in turn, with noise that is correlated over b = `bands` steps.

    Promise: for all D, D′ that differ by one record present or blank (its number stays), an attacker who sees every
    step cannot distinguish the runs better than gaussian(sigma=noise/‖c‖).sampled(rate=`group_rate`) ** ⌈steps/b⌉
    allows. See `banded_sampling` for the proof. `batch_size` is the average number of records in a step.

    >>> from deniable import learn
    >>> plan = learn.BandMF(clip=1.0, batch_size=500, records=60_000, steps=600, bands=4)
    >>> round(plan.group_rate, 5), plan.blocks
    (0.03333, 150)
    >>> plan.calibrate(epsilon=3, delta=1e-5).curve.epsilon(delta=1e-5) <= 3
    True
    """

    clip: Clipping
    batch_size: int
    records: int
    steps: int
    bands: int
    noise: float | None
    unit: Unit

    def __init__(
        self,
        *,
        clip: float | Clipping,
        batch_size: int,
        records: int,
        steps: int,
        bands: int,
        noise: float | None = None,
        unit: Unit | None = None,
    ) -> None:
        fill = object.__setattr__
        fill(self, "clip", clipping(clip))
        fill(self, "records", curve_arguments.integer("records", records, 1))
        fill(self, "batch_size", curve_arguments.integer("batch_size", batch_size, 1))
        fill(self, "steps", curve_arguments.integer("steps", steps, 1))
        fill(self, "bands", curve_arguments.integer("bands", bands, 1))
        fill(self, "noise", None if noise is None else curve_arguments.positive("noise", noise))
        fill(self, "unit", protected(unit))
        if isinstance(self.clip, AdaptiveNorm):
            rule = "must not adapt with correlated noise: the curve does not cover the noisy counts of the steps"
            raise InvalidParameter("clip", self.clip, rule, "use DPSGD, or clip=Automatic(...)")
        if self.batch_size * self.bands > self.records:
            rule = f"must be at most the size of a group, {self.records // self.bands} of the {self.records} records"
            raise InvalidParameter("batch_size", batch_size, rule, "use fewer bands, or smaller batches")

    def _with(self, noise: float) -> Self:
        shape = {"batch_size": self.batch_size, "records": self.records, "steps": self.steps, "bands": self.bands}
        return type(self)(clip=self.clip, noise=noise, unit=self.unit, **shape)

    @property
    def group_rate(self) -> float:
        """The probability q with which a record is drawn when it is the turn of its group."""
        return float(Fraction(self.batch_size * self.bands, self.records))

    @property
    def blocks(self) -> int:
        """The number of turns of each group, rounded up."""
        return -(-self.steps // self.bands)

    @property
    def coefficients(self) -> tuple[Fraction, ...]:
        """The first column of C."""
        return square_root_coefficients(self.bands)

    @property
    def sensitivity(self) -> float:
        """‖c‖: how far one participation of a record moves CG, in units of the clipping norm, rounded up."""
        return up(root_up(sum((c * c for c in self.coefficients), start=Fraction(0))))

    def drawn(self, records: Places, step: int, entropy: Entropy | None) -> Places:
        """Records of the group whose turn it is, each by its own exact coin of probability `group_rate`."""
        from deniable import noise

        group: Places = records[records % self.bands == step % self.bands]
        return group[noise.bernoulli(p=self.group_rate, size=(len(group),), entropy=entropy)]

    def expected_batch(self, records: int) -> float:
        return float(self.batch_size)

    def check_records(self, count: int) -> None:
        check_declared_records(self.records, count, self.unit)

    @property
    def cheaper_by(self) -> str:
        return "fewer steps or smaller batches"

    @property
    def curve(self) -> Curve:
        return self.so_far(self.steps)

    def so_far(self, steps: int) -> Curve:
        from deniable import curves

        mu = above(self.sensitivity / self.calibrated())
        return curves.gaussian(mu=mu).sampled(rate=self.group_rate) ** -(-steps // self.bands)

    @property
    def assumptions(self) -> tuple[str, ...]:
        one, many = noun(self.unit), noun(self.unit, 2)
        return (
            f"every {one} is drawn independently when its group has its turn, and the drawn {many} stay secret",
            f"the number and order of the {many} are public: one is removed by blanking it, added in place of a blank",
            "checkpoints made during the run are kept secret",
        )

    @property
    def amplitude(self) -> float:
        """The largest standard deviation of the noise in a prefix sum of gradients, in units of noise × clip."""
        return prefix_amplitude(self.coefficients, self.steps)

    def explain(self, *, delta: float = 1e-5) -> str:
        """The plan and its guarantee in words, with ε at `delta`."""
        one, many = noun(self.unit), noun(self.unit, 2)
        lines = [
            f"{self.steps} steps over {self.bands} group{'s' if self.bands > 1 else ''} of the {self.records} {many} "
            f"in turn, each {one} of a group with probability {self.group_rate:.5g}: {self.batch_size} on average.",
            f"{self.clip.describe()}; noise is correlated over {self.bands} step{'s' if self.bands > 1 else ''}.",
        ]
        if self.noise is None:
            lines.append("The noise is not chosen yet: plan.calibrate(epsilon=, delta=).")
            return "\n".join(lines)
        lines.append(f"The noise in a sum of gradients has a standard deviation of {self.amplitude * self.sigma:.4g}.")
        epsilon = self.curve.epsilon(delta=delta)
        lines.append(
            f"Between data that differ by one {one} blanked, an attacker who sees every step reaches at most "
            f"ε = {rounded_up(epsilon)} at δ = {delta:g}."
        )
        lines += weaknesses(epsilon=epsilon, delta=delta, people=self.records)
        return "\n".join(lines)

    def __repr__(self) -> str:
        clip = f"{self.clip.norm!r}" if isinstance(self.clip, Flat) else repr(self.clip)
        noise = "" if self.noise is None else f", noise={self.noise:.6g}"
        unit = "" if self.unit.column is None else f", unit={self.unit!r}"
        return (
            f"BandMF(clip={clip}, batch_size={self.batch_size}, records={self.records}, steps={self.steps}, "
            f"bands={self.bands}{unit}{noise})"
        )
