"""Tokens of an OpenID Connect issuer, verified with the keys that the operator configured.

A token is accepted if a key of the issuer signed it for this audience and it has not expired. The algorithm follows
from the key (RS256, ES256 or EdDSA), never from the token's own header. A token only identifies a person: the person
must be in the catalogue, with the role that an admin assigned. Links in a token (`jku`, `x5u`, `jwk`) are never
followed. Source: RFC 8725, best current practices for JSON Web Tokens.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from deniable.errors import InvalidParameter, MissingExtra, UnreadableRecord
from deniable.queries.plan.refusals import choices
from deniable.server.catalogue.catalogue import Catalogue, Person
from deniable.server.catalogue.people import issued_to

if TYPE_CHECKING:
    from jwt import PyJWK

_KINDS: Final = {"RS256": ("RSA", None), "ES256": ("EC", "P-256"), "EdDSA": ("OKP", "Ed25519")}
"""Algorithm -> key type and curve of its keys."""

_LONGEST: Final = 8192
_LARGEST: Final = 1 << 20
_AGAIN: Final = 60.0
"""Least seconds between two fetches of the keys. A token with an unknown key id causes a fetch."""

_FRESH: Final = 600.0
"""Seconds after which keys from an address are fetched again, so that a key that the issuer withdrew is refused."""

_OLDEST: Final = 3600.0
"""Seconds that fetched keys are used at most, while the issuer's address does not answer."""

_LEEWAY: Final = 10.0
"""Seconds by which the issuer's clock may differ from ours."""


@final
class Issuer:
    """Verifies tokens of one issuer, and finds the person they belong to.

    `keys` is a file with a JSON Web Key Set, or its https address. `claim` is the claim of a token that holds the
    person's name here, for example `sub` or `email`. Raises MissingExtra without pyjwt.
    """

    def __init__(self, catalogue: Catalogue, *, issuer: str, audience: str, keys: str | Path, claim: str) -> None:
        try:
            import jwt  # noqa: F401
        except ImportError:
            raise MissingExtra("pyjwt", "oidc") from None
        self._catalogue, self._issuer, self._audience, self._claim = catalogue, issuer, audience, claim
        self._place, self._turn = keys, threading.Lock()
        self._tried: float | None = None
        """When the keys were last asked for, by `time.monotonic`; None before the first time."""
        self._got = 0.0
        """When an answer with keys last came."""
        self._keys: Mapping[str, tuple[str, PyJWK]] = {}
        if isinstance(keys, Path):
            self._keys = _keys(keys.read_bytes())

    def check(self, text: str) -> Person | None:
        """The person of a valid token; None for everything else."""
        import jwt

        if len(text) > _LONGEST:
            return None
        try:
            header = jwt.get_unverified_header(text)
            algorithm, key = self._key(header.get("kid"))
            if header.get("alg") != algorithm or "crit" in header:
                return None
            claims = jwt.decode(
                text,
                key,
                algorithms=[algorithm],
                audience=self._audience,
                issuer=self._issuer,
                leeway=_LEEWAY,
                options={"require": ["exp", "iss", "aud", self._claim]},
            )
        except (jwt.PyJWTError, LookupError, ValueError, TypeError):
            return None
        name = claims[self._claim]
        if not isinstance(name, str) or (self._claim == "email" and claims.get("email_verified") is not True):
            return None
        person = self._catalogue.person(name)
        return None if person is None else Person(person.name, person.role, issued_to(person.name))

    def _key(self, name: object) -> tuple[str, PyJWK]:
        if not isinstance(name, str):
            raise LookupError
        if not isinstance(self._place, Path):
            self._refresh(self._place, name)
            if time.monotonic() - self._got > _OLDEST:
                raise LookupError
        return self._keys[name]

    def _refresh(self, address: str, name: str) -> None:
        """Fetch the keys if this key id is unknown, or if they are old. At most one attempt in `_AGAIN` seconds."""
        now = time.monotonic()
        if name in self._keys and now - self._got <= _FRESH:
            return
        # While another thread fetches the keys, this one goes on with those it has: it must not wait.
        if not self._turn.acquire(blocking=False):
            return
        try:
            if self._tried is None or now - self._tried > _AGAIN:
                self._tried = now
                with contextlib.suppress(ValueError):  # no answer: the keys that are known stay, up to `_OLDEST`
                    self._keys, self._got = _keys(fetched(address)), now
        finally:
            self._turn.release()


def _keys(text: bytes) -> dict[str, tuple[str, PyJWK]]:
    """The usable keys of a JSON Web Key Set: key id -> (its one algorithm, the key)."""
    from jwt import PyJWK, PyJWTError

    try:
        listed = json.loads(text)["keys"]
        found: dict[str, tuple[str, PyJWK]] = {}
        for each in listed:
            algorithm = _algorithm(each)
            if algorithm is not None:
                found[each["kid"]] = algorithm, PyJWK(each, algorithm=algorithm)
    except (KeyError, TypeError, ValueError, RecursionError, PyJWTError):
        raise UnreadableRecord(
            "the issuer's keys are not a JSON Web Key Set; name the issuer's jwks_uri as keys"
        ) from None
    return found


def _algorithm(record: Mapping[str, Any]) -> str | None:
    for algorithm, (kind, curve) in _KINDS.items():
        fits = record.get("kty") == kind and record.get("crv") == curve
        # 342 characters of base64 are 2048 bits, the least for RSA.
        strong = kind != "RSA" or len(record.get("n", "")) >= 342
        is_for_signing = record.get("alg", algorithm) == algorithm and record.get("use", "sig") == "sig"
        if fits and strong and is_for_signing and isinstance(record.get("kid"), str) and "d" not in record:
            return algorithm
    return None


@final
class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: keys come only from the address that the operator configured."""

    def redirect_request(self, *_: Any) -> None:
        return None


def fetched(url: str) -> bytes:
    """The bytes at this address. Raises ValueError if it cannot be read within 5 seconds or is too large."""
    try:
        with urllib.request.build_opener(_NoRedirects).open(url, timeout=5) as answer:
            text: bytes = answer.read(_LARGEST + 1)
    except OSError:
        raise ValueError from None  # `check` then accepts no token
    if len(text) > _LARGEST:
        raise ValueError
    return text


def configured(catalogue: Catalogue, settings: Mapping[str, Any]) -> Issuer:
    """The issuer of the section `[oidc]` of the settings: issuer, audience, keys, and optionally claim."""
    known = {"issuer", "audience", "keys", "claim"}
    if unknown := set(settings) - known:
        raise InvalidParameter("oidc", min(unknown), f"is not a known entry; {choices(min(unknown), sorted(known))}")
    for name in sorted(known - {"claim"}):
        if not isinstance(settings.get(name), str) or not settings[name]:
            raise InvalidParameter(f"oidc.{name}", settings.get(name), "must be text", "see docs/server.md")
    place: str | Path = settings["keys"]
    if not str(place).startswith("https://"):
        place = Path(place)
        if "://" in settings["keys"] or not place.is_file():
            raise InvalidParameter("oidc.keys", settings["keys"], "must be an existing file, or an https address")
    claim = settings.get("claim", "sub")
    if claim not in {"sub", "email", "preferred_username"}:
        raise InvalidParameter("oidc.claim", claim, "must be sub, email or preferred_username")
    return Issuer(catalogue, issuer=settings["issuer"], audience=settings["audience"], keys=place, claim=claim)
