"""Groups in Poisson samples of Gaussian noise: integrals by mpmath, finite mechanisms, and the chain of neighbours."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from deniable import curves
from deniable.curves.atoms import grouped_samples
from deniable.curves.atoms.atom import pair_of
from deniable.curves.atoms.composite_atoms import GroupedAtom
from deniable.curves.atoms.grouped_samples import GroupedSampleAtom
from deniable.curves.curve import Curve
from deniable.curves.laws import laws_from_bounds
from deniable.curves.laws.binomial_shifts import BinomialShiftsLaw
from deniable.curves.outward_rounding import Floats


def density(y: mp.mpf, mu: float, rate: float, people: int, sign: int) -> mp.mpf:
    q = mp.mpf(rate)
    return mp.fsum(
        mp.binomial(people, j) * q**j * (1 - q) ** (people - j) * mp.npdf(y - sign * j * mp.mpf(mu))
        for j in range(people + 1)
    )


def integrated(law: BinomialShiftsLaw, epsilon: float) -> float:
    """δ(ε) = ∫ (p - e^ε q)₊ by mpmath's quadrature."""
    with mp.workdps(30):
        x = mp.exp(mp.mpf(epsilon))

        def excess(y: mp.mpf) -> mp.mpf:
            return density(y, law.mu, law.rate, law.joined, 1) - x * density(y, law.mu, law.rate, law.left, -1)

        low, high = mp.mpf(-40), mp.mpf(60)
        for _ in range(110):  # the excess changes its sign once
            middle = (low + high) / 2
            low, high = (low, middle) if excess(middle) > 0 else (middle, high)
        return float(mp.quad(excess, mp.linspace(high, high + 30, 16)))


@pytest.mark.parametrize(
    ("mu", "rate", "epsilon", "joined", "left"),
    [(1.0, 0.01, 0.05, 3, 0), (0.5, 0.3, 0.4, 0, 3), (2.0, 1e-4, 0.001, 2, 1), (1.0, 0.01, 0.05, 1, 2)],
)
def test_one_step_holds_the_integral(mu: float, rate: float, epsilon: float, joined: int, left: int) -> None:
    law = BinomialShiftsLaw(mu, rate, joined, left)
    exact = integrated(law, epsilon)
    low, high = law.profile(np.array([epsilon]))
    gap, doubt = law.gaps(np.array([epsilon]))
    assert low[0] <= exact * (1 + 1e-14)
    assert exact * (1 - 1e-14) <= high[0]
    assert abs(gap[0] - exact) <= doubt[0] + 1e-25
    assert doubt[0] <= 1e-9 * exact + 1e-25


def test_one_person_is_the_sampled_mechanism() -> None:
    sampled = curves.gaussian(sigma=1.5).sampled(rate=0.05)
    one = Curve.of(GroupedSampleAtom(1 / 1.5, 0.05, 1, 0))
    epsilon = np.array([0.01, 0.1, 0.5, 1.0])
    for direction in ("forward", "backward"):
        mine = getattr(one, direction).delta_bounds(epsilon=epsilon)
        other = getattr(sampled, direction).delta_bounds(epsilon=epsilon)
        assert np.all(np.maximum(mine[0], other[0]) <= np.minimum(mine[1], other[1]))


@pytest.mark.slow
def test_three_people_in_a_thousand_steps_hold_the_contour_integral() -> None:
    """ε = 7.19 at δ = 1e-6; the chain of neighbours gave 8.99."""
    low, high = (curves.gaussian(sigma=1).sampled(rate=0.01) ** 1000).group(size=3).epsilon_bounds(delta=1e-6)
    assert 7.1899 < low <= high < 7.1901
    # Moments of three people who join, without laws or lattices.
    assert by_contour(1.0, 0.01, 3, 1000, low) >= 1e-6 * (1 - 1e-7)
    assert by_contour(1.0, 0.01, 3, 1000, high) <= 1e-6 * (1 + 1e-7)


@pytest.mark.slow
def test_a_group_is_below_the_chain_of_neighbours() -> None:
    one = curves.gaussian(sigma=1).sampled(rate=0.01)
    chain = GroupedAtom(one, 3)._sided(laws_from_bounds.worse_direction(pair_of(one.factors[0][0])).forward)
    epsilon = np.array([0.05, 0.3, 1.0, 3.0])
    assert np.all(one.group(size=3).delta(epsilon=epsilon) < chain.lower.profile(epsilon)[0])


def test_beside_a_tied_factor_every_step_counts_with_its_worst_division() -> None:
    group = curves.gaussian(sigma=1).sampled(rate=0.2).group(size=2)
    tied = curves.poisson(low=2, high=5, tied=True)
    assert grouped_samples.worst_division(group**3)
    assert not grouped_samples.worst_division(group * tied)
    assert pair_of(group.factors[0][0]).is_symmetric
    assert (group * tied).delta(epsilon=1.0) > max(group.delta(epsilon=1.0), tied.delta(epsilon=1.0))


