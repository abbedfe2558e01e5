"""Samples for replaced neighbours and samples with replacement, against exact enumeration and integrals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from deniable import audit, curves
from deniable.curves import Curve
from deniable.curves.atoms import replaced_samples
from deniable.errors import InvalidParameter
from tests.wording import worded

ROWS = [[8, 3, 1], [4, 6, 2], [2, 6, 4], [1, 3, 8]]
TABLE = [[Fraction(w, 12) for w in row] for row in ROWS]
"""The law of three outputs for each sum of the bits in a sample."""

Law = list[Fraction]
Samples = Callable[[tuple[int, ...]], Iterator[tuple[tuple[int, ...], Fraction]]]


def step(size: int) -> Curve:
    """The curve of the table for one bit replaced, in samples of at most `size` bits."""
    pairs = [(TABLE[s], TABLE[s + 1]) for s in range(size)]
    return curves.worst_of(*(curves.from_pmf([float(p) for p in a], [float(q) for q in b]) for a, b in pairs))


def without_replacement(size: int) -> Samples:
    def samples(data: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Fraction]]:
        every = list(itertools.combinations(range(len(data)), size))
        for places in every:
            yield tuple(data[i] for i in places), Fraction(1, len(every))

    return samples


def with_replacement(size: int) -> Samples:
    def samples(data: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Fraction]]:
        for sample in itertools.product(data, repeat=size):
            yield sample, Fraction(1, len(data) ** size)

    return samples


def coins(rate: Fraction) -> Samples:
    def samples(data: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Fraction]]:
        for taken in itertools.product((0, 1), repeat=len(data)):
            chance = math.prod((rate if t else 1 - rate for t in taken), start=Fraction(1))
            yield tuple(bit for bit, t in zip(data, taken, strict=True) if t), chance

    return samples


def outputs(samples: Samples, data: tuple[int, ...]) -> Law:
    found = [Fraction(0)] * 3
    for sample, chance in samples(data):
        for o, p in enumerate(TABLE[sum(sample)]):
            found[o] += chance * p
    return found


def worst(samples: Samples, people: int, odds: Fraction, *, added: bool) -> float:
    """The largest δ over all data of so many people (with the one who is added) and all neighbours, exactly."""
    found = Fraction(0)
    for others in itertools.product((0, 1), repeat=people - 1):
        laws = [outputs(samples, (*others, bit)) for bit in (0, 1)]
        pairs = [(each, outputs(samples, others)) for each in laws] if added else [(laws[0], laws[1])]
        for one, two in pairs:
            for p, q in ((one, two), (two, one)):
                found = max(
                    found, sum((max(a - odds * b, Fraction(0)) for a, b in zip(p, q, strict=True)), Fraction(0))
                )
    return float(found)


ODDS = [Fraction(1), Fraction(21, 20), Fraction(6, 5), Fraction(3, 2)]


@pytest.mark.parametrize("neighbours", ["replaced", "added"])
@pytest.mark.parametrize(("size", "people"), [(1, 3), (2, 4), (3, 5)])
def test_samples_of_fixed_size_leak_at_most_the_curve(size: int, people: int, neighbours: str) -> None:
    base = step(size)
    curve = base.sampled_without_replacement(size=size, population=people, neighbours=neighbours)
    again = base.sampled_with_replacement(size=size, population=people, neighbours=neighbours)
    for odds in ODDS:
        for each, samples in ((curve, without_replacement(size)), (again, with_replacement(size))):
            exact = worst(samples, people, odds, added=neighbours == "added")
            assert exact <= each.delta(epsilon=math.log(odds)) * (1 + 1e-9) + 1e-15


def test_one_draw_is_exact_however_it_is_drawn() -> None:
    base = step(1)
    for neighbours in ("replaced", "added"):
        found = [
            getattr(base, name)(size=1, population=3, neighbours=neighbours).delta(epsilon=0.05)
            for name in ("sampled_without_replacement", "sampled_with_replacement")
        ]
        assert found[0] == pytest.approx(found[1], rel=1e-9)
        if neighbours == "replaced":
            exact = worst(without_replacement(1), 3, Fraction(21, 20), added=False)
            assert base.sampled_without_replacement(size=1, population=3).delta(
                epsilon=math.log(1.05)
            ) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("neighbours", ["replaced", "added"])
def test_a_tied_curve_of_a_replaced_person_holds_in_both_orders(neighbours: str) -> None:
    """`tied` orders the neighbours with and without a person. A replaced person has no such order."""
    one, two = (
        [Fraction(3, 10), Fraction(3, 10), Fraction(4, 10)],
        [Fraction(1, 100), Fraction(49, 100), Fraction(1, 2)],
    )
    odds = Fraction(27, 20)
    # One of four people is drawn. The others have the answer of one law, the person that of the other law.
    ahead, back = ([(3 * a + b) / 4 for a, b in zip(p, q, strict=True)] for p, q in ((one, two), (two, one)))
    pairs = [(ahead, one), (one, ahead), (back, two), (two, back)]
    truth = max(sum(max(a - odds * b, Fraction(0)) for a, b in zip(p, q, strict=True)) for p, q in pairs)
    for order in ((one, two), (two, one)):
        base = curves.from_pmf(*([float(p) for p in law] for law in order), tied=True)
        for name in ("sampled_without_replacement", "sampled_with_replacement"):
            curve = getattr(base, name)(size=1, population=4, neighbours=neighbours)
            assert curve.delta(epsilon=math.log(odds)) >= truth * (1 - Fraction(1, 10**9))
        once = base.sampled_with_replacement(size=1, population=1)
        assert once.forward.delta_bounds(epsilon=0.3) == once.backward.delta_bounds(epsilon=0.3)


@pytest.mark.parametrize("rate", [Fraction(1, 4), Fraction(1, 2)])
def test_coins_with_one_person_replaced_leak_at_most_the_curve(rate: Fraction) -> None:
    """A bit moves the sum by one or not at all, so both curves of the table are those of one bit replaced."""
    base = step(3)
    curve = base.sampled(rate=float(rate), replaced=base)
    nearly = base.sampled(rate=float(rate), replaced=curves.worst_of(base, curves.pure(epsilon=1e-9)))
    for odds in ODDS:
        exact = worst(coins(rate), 3, odds, added=False)
        assert exact <= curve.delta(epsilon=math.log(odds)) * (1 + 1e-12)
        assert exact <= nearly.delta(epsilon=math.log(odds)) * (1 + 1e-12)


def opposite(sigma: float, rate: float, epsilon: float) -> mp.mpf:
    """δ of (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1), noise σ, by quadrature."""

    def gap(z: mp.mpf) -> mp.mpf:
        nobody, one, two = (mp.npdf(z, m, sigma) for m in (0, 1, -1))
        return max(mp.mpf(0), (1 - rate) * nobody + rate * one - mp.exp(epsilon) * ((1 - rate) * nobody + rate * two))

    with mp.workdps(30):
        low, high = mp.mpf(-20), mp.mpf(20)
        for _ in range(90):
            middle = (low + high) / 2
            low, high = (middle, high) if gap(middle) == 0 else (low, middle)
        return mp.quad(gap, [high, high + sigma, high + 4 * sigma, 15 * sigma + 2])


@pytest.mark.parametrize(
    ("sigma", "rate", "epsilon"), [(1, 0.01, 0.0), (1, 0.01, 0.3), (2, 0.5, 0.4), (0.6, 0.001, 0.02)]
)
def test_replaced_gaussian_samples_are_the_integral(sigma: float, rate: float, epsilon: float) -> None:
    curve = curves.gaussian(sigma=sigma).sampled(rate=rate, replaced=curves.gaussian(sigma=sigma / 2))
    low, high = curve.delta_bounds(epsilon=epsilon)
    assert low * (1 - 1e-9) <= opposite(sigma, rate, epsilon) <= high * (1 + 1e-9)
    assert high - low <= 1e-8 * high


@pytest.mark.parametrize("rate", [0.01, 0.25, 0.9])
def test_at_epsilon_0_only_the_replaced_person_counts(rate: float) -> None:
    """The distance of the samples is exactly rate × the distance of the mechanism for one person replaced."""
    one, two = curves.laplace(scale=1), curves.laplace(scale=0.5)
    delta = one.sampled(rate=rate, replaced=two).delta(epsilon=0)
    assert delta >= rate * -math.expm1(-1) * (1 - 1e-14)
    assert delta <= 1.3 * rate * -math.expm1(-1)


def test_everybody_sampled_is_the_worse_direction() -> None:
    two = curves.from_pmf([0.5, 0.3, 0.2], [0.2, 0.2, 0.6], tied=True)
    whole = two.sampled(rate=1, replaced=two)
    assert whole.is_symmetric
    assert whole.delta(epsilon=0.3) == two.delta(epsilon=0.3)


def test_no_other_pair_of_gradients_is_worse() -> None:
    """Random pairs of vectors in the plane: the integral over a grid stays below the curve."""
    rate, random = 0.2, np.random.default_rng(3)
    curve = curves.gaussian(sigma=1).sampled(rate=rate, replaced=curves.gaussian(sigma=0.5))
    axis = np.linspace(-9, 9, 361)
    x, y = np.meshgrid(axis, axis)

    def density(m: np.ndarray) -> np.ndarray:
        return np.exp(-((x - m[0]) ** 2 + (y - m[1]) ** 2) / 2) / (2 * np.pi) * (axis[1] - axis[0]) ** 2

    nobody = (1 - rate) * density(np.zeros(2))
    for _ in range(12):
        one, two = (v / max(1.0, float(np.hypot(*v))) for v in random.normal(size=(2, 2)) * 1.5)
        p, q = nobody + rate * density(one), nobody + rate * density(two)
        for epsilon in (0.0, 0.1, 0.4):
            assert np.sum(np.maximum(p - math.exp(epsilon) * q, 0)) <= curve.delta(epsilon=epsilon) * (1 + 1e-3)


def test_products_of_replaced_samples_are_two_sided_and_cost_more_than_removals() -> None:
    one = curves.gaussian(sigma=1)
    low, high = (one.sampled(rate=0.01, replaced=curves.gaussian(sigma=0.5)) ** 1000).epsilon_bounds(delta=1e-6)
    assert 3.2140 < low < high < 3.2145  # an FFT on a fine grid of losses has 3.2142
    assert (one.sampled(rate=0.01) ** 1000).epsilon(delta=1e-6) < low


def test_the_auditor_refutes_only_removals_taken_for_replacements() -> None:
    """Answers of replaced people: the curve for replacements holds, and the one for removals is refuted."""
    random = np.random.default_rng(8)

    class Step:
        def many(self, value: float, count: int) -> np.ndarray:
            return random.normal(size=count) * 0.5 + value * (random.random(count) < 0.5)

        def release(self, value: float) -> float:
            return float(self.many(value, 1)[0])

    one, two = curves.gaussian(sigma=0.5), curves.gaussian(sigma=0.25)
    question = {"neighbours": (-1.0, 1.0), "trials": 20_000, "confidence": 1 - 1e-9, "delta": 0.1}
    assert not audit.measure(Step(), claim=one.sampled(rate=0.5, replaced=two), **question).refuted
    assert audit.measure(Step(), claim=one.sampled(rate=0.5), **question).refuted


@pytest.mark.parametrize("neighbours", ["added", "replaced"])
def test_few_draws_of_pure_noise_stay_pure(neighbours: replaced_samples.Neighbours) -> None:
    """Rounding errors of the weights counted as a failure of probability 1e-13, so that ε at δ = 0 was infinite."""
    one = curves.laplace(scale=2)
    drawn = one.sampled_with_replacement(size=3, population=10, neighbours=neighbours)
    assert drawn.epsilon(delta=0) <= math.log1p(0.271 * math.expm1(1.5)) * (1 + 1e-9)
    many = curves.gaussian(sigma=4).sampled_with_replacement(size=40, population=100, neighbours=neighbours)
    assert many.epsilon(delta=1e-15) < 30
    assert many.epsilon(delta=1e-46) == math.inf


@pytest.mark.parametrize(("draws", "people"), [(3, 10), (40, 100), (10**4, 10**5), (5, 2), (2000, 10)])
def test_repeats_are_binomial(draws: int, people: int) -> None:
    rate, weights = replaced_samples._repeats(draws, people, min(draws, 8))
    exact = [
        Fraction(math.comb(draws, k) * (people - 1) ** (draws - k), people**draws) for k in range(min(draws, 8) + 1)
    ]
    assert Fraction(rate) >= 1 - exact[0]
    assert rate == pytest.approx(float(1 - exact[0]), rel=1e-15)
    assert weights == pytest.approx([float(p / (1 - exact[0])) for p in exact[1:]], rel=1e-15)


def test_records_and_expressions_read_back() -> None:
    curve = curves.laplace(scale=1).sampled(rate=0.25, replaced=curves.laplace(scale=0.5))
    assert Curve.from_dict(curve.to_dict()) == curve
    assert curves.parse(curve.expression()) == curve


def test_wrong_arguments_are_refused() -> None:
    one = curves.gaussian(sigma=1)
    with worded(InvalidParameter):
        one.sampled_with_replacement(size=1, population=3, neighbours="zeroed")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InvalidParameter, match="population"):
        one.sampled_without_replacement(size=4, population=3, neighbours="added")
    with pytest.raises(InvalidParameter, match="times"):
        one.sampled_with_replacement(size=10**6, population=3)
    with pytest.raises(InvalidParameter, match="replaced"):
        one.sampled(rate=0.5, replaced=0.5)  # type: ignore[arg-type]  # on purpose
