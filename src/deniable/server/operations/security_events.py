"""The security log: one line of JSON for each event, on the logger `deniable.security`.

A line holds the name of the event, and the person or address. It never holds a token, a question, an answer, or
anything computed from data. The lines go through Python's `logging`, so an operator can send them anywhere.

person_...     an entry of the access log (`server.catalogue.access_log`), with its number: person_added,
               person_closed, person_invited, person_redeemed, person_issued, person_revoked and person_signed_in
token_refused  a token or an invitation that is not valid; `address` is the client's
limit          a client was refused: too many wrong tokens, requests, connections, or waiting questions
registration_refused
ledger_damaged, ledger_mismatch, ledger_unavailable
unfinished     a client did not finish its request, or did not read its answer
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
"""Prefix of routine events, which are logged as INFO; all others are warnings."""


def logged(event: str, **facts: str | int) -> None:
    """Log one event."""
    level = logging.INFO if event.startswith(_QUIET) else logging.WARNING
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, "%s", json.dumps({"event": event, **facts}, ensure_ascii=True))


def noted(error: BaseException, **about: str) -> None:
    """Log an error of a ledger, with its dataset if that is known. Other errors are not logged."""

    about = {**getattr(error, _ABOUT, {}), **about}
    match error:
        case LedgerDamaged():
            logged("ledger_damaged", **about, entry=-1 if error.number is None else error.number)
        case LedgerMismatch():
            logged("ledger_mismatch", **about, field=error.field)
        case LedgerUnavailable():
            logged("ledger_unavailable", **about)


def of_dataset(error: BaseException, dataset: str, family: str) -> None:
    """Attach a dataset to an error, for `noted`."""
    setattr(error, _ABOUT, {"dataset": dataset, "family": family})


class _Lines(logging.Formatter):
    """Formats times in UTC, with their zone."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  # its name there
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def to_stderr() -> None:
    """Write the events to stderr, one JSON object per line, unless logging is configured already."""
    if LOGGER.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines('{"time": "%(asctime)s", "level": "%(levelname)s", "said": %(message)s}'))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
