"""Hypothesis strategies for property tests: curves, neighbours, scales. Needs the extra `testing`.

>>> from deniable.testing import strategies
>>> strategies.scales().filter(lambda scale: scale > 1).example() > 1  # doctest: +SKIP
True
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deniable import curves as atoms
from deniable.errors import MissingExtra

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from deniable.curves import Curve


def _strategies() -> Any:
    try:
        from hypothesis import strategies
    except ImportError:
        raise MissingExtra("hypothesis", "testing") from None
    return strategies


def scales(*, least: float = 1e-3, most: float = 1e3) -> SearchStrategy[int | float | Fraction]:
    """Noise scales of every type that mechanisms accept: floats, integers and fractions in [least, most]."""
    st = _strategies()
    exact = st.fractions(min_value=Fraction(least), max_value=Fraction(most), max_denominator=10**6)
    found: SearchStrategy[int | float | Fraction] = st.one_of(
        st.floats(min_value=least, max_value=most),
        st.integers(min_value=math.ceil(least), max_value=max(math.ceil(least), math.floor(most))),
        exact,
    )
    return found


def neighbours(
    *, sensitivity: int = 1, dimension: int | None = None, largest: int = 10**6
) -> SearchStrategy[tuple[Any, Any]]:
    """Pairs of integers (with `dimension`, of lists of integers) at an L1 distance of at most `sensitivity`."""
    st = _strategies()
    size = 1 if dimension is None else dimension
    values = st.lists(st.integers(min_value=-largest, max_value=largest), min_size=size, max_size=size)
    # Each unit of distance moves one coordinate up or down, or is not used.
    moves = st.lists(st.tuples(st.integers(0, size - 1), st.sampled_from([-1, 0, 1])), max_size=sensitivity)

    def pair(value: list[int], steps: list[tuple[int, int]]) -> tuple[Any, Any]:
        moved = list(value)
        for place, step in steps:
            moved[place] += step
        return (value[0], moved[0]) if dimension is None else (value, moved)

    found: SearchStrategy[tuple[Any, Any]] = st.builds(pair, values, moves)
    return found


def curves(*, largest: float = 5.0, parts: int = 3) -> SearchStrategy[Curve]:
    """Products of up to `parts` quick curves: pure, approximate, Laplace, Gaussian, discrete Laplace, exponential."""
    st = _strategies()
    level = st.floats(min_value=0.01, max_value=largest)
    one = st.one_of(
        level.map(lambda e: atoms.pure(epsilon=e)),
        st.builds(lambda e, d: atoms.approximate(epsilon=e, delta=d), level, st.floats(0.0, 0.5)),
        level.map(lambda e: atoms.laplace(scale=1.0, sensitivity=e)),
        level.map(lambda m: atoms.gaussian(mu=m)),
        st.integers(1, 20).map(lambda b: atoms.discrete_laplace(scale=b)),
        level.map(lambda e: atoms.exponential(epsilon=e)),
        st.just(atoms.identity()),
    )
    found: SearchStrategy[Curve] = st.lists(one, min_size=1, max_size=parts).map(atoms.product)
    return found
