"""Fast samplers of the zoo's mechanisms. NOT for use: most are broken, and none uses the library's secure noise.

Every sampler is a function (value, count, generator) that returns `count` answers. Noise is rounded to multiples of
2⁻²⁰, so that only the entries about floating point leak through low-order digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

GRID: Final = 2.0**20
STOPPED: Final = -1
"""Marks questions after the end of a run."""

Draw = Callable[[Any, int, Generator], Any]


@final
@dataclass(frozen=True, slots=True)
class ZooSampler:
    """A mechanism with fast batch releases."""

    name: str
    draw: Draw

    def many(self, value: Any, count: int) -> Any:
        """`count` independent answers."""
        return self.draw(value, count, np.random.default_rng())

    def release(self, value: Any) -> Any:
        """One answer."""
        return self.many(value, 1)[0]


def laplace(rng: Generator, scale: float, size: Any) -> NDArray[np.float64]:
    """Laplace noise, rounded to the grid of the zoo."""
    return np.asarray(np.rint(rng.laplace(0.0, scale, size) * GRID) / GRID)


def gaussian(rng: Generator, sigma: float, size: Any) -> NDArray[np.float64]:
    """Gaussian noise, rounded to the grid of the zoo."""
    return np.asarray(np.rint(rng.normal(0.0, sigma, size) * GRID) / GRID)


def noisy(scale: float) -> Draw:
    """A number, or each number of a list, with Laplace noise."""
    return lambda value, count, rng: np.asarray(value) + laplace(rng, scale, (count, *np.shape(value)))


def float_laplace(value: Any, count: int, rng: Generator) -> Any:
    return value + rng.laplace(0.0, 1.0, count)


def float_gaussian(value: Any, count: int, rng: Generator) -> Any:
    return value + rng.normal(0.0, 1.0, count)


def sparse_vector(
    *, threshold_scale: float, answer_scale: float, positives: int | None, values: bool = False, fresh: bool = False
) -> Draw:
    """Above (1) or below (0) for each question, until `positives` were above. With `values`, the number of questions
    below and the noisy value of the first above instead.
    """

    def draw(asked: Any, count: int, rng: Generator) -> Any:
        queries = np.asarray(asked, dtype=float)
        border = laplace(rng, threshold_scale, (count, 1))
        answers = queries + (laplace(rng, answer_scale, (count, len(queries))) if answer_scale else 0.0)
        above = answers >= border
        if values:
            first = np.where(above.any(axis=1), above.argmax(axis=1), len(queries))
            shown = np.append(answers, np.full((count, 1), -1e6), axis=1)[np.arange(count), first]
            return np.column_stack([first.astype(float), shown])
        rows = above.astype(np.int64)
        if positives is not None:
            rows[(np.cumsum(rows, axis=1) - rows) >= positives] = STOPPED
        return rows

    return draw


def largest_value(kind: str, scale: float) -> Draw:
    """The value of the largest noisy score."""

    def draw(scores: Any, count: int, rng: Generator) -> Any:
        size = (count, len(scores))
        drawn = laplace(rng, scale, size) if kind == "laplace" else np.rint(rng.exponential(scale, size) * GRID) / GRID
        return (np.asarray(scores) + drawn).max(axis=1)

    return draw


def largest_index(kind: str, scale: float) -> Draw:
    """The index of the largest noisy score; with Gumbel noise, this is the exponential mechanism."""

    def draw(scores: Any, count: int, rng: Generator) -> Any:
        size = (count, len(scores))
        draws = {"laplace": rng.laplace, "gumbel": rng.gumbel}
        drawn = rng.exponential(scale, size) if kind == "exponential" else draws[kind](0.0, scale, size)
        return (np.asarray(scores, dtype=float) + drawn).argmax(axis=1)

    return draw


def scaled_to_the_data(value: Any, count: int, rng: Generator) -> Any:
    """The mean with noise of scale range/n, where the range is computed from the data."""
    data = np.asarray(value, dtype=float)
    return data.mean() + (data.max() - data.min()) / len(data) * laplace(rng, 1.0, count)


def silent_zero(value: Any, count: int, rng: Generator) -> Any:
    """No noise if the value is 0."""
    return np.zeros(count) if value == 0 else value + laplace(rng, 1.0, count)


def one_seed(value: Any, count: int, rng: Generator) -> Any:
    """Two answers with the same noise."""
    return np.asarray(value, dtype=float) + laplace(rng, 1.0, (count, 1))


def per_bit(epsilon: float, bits: int) -> Draw:
    """One bit for each category, each by randomized response at ε."""

    def draw(value: Any, count: int, rng: Generator) -> Any:
        truth = np.arange(bits) == value
        flipped = rng.random((count, bits)) < 1 / (1 + np.exp(epsilon))
        return (truth ^ flipped).astype(np.int64)

    return draw


def repeated_response(epsilon: float, times: int) -> Draw:
    """How often a person says yes in `times` independent randomized responses."""

    def draw(value: Any, count: int, rng: Generator) -> Any:
        keep = 1 / (1 + np.exp(-epsilon))
        return rng.binomial(times, keep if value else 1 - keep, count)

    return draw


def remembered_response(epsilon: float, times: int) -> Draw:
    """The same with one response that is stored and repeated."""

    def draw(value: Any, count: int, rng: Generator) -> Any:
        keep = 1 / (1 + np.exp(-epsilon))
        return times * (rng.random(count) < (keep if value else 1 - keep))

    return draw


def raw_threshold(value: Any, count: int, rng: Generator) -> Any:
    """Small counts are suppressed before the noise."""
    return [None] * count if value < 5 else (value + laplace(rng, 1.0, count)).tolist()


def low_threshold(value: Any, count: int, rng: Generator) -> Any:
    """A key is shown if its noisy count is at least 3; a missing key is never shown."""
    shown = value + laplace(rng, 1.0, count)
    return np.where((value > 0) & (shown >= 3), shown, -1e6)


def wrapping_sum(value: Any, count: int, rng: Generator) -> Any:
    """A sum in 32 bits, with noise for a sensitivity of 1."""
    total = np.asarray(value, dtype=np.int64).sum()
    return float((total + 2**31) % 2**32 - 2**31) + laplace(rng, 1.0, count)


def averaged_gradient(sigma: float, batch: int) -> Draw:
    """A mean gradient whose noise was divided by the batch size twice."""
    return lambda value, count, rng: value / batch + gaussian(rng, sigma / batch / batch, count)


def clipped_batch(sigma: float, batch: int) -> Draw:
    """The mean gradient clipped to 1, instead of each gradient, with noise for a mean of clipped gradients."""

    def draw(gradients: Any, count: int, rng: Generator) -> Any:
        mean = float(np.clip(np.sum(gradients) / batch, -1.0, 1.0))
        return mean + gaussian(rng, sigma / batch, count)

    return draw


def shuffled_batches(sigma: float, batches: int) -> Draw:
    """One epoch of noisy gradient sums over shuffled batches: a person is in exactly one random batch."""

    def draw(value: Any, count: int, rng: Generator) -> Any:
        found = gaussian(rng, sigma, (count, batches))
        found[np.arange(count), rng.integers(0, batches, count)] += value
        return found

    return draw
