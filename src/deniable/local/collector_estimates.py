"""The collector's estimates: an unbiased value, its standard error, and confidence intervals.

::

    Estimate         value, standard_error, interval(confidence=), projected()
    ├── Shares       the share of people with each answer
    ├── Fitted       the share of people with each of several candidate answers, fitted by least squares
    └── Mean         the mean of a number

Every number is about one of two things. *The people who answered*: only the noise of their reports is uncertain
(`standard_error`, `interval`). *The population* from which they were drawn at random: sampling adds to the uncertainty
(`population_error`, `population_interval`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np

from deniable import arguments
from deniable.arguments import INNER_PROBABILITY
from deniable.local.exact_odds import Number
from deniable.local.report_checks import Floats, Ints
from deniable.numbers import onto_simplex


@final
@dataclass(frozen=True, slots=True)
class Support:
    """The probability that a report supports an answer: `other` + `gap` for the person's own answer, `other` for each
    other answer. Every estimate of shares follows from these two numbers (Wang et al. 2017, "pure" protocols).
    """

    other: Number
    gap: Number

    @property
    def own(self) -> Number:
        """The probability that a report supports the person's own answer."""
        return self.other + self.gap

    def share(self, count: Any, people: int) -> Any:
        """The unbiased share (count/n - other)/gap."""
        return (count - people * self.other) / (people * self.gap)

    def variance(self, share: Any, people: int) -> Any:
        """Variance of the estimate for the people who answered, if their true share is `share`: [q(1-q) +
        f(p-q)(1-p-q)] / (n(p-q)²).
        """
        spread = self.other * (1 - self.other) + share * self.gap * (1 - 2 * self.other - self.gap)
        return spread / (people * self.gap**2)

    def population_variance(self, share: Any, people: int) -> Any:
        """Variance of the estimate for a population of true share `share`, people drawn at random: r(1-r) / (n(p-q)²),
        where r is how often reports support the answer.
        """
        rate = self.other + share * self.gap
        return rate * (1 - rate) / (people * self.gap**2)


SHOWN_CONFIDENCE: Final = 0.95
MOST_SHOWN: Final = 8
"""The confidence level of the intervals in a repr, and how many of them it contains."""


