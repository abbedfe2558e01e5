"""What is publicly known about a value before any data is read: its kind, and the values it can take."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import final

Scalar = bool | int | float | str | dt.date | dt.datetime
"""A value of a cell that is not NULL, as Python has it. A timestamp carries no time zone: it is UTC."""


@final
class Kind(Enum):
    """The kinds of values. Whatever a source calls its types, it is read as one of these by a total rule."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    """64-bit."""
    REAL = "real"
    """64-bit floating point; NaN and the infinities are NULL."""
    TEXT = "text"
    DATE = "date"
    TIMESTAMP = "timestamp"
    """Microseconds, UTC."""


@final
@dataclass(frozen=True, slots=True)
class Domain:
    """All that is public about a column or an expression.

    `bounds` holds for every value that is not NULL (numbers only): the engine clamps to it, so it is true and not only
    hoped for. `keys` lists every value that can appear, NULL apart; None where they are not public.
    """

    kind: Kind
    bounds: tuple[Fraction, Fraction] | None = None
    keys: tuple[Scalar, ...] | None = None
    nullable: bool = True
