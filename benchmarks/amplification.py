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


Mechanism = tuple[str, Callable[[], Curve], Callable[[], float]]
"""A row of the table of further laws: its name, our curve, and ε at δ = 10⁻⁶ by dp_accounting."""


def further() -> list[Mechanism]:
    """Mechanisms that dp_accounting has too, by its loss distributions (PLD) or its Rényi accountant (RDP)."""
    from dp_accounting import dp_event
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.privacy_accountant import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    from deniable.learn.truncated_batches import truncated_step

    def of(loss: Any, uses: int) -> float:
        return float((loss.self_compose(uses) if uses > 1 else loss).get_epsilon_for_delta(1e-6))

    def renyi(event: Any, uses: int, related: Any = NeighboringRelation.ADD_OR_REMOVE_ONE) -> float:
        return float(RdpAccountant(neighboring_relation=related).compose(event, uses).get_epsilon(1e-6))

    gaussian, replaced = curves.gaussian, NeighboringRelation.REPLACE_ONE
    sizes, shares = (0.0, 1.0, 2.0), (0.9, 0.08, 0.02)
    moved = [curves.identity(), gaussian(sigma=2), gaussian(sigma=1)]
    tuned = dp_event.ComposedDpEvent([dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(10.0), 4)])
    fixed = dp_event.SampledWithoutReplacementDpEvent(10_000, 100, dp_event.GaussianDpEvent(2.0))
    many = 1000
    return [
        (
            "discrete Gaussian noise, σ = 10, 100 times (PLD)",
            lambda: curves.discrete_gaussian(sigma=10) ** 100,
            lambda: of(pld.from_discrete_gaussian_mechanism(10), 100),
        ),
        (
            "discrete Laplace noise, scale 10, 100 times (PLD)",
            lambda: curves.discrete_laplace(scale=10) ** 100,
            lambda: of(pld.from_discrete_laplace_mechanism(0.1), 100),
        ),
        (
            "hidden moves by 0, 1 or 2, σ = 2, 100 times (PLD)",
            lambda: curves.hidden_mixture(shares, moved) ** 100,
            lambda: of(pld.from_mixture_gaussian_mechanism(2.0, sizes, shares), 100),
        ),
        (
            "truncated batches: 600 of 50,000 at rate .01, σ = 1, 1000 steps (PLD)",
            lambda: truncated_step(sigma=1.0, rate=0.01, records=50_000, truncate_at=600) ** many,
            lambda: of(pld.from_truncated_subsampled_gaussian_mechanism(50_000, 0.01, 600, 1.0), many),
        ),
        (
            "100 of 10,000 without replacement, one replaced, σ = 2, 1000 steps (RDP)",
            lambda: (
                gaussian(sigma=2).sampled_without_replacement(size=100, population=10_000, neighbours="replaced")
                ** many
            ),
            lambda: renyi(fixed, many, replaced),
        ),
        (
            "best of a geometric number of runs, mean 10, each 4 × σ = 10 (RDP)",
            lambda: curves.best_of_repeats(gaussian(sigma=10) ** 4, shape=1.0, gamma=0.1),
            lambda: renyi(dp_event.RepeatAndSelectDpEvent(tuned, 10.0, 1.0), 1),
        ),
        (
            "best of a Poisson number of runs, mean 10, each 4 × σ = 10 (RDP)",
            lambda: curves.best_of_poisson_repeats(gaussian(sigma=10) ** 4, mean=10),
            lambda: renyi(dp_event.RepeatAndSelectDpEvent(tuned, 10.0, math.inf), 1),
        ),
        (
            "zCDP with ρ = 0.1 (RDP)",
            lambda: curves.zcdp(rho=0.1),
            lambda: renyi(dp_event.ZCDpEvent(0.1), 1),
        ),
    ]


def others() -> None:
    """Further laws beside dp_accounting."""
    rows = []
    for name, make, peer in further():
        mine = ours(make, 1e-6)
        theirs, seconds = timed(peer)
        rows.append([name, *mine, f"{theirs:.5f}", f"{seconds:.2f}"])
    table("Further laws", ["run, δ = 1e-6", "low", "high", "s", "dp_accounting", "s"], rows)


def main() -> None:
    """All tables."""
    warnings.simplefilter("ignore")
    allocation()
    shuffling()
    others()


if __name__ == "__main__":
    main()
