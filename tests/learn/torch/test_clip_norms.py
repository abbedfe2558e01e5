"""Adaptive clipping: what one record moves, the joint curve, and where the norm goes."""

from __future__ import annotations

import math

import mpmath
import pytest

from deniable import curves, learn
from deniable.errors import InvalidParameter
from deniable.learn.truncated_batches import truncated_step
from deniable.units import Unit

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from deniable.learn.torch import AdamBC, GradientNoise, Trainer  # noqa: E402
from deniable.learn.torch.clip_norms import ChangingNorm, clip_norms  # noqa: E402
from deniable.learn.torch.run_processes import Processes  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)


class Unhidden(GradientNoise):
    """No noise; the sums that it would hide."""

    assumptions = ()

    def __init__(self):
        self.sums = []

    def open(self, plan, coordinates):
        pass

    def add(self, totals):
        self.sums.append(torch.cat([each.detach().double().flatten() for each in totals]))
        return list(totals)


def trained(x, plan, monkeypatch=None, *, lr=0.0, optimizer=None, **more):
    """A run whose gradient of a record is the record itself; the balances before noise."""
    balances = []
    model = nn.Linear(x.shape[1], 1, bias=False)
    nn.init.zeros_(model.weight)
    heard = Unhidden()
    if monkeypatch is not None:
        whole = ChangingNorm.end_step

        def listening(self, processes, expected, device):
            balances.append(0 if self._balance is None else int(self._balance))
            return whole(self, processes, expected, device)

        monkeypatch.setattr(ChangingNorm, "end_step", listening)
    optimizer = optimizer or torch.optim.SGD
    trainer = Trainer(model, optimizer(model.parameters(), lr=lr), plan, (x,), noise=heard, progress=False, **more)
    for (rows,) in trainer:
        trainer.backward(model(rows)[:, 0])
    return trainer, heard.sums, balances, model


def adaptive(**more):
    shape = {"rate": 1.0, "steps": 1, "noise": 1.0, **more}
    return learn.DPSGD(clip=learn.AdaptiveNorm(2.0, quantile=0.5, count_noise=3.0), **shape)


def test_one_record_moves_the_sum_by_the_norm_and_the_balance_by_one(monkeypatch):
    torch.manual_seed(0)
    x = torch.randn(12, 4) * torch.logspace(-1, 1, 12)[:, None]
    x[3] = math.nan
    whole = trained(x, adaptive(), monkeypatch)
    monkeypatch.undo()
    for left in range(12):
        kept = [i for i in range(12) if i != left]
        without = trained(x[kept], adaptive(), monkeypatch)
        monkeypatch.undo()
        assert float((whole[1][0] - without[1][0]).norm()) <= 2.0 * (1 + 1e-5)
        assert abs(whole[2][0] - without[2][0]) == 1
    assert abs(whole[2][0]) < 12  # some above, some below


def test_sums_are_clipped_at_the_current_norm_and_noise_is_in_units_of_the_first():
    x = torch.eye(4) * torch.tensor([0.5, 1.0, 4.0, 8.0])[:, None]
    clip = clip_norms(adaptive(), torch.optim.SGD([torch.zeros(1)], lr=1), None)
    clip.norm = 4.0  # twice the first norm
    factors = clip.factors((x**2).sum(1), 0.0)
    scaled = (factors[:, None] * x).norm(dim=1) * (4.0 / 2.0)
    assert scaled.tolist() == pytest.approx([0.5, 1.0, 4.0, 4.0], rel=1e-4)
    assert float((factors[:, None] * x).norm(dim=1).max()) <= 2.0


def test_the_curve_is_that_of_both_releases_together():
    """μ² = 1/noise² + 1/count_noise², by mpmath at 40 digits; rounded to the safe side."""
    plan = adaptive(noise=1.3, rate=0.1, steps=7)
    with mpmath.workdps(40):
        mu = mpmath.sqrt(1 / mpmath.mpf(1.3) ** 2 + mpmath.mpf(1) / 9)
        found = plan.clip.together(1.3)
        assert 1 / mu * (1 - mpmath.mpf("1e-15")) <= found <= 1 / mu
    assert plan.curve == curves.gaussian(sigma=found).sampled(rate=0.1) ** 7
    both = curves.gaussian(sigma=1.3) * curves.gaussian(sigma=3.0)
    assert adaptive(noise=1.3).curve.gdp() == pytest.approx(both.gdp(), rel=1e-12)
    truncated = adaptive(noise=1.3, rate=0.1, steps=7, records=100, truncate_at=20)
    assert truncated.curve == truncated_step(sigma=found, rate=0.1, records=100, truncate_at=20) ** 7
    plain = learn.DPSGD(clip=2.0, rate=0.1, steps=7)
    less = adaptive(rate=0.1, steps=7).calibrate(epsilon=1, delta=1e-5)
    assert less.noise > plain.calibrate(epsilon=1, delta=1e-5).noise  # the counts have to be paid for
    assert less.curve.epsilon(delta=1e-5) <= 1


