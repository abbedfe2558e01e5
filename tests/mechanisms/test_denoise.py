"""Denoising: closed forms, and mean square errors by simulation with a fixed size and a stated false-alarm rate."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from deniable.errors import InvalidParameter
from deniable.mechanisms import denoise

ROUNDS = 20_000
REACH = 6.2  # standard errors: a normal mean is farther off once in 10⁹ runs


def square_errors(truth: np.ndarray, sigma: float, estimate, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    noisy = truth + sigma * rng.normal(size=(ROUNDS, len(truth)))
    return np.array([np.sum((estimate(row) - truth) ** 2) for row in noisy])


def plain(row: np.ndarray, sigma: float) -> np.ndarray:
    """James and Stein without the positive part, by the formula."""
    return (1 - (len(row) - 2) * sigma**2 / (row @ row)) * row


@pytest.mark.slow
@pytest.mark.parametrize("length", [0.0, 2.0, 9.0])
def test_the_error_of_plain_shrinking_is_the_closed_form(length: float):
    truth = np.full(10, length / math.sqrt(10))
    errors = square_errors(truth, 1.5, lambda row: plain(row, 1.5), seed=1)
    expected = denoise.shrunk_error(length=length, sigma=1.5, dimension=10)
    assert abs(errors.mean() - expected) <= REACH * errors.std() / math.sqrt(ROUNDS)
    # 5 % more would be seen.
    assert 0.05 * expected > REACH * errors.std() / math.sqrt(ROUNDS) or length == 0


@pytest.mark.slow
@pytest.mark.parametrize(("towards", "offset"), [("zero", 0.0), ("zero", 1.0), ("mean", 50.0)])
def test_shrinking_is_never_worse_than_the_release(towards: str, offset: float):
    truth = offset + np.linspace(-1, 1, 12)
    errors = square_errors(truth, 1.0, lambda row: denoise.shrink(row, sigma=1.0, towards=towards), seed=2)
    assert errors.mean() + REACH * errors.std() / math.sqrt(ROUNDS) < 12


def test_few_numbers_are_left_alone_and_small_ones_go_to_the_centre():
    assert denoise.shrink([1.0, 5.0], sigma=1.0).tolist() == [1.0, 5.0]
    assert denoise.shrink([0.1, -0.1, 0.05], sigma=1.0).tolist() == [0.0, 0.0, 0.0]
    assert denoise.shrink([7.1, 6.9, 7.0, 7.0], sigma=1.0, towards="mean") == pytest.approx([7.0] * 4)
    # The mean takes one more number: of these four, 14 away from it in square, (4 - 3)/14 is shrunk.
    by_hand = [3 + 13 / 14 * away for away in (-2, -1, 0, 3)]
    assert denoise.shrink([1.0, 2.0, 3.0, 6.0], sigma=1.0, towards="mean") == pytest.approx(by_hand)


def test_projection_is_nearest_and_brings_no_truth_farther_away():
    rng = np.random.default_rng(3)
    for _ in range(200):
        noisy, total = rng.normal(2, 4, size=6), float(rng.uniform(0, 20))
        found = denoise.projected(noisy, total=total)
        assert found.min() >= 0
        assert found.sum() == pytest.approx(total, abs=1e-9)
        for truth in rng.dirichlet(np.ones(6), size=20) * total:
            assert np.linalg.norm(found - truth) <= np.linalg.norm(noisy - truth) + 1e-9
            # nearest: the angle at the projection is not acute
            assert (noisy - found) @ (truth - found) <= 1e-9
    assert denoise.projected([3.0, -1.0]).tolist() == [3.0, 0.0]
    assert denoise.projected([-5.0, -6.0], total=0.0).tolist() == [0.0, 0.0]


def test_bad_arguments_are_refused():
    for wrong in (lambda: denoise.shrink([], sigma=1), lambda: denoise.shrink([1.0], sigma=0),
                  lambda: denoise.shrink([1.0], sigma=1, towards="up"), lambda: denoise.projected([1.0], total=-1)):  # fmt: skip
        with pytest.raises(InvalidParameter):
            wrong()


def test_whole_counts_are_the_nearest_that_add_up() -> None:
    """Against all vectors of whole numbers with that total; random noisy counts, the seed is printed."""
    seed = int(np.random.default_rng().integers(2**32))
    rng = np.random.default_rng(seed)
    for _ in range(150):
        size, total = int(rng.integers(1, 5)), int(rng.integers(0, 8))
        noisy = rng.normal(total / size, 3, size)
        found = denoise.whole(noisy, total=total)
        assert found.sum() == total, seed
        assert found.min() >= 0, seed
        least = min(
            sum((a - b) ** 2 for a, b in zip(each, noisy, strict=True))
            for each in itertools.product(range(total + 1), repeat=size)
            if sum(each) == total
        )
        assert ((found - noisy) ** 2).sum() == pytest.approx(least), seed
    assert denoise.whole([3.0, 0.0, 2.0], total=5).tolist() == [3, 0, 2]
    with pytest.raises(InvalidParameter, match="total"):
        denoise.whole([1.0], total=-1)


@pytest.mark.parametrize("sigma", [0.5, 3.0])
@pytest.mark.parametrize("length", [0.3, 2.0, 40.0])
def test_the_error_of_shrinking_four_numbers_is_elementary(length: float, sigma: float) -> None:
    """With m = ‖θ‖²/2σ²: E 1/(2 + 2K) = (1 - e^-m)/2m for K ~ Poisson(m)."""
    m = length**2 / (2 * sigma**2)
    truth = sigma**2 * (4 + 2 * math.expm1(-m) / m)
    assert denoise.shrunk_error(length=length, sigma=sigma, dimension=4) == pytest.approx(truth, rel=1e-9)
