"""Public bounds of a column, bought with one noisy histogram of its values.

The bins are the same for all data: between powers of two for numbers, years for dates and timestamps. The histogram is
a question like any other; deriving bounds from it is post-processing and costs nothing more.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from deniable import arguments
from deniable.arguments import NumberRange
from deniable.errors import NOTHING, InvalidParameter
from deniable.queries.frame.frame import Frame
from deniable.queries.frame.frame_aggregates import count
from deniable.queries.plan.answer_notes import wrapped
from deniable.queries.plan.refusals import private_table
from deniable.tables.expressions import case, col
from deniable.tables.kinds import BOUNDED, LARGEST, NUMBERS, SMALLEST, Domain, Kind, Scalar, declared, end_of
from deniable.tables.schema import Table, write_schema
from deniable.units import Unit

if TYPE_CHECKING:
    from deniable.queries.answer.answer import Answer
    from deniable.queries.answer.receipt import Receipt
    from deniable.queries.plan.pricing import Price
    from deniable.queries.plan.question import Question

MISTAKEN: Final = Fraction(1, 100)
"""The probability that at least one empty bin is taken for a non-empty one."""
_FINEST, _WIDEST = -32, 64
"""Exponents of the bins for reals: the innermost bins end at ±2^-32, the outermost at ±2^64."""
_YEARS: Final = range(1899, 2101)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bought bounds of a column. They are public now: put `domain` into the schema of the next session.

    `domain` is None if no bin exceeds the noise; then spend more.
    """

    table: str
    column: str
    domain: Domain | None
    answer: Answer
    """The noisy histogram: the number of rows from the start of each bin to the next; NULL for missing values."""
    cover: float
    """The share of the rows that the bounds were chosen to contain."""

    @property
    def receipt(self) -> Receipt:
        """What the bounds cost: the receipt of the noisy histogram that they were read off."""
        return self.answer.receipt

    @property
    def low(self) -> Any:
        """The lower bound, a date or timestamp as text; None if there are no bounds."""
        return None if self.domain is None else _ends(self.domain)[0]

    @property
    def high(self) -> Any:
        """The upper bound, a date or timestamp as text; None if there are no bounds."""
        return None if self.domain is None else _ends(self.domain)[1]

    @property
    def line(self) -> str:
        """The column's line in a schema file; "" if there are no bounds."""
        if self.domain is None:
            return ""
        table = Table(self.table, ((self.column, self.domain),), Unit.row())
        return write_schema({self.table: table}, form="yaml").splitlines()[-1].strip()

    def again(self, answer: Answer) -> Bounds:
        """Bounds from a more precise histogram: `bought.again(s.refine(bought.answer, epsilon=0.1))`.

        Raises `InvalidParameter` if the answer is to another question.
        """
        if answer.plan.question.hash != self.answer.plan.question.hash:
            raise InvalidParameter("answer", NOTHING, "must answer the same question", "give what refine(...) returned")
        return read(self.table, self.column, answer, self.cover)

    def to_dict(self) -> dict[str, Any]:
        """The bounds as a JSON-ready dict."""
        return {
            "table": self.table,
            "column": self.column,
            "kind": _kind(self.answer.plan.question).value,
            "low": self.low,
            "high": self.high,
            "cover": self.cover,
            "line": self.line,
            "answer": self.answer.to_dict(),
        }

    def __str__(self) -> str:
        if self.domain is None:
            lines = wrapped(
                [
                    f"{self.column}: no bin exceeds the noise, so no bounds were found.",
                    "Spend more, or declare bounds that you know from elsewhere.",
                ]
            )
        else:
            lines = [
                self.line,
                *wrapped(
                    [
                        "Put this line into the schema file, or .domain into schema=, of the next session on the same "
                        "ledger. Values outside are moved to the nearest bound."
                    ]
                ),
            ]
        return "\n".join([*lines, *wrapped([str(self.receipt)])])

    __repr__ = __str__


def question(column: str, table: str | None, tables: Mapping[str, Table]) -> tuple[str, Question]:
    """(the name of the table, the question for the noisy histogram of a column).

    Raises `InvalidParameter` if the column is not a number or time, or has bounds or keys already.
    """
    if not isinstance(column, str):
        raise InvalidParameter("column", column, "must be text")
    name = private_table(table, tables)
    frame = Frame.of(name, tables)
    if column not in frame.names:
        frame.select(column)  # raises for an unknown name
    domain = frame.relation.columns[column]
    if domain.kind not in BOUNDED:
        rule = f"is declared as {domain.kind.value}, and bounds are for numbers, dates and timestamps"
        raise InvalidParameter(
            "column", column, rule, "declare its kind in the schema first; from the shell: --kind real"
        )
    if domain.bounds is not None or domain.keys is not None:
        declares = "bounds" if domain.bounds is not None else "keys"
        raise InvalidParameter("column", column, f"has {declares} in the schema", "remove them to buy others")
    return name, histogram(frame, column)


