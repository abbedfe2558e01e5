"""True curves from laws: against laws at 60 digits that share no code with them, and against what we claim exactly."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import mpmath
import numpy as np
import pytest

from deniable import Unit, audit, curves, local, mechanisms
from deniable.audit.exact_curve import threshold_law
from deniable.curves import Curve, Kernel
from deniable.errors import InvalidDistribution, InvalidOperation, InvalidParameter, NotCertifiable
from tests.audit.cases import cases
from tests.mechanisms import exact_laws, lattice_laws
from tests.wording import worded

EPSILONS = np.array([0.0, 0.2, 0.5, 0.9, 1.3])


def deltas(p: Any, q: Any) -> list[float]:
    """The worse direction, at 60 digits."""
    return [float(max(exact_laws.delta(p, q, e), exact_laws.delta(q, p, e))) for e in EPSILONS]


def agrees(curve: Curve, wanted: list[float]) -> None:
    low, high = curve.delta_bounds(epsilon=EPSILONS)
    assert low == pytest.approx(wanted, abs=2e-12)
    assert high == pytest.approx(wanted, abs=2e-12)


# -- against 60 digits -----------------------------------------------------------------------------------------------

PAIRS = [([0, 1, 1], [1, 0, 0]), ([0, 5], [1, 4]), ([3, 3, 2], [2, 3, 3])]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize("kind", ["laplace", "exponential", "gumbel"])
def test_selections(kind: str, pair: tuple[Any, Any]) -> None:
    makers = {
        "laplace": mechanisms.NoisyMax,
        "exponential": mechanisms.PermuteAndFlip,
        "gumbel": mechanisms.Exponential,
    }
    law = exact_laws.softmax if kind == "gumbel" else lambda u, scale: exact_laws.largest(u, scale, kind)
    p, q = (law(scores, 2) for scores in pair)
    agrees(audit.exact(makers[kind](sensitivity=1, epsilon=1), neighbours=pair), deltas(p, q))


@pytest.mark.parametrize("positives", [1, 2])
@pytest.mark.parametrize("pair", [([0, 0, 0], [1, 1, -1]), ([3, -2, 0], [2, -1, 1])], ids=str)
def test_thresholds(positives: int, pair: tuple[Any, Any]) -> None:
    noisy: Any = (
        mechanisms.AboveThreshold(threshold=1, sensitivity=1, epsilon=1)
        if positives == 1
        else mechanisms.SparseVector(threshold=1, sensitivity=1, epsilon=1, positives=2)
    )
    laws = [
        exact_laws.threshold(
            asked, at=1, threshold_scale=noisy.threshold_scale, answer_scale=noisy.answer_scale, positives=positives
        )
        for asked in pair
    ]
    p, q = [list(law.values()) for law in laws]
    agrees(audit.exact(noisy, neighbours=pair), deltas(p, q))


def test_a_threshold_without_noise_on_answers() -> None:
    law = threshold_law([0.0, 1.0], threshold_scale=2.0, answer_scale=0.0, positives=None)
    assert law[(False, True)] == pytest.approx((1 - math.exp(-0.5)) / 2, abs=1e-12)
    assert law[(True, False)] == 0


@pytest.mark.parametrize(
    ("kind", "shift"), [("laplace", 1), ("laplace", 3), ("gaussian", 1), ("gaussian", 2), ("rounded", 2)]
)
def test_noise_on_whole_numbers(kind: str, shift: int) -> None:
    makers: dict[str, tuple[Any, Any]] = {
        "laplace": (mechanisms.DiscreteLaplace(sensitivity=1, scale=2), lattice_laws.discrete_laplace(2, 200)),
        "gaussian": (mechanisms.DiscreteGaussian(sensitivity=1, sigma=2), lattice_laws.discrete_gaussian(2, 60)),
        "rounded": (mechanisms.Gaussian(sensitivity=1, sigma=2), lattice_laws.rounded_gaussian(2, 60)),
    }
    noisy, law = makers[kind]
    p, q = law, lattice_laws.shifted(law, shift)
    wanted = [float(max(lattice_laws.delta(p, q, e), lattice_laws.delta(q, p, e))) for e in EPSILONS]
    agrees(audit.exact(noisy, neighbours=(5, 5 + shift)), wanted)


def test_poisson() -> None:
    """(2, 5), by sums of the Poisson probabilities."""
    noisy = mechanisms.PoissonMechanism.linear(low=2, high=5)
    curve = audit.exact(noisy, neighbours=(0, 1))
    assert curve.delta(epsilon=1.0) == pytest.approx(0.416380974675839, abs=1e-12)
    assert curve.epsilon(delta=0.0) == math.inf


def test_keys_by_enumeration() -> None:
    """One key, counted 3 or 4, hidden below the threshold; and one key that one neighbour alone has."""
    noisy = mechanisms.UnknownKeys(unit=Unit.row(), scale=2, threshold=5)
    noise = lattice_laws.discrete_laplace(2, 200)

    def law(count: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {"hidden": mpmath.fsum(p for z, p in noise.items() if z + count < 5)}
        return found | {z + count: p for z, p in noise.items() if z + count >= 5}

    p, q = law(3), law(4)
    wanted = [float(max(lattice_laws.delta(p, q, e), lattice_laws.delta(q, p, e))) for e in EPSILONS]
    agrees(audit.exact(noisy, neighbours=(["a"] * 3, ["a"] * 4)), wanted)
    alone = audit.exact(noisy, neighbours=([], ["a"]))
    assert alone.delta(epsilon=30.0) == pytest.approx(1 - float(law(1)["hidden"]), abs=1e-12)
    assert alone.delta(epsilon=30.0) <= noisy.curve.delta(epsilon=30.0)


def test_top_two_by_peeling() -> None:
    top = mechanisms.TopK(mechanisms.Exponential(sensitivity=1, epsilon=1), count=2)
    laws = []
    for scores in ([0, 1, 3], [1, 0, 2]):
        law = {}
        for i, j in itertools.permutations(range(3), 2):
            first = exact_laws.softmax(scores, 2)[i]
            left = [k for k in range(3) if k != i]
            law[i, j] = first * exact_laws.softmax([scores[k] for k in left], 2)[left.index(j)]
        laws.append(list(law.values()))
    agrees(audit.exact(top, neighbours=([0, 1, 3], [1, 0, 2])), deltas(*laws))


def ordered(scores: list[int], scale: int, kind: str) -> dict[tuple[int, ...], Any]:
    """P(Xᵢ > Xⱼ > Xₖ) for three noisy scores: the middle one at x, one above and one below it, integrated at 30 digits."""
    two = kind == "laplace"

    def density(z: Any) -> Any:
        return mpmath.exp(-abs(z) / scale) / (2 * scale) if two else mpmath.exp(-z / scale) / scale if z > 0 else 0

    def above(z: Any) -> Any:
        if two:
            return 1 - mpmath.exp(z / scale) / 2 if z < 0 else mpmath.exp(-z / scale) / 2
        return mpmath.exp(-z / scale) if z > 0 else mpmath.mpf(1)

    found = {}
    with mpmath.workdps(30):
        kinks = sorted({mpmath.mpf(u) for u in scores})
        ends = [-mpmath.inf, *kinks, mpmath.inf] if two else [*kinks, mpmath.inf]
        for i, j, k in itertools.permutations(range(3)):
            u, v, w = scores[i], scores[j], scores[k]
            found[i, j, k] = mpmath.quad(
                lambda x, u=u, v=v, w=w: density(x - v) * above(x - u) * (1 - above(x - w)), ends
            )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("kind", ["laplace", "exponential"])
def test_one_shot_top(kind: str, count: int) -> None:
    """All orders of three noisy scores, of which the first `count` are told."""
    maker: Any = {"laplace": mechanisms.NoisyMax, "exponential": mechanisms.PermuteAndFlip}[kind]
    top = mechanisms.OneShotTopK(maker(sensitivity=1, epsilon=0.5), count=count)
    pair = ([0, 1, 3], [1, 0, 2])
    laws = []
    for scores in pair:
        law: dict[Any, Any] = {}
        for order, mass in ordered(scores, 4, kind).items():
            law[order[:count]] = law.get(order[:count], 0) + mass
        laws.append(law)
    agrees(audit.exact(top, neighbours=pair), deltas(*([law[y] for y in laws[0]] for law in laws)))
    first = audit.exact(top.then(lambda winners: winners[0]), neighbours=pair)
    alone = audit.exact(top.selector, neighbours=pair)
    assert first.delta(epsilon=EPSILONS) == pytest.approx(alone.delta(epsilon=EPSILONS), abs=1e-12)


# -- rare outcomes ---------------------------------------------------------------------------------------------------


def pure(p: Any, q: Any) -> float:
    """The largest loss over all outcomes, in both directions."""
    return float(max(abs(mpmath.log(x / y)) for x, y in zip(p, q, strict=True)))


@pytest.mark.parametrize(
    ("epsilon", "positives", "pair"),
    [
        (0.1, 1, ([-2263], [-2262])), (1, 1, ([-200], [-199])), (1, 1, ([-300], [-299])), (1, 1, ([300], [299])),
        (1, 1, ([-300, 40, 0], [-299, 41, -1])), (1, 2, ([30, -300], [31, -299])), (4, 2, ([-90, 90], [-91, 89])),
    ],
    ids=str,
)  # fmt: skip
def test_the_pure_epsilon_of_a_threshold_may_hang_on_a_rare_answer(
    epsilon: float, positives: int, pair: tuple[Any, Any]
) -> None:
    """Answers as rare as e^-100, at 400 digits. (That 1 - 10⁻¹⁷ is 1 had lost them: 0.488 for a claim of 0.1.)"""
    noisy: Any = (
        mechanisms.AboveThreshold(threshold=0, sensitivity=1, epsilon=epsilon)
        if positives == 1
        else mechanisms.SparseVector(threshold=0, sensitivity=1, epsilon=epsilon, positives=positives)
    )
    with mpmath.workdps(400):
        p, q = (
            exact_laws.threshold(
                asked, at=0, threshold_scale=noisy.threshold_scale, answer_scale=noisy.answer_scale, positives=positives
            ).values()
            for asked in pair
        )
        wanted = pure(p, q)
    assert audit.exact(noisy, neighbours=pair).epsilon(delta=0.0) == pytest.approx(wanted, rel=1e-9)


RARE = [([0, 60], [1, 59]), ([0, 500], [1, 499]), ([0, 300, 40], [1, 299, 41])]


@pytest.mark.parametrize("pair", RARE, ids=str)
@pytest.mark.parametrize("kind", ["laplace", "exponential", "gumbel"])
def test_the_pure_epsilon_of_a_choice_may_hang_on_a_rare_winner(kind: str, pair: tuple[Any, Any]) -> None:
    """One that is chosen as rarely as e^-500, at 400 digits; picked, peeled and in one shot."""
    maker: Any = {
        "laplace": mechanisms.NoisyMax, "exponential": mechanisms.PermuteAndFlip, "gumbel": mechanisms.Exponential
    }[kind]  # fmt: skip
    selector = maker(sensitivity=1, epsilon=2)
    law = exact_laws.softmax if kind == "gumbel" else lambda u, scale: exact_laws.largest(u, scale, kind)
    with mpmath.workdps(400):
        wanted = pure(*(law(scores, 1) for scores in pair))
    picked = [selector, mechanisms.TopK(selector, count=1)]
    picked += [mechanisms.OneShotTopK(selector, count=1)] if kind != "gumbel" else []
    for mechanism in picked:
        assert audit.exact(mechanism, neighbours=pair).epsilon(delta=0.0) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("apart", [1, 100, 300, 390, 400])
def test_tails_of_values_far_apart_are_both_whole(apart: int) -> None:
    """Noise of scale 10 has the loss |a - b|/10 exactly. (A tail that was cut for one of them gave 42.4 at 400.)"""
    noisy = mechanisms.DiscreteLaplace(sensitivity=1, scale=10)
    assert audit.exact(noisy, neighbours=(0, apart)).epsilon(delta=0.0) == pytest.approx(apart / 10, rel=1e-9)
    stairs = mechanisms.Staircase(sensitivity=10, epsilon=1)
    assert audit.exact(stairs, neighbours=(0, apart - apart % 10)).epsilon(delta=0.0) == pytest.approx(
        apart // 10, rel=1e-9, abs=1e-12
    )


@pytest.mark.parametrize(
    ("mechanism", "pair"),
    [
        (mechanisms.AboveThreshold(threshold=0, sensitivity=1, epsilon=1), ([-3000], [-2999])),
        (mechanisms.AboveThreshold(threshold=0, sensitivity=1, epsilon=1), ([10**12], [10**12 + 1])),
        (mechanisms.NoisyMax(sensitivity=1, epsilon=1), ([0, 1500], [1, 1499])),
        (mechanisms.Exponential(sensitivity=1, epsilon=1), ([0, 1500], [1, 1499])),
        (mechanisms.PermuteAndFlip(sensitivity=1, epsilon=1), ([0, 1500], [1, 1499])),
        (mechanisms.TopK(mechanisms.Exponential(sensitivity=1, epsilon=1), count=2), ([0, 1500], [1, 1499])),
        (mechanisms.OneShotTopK(mechanisms.NoisyMax(sensitivity=1, epsilon=1), count=2), ([0, 10**8, 5], [1, 10**8, 5])),
        (mechanisms.OneShotTopK(mechanisms.PermuteAndFlip(sensitivity=1, epsilon=1), count=3), ([0, 600, 1200], [1, 600, 1200])),
        (mechanisms.InverseSensitivity.median(answers=(0, 1), epsilon=2), ([0] * 3000, [0] * 2999 + [1])),
        (mechanisms.NoisyMax(sensitivity=1, epsilon=1).then(lambda i: i), ([0, 1500], [1, 1499])),
    ],
    ids=["threshold", "far threshold", "noisy max", "exponential", "flips", "peeled", "one shot", "product", "median", "then"],
)  # fmt: skip
def test_what_is_too_rare_for_a_float_is_refused(mechanism: Any, pair: tuple[Any, Any]) -> None:
    """At once, not after 10⁸ pieces; never ε = 0 because both masses are 0."""
    with worded(InvalidOperation):
        audit.exact(mechanism, neighbours=pair)


@pytest.mark.parametrize("pair", [(-1.0, 1.0), (-0.2, 0.1), (0.3, 0.3)], ids=str)
def test_cells_of_a_mean_by_enumeration(pair: tuple[float, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell of a line made coarse: 64 times as few as usual, and still thousands."""
    from deniable.local import numeric_means

    monkeypatch.setattr(numeric_means, "WINDOW", 2**8)
    protocol = local.PiecewiseMean(low=-1, high=1, epsilon=1.0)
    cells, window, s = protocol.outcomes, protocol.outcomes - protocol.steps, mpmath.exp(mpmath.mpf(1) / 2)
    laws = []
    for value in pair:
        start = round((value + 1) / 2 * protocol.steps)
        near, far = s / (s + 1) / window, 1 / (s + 1) / (cells - window)
        laws.append([near if start <= cell < start + window else far for cell in range(cells)])
    agrees(audit.exact(protocol, neighbours=pair), deltas(*laws))
    hybrid = local.HybridMean(low=-1, high=1, epsilon=1.0)
    often, kept = mpmath.exp(mpmath.mpf(-1) / 2), mpmath.e / (1 + mpmath.e)
    mixed = []
    for value, law in zip(pair, laws, strict=True):
        x = mpmath.mpf(round((value + 1) / 2 * hybrid.steps)) / hybrid.steps
        bit = kept * x + (1 - kept) * (1 - x)
        mixed.append([*((1 - often) * p for p in law), often * bit, often * (1 - bit)])
    agrees(audit.exact(hybrid, neighbours=pair), deltas(*mixed))


