"""The law of an answer against closed forms, exact sums and the curve of the mechanism itself."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from deniable import audit, curves, mechanisms
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.mechanisms import laws
from tests.wording import worded

WHOLE = [
    mechanisms.Laplace(sensitivity=1, scale=0.4),
    mechanisms.Laplace(sensitivity=2, scale=30),
    mechanisms.Gaussian(sensitivity=1, sigma=0.7),
    mechanisms.Gaussian(sensitivity=1, sigma=25),
    mechanisms.DiscreteGaussian(sensitivity=1, sigma=0.6),
    mechanisms.DiscreteGaussian(sensitivity=1, sigma=12),
]
REAL = [
    (mechanisms.Laplace(sensitivity=1.0, scale=2.0), lambda x: math.exp(-abs(x) / 2) / 4, 8.0),
    (mechanisms.Gaussian(sensitivity=1.0, sigma=3.0), lambda x: math.exp(-x * x / 18) / math.sqrt(18 * math.pi), 9.0),
]


@pytest.mark.parametrize("mechanism", WHOLE, ids=repr)
def test_masses_of_whole_noise_add_up_to_its_distribution_function_and_variance(mechanism):
    law = mechanism.law(5)
    reach = 1 + math.ceil(45 * (mechanism.scale if hasattr(mechanism, "scale") else mechanism.sigma))
    points = 5 + np.arange(-reach, reach + 1)
    masses = law.pdf(points)
    assert masses.sum() == pytest.approx(1, abs=1e-12)
    assert law.cdf(points) == pytest.approx(np.cumsum(masses), abs=1e-12)
    assert law.variance == pytest.approx(masses @ (points - 5.0) ** 2, rel=1e-10)
    assert law.pdf(5.5) == 0.0
    assert law.cdf(5.5) == law.cdf(5)
    assert mechanism.rms() == pytest.approx(law.deviation)


@pytest.mark.parametrize("mechanism", WHOLE, ids=repr)
def test_the_laws_on_neighbours_have_the_mechanisms_curve(mechanism):
    """δ(ε) from the two laws, summed, lies within the curve's own bounds (noise and curve are told independently)."""
    moved = int(mechanism.sensitivity)
    one, two = mechanism.law(0), mechanism.law(moved)
    points = np.arange(-2500, 2501)
    p, q = one.pdf(points), two.pdf(points)
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        low, high = mechanism.curve.delta_bounds(epsilon=epsilon)
        delta = float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0)))
        assert delta <= high + 1e-12
        if not isinstance(mechanism, mechanisms.Gaussian):  # its curve is that of the noise before it is rounded
            assert delta >= low - 1e-12


@pytest.mark.parametrize(("mechanism", "density", "variance"), REAL, ids=["laplace", "gaussian"])
def test_real_noise_has_the_textbook_law(mechanism, density, variance):
    law = mechanism.law(10.0)
    assert not law.is_discrete
    for x in (-7.0, -0.3, 0.0, 1.0, 4.2):
        assert law.pdf(10 + x) == pytest.approx(density(x), rel=1e-9)
        h = 1e-4
        assert (law.cdf(10 + x + h) - law.cdf(10 + x - h)) / (2 * h) == pytest.approx(density(x), rel=1e-3)
    assert law.cdf(10.0) == pytest.approx(0.5, abs=1e-12)
    assert law.variance == pytest.approx(variance, rel=1e-9)


def test_the_laplace_distribution_function_of_the_lectures():
    assert mechanisms.Laplace(sensitivity=1.0, scale=2.0).law(0).cdf(1.0) == pytest.approx(0.69673, abs=5e-6)


def test_the_norm_of_a_noisy_vector():
    """K = 1,000 numbers of scale K/(nε) = .2 each: √E‖Z‖² = 8.944."""
    noisy = mechanisms.Laplace(sensitivity=1000 / 10_000, epsilon=0.5, dimension=1000)
    assert noisy.rms() == pytest.approx(8.944, abs=5e-4)
    with worded(InvalidOperation):
        noisy.law([0.0] * 1000)


