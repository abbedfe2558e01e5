"""The threshold for keys of one unit alone, against every way in which that unit may spread its rows."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from deniable.mechanisms.additive_noise import DiscreteLaplace, Gaussian
from deniable.mechanisms.histogram import least_threshold

NOISES = {
    "laplace": DiscreteLaplace(sensitivity=3, epsilon=0.7),
    "narrow": DiscreteLaplace(sensitivity=1, epsilon=4.0),
    "gaussian": Gaussian.whole(sensitivity=3, sigma=5.0),
    "sharp": Gaussian.whole(sensitivity=1, sigma=0.6),
}


def tail(noisy: object, reach: int) -> float:
    """P(noise >= reach), summed or from the error function: nothing of the library's own."""
    if isinstance(noisy, DiscreteLaplace):
        r = math.exp(-1 / float(noisy.width))
        return r**reach / (1 + r)
    assert isinstance(noisy, Gaussian)
    return math.erfc((reach - 0.5) / float(noisy.width) / math.sqrt(2)) / 2


def splits(rows: int, each: int) -> Iterator[list[int]]:
    """Every way to spread at most `rows` rows over keys, at most `each` in one."""

    def parts(left: int, most: int) -> Iterator[list[int]]:
        yield []
        for size in range(min(left, most), 0, -1):
            for rest in parts(left - size, size):
                yield [size, *rest]

    return parts(rows, each)


def shown(noisy: object, rows: int, each: int, threshold: int) -> float:
    worst = 0.0
    for split in splits(rows, each):
        hidden = sum(math.log1p(-tail(noisy, threshold - size)) for size in split)
        worst = max(worst, -math.expm1(hidden))
    return worst


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize(("rows", "each"), [(1, 1), (5, 1), (5, 5), (5, 2), (7, 3), (9, 4), (12, 5)])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
def test_no_way_to_spread_rows_is_shown_more_often(name: str, rows: int, each: int, delta: float) -> None:
    noisy = NOISES[name]
    least = least_threshold(noisy, rows=rows, each=each, delta=delta)
    assert shown(noisy, rows, each, least) <= delta * (1 + 1e-9)
    if least > each + 1:
        assert shown(noisy, rows, each, least - 1) > delta * (1 - 1e-9), "and one less would be too low"
