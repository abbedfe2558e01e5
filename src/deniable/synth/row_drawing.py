"""Rows drawn from a mixture, as evenly as rows can be.

With n independent draws, a cell of probability p has a standard error of √(p/n). Here every component gets its share of
the rows, and every value of a column its share of the component's rows, each rounded up or down; only the pairing of
columns within a component is random. So the rows are closer to the mixture than independent draws, with the same
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
"""The smallest share of allowed rows; below it, finding an allowed row would take too long."""

_AT_ONCE: Final = 1_000_000
"""The number of rows that are drawn at once if few are allowed; more only if more are wanted."""


def draw(
    mixture: Mixture, rows: int, generator: np.random.Generator | None = None, forbidden: Forbidden | None = None
) -> NDArray[np.int64]:
    """Draw so many rows as indices of values. Rows that break a rule are drawn again.

    numpy's generator is predictable, which is harmless here: the mixture was fitted to released counts, so predicting
    every draw reveals only the mixture, which is public.

    >>> even = Mixture(np.ones(1), (np.array([[0.25, 0.75]]),))
    >>> sorted(draw(even, 4)[:, 0].tolist())
    [0, 1, 1, 1]
    """
    return _allowed(_drawn, mixture, rows, generator or np.random.default_rng(), forbidden)


def independent(
    mixture: Mixture, rows: int, generator: np.random.Generator, forbidden: Forbidden | None = None
) -> NDArray[np.int64]:
    """So many independent rows, with the sampling error of a real table."""
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
    generator.shuffle(found)  # so that the first rows are not all of one component
    return found


def _shared_out(probabilities: NDArray[np.float64], count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Integers that add up to `count`, each its expectation rounded up or down (systematic sampling)."""
    ends = np.cumsum(probabilities)
    marks = np.floor(ends / ends[-1] * count + generator.random())
    marks[-1] = count
    return np.asarray(np.diff(np.minimum(marks, count), prepend=0), dtype=np.int64)
