"""Many linear queries about one private bit of each person: three mechanisms, and which is best when.

There are n people, each with a private bit x_j, and k public queries with weights in [0, 1]: q_i = (w_i1 x_1 + … + w_in
x_n)/n. Neighbours change one person's bit, so n is public.

    LinearQueries.laplace                Laplace noise on all k answers; error about k·log(k/β)/(εn)
    LinearQueries.gaussian               Gaussian noise; error about √(k·log(k/β))/(μn); needs δ > 0
    LinearQueries.randomized_response    every bit is randomised once; error about √(log(k/β)/n)/ε; no curator

For few queries noise on the answers is better, by a factor of about √n. For many queries randomised bits are better,
because they are paid for once: they beat Laplace noise from about k = √n on, and Gaussian noise from about k = n on.
`best` compares all three without looking at data.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable import curves, noise
from deniable.curves import Curve, curve_arguments
from deniable.errors import NOTHING, InvalidParameter
from deniable.mechanisms import distinguishing_parts, input_values, noise_quantiles, rational_parameters
from deniable.mechanisms.additive_noise import Gaussian, Laplace
from deniable.mechanisms.distinguishing_parts import AnswerPart, Told
from deniable.mechanisms.laws import Masses
from deniable.mechanisms.mechanism import Mechanism
from deniable.mechanisms.noise_steps import Additive
from deniable.noise.entropy import checked_entropy

if TYPE_CHECKING:
    from deniable.noise import Entropy

MOST_WEIGHTS: Final = 10**7
MOST_PEOPLE: Final = 10**15
SMALLEST_TAIL: Final = 1e-290
"""Probabilities below this are represented by their logarithms."""


class LinearQueries(Mechanism):
    """Answers to k linear queries about n private bits. Created by one of the three named constructors.

    For all neighbours D, D′ that differ in one person's bit: at most as distinguishable as `curve` says. Private bits
    are 1 or True; every other entry (2, 0.9, "1") counts as 0, because an error about one entry would reveal something
    about its person. So check the coding of the column first.

    >>> from deniable import mechanisms
    >>> weights = [[1, 1, 1, 1], [1, 0, 1, 0]]  # everyone; every other person
    >>> noisy = mechanisms.LinearQueries.laplace(weights=weights, epsilon=1.0)
    >>> len(noisy.release([1, 0, 0, 1]))
    2

    Source: Y.-X. Wang, lecture notes on linear queries; Dwork & Roth (2014), sections 3.3 and 3.2.
    """

    __slots__ = ()
    weights: tuple[tuple[float, ...], ...]

    @staticmethod
    def laplace(*, weights: Any, epsilon: float) -> LinearQueries:
        """Laplace noise: one bit moves all answers together by at most the largest column sum of the weights."""
        table = _weights(weights)
        moved = _sum_up(table).max()
        return NoisyAnswers(_listed(table), Laplace(sensitivity=Fraction(moved), epsilon=epsilon, dimension=len(table)))

    @staticmethod
    def gaussian(
        *, weights: Any, mu: float | None = None, epsilon: float | None = None, delta: float | None = None
    ) -> LinearQueries:
        """Gaussian noise: one bit moves the answers by at most the largest column norm. `mu=`, or `epsilon=` with
        `delta=`.
        """
        table = _weights(weights)
        moved = rational_parameters.root_up(Fraction(_sum_up(table * table).max()))
        noisy = Gaussian(sensitivity=moved, mu=mu, epsilon=epsilon, delta=delta, dimension=len(table))
        return NoisyAnswers(_listed(table), noisy)

    @staticmethod
    def randomized_response(*, weights: Any, epsilon: float) -> LinearQueries:
        """Every bit is kept with probability e^ε/(1 + e^ε) and flipped otherwise, once for all queries."""
        return NoisyBits(_listed(_weights(weights)), rational_parameters.down(rational_parameters.epsilon(epsilon)))

    @property
    def queries(self) -> int:
        """k, the number of queries."""
        return len(self.weights)

    @property
    def people(self) -> int:
        """n, the number of people, which is public."""
        return len(self.weights[0])

    def _bits(self, value: Any) -> input_values.Ints:
        """One bit per person. Everything except 1 (or True) is 0, so that no person's entry can cause an error."""
        bits = input_values.column(value)
        if bits.size != self.people:
            raise input_values.refused(f"must have {self.people} bits, one for each person")
        return np.asarray(bits == 1).astype(np.int64)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.queries} questions, {self.people} people, {self.curve!r})"

    @abstractmethod
    def error(self, *, confidence: float) -> float:
        """A bound on the error of all answers at once, with probability at least `confidence`."""


