"""One convention of direction: everything named (P, Q) is read in that order, against brute force on random pairs.

The pairs are fresh in every run; the seed is printed with a failure.
"""

from __future__ import annotations

import itertools
import math
import secrets
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp

from deniable import curves
from deniable.curves.laws import laws_from_bounds
from deniable.curves.laws.derived_laws import mixed_loss
from deniable.errors import InvalidParameter
from tests.curves import directions

PAIRS = 20
"""Random pairs of 2 to 6 outcomes."""


def random_pair(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two laws on the same outcomes; sometimes one of them misses an outcome, or two outcomes tell the same."""
    size = int(rng.integers(2, 7))
    p, q = rng.dirichlet(np.full(size, rng.choice([0.3, 1.0, 5.0])), size=2)
    kind = rng.integers(0, 4)
    if kind == 0:
        p[0] = 0.0
    elif kind == 1:
        q[-1] = 0.0
    elif kind == 2:
        p = p[::-1].copy() if size == 2 else p
    return p / p.sum(), q / q.sum()


def profile(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    """sup_S P(S) - e^ε Q(S), the best set by inspection."""
    return float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0.0)))


def tradeoff(p: np.ndarray, q: np.ndarray, alpha: float) -> float:
    """T(P, Q)(α): over all deterministic tests, and all coins between two of them (the lower hull of all points)."""
    points = []
    for chosen in itertools.product([False, True], repeat=len(p)):
        alarm = np.array(chosen)
        points.append((float(p[alarm].sum()), float(q[~alarm].sum())))
    best = min(b for a, b in points if a <= alpha + 1e-15)
    for (a, b), (c, d) in itertools.combinations(points, 2):
        if min(a, c) <= alpha <= max(a, c) and abs(a - c) > 1e-300:
            best = min(best, b + (alpha - a) / (c - a) * (d - b))
    return best


def renyi(p: np.ndarray, q: np.ndarray, order: float) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        if order == 1:
            return float(np.sum(np.where(p > 0, p * np.log(p / q), 0.0)))
        if order == math.inf:
            return float(np.max(np.where(p > 0, np.log(p / q), -math.inf)))
        inside = np.where(p > 0, p**order * q ** (1 - order), 0.0)
        return float(np.log(np.sum(inside)) / (order - 1))


def tail(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.sum(p[p > math.exp(epsilon) * q]))


def holds(bounds: tuple[float, float], truth: float, slack: float = 1e-12, width: float = math.inf) -> bool:
    low, high = bounds
    if math.isinf(truth):
        return math.isinf(high)
    room = slack * (1 + abs(truth))
    return bool(low <= truth + room and high >= truth - room and high - low <= width * (1 + abs(truth)))


def test_every_view_of_random_pairs_holds_in_both_directions():
    """Fresh pairs in every run; `python -m tests.curves.directions --pairs 10000` compares more of them."""
    report = directions.run(PAIRS, secrets.randbits(32))
    assert not report.wrong, f"seed {report.seed}: {len(report.wrong)} of {report.count}, first {report.wrong[0]}"


def lies(p: np.ndarray, q: np.ndarray, r: np.ndarray, s: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The four ordered pairs that two factors make when each may flip."""
    ways = [(np.outer(p, a).ravel(), np.outer(q, b).ravel()) for a, b in ((r, s), (s, r))]
    return ways + [(b, a) for a, b in ways]


def power(p: np.ndarray, q: np.ndarray, exponent: int) -> float:
    """E_P |L|^exponent."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.sum(np.where(p > 0, p * np.abs(np.log(p / q)) ** exponent, 0.0)))


def test_products_of_pairs_that_may_flip_are_as_bad_as_the_worst_way_in_which_they_lie():
    """A product took the tail of its symmetrised laws, which can be the smaller, and the CLT of the larger KL."""
    seed = secrets.randbits(64)
    rng = np.random.default_rng(seed)
    wrong = []
    for _ in range(PAIRS):
        (p, q), (r, s) = random_pair(rng), random_pair(rng)
        ways, curve = lies(p, q, r, s), curves.from_pmf(p, q) * curves.from_pmf(r, s)
        epsilon, order = rng.normal(0, 0.7), float(rng.choice([0.3, 0.8, 1.5, 3]))
        room = 1 - 1e-9
        checks = {
            "delta": curve.delta(epsilon=epsilon) >= max(profile(*w, epsilon) for w in ways) * room,
            "renyi": curve.renyi(order=order) >= max(renyi(*w, order) for w in ways) * room,
            "tail": curve.loss_tail(epsilon=epsilon) >= max(tail(*w, epsilon) for w in ways) * room,
            "kl": curve.kl() >= max(renyi(*w, 1) for w in ways) * room,
            "kappa2": curve.kappa2() >= max(power(*w, 2) for w in ways) * room,
            "kappa3": curve.kappa3() >= max(power(*w, 3) for w in ways) * (1 - 1e-6),
        }
        means = [renyi(*w, 1) for w in ((p, q), (q, p), (r, s), (s, r))]
        squares = [power(*w, 2) for w in ((p, q), (q, p), (r, s), (s, r))]
        if all(math.isfinite(each) for each in squares):
            limits = [2 * (means[i] + means[j]) / math.sqrt(squares[i] + squares[j]) for i in (0, 1) for j in (2, 3)]
            checks["clt"] = curve.clt().mu == pytest.approx(max(limits))
        wrong += [
            (view, p.tolist(), q.tolist(), r.tolist(), s.tolist(), epsilon) for view, ok in checks.items() if not ok
        ]
    assert not wrong, f"seed {seed}: {len(wrong)} disagree, first {wrong[0]}"


def cubes_of_flips(p: np.ndarray, q: np.ndarray, count: int, turned: int) -> float:
    """E |L|³ of `count` uses of which `turned` are flipped, by adding up the distribution of the loss."""
    known = {0.0: 1.0}
    for one, two in [(p, q)] * (count - turned) + [(q, p)] * turned:
        after: dict[float, float] = {}
        for loss, mass in known.items():
            for a, b in zip(one, two, strict=True):
                at = round(loss + math.log(a / b), 9)
                after[at] = after.get(at, 0.0) + mass * a
        known = after
    return math.fsum(mass * abs(loss) ** 3 for loss, mass in known.items())


@pytest.mark.parametrize(
    ("p", "q", "count"),
    [([0.856, 0.144], [0.974, 0.026], 70), ([0.42, 0.58], [0.355, 0.645], 80), ([0.9, 0.1], [0.1, 0.9], 64)],
)
def test_cubes_beyond_64_ways_of_lying_are_never_below_the_worst_way(p, q, count):
    """The symmetrised law was read, whose E |L|³ is no bound: for the first pair it is 2.4 times that of any way."""
    p, q = np.array(p), np.array(q)
    truth = max(cubes_of_flips(p, q, count, turned) for turned in range(0, count + 1, count // 5))
    assert truth * (1 - 1e-7) <= (curves.from_pmf(p, q) ** count).kappa3() <= 1.09 * truth


def test_many_different_factors_that_may_flip_are_bounded_from_above():
    """Of more than 200 turning points every other one was left out."""
    rng = np.random.default_rng(3)
    pairs = [(rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3))) for _ in range(240)]
    product = curves.product([curves.from_pmf(p, q) for p, q in pairs])
    forward = [(renyi(p, q, 1), power(p, q, 2)) for p, q in pairs]
    backward = [(renyi(q, p, 1), power(q, p, 2)) for p, q in pairs]
    for weight in (0.0, 0.1, 1.0, 10.0, 1e3):
        chosen = [max(ways, key=lambda m: m[1] + weight * m[0]) for ways in zip(forward, backward, strict=True)]
        mean = math.fsum(m[0] for m in chosen)
        square = math.fsum(m[1] - m[0] ** 2 for m in chosen) + mean**2
        assert product.kappa2() >= square * (1 - 1e-9)
        assert product.kappa3() >= square**1.5 * (1 - 1e-9)  # Jensen
        assert product.clt().mu >= 2 * mean / math.sqrt(math.fsum(m[1] for m in chosen)) * (1 - 1e-9)


@pytest.mark.parametrize("parts", [2, 8])
def test_moments_of_a_mixture_are_those_of_the_worst_way_in_which_its_parts_lie(parts):
    """Of several parts that may flip the symmetrised laws were read, whose E L² is below that of the worst way."""
    rng = np.random.default_rng(17)
    for _ in range(5):
        pairs = [rng.dirichlet(np.full(4, 0.5), size=2) + 1e-6 for _ in range(parts)]
        pairs = [pair / pair.sum(axis=1, keepdims=True) for pair in pairs]
        weights = rng.dirichlet(np.ones(parts))
        curve = curves.mixture(weights, [curves.from_pmf(p, q) for p, q in pairs])
        # Each part of the mixture is revealed, so every moment is the weighted sum of the larger ones.
        worst = [
            math.fsum(w * max(power(p, q, k), power(q, p, k)) for w, (p, q) in zip(weights, pairs, strict=True))
            for k in (2, 3)
        ]
        found = [curve.kappa2(), curve.kappa3()]
        assert all(a >= b * (1 - 1e-9) for a, b in zip(found, worst, strict=True))
        if parts == 2:  # all ways are listed; beyond 64 of them it is an upper bound
            assert found == pytest.approx(worst, rel=1e-6)


@pytest.mark.slow
def test_cubes_of_a_product_of_sampled_gaussians_are_finite():
    """What the lattice had cut off was taken for an answer that reveals everything."""
    curve = curves.gaussian(mu=1).sampled(rate=0.1) ** 2
    assert curve.kappa2() ** 1.5 <= curve.kappa3() < math.inf


def test_a_rare_answer_of_a_mixture_that_reveals_everything_has_an_infinite_mean_loss():
    pair = curves.from_pmf([0.5, 0.5 - 1e-11, 1e-11], [0.5, 0.5, 0.0], tied=True)
    for curve in (curves.mixture([0.5, 0.5], [pair, curves.gaussian(mu=1)]), pair.reversed().sampled(rate=0.5)):
        worse = max(curve.forward.loss.mean, curve.backward.loss.mean)
        assert worse == math.inf == curve.kl()


def test_the_limit_of_nearly_equal_laws_does_not_cancel():
    """E L was a sum of large terms with both signs: 1.8e-7 for 3.4e-9."""
    step = 2.0**-30
    p, q = [0.5, 0.5], [0.5 + step, 0.5 - step]
    assert curves.from_pmf(p, q).clt().mu == pytest.approx(2 * step, rel=1e-6)


def test_the_mean_divergence_of_a_sample_that_reveals_everything_can_be_read():
    """Order 1 divided by 0 where the divergence is infinite."""
    curve = curves.from_pmf([0.0, 0.3, 0.7], [0.3, 0.5, 0.2], tied=True).sampled(rate=0.5)
    assert curve.backward.renyi_bounds(order=1)[1] == math.inf


@pytest.mark.parametrize("count", [1, 2, 30])
def test_the_limit_of_a_pair_that_may_flip_does_not_depend_on_how_often_it_is_used(count):
    """From two uses on, the direction with the larger KL was taken, not the one that leaks more."""
    p, q = np.array([0.5, 0.49, 0.01]), np.array([0.5, 0.4, 0.1])
    mu = max(2 * renyi(*w, 1) / math.sqrt(power(*w, 2)) for w in ((p, q), (q, p)))
    assert (curves.from_pmf(p, q) ** count).clt().mu == pytest.approx(mu * math.sqrt(count))


def test_the_tail_of_a_promise_covers_every_mechanism_that_keeps_it():
    """A 1-DP pair whose loss is 1/2 as often as can be: P(L >= 1/2) = (e - 1)/(e - e^-1/2) = .8137, where randomized
    response, which dominates it, has .7311. The tail of `pure` was that of randomized response.
    """
    often = (math.e - 1) / (math.e - math.exp(-0.5))
    pair = curves.from_pmf([often, 1 - often], [often * math.exp(-0.5), (1 - often) * math.e])
    promise, at = curves.pure(epsilon=1), 0.5 - 1e-9
    assert pair.epsilon(delta=0) <= 1 + 1e-9
    low, high = promise.loss_tail_bounds(epsilon=at)
    assert pair.loss_tail(epsilon=at) == pytest.approx(often)
    assert low <= often <= high <= often * (1 + 1e-4)
    for wider in (curves.worst_of(pair, promise), promise.symmetrized(), promise * curves.identity()):
        assert wider.loss_tail(epsilon=at) >= often
    assert (promise * curves.gaussian(mu=1e-3)).loss_tail(epsilon=at - 0.01) >= often


def test_the_tail_of_several_pairs_is_that_of_the_worst_pair():
    rows = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.3, 0.4, 0.3]])
    kernel = curves.from_kernel(rows)
    for epsilon in np.linspace(-2.0, 2.0, 41) + 1e-3:
        truth = max(tail(a, b, epsilon) for a, b in itertools.permutations(rows, 2))
        assert kernel.loss_tail(epsilon=epsilon) == pytest.approx(truth, abs=1e-9)


def test_moments_of_a_sampled_pmf_are_exact():
    """Only the four heaviest losses of a finite law were known to its integral: 5e-6 was missing."""
    rng = np.random.default_rng(17)
    for _ in range(20):
        p, q = rng.dirichlet(np.full(7, 0.6), size=2)
        rate = rng.uniform(0.05, 0.9)
        mixed = (1 - rate) * p + rate * q
        curve = curves.from_pmf(p, q, tied=True).sampled(rate=rate)
        assert curve.forward.kl() == pytest.approx(renyi(p, mixed, 1), rel=1e-9)
        assert curve.backward.kl() == pytest.approx(renyi(mixed, p, 1), rel=1e-9)
        assert curve.kappa2() == pytest.approx(max(power(p, mixed, 2), power(mixed, p, 2)), rel=1e-9)


def test_moments_of_a_sample_are_those_of_the_worse_order_of_the_pair():
    """A pair that may flip was symmetrised before it was sampled: its E L² was below that of one order (9.2686)."""
    p, q = np.array([0.011735610909423379, 0.9637171086827386, 0.024547280407837907]), np.zeros(3)
    q[:] = 0.35443111176995606, 0.04188075277745768, 0.6036881354525863
    curve, ways = curves.from_pmf(p, q).sampled(rate=0.9), []
    for one, two in ((p, q), (q, p)):
        mixed = 0.1 * one + 0.9 * two
        ways += [(one, mixed), (mixed, one)]
    assert curve.kl() == pytest.approx(max(renyi(*w, 1) for w in ways), rel=1e-9)
    assert curve.kappa2() == pytest.approx(max(power(*w, 2) for w in ways), rel=1e-9)
    assert curve.kappa3() == pytest.approx(max(power(*w, 3) for w in ways), rel=1e-9)
    limits = [2 * renyi(*w, 1) / math.sqrt(power(*w, 2)) for w in ways]
    assert curve.clt().mu == pytest.approx(max(limits), rel=1e-9)


def test_moments_of_a_kernel_are_those_of_its_worst_pair():
    rows = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.3, 0.4, 0.3]])
    for kernel, pairs in (
        (curves.from_kernel(rows), [(0, 1), (0, 2), (1, 2)]),
        (curves.from_kernel(rows[:2]), [(0, 1)]),
    ):
        ways = [(rows[i], rows[j]) for a, b in pairs for i, j in ((a, b), (b, a))]
        assert kernel.kl() == pytest.approx(max(renyi(*w, 1) for w in ways), rel=1e-9)
        assert kernel.kappa2() == pytest.approx(max(power(*w, 2) for w in ways), rel=1e-9)
        assert (kernel**2).kl() >= 2 * kernel.kl() * (1 - 1e-9)


def test_forward_of_a_pair_is_the_lectures_trade_off_function():
    """T(P, Q)(.1) of a pair by hand: alarm where Q is likeliest against P, on the third outcome alone."""
    curve = curves.from_pmf([0.6, 0.3, 0.1], [0.3, 0.3, 0.4])
    assert curve.forward.beta_bounds(alpha=0.1) == pytest.approx((0.6, 0.6), abs=1e-12)
    assert curve.backward.beta_bounds(alpha=0.1) == pytest.approx((0.8, 0.8), abs=1e-12)


@pytest.mark.parametrize(
    ("curve", "p_beta"),
    [
        (curves.poisson(low=2, high=5), 0.45339230419),
        (curves.quantized(curves.gaussian(mu=0.5), width=1), 0.8847242811),
        (curves.tradeoff(lambda a: (1 - a) ** 2), 0.9025),
    ],
    ids=["poisson", "quantized", "tradeoff"],
)
def test_every_atom_names_the_null_hypothesis_first(curve, p_beta):
    low, high = curve.forward.beta_bounds(alpha=0.05)
    assert low - 1e-9 <= p_beta <= high + 1e-9


def test_sampling_takes_the_dataset_without_the_person_first():
    """T(N(0,1), .9 N(0,1) + .1 N(1,1)) at the half-line y > t, by the normal distribution function."""
    from scipy.special import ndtr, ndtri

    alpha, rate = 0.05, 0.1
    t = -ndtri(alpha)
    truth = 1 - (1 - rate) * alpha - rate * (1 - ndtr(t - 1))
    low, high = curves.gaussian(mu=1).sampled(rate=rate).forward.beta_bounds(alpha=alpha)
    assert low <= truth <= high
    assert high - low < 1e-6


def test_tied_atoms_go_together_without_the_person_first():
    """Poisson(2) or Poisson(5) beside a coin with P-masses (.8, .2) and Q-masses (.4, .6): the product law by hand."""
    from scipy.special import gammaln

    n = np.arange(80)
    p, q = (np.exp(n * math.log(r) - r - gammaln(n + 1)) for r in (2.0, 5.0))
    both = [np.outer(one, coin).ravel() for one, coin in ((p, [0.8, 0.2]), (q, [0.4, 0.6]))]
    curve = curves.poisson(low=2, high=5, tied=True) * curves.from_pmf([0.8, 0.2], [0.4, 0.6], tied=True)
    for epsilon in (0.5, 1.0, 2.0):
        assert holds(curve.forward.delta_bounds(epsilon=epsilon), profile(*both, epsilon), 1e-9, width=1e-6)
        assert holds(curve.backward.delta_bounds(epsilon=epsilon), profile(both[1], both[0], epsilon), 1e-9, width=1e-6)


def test_a_record_of_version_1_is_read_with_the_pairing_it_meant():
    pair, rate = curves.from_pmf([0.8, 0.2], [0.4, 0.6], tied=True), curves.poisson(low=2, high=5, tied=True)
    record = (pair * rate).to_dict()
    assert record["version"] == 2
    old = {**record, "version": 1}
    meant = curves.from_pmf([0.4, 0.6], [0.8, 0.2], tied=True) * rate
    assert curves.Curve.from_dict(old) == meant
    assert curves.Curve.from_dict(old) != pair * rate
    assert curves.Curve.from_dict(record) == pair * rate
    cells = curves.from_density(
        lambda y: np.exp(-np.abs(y)) / 2,
        lambda y: np.exp(-np.abs(y - 1)) / 2,
        support=(-30.0, 31.0),
        breaks=[0, 1],
        tied=True,
    )
    back = curves.Curve.from_dict({**cells.to_dict(), "version": 1})
    assert back.forward.delta_bounds(epsilon=0.3) == pytest.approx(cells.backward.delta_bounds(epsilon=0.3))


def test_the_convex_hull_of_beta_is_the_symmetrized_curve():
    """min(T(P, Q), T(Q, P)) of an asymmetric pair is not convex; `symmetrized` gives its hull, a trade-off function."""
    curve = curves.from_pmf([0.6, 0.4, 0.0], [0.3, 0.1, 0.6])
    alpha = np.linspace(0, 1, 101)
    least = np.array(curve.beta(alpha=alpha))
    assert np.min(np.diff(least, 2)) < -1e-3
    hull = np.array(curve.symmetrized().beta(alpha=alpha))
    assert np.all(hull <= least + 1e-9)
    assert np.min(np.diff(hull, 2)) > -1e-9
    curves.tradeoff(lambda a: np.interp(a, alpha, hull))


@pytest.mark.parametrize("order", [0, -1, math.nan, 2e9])
def test_orders_of_renyi_divergences_are_above_0(order):
    with pytest.raises(InvalidParameter, match="order"):
        curves.gaussian(mu=1).forward.renyi_bounds(order=order)


def test_the_tail_of_the_gaussian_that_is_exactly_1_1e_minus_5():
    """P(L > 1): its δ is 1e-5, and P(L > 1) sixteen times that (mpmath, 50 digits)."""
    from mpmath import mp

    import deniable as dn

    sigma = dn.calibrate(lambda s: curves.gaussian(sigma=s), epsilon=1.0, delta=1e-5)
    curve = curves.gaussian(sigma=sigma)
    with mp.workdps(50):
        truth = float(mp.ncdf(1 / (2 * mp.mpf(sigma)) - mp.mpf(sigma)))
    low, high = curve.loss_tail_bounds(epsilon=1.0)
    assert low <= truth <= high <= truth * (1 + 1e-9)
    assert truth == pytest.approx(1.6119807e-4, rel=1e-7)
    low, high = (curves.gaussian(sigma=10 * sigma) ** 100).loss_tail_bounds(epsilon=1.0)
    assert low * (1 - 1e-12) <= truth <= high * (1 + 1e-12)
    assert high - low < 1e-4 * truth


def test_the_tail_of_a_product_against_its_law():
    """60 coins: the loss is (2k - 60) ε, k binomial; secants of δ must bracket the exact tail between its steps."""
    from scipy.special import bdtrc

    epsilon, count = 0.2, 60
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    curve = curves.randomized_response(epsilon=epsilon) ** count
    for at in (-1.1, 0.3, 2.1, 5.1):
        first = math.floor((at / epsilon + count) / 2)
        truth = float(bdtrc(first, count, p))
        low, high = curve.loss_tail_bounds(epsilon=at)
        assert low * (1 - 1e-9) <= truth <= high * (1 + 1e-9), (at, low, truth, high)
        assert high - low < 0.12


@pytest.mark.parametrize("rate", [0.1, 0.4, 0.7])
def test_points_that_lie_on_each_other_have_no_chord(rate):
    """Two kinks 1e-16 apart made masses that were no numbers, and a lower bound of infinity out of them."""
    pair = curves.from_pmf([0.5, 0.5], [0.3, 0.7], tied=True)
    curve = (pair * curves.pure(epsilon=0.3).sampled(rate=rate)).sampled(rate=0.5)
    low, high = curve.forward.renyi_bounds(order=0.5)
    assert 0 <= low <= high < 0.1
    assert 0 < curve.hellinger() < 0.05


@pytest.mark.parametrize("rare", [1e-3, 1e-9, 1e-10, 1e-30])
def test_a_rare_answer_that_reveals_everything_has_an_infinite_mean_loss(rare: float) -> None:
    """Below 1e-9 it was taken for what the computation had cut off."""
    curve = curves.from_pmf([0.5, 0.5 - rare, rare], [0.5, 0.5, 0.0])
    assert curve.forward.loss.mean == math.inf
    assert curve.forward.loss.deviation == math.inf
    assert curve.backward.loss.mean == pytest.approx(0.5 * math.log(0.5 / (0.5 - rare)), abs=1e-12)
    assert curve.kl() == math.inf


@pytest.mark.parametrize("order", [1.01, 1.5, 2.0, 10.0])
@pytest.mark.parametrize("scale", [0.1, 0.5, 1.0, 3.0, 10.0, 30.0])
def test_the_smallest_loss_counts_in_a_moment(scale: float, order: float) -> None:
    """Laplace noise has up to half of its mass there. It was dropped: the lower bound was 0, below that of order 1."""
    from mpmath import mp, mpf

    with mp.workdps(40):
        a, s = mpf(order), 1 / mpf(scale)
        truth = float(mp.log((a * mp.exp((a - 1) * s) + (a - 1) * mp.exp(-a * s)) / (2 * a - 1)) / (a - 1))
    curve = curves.laplace(scale=scale)
    for direction in (curve.forward, curve.backward):
        low, high = direction.renyi_bounds(order=order)
        assert low <= truth * (1 + 1e-12)
        assert high >= truth * (1 - 1e-12)
        assert high - low <= 5e-3 * high


def test_lines_through_near_points_do_not_carry_their_roundings_across_a_long_cell():
    """The upper end of β was 1e-14 below β: a line through two near points was extended over a cell of width 285."""
    p = np.array([1881835, 1463 * 16, 166977055400433, 247659841815 * 16, 106991049, 110535254944891]) / 2.0**48
    q = np.array([911246061 * 4, 1193861835, 475881449587, 63360183907947 * 4, 13776760391601 * 2, 0]) / 2.0**48
    low, high = curves.from_pmf(p, q, tied=True).backward.beta_bounds(alpha=0.553342638585247)
    assert low <= 0.0054531153019084065 <= high
    assert high - low < 1e-13


def profile_of(outcomes: list[tuple[Fraction, Fraction]], x: Fraction) -> Fraction:
    return sum((max(a - x * b, Fraction(0)) for a, b in outcomes), Fraction(0))


def test_a_polygon_below_a_profile_is_below_it_where_near_points_precede_a_long_cell():
    """Its vertices were not rounded down: the chord of two points 1e-12 apart was extended as if it were exact."""
    seed = secrets.randbits(64)
    rng = np.random.default_rng(seed)
    for _ in range(20 * PAIRS):
        size = int(rng.integers(2, 6))
        outcomes = [(Fraction(float(a)), Fraction(float(b))) for a, b in rng.dirichlet(np.ones(size), 2).T]
        starts = np.sort(rng.uniform(-2, 4, 6))
        points = np.unique(np.concatenate((starts, starts + 1.5e-12 * (1 + np.abs(starts)))))
        exact = [profile_of(outcomes, _exact_exp(each)) for each in points]
        near = np.array([float(each) for each in exact])
        above = np.array([Fraction(float(a)) > b for a, b in zip(near, exact, strict=True)])
        low, high = np.where(above, np.nextafter(near, 0), near), np.where(above, near, np.nextafter(near, 2))
        at, below = laws_from_bounds.vertices_below(points, low, high)
        for place, found in zip(at, below, strict=True):
            truth = profile_of(outcomes, _exact_exp(place))
            # The place itself is a rounded number: a profile has slopes of -1 and flatter.
            assert Fraction(float(found)) <= truth + Fraction(2) ** -52 * _exact_exp(place) * 2, f"seed {seed}"


def _exact_exp(value: float) -> Fraction:
    with mp.workdps(40):
        return Fraction(mp.nstr(mp.exp(mp.mpf(float(value))), 35))


def test_moments_of_nearly_equal_laws_that_are_sampled_are_not_drowned_by_rounding():
    """`clt` raised a bare ValueError: E L² was -1e-18, from roundings of 1 over a range of losses without mass."""
    p, q = (0.9418584725061372, 0.05814152749386281), (0.9418584718218312, 0.058141528178168755)
    near = curves.from_pmf(p, q, tied=True).sampled(rate=0.265625)
    with mp.workdps(40):
        without = [mp.mpf(a) for a in p]
        mixed = [a + (mp.mpf(b) - a) * 0.265625 for a, b in zip(without, q, strict=True)]
        square = float(sum(a * mp.log(a / b) ** 2 for a, b in zip(without, mixed, strict=True)))
    assert near.kappa2() == pytest.approx(square, rel=1e-5)
    assert near.clt().mu == pytest.approx(math.sqrt(square), rel=1e-5)


def test_a_rare_answer_that_tells_much_counts_in_the_moments_of_a_sampled_law():
    """A mass of 3.6e-15 makes a twentieth of E L² here: it is more than rounding."""
    p, q = (2.0**-48, 1 - 2.0**-48), (5624722723 / 2.0**48, 1 - 5624722723 / 2.0**48)
    assert curves.from_pmf(p, q, tied=True).sampled(rate=0.296875).clt().mu == pytest.approx(1.95597432955542, rel=1e-6)


def test_a_rare_answer_counts_in_the_moments_of_a_mixture():
    """The mass below a loss was read as 1 minus the mass above it: 3.3e-15 was known to three percent only."""
    rare = (
        [0.3209573661523102, 0.014993377120504192, 0.2120844057722664, 0.4519648509549157, 2.0**-48],
        [0.3209573661523102, 0.014993377120504192, 0.2120844057722664, 0.4519648492664814, 475253 * 2.0**-48],
    )
    other = (
        [0.10560617572202347, 0.27594928161294874, 0.17728992741151828, 0.4411546152535095],
        [0.10560617855876231, 0.27594928161294874, 0.17728992741151828, 0.4411546124167707],
    )
    parts = [curves.from_pmf(p, q, tied=True) for p, q in (rare, other)]
    mixed = curves.mixture([0.921875, 0.078125], parts)
    assert mixed.clt().mu == pytest.approx(0.0041612535051731647857, rel=1e-6)


def test_the_equal_error_rate_is_found_beside_kinks_within_rounding_of_each_other():
    """The search went on between two kinks 1e-15 apart, and was 6e-5 below the truth."""
    first = ([2.0**-48, 0.5 - 2.0**-48, 0.5], [0.5, 2.0**-48, 0.5 - 2.0**-48])
    second = (
        [0.14043345254095385, 0.7213161621312665, 0.13825038532777967],
        [0.2777108939923316, 0.7222891060076684, 0],
    )
    mixed = curves.mixture([0.5, 0.5], [curves.from_pmf(p, q, tied=True) for p, q in (first, second)])
    assert 0 <= 0.34049835559171440812 - mixed.equal_error_rate() < 1e-5


def test_the_largest_loss_of_a_sample_is_not_understated_at_rates_near_1():
    """log(1 - q + q e^-M) was read as log1p(q expm1(-M)), which cancels: ε at δ = 0 was 2e-16 below the truth."""
    p = (0.025913755069304045, 0.8714030758402735, 0.09608690120331786, 0.0065962678871045455)
    q = (0.09592164636252676, 8.9772503425678e-05, 0.8978060918041812, 0.006182489329866314)
    sampled = curves.from_pmf(p, q, tied=True).sampled(rate=0.984375)
    with mp.workdps(40):
        taken = 1 - mp.mpf("0.984375") + mp.mpf("0.984375") * mp.mpf(q[1]) / mp.mpf(p[1])
        truth = -mp.log(taken)
        assert mp.mpf(sampled.epsilon(delta=0)) >= truth
        assert mp.mpf(sampled.renyi(order=math.inf)) >= truth


@pytest.mark.parametrize("rate", [1e-9, 0.3, 0.984375, 1 - 1e-6, 1 - 2.0**-40])
@pytest.mark.parametrize("loss", [-30.0, -9.18, -1.0, -1e-9, 1e-9, 2.0, 600.0])
def test_the_loss_of_a_sample_has_all_its_digits(rate: float, loss: float) -> None:
    with mp.workdps(60):
        truth = mp.log(1 - mp.mpf(rate) + mp.mpf(rate) * mp.exp(mp.mpf(loss)))
        assert abs(mp.mpf(mixed_loss(loss, rate)) / truth - 1) < 1e-15
