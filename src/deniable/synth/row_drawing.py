"""Rows drawn from a mixture, as evenly as rows can be.

With n independent draws, a cell of probability p has a standard error of √(p/n). Here every component gets its share of
the rows, and every value of a column its share of the component's rows, each rounded up or down. The columns of a
component are then paired at random. So the rows are closer to the mixture than independent draws, with the same
expectations.

What is left to chance is the pairing. `_exchanged` improves it: two rows of one component exchange their values of one
column if the counts by two columns come closer to the mixture's. Within a component the columns are independent, so an
exchange changes neither the counts of single columns nor what the mixture says about the rest of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from deniable.errors import InvalidParameter
from deniable.synth.mixture import Mixture
from deniable.synth.structural_zeros import Forbidden

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAST_SHARE: Final = 1e-6
"""The smallest share of allowed rows; below it, finding an allowed row would take too long."""

_AT_ONCE: Final = 1_000_000
"""The number of rows that are drawn at once if few are allowed; more only if more are wanted."""

_SWEEPS: Final = 8
"""The most sweeps of exchanges. On the Adult data (ten columns, 48,842 rows, ε = 10) the mean distance of a table of
two columns from the mixture's is 0.0091 after 0 sweeps, 0.0052 after 8 and 0.0039 after 40. A sweep takes 0.1 CPU s."""
_MOST_WORK: Final = 1e8
"""The most work of all sweeps: rows × columns² each. More rows have less sampling error, and get fewer sweeps."""
_EXCHANGED: Final = 0.3
"""The share of all useful exchanges that are made at the same time in the first sweep; later sweeps make fewer. More
would spoil each other, because each is judged as if it were the only one."""


def draw(
    mixture: Mixture,
    rows: int,
    generator: np.random.Generator | None = None,
    forbidden: Forbidden | None = None,
    sweeps: int | None = None,
) -> NDArray[np.int64]:
    """Draw `rows` rows as indices of values. Rows that break a rule are drawn again.

    `sweeps` is the number of sweeps of exchanges, by default `sweeps_for` of the numbers of rows and columns.

    numpy's generator is predictable, which is harmless here: the mixture was fitted to released counts, so predicting
    every draw reveals only the mixture, which is public.

    >>> even = Mixture(np.ones(1), (np.array([[0.25, 0.75]]),))
    >>> sorted(draw(even, 4)[:, 0].tolist())
    [0, 1, 1, 1]
    """
    generator = generator or np.random.default_rng()
    found = _allowed(_drawn, mixture, rows, generator, forbidden)
    many = sweeps_for(rows, len(mixture.columns)) if sweeps is None else sweeps
    exchanged = _exchanged(found[:, :-1], found[:, -1], mixture, forbidden, many, generator)
    generator.shuffle(exchanged)  # so that the first rows are not all of one component
    return exchanged


def sweeps_for(rows: int, columns: int) -> int:
    """The number of sweeps of exchanges for a table of this many rows and columns."""
    return min(_SWEEPS, int(_MOST_WORK / max(1, rows * columns**2))) if columns > 1 else 0


def independent(
    mixture: Mixture, rows: int, generator: np.random.Generator, forbidden: Forbidden | None = None
) -> NDArray[np.int64]:
    """Draw `rows` independent rows, with the sampling error of a real table."""
    found = _allowed(_one_by_one, mixture, rows, generator, forbidden)[:, :-1]
    generator.shuffle(found)
    return found


def _allowed(
    drawing: Callable[[Mixture, int, np.random.Generator], NDArray[np.int64]],
    mixture: Mixture,
    rows: int,
    generator: np.random.Generator,
    forbidden: Forbidden | None,
) -> NDArray[np.int64]:
    """Rows that break no rule. The last column is the component of each row."""
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
        generator.shuffle(tried)  # so that the surplus rows that are cut off are a random part
        found.append(tried[forbidden.allowed(tried)][:missing])
        missing -= len(found[-1])
    return np.concatenate(found) if found else np.empty((0, len(mixture.columns) + 1), dtype=np.int64)


def _drawn(mixture: Mixture, rows: int, generator: np.random.Generator) -> NDArray[np.int64]:
    found = np.empty((rows, len(mixture.columns) + 1), dtype=np.int64)
    start = 0
    for component, count in enumerate(_shared_out(mixture.weights, rows, generator)):
        for column, probabilities in enumerate(mixture.columns):
            values = np.repeat(
                np.arange(probabilities.shape[1]), _shared_out(probabilities[component], int(count), generator)
            )
            found[start : start + count, column] = generator.permutation(values)
        found[start : start + count, -1] = component
        start += int(count)
    return found


