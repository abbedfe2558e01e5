"""Private minimisers of convex losses: noise on the minimiser, or on the objective before it is minimised.

Both minimise J(θ) = Σ_i ℓ(θ; x_i) + (λ/2)‖θ‖² with ℓ convex in θ. The sum is not divided by the number of records,
because that number is protected too. The conditions on ℓ must hold for every θ and every possible record, not only for
the given ones: clip the rows to a known norm first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Self, final

from deniable.curves import curve_arguments
from deniable.curves.curve_display import rounded_up
from deniable.curves.meaning.weakness_advice import warn_if_weak, weaknesses
from deniable.errors import InvalidParameter
from deniable.units import Guarantee, Unit

if TYPE_CHECKING:
    from deniable.curves import Curve

__all__ = ["ObjectivePerturbation", "OutputPerturbation"]

SLACK = 1 + 2**-40
"""A factor above 1 that covers the relative rounding error of a product of a few floats."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPerturbation:
    """Minimise J, then add N(0, noise²) to each coordinate of the minimiser.

    For all D, D′ that differ by one record added or removed: J and J′ differ by one ℓ, whose gradient has norm at most
    L = `lipschitz`, and both are λ-strongly convex, so the minimisers are at most L/λ apart. A solver that stops where
    ‖∇J‖ <= `tolerance` is at most tolerance/λ away from the minimiser. So Δ₂ = (L + 2·tolerance)/λ, and the curve is
    the curve of Gaussian noise with μ = Δ₂/noise (Chaudhuri, Monteleoni & Sarwate 2011, Lemma 7, for sums and
    add/remove).

    Logistic loss and hinge loss on rows of length at most R have L = R. Clipping gradients to C gives L = C only if the
    clipped gradients are those of the loss ℓ itself.

    >>> from deniable import learn
    >>> plan = learn.OutputPerturbation(lipschitz=1.0, regularisation=50.0).calibrate(epsilon=1, delta=1e-6)
    >>> plan.sensitivity, plan.curve.epsilon(delta=1e-6) <= 1
    (0.0200000000..., True)
    """

    lipschitz: float
    """L: the largest norm of one record's gradient in θ."""
    regularisation: float
    """λ: the strong convexity of J, once for the whole sum."""
    tolerance: float = 0.0
    """The norm of ∇J at which the solver may stop. Check it after the solver stopped."""
    noise: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "lipschitz", curve_arguments.positive("lipschitz", self.lipschitz))
        object.__setattr__(self, "regularisation", curve_arguments.positive("regularisation", self.regularisation))
        object.__setattr__(self, "tolerance", curve_arguments.not_negative("tolerance", self.tolerance))
        if self.noise is not None:
            object.__setattr__(self, "noise", curve_arguments.positive("noise", self.noise))

    @property
    def sensitivity(self) -> float:
        """The L2 sensitivity of the minimiser, rounded up."""
        return (self.lipschitz + 2 * self.tolerance) / self.regularisation * SLACK

    @property
    def curve(self) -> Curve:
        """The curve of the noisy minimiser. Raises `InvalidParameter` before calibration."""
        from deniable import curves

        return curves.gaussian(mu=self.sensitivity / _chosen(self.noise) * SLACK)

    def calibrate(self, *, epsilon: float, delta: float) -> Self:
        """The same plan with the least noise that is (ε, δ)-DP. Warns if ε or δ protects little."""
        from deniable.curves import calibrate

        warn_if_weak(epsilon=epsilon, delta=delta)

        def with_noise(noise: float) -> Self:
            return type(self)(
                lipschitz=self.lipschitz, regularisation=self.regularisation, tolerance=self.tolerance, noise=noise
            )

        return with_noise(calibrate(lambda noise: with_noise(noise).curve, epsilon=epsilon, delta=delta))

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for one record, with its assumptions."""
        solved = "the minimiser is exact" if self.tolerance == 0 else "the solver's tolerance was checked at the end"
        return Guarantee(self.curve, Unit.row(), assumptions=("the loss is convex and as Lipschitz as stated", solved))

    def explain(self) -> str:
        """The plan in words. Raises before calibration."""
        return (
            f"One record added or removed moves the minimiser by at most {rounded_up(self.sensitivity)}; "
            f"it gets noise of standard deviation {rounded_up(_chosen(self.noise))}."
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectivePerturbation:
    """Minimise J(θ) + <b, θ> with b ~ N(0, noise²) in each coordinate, for a generalised linear loss
    ℓ(θ; x, y) = φ(<θ, x>, y), |φ′|·‖x‖ <= L = `lipschitz` and 0 <= φ″·‖x‖² <= β = `smoothness`.

    For all D, D′ that differ by one record: δ(ε) <= 2 δ_μ(ε - log(1 + β/λ)) with μ = L/noise, for all ε with
    ε - log(1 + β/λ) >= μ²/2. Proof. Each θ is the minimiser for exactly one b = -∇J(θ). The ratio of the two densities
    of θ has two factors. The first is a ratio of determinants, 1 + φ″·xᵀH⁻¹x in [1, 1 + β/λ], because the record adds a
    matrix of rank one to H >= λI. The second is exp((±2c<b, x̂> + c²)/2noise²) with c = φ′·‖x‖, where |c| <= L for all
    θ. <b, x̂> is normal, because the direction x̂ belongs to the record and does not depend on θ. So the privacy loss
    is below log(1 + β/λ) + μ²/2 + μ|Z| with Z ~ N(0, 1), and E(1 - e^(ε - loss))_+ is at most twice its value for the
    Gaussian loss μ²/2 + μZ. (Kifer, Smith & Thakurta 2012; this form: Redberg, Koskela & Wang 2023, with
    |log(1 - β/λ)|, which is larger.)

    A solver that stops at ‖∇‖ <= `tolerance` is at most tolerance/λ away from the minimiser. Then N(0, `output_noise`²)
    must be added to each coordinate of its result, which is μ-GDP with μ = 2·tolerance/(λ·output_noise) (Iyengar et al.
    2019).

    The curve is (ε, δ)-DP as a black box, at the fixed `delta`.

    Logistic loss on rows of length at most R: L = R, β = R²/4.

    >>> from deniable import learn
    >>> plan = learn.ObjectivePerturbation(lipschitz=1.0, smoothness=0.25, regularisation=10.0, delta=1e-6)
    >>> plan = plan.calibrate(epsilon=1.0)
    >>> 4 < plan.noise < 6, plan.epsilon <= 1
    (True, True)
    """

    lipschitz: float
    smoothness: float
    regularisation: float
    delta: float
    noise: float | None = None
    tolerance: float = 0.0
    output_noise: float = 0.0

    def __post_init__(self) -> None:
        for name in ("lipschitz", "regularisation"):
            object.__setattr__(self, name, curve_arguments.positive(name, getattr(self, name)))
        for name in ("smoothness", "tolerance", "output_noise"):
            object.__setattr__(self, name, curve_arguments.not_negative(name, getattr(self, name)))
        object.__setattr__(self, "delta", curve_arguments.inner_probability("delta", self.delta))
        if self.noise is not None:
            object.__setattr__(self, "noise", curve_arguments.positive("noise", self.noise))
        if (self.tolerance > 0) != (self.output_noise > 0):
            rule = "and tolerance must be given together: the result of an inexact solver needs its own noise"
            raise InvalidParameter("output_noise", self.output_noise, rule)

    @property
    def epsilon(self) -> float:
        """ε of the exact minimiser at `delta`, rounded up. The noise for an inexact solver is not included."""
        from deniable.curves import textbook

        mu = self.lipschitz / _chosen(self.noise) * SLACK
        half = textbook.gdp_to_epsilon(mu=mu, delta=Fraction(self.delta) / 2)
        gaussian = max(half, mu * mu / 2 * SLACK)
        return (math.log1p(self.smoothness / self.regularisation * SLACK) + gaussian) * SLACK

    @property
    def curve(self) -> Curve:
        """The curve of the result, including the noise for an inexact solver. Raises before calibration."""
        from deniable import curves

        found = curves.approximate(epsilon=self.epsilon, delta=self.delta)
        if not self.tolerance:
            return found
        return found * curves.gaussian(mu=2 * self.tolerance / self.regularisation / self.output_noise * SLACK)

    def calibrate(self, *, epsilon: float) -> Self:
        """The same plan with the least noise for which the exact minimiser is (ε, `delta`)-DP.

        Raises if ε does not exceed log(1 + smoothness/regularisation), which no noise can reach.
        """
        target = curve_arguments.positive("epsilon", epsilon)
        warn_if_weak(epsilon=target, delta=self.delta)
        least = math.log1p(self.smoothness / self.regularisation * SLACK) * SLACK
        if least >= target:
            rule = f"must exceed log(1 + smoothness/regularisation) = {rounded_up(least)}"
            raise InvalidParameter("epsilon", epsilon, rule, "raise the regularisation")

        def with_noise(noise: float) -> Self:
            given = {name: getattr(self, name) for name in self.__dataclass_fields__}
            return type(self)(**{**given, "noise": noise})

        low, high = 2.0**-40, 1.0
        while with_noise(high).epsilon > target:
            low, high = high, high * 2
        while high - low > 1e-7 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if with_noise(middle).epsilon <= target else (middle, high)
        return with_noise(high)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for one record, with its assumptions."""
        solved = "the minimiser is exact" if not self.tolerance else "the solver's tolerance was checked at the end"
        assumed = (
            "the loss is that of a generalised linear model, convex, and as Lipschitz and smooth as stated",
            solved,
            "floating-point arithmetic protects like the real arithmetic of the proof",
        )
        return Guarantee(self.curve, Unit.row(), assumptions=assumed)

    def explain(self) -> str:
        """The plan and its guarantee in words. Raises before calibration."""
        sentence = (
            f"A random linear term of standard deviation {rounded_up(_chosen(self.noise))} in each coordinate is added "
            f"before minimising: ε = {rounded_up(self.epsilon)} at δ = {self.delta:g}."
        )
        return "\n".join([sentence, *weaknesses(epsilon=self.epsilon, delta=self.delta)])


def _chosen(noise: float | None) -> float:
    if noise is None:
        raise InvalidParameter("noise", None, "is not chosen yet", "write plan.calibrate(epsilon=...)")
    return noise
