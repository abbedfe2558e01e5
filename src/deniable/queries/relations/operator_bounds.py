"""The effect of each operator on domains: the kind of its result, and bounds by interval arithmetic on fractions.

A bound must hold for the rounded value that an engine computes. IEEE addition, subtraction, multiplication, division
and square root round to nearest, which is monotone: if x <= h then fl(x) <= fl(h). So the bounds of a REAL are the
exact corners, each rounded to nearest. `exp`, `ln` and `power` are not correctly rounded everywhere; their bounds are
widened by 2^-40 of their size, far more than the error of any mathematical library.
"""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Final

from deniable.queries.relations import operator_meanings
from deniable.tables.kinds import LARGEST, NUMBERS, SMALLEST, Domain, Kind, Scalar, end_of, kind_of, ordinal

Bounds = tuple[Fraction, Fraction]
Domains = tuple[Domain, ...]

_MOST: Final = Fraction(sys.float_info.max)
_WIDER: Final = Fraction(1, 2**40)
_DAYS: Final = (Fraction(-3_652_058), Fraction(3_652_058))  # from 0001-01-01 to 9999-12-31
_LONGEST_UNIT: Final = {"year": 366, "quarter": 92, "month": 31, "week": 7, "day": 1}
_MOST_STARTS: Final = 1000  # as many as there may be integers in a range that is listed
_FIRST_MOMENT: Final = ordinal(dt.datetime.min)
_LAST_MOMENT: Final = ordinal(dt.datetime.max)
_MOST_MONTHS: Final = 12 * 10_000
_MOST_TIME: Final = 3_652_059 * operator_meanings.A_DAY  # all days of the calendar
_A_MICROSECOND: Final = Fraction(1, operator_meanings.A_DAY)
_EPOCH: Final = ordinal(dt.datetime(1970, 1, 1))


class Unfit(Exception):
    """The arguments do not have the kinds that an operator takes. Internal to `queries.relations`."""

    def __init__(self, rewrite: str = "") -> None:
        self.rewrite = rewrite
        super().__init__(rewrite)


class MixedKinds(Unfit):
    """The arguments must be of one kind, and a cast can achieve that."""


def of_constant(value: Scalar | None) -> Domain:
    """The domain of a constant, bounded by itself. NULL, which has any kind, is a boolean without values."""
    if value is None:
        return Domain(Kind.BOOLEAN, None, (), True)
    kind = kind_of(value)
    assert kind is not None  # Literal refuses the others
    # A number, by its kind.
    bounds = (Fraction(value), Fraction(value)) if kind in NUMBERS else None  # type: ignore[arg-type]
    return Domain(kind, bounds, (value,), False)


def only_null(domain: Domain) -> bool:
    """Whether NULL is the only value of a domain."""
    return domain.keys == ()


def nullable(domains: Iterable[Domain]) -> bool:
    """Whether one of the arguments may be NULL, so that the result of a strict operator may be."""
    return any(domain.nullable for domain in domains)


def common(domains: Sequence[Domain]) -> Domain:
    """A domain with the kind in which all can be compared, and the hull of their bounds."""
    known = [domain for domain in domains if not only_null(domain)]
    if not known:
        return of_constant(None)
    kind = common_kind(known)
    ends = [domain.bounds for domain in known if domain.bounds is not None]
    hull = (min(low for low, _ in ends), max(high for _, high in ends)) if len(ends) == len(known) else None
    return Domain(kind, _as(kind, hull), None, nullable(domains))


def common_kind(domains: Sequence[Domain]) -> Kind:
    """The kind of `common`, without its hull, which takes most of the time."""
    kinds = {domain.kind: None for domain in domains if domain.keys != ()}
    if len(kinds) > 1:
        return _between(set(kinds))
    return next(iter(kinds), Kind.BOOLEAN)


def _between(kinds: set[Kind]) -> Kind:
    if kinds == NUMBERS:
        return Kind.REAL
    if kinds == {Kind.DATE, Kind.TIMESTAMP}:
        return Kind.TIMESTAMP
    raise MixedKinds


def _as(kind: Kind, bounds: Bounds | None) -> Bounds | None:
    # Bounds of dates and timestamps are both in days; a date has the bounds of its midnight.
    return _real(*bounds) if bounds is not None and kind is Kind.REAL else bounds


