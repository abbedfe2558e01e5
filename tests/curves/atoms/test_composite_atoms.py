"""Sampling, groups, worst cases, mixtures, quantisation: against enumeration, mpmath quadrature and closed forms."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from itertools import product as pairs_of

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deniable import curves
from deniable.curves import Curve
from deniable.errors import InvalidOperation

Masses = list[Fraction]


def profile(p: Masses, q: Masses, x: Fraction) -> Fraction:
    """sup_S P(S) - x Q(S), exactly."""
    return sum((max(a - x * b, Fraction(0)) for a, b in zip(p, q, strict=True)), Fraction(0))


def inside(bounds: tuple[float, float], exact: float, *, width: float = 1e-11, slack: float = 1e-14) -> None:
    low, high = bounds
    assert low <= high
    assert low <= exact + slack
    assert high >= exact - slack
    assert high - low <= width


def curve_of(p: Masses, q: Masses, *, tied: bool = True) -> Curve:
    return curves.from_pmf([float(v) for v in p], [float(v) for v in q], tied=tied)


@st.composite
def laws(draw: st.DrawFn, size: int = 3) -> tuple[Masses, Masses]:
    both = []
    for _ in range(2):
        cuts = sorted(draw(st.lists(st.integers(0, 32), min_size=size - 1, max_size=size - 1)))
        both.append([Fraction(b - a, 32) for a, b in zip([0, *cuts], [*cuts, 32], strict=True)])
    return both[0], both[1]


def mixed(p: Masses, q: Masses, share: Fraction) -> Masses:
    """(1 - share) Q + share P."""
    return [share * a + (1 - share) * b for a, b in zip(p, q, strict=True)]


# -- Poisson sampling ------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True)
@given(laws(), st.sampled_from([Fraction(1, 8), Fraction(1, 2), Fraction(63, 64)]), st.floats(-3, 3))
@example(([Fraction(1), Fraction(0), Fraction(0)], [Fraction(0), Fraction(1), Fraction(0)]), Fraction(1, 8), 0.0)
def test_sampled_masses_by_enumeration(pair: tuple[Masses, Masses], rate: Fraction, epsilon: float) -> None:
    """Without the person: P; with them: (1-q) P + q Q."""
    p, q = pair
    x = Fraction(math.exp(epsilon))
    inner = mixed(q, p, rate)
    curve = curve_of(p, q).sampled(rate=float(rate))
    inside(curve.forward.delta_bounds(epsilon=epsilon), float(profile(p, inner, x)))
    inside(curve.backward.delta_bounds(epsilon=epsilon), float(profile(inner, p, x)))


@settings(max_examples=8, deadline=None, derandomize=True)
@given(laws(), st.sampled_from([Fraction(1, 8), Fraction(1, 2)]), st.floats(-2, 2))
def test_two_sampled_uses_by_enumeration(pair: tuple[Masses, Masses], rate: Fraction, epsilon: float) -> None:
    p, q = pair
    inner, x = mixed(q, p, rate), Fraction(math.exp(epsilon))
    two_inner = [a * b for a, b in pairs_of(inner, inner)]
    two_p = [a * b for a, b in pairs_of(p, p)]
    curve = curve_of(p, q).sampled(rate=float(rate)) ** 2
    inside(curve.forward.delta_bounds(epsilon=epsilon), float(profile(two_p, two_inner, x)), width=2e-3)
    inside(curve.backward.delta_bounds(epsilon=epsilon), float(profile(two_inner, two_p, x)), width=2e-3)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(laws(), st.sampled_from([Fraction(1, 8), Fraction(1, 2)]), st.floats(-2, 2))
def test_sampling_once_for_two_releases(pair: tuple[Masses, Masses], rate: Fraction, epsilon: float) -> None:
    """(m * m).sampled: one sample, two answers. Not the same as m.sampled ** 2."""
    p, q = pair
    two_p, two_q = [a * b for a, b in pairs_of(p, p)], [a * b for a, b in pairs_of(q, q)]
    inner, x = mixed(two_q, two_p, rate), Fraction(math.exp(epsilon))
    curve = (curve_of(p, q) ** 2).sampled(rate=float(rate))
    inside(curve.forward.delta_bounds(epsilon=epsilon), float(profile(two_p, inner, x)), width=2e-3)
    inside(curve.backward.delta_bounds(epsilon=epsilon), float(profile(inner, two_p, x)), width=2e-3)


def sampled_gaussian(mu: float, rate: float, epsilon: float) -> tuple[float, float]:
    """Both directions of (1-q) N(0,1) + q N(μ,1) against N(0,1), by the threshold where the likelihood ratio is e^±ε."""
    with mp.workdps(40):
        mu, q, e = mp.mpf(mu), mp.mpf(rate), mp.mpf(epsilon)

        def above(t: mp.mpf, shift: mp.mpf) -> mp.mpf:
            return mp.erfc((t - shift) / mp.sqrt(2)) / 2

        def threshold(value: mp.mpf) -> mp.mpf:
            """The y with 1 - q + q exp(μ y - μ²/2) = value."""
            inner = (value - 1 + q) / q
            return mp.log(inner) / mu + mu / 2 if inner > 0 else mp.ninf

        t = threshold(mp.exp(e))
        ahead = (1 - q) * above(t, 0) + q * above(t, mu) - mp.exp(e) * above(t, 0) if t != mp.ninf else 1 - mp.exp(e)
        t = threshold(mp.exp(-e))
        if t == mp.ninf:
            back = max(1 - mp.exp(e), mp.mpf(0)) if e < 0 else mp.mpf(0)
        else:
            back = (1 - above(t, 0)) - mp.exp(e) * ((1 - q) * (1 - above(t, 0)) + q * (1 - above(t, mu)))
        return float(ahead), float(back)


@pytest.mark.parametrize("epsilon", [-0.5, -0.004, 0.0, 0.005, 0.3, 2.0, 6.0])
@pytest.mark.parametrize(("mu", "rate"), [(1.0, 0.01), (0.25, 0.3), (3.0, 0.5), (1.0, 0.999)])
def test_the_sampled_gaussian(mu: float, rate: float, epsilon: float) -> None:
    curve = curves.gaussian(mu=mu).sampled(rate=rate)
    back, ahead = sampled_gaussian(mu, rate, epsilon)
    low, high = curve.forward.delta_bounds(epsilon=epsilon)
    assert low <= ahead * (1 + 1e-12) + 1e-18
    assert high >= ahead * (1 - 1e-12)
    assert high - low <= 1e-9 * high + 1e-14
    low, high = curve.backward.delta_bounds(epsilon=epsilon)
    assert low <= back * (1 + 1e-12) + 1e-18
    assert high >= back * (1 - 1e-12)
    assert high - low <= 1e-9 * high + 1e-14


THOUSAND = {
    ("backward", 1.0): 0.002612420580,
    ("backward", 2.0): 2.665571928e-6,
    ("forward", 1.0): 0.000794590175,
    ("forward", 2.0): 1.06716203e-9,
}


@pytest.mark.parametrize(("way", "epsilon"), THOUSAND)
def test_a_thousand_sampled_gaussians(way: str, epsilon: float) -> None:
    """Rate 0.01, sigma 1: numbers of an independent Richardson extrapolation."""
    low, high = getattr(curves.gaussian(sigma=1).sampled(rate=0.01) ** 1000, way).delta_bounds(epsilon=epsilon)
    exact = THOUSAND[way, epsilon]
    assert low <= exact * (1 + 1e-8)
    assert high >= exact * (1 - 1e-8)
    assert high - low <= 2e-3 * high


def test_a_thousand_sampled_gaussians_with_less_noise_are_noticed() -> None:
    """Negative control: 2 % less noise."""
    low, _ = (curves.gaussian(sigma=0.98).sampled(rate=0.01) ** 1000).backward.delta_bounds(epsilon=1.0)
    assert low > THOUSAND["backward", 1.0] * 1.01


@pytest.mark.slow
@pytest.mark.parametrize("order", [1.5, 2.0, 3.0, 8.0, 20.0])
def test_renyi_of_the_sampled_gaussian(order: float) -> None:
    """D_order by mpmath quadrature; whole orders have the binomial sum as well."""
    mu, rate = 1.0, 0.2
    with mp.workdps(20):

        def density(y: mp.mpf, shift: float) -> mp.mpf:
            return mp.exp(-((y - shift) ** 2) / 2) / mp.sqrt(2 * mp.pi)

        def ratio(y: mp.mpf) -> mp.mpf:
            return 1 - rate + rate * mp.exp(mu * y - mu * mu / 2)

        cuts = list(mp.linspace(-10, 10 + order, 16))
        ahead = mp.log(mp.quad(lambda y: density(y, 0) * ratio(y) ** order, cuts)) / (order - 1)
        back = mp.log(mp.quad(lambda y: density(y, 0) * ratio(y) ** (1 - order), cuts)) / (order - 1)
        exact = float(max(ahead, back))
    value = curves.gaussian(mu=mu).sampled(rate=rate).renyi(order=order)
    assert exact * (1 - 1e-12) <= value <= exact * (1 + 1e-4)


# -- sampling without replacement ------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [curves.gaussian(mu=1), curves.laplace(scale=1), curves.pure(epsilon=1)], ids=str)
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 0.9])
def test_sampling_without_replacement(base: Curve, epsilon: float) -> None:
    """δ'(log(1 + q(e^ε - 1))) = q δ(ε) for ε >= 0, and its reflection for ε < 0."""
    rate = 0.25
    curve = base.sampled_without_replacement(size=5, population=20)
    at = math.log1p(rate * math.expm1(epsilon))
    low, high = (rate * b for b in base.delta_bounds(epsilon=epsilon))
    inside(curve.delta_bounds(epsilon=at), (low + high) / 2, slack=(high - low) + 1e-13)
    reflected = -math.expm1(-at) + math.exp(-at) * (low + high) / 2
    inside(curve.delta_bounds(epsilon=-at), reflected, slack=(high - low) + 1e-13)


