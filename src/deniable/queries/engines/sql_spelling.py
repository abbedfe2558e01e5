"""Spelling of SQL: small builders that all engines share, and `Spelling`, the parts that differ between engines."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, final

from sqlglot import exp

from deniable.queries.relations.linear_patterns import Pattern, Replacement
from deniable.queries.relations.operator_meanings import A_DAY
from deniable.queries.relations.relation_nodes import How
from deniable.tables.kinds import SMALLEST, Domain, Kind, Scalar

SQL = exp.Expression

LEFT: Final = "l"
RIGHT: Final = "r"
"""The sides of a join."""
_THERE: Final = "there"
"""A flag on a side of a join: true for a row of the data, false for the artificial row of nobody."""
_NOBODY: Final[Mapping[Kind, Scalar]] = {
    Kind.BOOLEAN: False,
    Kind.INTEGER: SMALLEST,
    Kind.REAL: -1e300,
    Kind.TEXT: "nobody",
    Kind.DATE: dt.date(1, 1, 1),
    Kind.TIMESTAMP: dt.datetime(1, 1, 1),
}
"""The join keys of the artificial row: any values but NULL."""

_SPECIAL: Final = frozenset(r"\.+*?()[]{}|^$-&~#")

_FEW: Final = 8
"""The most constants that are compared one by one."""

# --- small parts ----------------------------------------------------------------------------------------------------


def name(identifier: str) -> exp.Identifier:
    """An identifier, always quoted, so that it is never read as a keyword."""
    return exp.Identifier(this=identifier, quoted=True)


def column(identifier: str) -> exp.Column:
    """A column by its name."""
    return exp.Column(this=name(identifier))


def again(written: SQL) -> SQL:
    """A copy for another place in a statement. A plain column is rebuilt, which is faster than copying it."""
    if isinstance(written, exp.Column) and written.args.get("table") is None:
        return column(written.name)
    return written.copy()


def function(called: str, *arguments: SQL) -> SQL:
    """A function by the name it has on the engine."""
    return exp.Anonymous(this=called, expressions=list(arguments))


def case(*branches: tuple[SQL, SQL], otherwise: SQL | None = None) -> SQL:
    """CASE WHEN ... THEN ... ELSE ... END, by default NULL."""
    return exp.Case(ifs=[exp.If(this=when, true=then) for when, then in branches], default=otherwise)


def both(operator: type[exp.Binary], left: SQL, right: SQL) -> SQL:
    """left operator right, in parentheses, so that precedence does not matter."""
    return exp.Paren(this=operator(this=left, expression=right))


@cache
def _type(written: str) -> exp.DataType:
    return exp.DataType(this=exp.DataType.Type.USERDEFINED, kind=written)


def cast(value: SQL, to: str) -> SQL:
    """CAST, for values that cannot make it fail."""
    return exp.Cast(this=value, to=_type(to).copy())


def try_cast(value: SQL, to: str) -> SQL:
    """TRY_CAST: NULL where it fails."""
    # Not exp.TryCast: sqlglot writes it as a plain CAST for Spark.
    return function("TRY_CAST", exp.Alias(this=value, alias=exp.Var(this=to)))


def number(value: int) -> SQL:
    """An integer literal, a negative one in parentheses."""
    if value < 0:
        return exp.Paren(this=exp.Neg(this=exp.Literal.number(str(-value))))
    return exp.Literal.number(str(value))


def text(value: str) -> SQL:
    """A text literal; text with characters that some dialect treats specially is written as hexadecimal bytes."""
    if value.isprintable() and not set(value) & set("'\\$"):
        return exp.Literal.string(value)
    return function("DECODE_UTF8", exp.Literal.string(value.encode("utf-8", "surrogatepass").hex().upper()))


def _pieced(piece: str) -> str:
    """A piece of a LIKE pattern as a regular expression, with special characters escaped."""
    return "".join("." if each == "_" else f"\\{each}" if each in _SPECIAL else each for each in piece)


def first_of(value: SQL, size: int) -> SQL:
    """The first `size` code points of a text."""
    return function("SUBSTRING", value, number(1), number(size))


def inside(select: SQL, alias: str = "t") -> SQL:
    """A SELECT as a subquery with an alias, to select from."""
    return exp.Subquery(this=select, alias=exp.TableAlias(this=name(alias)))


def window(called: SQL, partition: Sequence[SQL], order: Sequence[SQL], alias: str) -> SQL:
    """A function over the rows of a partition, in an order that puts NULL first; without `order`, in any."""
    over = exp.Window(this=called, partition_by=[each.copy() for each in partition])
    by = [exp.Ordered(this=each.copy(), desc=False, nulls_first=True) for each in order]
    if by:
        over.set("order", exp.Order(expressions=by))
    return exp.Alias(this=over, alias=name(alias))


def of(side: str, identifier: str) -> exp.Column:
    """A column of one side of a join."""
    return exp.Column(this=name(identifier), table=name(side))


def present(value: SQL) -> SQL:
    """value IS NOT NULL."""
    return exp.Not(this=exp.Is(this=value, expression=exp.Null()))


@final
@dataclass(frozen=True, slots=True)
class JoinSide:
    """One side of a join: its SELECT, the kind of each column, the key columns, and the maximum rows per person."""

    select: exp.Select
    kinds: Mapping[str, Kind]
    keys: Sequence[str]
    rows: int

    def equal(self, other: JoinSide) -> list[SQL]:
        """The join conditions between this side, on the left, and `other`, on the right."""
        pairs = zip(self.keys, other.keys, strict=True)
        return [both(exp.EQ, of(LEFT, ours), of(RIGHT, theirs)) for ours, theirs in pairs]


def _enumeration(keys: Sequence[Scalar]) -> str | None:
    """DuckDB's ENUM type of these texts; None if one of them cannot be written."""
    listed = ", ".join("'" + str(key).replace("'", "''") + "'" for key in keys)
    return f"ENUM({listed})" if _written(listed) and "\0" not in listed else None


