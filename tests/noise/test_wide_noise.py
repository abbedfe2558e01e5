"""Wide noise: every piece of the argument is checked exactly, and then the whole by its law."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from deniable.noise import ReplayEntropy
from deniable.noise.inversion_table import LIMIT, UNDECIDED, WORD
from deniable.noise.wide_noise import (
    UNIT,
    WideDiscreteGaussian,
    WideGeometric,
    WideLaplace,
    WideRoundedGaussian,
    _at_least,
    _at_most,
    _Blocked,
    block_bits,
    is_below_exp,
)
from tests.noise.exact import Chosen, at_many_bits, real

F = Fraction
SCALES = [F(64), F(100.1), F(1000), F(2) ** 30 + F(1, 3), F(1e12), F(2) ** 50]
KINDS = [WideGeometric, WideLaplace, WideDiscreteGaussian, WideRoundedGaussian]


@settings(max_examples=1000, deadline=None)
@given(st.integers(0, 2**31))
def test_the_integer_bounds_of_the_exponential_hold(y: int) -> None:
    with at_many_bits():
        truth = mpmath.exp(-real(F(y, 2**UNIT))) * mpf(2) ** UNIT
        assert _at_least(y) <= truth <= _at_most(y)
    assert _at_most(y) - _at_least(y) <= y**4 // (24 << 3 * UNIT) + 6


@pytest.mark.parametrize("y", [0, 1, 2, 2**31])
def test_the_integer_bounds_hold_at_the_ends(y: int) -> None:
    with at_many_bits():
        assert _at_least(y) <= mpmath.exp(-real(F(y, 2**UNIT))) * mpf(2) ** UNIT <= _at_most(y)


def place_of(sampler: _Blocked, word: int) -> int:
    return word >> sampler._u_bits


def word_of(sampler: _Blocked, place: int, u: int) -> int:
    """The word with this place and this u, whose first 16 bits are the word's last."""
    rest = sampler._u_bits - 16
    return place << sampler._u_bits | (u & ((1 << rest) - 1)) << 16 | u >> rest


def value(sampler: _Blocked, j: int, word: int) -> int:
    out = sampler._based(np.array([j], dtype=np.int64))
    sampler._assemble(out, np.array([word], dtype=np.uint64), np.empty(1, dtype=np.uint64))
    return int(out[0])


def exponent(sampler: _Blocked, j: int, word: int, scale: Fraction) -> tuple[int, Fraction, Fraction]:
    """(draw, least y, largest y) that a block and a word stand for, from the definition: the weight of the block times
    e^-y must be the weight of the draw."""
    m = sampler._m
    place = place_of(sampler, word)
    bits = sampler._place_bits
    if isinstance(sampler, WideGeometric | WideLaplace):
        r = place >> (bits - m)
        k = (j << m) + r
        start = j << m if j >= 0 else -(((j + 1) << m) - 1)  # the least |k| of the block
        y = (abs(k) - start) / scale
        return k, y, y
    middle = -1 - j if j < 0 else j  # blocks from the middle
    if isinstance(sampler, WideDiscreteGaussian):
        k = (j << m) + (place >> (bits - m))
        y = (F(k) ** 2 - F(middle << m) ** 2) / (2 * scale**2)
        return k, y, y
    low, high = ((j + F(place + end, 1 << bits)) * 2**m for end in (0, 1))  # X lies between
    k = math.floor(low + F(1, 2))  # the same all over, as a test below shows
    ends = sorted((x**2 - F(middle << m) ** 2) / (2 * scale**2) for x in (low, high))
    return k, ends[0], ends[1]


CASES = [pytest.param(kind, scale, id=f"{kind.__name__}-{float(scale):.4g}") for kind in KINDS for scale in SCALES]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "scale"), CASES)
def test_draws_and_exponents_are_those_of_the_law(kind: type[_Blocked], scale: Fraction) -> None:
    """Whatever the block and the word: the draw is the right one, and y lies between its integer bounds, narrowly."""
    sampler = kind(scale)
    words = [*ReplayEntropy(1).words(150).tolist(), 0, 1, 2**63, 2**63 - 1, 2**WORD - 1]
    blocks = [0, 1, 2, 40, 100, 383, *([-1, -2, -77, -383] if kind is not WideGeometric else [])]
    for j, word in itertools.product(blocks, words):
        k, least, largest = exponent(sampler, j, word, scale)
        assert value(sampler, j, word) == k
        low, high = sampler._exponents(j, place_of(sampler, word))
        assert low <= least * 2**UNIT
        assert largest * 2**UNIT <= high
        assert high - low <= 2000  # 2^-21
        assert low >= 0
        assert high <= 2 ** (UNIT - 1)


