"""Rows drawn from a mixture, as evenly as rows can be.

Of n rows drawn one by one, a cell of probability p has a standard error of √(p/n). Here every component gets its
share of the rows, and every column of a component its shares of those, each rounded up or down; only who meets whom
within a component is left to chance. So the rows are nearer to the mixture than independent draws are, with the same
expectations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from deniable.errors import InvalidParameter
from deniable.synth.forbidden import Forbidden
from deniable.synth.mixture import Mixture

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAST_SHARE: Final = 1e-6
"""Of rows that are allowed: below, a row that is would take too long to find."""

_AT_ONCE: Final = 1_000_000
"""Rows that are tried at once, where few are allowed; more only if more are wanted."""


def draw(
    mixture: Mixture, rows: int, generator: np.random.Generator | None = None, forbidden: Forbidden | None = None
) -> NDArray[np.int64]:
    """So many rows; each column holds the places of its values. Those that break a rule are drawn anew.

    The generator is numpy's, which can be guessed from what it drew, and need not be more: the mixture was fitted to
    released counts, so whoever guessed every draw would know the mixture, which is public.

    >>> even = Mixture(np.ones(1), (np.array([[0.25, 0.75]]),))
    >>> sorted(draw(even, 4)[:, 0].tolist())
    [0, 1, 1, 1]
    """
    return _allowed(_drawn, mixture, rows, generator or np.random.default_rng(), forbidden)


def independent(
    mixture: Mixture, rows: int, generator: np.random.Generator, forbidden: Forbidden | None = None
) -> NDArray[np.int64]:
    """So many rows drawn one by one, with all the chance that is in who is in a table."""
    return _allowed(_one_by_one, mixture, rows, generator, forbidden)


def _allowed(
    drawing: Callable[[Mixture, int, np.random.Generator], NDArray[np.int64]],
    mixture: Mixture,
    rows: int,
    generator: np.random.Generator,
    forbidden: Forbidden | None,
) -> NDArray[np.int64]:
    if forbidden is None or not forbidden.boxes:
        return drawing(mixture, rows, generator)
    share = forbidden.share(mixture)
    if share < _LEAST_SHARE:
        rule = "forbid nearly every row that the noisy counts speak of"
        raise InvalidParameter("forbid", len(forbidden.boxes), rule, "are the rules the right way round?")
    found: list[NDArray[np.int64]] = []
    missing = rows
    while missing > 0:
        tried = drawing(mixture, min(int(missing / share) + 16, max(missing, _AT_ONCE)), generator)
        found.append(tried[forbidden.allowed(tried)][:missing])
        missing -= len(found[-1])
    return np.concatenate(found) if found else np.empty((0, len(mixture.columns)), dtype=np.int64)


def _drawn(mixture: Mixture, rows: int, generator: np.random.Generator) -> NDArray[np.int64]:
    found = np.empty((rows, len(mixture.columns)), dtype=np.int64)
    start = 0
    for component, count in enumerate(_shared_out(mixture.weights, rows, generator)):
        for column, probabilities in enumerate(mixture.columns):
            values = np.repeat(
                np.arange(probabilities.shape[1]), _shared_out(probabilities[component], int(count), generator)
            )
            found[start : start + count, column] = generator.permutation(values)
        start += int(count)
    generator.shuffle(found)
    return found


def _one_by_one(mixture: Mixture, rows: int, generator: np.random.Generator) -> NDArray[np.int64]:
    found = np.empty((rows, len(mixture.columns)), dtype=np.int64)
    start = 0
    for component, count in enumerate(generator.multinomial(rows, mixture.weights / mixture.weights.sum())):
        for column, probabilities in enumerate(mixture.columns):
            ends = np.cumsum(probabilities[component])
            values = np.searchsorted(ends, generator.random(count) * ends[-1], "right")
            found[start : start + count, column] = np.minimum(values, len(ends) - 1)
        start += int(count)
    generator.shuffle(found)  # whoever takes the first ones takes no component before another
    return found


def _shared_out(probabilities: NDArray[np.float64], count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Whole numbers that add up to `count`, each its expectation rounded up or down (systematic sampling)."""
    ends = np.cumsum(probabilities)
    marks = np.floor(ends / ends[-1] * count + generator.random())
    marks[-1] = count
    return np.asarray(np.diff(np.minimum(marks, count), prepend=0), dtype=np.int64)
