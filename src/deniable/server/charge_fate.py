"""Whether a question that failed was charged."""

from __future__ import annotations

import contextlib
import threading
from enum import Enum
from typing import final

from deniable.errors import DeniableError
from deniable.ledger import Ledger
from deniable.server.catalogue.catalogue import DatasetRecord
from deniable.server.datasets.ledger_witness import Witness
from deniable.server.operations.security_events import of_dataset
from deniable.server.problems import Problem


@final
class Fate(Enum):
    """Whether a question that failed was charged; the values are the words for the client."""

    FREE = "nothing was charged"
    CHARGED = "it was charged"
    ANSWERED = "it was charged, and the answer is kept: ask the same again, free of charge"
    UNKNOWN = "it may have been charged"

    @property
    def charged(self) -> bool | None:
        """Whether the work was charged; None if this is unknown."""
        return None if self is Fate.UNKNOWN else self is not Fate.FREE


class ThreadWork(threading.local):
    """What each thread works on, for the error message if the work fails."""

    dataset: DatasetRecord | None = None
    """The dataset, once the person is known to see it."""

    ledger: Ledger | None = None
    """The ledger that pays, for work that is charged."""

    family: str = ""
    key: str | None = None
    """The idempotency key of the request, as the ledger knows it."""

    charged: bool | None = None
    """Whether the sealed answer was charged (not replayed); None before an answer is sealed."""

    def begin(self) -> None:
        """Forget the last work of this thread."""
        self.ledger = self.key = self.charged = self.dataset = None

    def place(self, error: BaseException) -> None:
        """Attach the dataset of this work to an error, for the security log."""
        if self.dataset is not None:
            of_dataset(error, self.dataset.name, self.dataset.family)

    def fate(self, witness: Witness) -> Fate | None:
        """Whether this work was charged although it failed; None for work that never charges.

        A charge stays after a failure, so the client must be informed, and `witness` must note the new entries.
        """
        if self.ledger is None:
            return None
        with contextlib.suppress(Problem, DeniableError):  # the failure is in the ledger in any case
            witness.note(self.family, self.ledger)
        if self.charged is not None:
            return Fate.ANSWERED if self.charged else Fate.FREE
        if self.key is not None:
            with contextlib.suppress(DeniableError):
                return Fate.FREE if self.ledger.keyed(self.key) is None else Fate.CHARGED
        return Fate.UNKNOWN