def test_a_rounded_draw_is_fixed_by_the_bits_drawn() -> None:
    """Whatever the bits of t that are still to come, the draw stays: X never reaches the next half-integer."""
    for scale in SCALES:
        sampler = WideRoundedGaussian(scale)
        assert sampler._place_bits >= sampler._m + 1
        for word in ReplayEntropy(2).words(100).tolist():
            place = place_of(sampler, word)
            low, high = (F(place + end, 1 << sampler._place_bits) * 2**sampler._m for end in (0, 1))
            halves = int(2 * low)
            assert halves <= 2 * low
            assert 2 * high <= halves + 1


@pytest.mark.parametrize(("kind", "scale"), CASES)
def test_pairs_kept_unseen_would_be_kept(kind: type[_Blocked], scale: Fraction) -> None:
    """16 bits of u below what the cell says: u < 1 - y for the largest y of the block, so no place in it is rejected."""
    sampler = kind(scale)
    sampler._prepare()
    assert sampler._sure is not None
    guide = sampler._blocks.guide()
    assert np.all(sampler._sure[guide == UNDECIDED] == 0)
    for cell in range(3, 2**16, 1111):
        if guide[cell] != UNDECIDED:
            ends = (exponent(sampler, int(guide[cell]), word, scale)[2] for word in (0, 2**WORD - 1))
            largest = max(ends)  # at the far end of the block
            with at_many_bits():
                kept = mpmath.exp(-real(largest)) * 2**16
                assert kept * 0.85 - 1 <= sampler._sure[cell] <= kept


@pytest.mark.parametrize(("kind", "scale"), CASES)
def test_the_rejection_on_its_threshold(kind: type[_Blocked], scale: Fraction) -> None:
    """u agrees with e^-y in all its bits, or in 64 more; then one step below or above decides."""
    sampler = kind(scale)
    for j, seed in itertools.product((0, 3, 60, 400), range(3)):
        word = ReplayEntropy(seed).word()
        place = place_of(sampler, word)
        _, least, largest = exponent(sampler, j, word, scale)
        if least != largest:
            continue
        with at_many_bits():
            along = int(mpmath.exp(-real(least)) * mpf(2) ** (sampler._u_bits + WORD))
        u, rest = along >> WORD, along & (2**WORD - 1)
        if u < 2**sampler._u_bits:
            for step, kept in ((-1, True), (1, False)):
                assert sampler._is_kept(j, place, u, Chosen([rest + step])) is kept
                if 0 <= u + step < 2**sampler._u_bits:
                    words = np.array([word_of(sampler, place, u + step)], dtype=np.uint64)
                    assert sampler._are_kept(np.array([j]), words, Chosen([])).tolist() == [kept]


def test_the_rejection_of_a_real_place_draws_more_of_it() -> None:
    """|X| and u both unknown beyond their first bits: bits of both are drawn until u lies on one side of e^-y(t)."""
    scale = F(2) ** 20 * F(1.3)
    sampler = WideRoundedGaussian(scale)
    steep, t_bits, u_bits = sampler._steepness, sampler._place_bits, sampler._u_bits
    for j, seed in itertools.product((0, 5, 50), range(6)):
        place = ReplayEntropy(seed).bits(t_bits)
        with at_many_bits():
            # The middle of what is known of t; u agrees with e^-y there.
            t = F(2 * place + 1, 1 << (t_bits + 1))
            along = int(mpmath.exp(-real(steep * t * (2 * j + t))) * mpf(2) ** (u_bits + 2 * WORD))
        u = along >> (2 * WORD)
        if u >= 2**u_bits:
            continue
        further = [(along >> WORD) & (2**WORD - 1), along & (2**WORD - 1)]
        for step, kept in ((-(2**30), True), (2**30, False)):
            # Words come in pairs: of t (its middle, to 128 bits), then of u.
            entropy = Chosen([2**63, further[0], 0, (further[1] + step) % 2**WORD, 0, 2**63, 0, 2**63])
            assert sampler._is_kept(j, place, u, entropy) is kept


