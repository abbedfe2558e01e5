"""Copies in the background: none is being made when the interpreter exits."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading
from deniable.queries.engines.copy_making import CopyMaker
from deniable.queries.engines.row_positions import Wish

started, stopped = threading.Event(), threading.Event()

def make(wish):
    started.set()
    stopped.wait()
    print("stopped", flush=True)

maker = CopyMaker(make, stopped.set)
maker.wish(Wish("t", "x", True))
started.wait()
"""


def test_the_copy_that_is_being_made_is_stopped_at_exit() -> None:
    """A thread that is inside the database while the interpreter shuts down could abort the process."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")
