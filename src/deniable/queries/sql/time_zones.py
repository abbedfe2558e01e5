"""AT TIME ZONE: the local time of a moment in UTC, written out as a public table of changes of the clock.

Databases contain time-zone tables of different ages. Here the changes of the clock come from one table, on the machine
that reads the question, and become constants of the question: moments before the first change get one offset, moments
up to the second change another, and so on. So every engine computes the same local time.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from functools import lru_cache
from typing import Final

from deniable.errors import QuestionRefused
from deniable.tables.expressions import Expression, Literal, call, case

_FIRST: Final = dt.datetime(1970, 1, 1)
_LAST: Final = dt.datetime(2037, 12, 31)
"""Changes of the clock are known from 1970 to 2037; earlier and later moments have the offset at that end."""
_MOST: Final = 200
"""The most changes of the clock in one question."""


def local_time(moment: Expression, zone: str) -> Expression:
    """The time on the clocks of a zone at a moment in UTC."""
    changes = _changes(zone)
    if len(changes) > _MOST:
        raise QuestionRefused(
            "too_deep", f"clocks in {zone!r} changed more than {_MOST} times", "use a zone with the same clock"
        )
    *before, (_, latest) = changes
    branches = [
        (moment < Literal(until), call("add_time", moment, offset))
        for (_, offset), (until, _) in zip(before, changes[1:], strict=True)
    ]
    shifted = call("add_time", moment, latest)
    return case(*branches, otherwise=shifted) if branches else shifted


@lru_cache(maxsize=64)
def _changes(zone: str) -> list[tuple[dt.datetime, int]]:
    """(moment in UTC, microseconds to add from then on), the first one valid from the beginning."""
    try:
        found = zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        rule = f"there is no time zone {zone[:60]!r}"
        raise QuestionRefused("constant", rule, "write 'Europe/Berlin' or 'UTC'") from None

    def offset(moment: dt.datetime) -> int:
        shift = moment.replace(tzinfo=dt.UTC).astimezone(found).utcoffset()
        assert shift is not None
        return shift // dt.timedelta(microseconds=1)

    changes = [(_FIRST, offset(_FIRST))]
    at, day = _FIRST, dt.timedelta(days=1)
    while at < _LAST:
        after = at + day
        if offset(after) != changes[-1][1]:
            low, high = at, after  # the clock changes after `low` and at `high` or before
            while high - low > dt.timedelta(seconds=1):
                middle = low + (high - low) // 2
                low, high = (low, middle) if offset(middle) != changes[-1][1] else (middle, high)
            changes.append((high.replace(microsecond=0), offset(high)))
        at = after
    return changes
