"""Records that could do harm by rounding or by their size: places and uses that cancel, lengths that are no number."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from deniable import learn  # noqa: E402
from deniable.learn.torch import Trainer  # noqa: E402
from deniable.learn.torch.gradients import gradient_captures  # noqa: E402
from tests.learn.test_lengths import Heard  # noqa: E402

torch.set_num_threads(1)

COUNT, HARMFUL = 64, 32


@pytest.fixture(params=["as on a CPU", "as on an accelerator"], autouse=True)
def _place(request, monkeypatch):
    if request.param == "as on an accelerator":
        monkeypatch.setattr(gradient_captures, "QUICK", ())


def _added(out):
    """Some fixed combination of what one example gives."""
    flat = out.flatten(1)
    return flat @ torch.linspace(0.5, 1.5, flat.shape[1])


class Words(nn.Module):
    """How far two words are apart; with `tied`, through a head that shares their table as well."""

    def __init__(self, *, tied=False):
        super().__init__()
        self.words = nn.Embedding(5, 8)
        self.head = nn.Linear(8, 5, bias=False) if tied else None
        if tied:
            self.head.weight = self.words.weight

    def forward(self, ids):
        one, other = self.words(ids).unbind(1)
        apart = one - other
        return _added(apart) if self.head is None else _added(apart) + _added(self.head(apart))


class Apart(nn.Module):
    """How far two things are apart, each seen by the same layer: in two calls, or as two places of one."""

    def __init__(self, layer, *, calls):
        super().__init__()
        self.layer, self.calls = layer, calls

    def forward(self, x):
        one, other = map(self.layer, x.unbind(1)) if self.calls == 2 else self.layer(x).unbind(1)
        return _added(one - other)


def _ids():
    ids = torch.ones(COUNT, 2, dtype=torch.int64)
    ids[:, 1] = 2 + torch.arange(COUNT) % 2
    ids[HARMFUL] = 1
    return ids


def _twins(*shape):
    x = torch.randn(COUNT, 2, *shape)
    x[HARMFUL, 1] = x[HARMFUL, 0]
    return x


PAIRS = {
    "embedding": (Words, _ids),
    "embedding, tied": (lambda: Words(tied=True), _ids),
    "convolution, two calls": (lambda: Apart(nn.Conv2d(3, 16, 3, bias=False), calls=2), lambda: _twins(3, 8, 8)),
    "convolution of few places": (lambda: Apart(nn.Conv2d(16, 64, 3), calls=2), lambda: _twins(16, 4, 4)),
    "linear, two calls": (lambda: Apart(nn.Linear(6, 9), calls=2), lambda: _twins(6)),
    "linear, two places": (lambda: Apart(nn.Linear(6, 9), calls=1), lambda: _twins(6)),
    "linear, many places": (lambda: Apart(nn.Linear(6, 9), calls=1), lambda: _twins(30, 6)),
    "norm, two calls": (lambda: Apart(nn.LayerNorm(6), calls=2), lambda: _twins(6)),
}


@pytest.mark.parametrize("size", [1.0, 1e4, 1e7, 1e9])
@pytest.mark.parametrize("name", PAIRS)
def test_a_record_whose_parts_cancel_moves_the_sum_by_the_clipping_norm_at_most(name, size):
    """Its gradient is zero, up to rounding. Where its parts go into the sum of all records one by one, they take others
    with them."""
    make, inputs = PAIRS[name]
    torch.manual_seed(1)
    x, weights = inputs(), torch.ones(COUNT)
    weights[HARMFUL] = size

    def total(rows):
        torch.manual_seed(0)
        model, heard = make(), Heard()
        plan = learn.DPSGD(clip=1.0, rate=1.0, steps=2, noise=1.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        trainer = Trainer(model, optimizer, plan, (x[rows], weights[rows]), noise=heard, progress=False)
        for batch, weight in trainer:
            trainer.backward(model(batch) * weight)
        trainer.close()
        return torch.stack(heard.sums)

    everyone = torch.arange(COUNT)
    moved = (total(everyone) - total(everyone[everyone != HARMFUL])).norm(dim=1)
    assert float(moved.max()) <= 1.0001


class Opposite(nn.Module):
    """Two places with opposite signs, behind two layers alike."""

    def __init__(self):
        super().__init__()
        self.maps = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))

    def forward(self, x):
        out = self.maps(x)
        return (out[:, 0] - out[:, 1]).sum(1)


def _silent():
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    nn.init.constant_(model[0].bias, -1.0)
    return model


LARGE = {
    "a bias alone": (lambda: nn.Linear(5, 1), (5,), True),
    "places without input": (_silent, (3, 16), True),
    "opposite places": (Opposite, (3, 16), False),
    "a convolution without input": (lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU()), (3, 8, 8), True),
}


@pytest.mark.parametrize("target", [1e9, 1e10, 1e12])
@pytest.mark.parametrize("name", LARGE)
def test_no_record_stops_a_run_by_being_large(name, target):
    """0·∞ and ∞ - ∞ are no lengths; the gradients are numbers, and the record counts for nothing."""
    make, shape, is_silent = LARGE[name]
    torch.manual_seed(0)
    model, x, y = make(), torch.randn(8, *shape), torch.randn(8)
    y[3] = target
    if is_silent:
        x[3] = 0.0
    plan = learn.DPSGD(clip=1.0, rate=1.0, steps=3, noise=1.0)
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=1e-3), plan, (x, y), progress=False)
    for batch, targets in trainer:
        trainer.backward((model(batch).reshape(len(batch), -1).sum(1) - targets).square())
    assert all(bool(torch.isfinite(each).all()) for each in model.parameters())
