"""A protocol of the local model: what each person does, what the collector does, and the curve between them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from deniable import curves
from deniable.curves import Curve
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter
from deniable.local import packed_bits, report_checks
from deniable.local.collector_estimates import Estimate, Shares, Support, within
from deniable.local.report_checks import Ints, Packed
from deniable.noise import noise_arguments

if TYPE_CHECKING:
    from deniable.noise import Entropy

Parameter = int | float | str


@final
@dataclass(frozen=True, slots=True, eq=False)
class Telling:
    """What reports tell about which of two answers a person has: the probabilities of reports from both."""

    one: dict[Any, float]
    two: dict[Any, float]
    what: str = ""
    """What is told of a report, where it is not all of it."""


class Protocol(ABC):
    """No curator: for all pairs of answers that one person may have, their reports are as hard to tell apart as `curve`
    says. It holds for each person by themselves, whatever everybody else does with their reports.

    `randomize` is what a person does (one answer in, one report out; a list in, an array out) and `estimate` what the
    collector does with everybody's reports. Nothing but reports ever leaves a person.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def curve(self) -> Curve:
        """What one report reveals about its person's answer."""

    @abstractmethod
    def randomize(self, answers: Any, *, entropy: Entropy | None = None) -> Any:
        """A report for each answer. Exact: no floating-point number decides a probability. `entropy` is for tests."""

    def probabilities(self, answer: Any) -> dict[Any, float]:
        """How likely each report is from a person with this answer, for planning and teaching: the answer is a public
        example, never anybody's.
        """
        raise too_many(self)

    def told_apart(self, x: Any, x2: Any) -> Telling:
        """How likely reports are from people with two answers; reports that tell the two apart equally well are one
        where there are too many to be told one by one. For teaching, as `probabilities`.
        """
        return Telling(self.probabilities(x), self.probabilities(x2))

    @abstractmethod
    def estimate(self, reports: Any) -> Estimate:
        """What all reports together say."""

    @abstractmethod
    def parameters(self) -> dict[str, Parameter]:
        """The keyword arguments that make it again; strings are exact ratios."""

    @abstractmethod
    def encode(self, reports: Any) -> list[str]:
        """Reports as short texts, one for each person, for a file."""

    def decode(self, texts: Sequence[str]) -> Any:
        """The reports that `encode` wrote. Texts that it cannot have written are refused."""
        rule = f"must be {self.form}, as encode writes them"
        listed = report_checks.texts("reports", texts, rule)
        try:
            found = self.parsed(listed)
            # Many spellings are parsed that encode never writes, and numbers that are no reports.
            written = self.encode(found)
        except (ValueError, OverflowError):
            raise InvalidParameter("reports", NOTHING, rule) from None
        if written != listed:
            raise InvalidParameter("reports", NOTHING, rule)
        return found

    @property
    def form(self) -> str:
        """What the texts of reports look like, in words."""
        return "whole numbers"

    def parsed(self, texts: list[str]) -> Any:
        """Reports from texts of the form that `encode` writes; ValueError from others, or anything at all."""
        return np.array([int(text) for text in texts], dtype=np.int64)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.parameters().items())
        return f"{type(self).__name__}({shown})"