def _nearest(exact: Fraction) -> Fraction:
    # Values that are not finite become NULL, so the largest float bounds the others.
    try:
        nearest = float(exact)
    except OverflowError:
        nearest = math.inf
    if math.isinf(nearest):
        return _MOST if exact > 0 else -_MOST
    return Fraction(nearest)


def _real(low: Fraction, high: Fraction) -> Bounds:
    return _nearest(low), _nearest(high)


def _numbers(domains: Domains) -> list[Domain]:
    """The arguments as numbers; NULL, which is of any kind, as 0."""
    found = []
    for domain in domains:
        if only_null(domain):
            found.append(Domain(Kind.INTEGER, (Fraction(0), Fraction(0))))
        elif domain.kind in NUMBERS:
            found.append(domain)
        elif domain.kind in {Kind.TEXT, Kind.BOOLEAN}:
            raise MixedKinds
        else:
            raise Unfit
    return found


def _arithmetic(domains: Domains, corners: Callable[..., Bounds]) -> Domain:
    """The domain of arithmetic: integers if bounds prove that the result fits into 64 bits, otherwise reals."""
    numbers = _numbers(domains)
    ends = [domain.bounds for domain in numbers]
    if all(domain.kind is Kind.INTEGER for domain in numbers) and None not in ends:
        low, high = corners(*ends)
        if low >= SMALLEST and high <= LARGEST:
            return Domain(Kind.INTEGER, (low, high), None, nullable(domains))
    rounded = [None if end is None else _real(*end) for end in ends]
    bounds = None if None in rounded else _real(*corners(*rounded))
    # An infinite result becomes NULL; only bounds well inside the range of floats exclude that.
    safe = bounds is not None and bounds[0] > -_MOST and bounds[1] < _MOST
    return Domain(Kind.REAL, bounds, None, nullable(domains) or not safe)


def add(domains: Domains) -> Domain:
    """The domain of a + b."""
    return _arithmetic(domains, lambda a, b: (a[0] + b[0], a[1] + b[1]))


def subtract(domains: Domains) -> Domain:
    """The domain of a - b. `Unfit` for dates, whose difference is an operator of its own (`days_between`)."""
    if any(domain.kind in {Kind.DATE, Kind.TIMESTAMP} for domain in domains):
        raise Unfit("write DATE_DIFF('day', a, b) for the days between two dates")
    return _arithmetic(domains, lambda a, b: (a[0] - b[1], a[1] - b[0]))


def multiply(domains: Domains) -> Domain:
    """The domain of a * b: the extremes are at the corners of the two intervals."""
    return _arithmetic(domains, _corners(lambda x, y: x * y))


def _corners(function: Callable[[Fraction, Fraction], Fraction]) -> Callable[[Bounds, Bounds], Bounds]:
    def corners(a: Bounds, b: Bounds) -> Bounds:
        found = [function(x, y) for x in a for y in b]
        return min(found), max(found)

    return corners


def divide(domains: Domains) -> Domain:
    """The domain of a / b, a real. Without bounds, and nullable, if b may be 0."""
    a, b = (None if domain.bounds is None else _real(*domain.bounds) for domain in _numbers(domains))
    if b is None or b[0] <= 0 <= b[1]:
        return Domain(Kind.REAL, None, None, True)
    if a is None:
        return Domain(Kind.REAL, None, None, True)
    bounds = _real(*_corners(lambda x, y: x / y)(a, b))
    return Domain(Kind.REAL, bounds, None, nullable(domains) or not (bounds[0] > -_MOST and bounds[1] < _MOST))


def modulo(domains: Domains) -> Domain:
    """The domain of a % b, which has the sign of a and is smaller than b in size. Nullable if b may be 0."""
    a, b = _numbers(domains)
    whole = a.kind is Kind.INTEGER and b.kind is Kind.INTEGER
    kind = Kind.INTEGER if whole else Kind.REAL
    bounds = None
    if b.bounds is not None:
        size = max(abs(end) for end in b.bounds)
        if whole:
            size = max(size - 1, Fraction(0))
        low = -size if a.bounds is None else max(-size, min(a.bounds[0], Fraction(0)))
        high = size if a.bounds is None else min(size, max(a.bounds[1], Fraction(0)))
        bounds = _as(kind, (low, high))
    divides = b.bounds is not None and not b.bounds[0] <= 0 <= b.bounds[1]
    return Domain(kind, bounds, None, nullable(domains) or not divides)