def test_filters_by_enumeration() -> None:
    """All 3 × 2⁸ reports of a Bloom filter."""
    protocol = local.BloomRappor(bits=8, hashes=2, cohorts=3, f=0.5, p=0.25, q=0.75)
    # A bit that is set stays with 1 - f/2, then says yes with q, else with p.
    own, other = 0.75 * 0.75 + 0.25 * 0.25, 0.25 * 0.75 + 0.75 * 0.25
    laws = []
    for text in ("pear", "plum"):
        law = []
        for cohort in range(3):
            mine = set(protocol.filter_of(text, cohort=cohort).tolist())
            for bits in itertools.product((0, 1), repeat=8):
                chances = [own if i in mine else other for i in range(8)]
                law.append(math.prod(c if bit else 1 - c for c, bit in zip(chances, bits, strict=True)) / 3)
        laws.append([mpmath.mpf(p) for p in law])
    agrees(audit.exact(protocol, neighbours=("pear", "plum")), deltas(*laws))


def test_parallel_parts_are_factors() -> None:
    noisy = mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1)
    both = mechanisms.Parallel.by_value([noisy, noisy], unit=Unit.row())
    found, alone = audit.exact(both, neighbours=((0, 4), (1, 4))), audit.exact(noisy, neighbours=(0, 1))
    assert found.delta(epsilon=EPSILONS) == pytest.approx(alone.delta(epsilon=EPSILONS), abs=1e-12)


