"""The curves of noisy selections: Laplace noise with the same ε, beside laws of 60 digits and random scores."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from deniable.mechanisms.selection import MonotonePermuteAndFlip, NoisyMax, PermuteAndFlip, Selection
from tests.mechanisms import exact_laws


@pytest.mark.parametrize("kind", [PermuteAndFlip, MonotonePermuteAndFlip])
@pytest.mark.parametrize("loss", [0.0, 0.25, 0.75])
def test_the_curve_of_permute_and_flip_is_that_of_laplace_noise(kind: type[Selection], loss: float) -> None:
    """Two candidates that change places: δ of Laplace noise at one gap, and nowhere more."""
    mechanism = kind(sensitivity=1, epsilon=1)
    step = mechanism.scale / 16
    moves = (1, -1) if kind is PermuteAndFlip else (1, 0)
    found = {}
    for gap in range(-48, 16):
        scores = (Fraction(0), -gap * step)
        moved = tuple(score + move for score, move in zip(scores, moves, strict=True))
        before, after = (exact_laws.flips(each, mechanism.scale) for each in (scores, moved))
        found[gap] = exact_laws.worst_delta(after, before, loss)
    assert max(found.values()) == pytest.approx(mechanism.curve.delta(epsilon=loss), rel=1e-12)
    assert max(found.values()) <= mechanism.curve.delta(epsilon=loss) * (1 + 1e-12)


@given(
    st.sampled_from([PermuteAndFlip, NoisyMax]),
    st.lists(st.integers(0, 40), min_size=2, max_size=8),
    st.integers(0, 2**8 - 1),
    st.sampled_from([0.3, 1.0, 3.0]),
    st.floats(0, 1),
)
@settings(max_examples=100)
def test_random_scores_of_many_candidates_keep_the_curve(
    kind: type[Selection], scores: list[int], up: int, epsilon: float, part: float
) -> None:
    mechanism = kind(sensitivity=4, epsilon=epsilon)
    moved = [score + (4 if up >> i & 1 else -4) for i, score in enumerate(scores)]
    before, after = mechanism.probabilities(scores), mechanism.probabilities(moved)
    found = exact_laws.worst_delta([mpf(m) for m in before], [mpf(m) for m in after], part * epsilon)
    assert found <= mechanism.curve.delta(epsilon=part * epsilon) + 1e-12