def _written(value: str) -> bool:
    """Whether a text can be encoded in a statement: half a surrogate pair cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def from_both(left: SQL, right: SQL, on: Sequence[SQL], side: str | None = None) -> exp.Select:
    """SELECT FROM left JOIN right ON all conditions."""
    return exp.Select(from_=exp.From(this=left), joins=[exp.Join(this=right, side=side, on=exp.and_(*on))])


# --- what differs between engines -----------------------------------------------------------------------------------


class Spelling(ABC):
    """The parts of SQL that engines write differently. Nothing written here raises an error for any value."""

    dialect: str
    """sqlglot's name of the dialect."""
    types: Mapping[Kind, str]
    """The engine's type for each kind."""
    wide: str
    """The type in which 64-bit integers are summed without overflow."""

    @abstractmethod
    def joined(self, left: JoinSide, right: JoinSide, how: How) -> exp.Select:
        """FROM and WHERE of a join.

        The engine must process all rows of each side, whether or not the other side has matching rows. Otherwise the
        time that the join takes would reveal whether a person is in a table.
        """

    @abstractmethod
    def matches(self, value: SQL, pattern: str) -> SQL:
        """Whether all of a text matches a pattern of plain character classes."""

    def like(self, value: SQL, pattern: str) -> SQL:
        """LIKE in time proportional to the length of the text times the length of the pattern.

        An engine's own LIKE may backtrack to every earlier % when a later piece does not match: with k of them, its
        time can grow with the k-th power of the text's length.
        """
        if pattern.count("%") < 2 or ("_" not in pattern and self.likes_pieces):
            return both(exp.Like, value, self.text(pattern))
        return self.matches_pieces(value, [_pieced(piece) for piece in pattern.split("%")])

    likes_pieces: bool
    """Whether the engine's own LIKE searches for pieces without _ one after the other, without backtracking."""

    @abstractmethod
    def matches_pieces(self, value: SQL, pieces: Sequence[str]) -> SQL:
        """Whether a text consists of these pieces, in order, with any text between them.

        `pieces` are three or more regular expressions, each of a fixed length.
        """

    finding: str
    """The name of the function that tests whether a regular expression matches a part of a text."""
    gives_back: bool
    """False if repetitions must be written as possessive (x*+), because the engine would backtrack otherwise."""

    def finds(self, value: SQL, pattern: Pattern) -> SQL:
        """Whether a pattern matches a part of a text."""
        return function(self.finding, value, self.text(pattern.text(gives_back=self.gives_back)))

    def found(self, value: SQL, pattern: Pattern, group: int) -> SQL:
        """A group of the first match of a pattern; '' if nothing matches."""
        text = self.text(pattern.text(gives_back=self.gives_back))
        return function("REGEXP_EXTRACT", value, text, number(group))

    @abstractmethod
    def exchanged(self, value: SQL, pattern: Pattern, new: Replacement) -> SQL:
        """The text with `new` in place of the first match of a pattern."""

    @abstractmethod
    def utf8(self, digits: SQL) -> SQL:
        """Text from the hexadecimal digits of its UTF-8 bytes."""

    @abstractmethod
    def divide(self, a: SQL, b: SQL) -> SQL:
        """a / b on reals: NULL, infinite or NaN if b is 0, but no error."""

    @abstractmethod
    def modulo(self, a: SQL, b: SQL) -> SQL:
        """The remainder with the sign of a: NULL or NaN if b is 0, but no error."""

    @abstractmethod
    def whole(self, operator: str, a: SQL) -> SQL:
        """floor, ceil or round (halves away from 0) of a real, as a real."""

    @abstractmethod
    def integer_of_real(self, whole: SQL) -> SQL:
        """A real without fraction as an integer; NULL if it does not fit into 64 bits. May repeat its argument."""

    @abstractmethod
    def element(self, items: Sequence[SQL], at: SQL) -> SQL:
        """The constant at position `at`, counted from 1."""

    def among(self, value: SQL, keys: Sequence[Scalar], kind: Kind) -> SQL:
        """Whether a value is one of several constants."""
        return exp.In(this=value, expressions=[self.literal(key, kind) for key in keys])

    @abstractmethod
    def trim(self, a: SQL) -> SQL:
        """The text without spaces at both ends."""

    @abstractmethod
    def weekday(self, a: SQL) -> SQL:
        """The day of the week from 1 (Monday) to 7."""

    @abstractmethod
    def date_trunc(self, unit: str, a: SQL, kind: Kind) -> SQL:
        """The start of the year, month … that `a` is in, of the same kind as `a`."""

    @abstractmethod
    def days_between(self, a: SQL, b: SQL) -> SQL:
        """The number of days from date a to date b."""

    @abstractmethod
    def months_later(self, a: SQL, kind: Kind, months: int) -> SQL:
        """A date or timestamp some months later, on the last day of a month that is too short."""

    @abstractmethod
    def time_later(self, a: SQL, kind: Kind, microseconds: int) -> SQL:
        """A date some whole days later, or a timestamp some microseconds later."""

    @abstractmethod
    def total(self, addend: SQL) -> SQL:
        """The exact sum of 62-bit integers; 0 for no rows."""

    def packed(self, domain: Domain) -> str | None:
        """A smaller type for a column while the engine sorts its rows; None if there is no such type."""
        return None

    hash_type = "VARCHAR"
    """The type of `digest`."""

    @abstractmethod
    def digest(self, parts: Sequence[SQL]) -> SQL:
        """The MD5 of the concatenated texts without NULLs, ordered like the little-endian integer of its bytes."""

    @abstractmethod
    def fingerprint(self, columns: Sequence[SQL]) -> SQL:
        """A hash of a row as an integer whose sum over all rows does not overflow. Differs between engines."""

    @abstractmethod
    def microseconds(self, a: SQL) -> SQL:
        """A timestamp as microseconds since 1970."""

    def literal(self, value: Scalar | None, kind: Kind) -> SQL:
        """A constant of this kind."""
        match value:
            case None:
                return cast(exp.Null(), self.types[kind])
            case bool():
                return exp.Boolean(this=value)
            case str():
                return self.text(value)
            case int() if kind is Kind.INTEGER:
                return cast(number(value) if abs(value) < 2**31 else exp.Literal.string(str(value)), "BIGINT")
            case int() | float():
                return self.real(float(value))
            case dt.datetime():
                return cast(exp.Literal.string(value.isoformat(" ", "microseconds")), self.types[Kind.TIMESTAMP])
            case dt.date():
                return cast(exp.Literal.string(value.isoformat()), "DATE")
        raise AssertionError(value)

    def text(self, value: str) -> SQL:
        """A constant text."""
        written = text(value)
        return written if isinstance(written, exp.Literal) else self.utf8(written.expressions[0])

    def real(self, value: float) -> SQL:
        """A constant real in its shortest decimal form, which every engine reads back to the same bits."""
        return cast(exp.Literal.string(repr(value + 0.0)), "DOUBLE")