# -- equal to what is claimed, where we claim exactness ----------------------------------------------------------------

SHARP: list[tuple[str, Any, tuple[Any, Any]]] = [
    ("discrete Laplace", mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1), (0, 1)),
    ("discrete Laplace, 3", mechanisms.DiscreteLaplace(sensitivity=3, epsilon=1), (0, 3)),
    ("discrete Gaussian", mechanisms.DiscreteGaussian(sensitivity=1, sigma=2), (0, 1)),
    ("Poisson", mechanisms.PoissonMechanism.linear(low=2, high=5), (0, 1)),
    ("staircase", mechanisms.Staircase(sensitivity=3, epsilon=1), (0, 3)),
    ("histogram, added", mechanisms.Histogram(categories=["a", "b"], unit=Unit.row(), epsilon=1), (["a"], ["a", "b"])),
    ("histogram, replaced", mechanisms.Histogram(categories=["a", "b"], unit=Unit.replaced_row(), epsilon=1), (["a"], ["b"])),
    ("product", mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1) ** 2, (0, 1)),
    ("binary median", mechanisms.BinaryInverseSensitivity.median(epsilon=1), ([0, 0, 1], [0, 1, 1])),
    ("RR", local.RandomizedResponse(epsilon=1.0), (True, False)),
    ("nu", local.NuRandomizedResponse(nu=0.4), (True, False)),
    ("Warner", local.WarnerSurvey(p=0.2), (True, False)),
    ("two coins", local.TwoCoinSurvey(truth=0.5, yes=0.3), (True, False)),
    ("k-ary", local.KaryRandomizedResponse(categories=7, epsilon=1.0), (2, 5)),
    ("optimized unary", local.OptimizedUnary(categories=7, epsilon=1.0), (2, 5)),
    ("symmetric unary", local.SymmetricUnary(categories=7, epsilon=1.0), (2, 5)),
    ("subsets", local.SubsetSelection(categories=9, epsilon=1.0), (2, 5)),
    ("hashing", local.LocalHashing(categories=9, epsilon=1.0), (2, 5)),
    ("RAPPOR", local.Rappor(categories=5, f=0.5, p=0.25, q=0.75), (0, 1)),
    ("count-mean sketch", local.CountMeanSketch(width=64, hashes=2, epsilon=1.0), ("pear", "fig")),
    ("Hadamard sketch", local.HadamardSketch(width=64, hashes=2, epsilon=1.0), ("pear", "fig")),
    ("Duchi", local.DuchiMean(low=0, high=1, epsilon=1.0), (0.0, 1.0)),
    ("piecewise", local.PiecewiseMean(low=0, high=1, epsilon=1.0), (0.0, 1.0)),
    ("hybrid", local.HybridMean(low=0, high=1, epsilon=1.0), (0.0, 1.0)),
    ("hybrid, small", local.HybridMean(low=0, high=1, epsilon=0.3), (0.0, 1.0)),
    ("Bloom", local.BloomRappor(bits=8, hashes=1, cohorts=4, f=0.5, p=0.25, q=0.75), ("pear", "fig")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "mechanism", "pair"), SHARP, ids=[name for name, _, _ in SHARP])