@final
@dataclass(frozen=True, slots=True, repr=False)
class NoisyAnswers(LinearQueries):
    """The exact answers with noise on each."""

    weights: tuple[tuple[float, ...], ...]
    noise: Additive

    @property
    def curve(self) -> Curve:
        return self.noise.curve

    def release(self, value: Any, *, entropy: Entropy | None = None) -> input_values.Floats:
        """The answers, one for each question."""
        checked_entropy(entropy)
        return np.array([self.noise.noisy(total, entropy) for total in self._totals(value)]) / self.people

    def _totals(self, value: Any) -> list[Fraction]:
        held = self._bits(value) == 1
        return [noise.exact_sum(row[held]) for row in np.array(self.weights)]

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """The answers that differ, times the number of people."""
        one, two = (list(map(float, self._totals(bits))) for bits in (x, x2))
        return distinguishing_parts.numbers(
            self.noise, one, two, lambda i: f"answer {i + 1}, times the {self.people} people"
        )

    def error(self, *, confidence: float) -> float:
        return self.noise.error(confidence=confidence) / self.people * (1 + noise_quantiles.SLACK)


@final
@dataclass(frozen=True, slots=True, repr=False)
class NoisyBits(LinearQueries):
    """Linear queries on randomized bits: each bit is randomized, an unbiased estimate of it is computed, and the
    queries are applied to these estimates.
    """

    weights: tuple[tuple[float, ...], ...]
    epsilon: float

    @property
    def curve(self) -> Curve:
        return curves.randomized_response(epsilon=self.epsilon)

    def release(self, value: Any, *, entropy: Entropy | None = None) -> input_values.Floats:
        """The answers, one for each question, from one randomisation of the bits."""
        checked_entropy(entropy)
        bits = self._bits(value)
        # Index 1, "keep", has weight e^ε against 1.
        kept = noise.choice(log_weights=[0, Fraction(self.epsilon)], size=bits.size, entropy=entropy)
        shown = np.where(np.asarray(kept) == 1, bits, 1 - bits)
        unbiased = 0.5 + (shown - 0.5) / math.tanh(self.epsilon / 2)
        return np.asarray(np.array(self.weights) @ unbiased / self.people)

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """The randomised bits that differ, before the queries are applied."""
        kept = 1 / (1 + math.exp(-self.epsilon))
        laws = (Masses((0, 1), np.array([kept, 1 - kept])), Masses((0, 1), np.array([1 - kept, kept])))
        one, two = (self._bits(bits).tolist() for bits in (x, x2))
        before = "the randomised bits, before the questions are asked of them"
        found = [
            AnswerPart(laws[a], laws[b], f"the bit of person {i}" if self.people > 1 else "", before=before)
            for i, (a, b) in enumerate(zip(one, two, strict=True), 1)
        ]
        return distinguishing_parts.differing(found)

    def error(self, *, confidence: float) -> float:
        """Hoeffding: a person's unbiased bit has two values 1/tanh(ε/2) apart; a union bound over the queries."""
        squares = max(math.fsum(w * w for w in row) for row in self.weights)
        allowed = noise_quantiles.miss(confidence)
        reach = math.sqrt(math.log(2 * self.queries / allowed) * squares / 2)
        return reach / (math.tanh(self.epsilon / 2) * self.people) * (1 + noise_quantiles.SLACK)