def negate(domains: Domains) -> Domain:
    """The domain of -a; a real if -a may exceed 64 bits."""
    return _arithmetic(domains, lambda a: (-a[1], -a[0]))


def absolute(domains: Domains) -> Domain:
    """The domain of |a|, which reaches down to 0 if a may have both signs."""

    def corners(a: Bounds) -> Bounds:
        high = max(abs(a[0]), abs(a[1]))
        return (Fraction(0) if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1]))), high

    return _arithmetic(domains, corners)


def _whole(domains: Domains, step: Callable[[Fraction], int]) -> Domain:
    (a,) = _numbers(domains)
    if a.kind is Kind.INTEGER:
        return Domain(Kind.INTEGER, a.bounds, None, nullable(domains))
    if a.bounds is None:
        return Domain(Kind.REAL, None, None, nullable(domains))
    low, high = (Fraction(step(end)) for end in a.bounds)
    # 2^63 - 1 is not a float: a real that fits into 64 bits is below 2^63.
    fits = low >= SMALLEST and high <= LARGEST
    return Domain(Kind.INTEGER if fits else Kind.REAL, (low, high), None, nullable(domains))


def floor(domains: Domains) -> Domain:
    """The domain of FLOOR(a): an integer if the bounds of a fit into 64 bits, otherwise a real."""
    return _whole(domains, math.floor)


def ceil(domains: Domains) -> Domain:
    """The domain of CEIL(a): an integer if the bounds of a fit into 64 bits, otherwise a real."""
    return _whole(domains, math.ceil)


def rounded(domains: Domains) -> Domain:
    """The domain of ROUND(a), halves away from 0: an integer if the bounds fit into 64 bits, otherwise a real."""
    return _whole(domains, lambda x: math.floor(abs(x) + Fraction(1, 2)) * (-1 if x < 0 else 1))


def _one_real(domains: Domains) -> Bounds | None:
    (a,) = _numbers(domains)
    return None if a.bounds is None else _real(*a.bounds)


def sqrt(domains: Domains) -> Domain:
    """The domain of SQRT(a). Nullable if a may be negative; then the bounds are those of its part from 0 on."""
    a = _one_real(domains)
    if a is None or a[1] < 0:
        return Domain(Kind.REAL, None, None, True)
    low, high = (Fraction(math.sqrt(float(max(end, Fraction(0))))) for end in a)
    return Domain(Kind.REAL, (low, high), None, nullable(domains) or a[0] < 0)


def _wider(low: float, high: float) -> Bounds | None:
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    a, b = Fraction(low), Fraction(high)
    return _real(a - abs(a) * _WIDER - _WIDER, b + abs(b) * _WIDER + _WIDER)


def ln(domains: Domains) -> Domain:
    """The domain of LN(a). Without bounds, and nullable, if a may be 0 or negative."""
    a = _one_real(domains)
    if a is None or a[0] <= 0:
        return Domain(Kind.REAL, None, None, True)
    return Domain(Kind.REAL, _wider(math.log(float(a[0])), math.log(float(a[1]))), None, nullable(domains))


def exp(domains: Domains) -> Domain:
    """The domain of EXP(a). Without bounds, and nullable, if a may exceed 700, near which a float overflows."""
    a = _one_real(domains)
    if a is None or a[1] > 700:
        return Domain(Kind.REAL, None, None, True)
    return Domain(Kind.REAL, _wider(math.exp(float(a[0])), math.exp(float(a[1]))), None, nullable(domains))


def power(domains: Domains) -> Domain:
    """The domain of POWER(a, b). It has bounds if a is positive, or if b is a constant integer of at least 0."""
    a, b = (None if domain.bounds is None else _real(*domain.bounds) for domain in _numbers(domains))
    unknown = Domain(Kind.REAL, None, None, True)
    if a is None or b is None:
        return unknown
    if a[0] > 0:  # monotone in each argument, so the extremes are at corners
        corners = [operator_meanings.power(float(x), float(y)) for x in a for y in b]
    elif (
        b[0] == b[1] and b[0] >= 0 and b[0].denominator == 1
    ):  # a whole power of any number: monotone on either side of 0
        corners = [operator_meanings.power(float(x), float(b[0])) for x in (*a, *((Fraction(0),) if a[1] >= 0 else ()))]
    else:
        return unknown
    if any(corner is None for corner in corners):
        return unknown
    found = [corner for corner in corners if corner is not None]
    bounds = _wider(min(found), max(found))
    return Domain(Kind.REAL, bounds, None, nullable(domains) or bounds is None)


