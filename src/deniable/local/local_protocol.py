"""A protocol of the local model: a randomizer for each person, an estimator for the collector, and the curve of a
report.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from deniable import arguments, curves
from deniable.arguments import NumberRange
from deniable.curves import Curve
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter
from deniable.local import packed_bits, report_checks
from deniable.local.collector_estimates import Estimate, Shares, Support, within
from deniable.local.report_checks import Ints, Packed

if TYPE_CHECKING:
    from deniable.noise import Entropy

Parameter = int | float | str


@final
@dataclass(frozen=True, slots=True, eq=False)
class Telling:
    """The probabilities of all reports from a person with the first answer (`one`) and with the second (`two`)."""

    one: dict[Any, float]
    two: dict[Any, float]
    what: str = ""
    """Which part of a report the keys describe, if not all of it."""


class Protocol(ABC):
    """A local randomizer and its aggregator. For all pairs of answers that one person may have, the two distributions
    of the report are at most as distinguishable as `curve` says. This holds for each person separately, whatever the
    others do.

    `randomize` is the person's side (one answer in, one report out; a list in, an array out) and `estimate` the
    collector's. Only reports ever leave a person.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def curve(self) -> Curve:
        """The privacy guarantee of one report about the person's answer."""

    @abstractmethod
    def randomize(self, answers: Any, *, entropy: Entropy | None = None) -> Any:
        """One report for each answer. Probabilities are exact: none depends on floating-point arithmetic. `entropy` is
        for tests.
        """

    def probabilities(self, answer: Any) -> dict[Any, float]:
        """The probability of each report from a person with this answer, for planning and teaching.

        The answer is a public example, never a person's own. Raises InvalidOperation if there are too many reports to
        list.
        """
        raise too_many(self)

    def told_apart(self, x: Any, x2: Any) -> Telling:
        """The probabilities of reports from people with two answers, for teaching. If there are too many reports, those
        that distinguish the two answers equally well are grouped.
        """
        return Telling(self.probabilities(x), self.probabilities(x2))

    @abstractmethod
    def estimate(self, reports: Any) -> Estimate:
        """The collector's unbiased estimate from the reports of all people, with its standard error. Raises
        InvalidParameter if there is no report, or if one cannot come from this protocol.
        """

    @abstractmethod
    def parameters(self) -> dict[str, Parameter]:
        """The keyword arguments that construct this protocol again; strings are exact ratios."""

    @abstractmethod
    def encode(self, reports: Any) -> list[str]:
        """Reports as short texts, one per person, for a file."""

    def decode(self, texts: Sequence[str]) -> Any:
        """The reports that `encode` wrote. Raises InvalidParameter for texts that it cannot have written."""
        rule = f"must be {self.form}, as encode writes them"
        listed = report_checks.texts("reports", texts, rule)
        try:
            found = self.parsed(listed)
            # int() accepts spellings that encode never writes, and numbers that are not reports: encode again and
            # compare.
            written = self.encode(found)
        except (ValueError, OverflowError):
            raise InvalidParameter("reports", NOTHING, rule) from None
        if written != listed:
            raise InvalidParameter("reports", NOTHING, rule)
        return found

    @property
    def form(self) -> str:
        """The form of the texts of reports, in words."""
        return "whole numbers"

    def parsed(self, texts: list[str]) -> Any:
        """Reports from texts in the form that `encode` writes. For other texts: ValueError, or any value."""
        return np.array([int(text) for text in texts], dtype=np.int64)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.parameters().items())
        return f"{type(self).__name__}({shown})"


class SharesProtocol(Protocol):
    """A protocol whose report supports some answers: with one probability the person's own answer, with a lower
    probability each other answer. All estimates of shares follow from these two numbers (Wang, Blocki, Li & Jha 2017).
    """

    __slots__ = ()

    @property
    @abstractmethod
    def support(self) -> Support:
        """The two probabilities, exact if the odds are rational."""

    @abstractmethod
    def count(self, reports: Any) -> tuple[Ints, int]:
        """How many reports support each answer, and how many reports there are."""

    def estimate(self, reports: Any) -> Shares:
        counts, people = self.count(reports)
        return Shares(counts, report_checks.some(people), self.support)

    def variance(self, *, share: Any, people: int) -> Any:
        """The variance of the estimate among `people` people, if `share` of them have the answer. A Fraction if both
        the share and the odds are rational.
        """
        return self.support.variance(report_checks.share(share), report_checks.people(people))

    def population_variance(self, *, share: Any, people: int) -> Any:
        """The variance of the estimate of a population's share, if the people are drawn from it at random."""
        return self.support.population_variance(report_checks.share(share), report_checks.people(people))

    def error(self, *, people: int, confidence: float, shares: int = 1) -> float:
        """A bound on the errors of `shares` estimated shares that holds for all of them with probability at least
        `confidence`, for any number of people, about the people who answered or about a population: sqrt(ln(2 shares/β)
        / (2 n)) / gap.

        Hoeffding's inequality for n reports in [0, 1] and a union bound over the shares, β = 1 - confidence.
        """
        rule = f"must be at least 1 and at most {MOST_CATEGORIES:,}"
        n, k = (
            report_checks.people(people),
            arguments.whole("shares", shares, NumberRange(rule, least=1, most=MOST_CATEGORIES)),
        )
        return math.sqrt(math.log(2 * k / (1 - within("confidence", confidence))) / (2 * n)) / float(self.support.gap)