def test_the_whole_population_is_no_sample() -> None:
    base = curves.laplace(scale=1)
    assert base.sampled_without_replacement(size=7, population=7) == base


# -- groups ----------------------------------------------------------------------------------------------------------


def worse_polygon(p: Masses, q: Masses) -> tuple[list[Fraction], list[Fraction]]:
    """The power function of the worse direction at every ε: levels and powers of its kinks, exactly."""
    kinks = {a / b for a, b in zip(p, q, strict=True) if b > 0} | {b / a for a, b in zip(p, q, strict=True) if a > 0}
    x = sorted(kinks | {Fraction(0)})
    for left, right in pairwise(x):
        gap = [profile(p, q, v) - profile(q, p, v) for v in (left, right)]
        if gap[0] * gap[1] < 0:  # the two profiles cross inside the cell, where both are straight lines
            kinks.add(left + (right - left) * gap[0] / (gap[0] - gap[1]))
    x = sorted(kinks | {Fraction(0)})
    value = [max(profile(p, q, v), profile(q, p, v)) for v in x]
    slopes = [(b - a) / (w - v) for v, w, a, b in zip(x, x[1:], value, value[1:], strict=False)]
    masses = [(v, b - a) for v, a, b in zip(x, [Fraction(-1), *slopes], [*slopes, Fraction(0)], strict=True) if b > a]
    levels, powers = [Fraction(0)], [1 - sum(v * m for v, m in masses)]
    for ratio, mass in reversed(masses):
        levels.append(levels[-1] + mass)
        powers.append(powers[-1] + ratio * mass)
    return levels, powers


