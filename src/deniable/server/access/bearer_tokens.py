"""Bearer tokens: shown once, stored as argon2id hashes, with an expiry, revocable.

A token is `dn_ID_SECRET`. The ID finds the record, and the secret is checked against its hash. For an unknown ID the
secret is checked against a dummy hash, so that both cases take the same time. The process caches secrets that it has
verified, as keyed hashes; whether a token is still valid is read again every second.
"""

from __future__ import annotations

import hmac
import re
import secrets
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError

from deniable.server.catalogue.catalogue import Catalogue, Person, TokenRecord

if TYPE_CHECKING:
    from deniable.server.access.oidc import Issuer

_SHAPE: Final = re.compile(r"dn_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
FRESH: Final = 1.0
"""Seconds for which the validity of a token, or of a grant, is cached."""

_MOST: Final = 10_000


@final
class TokenGate:
    """Finds the person that a token belongs to. Threads may share it."""

    def __init__(self, catalogue: Catalogue, issuer: Issuer | None = None) -> None:
        self._catalogue, self._issuer = catalogue, issuer
        # 19 MiB and two passes: the minimum that OWASP recommends. The secrets are 256 random bits anyway.
        self._hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)
        self._nobody = self._hasher.hash(secrets.token_urlsafe(32))
        self._key = secrets.token_bytes(32)
        self._checked: OrderedDict[str, bytes] = OrderedDict()
        self._records: dict[str, tuple[float, TokenRecord | None]] = {}
        self._noted: dict[str, int] = {}
        self._turn = threading.Lock()

    def new_token(self) -> tuple[str, str, str]:
        """A new token: (its text, which is shown once and not stored; its id; the hash to store)."""
        id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        return f"dn_{id}_{secret}", id, self._hasher.hash(secret)

    @property
    def has_issuer(self) -> bool:
        """Whether tokens of an OpenID Connect issuer are accepted as well."""
        return self._issuer is not None

    def forget(self) -> None:
        """Clear the cache of token records, after somebody's rights have changed."""
        with self._turn:
            self._records.clear()

    def known(self, text: str) -> Person | None:
        """The person of a token if the cache has the answer; else None, and `check` decides."""
        shape = _SHAPE.fullmatch(text)
        if shape is None:
            return None
        id, secret = shape.groups()
        when, record = self._records.get(id, (0.0, None))
        if record is None or time.monotonic() - when > FRESH or not self._remembered(id, secret):
            return None
        if self._noted.get(id) != _day():
            return None
        return record.person if record.usable(time.time()) else None

    def is_cheap(self, text: str) -> bool:
        """Whether `check` is cheap: the secret is cached, or it is an issuer's token, which needs no argon2."""
        if self._is_issued(text):
            return True
        return self.met(text) is not None

    def met(self, text: str) -> str | None:
        """The id of a token whose secret was verified before, valid or not; else None."""
        shape = _SHAPE.fullmatch(text)
        return shape[1] if shape is not None and self._remembered(*shape.groups()) else None

    def _is_issued(self, text: str) -> bool:
        return self._issuer is not None and text.count(".") == 2

    def check(self, text: str) -> Person | None:
        """The person of a valid token; None for everything else. Slow (argon2) unless `is_cheap`."""
        if self._issuer is not None and self._is_issued(text):
            return self._noting(self._issuer.check(text))
        shape = _SHAPE.fullmatch(text)
        id, secret = shape.groups() if shape is not None else ("", "")
        record = self._record(id)
        if not (record is not None and self._remembered(id, secret)):
            try:
                self._hasher.verify(self._nobody if record is None else record.hash, secret)
            except VerificationError:
                return None
            self._remember(id, secret)
        return self._noting(record.person if record is not None and record.usable(time.time()) else None)

    def _noting(self, person: Person | None) -> Person | None:
        """Log the first use of a token on each day, in this process. If the log cannot be written, access fails."""
        if person is not None and self._noted.get(person.token) != (today := _day()):
            self._catalogue.signed_in(person.name, person.token)
            with self._turn:
                if len(self._noted) >= _MOST:
                    self._noted.clear()
                self._noted[person.token] = today
        return person

    def _record(self, id: str) -> TokenRecord | None:
        when, record = self._records.get(id, (0.0, None))
        if record is not None and time.monotonic() - when <= FRESH:
            return record
        record = self._catalogue.token(id)
        if record is not None:
            with self._turn:
                if len(self._records) >= _MOST:
                    self._records.clear()
                self._records[id] = (time.monotonic(), record)
        return record

    def _digest(self, id: str, secret: str) -> bytes:
        return hmac.digest(self._key, f"{id} {secret}".encode(), "sha256")

    def _remembered(self, id: str, secret: str) -> bool:
        return hmac.compare_digest(self._checked.get(id, b""), self._digest(id, secret))

    def _remember(self, id: str, secret: str) -> None:
        with self._turn:
            self._checked[id] = self._digest(id, secret)
            if len(self._checked) > _MOST:
                self._checked.popitem(last=False)


def _day() -> int:
    """The number of the current day, in UTC."""
    return int(time.time() // 86400)
