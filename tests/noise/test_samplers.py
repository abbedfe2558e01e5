"""Every sampler against its exact law, by chi-square with a false alarm of 1e-9, a fixed number of draws and no retries;
and the same test must reject a law that is wrong by 3 %.

The draws are replayed, so a test that passes once passes always. `make test-long` draws 10⁹ from the process's own
entropy.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from deniable import noise
from deniable.noise import ReplayEntropy, inversion_table, samplers, simple_samplers, weighted_choice
from deniable.testing import statistics
from tests.noise import exact
from tests.noise.exact import Exact, chi_square, chi_square_limit, chi_square_over

MILLION = 10**6
WRONG = Fraction(103, 100)

NARROW: list[tuple[str, Callable[..., Any], str, Callable[[Any], Exact], Fraction]] = [
    ("geometric", noise.geometric, "scale", exact.geometric, Fraction(7, 2)),
    ("geometric-short", noise.geometric, "scale", exact.geometric, Fraction(1, 2)),
    ("laplace", noise.discrete_laplace, "scale", exact.discrete_laplace, Fraction(1)),
    ("laplace-12", noise.discrete_laplace, "scale", exact.discrete_laplace, Fraction(12.34)),
    ("gaussian", noise.discrete_gaussian, "sigma", exact.discrete_gaussian, Fraction(4)),
    ("gaussian-short", noise.discrete_gaussian, "sigma", exact.discrete_gaussian, Fraction(1, 2)),
    ("gaussian-50", noise.discrete_gaussian, "sigma", exact.discrete_gaussian, Fraction(50)),
    ("rounded", noise.rounded_gaussian, "sigma", exact.rounded_gaussian, Fraction(2)),
    ("rounded-short", noise.rounded_gaussian, "sigma", exact.rounded_gaussian, Fraction(2, 5)),
    ("rounded-40", noise.rounded_gaussian, "sigma", exact.rounded_gaussian, Fraction(40.5)),
    ("poisson", noise.poisson, "rate", exact.poisson, Fraction(3.3)),
    ("poisson-200", noise.poisson, "rate", exact.poisson, Fraction(200)),
    ("laplace-blocks", noise.discrete_laplace, "scale", exact.discrete_laplace, Fraction(70)),
    ("geometric-blocks", noise.geometric, "scale", exact.geometric, Fraction(100)),
    ("gaussian-blocks", noise.discrete_gaussian, "sigma", exact.discrete_gaussian, Fraction(65)),
    ("rounded-blocks", noise.rounded_gaussian, "sigma", exact.rounded_gaussian, Fraction(64)),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "name", "law", "parameter"), [pytest.param(*case[1:], id=case[0]) for case in NARROW]
)
def test_draws_have_the_exact_law(sampler: Any, name: str, law: Callable[[Any], Exact], parameter: Fraction) -> None:
    """Value by value. The power: noise drawn 3 % too wide, or too narrow, is rejected by the same test."""
    statistic, limit = chi_square(
        sampler(**{name: parameter}, size=MILLION, entropy=ReplayEntropy(11)), law(parameter).mass
    )
    assert statistic < limit
    for wrong in (parameter * WRONG, parameter / WRONG):
        draws = sampler(**{name: wrong}, size=MILLION, entropy=ReplayEntropy(12))
        statistic, limit = chi_square(draws, law(parameter).mass)
        assert statistic > limit


WIDE = [
    ("geometric", noise.geometric, "scale", exact.geometric),
    ("laplace", noise.discrete_laplace, "scale", exact.discrete_laplace),
    # At these widths the discrete Gaussian differs from the rounded one by less than 1e-13.
    ("gaussian", noise.discrete_gaussian, "sigma", exact.rounded_gaussian),
    ("rounded", noise.rounded_gaussian, "sigma", exact.rounded_gaussian),
]


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "name", "law"), [pytest.param(*case[1:], id=case[0]) for case in WIDE])
@pytest.mark.parametrize("scale", [Fraction(1e6), Fraction(2**31) + Fraction(1, 3), Fraction(2) ** 50])
def test_wide_draws_have_the_exact_law(sampler: Any, name: str, law: Callable[[Any], Exact], scale: Fraction) -> None:
    """In 120 cells of a tenth of the scale, and in the last digits, which are uniform."""
    edges = [int(scale * i / 10) for i in range(-60, 61)]
    draws = sampler(**{name: scale}, size=MILLION, entropy=ReplayEntropy(13))
    statistic, limit = chi_square_over(edges, draws, law(scale).cumulative)
    assert statistic < limit
    for wrong in (scale / WRONG, scale * WRONG if scale < 2**50 else scale * Fraction(97, 100)):
        wider = sampler(**{name: wrong}, size=MILLION, entropy=ReplayEntropy(14))
        statistic, limit = chi_square_over(edges, wider, law(scale).cumulative)
        assert statistic > limit
    for base in (2, 10, 256):
        counts = np.bincount(draws % base, minlength=base)
        assert np.sum((counts - MILLION / base) ** 2) / (MILLION / base) < chi_square_limit(base)


@pytest.mark.parametrize("p", [Fraction(1, 3), 0.1, Fraction(999, 1000), Decimal("0.25"), 1e-4])
def test_coins_have_the_exact_chance(p: Any) -> None:
    exactly, count = Fraction(p), 4 * MILLION
    heads = int(noise.bernoulli(p=p, size=count, entropy=ReplayEntropy(15)).sum())
    variance = float(count * exactly * (1 - exactly))
    assert (heads - float(count * exactly)) ** 2 / variance < chi_square_limit(2)
    wrong = 1 - (1 - exactly) * WRONG if exactly > Fraction(1, 2) else exactly * WRONG
    if min(exactly, 1 - exactly) > Fraction(1, 100):
        heads = int(noise.bernoulli(p=wrong, size=count, entropy=ReplayEntropy(16)).sum())
        assert (heads - float(count * exactly)) ** 2 / variance > chi_square_limit(2)


@pytest.mark.parametrize("x", [Fraction(1, 100), 1, 2.5, Fraction(7)])
def test_exponential_coins_have_the_exact_chance(x: Any) -> None:
    count = 4 * MILLION
    p = float(mpmath.exp(-exact.real(x)))
    heads = int(noise.bernoulli_exp(x=x, size=count, entropy=ReplayEntropy(17)).sum())
    assert (heads - count * p) ** 2 / (count * p * (1 - p)) < chi_square_limit(2)
    heads = int(noise.bernoulli_exp(x=Fraction(x) * Fraction(110, 100), size=count, entropy=ReplayEntropy(18)).sum())
    assert (heads - count * p) ** 2 / (count * p * (1 - p)) > chi_square_limit(2)


@pytest.mark.parametrize(("n", "p"), [(1, 0.3), (20, Fraction(1, 3)), (1000, 0.01), (500, 0.9)])
def test_binomial_draws_have_the_exact_law(n: int, p: Any) -> None:
    truth = exact.binomial(n, p)
    statistic, limit = chi_square(noise.binomial(n=n, p=p, size=MILLION, entropy=ReplayEntropy(19)), truth.mass)
    assert statistic < limit
    wrong = Fraction(p) * WRONG if n > 1 else Fraction(p) * Fraction(110, 100)
    statistic, limit = chi_square(noise.binomial(n=n, p=wrong, size=MILLION, entropy=ReplayEntropy(20)), truth.mass)
    assert statistic > limit


def test_sums_of_pieces_have_the_exact_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above a variance of 2^23, Poisson and binomial draws are sums of smaller ones; here the border is moved down."""
    monkeypatch.setattr(samplers, "PIECE", 3)
    for function in (samplers._poisson, samplers._binomial):
        monkeypatch.setattr(samplers, function.__name__, function.__wrapped__)  # type: ignore[attr-defined]
    draws = noise.poisson(rate=20, size=MILLION, entropy=ReplayEntropy(21))
    statistic, limit = chi_square(draws, exact.poisson(20).mass)
    assert statistic < limit
    draws = noise.binomial(n=101, p=0.5, size=MILLION, entropy=ReplayEntropy(22))
    statistic, limit = chi_square(draws, exact.binomial(101, 0.5).mass)
    assert statistic < limit
    assert 0 < noise.poisson(rate=40) < 400  # e^-40: never by chance


