"""Bits chosen by an adversary: on every threshold, along every threshold, and so deep in the tails that floats end."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from deniable.noise import ReplayEntropy
from deniable.noise.inversion_table import CHUNK, LIMIT, WORD, InversionTable, settle
from deniable.noise.sampled_laws import (
    BernoulliExpLaw,
    BernoulliLaw,
    BinomialLaw,
    Cumulative,
    DiscreteGaussianLaw,
    GeometricBlocks,
    LaplaceBlocks,
    PoissonLaw,
    RoundedGaussianLaw,
    SampledLaw,
)
from deniable.noise.simple_samplers import Coin
from tests.noise import exact
from tests.noise.exact import Chosen, ChosenFirst, Exact, at_many_bits

F = Fraction


def laws() -> list[tuple[str, SampledLaw, Exact]]:
    with at_many_bits():
        return [
            ("geometric", GeometricBlocks(F(2.5), 1), exact.geometric(2.5)),
            ("laplace", LaplaceBlocks(F(10, 3), 1), exact.discrete_laplace(F(10, 3))),
            ("laplace-narrow", LaplaceBlocks(F(1, 50), 1), exact.discrete_laplace(F(1, 50))),
            ("gaussian", DiscreteGaussianLaw(F(4)), exact.discrete_gaussian(2)),
            ("rounded", RoundedGaussianLaw(F(3.7)), exact.rounded_gaussian(3.7)),
            ("poisson", PoissonLaw(F(5.5)), exact.poisson(5.5)),
            ("binomial", BinomialLaw(20, F(1, 3)), exact.binomial(20, F(1, 3))),
        ]


LAWS = [pytest.param(law, truth, id=name) for name, law, truth in laws()]


def words_of(cumulative: mpf, count: int) -> list[int]:
    """The first bits of a number in [0, 1), in words."""
    whole = int(cumulative * mpf(2) ** (WORD * count))
    return [(whole >> (WORD * (count - 1 - i))) & (2**WORD - 1) for i in range(count)]


def as_drawn(words: list[int]) -> list[int]:
    """How a table takes the bits of one u: 16 of them, 48 more, and then word by word."""
    first = words[0]
    return [first >> 48, (first << 16) & (2**WORD - 1), *words[1:]]


def drawn_from(table: InversionTable, entropy: exact.Entropy, count: int = 1) -> list[int]:
    out = np.empty(count, dtype=np.int64)
    table.fill(out, entropy)
    return out.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("law", "truth"), LAWS)
@pytest.mark.parametrize("agree", [1, 2, 4])
def test_bits_that_run_along_a_threshold(law: SampledLaw, truth: Exact, agree: int) -> None:
    """u agrees with F(k) in `agree` words and then lies just below or just above it: k or k + 1, and no bit wasted."""
    table = InversionTable(law)
    for k in range(table._first, table._first + len(table._thresholds), 5):
        with at_many_bits():
            along = words_of(truth.cumulative(k), agree + 1)
        if not 0 < along[-1] < 2**WORD - 1:
            continue  # F(k) is so near a multiple of 2^-64 that there is nothing below or above
        for step, expected in ((-1, k), (1, k + 1)):
            entropy = Chosen([*as_drawn(along[:-1]), along[-1] + step])
            assert drawn_from(table, entropy) == [expected]
            assert entropy.left == []


@pytest.mark.parametrize(("law", "truth"), LAWS)
def test_the_first_word_next_to_a_threshold(law: SampledLaw, truth: Exact) -> None:
    """One 64-bit word below or above floor(F(k) 2^64) needs nothing further."""
    table = InversionTable(law)
    for k in range(table._first, table._first + len(table._thresholds)):
        word = table._thresholds[k - table._first]
        others = set(table._thresholds)
        for step, expected in ((-1, k), (1 + table._width, k + 1)):
            if 0 <= word + step < 2**WORD and word + step not in others:
                cell_resolves = not any(t >> 48 == (word + step) >> 48 for t in others)
                entropy = Chosen(as_drawn([word + step])[: 1 if cell_resolves else 2])
                assert drawn_from(table, entropy) == [expected]


@pytest.mark.parametrize(("law", "truth"), LAWS)
def test_the_forced_big_integer_path_gives_the_same(law: SampledLaw, truth: Exact) -> None:
    """Every draw settled in whole numbers from its first 64 bits is what the table says."""
    table = InversionTable(law)
    words = ReplayEntropy(3).words(4000)
    by_table = np.searchsorted(np.array(table._thresholds, dtype=np.uint64), words, side="right") + table._first
    found = law.cumulative(2 * WORD, 2 * WORD)
    for word, expected in zip(words[:150].tolist(), by_table[:150].tolist(), strict=True):
        assert settle(law, word, WORD, Chosen([])) == expected
    # The same with the enclosure computed once: many more draws.
    highs = [min(high >> WORD, 2**WORD - 1) for high in found.highs]
    assert np.array_equal(
        np.searchsorted(np.array(highs, dtype=np.uint64), words, side="right") + found.first, by_table
    )


@pytest.mark.parametrize(("law", "truth"), LAWS)
def test_a_table_that_decides_nothing_gives_the_same(
    law: SampledLaw, truth: Exact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every word called undecided, all goes to whole numbers, and every draw is the same."""
    quick, slow = InversionTable(law), InversionTable(law)
    slow.guide()[:] = np.iinfo(np.int64).min
    slow._width = 2**63
    words = ReplayEntropy(4).words(100).tolist()
    for word in words:
        drawn = drawn_from(slow, ChosenFirst(as_drawn([word]), seed=word % 1000))
        assert drawn == [
            int(np.searchsorted(np.array(quick._thresholds, dtype=np.uint64), word, side="right")) + quick._first
        ]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**200 - 1), st.sampled_from(laws()))