def _one_by_one(mixture: Mixture, rows: int, generator: np.random.Generator) -> NDArray[np.int64]:
    found = np.empty((rows, len(mixture.columns) + 1), dtype=np.int64)
    start = 0
    for component, count in enumerate(generator.multinomial(rows, mixture.weights / mixture.weights.sum())):
        for column, probabilities in enumerate(mixture.columns):
            ends = np.cumsum(probabilities[component])
            values = np.searchsorted(ends, generator.random(count) * ends[-1], "right")
            found[start : start + count, column] = np.minimum(values, len(ends) - 1)
        found[start : start + count, -1] = component
        start += int(count)
    return found


def _shared_out(probabilities: NDArray[np.float64], count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Integers that add up to `count`, each its expectation rounded up or down (systematic sampling)."""
    ends = np.cumsum(probabilities)
    marks = np.floor(ends / ends[-1] * count + generator.random())
    marks[-1] = count
    return np.asarray(np.diff(np.minimum(marks, count), prepend=0), dtype=np.int64)


def _exchanged(
    rows: NDArray[np.int64],
    components: NDArray[np.int64],
    mixture: Mixture,
    forbidden: Forbidden | None,
    sweeps: int,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """The rows after exchanges that bring counts by two columns closer to the mixture's, in sum of squares."""
    rows = np.ascontiguousarray(rows)
    if not sweeps or len(rows) < 2:
        return rows
    starts = np.concatenate([[0], np.cumsum(mixture.sizes)])
    wanted = [_beside_others(mixture, forbidden, column) * len(rows) for column in range(len(mixture.columns))]
    for sweep in range(sweeps):
        for column in generator.permutation(len(mixture.columns)).tolist():
            order = np.argsort(components + generator.random(len(rows)))
            one, other = order[: len(rows) // 2 * 2].reshape(-1, 2).T
            differ = (components[one] == components[other]) & (rows[one, column] != rows[other, column])
            one, other = one[differ], other[differ]
            places = rows + starts[:-1]
            width = int(starts[-1])
            cells = (rows[:, column, None] * width + np.delete(places, column, axis=1)).ravel()
            excess = np.bincount(cells, minlength=wanted[column].size) - wanted[column].ravel()
            # Each exchange takes one from two cells and adds one to two others, in every table with another column.
            mine, its = rows[one, column] * width, rows[other, column] * width
            here, there = np.delete(places[one], column, axis=1), np.delete(places[other], column, axis=1)
            change = excess[mine[:, None] + there] + excess[its[:, None] + here] + 2
            change -= excess[mine[:, None] + here] + excess[its[:, None] + there]
            useful = np.where(here == there, 0.0, change).sum(axis=1) < 0
            useful &= generator.random(len(useful)) < _EXCHANGED / (1 + sweep / 2)
            _exchange(rows, one[useful], other[useful], column, forbidden)
    return rows


def _beside_others(mixture: Mixture, forbidden: Forbidden | None, column: int) -> NDArray[np.float64]:
    """The probabilities of a column's values together with each value of all columns, side by side."""
    found = []
    for place, size in enumerate(mixture.sizes):
        if place == column:
            found.append(np.zeros((mixture.sizes[column], size)))
        elif forbidden is None or not forbidden.boxes:
            joint = mixture.columns[column].T @ (mixture.weights[:, None] * mixture.columns[place])
            found.append(joint / mixture.weights.sum())
        else:
            found.append(forbidden.marginal(mixture, column, place))
    return np.concatenate(found, axis=1)


def _exchange(
    rows: NDArray[np.int64],
    one: NDArray[np.int64],
    other: NDArray[np.int64],
    column: int,
    forbidden: Forbidden | None,
) -> None:
    """Exchange the values of a column between pairs of rows, but not where a rule would be broken."""
    values = rows[one, column], rows[other, column]
    rows[one, column], rows[other, column] = values[1], values[0]
    if forbidden is not None and forbidden.boxes:
        broken = ~(forbidden.allowed(rows[one]) & forbidden.allowed(rows[other]))
        rows[one[broken], column], rows[other[broken], column] = values[0][broken], values[1][broken]
