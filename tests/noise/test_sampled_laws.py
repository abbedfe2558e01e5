"""Cumulative probabilities of every law against mpmath at 600 bits: enclosed, narrow, and reaching as far as asked."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mpf

from deniable.noise import integer_enclosures
from deniable.noise import sampled_laws as laws_module
from deniable.noise.inversion_table import PRECISION, REACH, WORD, InversionTable
from deniable.noise.sampled_laws import (
    BernoulliExpLaw,
    BernoulliLaw,
    BinomialLaw,
    DiscreteGaussianLaw,
    GaussianBlocks,
    GeometricBlocks,
    LaplaceBlocks,
    PoissonLaw,
    RoundedGaussianLaw,
    SampledLaw,
)
from tests.noise import exact
from tests.noise.exact import Exact, at_many_bits, real

F = Fraction
SCALES = [F(1, 10**6), F(1, 7), F(0.1), F(1), F(10, 3), F(63.999)]


def laws() -> list[tuple[str, SampledLaw, Exact]]:
    with at_many_bits():
        found: list[tuple[str, SampledLaw, Exact]] = []
        for b in SCALES:
            found.append((f"geometric-{float(b):g}", GeometricBlocks(b, 1), exact.geometric(b)))
            found.append((f"laplace-{float(b):g}", LaplaceBlocks(b, 1), exact.discrete_laplace(b)))
            found.append((f"gaussian-{float(b):g}", DiscreteGaussianLaw(b**2), exact.discrete_gaussian(b)))
            found.append((f"rounded-{float(b):g}", RoundedGaussianLaw(b), exact.rounded_gaussian(b)))
        for rate in [F(1e-300), F(1, 3), F(1), F(7.25), F(1000), F(123456.789)]:
            found.append((f"poisson-{float(rate):g}", PoissonLaw(rate), exact.poisson(rate)))
        for n, p in [(1, F(1, 3)), (1, F(0.9)), (2, F(1, 2)), (10, F(1e-20)), (64, F(1, 2)), (300, F(0.97))]:
            found.append((f"binomial-{n}-{float(p):g}", BinomialLaw(n, p), exact.binomial(n, p)))
        for p in [F(0), F(1, 3), F(0.1), F(1), F(1, 2**80)]:
            found.append((f"bernoulli-{float(p):g}", BernoulliLaw(p), exact.binomial(1, p)))
        return found


def checked(first: int, count: int) -> list[int]:
    """Values to look at: all of a short law; the ends, the middle and some others of a long one."""
    if count <= 120:
        return list(range(first, first + count))
    some = np.linspace(0, count - 1, 60).astype(int).tolist()
    return [
        first + i
        for i in sorted({*range(12), *range(count // 2 - 12, count // 2 + 12), *range(count - 12, count), *some})
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("law", "truth"), [pytest.param(law, truth, id=name) for name, law, truth in laws()])
@pytest.mark.parametrize(("bits", "reach"), [(PRECISION, REACH), (192, 192), (64, 20)])
def test_cumulative_probabilities_are_enclosed(law: SampledLaw, truth: Exact, bits: int, reach: int) -> None:
    found = law.cumulative(bits, reach)
    assert len(found.lows) == len(found.highs)
    assert found.lows == sorted(found.lows)
    assert found.highs == sorted(found.highs)
    with at_many_bits():
        unit = mpf(2) ** bits
        for k in checked(found.first, len(found.lows)):
            low, high = found.lows[k - found.first], found.highs[k - found.first]
            assert low <= truth.cumulative(k) * unit <= high
            assert high - low <= 4
        if found.open_below:
            assert truth.cumulative(found.first) <= mpf(2) ** -reach * 1.01
        else:
            assert truth.cumulative(found.first - 1) == 0
        last = found.first + len(found.lows) - 1
        if found.open_above:
            assert 1 - truth.cumulative(last) <= mpf(2) ** -reach * 1.01
        else:
            assert abs(truth.cumulative(last + 1) - 1) < mpf(2) ** -500


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "truth"), [pytest.param(law, truth, id=name) for name, law, truth in laws() if "bernoulli" not in name]
)
def test_thresholds_recomputed_at_many_bits(law: SampledLaw, truth: Exact) -> None:
    """floor(F(k) 2^64), or one less where the table says that the word above is undecided too."""
    table = InversionTable(law)
    assert table._width <= 1
    with at_many_bits():
        for k in checked(table._first, len(table._thresholds)):
            word = min(int(truth.cumulative(k) * mpf(2) ** WORD), 2**WORD - 1)  # 600 bits take 1 - 2^-700 for 1
            assert 0 <= word - table._thresholds[k - table._first] <= table._width


@pytest.mark.slow
@pytest.mark.parametrize(("law", "truth"), [pytest.param(law, truth, id=name) for name, law, truth in laws()])
def test_enclosures_hold_without_guard_bits(law: SampledLaw, truth: Exact, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guard bits make enclosures narrow. That they hold is due to the counted errors alone: they hold with none."""
    for module in (integer_enclosures, laws_module):
        monkeypatch.setattr(module, "GUARD", 0)
    monkeypatch.setattr(laws_module, "normal_integral", integer_enclosures.NormalIntegral)
    found = law.cumulative(96, 40)
    with at_many_bits():
        for k in checked(found.first, len(found.lows)):
            assert found.lows[k - found.first] <= truth.cumulative(k) * mpf(2) ** 96 <= found.highs[k - found.first]


