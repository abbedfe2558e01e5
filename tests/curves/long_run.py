"""The long run of curves: properties of a hundred thousand random products.

    python -m tests.curves.long_run [--products N] [--seed SEED] [--processes N]

Of every product: its bounds on ε do not cross, and `epsilon` is the upper one. A longer product is never tighter. A
product in which one law is replaced by one that leaks more is never better. "Never" means that the certified bounds do
not contradict each other: the upper end of what must be larger is at least the lower end of what must be smaller. Exits
with 1 if a product breaks one of these.

The default draws 102,000 curves, three for each product, in about 25 CPU minutes. It draws the same products whatever
the number of processes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import secrets
import sys
import time

import numpy as np

from deniable import curves
from deniable.curves import Curve

KINDS = ("gaussian", "laplace", "randomized_response", "sampled", "discrete_laplace")


PART = 40
"""Products that one process draws from one generator."""


def random_law(generator: np.random.Generator) -> tuple[Curve, Curve]:
    """A random law, and one of the same kind that leaks more."""

    def between(low: float, high: float) -> float:
        return float(np.exp(generator.uniform(np.log(low), np.log(high))))

    kind, worse = generator.choice(KINDS), between(1.01, 2.0)
    if kind == "gaussian":
        sigma = between(2.0, 200.0)
        return curves.gaussian(sigma=sigma), curves.gaussian(sigma=sigma / worse)
    if kind == "laplace":
        scale = between(2.0, 200.0)
        return curves.laplace(scale=scale), curves.laplace(scale=scale / worse)
    if kind == "randomized_response":
        epsilon = between(1e-3, 0.5)
        return curves.randomized_response(epsilon=epsilon), curves.randomized_response(epsilon=epsilon * worse)
    if kind == "discrete_laplace":
        scale = between(3.0, 50.0)
        return curves.discrete_laplace(scale=scale), curves.discrete_laplace(scale=scale / worse)
    rate, sigma = between(1e-3, 0.4), between(0.7, 8.0)
    base = curves.gaussian(sigma=sigma)
    return base.sampled(rate=rate), base.sampled(rate=rate * worse)


def broken(generator: np.random.Generator) -> str | None:
    """One random product: what it breaks, or None."""
    law, worse = random_law(generator)
    count = int(np.exp(generator.uniform(0, np.log(3000))))
    rest = curves.identity()
    # Products of three kinds take a hundred times as long as powers of one: most draws have one kind.
    others = int(generator.choice([0, 1, 2], p=[0.9, 0.08, 0.02]))
    for _ in range(others):
        rest = rest * random_law(generator)[0] ** int(np.exp(generator.uniform(0, np.log(300))))
    delta = float(10 ** generator.uniform(-12, -3))
    product = law**count * rest
    low, high = product.epsilon_bounds(delta=delta)
    said = f"{product} at δ = {delta!r}: [{low!r}, {high!r}]"
    if not 0 <= low <= high:
        return f"bounds cross: {said}"
    if generator.random() < 0.1 and product.epsilon(delta=delta) != high:
        return f"epsilon is not the upper end: {said}"
    longer = (product * law).epsilon(delta=delta)
    if longer < low:
        return f"a longer product is tighter ({longer!r}): {said}"
    coarser = (worse * law ** (count - 1) * rest).epsilon(delta=delta)
    if coarser < low:
        return f"a product that leaks more is better ({coarser!r}): {said}"
    return None


def broken_in(task: tuple[int, int, int]) -> list[str]:
    """What the products of one part break: the seed, the number of the part, and how many products it draws."""
    seed, part, products = task
    generator = np.random.default_rng([seed, part])
    return [wrong for _ in range(products) if (wrong := broken(generator)) is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--products", type=int, default=34_000, help="each comes with two others beside it")
    parser.add_argument("--seed", type=int, help="a fresh one by default; it is printed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    print(f"{3 * options.products} random curves, seed {seed}", flush=True)
    whole, rest = divmod(options.products, PART)
    tasks = [(seed, part, PART) for part in range(whole)] + ([(seed, whole, rest)] if rest else [])
    found, began = 0, time.monotonic()
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for done, wrongs in enumerate(pool.imap_unordered(broken_in, tasks), 1):
            found += len(wrongs)
            for wrong in wrongs:
                print(wrong, flush=True)
            if done % 50 == 0 or done == len(tasks):
                print(f"{done} of {len(tasks)} parts, {found} broken, {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
