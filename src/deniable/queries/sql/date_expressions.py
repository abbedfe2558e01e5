"""Dates of SQL as our own operators: parts, distances, intervals and formats, each composed of the closed table.

A composed expression is total, has bounds and means the same on every engine, because its operators do.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Final

from deniable.queries.plan.refusals import refuse
from deniable.queries.relations import operator_meanings
from deniable.queries.relations.operator_meanings import A_DAY
from deniable.tables.expressions import Expression, Literal, call, case

_TIMES: Final = {
    "microsecond": 1, "millisecond": 10**3, "second": 10**6, "minute": 60 * 10**6, "hour": 3_600 * 10**6,
    "day": A_DAY, "week": 7 * A_DAY,
}  # fmt: skip
"""The length in microseconds of each unit whose length is always the same."""
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200, "millennium": 12_000}
_MOST: Final = {"add_months": 12 * 10_000, "add_time": 3_652_059 * A_DAY}
_AMOUNT: Final = re.compile(r"\s*([+-]?[0-9]{1,15})\s*([A-Za-z]+)\s*")
_ISO: Final = {"%Y": (1, 4), "%m": (6, 2), "%d": (9, 2)}
_CLOCK: Final = {"%H": "hour", "%M": "minute", "%S": "second"}
_DIRECTIVE: Final = re.compile(r"%.")


def unit_of(word: str) -> str:
    """The name of a unit: DAYS, day and Day are day."""
    unit = word.lower()
    return unit[:-1] if unit.endswith("s") and unit[:-1] in {*_TIMES, *_MONTHS} else unit


# -- parts -------------------------------------------------------------------------------------------------------------


def _sunday_first(a: Expression) -> Expression:
    return call("modulo", call("weekday", a), 7)


def _day_of_year(a: Expression) -> Expression:
    return call("add", call("days_between", call("date_trunc", "year", a), a), 1)


def _thursday(a: Expression) -> Expression:
    """The Thursday of the week of a day. By ISO 8601, a week belongs to the year of its Thursday."""
    return call("add_time", call("date_trunc", "week", a), 3 * A_DAY)


def _week(a: Expression) -> Expression:
    thursday = _thursday(a)
    elapsed = call("days_between", call("date_trunc", "year", thursday), thursday)
    return call("add", call("floor", call("divide", elapsed, 7)), 1)


def seconds(a: Expression) -> Expression:
    """Seconds since 1970, with their fraction."""
    return call("divide", call("microseconds", a), 10**6)


def _in_minute(a: Expression) -> Expression:
    """Microseconds since the start of the minute, as DuckDB and PostgreSQL count them."""
    return crossed("microsecond", call("date_trunc", "minute", call("cast_timestamp", a)), call("cast_timestamp", a))


def _operator(name: str) -> Callable[[Expression], Expression]:
    return lambda a: call(name, a)


PARTS: Final[dict[str, Callable[[Expression], Expression]]] = {
    **{name: _operator(name) for name in ("year", "quarter", "month", "day", "hour", "minute", "second")},
    **dict.fromkeys(("isodow", "dayofweekiso", "dayofweek_iso"), _operator("weekday")),
    **dict.fromkeys(("dow", "dayofweek", "weekday"), _sunday_first),
    **dict.fromkeys(("doy", "dayofyear"), _day_of_year),
    **dict.fromkeys(("week", "weekofyear", "isoweek"), _week),
    "isoyear": lambda a: call("year", _thursday(a)),
    "decade": lambda a: call("floor", call("divide", call("year", a), 10)),
    "century": lambda a: call("ceil", call("divide", call("year", a), 100)),
    "millennium": lambda a: call("ceil", call("divide", call("year", a), 1000)),
    "yearweek": lambda a: call("add", call("multiply", call("year", _thursday(a)), 100), _week(a)),
    **dict.fromkeys(("millisecond", "milliseconds"), lambda a: call("floor", call("divide", _in_minute(a), 1000))),
    **dict.fromkeys(("microsecond", "microseconds"), lambda a: _in_minute(a)),
    "epoch": seconds,
}
"""The parts of a date. DOW counts from Sunday, which is 0, as DuckDB and PostgreSQL count."""


def part(name: str, a: Expression) -> Expression:
    """A part of a date, by the word in EXTRACT."""
    found = PARTS.get(name.lower())
    if found is None:
        refuse(
            "unit",
            what="MILLENNIUM, CENTURY, DECADE, YEAR, ISOYEAR, QUARTER, MONTH, YEARWEEK, WEEK, DAY, DOW, ISODOW, DOY, "
            "HOUR, MINUTE, SECOND, MILLISECOND, MICROSECOND and EPOCH",
        )
    return found(a)


# -- distances ---------------------------------------------------------------------------------------------------------


def crossed(unit: str, a: Expression, b: Expression) -> Expression:
    """DATE_DIFF: how many starts of the unit lie after a and not after b; negative if b is earlier.

    As in DuckDB, weeks are counted as seven days from a, and a century begins with its year 0, not with its year 1.

    >>> from deniable.queries.relations.operators import evaluate
    >>> from deniable.tables.expressions import lit
    >>> new_year = lit(dt.datetime(2023, 12, 31, 23, 59)), lit(dt.datetime(2024, 1, 1, 0, 1))
    >>> [evaluate(crossed(unit, *new_year), {}, {}) for unit in ("year", "day", "hour", "minute")]
    [1, 1, 1, 2]
    """
    match unit:
        case "year":
            return call("subtract", call("year", b), call("year", a))
        case "decade" | "century" | "millennium":
            years = _MONTHS[unit] // 12
            ends = (call("floor", call("divide", call("year", each), years)) for each in (b, a))
            return call("subtract", *ends)
        case "week":
            return _whole(call("divide", call("days_between", a, b), 7))
        case "quarter" | "month":
            size = 12 // _MONTHS[unit]
            ends = (call("add", call("multiply", call("year", each), size), call(unit, each)) for each in (b, a))
            return call("subtract", *ends)
        case "day":
            return call("days_between", a, b)
        case "hour" | "minute" | "second":
            a, b = call("cast_timestamp", a), call("cast_timestamp", b)
            found: Expression = call("days_between", a, b)
            for part_of, size in (("hour", 24), ("minute", 60), ("second", 60)):
                later = call("subtract", call(part_of, b), call(part_of, a))
                found = call("add", call("multiply", found, size), later)
                if part_of == unit:
                    return found
        case "millisecond":
            ends = (call("floor", call("divide", call("microseconds", each), 1000)) for each in (b, a))
            return call("subtract", *ends)
        case "microsecond":
            return call("subtract", call("microseconds", b), call("microseconds", a))
    refuse("unit", what="MILLENNIUM to MICROSECOND for DATE_DIFF")


def elapsed(unit: str, a: Expression, b: Expression) -> Expression:
    """TIMESTAMP_DIFF: how many whole units pass from a to b. Exact if less than 285 years lie between them."""
    if unit not in _TIMES:
        refuse("unit", what="WEEK, DAY, HOUR, MINUTE, SECOND, MILLISECOND and MICROSECOND for TIMESTAMP_DIFF")
    return _whole(call("divide", crossed("microsecond", a, b), _TIMES[unit]))


def _whole(number: Expression) -> Expression:
    """A number without its fraction."""
    return case((number < 0, call("ceil", number)), otherwise=call("floor", number))


# -- intervals ---------------------------------------------------------------------------------------------------------


def amounts(written: str, unit: str | None) -> list[tuple[str, int]]:
    """The months and the time of an interval, as (operator, amount): '90' DAY, or '1 year 2 months'."""
    text = written if unit is None else f"{written} {unit}"
    found, at = {"add_months": 0, "add_time": 0}, 0
    while at < len(text):
        match = _AMOUNT.match(text, at)
        if match is None:
            refuse("interval")
        number, name = int(match[1]), unit_of(match[2])
        if name in _TIMES:
            found["add_time"] += number * _TIMES[name]
        elif name in _MONTHS:
            found["add_months"] += number * _MONTHS[name]
        else:
            refuse("interval")
        at = match.end()
    if not at or any(abs(amount) > _MOST[operator] for operator, amount in found.items()):
        refuse("interval")
    return [(operator, amount) for operator, amount in found.items() if amount] or [("add_months", 0)]


def moved(a: Expression, interval: list[tuple[str, int]], sign: int) -> Expression:
    """A date plus (sign 1) or minus (sign -1) an interval. A constant date gives a constant."""
    for operator, amount in interval:
        if isinstance(a, Literal) and isinstance(a.value, dt.date):
            a = _constant(a.value, operator, sign * amount)
        else:
            a = call(operator, a, sign * amount)
    return a


def _constant(value: dt.date, operator: str, amount: int) -> Literal:
    if operator == "add_months":
        found = operator_meanings.add_months(value, amount)
    else:
        precise = amount % A_DAY and not isinstance(value, dt.datetime)
        found = operator_meanings.add_time(dt.datetime.combine(value, dt.time()) if precise else value, amount)
    if found is None:
        refuse("interval")
    return Literal(found)


# -- texts -------------------------------------------------------------------------------------------------------------


def directives(pattern: str) -> list[str]:
    """The directives of a pattern: %Y, %m, %d, %H, %M, %S."""
    used = _DIRECTIVE.findall(pattern)
    if not used or not set(used) <= {*_ISO, *_CLOCK} or pattern.count("%") != len(used):
        refuse("date format")
    return used


def formatted(a: Expression, pattern: str) -> Expression:
    """A date as text, by a pattern of directives and other characters.

    Months and years are cut to their start first: it has few public values, so the texts have too.
    """
    used = directives(pattern)
    unit = "second" if "%S" in used else "minute" if "%M" in used else "hour" if "%H" in used else ""
    unit = unit or ("day" if "%d" in used else "month" if "%m" in used else "year")
    start = call("date_trunc", unit, a)
    day = call("cast_text", call("cast_date", start))
    between = _DIRECTIVE.split(pattern)
    pieces: list[Expression] = [Literal(between[0])] * bool(between[0])
    for directive, after in zip(used, between[1:], strict=True):
        if directive in _ISO:
            pieces.append(call("substring", day, *_ISO[directive]))
        else:
            number = call(_CLOCK[directive], start)
            digits = call("cast_text", number)
            pieces.append(case((number < 10, call("concat", "0", digits)), otherwise=digits))
        if after:
            pieces.append(Literal(after))
    return pieces[0] if len(pieces) == 1 else call("concat", *pieces)