def _extreme(domains: Domains, choose: Callable[[Iterable[Fraction]], Fraction]) -> Domain:
    together = common(domains)
    if together.kind in {Kind.DATE, Kind.TIMESTAMP}:
        last = _LAST_MOMENT if together.kind is Kind.TIMESTAMP else Fraction(math.floor(_LAST_MOMENT))
        dates = [_ends(domain) or (_FIRST_MOMENT, last) for domain in domains if not only_null(domain)]
        found = choose(low for low, _ in dates), choose(high for _, high in dates)
        return Domain(together.kind, None if found == (_FIRST_MOMENT, last) else found, None, together.nullable)
    if together.kind not in NUMBERS:
        return Domain(together.kind, None, None, together.nullable)
    # One bounded argument bounds the result on one side, so unknown bounds are replaced by the widest possible ones.
    widest = (Fraction(SMALLEST), Fraction(LARGEST)) if together.kind is Kind.INTEGER else (-_MOST, _MOST)
    ends = [
        widest if domain.bounds is None else _as(together.kind, domain.bounds) or widest
        for domain in domains
        if not only_null(domain)
    ]
    bounds = choose(low for low, _ in ends), choose(high for _, high in ends)
    return Domain(together.kind, None if bounds == widest else bounds, None, together.nullable)


def least(domains: Domains) -> Domain:
    """The domain of LEAST(a, b, ...). One bounded argument is enough for an upper bound."""
    return _extreme(domains, min)


def greatest(domains: Domains) -> Domain:
    """The domain of GREATEST(a, b, ...). One bounded argument is enough for a lower bound."""
    return _extreme(domains, max)


def compared(domains: Domains) -> Domain:
    """The domain of a comparison. `MixedKinds` if the arguments have no common kind."""
    common_kind(domains)
    return Domain(Kind.BOOLEAN, None, None, nullable(domains))


def logic(domains: Domains) -> Domain:
    """The domain of AND, OR and NOT. `Unfit` if an argument is not boolean."""
    if any(domain.kind is not Kind.BOOLEAN for domain in domains):
        raise Unfit("write a comparison, such as a <> 0")
    return Domain(Kind.BOOLEAN, None, None, nullable(domains))


def never_null(domains: Domains) -> Domain:
    """The domain of IS NULL, which accepts every kind and is never NULL."""
    return Domain(Kind.BOOLEAN, None, None, False)


def case(domains: Domains) -> Domain:
    """The domain of CASE: conditions and values in turn, and the value of ELSE last."""
    if len(domains) % 2 == 0:
        raise Unfit
    logic(domains[:-1:2])
    return common((*domains[1:-1:2], domains[-1]))


def coalesce(domains: Domains) -> Domain:
    """The domain of COALESCE(a, b, ...), which is NULL only if all arguments may be NULL."""
    together = common(domains)
    return Domain(together.kind, together.bounds, together.keys, all(domain.nullable for domain in domains))


def nullif(domains: Domains) -> Domain:
    """The domain of NULLIF(a, b): the bounds of a, and always nullable."""
    together = common(domains)
    bounds = None if domains[0].bounds is None else _as(together.kind, domains[0].bounds)
    return Domain(together.kind, bounds, together.keys, True)


_CASTS: Final = {
    Kind.BOOLEAN: {Kind.BOOLEAN, Kind.INTEGER, Kind.REAL, Kind.TEXT},
    Kind.INTEGER: {Kind.BOOLEAN, Kind.INTEGER, Kind.REAL, Kind.TEXT},
    Kind.REAL: {Kind.BOOLEAN, Kind.INTEGER, Kind.REAL, Kind.TEXT},
    Kind.TEXT: {Kind.BOOLEAN, Kind.INTEGER, Kind.TEXT, Kind.DATE},
    Kind.DATE: {Kind.DATE, Kind.TIMESTAMP, Kind.TEXT},
    Kind.TIMESTAMP: {Kind.DATE, Kind.TIMESTAMP, Kind.TEXT},
}