def by_contour(mu: float, rate: float, people: int, count: int, epsilon: float) -> float:
    """δ(ε) with against without, by the integral of e^(K(s) - sε)/(s(s+1)) along a line."""
    z = np.linspace(-14.0, 14.0 + 4 * mu * people, 2001)
    loss = people * np.log1p(-rate) + np.log(
        sum(
            math.comb(people, j) * (rate / (1 - rate)) ** j * np.exp(j * mu * z - (j * mu) ** 2 / 2)
            for j in range(people + 1)
        )
    )
    weight = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    s = 1.8 + 1j * 0.1 * np.arange(600)
    parts = [np.log1p(np.expm1(np.multiply.outer(part + 1, loss)) @ weight) for part in np.array_split(s, 10)]
    values = np.exp(count * np.concatenate(parts) - s * epsilon) / (s * (s + 1))
    assert abs(values[-1]) < 1e-9 * abs(values[0])
    return float(values.real.sum() - values.real[0] / 2) * 0.1 / math.pi


@pytest.mark.parametrize("joined", [0, 1, 2, 3])
def test_a_mechanism_with_finite_outputs_stays_below_the_curve(joined: int) -> None:
    """The theorem holds for every μ-GDP mechanism: here for discrete Laplace noise, whose best event is the sum over
    all outputs.
    """
    size, rate, decay = 3, 0.3, 0.6
    outputs = np.arange(-40, 44)

    def law(shift: int) -> Floats:
        masses = decay ** np.abs(outputs - shift)
        return masses / masses.sum()

    mu = curves.pure(epsilon=-math.log(decay)).gdp()
    binomial = [
        [math.comb(n, j) * rate**j * (1 - rate) ** (n - j) for j in range(n + 1)] for n in (joined, size - joined)
    ]
    first = sum(w * law(j) for j, w in enumerate(binomial[0]))
    second = sum(w * law(-i) for i, w in enumerate(binomial[1]))
    curve = Curve.of(GroupedSampleAtom(mu, rate, joined, size - joined))
    for epsilon in (0.0, 0.1, 0.5, 1.0):
        x = math.exp(epsilon)
        ahead, back = (float(np.maximum(a - x * b, 0.0).sum()) for a, b in ((first, second), (second, first)))
        assert ahead <= curve.backward.delta_bounds(epsilon=epsilon)[1] + 1e-9
        assert back <= curve.forward.delta_bounds(epsilon=epsilon)[1] + 1e-9


@pytest.mark.slow
def test_every_division_of_a_group_is_covered() -> None:
    """The group's curve is the worst over who joins and who leaves; each division is below it, in both directions."""
    group = (curves.gaussian(sigma=1).sampled(rate=0.2) ** 3).group(size=3)
    epsilon = np.array([0.2, 1.0, 2.5])
    worst = group.delta_bounds(epsilon=epsilon)
    found = np.zeros(3)
    for joined in range(4):
        one = Curve.of(GroupedSampleAtom(1.0, 0.2, joined, 3 - joined)) ** 3
        low, high = one.delta_bounds(epsilon=epsilon)
        assert np.all(low <= worst[1])
        found = np.maximum(found, high)
    assert np.all(found >= worst[0])


@pytest.mark.slow
def test_groups_with_noise_that_is_not_sampled_multiply() -> None:
    curve = curves.gaussian(sigma=2).sampled(rate=0.1) * curves.gaussian(sigma=30)
    group = curve.group(size=2)
    assert group.epsilon(delta=1e-6) > (curves.gaussian(sigma=2).sampled(rate=0.1)).group(size=2).epsilon(delta=1e-6)
    assert Curve.from_dict(group.to_dict()) == group


@pytest.mark.parametrize(("mu", "rate", "times"), [(1.0, 1e-20, 10.0), (0.1, 1e-17, 1.01), (1.0, 1e-25, 10.0)])
def test_tiny_rates_lose_no_digits(mu: float, rate: float, times: float) -> None:
    """Terms of the size of the rate vanished beside 1, and the upper end was below the truth by 4 to 46 digits."""
    epsilon = times * 2 * rate
    with mp.workdps(60):
        x = mp.exp(mp.mpf(epsilon))

        def excess(y: mp.mpf) -> mp.mpf:
            return density(y, mu, rate, 2, 1) - x * mp.npdf(y)

        low, high = mp.mpf(-40), mp.mpf(60)
        for _ in range(150):
            middle = (low + high) / 2
            low, high = (low, middle) if excess(middle) > 0 else (middle, high)
        truth = mp.quad(excess, [low, low + 2, low + 8, 60])
    found = curves.gaussian(mu=mu).sampled(rate=rate).group(size=2).delta_bounds(epsilon=epsilon)
    assert 0 <= found[0] <= truth <= found[1]
