"""Windows within a person: LAG, ROW_NUMBER, running sums and the like over the rows of one person.

A window over all rows of a table would let one person's rows change another's. Here every window is partitioned by the
person first, so it reads the rows of one person only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple, final

from deniable.errors import QuestionRefused
from deniable.queries.relations.operators import Columns, domain, typed
from deniable.queries.relations.relation_nodes import Exact, OnOne
from deniable.tables.expressions import Column, Expression
from deniable.tables.kinds import Domain, Kind

NUMBERED: Final = ("row_number", "rank", "dense_rank")
NEIGHBOURS: Final = ("lag", "lead")
ENDS: Final = ("first_value", "last_value")
TOTALS: Final = ("count", "sum", "avg", "min", "max")
MOST_OFFSET: Final = 1000
"""The largest offset of LAG and LEAD, and the furthest end of a frame."""


@final
class Sorting(NamedTuple):
    """One part of the ORDER BY of a window."""

    expression: Expression
    descending: bool
    nulls_first: bool


@final
@dataclass(frozen=True, slots=True, eq=False)
class PersonWindow:
    """`function`(expression) OVER (PARTITION BY person, partition ORDER BY order frame).

    `offset` is the offset of LAG and LEAD. `frame` has the first and the last row relative to the current one, None for
    an open end. Without a frame, a total reads the whole partition or, with an order, all rows up to and including
    those that tie with the current row; FIRST_VALUE reads the first row.

    Where the result depends on the order of tied rows (`is_tied_by_rank`), these are ordered by the secret rank and
    then by their content. Both depend on the person's own rows alone.
    """

    function: str
    expression: Expression | None
    partition: tuple[Expression, ...] = ()
    order: tuple[Sorting, ...] = ()
    offset: int = 1
    frame: tuple[int | None, int | None] | None = None

    @property
    def is_tied_by_rank(self) -> bool:
        """Whether the result depends on the order of rows that tie in `order`."""
        return self.frame is not None or self.function in ("row_number", *NEIGHBOURS, *ENDS)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All expressions that it reads."""
        of = () if self.expression is None else (self.expression,)
        return (*of, *self.partition, *(each.expression for each in self.order))

    def domain(self, columns: Mapping[str, Domain], rows: int) -> Domain:
        """The domain of its values over at most `rows` rows; `QuestionRefused` if the window is not well formed."""
        for each in self.expressions:
            typed(each, columns)
        self._check_frame()
        if self.function in NUMBERED:
            return Domain(Kind.INTEGER, (Fraction(1), Fraction(rows)), None, False)
        if self.function in TOTALS:
            found = Exact(self.function, self.expression).domain(columns, rows)
            if self.function == "count":
                return Domain(Kind.INTEGER, (Fraction(0), Fraction(rows)), None, False)
            return Domain(found.kind, found.bounds, found.keys, True)
        if self.function not in (*NEIGHBOURS, *ENDS) or self.expression is None:
            raise QuestionRefused(
                "window", f"{self.function.upper()} is not a window within a person",
                "choose from LAG, LEAD, ROW_NUMBER, RANK, DENSE_RANK, FIRST_VALUE, COUNT, SUM, AVG, MIN and MAX",
            )  # fmt: skip
        found = domain(self.expression, columns)
        return Domain(found.kind, found.bounds, found.keys, True)

    def _check_frame(self) -> None:
        given = [self.offset, *(end for end in self.frame or () if end is not None)]
        if any(abs(each) > MOST_OFFSET for each in given):
            raise QuestionRefused(
                "window",
                f"a window must reach at most {MOST_OFFSET:,} rows far",
                "use an open end: UNBOUNDED PRECEDING",
            )
        if self.frame is None:
            return
        first, last = self.frame
        if first is not None and last is not None and first > last:
            raise QuestionRefused("window", "the frame of a window ends before it begins", "exchange its ends")


@final
@dataclass(frozen=True, slots=True, eq=False)
class PersonWindows(OnOne):
    """Each row with further columns, which are windows over the rows of the same person. Rows: unchanged.

    Proof: the new columns of a row are a function of the multiset of that person's rows, with their secret ranks. So
    without one person, everybody else's rows are the same, and that person has as many rows as before. Rows that still
    tie after rank and content are equal, so the multiset of results does not depend on their order.
    """

    windows: tuple[tuple[str, PersonWindow], ...]
    _columns: Columns = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.child.people:
            raise QuestionRefused(
                "unit", "every row is its own person here, so no window has a second row",
                "open the session with Unit.person(column, rows=)",
            )  # fmt: skip
        below = self.child.columns
        taken = [name for name, _ in self.windows]
        if len(set(taken)) < len(taken) or any(name in below for name in taken):
            raise QuestionRefused("name", "two columns have the same name", "rename one of them: … AS other")
        found = {name: window.domain(below, self.child.rows) for name, window in self.windows}
        object.__setattr__(self, "_columns", Columns({**below, **found}))

    @property
    def columns(self) -> Columns:
        return self._columns

    @property
    def rows(self) -> int:
        return self.child.rows

    def rows_alike(self, names: frozenset[str]) -> int:
        # ROW_NUMBER is different for all rows of a partition. Rows with equal values, not NULL, in all columns of
        # PARTITION BY are in one partition, so at most one of them has a given number.
        for name, window in self.windows:
            parts = [each.name for each in window.partition if isinstance(each, Column)]
            numbers = window.function == "row_number" and len(parts) == len(window.partition)
            if numbers and names.issuperset([name, *parts]):
                return 1
        return self.child.rows_alike(names & frozenset(self.child.columns))
