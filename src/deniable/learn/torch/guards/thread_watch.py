"""Detects threads that start while a batch is processed: a trace covers only the thread of the training loop."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any, Final, final

_open: Final[list[Threads]] = []
"""All active watches. Each is notified of every new thread."""

_lock: Final = threading.Lock()
_before: Any = None
"""The profiler for new threads that other code had set before."""


@final
class Threads:
    """Whether Python threads were started since `begin`: by `threading`, an executor or `nn.DataParallel`.

    Work that is passed to threads from before `begin` is not detected.
    """

    def __init__(self) -> None:
        self._has_started = False

    def begin(self) -> None:
        """Start watching."""
        self._has_started = False
        global _before
        with _lock:
            if self not in _open:
                _open.append(self)
            if threading.getprofile() is not _on_new_thread:
                _before = threading.getprofile()
                threading.setprofile(_on_new_thread)

    def end(self) -> bool:
        """Stop watching. Returns whether a thread was started."""
        with _lock:
            if self in _open:
                _open.remove(self)
                if not _open and threading.getprofile() is _on_new_thread:
                    threading.setprofile(_before)
        return self._has_started

    def note(self) -> None:
        self._has_started = True


def _on_new_thread(frame: FrameType, event: str, given: Any) -> None:
    """Runs in a new thread before its own code, and restores the profiler that the thread would have had."""
    sys.setprofile(_before)
    for each in tuple(_open):
        each.note()
    if _before is not None:
        _before(frame, event, given)
