"""The law of an answer: densities and masses, distribution functions and variances, for planning and teaching.

A law is a function of the value. It is not a release: never show the law on private data.

    Laplace, Gaussian, ...     `mechanism.law(value)` is a `NoiseLaw`: the noise around the value
    Exponential, NoisyMax ...  masses on the candidates
    PoissonMechanism           masses on counts
    PiecewiseExponential       a density that is constant on pieces
    Quantile, Median           masses on the grid
    Staircase                  stairs around the value
    AboveThreshold, ...        masses on which questions are above
    TopK, OneShotTopK          masses on the orders of the winners
    mechanism.then(function)   masses on the values of the function
    Sum, Mean, Histogram       the noise around the exact answer, if it is one number
    Bounds, NameAndShame       masses on pairs of bounds; on indices with their records

Answers of several parts have no law on a line; `distinguishing_parts` describes what distinguishes two values by them.

The numbers here are descriptions: accurate to about 1e-12, but not bounds on anything private.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final, final

import numpy as np

from deniable.curves import curve_arguments
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.mechanisms import input_values
from deniable.mechanisms.input_values import Floats
from deniable.mechanisms.noise_shapes import NoiseShape

__all__ = ["Masses", "NoiseLaw", "OutputLaw", "Pieces", "Stairs", "masses", "poisson", "pushed"]

MOST_TOLD: Final = 4096
"""The largest number of answers that a law lists, for example orders of winners."""
LARGEST_WHOLE: Final = 2**52


class OutputLaw(ABC):
    """The law of one answer. If `is_discrete`, `pdf` is the probability of a point; otherwise a density."""

    __slots__ = ()

    @property
    @abstractmethod
    def is_discrete(self) -> bool:
        """Whether the answers are points with masses."""

    @abstractmethod
    def pdf(self, answer: Any) -> Any:
        """The density at an answer; for a discrete law its probability. Arrays in, arrays out."""

    @abstractmethod
    def cdf(self, answer: Any) -> Any:
        """The probability of an answer that is at most this."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """The expected answer."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """The variance of the answer, in squared units of the answer."""

    @property
    def deviation(self) -> float:
        """The standard deviation, in units of the answer."""
        return math.sqrt(self.variance)

    @abstractmethod
    def points(self) -> Floats:
        """Answers at which to plot the law: all but one part in a thousand lies between the first and the last."""


def centre(value: Any, *, is_whole: bool) -> float:
    """The centre of the noise on this number, as a float. Raises InvalidParameter for integers beyond ±2⁵²."""
    if not is_whole:
        return float(input_values.real(value))
    number = input_values.whole(value)
    if abs(number) > LARGEST_WHOLE:
        raise input_values.refused(
            "must lie within ±2⁵² for its law to be computed",
            "the noise does not depend on the value: subtract the same whole number from all values",
        )
    return float(number)


@final
@dataclass(frozen=True, slots=True)
class NoiseLaw(OutputLaw):
    """Noise of a shape, in steps of `spacing` around `centre`."""

    shape: NoiseShape
    width: float
    """The scale or σ, in steps."""
    spacing: float
    is_whole: bool
    centre: float = 0.0

    @property
    def is_discrete(self) -> bool:
        return self.is_whole

    def pdf(self, answer: Any) -> Any:
        steps = (_answers(answer) - self.centre) / self.spacing
        if not self.is_whole:
            return _like(answer, self.shape.mass(np.rint(steps), self.width) / self.spacing)
        return _like(answer, np.where(steps == np.rint(steps), self.shape.mass(steps, self.width), 0.0))

    def cdf(self, answer: Any) -> Any:
        steps = np.floor((_answers(answer) - self.centre) / self.spacing)
        return _like(answer, self.shape.below(steps, self.width))

    @property
    def mean(self) -> float:
        return self.centre

    @property
    def variance(self) -> float:
        return self.shape.variance(self.width, self.spacing**2)

    def points(self) -> Floats:
        reach = self.shape.reach_in_widths * self.width + 1
        if self.is_whole and reach <= 400:
            return np.asarray(self.centre + np.arange(-math.ceil(reach), math.ceil(reach) + 1.0))
        found = self.centre + self.spacing * reach * np.linspace(-1, 1, 801)
        return np.unique(np.rint(found)) if self.is_whole else found


@final
@dataclass(frozen=True, slots=True, eq=False)
class Masses(OutputLaw):
    """Finitely many answers and their probabilities. Answers that are not numbers are placed at 0, 1, 2, ..."""

    answers: tuple[Any, ...]
    masses: Floats

    @property
    def is_discrete(self) -> bool:
        return True

    @property
    def places(self) -> Floats:
        """The answers as numbers, or 0, 1, 2, ... if some are not numbers."""
        numbers = are_numbers(self.answers)
        return np.array(self.answers, dtype=float) if numbers else np.arange(float(len(self.answers)))

    def pdf(self, answer: Any) -> Any:
        at = np.atleast_1d(_answers(answer))
        return _like(answer, ((at[:, None] == self.places[None, :]) @ self.masses).reshape(np.shape(answer)))

    def cdf(self, answer: Any) -> Any:
        at = np.atleast_1d(_answers(answer))
        return _like(answer, ((at[:, None] >= self.places[None, :]) @ self.masses).reshape(np.shape(answer)))

    @property
    def mean(self) -> float:
        return float(self.masses @ self.places)

    @property
    def variance(self) -> float:
        return float(self.masses @ (self.places - self.mean) ** 2)

    def points(self) -> Floats:
        return self.places


@final
@dataclass(frozen=True, slots=True, eq=False)
class Pieces(OutputLaw):
    """A density that is constant between increasing `edges`; piece i has probability `masses[i]`."""

    edges: Floats
    masses: Floats

    @property
    def is_discrete(self) -> bool:
        return False

    def pdf(self, answer: Any) -> Any:
        at, heights = _answers(answer), self.masses / np.diff(self.edges)
        place = np.searchsorted(self.edges, at, side="right") - 1
        inside = (at >= self.edges[0]) & (at < self.edges[-1])
        return _like(answer, np.where(inside, heights[np.clip(place, 0, len(heights) - 1)], 0.0))

    def cdf(self, answer: Any) -> Any:
        return _like(answer, np.interp(_answers(answer), self.edges, np.concatenate(([0.0], np.cumsum(self.masses)))))

    @property
    def mean(self) -> float:
        return float(self.masses @ (self.edges[1:] + self.edges[:-1])) / 2

    @property
    def variance(self) -> float:
        a, b = self.edges[:-1] - self.mean, self.edges[1:] - self.mean
        return float(self.masses @ (a * a + a * b + b * b)) / 3

    def points(self) -> Floats:
        hair = 1e-6 * (self.edges[-1] - self.edges[0])
        dense = np.linspace(self.edges[0], self.edges[-1] - hair, 401)
        # Both sides of every step, so that a plot shows it vertical.
        found = np.unique(np.concatenate((dense, self.edges[:-1], self.edges[1:] - hair)))
        return np.asarray(found[(found >= self.edges[0]) & (found < self.edges[-1])])


@final
@dataclass(frozen=True, slots=True)
class Stairs(OutputLaw):
    """Staircase noise around `centre`: lower by a factor e^-ε beyond `high` of every `step`, on both sides."""

    step: float
    high: float
    epsilon: float
    is_whole: bool
    centre: float
    rms: float

    @property
    def is_discrete(self) -> bool:
        return self.is_whole

    @property
    def mean(self) -> float:
        return self.centre

    @property
    def variance(self) -> float:
        return self.rms**2

    def pdf(self, answer: Any) -> Any:
        away = np.abs(_answers(answer) - self.centre)
        full, rest = np.divmod(away, self.step)
        found = np.exp(-self.epsilon * (full + (rest >= self.high))) / self._total
        return _like(answer, np.where(away == np.rint(away), found, 0.0) if self.is_whole else found)

    def cdf(self, answer: Any) -> Any:
        away = _answers(answer) - self.centre
        if self.is_whole:
            away = np.floor(away)
            return _like(answer, np.where(away >= 0, 1 - self._beyond(away), self._beyond(-away - 1)))
        return _like(answer, np.where(away >= 0, 1 - self._beyond(away), self._beyond(-away)))

    def _beyond(self, away: Floats) -> Floats:
        """The probability of a larger distance; only meaningful for `away` >= 0."""
        fall = math.exp(-self.epsilon)
        full, rest = np.divmod(np.maximum(away, 0.0), self.step)
        begin = rest + 1 if self.is_whole else rest
        highs = np.maximum(self.high - begin, 0.0)
        lows = self.step - begin - highs
        return np.asarray(fall**full * (highs + lows * fall + fall * self._stair / (1 - fall)) / self._total)

    @property
    def _stair(self) -> float:
        return self.high + (self.step - self.high) * math.exp(-self.epsilon)

    @property
    def _total(self) -> float:
        return 2 * self._stair / (1 - math.exp(-self.epsilon)) - (1 if self.is_whole else 0)

    def edges(self) -> Floats:
        """The ends of stairs, out to where one part in 10¹² is left; for integers, the last integer of each stair."""
        steps = self.step * np.arange(min(math.ceil(30 / self.epsilon) + 1, MOST_TOLD))
        found = np.concatenate((steps, steps + self.high))
        rising = self.centre + found - (1 if self.is_whole else 0)
        return np.unique(np.concatenate((rising, self.centre - found)))

    def points(self) -> Floats:
        stairs = math.ceil(8 / self.epsilon) + 1
        reach = self.step * stairs
        if self.is_whole and reach <= 400:
            return np.asarray(self.centre + np.arange(-reach, reach + 1))
        dense = reach * np.linspace(-1, 1, 801)
        if not self.is_whole and stairs <= 100:  # both sides of every edge, so that a plot shows it vertical
            edges = np.add.outer(self.step * np.arange(stairs), [0.0, self.high]).ravel()
            hair = 1e-6 * self.step
            dense = np.unique(np.concatenate((dense, edges - hair, edges + hair, -edges - hair, -edges + hair)))
        return np.unique(np.rint(self.centre + dense)) if self.is_whole else np.asarray(self.centre + dense)


def masses(answers: Sequence[Any], probabilities: Any) -> Masses:
    """A law on finitely many answers. Raises InvalidParameter unless the probabilities sum to 1."""
    found = np.asarray(probabilities, dtype=float)
    if found.shape != (len(answers),) or np.any(found < 0) or abs(float(found.sum()) - 1) > 1e-9:
        raise InvalidParameter("probabilities", "...", "must be one for each answer, at least 0, and sum to 1")
    return Masses(tuple(answers), found)


def pushed(law: OutputLaw, function: Callable[[Any], Any]) -> Masses:
    """The law of function(answer). A continuous law is divided into cells of at most 1/128 of its standard deviation,
    whose borders do not depend on its position: laws on two values get the same cells, so their ratio does not grow.
    """
    found: dict[Any, float] = {}
    for answer, mass in zip(*_answers_of(law), strict=True):
        made = image(function, answer)
        found[made] = found.get(made, 0.0) + mass
    if are_numbers(found):
        found = dict(sorted(found.items()))
    return Masses(tuple(found), np.array(list(found.values())))


def are_numbers(answers: Iterable[Any]) -> bool:
    """Whether all answers are real numbers."""
    return all(isinstance(answer, Real) for answer in answers)


def image(function: Callable[[Any], Any], answer: Any) -> Any:
    """function(answer), evaluated twice. Raises InvalidOperation if the results differ: then the function is random or
    has state, and its law is unknown.
    """
    made = _plain(function(answer))
    if _plain(function(answer)) != made:
        raise InvalidOperation("the function applied to an answer is random or has state, so its law is not known")
    return made


def _plain(made: Any) -> Any:
    """The result in a form that can be listed and compared: NumPy values and lists as Python values, nan and inf by
    name.
    """
    if isinstance(made, np.generic | np.ndarray):
        made = made.tolist()
    if isinstance(made, list | tuple):
        return tuple(map(_plain, made))
    if isinstance(made, float) and not math.isfinite(made):
        return str(made)
    try:
        hash(made)
    except TypeError:
        raise InvalidOperation(
            f"the function returned a {type(made).__name__}, which cannot be listed; return a number, a "
            "text or a tuple, or look at plots.tradeoff(mechanism.curve)"
        ) from None
    return made


def in_cells(*given: OutputLaw) -> tuple[list[Any], list[list[float]]]:
    """The middles of cells that cover all of these laws (for integers, their first elements), and the masses of each
    law. The first and the last cell contain everything beyond.
    """
    whole, deviation = all(law.is_discrete for law in given), min(law.deviation for law in given)
    step = 2.0 ** math.floor(math.log2(deviation / 128))
    if whole:
        step = max(1.0, step)
    reach = math.ceil(20 * max(law.deviation for law in given) / step)
    first = min(math.floor(law.mean / step) for law in given) - reach
    last = max(math.floor(law.mean / step) for law in given) + reach
    begins = np.arange(first, last + 1, dtype=np.float64) * step
    # Cells begin at multiples of a power of two, where functions like floor, round and max(0, y) change.
    found: list[list[float]] = [between(law, begins[1:] - (1 if whole else 0)).tolist() for law in given]
    return ([int(place) for place in begins] if whole else (begins + step / 2).tolist()), found


def between(law: OutputLaw, borders: Floats) -> Floats:
    """The masses of (-∞, b₀], (b₀, b₁], …, (b_k, ∞). Noise around a centre is computed from the upper tail above it, so
    that nothing cancels: a ratio may depend on the rarest cells.
    """
    below = law.cdf(borders)
    if isinstance(law, NoiseLaw | Stairs):
        above, middle = law.cdf(2 * law.centre - borders - (1 if law.is_discrete else 0)), law.centre
    else:
        above, middle = np.zeros_like(below), math.inf  # pieces have no mass beyond their edges
    inner = np.where(borders[:-1] >= middle, above[:-1] - above[1:], np.diff(below))
    return np.asarray(np.maximum(np.concatenate((below[:1], inner, above[-1:])), 0.0))


def _answers_of(law: OutputLaw) -> tuple[list[Any], list[float]]:
    if isinstance(law, Masses):
        return list(law.answers), law.masses.tolist()
    middles, (found,) = in_cells(law)
    return middles, found


def orders(scores: Floats, count: int, *, two_sided: bool) -> dict[tuple[int, ...], float]:
    """The probability of each order of the `count` largest scores, with Laplace or (one-sided) exponential noise of
    scale 1: ∫ f_k(x) A(x) Π F_j(x) dx over the value x of the last winner, where A(x) is the probability that the
    earlier winners lie above it in their order, itself such an integral from x upwards. By quadrature between the
    kinks.
    """
    low = float(np.min(scores)) - (40.0 if two_sided else 0.0)
    cuts = np.unique(np.concatenate((scores, np.arange(low, float(np.max(scores)) + 40.0))))
    nodes, weights = np.polynomial.legendre.leggauss(24)
    half = np.diff(cuts)[:, None] / 2
    away = (cuts[:-1, None] + half * (1 + nodes))[None] - scores[:, None, None]
    tail = np.exp(-np.abs(away))
    density = tail / 2 if two_sided else np.where(away > 0, tail, 0.0)
    below = np.where(away > 0, 1 - tail / 2, tail / 2) if two_sided else np.where(away > 0, 1 - tail, 0.0)
    series = np.polynomial.legendre.legvander(nodes, len(nodes) - 1)
    ends = np.polynomial.legendre.legint(np.eye(len(nodes)), lbnd=1.0)
    onward = -np.polynomial.legendre.legval(nodes, ends).T @ np.linalg.inv(series)  # from each node to the piece's end

    def above(values: Any) -> Any:
        pieces = (half * values) @ weights
        return half * (values @ onward.T) + (np.cumsum(pieces[::-1])[::-1] - pieces)[:, None]

    so_far: dict[tuple[int, ...], Any] = {(): np.ones_like(away[0])}
    for _ in range(count - 1):
        so_far = {
            (*won, i): above(density[i] * chance)
            for won, chance in so_far.items()
            for i in range(len(scores))
            if i not in won
        }
    found: dict[tuple[int, ...], float] = {}
    for won, chance in so_far.items():
        for i in (i for i in range(len(scores)) if i not in won):
            others = [j for j in range(len(scores)) if j != i and j not in won]
            found[(*won, i)] = float(np.sum((half * (density[i] * chance * np.prod(below[others], axis=0))) @ weights))
    return found


def poisson(rate: float) -> Masses:
    """A Poisson law, cut off where one part in 10¹² is left."""
    from scipy.special import gammaln

    level = curve_arguments.positive("rate", rate)
    last = math.ceil(level + 8 * math.sqrt(level) + 30)
    first = max(0, math.floor(level - 8 * math.sqrt(level)))
    counts = np.arange(first, last + 1)
    found = np.exp(counts * math.log(level) - level - gammaln(counts + 1))
    return Masses(tuple(counts.tolist()), found / found.sum())


def needs_one_number(dimension: int | None, name: str) -> None:
    """Raise InvalidOperation if a mechanism releases several numbers at once."""
    if dimension not in (None, 1):
        raise InvalidOperation(
            f"law() describes one number; this {name} releases {dimension} at once: "
            "use a mechanism for one number, or look at the curve, plots.tradeoff(mechanism.curve)"
        )


def _answers(answer: Any) -> Floats:
    given = np.asarray(answer)
    if given.dtype.kind not in "biufO":
        raise InvalidParameter("answer", answer, "must be a number, or an array of numbers")
    return given.astype(float)


def _like(given: Any, found: Any) -> Any:
    return float(found) if np.ndim(given) == 0 else np.asarray(found)
