"""Whether threads are started while a batch is worked on: torch is followed in the thread of the loop alone."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any, Final, final

_open: Final[list[Threads]] = []
"""Those that want to know; whoever starts a thread meanwhile, each of them hears of it."""

_lock: Final = threading.Lock()
_before: Any = None
"""The profiler of new threads that somebody else has set."""


@final
class Threads:
    """Whether threads of Python were started since `begin`: by `threading`, an executor, `nn.DataParallel`.

    Threads that were there before may get work without a word, and are not seen.
    """

    def __init__(self) -> None:
        self._has_started = False

    def begin(self) -> None:
        """From now on."""
        self._has_started = False
        global _before
        with _lock:
            if self not in _open:
                _open.append(self)
            if threading.getprofile() is not _hear:
                _before = threading.getprofile()
                threading.setprofile(_hear)

    def end(self) -> bool:
        """No longer; and whether there were any."""
        with _lock:
            if self in _open:
                _open.remove(self)
                if not _open and threading.getprofile() is _hear:
                    threading.setprofile(_before)
        return self._has_started

    def hear(self) -> None:
        self._has_started = True


def _hear(frame: FrameType, event: str, given: Any) -> None:
    """Called by a new thread before it does anything; from then on its profiler is what it would have been."""
    sys.setprofile(_before)
    for each in tuple(_open):
        each.hear()
    if _before is not None:
        _before(frame, event, given)
