"""kill -9 between any two steps, torn logs, full disks, read-only files: a spend is never forgotten."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from deniable.ledger import Budget, Ledger
from deniable.units import Unit
from tests.postgres import Postgres

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def run(*command: str) -> str:
    """In an interpreter of its own, which forks and has no threads."""
    finished = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-3000:]
    return finished.stdout


def in_an_open_folder(code: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        before = "from pathlib import Path; from tests.ledger import victims; folder = Path({!r}); "
        return run("-c", before.format(folder) + code).strip()


@pytest.mark.slow
def test_two_hundred_kills_at_random_moments_and_one_before_each_statement() -> None:
    said = run("-m", "tests.ledger.long_run", "--kills", "200")
    [points] = re.findall(r"^(\d+) kills, one before each SQL statement", said, flags=re.MULTILINE)
    [(kills, answers)] = re.findall(
        r"^(\d+) kills at random moments.*, (\d+) answers given out", said, flags=re.MULTILINE
    )
    assert int(points) > 50
    assert kills == "200"
    assert int(answers) > 50, said


@pytest.mark.slow
def test_the_victims_would_find_a_ledger_that_commits_late() -> None:
    """The power of the test above: the same kills, of a ledger that says yes before it has written."""
    code = 'victims.exact_kills(victims.in_folder(folder, "late"), 2, lambda: None, sabotage=victims.commit_late)'
    with pytest.raises(AssertionError, match="forgot the spend of entry"):
        in_an_open_folder(code)


def test_a_full_disk_grants_nothing_that_is_not_written() -> None:
    code = 'print(victims.full_disk(victims.in_folder(folder, "full"), range(20_000, 140_000, 4_000)))'
    assert int(in_an_open_folder(code)) == 30
    shared = "lambda number: f'sqlite:///{folder}/full-{number}.db'"
    assert int(in_an_open_folder(f"print(victims.full_disk({shared}, range(30_000, 300_000, 27_000)))")) == 10


@pytest.mark.slow
def test_kills_before_each_statement_of_a_shared_database() -> None:
    """While the tables are made, and then while they are used: every statement and every commit."""
    fresh = "lambda number: f'sqlite:///{folder}/fresh-{number}.db'"
    assert int(in_an_open_folder(f"print(victims.exact_kills({fresh}, 0, lambda: None))")) > 15
    shared = "lambda number: f'sqlite:///{folder}/shared.db#{number}'"
    assert int(in_an_open_folder(f"print(victims.exact_kills({shared}, 4, lambda: None))")) > 70


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
def test_kills_before_each_statement_and_at_random_moments_on_postgres(postgres: Postgres, isolation: str) -> None:
    code = (
        "from tests.postgres import Postgres; from itertools import count; "
        f"server = Postgres(Path({str(postgres.folder)!r}), Path(), {{}}, count()); "
        f"fresh = lambda number: server.database(isolation={isolation!r}); url = fresh(0); "
        "print(victims.exact_kills(fresh, 0, lambda: None)); "
        "print(victims.exact_kills(lambda number: f'{url}#{number}', 4, lambda: None)); "
        "print(victims.random_kills(lambda number: f'{url}#many-{number}', 60, 7, lambda: None)['kills'])"
    )
    opening, using, kills = map(int, in_an_open_folder(code).split())
    assert opening > 15
    assert using > 70
    assert kills == 60


def test_a_file_that_may_only_be_read() -> None:
    writable, locked = in_an_open_folder("print(*victims.read_only(folder), sep='\\n')").splitlines()
    assert writable.startswith("charged True / ")
    assert writable.endswith("cannot be opened for writing")
    assert locked.endswith("cannot be opened for writing")


def test_a_log_torn_anywhere_leaves_a_whole_beginning(tmp_path: Path) -> None:
    """What a machine that loses power may leave: the write-ahead log, cut at any byte."""
    budget = Budget.pure(epsilon=1)
    with Ledger.open(tmp_path / "ledger", budget=budget, unit=Unit.row(), dataset="d") as ledger:
        for number in range(6):
            entry = ledger.reserve(budget.cost(epsilon=0.1), question=f"{number:064x}", description="x")
            ledger.seal(entry, bytes(300))
        history = list(ledger.entries())
        shutil.copy(tmp_path / "ledger", tmp_path / "kept")
        log = (tmp_path / "ledger-wal").read_bytes()
    lengths = set()
    frame = 4096 + 24
    for cut in sorted({0, len(log), *range(32, len(log), frame), *range(1, len(log), 3001)}):
        shutil.copy(tmp_path / "kept", tmp_path / "torn")
        (tmp_path / "torn-wal").write_bytes(log[:cut])
        (tmp_path / "torn-shm").unlink(missing_ok=True)
        with Ledger.inspect(tmp_path / "torn") as torn:
            torn.verify()
            found = list(torn.entries())
            assert found == history[: len(found)]
            lengths.add(len(found))
    assert lengths == set(range(13))
