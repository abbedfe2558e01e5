"""A wheel's law in three steps, each against mpmath or Fractions: the weights, the whole cells, and what they leave over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from deniable import noise
from deniable.errors import InvalidParameter
from deniable.noise.inversion_table import CELLS, CHUNK, WORD
from deniable.noise.weighted_wheel import MOST_ITEMS, Leftover, Weighted, whole_cells
from tests.noise.exact import Chosen, at_many_bits, chi_square_limit, real

F = Fraction
Weights = tuple[Sequence[Any], Sequence[Any]]

WHEELS: dict[str, Weights] = {
    "coin": ([1, 1], [0, 1]),
    "nearly-sure": ([1, 1], [0, 50]),
    "hardly-unfair": ([1, 1], [0, F(1, 10**6)]),
    "byte": ([F(7, 2) ** -byte.bit_count() for byte in range(256)], [F(0)] * 256),
    "byte-exp": ([1] * 256, [-byte.bit_count() for byte in range(256)]),
    "hundred": ([1] * 100, [1] + [0] * 99),
    "three-hundred": ([1] * 300, [F(1, 3)] + [0] * 299),
    "mixed": ([F(1, 3), 5, F(2, 7), 10**30], [F(1, 2), -3, 2.5, -70]),
    "far-apart": ([1, 1, 1], [0, -1000, 3]),
    "dyadic": ([1, 2, 4, 1], [0, 0, 0, 0]),
    "last-fits": ([F(1, 3), F(1, 6), F(1, 2)], [0, 0, 0]),
    "first-fits": ([F(1, 2), F(1, 3), F(1, 6)], [7, 7, 7]),
    "alone": ([3], [1]),
}
NAMED = [pytest.param(weights, id=name) for name, weights in WHEELS.items()]


def law_of(weights: Weights) -> Weighted:
    factors, exponents = weights
    return Weighted.of([F(f) for f in factors], [F(e) for e in exponents])


def masses(weights: Weights) -> list[mpf]:
    """The probabilities at 600 bits, by the textbook."""
    each = [real(f) * mpmath.exp(real(e)) for f, e in zip(*weights, strict=True)]
    whole = mpmath.fsum(each)
    return [one / whole for one in each]


def wheel_of(weights: Weights) -> noise.Wheel:
    return noise.Wheel(weights=weights[0], log_weights=weights[1])


@pytest.mark.parametrize("weights", NAMED)
@pytest.mark.parametrize("bits", [64, 128, 200])
def test_cumulative_probabilities_enclose_the_truth(weights: Weights, bits: int) -> None:
    with at_many_bits():
        truth, below = masses(weights), mpf(0)
        found = law_of(weights).cumulative(bits, bits)
        assert (found.first, found.open_below, found.open_above) == (0, False, False)
        assert len(found.lows) == len(found.highs) == len(truth) - 1
        for low, high, mass in zip(found.lows, found.highs, truth[:-1], strict=True):
            below += mass
            assert low - mpf(2) ** -300 <= below * 2**bits <= high + mpf(2) ** -300
            assert high - low <= 2


@pytest.mark.parametrize("weights", NAMED)
def test_no_item_owns_more_cells_than_its_probability_fills(weights: Weights) -> None:
    with at_many_bits():
        for cells, mass in zip(whole_cells(law_of(weights)), masses(weights), strict=True):
            assert cells <= mass * CELLS + mpf(2) ** -300
            assert cells > mass * CELLS - 1 - mpf(2) ** -60


@pytest.mark.parametrize("weights", NAMED)
@pytest.mark.parametrize("bits", [64, 128, 200])
def test_cells_and_what_is_left_over_make_up_the_law(weights: Weights, bits: int) -> None:
    """(cells_0 + ... + cells_k + R × leftover F(k)) / 2^16 encloses F(k), and bounds rise."""
    law = law_of(weights)
    cells = whole_cells(law)
    left = CELLS - sum(cells)
    if not left:
        return
    sums = np.cumsum(cells).tolist()
    found = Leftover(law, tuple(sums[:-1]), left).cumulative(bits, bits)
    assert found.lows == sorted(found.lows)
    assert found.highs == sorted(found.highs)
    assert all(0 <= low < 2**bits and high <= 2**bits for low, high in zip(found.lows, found.highs, strict=True))
    with at_many_bits():
        below = mpf(0)
        for k, mass in enumerate(masses(weights)[:-1]):
            below += mass
            truth = (CELLS * below - sums[k]) / left * 2**bits
            assert found.lows[k] - mpf(2) ** -200 <= truth <= found.highs[k] + mpf(2) ** -200
            assert found.highs[k] - found.lows[k] <= 4


def test_rational_weights_leave_over_exactly_what_is_missing() -> None:
    """In Fractions: with 1/3, 1/6 and 1/2, a third and two thirds of one cell are left over, and nothing of the last."""
    law = law_of(WHEELS["last-fits"])
    cells = whole_cells(law)
    assert cells in ([21845, 10922, 32768], [21845, 10922, 32767])
    assert sum(whole_cells(law_of(WHEELS["dyadic"]))) == CELLS


@pytest.mark.parametrize("weights", NAMED)
def test_every_cell_is_owned_by_the_item_that_it_was_given_to(weights: Weights) -> None:
    """All 2^16 cells, one after the other: items in order, as many cells each as they own."""
    cells = whole_cells(law_of(weights))
    owned = np.arange(sum(cells), dtype="<u2")
    padded = np.zeros(-(-owned.size // 4) * 4, dtype="<u2")
    padded[: owned.size] = owned
    in_chunks = [padded[at : at + CHUNK].view("<u8").tolist() for at in range(0, padded.size, CHUNK)]
    entropy = Chosen([word for words in in_chunks for word in words])
    drawn = wheel_of(weights).spin(size=owned.size, entropy=entropy)
    assert entropy.left == []
    assert np.array_equal(drawn, np.repeat(np.arange(len(cells)), cells))


@pytest.mark.slow
@pytest.mark.parametrize("weights", [p for p in NAMED if p.id not in ("dyadic", "alone")])
@pytest.mark.parametrize("agree", [1, 2, 4])
def test_bits_that_run_along_what_is_left_over(weights: Weights, agree: int) -> None:
    """A spin beyond the owned cells: u agrees with the leftover F(k) in `agree` words, then lies to one side of it."""
    wheel, cells = wheel_of(weights), whole_cells(law_of(weights))
    sums, left = np.cumsum(cells).tolist(), CELLS - sum(cells)
    with at_many_bits():
        truth = masses(weights)
        rest = [mass * CELLS - own for mass, own in zip(truth, cells, strict=True)]
        checked = 0
        for k in range(0, len(cells) - 1, 29 if len(cells) > 29 else 1):
            threshold = mpmath.fsum(rest[: k + 1]) / left
            whole = int(threshold * mpf(2) ** (WORD * (agree + 1)))
            along = [(whole >> (WORD * (agree - i))) & (2**WORD - 1) for i in range(agree + 1)]
            if not 1 < along[-1] < 2**WORD - 2 or whole >> (WORD * (agree + 1)):
                continue
            for step in (-2, 2):
                u = mpf(whole + step) / mpf(2) ** (WORD * (agree + 1))
                expected = next(i for i in range(len(cells)) if u < mpmath.fsum(rest[: i + 1]) / left)
                bits = [along[0] >> 48, (along[0] << 16) & (2**WORD - 1), *along[1:-1], along[-1] + step]
                entropy = Chosen([sums[-1], *bits])  # the first cell that nobody owns
                assert wheel.spin(entropy=entropy) == expected
                assert entropy.left == []
            checked += 1
    assert checked or len(cells) == 3  # thirds of a cell may run along zeros only


@pytest.mark.parametrize("weights", [p for p in NAMED if p.id not in ("alone", "far-apart", "nearly-sure")])
def test_spins_have_their_law_and_a_wrong_one_is_caught(weights: Weights) -> None:
    """Chi-square over all items that are expected often enough, false alarm 1e-9; ten percent wrong odds are caught."""
    count = 400_000
    drawn = wheel_of(weights).spin(size=count, entropy=noise.ReplayEntropy(5))
    seen = np.bincount(drawn, minlength=len(weights[0])).astype(float)

    def statistic(chances: list[float]) -> tuple[float, float]:
        often = [i for i, chance in enumerate(chances) if chance * count >= 100]
        rest = count - seen[often].sum(), count * (1 - sum(chances[i] for i in often))
        pairs = [(seen[i], count * chances[i]) for i in often] + ([rest] if rest[1] >= 100 else [])
        return sum((a - b) ** 2 / b for a, b in pairs), chi_square_limit(len(pairs))

    with at_many_bits():
        truth = [float(mass) for mass in masses(weights)]
    found, limit = statistic(truth)
    assert found < limit
    # Wrong by ten percent: from the items in one half of the wheel to those in the other.
    tilted = [p * (1.05 if i < len(truth) / 2 else 0.95) for i, p in enumerate(truth)]
    found, limit = statistic([p / sum(tilted) for p in tilted])
    assert found > limit


def test_a_spin_is_a_number_and_several_are_an_array_of_the_smallest_type() -> None:
    assert isinstance(noise.Wheel(log_weights=[0, 1]).spin(), int)
    for items, kind in ((1, np.uint8), (256, np.uint8), (257, np.uint16), (MOST_ITEMS, np.uint16)):
        drawn = noise.Wheel(log_weights=[0] * items).spin(size=(3, 4))
        assert drawn.dtype == kind
        assert drawn.shape == (3, 4)
        assert drawn.max() < items
    assert noise.Wheel(log_weights=np.array([0.5, 1.5])).spin(size=0).size == 0
    many = noise.Wheel(log_weights=range(3), weights=iter([1, F(1, 2), 0.25])).spin(size=3 * CHUNK + 1)
    assert many.size == 3 * CHUNK + 1
    again = noise.Wheel(log_weights=[0, 1])
    assert np.array_equal(
        again.spin(size=99, entropy=noise.ReplayEntropy(1)), again.spin(size=99, entropy=noise.ReplayEntropy(1))
    )


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"log_weights": []}, "log_weights"),
        ({"log_weights": "01"}, "log_weights"),
        ({"log_weights": 3}, "log_weights"),
        ({"log_weights": [0, math.nan]}, "log_weights"),
        ({"log_weights": [0, math.inf]}, "log_weights"),
        ({"log_weights": [0, "1"]}, "log_weights"),
        ({"log_weights": [0, True]}, "log_weights"),
        ({"log_weights": [0] * (MOST_ITEMS + 1)}, "log_weights"),
        ({"log_weights": [0, 1], "weights": [1]}, "weights"),
        ({"log_weights": [0, 1], "weights": [1, 0]}, "weights"),
        ({"log_weights": [0, 1], "weights": [1, -2]}, "weights"),
        ({"log_weights": [0, 1], "weights": []}, "weights"),
    ],
)
def test_a_wheel_of_nothing_is_refused(given: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidParameter) as raised:
        noise.Wheel(**given)
    assert raised.value.parameter == name


def test_a_spin_that_means_nothing_is_refused() -> None:
    wheel = noise.Wheel(log_weights=[0, 1])
    for size in (-1, 1.5, "3", (2, -1), True):
        with pytest.raises(InvalidParameter, match="size"):
            wheel.spin(size=size)  # type: ignore[call-overload]
    with pytest.raises(InvalidParameter, match="entropy"):
        wheel.spin(entropy=7)  # type: ignore[call-overload]
