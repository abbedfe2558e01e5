"""What became of the charge of a question that went wrong.

A thread of the server works on one question at a time. `ChargeInThread` remembers which ledger pays for it, and after a
failure it says whether that ledger was charged, because the person who asked must be told.
"""

from __future__ import annotations

import contextlib
import threading
from enum import Enum
from typing import TYPE_CHECKING, final

from deniable.errors import DeniableError

if TYPE_CHECKING:
    from deniable.ledger import Ledger


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


@final
class ChargeInThread(threading.local):
    """The question that a thread works on: which ledger pays, and whether it was charged once an answer is sealed."""

    ledger: Ledger | None = None
    family: str = ""
    key: str | None = None
    charged: bool | None = None
    dataset: tuple[str, str] | None = None
    """The name and the family of the dataset that is asked, for errors and logs."""

    def forget(self) -> None:
        """Begin with a new question. No ledger was charged for it yet."""
        self.ledger = self.key = self.charged = self.dataset = None

    def fate(self) -> Fate | None:
        """What became of the charge; None if no ledger was to pay."""
        if self.ledger is None:
            return None
        if self.charged is not None:
            return Fate.ANSWERED if self.charged else Fate.FREE
        if self.key is not None:
            with contextlib.suppress(DeniableError):
                return Fate.FREE if self.ledger.keyed(self.key) is None else Fate.CHARGED
        return Fate.UNKNOWN
