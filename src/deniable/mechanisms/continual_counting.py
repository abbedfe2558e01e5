"""Counting while the data arrive: after every step a noisy total so far, with one guarantee for the whole stream.

One unit affects one step of the stream, and moves that step's number by at most `sensitivity`. Fresh noise on every
total would cost ε for each of the T totals. Both counters here add noise to a few linear combinations of the steps and
compute every total from those:

    TreeCounter          sums over the blocks of a binary tree; each step is in log₂ T + 1 of them. Pure ε possible.
    FactorisedCounter    by the square root of the prefix-sum matrix; a third of the tree's error at T = 1000.

The next step's number may depend on the answers so far (an adaptive stream): every combination is paid for in advance.
"""

from __future__ import annotations

import math
import os
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import numpy as np

from deniable.curves import Curve, curve_arguments
from deniable.errors import BudgetExceeded, InvalidOperation, InvalidParameter
from deniable.mechanisms import distinguishing_parts, input_values, noise_quantiles, rational_parameters
from deniable.mechanisms.additive_noise import Gaussian, Laplace, asks_for_laplace
from deniable.mechanisms.distinguishing_parts import Told
from deniable.mechanisms.mechanism import Mechanism
from deniable.mechanisms.noise_steps import Additive
from deniable.noise.entropy import checked_entropy

if TYPE_CHECKING:
    from deniable.noise import Entropy

LONGEST: Final = 2**20
MOST_FACTORISED: Final = 2**16
LARGEST_STEP: Final = 2**61
"""Larger numbers of a step are clamped to this in `FactorisedCounter`. Clamping never moves two values apart."""
COEFFICIENT: Final = 2**32
"""The coefficients of the square root are multiples of 2⁻³², so that they and their sums are exact."""


class Counting(Mechanism):
    """A counter for a stream of at most `horizon` steps."""

    __slots__ = ()
    horizon: int
    noise: Additive

    @abstractmethod
    def start(self, *, entropy: Entropy | None = None) -> Stream:
        """A running counter, for numbers that arrive one by one. Each call is one release, and costs the curve."""

    def release(self, value: Any, *, entropy: Entropy | None = None) -> Any:
        """The noisy totals after each step of a finished stream (a list or array of integers)."""
        steps = self._steps(value)
        stream = self.start(entropy=entropy)
        return np.array([stream.add(step) for step in steps])

    def _steps(self, value: Any) -> list[int]:
        if input_values.is_table(value) or not input_values.is_array(value):
            raise input_values.refused(
                "must be one column of whole numbers, one for each step", input_values.ONE_COLUMN
            )
        steps = input_values.wholes(value)
        if not 0 < steps.size <= self.horizon:
            raise input_values.refused(f"must have between 1 and {self.horizon} steps")
        listed: list[int] = steps.tolist()
        return listed

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """The noisy sums that differ; the totals are a function of these sums and determine them."""
        one, two = (self._sums(self._steps(stream)) for stream in (x, x2))
        return distinguishing_parts.numbers(self.noise, one, two, lambda i: f"the noisy sum made at step {i + 1}")

    @abstractmethod
    def _sums(self, steps: list[int]) -> list[Any]:
        """The exact sums that noise is added to, one at each step."""


class Stream(ABC):
    """A running counter: `add` takes the next step's number and returns the noisy total so far.

    Threads may share it. It cannot be copied, pickled or used in a forked process: each copy would give answers about
    the same steps, which were paid for once. All of these raise InvalidOperation.
    """

    __slots__ = ("_horizon", "_lock", "_noise", "_process", "_source", "_steps")

    def __init__(self, noisy: Additive, horizon: int, entropy: Entropy | None) -> None:
        self._noise, self._horizon, self._source = noisy, horizon, checked_entropy(entropy)
        self._steps = 0
        self._process, self._lock = os.getpid(), threading.Lock()

    @property
    def steps(self) -> int:
        """The number of steps so far."""
        return self._steps

    def add(self, number: Any) -> Any:
        """Add the number of the next step, and return the noisy total so far. Raises BudgetExceeded after `horizon`
        steps, the number that was paid for.
        """
        if os.getpid() != self._process:
            raise InvalidOperation(
                "a running counter cannot continue in a forked process; start another, at its own cost"
            )
        whole = input_values.whole(number)
        with self._lock:
            if self._steps >= self._horizon:
                raise BudgetExceeded(
                    "one more step", f"none of {self._horizon}", "start another counter, at its own cost"
                )
            self._steps += 1
            return self._count(whole)

    @abstractmethod
    def _count(self, number: int) -> Any:
        """The noisy total after one more step."""

    def __reduce__(self) -> NoReturn:
        raise InvalidOperation("a running counter cannot be copied or pickled; start another, at its own cost")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} after {self._steps} of {self._horizon} steps>"


