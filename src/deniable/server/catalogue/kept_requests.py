"""Requests that came with an Idempotency-Key: what was told, so that whoever comes again is told the same.

A key is claimed for its request before anything is charged: two ledgers know nothing of each other, and would both
charge for one key that comes to both at the same moment. After a power cut the newest may be missing. Then a retry
meets the ledger, which knows the same key and charges once. So nothing here need be kept for ever, or whole: of a long
answer only its digest and its short parts are kept, and the numbers come from the ledger again. Keys are forgotten
after some days.
"""

from __future__ import annotations

import json
import time
from hashlib import sha256
from typing import Any, Final, final

from deniable.server.catalogue.fast_statements import Quick
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

    def claim(self, person: str, key: str, body: str) -> tuple[int, bytes] | None:
        """What is kept of the response to a request that was answered before; from now on the key stands for this body.
        What has begun with it and not ended is known to its ledger, which charges once for a key.

        Problem `key_reused` where the key stands for another body, in whichever process.
        """
        who = {"person": person, "key": key}
        with self._quick.cursor() as run:
            found = run(_KNOWN, who).fetchone()
            if found is None and not run(_CLAIM, {**who, "body": body, "made": time.time()}).rowcount:
                found = run(_KNOWN, who).fetchone()  # claimed by another process since
        return None if found is None else _told(body, *found)

    def keep(
        self, person: str, key: str, body: str, status: int | None, response: bytes, *, whole: bool
    ) -> tuple[int, bytes] | None:
        """Keep the `whole` response, or what is needed to tell the same again; without a status, only what the key
        stands for. What is kept, where another process with the key was faster, or came with another body.
        """
        kept = None if status is None else response if whole else outline(response)
        values = {"person": person, "key": key, "body": body, "made": time.time(), "status": status, "response": kept}
        with self._quick.cursor() as run:
            if run(_KEEP, values).rowcount:
                return None if status is None else (status, response)
            found = run(_KNOWN, {"person": person, "key": key}).fetchone()
        return _told(body, *found)

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
            run(_KEEP, {"person": "", "key": "", "body": "", "made": 0.0, "status": None, "response": None})
            run(_UNDO, {})
        return True


def _told(body: str, before: str, status: int | None, response: Any) -> tuple[int, bytes] | None:
    if before != body:
        raise Problem("key_reused", "use a new Idempotency-Key for each request")
    return None if status is None else (status, bytes(response))


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
