"""Sampling with banded noise: its blocks, its curve beside an integral, and a run."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from deniable import learn
from deniable.errors import InvalidParameter
from deniable.learn.matrix_factorisation import square_root_coefficients
from tests.wording import worded


def whole_matrix(coefficients, steps):
    rows = [[Fraction(0)] * steps for _ in range(steps)]
    for i in range(steps):
        for j, c in enumerate(coefficients):
            if i + j < steps:
                rows[i + j][i] = c
    return rows


@pytest.mark.parametrize(("steps", "bands"), [(4, 2), (9, 3), (10, 4), (5, 1), (3, 5)])
def test_the_turns_of_a_record_move_rows_that_do_not_overlap(steps, bands):
    """By the matrix itself, in exact fractions: every group, and every two of its turns."""
    coefficients = square_root_coefficients(bands)
    c = whole_matrix(coefficients, steps)
    plan = learn.BandMF(clip=1.0, batch_size=1, records=20, steps=steps, bands=bands, noise=1.0)
    squared = sum(each * each for each in coefficients)
    assert Fraction(plan.sensitivity) ** 2 >= squared
    assert plan.sensitivity == pytest.approx(math.sqrt(squared), rel=1e-14)
    for group in range(bands):
        turns = list(range(group, steps, bands))
        assert len(turns) <= plan.blocks
        supports = [{row for row in range(steps) if c[row][turn]} for turn in turns]
        for i, turn in enumerate(turns):
            assert sum(c[row][turn] ** 2 for row in range(steps)) <= squared
            assert all(not supports[i] & other for other in supports[:i])
    # Every two steps that are nearer do overlap, so groups are needed.
    if 1 < bands <= steps:
        assert any(c[row][0] and c[row][1] for row in range(steps))


def test_the_curve_is_the_integral_over_all_coins():
    """Two turns of a record: the releases M = CG + Z in four dimensions, projected onto what the record can move."""
    rate, noise, epsilon = 0.4, 1.1, 0.7
    plan = learn.BandMF(clip=1.0, batch_size=4, records=20, steps=4, bands=2, noise=noise)
    assert plan.group_rate == rate
    c = np.array(whole_matrix(square_root_coefficients(2), 4), dtype=float)
    moved = c[:, [0, 2]]  # a record of the first group
    _, lengths = np.linalg.qr(moved)
    assert abs(lengths[0, 1]) < 1e-12
    x = np.linspace(-9, 12, 1501)
    first, second = np.meshgrid(x, x)
    total = np.zeros_like(first)
    for coins in ((0, 0), (0, 1), (1, 0), (1, 1)):
        centre = np.abs(lengths @ np.array(coins)) / noise
        chance = math.prod(rate if each else 1 - rate for each in coins)
        total += chance * np.exp(-((first - centre[0]) ** 2 + (second - centre[1]) ** 2) / 2)
    without, cell = np.exp(-(first**2 + second**2) / 2), (x[1] - x[0]) ** 2 / (2 * math.pi)
    ahead = np.maximum(total - math.exp(epsilon) * without, 0).sum() * cell
    back = np.maximum(without - math.exp(epsilon) * total, 0).sum() * cell
    low, high = plan.curve.delta_bounds(epsilon=epsilon)
    assert low - 1e-6 <= max(ahead, back) <= high + 1e-6
    assert high < 1.02 * max(ahead, back)


def test_a_turn_that_has_begun_counts():
    """Seven steps of three bands: the first group has had three turns."""
    plan = learn.BandMF(clip=1.0, batch_size=5, records=90, steps=9, bands=3, noise=1.1)
    assert plan.so_far(7) == plan.so_far(9) == plan.curve
    assert plan.so_far(6).epsilon(delta=1e-5) < plan.so_far(7).epsilon(delta=1e-5)


def test_one_band_is_dpsgd():
    plan = learn.BandMF(clip=1.0, batch_size=10, records=100, steps=7, bands=1, noise=2.0)
    same = learn.DPSGD(clip=1.0, batch_size=10, records=100, steps=7, noise=2.0)
    assert plan.curve.epsilon(delta=1e-6) == pytest.approx(same.curve.epsilon(delta=1e-6), rel=1e-6)
    assert plan.amplitude == pytest.approx(math.sqrt(7))


def test_bands_help_where_sampling_alone_does_not():
    """At the same ε, the noise in the sum of all gradients; more bands cancel better until sampling is lost."""

    def spread(bands):
        plan = learn.BandMF(clip=1.0, batch_size=100, records=2000, steps=100, bands=bands)
        plan = plan.calibrate(epsilon=8, delta=1e-6)
        assert plan.curve.epsilon(delta=1e-6) <= 8
        return plan.amplitude * plan.noise

    assert spread(4) < 0.9 * spread(1)


def test_steps_draw_from_their_group_each_record_by_its_own_coin():
    plan = learn.BandMF(clip=1.0, batch_size=100, records=3000, steps=6, bands=3)
    places = np.arange(3000, dtype=np.int64)
    for step in range(6):
        taken = plan.drawn(places, step, None)
        assert set((taken % 3).tolist()) == {step % 3}
        assert abs(len(taken) - 100) < 6.5 * math.sqrt(1000 * 0.1 * 0.9), "false alarm 1e-10"
    assert plan.expected_batch(3000) == 100.0


def test_banded_plans_say_what_they_are():
    plan = learn.BandMF(clip=1.0, batch_size=10, records=100, steps=7, bands=3)
    assert "not chosen yet" in plan.explain()
    assert "3 groups of the 100 records" in plan.calibrate(epsilon=2, delta=1e-5).explain()
    assert "bands=3" in repr(plan)
    assert any("blanking" in each for each in plan.assumptions)
    assert plan.calibrate(epsilon=2, delta=1e-5).so_far(3).epsilon(delta=1e-5) < 2
    plan.check_records(100)
    with pytest.raises(InvalidParameter, match="99"):
        plan.check_records(99)
    with worded(InvalidParameter, parameter="batch_size"):
        learn.BandMF(clip=1.0, batch_size=40, records=100, steps=7, bands=3)
    clip = learn.AdaptiveNorm(1.0, quantile=0.5, count_noise=3.0)
    with pytest.raises(InvalidParameter, match="correlated noise"):
        learn.BandMF(clip=clip, batch_size=10, records=100, steps=7, bands=3)


@pytest.mark.torch
def test_a_run_moves_by_no_more_than_the_blocks_say():
    """With and without (blank) a record that is drawn in each of its turns: the rows of CG, without noise."""
    torch = pytest.importorskip("torch")
    from deniable.learn.torch import GradientNoise, Trainer

    class Listened(GradientNoise):
        assumptions = ()

        def __init__(self):
            self.sums = []

        def open(self, plan, coordinates):
            pass

        def add(self, totals):
            self.sums.append(torch.cat([each.detach().double().flatten() for each in totals]))
            return list(totals)

    plan = learn.BandMF(clip=0.5, batch_size=2, records=6, steps=7, bands=3, noise=1.0)
    assert plan.group_rate == 1.0
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)) * 3

    def rows(data):
        model, heard = torch.nn.Linear(3, 1, bias=False), Listened()
        torch.nn.init.zeros_(model.weight)
        trainer = Trainer(
            model, torch.optim.SGD(model.parameters(), lr=0.0), plan, (data,), noise=heard, progress=False
        )
        for (features,) in trainer:
            trainer.backward(model(features)[:, 0])
        return torch.stack(heard.sums)

    whole = rows(x)
    for place in range(6):
        blank = x.clone()
        blank[place] = 0
        moved = (whole - rows(blank)).norm(dim=1).tolist()
        for turn in range(place % 3, 7, 3):
            block = math.sqrt(sum(each**2 for each in moved[turn : turn + 3]))
            assert block <= 0.5 * plan.sensitivity * (1 + 1e-4)
            if turn + 3 <= 7:
                assert block >= 0.5 * plan.sensitivity * (1 - 1e-3)  # attained: this gradient is longer than the norm
        assert sum(moved[: place % 3]) == 0
