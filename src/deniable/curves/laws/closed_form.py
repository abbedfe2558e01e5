"""Laws whose tails have a closed form: Gaussian, Laplace, bounded range."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from deniable.curves.laws.law import Law, Tails
from deniable.curves.outward_rounding import SPECIAL, UNIT_ROUNDOFF, Floats


def upper_normal(x: Floats) -> Floats:
    """1 - Φ(x) with relative accuracy in both tails."""
    from scipy import special

    positive = np.maximum(x, 0.0)
    far = 0.5 * np.exp(-0.5 * positive * positive) * special.erfcx(positive / math.sqrt(2))
    return np.asarray(np.where(x > 0, far, special.ndtr(-x)))


@dataclass(frozen=True, slots=True)
class GaussianLaw(Law):
    """N(0,1) against N(μ,1): L ~ N(μ²/2, μ²) under P. Symmetric, and products only add μ²."""

    mu: float

    @property
    def lowest(self) -> float:
        return -math.inf if self.mu > 0 else 0.0

    @property
    def highest(self) -> float:
        return math.inf if self.mu > 0 else 0.0

    @property
    def scale(self) -> float:
        return max(self.mu, 1e-300)

    def tails(self, loss: Floats) -> Tails:
        from scipy import special

        a = loss / self.mu - self.mu / 2
        b = loss / self.mu + self.mu / 2
        first = upper_normal(a)
        # e^l Φ(-b) = φ(a) Mills(b): this form never computes e^l when it is large.
        positive = 0.5 * np.exp(-0.5 * a * a) * special.erfcx(np.maximum(b, 0.0) / math.sqrt(2))
        negative = np.exp(np.minimum(loss, 0.0)) * special.ndtr(-np.minimum(b, 0.0))
        second = np.where(b > 0, positive, negative)
        # A rounding error of a changes φ(a) by |a| times the rounding errors of its two terms.
        error = SPECIAL + 4 * UNIT_ROUNDOFF * (np.abs(a) + 1) * (np.abs(loss) / self.mu + self.mu + 1)
        return Tails(first, second, error)

    def moment(self, order: float) -> float | None:
        return 0.5 * self.mu * self.mu * order * (order + 1) * (1 + 8 * UNIT_ROUNDOFF)

    def tail_moment(self, order: float, loss: float) -> float | None:
        from scipy import special

        # Tilting N(μ²/2, μ²) by `order` shifts its mean by order × μ².
        at = loss / self.mu - self.mu * (0.5 + order)
        return 0.5 * self.mu * self.mu * order * (order + 1) + float(special.log_ndtr(-at)) + 1e-9


def laplace_tails(shift: Floats | float, loss: Floats) -> Tails:
    """The tails of `LaplaceLaw`: of one law, or of a column of laws."""
    inside = 0.5 * np.exp((np.clip(loss, -shift, shift) - shift) / 2)
    below, within = loss < -shift, loss < shift
    first = np.where(below, 1.0, np.where(within, 1.0 - inside, 0.0))
    second = np.where(below, np.exp(np.minimum(loss, 0.0)), np.where(within, inside, 0.0))
    return Tails(first, second, 16 * UNIT_ROUNDOFF * (1 + shift))


def laplace_gaps(shift: Floats | float, loss: Floats) -> tuple[Floats, Floats]:
    """P(L > loss) - e^loss Q(L > loss) is 1 - e^((loss - shift) / 2) between the two atoms."""
    gap = -np.expm1(np.where(loss < -shift, np.minimum(loss, 0.0), (np.minimum(loss, shift) - shift) / 2))
    # A rounding of the loss moves the gap by at most as much.
    return gap, 4 * UNIT_ROUNDOFF * (gap + shift)


@dataclass(frozen=True, slots=True)
class LaplaceColumn:
    """Many Laplace laws at once: `shifts` is a column, and every row of losses belongs to one law."""

    shifts: Floats

    def tails(self, loss: Floats) -> Tails:
        """The tails of every law at its row of losses."""
        return laplace_tails(self.shifts, loss)

    def gaps(self, loss: Floats) -> tuple[Floats, Floats]:
        """The gaps of every law at its row of losses, and a bound on their errors."""
        return laplace_gaps(self.shifts, loss)


@dataclass(frozen=True, slots=True)
class LaplaceLaw(Law):
    """Laplace noise with shift/scale = t: L is t with P-mass 1/2, -t with mass e^-t/2, and continuous between."""

    shift: float

    @property
    def lowest(self) -> float:
        return -self.shift

    @property
    def highest(self) -> float:
        return self.shift

    @property
    def atoms(self) -> tuple[float, ...]:
        return (self.shift, -self.shift)

    def tails(self, loss: Floats) -> Tails:
        return laplace_tails(self.shift, loss)

    def gaps(self, loss: Floats) -> tuple[Floats, Floats]:
        return laplace_gaps(self.shift, loss)

    def moment(self, order: float) -> float | None:
        s, t = order, self.shift
        if s <= -0.5:
            return None
        # E_P e^{sL} = e^{st}/2 + e^{-(1+s)t}/2 + sinh-like integral; Mironov's form for order a = s + 1.
        a = s + 1
        big = s * t
        log = math.log(a / (2 * a - 1) + (a - 1) / (2 * a - 1) * math.exp(-(2 * a - 1) * t))
        return big + log + 8 * UNIT_ROUNDOFF * (1 + abs(big))


@dataclass(frozen=True, slots=True)
class BoundedRangeLaw(Law):
    """The worst loss of an ε-bounded-range mechanism (the exponential mechanism; Dong, Durfee, Rogers 2020).

    A mechanism whose loss stays in [t - ε, t] is at worst a two-point law for each t in [0, ε]; the largest profile
    over t is δ(l) = (1 - e^((l-ε)/2))² / (1 - e^-ε), reached at t = (ε + l)/2.
    """

    epsilon: float

    @property
    def lowest(self) -> float:
        return -self.epsilon

    @property
    def highest(self) -> float:
        return self.epsilon

    def tails(self, loss: Floats) -> Tails:
        e = self.epsilon
        inside = np.clip(loss, -e, e)
        share = -np.expm1((inside - e) / 2)
        first = np.where(loss < -e, 1.0, share / -math.expm1(-e))
        second = np.where(loss < -e, np.exp(np.minimum(loss, 0.0)), first * np.exp((inside - e) / 2))
        return Tails(first, second, 32 * UNIT_ROUNDOFF * (1 + e))
