"""Groups of people in Poisson samples of Gaussian noise, from the mechanism itself.

Two datasets differ in a group of k people: m of them are only in the first dataset, the other k - m only in the second.
Each person takes part in a step with probability q, independently.

**Theorem.** Let the mechanism without sampling be μ-GDP for one person. Then each step is dominated by

    P = Σ_j Bin(m, q)(j) N(jμ, 1)   against   Q = Σ_i Bin(k-m, q)(i) N(-iμ, 1).

*Proof.* Fix who else takes part and the answers so far, and let M_S be the law of the answer if the members S of the
group take part. For an event E let a = M_∅(E). The datasets of M_S and M_∅ differ by |S| people, so M_S(E) <= Φ(Φ⁻¹(a)
+ |S|μ) and M_S(E) >= Φ(Φ⁻¹(a) - |S|μ) (group privacy, Dong, Roth & Su 2022, Theorem 2.14). So the two laws give
E at most Σ_j Bin(m, q)(j) Φ(Φ⁻¹(a) + jμ), and at least Σ_i Bin(k-m, q)(i) Φ(Φ⁻¹(a) - iμ). The half-line {y > -Φ⁻¹(a)}
has exactly these probabilities under P and Q: no event has a larger difference P(E) - x Q(E), for any x. ∎

The group is the same in all steps, so a product of steps is dominated by the product of these pairs with one m, and the
group's curve is the worst over m. Exchanging the datasets exchanges m and k - m. The chain of k neighbours that
`group` uses for other mechanisms is larger: for S-G(0.01, 1)^1000 and k = 3 it gives ε = 8.99 at δ = 1e-6, and this
theorem 7.19. If the product has other factors whose two directions differ, each step is taken with its own worst m.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom, pair_of, show
from deniable.curves.atoms.mechanism_atoms import GaussianAtom
from deniable.curves.curve import Curve
from deniable.curves.laws.binomial_shifts import BinomialShiftsLaw, log_weights
from deniable.curves.laws.law import LawPair, Sided
from deniable.errors import InvalidParameter

MOST_PEOPLE = 32
"""The largest group of which every division into people who join and people who leave is evaluated."""


@final
@dataclass(frozen=True, slots=True)
class GroupedSampleAtom(Atom):
    """Gaussian noise on a Poisson sample, for `joined` people who are only in the second dataset and `left` people who
    are only in the first. A part of a group's curve, which is stored as `group`; it has no record of its own.
    """

    name: ClassVar[str] = "group_of_samples"
    mu: float
    rate: float
    joined: int
    left: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", curve_arguments.positive("mu", self.mu))
        object.__setattr__(self, "rate", curve_arguments.inner_probability("rate", self.rate))
        for name in ("joined", "left"):
            object.__setattr__(self, name, curve_arguments.integer(name, getattr(self, name), 0))
        if not 1 <= self.joined + self.left <= MOST_PEOPLE:
            raise InvalidParameter("joined", self.joined, f"with left={self.left}: must be 1 to {MOST_PEOPLE} people")

    @property
    def is_exact(self) -> bool:
        return False

    def pair(self) -> LawPair:
        # Forward is the first dataset against the second; mirrored, its people shift the answer upwards.
        return LawPair(
            Sided.exact(BinomialShiftsLaw(self.mu, self.rate, self.left, self.joined)),
            Sided.exact(BinomialShiftsLaw(self.mu, self.rate, self.joined, self.left)),
        )

    def expression(self) -> str:
        return f"group_of_samples(mu={show(self.mu)}, rate={show(self.rate)}, joined={self.joined}, left={self.left})"

    def renyi_bound(self, order: float) -> float | None:
        # Joint convexity: the moments of a mixture of pairs are at most the mixture of their moments.
        if not 1 < order < math.inf:
            return None if order <= 1 else math.inf
        moments = [
            one + two + 0.5 * order * (order - 1) * ((i + j) * self.mu) ** 2
            for j, one in enumerate(log_weights(self.joined, self.rate))
            for i, two in enumerate(log_weights(self.left, self.rate))
        ]
        top = max(moments)
        found = (top + math.log(math.fsum(math.exp(each - top) for each in moments))) / (order - 1)
        return float(found) * (1 + 1e-12) + 1e-12

    def gdp_bound(self) -> float | None:
        return self.mu * (self.joined + self.left) * (1 + 1e-15)  # all take part: a hidden mixture reveals less

    def zcdp_bound(self) -> float | None:
        return 0.5 * (self.mu * (self.joined + self.left)) ** 2 * (1 + 1e-15)


def divisions(curve: Curve, size: int) -> tuple[Curve, ...]:
    """The curves for a group of `size` people of whom 0, 1, ..., half leave while the others join; empty unless the
    curve is Gaussian noise on a Poisson sample.
    """
    from deniable.curves.atoms.composite_atoms import SampledAtom

    if size > MOST_PEOPLE or sum(count for _, count in curve.factors) != 1:
        return ()
    ((atom, _),) = curve.factors
    if not isinstance(atom, SampledAtom) or not 0 < atom.rate < 1:
        return ()
    if not all(isinstance(inner, GaussianAtom) for inner, _ in atom.curve.factors):
        return ()
    mu = atom.curve.gdp()
    return tuple(Curve.of(GroupedSampleAtom(mu, atom.rate, size - left, left)) for left in range(size // 2 + 1))


def worst_division(curve: Curve) -> tuple[Curve, ...]:
    """One curve for each division of the group into members who join and members who leave; the division is the same in
    all steps, and the worst of these curves holds. Empty unless every factor is such a group of the same size or has
    the same law in both directions.
    """
    from deniable.curves.atoms.composite_atoms import GroupedAtom

    if GroupedAtom not in set(map(type, curve.counts)):
        return ()
    groups = {atom: atom.divisions() for atom, _ in curve.factors if isinstance(atom, GroupedAtom)}
    if len({len(ways) for ways in groups.values()}) != 1 or len({atom.size for atom in groups}) != 1:
        return ()
    if not all(groups.values()) or not all(a in groups or pair_of(a).is_symmetric for a, _ in curve.factors):
        return ()
    found = []
    for index in range(len(next(iter(groups.values())))):
        whole = Curve({})
        for atom, count in curve.factors:
            one = groups[atom][index] if isinstance(atom, GroupedAtom) else Curve.of(atom)
            whole = whole * one**count
        found.append(whole)
    return tuple(found)
