"""Strategies give what they say, and say what is missing where hypothesis is."""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings

from deniable import mechanisms
from deniable.curves import Curve
from deniable.errors import MissingExtra
from deniable.testing import strategies

few = settings(max_examples=40, deadline=None, derandomize=True)


@few
@given(strategies.scales(least=0.5, most=20))
def test_scales_lie_where_asked_and_make_mechanisms(scale: Any) -> None:
    assert Fraction(1, 2) <= Fraction(scale) <= 20
    assert mechanisms.Laplace(sensitivity=1, scale=scale).scale > 0


@few
@given(strategies.neighbours(sensitivity=3))
def test_neighbouring_numbers(pair: tuple[int, int]) -> None:
    assert abs(pair[0] - pair[1]) <= 3


@few
@given(strategies.neighbours(sensitivity=2, dimension=4, largest=10))
def test_neighbouring_vectors(pair: tuple[list[int], list[int]]) -> None:
    assert len(pair[0]) == len(pair[1]) == 4
    assert sum(abs(a - b) for a, b in zip(*pair, strict=True)) <= 2
    assert max(map(abs, pair[0])) <= 10


@few
@given(strategies.curves())
def test_curves_are_curves(curve: Curve) -> None:
    low, high = curve.delta_bounds(epsilon=0.5)
    assert 0 <= low <= high <= 1


@pytest.mark.parametrize("strategy", [strategies.scales, strategies.neighbours, strategies.curves])
def test_without_hypothesis_the_extra_is_named(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(MissingExtra, match=r"deniable\[testing\]"):
        strategy()
