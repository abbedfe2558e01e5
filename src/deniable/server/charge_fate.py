"""What became of the charge of a question that went wrong."""

from __future__ import annotations

from enum import Enum
from typing import final


@final
class Fate(Enum):
    """What became of the charge of a question that went wrong, and the words for it."""

    FREE = "nothing was charged"
    CHARGED = "it was charged"
    ANSWERED = "it was charged, and the answer is kept: ask the same again, for nothing"
    UNKNOWN = "it may have been charged"

    @property
    def charged(self) -> bool | None:
        """Whether it was; None where nobody can say."""
        return None if self is Fate.UNKNOWN else self is not Fate.FREE