def cast(kind: Kind) -> Callable[[Domains], Domain]:
    """The domain of a cast to `kind`."""

    def domain(domains: Domains) -> Domain:
        (a,) = domains
        if only_null(a):
            return Domain(kind, None, None, True)
        if a.kind not in _CASTS[kind]:
            raise Unfit
        bounds = None
        if kind in NUMBERS and a.kind is Kind.BOOLEAN:
            bounds = (Fraction(0), Fraction(1))
        elif kind is Kind.REAL:
            bounds = _as(kind, a.bounds)
        elif kind is Kind.INTEGER and a.kind is Kind.REAL and a.bounds is not None:
            found = rounded(domains)
            assert found.bounds is not None
            bounds = (max(found.bounds[0], Fraction(SMALLEST)), min(found.bounds[1], Fraction(LARGEST)))
            if bounds[0] > bounds[1]:
                bounds = None
        elif kind is Kind.INTEGER:
            bounds = a.bounds
        elif kind is Kind.DATE:
            bounds = _days(a)
        elif kind is Kind.TIMESTAMP:
            bounds = _ends(a)
        fails = a.kind is Kind.TEXT is not kind or (kind is Kind.INTEGER and a.kind is Kind.REAL)
        return Domain(kind, bounds, None, a.nullable or fails)

    return domain


def constant_of(domain: Domain) -> Scalar | None:
    """The value of a constant argument; None for NULL, and for an argument that is not a constant."""
    return domain.keys[0] if domain.keys else None


def is_whole(domain: Domain, low: int, high: int) -> bool:
    """Whether an argument is a constant integer from `low` to `high`."""
    value = constant_of(domain)
    return domain.kind is Kind.INTEGER and isinstance(value, int) and low <= value <= high


def _dates(domains: Domains) -> None:
    if any(domain.kind not in {Kind.DATE, Kind.TIMESTAMP} and not only_null(domain) for domain in domains):
        raise Unfit("cast it first: CAST(a AS DATE)")


def _days(domain: Domain) -> Bounds | None:
    """The first and the last day, as ordinals, where these are public."""
    ends = _ends(domain)
    return None if ends is None else (Fraction(math.floor(ends[0])), Fraction(math.floor(ends[1])))


def _ends(domain: Domain) -> Bounds | None:
    """The first and the last date or moment, where these are public."""
    if domain.bounds is not None or not domain.keys:
        return domain.bounds
    found = [ordinal(key) for key in domain.keys if isinstance(key, dt.date)]
    return (min(found), max(found)) if found else None


def date_part(low: int, high: int) -> Callable[[Domains], Domain]:
    """The domain of a part of a date that lies between `low` and `high`."""

    def domain(domains: Domains) -> Domain:
        _dates(domains)
        return Domain(Kind.INTEGER, (Fraction(low), Fraction(high)), None, nullable(domains))

    return domain


def year(domains: Domains) -> Domain:
    """The domain of YEAR(a): between the years of public bounds or keys, otherwise from 1 to 9999."""
    _dates(domains)
    days = _days(domains[0])
    ends = (1, 9999) if days is None else [dt.date.fromordinal(int(end)).year for end in days]
    return Domain(Kind.INTEGER, (Fraction(ends[0]), Fraction(ends[1])), None, nullable(domains))


def time_part(high: int) -> Callable[[Domains], Domain]:
    """The domain of a part of a time of day, from 0 to `high`."""

    def domain(domains: Domains) -> Domain:
        if any(domain.kind is not Kind.TIMESTAMP and not only_null(domain) for domain in domains):
            raise Unfit("a date has no time of day: CAST(a AS TIMESTAMP)")
        return Domain(Kind.INTEGER, (Fraction(0), Fraction(high)), None, nullable(domains))

    return domain