@pytest.mark.parametrize(
    "choose",
    [
        mechanisms.Exponential(sensitivity=1, epsilon=1.0, candidates=3),
        mechanisms.PermuteAndFlip(sensitivity=1, epsilon=1.0, candidates=3),
        mechanisms.NoisyMax(sensitivity=1, epsilon=1.0, candidates=3),
    ],
    ids=lambda m: type(m).__name__,
)
def test_selections_have_masses_on_their_candidates(choose):
    one, two = choose.law([0, 1, 3]), choose.law([1, 0, 2])
    assert one.masses == pytest.approx(choose.probabilities([0, 1, 3]))
    ratio = np.abs(np.log(one.masses / two.masses))
    assert np.max(ratio) <= choose.curve.epsilon(delta=0) + 1e-9


def test_the_private_majority_of_the_lectures():
    """p(s) = 1/(1 + e^(−(2s−n)ε/2)): the exponential mechanism on the two counts; n = 11, s = 8, ε = .5: .7772998612.

    The inverse sensitivity mechanism counts people who must change, and is right more often.
    """
    choose = mechanisms.Exponential(sensitivity=1, epsilon=0.5, candidates=2)
    right = float(choose.law([3, 8]).masses[1])
    assert right == pytest.approx(0.7772998612, abs=1e-10)
    better = mechanisms.BinaryInverseSensitivity.median(epsilon=0.5).law([1] * 8 + [0] * 3)
    assert float(better.masses[better.answers.index(1)]) > right


def test_a_poisson_mechanism_has_masses_on_counts():
    mechanism = mechanisms.PoissonMechanism.linear(low=2, high=5, sensitivity=1, top=1)
    one, two = mechanism.law(0), mechanism.law(1)
    assert (one.mean, two.mean) == (pytest.approx(2, abs=1e-9), pytest.approx(5, abs=1e-9))
    counts = np.arange(0, 40)
    p, q = one.pdf(counts), two.pdf(counts)
    low, high = curves.poisson(low=2, high=5).forward.delta_bounds(epsilon=1.0)
    assert low - 1e-9 <= np.sum(np.maximum(p - math.e * q, 0)) <= high + 1e-9


def test_mechanisms_without_one_law_say_so():
    with worded(InvalidOperation):
        (mechanisms.Laplace(sensitivity=1, epsilon=1) ** 2).law(3)


def test_masses_must_be_a_law():
    with pytest.raises(ValueError, match="sum to 1"):
        laws.masses(["a", "b"], [0.5, 0.6])


def test_the_masses_of_a_rounded_gaussian_are_as_exact_above_the_centre_as_below():
    """Above it they were differences of numbers near 1: 2e-15 off each, and 0 from nine standard deviations on."""
    from mpmath import mp, mpf

    law = mechanisms.Gaussian.whole(sensitivity=1, sigma=Fraction(7, 10)).law(0)
    for step in (4, 6, 9):
        with mp.workdps(50):
            low, high = (mpf(step) - 0.5) / mpf("0.7"), (mpf(step) + 0.5) / mpf("0.7")
            truth = float(mp.ncdf(-low) - mp.ncdf(-high))
        assert law.pdf(step) == law.pdf(-step) == pytest.approx(truth, rel=1e-11)