def test_a_real_place_is_kept_only_if_all_of_it_would_be() -> None:
    """(u + 1)/2^32 lies between e^-y at the two ends of what is known of t: too early to say."""
    sampler = WideRoundedGaussian(F(2) ** 20 * F(1.3))
    t_bits, u_bits, j, found = sampler._place_bits, sampler._u_bits, 100, 0
    for place in range(2**20, 2**20 + 400):
        with at_many_bits():
            near, far = (mpmath.exp(-real(sampler._y(j, F(place + end, 1 << t_bits)))) * 2**u_bits for end in (0, 1))
        if int(far) < int(near):
            found += 1
            ones = 2**WORD - 1
            assert sampler._is_kept(j, place, int(near) - 1, Chosen([ones] * 6)) is False
            assert sampler._is_kept(j, place, int(near) - 1, Chosen([0] * 6)) is True
    assert found > 5


def test_the_rejection_of_a_real_place_waits_for_its_bits() -> None:
    """u lies between e^-y at the two ends of what is known of t: the bits of t that follow decide, and nothing before."""
    sampler = WideRoundedGaussian(F(2) ** 20 * F(1.3))
    t_bits, u_bits = sampler._place_bits, sampler._u_bits
    for j, seed in itertools.product((1, 5, 50), range(6)):
        place = ReplayEntropy(seed).bits(t_bits)
        with at_many_bits():
            ends = [mpmath.exp(-real(sampler._y(j, F(place + end, 1 << t_bits)))) for end in (0, 1)]
            between = int((ends[0] + ends[1]) / 2 * mpf(2) ** (u_bits + 2 * WORD))
        u, *further = between >> (2 * WORD), (between >> WORD) & (2**WORD - 1), between & (2**WORD - 1)
        for rest, kept in ((0, True), (2**WORD - 1, False)):
            assert sampler._is_kept(j, place, u, Chosen([rest, further[0], rest, further[1]])) is kept


@settings(max_examples=100, deadline=None)
@given(st.fractions(min_value=0, max_value=40, max_denominator=10**9), st.integers(0, 2**80 - 1))
def test_a_uniform_number_below_an_exponential(y: Fraction, u: int) -> None:
    decided = is_below_exp(u, 80, y, ReplayEntropy(1))
    with at_many_bits():
        truth = mpmath.exp(-real(y)) * mpf(2) ** 80
        assert decided == (u < truth) or u == int(truth)


@pytest.mark.parametrize(
    ("scale", "m"), [(F(1), 0), (F(63.99), 0), (F(64), 1), (F(127), 1), (F(128), 2), (F(2) ** 50, 45)]
)
def test_a_scale_spans_32_to_64_blocks(scale: Fraction, m: int) -> None:
    assert block_bits(scale) == m
    if m:
        assert 32 <= scale / 2**m < 64


@pytest.mark.parametrize("kind", KINDS)
def test_far_blocks_are_decided_in_whole_numbers(kind: type[_Blocked]) -> None:
    """Bits from deep in the tail: 2^-320, hundreds of times further out than any draw. The law reaches there too."""
    scale = F(1000)
    sampler = kind(scale)
    # A cell of ones, a word with the place in the middle and u = 0, so that it is kept; then the rest of the block's u:
    # ones to 320 bits and one half, and zeros where more of t or of the other u is wanted.
    entropy = Chosen([2**16 - 1, 1 << (WORD - 2), *[2**WORD - 1] * 5, 2**63, *[0] * 4])
    out = np.empty(1, dtype=np.int64)
    sampler.fill(out, entropy)
    assert abs(out[0]) > (220 if kind in (WideGeometric, WideLaplace) else 20) * scale


@pytest.mark.parametrize("kind", KINDS)
def test_the_farthest_draw_fits(kind: type[_Blocked]) -> None:
    """At the largest scale, with the block at its limit, whatever the word."""
    sampler = kind(F(2) ** 50)
    for word in (0, 2**63, 2**WORD - 1, 2**63 - 1):
        assert abs(value(sampler, sampler._blocks._limit, word)) <= LIMIT
        if kind is not WideGeometric:
            assert abs(value(sampler, -sampler._blocks._limit, word)) <= LIMIT
