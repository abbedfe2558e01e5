"""Compiled exact noise: the same draws as the sampler's, bit for bit, whichever test decides them."""

from __future__ import annotations

import ctypes
import itertools
from fractions import Fraction

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytest.importorskip("llvmlite", reason="llvmlite is not installed: pip install llvmlite==0.50.0")
pytestmark = pytest.mark.torch

import numpy as np  # noqa: E402

from deniable import learn, noise  # noqa: E402
from deniable.learn.torch import ExactNoise  # noqa: E402
from deniable.learn.torch import gradient_noise as gradient_noise_module  # noqa: E402
from deniable.learn.torch.kernels.grid_noise_kernel import GridNoise, on_grid  # noqa: E402
from deniable.noise import ReplayEntropy  # noqa: E402
from deniable.noise.inversion_table import UNDECIDED  # noqa: E402
from deniable.noise.wide_noise import WideRoundedGaussian, _at_least, _at_most  # noqa: E402
from tests.noise.exact import ChosenFirst  # noqa: E402

SPACING = 2.0**-31
SIGMAS = [Fraction(64), Fraction(1000, 3), Fraction(2**31 + 5), Fraction(2**36)]


def of(sigma):
    sampler = WideRoundedGaussian(Fraction(sigma))
    compiled = GridNoise.of(sampler)
    assert compiled is not None
    return sampler, compiled


def by_sampler(sampler, numbers, spacing, entropy):
    drawn = np.empty(numbers.size, dtype=np.int64)
    sampler.fill(drawn, entropy)
    return ((on_grid(numbers, spacing) + drawn) * spacing).astype(np.float32)


def on_a_fine_grid(count):
    """Zeros: the draws themselves, as far as single precision shows them."""
    return np.zeros(count, dtype=np.float32)


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
@pytest.mark.parametrize("count", [1, 15, 16, 17, 1000, 2**15 + 3])
def test_draws_are_the_samplers_bit_for_bit(sigma, count):
    sampler, compiled = of(sigma)
    for numbers in (on_a_fine_grid(count), np.linspace(-3, 3, count, dtype=np.float32)):
        expected = by_sampler(sampler, numbers, SPACING, ReplayEntropy(count))
        compiled.add([numbers], SPACING, ReplayEntropy(count))
        assert np.array_equal(numbers, expected)


@pytest.mark.slow
def test_a_million_draws_are_the_samplers_bit_for_bit():
    sampler, compiled = of(2**31 + 5)
    numbers = np.random.default_rng(0).standard_normal(1_000_003).astype(np.float32)
    expected = by_sampler(sampler, numbers, SPACING, ReplayEntropy(5))
    compiled.add([numbers], SPACING, ReplayEntropy(5))
    assert np.array_equal(numbers, expected)


def _joined(cells, words, more):
    """The words of entropy for one chunk: cells of 16 bits, second words, and more bits for unknown blocks."""
    padded = [*cells, *[0] * (-len(cells) % 4)]
    packed = [sum(cell << 16 * k for k, cell in enumerate(padded[at : at + 4])) for at in range(0, len(padded), 4)]
    return [*packed, *words, *more]


