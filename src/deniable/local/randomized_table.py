"""A whole table at once: every cell of every person is randomized, and the randomized table is published.

Randomized response can release a whole dataset instead of answers about it. Each column has its own protocol, all cells
are randomized independently, and the curve of a row is the product of the curves of its columns. Anyone with the
released table can then estimate any conjunction, at no further cost.

*Why the estimate is unbiased.* In one column a report y of the answer x has the kernel K(y | x), and u_a(y) = (1{y
supports a} - q)/g has mean 1{x = a} under it: u is a column of K's inverse. Given a row, its cells are randomized
independently, so the product of the u over the columns of a conjunction has mean 1{all cells match}: it is the same
column of the inverse of the product kernel, which is never computed. ∎
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable import curves
from deniable.curves import Curve
from deniable.errors import NOTHING, InvalidParameter
from deniable.local import report_checks
from deniable.local.binary_responses import BinaryProtocol
from deniable.local.categorical_responses import KaryRandomizedResponse
from deniable.local.collector_estimates import Estimate, deviation
from deniable.local.local_protocol import Telling
from deniable.local.report_checks import Floats
from deniable.local.surveys import Design, column_of
from deniable.noise.entropy import checked_entropy

if TYPE_CHECKING:
    from deniable.noise import Entropy

MOST_COLUMNS: Final = 1000


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class TableResponse:
    """Randomized response of a whole table: for each column a yes-or-no protocol, or a pair of a k-ary randomized
    response and the words of its categories.

    For all pairs of rows that one person may have, the two distributions of the randomized row are at most as
    distinguishable as `curve` says: the product of the columns' curves, so the ε add up. A table with a column that has
    no protocol raises InvalidParameter.

    >>> from deniable import local
    >>> drinks = local.KaryRandomizedResponse(categories=3, epsilon=2), ["tea", "coffee", "water"]
    >>> whole = TableResponse({"smokes": local.RandomizedResponse(epsilon=1), "drink": drinks})
    >>> round(whole.curve.epsilon(delta=0), 9)
    3.0
    >>> reports = whole.randomize({"smokes": ["yes", "no"] * 500, "drink": ["tea", "water"] * 500})
    >>> sorted(reports), whole.estimate(reports, {"smokes": "yes", "drink": "tea"}).people
    (['drink', 'smokes'], 1000)
    """

    designs: tuple[Design, ...]

    def __init__(self, columns: Mapping[str, Any]) -> None:
        if not isinstance(columns, Mapping) or not 1 <= len(columns) <= MOST_COLUMNS:
            rule = f"must map 1 to {MOST_COLUMNS:,} names of columns to their protocols"
            raise InvalidParameter("columns", NOTHING, rule, 'write {"smokes": RandomizedResponse(epsilon=1)}')
        object.__setattr__(self, "designs", tuple(_design(name, given) for name, given in columns.items()))

    @property
    def curve(self) -> Curve:
        """The privacy guarantee of one released row about its person's row."""
        return curves.product(design.protocol.curve for design in self.designs)

    def randomize(self, table: Any, *, entropy: Entropy | None = None) -> dict[str, list[Any]]:
        """The table with every cell randomized: words, or True and False, by column. Takes a dict, pandas or polars.

        Rows keep their order. An index is dropped.
        """
        answers = self._columns("table", table)
        source = checked_entropy(entropy)
        numbered = [design.numbered(answers[design.question]) for design in self.designs]
        shown = {}
        for design, given in zip(self.designs, numbered, strict=True):
            reports = design.protocol.randomize(np.array(given, dtype=np.int64), entropy=source)
            shown[design.question] = [_worded(design, report) for report in reports.tolist()]
        return shown

    def told_apart(self, x: Mapping[str, Any], x2: Mapping[str, Any]) -> dict[str, Telling]:
        """The probability of each report in each column from people with two rows: for teaching, as `told_apart` of the
        columns' protocols.
        """
        rows = [self._columns("x", {name: [value] for name, value in row.items()}) for row in (x, x2)]
        found = {}
        for design in self.designs:
            one, two = (design.numbered(row[design.question])[0] for row in rows)
            telling = design.protocol.told_apart(one, two)
            here, there = (
                {y if isinstance(y, str) else _worded(design, y): p for y, p in law.items()}
                for law in (telling.one, telling.two)
            )
            found[design.question] = Telling(here, there, telling.what)
        return found

    def estimate(self, reports: Any, where: Mapping[str, Any]) -> Conjunction:
        """The share of people whose row matches `where` in all of these columns, from a randomized table: unbiased."""
        columns = self._columns("reports", reports)
        known = {design.question: design for design in self.designs}
        if not isinstance(where, Mapping) or not where or not all(name in known for name in where):
            rule, remedy = f"must say what is asked of columns: {', '.join(known)}", 'write {"smokes": "yes"}'
            raise InvalidParameter("where", NOTHING, rule, remedy)
        weights = np.ones(len(columns[self.designs[0].question]))
        for name, wanted in where.items():
            weights *= _unbiased(known[name], columns[name], wanted)
        report_checks.some(len(weights))
        return Conjunction(len(weights), float(weights.mean()), float(np.mean(weights**2)))

    def _columns(self, what: str, table: Any) -> dict[str, list[Any]]:
        if not isinstance(table, Mapping) and not hasattr(type(table), "columns"):
            raise InvalidParameter(what, NOTHING, "must be a table with columns: a dict, pandas or polars")
        names = list(table if isinstance(table, Mapping) else table.columns)
        known = [design.question for design in self.designs]
        if bare := sorted(str(name) for name in names if name not in known):
            rule = f"{bare[0]!r} is a column without a protocol: it would be released as it is, or not at all"
            raise InvalidParameter(what, NOTHING, rule, "give it a protocol, or drop it from the table")
        found = {name: column_of(table, name) for name in known}
        if len({len(column) for column in found.values()}) != 1:
            raise InvalidParameter(what, NOTHING, "must have columns of one length")
        return found

    def __repr__(self) -> str:
        shown = ", ".join(f"{design.question!r}: {design.protocol!r}" for design in self.designs)
        return f"TableResponse({{{shown}}})"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Conjunction(Estimate):
    """The share of people whose row matches several conditions at once."""

    reports: int
    share: float
    square: float
    """The mean square of the unbiased weights."""

    @property
    def people(self) -> int:
        return self.reports

    @property
    def value(self) -> float:
        return self.share

    @property
    def count(self) -> float:
        """The number of matching people, unbiased."""
        return self.share * self.reports

    @property
    def standard_error(self) -> float:
        """A weight w has variance E[w²] - 1{row matches} given its row, so (mean w² - share)/n is unbiased for the
        variance of the share.
        """
        return float(np.sqrt(max(self.square - self.share, 0.0) / self.reports))

    @property
    def population_error(self) -> float:
        return float(np.sqrt(max(self.square - self.share**2, 0.0) / self.reports))

    def interval(self, *, confidence: float) -> tuple[float, float]:
        """(low, high) by the normal approximation, cut to [0, 1]; 0 < `confidence` < 1."""
        return self._around(deviation(confidence) * self.standard_error)

    def population_interval(self, *, confidence: float) -> tuple[float, float]:
        """(low, high) by the normal approximation, cut to [0, 1]; 0 < `confidence` < 1."""
        return self._around(deviation(confidence) * self.population_error)

    def projected(self) -> float:
        """The nearest share in [0, 1]."""
        return min(max(self.share, 0.0), 1.0)

    def _around(self, reach: float) -> tuple[float, float]:
        low, high = self.share - reach, self.share + reach
        return min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)