class Estimate(ABC):
    """A number, or one for each answer, with its uncertainty. A single number is a float, several are an array."""

    __slots__ = ()

    @property
    @abstractmethod
    def people(self) -> int:
        """The number of reports."""

    @property
    @abstractmethod
    def value(self) -> Any:
        """The unbiased estimate. It may lie outside the possible values; see `projected`."""

    @property
    @abstractmethod
    def standard_error(self) -> Any:
        """Standard deviation of `value` around the truth about the people who answered, estimated from the reports."""

    @property
    @abstractmethod
    def population_error(self) -> Any:
        """Standard deviation of `value` around the truth about the population they were drawn from."""

    @abstractmethod
    def interval(self, *, confidence: float) -> tuple[Any, Any]:
        """A confidence interval (low, high) for the truth about the people who answered. 0 < confidence < 1."""

    @abstractmethod
    def population_interval(self, *, confidence: float) -> tuple[Any, Any]:
        """A confidence interval (low, high) for the truth about the population. 0 < confidence < 1."""

    @abstractmethod
    def projected(self) -> Any:
        """The nearest possible value. Post-processing: it costs no privacy, but the result is not unbiased."""

    def __repr__(self) -> str:
        shown = np.array2string(np.asarray(self.value), precision=4, threshold=8)
        return f"{type(self).__name__}({shown}, people={self.people})"


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Shares(Estimate):
    """The share of people with an answer (a float), or with each answer (an array)."""

    counts: Ints
    """How many reports support each answer."""
    reports: int
    support: Support
    labels: tuple[str, ...] = ()
    """The names of the answers, in their order; empty if the answers have no names."""

    def __repr__(self) -> str:
        few = replace(self, counts=np.atleast_1d(self.counts)[:MOST_SHOWN], labels=self.labels[:MOST_SHOWN])
        is_alone = self.counts.ndim == 0 and not self.labels
        shown = ", ".join(
            f"{'' if is_alone else f'{name}: '}{value:.4f} ({low:.4f} to {high:.4f})"
            for name, (value, low, high) in few.named(confidence=SHOWN_CONFIDENCE).items()
        )
        more = f", … {self.counts.size - MOST_SHOWN} more" if self.counts.size > MOST_SHOWN else ""
        return f"Shares({shown}{more}; people={self.people}, intervals at {100 * SHOWN_CONFIDENCE:g} %)"

    def named(self, *, confidence: float) -> dict[Any, tuple[float, float, float]]:
        """(value, low, high) of each share by its label, or by its number if there are no labels.

        >>> from deniable import local
        >>> done = local.survey({"smokes": ["yes", "no"] * 500}, question="smokes", epsilon=1)
        >>> list(done.estimate().named(confidence=0.95))
        ['yes']
        """
        values, low, high = (np.atleast_1d(part) for part in (self.value, *self.interval(confidence=confidence)))
        names = self.labels or range(len(values))
        return dict(zip(names, zip(values.tolist(), low.tolist(), high.tolist(), strict=True), strict=True))

    @property
    def people(self) -> int:
        return self.reports

    @property
    def value(self) -> Any:
        return given(self._other_and_gap().share(self.counts, self.reports))

    @property
    def standard_error(self) -> Any:
        support = self._other_and_gap()
        possible = np.clip(support.share(self.counts, self.reports), 0, 1)
        return given(np.sqrt(support.variance(possible, self.reports)))

    @property
    def population_error(self) -> Any:
        support = self._other_and_gap()
        possible = np.clip(support.share(self.counts, self.reports), 0, 1)
        return given(np.sqrt(support.population_variance(possible, self.reports)))

    def interval(self, *, confidence: float) -> tuple[Any, Any]:
        """The shares that a score test does not reject, widened by half a report for continuity, each answer
        separately.

        A share f makes the count nearly normal with mean n(q + gf) and variance n[q(1-q) + fg(1-2q-g)]: the ends solve
        a quadratic equation. Cut to [0, 1]. The coverage is close to `confidence` from about a thousand people on;
        `population_interval` is wider, and valid for any number of people.
        """
        n, q, g = self.reports, float(self.support.other), float(self.support.gap)
        z2, tilt = deviation(confidence) ** 2, g * (1 - 2 * q - g)

        def end(count: Any, side: int) -> Any:
            """Where the count lies exactly z deviations to the given side of its mean."""
            lead = n * q - count
            a, b, c = (n * g) ** 2, 2 * n * g * lead - z2 * n * tilt, lead**2 - z2 * n * q * (1 - q)
            return (-b + side * np.sqrt(np.maximum(b * b - 4 * a * c, 0.0))) / (2 * a)

        def excess(share: int, count: Any) -> Any:
            """The signed square of (count - mean)/standard deviation, for this true share."""
            beyond = count - n * (q + g * share)
            return beyond * np.abs(beyond) / (n * (q * (1 - q) + tilt * share))

        # Half a count for continuity, and the correction of the quantile of a skewed count (Cornish & Fisher 1938).
        skew = max(z2 - 1, 0) / 6
        less = self.counts - 0.5 - skew * max(1 - 2 * q, 0)
        more = self.counts + 0.5 + skew * max(2 * (q + g) - 1, 0)
        low = np.where(excess(0, less) <= z2, 0.0, np.clip(end(less, -1), 0.0, 1.0))
        high = np.where(excess(1, more) >= -z2, 1.0, np.clip(end(more, 1), 0.0, 1.0))
        return given(low), given(high)

    def population_interval(self, *, confidence: float) -> tuple[Any, Any]:
        """Clopper & Pearson (1934) for the binomial count: the coverage is at least `confidence`, for any n."""
        from scipy.special import betaincinv

        miss = (1 - within("confidence", confidence)) / 2
        n, other, gap = self.reports, float(self.support.other), float(self.support.gap)
        low = np.where(self.counts > 0, betaincinv(np.maximum(self.counts, 1), n - self.counts + 1, miss), 0.0)
        high = np.where(self.counts < n, betaincinv(self.counts + 1, np.maximum(n - self.counts, 1), 1 - miss), 1.0)
        ends = [np.clip((rate - other) / gap, 0.0, 1.0) for rate in (low, high)]
        return given(ends[0]), given(ends[1])

    def projected(self) -> Any:
        """The nearest shares that are at least 0 and sum to 1 (for a single share: the nearest in [0, 1])."""
        value = np.asarray(self.value)
        return float(np.clip(value, 0, 1)) if value.ndim == 0 else onto_simplex(value)

    def _other_and_gap(self) -> Support:
        return Support(float(self.support.other), float(self.support.gap))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Fitted(Estimate):
    """The shares of several candidates, fitted by least squares; the errors cover noise, sampling and cohorts."""

    shares: Floats
    errors: Floats
    reports: int

    @property
    def people(self) -> int:
        return self.reports

    @property
    def value(self) -> Floats:
        return self.shares

    @property
    def standard_error(self) -> Floats:
        """The population's error, which is never smaller: the assignment to cohorts is random as well."""
        return self.errors

    @property
    def population_error(self) -> Floats:
        return self.errors

    def interval(self, *, confidence: float) -> tuple[Floats, Floats]:
        return self.population_interval(confidence=confidence)

    def population_interval(self, *, confidence: float) -> tuple[Floats, Floats]:
        """(low, high) of each candidate's share in the population, by the normal approximation, cut to [0, 1]."""
        reach = deviation(confidence) * self.errors
        return np.clip(self.shares - reach, 0, 1), np.clip(self.shares + reach, 0, 1)

    def projected(self) -> Floats:
        """The nearest shares that are at least 0 and sum to at most 1: people may have other answers too."""
        positive = np.maximum(self.shares, 0.0)
        return positive if positive.sum() <= 1 else np.asarray(onto_simplex(self.shares))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Mean(Estimate):
    """The mean of a number between public bounds."""

    reports: int
    low: float
    high: float
    mean: float
    variance: float
    """The variance of the estimate for the people who answered; an upper bound if reports do not determine it."""
    population_variance: float
    rounding: float
    """The largest error by rounding an answer to the grid; intervals are wider by this on both sides."""

    @property
    def people(self) -> int:
        return self.reports

    @property
    def value(self) -> float:
        return self.mean

    @property
    def standard_error(self) -> float:
        return float(np.sqrt(self.variance))

    @property
    def population_error(self) -> float:
        return float(np.sqrt(self.population_variance))

    def interval(self, *, confidence: float) -> tuple[float, float]:
        """(low, high) by the normal approximation, cut to the bounds; 0 < `confidence` < 1."""
        return self._around(deviation(confidence) * self.standard_error)

    def population_interval(self, *, confidence: float) -> tuple[float, float]:
        """(low, high) by the normal approximation, cut to the bounds; 0 < `confidence` < 1."""
        return self._around(deviation(confidence) * self.population_error)

    def projected(self) -> float:
        """The nearest number between the bounds."""
        return min(max(self.mean, self.low), self.high)

    def _around(self, reach: float) -> tuple[float, float]:
        ends = (self.mean - reach - self.rounding, self.mean + reach + self.rounding)
        return min(max(ends[0], self.low), self.high), min(max(ends[1], self.low), self.high)


def given(values: Any) -> Any:
    """A single number as a float, several as an array."""
    array = np.asarray(values, dtype=np.float64)
    return float(array) if array.ndim == 0 else array


def within(name: str, value: float) -> float:
    """A number strictly between 0 and 1."""
    return float(arguments.rational(name, value, INNER_PROBABILITY))


def deviation(confidence: float) -> float:
    """The number of standard deviations on both sides of the mean that contain this share of a normal distribution."""
    from scipy.special import ndtri

    return float(-ndtri((1 - within("confidence", confidence)) / 2))