def test_draws_at_the_edge_of_a_decision_are_the_samplers():
    """u next to both bounds of e^-y, in blocks near and far, at both ends: kept, rejected, and left to exact integers."""
    sampler, compiled = of(2**31 + 5)
    guide = sampler._blocks.guide()
    known = np.flatnonzero(guide != UNDECIDED)
    cells, words = [], []
    for cell, place in itertools.product(known[:: len(known) // 40].tolist(), [0, 1, 2**31, 2**32 - 1]):
        low, high = sampler._exponents(int(guide[cell]), place)
        for u in (_at_least(high) - 2, _at_least(high) - 1, _at_least(high), _at_most(low) - 1, _at_most(low)):
            if 0 <= u < 2**32:
                cells.append(cell)
                words.append(place << 32 | (u & 0xFFFF) << 16 | u >> 16)
    settled, is_open = [], []
    for cell, word in zip(cells, words, strict=True):
        low, high = sampler._exponents(int(guide[cell]), word >> 32)
        u = (word & 0xFFFF) << 16 | word >> 16 & 0xFFFF
        is_open.append(_at_least(high) <= u < _at_most(low))
    sampler_settled = WideRoundedGaussian.settled
    numbers, entropy = on_a_fine_grid(len(cells)), _joined(cells, words, [])
    expected = by_sampler(sampler, numbers, SPACING, ChosenFirst(entropy))

    class Counted:
        def settled(self, *given):
            settled.append(given)
            return sampler_settled(sampler, *given)

    compiled._sampler = Counted()
    compiled.add([numbers], SPACING, ChosenFirst(entropy))
    left = [word for word, is_left in zip(words, is_open, strict=True) if is_left]
    assert len(left) > 100
    assert [word for _, _, word, _ in settled[: len(left)]] == left  # these alone come to exact integers
    assert np.array_equal(numbers, expected)


def test_blocks_at_a_threshold_are_the_samplers():
    """The 64 bits of u at a threshold and next to it, also in the far tails."""
    sampler, compiled = of(2**31 + 5)
    thresholds, _, width = sampler._blocks.thresholds()
    guide = sampler._blocks.guide()
    cells, more = [], []
    for threshold in thresholds[::7].tolist():
        for word in (threshold - 1, threshold, threshold + width, threshold + width + 1):
            if 0 <= word < 2**64 and guide[word >> 48] == UNDECIDED:
                cells.append(word >> 48)
                more.append((word & 2**48 - 1) << 16)
    for cell, rest in ((0, 0), (0, 2**64 - 1), (2**16 - 1, 0), (2**16 - 1, 2**64 - 1)):
        cells.append(cell)
        more.append(rest)
    words = ReplayEntropy(3).words(len(cells)).tolist()
    numbers, entropy = on_a_fine_grid(len(cells)), _joined(cells, words, more)
    expected = by_sampler(sampler, numbers, SPACING, ChosenFirst(entropy))
    compiled.add([numbers], SPACING, ChosenFirst(entropy))
    assert len(cells) > 200
    assert np.array_equal(numbers, expected)


def test_one_look_accepts_what_the_exact_test_would_accept_and_sets_the_rest_aside():
    """The largest 16 bits of u that the first kernel may accept by its rule, and one more."""
    sampler, compiled = of(2**31 + 5)
    guide = sampler._blocks.guide()
    sure = compiled._tables.cells & 0xFFFF
    cells, words, is_left = [], [], []
    for cell in np.flatnonzero(guide != UNDECIDED)[::499].tolist():
        for place in (0, 2**16 - 1, 2**16, 2**31, 2**32 - 1):
            t16 = (place ^ (2**32 - 1 if guide[cell] < 0 else 0)) >> 16
            lost = -(-(2**16 - int(sure[cell])) * (t16 + 1) // 2**16)
            most = 2**16 - lost - 1
            assert most << 16 | 0xFFFF < _at_least(sampler._exponents(int(guide[cell]), place)[1])
            for u, left in ((most, False), (most + 1, True)):
                if u < 2**16:
                    cells.append(cell)
                    words.append(place << 32 | 0xFFFF << 16 | u)
                    is_left.append(left)
    count = len(cells) // 16 * 16  # whole vectors: those behind them are always set aside
    seen = []
    examine = compiled._examine

    class Seen:
        def run(self, *given):
            seen.append(np.ctypeslib.as_array((ctypes.c_int64 * given[12]).from_address(given[1])).tolist())
            examine.run(*given)

    compiled._examine = Seen()
    entropy = ChosenFirst(_joined(cells[:count], words[:count], []))
    compiled.add([on_a_fine_grid(count)], SPACING, entropy)
    assert seen[0] == np.flatnonzero(is_left[:count]).tolist()


def test_numbers_that_are_not_finite_or_too_far():
    """NaN counts as 0; what is beyond ±2⁶² steps counts as ±2⁶² steps."""
    sampler, compiled = of(2**31 + 5)
    numbers = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, -0.0] * 6, dtype=np.float32)
    expected = by_sampler(sampler, numbers, SPACING, ReplayEntropy(1))
    compiled.add([numbers], SPACING, ReplayEntropy(1))
    assert np.isfinite(numbers).all()
    assert np.array_equal(numbers, expected)
    assert np.array_equal(np.sign(numbers[1:5]), [1, -1, 1, -1])
    assert abs(numbers[0]) < 40  # noise around 0


def test_noise_too_wide_for_32_bits_is_left_to_the_sampler():
    assert GridNoise.of(WideRoundedGaussian(Fraction(2**50))) is None


def test_rejected_draws_of_several_arrays_are_drawn_again_together():
    """No number is left without noise, and none gets it twice: false alarms below 1e-9."""
    _, compiled = of(2**31)
    parts = [np.zeros(size, dtype=np.float32) for size in (100_003, 7, 0, 50_000)]
    compiled.add(parts, SPACING, ReplayEntropy(2))
    drawn = np.concatenate(parts).astype(np.float64)
    assert (drawn != 0).all()
    assert abs(drawn.var() - 1) < 6.2 * (2 / drawn.size) ** 0.5
    assert abs(drawn.mean()) < 6.2 / drawn.size**0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_training_adds_the_same_noise_with_and_without_compilation(dtype, monkeypatch):
    plan = learn.DPSGD(clip=0.7, rate=0.5, steps=3, noise=1.3)
    made = []
    for compiled in (True, False):
        if not compiled:
            monkeypatch.setattr(gradient_noise_module, "_compiled", lambda width: None)
        exact = ExactNoise(entropy=noise.ReplayEntropy(4))
        exact.open(plan, 5_000)
        made.append(exact.add([torch.linspace(-1, 1, 5_000, dtype=dtype)])[0])
    assert torch.equal(*made)
    assert not torch.equal(made[0], torch.linspace(-1, 1, 5_000, dtype=dtype))
