"""Textbook meaning: what a guarantee allows an attacker, and the lemmas behind the composition theorems.

Probabilities that an attacker may reach are rounded up; error rates that no attacker can beat are rounded down. Users
call these functions through `deniable.curves.textbook`.
"""

from __future__ import annotations

from fractions import Fraction
from typing import SupportsIndex

from deniable.arguments import INNER_PROBABILITY, PROBABILITY
from deniable.curves.decimal_arithmetic import (
    SMALLEST,
    Number,
    dec,
    digits,
    down,
    expm1,
    log1p,
    non_negative,
    normal_tail,
    positive,
    probability,
    real,
    tanh,
    up,
    up_probability,
    whole,
)


def risk_bound(*, epsilon: Number, delta: Number, risk: Number) -> float:
    """The largest probability of a bad event for someone who takes part, if it is `risk` without: e^ε·risk + δ, rounded
    up.

    For all neighbours and events P(M(D) ∈ S) <= e^ε P(M(D') ∈ S) + δ. Source: Dwork & Roth (2014), Definition 2.4.

    >>> risk_bound(epsilon=0.1, delta=0, risk=0.30)
    0.3315512754226943
    """
    e, d, r = non_negative("epsilon", epsilon), probability("delta", delta), probability("risk", risk)
    if r == 0 or e == 0:
        return up_probability(r + d)
    with digits():
        return up_probability(dec(e).exp() * dec(r) + dec(d))


def equal_error_rate_bound(*, epsilon: Number, delta: Number) -> float:
    """No test between two neighbours has both error rates below (1 - δ)/(1 + e^ε): rounded down.

    Add 1 - δ <= e^ε α + β and its mirror image; randomised response attains it. Source: Kairouz, Oh & Viswanath (2015).

    >>> equal_error_rate_bound(epsilon=1, delta=1e-5)
    0.2689387319557814
    """
    e, d = non_negative("epsilon", epsilon), probability("delta", delta)
    with digits():
        shrink = dec(-e).exp()
        return max(0.0, down(dec(1 - d) * shrink / (1 + shrink)))


def gaussian_equal_error_rate(*, mu: Number) -> float:
    """No test between two neighbours of a μ-GDP release has both error rates below Φ(-μ/2): rounded down.

    Source: Dong, Roth & Su (2022), the fixed point of G_μ.

    >>> gaussian_equal_error_rate(mu=1)
    0.3085375387259869
    """
    m = non_negative("mu", mu)
    with digits():
        return max(0.0, down(normal_tail(dec(m / 2))))


def nu_response_epsilon(*, nu: Number) -> float:
    """ε of ν-randomized response (the truth with probability ν, otherwise a fair coin): log((1 + ν)/(1 - ν)), rounded
    up.

    >>> nu_response_epsilon(nu=0.2)
    0.405465108108164...
    """
    with digits():
        share = _share(nu)
        return up(log1p(dec(2 * share / (1 - share))))


def nu_response_bound(*, nu: Number) -> float:
    """A simpler bound on the ε of ν-randomized response: log((1 + ν)/(1 - ν)) <= 2ν/(1 - ν), rounded up.

    >>> nu_response_bound(nu=0.25)
    0.6666666666666667
    """
    share = _share(nu)
    return up(2 * share / (1 - share))


def _share(nu: Number) -> Fraction:
    return real("nu", nu, PROBABILITY, INNER_PROBABILITY)


def posterior_bound(*, epsilon: Number, prior: Number) -> float:
    """The largest belief that an ε-DP answer can give to someone of prior belief p: p e^ε/(1 - p + p e^ε), rounded up.

    For all neighbours D, D' and any side information, log odds move by at most ε. Pure ε only: with δ > 0 some answers
    may reveal everything. Source: Dwork, McSherry, Nissim & Smith (2006), semantic security.

    >>> posterior_bound(epsilon=1, prior=0.5)
    0.7310585786300049
    """
    e, p = non_negative("epsilon", epsilon), probability("prior", prior)
    if p in (0, 1) or e == 0:
        return up(p)
    with digits():
        return up_probability(dec(p) / (dec(p) + dec(1 - p) * dec(-e).exp()))


