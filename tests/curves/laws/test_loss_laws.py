"""Every law against its own definition at 50 digits, over wide ranges of parameters and thresholds.

What a law promises (`curves/laws/law.py`): with `first`, `second` and `error` at a threshold t,

* the profile at t is first - second, to within error × (first + second);
* first (1 - error) - e^(ε - t) second (1 + error) is at most δ(ε) for every ε: the numbers are those of a real test.

For laws without atoms, and away from their ends, each of the two numbers is also accurate by itself.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

from deniable import curves
from deniable.curves.atoms.divisible import MertonLaw, NigLaw
from deniable.curves.composition.exponential_moments import log_moment
from deniable.curves.laws import finite_law, laws_from_bounds
from deniable.curves.laws.closed_form import BoundedRangeLaw, GaussianLaw, LaplaceLaw
from deniable.curves.laws.derived_laws import (
    CentreAgainstShifted,
    FixedSizeLaw,
    IdentityLaw,
    MixedLaw,
    SampledAgainstWithout,
    ShiftedAgainstCentre,
    WithoutAgainstSampled,
    WorstLaw,
)
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.laws.law import Law
from tests.curves import exact

SMALLEST = mpf("1e-290")


@pytest.fixture(autouse=True)
def _digits() -> object:
    # The public doors read quietly; these tests look behind them.
    with mp.workdps(exact.DIGITS), np.errstate(all="ignore"):
        yield


def assert_profile(law: Law, losses: np.ndarray, nearby: tuple[float, ...] = (-1.0, -0.1, 0.1, 1.0)) -> None:
    """Both promises of a law at these thresholds; `nearby` are offsets of ε, in units of the law's scale."""
    first, second, error = law.tails(np.asarray(losses, dtype=float))
    error = np.broadcast_to(np.asarray(error), first.shape)
    scale = min(law.scale, 1.0)
    for t, f, s, e in zip(losses, first, second, error, strict=True):
        f, s, e, t = mpf(float(f)), mpf(float(s)), mpf(float(e)), mpf(float(t))
        truth = exact.delta(law, t)
        assert abs(f - s - truth) <= e * (f + s) + SMALLEST, (law, float(t), mpmath.nstr(f - s - truth, 3))
        for offset in nearby:
            epsilon = t + mpf(offset) * mpf(scale)
            line = f * (1 - e) - mpmath.exp(epsilon - t) * s * (1 + e)
            assert line <= exact.delta(law, epsilon) + SMALLEST, (law, float(t), offset)


def assert_tails(law: Law, losses: np.ndarray) -> None:
    """Each of the two numbers within its relative error."""
    first, second, error = law.tails(np.asarray(losses, dtype=float))
    error = np.broadcast_to(np.asarray(error), first.shape)
    for t, f, s, e in zip(losses, first, second, error, strict=True):
        p, q = exact.tails(law, mpf(float(t)))
        assert abs(mpf(float(f)) - p) <= e * p + SMALLEST, (law, float(t), "first")
        scaled = mpmath.exp(mpf(float(t))) * q
        assert abs(mpf(float(s)) - scaled) <= e * scaled + SMALLEST, (law, float(t), "second")


# -- closed forms ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [1e-4, 1e-2, 0.3, 1.0, 5.0, 20.0, 50.0])
def test_gaussian_tails_to_1e_100(mu: float) -> None:
    losses = mu * mu / 2 + mu * np.concatenate((np.linspace(-21, 21.5, 40), np.random.default_rng(1).normal(size=10)))
    assert_tails(GaussianLaw(mu), losses)
    assert_profile(GaussianLaw(mu), losses[::4])


@pytest.mark.parametrize("law", [LaplaceLaw, BoundedRangeLaw])
@pytest.mark.parametrize("size", [1e-8, 0.01, 1.0, 10.0, 300.0])
def test_bounded_laws_up_to_their_largest_loss(law: type, size: float) -> None:
    near = size * (1 - np.logspace(-15, -1, 15))
    losses = np.concatenate((size * np.linspace(-1.2, 1.2, 25), near, -near))
    assert_tails(law(size), losses)
    assert_profile(law(size), losses[::3])


