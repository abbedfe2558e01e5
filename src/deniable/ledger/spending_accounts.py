"""Accounts: who may spend how much, in total and in each window of time.

Every cost is charged to the dataset (`EVERYBODY`) and, if a payer is named, to that payer's account too. An account may
have a total limit and limits per window. A cost is charged only if it fits under all limits of all accounts that pay.

A window of n seconds is [k·n, (k+1)·n) since 1970 in UTC, so time zones and daylight saving do not matter. The current
time is the later of the clock and the time of the newest entry: setting a clock back does not reopen a window.

A window limits how fast a budget is spent, and not how much privacy is lost in the end: costs of older windows still
count against the total limits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, final

from deniable import arguments
from deniable.arguments import NumberRange
from deniable.errors import BudgetExceeded, InvalidParameter
from deniable.ledger.budget import MOST_UNITS, Budget, Cost
from deniable.ledger.entries import EVERYBODY, KEYS, VERSIONS, Terms, checked_name

__all__ = [
    "Account",
    "Limits",
    "checked_payer",
    "checked_terms",
    "in_force",
    "largest",
    "least_left",
    "less",
    "refuse",
    "stamp",
    "window_start",
]

_LONGEST_WINDOW: Final = 10 * 366 * 86_400
_WINDOWS: Final = NumberRange(
    f"must be a whole number of seconds, from 1 to {_LONGEST_WINDOW:,}", least=1, most=_LONGEST_WINDOW
)
SPENT: Final = "nothing was spent; the limit is used up, but answers to earlier questions can still be read"

Limits = dict[tuple[str, int | None], Cost]
"""Limits by account and window; the window None stands for the total."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One limit of an account, and what was spent of it. `lifetime` is what the account ever spent, in all windows."""

    name: str
    window: int | None
    limit: Cost
    spent: Cost
    lifetime: Cost

    @property
    def left(self) -> Cost:
        """What may still be spent; zero if the limit was lowered below what is spent."""
        return less(self.limit, self.spent)

    @property
    def title(self) -> str:
        """The account in words, for errors."""
        whose = "the dataset" if self.name == EVERYBODY else f"the share of {self.name!r}"
        return whose if self.window is None else f"{whose} in this window of {self.window:,} s"


def checked_terms(account: str, limit: Cost, window: int | None, by: str) -> Terms:
    """The terms, if account, limit and window are valid; else InvalidParameter."""
    checked_name("account", account)
    checked_name("by", by)
    if account in {KEYS, VERSIONS}:
        rule = "is reserved for the owner's keys and for versions of the data"
        raise InvalidParameter("account", account, rule, "choose another name")
    if window is not None:
        arguments.python_int("window", window, _WINDOWS)
    if limit.units > MOST_UNITS or limit.delta_units >= 10**30:
        raise InvalidParameter(
            "limit", limit, "is too large to protect anybody", "choose a limit below a million, and delta below 1"
        )
    return Terms(account=account, limit=limit, window=window, by=by)


def checked_payer(payer: str | None) -> str | None:
    """A payer, or None; InvalidParameter for `EVERYBODY`, whose account always pays."""
    if payer == EVERYBODY:
        rule = "is the account of the whole dataset, which pays every cost"
        raise InvalidParameter("payer", payer, rule, "name one payer, or leave it out")
    return None if payer is None else checked_name("payer", payer)


def in_force(limits: Limits, terms: Iterable[Terms]) -> Limits:
    """The limits in force after these terms, oldest first; `limits` are those of the new ledger."""
    found = dict(limits)
    for each in terms:
        found[each.account, each.window] = each.limit
    return found


def largest(limits: Limits, terms: Iterable[Terms], window: int | None) -> Cost:
    """The largest limit of the dataset in this window (None: in total), in each column, that was ever in force."""
    changes = (each.limit for each in terms if (each.account, each.window) == (EVERYBODY, window))
    found = [limits[EVERYBODY, window], *changes]
    return Cost(max(each.units for each in found), max(each.delta_units for each in found))


def refuse(budget: Budget, total: Cost, accounts: Sequence[Account]) -> None:
    """Raise BudgetExceeded if one of the accounts cannot pay; a filter of `curves.filters` decides, in whole units."""
    for each in accounts if total != Cost(0, 0) else ():  # an entry without a cost always fits
        if not budget.fits(each.spent + total, each.limit):
            named = each.title if len(accounts) > 1 else ""
            remedy = _remedy(total, each.left)
            raise BudgetExceeded(total.describe(budget), each.left.describe_rest(budget), remedy, account=named)


def _remedy(total: Cost, left: Cost) -> str:
    """The remedy for the column in which too little is left: the currency, or δ."""
    if left.units == 0 < total.units:
        return SPENT
    again = "or ask something that was asked before"
    if total.units > left.units:
        return f"nothing was spent; lower the cost, {again}"
    lacks = "unlisted keys need more delta than is left: lower delta=, declare the keys or name them with IN"
    return f"nothing was spent; {lacks}, {again}"


def least_left(accounts: Iterable[Account], also: Cost) -> Cost:
    """What all of these accounts can pay after paying `also`: the least of each column."""
    rests = [less(each.limit, each.spent + also) for each in accounts]
    return Cost(min(each.units for each in rests), min(each.delta_units for each in rests))


def less(limit: Cost, spent: Cost) -> Cost:
    """What is left of a limit, at least zero in each column."""
    return Cost(max(0, limit.units - spent.units), max(0, limit.delta_units - spent.delta_units))


# --- time -------------------------------------------------------------------------------------------------------------


def stamp(seconds: float) -> str:
    """A time as entries store it: UTC, cut to seconds. Sorting these texts sorts by time."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def window_start(now: str, window: int) -> str:
    """The beginning of the window that contains `now`."""
    seconds = int(datetime.fromisoformat(now).timestamp())
    return stamp(seconds - seconds % window)
