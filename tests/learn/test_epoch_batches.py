"""Allocated and shuffled batches: who is drawn, what it costs, and what shuffling leaks at least."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest

from deniable import curves, learn
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.learn.epoch_batches import EpochDraws, allocated_numbers, least_epsilon
from tests.wording import worded


def plan(batches: str = "allocated", **more):
    return learn.DPSGD(**{"clip": 1.0, "rate": 0.25, "epochs": 2, "noise": 1.0, "batches": batches} | more)


@pytest.mark.parametrize("batches", ["allocated", "shuffled"])
def test_every_record_is_drawn_once_in_each_epoch(batches: str) -> None:
    draws, everybody = plan(batches).draws(), np.arange(50)
    taken = [draws.drawn(everybody, step, None) for step in range(12)]
    for epoch in range(3):
        assert sorted(np.concatenate(taken[4 * epoch : 4 * epoch + 4])) == everybody.tolist()
    sizes = [len(each) for each in taken]
    assert (set(sizes) == {12, 13}) == (batches == "shuffled")
    assert any(not np.array_equal(one, other) for one, other in zip(taken[:4], taken[4:8], strict=True))


@pytest.mark.slow
def test_batches_are_drawn_uniformly_and_independently() -> None:
    """Pairs of records fall into each pair of batches equally often; dependent or uneven draws would not."""
    everybody, count = np.arange(2), 20_000
    draws = EpochDraws(allocated_numbers, 3)
    seen = np.zeros((3, 3))
    for epoch in range(count):
        place = [-1, -1]
        for turn in range(3):
            for record in draws.drawn(everybody, 3 * epoch + turn, None):
                place[record] = turn
        seen[place[0], place[1]] += 1
    # Each cell is binomial; Chernoff with 18 events at 1e-9 in all.
    reach = math.sqrt(3 * math.log(18e9) * count / 9)
    assert np.all(np.abs(seen - count / 9) < reach)
    assert reach < 0.2 * count / 9


def test_the_curve_is_that_of_the_epochs() -> None:
    one = curves.gaussian(sigma=1.0)
    assert plan().curve == one.allocated(steps=4) ** 2
    assert plan("shuffled").curve == one**2
    assert plan().so_far(5) == plan().curve
    assert plan().so_far(4) == one.allocated(steps=4)
    assert plan(batch_size=30, rate=None, records=100, epochs=1).batches_in_epoch == 4
    assert plan("shuffled").is_gaussian
    assert not plan().is_gaussian


def test_plans_say_how_batches_are_made() -> None:
    text = plan().explain()
    assert "in each epoch of 4 steps, each record draws one, uniformly" in text
    assert "Independent coins of the same rate" in text
    assert "the true ε is at least" in plan("shuffled").explain()
    assert "batches='allocated'" in repr(plan())
    assert any("draws its batch independently" in each for each in plan().assumptions)


def test_bad_batches_are_refused() -> None:
    with worded(InvalidParameter):
        plan("random")
    with worded(InvalidParameter):
        plan(truncate_at=3, records=10)
    with pytest.raises(InvalidOperation, match=r"plan\.draws"):
        plan().drawn(np.arange(3), 0, None)


def max_test(sigma: float, batches: int, shift: float, at: float) -> mp.mpf:
    return 1 - mp.ncdf((mp.mpf(at) - shift) / sigma) * mp.ncdf(mp.mpf(at) / sigma) ** (batches - 1)


def test_the_lower_bound_of_shuffling_is_reached_by_a_real_event() -> None:
    sigma, batches, delta = 0.5, 50, 1e-5
    found = least_epsilon(sigma, batches, batches, delta)
    with mp.workdps(40):
        reached = max(
            mp.log((max_test(sigma, batches, 2, c) - delta) / max_test(sigma, batches, 1, c))
            for c in np.linspace(0, 8, 400)
            if max_test(sigma, batches, 2, c) > delta
        )
        assert float(reached) * 0.999 <= found <= float(reached) * 1.001
    # Above what independent coins would have, and below what is proved.
    assert (curves.gaussian(sigma=sigma).sampled(rate=1 / batches) ** batches).epsilon(delta=delta) < found
    assert found < curves.gaussian(sigma=sigma).epsilon(delta=delta)
    assert least_epsilon(sigma, batches, batches - 1, delta) == 0.0


def test_epochs_are_not_cheaper_than_their_parts() -> None:
    found = [plan(epochs=e).curve.epsilon(delta=1e-6) for e in (1, 2, 3)]
    assert all(fewer < more for fewer, more in itertools.pairwise(found))
