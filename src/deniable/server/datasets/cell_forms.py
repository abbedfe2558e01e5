"""The canonical form of cells and ids, by which data is recognised in another spelling.

The program that writes a file decides how its numbers, dates and letters look. The same table may come as CSV or as
Parquet, with two digits after the point, with other quotes, or with invisible characters. The canonical form depends on
the text alone, not on the declared kind, because the next schema may declare another kind.

It is only hashed, never shown. So two different values may have the same form, but one value must not have two forms.
For example, a number is reduced to the digits that every type of column keeps.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np

_NUMBER: Final = re.compile(r"([+-]?)(?=\.?[0-9])([0-9]*)\.?([0-9]*)(?:e([+-]?[0-9]{1,3}))?")
_GROUPED: Final = re.compile(r"[+-]?[0-9]{1,3}([ ,'_])[0-9]{3}(?:\1[0-9]{3})*(?:\.[0-9]*)?")
_MOMENT: Final = re.compile(
    r"([0-9]{4})([-/.])([0-9]{1,2})\2([0-9]{1,2})"
    r"(?:[t ]([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]+))?)? ?(?:z|utc|([+-][0-9]{2}):?([0-9]{2})?)?)?"
)
_WORDS: Final = {"true": "1", "false": "0"} | dict.fromkeys(("nan", "nat", "na", "n/a", "<na>", "null", "none"), "")
_DOUBLE: Final = 15
"""Decimal digits that a double always keeps. Further digits after the point depend on the program that wrote them."""

_SHORT: Final = 64
"""The longest text whose form is cached. Longer texts rarely repeat, and would fill the memory."""

_SIGNS: Final = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc\u02b9", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2044\u2215", "/"),
        "\u066b": ".",
        "\u066c": ",",
        **dict.fromkeys("\u115f\u1160\u3164\u2800"),  # letters and a symbol that are invisible
    }
)
_HEX: Final = re.compile(r"0x[0-9a-f]{1,32}")


def plain(text: str) -> str:
    """The canonical form of a cell.

    >>> {plain(each) for each in ("170", "170.0", "1.70e2", "+0170", "'170", "1\\u200b70", "\\u0661\\u0667\\u0660")}
    {'170'}
    >>> (
    ...     plain("12.50"),
    ...     plain("1,000"),
    ...     plain("-0"),
    ...     plain("TRUE"),
    ...     plain("2024/1/5 00:00"),
    ...     plain("Zoe\\u0308 \\u2019s"),
    ... )
    ('12.5', '1000', '0', '1', '2024-01-05', "zoe 's")
    """
    return _short(text) if len(text) <= _SHORT else _canonical(_tidy(text), _read)


def plain_then(text: str) -> str:
    """The form of cells in an old version, which kept all digits of a number."""
    return _short_then(text) if len(text) <= _SHORT else _canonical(_tidy(text), _digits)


@lru_cache(maxsize=1 << 16)
def _short(text: str) -> str:
    return _canonical(_tidy(text), _read)


@lru_cache(maxsize=1 << 16)
def _short_then(text: str) -> str:
    return _canonical(_tidy(text), _digits)


def plain_id(text: str) -> str:
    """The canonical form of an id: like that of a cell; numbers keep all digits, and 0x begins a hexadecimal number.

    It depends on this id alone. If it depended on the whole column, one further row could change the form of every id,
    and nobody would be recognised.

    >>> plain_id("0x3E8"), plain_id("01000"), plain_id("3e9a")
    ('1000', '1000', '3e9a')
    """
    tidy = _tidy(text)
    return str(int(tidy, 16)) if _HEX.fullmatch(tidy) else _canonical(tidy, _exact)


def plain_id_then(text: str) -> str:
    """The form of ids in an old version, which kept the written digits of a number with an exponent."""
    tidy = _tidy(text)
    return str(int(tidy, 16)) if _HEX.fullmatch(tidy) else _canonical(tidy, _digits)


def _tidy(text: str) -> str:
    """The text without differences in width, script of digits, diacritics, format characters, spaces and case."""
    if not (text.isascii() and text.isprintable()):
        text = "".join(_seen(each) for each in unicodedata.normalize("NFKD", text)).translate(_SIGNS)
    return " ".join(text.split()).removeprefix("'").lstrip().casefold()  # spreadsheets mark text with a leading quote


def _seen(each: str) -> str:
    if each.isspace():
        return " "
    kind = unicodedata.category(each)
    if kind[0] in "MC":  # combining marks and variation selectors; control, format, private and unassigned characters
        return ""
    return str(unicodedata.decimal(each)) if kind == "Nd" else each


def _canonical(text: str, number_of: Callable[[re.Match[str]], str]) -> str:
    if text in _WORDS:
        return _WORDS[text]
    if _GROUPED.fullmatch(text):
        text = re.sub("[ ,'_]", "", text)
    if (number := _NUMBER.fullmatch(text)) is not None:
        return number_of(number)
    if (moment := _MOMENT.fullmatch(text)) is not None:
        return _moment(*moment.groups()) or text
    return text


def _digits(number: re.Match[str]) -> str:
    """A number by its exact digits; a fraction with more than 15 digits, by the double that it rounds to."""
    shown = decimal(*number.groups(default="0"))
    if "." in shown and sum(each.isdigit() for each in shown.lstrip("-0.")) > _DOUBLE:
        return _shown(float(shown))
    return shown


def _exact(number: re.Match[str]) -> str:
    """The same for an id. A number with an exponent was written from a double, so all digits of that double count."""
    value = float(number.group()) if number.group(4) else 0.5
    return str(int(value)) if value.is_integer() else _digits(number)


def _read(number: re.Match[str]) -> str:
    """A number as a 32-bit float (24 leading bits), because a column of such floats keeps no more. Whole numbers keep
    all bits, unless such a column can hold them or would write them.

    >>> {plain(each) for each in ("0.1", "0.10000000149011612", "1e-1")}, plain("123456789"), plain("123456792")
    ({'0.1'}, '123456789', '123456790')
    """
    value = float(number.group())
    try:
        [short] = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        short = 0.0
    written = float(str(np.float32(short)))  # the shortest decimal, which programs write for a 32-bit float
    if short and (value == short or not value.is_integer() or written == value):
        value = written
    return _digits(number) if value in (float("inf"), float("-inf")) else _shown(value)


def _shown(value: float) -> str:
    found = _NUMBER.fullmatch(repr(value))
    assert found is not None
    return decimal(*found.groups(default="0"))


def decimal(sign: str, whole: str, part: str, power: str) -> str:
    """A number by its exact digits, without an exponent, leading zeros and trailing zeros."""
    digits = (whole + part).lstrip("0")
    point = len(digits) - len(part) + int(power)
    digits = digits.rstrip("0")
    if not digits:
        return "0"
    if point <= 0:
        shown = f"0.{'0' * -point}{digits}"
    else:
        whole, part = digits[:point].ljust(point, "0"), digits[point:]
        shown = f"{whole}.{part}" if part else whole
    return f"-{shown}" if sign == "-" else shown


def _moment(year: str, _: str, month: str, day: str, *rest: str | None) -> str | None:
    """A date, or a time in UTC with all of its digits; None if there is no such time."""
    hour, minute, second, part, ahead, also = rest
    try:
        found = dt.datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0))
        if ahead is not None:
            found -= dt.timedelta(hours=int(ahead), minutes=int(f"{ahead[0]}{also or 0}"))
    except (ValueError, OverflowError):
        return None
    digits = (part or "").rstrip("0")
    if found.time() == dt.time() and not digits:
        return found.date().isoformat()
    return found.isoformat(" ") + (f".{digits}" if digits else "")