def histogram(frame: Frame, column: str) -> Question:
    """The question for the noisy number of rows in each public bin of a column of a frame."""
    starts = [bin[0] for bin in bins(frame.relation.columns[column].kind)]
    value = col(column)
    # From the top down: the first true condition gives the bin, and none is true for NULL.
    branches = [(value >= start, start) for start in reversed(starts[1:])]
    sorted_in = case(*branches, (value < starts[1], starts[0]))
    return frame.group_by(at_least=sorted_in).agg(n=count())


@lru_cache(maxsize=8)
def bins(kind: Kind) -> tuple[tuple[Any, Any], ...]:
    """(first value, last value) of each public bin, in order. Values beyond the outer bins are counted in them.

    >>> [(low, high) for low, high in bins(Kind.INTEGER) if -5 < low < 5]
    [(-4, -3), (-2, -2), (-1, -1), (0, 0), (1, 1), (2, 3), (4, 7)]
    """
    if kind is Kind.INTEGER:
        sizes = [2**k for k in range(63)]
        starts = [SMALLEST, *(-size for size in reversed(sizes)), 0, *sizes]
        return tuple((low, high - 1) for low, high in zip(starts, [*starts[1:], LARGEST + 1], strict=True))
    if kind is Kind.REAL:
        powers = [2.0**k for k in range(_FINEST, _WIDEST + 1)]
        edges = [*(-power for power in reversed(powers)), 0.0, *powers]
        return tuple(pairwise(edges))
    if kind is Kind.DATE:
        return tuple((dt.date(year, 1, 1), dt.date(year, 12, 31)) for year in _YEARS)
    return tuple((dt.datetime(year, 1, 1), dt.datetime(year, 12, 31, 23, 59, 59, 999999)) for year in _YEARS)


def read(table: str, column: str, answer: Answer, cover: float) -> Bounds:
    """Bounds from a noisy histogram, by a public rule.

    A bin is used if its noisy count is so large that an empty bin reaches it with probability at most MISTAKEN / bins,
    so that all empty bins are excluded with probability at least 1 - MISTAKEN (union bound). Of all runs of bins that
    contain the share `cover` of the counts in used bins, the narrowest is taken, because noise grows with the width of
    the bounds. An end that is close to 0, relative to the other end, is moved to 0.
    """
    kind = _kind(answer.plan.question)
    public, confidence = bins(kind), _confidence(kind)
    [recipe] = answer.plan.recipes
    # The lower end must exceed 1, not 0: integer noise can pass the end of an interval from the continuous law a little
    # more often.
    counted: dict[Scalar | None, float] = {}
    for (start,), drawn in zip(answer.released.groups, answer.released.drawn(answer.plan, answer.budget), strict=True):
        estimate = recipe.estimate(drawn, confidence)
        if start is not None and estimate.value is not None and estimate.low is not None and estimate.low > 1:
            counted[start] = float(estimate.value)
    seen = [(low, high, counted[low]) for low, high in public if low in counted]
    nullable = answer.plan.question.relation.columns[column].nullable
    best: tuple[Any, Any] | None = None
    needed = cover * sum(number for _, _, number in seen)
    for i, (low, _, _) in enumerate(seen):
        covered = 0.0
        for _, high, number in seen[i:]:
            covered += number
            if covered >= needed * (1 - 1e-12):  # a tolerance for sums in another order
                if best is None or high - low < best[1] - best[0]:
                    best = (low, high)
                break
    domain = None if best is None else declared(kind, *_to_zero(kind, *best), None, nullable)
    return Bounds(table, column, domain, answer, cover)


def rows_to_be_seen(price: Price) -> int:
    """The number of rows at which a bin exceeds the noise with probability about 1/2. Reads no data."""
    exact = replace(price, confidence=_confidence(_kind(price.plan.question)))
    [half] = exact.errors().values()
    assert half is not None
    return math.ceil(half) + 1


def _to_zero(kind: Kind, low: Any, high: Any) -> tuple[Any, Any]:
    """The bounds extended to 0 if that adds at most a seventh to their width.

    Small numbers are spread over many narrow bins, so noise may hide each of these bins.
    """
    if kind in NUMBERS:
        low = 0 if 0 < 8 * low <= high else low
        high = 0 if low <= 8 * high < 0 else high
    return low, high


_COVER: Final = NumberRange(
    "must be a share of the rows, above 0.5 and at most 1", above=0.5, most=1, remedy="try 0.99"
)


def checked_cover(cover: object) -> float:
    """`cover` as a float; `InvalidParameter` unless it is above 0.5 and at most 1."""
    return arguments.python_float("cover", cover, _COVER)


def _kind(asked: Question) -> Kind:
    return asked.domains[asked.keys[0].name].kind


def _confidence(kind: Kind) -> float:
    """The confidence of the interval whose upper end an empty bin exceeds with probability MISTAKEN / bins.

    An interval excludes two equal tails, and only the upper one makes an empty bin look full.
    """
    return float(1 - 2 * MISTAKEN / len(bins(kind)))


def _ends(domain: Domain) -> tuple[Any, Any]:
    assert domain.bounds is not None
    low, high = (end_of(domain.kind, end) for end in domain.bounds)
    return low.isoformat() if isinstance(low, dt.date) else low, high.isoformat() if isinstance(high, dt.date) else high
