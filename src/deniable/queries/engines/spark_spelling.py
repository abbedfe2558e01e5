"""The spelling of SQL for Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from sqlglot import exp

from deniable.queries.engines.engine import PERSON
from deniable.queries.engines.sql_spelling import (
    LEFT,
    RIGHT,
    SQL,
    JoinSide,
    Spelling,
    both,
    case,
    cast,
    from_both,
    function,
    inside,
    number,
    of,
    present,
)
from deniable.queries.relations.linear_patterns import Pattern, Replacement
from deniable.queries.relations.operator_meanings import A_DAY, TIMES
from deniable.queries.relations.relation_nodes import How
from deniable.tables.kinds import Kind


@final
class Spark(Spelling):
    """The spelling of Spark, with or without ANSI mode. Timestamps have no zone, so the session's does not matter."""

    dialect = "spark"
    types: Mapping[Kind, str] = {
        Kind.BOOLEAN: "BOOLEAN",
        Kind.INTEGER: "BIGINT",
        Kind.REAL: "DOUBLE",
        Kind.TEXT: "STRING",
        Kind.DATE: "DATE",
        Kind.TIMESTAMP: "TIMESTAMP_NTZ",
    }
    wide = "DECIMAL(38,0)"
    likes_pieces = False
    finding = "REGEXP_LIKE"
    gives_back = False

    def joined(self, left: JoinSide, right: JoinSide, how: How) -> exp.Select:
        """A join that reads both sides to the end.

        Spark ends a join of two private tables in a partition when one side has no more rows, and leaves the rest of
        the other side unread. A FULL JOIN reads both; its extra rows are filtered out. A join with a public table needs
        no such care: Spark evaluates all conditions on either side before rows are exchanged or looked up.
        """
        rows, partners = inside(left.select, LEFT), inside(right.select, RIGHT)
        if PERSON not in right.keys:
            return from_both(rows, partners, left.equal(right), "LEFT" if how is How.LEFT else None)
        met = from_both(rows, partners, left.equal(right), "FULL")
        kept = (LEFT,) if how is How.LEFT else (LEFT, RIGHT)
        return met.where(*(present(of(side, PERSON)) for side in kept), copy=False)

    def element(self, items: Sequence[SQL], at: SQL) -> SQL:
        return function("ELEMENT_AT", function("ARRAY", *items), cast(at, "INT"))

    def matches(self, value: SQL, pattern: str) -> SQL:
        # \z, because Java's $ also matches before a final line break. `text` writes the pattern as bytes, so that Spark
        # does not interpret its backslashes.
        return function("REGEXP_LIKE", value, self.text(rf"\A(?:{pattern})\z"))

    def matches_pieces(self, value: SQL, pieces: Sequence[str]) -> SQL:
        # The first match of each piece after the one before is as good as any later match, so (?>...), which does not
        # backtrack, finds a match if there is one.
        first, *inner, last = pieces
        found = "".join(f"(?>.*?{piece})" for piece in inner if piece)
        return function("REGEXP_LIKE", value, self.text(rf"(?s)\A{first}{found}.*{last}\z"))

    def exchanged(self, value: SQL, pattern: Pattern, new: Replacement) -> SQL:
        # Spark replaces every match. So the pattern is anchored at the beginning and also matches the text before the
        # first match.
        inner, text = pattern.text(gives_back=False), new.text("\\$", "$")
        if not pattern.starts:
            inner, text = rf"(?s)\A(.*?)({inner})", "$1" + new.text("\\$", "$", 2)
        return function("REGEXP_REPLACE", value, self.text(inner), self.text(text))

    def utf8(self, digits: SQL) -> SQL:
        return function("DECODE", function("UNHEX", digits), exp.Literal.string("UTF-8"))

    def divide(self, a: SQL, b: SQL) -> SQL:
        return function("TRY_DIVIDE", a, b)

    def modulo(self, a: SQL, b: SQL) -> SQL:
        return function("TRY_MOD", a, b)

    def whole(self, operator: str, a: SQL) -> SQL:
        if operator == "round":
            return function("ROUND", a)
        # Spark's floor and ceil return 64-bit integers, without an error for reals that do not fit. Reals from 2^53 on
        # have no fraction, so they stay as they are.
        small = both(exp.LT, function("ABS", a), self.real(2.0**53))
        return case((small, cast(function(operator.upper(), a.copy()), "DOUBLE")), otherwise=a.copy())

    def integer_of_real(self, whole: SQL) -> SQL:
        # Spark's own cast turns 2^63 into 2^63 - 1 instead of NULL.
        fits = exp.And(
            this=both(exp.GTE, whole, self.real(-(2.0**63))), expression=both(exp.LT, whole.copy(), self.real(2.0**63))
        )
        return case((fits, cast(whole.copy(), "BIGINT")))

    def trim(self, a: SQL) -> SQL:
        return function("BTRIM", a, exp.Literal.string(" "))

    def weekday(self, a: SQL) -> SQL:
        return both(exp.Add, function("WEEKDAY", a), number(1))

    def date_trunc(self, unit: str, a: SQL, kind: Kind) -> SQL:
        # Spark's own date_trunc depends on the session's time zone.
        day = cast(a, "DATE")
        if unit in TIMES:
            parts = [function(part.upper(), a.copy()) for part in TIMES]
            time = function("MAKE_DT_INTERVAL", number(0), *parts[: [*TIMES].index(unit) + 1])
            return both(exp.Add, cast(day, self.types[kind]), time)
        if unit != "day":
            day = function("TRUNC", day, exp.Literal.string(unit))
        return cast(day, self.types[kind])

    def days_between(self, a: SQL, b: SQL) -> SQL:
        return function("DATEDIFF", b, a)

    def months_later(self, a: SQL, kind: Kind, months: int) -> SQL:
        if kind is Kind.DATE:
            return function("ADD_MONTHS", a, number(months))
        return both(exp.Add, a, function("MAKE_YM_INTERVAL", number(0), number(months)))

    def time_later(self, a: SQL, kind: Kind, microseconds: int) -> SQL:
        days, rest = divmod(microseconds, A_DAY)
        if kind is Kind.DATE:
            return function("DATE_ADD", a, number(days))
        seconds, small = divmod(rest, 10**6)
        time = cast(exp.Literal.string(f"{seconds}.{small:06d}"), "DECIMAL(18,6)")
        return both(exp.Add, a, function("MAKE_DT_INTERVAL", number(days), number(0), number(0), time))

    def total(self, addend: SQL) -> SQL:
        return exp.Coalesce(this=exp.Sum(this=cast(addend, self.wide)), expressions=[number(0)])

    def digest(self, parts: Sequence[SQL]) -> SQL:
        joined = function("CONCAT_WS", exp.Literal.string(""), *parts)  # skips NULLs, unlike Spark's CONCAT
        pairs = function("REGEXP_EXTRACT_ALL", function("MD5", joined), exp.Literal.string(".."), number(0))
        return function("ARRAY_JOIN", function("REVERSE", pairs), exp.Literal.string(""))

    def fingerprint(self, columns: Sequence[SQL]) -> SQL:
        # XXHASH64 skips NULLs, so flags for NULL are hashed as well.
        flags = [exp.Is(this=each.copy(), expression=exp.Null()) for each in columns]
        return cast(function("XXHASH64", *flags, *columns), "DECIMAL(38,0)")

    def microseconds(self, a: SQL) -> SQL:
        # From the parts of the timestamp, because Spark's own functions depend on the session's time zone.
        days = function("DATEDIFF", cast(a, "DATE"), cast(exp.Literal.string("1970-01-01"), "DATE"))
        second = function("DATE_PART", exp.Literal.string("SECOND"), a.copy())
        found = cast(both(exp.Mul, second, number(10**6)), "BIGINT")
        wholes = (days, 86_400), (function("HOUR", a.copy()), 3_600), (function("MINUTE", a.copy()), 60)
        for part, size in wholes:
            found = both(exp.Add, both(exp.Mul, cast(part, "BIGINT"), number(size * 10**6)), found)
        return found