def _design(name: Any, given: Any) -> Design:
    if not isinstance(name, str):
        raise InvalidParameter("columns", NOTHING, "must be called by text")
    protocol, words = given if isinstance(given, tuple) and len(given) == 2 else (given, ())
    if isinstance(protocol, BinaryProtocol) and not words:
        return Design(name, protocol, ())
    listed = tuple(words) if isinstance(words, Iterable) and not isinstance(words, str) else ()
    if isinstance(protocol, KaryRandomizedResponse):
        if len(set(listed)) != protocol.categories or not all(isinstance(word, str) for word in listed):
            rule = f"needs the words of its {protocol.categories} categories, all different"
            raise InvalidParameter("columns", name, rule, 'write (protocol, ["tea", "coffee"])')
        return Design(name, protocol, listed)
    rule = "needs a protocol whose report is one of its answers: yes or no, or k-ary randomized response"
    raise InvalidParameter("columns", name, rule)


def _worded(design: Design, report: int) -> Any:
    return design.categories[report] if design.categories else bool(report)


def _unbiased(design: Design, column: list[Any], wanted: Any) -> Floats:
    """For each report, a number whose mean is 1 for people with the wanted answer, and 0 for others."""
    reports, [answer] = np.array(design.numbered(column), dtype=np.int64), design.numbered([wanted])
    protocol: Any = design.protocol
    # If a Warner spinner shows the opposite more often, a reported no supports yes; `count` takes this into account.
    supporting = answer if design.categories else int(protocol.count([True])[0])
    speaks = reports == supporting
    found = (speaks - float(protocol.support.other)) / float(protocol.support.gap)
    return np.asarray(1 - found if not design.categories and not answer else found)