def test_large_rates_and_counts_have_the_right_mean_and_width() -> None:
    """At rate 10^9 a sum of 120 tables: mean and variance to within 6 standard errors of 2000 draws (2e-9)."""
    draws = noise.poisson(rate=10**9, size=2000, entropy=ReplayEntropy(23)) - 10**9
    assert abs(draws.mean()) < 6 * (10**9 / 2000) ** 0.5
    assert abs(draws.var() / 10**9 - 1) < 6 * (2 / 2000) ** 0.5
    draws = noise.binomial(n=10**9, p=0.25, size=2000, entropy=ReplayEntropy(24)) - 10**9 // 4
    variance = 10**9 * 3 / 16
    assert abs(draws.mean()) < 6 * (variance / 2000) ** 0.5
    assert abs(draws.var() / variance - 1) < 6 * (2 / 2000) ** 0.5


@pytest.mark.parametrize("below", [1, 2, 3, 100, 256, 1000])
def test_uniform_draws(below: int) -> None:
    draws = noise.uniform(below=below, size=MILLION, entropy=ReplayEntropy(25))
    counts = np.bincount(draws, minlength=below)
    assert counts.size == below
    assert np.sum((counts - MILLION / below) ** 2) / (MILLION / below) <= chi_square_limit(below)
    if below > 2:
        # Power: 3 % fewer values.
        draws = noise.uniform(below=below - max(1, below // 33), size=MILLION, entropy=ReplayEntropy(26))
        counts = np.bincount(draws, minlength=below)
        assert np.sum((counts - MILLION / below) ** 2) / (MILLION / below) > chi_square_limit(below)


@pytest.mark.parametrize("below", [2**32 - 1, 2**32, 2**32 + 1, 3 * 2**60, 2**62 + 1, 2**63])
def test_wide_uniform_draws(below: int) -> None:
    draws = noise.uniform(below=below, size=MILLION, entropy=ReplayEntropy(27))
    assert draws.min() >= 0
    assert draws.max() < below
    # In whole numbers: 100 equal parts, and the last digit.
    cells = np.searchsorted(
        np.array([below * i // 100 for i in range(1, 100)], dtype=np.uint64), draws.astype(np.uint64), side="right"
    )
    for counts in (np.bincount(cells, minlength=100), np.bincount(draws % 100, minlength=100)):
        assert np.sum((counts - MILLION / 100) ** 2) / (MILLION / 100) < chi_square_limit(100)


def test_uniform_is_exact_for_every_word() -> None:
    """Lemire's rejection, by enumeration of all words of a smaller machine: 8 bits and every `below`."""
    for below in range(1, 257):
        kept = [(x * below >> 8) for x in range(256) if (x * below) % 256 >= 256 % below]
        assert len(set(np.bincount(kept, minlength=below))) == 1


@pytest.mark.parametrize(("below", "again"), [(3, [0]), (5, [0]), (10**9, [0, 2**30]), (2**32 - 1, [0])])
def test_uniform_words_that_would_favour_a_value_are_drawn_again(below: int, again: list[int]) -> None:
    """Among 2^32 words some values would come up once more than others; the surplus words are rejected."""
    for word in again:
        assert word * below % 2**32 < 2**32 % below
        drawn = noise.uniform(below=below, size=1, entropy=exact.Chosen([word, 2**31 + 12345]))
        assert drawn.tolist() == [(2**31 + 12345) * below >> 32]


def test_one_uniform_draw_may_be_of_any_size() -> None:
    draws = [noise.uniform(below=10**100) for _ in range(200)]
    assert 0 <= min(draws) < max(draws) < 10**100
    assert max(draws) > 10**99 * 5
    assert noise.uniform(below=1) == 0


@pytest.mark.slow
def test_permutations_are_all_as_likely() -> None:
    """The 24 orders of four things, 24,000 times; and a shuffle that swaps with any place is caught."""
    entropy = ReplayEntropy(28)
    orders = {order: i for i, order in enumerate(itertools.permutations(range(4)))}

    def naive() -> tuple[int, ...]:
        items = list(range(4))
        for i, j in enumerate(noise.uniform(below=4, size=4, entropy=entropy).tolist()):
            items[i], items[j] = items[j], items[i]
        return tuple(items)

    for shuffle, fair in ((lambda: tuple(noise.permutation(4, entropy=entropy).tolist()), True), (naive, False)):
        counts = np.bincount([orders[shuffle()] for _ in range(24_000)], minlength=24)
        statistic = float(np.sum((counts - 1000) ** 2) / 1000)
        assert (statistic < chi_square_limit(24)) is fair


def test_permutations_with_equal_keys() -> None:
    """Equal words are told apart by further words; those alone decide."""
    entropy = exact.Chosen([5, 5, 5, 9, 3, 1, 2, 0])
    assert noise.permutation(4, entropy=entropy).tolist() == [1, 2, 0, 3]
    for n in (0, 1, 2, 1000):
        assert sorted(noise.permutation(n).tolist()) == list(range(n))


@pytest.mark.parametrize("size", [None, 1, 3, samplers.FEW, samplers.FEW + 1])
@pytest.mark.parametrize("scale", [2, 2.0**40])
def test_few_draws_have_the_exact_law(scale: float, size: int | None) -> None:
    """From the process's own entropy, and so made ahead where few are asked for: 30,000 draws, in cells of half the
    scale. The false alarm of 1e-9 is a theorem; scales wrong by a fifth are rejected, by more than ten standard
    deviations.
    """
    calls = -(-30_000 // (size or 1))
    draws = np.hstack([noise.discrete_laplace(scale=scale, size=size) for _ in range(calls)])
    edges = [int(scale * i / 2) for i in range(-8, 9)]
    counts = np.bincount(np.searchsorted(np.array(edges), draws, side="left"), minlength=len(edges) + 1).tolist()

    def chance(of: Any) -> float:
        below = [0.0, *(float(exact.discrete_laplace(of).cumulative(edge)) for edge in edges), 1.0]
        return statistics.chi_square(counts, np.diff(below).tolist())

    assert chance(scale) > exact.FALSE_ALARM
    assert chance(scale * 1.2) < exact.FALSE_ALARM
    assert chance(scale / 1.2) < exact.FALSE_ALARM


def test_only_what_is_made_ahead_is_drawn_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of many parts would begin again for each draw, and a sampler made for one call has nothing ahead."""
    asked: list[str] = []

    def watched(sampler: type[inversion_table.Sampler]) -> None:
        one = sampler.one

        def noted(self: inversion_table.Sampler, entropy: noise.Entropy) -> int:
            asked.append(sampler.__name__)
            return one(self, entropy)

        monkeypatch.setattr(sampler, "one", noted)

    for each in (inversion_table.Sampler, simple_samplers.Uniform, weighted_choice.Chooser):
        watched(each)
    for at_once in (
        noise.poisson(rate=2**24, size=3),
        noise.binomial(n=2**26, p=0.5, size=3),
        noise.uniform(below=6, size=3),
        noise.choice(log_weights=[0, 1], size=3),
        noise.geometric(scale=2, size=samplers.FEW + 1),
        noise.geometric(scale=2, size=3, entropy=ReplayEntropy(1)),
    ):
        assert at_once.dtype == np.int64
    assert asked == []
    shapes: tuple[tuple[Any, tuple[int, ...]], ...] = (
        (3, (3,)),
        (samplers.FEW, (samplers.FEW,)),
        ((2, 3), (2, 3)),
        ((), ()),
        (0, (0,)),
        ((0, 3), (0, 3)),
        (np.int64(2), (2,)),
    )
    for size, shape in shapes:
        asked.clear()
        drawn = noise.rounded_gaussian(sigma=2.0**50, size=size)
        assert (drawn.shape, drawn.dtype, len(asked)) == (shape, np.int64, drawn.size)


def test_neighbouring_draws_are_independent() -> None:
    """Correlation of each draw with the next ones, over a million: 6.1 standard errors are a false alarm of 1e-9."""
    for draws in (
        noise.discrete_laplace(scale=3, size=MILLION, entropy=ReplayEntropy(29)),
        noise.rounded_gaussian(sigma=1e9, size=MILLION, entropy=ReplayEntropy(30)),
    ):
        centred = draws - draws.mean()
        for lag in (1, 2, 3, 4, 8):
            assert abs(np.mean(centred[lag:] * centred[:-lag]) / draws.var()) < 6.1 / MILLION**0.5


CALLS: dict[str, Callable[..., Any]] = {
    "uniform": lambda **given: noise.uniform(below=5, **given),
    "bernoulli": lambda **given: noise.bernoulli(p=0.5, **given),
    "bernoulli_exp": lambda **given: noise.bernoulli_exp(x=1, **given),
    "geometric": lambda **given: noise.geometric(scale=2, **given),
    "discrete_laplace": lambda **given: noise.discrete_laplace(scale=2, **given),
    "discrete_laplace-wide": lambda **given: noise.discrete_laplace(scale=2000, **given),
    "discrete_gaussian": lambda **given: noise.discrete_gaussian(sigma=2, **given),
    "discrete_gaussian-wide": lambda **given: noise.discrete_gaussian(sigma=2000, **given),
    "rounded_gaussian": lambda **given: noise.rounded_gaussian(sigma=2, **given),
    "poisson": lambda **given: noise.poisson(rate=2, **given),
    "poisson-0": lambda **given: noise.poisson(rate=0, **given),
    "binomial": lambda **given: noise.binomial(n=4, p=0.25, **given),
    "choice": lambda **given: noise.choice(log_weights=[0, 1, 2.5], **given),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_shapes_and_types(call: Callable[..., Any]) -> None:
    kind = bool if isinstance(call(), bool) else int
    assert type(call()) is kind
    assert type(call(entropy=ReplayEntropy(1))) is kind
    for size, shape in (
        (0, (0,)),
        (1, (1,)),
        (7, (7,)),
        ((), ()),
        ((2, 3), (2, 3)),
        ((0, 4), (0, 4)),
        (np.int64(3), (3,)),
        ([2, 2], (2, 2)),
    ):
        drawn = call(size=size)
        assert isinstance(drawn, np.ndarray)
        assert drawn.shape == shape
        assert drawn.dtype == (np.bool_ if kind is bool else np.int64)
        assert drawn.flags.writeable
    same = [call(size=50, entropy=ReplayEntropy(9)).tolist() for _ in range(2)]
    assert same[0] == same[1]


@pytest.mark.parametrize(
    "scale",
    [1, 1.0, np.float32(1), np.float64(1), np.int8(1), np.longdouble(1), Fraction(1), Decimal(1), np.uint64(1)],
    ids=lambda value: type(value).__name__,
)
def test_a_scale_is_any_number_that_is_rational(scale: Any) -> None:
    drawn = noise.discrete_laplace(scale=scale, size=1000, entropy=ReplayEntropy(3))
    assert np.array_equal(drawn, noise.discrete_laplace(scale=1, size=1000, entropy=ReplayEntropy(3)))


def test_a_float_is_the_number_it_stores() -> None:
    """0.1 is not a tenth: the two laws differ in the 56th bit, and so do their thresholds."""
    stored, tenth = (samplers._bernoulli(p) for p in (0.1, Fraction(1, 10)))
    assert stored._low != tenth._low


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-3, Fraction(1, 10**400)])
def test_tiny_scales_give_zero_and_end(scale: Any) -> None:
    for sampler, name in (
        (noise.discrete_laplace, "scale"),
        (noise.geometric, "scale"),
        (noise.discrete_gaussian, "sigma"),
        (noise.rounded_gaussian, "sigma"),
        (noise.poisson, "rate"),
    ):
        drawn = sampler(**{name: scale}, size=100_000, entropy=ReplayEntropy(4))
        assert name == "rate" or not drawn.any()
        # The top word of the table's u is undecided; more bits settle it.
        ones = exact.ChosenFirst([2**16 - 1, 2**64 - 1], seed=5)
        assert abs(int(sampler(**{name: scale}, size=1, entropy=ones)[0])) <= 5


def test_extreme_probabilities_end() -> None:
    assert not noise.bernoulli(p=5e-324, size=MILLION).any()
    assert noise.bernoulli(p=Fraction(10**400 - 1, 10**400), size=MILLION).all()
    assert not noise.bernoulli_exp(x=1e308, size=MILLION).any()
    assert noise.bernoulli_exp(x=5e-324, size=MILLION).all()
    assert noise.binomial(n=2**62 - 1, p=1e-30) == 0
    assert noise.binomial(n=10, p=1) == 10
    assert noise.binomial(n=0, p=0.5) == 0


def test_tables_are_remembered_and_forgotten() -> None:
    keep = samplers._discrete_laplace.__closure__
    assert keep is not None
    first = samplers._discrete_laplace(1.2345)
    assert samplers._discrete_laplace(1.2345) is first
    for i in range(samplers.REMEMBERED + 1):
        samplers._discrete_laplace(Fraction(i + 1, 7))
    assert samplers._discrete_laplace(1.2345) is not first


def test_digits_of_exact_laws_are_not_those_of_floats() -> None:
    """The attack on floats (Mironov 2012): outputs from 0 and from 1 have the same support here, the integers."""
    at_0 = noise.Grid(exponent=-20).values(noise.discrete_laplace(scale=2**20, size=100_000))
    at_1 = noise.Grid(exponent=-20).values(2**20 + noise.discrete_laplace(scale=2**20, size=100_000))
    for answers in (at_0, at_1):
        assert np.array_equal(answers * 2**20, np.rint(answers * 2**20))


def test_mass_functions_used_here_sum_to_one() -> None:
    for law in (
        exact.discrete_gaussian(3),
        exact.rounded_gaussian(3),
        exact.discrete_laplace(3),
        exact.poisson(9),
        exact.geometric(3),
    ):
        assert abs(mpmath.fsum(law.mass(k) for k in range(-300, 300)) - 1) < mpf(10) ** -14