def _weights(weights: Any) -> input_values.Floats:
    """Public weights as a table: one row per query, one column per person."""
    try:
        table = np.asarray(weights)
        if table.dtype.kind not in "biufO" or (
            table.dtype.kind == "O" and any(isinstance(weight, str | bytes) for weight in table.flat)
        ):
            raise TypeError
        table = table.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidParameter("weights", NOTHING, "must be a table of numbers, with a row for each question") from None
    if table.ndim != 2 or not 0 < table.size <= MOST_WEIGHTS:
        raise InvalidParameter(
            "weights", table.shape, "must be a table with a row for each question and a column for each person"
        )
    if not bool(((table >= 0) & (table <= 1)).all()):
        raise InvalidParameter("weights", NOTHING, "must lie between 0 and 1")
    if not bool((table > 0).any()):
        raise InvalidParameter("weights", NOTHING, "must not all be 0")
    return table


def _sum_up(table: input_values.Floats) -> input_values.Floats:
    """Column sums, rounded up; exact for weights 0 and 1. Each of k squares and additions loses at most half a unit."""
    sums = np.asarray(table.sum(axis=0))
    return sums if bool((table == np.rint(table)).all()) else sums * (1 + 2.0**-51 * (len(table) + 4))


def _listed(table: input_values.Floats) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in table.tolist())


# -- comparison of the three -----------------------------------------------------------------------------------------


def laplace_error(*, queries: int, people: int, epsilon: float, beta: float) -> float:
    """(k/(nε)) log(k/β): a bound on the error of all k answers at once, except with probability β, with Laplace noise.

    >>> round(laplace_error(queries=10, people=1000, epsilon=1.0, beta=0.05), 12)
    0.052983173665
    """
    k, n, e, b = _asked(queries, people, epsilon, beta)
    return _over(k, n) / e * (math.log(k) - math.log(b))


def gaussian_error(*, queries: int, people: int, epsilon: float, delta: float, beta: float) -> float:
    """(√k/(nμ)) z with P(|N(0, 1)| > z) = β/k: the bound of `laplace_error` for Gaussian noise that is (ε, δ)-DP."""
    from deniable.mechanisms.additive_noise import gaussian_mu

    k, n, e, b = _asked(queries, people, epsilon, beta)
    mu = gaussian_mu(e, curve_arguments.inner_probability("delta", delta))
    return _over(math.isqrt(k << 128), n << 64) / mu * _normal(math.log(b) - math.log(k))


def randomized_response_error(*, queries: int, people: int, epsilon: float, beta: float) -> float:
    """((e^ε+1)/(e^ε−1)) √(log(2k/β)/(2n)): randomised bits, by Hoeffding's inequality.

    >>> round(randomized_response_error(queries=10, people=1000, epsilon=1.0, beta=0.05), 12)
    0.118440274704
    """
    k, n, e, b = _asked(queries, people, epsilon, beta)
    return math.sqrt(_over(1, 2 * n) * (math.log(2 * k) - math.log(b))) / math.tanh(e / 2)