def test_the_claim_is_the_truth(name: str, mechanism: Any, pair: tuple[Any, Any]) -> None:
    found, claim = audit.exact(mechanism, neighbours=pair), mechanism.curve
    assert found.delta(epsilon=EPSILONS) == pytest.approx(claim.delta(epsilon=EPSILONS), abs=2e-12), name
    if claim.epsilon(delta=0.0) < math.inf:
        assert found.epsilon(delta=0.0) == pytest.approx(claim.epsilon(delta=0.0), abs=1e-9)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_nothing_of_ours_leaks_more_than_it_claims(case: Any) -> None:
    """Wherever the law is known: δ of the pair is at most the claimed one."""
    try:
        found = audit.exact(getattr(case.mechanism, "protocol", case.mechanism), neighbours=case.neighbours)
    except InvalidOperation as refused:
        assert "audit.measure" in str(refused)  # noqa: PT017
        return
    claim = case.mechanism.curve
    assert (found.delta_bounds(epsilon=EPSILONS)[0] <= claim.delta(epsilon=EPSILONS) + 1e-11).all()


# -- other ways in, and refusals -------------------------------------------------------------------------------------


class Coin:
    def law(self, value: int) -> dict[str, float]:
        return {"heads": 0.75, "tails": 0.25} if value else {"heads": 0.25, "tails": 0.75}


