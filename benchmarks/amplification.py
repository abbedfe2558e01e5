"""Amplification beside other libraries, in one run: ε at δ with CPU seconds, one table for each kind.

    .venv-bench-amplification/bin/python benchmarks/amplification.py

Every row is computed by both in the same process, ours first. Ours are certified (low, high), both counted in the time.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from deniable import curves
from deniable.curves import Curve

ALLOCATED = [
    (1.0, 10, 1e-6),
    (1.0, 100, 1e-6),
    (1.0, 200, 1e-10),
    (0.5, 100, 1e-6),
    (1.0, 1000, 1e-6),
    (2.0, 1000, 1e-6),
]
"""Noise, steps and δ of one epoch of random allocation."""


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result of a call, and its CPU seconds."""
    start = time.process_time()
    return work(), time.process_time() - start


def ours(make: Callable[[], Curve], delta: float) -> list[str]:
    """Cells of a row: low, high, and CPU seconds of making the curve and asking it."""
    (low, high), seconds = timed(lambda: make().epsilon_bounds(delta=delta))
    return [f"{low:.5f}", f"{high:.5f}", f"{seconds:.2f}"]


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table in Markdown."""
    print(f"\n## {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def allocation() -> None:
    """Random allocation beside PLD_accounting, whose (upper, lower) bounds are for the same pair of laws."""
    import PLD_accounting

    rows = []
    for sigma, steps, delta in ALLOCATED:
        mine = ours(lambda s=sigma, t=steps: curves.gaussian(sigma=s).allocated(steps=t), delta)
        (high, low), seconds = timed(
            lambda s=sigma, t=steps, d=delta: PLD_accounting.gaussian_allocation_epsilon_range(
                sigma=s, num_steps=t, delta=d
            )
        )
        rows.append(
            [f"σ = {sigma:g}, {steps} steps, δ = {delta:g}", *mine, f"{low:.5f}", f"{high:.5f}", f"{seconds:.2f}"]
        )
    table("Random allocation", ["run", "low", "high", "s", "PLD_accounting low", "high", "s"], rows)


SHUFFLED = [(1.0, 1_000), (1.0, 100_000), (2.0, 10_000), (4.0, 100_000)]
"""ε₀ of a report, and people."""


def published(epsilon: float, people: int, delta: float) -> str:
    """The closed formula of Feldman, McMillan & Talwar (2021); it needs ε₀ <= log(n/(16 log(2/δ)))."""
    if epsilon > math.log(people / (16 * math.log(2 / delta))):
        return "–"
    odds = math.exp(epsilon)
    spread = 8 * math.sqrt(odds * math.log(4 / delta) / people) + 8 * odds / people
    return f"{math.log(1 + (odds - 1) / (odds + 1) * spread):.4f}"


def shuffling() -> None:
    """Shuffled reports beside the published formula: any report, two answers, and ten answers."""
    rows = []
    for epsilon, people in SHUFFLED:
        kinds = [
            curves.pure(epsilon=epsilon),
            curves.randomized_response(epsilon=epsilon),
            curves.randomized_response(epsilon=epsilon, categories=10),
        ]
        bounds, seconds = timed(lambda k=kinds, n=people: [c.shuffled(people=n).epsilon_bounds(delta=1e-6) for c in k])
        told = [f"{bounds[0][1]:.4f}", *(f"{low:.4f} to {high:.4f}" for low, high in bounds[1:])]
        rows.append([f"ε₀ = {epsilon:g}, {people:,} people", published(epsilon, people, 1e-6), *told, f"{seconds:.2f}"])
    head = ["reports", "formula, any report", "ours, any report", "two answers", "ten answers", "s, all three"]
    table("Shuffled reports", head, rows)


def main() -> None:
    """All tables."""
    warnings.simplefilter("ignore")
    allocation()
    shuffling()


if __name__ == "__main__":
    main()
