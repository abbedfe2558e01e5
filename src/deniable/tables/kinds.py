"""Kinds and domains: the public facts about a value, known before any data is read."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Final, final

from deniable import arguments
from deniable.errors import InvalidParameter, PublicTuple
from deniable.numbers import plain

Scalar = bool | int | float | str | dt.date | dt.datetime
"""The Python types of a cell that is not NULL. A timestamp has no time zone; it is UTC."""

SMALLEST: Final = -(2**63)
LARGEST: Final = 2**63 - 1
"""The range of 64-bit integers. A number outside is not an INTEGER."""
TINIEST: Final = Fraction(1, 10**250)
"""The smallest allowed size of bounds. For smaller bounds, the grid steps of sums would be below the smallest float."""
LONGEST: Final = 1_000
"""The most code points of a text; longer ones are truncated, at registration and when texts are joined. Otherwise a
question could turn one person's row into a text so long that an engine fails or slows down."""
_DIGITS: Final = 400
"""Decimals with more digits before or after the point are beyond the range of 64-bit floats."""
_DAY: Final = dt.timedelta(days=1) // dt.timedelta(microseconds=1)


@final
class Kind(Enum):
    """The kinds of values. Every type of a source is read as one of these, by a rule that never fails on a value."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    """64-bit."""
    REAL = "real"
    """64-bit floating point; NaN and the infinities are NULL."""
    TEXT = "text"
    DATE = "date"
    """From 0001-01-01 to 9999-12-31; a date outside is NULL."""
    TIMESTAMP = "timestamp"
    """In microseconds, UTC, in the same years."""

    __hash__ = object.__hash__  # members are singletons, and Enum's own hash is ten times slower


_WRITTEN: Final = {
    Kind.DATE: re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    Kind.TIMESTAMP: re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:.*"),
}
"""The ISO formats for dates and timestamps that are accepted: all digits, with dashes."""
NUMBERS: Final = frozenset({Kind.INTEGER, Kind.REAL})
BOUNDED: Final = NUMBERS | {Kind.DATE, Kind.TIMESTAMP}
"""The kinds that can have bounds."""


def kind_of(value: object) -> Kind | None:
    """The kind of a Python value, or None if a cell cannot contain it.

    >>> kind_of(True), kind_of(7), kind_of(2**63), kind_of(float("nan"))
    (<Kind.BOOLEAN: 'boolean'>, <Kind.INTEGER: 'integer'>, None, None)
    """
    match value:
        case bool():
            return Kind.BOOLEAN
        case int():
            return Kind.INTEGER if SMALLEST <= value <= LARGEST else None
        case float():
            return Kind.REAL if math.isfinite(value) else None
        case str():
            return Kind.TEXT
        case dt.datetime():
            return Kind.TIMESTAMP if value.tzinfo is None else None
        case dt.date():
            return Kind.DATE
        case _:
            return None


@final
@dataclass(frozen=True, slots=True)
class Domain:
    """The public facts about a column or an expression.

    `bounds` are bounds on every value that is not NULL, as fractions: numbers, or for dates and timestamps the ordinal
    day with its fraction. The engine clamps values to declared bounds, so they always hold. `keys` lists every possible
    value other than NULL; None if they are not public. A value that is not a declared key is read as NULL, and a row
    with NULL in a column that is not `nullable` is dropped.

    >>> Domain.integer(0, 120)
    Domain.integer(0, 120)
    >>> Domain.text("north", "south", nullable=False).keys
    ('north', 'south')
    """

    kind: Kind
    bounds: tuple[Fraction, Fraction] | None = None
    keys: tuple[Scalar, ...] | None = None
    nullable: bool = True

    @classmethod
    def boolean(cls, *, nullable: bool = True) -> Domain:
        """Booleans; both values are public keys."""
        return cls(Kind.BOOLEAN, None, (False, True), _nullable(nullable))

    @classmethod
    def integer(
        cls,
        low: int | None = None,
        high: int | None = None,
        *,
        keys: Iterable[int] | None = None,
        nullable: bool = True,
    ) -> Domain:
        """Integers from `low` to `high`, or one of `keys`. Without either, the column can be counted but not summed.

        Raises `InvalidParameter` if only one end is given, low is above high, or a number does not fit into 64 bits.
        """
        return declared(Kind.INTEGER, low, high, keys, nullable)

    @classmethod
    def real(
        cls, low: float | Decimal | None = None, high: float | Decimal | None = None, *, nullable: bool = True
    ) -> Domain:
        """Reals from `low` to `high`, both rounded to 64-bit floats. Without bounds, countable but not summable."""
        return declared(Kind.REAL, low, high, None, nullable)

    @classmethod
    def text(cls, *listed: str | Iterable[str], keys: Iterable[str] | None = None, nullable: bool = True) -> Domain:
        """Text. If keys are given, every other value is read as NULL. Keys are compared exactly: case and spaces count.

        >>> Domain.text("A", "B") == Domain.text(["A", "B"]) == Domain.text(keys=["A", "B"])
        True
        """
        if listed and keys is not None:
            raise InvalidParameter(
                "keys", keys, "were given twice: as arguments and as keys=", 'write Domain.text("A", "B")'
            )
        found = listed[0] if len(listed) == 1 and not isinstance(listed[0], str) else listed or keys
        return declared(Kind.TEXT, None, None, found, nullable)

    @classmethod
    def date(
        cls,
        low: dt.date | str | None = None,
        high: dt.date | str | None = None,
        *,
        keys: Iterable[dt.date | str] | None = None,
        nullable: bool = True,
    ) -> Domain:
        """Dates from `low` to `high`, or one of `keys`. With bounds, years and starts of months are public keys.

        >>> Domain.date("2024-01-01", "2024-12-31")
        Domain.date(datetime.date(2024, 1, 1), datetime.date(2024, 12, 31))
        """
        return declared(Kind.DATE, low, high, keys, nullable)

    @classmethod
    def timestamp(
        cls, low: dt.datetime | str | None = None, high: dt.datetime | str | None = None, *, nullable: bool = True
    ) -> Domain:
        """Timestamps in UTC from `low` to `high`. With bounds, years and starts of months are public keys.

        >>> Domain.timestamp("2024-01-01 00:00", "2024-12-31 23:59")
        Domain.timestamp(datetime.datetime(2024, 1, 1, 0, 0), datetime.datetime(2024, 12, 31, 23, 59))
        """
        return declared(Kind.TIMESTAMP, low, high, None, nullable)

    def __repr__(self) -> str:
        parts: list[str] = []
        if self.bounds is not None:
            parts += [_end_text(self.kind, end) for end in self.bounds]
        if self.keys is not None and self.kind is not Kind.BOOLEAN:
            shown = ", ".join(repr(key) for key in self.keys[:4]) + (", …" if len(self.keys) > 4 else "")
            parts.append(shown if self.kind is Kind.TEXT else f"keys=({shown})")
        if not self.nullable:
            parts.append("nullable=False")
        return f"Domain.{self.kind.value}({', '.join(parts)})"


def within_keys(domain: Domain) -> Domain:
    """The domain with the smallest and largest key as bounds, because a value that is not a key becomes NULL.

    Not for clamping: that would turn an unlisted value into the nearest key.

    >>> within_keys(Domain.integer(keys=[4, 1, 9])).bounds == (1, 9)
    True
    """
    if domain.bounds is not None or not domain.keys or domain.kind not in BOUNDED:
        return domain
    ends = [_end(domain.kind, "keys", key) for key in domain.keys]
    return replace(domain, bounds=(min(ends), max(ends)))


def end_of(kind: Kind, end: Fraction) -> int | float | dt.date:
    """One end of a domain's bounds as a value of this kind.

    >>> end_of(Kind.DATE, Fraction(738_886)), end_of(Kind.TIMESTAMP, Fraction(738_886) + Fraction(1, 2))
    (datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1, 12, 0))
    """
    if kind is Kind.TIMESTAMP:
        return dt.datetime.min + dt.timedelta(microseconds=int((end - 1) * _DAY))  # 0001-01-01 has the ordinal 1
    if kind is Kind.DATE:
        return dt.date.fromordinal(int(end))
    return int(end) if kind is Kind.INTEGER else float(end)


def ordinal(day: dt.date) -> Fraction:
    """A date as its ordinal, a timestamp as its ordinal plus the fraction of the day: the numbers of bounds."""
    if not isinstance(day, dt.datetime):
        return Fraction(day.toordinal())
    return 1 + Fraction((day - dt.datetime.min) // dt.timedelta(microseconds=1), _DAY)


def _end_text(kind: Kind, end: Fraction) -> str:
    return str(int(end)) if kind is Kind.REAL and end.denominator == 1 else repr(end_of(kind, end))


def declared(kind: Kind, low: object, high: object, keys: Iterable[object] | None, nullable: bool) -> Domain:
    """A domain from an owner's declaration; `InvalidParameter` if bounds or keys are wrong."""
    for name, given in (("low", low), ("high", high)):
        if kind in _WRITTEN and given != given:  # NaT, which would be read as a missing bound
            raise InvalidParameter(name, "NaT", "is not a time", "give low and high, or neither")
    low, high = as_written(kind, low), as_written(kind, high)
    if (low is None) != (high is None):
        raise InvalidParameter(
            "bounds", PublicTuple((low, high)), "must have both ends", "give low and high, or neither"
        )
    bounds = None
    if low is not None:
        bounds = (_end(kind, "low", low), _end(kind, "high", high))
        if bounds[0] > bounds[1]:
            raise InvalidParameter("bounds", PublicTuple((low, high)), "low must be at most high", "swap them")
        if 0 < max(abs(end) for end in bounds) < TINIEST:
            rule = "lie nearer to 0 than 1e-250, which is too small for sums"
            raise InvalidParameter("bounds", PublicTuple((low, high)), rule, "store larger numbers, in a smaller unit")
    listed = None if keys is None else _listed(kind, keys)
    return Domain(kind, bounds, None if listed is None else declared_keys(kind, listed, bounds), _nullable(nullable))


