"""One canonical form for each key, so that what is shown of a key depends only on the key.

Python has many ways to write one key: 1, 1.0, True and 1+0j are equal, and so are 9:00 in London and 10:00 in Berlin.
If they were counted together and shown as the row that came first, they would reveal which row that was. So numbers,
texts, dates and tuples have one canonical form, and objects of other types are counted together only if they are equal,
of one type and have the same repr.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np

MOST_DIGITS: Final = 4300
"""Python does not print longer integers."""


def of(value: Any) -> tuple[Hashable, Any]:
    """The identity of a key, and the form in which it is shown. May raise anything for an object that cannot be a key.

    >>> of(1 + 0j), of(True), of(float("nan"))
    ((1, 1), (1, 1), (None, None))
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None, None
    if isinstance(value, str):
        text = str.__str__(value)
        return text, text
    if isinstance(value, bytes):
        octets = bytes(memoryview(value))
        return octets, octets
    if isinstance(value, tuple):
        parts = [of(part) for part in tuple.__iter__(value)]
        return ("tuple", tuple(one for one, _ in parts)), tuple(shown for _, shown in parts)
    if isinstance(value, frozenset):
        # Sorted, because the order in which a set shows its members may depend on the order of their insertion.
        members = sorted(
            (of(part) for part in frozenset.__iter__(value)), key=lambda one: (str(type(one[1])), repr(one))
        )
        return ("frozenset", frozenset(one for one, _ in members)), frozenset(shown for _, shown in members)
    if isinstance(value, numbers.Complex | Decimal):
        number = _number(value)
        return number, number
    if isinstance(value, datetime | timedelta):
        moment = _moment(value)
        return moment, moment
    kind: Any = type(value)
    return (
        kind,
        value,
        "" if kind.__repr__ is object.__repr__ else repr(value),
    ), value  # the default repr is an address


def _number(key: Any) -> Any:
    """Integers as ints, other numbers as floats, or as Fractions if no float is exact; NaN as missing."""
    if isinstance(key, Decimal):
        if key.is_nan():
            return None
        if key.is_finite() and abs(key.adjusted()) > MOST_DIGITS:
            raise ValueError
    elif not isinstance(key, numbers.Real):
        real, imaginary = _number(key.real), _number(key.imag)
        if real is None or imaginary is None:
            return None
        return real if imaginary == 0 else complex(real, imaginary)
    if isinstance(key, float | np.floating | Decimal):
        if key != key:
            return None
        if key in (math.inf, -math.inf):
            return math.inf if key > 0 else -math.inf
    if isinstance(key, numbers.Rational):
        exactly = Fraction(int(key.numerator), int(key.denominator))
    else:
        exactly = Fraction(*key.as_integer_ratio())
    if exactly.denominator == 1:
        return exactly.numerator
    try:
        near = float(exactly)
    except OverflowError:
        return exactly
    return near if Fraction(near) == exactly else exactly


def _moment(key: Any) -> Any:
    """Python's own datetime in UTC, or without a zone, and its own timedelta. (Those of pandas may be finer.)"""
    if isinstance(key, timedelta):
        return key if getattr(key, "nanoseconds", 0) else timedelta(key.days, key.seconds, key.microseconds)
    if getattr(key, "nanosecond", 0):
        return key.replace(fold=0) if key.utcoffset() is None else key.astimezone(UTC)
    clock = (key.year, key.month, key.day, key.hour, key.minute, key.second, key.microsecond)
    if key.utcoffset() is None:
        return datetime(*clock)
    return datetime(*clock, tzinfo=key.tzinfo, fold=key.fold).astimezone(UTC)