def test_settling_inverts_the_law(bits: int, named: tuple[str, SampledLaw, Exact]) -> None:
    """F(k-1) <= u < F(k), for u of 200 bits and F at 600 bits."""
    _, law, truth = named
    k = settle(law, bits, 200, ReplayEntropy(1))
    with at_many_bits():
        assert truth.cumulative(k - 1) <= (bits + 1) / mpf(2) ** 200
        assert bits / mpf(2) ** 200 < truth.cumulative(k)


@pytest.mark.parametrize("zeros", [1, 2, 4, 8])
def test_events_far_below_the_floats_are_reached(zeros: int) -> None:
    """u < 2^-64, 2^-128, ..., 2^-512: a generator that makes its noise from one float stops at 2^-53.

    The lower tail by zeros, the upper by ones; the value is the exact quantile.
    """
    law = LaplaceBlocks(F(1), 1)
    table = InversionTable(law)
    for low_tail in (True, False):
        start = [0] * zeros if low_tail else [2**WORD - 1] * zeros
        entropy = Chosen([*as_drawn(start), 2**63])
        (drawn,) = drawn_from(table, entropy)
        with at_many_bits():
            u = mpf(2) ** (-WORD * zeros - 1)
            truth = exact.discrete_laplace(1)
            k = drawn if low_tail else -drawn
            assert truth.cumulative(k - 1) <= u < truth.cumulative(k)
        assert abs(drawn) > 43 * zeros
        assert entropy.left == []


def test_the_upper_tail_of_every_law_is_open() -> None:
    for law in (GeometricBlocks(F(1), 1), DiscreteGaussianLaw(F(1)), RoundedGaussianLaw(F(1)), PoissonLaw(F(1))):
        near = settle(law, 2**WORD - 2, WORD, ReplayEntropy(1))
        far = settle(law, 2 ** (4 * WORD) - 2, 4 * WORD, ReplayEntropy(1))
        assert far > near


def test_a_draw_that_would_not_fit_is_the_largest() -> None:
    """Bits that no process will ever see: 2^-256, in the tail of a law whose draws beyond 100 would not fit."""
    table = InversionTable(LaplaceBlocks(F(1), 1), limit=100)
    assert drawn_from(table, Chosen([*as_drawn([2**WORD - 1] * 4), 2**63])) == [100]
    assert drawn_from(table, Chosen([*as_drawn([0] * 4), 2**63])) == [-100]
    assert LIMIT == 2**62 - 1


def test_four_draws_share_a_word_of_cells() -> None:
    """All four on thresholds at once: each gets its own further bits, in order."""
    law = LaplaceBlocks(F(10, 3), 1)
    table = InversionTable(law)
    with at_many_bits():
        truth = exact.discrete_laplace(F(10, 3))
        along = {k: words_of(truth.cumulative(k), 2) for k in (-3, 0, 1, 4)}
    cells = sum((words[0] >> 48) << (16 * i) for i, words in enumerate(along.values()))
    refined = [(words[0] << 16) & (2**WORD - 1) for words in along.values()]
    settled = [words[1] + 1 for words in along.values()]
    assert drawn_from(table, Chosen([cells, *refined, *settled]), 4) == [k + 1 for k in along]