def chain(p: Masses, q: Masses, size: int, x: Fraction) -> Fraction:
    """The worst δ over chains of `size` neighbours, each step in either direction: the power function applied `size` times."""
    levels, powers = worse_polygon(p, q)

    def between(at: Fraction, xs: list[Fraction], ys: list[Fraction]) -> Fraction:
        for k in range(1, len(xs)):
            if at <= xs[k]:
                share = (at - xs[k - 1]) / (xs[k] - xs[k - 1]) if xs[k] > xs[k - 1] else Fraction(1)
                return ys[k - 1] + share * (ys[k] - ys[k - 1])
        return ys[-1]

    # δ(x) = max over α of power^size(α) - x α, at a kink: preimages of kinks under 0..size-1 applications.
    kinks = set(levels)
    for _ in range(size - 1):
        kinks |= {between(k, powers, levels) for k in kinks if k >= powers[0]}
    best = Fraction(0)
    for alpha in kinks:
        value = alpha
        for _ in range(size):
            value = between(value, levels, powers)
        best = max(best, value - x * alpha)
    return best


@settings(max_examples=40, deadline=None, derandomize=True)
@given(laws(), st.integers(2, 4), st.floats(-1, 4))
def test_groups_by_enumeration(pair: tuple[Masses, Masses], size: int, epsilon: float) -> None:
    """On the way from one dataset to the other some people may join and others leave: each step may go either way."""
    p, q = pair
    curve = curve_of(p, q).group(size=size)
    x = Fraction(math.exp(epsilon))
    inside(curve.delta_bounds(epsilon=epsilon), float(chain(p, q, size, x)), width=1e-9, slack=1e-12)


