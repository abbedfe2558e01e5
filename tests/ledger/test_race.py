"""Hundreds of threads in several processes on the last of a budget: exactly what fits is granted, wherever it is kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deniable.errors import BudgetExceeded
from deniable.ledger import Budget, Cost, Ledger
from tests.postgres import Postgres

BUDGETS = {
    "pure": (Budget.pure(epsilon=1), {"epsilon": 0.01}, 100),
    # A hundred would fit by μ²; δ runs out at 70.
    "gaussian": (Budget.gaussian(mu=1, delta="7e-9"), {"mu": "0.1", "delta": "1e-10"}, 70),
}

CONTENDER = """
import sys, threading
from deniable.errors import BudgetExceeded
from deniable.ledger import Budget, Ledger
from deniable.units import Unit
from tests.ledger.test_race import BUDGETS

path, name, process, count = sys.argv[1:]
count = int(count)
budget, amount, _ = BUDGETS[name]
cost = budget.cost(**amount)
sys.stdin.readline()
ledger = Ledger.open(path, budget=budget, unit=Unit.row(), dataset="race")
barrier, granted, refused = threading.Barrier(count), [], []

def contend(thread):
    barrier.wait()
    try:
        entry = ledger.reserve(cost, question=f"{thread:064x}", description="mine", key=f"{process}/{thread}")
        granted.append(ledger.seal(entry, b"").closes)
    except BudgetExceeded:
        refused.append(thread)

threads = [threading.Thread(target=contend, args=(thread,)) for thread in range(count)]
for thread in threads: thread.start()
for thread in threads: thread.join()
ledger.close()
print(len(refused), *granted)
"""


def race(place: str, name: str, *, processes: int, threads: int) -> None:
    budget, amount, fit = BUDGETS[name]
    command = [sys.executable, "-c", CONTENDER, place, name]
    contenders = [
        subprocess.Popen(
            [*command, str(process), str(threads)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(processes)
    ]
    for contender in contenders:
        assert contender.stdin is not None
        contender.stdin.write("go\n")
        contender.stdin.flush()
    granted: list[int] = []
    refused = 0
    for contender in contenders:
        said, errors = contender.communicate()
        assert contender.returncode == 0, errors
        turned_down, *numbers = map(int, said.split())
        refused += turned_down
        granted += numbers
    assert (len(granted), len(set(granted)), refused) == (fit, fit, processes * threads - fit)
    with Ledger.open(place) as ledger:
        assert ledger.verify().number == 2 * fit
        cost = budget.cost(**amount)
        assert ledger.charged == Cost(fit * cost.units, fit * cost.delta_units)
        with pytest.raises(BudgetExceeded):
            ledger.reserve(cost, question="0" * 64, description="one more")


@pytest.mark.parametrize("name", BUDGETS)
def test_four_processes_of_64_threads_share_the_last_of_a_budget(tmp_path: Path, name: str) -> None:
    race(str(tmp_path / "ledger"), name, processes=4, threads=64)


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["file", "database"])
def test_two_processes_of_256_threads_share_the_last_of_a_budget(tmp_path: Path, kept: str) -> None:
    place = str(tmp_path / "ledger") if kept == "file" else f"sqlite:///{tmp_path}/ledgers.db"
    race(place, "gaussian", processes=2, threads=256)


@pytest.mark.postgres
@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
def test_the_same_on_postgres(postgres: Postgres, isolation: str) -> None:
    race(postgres.database(isolation=isolation), "gaussian", processes=2, threads=256)