@pytest.mark.parametrize("scale", [F(64), F(100.5), F(127.99)])
@pytest.mark.parametrize("block", [2, 4, 64])
def test_blocks_of_a_law_are_sums_of_its_values(scale: Fraction, block: int) -> None:
    with at_many_bits():
        for law, truth in [
            (GeometricBlocks(scale, block), exact.geometric(scale)),
            (LaplaceBlocks(scale, block), exact.discrete_laplace(scale)),
        ]:
            found = law.cumulative(128, 65)
            for j in checked(found.first, len(found.lows)):
                value = truth.cumulative(block * j + block - 1) * mpf(2) ** 128  # floor(X/block) <= j
                assert found.lows[j - found.first] <= value <= found.highs[j - found.first]


@pytest.mark.parametrize("sigma", [F(1, 5), F(32), F(45.25)])
def test_a_bell_over_blocks(sigma: Fraction) -> None:
    """Weight e^(-j²/(2 sigma²)) for j and for -1 - j alike."""
    found = GaussianBlocks(sigma**2).cumulative(128, 65)
    with at_many_bits():
        half = [exact.mpmath.exp(-(mpf(j) ** 2) / (2 * real(sigma) ** 2)) for j in range(int(sigma * 40) + 40)]
        sums = [*itertools.accumulate([*reversed(half), *half])]
        for j in range(found.first, found.first + len(found.lows)):
            share = sums[j + len(half)] / sums[-1] * mpf(2) ** 128
            rounding = mpf(2) ** -400  # one half is exact in the law, and here to 600 bits
            assert found.lows[j - found.first] - rounding <= share <= found.highs[j - found.first] + rounding


@pytest.mark.parametrize("x", [F(0), F(1e-30), F(1, 2), F(3), F(200)])
def test_a_coin_with_an_exponential_chance(x: Fraction) -> None:
    found = BernoulliExpLaw(x).cumulative(128, 65)
    with at_many_bits():
        assert found.lows[0] <= (1 - exact.mpmath.exp(-real(x))) * mpf(2) ** 128 <= found.highs[0]


def test_a_law_reaches_further_when_asked() -> None:
    near = LaplaceBlocks(F(1), 1).cumulative(128, 64)
    far = LaplaceBlocks(F(1), 1).cumulative(1024, 1024)
    assert far.first < near.first - 600