@pytest.mark.parametrize("size", [2, 3, 10])
def test_groups_of_approximate_dp_have_the_sharp_delta(size: int) -> None:
    """δ_k = δ (e^{kε} - 1)/(e^ε - 1)."""
    epsilon, delta = 0.3, 1e-7
    exact = delta * math.expm1(size * epsilon) / math.expm1(epsilon)
    low, high = curves.approximate(epsilon=epsilon, delta=delta).group(size=size).delta_bounds(epsilon=size * epsilon)
    assert low <= exact * (1 + 1e-9)
    assert high >= exact * (1 - 1e-12)
    assert high - low <= 1e-5 * exact


def test_a_group_of_gaussians_by_iteration_is_the_closed_form() -> None:
    """The generic route (a table of the profile) brackets G_{3μ}."""
    generic = curves.worst_of(curves.gaussian(mu=0.4), curves.pure(epsilon=1e-6)).group(size=3)
    for epsilon in (0.0, 1.0, 3.0):
        exact = curves.gaussian(mu=1.2).delta(epsilon=epsilon)
        low, high = generic.delta_bounds(epsilon=epsilon)
        assert low <= exact * (1 + 1e-9)
        assert high >= exact * (1 - 1e-9)
        assert high - low <= 2e-3 * exact


def test_a_group_of_a_product_is_the_product_of_groups() -> None:
    a, b = curves.gaussian(mu=0.5), curves.laplace(scale=2)
    assert (a**3 * b).group(size=2) == a.group(size=2) ** 3 * b.group(size=2)


# -- several at once -------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None, derandomize=True)
@given(laws(), laws(), st.floats(-3, 3))
def test_worst_of_by_enumeration(first: tuple[Masses, Masses], second: tuple[Masses, Masses], epsilon: float) -> None:
    x = Fraction(math.exp(epsilon))
    both = curves.worst_of(curve_of(*first), curve_of(*second))
    inside(both.forward.delta_bounds(epsilon=epsilon), float(max(profile(*first, x), profile(*second, x))))
    ahead, behind = (first[1], first[0]), (second[1], second[0])
    inside(both.backward.delta_bounds(epsilon=epsilon), float(max(profile(*ahead, x), profile(*behind, x))))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(laws(), laws(), st.floats(-3, 3))
def test_mixtures_by_enumeration(first: tuple[Masses, Masses], second: tuple[Masses, Masses], epsilon: float) -> None:
    """The index shows: outcomes of the two mechanisms are different answers."""
    x, share = Fraction(math.exp(epsilon)), Fraction(1, 4)
    p = [share * v for v in first[0]] + [(1 - share) * v for v in second[0]]
    q = [share * v for v in first[1]] + [(1 - share) * v for v in second[1]]
    both = curves.mixture([0.25, 0.75], [curve_of(*first), curve_of(*second)])
    inside(both.forward.delta_bounds(epsilon=epsilon), float(profile(p, q, x)))
    two_p, two_q = [a * b for a, b in pairs_of(p, p)], [a * b for a, b in pairs_of(q, q)]
    inside((both**2).forward.delta_bounds(epsilon=epsilon), float(profile(two_p, two_q, x)), width=2e-3)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(laws(), laws(), st.floats(-3, 3))
