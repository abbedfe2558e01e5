"""Fitting and drawing in a process of its own, with a cap on CPU time and memory: the work of one download.

The process gets noisy counts and the public schema, and no data. So how long it takes, and whether it fails, says
nothing about anybody that the counts do not say.
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
"""How nice the process is to others on the machine."""


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """What a process may take."""

    cpu: int = 120
    """Seconds of CPU time."""
    seconds: float = 300.0
    space: int = 4 << 30
    """Address space, in bytes: most of it is reserved and never touched."""
    size: int = 1 << 30
    """Bytes of the file."""


LIMITS: Final = Limits()


def write_apart(record: Mapping[str, Any], count: int, path: Path, form: str, limits: Limits = LIMITS) -> list[str]:
    """So many rows of a record into a file; what to know about them, a sentence each. EngineFailed beyond a limit."""
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
    """What the process does."""
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
