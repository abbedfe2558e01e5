"""Textbook conversions: from noise to a guarantee and back, and between ways of stating a guarantee.

Every ε, δ, ρ, Rényi divergence and noise level is rounded up. Users call these through `deniable.curves.textbook`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import SupportsIndex

from deniable.curves.decimal_arithmetic import (
    SMALLEST,
    AtOrder,
    Number,
    certainly_at_most,
    dec,
    digits,
    expm1,
    gaussian_delta,
    largest_accepted,
    log1p,
    log_inverse,
    non_negative,
    positive,
    probability,
    renyi_order,
    smallest_accepted,
    some_delta,
    up,
    up_probability,
    whole,
)
from deniable.curves.textbook.attacker_bounds import kl_bound
from deniable.errors import InvalidParameter, OutsideTheorem
from deniable.numbers import above

# --- Laplace and Gaussian noise -------------------------------------------------------------------------------------


def laplace_delta(*, sensitivity: Number, scale: Number, epsilon: Number) -> float:
    """δ(ε) of Laplace noise: (1 - e^((ε - Δ/b)/2))₊, rounded up; exact, for ε >= 0 and l1-sensitivity Δ.

    Source: Balle, Barthe & Gaboardi (2018), Theorem 3.

    >>> laplace_delta(sensitivity=1, scale=1, epsilon=0.5)
    0.22119921692859515
    """
    gap = positive("sensitivity", sensitivity) / positive("scale", scale) - non_negative("epsilon", epsilon)
    if gap <= 0:
        return 0.0
    with digits():
        return up_probability(-expm1(dec(-gap / 2)))


def laplace_scale(*, sensitivity: Number, epsilon: Number, delta: Number) -> float:
    """Smallest Laplace scale that is (ε, δ)-DP: Δ/(ε + 2 log(1/(1-δ))), rounded up; Δ/ε at δ = 0.

    Needs ε > 0 or δ > 0. Source: the inverse of `laplace_delta`.

    >>> laplace_scale(sensitivity=1, epsilon=1, delta=0)
    1.0
    >>> laplace_scale(sensitivity=1, epsilon=1, delta=0.1)
    0.8259541001888201
    """
    s, e, d = positive("sensitivity", sensitivity), non_negative("epsilon", epsilon), probability("delta", delta)
    if d == 1:
        raise InvalidParameter("delta", delta, "must be below 1: at 1 no noise is needed")
    if d == 0:
        if e == 0:
            raise OutsideTheorem("the Laplace mechanism", "epsilon > 0 or delta > 0", "epsilon=0, delta=0")
        return up(s / e)
    with digits():
        return max(SMALLEST, up(dec(s) / (dec(e) - 2 * log1p(-dec(d)))))


def classical_gaussian_sigma(*, sensitivity: Number, epsilon: Number, delta: Number) -> float:
    """The classical Gaussian calibration σ = Δ₂ √(2 log(1.25/δ))/ε, rounded up; proved only for 0 < ε < 1, 0 < δ < 1.

    At larger ε it becomes false (for δ = 1e-5 above ε = 8.42); inside its range it adds more noise than needed.
    `gaussian_sigma` is exact at every ε. Source: Dwork & Roth (2014), Theorem A.1.

    >>> classical_gaussian_sigma(sensitivity=1, epsilon=0.5, delta=1e-5)
    9.68961052521078
    >>> classical_gaussian_sigma(sensitivity=1, epsilon=1, delta=1e-5)
    Traceback (most recent call last):
    deniable.errors.OutsideTheorem: the classical Gaussian mechanism needs 0 < epsilon < 1, asked with epsilon=1...
    """
    theorem, remedy = "the classical Gaussian mechanism", "use gaussian_sigma, which is exact for every epsilon"
    s, e, d = positive("sensitivity", sensitivity), non_negative("epsilon", epsilon), probability("delta", delta)
    if not 0 < e < 1:
        raise OutsideTheorem(theorem, "0 < epsilon < 1", f"epsilon={float(e):.17g}", remedy)
    if not 0 < d < 1:
        raise OutsideTheorem(theorem, "0 < delta < 1", f"delta={float(d):.17g}", remedy)
    with digits():
        return up(dec(s / e) * (2 * dec(Fraction(5, 4) / d).ln()).sqrt())


def gaussian_sigma(*, sensitivity: Number, epsilon: Number, delta: Number) -> float:
    """Smallest σ for which Gaussian noise on a Δ₂-sensitive answer is (ε, δ)-DP: rounded up, never too small.

    The largest float μ with δ(ε) <= δ, by bisection over `gdp_to_delta`, then Δ₂/μ. Any ε >= 0, 0 < δ < 1.
    Source: Balle & Wang (2018), Theorem 8.

    >>> gaussian_sigma(sensitivity=1, epsilon=1, delta=1e-5)
    3.7306316348159423
    """
    s, e = positive("sensitivity", sensitivity), non_negative("epsilon", epsilon)
    d = some_delta("the Gaussian mechanism", delta, remedy="no Gaussian noise is purely epsilon-DP")
    if d == 1:
        raise InvalidParameter("delta", delta, "must be below 1: at 1 no noise is needed")
    mu = largest_accepted(lambda m: certainly_at_most(gaussian_delta(Fraction(m), e), d), low=0.0, high=2.0**1000)
    return up(s / Fraction(mu)) if mu > 0 else math.inf


def gaussian_composition(*, mu: Number, count: SupportsIndex) -> float:
    """k releases, each μ-GDP: √k·μ-GDP together, rounded up.

    k Gaussian answers of noise σ reveal as much as one of noise σ/√k. Source: Dong, Roth & Su (2022), Corollary 3.3.

    >>> gaussian_composition(mu=0.25, count=100)
    2.5
    """
    m, k = non_negative("mu", mu), whole("count", count)
    root = math.isqrt(k)
    if root * root == k:
        return up(root * m)
    with digits():
        return up(dec(m) * Decimal(k).sqrt())


# --- Gaussian DP, zCDP ----------------------------------------------------------------------------------------------


def gdp_to_delta(*, mu: Number, epsilon: Number) -> float:
    """μ-GDP: for all neighbours (ε, δ)-DP with δ = Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ), rounded up; exact.

    Any μ, ε >= 0. Source: Balle & Wang (2018), Theorem 8; Dong, Roth & Su (2022), Corollary 2.13.

    >>> gdp_to_delta(mu=1, epsilon=1)
    0.12693673750664397
    """
    return up_probability(gaussian_delta(non_negative("mu", mu), non_negative("epsilon", epsilon)))


def gdp_to_epsilon(*, mu: Number, delta: Number) -> float:
    """μ-GDP: the smallest float ε certified to be (ε, δ)-DP, by bisection over `gdp_to_delta`; rounded up.

    Any μ >= 0, 0 < δ <= 1 (δ = 0 only for μ = 0). Source: as `gdp_to_delta`.

    >>> gdp_to_epsilon(mu=2.5, delta=1e-5)
    13.206712240451989
    """
    m = non_negative("mu", mu)
    if m == 0:
        probability("delta", delta)
        return 0.0
    d = some_delta("Gaussian DP", delta, remedy="no Gaussian noise is purely epsilon-DP")

    def accepts(epsilon: float) -> bool:
        return certainly_at_most(gaussian_delta(m, Fraction(epsilon)), d)

    if accepts(0.0):
        return 0.0
    high = zcdp_to_epsilon(rho=m * m / 2, delta=d) if m < 10**154 else math.inf
    return smallest_accepted(accepts, low=0.0, high=high) if high < math.inf else math.inf


def pure_to_zcdp(*, epsilon: Number) -> float:
    """ε-DP: for all neighbours ρ-zCDP with ρ = ε²/2, rounded up. Source: Bun & Steinke (2016), Proposition 1.4.

    >>> pure_to_zcdp(epsilon=0.5)
    0.125
    """
    e = non_negative("epsilon", epsilon)
    return up(e * e / 2)


def pure_to_zcdp_sharp(*, epsilon: Number) -> float:
    """ε-DP: for all neighbours ρ-zCDP with ρ = ε tanh(ε/2), rounded up; no smaller ρ holds for all ε-DP releases.

    Randomised response is the worst case, with (α-1) D_α = log(cosh((α-1/2)ε)/cosh(ε/2)). log cosh √v is concave in v,
    so its tangent at v = (ε/2)² gives D_α <= α ε tanh(ε/2), with equality as α -> 1.
    Source: "Tight RDP & zCDP Bounds from Pure DP", differentialprivacy.org/pdp-to-zcdp.

    >>> pure_to_zcdp_sharp(epsilon=0.5)
    0.12245933120185457
    """
    return kl_bound(epsilon=epsilon)


def zcdp_to_epsilon(*, rho: Number, delta: Number) -> float:
    """ρ-zCDP: (ρ + 2√(ρ log(1/δ)), δ)-DP, rounded up; any ρ >= 0, 0 < δ <= 1.

    Source: Bun & Steinke (2016), Proposition 1.3.

    >>> zcdp_to_epsilon(rho=3.125, delta=1e-5)
    15.121314780470204
    """
    r, d = non_negative("rho", rho), some_delta("zCDP to DP", delta)
    with digits():
        return up(dec(r) + 2 * (dec(r) * log_inverse(d)).sqrt())


def zcdp_to_epsilon_optimised(*, rho: Number, delta: Number) -> AtOrder:
    """ρ-zCDP: the least of `renyi_to_epsilon` with D_α <= αρ over the orders α > 1, rounded up.

    Never above `zcdp_to_epsilon`. Source: Canonne, Kamath & Steinke (2020), Corollary 13.

    >>> zcdp_to_epsilon_optimised(rho=3.125, delta=1e-5).bound
    14.13054745551072
    """
    r, d = non_negative("rho", rho), some_delta("zCDP to DP", delta)
    simple = AtOrder(zcdp_to_epsilon(rho=r, delta=d), math.inf)
    if not 1e-300 < float(r) < 1e300:  # outside, an order times ρ would over- or underflow
        return simple
    steep = 1.0 + math.sqrt(_float_log(d) / float(r))  # the order at which the simple form is attained
    found = _best_order(lambda a: a * float(r) + _tighter(a, _float_log(d)))
    orders = [Fraction(order) for order in (found, steep) if 1.0 < order < 1e6]
    return min([AtOrder(renyi_to_epsilon(order=a, renyi=a * r, delta=d), float(a)) for a in orders] + [simple])


def zcdp_to_delta(*, rho: Number, epsilon: Number) -> AtOrder:
    """ρ-zCDP: the least of `renyi_to_delta` with D_α <= αρ over the orders α > 1, rounded up; any ρ, ε >= 0.

    Source: Canonne, Kamath & Steinke (2020), Corollary 13.

    >>> zcdp_to_delta(rho=3.125, epsilon=14).bound
    1.2682788252924772e-05
    """
    r, e = non_negative("rho", rho), non_negative("epsilon", epsilon)
    if r == 0 or r > 10**300:
        return AtOrder(0.0 if r == 0 else 1.0, math.inf)
    rate, at = float(r), float(e)
    order = Fraction(_best_order(lambda a: (a - 1) * (a * rate - at + math.log1p(-1 / a)) - math.log(a)))
    return AtOrder(renyi_to_delta(order=order, renyi=order * r, epsilon=e), float(order))


# --- Rényi DP -------------------------------------------------------------------------------------------------------


def gaussian_renyi(*, order: Number, mu: Number) -> float:
    """Rényi divergence between N(0,1) and N(μ,1): αμ²/2, exact, rounded up. Source: van Erven & Harremoës (2014).

    >>> gaussian_renyi(order=2, mu=0.25)
    0.0625
    """
    m = non_negative("mu", mu)
    return up(renyi_order(order) * m * m / 2)


def laplace_renyi(*, order: Number, loss: Number) -> float:
    """Rényi divergence of Laplace noise, t = Δ/b = `loss`: log(α/(2α-1) e^((α-1)t) + (α-1)/(2α-1) e^(-αt))/(α-1).

    Rounded up. Source: Mironov (2017), Proposition 6.

    >>> laplace_renyi(order=2, loss=1)
    0.6191236299985929
    """
    a, t = renyi_order(order), non_negative("loss", loss)
    with digits():
        rest = dec((a - 1) / (2 * a - 1)) * expm1(dec(-(2 * a - 1) * t))  # <= 0
        return _up_at_most(t, dec(t) + log1p(rest) / dec(a - 1))


def randomized_response_renyi(*, order: Number, epsilon: Number) -> float:
    """Rényi divergence of randomised response, p = 1/(1+e^(-ε)): log(p^α (1-p)^(1-α) + (1-p)^α p^(1-α))/(α-1).

    Rounded up; also the largest of any ε-DP release. Source: Mironov (2017), Proposition 5.

    >>> randomized_response_renyi(order=2, epsilon=1)
    0.7353256640555192
    """
    a, e = renyi_order(order), non_negative("epsilon", epsilon)
    with digits():
        # = ε + log((1 + e^(-(2α-1)ε))/(1 + e^(-ε)))/(α-1), and that ratio minus 1 is q(e^(-2(α-1)ε) - 1), q = 1/(1+e^ε)
        shrink = dec(-e).exp()
        rest = shrink / (1 + shrink) * expm1(dec(-2 * (a - 1) * e))  # <= 0
        return _up_at_most(e, dec(e) + log1p(rest) / dec(a - 1))


def _up_at_most(ceiling: Fraction, value: Decimal) -> float:
    """`value` rounded up, where digits may have cancelled; never above `ceiling`, which is a valid bound too."""
    return min(up(ceiling), max(0.0, up(value + dec(ceiling).scaleb(-40))))


def renyi_to_epsilon_mironov(*, order: Number, renyi: Number, delta: Number) -> float:
    """(α, r)-RDP: (r + log(1/δ)/(α-1), δ)-DP, rounded up; α > 1, 0 < δ <= 1. Source: Mironov (2017), Proposition 3.

    >>> renyi_to_epsilon_mironov(order=3, renyi=9.375, delta=1e-5)
    15.131462732485115
    """
    a, r, d = renyi_order(order), non_negative("renyi", renyi), some_delta("Rényi DP to DP", delta)
    with digits():
        return up(dec(r) + log_inverse(d) / dec(a - 1))


def renyi_to_epsilon(*, order: Number, renyi: Number, delta: Number) -> float:
    """(α, r)-RDP: (r + log((α-1)/α) - (log δ + log α)/(α-1), δ)-DP, rounded up, at least 0; α > 1, 0 < δ <= 1.

    Never above `renyi_to_epsilon_mironov`. Source: Canonne, Kamath & Steinke (2020), Proposition 12.

    >>> renyi_to_epsilon(order=3, renyi=9.375, delta=1e-5)
    14.176691...
    """
    a, r, d = renyi_order(order), non_negative("renyi", renyi), some_delta("Rényi DP to DP", delta)
    with digits():
        terms = (dec(r), -log1p(1 / dec(a - 1)), log_inverse(d) / dec(a - 1), -log1p(dec(a - 1)) / dec(a - 1))
        scale = sum((abs(term) for term in terms), Decimal(0)).scaleb(-40)  # a bound on the error of cancellation
        return max(0.0, up(sum(terms, scale)))


def renyi_to_delta(*, order: Number, renyi: Number, epsilon: Number) -> float:
    """(α, r)-RDP: (ε, δ)-DP with δ = e^((α-1)(r-ε)) (1 - 1/α)^(α-1)/α, rounded up, at most 1; α > 1, ε >= 0.

    Source: Canonne, Kamath & Steinke (2020), Proposition 12.

    >>> renyi_to_delta(order=3, renyi=9.375, epsilon=14)
    1.423876326835477e-05
    """
    a, r, e = renyi_order(order), non_negative("renyi", renyi), non_negative("epsilon", epsilon)
    with digits():
        log_delta = dec((a - 1) * (r - e)) - dec(a - 1) * log1p(1 / dec(a - 1)) - log1p(dec(a - 1))
        return _up_exp(log_delta)


def _up_exp(exponent: Decimal) -> float:
    """e^exponent, rounded up, at most 1; allows for the relative error of the exponent."""
    raised = exponent + abs(exponent).scaleb(-40)
    return 1.0 if raised >= 0 else max(SMALLEST, up_probability(raised.exp()))


def best_renyi_to_epsilon_mironov(*, renyi: Callable[[float], float], delta: Number) -> AtOrder:
    """`renyi_to_epsilon_mironov` at a good order of a whole Rényi curve α -> r(α), each r(α) an upper bound.

    Every order gives a valid bound, so the search need not be exact; it tries α - 1 between 1e-6 and 1e6.

    >>> best_renyi_to_epsilon_mironov(renyi=lambda a: a * 3.125, delta=1e-5).bound
    15.121314780470206
    """
    d = some_delta("Rényi DP to DP", delta)
    order = _best_order(lambda a: _renyi_at(renyi, a) + _float_log(d) / (a - 1))
    return AtOrder(renyi_to_epsilon_mironov(order=order, renyi=_renyi_at(renyi, order), delta=d), order)


def best_renyi_to_epsilon(*, renyi: Callable[[float], float], delta: Number) -> AtOrder:
    """`renyi_to_epsilon` at a good order of a whole Rényi curve α -> r(α), each r(α) an upper bound.

    >>> best_renyi_to_epsilon(renyi=lambda a: a * 3.125, delta=1e-5).bound
    14.130547455510719
    """
    d = some_delta("Rényi DP to DP", delta)
    order = _best_order(lambda a: _renyi_at(renyi, a) + _tighter(a, _float_log(d)))
    return AtOrder(renyi_to_epsilon(order=order, renyi=_renyi_at(renyi, order), delta=d), order)


def moments_accountant(*, log_moment: Callable[[float], float], epsilon: Number) -> AtOrder:
    """The moments accountant: (ε, δ)-DP with δ = min_λ e^(A(λ) - λε), rounded up; A(λ) = log E e^(λ·loss), λ > 0.

    A(λ) = λ D_{λ+1} is `log_moment`, an upper bound at each λ; it adds over steps. `order` of the result is λ.
    Source: Abadi et al. (2016), Theorem 2.

    >>> moments_accountant(log_moment=lambda k: k * (k + 1) * 3.125, epsilon=14)
    AtOrder(bound=7.78092686155...e-05, order=1.7...)
    """
    e = non_negative("epsilon", epsilon)

    def at(moment: float) -> float:
        return _finite_bound("log_moment", log_moment, moment)

    best = _best_order(lambda a: at(a - 1) - (a - 1) * float(e)) - 1
    value = at(best)
    with digits():
        return AtOrder(_up_exp(dec(Fraction(value) - Fraction(best) * e)), best)


def probability_preservation(*, order: Number, renyi: Number, chance: Number) -> float:
    """(α, r)-RDP: an event of probability `chance` on D' has at most (e^r·chance)^((α-1)/α) on D, rounded up.

    Source: Mironov (2017), Proposition 10; Langlois, Stehlé & Steinfeld (2014).

    >>> probability_preservation(order=2, renyi=1, chance=0.15865525393145707)
    0.6567112712230813
    """
    a, r, q = renyi_order(order), non_negative("renyi", renyi), probability("chance", chance)
    if q == 0:
        return 0.0
    with digits():
        return _up_exp((dec(r) - log_inverse(q)) * dec((a - 1) / a))


def _finite_bound(name: str, function: Callable[[float], float], at: float) -> float:
    if not callable(function):
        raise InvalidParameter(name, function, "must be a function of one number", f"write {name}=lambda a: ...")
    value = function(at)
    try:
        number = float(value)
        if number < value:  # numpy's longdouble stores more digits
            number = above(number)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if number >= 0:
        return number
    raise InvalidParameter(name, value, "must return a number that is at least 0, or inf where no bound exists")


def _renyi_at(renyi: Callable[[float], float], order: float) -> float:
    return _finite_bound("renyi", renyi, order)


def _float_log(delta: Fraction) -> float:
    """log(1/δ) as a float, to steer a search."""
    return math.log(delta.denominator) - math.log(delta.numerator)


def _tighter(order: float, log_inverse_delta: float) -> float:
    return math.log1p(-1 / order) + (log_inverse_delta - math.log(order)) / (order - 1)


def _best_order(objective: Callable[[float], float]) -> float:
    """An order with a small objective: a grid over log(α - 1), then golden section. The result only chooses an order;
    every order gives a valid bound.
    """

    def at(x: float) -> float:
        value = objective(1.0 + math.exp(x))
        return math.inf if math.isnan(value) else value

    grid = [x / 4 for x in range(-55, 56)]
    values = [at(x) for x in grid]
    best = min(range(len(grid)), key=values.__getitem__)
    if values[best] == math.inf:
        raise OutsideTheorem("Rényi accounting", "a finite bound at some order above 1", "inf at every order tried")
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    golden = (math.sqrt(5) - 1) / 2
    first, second = high - golden * (high - low), low + golden * (high - low)
    at_first, at_second = at(first), at(second)
    for _ in range(40):
        if at_first <= at_second:
            high, second, at_second = second, first, at_first
            first = high - golden * (high - low)
            at_first = at(first)
        else:
            low, first, at_first = first, second, at_second
            second = low + golden * (high - low)
            at_second = at(second)
    x = min((grid[best], first, second), key=at)
    return 1.0 + math.exp(x)
