"""Finite laws: a loss that takes finitely many values. Exact for discrete mechanisms, and a certified bound for others.

`from_masses` takes a pair of mass functions; `power` and `product` compose exactly while the number of distinct values
stays small; `binomial` composes a two-point law any number of times. Where two values must be merged or rounded,
`side` says in which direction: "upper" gives an upper bound on the leakage, "lower" a lower bound.
"""

from __future__ import annotations

import math

import numpy as np

from deniable.curves.laws.law import Law, LawPair, Sided, Tails
from deniable.curves.outward_rounding import TINY, UNIT_ROUNDOFF, Floats, Side

LARGEST_SUPPORT = 4_000_000
"""Most values of a finite law: 32 MB per array, so that one evaluation stays well under 300 MB."""

PRODUCT_SUPPORT = 100_000
"""Most values of an exact product of finite laws; beyond, the lattice is used."""

MOST_JUMPS = 2000
"""Most values for which a law is tested for being finite."""

NEGLIGIBLE = 1e-90
"""Mass that may be cut from an infinite support: far below 1e-30, the smallest δ that the library resolves."""


class FiniteLaw(Law):
    """Losses in increasing order with their P-masses; `infinity` is P(L = +inf); mass missing to 1 lies at -inf.

    The Q-masses follow: mass × e^-loss. `relative_error` bounds the relative error of every sum of masses. With
    `each_mass` it bounds the error of every single mass; then δ, a sum of positive terms, has the same relative error.
    """

    __slots__ = ("_discounted", "_gaps", "_infinity", "_suffix", "losses", "masses", "relative_error")

    def __init__(
        self,
        losses: Floats,
        masses: Floats,
        infinity: float = 0.0,
        relative_error: float = 0.0,
        *,
        each_mass: bool = False,
    ) -> None:
        self.losses = losses
        self.masses = masses
        self._infinity = float(infinity)
        # Suffix sums of n positive numbers have at most n rounding errors; a loss has one.
        largest = float(np.max(np.abs(losses))) if len(losses) else 0.0
        self.relative_error = relative_error + UNIT_ROUNDOFF * (2 * len(losses) + 8 + 4 * largest)
        self._suffix = np.concatenate((np.cumsum(masses[::-1])[::-1], [0.0]))
        self._discounted = np.concatenate((_discounted_suffix(losses, masses), [0.0]))
        # δ at each loss: going down by one value adds the discounted masses above × (1 - e^-distance).
        added = self._discounted[1:-1] * -np.expm1(-np.diff(losses)) if each_mass else np.zeros(0)
        self._gaps = np.concatenate((np.cumsum(added[::-1])[::-1], [0.0, 0.0])) if each_mass else None

    @property
    def lowest(self) -> float:
        return float(self.losses[0]) if len(self.losses) else 0.0

    @property
    def highest(self) -> float:
        return float(self.losses[-1]) if len(self.losses) else 0.0

    @property
    def infinity(self) -> float:
        return self._infinity

    @property
    def atoms(self) -> tuple[float, ...]:
        # The heaviest few: their distances show the spacing of an evenly spaced law.
        if not len(self.masses):
            return ()
        heavy = np.sort(np.argpartition(-self.masses, min(4, len(self.masses) - 1))[:4])
        return tuple(float(self.losses[i]) for i in heavy[::-1])

    @property
    def jumps(self) -> tuple[float, ...]:
        return tuple(self.losses.tolist())

    @property
    def scale(self) -> float:
        return max(abs(self.lowest), abs(self.highest), 1e-12)

    def is_sparse(self, step: float) -> bool:
        """Whether the heavy atoms are typically further apart than a lattice step."""
        heavy = self.masses > 1e-3 * float(np.max(self.masses, initial=0.0))
        return (
            len(self.losses) < 2 or float(np.median(np.diff(self.losses[heavy]))) > step
            if np.count_nonzero(heavy) > 1
            else True
        )

    def tails(self, loss: Floats) -> Tails:
        index = np.searchsorted(self.losses, loss, side="right")
        first = self._suffix[index] + self._infinity
        n = len(self.losses)
        at = self.losses[np.minimum(index, n - 1)] if n else np.zeros_like(loss)
        second = self._discounted[index] * np.exp(np.minimum(loss - at, 0.0))
        return Tails(first, second, self.relative_error)

    def gaps(self, loss: Floats) -> tuple[Floats, Floats]:
        if self._gaps is None or not len(self.losses):
            return Law.gaps(self, loss)
        index = np.searchsorted(self.losses, loss, side="right")
        at = self.losses[np.minimum(index, len(self.losses) - 1)]
        gap = self._gaps[index] - self._discounted[index] * np.expm1(np.minimum(loss - at, 0.0)) + self._infinity
        return gap, 2 * self.relative_error * gap

    def profile(self, epsilon: Floats) -> tuple[Floats, Floats]:
        low, high = Law.profile(self, epsilon)
        if self._gaps is None:
            return low, high
        gap, error = self.gaps(epsilon)
        return np.clip(gap - error - TINY, low, high), np.clip(gap + error + TINY, low, high)

    def moment(self, order: float) -> float | None:
        if self._infinity > 0 and order > 0:
            return math.inf
        exponent = order * self.losses
        if not len(exponent):
            return -math.inf
        top = float(np.max(exponent))
        return (
            top + math.log(float(np.sum(self.masses * np.exp(exponent - top)))) + self.relative_error * (2 + abs(order))
        )