# -- the binary tree -------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class TreeCounter(Counting):
    """Totals from a binary tree of noisy block sums.

    For all neighbours D, D′ that differ in one step by at most Δ: a step is in L = ⌊log₂ T⌋ + 1 blocks, one per level,
    so all block sums together move by L·Δ in L1 and √L·Δ in L2. Laplace noise by `scale=` or `epsilon=` (scale LΔ/ε on
    each block), Gaussian noise by `sigma=`, `mu=`, or `epsilon=` with `delta=` (σ = √L·Δ/μ). A total is a sum of at
    most L blocks.

    >>> from deniable import mechanisms
    >>> counter = mechanisms.TreeCounter(horizon=1000, sensitivity=1, epsilon=1.0)
    >>> counter.levels
    10
    >>> stream = counter.start()
    >>> total = stream.add(1)
    >>> total = stream.add(0)
    >>> stream
    <TreeStream after 2 of 1000 steps>

    Source: Chan, Shi & Song (2011); Dwork, Naor, Pitassi & Rothblum (2010).
    """

    horizon: int
    levels: int
    noise: Additive

    def __init__(
        self,
        *,
        horizon: int,
        sensitivity: int,
        scale: float | Fraction | None = None,
        epsilon: float | None = None,
        sigma: float | Fraction | None = None,
        mu: float | None = None,
        delta: float | None = None,
    ) -> None:
        last, step = _horizon(horizon, LONGEST), curve_arguments.integer("sensitivity", sensitivity, 1)
        levels = last.bit_length()
        noisy: Additive
        if asks_for_laplace(scale=scale, epsilon=epsilon, sigma=sigma, mu=mu, delta=delta):
            noisy = Laplace(sensitivity=levels * step, scale=scale, epsilon=epsilon)
        else:
            moved = rational_parameters.root_up(Fraction(levels * step * step))
            noisy = Gaussian.whole(sensitivity=moved, sigma=sigma, mu=mu, epsilon=epsilon, delta=delta)
        self._settle(horizon=last, levels=levels, noise=noisy)

    def __repr__(self) -> str:
        return f"TreeCounter(horizon={self.horizon}, {self.curve!r})"

    @property
    def curve(self) -> Curve:
        return self.noise.curve

    def start(self, *, entropy: Entropy | None = None) -> TreeStream:
        return TreeStream(self.noise, self.horizon, entropy)

    def _sums(self, steps: list[int]) -> list[Any]:
        # Step t closes the block of its lowest binary digit, whose value is the length of the block.
        return [sum(steps[t - (t & -t) : t]) for t in range(1, len(steps) + 1)]

    def error(self, *, confidence: float) -> float:
        """A bound on the error of all totals at once, with probability at least `confidence`: a union bound over the
        steps, each the sum of at most `levels` independent noises.
        """
        allowed = noise_quantiles.miss(confidence) / self.horizon
        width = Fraction(self.noise.width)
        if isinstance(self.noise, Laplace):
            return float(math.ceil(noise_quantiles.sum_of_discrete_laplace(float(width), self.levels, allowed)))
        # A rounded Gaussian is a Gaussian, moved by at most 1/2.
        reach = float(width) * math.sqrt(self.levels) * noise_quantiles.normal(allowed) + self.levels / 2
        return float(math.ceil(reach * (1 + noise_quantiles.SLACK)))


@final
class TreeStream(Stream):
    """Keeps one open block per level, exact and noisy, like the binary digits of the number of steps."""

    __slots__ = ("_blocks", "_noisy_blocks")

    def __init__(self, noisy: Additive, horizon: int, entropy: Entropy | None) -> None:
        super().__init__(noisy, horizon, entropy)
        self._blocks = [0] * horizon.bit_length()
        self._noisy_blocks = [0] * horizon.bit_length()

    def _count(self, number: int) -> int:
        # Step t closes the block at the level of t's lowest digit, which absorbs all smaller open blocks.
        level = (self._steps & -self._steps).bit_length() - 1
        self._blocks[level] = sum(self._blocks[:level]) + number
        self._blocks[:level] = [0] * level
        self._noisy_blocks[:level] = [0] * level
        self._noisy_blocks[level] = self._blocks[level] + int(self._noise.draw(None, self._source))
        return sum(self._noisy_blocks)


