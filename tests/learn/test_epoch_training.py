"""Trainers on allocated and shuffled batches: who is drawn, and what a run that continues remembers."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from deniable.errors import InvalidParameter  # noqa: E402
from deniable.learn.epoch_batches import EpochDraws, allocated_numbers  # noqa: E402
from tests.learn.runs import data, made, run  # noqa: E402
from tests.learn.test_epoch_batches import plan  # noqa: E402
from tests.wording import worded  # noqa: E402


@pytest.mark.parametrize("batches", ["allocated", "shuffled"])
def test_a_trainer_visits_everybody_once_in_each_epoch(batches: str) -> None:
    x, y = data()
    numbered = x.clone()
    numbered[:, 0] = 0
    trainer = made(plan=plan(batches), dataset=(numbered, y), separation="assumed")
    before = trainer._draws.drawn
    steps: list[int] = []
    trainer._draws.drawn = lambda *given: steps.append(len(taken := before(*given))) or taken
    run(trainer)
    assert [sum(steps[:4]), sum(steps[4:])] == [40, 40]


def test_a_run_that_continues_keeps_the_batches_of_its_epoch(tmp_path) -> None:
    first = made(plan=plan())
    run(first, first.take(2))
    first.save(tmp_path / "run.pt")
    again = made(plan=plan())
    again.load(tmp_path / "run.pt")
    everybody = np.arange(40)
    for step in (2, 3):
        assert np.array_equal(again._draws.drawn(everybody, step, None), first._draws.drawn(everybody, step, None))
    lost = EpochDraws(allocated_numbers, 4)
    assert [len(lost.drawn(everybody, step, None)) for step in (2, 3)] == [0, 0]
    assert sum(len(lost.drawn(everybody, step, None)) for step in (4, 5, 6, 7)) == 40
    with worded(InvalidParameter, parameter="dataset"):
        again._draws.drawn(np.arange(41), 3, None)
