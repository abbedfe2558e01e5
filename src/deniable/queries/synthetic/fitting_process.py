"""Fit a distribution and draw rows in a process of its own, with caps on CPU time and memory, for one download.

The process gets noisy counts and the public schema, but no data. So its running time, and whether it fails, reveals
nothing that the counts do not reveal.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final

from deniable.errors import EngineFailed
from deniable.queries.synthetic.synthetic_records import read_record, write_rows

_CODE: Final = "import sys; from deniable.queries.synthetic.fitting_process import serve; serve(sys.argv[1])"
_POLITE: Final = 10
"""The niceness of the process."""


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a process."""

    cpu: int = 120
    """Seconds of CPU time."""
    seconds: float = 300.0
    """Seconds of wall-clock time."""
    space: int = 4 << 30
    """Bytes of address space, most of which is reserved and never used."""
    size: int = 1 << 30
    """Bytes of a file."""


LIMITS: Final = Limits()


def write_apart(record: Mapping[str, Any], count: int, path: Path, form: str, limits: Limits = LIMITS) -> list[str]:
    """Write `count` rows of a synthetic table to a file, and return its notes.

    Raises `EngineFailed` if the process exceeds a limit, or fails.
    """
    work = json.dumps({"record": record, "count": count, "path": str(path), "form": form, **asdict(limits)}).encode()
    known = os.pathsep.join(each for each in sys.path if each)
    alone = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    notes = path.with_name(f"{path.name}.notes")
    process = subprocess.Popen(
        [sys.executable, "-c", _CODE, str(notes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **alone, "PYTHONPATH": known},
        start_new_session=True,
    )
    try:
        process.communicate(work, limits.seconds)
    except subprocess.TimeoutExpired:
        raise EngineFailed("time") from None
    finally:
        process.kill()
        process.wait()
    if process.returncode != 0 or not notes.exists():
        raise EngineFailed("time" if process.returncode < 0 else "engine")
    found: list[str] = json.loads(notes.read_text(encoding="utf-8"))
    notes.unlink()
    return found


def serve(notes: str) -> None:
    """The work of the process: read the request from stdin, write the rows and the notes."""
    work = json.loads(sys.stdin.buffer.read())
    _limit(work["cpu"], work["space"], work["size"])
    made = read_record(work["record"])
    write_rows(made, work["count"], Path(work["path"]), work["form"])
    Path(notes).write_text(json.dumps(list(made.notes)), encoding="utf-8")


def _limit(cpu: int, space: int, size: int) -> None:
    if os.name != "posix":
        return
    import resource

    os.nice(_POLITE)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
