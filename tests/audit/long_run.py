"""The long run: every mechanism and the whole zoo by the million, and thousands of audits of mechanisms that are sound.

    python -m tests.audit.long_run [--quick N] [--slow N] [--audits N] [--only ours,zoo,coverage]

Ours are audited with a false alarm of 1e-9 each, tight ones must reach 0.9 of their claim; the zoo must be caught at
99.9 %; false findings must be no more frequent than said (the count is tested at 1e-9). Exits with 1 if one is not so.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from deniable import audit, curves
from deniable.audit import audit_commands, zoo
from deniable.errors import InvalidOperation
from deniable.testing import statistics
from tests.audit.cases import Case, cases

TIGHT = 0.9
SURE = 1 - 1e-9


def ours(quick: int, slow: int) -> bool:
    """Claimed ε, measured lower bound, ratio."""
    well = True
    print("| mechanism | δ | claimed ε | true on this pair | measured ε | measured / claimed | trials |")
    print("|---|---|---|---|---|---|---|")
    for case in cases():
        found = audit.measure(
            case.mechanism,
            neighbours=case.neighbours,
            trials=quick if case.quick else case.effort * (slow if case.tight else slow // 5),
            confidence=SURE,
            delta=case.delta,
            likelihood_ratio=case.likelihood_ratio,
            seconds=7200,
        )
        # Not blamed is not enough: something of each must be seen.
        fine = (
            found.verdict == "consistent"
            and found.epsilon <= found.claimed
            and (not case.tight or found.ratio >= TIGHT)
        )
        well &= fine
        mark = "" if fine else " **NOT SO**"
        tight = " (tight)" if case.tight else ""
        print(
            f"| {case.name}{tight}{mark} | {found.delta:g} | {found.claimed:.3f} | {true(case)} | {found.epsilon:.3f} | {found.ratio:.3f} "
            f"| {found.trials:,} |",
            flush=True,
        )
    return well


def true(case: Case) -> str:
    """ε on the pair, where the law is known."""
    try:
        curve = audit.exact(getattr(case.mechanism, "protocol", case.mechanism), neighbours=case.neighbours)
    except InvalidOperation:
        return ""
    return f"{curve.epsilon(delta=case.delta):.3f}"


def the_zoo(trials: int) -> bool:
    """Claim, truth, measured, caught."""
    well = True
    print("| mechanism | δ | claim | truth | measured | caught |\n|---|---|---|---|---|---|")
    for entry in zoo.entries.values():
        seen = zoo.look(entry, trials=trials, confidence=0.999)
        well &= seen.as_it_should
        measured = "exactly" if seen.finding is None else f"{seen.finding.epsilon:.3f}"
        caught = audit_commands.caught_or_not(seen)
        print(
            f"| {entry.name} | {entry.delta:g} | {entry.claimed:.4g} | {entry.truth:.4g} | {measured} | {caught} |",
            flush=True,
        )
    return well


Draw = Callable[[np.random.Generator, int, int], Any]
SOUND: dict[str, tuple[Draw, float, float]] = {
    # name: (answers about a neighbour, true ε at the δ asked, δ)
    "nothing, normal": (lambda rng, value, n: rng.normal(size=n), 0.0, 0.0),
    "nothing, a coin": (lambda rng, value, n: rng.integers(0, 2, n), 0.0, 0.0),
    "nothing, heavy tails": (lambda rng, value, n: rng.standard_cauchy(n) ** 3, 0.0, 0.0),
    "nothing, 200 outcomes": (lambda rng, value, n: rng.integers(0, 200, n), 0.0, 0.0),
    "nothing, two numbers": (lambda rng, value, n: rng.normal(size=(n, 2)), 0.0, 0.0),
    "randomized response": (lambda rng, value, n: (rng.random(n) < 1 / (1 + np.exp(-1))) ^ bool(value), 1.0, 0.0),
    "Laplace": (lambda rng, value, n: np.rint((value + rng.laplace(size=n)) * 2**20), 1.0, 0.0),
    "rare and telling": (lambda rng, value, n: rng.random(n) < 0.02 * np.exp(value), 1.0, 0.0),
    "Gaussian, δ = 0.1": (lambda rng, value, n: np.rint((value + rng.normal(size=n)) * 2**20), 1.1602, 0.1),
    "shown with δ = 0.05": (lambda rng, value, n: np.where(rng.random(n) < 0.05, value, 9), 0.0, 0.05),
}


def coverage(audits: int, trials: int = 400, confidence: float = 0.9) -> bool:
    """How often something false is certified."""
    rng, well = np.random.default_rng(), True
    print(
        f"| {audits:,} audits of {trials} + {trials} answers, each at {confidence:.0%} | ε above the truth | claim refuted | any |"
    )
    print("|---|---|---|---|")
    for name, (draw, truth, delta) in SOUND.items():
        claim = curves.approximate(epsilon=truth, delta=delta) if delta else curves.pure(epsilon=truth)
        if name.startswith("Gaussian"):
            claim = curves.gaussian(mu=1.0)
        high = refuted = either = 0
        for _ in range(audits):
            found = audit.compare(
                draw(rng, 0, trials), draw(rng, 1, trials), claim=claim, confidence=confidence, delta=delta
            )
            high += found.epsilon > truth + 1e-4
            refuted += bool(found.refuted)
            either += bool(found.refuted or found.epsilon > truth + 1e-4)
        fine = statistics.at_least(either, audits, probability=1 - confidence) > 1e-9
        well &= fine
        shares = " | ".join(f"{count / audits:.2%}" for count in (high, refuted, either))
        print(f"| {name}{'' if fine else ' **NOT SO**'} | {shares} |", flush=True)
    return well


def in_rounds(audits: int, most: int = 3000, confidence: float = 0.9) -> bool:
    """How often something false is certified by `until_decided`, which looks after every round."""
    well = True
    print(
        f"| {audits:,} audits in rounds, {most} + {most} answers at most, each at {confidence:.0%} | anything false |"
    )
    print("|---|---|")
    for name, (draw, truth, delta) in SOUND.items():
        claim = curves.approximate(epsilon=truth, delta=delta) if delta else curves.pure(epsilon=truth)
        if name.startswith("Gaussian"):
            claim = curves.gaussian(mu=1.0)
        mechanism, false = Drawn(draw), 0
        for _ in range(audits):
            found = audit.until_decided(
                mechanism, neighbours=(0, 1), claim=claim, most=most, confidence=confidence, delta=delta
            )
            false += bool(found.refuted or found.epsilon > truth + 1e-4)
        fine = statistics.at_least(false, audits, probability=1 - confidence) > 1e-9
        well &= fine
        print(f"| {name}{'' if fine else ' **NOT SO**'} | {false / audits:.2%} |", flush=True)
    return well


class Drawn:
    """Answers by the thousand."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw

    def many(self, value: int, count: int) -> Any:
        return self.draw(np.random.default_rng(), value, count)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", type=int, default=1_000_000, help="trials of mechanisms that answer by the million")
    options.add_argument(
        "--slow",
        type=int,
        default=100_000,
        help="trials of the others; a fifth of it where no tight claim is to be reached",
    )
    options.add_argument("--audits", type=int, default=2000)
    options.add_argument("--only", default="ours,zoo,coverage")
    asked = options.parse_args()
    begin, well = time.process_time(), True
    if "ours" in asked.only:
        well &= ours(asked.quick, asked.slow)
    if "zoo" in asked.only:
        well &= the_zoo(asked.quick)
    if "coverage" in asked.only:
        well &= coverage(asked.audits)
        well &= in_rounds(max(1, asked.audits // 4))
    print(f"\n{'all well' if well else 'NOT WELL'}, {time.process_time() - begin:.0f} CPU seconds")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
