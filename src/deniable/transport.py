"""The HTTP client: sends requests to a server, repeats them where that is safe, and turns problems into errors.

Every question carries an idempotency key, so a repeated request is charged once and gets the same answer.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final, final

from deniable.errors import (
    ENGINE_FAILURES,
    NOTHING,
    REFUSALS,
    BudgetExceeded,
    DeniableError,
    EngineFailed,
    InvalidOperation,
    InvalidParameter,
    LedgerUnavailable,
    MissingExtra,
    QuestionRefused,
    ServerRefused,
    UnreadableRecord,
    type_of,
)

_ATTEMPTS: Final = 4
"""How often a request is sent before its failure becomes an error."""

_ERROR_FIELDS: Final = ("parameter", "rule", "remedy", "rewrite", "asked", "left", "account")
"""Fields of a problem that become fields of the error."""

_RUNNING: Final = "is it running, and is that its address?"


def wire_to(url: str, token: str, timeout: float) -> Wire:
    """A client of one server. `timeout` is in seconds. The token is sent to this server only.

    Raises MissingExtra if httpx is not installed, and InvalidParameter unless the address is https or on this machine.
    """
    try:
        import httpx
    except ImportError:
        raise MissingExtra("httpx", "client") from None
    if not isinstance(token, str) or not token.isascii() or not token.strip():
        raise InvalidParameter("token", NOTHING, "must be the token that you were given")
    if isinstance(url, str) and url and "://" not in url:
        rule, near_by = "must begin with https:// or http://", url.startswith(("127.0.0.1", "localhost", "[::1]"))
        raise InvalidParameter("url", url, rule, f"write {'http' if near_by else 'https'}://{url}")
    try:
        place = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        raise InvalidParameter("url", url, "must be an address such as https://curator.example.org") from None
    near = place.scheme == "http" and place.host in {"127.0.0.1", "localhost", "::1"}
    if place.scheme != "https" and not near:
        raise InvalidParameter("url", str(url), "must be https, or on this machine: the token travels with it")
    # No proxies from the environment and no redirects: the token must not reach another server.
    web = httpx.Client(
        base_url=place,
        headers={"Authorization": f"Bearer {token.strip()}"},
        timeout=timeout,
        trust_env=False,
        follow_redirects=False,
    )
    return Wire(web)


@final
class Wire:
    """Sends JSON to one server. The methods differ in whether a request may be sent again after a failure.

    `get`, `post` and `ask` are sent up to four times, `once` is sent once. Each returns the server's JSON object, and
    raises the error that a local session would raise, LedgerUnavailable if the server cannot be reached, or
    ServerRefused.
    """

    def __init__(self, web: Any) -> None:
        self._web = web

    @property
    def place(self) -> str:
        """The address of the server."""
        return str(self._web.base_url)

    def close(self) -> None:
        """Close the connection. Requests after that raise InvalidOperation."""
        self._web.close()

    def get(self, path: str) -> Any:
        """The response to a GET request. A request that fails is repeated, because reading changes nothing."""
        return self._sent("GET", path, None, {}, _RUNNING)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The response to a POST request that charges nothing, so that it may be repeated if it fails."""
        return self._sent("POST", path, body, {}, "nothing was charged; try again")

    def once(self, path: str, body: dict[str, Any]) -> Any:
        """Send something once: if it was done, a repetition would be refused."""
        return self._sent("POST", path, body, {}, "it may have been done; look before you try again", attempts=1)

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        """Send a question, with a new idempotency key; repeated if it fails, and charged at most once."""
        remedy = "it may have been charged; ask it again for the same answer"
        return self._sent("POST", path, body, {"Idempotency-Key": uuid.uuid4().hex}, remedy)

    def _sent(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        headers: dict[str, str],
        remedy: str,
        attempts: int = _ATTEMPTS,
    ) -> Any:
        import httpx

        if self._web.is_closed:
            raise InvalidOperation("this session is closed; connect again")
        for attempt in range(attempts):
            last, pause = attempt == attempts - 1, 0.2 * 2**attempt
            try:
                response = self._web.request(method, path, json=body, headers=headers)
            except httpx.TransportError as error:
                if last:
                    # Nothing was sent if the connection failed, unless an earlier attempt was sent.
                    never = attempts == 1 and isinstance(error, httpx.ConnectError)
                    raise LedgerUnavailable(
                        f"the server at {self.place} could not be reached", _RUNNING if never else remedy
                    ) from None
            except (TypeError, ValueError):
                raise _unwritable(body or {}) from None
            else:
                wait = response.headers.get("Retry-After", "")
                if last or response.status_code not in {429, 503} or not wait.isdigit():
                    return _read(response, body or {})
                pause = min(10.0, float(wait))
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")


def _unwritable(body: Mapping[str, Any]) -> InvalidParameter:
    """The first field of a request that JSON cannot write."""
    for name, value in body.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            return InvalidParameter(
                name, type_of(value), "must consist of finite numbers, text and lists, which JSON can write"
            )
    return InvalidParameter("request", NOTHING, "must be text and numbers that JSON can write")


def _read(response: Any, sent: Mapping[str, Any]) -> Any:
    try:
        record = response.json()
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise UnreadableRecord("that address did not answer like a deniable server")
    if response.is_success:
        return record
    raise _error(record, response.status_code, sent)


def _place(told: object) -> tuple[int, int] | None:
    """Where a question breaks a rule, as (start, end) in its text; None if the server's error has no place."""
    match told:
        case [int() as start, int() as end] if 0 <= start <= end:
            return start, end
    return None


def _error(problem: dict[str, Any], status: int, sent: Mapping[str, Any]) -> DeniableError:
    """The error that a local session would have raised; ServerRefused for problems that only a server has.

    A server never repeats a value of a request. An error about a number of `sent`, the request, shows that number.
    """
    code, detail = problem.get("code"), str(problem.get("detail") or problem.get("title") or "")
    facts = {name: str(problem.get(name, "")) for name in _ERROR_FIELDS}
    if code == "refused" and problem.get("refusal") in REFUSALS:
        where, instead = _place(problem.get("place")), str(problem.get("instead") or "")
        return QuestionRefused(problem["refusal"], facts["rule"], facts["rewrite"], place=where, instead=instead)
    if code == "budget_exceeded":
        return BudgetExceeded(facts["asked"], facts["left"], facts["remedy"], account=facts["account"])
    if code == "invalid":
        named = facts["parameter"] or "request"
        asked = sent.get(named)
        shown = asked if isinstance(asked, int | float) else NOTHING
        return InvalidParameter(named, shown, facts["rule"] or detail, facts["remedy"])
    if code == "run_failed" and problem.get("failure") in ENGINE_FAILURES:
        return EngineFailed(problem["failure"], "what was charged stays charged")
    if code == "ledger_unavailable":
        return LedgerUnavailable(detail, "try again")
    if code == "unauthorized":
        detail = "the server does not take this token; it may be mistyped, expired or revoked: "
        detail += "ask an admin to invite you again"
    return ServerRefused(str(code), status, detail)