@pytest.mark.parametrize("count", [0, 1, 3, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5])
def test_every_place_is_filled(count: int) -> None:
    out = np.full(count, np.iinfo(np.int64).max)
    InversionTable(LaplaceBlocks(F(5), 1)).fill(out, ReplayEntropy(1))
    assert np.all(np.abs(out) < 300)


@pytest.mark.parametrize("p", [F(0), F(1, 2**70), F(1, 3), F(1, 2), F(0.1), F(1) - F(1, 2**70), F(1)])
def test_a_coin_on_its_threshold(p: Fraction) -> None:
    """Heads are the u >= 1 - p. On the threshold's word, further words decide."""
    coin = Coin(BernoulliLaw(p))
    edge = (1 - p) * 2**WORD
    word = int(edge)
    if word < 2**WORD:
        rest = int((edge - word) * 2**WORD)
        for step in (-1, 0, 1):
            if 0 <= rest + step < 2**WORD:
                entropy = ChosenFirst([word, rest + step])
                expected = F(word * 2**WORD + rest + step, 2 ** (2 * WORD)) >= 1 - p
                exactly_decided = step or (edge * 2**WORD).denominator == 1
                if exactly_decided:
                    assert coin.one(entropy) is expected
    for word in (0, 1, 2**63 - 1, 2**63, 2**WORD - 2, 2**WORD - 1):
        if word != int(edge):
            assert coin.one(Chosen([word])) is (F(word, 2**WORD) >= 1 - p)


def test_a_threshold_that_differs_from_a_word_in_the_200th_bit() -> None:
    """F(0) = 1/2 + 2^-200, and u = 1/2 to 192 bits: only the words after that tell them apart."""
    law = BernoulliLaw(F(1, 2) - F(1, 2**200))
    assert settle(law, 2**63, WORD, Chosen([0, 0, 0])) == 0
    assert settle(law, 2**63, WORD, Chosen([0, 0, 2**57])) == 1


@pytest.mark.parametrize(
    "law", [BernoulliLaw(F(1, 3)), BernoulliLaw(F(0.1)), BernoulliExpLaw(F(1, 100)), BernoulliExpLaw(F(7))]
)
def test_many_coins_and_one_coin_are_the_same(law: SampledLaw) -> None:
    coin = Coin(law)
    edge, rest = coin._low >> 48, coin._low & (2**48 - 1)
    cells = [edge - 1, edge + 1, edge, edge]
    refined = [rest - 1, rest + 1 + coin._high - coin._low]
    entropy = Chosen([sum(cell << (16 * i) for i, cell in enumerate(cells)), *(each << 16 for each in refined)])
    out = np.empty(4, dtype=np.bool_)
    coin.fill(out, entropy)
    assert out.tolist() == [False, True, False, True]
    assert entropy.left == []
    assert [coin.one(Chosen([edge << 48 | each])) for each in refined] == [False, True]


@dataclass(frozen=True)
class Loose(SampledLaw):
    """A law that knows its cumulative probabilities to within 2^-60 of a bit less than asked."""

    law: SampledLaw

    def cumulative(self, bits: int, reach: int) -> Cumulative:
        found = self.law.cumulative(bits, reach)
        slack = 1 << max(0, bits - 60 - (bits - 128))
        lows, highs = (
            [max(0, low - slack) for low in found.lows],
            [min(high + slack, 1 << bits) for high in found.highs],
        )
        return Cumulative(found.first, lows, highs, found.open_below, found.open_above)


def test_a_law_with_loose_bounds_is_asked_for_more_bits() -> None:
    """At 128 bits these bounds leave 16 words undecided around each threshold; at 256 they are as narrow as any."""
    loose, tight = InversionTable(Loose(GeometricBlocks(F(2.5), 1))), InversionTable(GeometricBlocks(F(2.5), 1))
    assert loose._width <= 1
    assert all(0 <= b - a <= 1 for a, b in zip(loose._thresholds, tight._thresholds, strict=True))


def test_draws_made_ahead_are_only_for_the_process() -> None:
    """A source that is given is asked for each draw; the process's own is asked for many at once."""
    table = InversionTable(LaplaceBlocks(F(1), 1))
    assert table.one(Chosen([2**15])) in (-1, 0)
    assert table._ahead == []