@pytest.mark.parametrize("law", [GaussianLaw(1.0), LaplaceLaw(1.0), BoundedRangeLaw(1.0)])
def test_negative_control_a_wrong_law_is_noticed(law: Law) -> None:
    class Off(type(law)):  # type: ignore[misc]
        __slots__ = ()

        def tails(self, loss: np.ndarray) -> object:
            first, second, error = super().tails(loss)
            return type(super().tails(loss))(first, second * (1 + 1e-12), error)

    wrong = Off(1.0)
    exact._READERS[Off] = exact._READERS[type(law)]
    try:
        with pytest.raises(AssertionError):
            assert_profile(wrong, np.linspace(-0.9, 0.9, 7))
    finally:
        del exact._READERS[Off]


# -- sampling --------------------------------------------------------------------------------------------------------

RATES = [1e-9, 1e-6, 0.01, 0.5, 0.9, 0.999]


def sampled_thresholds(mu: float, rate: float) -> np.ndarray:
    """Losses of the sampled law for base losses out to 20 deviations, and thresholds close to log(1 - rate)."""
    base = mu * mu / 2 + mu * np.linspace(-20, 21, 22)
    inner = np.array([float(mpmath.log(1 - mpf(rate) + mpf(rate) * mpmath.exp(mpf(float(x))))) for x in base])
    end = math.log1p(-rate)
    inner = inner[inner > end * (1 - 1e-6)] if end < 0 else inner
    return np.concatenate((inner, end * (1 - np.logspace(-6, -1, 6)), end * (1 + np.logspace(-6, -1, 4))))


@pytest.mark.slow
@pytest.mark.parametrize("mu", [1e-2, 1.0, 10.0])
@pytest.mark.parametrize("rate", RATES)
def test_sampled_gaussian(mu: float, rate: float) -> None:
    losses = sampled_thresholds(mu, rate)
    assert_profile(SampledAgainstWithout(GaussianLaw(mu), rate), losses)
    assert_profile(WithoutAgainstSampled(GaussianLaw(mu), rate), -losses)


@pytest.mark.parametrize("rate", [0.01, 0.5, 0.999])
def test_sampled_gaussian_within_a_few_floats_of_its_end(rate: float) -> None:
    """Just inside log(1 - rate) the base threshold is hardly known; what the law then misses must be in its error."""
    losses = math.log1p(-rate) * (1 - np.array([0.0, 1e-16, 3e-16, 1e-15, 1e-14, 1e-12, 1e-9]))
    for mu in (1.0, 10.0):
        assert_profile(SampledAgainstWithout(GaussianLaw(mu), rate), losses, ())
        assert_profile(WithoutAgainstSampled(GaussianLaw(mu), rate), -losses, ())


@pytest.mark.parametrize("rate", RATES)
def test_sampled_laplace_with_its_atoms(rate: float) -> None:
    base = LaplaceLaw(1.0)
    for law in (SampledAgainstWithout(base, rate), WithoutAgainstSampled(base, rate)):
        inside = np.linspace(law.lowest, law.highest, 20)[1:-1]
        assert_profile(law, inside)


@pytest.mark.parametrize("rate", [1 - 1e-5, 1 - 1e-7, 1 - 1e-9])
def test_sampling_almost_everyone(rate: float) -> None:
    """Rates so close to 1 that 1 - rate is small: thresholds next to the end of the loss lose digits."""
    losses = sampled_thresholds(3.0, rate)
    assert_profile(SampledAgainstWithout(GaussianLaw(3.0), rate), losses)
    assert_profile(WithoutAgainstSampled(GaussianLaw(3.0), rate), -losses)


@pytest.mark.parametrize("rate", [1e-6, 0.01, 0.5, 0.999])
@pytest.mark.parametrize("shift", [1.0, 8.0])
def test_largest_sampled_loss_is_not_rounded_down(rate: float, shift: float) -> None:
    """Half of the mass of the Laplace mechanism sits at the largest loss: a float below it is not pure DP."""
    forward = mpmath.log(1 - mpf(rate) + mpf(rate) * mpmath.exp(mpf(shift)))
    backward = -mpmath.log(1 - mpf(rate) + mpf(rate) * mpmath.exp(-mpf(shift)))
    curve = curves.laplace(scale=1.0, sensitivity=shift).sampled(rate=rate)
    low, high = curve.epsilon_bounds(delta=0.0)
    assert low <= max(forward, backward) <= high


@pytest.mark.parametrize("rate", [1e-3, 0.5, 0.999])
def test_fixed_size_samples(rate: float) -> None:
    assert_profile(FixedSizeLaw(SampledAgainstWithout(GaussianLaw(1.0), rate)), np.linspace(-6, 6, 25))


