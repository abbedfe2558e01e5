"""Federated averaging with a secure sum: every client adds a share of integer noise, and the server sees only the sum.

In each round every client of a fixed group computes an update of the model from its own data, and sends a vector of
integers modulo a public number. A secure sum (for instance by pairwise masks) shows the server the sum of all messages,
and no single message. No client adds the whole noise: each adds a share, and the shares of the clients that take part
add up to the noise of the sum.

**A message.** The update x is scaled down to the clipping norm C, multiplied by the scale s, and rounded to integers at
random, up or down, without bias. The rounding is drawn again until the squared length is at most B (`largest_square`),
so every message has ‖x̃‖² <= B by an exact check; nothing else about the rounding matters for privacy. With L = sC and d
coordinates, ‖x̃‖ <= L + √d, because rounding moves each coordinate by less than 1. And ‖x̃‖² has mean <= L² + d/4, and
is a sum of independent terms in ranges of 2|x_i| + 1, so by Hoeffding it exceeds its mean by (L + √d/2) √(2 log 1/β)
with a probability of at most β. B is the smaller of the two bounds, for β = 10⁻⁴ (Kairouz, Liu & Steinke 2021,
"The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation").

**The noise.** Each share is Skellam (`deniable.curves.atoms.skellam`) of variance v/(n - k) for n clients of which at
most k may be missing: they drop out, or reveal their share to others. Sums of Skellam numbers are Skellam, so the sum
has noise of variance v at least. More noise than that is post-processing, and so is the modulus.

**The curve.** Neighbours differ in the data of one client: the client has data, or it has no data and its update is 0.
It sends its share of the noise in both cases, so the two sums differ by x̃. One round is μ-GDP with μ = μ₁(v) √B. If
each client takes part only by its own secret coin of probability q, and sends an update of 0 otherwise, the round is
gaussian(mu=μ).sampled(rate=q), also against the server, which cannot see the coins. Rounds compose adaptively.

A server that chooses the clients of a round itself, in public, gains nothing by sampling against itself: then `rate` is
1, and `rounds` may be the largest number of rounds that one client takes part in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self, final

import numpy as np
from numpy.typing import NDArray

from deniable.curves import curve_arguments
from deniable.curves.atoms.skellam import LARGEST_VARIANCE, unit_mu
from deniable.curves.curve_display import rounded_up
from deniable.curves.meaning.weakness_advice import weaknesses
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter
from deniable.learn.plans import PricedPlan, protected
from deniable.units import Unit

if TYPE_CHECKING:
    from deniable.curves import Curve
    from deniable.noise import Entropy

__all__ = ["Federated"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

REJECTED: Final = math.sqrt(2 * math.log(1e4))
"""√(2 log 1/β): a rounding is too long, and drawn again, with a probability of at most β."""

TRIES: Final = 40
"""After this many roundings that were too long, coordinates are rounded towards 0, which is never too long."""

SMALLEST, LARGEST = 16, math.isqrt(LARGEST_VARIANCE)
"""The smallest and largest standard deviation of the noise in steps."""

REACH: Final = 20
"""Noise of at least SMALLEST stays within this many standard deviations except with a probability below e^-180."""

COIN: Final = 2**32


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Federated(PricedPlan):
    """Federated averaging: in each of `rounds` rounds, `clients` clients send clipped, rounded and noisy updates of
    `dimension` numbers; the server sees their sum modulo `modulus`.

    Promise: for all neighbours, which differ in whether one client has data, an attacker who sees all sums cannot
    distinguish them better than gaussian(mu=`round_mu`).sampled(rate=rate) ** rounds allows. Proof: `federated_plan`.

    `noise` is the standard deviation of the noise in the sum, in units of `clip`. At most `missing` of the clients may
    drop out of a round, or reveal their share to others. `rate` is the probability of the coin by which a client takes
    part. `deviation` is the standard deviation of the noise in steps of the integers. A larger value means finer
    rounding and longer messages.

    >>> from deniable import learn
    >>> plan = learn.Federated(clip=1.0, dimension=1000, clients=100, missing=10, rate=1.0, rounds=20)
    >>> plan = plan.calibrate(epsilon=4, delta=1e-6)
    >>> plan.curve.epsilon(delta=1e-6) <= 4
    True
    >>> messages = [plan.message([0.01] * 1000) for _ in range(95)]  # five clients dropped out
    >>> total = sum(messages) % plan.modulus
    >>> plan.decoded(total, received=95).shape
    (1000,)
    """

    clip: float
    dimension: int
    clients: int
    missing: int
    rate: float
    rounds: int
    deviation: int
    noise: float | None
    unit: Unit

    def __init__(
        self,
        *,
        clip: float,
        dimension: int,
        clients: int,
        missing: int,
        rate: float,
        rounds: int,
        deviation: int = 1024,
        noise: float | None = None,
        unit: Unit | None = None,
    ) -> None:
        fill = object.__setattr__
        fill(self, "clip", curve_arguments.positive("clip", clip))
        fill(self, "dimension", curve_arguments.integer("dimension", dimension, 1))
        fill(self, "clients", curve_arguments.integer("clients", clients, 1))
        fill(self, "missing", curve_arguments.integer("missing", missing, 0))
        fill(self, "rate", curve_arguments.probability("rate", rate))
        fill(self, "rounds", curve_arguments.integer("rounds", rounds, 1))
        fill(self, "deviation", curve_arguments.integer("deviation", deviation, SMALLEST))
        fill(self, "noise", None if noise is None else curve_arguments.positive("noise", noise))
        fill(self, "unit", protected(unit))
        if self.missing >= self.clients:
            rule = f"must be below the number of clients, {self.clients}, so that at least one client adds noise"
            raise InvalidParameter("missing", missing, rule)
        if self.rate == 0:
            raise InvalidParameter("rate", rate, "must be above 0, so that clients take part")
        if self.deviation > LARGEST:
            rule = f"must be at most {LARGEST}: finer steps gain nothing, because rounding is far below the noise"
            raise InvalidParameter("deviation", deviation, rule)
        if self.noise is not None and max(self.largest_square, self.modulus) > 2**62:
            rule = "is so small that sums or squared lengths need more than 62 bits"
            raise InvalidParameter("noise", noise, rule, "use more noise, or a lower deviation=")

    def _with(self, noise: float) -> Self:
        return type(self)(
            clip=self.clip,
            dimension=self.dimension,
            clients=self.clients,
            missing=self.missing,
            rate=self.rate,
            rounds=self.rounds,
            deviation=self.deviation,
            noise=noise,
            unit=self.unit,
        )

    @property
    def records(self) -> int:  # type: ignore[override]  # a field elsewhere, the number of clients here
        """The number of clients."""
        return self.clients

    # -- the curve -----------------------------------------------------------------------------------------------------

    @property
    def scale(self) -> float:
        """The number of integer steps per unit of an update."""
        return self.deviation / (self.calibrated() * self.clip)

    @property
    def largest_square(self) -> int:
        """B: the largest squared length of a rounded update, in steps."""
        return _largest_square(self.deviation / self.calibrated(), self.dimension)

    @property
    def round_mu(self) -> float:
        """The μ of one round without coins, rounded up."""
        return self._mu(float(self.deviation**2))

    def _mu(self, variance: float) -> float:
        # Two roundings, of the root and the product.
        return math.sqrt(self.largest_square) * unit_mu(variance) * (1 + 2**-50)

    @property
    def curve(self) -> Curve:
        return self._composed(self.round_mu)

    def _composed(self, mu: float) -> Curve:
        from deniable import curves

        once = curves.gaussian(mu=mu)
        return (once if self.rate == 1 else once.sampled(rate=self.rate)) ** self.rounds

    def curve_with(self, *, missing: int) -> Curve:
        """The curve of the run if the shares of `missing` clients are missing in every round.

        It is `curve` or better for at most `self.missing` of them.
        """
        count = curve_arguments.integer("missing", missing, 0)
        if count >= self.clients:
            raise InvalidParameter("missing", missing, f"must be below the number of clients, {self.clients}")
        share = Fraction(self.clients - count, self.clients - self.missing)
        variance = min(float(self.deviation**2 * share) * (1 - 2**-50), float(LARGEST_VARIANCE))
        return self._composed(self._mu(variance))

    @property
    def is_gaussian(self) -> bool:
        return self.rate == 1

    @property
    def assumptions(self) -> tuple[str, ...]:
        least = self.clients - self.missing
        coins = ("whether the update of a client takes part in a round is decided by its own secret coin",)
        return (
            "a record is all data of one client; a client without data sends its share of the noise",
            f"in each round at least {least} clients add their share of the noise and tell it to nobody",
            f"single messages stay secret: only their sum modulo {self.modulus} is seen (a secure sum)",
            *(coins if self.rate < 1 else ()),
        )

    # -- messages ------------------------------------------------------------------------------------------------------

    @property
    def modulus(self) -> int:
        """A power of two beyond every sum: noise reaches it with a probability below e^-180 for each number."""
        largest = self.clients * (math.isqrt(self.largest_square) + 1)
        whole = self.deviation * math.sqrt(self.clients / (self.clients - self.missing))
        return int(2 ** (2 * (largest + math.ceil(REACH * whole))).bit_length())

    def message(self, update: Any, *, entropy: Entropy | None = None) -> Integers:
        """What a client sends: its update, clipped and rounded, plus its share of the noise, modulo `modulus`.

        An update with NaN or infinity counts as 0.
        """
        from deniable import noise

        rate = Fraction(self.deviation**2, 2 * (self.clients - self.missing))
        share = noise.poisson(rate=rate, size=self.dimension, entropy=entropy)
        share -= noise.poisson(rate=rate, size=self.dimension, entropy=entropy)
        return (self.rounded(update, entropy=entropy) + share) % self.modulus

    def no_update(self, *, entropy: Entropy | None = None) -> Integers:
        """What a client sends without an update: its share of the noise, modulo `modulus`."""
        return self.message(np.zeros(self.dimension), entropy=entropy)

    def takes_part(self, *, entropy: Entropy | None = None) -> bool:
        """A client's coin for one round. If it is False, the client sends `no_update`."""
        from deniable import noise

        return self.rate == 1 or noise.bernoulli(p=self.rate, entropy=entropy)

    def rounded(self, update: Any, *, entropy: Entropy | None = None) -> Integers:
        """The clipped update as integers, of squared length at most `largest_square`. The result has no noise and is
        not private.
        """
        from deniable import noise

        scaled = self._clipped(update) * self.scale
        below, bound = np.floor(scaled), self.largest_square
        for _ in range(TRIES):
            coins = noise.uniform(below=COIN, size=self.dimension, entropy=entropy)
            found = (below + (coins < (scaled - below) * COIN)).astype(np.int64)
            if int(found @ found) <= bound:
                return found
        return np.trunc(scaled).astype(np.int64)

    def _clipped(self, update: Any) -> Floats:
        try:
            given = np.asarray(update, dtype=np.float64)
        except Exception:  # its own message may show data
            raise InvalidParameter("update", NOTHING, "must be a vector of numbers") from None
        if given.shape != (self.dimension,):
            rule = f"must be a vector of {self.dimension} numbers, but has the shape {given.shape}"
            raise InvalidParameter("update", NOTHING, rule, "flatten the parameters, in a fixed order")
        largest = float(np.max(np.abs(given)))
        if not math.isfinite(largest) or largest == 0:
            return np.zeros(self.dimension)
        # Divided by the largest entry first, so that squares neither overflow nor vanish.
        direction = given / largest
        length = float(np.sqrt(direction @ direction)) * largest
        # Slightly less than the norm, so that rounding towards 0 cannot exceed it.
        return (
            given if length <= self.clip * (1 - 1e-12) else direction * (self.clip * (1 - 1e-12) * (largest / length))
        )

    def decoded(self, total: Any, *, received: int) -> Floats:
        """The noisy mean of the updates, from the sum of `received` messages modulo `modulus`.

        The sum is divided by rate × `received`, the average number of updates in it. Raises `InvalidOperation` if more
        clients than `missing` are missing: then the sum has too little noise and must not be used.
        """
        count = curve_arguments.integer("received", received, 0)
        if count > self.clients:
            raise InvalidParameter("received", received, f"must be at most the number of clients, {self.clients}")
        if count < self.clients - self.missing:
            rule = f"{self.clients - count} of {self.clients} clients are missing, but the plan allows {self.missing}"
            raise InvalidOperation(f"{rule}; discard the round without using the sum")
        sums = np.asarray(total)
        if sums.shape != (self.dimension,) or sums.dtype.kind not in "iu":
            raise InvalidParameter("total", NOTHING, f"must be a vector of {self.dimension} integers")
        half = self.modulus // 2
        centred = (sums.astype(np.int64) + half) % self.modulus - half
        return centred / (self.scale * self.rate * count)

    # -- words ---------------------------------------------------------------------------------------------------------

    def explain(self, *, delta: float = 1e-5) -> str:
        """The plan and its guarantee in words, with ε at `delta`."""
        who = "all of them" if self.rate == 1 else f"each by its own secret coin of probability {self.rate:.5g}"
        lines = [f"{self.rounds} rounds of {self.clients} clients, {who}; at most {self.missing} may be missing."]
        if self.noise is None:
            lines.append("The noise is not chosen yet: plan.calibrate(epsilon=, delta=).")
            return "\n".join(lines)
        bits = self.modulus.bit_length() - 1
        spread = self.noise * self.clip
        lines.append(
            f"Updates longer than {self.clip:g} are scaled down to it; their sum gets Skellam noise of standard "
            f"deviation {spread:.4g}, and a message has {self.dimension} integers of {bits} bits."
        )
        epsilon = self.curve.epsilon(delta=delta)
        lines.append(
            f"Whether one client has data: an attacker who sees all sums reaches at most ε = {rounded_up(epsilon)} "
            f"at δ = {delta:g}."
        )
        lines += weaknesses(epsilon=epsilon, delta=delta, people=self.clients)
        return "\n".join(lines)

    def __repr__(self) -> str:
        noise = "" if self.noise is None else f", noise={self.noise:.6g}"
        unit = "" if self.unit.column is None else f", unit={self.unit!r}"
        return (
            f"Federated(clip={self.clip!r}, dimension={self.dimension}, clients={self.clients}, "
            f"missing={self.missing}, rate={self.rate:.6g}, rounds={self.rounds}, deviation={self.deviation}"
            f"{unit}{noise})"
        )


@lru_cache(maxsize=256)
def _largest_square(length: float, dimension: int) -> int:
    """B of the module, for L = `length`. Any number is safe, because every message is checked against it."""
    always = (length + math.sqrt(dimension)) ** 2
    nearly = length**2 + dimension / 4 + (length + math.sqrt(dimension) / 2) * REJECTED
    return max(1, math.ceil(min(always, nearly)))