def test_hidden_mixtures_of_tied_masses(
    first: tuple[Masses, Masses], second: tuple[Masses, Masses], epsilon: float
) -> None:
    x = Fraction(math.exp(epsilon))
    p, q = ([(a + 3 * b) / 4 for a, b in zip(first[i], second[i], strict=True)] for i in (0, 1))
    hidden = curves.hidden_mixture([0.25, 0.75], [curve_of(*first), curve_of(*second)])
    inside(hidden.forward.delta_bounds(epsilon=epsilon), float(profile(p, q, x)))


def test_hidden_mixtures_of_free_masses_are_refused() -> None:
    """If either neighbour may come first, one mechanism may see (P, Q) while the other sees (Q, P): the mean of P's says nothing."""
    free = [curves.from_pmf([1.0, 0.0], [0.0, 1.0]), curves.from_pmf([0.0, 1.0], [1.0, 0.0])]
    with pytest.raises(InvalidOperation, match="tied=True"):
        curves.hidden_mixture([0.5, 0.5], free)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [-1.0, 0.0, 0.4, 1.5, 4.0])
def test_hidden_shifts_by_quadrature(epsilon: float) -> None:
    """Σ w_i N(μ_i, 1) against N(0, 1), both ways."""
    weights, shifts = [0.5, 0.3, 0.2], [0.0, 0.7, 1.9]
    parts = [curves.gaussian(mu=m) if m else curves.identity() for m in shifts]
    curve = curves.hidden_mixture(weights, parts)
    with mp.workdps(30):

        def q(y: mp.mpf) -> mp.mpf:
            return mp.exp(-y * y / 2) / mp.sqrt(2 * mp.pi)

        def p(y: mp.mpf) -> mp.mpf:
            return sum(w * q(y - m) for w, m in zip(weights, shifts, strict=True))

        def crossing(level: float) -> mp.mpf:
            a, b = mp.mpf(-40), mp.mpf(40)
            for _ in range(120):
                m = (a + b) / 2
                a, b = (m, b) if mp.log(p(m) / q(m)) < level else (a, m)
            return a

        t = crossing(epsilon)
        ahead = mp.quad(lambda y: p(y) - mp.exp(epsilon) * q(y), [v for v in (t, -6, -2, 0, 2, 4, 8, 20) if v >= t])
        t = crossing(-epsilon)
        back = mp.quad(lambda y: q(y) - mp.exp(epsilon) * p(y), [v for v in (-20, -8, -4, -2, 0, 2, 6, t) if v <= t])
    for way, exact in (("backward", float(ahead)), ("forward", max(float(back), 0.0))):
        low, high = getattr(curve, way).delta_bounds(epsilon=epsilon)
        assert low <= exact * (1 + 1e-11) + 1e-13
        assert high >= exact * (1 - 1e-11) - 1e-13
        assert high - low <= 1e-9


def test_hidden_shifts_that_agree_are_one_gaussian() -> None:
    one = curves.gaussian(mu=0.5)
    assert curves.hidden_mixture([0.5, 0.5], [one**4, curves.gaussian(mu=1.0)]).gdp() == pytest.approx(1.0, rel=1e-12)
    assert curves.hidden_mixture([1.0], [one]) == one


# -- quantisation ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mu", "width", "offset"), [(1.0, 1.0, 0.0), (0.5, 0.25, 0.1), (2.0, 3.0, 1.5), (0.3, 0.01, 0.0)]
)
@pytest.mark.parametrize("epsilon", [-0.4, 0.0, 0.6, 1.7])
def test_quantised_gaussian_by_bins(mu: float, width: float, offset: float, epsilon: float) -> None:
    """P = N(0, 1), Q = N(μ, 1), seen through bins of the given width."""
    with mp.workdps(30):
        edges = [
            offset + width * n for n in range(math.floor((-14 - offset) / width), math.ceil((17 - offset) / width) + 1)
        ]
        cdf = [(mp.ncdf(e), mp.ncdf(e - mu)) for e in edges]
        p = [cdf[0][0], *(b[0] - a[0] for a, b in pairwise(cdf)), 1 - cdf[-1][0]]
        q = [cdf[0][1], *(b[1] - a[1] for a, b in pairwise(cdf)), 1 - cdf[-1][1]]
        x = mp.exp(epsilon)
        ahead = float(mp.fsum(max(a - x * b, 0) for a, b in zip(p, q, strict=True)))
        back = float(mp.fsum(max(b - x * a, 0) for a, b in zip(p, q, strict=True)))
    curve = curves.quantized(curves.gaussian(mu=mu), width=width, offset=offset)
    inside(curve.forward.delta_bounds(epsilon=epsilon), ahead, width=1e-10, slack=1e-13)
    inside(curve.backward.delta_bounds(epsilon=epsilon), back, width=1e-10, slack=1e-13)


