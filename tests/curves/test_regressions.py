"""One test for each wrong number that was found after it was written, named after what went wrong."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from deniable import curves
from deniable.curves.outward_rounding import ordered
from deniable.errors import (
    DeniableError,
    ImpossibleTarget,
    InvalidOperation,
    InvalidParameter,
    NotCertifiable,
    UnreadableRecord,
)
from tests.wording import worded


def contains(bounds: tuple[float, float], truth: float, rounding: float = 0.0) -> bool:
    return bounds[0] <= truth * (1 + rounding) and truth * (1 - rounding) <= bounds[1]


def test_underflowed_masses_made_the_chernoff_bound_too_small() -> None:
    many = curves.poisson(low=10, high=12, tied=True) ** 50
    one = curves.poisson(low=500, high=600, tied=True)
    assert many.epsilon(delta=1e-6) == pytest.approx(one.epsilon(delta=1e-6), rel=1e-6)
    assert many.epsilon_bounds(delta=1e-6)[0] <= one.epsilon(delta=1e-6)
    assert many.epsilon(delta=1e-6) >= one.epsilon_bounds(delta=1e-6)[0]


@pytest.mark.parametrize(
    ("make", "far", "truth"),
    [
        (lambda: curves.laplace(scale=100) ** 10_000, 50.0, 0.38234),
        pytest.param(lambda: curves.discrete_gaussian(sigma=50) ** 1000, 40.0, 0.24817, marks=pytest.mark.slow),
        pytest.param(
            lambda: curves.exponential(epsilon=0.01) ** 20_000 * curves.laplace(scale=1),
            100.0,
            None,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_panel_read_far_from_its_window_was_believed(make, far: float, truth: float | None) -> None:
    """The slack was capped at e^700, so a panel tilted for a far ε poisoned every reading near 0."""
    curve = make()
    fresh = curve.delta_bounds(epsilon=0.0)
    if truth is not None:
        assert fresh[1] == pytest.approx(truth, rel=1e-4)
    curve.delta(epsilon=far)
    again = curve.delta_bounds(epsilon=0.0)
    assert again[1] >= fresh[0]
    assert again[0] <= fresh[1]
    both = curve.delta(epsilon=np.array([far, 0.0, far / 2, 1.0]))
    assert both[1] >= fresh[0]


def test_readings_do_not_depend_on_their_order() -> None:
    points = [0.0, 3.0, 30.0, 0.5, 80.0, 10.0]
    fresh = [(curves.laplace(scale=9) ** 700 * curves.gaussian(sigma=2.5)).delta_bounds(epsilon=e) for e in points]
    for order in itertools.islice(itertools.permutations(range(len(points))), 0, 720, 180):
        curve = curves.laplace(scale=9) ** 700 * curves.gaussian(sigma=2.5)
        for index in order:
            low, high = curve.delta_bounds(epsilon=points[index])
            assert low <= fresh[index][1]
            assert high >= fresh[index][0]


def test_a_free_direction_may_be_chosen_after_a_symmetric_answer() -> None:
    """Adaptive truth: Σ_y P(y) max(δ_PQ, δ_QP)(e^ε Q(y)/P(y)) over the answers y of the symmetric factor."""
    rate, epsilon = 0.7307692307692308, 0.04289439374185137
    p, q = np.array([0.5, 0.5]), np.array([1.0, 0.0])
    true = math.exp(rate) / (1 + math.exp(rate))
    truth = 0.0
    for mass, other in ((true, 1 - true), (1 - true, true)):
        x = math.exp(epsilon) * other / mass
        worst = max(np.maximum(p - x * q, 0).sum(), np.maximum(q - x * p, 0).sum())
        truth += mass * float(worst)
    found = (curves.randomized_response(epsilon=rate) * curves.from_pmf(p, q)).delta_bounds(epsilon=epsilon)
    assert contains(found, truth, 1e-12)
    assert found[1] == pytest.approx(truth, rel=1e-9)
    tied = (curves.randomized_response(epsilon=rate) * curves.from_pmf(p, q, tied=True)).delta(epsilon=epsilon)
    assert tied < 0.8 * truth  # the negative control: what a fixed direction costs


@pytest.mark.parametrize(("alpha", "size"), [(1000, 100), (100, 100), (50, 500), (3, 1), (5, 0.05)])
def test_quadrature_nodes_stepped_over_the_peak(alpha: float, size: float) -> None:
    from deniable.curves.atoms.divisible import NormalInverseGaussian

    cumulant = NormalInverseGaussian(alpha, -0.5, size).law(1).cumulant
    independent = curves.fourier_delta(cumulant, epsilon=1.0, step=0.02, end=400.0)
    found = curves.normal_inverse_gaussian(alpha=alpha, beta=-0.5, size=size).delta_bounds(epsilon=1.0)
    assert found[1] == pytest.approx(independent, rel=1e-7, abs=1e-11)


def test_sizes_of_normal_inverse_gaussians_add() -> None:
    many = (curves.normal_inverse_gaussian(alpha=1000, beta=-0.5, size=1) ** 100).delta_bounds(epsilon=1.0)
    one = curves.normal_inverse_gaussian(alpha=1000, beta=-0.5, size=100).delta(epsilon=1.0)
    assert contains(many, one, 1e-9)


def test_a_large_hidden_shift_was_lost_to_underflow() -> None:
    curve = curves.hidden_mixture([0.5, 0.5], [curves.identity(), curves.gaussian(mu=40)])
    assert curve.delta(epsilon=760.0) > 0.41
    assert curve.epsilon(delta=1e-5) > 900


def test_epsilon_just_above_the_mass_at_infinity() -> None:
    curve = curves.gaussian(mu=1) * curves.approximate(epsilon=0, delta=1e-5)
    for gap in (1e-12, 1e-10, 1e-8, 1e-3):
        delta = 1e-5 * (1 + gap)
        assert (
            curve.epsilon(delta=delta) >= curves.gaussian(mu=1).epsilon_bounds(delta=delta - 1e-5 + 1e-20)[0] * 0.99999
        )
    assert curve.epsilon(delta=0.9e-5) == math.inf
    assert curve.epsilon_bounds(delta=1e-6) == (math.inf, math.inf)


@pytest.mark.slow
def test_a_tiny_delta_is_never_answered_below_the_gaussian_alone() -> None:
    both, alone = curves.gaussian(mu=1) * curves.laplace(scale=1), curves.gaussian(mu=1)
    for delta in (1e-30, 1e-60, 1e-100):
        assert both.epsilon(delta=delta) >= alone.epsilon_bounds(delta=delta)[0]


def test_a_group_may_join_and_leave() -> None:
    """M({a,b}) = (½,½), M({a}) = (1,0), M({b}) = (0,1): all neighbours are this pair, and distance 2 tells all."""
    assert curves.from_pmf([0.5, 0.5], [1.0, 0.0], tied=True).group(size=2).delta(epsilon=0.0) == pytest.approx(1.0)


def test_hidden_mixture_of_pairs_that_may_flip_is_refused() -> None:
    pairs = [curves.from_pmf([0.9, 0.1], [0.1, 0.9]), curves.from_pmf([0.1, 0.9], [0.9, 0.1])]
    with pytest.raises(InvalidOperation, match="tied=True"):
        curves.hidden_mixture([0.5, 0.5], pairs)


def test_missing_mass_of_a_density_counts_as_infinite_loss() -> None:
    def normal(mean: float):
        return lambda y: np.exp(-((y - mean) ** 2) / 2) / math.sqrt(2 * math.pi)

    cut = curves.from_density(normal(0), normal(0.1), support=(-7.4, 7.6))
    whole = curves.gaussian(mu=0.1)
    for epsilon in (0.5, 0.7, 0.8, 1.0):
        assert cut.delta(epsilon=epsilon) >= whole.delta_bounds(epsilon=epsilon)[0]


def test_a_lower_bound_beside_infinite_loss_was_above_the_truth() -> None:
    curve = curves.approximate(epsilon=0, delta=0.5).sampled(rate=0.5) * curves.randomized_response(epsilon=1.0)
    true = math.e / (1 + math.e)
    # Outcomes of the sampled half: seen (P .25, Q 0), hidden common (.5, .5), surely absent (.25, .5).
    forward = {(0.25, 0.0), (0.5, 0.5), (0.25, 0.5)}
    truth = max(
        sum(max(a * s - b * r, 0) for (a, b) in pairs for s, r in ((true, 1 - true), (1 - true, true)))
        for pairs in (forward, {(b, a) for a, b in forward})
    )
    assert contains(curve.delta_bounds(epsilon=0.0), truth, 1e-12)


def test_phases_of_many_turns_were_rounded() -> None:
    sampled = curves.from_pmf([0, 0.1, 0.9], [0.5, 0.5, 0], tied=True).sampled(rate=0.3)
    assert (sampled * curves.randomized_response(epsilon=1.0)).forward.delta_bounds(epsilon=1.5) == (0.0, 0.0)


def test_atoms_at_the_smallest_loss_bent_the_lower_bound() -> None:
    many = curves.product(curves.laplace(scale=10 + i) for i in range(20))
    low, high = many.epsilon_bounds(delta=1e-6)
    assert (high - low) / high < 1e-4
    low, high = (curves.laplace(scale=1) ** 2).epsilon_bounds(delta=1e-5)
    assert (high - low) / high < 1e-4


@pytest.mark.parametrize("epsilon", [1e-17, 1e-9, 0.01, 0.5, 1.0, 3.0, 20.0])
def test_mu_of_pure_privacy_is_rounded_up(epsilon: float) -> None:
    import mpmath

    mpmath.mp.dps = 60
    share = mpmath.tanh(mpmath.mpf(epsilon) / 2)
    truth = mpmath.sqrt(8) * mpmath.erfinv(share)
    found = curves.pure(epsilon=epsilon).gdp()
    assert found >= truth
    assert found <= truth * (1 + 1e-11)


@pytest.mark.parametrize("order", [1.0, 1 + 1e-12, 1 + 1e-6, 1.001, 2.0])
@pytest.mark.parametrize("shift", [1e-17, 0.01, 1.0])
def test_renyi_of_laplace_is_rounded_up(order: float, shift: float) -> None:
    import mpmath

    mpmath.mp.dps = 60
    t, a = mpmath.mpf(shift), mpmath.mpf(order)
    if order == 1.0:
        truth = t + mpmath.expm1(-t)
    else:
        inner = a / (2 * a - 1) * mpmath.exp((a - 1) * t) + (a - 1) / (2 * a - 1) * mpmath.exp(-a * t)
        truth = mpmath.log(inner) / (a - 1)
    found = curves.laplace(scale=1, sensitivity=shift).renyi(order=order)
    assert found >= truth
    assert found <= truth * (1 + 1e-3)


def test_pure_costs_of_powers_and_pairs_are_rounded_up() -> None:
    from fractions import Fraction

    for epsilon, count in ((0.77, 100), (0.1, 7), (0.3, 11), (1.1, 13)):
        exact = Fraction(epsilon) * count
        assert Fraction((curves.pure(epsilon=epsilon) ** count).epsilon(delta=0.0)) >= exact
    assert curves.laplace(scale=3).epsilon(delta=0) >= Fraction(1, 3)


def test_groups_of_sampled_mechanisms_stay_sharp() -> None:
    curve = curves.laplace(scale=100).sampled(rate=0.1).group(size=3)
    low, high = curve.epsilon_bounds(delta=0)
    assert low <= high < 0.0031
    low, high = curve.delta_bounds(epsilon=0.0)
    assert high == pytest.approx(0.0015, rel=0.01)
    assert (high - low) / high < 0.01


def test_weak_promises_have_no_false_error_rate() -> None:
    assert curves.gaussian(mu=100).equal_error_rate() == 0.0
    assert curves.laplace(scale=1e-6).equal_error_rate() == 0.0
    low, high = curves.gaussian(mu=100).beta_bounds(alpha=1e-3)
    assert 0 <= low <= high < 1e-10


def test_closed_forms_of_cut_laws_are_kept() -> None:
    assert curves.rounded_gaussian(sigma=2).gdp() == pytest.approx(0.5, rel=1e-12)
    assert curves.quantized(curves.gaussian(mu=1), width=1).gdp() == pytest.approx(1.0, rel=1e-12)
    assert curves.exponential(epsilon=1).zcdp() == pytest.approx(1 / 8, rel=1e-12)


def test_a_record_without_its_count_is_not_read_as_one_use() -> None:
    record = (curves.gaussian(sigma=50) ** 1000).to_dict()
    del record["factors"][0]["count"]
    with pytest.raises(UnreadableRecord, match="count"):
        curves.Curve.from_dict(record)
    record = curves.gaussian(sigma=50).to_dict() | {"count": 1000}
    with pytest.raises(UnreadableRecord, match="count"):
        curves.Curve.from_dict(record)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: curves.laplace(scale=1).renyi(order=1e308),
        lambda: curves.gaussian(sigma=1).group(size=10**400),
        lambda: curves.product(curves.gaussian(sigma=1)),  # type: ignore[arg-type]
        lambda: curves.mixture([0.5, 0.5], curves.gaussian(sigma=1)),  # type: ignore[arg-type]
        lambda: curves.tradeoff(lambda a: "x"),
        lambda: curves.gaussian(sigma=1) + curves.gaussian(sigma=1),
        lambda: sum([curves.gaussian(sigma=1)] * 2),
        lambda: curves.gaussian(sigma=1) <= 3,
        lambda: curves.gaussian(sigma=1).sampled(rate=1e-310),
    ],
)
def test_natural_mistakes_get_our_own_error(wrong) -> None:
    with pytest.raises(DeniableError):
        wrong()


def test_calibration_without_delta_says_what_is_missing() -> None:
    with worded(ImpossibleTarget):
        curves.calibrate(lambda s: curves.gaussian(sigma=s), epsilon=1.0)
    with pytest.raises(InvalidParameter):
        curves.calibrate(lambda s: curves.gaussian(sigma=s), delta=1e-6)


# -- what a second reading found -------------------------------------------------------------------------------------


@pytest.mark.parametrize("uses", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_mu_is_not_too_small_when_the_allowance_is_what_was_lost(uses: int) -> None:
    """gdp(delta=d) with d the mass at infinity: an unbounded loss has no end to search up to."""
    sampled = curves.gaussian(mu=3.0).sampled(rate=0.001)
    curve = sampled**uses * curves.approximate(epsilon=0.0, delta=1e-3)
    exact, more = curve.gdp(delta=1e-3), curve.gdp(delta=1e-3 * (1 + 1e-9))
    assert exact >= more
    gaussian = curves.gaussian(mu=min(exact, 1e3))
    for epsilon in (1.0, 3.0, 6.0):
        assert curve.delta_bounds(epsilon=epsilon)[0] <= gaussian.delta(epsilon=epsilon) + 1e-3


@pytest.mark.parametrize("mu", [*(pytest.param(mu, marks=pytest.mark.slow) for mu in (270.0, 285.0)), 320.0])
def test_lower_bounds_far_right_of_their_window_are_not_above_the_truth(mu: float) -> None:
    """e^(-(θ+1) l) underflows 700 beyond the centre: there a lower bound must not forget Q."""
    curve = curves.gaussian(mu=mu) * curves.randomized_response(epsilon=1e-6)
    start = mu * mu / 2 + 12 * mu
    asked = np.array([start, *(start + np.linspace(400, 800, 9)), start + 770])
    low, _ = curve.delta_bounds(epsilon=asked)
    truth = curves.gaussian(mu=mu).delta(epsilon=asked - 1e-6)
    assert np.all(low <= truth * (1 + 1e-9))


def test_bounds_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(NotCertifiable, match="contradict"):
        ordered(np.array([0.5, 0.3]), np.array([0.6, 0.2]))
    assert ordered(np.array([0.2 * (1 + 1e-15)]), np.array([0.2]))[0] == 0.2
    with pytest.raises(NotCertifiable, match="contradict"):
        ordered(math.nan, 1.0)


def test_the_mass_at_infinity_is_rounded_outwards_where_it_is_worked_out() -> None:
    rng = np.random.default_rng(4)
    for rate, lost in rng.uniform(0.05, 0.95, size=(100, 2)):
        low, high = curves.approximate(epsilon=1.0, delta=lost).sampled(rate=rate).delta_bounds(epsilon=5.0)
        assert Fraction(low) <= Fraction(rate) * Fraction(lost) <= Fraction(high)
        low, high = (
            curves.mixture([0.25, 0.75], [curves.approximate(epsilon=1.0, delta=lost), curves.pure(epsilon=1)])
        ).delta_bounds(epsilon=5.0)
        assert Fraction(low) <= Fraction(lost) / 4 <= Fraction(high)


def test_rows_that_miss_a_little_are_normalised() -> None:
    short = 5e-10
    curve = curves.from_kernel([[1.0 - short, 0.0], [0.5, 0.5]])
    assert curve.delta(epsilon=0.0) >= 0.5


@pytest.mark.parametrize(
    "one",
    [
        curves.gaussian(sigma=1.5).sampled(rate=0.3).symmetrized(),  # alone, its groups have a law of their own
        curves.mixture([0.25, 0.75], [curves.gaussian(sigma=1.5), curves.laplace(scale=1.25)]),
    ],
    ids=str,
)
def test_lower_bounds_of_groups_are_lower_bounds(one: curves.Curve) -> None:
    """The power function of the worse direction, applied twice by brute force (a maximum over tests: from below)."""
    points = np.unique(np.concatenate((np.linspace(-25, 25, 40001), [-0.8, 0.8])))
    delta, x = one.symmetrized().delta(epsilon=points), np.exp(points)
    levels = np.unique(np.concatenate((np.logspace(-8, 0, 500), np.linspace(0, 1, 500))))

    def power(level: np.ndarray) -> np.ndarray:
        return np.minimum([np.min(delta + x * a) for a in level], 1.0)

    twice = power(power(levels))
    for epsilon in (0.4, 1.1, 2.3):
        low, high = one.group(size=2).delta_bounds(epsilon=epsilon)
        truth = np.max(twice - np.exp(epsilon) * levels)
        assert low <= truth * (1 + 1e-3)
        assert truth <= high
        assert high - low <= 2e-3 * high
