"""The meaning of each operator as a Python function: the reference that every engine must equal."""

from __future__ import annotations

import calendar
import datetime as dt
import math
import re
from fractions import Fraction
from typing import Any

from deniable.queries.relations import linear_patterns
from deniable.tables.kinds import LARGEST, LONGEST, SMALLEST, Kind, Scalar

# Arguments are checked by the operators' domains before these are called; a scalar here is of a known kind.
Value = Any


def promoted(value: Value, kind: Kind | None) -> Value:
    """A value converted to the kind in which an operator works: an integer to a real, a date to its midnight."""
    if kind is Kind.REAL and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is Kind.TIMESTAMP and isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime.combine(value, dt.time())
    return value


def settled(value: Value, kind: Kind) -> Scalar | None:
    """A result as a cell value: of its kind, NULL if not finite, and -0.0 as 0.0."""
    value = promoted(value, kind)
    if isinstance(value, float):
        return value + 0.0 if math.isfinite(value) else None
    return value  # type: ignore[no-any-return]  # a scalar, by `promoted`


def add(a: Value, b: Value) -> Value:
    return a + b


def subtract(a: Value, b: Value) -> Value:
    return a - b


def multiply(a: Value, b: Value) -> Value:
    return a * b


def divide(a: float, b: float) -> float | None:
    """a / b; NULL if b is 0 or the quotient is not finite."""
    try:
        return a / b
    except (ZeroDivisionError, OverflowError):
        return None


def modulo(a: Value, b: Value) -> Value:
    """The remainder with the sign of a, as in C and SQL (Python's % has the sign of b); NULL if b is 0."""
    if b == 0:
        return None
    if isinstance(a, int):
        size = abs(a) % abs(b)
        return -size if a < 0 else size
    return math.fmod(a, b)


def negate(a: Value) -> Value:
    return -a


def absolute(a: Value) -> Value:
    return abs(a)


def floor(a: Value) -> Value:
    """The largest whole number that is at most a; a real if it exceeds 64 bits."""
    return _whole(a, math.floor(a))


def ceil(a: Value) -> Value:
    """The smallest whole number that is at least a; a real if it exceeds 64 bits."""
    return _whole(a, math.ceil(a))


def rounded(a: Value) -> Value:
    """The nearest whole number, halves away from 0 (Python's `round` takes halves to even)."""
    if isinstance(a, int):
        return a
    size = math.floor(Fraction(abs(a)) + Fraction(1, 2))
    return _whole(a, -size if a < 0 else size)


def _whole(a: Value, whole: int) -> Value:
    # Above 64 bits the result is REAL, and floats that large have no fraction.
    return whole if SMALLEST <= whole <= LARGEST else float(a)


def sqrt(a: float) -> float | None:
    """The square root; NULL below 0."""
    return math.sqrt(a) if a >= 0 else None


def ln(a: float) -> float | None:
    """The natural logarithm; NULL at 0 and below."""
    return math.log(a) if a > 0 else None


def exp(a: float) -> float | None:
    """e to the power of a; NULL if it overflows."""
    try:
        return math.exp(a)
    except OverflowError:
        return None


def power(a: float, b: float) -> float | None:
    """a to the power of b; NULL if it is not a finite real number."""
    try:
        return math.pow(a, b)
    except (OverflowError, ValueError):
        return None


def least(*values: Value) -> Value:
    return min(values)


def greatest(*values: Value) -> Value:
    return max(values)


def eq(a: Value, b: Value) -> bool:
    return bool(a == b)


def ne(a: Value, b: Value) -> bool:
    return bool(a != b)


def lt(a: Value, b: Value) -> bool:
    return bool(a < b)


def le(a: Value, b: Value) -> bool:
    return bool(a <= b)


def gt(a: Value, b: Value) -> bool:
    return bool(a > b)


def ge(a: Value, b: Value) -> bool:
    return bool(a >= b)


def is_in(value: Value, *constants: Value) -> bool | None:
    """SQL's IN: NULL if no constant is equal and the value or a constant is NULL."""
    return disjunction(*(None if value is None or each is None else value == each for each in constants))


def conjunction(*values: bool | None) -> bool | None:
    """AND in three-valued logic: false if any is false, else NULL if any is NULL, else true."""
    if any(value is False for value in values):
        return False
    return None if any(value is None for value in values) else True


