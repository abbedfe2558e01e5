"""Tokens of an OpenID Connect issuer, verified with the keys that the operator configured.

A token is accepted if a key of the issuer signed it for this audience and it has not expired. The algorithm follows
from the key (RS256, ES256 or EdDSA), never from the token's own header. A token only identifies a person: the person
must be in the catalogue, with the role that an admin assigned. Links in a token (`jku`, `x5u`, `jwk`) are never
followed. Source: RFC 8725, best current practices for JSON Web Tokens.
"""

from __future__ import annotations

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
        self._place, self._turn, self._read = keys, threading.Lock(), 0.0
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
            said = jwt.decode(
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
        name = said[self._claim]
        if not isinstance(name, str) or (self._claim == "email" and said.get("email_verified") is not True):
            return None
        person = self._catalogue.person(name)
        return None if person is None else Person(person.name, person.role, issued_to(person.name))

    def _key(self, name: object) -> tuple[str, PyJWK]:
        if not isinstance(name, str):
            raise LookupError
        # While another thread fetches the keys, an unknown key id fails at once: it must not block this thread.
        if name not in self._keys and not isinstance(self._place, Path) and self._turn.acquire(blocking=False):
            try:
                if not self._read or time.monotonic() - self._read > _AGAIN:
                    self._read = time.monotonic()
                    self._keys = _keys(fetched(self._place))
            finally:
                self._turn.release()
        return self._keys[name]


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
        raise UnreadableRecord("the issuer's keys are not a JSON Web Key Set") from None
    return found


def _algorithm(record: Mapping[str, Any]) -> str | None:
    for algorithm, (kind, curve) in _KINDS.items():
        fits = record.get("kty") == kind and record.get("crv") == curve
        # 342 characters of base64 are 2048 bits, the least for RSA.
        strong = kind != "RSA" or len(record.get("n", "")) >= 342
        meant = record.get("alg", algorithm) == algorithm and record.get("use", "sig") == "sig"
        if fits and strong and meant and isinstance(record.get("kid"), str) and "d" not in record:
            return algorithm
    return None


@final
class _Still(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: keys come only from the address that the operator configured."""

    def redirect_request(self, *_: Any) -> None:
        return None


def fetched(url: str) -> bytes:
    """The bytes at this address. Raises ValueError if it cannot be read within 5 seconds or is too large."""
    try:
        with urllib.request.build_opener(_Still).open(url, timeout=5) as answer:
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
        raise InvalidParameter("oidc", min(unknown), f"is not an entry; {choices(min(unknown), sorted(known))}")
    for name in sorted(known - {"claim"}):
        if not isinstance(settings.get(name), str) or not settings[name]:
            raise InvalidParameter(f"oidc.{name}", settings.get(name), "must be text", "see docs/server.md")
    place: str | Path = settings["keys"]
    if not str(place).startswith("https://"):
        place = Path(place)
        if "://" in settings["keys"] or not place.is_file():
            raise InvalidParameter("oidc.keys", settings["keys"], "must be a file, or an https address")
    claim = settings.get("claim", "sub")
    if claim not in {"sub", "email", "preferred_username"}:
        raise InvalidParameter("oidc.claim", claim, "must be sub, email or preferred_username")
    return Issuer(catalogue, issuer=settings["issuer"], audience=settings["audience"], keys=place, claim=claim)
