"""The owner's log: which runs could not be finished, and were answered as if the tables were empty.

Whether a run fails can depend on one person, so no analyst, no receipt, no ledger and no metric tells it. The file lies
in the server's state folder, and owners read what concerns their own datasets.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Final, final

from deniable.queries.answer.remaining_budget import Failure

_TOLD: Final = ("entry", "code", "time")


@final
class Failures:
    """A file with a line for each. Processes may share it: a line is written at once, at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, dataset: str, failure: Failure) -> None:
        """Write one down."""
        record = {"dataset": dataset, "entry": failure.entry, "code": failure.code, "time": int(time.time())}
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, json.dumps(record).encode() + b"\n")
        finally:
            os.close(file)

    def of(self, dataset: str) -> list[dict[str, Any]]:
        """Those of a dataset, oldest first: the entry that paid, one of the codes of `EngineFailed`, and when."""
        if not self._path.exists():
            return []
        found = [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]
        return [{name: each[name] for name in _TOLD} for each in found if each["dataset"] == dataset]
