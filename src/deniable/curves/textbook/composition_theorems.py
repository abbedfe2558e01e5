"""Textbook composition: the joint cost of many releases, as the books print it and in the range where it is proved.

Notation: each of `count` = k releases is ε-DP (or (ε, δ)-DP) for every value of the answers before it; L = log(1/δ').
Every ε and δ is rounded up; every per-step ε is rounded down. Users call these through `deniable.curves.textbook`.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import SupportsIndex

from deniable.curves.decimal_arithmetic import (
    SLACK,
    EpsilonDelta,
    Number,
    dec,
    digits,
    down,
    expm1,
    largest_accepted,
    log1p,
    log_inverse,
    non_negative,
    probability,
    some_delta,
    tanh,
    up,
    up_probability,
    whole,
)
from deniable.errors import InvalidParameter, NotCertifiable, OutsideTheorem

# --- sums -----------------------------------------------------------------------------------------------------------


def basic_composition(*, epsilon: Number, delta: Number, count: SupportsIndex) -> EpsilonDelta:
    """`count` releases, each (ε, δ)-DP: for all neighbours the joint answer is (kε, kδ)-DP, adaptive or not.

    Exact sums, rounded up. Source: Dwork & Roth (2014), Theorem 3.16.

    >>> basic_composition(epsilon=1, delta=0, count=500)
    EpsilonDelta(epsilon=500.0, delta=0.0)
    """
    k = whole("count", count)
    return EpsilonDelta(up(k * non_negative("epsilon", epsilon)), up_probability(k * probability("delta", delta)))


def basic_composition_of(*, costs: Iterable[tuple[Number, Number]]) -> EpsilonDelta:
    """Releases of different (ε_i, δ_i), the i-th DP for every value of the answers before it: (Σε_i, Σδ_i)-DP.

    Exact sums, rounded up. The costs are fixed in advance; for costs chosen on the way see `deniable.curves.filters`.
    Source: Dwork & Roth (2014), Theorem 3.16.

    >>> basic_composition_of(costs=[(0.3, 0), (0.7, 1e-6)])
    EpsilonDelta(epsilon=1.0, delta=1e-06)
    """
    try:
        given = [(epsilon, delta) for epsilon, delta in costs]
    except (TypeError, ValueError):
        raise InvalidParameter(
            "costs", costs, "must be pairs (epsilon, delta)", "write (epsilon, 0) for pure ε"
        ) from None
    pairs = [(non_negative("epsilon", epsilon), probability("delta", delta)) for epsilon, delta in given]
    return EpsilonDelta(
        up(sum((epsilon for epsilon, _ in pairs), Fraction(0))),
        up_probability(sum((delta for _, delta in pairs), Fraction(0))),
    )


def _block_epsilons(epsilons: Iterable[Number]) -> list[Fraction]:
    exact = sorted((non_negative("epsilons", epsilon) for epsilon in epsilons), reverse=True)
    if not exact:
        raise InvalidParameter("epsilons", (), "must have at least one block")
    return exact


def parallel_composition(*, epsilons: Iterable[Number]) -> float:
    """Disjoint blocks, one ε_i-DP release each, if neighbours differ in one block only: max ε_i, rounded up.

    This is the case under add/remove, and under replace-one if a record's block is its index. If the record's *value*
    picks the block use `parallel_composition_replaced`. Source: McSherry (2009), Theorem 4.

    >>> parallel_composition(epsilons=[0.3, 0.7])
    0.7
    """
    return up(_block_epsilons(epsilons)[0])


def parallel_composition_replaced(*, epsilons: Iterable[Number]) -> float:
    """Disjoint blocks picked by the record's value, under replace-one: the sum of the two largest ε_i, rounded up.

    One replacement takes a record out of one block and puts it into another.

    >>> parallel_composition_replaced(epsilons=[0.3, 0.7])
    1.0
    """
    return up(sum(_block_epsilons(epsilons)[:2], Fraction(0)))


# --- advanced composition -------------------------------------------------------------------------------------------


def _advanced(theorem: str, epsilon: Number, count: SupportsIndex, delta: Number) -> tuple[Fraction, int, Fraction]:
    k, exact = whole("count", count), non_negative("epsilon", epsilon)
    return exact, k, some_delta(theorem, delta, remedy="with delta=0 only basic_composition holds")


def _spread(epsilon: Fraction, k: int, delta: Fraction) -> Decimal:
    """ε√(2k log(1/δ)): how far the sum of k losses in [-ε, ε] exceeds its mean with probability δ (Azuma)."""
    return dec(epsilon) * (2 * k * log_inverse(delta)).sqrt()


def advanced_composition(*, epsilon: Number, count: SupportsIndex, delta: Number) -> float:
    """k releases, each ε-DP: for all neighbours (ε', δ)-DP with ε' = kε²/2 + ε√(2k log(1/δ)), rounded up.

    Any ε >= 0, 0 < δ <= 1. ε-DP is ε²/2-zCDP, which adds, and ρ-zCDP gives ρ + 2√(ρ log(1/δ)).
    Source: Bun & Steinke (2016), Propositions 1.3 and 1.4.

    >>> advanced_composition(epsilon=0.1, count=100, delta=1e-6)
    5.756521769756933
    """
    e, k, d = _advanced("advanced composition", epsilon, count, delta)
    with digits():
        return up(dec(k * e * e / 2) + _spread(e, k, d))


def advanced_composition_loose(*, epsilon: Number, count: SupportsIndex, delta: Number) -> float:
    """The same with the mean term kε² of older notes: ε' = kε² + ε√(2k log(1/δ)), rounded up.

    Valid because it is never below `advanced_composition`.

    >>> advanced_composition_loose(epsilon=0.1, count=100, delta=1e-6)
    6.256521769756933
    """
    e, k, d = _advanced("advanced composition", epsilon, count, delta)
    with digits():
        return up(dec(k * e * e) + _spread(e, k, d))


def advanced_composition_drv(*, epsilon: Number, count: SupportsIndex, delta: Number) -> float:
    """The original form: ε' = kε(e^ε - 1) + ε√(2k log(1/δ)), rounded up.

    Any ε >= 0, 0 < δ <= 1. The 2 under the root matters: without it the statement is false.
    Source: Dwork, Rothblum & Vadhan (2010), Theorem III.3; Dwork & Roth (2014), Theorem 3.20.

    >>> advanced_composition_drv(epsilon=0.1, count=100, delta=1e-6)
    6.308230950513409
    """
    e, k, d = _advanced("advanced composition", epsilon, count, delta)
    with digits():
        return up(dec(k * e) * expm1(dec(e)) + _spread(e, k, d))


def advanced_composition_sharp(*, epsilon: Number, count: SupportsIndex, delta: Number) -> float:
    """The sharpest mean term: ε' = kε tanh(ε/2) + ε√(2k log(1/δ)), rounded up.

    Any ε >= 0, 0 < δ <= 1. Each loss lies in [-ε, ε] and has mean at most ε tanh(ε/2) given the past (`kl_bound`), so
    Azuma's inequality bounds the sum.

    >>> advanced_composition_sharp(epsilon=0.1, count=100, delta=1e-6)
    5.7561055193357324
    """
    e, k, d = _advanced("advanced composition", epsilon, count, delta)
    with digits():
        return up(dec(k * e) * tanh(dec(e) / 2) + _spread(e, k, d))


def advanced_composition_doubled(*, epsilon: Number, count: SupportsIndex, delta: Number) -> float:
    """The one-term form ε' = 2ε√(2k log(1/δ)), rounded up; proved only for kε² <= 8 log(1/δ).

    In that range kε²/2 <= ε√(2k log(1/δ)), so it is never below `advanced_composition`. Outside it is false: the often
    printed ε = 1, k = 500, δ = 1e-5 -> 214.59 is refused; the truth there is 311.77.

    >>> advanced_composition_doubled(epsilon=0.1, count=100, delta=1e-5)
    9.597051824376164
    >>> advanced_composition_doubled(epsilon=1, count=500, delta=1e-5)
    Traceback (most recent call last):
    deniable.errors.OutsideTheorem: 2ε√(2k log(1/δ)) needs count·epsilon² <= 8 log(1/delta) = 92.1..., asked with 500...
    """
    theorem = "2ε√(2k log(1/δ))"
    e, k, d = _advanced(theorem, epsilon, count, delta)
    with digits():
        _at_most(theorem, "8 log(1/delta)", k * e * e, 8 * log_inverse(d))
        return up(2 * _spread(e, k, d))


def advanced_composition_mironov(*, epsilon: Number, count: SupportsIndex, delta: Number) -> float:
    """Mironov's corollary ε' = 4ε√(2k log(1/δ)), rounded up; proved only for kε² <= log(1/δ).

    In its range it is at least twice `advanced_composition_doubled`; it beats kε only if k > 32 log(1/δ), hence never
    unless ε² < 1/32. Source: Mironov (2017), Corollary 1.

    >>> advanced_composition_mironov(epsilon=0.1, count=1000, delta=1e-5)
    60.69708517540586
    """
    theorem = "4ε√(2k log(1/δ))"
    e, k, d = _advanced(theorem, epsilon, count, delta)
    with digits():
        _at_most(theorem, "log(1/delta)", k * e * e, log_inverse(d))
        return up(4 * _spread(e, k, d))


def _at_most(theorem: str, limit: str, asked: Fraction, allowed: Decimal) -> None:
    """Raise OutsideTheorem unless kε² <= allowed with certainty; equality is certain only if both sides are 0."""
    if dec(asked) > allowed * (1 - SLACK):
        raise OutsideTheorem(
            theorem,
            f"count·epsilon² <= {limit} = {down(allowed):.17g}",
            f"{up(asked):.17g}",
            "use advanced_composition or optimal_composition_epsilon, which hold for every epsilon",
        )


def advanced_composition_approximate(
    *, epsilon: Number, delta: Number, count: SupportsIndex, slack: Number
) -> EpsilonDelta:
    """k releases, each (ε, δ)-DP: (kε²/2 + ε√(2k log(1/slack)), kδ + slack)-DP, both rounded up.

    Any ε >= 0 and δ, 0 < slack <= 1. An (ε, δ)-DP step is an ε-DP step except with probability δ.
    Source: Dwork, Rothblum & Vadhan (2010), Theorem III.3, with the mean term of Bun & Steinke (2016).

    >>> advanced_composition_approximate(epsilon=0.1, delta=1e-9, count=100, slack=1e-6)
    EpsilonDelta(epsilon=5.756521769756933, delta=1.1e-06)
    """
    k, each = whole("count", count), probability("delta", delta)
    spare = some_delta("advanced composition", slack, "slack", "with slack=0 only basic_composition holds")
    return EpsilonDelta(advanced_composition(epsilon=epsilon, count=k, delta=spare), up_probability(k * each + spare))


def advanced_composition_step(*, total_epsilon: Number, count: SupportsIndex, delta: Number) -> float:
    """Largest ε per release, by `advanced_composition`, for k releases to be (total_epsilon, δ)-DP: rounded down.

    The positive root of kε²/2 + ε√(2kL) = total, ε = 2·total/(√(2kL) + √(2kL + 2k·total)). The root often printed,
    total/√(2kL), overspends. For the best possible step see `optimal_composition_step`.

    >>> advanced_composition_step(total_epsilon=1, count=100, delta=1e-6)
    0.01869165844387457
    """
    total, k, d = _advanced("advanced composition", total_epsilon, count, delta)
    if total == 0:
        return 0.0
    with digits():
        square = 2 * k * log_inverse(d)
        return down(2 * dec(total) / (square.sqrt() + (square + dec(2 * k * total)).sqrt()))


def crossover(*, delta: Number) -> float:
    """The count 8 log(1/δ) above which 2ε√(2k log(1/δ)) is below kε, rounded up.

    A statement about two formulas, not about privacy: at the crossing the first is proved only for ε <= 1, and for
    ε = 1 nowhere above it.

    >>> crossover(delta=1e-4)
    73.68272297580947
    """
    with digits():
        return up(8 * log_inverse(some_delta("2ε√(2k log(1/δ))", delta)))


# --- the optimum: Kairouz, Oh & Viswanath ---------------------------------------------------------------------------


class _Responses:
    """k randomised responses of ε each: j of k answers contradict, with weight C(k,j) e^(-jε) and loss (k - 2j)ε.

    Weights are relative to the largest one and computed from it by their ratios, so nothing under- or overflows and no
    logarithm of a factorial is needed. A remainder below 1e-50 of the sum is dropped.
    """

    def __init__(self, epsilon: Fraction, count: int) -> None:
        self.epsilon, self.count = epsilon, count
        self.shrink = dec(-epsilon).exp()  # e^(-ε)
        self.decay = dec(-2 * epsilon).exp()
        self.gain = -expm1(dec(-2 * epsilon))  # 1 - e^(-2ε)
        self.mode = int((count + 1) * self.shrink / (1 + self.shrink))
        self.total = Decimal(1)
        for step, stop in ((1, count), (-1, 0)):
            j, weight = self.mode, Decimal(1)
            while j != stop and not self._negligible(j, weight, step, self.total):
                weight *= self._ratio(j, step)
                j += step
                self.total += weight

    def _ratio(self, j: int, step: int) -> Decimal:
        """weight(j + step) / weight(j)."""
        if step > 0:
            return (self.count - j) * self.shrink / (j + 1)
        return j / ((self.count - j + 1) * self.shrink)

    def _negligible(self, j: int, weight: Decimal, step: int, scale: Decimal) -> bool:
        """Whether all weights beyond j sum to less than 1e-50 of `scale`. Ratios decrease, so a geometric sum bounds
        them.
        """
        ratio = self._ratio(j, step)
        return ratio < 1 and weight * ratio <= scale.scaleb(-50) * (1 - ratio)

    def _walk(self, target: int) -> tuple[int, Decimal]:
        """j and its weight, starting at the mode and going to `target`; upwards it stops early where the rest is
        negligible.
        """
        j, weight = self.mode, Decimal(1)
        while j > target:
            weight *= self._ratio(j, -1)
            j -= 1
        while j < target and not self._negligible(j, weight, 1, self.total):
            weight *= self._ratio(j, 1)
            j += 1
        return j, weight

    def delta(self, total_epsilon: Fraction) -> Decimal:
        """Σ_j P(j) (1 - e^(total - (k - 2j)ε))₊, summed from the largest j with a positive term downwards."""
        if self.epsilon == 0 or total_epsilon >= self.count * self.epsilon:
            return Decimal(0)
        excess = (self.count - total_epsilon / self.epsilon) / 2  # terms with j < excess are positive
        j, weight = self._walk(-((-excess.numerator) // excess.denominator) - 1)
        gap = -dec((self.count - 2 * j) * self.epsilon - total_epsilon)
        kept, share = gap.exp(), -expm1(gap)  # e^(total - loss) and 1 minus that, both without cancellation
        found = weight * share
        while j > 0 and not self._negligible(j, weight, -1, found):
            weight *= self._ratio(j, -1)
            j -= 1
            share += kept * self.gain
            kept *= self.decay
            found += weight * share
        return found / self.total

    def epsilon_at(self, delta: Decimal) -> Decimal:
        """The total ε at which `delta` reaches a target in (0, 1), rounded up; 0 if it stays below."""
        goal = delta * self.total
        j, weight = self.mode, Decimal(1)
        while j > 0 and not self._negligible(j, weight, -1, goal):
            weight *= self._ratio(j, -1)
            j -= 1
        reached, leaning = (
            Decimal(0),
            weight,
        )  # reached = Σ_{i<j} w_i (1 - e^(-2ε(j-i))), leaning = Σ_{i<=j} w_i e^(-2ε(j-i))
        while reached + leaning * self.gain < goal:
            if 2 * (j + 1) >= self.count:
                break  # the next step would cross total ε = 0
            reached += leaning * self.gain
            weight *= self._ratio(j, 1)
            j += 1
            leaning = leaning * self.decay + weight
        loss = dec((self.count - 2 * j) * self.epsilon)
        # goal = reached + leaning (1 - e^(-back)) at total = loss - back; left out or rounded was less than goal·1e-48
        share = (goal - reached - goal.scaleb(-40)) / leaning
        if share >= 1:
            return Decimal(0)  # only in the cell that holds total = 0
        return max(Decimal(0), loss + abs(loss).scaleb(-50) + log1p(-max(share, Decimal(0))))


def _responses(epsilon: Fraction, count: int) -> _Responses:
    if count > 10**7:
        raise NotCertifiable(f"count={count}: the optimal composition is computed for at most 10**7 releases")
    return _Responses(epsilon, count)


def _lost(delta: Fraction, count: int) -> Decimal:
    """1 - (1 - δ)^k, the probability that at least one of k steps fails."""
    if delta == 1 or count == 1:
        return dec(delta)
    return -expm1(count * log1p(-dec(delta)))


def optimal_composition_delta(*, epsilon: Number, delta: Number, count: SupportsIndex, total_epsilon: Number) -> float:
    """k releases, each (ε, δ)-DP: the smallest δ' with (total_epsilon, δ')-DP for all of them, rounded up.

    δ' = 1 - (1-δ)^k (1 - Σ_{j: (k-2j)ε > ε'} C(k,j) (e^((k-j)ε) - e^(ε'+jε)) / (1+e^ε)^k): exact, because k randomised
    responses attain it. Any ε >= 0 and δ, count up to 10**7. Source: Kairouz, Oh & Viswanath (2015), Theorem 3.3.

    >>> optimal_composition_delta(epsilon=0.1, delta=0, count=100, total_epsilon=4)
    3.42231231919678e-05
    """
    k, each = whole("count", count), probability("delta", delta)
    e, total = non_negative("epsilon", epsilon), non_negative("total_epsilon", total_epsilon)
    with digits():
        lost = _lost(each, k)
        return up_probability(lost + (1 - lost) * _responses(e, k).delta(total))


def optimal_composition_epsilon(*, epsilon: Number, delta: Number, count: SupportsIndex, total_delta: Number) -> float:
    """k releases, each (ε, δ)-DP: the smallest ε' with (ε', total_delta)-DP for all of them, rounded up.

    The inverse of `optimal_composition_delta`. Needs total_delta >= 1 - (1-δ)^k; below that no ε' is enough.

    >>> optimal_composition_epsilon(epsilon=1, delta=0, count=500, total_delta=1e-5)
    311.7676046397108
    """
    k, each = whole("count", count), probability("delta", delta)
    e, allowed = non_negative("epsilon", epsilon), probability("total_delta", total_delta)
    everything = up(k * e)
    if allowed == 1 or e == each == 0:
        return 0.0
    with digits():
        lost = _lost(each, k)
        if allowed == each and (k == 1 or each == 0):
            return everything
        left = dec(allowed) - lost * (1 + SLACK)
        if left <= 0:
            raise OutsideTheorem(
                "optimal composition",
                f"total_delta >= 1 - (1 - delta)^count = {up(lost):.17g}",
                f"total_delta={float(allowed):.17g}",
                "allow a larger total_delta",
            )
        return min(everything, up(_responses(e, k).epsilon_at(left / (1 - lost) * (1 - SLACK))))


def optimal_composition_step(
    *, delta: Number, count: SupportsIndex, total_epsilon: Number, total_delta: Number
) -> float:
    """Largest ε per (ε, δ)-DP release for k of them to be (total_epsilon, total_delta)-DP: rounded down.

    Found by bisection over floats, each tried with `optimal_composition_delta`. Needs total_delta < 1 (otherwise every
    ε fits) and total_delta >= 1 - (1-δ)^k (otherwise no ε fits).

    >>> optimal_composition_step(delta=0, count=100, total_epsilon=1, total_delta=1e-6)
    0.024011080397159816
    """
    k, each = whole("count", count), probability("delta", delta)
    total, allowed = non_negative("total_epsilon", total_epsilon), probability("total_delta", total_delta)
    if allowed == 1:
        raise OutsideTheorem("optimal composition", "total_delta < 1", "total_delta=1", "any epsilon satisfies it")

    def fits(epsilon: float) -> bool:
        return optimal_composition_delta(epsilon=epsilon, delta=each, count=k, total_epsilon=total) <= allowed

    if not fits(0.0):
        raise OutsideTheorem(
            "optimal composition",
            "total_delta >= 1 - (1 - delta)^count",
            f"total_delta={float(allowed):.17g}, delta={float(each):.17g}, count={k}",
            "allow a larger total_delta",
        )
    high = 1.0
    while fits(high):
        if high > 1e300:
            return high
        high *= 16.0
    return largest_accepted(fits, low=0.0, high=high)


# --- groups and samples ---------------------------------------------------------------------------------------------


def group_privacy(*, epsilon: Number, size: SupportsIndex) -> float:
    """An ε-DP release, for datasets that differ in a group of `size` = k: kε-DP, exact product, rounded up.

    Source: Dwork & Roth (2014), Theorem 2.2.

    >>> group_privacy(epsilon=0.1, size=5)
    0.5000000000000001
    """
    return up(whole("size", size) * non_negative("epsilon", epsilon))


def group_privacy_approximate(*, epsilon: Number, delta: Number, size: SupportsIndex) -> EpsilonDelta:
    """An (ε, δ)-DP release, for groups of k: (kε, δ (e^(kε) - 1)/(e^ε - 1))-DP, both rounded up.

    The factor is Σ_{i<k} e^(iε), from k single steps; it is k at ε = 0. Source: the proof of Vadhan (2017), Lemma 2.2.

    >>> group_privacy_approximate(epsilon=1, delta=1e-6, size=3)
    EpsilonDelta(epsilon=3.0, delta=1.1107337927389697e-05)
    """
    k, e, d = whole("size", size), non_negative("epsilon", epsilon), probability("delta", delta)
    with digits():
        if e == 0 or d == 0:
            return EpsilonDelta(up(k * e), up_probability(k * d))
        # (e^(kε) - 1)/(e^ε - 1) = e^((k-1)ε) (1 - e^(-kε))/(1 - e^(-ε))
        factor = dec((k - 1) * e).exp() * expm1(dec(-k * e)) / expm1(dec(-e))
        return EpsilonDelta(up(k * e), up_probability(dec(d) * factor))


def group_privacy_stated(*, epsilon: Number, delta: Number, size: SupportsIndex) -> EpsilonDelta:
    """The looser form usually stated: (kε, k e^((k-1)ε) δ)-DP, both rounded up.

    Never below `group_privacy_approximate`. Source: Dwork & Roth (2014), after Theorem 2.2.

    >>> group_privacy_stated(epsilon=1, delta=1e-6, size=3)
    EpsilonDelta(epsilon=3.0, delta=2.216716829679195e-05)
    """
    k, e, d = whole("size", size), non_negative("epsilon", epsilon), probability("delta", delta)
    with digits():
        if e == 0 or d == 0:
            return EpsilonDelta(up(k * e), up_probability(k * d))
        return EpsilonDelta(up(k * e), up_probability(dec(k * d) * dec((k - 1) * e).exp()))


def subsampling_amplification(*, epsilon: Number, delta: Number, rate: Number) -> EpsilonDelta:
    """An (ε, δ)-DP release on a Poisson sample of rate q: (log(1 + q(e^ε - 1)), qδ)-DP under add/remove, rounded up.

    Any rate in [0, 1]; every record is kept independently and which were kept is not revealed.
    Source: Balle, Barthe & Gaboardi (2018), Theorem 8.

    >>> subsampling_amplification(epsilon=1, delta=1e-5, rate=0.01)
    EpsilonDelta(epsilon=0.017036863236176553, delta=1.0000000000000002e-07)
    """
    e, d, q = non_negative("epsilon", epsilon), probability("delta", delta), probability("rate", rate)
    if q == 0 or e == 0:
        return EpsilonDelta(0.0, up_probability(q * d))
    with digits():
        # beyond 1e6, ε + log(q + (1-q)e^(-ε)): no overflow, and no float q is near e^(-ε)
        amplified = log1p(dec(q) * expm1(dec(e))) if e < 10**6 else dec(e) + (dec(q) + dec(-e).exp()).ln()
        return EpsilonDelta(min(up(e), up(amplified)), up_probability(q * d))
