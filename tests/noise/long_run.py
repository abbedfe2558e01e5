"""The long run: 10⁹ draws from the process's own entropy; their signs, sizes and digits against the exact laws.

    python -m tests.noise.long_run [--draws 1000000000]

Each line is a chi-square statistic with the limit that it exceeds by chance once in 10⁹ runs. Exits with 1 if one does.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from mpmath import mp, mpf

from deniable import noise
from tests.noise import exact
from tests.noise.exact import Exact, chi_square_limit

CHUNK = 2**22
Draws = npt.NDArray[np.int64]


@dataclass
class Tally:
    """Counts in cells whose chances are known."""

    title: str
    cell: Callable[[Draws], npt.NDArray[np.intp]]
    chances: list[mpf]
    counts: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(len(self.chances), dtype=np.int64)

    def add(self, draws: Draws) -> None:
        self.counts += np.bincount(self.cell(draws), minlength=self.counts.size)

    def verdict(self) -> tuple[float, float]:
        """(statistic, limit). Cells join the next ones until 200 draws are expected in each."""
        expected = np.array([float(chance) for chance in self.chances]) * self.counts.sum()
        starts = [0]
        for i in range(1, expected.size):
            if expected[starts[-1] : i].sum() >= 200 and expected[i:].sum() >= 200:
                starts.append(i)
        counts, expected = np.add.reduceat(self.counts, starts), np.add.reduceat(expected, starts)
        return float(np.sum((counts - expected) ** 2 / expected)), chi_square_limit(len(starts))


def signs(law: Exact) -> Tally:
    chances = [law.cumulative(-1), law.cumulative(0) - law.cumulative(-1), 1 - law.cumulative(0)]
    if chances[1] * 10**6 > 1:
        return Tally("sign", lambda draws: np.sign(draws) + 1, chances)
    return Tally("sign", lambda draws: (draws >= 0).astype(np.intp), [chances[0], 1 - chances[0]])


def sizes(law: Exact, edges: list[int]) -> Tally:
    """The cells (-∞, e_1], (e_1, e_2], ..., (e_n, ∞)."""
    ends = [law.cumulative(edge) for edge in edges]
    chances = [ends[0], *(b - a for a, b in itertools.pairwise(ends)), 1 - ends[-1]]
    return Tally(f"{len(chances)} sizes", lambda draws: np.searchsorted(np.array(edges), draws, side="left"), chances)


def last_digit(law: Exact, base: int, reach: int) -> Tally:
    """|draw| mod base, from all masses up to `reach`."""
    chances = [mpf(0)] * base
    for k in range(-reach, reach + 1):
        chances[abs(k) % base] += law.mass(k)
    return Tally(f"last digit, base {base}", lambda draws: np.abs(draws) % base, chances)


def even_digit(base: int) -> Tally:
    """draw mod base, for laws so wide that all digits are as likely, to 15 places."""
    return Tally(f"draw mod {base}", lambda draws: draws % base, [mpf(1) / base] * base)


def works() -> list[tuple[str, Callable[[int], Draws], list[Tally]]]:
    wide = 1.3 * 2.0**32
    laplace, rounded = exact.discrete_laplace(10), exact.rounded_gaussian(3)
    gaussian = exact.rounded_gaussian(1000)  # the discrete one differs by 4e-8 of each cell's mass; 10⁹ draws see 1e-4
    wide_laplace, wide_rounded = exact.discrete_laplace(wide), exact.rounded_gaussian(wide)
    return [
        (
            "discrete_laplace(scale=10)",
            lambda n: noise.discrete_laplace(scale=10, size=n),
            [signs(laplace), sizes(laplace, list(range(-110, 111))), last_digit(laplace, 10, 900)],
        ),
        (
            "rounded_gaussian(sigma=3)",
            lambda n: noise.rounded_gaussian(sigma=3, size=n),
            [signs(rounded), sizes(rounded, list(range(-14, 14))), last_digit(rounded, 10, 60)],
        ),
        (
            "discrete_gaussian(sigma=1000)",
            lambda n: noise.discrete_gaussian(sigma=1000, size=n),
            [signs(gaussian), sizes(gaussian, list(range(-4500, 4501, 50))), even_digit(10), even_digit(256)],
        ),
        (
            "discrete_laplace(scale=5.6e9)",
            lambda n: noise.discrete_laplace(scale=wide, size=n),
            [
                signs(wide_laplace),
                sizes(wide_laplace, [int(wide * i / 10) for i in range(-110, 111)]),
                even_digit(10),
                even_digit(256),
            ],
        ),
        (
            "rounded_gaussian(sigma=5.6e9)",
            lambda n: noise.rounded_gaussian(sigma=wide, size=n),
            [
                signs(wide_rounded),
                sizes(wide_rounded, [int(wide * i / 20) for i in range(-90, 91)]),
                even_digit(10),
                even_digit(256),
            ],
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draws", type=int, default=10**9, help="how many in all")
    count = parser.parse_args().draws
    mp.prec = 200
    failed = False
    for title, draw, tallies in (plan := works()):
        drawing = 0.0
        left = each = count // len(plan)
        while left:
            began = time.process_time()
            draws = draw(min(left, CHUNK))
            drawing += time.process_time() - began
            for tally in tallies:
                tally.add(draws)
            left -= draws.size
        print(f"{title}: {each:,} draws, {each / drawing / 1e6:.0f} million a CPU second")
        for tally in tallies:
            statistic, limit = tally.verdict()
            failed |= statistic > limit
            print(
                f"  {tally.title:22} chi-square {statistic:9.1f}  limit {limit:9.1f}  {'too far' if statistic > limit else 'ok'}"
            )
    sys.exit(failed)


if __name__ == "__main__":
    main()
