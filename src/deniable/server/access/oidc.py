"""Tokens of an OpenID Connect issuer: signed statements of who somebody is, checked with keys that the operator named.

A token is believed if a key of the issuer signed it, with an algorithm that belongs to that key (RS256, ES256 or EdDSA
and no other, whatever the token says of itself), for this audience, within its time. It says who comes, never what they
may do: its subject must be somebody in the catalogue, with the role that an admin gave them. Nothing that a token
points to (`jku`, `x5u`, `jwk`) is ever followed. Source: RFC 8725, best current practices for JSON Web Tokens.
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
"""Algorithms, each with the kind and the curve of its keys."""

_LONGEST: Final = 8192
_LARGEST: Final = 1 << 20
_AGAIN: Final = 60.0
"""Seconds before keys are fetched again because of a token that names one we do not have."""

_LEEWAY: Final = 10.0
"""Seconds that the issuer's clock may differ from ours."""


@final
class Issuer:
    """Whom the tokens of one issuer belong to.

    `keys` is a file with a JSON Web Key Set, or its https address; `claim` is what in a token is the name of somebody
    here, `sub` or, say, `email`.
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
        """Whose token it is; None for every other text, whatever is wrong with it."""
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
        # Whoever names an unknown key while another looks for it is not known: they must not hold a thread until then.
        if name not in self._keys and not isinstance(self._place, Path) and self._turn.acquire(blocking=False):
            try:
                if not self._read or time.monotonic() - self._read > _AGAIN:
                    self._read = time.monotonic()
                    self._keys = _keys(fetched(self._place))
            finally:
                self._turn.release()
        return self._keys[name]


def _keys(text: bytes) -> dict[str, tuple[str, PyJWK]]:
    """The keys of a set by their names, each with the one algorithm that it is for; others are left out."""
    from jwt import PyJWK, PyJWTError

    try:
        listed = json.loads(text)["keys"]
        found: dict[str, tuple[str, PyJWK]] = {}
        for each in listed:
            algorithm = _algorithm(each)
            if algorithm is not None:
                found[each["kid"]] = algorithm, PyJWK(each, algorithm=algorithm)
    except (KeyError, TypeError, ValueError, RecursionError, PyJWTError):
        raise UnreadableRecord("the issuer's keys are no JSON Web Key Set") from None
    return found


def _algorithm(record: Mapping[str, Any]) -> str | None:
    for algorithm, (kind, curve) in _KINDS.items():
        fits = record.get("kty") == kind and record.get("crv") == curve
        # 342 letters of base64 are 2048 bits: shorter keys of RSA can be broken.
        strong = kind != "RSA" or len(record.get("n", "")) >= 342
        meant = record.get("alg", algorithm) == algorithm and record.get("use", "sig") == "sig"
        if fits and strong and meant and isinstance(record.get("kid"), str) and "d" not in record:
            return algorithm
    return None


@final
class _Still(urllib.request.HTTPRedirectHandler):
    """Goes nowhere else: the operator named one address."""

    def redirect_request(self, *_: Any) -> None:
        return None


def fetched(url: str) -> bytes:
    """What stands at the operator's address."""
    try:
        with urllib.request.build_opener(_Still).open(url, timeout=5) as answer:
            text: bytes = answer.read(_LARGEST + 1)
    except OSError:
        raise ValueError from None  # then nobody is known by a token
    if len(text) > _LARGEST:
        raise ValueError
    return text


def configured(catalogue: Catalogue, settings: Mapping[str, Any]) -> Issuer:
    """The issuer that the operator's settings describe: `[oidc]` with issuer, audience, keys and perhaps a claim."""
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
