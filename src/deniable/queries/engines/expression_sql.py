"""Expressions as SQL: every operator of the closed table, with the same value on every engine.

Each operator has one writer function in `_WRITERS`. The SQL it writes is total: it has a value for every row and raises
for none. Where an engine's own function would raise, or differ from `deniable.queries.relations.operator_meanings` in
an edge case, the writer uses another one. Some operators must repeat an argument to be total (CASE WHEN x is finite
THEN x). A long argument first becomes a column of its own (`ExpressionWriter.named`), so that the length of the SQL
stays linear in the size of the expression.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import count
from typing import Final, TypeVar, final

from sqlglot import exp

from deniable.queries.engines.sql_spelling import (
    SQL,
    Spelling,
    again,
    both,
    case,
    cast,
    column,
    first_of,
    function,
    number,
    try_cast,
)
from deniable.queries.relations.linear_patterns import Replacement, pattern
from deniable.queries.relations.operator_bounds import of_constant, only_null
from deniable.queries.relations.operator_table import OPERATORS
from deniable.tables.expressions import Call, Column, Expression, Literal
from deniable.tables.kinds import LONGEST, SMALLEST, Domain, Kind

_LARGEST_REAL: Final = 1.7976931348623157e308
_LONG: Final = 12
"""Pieces with more nodes than this become a named column before they are repeated."""

_UPPER: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LOWER: Final = _UPPER.lower()
_YEAR: Final = "([0-9][0-9][0-9][1-9]|[0-9][0-9][1-9]0|[0-9][1-9]00|[1-9]000)"  # there is no year 0
_WHOLE: Final = "[+-]?[0-9]{1,19}"
_DECIMAL: Final = "[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?"
DAY: Final = f"{_YEAR}-[0-9][0-9]-[0-9][0-9]"
TIME: Final = "([01][0-9]|2[0-3]):[0-5][0-9]"
_MOMENT: Final = f"{DAY} {TIME}:[0-5][0-9]"
_CALENDAR: Final = {Kind.DATE: (dt.date.min, dt.date.max), Kind.TIMESTAMP: (dt.datetime.min, dt.datetime.max)}
T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class Piece:
    """SQL for a value, its public domain, its size in nodes, and how many layers of named pieces lie below it."""

    sql: SQL
    domain: Domain
    size: int = 1
    layer: int = 0

    @property
    def kind(self) -> Kind:
        return self.domain.kind


@final
@dataclass(slots=True)
class ExpressionWriter:
    """Writes expressions over the columns of one relation.

    `layers` collects the named pieces as (alias, SQL); a piece in layer n uses columns of the layers before n. The
    caller puts each layer into a subquery of its own.
    """

    spelling: Spelling
    columns: Mapping[str, Piece]
    names: count[int]
    layers: list[list[tuple[str, SQL]]] = field(default_factory=list)

    def write(self, expression: Expression) -> Piece:
        """The SQL of an expression, whose kinds must have been checked before (`operators.domain`)."""
        match expression:
            case Column(name=column_name):
                found = self.columns[column_name]
                return replace(found, sql=again(found.sql))
            case Literal(value=value):
                domain = of_constant(value)
                return Piece(self.spelling.literal(value, domain.kind), domain)
            case Call(operator=operator, arguments=arguments):
                return self.call(operator, tuple(self.write(argument) for argument in arguments))
        raise AssertionError(expression)

    def call(self, operator: str, arguments: tuple[Piece, ...]) -> Piece:
        """An operator applied to pieces."""
        entry = OPERATORS[operator]
        domains = tuple(argument.domain for argument in arguments)
        result = entry.domain(domains)
        if entry.strict and any(only_null(domain) for domain in domains):
            return Piece(self.spelling.literal(None, result.kind), result)
        work = entry.works_in(domains, result)
        worked = tuple(self.promoted(argument, work or argument.kind) for argument in arguments)
        sql, parts = _WRITERS[operator](self, result, worked)
        size = 1 + sum(part.size for part in parts)
        return Piece(sql, result, size, max((part.layer for part in parts), default=0))

    def promoted(self, piece: Piece, kind: Kind) -> Piece:
        """The piece converted to `kind`: an integer to a real, a date to its midnight, NULL to a NULL of that kind.

        Every other piece is returned as it is.
        """
        if only_null(piece.domain):
            return replace(piece, sql=self.spelling.literal(None, kind), domain=Domain(kind, None, (), True))
        if piece.kind is kind or (piece.kind, kind) not in {
            (Kind.INTEGER, Kind.REAL),
            (Kind.DATE, Kind.TIMESTAMP),
        }:
            return piece
        return replace(piece, sql=cast(piece.sql, self.spelling.types[kind]), domain=replace(piece.domain, kind=kind))

    def short(self, piece: Piece) -> Piece:
        """The same value in a form that is short enough to be repeated."""
        return piece if piece.size <= _LONG else self.named(piece)

    def named(self, piece: Piece) -> Piece:
        """The same value as a column of its own."""
        if isinstance(piece.sql, exp.Column):
            return piece
        alias = f"v{next(self.names)}"
        while len(self.layers) <= piece.layer:
            self.layers.append([])
        self.layers[piece.layer].append((alias, piece.sql))
        return Piece(column(alias), piece.domain, 1, piece.layer + 1)

    def finite(self, sql: SQL, result: Domain, *parts: Piece) -> Made:
        """A real, with NULL in place of infinities and NaN. No test is written if the bounds exclude both."""
        if result.bounds is not None and max(abs(end) for end in result.bounds) < Fraction(_LARGEST_REAL):
            return sql, parts
        whole = self.short(Piece(sql, result, 1 + sum(part.size for part in parts), max(part.layer for part in parts)))
        # Both engines order NaN above every number, so this comparison is false for it.
        fits = both(exp.LTE, function("ABS", whole.sql), self.spelling.real(_LARGEST_REAL))
        return case((fits, whole.sql.copy())), (whole, whole)


Made = tuple[SQL, tuple[Piece, ...]]
Write = Callable[[ExpressionWriter, Domain, tuple[Piece, ...]], Made]


def _arithmetic(operator: type[exp.Binary]) -> Write:
    def write(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
        sql = both(operator, parts[0].sql, parts[1].sql)
        return (sql, parts) if result.kind is Kind.INTEGER else writer.finite(sql, result, *parts)

    return write


def _divide(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    return writer.finite(writer.spelling.divide(parts[0].sql, parts[1].sql), result, *parts)


def _modulo(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    a, b = parts
    if result.kind is Kind.REAL:
        return writer.finite(writer.spelling.modulo(a.sql, b.sql), Domain(Kind.REAL), *parts)
    if _has(b.domain, -1) and _has(a.domain, SMALLEST):
        # -2^63 % -1 is 0, but engines raise an overflow. The remainder by 1 is 0 as well, and does not raise.
        b = writer.short(b)
        one = case((both(exp.EQ, b.sql, number(-1)), number(1)), otherwise=b.sql.copy())
        return writer.spelling.modulo(a.sql, one), (a, b, b)
    return writer.spelling.modulo(a.sql, b.sql), parts


def _has(domain: Domain, value: int) -> bool:
    return domain.bounds is None or domain.bounds[0] <= value <= domain.bounds[1]


def _negate(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    return exp.Paren(this=exp.Neg(this=exp.Paren(this=parts[0].sql))), parts


def _real_function(called: str) -> Write:
    def write(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
        sql = function(called, *(part.sql for part in parts))
        # The bounds of the result hold where it is defined; sqrt(-1) is NaN regardless, so finiteness must be tested.
        return writer.finite(sql, Domain(Kind.REAL), *parts)

    return write


def _whole(operator: str) -> Write:
    def write(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
        (a,) = parts
        if a.kind is Kind.INTEGER:
            return a.sql, parts
        a = writer.short(a)
        sql = writer.spelling.whole(operator, a.sql)
        return (cast(sql, "BIGINT") if result.kind is Kind.INTEGER else sql), (a, a)

    return write


def _extreme(operator: type[exp.Binary], called: str) -> Write:
    def write(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
        if not any(part.domain.nullable for part in parts):
            return function(called, *(part.sql for part in parts)), parts
        # The engines' own functions skip NULL: LEAST(100, NULL) is 100.
        # Compared in pairs, like a tournament, so that the named pieces need few layers.
        rest = list(parts)
        while len(rest) > 1:
            rest = [
                better(writer, result, *rest[i : i + 2]) if i + 1 < len(rest) else rest[i]
                for i in range(0, len(rest), 2)
            ]
        return rest[0].sql, (rest[0],)

    def better(writer: ExpressionWriter, result: Domain, a: Piece, b: Piece) -> Piece:
        a, b = writer.short(a), writer.short(b)
        is_first = both(operator, a.sql, b.sql)
        sql = case((is_first, a.sql.copy()), (exp.Not(this=is_first.copy()), b.sql.copy()))
        return Piece(sql, result, 3 * (a.size + b.size), max(a.layer, b.layer))

    return write


def _compare(operator: type[exp.Binary]) -> Write:
    return lambda writer, result, parts: (both(operator, parts[0].sql, parts[1].sql), parts)


def _in(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    return exp.Paren(this=exp.In(this=parts[0].sql, expressions=[part.sql for part in parts[1:]])), parts


def _logic(operator: Callable[..., SQL]) -> Write:
    def write(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
        sql: SQL = parts[0].sql
        for part in parts[1:]:
            sql = operator(this=sql, expression=part.sql)
        return exp.Paren(this=sql), parts

    return write


def _not(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    return exp.Paren(this=exp.Not(this=exp.Paren(this=parts[0].sql))), parts


def _is_null(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    return exp.Paren(this=exp.Is(this=parts[0].sql, expression=exp.Null())), parts


def _case(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    conditions = parts[:-1:2]
    values = [writer.promoted(part, result.kind) for part in (*parts[1:-1:2], parts[-1])]
    branches = [(condition.sql, value.sql) for condition, value in zip(conditions, values, strict=False)]
    return case(*branches, otherwise=values[-1].sql), parts


def _coalesce(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    return exp.Coalesce(this=parts[0].sql, expressions=[part.sql for part in parts[1:]]), parts


def _nullif(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    a, b = (writer.promoted(part, result.kind) for part in parts)
    a = writer.short(a)  # the engines' own NULLIF would also evaluate it twice
    nothing = writer.spelling.literal(None, result.kind)
    return case((both(exp.EQ, a.sql, b.sql), nothing), otherwise=a.sql.copy()), (a, a, b)


def _to_boolean(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    (a,) = parts
    if a.kind is Kind.BOOLEAN:
        return a.sql, parts
    if a.kind is Kind.TEXT:
        small = _translated(a.sql, _UPPER, _LOWER)
        words = [("true", exp.true()), ("false", exp.false())]
        ifs = [exp.If(this=exp.Literal.string(word), true=value) for word, value in words]
        return exp.Case(this=small, ifs=ifs), parts
    return both(exp.NEQ, a.sql, writer.spelling.literal(0, a.kind)), parts


def _to_integer(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    (a,) = parts
    if a.kind is Kind.INTEGER:
        return a.sql, parts
    if a.kind is Kind.BOOLEAN:
        return cast(a.sql, "BIGINT"), parts
    if a.kind is Kind.TEXT:
        return _read(writer, a, _WHOLE, "BIGINT")
    whole = writer.short(replace(a, sql=writer.spelling.whole("round", a.sql), size=a.size + 1))
    return writer.spelling.integer_of_real(whole.sql), (whole, whole, whole)


def _to_real(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    (a,) = parts
    if a.kind is Kind.REAL:
        return a.sql, parts
    if a.kind is Kind.BOOLEAN:
        return cast(cast(a.sql, "BIGINT"), "DOUBLE"), parts
    if a.kind is Kind.TEXT:
        sql, below = _read(writer, a, _DECIMAL, "DOUBLE")
        return writer.finite(sql, Domain(Kind.REAL), *below)
    return cast(a.sql, "DOUBLE"), parts


def _to_text(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    (a,) = parts
    if a.kind is Kind.TEXT:
        return a.sql, parts
    return cast(a.sql, writer.spelling.types[Kind.TEXT]), parts


def _to_date(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    (a,) = parts
    return _read(writer, a, DAY, "DATE") if a.kind is Kind.TEXT else (cast(a.sql, "DATE"), parts)


def _to_timestamp(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    (a,) = parts
    to = writer.spelling.types[Kind.TIMESTAMP]
    return _read(writer, a, _MOMENT, to) if a.kind is Kind.TEXT else (cast(a.sql, to), parts)


def _read(writer: ExpressionWriter, a: Piece, pattern: str, to: str) -> Made:
    """Text as another kind; NULL unless it matches the pattern. Engines accept more ('0x10', 'yes', 'epoch'), but not
    the same on each engine.
    """
    a = writer.short(a)
    return case((writer.spelling.matches(a.sql, pattern), try_cast(a.sql.copy(), to))), (a, a)


def _translated(a: SQL, letters: str, into: str) -> SQL:
    return function("TRANSLATE", a, exp.Literal.string(letters), exp.Literal.string(into))


def _shifted(letters: str, into: str) -> Write:
    return lambda writer, result, parts: (_translated(parts[0].sql, letters, into), parts)


def _trim(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    return writer.spelling.trim(parts[0].sql), parts


def _length(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    return cast(function("LENGTH", first_of(parts[0].sql, LONGEST)), "BIGINT"), parts


def _prefix(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    size = parts[1].domain.keys
    assert size is not None
    assert isinstance(size[0], int)
    return first_of(parts[0].sql, size[0]), parts


def _substring(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    start, size = (_constant_of(part, int) for part in parts[1:])
    return function("SUBSTRING", parts[0].sql, number(start), number(size)), parts


def _split_part(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    return function("SPLIT_PART", parts[0].sql, parts[1].sql, number(_constant_of(parts[2], int))), parts


def _replace(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    return first_of(function("REPLACE", *(part.sql for part in parts)), LONGEST), parts


def _position(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    return cast(function("INSTR", first_of(parts[0].sql, LONGEST), parts[1].sql), "BIGINT"), parts


def _constant_of(part: Piece, kind: type[T]) -> T:
    assert part.domain.keys is not None
    value = part.domain.keys[0]
    assert isinstance(value, kind)
    return value


def _concat(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    sql = parts[0].sql
    for part in parts[1:]:
        # Truncated after each part, so that an intermediate text is never longer than two parts.
        sql = first_of(exp.DPipe(this=sql, expression=part.sql, safe=True), LONGEST)
    return sql, parts


def _like(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    pattern = parts[1].domain.keys
    assert pattern is not None
    return writer.spelling.like(parts[0].sql, str(pattern[0])), parts


def _regexp_like(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    found = pattern(_constant_of(parts[1], str))
    return writer.spelling.finds(parts[0].sql, found), parts


def _regexp_extract(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    found = pattern(_constant_of(parts[1], str))
    return writer.spelling.found(parts[0].sql, found, _constant_of(parts[2], int)), parts


def _regexp_replace(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    found = pattern(_constant_of(parts[1], str))
    new = Replacement.of(_constant_of(parts[2], str), found.groups)
    return first_of(writer.spelling.exchanged(parts[0].sql, found, new), LONGEST), parts


def _date_part(called: str) -> Write:
    return lambda writer, result, parts: (cast(function(called, parts[0].sql), "BIGINT"), parts)


def _weekday(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    return cast(writer.spelling.weekday(parts[0].sql), "BIGINT"), parts


def _date_trunc(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    unit, a = parts
    assert unit.domain.keys is not None
    assert isinstance(unit.domain.keys[0], str)
    a = writer.short(writer.promoted(a, result.kind))
    return writer.spelling.date_trunc(unit.domain.keys[0], a.sql, result.kind), (a, a)


def _days_between(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    a, b = (cast(part.sql, "DATE") for part in parts)
    return cast(writer.spelling.days_between(a, b), "BIGINT"), parts


def _microseconds(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
    a = writer.short(parts[0])
    return cast(writer.spelling.microseconds(a.sql), "BIGINT"), (a, a)


def _later(add: Callable[[Spelling, SQL, Kind, int], SQL]) -> Write:
    def write(writer: ExpressionWriter, result: Domain, parts: tuple[Piece, ...]) -> Made:
        a = writer.promoted(parts[0], result.kind)
        moved = add(writer.spelling, a.sql, result.kind, _constant_of(parts[1], int))
        if result.bounds is not None:
            return moved, (a,)
        # Engines compute dates outside the years 1 to 9999 without an error; our calendar ends there.
        whole = writer.short(Piece(moved, result, 3 + a.size, a.layer))
        first, last = (writer.spelling.literal(end, result.kind) for end in _CALENDAR[result.kind])
        inside = exp.And(this=both(exp.GTE, whole.sql, first), expression=both(exp.LTE, whole.sql.copy(), last))
        return case((inside, whole.sql.copy())), (whole, whole, whole)

    return write


_WRITERS: Final[Mapping[str, Write]] = {
    "add": _arithmetic(exp.Add),
    "subtract": _arithmetic(exp.Sub),
    "multiply": _arithmetic(exp.Mul),
    "divide": _divide,
    "modulo": _modulo,
    "negate": _negate,
    "abs": lambda writer, result, parts: (function("ABS", parts[0].sql), parts),
    "floor": _whole("floor"),
    "ceil": _whole("ceil"),
    "round": _whole("round"),
    "sqrt": _real_function("SQRT"),
    "ln": _real_function("LN"),
    "exp": _real_function("EXP"),
    "power": _real_function("POWER"),
    "least": _extreme(exp.LTE, "LEAST"),
    "greatest": _extreme(exp.GTE, "GREATEST"),
    "eq": _compare(exp.EQ),
    "ne": _compare(exp.NEQ),
    "lt": _compare(exp.LT),
    "le": _compare(exp.LTE),
    "gt": _compare(exp.GT),
    "ge": _compare(exp.GTE),
    "in": _in,
    "and": _logic(exp.And),
    "or": _logic(exp.Or),
    "not": _not,
    "is_null": _is_null,
    "case": _case,
    "coalesce": _coalesce,
    "nullif": _nullif,
    "cast_boolean": _to_boolean,
    "cast_integer": _to_integer,
    "cast_real": _to_real,
    "cast_text": _to_text,
    "cast_date": _to_date,
    "cast_timestamp": _to_timestamp,
    "lower": _shifted(_UPPER, _LOWER),
    "upper": _shifted(_LOWER, _UPPER),
    "trim": _trim,
    "length": _length,
    "prefix": _prefix,
    "substring": _substring,
    "split_part": _split_part,
    "replace": _replace,
    "position": _position,
    "concat": _concat,
    "like": _like,
    "regexp_like": _regexp_like,
    "regexp_extract": _regexp_extract,
    "regexp_replace": _regexp_replace,
    "year": _date_part("YEAR"),
    "quarter": _date_part("QUARTER"),
    "month": _date_part("MONTH"),
    "day": _date_part("DAY"),
    "weekday": _weekday,
    "hour": _date_part("HOUR"),
    "minute": _date_part("MINUTE"),
    "second": _date_part("SECOND"),
    "date_trunc": _date_trunc,
    "days_between": _days_between,
    "microseconds": _microseconds,
    "add_months": _later(lambda spelling, a, kind, size: spelling.months_later(a, kind, size)),
    "add_time": _later(lambda spelling, a, kind, size: spelling.time_later(a, kind, size)),
}
assert set(_WRITERS) == set(OPERATORS), "each operator of the table has exactly one writer"