def date_trunc(domains: Domains) -> Domain:
    """The domain of DATE_TRUNC(unit, a). If a has public bounds, few enough starts are listed as public keys."""
    unit, a = domains
    _dates((a,))
    if constant_of(unit) not in operator_meanings.UNITS or (
        constant_of(unit) in operator_meanings.TIMES and a.kind is Kind.DATE
    ):
        units, times = ", ".join(operator_meanings.UNITS), ", ".join(operator_meanings.TIMES)
        raise Unfit(f"the unit must be one of {units}; {times} need a timestamp")
    ends = None if only_null(a) else _ends(a)
    if ends is None:
        return Domain(Kind.DATE if only_null(a) else a.kind, None, None, a.nullable)
    # Both ends are numbers, because `ends` is not None.
    first, last = (_start(str(constant_of(unit)), end_of(a.kind, end)) for end in ends)  # type: ignore[arg-type]
    # The start of a later day is never earlier, so the starts of the first and the last day bound all others.
    starts = None if a.keys is not None else _starts(str(constant_of(unit)), first, last)
    return Domain(a.kind, (ordinal(first), ordinal(last)), starts, a.nullable)


def _start(unit: str, day: dt.date) -> dt.date:
    found = operator_meanings.date_trunc(unit, day)
    assert found is not None  # no start of a date leaves the calendar
    return found


def _starts(unit: str, first: dt.date, last: dt.date) -> tuple[dt.date, ...] | None:
    """All starts of years, quarters, ... from `first` to `last`, both included; None if there are too many."""
    longest = operator_meanings.TIMES[unit] if unit in operator_meanings.TIMES else dt.timedelta(_LONGEST_UNIT[unit])
    found = [first]
    while found[-1] < last and len(found) <= _MOST_STARTS:
        # The greatest length of a unit, added to the start of one, leads into the next one and not beyond it.
        found.append(_start(unit, found[-1] + longest))
    return tuple(found) if len(found) <= _MOST_STARTS else None


def days_between(domains: Domains) -> Domain:
    """The domain of the number of days from a to b, at most the length of the calendar."""
    _dates(domains)
    a, b = (_days(domain) for domain in domains)
    bounds = _DAYS if a is None or b is None else (b[0] - a[1], b[1] - a[0])
    return Domain(Kind.INTEGER, bounds, None, nullable(domains))


def microseconds(domains: Domains) -> Domain:
    """The domain of the microseconds since 1970."""
    _dates(domains)
    low, high = _ends(domains[0]) or (_FIRST_MOMENT, _LAST_MOMENT)
    return Domain(
        Kind.INTEGER, ((low - _EPOCH) / _A_MICROSECOND, (high - _EPOCH) / _A_MICROSECOND), None, nullable(domains)
    )


def add_months(domains: Domains) -> Domain:
    """The domain of a date some months later.

    A later day never becomes an earlier one, but two moments of different days can change places on the last day of a
    short month. So the bounds are widened to whole days.
    """
    a, months = domains
    _dates((a,))
    size = constant_of(months)
    if not is_whole(months, -_MOST_MONTHS, _MOST_MONTHS) or not isinstance(size, int):
        raise Unfit(f"the number of months must be a constant of at most {_MOST_MONTHS:,}: a + INTERVAL 3 MONTH")
    days = None if only_null(a) else _days(a)
    ends = [] if days is None else [operator_meanings.add_months(dt.date.fromordinal(int(day)), size) for day in days]
    if days is None or None in ends:
        return Domain(Kind.DATE if only_null(a) else a.kind, None, None, True)
    low, high = (ordinal(end) for end in ends if end is not None)
    return Domain(a.kind, (low, high if a.kind is Kind.DATE else high + 1 - _A_MICROSECOND), None, a.nullable)


def add_time(domains: Domains) -> Domain:
    """The domain of a date or timestamp some microseconds later: a date if whole days are added to a date."""
    a, time = domains
    _dates((a,))
    size = constant_of(time)
    if not is_whole(time, -_MOST_TIME, _MOST_TIME) or not isinstance(size, int):
        raise Unfit(
            f"the time must be a constant of at most {_MOST_TIME // operator_meanings.A_DAY:,} days: a + INTERVAL 1 DAY"
        )
    kind = Kind.DATE if a.kind is not Kind.TIMESTAMP and size % operator_meanings.A_DAY == 0 else Kind.TIMESTAMP
    ends = None if only_null(a) else _ends(a)
    if ends is None:
        return Domain(kind, None, None, True)
    low, high = (end + size * _A_MICROSECOND for end in ends)
    if low < _FIRST_MOMENT or high > _LAST_MOMENT:
        return Domain(kind, None, None, True)
    return Domain(kind, (low, high), None, a.nullable)
