"""Errors over HTTP, as problem+json (RFC 9457), with a closed list of codes.

The details come from `deniable.errors`, whose messages never contain values of the data, or from this package. Every
other exception becomes `unexpected`, without details, because its message could contain data.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final, final

from deniable.errors import (
    BudgetExceeded,
    DeniableError,
    EngineFailed,
    InvalidParameter,
    LedgerDamaged,
    LedgerMismatch,
    LedgerUnavailable,
    QuestionRefused,
    UnreadableRecord,
)
from deniable.server.operations.security_events import noted

CODES: Final[dict[str, tuple[int, str]]] = {
    "unreadable": (400, "The request cannot be read"),
    "unauthorized": (401, "A valid token is needed"),
    "budget_exceeded": (402, "The budget has too little left"),
    "forbidden": (403, "This role may not do that"),
    "not_found": (404, "Not found, or not visible to you"),
    "method": (405, "This method is not allowed here"),
    "key_reused": (409, "The idempotency key was used for another request"),
    "key_pending": (409, "The first request with this idempotency key has no answer"),
    "exists": (409, "This name is taken"),
    "same_people": (409, "Most of these ids or rows are known; say whether they are the same people"),
    "ledger_mismatch": (409, "The ledger was opened with another budget, unit or dataset"),
    "too_large": (413, "The request is too large"),
    "media_type": (415, "The request must be JSON"),
    "invalid": (422, "A value in the request is not valid"),
    "refused": (422, "The question breaks a public rule"),
    "rate_limited": (429, "Too many requests"),
    "run_failed": (500, "The run failed; what was charged stays charged"),
    "unexpected": (500, "The server failed unexpectedly"),
    "busy": (503, "Too many questions are waiting"),
    "fit_failed": (503, "The rows could not be drawn within the limits of this server"),
    "dataset_unavailable": (503, "The dataset cannot be read now"),
    "ledger_unavailable": (503, "The ledger cannot be read or written now"),
    "not_ready": (503, "The server cannot answer questions now"),
    "ledger_damaged": (503, "The ledger or its checkpoint was changed"),
}
"""Code -> HTTP status and title. A closed list: programs may rely on it."""

REPLACED: Final = (
    "the signing key of this server was replaced while the server ran, so it cannot sign: its operator must restart it"
)
"""The detail of code `not_ready` after a key rotation."""

MEDIA_TYPE: Final = "application/problem+json"
_LOG: Final = logging.getLogger("deniable.server")


@final
class Problem(Exception):
    """An error for the client: a code of `CODES`, a detail in words, and facts as further JSON fields."""

    def __init__(
        self,
        code: str,
        detail: str = "",
        facts: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        assert code in CODES, code
        super().__init__(code)
        self.code, self.detail = code, detail
        self.facts, self.headers = dict(facts or {}), dict(headers or {})

    @property
    def status(self) -> int:
        """The HTTP status."""
        return CODES[self.code][0]

    def record(self) -> dict[str, Any]:
        """The members of the problem, as RFC 9457 names them, with its code and facts."""
        status, title = CODES[self.code]
        about: dict[str, Any] = {"type": f"urn:deniable:problem:{self.code}", "title": title, "status": status}
        if self.detail:
            about["detail"] = self.detail
        return about | {"code": self.code} | self.facts

    def body(self) -> bytes:
        """The problem as JSON, in UTF-8."""
        return json.dumps(self.record(), ensure_ascii=False).encode("utf-8", "replace")


def problem_of(error: BaseException) -> Problem:
    """The problem for an exception: `unexpected`, without details, unless it is a Problem or a DeniableError."""
    noted(error)
    facts: dict[str, Any]
    match error:
        case Problem():
            return error
        case QuestionRefused():
            facts = {"refusal": error.code, "rule": error.rule, "rewrite": error.rewrite}
            facts |= {} if error.place is None else {"place": list(error.place)}
            facts |= {"instead": error.instead} if error.instead else {}
            return Problem("refused", str(error), facts)
        case BudgetExceeded():
            facts = {"asked": error.asked, "left": error.left, "remedy": error.remedy}
            facts |= {"account": error.account} if error.account else {}
            return Problem("budget_exceeded", str(error), facts)
        case InvalidParameter():
            facts = {"parameter": error.parameter, "rule": error.rule, "remedy": error.remedy}
            return Problem("invalid", str(error), facts)
        case EngineFailed():
            return Problem("run_failed", str(error), {"failure": error.code})
        case LedgerMismatch():
            return Problem("ledger_mismatch", str(error), {"field": error.field})
        case LedgerDamaged():
            return Problem("ledger_damaged", str(error), {"entry": error.number})
        case LedgerUnavailable():
            return Problem("ledger_unavailable", "the request was not carried out; try again later")
        case UnreadableRecord():
            return Problem("invalid", str(error))
        case DeniableError():
            return Problem("invalid", str(error))
    return Problem("unexpected")


def written_down(error: BaseException) -> None:
    """Log the type and the place of an unexpected exception. Its message could contain data, and is not logged."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = ""
    if place is not None:
        frame = place.tb_frame
        where = f" in {frame.f_globals.get('__name__', 'somewhere')}.{frame.f_code.co_name}:{place.tb_lineno}"
    _LOG.error("unexpected %s%s", type(error).__name__, where)