@pytest.mark.parametrize(
    ("mechanism", "x", "y"),
    [
        (mechanisms.AboveThreshold(threshold=2, sensitivity=1, epsilon=1), [1, 2, 3], [2, 2, 2]),
        (mechanisms.MonotoneAboveThreshold(threshold=0.5, sensitivity=1, epsilon=2), [0, 9, -4], [1, 9, -3]),
        (mechanisms.SparseVector(threshold=2, sensitivity=1, epsilon=1, positives=2), [1, 2, 3, 0], [2, 1, 2, 1]),
        (mechanisms.MonotoneSparseVector(threshold=1, sensitivity=1, epsilon=3, positives=3), [1, 2, 3], [2, 3, 3]),
        (mechanisms.TopK(mechanisms.Exponential(sensitivity=1, epsilon=1), count=2), [1, 2, 3], [2, 2, 2]),
        (mechanisms.TopK(mechanisms.NoisyMax(sensitivity=1, epsilon=1, candidates=3), count=2), [1, 2, 3], [2, 1, 3]),
        (mechanisms.Staircase(sensitivity=1, epsilon=1), 0, 1),
        (mechanisms.Staircase(sensitivity=3, epsilon=0.7), 5, 3),
        (mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1).then(lambda y: y > 2), 2, 3),
        (mechanisms.SparseVector(threshold=2, sensitivity=1, epsilon=1, positives=1).then(len), [1, 2], [2, 3]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_laws_of_choices_and_thresholds_are_those_that_an_audit_works_out_by_itself(mechanism, x, y):
    """They were refused, though their answers are few. The audit's laws share no line with these."""
    one, two = mechanism.law(x), mechanism.law(y)
    points = np.unique(np.concatenate((one.points(), two.points())))
    if isinstance(one, laws.Stairs):
        points = np.arange(-120.0, 121.0)
    assert one.answers == two.answers if isinstance(one, laws.Masses) else one.cdf(120) == pytest.approx(1, abs=1e-9)
    true = audit.exact(mechanism, neighbours=(x, y))
    found = curves.from_pmf(*(law.pdf(points) / law.pdf(points).sum() for law in (one, two)))
    for epsilon in (0.0, 0.2, 0.5):
        assert found.delta(epsilon=epsilon) == pytest.approx(true.delta(epsilon=epsilon), rel=1e-7, abs=1e-9)


@pytest.mark.parametrize(
    "mechanism",
    [mechanisms.Staircase(sensitivity=2.0, epsilon=1.5), mechanisms.Staircase(sensitivity=4, epsilon=0.8)],
    ids=repr,
)
def test_stairs_add_up_to_their_distribution_function_and_variance(mechanism):
    law = mechanism.law(3)
    if law.is_discrete:
        points = np.arange(-400.0, 407.0)
        cells = law.pdf(points)
        assert law.cdf(points) == pytest.approx(np.cumsum(cells), abs=1e-12)
    else:
        points = 3 + np.linspace(-80, 80, 320_001)
        cells = law.pdf(points) * 160 / 320_000
        assert law.cdf(points[::1000]) == pytest.approx(np.cumsum(cells)[::1000], abs=1e-3)
    assert cells.sum() == pytest.approx(1, abs=1e-3)
    assert law.variance == pytest.approx(cells @ (points - 3) ** 2, rel=2e-3)
    assert law.mean == 3


def test_what_is_done_to_noise_on_a_line_is_cut_alike_on_both_values():
    """P(round(3.2 + Laplace(1)) = 4) by hand, and no ratio above e^ε."""
    rounded = mechanisms.Laplace(sensitivity=1.0, epsilon=1.0).then(round)
    one, two = rounded.law(3.2), rounded.law(4.2)
    assert one.pdf(4.0) == pytest.approx((math.exp(-0.3) - math.exp(-1.3)) / 2, rel=0.02)
    shared = np.intersect1d(one.places, two.places)
    kept = shared[one.pdf(shared) > 1e-7]
    assert np.max(np.abs(np.log(one.pdf(kept) / two.pdf(kept)))) <= 1 + 1e-5


def test_a_random_function_of_an_answer_has_no_law():
    seen = iter(range(10**6))
    with worded(InvalidOperation):
        mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1).then(lambda y: y + next(seen)).law(0)


def test_too_many_answers_are_not_listed():
    with pytest.raises(InvalidOperation, match="too many"):
        mechanisms.SparseVector(threshold=1, sensitivity=1, epsilon=1, positives=5).law(range(20))
    with pytest.raises(InvalidOperation, match="too many"):
        mechanisms.TopK(mechanisms.Exponential(sensitivity=1, epsilon=1), count=5).law(range(20))


@pytest.mark.parametrize(
    "mechanism",
    [
        mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1),
        mechanisms.DiscreteGaussian(sensitivity=1, sigma=2),
        mechanisms.Staircase(sensitivity=1, epsilon=1),
    ],
    ids=lambda each: type(each).__name__,
)
def test_neighbours_beyond_all_floats_are_not_drawn_as_equal(mechanism):
    """2⁶⁰ and 2⁶⁰ + 1 are one float: their laws looked equal, as if the answer told nothing."""
    for value in (2**60, -(2**60), 2**52 + 1):
        with worded(InvalidParameter, parameter="value"):
            mechanism.law(value)
    assert mechanism.law(2**52).mean == 2.0**52