def posterior_shift(*, epsilon: Number) -> float:
    """The largest total variation distance between the posteriors with and without your record, after an ε-DP answer:
    tanh(ε/2).

    Rounded up. The likelihood ratio of the two posteriors spans at most a factor e^(2ε).

    >>> posterior_shift(epsilon=1)
    0.4621171572600098
    """
    with digits():
        return up_probability(tanh(dec(non_negative("epsilon", epsilon)) / 2))


def posterior_shift_stated(*, epsilon: Number) -> float:
    """The form stated in the literature: e^ε - 1, rounded up, and never below `posterior_shift`.

    Source: Kasiviswanathan & Smith (2014). (Not e^(-ε), as some slides print.)

    >>> posterior_shift_stated(epsilon=1)
    1.7182818284590453
    """
    with digits():
        return up(expm1(dec(non_negative("epsilon", epsilon))))


def kl_bound(*, epsilon: Number) -> float:
    """KL divergence between neighbours of an ε-DP release: at most ε tanh(ε/2), rounded up; attained.

    Source: Bun & Steinke (2016), Proposition 3.3, sharpened: randomised response dominates every ε-DP pair.

    >>> kl_bound(epsilon=1)
    0.4621171572600098
    """
    e = non_negative("epsilon", epsilon)
    with digits():
        return up(dec(e) * tanh(dec(e) / 2))


def kl_bound_stated(*, epsilon: Number) -> float:
    """The looser KL bound ε(e^ε - 1), rounded up. Source: Dwork, Rothblum & Vadhan (2010), Lemma III.2.

    >>> kl_bound_stated(epsilon=1)
    1.7182818284590453
    """
    e = non_negative("epsilon", epsilon)
    with digits():
        return up(dec(e) * expm1(dec(e)))


def azuma_tail(*, deviation: Number) -> float:
    """P(Σ Y_i > k·b + t·√k·a) <= e^(-t²/2), rounded up, for |Y_i| <= a and E[Y_i | past] <= b; t = `deviation` >= 0.

    Source: Azuma (1967), with Hoeffding's lemma for an interval of length 2a; Dwork & Roth (2014), Lemma 3.19.

    >>> azuma_tail(deviation=2)
    0.1353352832366127
    """
    t = non_negative("deviation", deviation)
    with digits():
        return max(SMALLEST, up_probability(dec(-t * t / 2).exp()))


def hoeffding_tail(*, count: SupportsIndex, width: Number, deviation: Number) -> float:
    """P(mean - its expectation >= t) <= e^(-2nt²/w²), rounded up, for n independent numbers in intervals of width w.

    Double it for both sides. Source: Hoeffding (1963), Theorem 2.

    >>> hoeffding_tail(count=1000, width=1, deviation=0.05)
    0.0067379469990854635
    """
    n, w, t = whole("count", count), positive("width", width), non_negative("deviation", deviation)
    with digits():
        return max(SMALLEST, up_probability(dec(-2 * n * t * t / (w * w)).exp()))


def pure_distance(*, epsilon: Number, delta: Number) -> float:
    """The total variation distance of each of two (ε, δ)-close laws from a pair that is purely ε-close: δ/(1 + e^ε).

    Rounded up. P and Q are (ε, δ)-close both ways exactly if such P', Q' exist within that distance. Source: Dwork &
    Roth (2014), Lemma 3.17.

    >>> pure_distance(epsilon=1, delta=1e-5)
    2.689414213699952e-06
    """
    e, d = non_negative("epsilon", epsilon), probability("delta", delta)
    if d == 0:
        return 0.0
    with digits():
        shrink = dec(-e).exp()
        return max(SMALLEST, up(dec(d) * shrink / (1 + shrink)))


def catastrophe_delta(*, failure: Number, loss: Number, epsilon: Number) -> float:
    """δ(ε) of a mechanism that reveals everything with probability `failure` and else adds Laplace noise of Δ/b =
    `loss`.

    δ(ε) = failure + (1 - failure)(1 - e^((ε-loss)/2))₊, rounded up, for ε >= 0: it is (loss, failure)-DP and no better.

    >>> catastrophe_delta(failure=1e-5, loss=1, epsilon=0.5)
    0.22120700493642587
    """
    f = probability("failure", failure)
    gap = non_negative("loss", loss) - non_negative("epsilon", epsilon)
    if gap <= 0:
        return up(f)
    with digits():
        return up_probability(dec(f) - dec(1 - f) * expm1(dec(-gap / 2)))