def test_a_law_of_your_own() -> None:
    assert audit.exact(Coin(), neighbours=(0, 1)).epsilon(delta=0.0) == pytest.approx(math.log(3))
    assert audit.exact(Coin(), neighbours=(1, 1)) == curves.identity()


def test_kernels_bring_their_neighbours() -> None:
    kernel = Kernel.of([[0.75, 0.25], [0.25, 0.75]])
    assert audit.exact(kernel).epsilon(delta=0.0) == pytest.approx(math.log(3))


def test_statistics_and_processing_go_along() -> None:
    noisy = mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1)
    asked = noisy.on(len).then(lambda y: y % 2)
    even = audit.exact(asked, neighbours=([1], [1, 2]))
    r = math.exp(-1)
    stays = (1 - r) / (1 + r) * (1 + 2 * r**2 / (1 - r**2))
    assert even.epsilon(delta=0.0) == pytest.approx(abs(math.log(stays / (1 - stays))), abs=1e-9)


@pytest.mark.parametrize(
    ("mechanism", "pair", "error"),
    [
        (mechanisms.Laplace(sensitivity=1.0, epsilon=1), (0.0, 1.0), InvalidOperation),
        (lambda value: value, (0, 1), InvalidOperation),
        (mechanisms.Median(bounds=(0, 4), epsilon=1, unit=Unit.row()), ([1], [2]), InvalidOperation),
        (mechanisms.NoisyMax(sensitivity=1, epsilon=1), None, InvalidParameter),
        (mechanisms.DiscreteLaplace(sensitivity=1, scale=1e6), (0, 1), InvalidOperation),
        (mechanisms.DiscreteLaplace(sensitivity=1, scale=1), (0, 10**6), InvalidOperation),
    ],
    ids=["real", "function", "median", "no pair", "wide", "apart"],
)
def test_what_is_not_known_is_refused(mechanism: Any, pair: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        audit.exact(mechanism, neighbours=pair)


def test_a_law_must_be_one() -> None:
    class Wrong:
        def law(self, value: int) -> dict[str, float]:
            return {"a": 0.5}

    with pytest.raises(InvalidDistribution):
        audit.exact(Wrong(), neighbours=(0, 1))


# -- what is done to an answer ---------------------------------------------------------------------------------------


def enumerated(law: Any, function: Any, pair: tuple[Any, Any]) -> list[float]:
    """δ in the worse direction, from a law of releases by outcome."""
    sides = []
    for value in pair:
        found: dict[Any, Any] = {}
        for outcome, mass in law(value).items():
            found[function(outcome)] = found.get(function(outcome), 0) + mass
        sides.append(found)
    p, q = sides
    keys = [*p, *(y for y in q if y not in p)]
    return deltas(*([side.get(y, 0) for y in keys] for side in (p, q)))


def test_processing_sees_the_release_of_a_threshold() -> None:
    """Release: the index of the first answer above, or None."""
    noisy = mechanisms.AboveThreshold(threshold=1, sensitivity=1, epsilon=1)

    def law(asked: Any) -> dict[Any, Any]:
        told = exact_laws.threshold(
            asked, at=1, threshold_scale=noisy.threshold_scale, answer_scale=noisy.answer_scale, positives=1
        )
        return {(y.index(True) if True in y else None): p for y, p in told.items()}

    pair = ([0, 0, 0], [1, 1, -1])
    agrees(audit.exact(noisy.then(lambda i: i == 2), neighbours=pair), enumerated(law, lambda i: i == 2, pair))
    agrees(audit.exact(noisy.then(lambda i: i is None), neighbours=pair), enumerated(law, lambda i: i is None, pair))
    several = mechanisms.SparseVector(threshold=1, sensitivity=1, epsilon=1, positives=2)
    found = audit.exact(several.then(len), neighbours=pair)
    assert 0 < found.epsilon(delta=0.0) <= audit.exact(several, neighbours=pair).epsilon(delta=0.0)
    assert audit.exact(several.then(lambda y: y), neighbours=pair).delta(epsilon=EPSILONS) == pytest.approx(
        audit.exact(several, neighbours=pair).delta(epsilon=EPSILONS), abs=1e-12
    )


def test_processing_sees_the_answers_of_inverse_sensitivity() -> None:
    noisy = mechanisms.InverseSensitivity.median(answers=range(10, 20), epsilon=2)
    pair = ([12, 13, 14], [12, 15, 14])

    def law(data: Any) -> dict[Any, Any]:
        return {y: mpmath.mpf(p) for y, p in zip(range(10, 20), noisy.probabilities(data).tolist(), strict=True)}

    agrees(audit.exact(noisy.then(lambda y: y >= 14), neighbours=pair), enumerated(law, lambda y: y >= 14, pair))
    assert audit.exact(noisy.then(lambda y: y >= 14), neighbours=pair).epsilon(delta=0.0) > 0.1


@pytest.mark.parametrize(
    ("mechanism", "pair"),
    [
        (mechanisms.Histogram(categories=(0, 1, 2), unit=Unit.row(), epsilon=1.0), ([0, 1, 2, 2], [0, 1, 2])),
        (mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1, dimension=2), ([0, 1], [0, 2])),
        (mechanisms.UnknownKeys(unit=Unit.row(), scale=2, threshold=5), (["a"] * 3, ["a"] * 4)),
        (mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1) ** 2, (0, 1)),
    ],
    ids=["histogram", "vector", "keys", "product"],
)
def test_processing_of_parts_is_refused(mechanism: Any, pair: Any) -> None:
    """The law is known part by part; what is done to the whole answer mixes them."""
    with pytest.raises(InvalidOperation, match=r"audit\.measure"):
        audit.exact(mechanism.then(lambda c: int(np.argmax(c))), neighbours=pair)


