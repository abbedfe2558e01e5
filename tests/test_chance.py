"""Chance is replayed in tests: the same name, the same noise."""

from __future__ import annotations

import os

import numpy as np
import pytest

from deniable import noise
from tests import chance


def drawn(name: str) -> tuple[object, ...]:
    with chance.replayed(name):
        words = noise.current().words(3).tolist()
        return (
            words,
            np.random.default_rng().random(),
            np.random.default_rng(1).random(),
            os.urandom(4),
            np.random.rand(),
        )


@pytest.mark.skipif(not chance.IS_REPLAYED, reason="DENIABLE_CHANCE=fresh")
def test_a_test_draws_the_same_noise_in_every_run_and_another_draws_other_noise() -> None:
    fresh = os.urandom, np.random.default_rng
    one, again, other = (drawn(name) for name in ("one", "one", "other"))
    assert one == again
    assert [a == b for a, b in zip(one, other, strict=True)] == [False, False, True, False, False]
    assert (os.urandom, np.random.default_rng) == fresh


@pytest.mark.skipif(not chance.IS_REPLAYED, reason="DENIABLE_CHANCE=fresh")
def test_what_is_drawn_in_a_test_never_repeats() -> None:
    with chance.replayed("one"):
        assert len({os.urandom(8) for _ in range(100)}) == 100
        assert len({np.random.default_rng().random() for _ in range(100)}) == 100


def test_where_noise_comes_from_is_tested_with_fresh_noise() -> None:
    with chance.replayed("tests/noise/test_entropy.py::test_a"):
        first = noise.current().words(3).tolist()
    with chance.replayed("tests/noise/test_entropy.py::test_a"):
        assert noise.current().words(3).tolist() != first


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_forked_child_does_not_repeat_its_parent() -> None:
    with chance.replayed("one"):
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.write(write, os.urandom(8))
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 8) != os.urandom(8)
        os.close(read), os.close(write)