def test_products_are_quantised_as_one_gaussian() -> None:
    one = curves.quantized(curves.gaussian(mu=0.3) ** 2 * curves.gaussian(mu=0.4), width=0.5)
    two = curves.quantized(curves.gaussian(mu=math.sqrt(0.34)), width=0.5)
    assert one.delta(epsilon=0.3) == pytest.approx(two.delta(epsilon=0.3), rel=1e-9)


def test_a_quantised_loss_merges_answers() -> None:
    """Losses log 4, log 2, 0, -log 4 seen through edges at 0.1 and 1: answers merge exactly."""
    p, q = (
        [Fraction(8, 16), Fraction(4, 16), Fraction(2, 16), Fraction(2, 16)],
        [Fraction(2, 16), Fraction(2, 16), Fraction(2, 16), Fraction(10, 16)],
    )
    curve = curves.quantized(curve_of(p, q), edges=[0.1, 1.0])
    merged_p, merged_q = [p[0], p[1], p[2] + p[3]], [q[0], q[1], q[2] + q[3]]
    for epsilon in (-1.0, 0.0, 0.5, 1.2, 2.0):
        x = Fraction(math.exp(epsilon))
        inside(curve.forward.delta_bounds(epsilon=epsilon), float(profile(merged_p, merged_q, x)), width=1e-9)
        inside(curve.backward.delta_bounds(epsilon=epsilon), float(profile(merged_q, merged_p, x)), width=1e-9)


def test_edges_beyond_every_loss_hide_everything() -> None:
    """All answers fall into one bin: nothing is seen."""
    for base in (curves.from_pmf([0.6, 0.3, 0.1], [0.3, 0.3, 0.4], tied=True), curves.laplace(scale=1)):
        for edges in ([2.0], [-5.0], [-3.0, 3.0]):
            curve = curves.quantized(base, edges=edges)
            assert curve.advantage() <= 1e-9
            assert curve.epsilon(delta=1e-9) <= 1e-6


# -- direction -------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None, derandomize=True)
@given(laws(), st.floats(-3, 3))
def test_symmetrized_is_the_worse_direction(pair: tuple[Masses, Masses], epsilon: float) -> None:
    p, q = pair
    x = Fraction(math.exp(epsilon))
    worse = float(max(profile(p, q, x), profile(q, p, x)))
    curve = curve_of(p, q).symmetrized()
    for way in (curve, curve.forward, curve.backward):
        inside(way.delta_bounds(epsilon=epsilon), worse)
    turned = curve_of(p, q).reversed()
    inside(turned.forward.delta_bounds(epsilon=epsilon), float(profile(q, p, x)))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(laws(), st.floats(0, 3), st.sampled_from([0.125, 0.5]))
def test_derived_curves_of_a_free_direction_cover_both(
    pair: tuple[Masses, Masses], epsilon: float, rate: float
) -> None:
    """A free mechanism may meet its neighbours either way round, inside sampling and groups as well."""
    p, q = pair
    x = Fraction(math.exp(epsilon))
    free = curve_of(p, q, tied=False)
    sampled = free.sampled(rate=rate).delta(epsilon=epsilon)
    share = Fraction(rate)
    for a, b in ((p, q), (q, p)):
        inner = mixed(a, b, share)
        assert sampled >= float(max(profile(inner, b, x), profile(b, inner, x))) - 1e-14
        # A chain that goes there and on the other way: P to Q, then any neighbour of Q.
        assert free.group(size=2).delta(epsilon=epsilon) >= float(profile(a, b, x)) - 1e-14


