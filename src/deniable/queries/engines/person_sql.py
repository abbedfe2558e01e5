"""Aggregates and windows within a person as SQL: exact, and the same bits on every engine.

A sum of reals is a sum of integers on a grid, so it does not depend on the order of rows, and a moving sum that an
engine updates by adding and subtracting is exact as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

from sqlglot import exp

from deniable.queries.engines.engine import PERSON
from deniable.queries.engines.expression_sql import ExpressionWriter, Piece
from deniable.queries.engines.sql_spelling import SQL, again, both, cast, column, function, number
from deniable.queries.relations.person_windows import ENDS, NEIGHBOURS, NUMBERED, PersonWindow
from deniable.queries.relations.relation_nodes import Exact, exponent_of, summed_whole
from deniable.tables.kinds import Domain, Kind

Over = Callable[[SQL], SQL]
"""Puts an aggregate into its place: over a group as it is, over a window with OVER (…)."""
_CURRENT: Final = "CURRENT ROW"


def exact_sql(exact: Exact, writer: ExpressionWriter, rows: int, result: Domain) -> Piece:
    """An aggregate within a person as SQL. A person has at most `rows` rows, which decides how wide the integers of a
    sum must be.
    """
    value = None if exact.expression is None else writer.named(writer.write(exact.expression))
    return Piece(_aggregate(exact.function, value, writer, rows, lambda called: called), result)


def _aggregate(called: str, value: Piece | None, writer: ExpressionWriter, rows: int, over: Over) -> SQL:
    if value is None:
        return over(function("COUNT", exp.Star()))
    if called == "count_distinct":
        return over(exp.Count(this=exp.Distinct(expressions=[value.sql])))
    if called in {"count", "min", "max"}:
        return over(function(called.upper(), value.sql))
    spelling, bounds = writer.spelling, value.domain.bounds
    assert bounds is not None  # `Exact.domain` refuses others
    known = over(function("COUNT", value.sql.copy()))
    if summed_whole(value.kind, bounds, rows):
        total = cast(over(exp.Sum(this=value.sql)), "BIGINT")
        return total if called == "sum" else spelling.divide(cast(total, "DOUBLE"), cast(known, "DOUBLE"))
    step = 2.0 ** exponent_of(bounds)
    x = writer.promoted(value, Kind.REAL).sql
    cell = cast(function("FLOOR", both(exp.Add, spelling.divide(x, spelling.real(step)), spelling.real(0.5))), "BIGINT")
    # Each value is at most 2^41 steps, so 64 bits hold the sum of 2^22 of them; the cast to DOUBLE rounds once.
    sum_of = over(exp.Sum(this=cell if rows < 2**22 else cast(cell, spelling.wide)))
    whole = cast(sum_of, "BIGINT") if rows < 2**22 else sum_of
    total = both(exp.Mul, cast(whole, "DOUBLE"), spelling.real(step))
    return spelling.divide(total, cast(known, "DOUBLE")) if called == "avg" else total


@final
@dataclass(frozen=True, slots=True)
class ReadyWindow:
    """A window within a person whose argument, partition and order are written as SQL already."""

    window: PersonWindow
    value: Piece | None
    partition: tuple[SQL, ...]
    order: tuple[SQL, ...]

    @classmethod
    def of(cls, window: PersonWindow, writer: ExpressionWriter) -> ReadyWindow:
        """The window with each of its expressions written as SQL, and named."""
        value = None if window.expression is None else writer.named(writer.write(window.expression))
        parts = tuple(writer.named(writer.write(each)).sql for each in window.partition)
        return cls(window, value, parts, tuple(writer.named(writer.write(e.expression)).sql for e in window.order))

    def sql(self, writer: ExpressionWriter, ties: Sequence[SQL], rows: int) -> SQL:
        """The value of the window as SQL. `ties` order the rows that are equal in the window's own order."""
        called = self.window.function

        def over(inner: SQL) -> SQL:
            return self._over(inner, ties)

        if called in NUMBERED:
            return cast(over(function(called.upper())), "BIGINT")
        if called in NEIGHBOURS:
            assert self.value is not None
            return over(function(called.upper(), self.value.sql, number(self.window.offset)))
        if called in ENDS:
            assert self.value is not None
            return over(function(called.upper(), self.value.sql))
        return _aggregate(called, self.value, writer, rows, over)

    def _over(self, inner: SQL, ties: Sequence[SQL]) -> SQL:
        found = exp.Window(this=inner, partition_by=[column(PERSON), *(again(each) for each in self.partition)])
        order = [
            exp.Ordered(this=again(sql), desc=each.descending, nulls_first=each.nulls_first)
            for sql, each in zip(self.order, self.window.order, strict=True)
        ]
        if self.window.is_tied_by_rank:
            order += [exp.Ordered(this=again(each), desc=False, nulls_first=True) for each in ties]
        if order:
            found.set("order", exp.Order(expressions=order))
        frame = self.window.frame
        if frame is None and self.window.function == "first_value":
            frame = (None, 0)
        if frame is not None and self.window.function not in (*NUMBERED, *NEIGHBOURS):
            found.set("spec", _spec(*frame))
        return found


def _spec(first: int | None, last: int | None) -> SQL:
    start, start_side = _end(first, "PRECEDING")
    end, end_side = _end(last, "FOLLOWING")
    return exp.WindowSpec(kind="ROWS", start=start, start_side=start_side, end=end, end_side=end_side)


def _end(at: int | None, open_side: str) -> tuple[object, str | None]:
    if at is None:
        return "UNBOUNDED", open_side
    if at == 0:
        return _CURRENT, None
    return number(abs(at)), "PRECEDING" if at < 0 else "FOLLOWING"
