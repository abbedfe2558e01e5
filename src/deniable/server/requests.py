"""Requests that came with an Idempotency-Key: what was told, so that whoever comes again is told the same.

After a power cut the newest may be missing. Then a retry meets the ledger, which knows the same key and charges once.
So nothing here need be kept for ever, or whole: of a long answer only its digest and its short parts are kept, and the
numbers come from the ledger again. Keys are forgotten after some days.
"""

from __future__ import annotations

import json
import time
from hashlib import sha256
from typing import Any, Final, final

from deniable.server.problems import Problem
from deniable.server.quick import Quick

_BEGIN: Final = """
    INSERT INTO curator_requests (person, key, body, made) VALUES ({person}, {key}, {body}, {made})
    ON CONFLICT DO NOTHING"""
_BEGUN: Final = "SELECT body, status, response FROM curator_requests WHERE person = {person} AND key = {key}"
_END: Final = """
    UPDATE curator_requests SET status = {status}, response = {response}
    WHERE person = {person} AND key = {key} AND status IS NULL"""
_FORGET: Final = "DELETE FROM curator_requests WHERE made < {made}"
_UNDO: Final = "ROLLBACK"

_SHORT: Final = 4096
"""Bytes of a response that is kept as it is."""

_OUTLINE: Final = b"\0outline "
"""What a kept outline begins with: no response does."""

_EVERY: Final = 3600.0
"""Seconds between two looks for keys that are old."""


@final
class Requests:
    """The keys, and what was told under each. Threads and processes may share it."""

    def __init__(self, quick: Quick) -> None:
        self._quick = quick
        self._looked = 0.0

    def begin(self, person: str, key: str, body: str) -> tuple[int, bytes] | None:
        """Note that a request begins; what is kept of its response if it was answered before.

        Problem `key_reused` where the key stood for another body.
        """
        who = {"person": person, "key": key}
        with self._quick.cursor() as run:
            if run(_BEGIN, {**who, "body": body, "made": time.time()}).rowcount:
                return None
            before, status, response = run(_BEGUN, who).fetchone()
        if before != body:
            raise Problem("key_reused", "use a new Idempotency-Key for each request")
        return None if status is None else (status, bytes(response))

    def end(self, person: str, key: str, status: int, response: bytes, *, whole: bool) -> tuple[int, bytes]:
        """Keep the `whole` response, or what is needed to tell the same again; what is kept, where another process with
        the key was faster.
        """
        who = {"person": person, "key": key}
        with self._quick.cursor() as run:
            if run(_END, {**who, "status": status, "response": response if whole else outline(response)}).rowcount:
                return status, response
            _, status, kept = run(_BEGUN, who).fetchone()
        return status, bytes(kept)

    def forget(self, days: float) -> None:
        """Forget keys that are older than so many days: now and then, whenever this is called."""
        now = time.time()
        if now - self._looked > _EVERY:
            self._looked = now
            with self._quick.cursor() as run:
                run(_FORGET, {"made": now - days * 86400})

    def writable(self) -> bool:
        """Whether something could be written now. Nothing is; Problem where the database is away."""
        with self._quick.cursor() as run:
            run(_BEGIN, {"person": "", "key": "", "body": "", "made": 0.0})
            run(_UNDO, {})
        return True


def outline(response: bytes) -> bytes:
    """What is kept of a response: all of it if it is short, else its digest, its short parts and the names of others.

    >>> outline(b'{"n": 1}')
    b'{"n": 1}'
    """
    if len(response) <= _SHORT:
        return response
    said = json.loads(response)
    short = {name: value for name, value in said.items() if len(json.dumps(value, ensure_ascii=False)) < _SHORT // 4}
    record = {"sha256": sha256(response).hexdigest(), "names": list(said), "short": short}
    return _OUTLINE + json.dumps(record, ensure_ascii=False).encode()


def is_outline(kept: bytes) -> bool:
    """Whether parts are missing from what was kept."""
    return kept.startswith(_OUTLINE)


def filled(kept: bytes, again: dict[str, Any]) -> bytes:
    """The response of which this is the outline, with the missing parts from the same answer, read again.

    The same bytes, or `again` as it is where that is not so: it says then that it is a replay.
    """
    record = json.loads(kept.removeprefix(_OUTLINE))
    whole = {name: record["short"].get(name, again.get(name)) for name in record["names"]}
    response = json.dumps(whole, ensure_ascii=False, allow_nan=False).encode()
    if sha256(response).hexdigest() == record["sha256"]:
        return response
    return json.dumps(again, ensure_ascii=False, allow_nan=False).encode()