def test_very_negative_thresholds_raise_no_warnings() -> None:
    for law in (
        SampledAgainstWithout(GaussianLaw(1.0), 0.1),
        WithoutAgainstSampled(GaussianLaw(1.0), 0.1),
        IdentityLaw(),
    ):
        first, second, _ = law.tails(np.array([-1e6, -800.0, -720.0, 720.0, 1e6]))
        assert np.all(np.isfinite(first) & np.isfinite(second))


# -- several at once, hidden shifts ----------------------------------------------------------------------------------


def test_worst_and_mixed() -> None:
    parts = GaussianLaw(1.0), LaplaceLaw(2.0), SampledAgainstWithout(GaussianLaw(3.0), 0.1)
    assert_profile(WorstLaw(parts), np.linspace(-8, 20, 30))
    assert_profile(MixedLaw(parts, (0.2, 0.3, 0.5)), np.linspace(-8, 20, 30))


SHIFTS = [
    ((0.5, 0.5), (0.0, 1.0)),
    ((0.3, 0.7), (1.0, 2.0)),
    ((0.99, 0.01), (0.0, 5.0)),
    ((0.2, 0.3, 0.5), (0.01, 0.02, 0.05)),
    ((0.9, 0.1), (0.0, 1e-3)),
    ((1e-9, 1 - 1e-9), (0.0, 3.0)),
    ((0.5, 0.5), (1.0, 50.0)),
    ((0.5, 0.5), (45.0, 50.0)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("weights", "shifts"), SHIFTS)
def test_hidden_shifts(weights: tuple[float, ...], shifts: tuple[float, ...]) -> None:
    law = ShiftedAgainstCentre(weights, shifts)
    outputs = np.linspace(-18, 18, 5)
    losses = np.unique(law.loss_at(np.concatenate((outputs, outputs + max(shifts)))))
    inside = losses[losses > law.lowest] if math.isfinite(law.lowest) else losses
    assert_profile(law, inside, (0.3,))
    assert_profile(CentreAgainstShifted(law), -inside, (0.3,))


# -- infinitely divisible --------------------------------------------------------------------------------------------

MERTONS = [
    (0.64, 1.5, 0.1, 0.6),
    (1e-4, 1.0, 1.0, 0.1),
    (1.0, 20.0, -0.1, 0.3),
    (4.0, 2.0, -2.0, 0.5),
    (1e-8, 10.0, 2.0, 0.0),
    (1e-6, 3.0, 0.5, 0.0),
    (2500.0, 0.1, 0.1, 0.1),
]


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("variance", "rate", "mean", "spread"), MERTONS)
def test_merton(variance: float, rate: float, mean: float, spread: float, sign: int) -> None:
    law = MertonLaw(variance, rate, mean, spread, sign)
    grown = rate * math.exp(mean + spread**2 / 2)
    centre = law.drift + (variance + grown * (mean + spread**2) if sign > 0 else rate * mean)
    steps = [law.drift + n * mean + z * math.sqrt(variance) for n in (0, 2) for z in (-1.0, 3.0)]
    bulk = sign * centre + law.scale * np.array([-4.0, 0.0, 1.0, 9.0])
    assert_profile(law, np.concatenate((bulk, sign * np.array(steps))), ())


NIGS = [(3.0, -0.5, 1.0), (3.0, 1.5, 1.0), (1.2, -0.5, 0.1), (2.0, -0.5, 100.0), (50.0, 10.0, 0.01), (5.0, -4.5, 2.0)]
# Larger ones than these are beyond the reference, whose exponent cancels; test_regressions has them by Fourier.
LARGE_NIGS = [(100.0, -0.5, 100.0), (3.0, -0.5, 1e4)]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("alpha", "beta", "size"), NIGS + LARGE_NIGS)
def test_normal_inverse_gaussian(alpha: float, beta: float, size: float, sign: int) -> None:
    """Against the Bessel density: the bulk, and the tail on the side of large losses down to 1e-40."""
    law = NigLaw(alpha, beta, size, sign)
    slant = beta + 1 if sign > 0 else beta
    centre = sign * (law.drift + size * slant / math.sqrt(alpha**2 - slant**2))
    decay = alpha - beta - 1 if sign > 0 else alpha + beta
    tail = 3 * law.scale + np.array([10.0, 80.0]) / decay
    losses = centre + np.concatenate((law.scale * np.array([-3.0, 0.0, 2.0]), tail))
    first, second, error = law.tails(losses)
    for i, loss in enumerate(losses.tolist()):
        p, q = exact.nig_tails(law, loss)
        scaled = math.exp(loss) * q if loss < 700 else math.nan
        granted = float(np.broadcast_to(np.asarray(error), first.shape)[i]) + 3e-13
        assert first[i] == pytest.approx(p, rel=granted), (loss, "first")
        if math.isfinite(scaled) and q > 1e-290:
            assert second[i] == pytest.approx(scaled, rel=granted), (loss, "second")