def _nullable(given: object) -> bool:
    return arguments.boolean("nullable", plain(given))


def as_written(kind: Kind, given: object) -> object:
    """A declared value as a Python value of its kind, if possible; otherwise unchanged.

    Converts NumPy scalars, ISO text (2024-01-01, 2024-01-01 12:00), decimals, and timestamps at midnight that stand for
    dates, as in pandas. A date is not accepted as a timestamp, because it is ambiguous as the end of bounds.
    """
    value = plain(given)
    if isinstance(value, str) and kind in _WRITTEN and _WRITTEN[kind].fullmatch(value):
        try:
            return dt.date.fromisoformat(value) if kind is Kind.DATE else dt.datetime.fromisoformat(value)
        except ValueError:
            return value  # refused by the caller's check
    if kind is Kind.DATE and isinstance(value, dt.datetime):
        return value.date() if value == dt.datetime.combine(value, dt.time.min) else value
    if kind in NUMBERS and isinstance(value, Decimal) and value.is_finite():
        # A fraction with so many digits would take too long to compute; as a float it is infinite or 0.
        return Fraction(value) if abs(value.adjusted()) < _DIGITS else float(value)
    return value


def _listed(kind: Kind, keys: object) -> tuple[object, ...]:
    if not isinstance(keys, Iterable) or isinstance(keys, str | bytes):
        raise InvalidParameter("keys", keys, "must be a list of values", 'write keys=[1, 2], or Domain.text("A", "B")')
    found = tuple(as_written(kind, each) for each in keys)
    try:  # the order of a set differs from run to run
        return tuple(sorted(found)) if isinstance(keys, AbstractSet) else found  # type: ignore[type-var]  # a TypeError is caught below
    except TypeError:
        return found  # several kinds, which `declared_keys` refuses


