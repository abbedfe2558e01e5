"""The long run: a thousand kills at random moments, and one before each SQL statement; nothing spent is forgotten.

    python -m tests.ledger.long_run [--kills 1000] [--seed N]

Exits with an AssertionError that says what was forgotten, if anything was.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from rich.progress import Progress, TaskID

from tests.ledger.victims import exact_kills, in_folder, random_kills


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000, help="at random moments")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    asked = parser.parse_args()
    print(f"seed {asked.seed}")
    began = time.monotonic()
    # No thread may run beside the forks, so the bar is drawn by hand.
    with tempfile.TemporaryDirectory() as folder, Progress(auto_refresh=False) as progress:
        exact = progress.add_task("before each statement", total=None)

        def tick(task: TaskID) -> None:
            progress.update(task, advance=1, refresh=True)

        points = exact_kills(in_folder(Path(folder), "exact"), 4, lambda: tick(exact))
        anywhere = progress.add_task("at random moments", total=asked.kills)
        seen = random_kills(in_folder(Path(folder), "ledger"), asked.kills, asked.seed, lambda: tick(anywhere))
    print(f"{points} kills, one before each SQL statement of four questions: nothing forgotten")
    print(
        f"{seen['kills']} kills at random moments, {seen['ledgers']} ledgers: {seen['granted']} grants heard of, "
        f"{seen['answered']} answers given out, {seen['unheard']} charged to the dead; nothing forgotten"
    )
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