def test_processing_may_raise_or_give_lists() -> None:
    noisy = mechanisms.NoisyMax(sensitivity=1, epsilon=1)
    pair = ([0, 1, 1], [1, 0, 0])
    plain = audit.exact(noisy, neighbours=pair)
    assert audit.exact(noisy.then(lambda i: [i]), neighbours=pair).epsilon(delta=0.0) == pytest.approx(
        plain.epsilon(delta=0.0)
    )
    raised = audit.exact(noisy.then(lambda i: 1 / i), neighbours=pair)
    assert raised.epsilon(delta=0.0) == pytest.approx(plain.epsilon(delta=0.0))
    twice = audit.exact(noisy.then(lambda i: [i]).then(lambda i: i[0] == 0), neighbours=pair)
    once = audit.exact(noisy.then(lambda i: i == 0), neighbours=pair)
    assert twice.epsilon(delta=0.0) == pytest.approx(once.epsilon(delta=0.0))


PICK, CLOCK = mechanisms.NoisyMax(sensitivity=1, epsilon=1), itertools.count()


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda i: (i, random.random()), InvalidOperation),
        (lambda i: random.random() < 0.5, InvalidOperation),
        (lambda i: (i, next(CLOCK)), InvalidOperation),
        (lambda i: [i, object()], NotCertifiable),
        (lambda i: {"picked": lambda: i}, NotCertifiable),
        (lambda i: np.array([object(), i]), NotCertifiable),
    ],
    ids=["noise", "coin", "clock", "object", "function", "array"],
)  # fmt: skip
def test_processing_that_has_no_image_is_refused(function: Any, error: type[Exception]) -> None:
    """It was ε = ∞ for noise, as no two images were equal, and ε = 0 for what nobody can read, as all were. (A coin is
    thrown 60 times and more: all alike with 2⁻⁶⁰ at most.)
    """
    with worded(error):
        audit.exact(PICK.then(function), neighbours=([0, 1, 1], [1, 0, 0]))


