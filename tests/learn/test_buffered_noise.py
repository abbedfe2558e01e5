"""Noise by buffers: the sensitivity beside all ways to take part, and a run beside its matrix."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from deniable import learn
from deniable.errors import InvalidParameter
from deniable.learn.buffered_noise import buffered_amplitude, buffered_column, buffered_sensitivity, chebyshev_buffers
from deniable.learn.matrix_factorisation import square_root_coefficients


def toeplitz(column):
    steps = len(column)
    return np.array([[column[i - j] if i >= j else 0.0 for j in range(steps)] for i in range(steps)])


def ways(steps, separation, most):
    for often in range(1, most + 1):
        for places in itertools.combinations(range(steps), often):
            if all(b - a >= separation for a, b in itertools.pairwise(places)):
                yield places


@pytest.mark.parametrize(
    ("steps", "separation", "participations", "count"), [(6, 2, 3, 2), (9, 3, 3, 1), (8, 1, 4, 3), (7, 5, 2, 5)]
)
def test_sensitivity_is_the_worst_of_all_ways_to_take_part(steps, separation, participations, count):
    buffers = chebyshev_buffers(count)
    c, worst = toeplitz(buffered_column(buffers, steps)), 0.0
    for places in ways(steps, separation, participations):
        for signs in itertools.product((1, -1), repeat=len(places)):
            worst = max(worst, float(np.linalg.norm(c[:, list(places)] @ np.array(signs))))
    claimed = buffered_sensitivity(buffers, steps=steps, separation=separation, participations=participations)
    assert worst <= claimed <= worst * (1 + 1e-8)
    # The sum of norms of columns alone, right for bands, would be too little: the columns overlap.
    if participations > 1:
        apart = math.sqrt(sum(np.linalg.norm(c[:, p]) ** 2 for p in range(0, steps, separation)[:participations]))
        assert claimed > 1.01 * apart


def test_buffers_have_the_first_coefficients_of_the_square_root():
    found = buffered_column(chebyshev_buffers(4), 400)
    exact = [float(each) for each in square_root_coefficients(8)]
    assert found[:8].tolist() == pytest.approx(exact, abs=2e-4)  # exact below 2d; those are rounded to 1/4096
    assert np.all(np.diff(found) <= 0)
    assert np.all(found > 0)


def test_amplitude_is_the_largest_row_of_prefix_sums_over_the_factor():
    buffers = chebyshev_buffers(3)
    c = toeplitz(buffered_column(buffers, 30))
    rows = np.linalg.norm(np.tril(np.ones((30, 30))) @ np.linalg.inv(c), axis=1)
    assert buffered_amplitude(buffers, 30) == pytest.approx(rows.max(), rel=1e-10)


def test_few_buffers_do_as_well_as_many_bands():
    def spread(**memory):
        plan = learn.DPFTRL(clip=1.0, batch_size=10, records=2000, epochs=1, noise=1.0, **memory)
        return plan.amplitude * plan.sensitivity

    assert spread(buffers=8) < 1.05 * spread(bands=200)
    assert spread(buffers=8) < 0.35 * spread(bands=1)


def test_plans_with_buffers_promise_what_their_matrix_does():
    plan = learn.DPFTRL(clip=3.0, batch_size=10, records=80, epochs=2, buffers=4, noise=2.0)
    c = toeplitz(buffered_column(chebyshev_buffers(4), 16))
    moved = float(np.linalg.norm(c[:, 0] + c[:, 8]))
    assert moved <= plan.sensitivity <= moved * (1 + 1e-8)
    assert plan.curve.gdp() == pytest.approx(moved / 2, rel=1e-7)
    assert plan.so_far(8).gdp() < plan.curve.gdp()
    assert "4 buffers" in plan.explain()
    assert "buffers=4" in repr(plan)
    less = plan.calibrate(epsilon=2, delta=1e-6)
    assert (less.curve.epsilon(delta=1e-6) <= 2, less.buffers) == (True, plan.buffers)
    for wrong in ({}, {"bands": 2, "buffers": 2}, {"buffers": 0}, {"buffers": 65}):
        with pytest.raises(InvalidParameter):
            learn.DPFTRL(clip=1.0, batch_size=10, records=80, epochs=2, **wrong)


@pytest.mark.torch
def test_a_run_releases_the_product_with_its_matrix(tmp_path):
    torch = pytest.importorskip("torch")
    from deniable.learn.torch import GradientNoise, Trainer

    class Recorded(GradientNoise):
        """Known numbers in place of noise."""

        assumptions = ()

        def __init__(self):
            self.before, self.added = [], []

        def open(self, plan, coordinates):
            pass

        def add(self, totals):
            self.before.append(torch.cat([each.detach().double().flatten() for each in totals]))
            self.added.append(float(len(self.added) + 1))
            return [each + self.added[-1] for each in totals]

    plan = learn.DPFTRL(clip=0.5, batch_size=2, records=6, epochs=2, buffers=3, noise=1.0)
    x = torch.randn(6, 2, generator=torch.Generator().manual_seed(0)) * 3
    model, heard = torch.nn.Linear(2, 1, bias=False), Recorded()
    torch.nn.init.zeros_(model.weight)

    def trainer():
        return Trainer(model, torch.optim.SGD(model.parameters(), lr=2.0), plan, (x,), noise=heard, progress=False)

    def run(current, steps):
        for (features,) in current.take(steps):
            current.backward(model(features)[:, 0])
        return current

    first = run(trainer(), 3)
    first.save(tmp_path / "run.pt")
    again = trainer()
    again.load(tmp_path / "run.pt")
    run(again, 3)
    clipped = x.double() * torch.clamp(0.5 / x.double().norm(dim=1), max=1)[:, None]
    sums = clipped.view(3, 2, 2).sum(1).repeat(2, 1).numpy()
    c = toeplitz(buffered_column(chebyshev_buffers(3), 6))
    assert torch.stack(heard.before).numpy() == pytest.approx(c @ sums, abs=1e-4)
    # The model moved along G + C⁻¹Z, by a learning rate of 2 and batches of 2.
    moved = (sums + np.linalg.solve(c, np.array(heard.added)[:, None] * np.ones((1, 2)))).sum(0)
    assert -model.weight.detach().double().numpy()[0] == pytest.approx(moved, rel=1e-3)