class BitsProtocol(SharesProtocol):
    """A protocol whose report is a row of bits, one per category, packed eight to a byte."""

    __slots__ = ()
    categories: int

    def probabilities(self, answer: Any) -> dict[Any, float]:
        """Keys are reports as texts of bits, category 0 first."""
        own = self.listed_category(answer)
        chances = [float(self.support.own if i == own else self.support.other) for i in range(self.categories)]
        found: dict[Any, float] = {"": 1.0}
        for chance in chances:
            found = {
                bits + bit: mass * p for bits, mass in found.items() for bit, p in (("0", 1 - chance), ("1", chance))
            }
        return found

    def told_apart(self, x: Any, x2: Any) -> Telling:
        """By report if there are few, else by the bits of the two answers, the only bits whose distributions differ."""
        if self.categories <= MOST_BITS:
            return SharesProtocol.told_apart(self, x, x2)
        own, other = float(self.support.own), float(self.support.other)
        a, b = (report_checks.category("answer", answer, self.categories) for answer in (x, x2))
        first = two_bits(own, other) if a != b else {"0": 1 - own, "1": own}
        second = two_bits(other, own) if a != b else first
        return Telling(first, second, f"bits {a} and {b} of the report" if a != b else f"bit {a} of the report")

    def listed_category(self, answer: Any) -> int:
        """The number of this category. Raises InvalidOperation if there are too many categories to list all reports."""
        category = report_checks.category("answer", answer, self.categories)
        if self.categories > MOST_BITS:
            raise too_many(self, f" (at most {MOST_BITS} categories can be listed)")
        return category

    def rows(self, reports: Any) -> Packed:
        """Reports as packed rows. Rows that `randomize` cannot return raise InvalidParameter; here every row of bits is
        possible.
        """
        return report_checks.packed("reports", reports, self.categories)

    def count(self, reports: Any) -> tuple[Ints, int]:
        rows = self.rows(reports)
        return packed_bits.totals(rows, self.categories), len(rows)

    def unpacked(self, reports: Packed) -> np.typing.NDArray[np.bool_]:
        """The rows as True and False for each category."""
        return np.unpackbits(self.rows(reports), axis=1, count=self.categories, bitorder="little").astype(np.bool_)

    def encode(self, reports: Any) -> list[str]:
        return [row.tobytes().hex() for row in self.rows(reports)]

    @property
    def form(self) -> str:
        return f"{report_checks.width(self.categories)} bytes each in hexadecimal"

    def parsed(self, texts: list[str]) -> Packed:
        return report_checks.hexadecimal(texts, self.categories)


def two_bits(first: float, second: float) -> dict[Any, float]:
    """The distribution of two independent bits that are 1 with these probabilities; keys are texts."""
    return {
        f"{i:d}{j:d}": (first if i else 1 - first) * (second if j else 1 - second)
        for i in (False, True)
        for j in (False, True)
    }


def too_many(protocol: Protocol, otherwise: str = "") -> InvalidOperation:
    """The error for a protocol with too many reports to list; `otherwise` states the largest number that is listed."""
    return InvalidOperation(
        f"{type(protocol).__name__} has too many possible reports to list them{otherwise}; "
        "look at what an attacker can do with one: plots.tradeoff(protocol.curve)"
    )


def diluted(curve: Curve, chance: float) -> Curve:
    """The curve of a report that has this curve with probability `chance` (rounded up by the caller) and otherwise
    reveals nothing, if the report shows which case occurred.
    """
    if chance >= 1:
        return curve
    return curves.mixture([1 - chance, chance], [curves.identity(), curve])


def category_count(value: Any) -> int:
    """A number of categories, 2 to 2^24."""
    rule = f"must be at least 2 and at most {MOST_CATEGORIES:,}"
    return arguments.whole("categories", value, NumberRange(rule, least=2, most=MOST_CATEGORIES))


MOST_CATEGORIES = 2**24
MOST_BITS = 6
"""The largest number of bits for which `probabilities` lists every report."""