def test_wide_arrays_are_read_like_single_numbers() -> None:
    curve = curves.gaussian(mu=1).sampled(rate=0.1)
    epsilon = np.linspace(-3, 5, 200)
    together = curve.delta(epsilon=epsilon)
    assert np.allclose(together, [curve.delta(epsilon=float(e)) for e in epsilon], rtol=1e-12, atol=0)


# -- everything at once ----------------------------------------------------------------------------------------------


def joined(pair: tuple[Masses, Masses]) -> tuple[Masses, Masses]:
    """The same experiment with answers of equal likelihood ratio merged."""
    found: dict[object, list[Fraction]] = {}
    for a, b in zip(*pair, strict=True):
        if a + b > 0:
            entry = found.setdefault(a / b if b else None, [Fraction(0), Fraction(0)])
            entry[0] += a
            entry[1] += b
    return [v[0] for v in found.values()], [v[1] for v in found.values()]


Exact = tuple[tuple[Masses, Masses], Curve]


def twice(one: Exact) -> Exact:
    (p, q), curve = one
    return joined(([a * b for a, b in pairs_of(p, p)], [a * b for a, b in pairs_of(q, q)])), curve**2


def together(one: Exact, other: Exact) -> Exact:
    (p, q), (r, s) = one[0], other[0]
    return joined(([a * b for a, b in pairs_of(p, r)], [a * b for a, b in pairs_of(q, s)])), one[1] * other[1]


def on_a_sample(one: Exact, rate: Fraction) -> Exact:
    (p, q), curve = one
    return joined((p, mixed(q, p, rate))), curve.sampled(rate=float(rate))


def either(one: Exact, other: Exact) -> Exact:
    (p, q), (r, s) = one[0], other[0]
    first = [a / 4 for a in p] + [3 * a / 4 for a in r]
    second = [a / 4 for a in q] + [3 * a / 4 for a in s]
    return joined((first, second)), curves.mixture([0.25, 0.75], [one[1], other[1]])


def turned(one: Exact) -> Exact:
    return (one[0][1], one[0][0]), one[1].reversed()


trees = st.recursive(
    laws(size=2).map(lambda pair: (pair, curve_of(*pair))),
    lambda inner: st.one_of(
        inner.map(twice),
        st.tuples(inner, inner).map(lambda t: together(*t)),
        st.tuples(inner, st.sampled_from([Fraction(1, 8), Fraction(15, 16)])).map(lambda t: on_a_sample(*t)),
        st.tuples(inner, inner).map(lambda t: either(*t)),
        inner.map(turned),
    ),
    max_leaves=3,
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(trees, st.one_of(st.floats(-2, 3), st.sampled_from([0.0, math.log(2)])))
def test_random_expressions_of_masses_by_enumeration(tree: Exact, epsilon: float) -> None:
    """Products, samples, mixtures and turned directions, nested: no bound is ever on the wrong side."""
    (p, q), curve = tree
    x = Fraction(math.exp(epsilon))
    for way, exact in (("forward", profile(p, q, x)), ("backward", profile(q, p, x))):
        low, high = getattr(curve, way).delta_bounds(epsilon=epsilon)
        assert low <= float(exact) + 1e-12
        assert high >= float(exact) - 1e-12


@pytest.mark.parametrize("failure", [1e-12, 1e-7, 0.01, 0.5])
@pytest.mark.parametrize("mu", [0.05, 0.5, 3.0])
def test_a_chance_of_failure_beside_one_law_is_read_in_closed_form(mu: float, failure: float) -> None:
    """δ(ε) = δ + (1 - δ) δ_μ(ε), by mpmath at 50 digits; a budget that is spent to the end shows its own ε."""
    with mp.workdps(50):
        wide, lost = mp.mpf(mu), mp.mpf(failure)
        curve = curves.gaussian(mu=mu) * curves.approximate(epsilon=0, delta=failure)
        for epsilon in (0.0, 0.3, 1.0, 7.0):
            at = mp.mpf(epsilon)
            alone = mp.ncdf(wide / 2 - at / wide) - mp.e**at * mp.ncdf(-wide / 2 - at / wide)
            truth = lost + (1 - lost) * alone
            low, high = curve.delta_bounds(epsilon=epsilon)
            assert low <= truth <= high
            assert high - low <= 1e-9 * high
