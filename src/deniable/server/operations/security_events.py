"""What an operator should see: one line of JSON for each event that has to do with security, on `deniable.security`.

A line holds the name of the event and who or where it was: never a token, a question, an answer, or anything that was
computed from data. Lines go through Python's `logging`, so an operator sends them where the others go.

person_...     as in the log of people (`server.catalogue.access_log`), whose entry it names: person_added,
person_closed,
               person_invited, person_redeemed, person_issued, person_revoked and person_signed_in
token_refused  a token or an invitation that opens nothing; `address` is where it came from
limit          somebody was turned away: too many wrong tokens, requests, connections, or questions that wait
registration_refused
ledger_damaged, ledger_mismatch, ledger_unavailable
unfinished     a connection that sent half a request and no more, or did not read its answer
not_ready      a check of /ready failed
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

from deniable.errors import LedgerDamaged, LedgerMismatch, LedgerUnavailable

LOGGER: Final = logging.getLogger("deniable.security")

_ABOUT: Final = "about_dataset"
_QUIET: Final = "person_"
"""What happens every day begins so; all else is a warning."""


def logged(event: str, **facts: str | int) -> None:
    """Write one event down."""
    level = logging.INFO if event.startswith(_QUIET) else logging.WARNING
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, "%s", json.dumps({"event": event, **facts}, ensure_ascii=True))


def noted(error: BaseException, **about: str) -> None:
    """Write down what an error says about a ledger, if it is one of those that an operator should see, and of which
    dataset it is, where that is known.
    """
    about = {**getattr(error, _ABOUT, {}), **about}
    match error:
        case LedgerDamaged():
            logged("ledger_damaged", **about, entry=-1 if error.number is None else error.number)
        case LedgerMismatch():
            logged("ledger_mismatch", **about, field=error.field)
        case LedgerUnavailable():
            logged("ledger_unavailable", **about)


def of_dataset(error: BaseException, dataset: str, family: str) -> None:
    """Say of which dataset an error is, for the line that is written about it later."""
    setattr(error, _ABOUT, {"dataset": dataset, "family": family})


class _Lines(logging.Formatter):
    """Times in UTC, with their zone."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  # its name there
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def to_stderr() -> None:
    """Where nobody has said where these lines go: each alone on a line of stderr, with its time."""
    if LOGGER.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines('{"time": "%(asctime)s", "level": "%(levelname)s", "said": %(message)s}'))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