class SharesProtocol(Protocol):
    """A protocol whose reports speak for answers: with one chance for the person's own answer, with one lower chance
    for every other. All estimates of shares follow from these two chances (Wang, Blocki, Li & Jha 2017).
    """

    __slots__ = ()

    @property
    @abstractmethod
    def support(self) -> Support:
        """The two chances, exact where the odds are rational."""

    @abstractmethod
    def count(self, reports: Any) -> tuple[Ints, int]:
        """How many reports speak for each answer, and how many reports there are."""

    def estimate(self, reports: Any) -> Shares:
        counts, people = self.count(reports)
        return Shares(counts, report_checks.some(people), self.support)

    def variance(self, *, share: Any, people: int) -> Any:
        """The variance that the estimate will have for people of whom `share` have the answer; exact for a rational
        share where the odds are rational.
        """
        return self.support.variance(report_checks.share(share), report_checks.people(people))

    def population_variance(self, *, share: Any, people: int) -> Any:
        """The variance that the estimate will have for a population, people drawn from it at random."""
        return self.support.population_variance(report_checks.share(share), report_checks.people(people))

    def error(self, *, people: int, confidence: float, shares: int = 1) -> float:
        """With probability at least `confidence`, all of so many estimated shares are this near to the truth, about the
        people who answered or about a population, at any number of people: sqrt(ln(2 shares/β) / (2 n)) / gap.

        Hoeffding's inequality for n reports in [0, 1] and a union over the shares, β = 1 - confidence.
        """
        n, k = report_checks.people(people), noise_arguments.whole("shares", shares)
        if not 1 <= k <= MOST_CATEGORIES:
            raise InvalidParameter("shares", k, f"must be at least 1 and at most {MOST_CATEGORIES:,}")
        return math.sqrt(math.log(2 * k / (1 - within("confidence", confidence))) / (2 * n)) / float(self.support.gap)


class BitsProtocol(SharesProtocol):
    """A protocol whose report is a row of bits, one for each category, packed eight to a byte."""

    __slots__ = ()
    categories: int

    def probabilities(self, answer: Any) -> dict[Any, float]:
        """By report, as a text of bits, that of category 0 first."""
        own = self.told(answer)
        chances = [float(self.support.own if i == own else self.support.other) for i in range(self.categories)]
        found: dict[Any, float] = {"": 1.0}
        for chance in chances:
            found = {
                told + bit: mass * p for told, mass in found.items() for bit, p in (("0", 1 - chance), ("1", chance))
            }
        return found

    def told_apart(self, x: Any, x2: Any) -> Telling:
        """By report, if there are few; else by the two bits of the two answers, in which alone people differ."""
        if self.categories <= MOST_BITS:
            return SharesProtocol.told_apart(self, x, x2)
        own, other = float(self.support.own), float(self.support.other)
        a, b = (report_checks.category("answer", answer, self.categories) for answer in (x, x2))
        first = two_bits(own, other) if a != b else {"0": 1 - own, "1": own}
        second = two_bits(other, own) if a != b else first
        return Telling(first, second, f"bits {a} and {b} of the report" if a != b else f"bit {a} of the report")

    def told(self, answer: Any) -> int:
        """One category whose reports can be told one by one, because there are not many."""
        category = report_checks.category("answer", answer, self.categories)
        if self.categories > MOST_BITS:
            raise too_many(self, f" (with up to {MOST_BITS} categories they are not)")
        return category

    def rows(self, reports: Any) -> Packed:
        """Reports as packed rows; what `randomize` can never return is refused. Here, every row of bits is possible."""
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
    """The law of two independent bits that are 1 with these probabilities, as a text."""
    return {
        f"{i:d}{j:d}": (first if i else 1 - first) * (second if j else 1 - second)
        for i in (False, True)
        for j in (False, True)
    }


def too_many(protocol: Protocol, otherwise: str = "") -> InvalidOperation:
    """What to say of a protocol with too many reports; `otherwise` says when they are few."""
    return InvalidOperation(
        f"the reports of {type(protocol).__name__} are too many to be told one by one{otherwise}; "
        "look at what an attacker can do with one: plots.tradeoff(protocol.curve)"
    )


def diluted(curve: Curve, chance: float) -> Curve:
    """With probability `chance` (rounded up by the caller) the curve, otherwise nothing, and which of them is seen."""
    if chance >= 1:
        return curve
    return curves.mixture([1 - chance, chance], [curves.identity(), curve])


def category_count(value: Any) -> int:
    """The number of categories a protocol is made for."""
    count = noise_arguments.whole("categories", value)
    if not 2 <= count <= MOST_CATEGORIES:
        raise InvalidParameter("categories", count, f"must be at least 2 and at most {MOST_CATEGORIES:,}")
    return count


MOST_CATEGORIES = 2**24
MOST_BITS = 6
"""Most bits of a report whose probabilities are told row by row."""
