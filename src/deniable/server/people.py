"""Names of people: which are taken, and which look like another.

A limit of the ledger belongs to a name. Two names that people read as one would be two limits for one person, or one
person's limit under another's eyes. So a name is plain, and no other name may look like it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from deniable.errors import InvalidParameter
from deniable.server.words import NAME

_SHAPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@-]*")
_ALIKE: Final = str.maketrans({"0": "o", "1": "l", "i": "l"})
"""Signs that are drawn alike in many fonts, in small letters."""

_LONGEST: Final = 100


def checked_name(name: str) -> str:
    """The name as it is, if it can be one.

    >>> checked_name("bob@example.org")
    'bob@example.org'
    """
    plain = unicodedata.normalize("NFKC", name)
    if name != name.strip():
        raise InvalidParameter("name", name, "begins or ends with a space", f"write {plain.strip()!r}")
    if not 0 < len(name) <= _LONGEST or _SHAPE.fullmatch(name) is None:
        raise InvalidParameter("name", name, NAME)
    if "  " in name:
        raise InvalidParameter("name", name, "has two spaces side by side, which look like one")
    return name


def look(name: str) -> str:
    """What two names have in common that people read as one.

    >>> look("Bob"), look("b0b")
    ('bob', 'bob')
    """
    return unicodedata.normalize("NFKC", name).strip().casefold().translate(_ALIKE)