def disjunction(*values: bool | None) -> bool | None:
    """OR in three-valued logic: true if any is true, else NULL if any is NULL, else false."""
    if any(value is True for value in values):
        return True
    return None if any(value is None for value in values) else False


def negation(a: bool) -> bool:
    return not a


def is_null(a: Value) -> bool:
    return a is None


def case(*parts: Value) -> Value:
    """The value after the first condition that is true; the last part if no condition is true."""
    for condition, value in zip(parts[:-1:2], parts[1::2], strict=True):
        if condition is True:
            return value
    return parts[-1]


def coalesce(*values: Value) -> Value:
    """The first value that is not NULL; NULL if all are."""
    return next((value for value in values if value is not None), None)


def nullif(a: Value, b: Value) -> Value:
    """NULL if both are equal, else a."""
    return None if a is not None and b is not None and a == b else a


_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}")


def to_boolean(a: Value) -> bool | None:
    """A number is true unless it is 0. A text must be true or false, in any case; NULL for any other text."""
    if isinstance(a, str):
        return {"true": True, "false": False}.get(lower(a))
    return bool(a)


def to_integer(a: Value) -> int | None:
    """A number rounded, halves away from 0. A text must be a sign and digits. NULL beyond 64 bits."""
    if isinstance(a, str):
        whole = int(a) if _WHOLE.fullmatch(a) else None
    elif isinstance(a, float):
        whole = math.floor(Fraction(abs(a)) + Fraction(1, 2)) * (-1 if a < 0 else 1)
    else:
        whole = int(a)
    return whole if whole is not None and SMALLEST <= whole <= LARGEST else None


def to_real(a: Value) -> float | None:
    """A number as a float. A text must be a decimal number such as -1.5e3; NULL for any other text."""
    if isinstance(a, str):
        return float(a) if _DECIMAL.fullmatch(a) else None
    return float(a)


def to_text(a: Value) -> str:
    """true, -12 or 2024-02-29. Reals and timestamps are refused before, because engines write them differently."""
    if isinstance(a, bool):
        return "true" if a else "false"
    return a.isoformat() if isinstance(a, dt.date) else str(a)


def to_date(a: Value) -> dt.date | None:
    """The day of a timestamp. A text must be a date such as 2024-02-29; NULL for any other text."""
    if isinstance(a, str):
        try:
            return dt.date.fromisoformat(a) if _DAY.fullmatch(a) else None
        except ValueError:
            return None
    return a.date() if isinstance(a, dt.datetime) else a


def to_timestamp(a: Value) -> dt.datetime | None:
    """The midnight of a date. A text must be like 2024-02-29 23:59:59; NULL for any other text."""
    if isinstance(a, str):
        try:
            return dt.datetime.fromisoformat(a) if _MOMENT.fullmatch(a) else None
        except ValueError:
            return None
    return promoted(a, Kind.TIMESTAMP)  # type: ignore[no-any-return]  # a timestamp, by its kind


_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_UPPER = {lower: lower - 32 for lower in range(ord("a"), ord("z") + 1)}


def lower(a: str) -> str:
    """A to Z in lower case. Other letters stay, because engines disagree about them."""
    return a.translate(_LOWER)


def upper(a: str) -> str:
    """a to z in upper case. Other letters stay, because engines disagree about them."""
    return a.translate(_UPPER)


def trim(a: str) -> str:
    """The text without spaces (U+0020) at both ends; other white space stays."""
    return a.strip(" ")


def length(a: str) -> int:
    """The number of code points, at most `LONGEST`."""
    return min(len(a), LONGEST)


def prefix(a: str, size: int) -> str:
    """The first `size` code points."""
    return a[:size]


def substring(a: str, start: int, size: int) -> str:
    """`size` code points from position `start` on, counted from 1."""
    return a[start - 1 : start - 1 + size]


def split_part(a: str, separator: str, number: int) -> str:
    """Part `number` between separators, counted from 1; '' if there are fewer parts."""
    parts = a.split(separator)
    return parts[number - 1] if number <= len(parts) else ""


def replace(a: str, old: str, new: str) -> str:
    """The text with every `old` replaced by `new`, from the left, cut after `LONGEST` code points."""
    return a.replace(old, new)[:LONGEST]


def position(a: str, part: str) -> int:
    """The position of the first occurrence of `part`, counted from 1; 0 if it does not occur."""
    return a[:LONGEST].find(part) + 1