# -- the square root of the prefix-sum matrix ------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class FactorisedCounter(Counting):
    """Totals from a factorisation A = R·R of the prefix-sum matrix into its square root, with Gaussian noise.

    R is lower triangular, with the coefficients f₀ = 1, f_k = f_{k−1}(1 − 1/(2k)) of (1 − x)^(−1/2) on its diagonals.
    The vector R·x moves by at most Δ‖f‖₂ in L2, so R·x + z with z of σ = Δ‖f‖₂/μ is μ-GDP, for all neighbours D, D′
    that differ in one step by at most Δ; multiplying by R is post-processing, and gives A·x + R·z. The standard
    deviation at step t is σ(f₀² + … + f²_{t−1})^(1/2), at most about (1 + log(T)/π)Δ/μ, where the tree has log₂(T)Δ/μ.
    Give `sigma=`, `mu=`, or `epsilon=` with `delta=`.

    The coefficients are rounded to 2⁻³² and R·x is computed exactly in integers, so the sensitivity is exact. Totals
    are floats. A step's number beyond ±2⁶¹ counts as ±2⁶¹.

    >>> from deniable import mechanisms
    >>> tree = mechanisms.TreeCounter(horizon=1000, sensitivity=1, mu=1.0)
    >>> root = mechanisms.FactorisedCounter(horizon=1000, sensitivity=1, mu=1.0)
    >>> tree.error(confidence=0.95) / root.error(confidence=0.95) > 2.9
    True

    Source: Henzinger, Upadhyay & Upadhyay (2023); Fichtenberger, Henzinger & Upadhyay (2023). Adaptive streams:
    Denisov, McMahan, Rush, Smith & Thakurta (2022), Theorem 2.1.
    """

    horizon: int
    noise: Additive

    def __init__(
        self,
        *,
        horizon: int,
        sensitivity: int,
        sigma: float | Fraction | None = None,
        mu: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
    ) -> None:
        last, step = _horizon(horizon, MOST_FACTORISED), curve_arguments.integer("sensitivity", sensitivity, 1)
        square = sum(int(c) * int(c) for c in coefficients(last))
        moved = rational_parameters.root_up(Fraction(square * step * step, COEFFICIENT**2))
        noisy = Gaussian(sensitivity=moved, sigma=sigma, mu=mu, epsilon=epsilon, delta=delta, dimension=last)
        self._settle(horizon=last, noise=noisy)

    def __repr__(self) -> str:
        return f"FactorisedCounter(horizon={self.horizon}, {self.curve!r})"

    @property
    def curve(self) -> Curve:
        return self.noise.curve

    def start(self, *, entropy: Entropy | None = None) -> FactorisedStream:
        return FactorisedStream(self.noise, self.horizon, entropy)

    def _sums(self, steps: list[int]) -> list[Any]:
        clamped = [float(max(-LARGEST_STEP, min(LARGEST_STEP, step))) for step in steps]
        root = coefficients(self.horizon)[: len(steps)].astype(np.float64) / COEFFICIENT
        found: list[float] = np.convolve(root, clamped)[: len(steps)].tolist()
        return found

    def error(self, *, confidence: float) -> float:
        """A bound on the error of all totals at once, with probability at least `confidence` (a union bound over the
        steps). Rounding of the coefficients adds at most 2⁻³¹√T of the true total.
        """
        allowed = noise_quantiles.miss(confidence) / self.horizon
        f = coefficients(self.horizon).astype(np.float64) / COEFFICIENT
        spread = float(self.noise.width) * math.sqrt(float(f @ f)) * noise_quantiles.normal(allowed)
        # On every summed coordinate, both the noise and the value are rounded to a step.
        return (spread + float(f.sum())) * float(self.noise.spacing) * (1 + 1e-9)


@final
class FactorisedStream(Stream):
    """Keeps the numbers so far, and the noisy vector R·x + z, of which totals are sums."""

    __slots__ = ("_coefficients", "_high", "_low", "_noisy")

    def __init__(self, noisy: Additive, horizon: int, entropy: Entropy | None) -> None:
        super().__init__(noisy, horizon, entropy)
        self._coefficients = coefficients(horizon)
        self._low, self._high = np.zeros(horizon, dtype=np.int64), np.zeros(horizon, dtype=np.int64)
        self._noisy = np.zeros(horizon)

    def _count(self, number: int) -> float:
        t = self._steps
        # Numbers in two parts, below 2³¹ and up to ±2³⁰ in size: their products with coefficients up to 2³² fit into 64
        # bits.
        self._high[t - 1], self._low[t - 1] = divmod(max(-LARGEST_STEP, min(LARGEST_STEP, number)), 2**31)
        turned = self._coefficients[:t][::-1]
        total = (input_values.whole_sum(turned * self._high[:t]) << 31) + input_values.whole_sum(turned * self._low[:t])
        self._noisy[t - 1] = self._noise.noisy(Fraction(total, COEFFICIENT), self._source)
        return float(self._coefficients[:t][::-1] @ self._noisy[:t]) / COEFFICIENT


@lru_cache(maxsize=16)
def coefficients(count: int) -> input_values.Ints:
    """f_k = C(2k, k)/4^k in units of 2⁻³², rounded."""
    found = np.empty(count, dtype=np.int64)
    # 64 extra bits: each division loses less than one of them.
    current = COEFFICIENT << 64
    for k in range(count):
        if k:
            current = current * (2 * k - 1) // (2 * k)
        found[k] = (current + 2**63) >> 64
    found.setflags(write=False)
    return found


def _horizon(horizon: Any, most: int) -> int:
    last = curve_arguments.integer("horizon", horizon, 1)
    if last > most:
        raise InvalidParameter("horizon", horizon, f"must be at most {most:,}")
    return last