def _discounted_suffix(losses: Floats, masses: Floats) -> Floats:
    """Σ_{j>=i} masses_j e^(losses_i - losses_j), without overflow: in blocks of bounded span, each with its own
    reference.
    """
    n = len(losses)
    result = np.zeros(n)
    carry, end = 0.0, n
    while end > 0:
        reference = losses[end - 1]
        start = int(np.searchsorted(losses[:end], reference - 500.0, side="left"))
        if end < n:
            carry *= math.exp(max(reference - losses[end], -745.0))
        block = masses[start:end] * np.exp(reference - losses[start:end])
        sums = np.cumsum(block[::-1])[::-1] + carry
        result[start:end] = sums * np.exp(losses[start:end] - reference)
        carry, end = float(result[start]), start
    return result


def merged(losses: Floats, masses: Floats, infinity: float, relative_error: float, *, side: Side) -> FiniteLaw:
    """A finite law from unsorted values; values that agree to rounding are merged to the side `side`."""
    keep = masses > 0
    order = np.argsort(losses[keep], kind="stable")
    losses, masses = losses[keep][order], masses[keep][order]
    if len(losses) > 1:
        width = 1e-13 * np.maximum(1.0, np.abs(losses[1:]))
        starts = np.flatnonzero(np.concatenate(([True], np.diff(losses) > width)))
        ends = np.concatenate((starts[1:], [len(losses)])) - 1
        masses = np.add.reduceat(masses, starts)
        losses = losses[ends] if side == "upper" else losses[starts]
    return FiniteLaw(losses, masses, infinity, relative_error)


def from_masses(p: Floats, q: Floats, relative_error: float = 0.0) -> LawPair:
    """Both directions of a pair of mass functions on the same outcomes."""
    both = (p > 0) & (q > 0)
    loss = np.log(p[both]) - np.log(q[both])

    # Two logarithms and a difference, each with one rounding error.
    doubt = 2 * UNIT_ROUNDOFF * (np.abs(np.log(p[both])) + np.abs(np.log(q[both])) + np.abs(loss))

    def direction(losses: Floats, masses: Floats, infinity: float) -> Sided:
        up = merged(losses + doubt, masses, infinity * (1 + 4 * UNIT_ROUNDOFF), relative_error, side="upper")
        return Sided(
            up, merged(losses - doubt, masses, infinity * (1 - 4 * UNIT_ROUNDOFF), relative_error, side="lower")
        )

    return LawPair(
        direction(loss, p[both], float(np.sum(p[q <= 0]))),
        direction(-loss, q[both], float(np.sum(q[p <= 0]))),
    )