# -- finite laws -----------------------------------------------------------------------------------------------------


def profile_of(law: FiniteLaw) -> exact.GridProfile:
    return exact.GridProfile(law.losses, law.masses, law.infinity)


def test_finite_law_with_losses_beyond_a_thousand() -> None:
    rng = np.random.default_rng(3)
    for _ in range(30):
        losses = np.unique(rng.normal(size=40) * rng.choice([1.0, 100.0, 3000.0]))
        masses = rng.dirichlet(np.ones(len(losses)))
        law = FiniteLaw(losses, masses)
        at = np.concatenate((losses[::5], rng.normal(size=5) * 1000, losses[:-1] + 0.3 * np.diff(losses)))
        at = at[(at >= 0) & (at < losses[-1])]
        truth = profile_of(law)
        for e, a, b in zip(at, *law.profile(at), strict=True):
            assert a <= truth(float(e)) <= b, e


@pytest.mark.parametrize("scale", [1.0, 1e-100, 1e-250])
def test_losses_of_rare_outcomes_are_as_exact_as_promised(scale: float) -> None:
    """log p - log q loses |log p| roundings, not |loss|: outcomes that are rare for both laws feel it most."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        p, q = (float(v) * scale for v in rng.uniform(0.1, 0.4, size=2))
        pair = finite_law.from_masses(np.array([p, 1 - p]), np.array([q, 1 - q]), 4 * 2.0**-53)
        epsilon = float(np.log(p / q)) - 1e-9 * abs(float(np.log(p / q)))
        if epsilon <= pair.forward.upper.losses[-2 if p < q else 0] or p < q:
            continue
        truth = mpf(p) - mpmath.exp(mpf(epsilon)) * mpf(q)
        if mpf(1 - p) - mpmath.exp(mpf(epsilon)) * mpf(1 - q) > 0:
            continue
        assert pair.forward.lower.profile(np.array([epsilon]))[0][0] <= truth
        assert truth <= pair.forward.upper.profile(np.array([epsilon]))[1][0]


def test_merging_moves_values_to_the_safe_side() -> None:
    rng = np.random.default_rng(7)
    for _ in range(50):
        centre = rng.normal(size=6)
        losses = np.sort(np.concatenate([c + 3e-14 * rng.uniform(-1, 1, size=4) for c in centre]))
        masses = rng.dirichlet(np.ones(len(losses)))
        up = finite_law.merged(losses, masses, 0.0, 0.0, side="upper")
        down = finite_law.merged(losses, masses, 0.0, 0.0, side="lower")
        assert len(up.losses) < len(losses)
        truth = exact.GridProfile(losses, masses, 0.0)
        assert up.highest >= losses[-1] - 1e-13
        for e in np.abs(np.concatenate((losses, rng.normal(size=10)))):
            # Sums of merged masses round once each: granted by the law's own relative error.
            assert down.profile(np.array([e]))[0][0] <= truth(float(e)) <= up.profile(np.array([e]))[1][0]


@pytest.mark.parametrize("count", [2, 3, 17, 100, 1000])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0, 20.0])
def test_binomial_power_of_randomized_response(epsilon: float, count: int) -> None:
    law = curves.randomized_response(epsilon=epsilon)
    top = count * epsilon
    for e in (0.0, 0.1 * top, 0.5 * top, 0.9 * top, top - epsilon, top * (1 - 1e-9)):
        low, high = (law**count).delta_bounds(epsilon=e)
        assert low <= exact.binomial_delta(e, epsilon, count) <= high + mpf("1e-45")


@pytest.mark.parametrize("epsilon", [36.0, 37.0, 40.0, 100.0, 800.0])
def test_powers_of_a_response_that_hardly_ever_lies(epsilon: float) -> None:
    """The probability of a lie is below the spacing of floats around 1."""
    asked = (0.5 * epsilon, 2.5 * epsilon, 3 * epsilon - 1)
    bounds = (curves.randomized_response(epsilon=epsilon) ** 3).delta_bounds(epsilon=asked)
    for e, low, high in zip(asked, *bounds, strict=True):
        assert low <= exact.binomial_delta(e, epsilon, 3) <= high + mpf("1e-45")


@pytest.mark.parametrize("count", [10**4, 10**6, 10**8])
def test_binomial_masses_against_mpmath(count: int) -> None:
    for p in (1e-7, 0.01, 0.5, 0.731):
        mean, spread = count * p, math.sqrt(count * p * (1 - p)) + 1
        x = np.unique(np.clip(np.round(mean + spread * np.array([-8.0, -1.0, 0.0, 2.0, 15.0])), 0, count))
        found = finite_law.log_binomial(count, x, p)
        for k, value in zip(x.tolist(), found, strict=True):
            choose = mpmath.loggamma(count + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(count - k + 1)
            truth = choose + k * mpmath.log(mpf(p)) + (count - k) * mpmath.log1p(-mpf(p))
            assert abs(value - truth) <= 1e-12 + count * 12 * 2.0**-53


def test_mass_that_is_missing_from_a_mass_function_is_not_forgiven() -> None:
    """Masses may miss 1 by 1e-9. What is missing could be anywhere, so the upper bound has to count it."""
    short, whole = [0.5, 0.5 - 5e-10], [0.4, 0.6]
    curve = curves.from_pmf(short, whole, tied=True)
    normal = curves.from_pmf([0.5 / (1 - 5e-10), 1 - 0.5 / (1 - 5e-10)], whole, tied=True)
    assert (curve**100).delta(epsilon=1.0) >= (normal**100).delta_bounds(epsilon=1.0)[0]


@pytest.mark.slow
@pytest.mark.parametrize(("low", "high"), [(2.0, 5.0), (1000.0, 1001.0), (1e5, 1e5 + 0.7), (3e4, 3e4 + 0.1)])
def test_poisson_pairs_with_rates_close_together(low: float, high: float) -> None:
    """log(high/low) must be known to more than one rounding of 1 when counts are large."""
    curve = curves.poisson(low=low, high=high, tied=True)
    size = (high - low) / math.sqrt(low)
    for z in (0.0, 0.3, 1.0, 3.0):
        e = z * size
        ahead, back = curve.forward.delta_bounds(epsilon=e), curve.backward.delta_bounds(epsilon=e)
        assert back[0] <= exact.poisson_delta(low, high, e) <= back[1]
        assert ahead[0] <= exact.poisson_delta(low, high, e, forward=False) <= ahead[1]


# -- tables ----------------------------------------------------------------------------------------------------------


def convex_profile(rng: np.random.Generator, size: int) -> tuple[exact.Pair, np.ndarray, np.ndarray]:
    weights = rng.integers(1, 2**12, size=size)
    other = rng.integers(1, 2**12, size=size)
    p, q = ([Fraction(int(v), int(sum(w))) for v in w] for w in (weights, other))
    pair = exact.Pair.of(p, q)
    losses = np.array([float(mpmath.log(mpf(r.numerator) / r.denominator)) for r in pair.ratios()])
    return pair, losses, np.concatenate((losses, rng.normal(size=40) * 2))


def exact_delta(pair: exact.Pair, epsilon: float) -> mpf:
    return exact.number(pair.delta(exact.enclosed(epsilon)[0]))


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e-3])
def test_tables_of_a_profile_enclose_it(noise: float) -> None:
    """law_above joins upper bounds, law_below stays under every convex profile between the bounds, at every ε."""
    rng = np.random.default_rng(11)
    for _ in range(40):
        pair, losses, at = convex_profile(rng, int(rng.integers(3, 12)))
        points = np.unique(np.concatenate((np.linspace(losses[0] - 1, losses[-1] + 0.5, 15), rng.normal(size=10))))
        truth = np.array([float(exact_delta(pair, float(e))) for e in points])
        low = np.maximum(truth * (1 - noise * rng.uniform(size=len(points))) - 1e-15, 0.0)
        high = np.minimum(truth * (1 + noise * rng.uniform(size=len(points))) + 1e-15, 1.0)
        above = profile_of(laws_from_bounds.law_above(points, high))
        below = profile_of(laws_from_bounds.law_below(points, low, high, 0.0))
        for e in np.concatenate((at, points, points + 1e-7)).tolist():
            assert below(e) <= exact_delta(pair, e) <= above(e), e


def test_negative_control_chords_of_the_lower_bounds_are_not_below() -> None:
    """Joining lower bounds by straight lines is what law_below must not do: the control crosses the profile."""
    rng = np.random.default_rng(11)
    crossed = 0
    for _ in range(10):
        pair, losses, at = convex_profile(rng, 6)
        points = np.linspace(losses[0] - 1, losses[-1] + 0.5, 15)
        truth = np.array([float(exact_delta(pair, float(e))) for e in points])
        naive = profile_of(laws_from_bounds.law_above(points, truth))
        crossed += any(naive(float(e)) > exact_delta(pair, float(e)) * (1 + 1e-9) for e in at)
    assert crossed > 0


def test_tables_of_losses_beyond_seven_hundred() -> None:
    points = np.array([-700.0, -10.0, 0.0, 600.0, 800.0, 1200.0])
    delta = np.array([1.0, 1.0, 1.0, 0.9, 0.5, 0.0])
    law = laws_from_bounds.law_below(points, delta * 0.999, delta, 0.0)
    assert np.all(np.isfinite(law.losses) & (law.masses >= 0))


def test_worst_of_finite_laws_is_exact() -> None:
    rng = np.random.default_rng(13)
    for _ in range(40):
        one, two = (convex_profile(rng, int(rng.integers(2, 7)))[0] for _ in range(2))
        laws = []
        for pair in (one, two):
            (p, q) = zip(*((a / pair.p_unit, b / pair.q_unit) for a, b in pair.weights), strict=True)
            laws.append(finite_law.from_masses(np.array(p), np.array(q), 8 * 2.0**-53).forward)
        upper = laws_from_bounds.worst([s.upper for s in laws], side="upper")
        lower = laws_from_bounds.worst([s.lower for s in laws], side="lower")
        for e in np.concatenate((rng.normal(size=20), [0.0])).tolist():
            truth = max(exact_delta(one, e), exact_delta(two, e))
            low, high = lower.profile(np.array([e]))[0][0], upper.profile(np.array([e]))[1][0]
            if e < upper.highest:
                assert low <= truth <= high
                assert high - low <= 1e-11


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3, 5])
def test_groups_of_random_pairs(size: int) -> None:
    """The power function applied `size` times, with fractions: the exact chain of the worst neighbours."""
    rng = np.random.default_rng(17)
    for _ in range(15):
        pair = convex_profile(rng, 4)[0]
        if not pair.is_symmetric:
            pair = pair.symmetrized()
        ordered = sorted(((Fraction(a, pair.p_unit), Fraction(b, pair.q_unit)) for a, b in pair.weights), key=ratio)
        corners = [(Fraction(0), Fraction(0))]
        for a, b in ordered:
            corners.append((corners[-1][0] + b, corners[-1][1] + a))
        levels = [Fraction(i, 40) for i in range(41)]
        p, q = ([float(v) for v in side] for side in zip(*ordered, strict=True))
        curve = curves.from_pmf(p, q, tied=True).group(size=size)
        for e in (0.1, 0.5, 1.0, 2.0):
            low, high = curve.forward.delta_bounds(epsilon=e)
            x = exact.enclosed(e)[0]
            best = max(chain(corners, level, size) - x * level for level in {*levels, *kinks(corners, size)})
            assert low <= float(best) * (1 + 1e-9) + 1e-12
            assert float(best) <= high * (1 + 1e-9)


def ratio(outcome: tuple[Fraction, Fraction]) -> Fraction:
    a, b = outcome
    return -a / b if b else Fraction(-(10**9))


def power_at(corners: list[tuple[Fraction, Fraction]], level: Fraction) -> Fraction:
    for (x, y), (u, v) in itertools.pairwise(corners):
        if x <= level <= u and u > x:
            return y + (v - y) * (level - x) / (u - x)
    return corners[-1][1]


def chain(corners: list[tuple[Fraction, Fraction]], level: Fraction, size: int) -> Fraction:
    for _ in range(size):
        level = power_at(corners, level)
    return level


def kinks(corners: list[tuple[Fraction, Fraction]], size: int) -> set[Fraction]:
    """Levels at which the iterated power function bends: preimages of the corners."""
    found, last = {x for x, _ in corners}, {x for x, _ in corners}
    for _ in range(size - 1):
        back = set()
        for target in last:
            for (x, y), (u, v) in itertools.pairwise(corners):
                if v > y and y <= target <= v:
                    back.add(x + (u - x) * (target - y) / (v - y))
        found, last = found | back, back
    return found


# -- moments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1.0001, 1.5, 2.0, 7.3, 40.0])
@pytest.mark.parametrize("scale", [0.2, 1.0, 100.0, 1e4, 1e6, 1e8])
def test_laplace_divergences_are_not_below_their_closed_form(scale: float, order: float) -> None:
    t, a = mpf(curves.laplace(scale=scale).epsilon(delta=0.0)), mpf(order)
    moment = a / (2 * a - 1) * mpmath.exp((a - 1) * t) + (a - 1) / (2 * a - 1) * mpmath.exp(-a * t)
    truth = mpmath.log(moment) / (a - 1)
    found = curves.laplace(scale=scale).renyi(order=order)
    assert truth * (1 - mpf("1e-12")) <= found <= truth * (1 + mpf("1e-6")) + mpf("1e-9")


@pytest.mark.parametrize("order", [1.0, 1.5, 2.0, 10.0])
@pytest.mark.parametrize(("low", "high"), [(2.0, 5.0), (1e3, 1001.0), (1e5, 1e5 + 1), (1e6, 1e6 + 1)])
def test_poisson_divergences_are_not_below_their_closed_form(low: float, high: float, order: float) -> None:
    a, b, o = mpf(low), mpf(high), mpf(order)
    if order == 1:
        truth = max(b * mpmath.log(b / a) - (b - a), a * mpmath.log(a / b) + (b - a))
    else:
        truth = max(a * (b / a) ** o - o * b - (1 - o) * a, b * (a / b) ** o - o * a - (1 - o) * b) / (o - 1)
    assert truth * (1 - mpf("1e-12")) <= curves.poisson(low=low, high=high).renyi(order=order)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.3])
def test_moments_of_sampled_gaussians(rate: float) -> None:
    """Whole orders by the binomial sum, others by quadrature at 20 digits."""
    law = SampledAgainstWithout(GaussianLaw(1.0), rate)
    with mp.workdps(20):
        for order in (2.0, 5.5, 20.0):

            def integrand(y: mpf, order: float = order) -> mpf:
                r = 1 - mpf(rate) + mpf(rate) * mpmath.exp(y - mpf("0.5"))
                return r ** mpf(order) * mpmath.npdf(y)

            truth = mpmath.log(mpmath.quad(integrand, [-20, -8, -3, 0, 3, 8, 14, 20, 26, 32, 45]))
            found = log_moment(law, order - 1)
            assert truth <= found * (1 + mpf("1e-14")) <= truth * (1 + mpf("1e-2")) + mpf("1e-6"), order


def test_delta_of_exact_masses_has_their_relative_error() -> None:
    """Against exact fractions: δ is the sum of positive terms, so both tails may be near 1 and their difference tiny."""
    losses = np.array([-3e-9, 0.0, 1e-9, 4e-9])
    masses = np.array([0.25, 0.25, 0.375, 0.125])
    law = FiniteLaw(losses, masses, 2.0**-60, 1e-9, each_mass=True)
    loose = FiniteLaw(losses, masses, 2.0**-60, 1e-9)
    epsilon = np.array([-4e-9, -1e-9, 0.0, 5e-10, 1e-9, 3e-9])
    low, high = law.profile(epsilon)
    with mp.workdps(60):
        exact = [
            mp.mpf(2) ** -60
            + sum(
                mp.mpf(float(m)) * -mp.expm1(mp.mpf(float(e)) - mp.mpf(float(loss)))
                for loss, m in zip(losses, masses, strict=True)
                if loss > e
            )
            for e in epsilon
        ]
        for truth, below, above in zip(exact, low, high, strict=True):
            assert below <= truth * (1 + mp.mpf(10) ** -9)
            assert truth <= above * (1 + mp.mpf(10) ** -9)
    assert np.all(high - low <= 1e-8 * high)
    assert np.all(loose.profile(epsilon)[1] - loose.profile(epsilon)[0] > 0.1 * high)
