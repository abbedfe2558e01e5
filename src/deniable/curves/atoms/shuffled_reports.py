"""Shuffled local reports: n people randomize their own answers, and the collector sees the reports without their order.

Neighbours are datasets of n people in which one person's answer is replaced. All others follow the protocol.

**Theorem.** Let R be an ε₀-DP randomizer, e = e^ε₀, and let the reports of answers 0 and 1 have the total variation
distance T. With p = T/(e - 1), the shuffled reports of n people of whom one has answer 0 or 1 have

    δ(ε) <= (e + 1) p δ_C(ε),

where C is the pair of counts (X + Δ, Y + 1 - Δ): X and Y are the numbers of two kinds in n - 1 draws of probabilities
p, p and 1 - 2p, and Δ is 1 with probability e/(e + 1) for answer 0, and with probability 1/(e + 1) for answer 1.

*Proof.* Let r₀, r₁ be the densities of the reports of answers 0 and 1. Put q₀ = (r₀ - r₁)₊/(e - 1), q₁ = (r₁ - r₀)₊/(e
- 1) and w = r₀ - e q₀ - q₁. Where r₀ >= r₁ this is w = r₁ - q₀, which is not negative, because r₀ <= e r₁; and r₁ = q₀
+ e q₁ + w everywhere. Both q have mass p. Any other answer has a density r with r >= r₀/e. From r₁ >= r₀/e follows q₀
<= r₀ (1 - 1/e)/(e - 1) = r₀/e <= r, and the same for q₁; at most one of the two is positive. So r = q₀ + q₁ + rest.
Draw each report in two stages: first its kind (q₀, q₁ or the rest), then the report of that kind. Reveal whether the
person's kind is w, which has the same probability 1 - (e + 1)p for both answers; this can only help the attacker. If it
is, the law of all reports does not depend on the answer. If it is not, consider the numbers of reports of the kinds q₀
and q₁. Given these two numbers, every remaining report is of the kind "rest", and the people who sent those are a
uniformly random subset of the others, whatever the answer. So the reports are post-processing of the two numbers, which
are the pair C. ∎ (The idea is due to Feldman, McMillan & Talwar 2021 and 2023, "Stronger privacy amplification by
shuffling"; the statement and the constants are derived here. Without revealing w, the bound would be false: the tests
enumerate a counterexample.)

For binary randomized response T = (e - 1)/(e + 1), so w = 0. The lower bound is a real dataset: all others have the
same answer, if there are two answers, and a third answer, if there are more; then the counts of reports 0 and 1 are (X
+ Δ, Y + Δ′) with (Δ, Δ′) = (1, 0), (0, 1) or (0, 0) with the probabilities ep, p, 1 - (e + 1)p, or exchanged.

T must be known. More clones hide the person better, so δ_C decreases in p, and the factor (e + 1) p increases: neither
an upper nor a lower bound of T is enough alone. If T lies between two bounds, the lower one is valid in δ_C and the
upper one in the factor.

Another pair is used if T is unknown or differs between pairs of answers, or if the other pair gives a tighter bound
(Feldman, McMillan & Talwar 2021): n - 1 draws of probabilities e^-ε₀/2, e^-ε₀/2 and the rest, and Δ as above. *Proof.*
We have r >= max(r₀, r₁)/e >= (r₀ + r₁)/(2e), and r₀ = (e Q₀ + Q₁)/(e + 1), r₁ = (Q₀ + e Q₁)/(e + 1) with the densities
Q₀ = (e r₀ - r₁)/(e - 1) and Q₁ = (e r₁ - r₀)/(e - 1), so that Q₀ + Q₁ = r₀ + r₁. The person's kind is Q₀ or Q₁ always;
continue as above. ∎

**Numbers.** Let M be the law of the counts (x, y) in n draws of probabilities c, c, 1 - 2c. A pair of counts has the
density (a x/c + b y/c + v (n - x - y)/(1 - 2c))/n with respect to M, where a, b, v are the probabilities that the
person adds to x, to y or to neither; its other law has x and y exchanged. Under M, x + y is binomial, and so is x
given x + y. The likelihood ratios of all counts that matter are collected in cells and rounded to either side by the
convex order (`laws.likelihood_average`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import numpy as np

from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom, show
from deniable.curves.atoms.composite_atoms import bracketed, check_curve
from deniable.curves.atoms.mechanism_atoms import RandomizedResponseAtom
from deniable.curves.curve import Curve
from deniable.curves.laws import finite_law, laws_from_bounds, likelihood_average
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.laws.law import Law, LawPair, Sided
from deniable.curves.laws.likelihood_average import CUT, Bound, RatioCells
from deniable.curves.outward_rounding import Floats, quietly
from deniable.errors import InvalidParameter

MOST_COUNTS = 60_000_000
"""The most pairs of counts that are added up; this takes a few seconds."""

AT_A_TIME = 400_000
CELLS = 30_000
STEEPEST = 30.0
"""Largest ε₀: e^ε₀ stays far from the roundings of 1."""

DISTANCE_ERROR = 1e-9
"""Relative error of a given distance that is allowed for, in both directions."""

REACH = 12.6
"""Standard deviations after which a binomial tail is below CUT, with the allowance of `_window` for skewness."""


class Clones(NamedTuple):
    """A pair of counts. Each other person adds to either count with probability `clone` (c above), the person to the
    first with probability `own` (a) and to the second with probability `other` (b).
    """

    people: int
    clone: float
    own: float
    other: float


@final
@dataclass(frozen=True, slots=True)
class ShuffledAtom(Atom):
    """The curve of one report, after the reports of `people` people were shuffled. `distance` is 0 if unknown."""

    name: ClassVar[str] = "shuffled"
    curve: Curve
    people: int
    distance: float

    def __post_init__(self) -> None:
        check_curve("curve", self.curve)
        object.__setattr__(self, "people", curve_arguments.integer("people", self.people, 1))
        object.__setattr__(self, "distance", curve_arguments.not_negative("distance", self.distance))
        epsilon = self.curve.epsilon(delta=0.0)
        if not 0 < epsilon <= STEEPEST:
            rule = f"must be ε-DP with an ε of at most {STEEPEST:g}: shuffling is for reports of pure DP"
            raise InvalidParameter("curve", self.curve.expression(), rule)
        if self.distance > self.curve.advantage() * (1 + 1e-9):
            rule = f"must be at most {self.curve.advantage():.6g}, the largest distance that the curve allows"
            raise InvalidParameter("distance", self.distance, rule)
        clones = self._clones()
        if _counts(clones) > MOST_COUNTS:
            most = int(self.people * MOST_COUNTS / _counts(clones))
            rule = f"must be at most about {most:,} for this report, to be computed"
            raise InvalidParameter("people", self.people, rule, "use the curve for fewer people: it is a valid bound")

    @property
    def is_exact(self) -> bool:
        return False

    def _response(self) -> RandomizedResponseAtom | None:
        atom, count = self.curve.factors[0]
        return atom if isinstance(atom, RandomizedResponseAtom) and len(self.curve.factors) == count == 1 else None

    @property
    def _odds(self) -> float:
        return math.exp(self.curve.epsilon(delta=0.0)) * (1 + 1e-15)

    @property
    def _clone(self) -> float:
        """p of the theorem: the mass of q₀ and of q₁; 0 if the distance of the reports is unknown."""
        response = self._response()
        if response is not None:
            return 1 / (self._odds + response.categories - 1)
        return min(self.distance / (self._odds - 1), 1 / (self._odds + 1))

    @property
    def _trusted(self) -> float:
        """The relative error of p: parameters of randomized response are exact up to rounding."""
        return 1e-12 if self._response() is not None else DISTANCE_ERROR

    def _clones(self) -> Clones:
        clone = self._clone * (1 - self._trusted)
        return Clones(self.people, clone or 0.5 / self._odds, self._odds / (self._odds + 1), 1 / (self._odds + 1))

    def pair(self) -> LawPair:
        odds, clone, response = self._odds, self._clone, self._response()
        doubt = 1e-14 * (100 + self.people)
        known = self._clones()
        upper = _law(known._replace(clone=0.5 / odds), "upper", doubt)
        if clone:
            share = min(1.0, (odds + 1) * clone * (1 + self._trusted))
            upper = min(_diluted(_law(known, "upper", doubt), share), upper, key=_usual_epsilon)
        lower: Law = finite_law.nothing()
        if response is not None and response.categories == 2:
            lower = _same_answers(self.people, response.epsilon)
        elif response is not None:
            lower = _law(Clones(self.people, clone, odds * clone, clone), "lower", doubt)
        # Exchanging the two kinds exchanges the two datasets: both directions are alike.
        side = Sided(upper, lower)
        return LawPair(side, side)

    def expression(self) -> str:
        distance = f", distance={show(self.distance)}" if self.distance else ""
        return f"{bracketed(self.curve)}.shuffled(people={self.people}{distance})"

    def inherited_renyi(self, order: float) -> tuple[float, float] | None:
        worst = self.curve.renyi_function(order)  # post-processing of the reports in order
        return worst, worst


def _window(count: float, probability: float) -> tuple[int, int]:
    """The first and last number of a binomial law that matter: beyond, its tails are below CUT (Bernstein)."""
    mean, spread = count * probability, math.sqrt(count * probability * (1 - probability))
    # Bernstein: P(X > mean + s) <= exp(-s²/(2 (var + s/3))), and log(1/CUT) = 76.
    reach = REACH * spread + 51 + 1
    return max(0, math.floor(mean - reach)), min(int(count), math.ceil(mean + reach))


def _counts(clones: Clones) -> float:
    """About how many pairs of counts matter."""
    low, high = _window(clones.people, 2 * clones.clone)
    first, last = _window(high, 0.5)
    return (high - low + 1.0) * (last - first + 1.0) / 2


@quietly
def _law(clones: Clones, side: Bound, doubt: float) -> FiniteLaw:
    """A bound, on the given side, for the law of a pair of counts. The relative error of each probability is at most
    `doubt`.
    """
    n, c = clones.people, clones.clone
    low, high = _window(n, 2 * c)
    numbers = np.arange(low, high + 1, dtype=np.int64)
    log_number = finite_law.log_binomial(n, numbers.astype(float), 2 * c)
    # Logarithms of factorials in extended precision, because their differences must be right to twelve digits.
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, high + 1, dtype=np.longdouble)))))
    widest = math.log(clones.own / clones.other) * (1 + 1e-12) + 1e-12
    edges = np.concatenate(([0.0], np.exp(np.linspace(-widest, widest, CELLS + 1))))
    mine, theirs = np.zeros(CELLS + 1), np.zeros(CELLS + 1)
    rest = max(0.0, 1 - clones.own - clones.other) / (1 - 2 * c)
    rows = max(1, AT_A_TIME // (high // 2 + 2 if high < 4000 else _window(high, 0.5)[1] - high // 2 + 2))
    for start in range(0, len(numbers), rows):
        m = numbers[start : start + rows]
        last = _window(int(m[-1]), 0.5)[1]
        # Only x >= y: the other half has the two densities exchanged.
        x = (m[:, None] + 1) // 2 + np.arange(0, max(1, last - int(m[0]) // 2 + 1))[None, :]
        inside = x <= m[:, None]
        y = np.where(inside, m[:, None] - x, 0)
        x = np.where(inside, x, m[:, None])
        chance = (logs[m][:, None] - logs[x] - logs[y] - m[:, None] * np.log(np.longdouble(2))).astype(np.float64)
        mass = np.where(inside, np.exp(chance + log_number[start : start + rows][:, None]), 0.0)
        mass = np.where(x == y, mass / 2, mass)  # the diagonal belongs to both halves
        shared = rest * (n - m[:, None])
        one = mass * ((clones.own * x + clones.other * y) / c + shared) / n
        two = mass * ((clones.other * x + clones.own * y) / c + shared) / n
        place = _places(one, two, widest)
        for first, second, index in ((one, two, place), (two, one, _places(two, one, widest))):
            mine += np.bincount(index.ravel(), first.ravel(), CELLS + 1)
            theirs += np.bincount(index.ravel(), second.ravel(), CELLS + 1)
    error = doubt + 1e-16 * AT_A_TIME + 1e-11
    ratio = likelihood_average.placed(
        RatioCells(edges, theirs, mine), 8 * CUT if side == "upper" else 0.0, error, error, side
    )
    return likelihood_average.laws(ratio, 1.0 if side == "upper" else -1.0)[1]


def _usual_epsilon(law: FiniteLaw) -> float:
    """ε at δ = 1e-6, roughly: both theorems are valid, and this decides which one is used."""
    points = np.linspace(0.0, max(law.highest, 0.0), 4000)
    return float(points[int(np.argmax(law.profile(points)[1] <= 1e-6))])


def _diluted(law: FiniteLaw, share: float) -> FiniteLaw:
    """The law of a mechanism that runs with probability `share` and otherwise outputs nothing; whether it ran is
    revealed.
    """
    losses, masses = np.append(law.losses, 0.0), np.append(law.masses * share, 1 - share)
    return finite_law.merged(losses, masses, law.infinity * share, law.relative_error, side="upper")


def _places(one: Floats, two: Floats, widest: float) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """The cells of the ratios one/two; 0 where both are 0."""
    some = (one > 0) & (two > 0)
    logs = np.log(np.where(some, one, 1.0) / np.where(some, two, 1.0))
    return np.asarray(np.clip((logs + widest) * (CELLS / (2 * widest)) + 1, 1, CELLS).astype(np.int64))


def _same_answers(people: int, epsilon: float) -> Law:
    """Binary randomized response if all others have the same answer: the number of reports of the other answer."""
    share = 1 / (math.exp(epsilon) + 1)
    low, high = _window(people, share)
    number = np.arange(low, high + 1, dtype=float)
    under = np.exp(finite_law.log_binomial(people, number, share))
    with_other = (math.exp(epsilon) * number + math.exp(-epsilon) * (people - number)) / people
    loss = np.log(with_other)
    error = 1e-14 * (100 + people)
    return laws_from_bounds.worst(
        (
            finite_law.merged(loss - error, under * with_other, 0.0, error, side="lower"),
            finite_law.merged(-loss - error, under, 0.0, error, side="lower"),
        ),
        side="lower",
    )


def shuffled(curve: Curve, *, people: int, distance: float | None = None) -> Curve:
    """The curve of the shuffled reports of `people` people (`Curve.shuffled`). Raises InvalidParameter unless `curve`
    is pure DP with 0 < ε <= 30, and if there are too many people for a certified computation.
    """
    known = 0.0 if distance is None else curve_arguments.positive("distance", distance)
    if not check_curve("curve", curve).factors:
        return curve
    atom = ShuffledAtom(curve, people, known)
    return curve if atom.people == 1 else Curve.of(atom)
