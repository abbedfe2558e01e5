"""Decoding of texts: JSON, and bytes in base64."""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Final

_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{6,}={0,2}")


def loaded(text: str) -> tuple[Any] | None:
    """The values of a JSON text, or of several lines that are each a JSON text; None for any other text."""
    if not text.startswith(("{", "[", '"')):
        return None
    try:
        return (_json(text),)
    except (ValueError, RecursionError):
        try:
            return ([_json(line) for line in text.splitlines() if line.strip()],)
        except (ValueError, RecursionError):
            return None


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_pairs)


def _pairs(pairs: list[tuple[str, Any]]) -> Any:
    """A JSON object. If keys are repeated, also the list of all pairs: most readers keep only the last of a key."""
    found = dict(pairs)
    return found if len(found) == len(pairs) else [found, pairs]


def decoded(text: str) -> bytes | None:
    """The bytes of a base64 text in either alphabet; None if it is probably a word.

    Many words are valid base64, but rarely decode to printable characters or end with =.
    """
    if len(text) % 4 or not _BASE64.fullmatch(text):
        return None
    try:
        found = base64.b64decode(text.translate(str.maketrans("-_", "+/")), validate=True)
    except ValueError:
        return None
    is_text = found.isascii() and found.decode("ascii", "replace").isprintable()
    return found if text.endswith("=") or is_text else None
