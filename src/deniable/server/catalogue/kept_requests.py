"""Responses to requests with an Idempotency-Key, so that a repeated request gets the same response.

A key is claimed for its request before anything is charged. Otherwise one key that arrives at two datasets at the same
time would be charged by both ledgers, which do not know each other.

The ledger knows the key as well, and charges once for it. So these records may be incomplete: after a power cut the
newest may be missing, and they are deleted after some days. Of a long response only its hash and its short parts are
stored (an outline); the numbers are read from the ledger again.
"""

from __future__ import annotations

import json
import time
from hashlib import sha256
from typing import Any, Final, final

from deniable.server.catalogue.driver_statements import Quick
from deniable.server.problems import Problem

_KNOWN: Final = "SELECT body, status, response FROM curator_requests WHERE person = {person} AND key = {key}"
_CLAIM: Final = """
    INSERT INTO curator_requests (person, key, body, made) VALUES ({person}, {key}, {body}, {made})
    ON CONFLICT (person, key) DO NOTHING"""
_KEEP: Final = """
    INSERT INTO curator_requests (person, key, body, made, status, response)
    VALUES ({person}, {key}, {body}, {made}, {status}, {response})
    ON CONFLICT (person, key) DO UPDATE SET status = excluded.status, response = excluded.response
    WHERE curator_requests.status IS NULL AND curator_requests.body = excluded.body"""
_FORGET: Final = "DELETE FROM curator_requests WHERE made < {made}"
_UNDO: Final = "ROLLBACK"

_SHORT: Final = 4096
"""The longest response, in bytes, that is stored completely."""

_OUTLINE: Final = b"\0outline "
"""The first bytes of an outline; no response begins with them."""

_EVERY: Final = 3600.0
"""Seconds between two deletions of old keys."""


@final
class Requests:
    """The keys and their responses. Threads and processes may share it."""

    def __init__(self, quick: Quick) -> None:
        self._quick = quick
        self._looked = 0.0

    def claim(self, person: str, key: str, body: str) -> tuple[int, bytes] | None:
        """Claim a key for a request with this hash of its body. Returns the stored (status, response), if there is one.

        None means a new key, or an unfinished request, which the ledger charges once. Raises Problem `key_reused` if
        the key was claimed for another body, in any process.
        """
        who = {"person": person, "key": key}
        with self._quick.cursor() as run:
            found = run(_KNOWN, who).fetchone()
            if found is None and not run(_CLAIM, {**who, "body": body, "made": time.time()}).rowcount:
                found = run(_KNOWN, who).fetchone()  # another process has just claimed it
        return None if found is None else _stored_response(body, *found)

    def keep(
        self, person: str, key: str, body: str, status: int | None, response: bytes, *, whole: bool
    ) -> tuple[int, bytes] | None:
        """Store the `whole` response, or its outline; without a status, only the claim.

        Returns the (status, response) that is stored now, which another process may have stored first; None if only a
        claim is stored. Raises Problem `key_reused` if the key was claimed for another body.
        """
        kept = None if status is None else response if whole else outline(response)
        values = {"person": person, "key": key, "body": body, "made": time.time(), "status": status, "response": kept}
        with self._quick.cursor() as run:
            if run(_KEEP, values).rowcount:
                return None if status is None else (status, response)
            found = run(_KNOWN, {"person": person, "key": key}).fetchone()
        return _stored_response(body, *found)

    def forget(self, days: float) -> None:
        """Delete keys that are older than `days`, at most once an hour."""
        now = time.time()
        if now - self._looked > _EVERY:
            self._looked = now
            with self._quick.cursor() as run:
                run(_FORGET, {"made": now - days * 86400})

    def writable(self) -> bool:
        """True if the database can be written, tested by a write that is rolled back; else raises Problem."""
        with self._quick.cursor() as run:
            run(_KEEP, {"person": "", "key": "", "body": "", "made": 0.0, "status": None, "response": None})
            run(_UNDO, {})
        return True


def _stored_response(body: str, before: str, status: int | None, response: Any) -> tuple[int, bytes] | None:
    if before != body:
        raise Problem("key_reused", "use a new Idempotency-Key for each request")
    return None if status is None else (status, bytes(response))


def outline(response: bytes) -> bytes:
    """What is stored of a response: all of it if it is short; else its hash, its short fields, and the other names.

    >>> outline(b'{"n": 1}')
    b'{"n": 1}'
    """
    if len(response) <= _SHORT:
        return response
    fields = json.loads(response)
    short = {name: value for name, value in fields.items() if len(json.dumps(value, ensure_ascii=False)) < _SHORT // 4}
    record = {"sha256": sha256(response).hexdigest(), "names": list(fields), "short": short}
    return _OUTLINE + json.dumps(record, ensure_ascii=False).encode()


def is_outline(kept: bytes) -> bool:
    """Whether this is an outline, not a complete response."""
    return kept.startswith(_OUTLINE)


def filled(kept: bytes, again: dict[str, Any]) -> bytes:
    """The response of an outline, with the missing fields from `again`, the same answer read from the ledger.

    If the result does not have the hash in the outline, returns `again` itself, which is marked as a replay.
    """
    record = json.loads(kept.removeprefix(_OUTLINE))
    whole = {name: record["short"].get(name, again.get(name)) for name in record["names"]}
    response = json.dumps(whole, ensure_ascii=False, allow_nan=False).encode()
    if sha256(response).hexdigest() == record["sha256"]:
        return response
    return json.dumps(again, ensure_ascii=False, allow_nan=False).encode()