def nothing() -> FiniteLaw:
    """A law that leaks less than every other: no outcome favours P. It is the lower bound of a guarantee that many
    mechanisms have.
    """
    return FiniteLaw(np.array([0.0]), np.array([1.0]))


def product(a: FiniteLaw, b: FiniteLaw, *, side: Side) -> FiniteLaw | None:
    """The law of the sum of two independent losses (both mechanisms run); None if it would have too many values."""
    if len(a.losses) * len(b.losses) > 8 * PRODUCT_SUPPORT:
        return None
    losses = np.add.outer(a.losses, b.losses).ravel()
    masses = np.multiply.outer(a.masses, b.masses).ravel()
    losses = _outwards(losses, side)
    infinity = max(a.infinity, b.infinity)
    if min(a.infinity, b.infinity) > 0:
        infinity = float(_outwards(np.array(a.infinity + b.infinity - a.infinity * b.infinity), side))
    error = a.relative_error + b.relative_error + 4 * UNIT_ROUNDOFF
    result = merged(losses, masses, infinity, error, side=side)
    return result if len(result.losses) <= PRODUCT_SUPPORT else None


def power(law: FiniteLaw, count: int, *, side: Side) -> FiniteLaw | None:
    """The law of the sum of `count` independent losses; None if it would have too many values."""
    if count == 1:
        return law
    if np.any(law.masses <= 0):
        kept = law.masses > 0
        law = FiniteLaw(law.losses[kept], law.masses[kept], law.infinity, law.relative_error)
    if len(law.losses) == 0:
        return FiniteLaw(law.losses, law.masses, _any_infinite(law.infinity, count, side))
    if len(law.losses) == 1:
        total = float(law.masses[0]) ** count
        error = (law.relative_error + 1e-15) * count
        infinity = _any_infinite(law.infinity, count, side)
        return FiniteLaw(_outwards(law.losses * count, side), np.array([total]), infinity, error)
    if len(law.losses) == 2:
        return binomial(law, count, side=side)
    if count > 4096:
        return None
    result: FiniteLaw | None = None
    square: FiniteLaw | None = law
    while count and square is not None:
        if count & 1:
            result = square if result is None else product(result, square, side=side)
            if result is None:
                return None
        count >>= 1
        if count:
            square = product(square, square, side=side)
    return result if square is not None else None


def _outwards(values: Floats, side: Side) -> Floats:
    """Four roundings up or down."""
    return values + (4 if side == "upper" else -4) * UNIT_ROUNDOFF * np.abs(values)


def _any_infinite(infinity: float, count: int, side: Side) -> float:
    """Probability that at least one of `count` runs has infinite loss."""
    if infinity >= 1:
        return 1.0
    return float(_outwards(np.array(-math.expm1(count * math.log1p(-infinity))), side))


def binomial(law: FiniteLaw, count: int, *, side: Side) -> FiniteLaw | None:
    """A two-point law run `count` times: binomial masses by Loader's deviance form, accurate to 1e-12 for any count."""
    total = float(np.sum(law.masses))
    p = float(law.masses[1]) / total
    if not 0 < p < 1:
        return None
    mean, spread = count * p, math.sqrt(count * p * (1 - p)) + 1
    # Left tails below 1e-18 go to the lowest kept value (upper) or are dropped (lower); right tails reach NEGLIGIBLE.
    first = max(0, math.floor(mean - 10 * spread - 50))
    last = min(count, math.ceil(mean + 22 * spread + 250))
    if last - first + 1 > LARGEST_SUPPORT:
        return None
    tops = np.arange(first, last + 1, dtype=float)
    log_mass = log_binomial(count, tops, p) + count * math.log(total)
    masses = np.exp(log_mass)
    losses = _outwards(tops * law.losses[1] + (count - tops) * law.losses[0], side)
    infinity = _any_infinite(law.infinity, count, side)
    error = count * law.relative_error + 1e-12 + 16 * UNIT_ROUNDOFF * float(np.max(np.abs(losses)))
    if side == "upper":
        if first > 0:
            masses[0] += 1e-18
        if last < count:
            infinity += NEGLIGIBLE
    return merged(losses, masses, infinity, error, side=side)