def declared_keys(
    kind: Kind, keys: tuple[object, ...], bounds: tuple[Fraction, Fraction] | None = None
) -> tuple[Scalar, ...]:
    """Declared public keys, checked: at least one, each of the kind, unique, and within the bounds."""
    if not keys:
        raise InvalidParameter("keys", keys, "must list at least one value", "leave keys out if they are not public")
    checked: list[Scalar] = []
    for key in keys:
        if kind_of(key) is not kind or not isinstance(key, Scalar):
            quoted = kind is Kind.TEXT and isinstance(key, bool | int | float | dt.date)
            remedy = (
                "put texts in quotes; YAML reads no, 1 and 2024-01-01 without quotes as other kinds" if quoted else ""
            )
            raise InvalidParameter("keys", key, f"must be values of kind {kind.value}", remedy)
        if isinstance(key, str) and not _is_unicode(key):
            rule = "contains half of a surrogate pair, which is not a character"
            raise InvalidParameter("keys", ascii(key), rule, "leave it out; such a value is read as NULL")
        if bounds is not None and not bounds[0] <= _end(kind, "keys", key) <= bounds[1]:
            raise InvalidParameter(
                "keys", key, "must lie within low and high", "widen the bounds, or leave this key out"
            )
        checked.append(key)
    if len(set(checked)) < len(checked):
        raise InvalidParameter("keys", keys, "must list each value once", "remove the repetitions")
    return tuple(checked)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _end(kind: Kind, name: str, value: object) -> Fraction:
    if kind is Kind.DATE:
        if kind_of(value) is not Kind.DATE:
            raise InvalidParameter(name, value, "must be a date", 'write "2024-01-01", or datetime.date(2024, 1, 1)')
        assert isinstance(value, dt.date)
        return ordinal(value)
    if kind is Kind.TIMESTAMP:
        if kind_of(as_written(Kind.DATE, value)) is Kind.DATE and not isinstance(value, dt.datetime):
            rule = "is a date without a time, so it is unclear whether the bounds include that day"
            remedy = (
                'write the time: "2024-01-01 00:00" to begin with a day, "2024-01-01 23:59:59.999999" to end with it'
            )
            raise InvalidParameter(name, value, rule, remedy)
        if kind_of(value) is not Kind.TIMESTAMP:
            raise InvalidParameter(
                name,
                value,
                "must be a timestamp in UTC, without a time zone",
                'write "2024-01-01 12:00", or datetime.datetime(2024, 1, 1, 12)',
            )
        assert isinstance(value, dt.datetime)
        return ordinal(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise InvalidParameter(name, value, "must be a number")
    if kind is Kind.INTEGER:
        if value != int(value) if not isinstance(value, float) or math.isfinite(value) else True:
            raise InvalidParameter(name, value, "must be a whole number")
        if not SMALLEST <= value <= LARGEST:
            raise InvalidParameter(name, value, "must fit into 64 bits")
        return Fraction(int(value))
    try:
        nearest = float(value)
    except OverflowError:
        nearest = math.inf
    if not math.isfinite(nearest):
        raise InvalidParameter(name, value, "must be finite")
    return Fraction(nearest)