def _over(numerator: int, denominator: int) -> float:
    """The ratio of two integers of any size, say 2ⁿ queries; inf beyond the largest float."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf


def _normal(log_allowed: float) -> float:
    """z with P(|N(0, 1)| > z) <= exp(log_allowed), also if that underflows."""
    if log_allowed > math.log(SMALLEST_TAIL):
        return noise_quantiles.normal(math.exp(log_allowed))
    from scipy.special import log_ndtr

    # P(|N| > z) <= exp(-z²/2), so z lies below the first high end.
    low, high = 0.0, math.sqrt(-2 * log_allowed)
    while high - low > noise_quantiles.SLACK * high:
        middle = (low + high) / 2
        low, high = (low, middle) if math.log(2) + float(log_ndtr(-middle)) <= log_allowed else (middle, high)
    return high * (1 + noise_quantiles.SLACK)


def sample_size(
    *, queries: int, error: float, epsilon: float, beta: float, delta: float | None = None
) -> Mapping[str, int]:
    """The smallest number of people for which each mechanism answers all queries within `error`, except with
    probability β.

    The formulas above, solved for n: randomised bits need about log(k)/error² people, Laplace noise about k/error,
    Gaussian noise (with `delta`) about √k/error.

    >>> sample_size(queries=100, error=0.05, epsilon=1.0, beta=0.05)
    {'laplace': 15202, 'randomized_response': 7768}
    """
    wanted = curve_arguments.positive("error", error)
    _asked(queries, 1, epsilon, beta)
    ways: dict[str, Callable[[int], float]] = {
        "laplace": lambda n: laplace_error(queries=queries, people=n, epsilon=epsilon, beta=beta),
        "randomized_response": lambda n: randomized_response_error(
            queries=queries, people=n, epsilon=epsilon, beta=beta
        ),
    }
    if delta is not None:
        ways["gaussian"] = lambda n: gaussian_error(queries=queries, people=n, epsilon=epsilon, delta=delta, beta=beta)
    return {name: _smallest(way, wanted) for name, way in ways.items()}


def _smallest(error_of: Callable[[int], float], wanted: float) -> int:
    """The smallest n with error_of(n) <= wanted; the error decreases with n."""
    high = 1
    while error_of(high) > wanted:
        high *= 2
        if high > MOST_PEOPLE:
            raise InvalidParameter(
                "error", wanted, f"would need more than {MOST_PEOPLE:,} people", "ask for a larger error"
            )
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if error_of(middle) <= wanted else (middle, high)
    return high


def _asked(queries: Any, people: Any, epsilon: Any, beta: Any) -> tuple[int, int, float, float]:
    return (
        curve_arguments.integer("queries", queries, 1),
        curve_arguments.integer("people", people, 1),
        curve_arguments.positive("epsilon", epsilon),
        curve_arguments.inner_probability("beta", beta),
    )


def errors(*, weights: Any, epsilon: float, delta: float | None = None, confidence: float) -> Mapping[str, float]:
    """The error of each mechanism on these queries, at the same ε (and for Gaussian noise, δ). Uses no data."""
    found = {
        "laplace": LinearQueries.laplace(weights=weights, epsilon=epsilon),
        "randomized_response": LinearQueries.randomized_response(weights=weights, epsilon=epsilon),
    }
    if delta is not None:
        found["gaussian"] = LinearQueries.gaussian(weights=weights, epsilon=epsilon, delta=delta)
    return {name: mechanism.error(confidence=confidence) for name, mechanism in found.items()}


def best(*, weights: Any, epsilon: float, delta: float | None = None, confidence: float) -> LinearQueries:
    """The mechanism with the smallest error on these queries. Uses no data, so it costs nothing.

    >>> import numpy as np
    >>> few, many = np.ones((1, 400)), np.random.default_rng(0).integers(0, 2, (3000, 400))
    >>> type(best(weights=few, epsilon=1.0, confidence=0.95)).__name__
    'NoisyAnswers'
    >>> type(best(weights=many, epsilon=1.0, confidence=0.95)).__name__
    'NoisyBits'
    """
    found = errors(weights=weights, epsilon=epsilon, delta=delta, confidence=confidence)
    winner = min(found, key=lambda name: found[name])
    if winner == "gaussian":
        return LinearQueries.gaussian(weights=weights, epsilon=epsilon, delta=delta)
    make = LinearQueries.laplace if winner == "laplace" else LinearQueries.randomized_response
    return make(weights=weights, epsilon=epsilon)
