"""The owner's log of failed runs, which were answered as if the tables were empty.

Whether a run fails can depend on one person's rows. So analysts, receipts, ledgers and metrics do not show it. The file
lies in the server's state folder, and owners see the entries of their own datasets.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Final, final

from deniable.queries.answer.remaining_budget import Failure

_SENT: Final = ("entry", "code", "time")


@final
class Failures:
    """A file of JSON lines. Processes may share it: each line is appended in one write."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, dataset: str, failure: Failure) -> None:
        """Append a failure."""
        record = {"dataset": dataset, "entry": failure.entry, "code": failure.code, "time": int(time.time())}
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, json.dumps(record).encode() + b"\n")
        finally:
            os.close(file)

    def of(self, dataset: str) -> list[dict[str, Any]]:
        """The failures of a dataset, oldest first: the charged entry, a code of `EngineFailed`, seconds since 1970."""
        if not self._path.exists():
            return []
        found = [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]
        return [{name: each[name] for name in _SENT} for each in found if each["dataset"] == dataset]