def test_the_balance_has_the_noise_that_the_curve_assumes():
    """The norm of the next step shows the noisy balance. Fails by chance with a probability of 1e-9 (χ²)."""
    from scipy.stats import chi2

    plan = learn.DPSGD(clip=learn.AdaptiveNorm(2.0, quantile=0.5, count_noise=30.0), rate=1.0, steps=1, noise=1.0)
    optimizer, expected, runs = torch.optim.SGD([torch.zeros(1)], lr=1), 1000.0, 400
    squares = []
    for _ in range(runs):
        clip = clip_norms(plan, optimizer, None)
        clip.end_step(Processes(None), expected, torch.device("cpu"))
        share = 0.5 - math.log(clip.norm / 2.0) / 0.2
        squares.append(((2 * share - 1) * expected / 30.0) ** 2)
    low, high = chi2.ppf([5e-10, 1 - 5e-10], runs)
    assert low <= sum(squares) <= high * (1 + 1e-3)  # rounding to integers adds 1/12


@pytest.mark.parametrize("first", [0.05, 40.0])
def test_the_norm_goes_to_the_quantile(first):
    torch.manual_seed(0)
    x = torch.randn(400, 3)
    x *= (torch.linspace(1, 3, 400) / x.norm(dim=1))[:, None]  # norms from 1 to 3
    clip = learn.AdaptiveNorm(first, quantile=0.75, count_noise=5.0, rate=0.5)
    plan = learn.DPSGD(clip=clip, rate=1.0, steps=60, noise=1.0, records=400)
    trainer = trained(x, plan)[0]
    assert trainer.clip_norm == pytest.approx(2.5, abs=0.15)  # noise 5 of 400, and averaged over some steps


def test_steps_are_in_units_of_the_current_norm(tmp_path):
    """With every gradient longer than any norm, a step has the current norm, whatever the first was."""
    x = torch.full((50, 1), 1e9)
    clip = learn.AdaptiveNorm(1.0, quantile=0.5, count_noise=1e-3)
    plan = learn.DPSGD(clip=clip, rate=1.0, steps=3, noise=1.0, records=50)
    trainer, _, _, model = trained(x, plan, lr=1.0)
    growth = math.exp(0.2 * 0.5)  # nobody is below the norm: share 0
    assert trainer.clip_norm == pytest.approx(growth**3, rel=1e-6)
    assert -float(model.weight.detach()) == pytest.approx(1 + growth + growth**2, rel=1e-3)
    place = tmp_path / "run.pt"
    trainer.save(place)
    again = Trainer(model, torch.optim.SGD(model.parameters(), lr=1.0), plan, (x,), progress=False)
    assert again.clip_norm == 1.0
    again.load(place)
    assert again.clip_norm == trainer.clip_norm


def test_people_are_counted_once(monkeypatch):
    ids = [0] * 5 + [1] * 5
    plan = adaptive(unit=Unit.person("user", rows=9))
    assert trained(torch.ones(10, 2), plan, monkeypatch, people=ids)[2] == [2]


def test_what_does_not_go_together_is_refused():
    clip = learn.AdaptiveNorm(1.0, quantile=0.5, count_noise=3.0)
    assert "quantile" in adaptive().explain()
    assert "count_noise=3.0" in adaptive().in_full()
    with pytest.raises(InvalidParameter, match="fixed order"):
        learn.DPFTRL(clip=clip, batch_size=5, records=20, epochs=1, bands=2)
    with worded(InvalidParameter, parameter="optimizer"):
        trained(torch.ones(10, 2), adaptive(), optimizer=AdamBC)
    for wrong in ({"quantile": 1.0}, {"count_noise": 0.0}, {"rate": -1.0}):
        with pytest.raises(InvalidParameter):
            learn.AdaptiveNorm(1.0, **{"quantile": 0.5, "count_noise": 3.0, **wrong})