def log_binomial(n: int, x: Floats, p: float) -> Floats:
    """Log of the binomial mass, by Stirling remainders and deviances (C. Loader, 2000)."""
    result = np.where(x == 0, n * math.log1p(-p), n * math.log(p))
    inner = (x > 0) & (x < n)
    y = x[inner]
    core = stirling_rest(np.array([float(n)]))[0] - stirling_rest(y) - stirling_rest(n - y)
    core -= deviance(y, n * p) + deviance(n - y, n * (1 - p))
    result[inner] = core + 0.5 * np.log(n / (2 * math.pi * y * (n - y)))
    return np.asarray(result)


def stirling_rest(n: Floats) -> Floats:
    """log n! - log(sqrt(2πn)(n/e)^n)."""
    from scipy import special

    small = np.minimum(n, 16.0)
    exact = special.gammaln(small + 1) - (small + 0.5) * np.log(small) + small - 0.5 * math.log(2 * math.pi)
    m = np.maximum(n, 1.0)
    series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / (m * m)) / (m * m)) / (m * m)) / (m * m)) / m
    return np.asarray(np.where(n <= 15, exact, series))


def deviance(x: Floats, mean: float) -> Floats:
    """x log(x/mean) + mean - x, without cancellation near x = mean."""
    d = (x - mean) / mean
    near = np.abs(d) < 0.1
    dn = np.where(near, d, 0.0)
    # (1+d) log(1+d) - d = d²/2 - d³/6 + d⁴/12 - ...: alternating, 18 terms reach 1e-18 for |d| < 0.1.
    series = np.zeros_like(dn)
    for k in range(20, 1, -1):
        series = series * dn + (1 if k % 2 == 0 else -1) / (k * (k - 1))
    far = np.where(near, 1.0, x)
    return np.asarray(np.where(near, mean * series * dn * dn, far * np.log(far / mean) + mean - far))


def truncated(losses: Floats, masses: Floats, *, cut: float, relative_error: float) -> Sided:
    """Upper and lower finite laws for an infinite support from which mass at most `cut` is missing."""
    up = merged(losses, masses, cut, relative_error, side="upper")
    low = merged(losses, masses, 0.0, relative_error, side="lower")
    return Sided(up, low)


def of_jumps(law: Law) -> FiniteLaw | None:
    """A finite law equal to this one up to rounding, for display, if all its mass lies on at most MOST_JUMPS known
    losses; None otherwise. Its masses are differences, so small ones have few correct digits.
    """
    if isinstance(law, FiniteLaw):
        return law
    losses = np.unique(np.array(law.jumps))
    if len(losses):  # equal losses may differ by rounding
        losses = losses[np.append(np.diff(losses) > 1e-13 * (1 + np.abs(losses[1:])), True)]
    if not 0 < len(losses) <= MOST_JUMPS:
        return None
    ends = losses[[0, -1]] + 1e-9 * (1 + np.abs(losses[[0, -1]])) * np.array([-1, 1])
    outside, gap = law.tails(ends).first, np.diff(losses)
    room = 1e-12 * (1 + len(losses))
    # There must be no mass between two losses or outside them.
    early, middle, late = (law.tails(losses[:-1] + share * gap).first for share in (0.01, 0.5, 0.99))
    if not abs(outside[0] - 1) <= room or not abs(outside[1] - law.infinity) <= room:
        return None
    if not np.all(early - late <= room * middle):
        return None
    masses = -np.diff(np.concatenate((outside[:1], middle, [law.infinity])))
    return FiniteLaw(losses, np.maximum(masses, 0.0), law.infinity)