def test_processing_may_give_nan_and_arrays() -> None:
    """Which are not equal to themselves, and are the same answer all the same. Iterators are read."""
    for function in (
        lambda i: math.nan if i else 0.0,
        lambda i: np.array([i == 0, math.nan]),
        lambda i: {"i": i == 0},
        lambda i: iter([i == 0]),
    ):
        found = audit.exact(PICK.then(function), neighbours=([0, 1, 1], [1, 0, 0]))
        assert found.epsilon(delta=0.0) == pytest.approx(0.7367, abs=1e-4)


class Words:
    def law(self, value: int) -> dict[str, float]:
        return {"above": 0.75, "below": 0.25} if value else {"above": 0.25, "below": 0.75}


def test_words_of_a_law_are_no_tails() -> None:
    from deniable.audit.exact_curve import pushed

    assert pushed(Words().law(1), str.upper) == {"ABOVE": 0.75, "BELOW": 0.25}


@pytest.mark.parametrize("pair", [(0.5, 1.5), ("a", "b"), ([1, 2], [1]), (None, 0), (True, False)], ids=str)
@pytest.mark.parametrize(
    "mechanism",
    [
        mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1), mechanisms.Staircase(sensitivity=3, epsilon=1),
        mechanisms.PoissonMechanism.linear(low=2, high=5), mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1, dimension=2),
    ],
    ids=lambda m: type(m).__name__,
)  # fmt: skip
def test_values_that_are_no_whole_numbers_are_refused(mechanism: Any, pair: Any) -> None:
    with pytest.raises(InvalidParameter):
        audit.exact(mechanism, neighbours=pair)


def test_frames_and_tensors_are_told_apart_by_all_they_hold() -> None:
    """By their looks, which leave most of a long one out, two outcomes were one, and ε was 0."""
    pandas, torch = pytest.importorskip("pandas"), pytest.importorskip("torch")

    def long(i: int) -> list[float]:
        return [0.0] * 2000 + [1e-9 * i] + [0.0] * 2000

    true = audit.exact(PICK, neighbours=([0, 1, 1], [1, 0, 0])).epsilon(delta=0.0)
    for function in (
        lambda i: pandas.DataFrame({"n": long(i)}),
        lambda i: torch.tensor(long(i), dtype=torch.float64),
        lambda i: pandas.Series(long(i)),
    ):
        found = audit.exact(PICK.then(function), neighbours=([0, 1, 1], [1, 0, 0]))
        assert found.epsilon(delta=0.0) == pytest.approx(true, rel=1e-9)