@final
class DuckDB(Spelling):
    """The spelling of DuckDB, with its setting error_on_division_by_zero off."""

    dialect = "duckdb"
    hash_type = "UHUGEINT"
    types: Mapping[Kind, str] = {
        Kind.BOOLEAN: "BOOLEAN",
        Kind.INTEGER: "BIGINT",
        Kind.REAL: "DOUBLE",
        Kind.TEXT: "VARCHAR",
        Kind.DATE: "DATE",
        Kind.TIMESTAMP: "TIMESTAMP",
    }
    wide = "HUGEINT"
    likes_pieces = True
    finding = "REGEXP_MATCHES"
    gives_back = True

    def joined(self, left: JoinSide, right: JoinSide, how: How) -> exp.Select:
        """A join whose hash table is never empty.

        DuckDB builds a hash table from one side and stops early if that table is empty. An artificial row that belongs
        to nobody prevents this. The side with the smaller maximum of rows per person becomes the hash table: that
        maximum is public, while the number of rows is not.
        """
        if left.rows < right.rows:
            hashed = inside(self._with_nobody(left), LEFT)
            side = "RIGHT" if how is How.LEFT else None
            met = from_both(inside(right.select, RIGHT), hashed, left.equal(right), side)
            return met.where(of(LEFT, _THERE), copy=False)
        hashed = inside(self._with_nobody(right), RIGHT)
        if how is How.INNER:
            met = from_both(inside(left.select, LEFT), hashed, left.equal(right))
            return met.where(of(RIGHT, _THERE), copy=False)
        # A LEFT JOIN keeps rows without a partner, so the artificial row must not count as one.
        marked = left.select.select(exp.Alias(this=exp.true(), alias=name(_THERE)), copy=False)
        met_on = [*left.equal(right), both(exp.EQ, of(LEFT, _THERE), of(RIGHT, _THERE))]
        return from_both(inside(marked, LEFT), hashed, met_on, "LEFT")

    def _with_nobody(self, side: JoinSide) -> SQL:
        rows = side.select.select(exp.Alias(this=exp.true(), alias=name(_THERE)), copy=False)
        values = [self.literal(_NOBODY[kind] if each in side.keys else None, kind) for each, kind in side.kinds.items()]
        return exp.Union(this=rows, expression=exp.Select(expressions=[*values, exp.false()]), distinct=False)

    def real(self, value: float) -> SQL:
        # DuckDB reads a number with an exponent as DOUBLE, and one without as DECIMAL, which it would have to cast.
        digits = repr(abs(value))
        written = exp.Literal.number(digits if "e" in digits else f"{digits}e0")
        return exp.Paren(this=exp.Neg(this=written)) if value < 0 else written

    def element(self, items: Sequence[SQL], at: SQL) -> SQL:
        return function("LIST_EXTRACT", exp.Array(expressions=list(items)), at)

    def among(self, value: SQL, keys: Sequence[Scalar], kind: Kind) -> SQL:
        listed = _enumeration(keys) if len(keys) > _FEW and kind in {Kind.TEXT, Kind.INTEGER, Kind.DATE} else None
        if listed is None:
            return super().among(value, keys, kind)
        # IN compares with each key in turn; a cast to ENUM is one look-up, however many keys there are. Integers and
        # dates are compared as text, because each value has exactly one text form.
        found = try_cast(value if kind is Kind.TEXT else cast(value, "VARCHAR"), listed)
        return exp.Not(this=exp.Is(this=found, expression=exp.Null()))

    def matches(self, value: SQL, pattern: str) -> SQL:
        return function("REGEXP_FULL_MATCH", value, exp.Literal.string(pattern))

    def matches_pieces(self, value: SQL, pieces: Sequence[str]) -> SQL:
        # RE2 reads the text once and tracks all possible positions in the pattern, so it does not backtrack.
        return function("REGEXP_FULL_MATCH", value, self.text("(?s)" + ".*".join(pieces)))

    def exchanged(self, value: SQL, pattern: Pattern, new: Replacement) -> SQL:
        return function("REGEXP_REPLACE", value, self.text(pattern.text()), self.text(new.text("\\", "\\")))

    def utf8(self, digits: SQL) -> SQL:
        return function("DECODE", function("UNHEX", digits))

    def divide(self, a: SQL, b: SQL) -> SQL:
        return both(exp.Div, a, b)

    def modulo(self, a: SQL, b: SQL) -> SQL:
        return both(exp.Mod, a, b)

    def whole(self, operator: str, a: SQL) -> SQL:
        return function(operator.upper(), a)

    def integer_of_real(self, whole: SQL) -> SQL:
        return try_cast(whole, "BIGINT")

    def trim(self, a: SQL) -> SQL:
        return function("TRIM", a, exp.Literal.string(" "))

    def weekday(self, a: SQL) -> SQL:
        return function("ISODOW", a)

    def date_trunc(self, unit: str, a: SQL, kind: Kind) -> SQL:
        return cast(function("DATE_TRUNC", exp.Literal.string(unit), a), self.types[kind])

    def days_between(self, a: SQL, b: SQL) -> SQL:
        return function("DATE_DIFF", exp.Literal.string("day"), a, b)

    def months_later(self, a: SQL, kind: Kind, months: int) -> SQL:
        return cast(both(exp.Add, a, function("TO_MONTHS", number(months))), self.types[kind])

    def time_later(self, a: SQL, kind: Kind, microseconds: int) -> SQL:
        if kind is Kind.DATE:
            return both(exp.Add, a, cast(number(microseconds // A_DAY), "INTEGER"))
        return both(exp.Add, a, function("TO_MICROSECONDS", self.literal(microseconds, Kind.INTEGER)))

    def total(self, addend: SQL) -> SQL:
        return exp.Coalesce(this=exp.Sum(this=addend), expressions=[number(0)])

    def packed(self, domain: Domain) -> str | None:
        if domain.kind is not Kind.TEXT or domain.keys is None:
            return None
        return _enumeration(domain.keys)

    def digest(self, parts: Sequence[SQL]) -> SQL:
        return function("MD5_NUMBER", function("CONCAT", *parts))  # DuckDB's CONCAT skips NULLs

    def fingerprint(self, columns: Sequence[SQL]) -> SQL:
        return cast(function("HASH", *columns), "HUGEINT")

    def microseconds(self, a: SQL) -> SQL:
        return function("EPOCH_US", a)