def concat(*values: str) -> str:
    """The texts one after the other, cut after `LONGEST` code points."""
    return "".join(values)[:LONGEST]


def regexp_like(a: str, pattern: str) -> bool:
    """Whether the pattern matches a part of the text."""
    return linear_patterns.pattern(pattern).python.search(a) is not None


def regexp_extract(a: str, pattern: str, group: int) -> str:
    """A group of the first match (0: the whole match); '' if nothing matches."""
    found = linear_patterns.pattern(pattern).python.search(a)
    return "" if found is None else found[group] or ""


def regexp_replace(a: str, pattern: str, new: str) -> str:
    """The text with its first match replaced, cut after `LONGEST` code points."""
    found = linear_patterns.pattern(pattern)
    replacement = linear_patterns.Replacement.of(new, found.groups)
    return found.python.sub(replacement.filled, a, count=1)[:LONGEST]


def like(a: str, pattern: str) -> bool:
    """SQL's LIKE without an escape: % matches any text, _ one code point."""
    # Two positions and one backtracking point: at most len(a) * len(pattern) steps for any pattern.
    here = there = 0
    star, mark = -1, 0
    while here < len(a):
        if there < len(pattern) and pattern[there] == "%":
            star, mark = there, here
            there += 1
        elif there < len(pattern) and pattern[there] in {"_", a[here]}:
            here, there = here + 1, there + 1
        elif star >= 0:
            mark += 1
            here, there = mark, star + 1
        else:
            return False
    return all(rest == "%" for rest in pattern[there:])


def year(a: dt.date) -> int:
    return a.year


def quarter(a: dt.date) -> int:
    """The quarter of the year, from 1 to 4."""
    return (a.month + 2) // 3


def month(a: dt.date) -> int:
    return a.month


def day(a: dt.date) -> int:
    return a.day


def weekday(a: dt.date) -> int:
    """The day of the week, from 1 (Monday) to 7 (Sunday)."""
    return a.isoweekday()


def hour(a: dt.datetime) -> int:
    return a.hour


def minute(a: dt.datetime) -> int:
    return a.minute


def second(a: dt.datetime) -> int:
    """The second of the minute, from 0 to 59, without its fraction."""
    return a.second


TIMES = {"hour": dt.timedelta(hours=1), "minute": dt.timedelta(minutes=1), "second": dt.timedelta(seconds=1)}
UNITS = ("year", "quarter", "month", "week", "day", *TIMES)


def date_trunc(unit: str, a: dt.date) -> dt.date | None:
    """The start of the unit that contains `a`, of the kind of `a`. A week starts on Monday."""
    if unit in TIMES and isinstance(a, dt.datetime):
        return a - dt.timedelta(microseconds=microseconds(a) % (TIMES[unit] // _MICROSECOND))
    start = dt.date(a.year, a.month, a.day)
    if unit == "year":
        start = start.replace(month=1, day=1)
    elif unit == "quarter":
        start = start.replace(month=3 * quarter(start) - 2, day=1)
    elif unit == "month":
        start = start.replace(day=1)
    elif unit == "week":
        start -= dt.timedelta(days=start.weekday())  # 0001-01-01 is a Monday, so this never leaves the calendar
    return dt.datetime.combine(start, dt.time()) if isinstance(a, dt.datetime) else start


def days_between(a: dt.date, b: dt.date) -> int:
    """The number of midnights from a to b; negative if b is earlier."""
    return b.toordinal() - a.toordinal()


_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
A_DAY = 86_400 * 10**6
"""Microseconds of a day."""


def microseconds(a: dt.datetime) -> int:
    """Microseconds since 1970-01-01, UTC."""
    return (a - _EPOCH) // _MICROSECOND


def add_months(a: dt.date, months: int) -> dt.date | None:
    """The same day some months later, or the last day of a month that is too short. NULL outside the calendar."""
    year, month = divmod(12 * a.year + a.month - 1 + months, 12)
    if not dt.MINYEAR <= year <= dt.MAXYEAR:
        return None
    return a.replace(year=year, month=month + 1, day=min(a.day, calendar.monthrange(year, month + 1)[1]))


def add_time(a: dt.date, time: int) -> dt.date | None:
    """A date or timestamp `time` microseconds later; NULL outside the years 1 to 9999."""
    try:
        return a + dt.timedelta(microseconds=time)
    except OverflowError:
        return None
