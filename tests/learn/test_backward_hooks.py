"""What Python does in a backward pass, and what it keeps from one forward pass for the next, reaches nobody else."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from deniable import learn  # noqa: E402
from deniable.errors import InvalidParameter  # noqa: E402
from deniable.learn.torch import Trainer  # noqa: E402
from tests.learn.torch.guards.test_one_record import Told  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)


def _clipped(grad):
    return grad * (50 / (grad.norm() + 1e-9)).clamp(max=1)


class Clipping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return _clipped(grad)


class Hooked(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.a, self.b = how, nn.Linear(4, 4), nn.Linear(4, 1)
        if how == "module":
            self.b.register_full_backward_hook(lambda _, grads, __: (_clipped(grads[0]),))

    def forward(self, x):
        hidden = self.a(x)
        if self.how == "tensor" and hidden.requires_grad:
            hidden.register_hook(_clipped)
        return self.b(Clipping.apply(hidden) if self.how == "function" else hidden)


def _moved(make, x, y, gone, **more):
    """How many clipping norms one record moves the sum by, and why examples were computed alone."""
    sums = []
    for kept in (slice(None), [i for i in range(len(x)) if i != gone]):
        torch.manual_seed(0)
        model, told = make(), Told()
        plan = learn.DPSGD(clip=1.0, rate=1.0, steps=2, noise=1.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        prepare = more.get("prepare", lambda batch: batch)
        trainer = Trainer(
            model, optimizer, plan, (x[kept], y[kept]), noise=told, progress=False, physical_batch=more.get("size")
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="each example is computed alone")
            for features, target in trainer:
                trainer.backward((model(prepare(features)) - target).square().sum(1))
        sums.append(told.sums)
    return max(float((one - other).norm()) for one, other in zip(*sums, strict=True)), trainer.one_by_one


@pytest.mark.parametrize("how", ["tensor", "module", "function"])
def test_a_backward_pass_with_python_in_it_is_run_for_each_example_alone(how):
    """One outlier decided by how much all other gradients were shortened: 25 clipping norms."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(16, 4, generator=generator) + 1, torch.full((16, 1), -3.0)
    y[15] = 1e6
    moved, why = _moved(lambda: Hooked(how), x, y, 15)
    assert moved <= 1.001
    assert "backward pass" in why


@pytest.mark.parametrize("how", ["deepcopy", "numpy", "list", "parameter"])
def test_numbers_of_the_batch_that_are_read_past_torch_are_seen(how):
    taken = {
        "deepcopy": copy.deepcopy,
        "numpy": lambda x: torch.from_numpy(x.numpy().copy()),
        "list": lambda x: torch.tensor(x.tolist()),
        "parameter": lambda x: nn.Parameter(x, requires_grad=False),
    }[how]
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(16, 4, generator=generator), torch.randn(16, 1, generator=generator)
    x[0] *= 50
    moved, why = _moved(lambda: nn.Linear(4, 1), x, y, 0, prepare=lambda x: x - taken(x).mean(0))
    assert moved <= 1.001
    assert why is not None


class Helper:
    def __init__(self):
        self.mean = torch.zeros(4)


class Keeping(nn.Module):
    """The mean of the batch before, in places that are easily overlooked."""

    def __init__(self, where):
        super().__init__()
        self.where, self.head = where, nn.Linear(4, 1)
        self.cell, self.pair, self.helper = torch.zeros(4), ([torch.zeros(4)],), Helper()
        self.array, self.deep = np.zeros(4, dtype="float32"), [[[torch.zeros(4)]]]
        self.register_buffer("marked", torch.zeros(4))

    def forward(self, x):
        mean = x.detach().mean(0)
        if self.where == "data written":
            before = self.cell.clone()
            self.cell.data.copy_(mean)
        elif self.where == "data replaced":
            before = self.cell.clone()
            self.cell.data = mean
        elif self.where == "list in a tuple":
            before, self.pair[0][0] = self.pair[0][0], mean
        elif self.where == "deep":
            before, self.deep[0][0][0] = self.deep[0][0][0], mean
        elif self.where == "helper":
            before, self.helper.mean = self.helper.mean, mean
        elif self.where == "attribute of a buffer":
            before, self.marked.mean_before = getattr(self.marked, "mean_before", torch.zeros(4)), mean
        else:
            before = torch.from_numpy(self.array.copy())
            self.array[:] = mean.numpy()
        return self.head(x - before)


@pytest.mark.parametrize(
    "where", ["data written", "data replaced", "list in a tuple", "deep", "helper", "array", "attribute of a buffer"]
)
def test_what_a_forward_pass_keeps_for_the_next_reaches_nobody(where):
    """Each of these moved the sum by 6 clipping norms."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(16, 4, generator=generator), torch.randn(16, 1, generator=generator)
    x[0] *= 50
    if where.startswith("data"):
        with worded(InvalidParameter, parameter="model"):
            _moved(lambda: Keeping(where), x, y, 0, size=5)
        return
    moved, why = _moved(lambda: Keeping(where), x, y, 0, size=5)
    assert moved <= 1.001
    assert why is not None


SEEDED = {
    "a generator of its own": lambda x: x * torch.rand(len(x), 1, generator=torch.Generator().manual_seed(0)),
    "written by a generator": lambda x: x * torch.empty(len(x), 1).uniform_(generator=torch.Generator().manual_seed(0)),
    "a mask by a generator": lambda x: torch.bernoulli(x.sigmoid(), generator=torch.Generator().manual_seed(0)) * x,
    "torch's own": lambda x: torch.manual_seed(3) and nn.functional.dropout(x, 0.5),
    "torch's own, with the seed that it had": lambda x: torch.manual_seed(0) and nn.functional.dropout(x, 0.5),
    "torch's own, by its state": lambda x: nn.functional.dropout((torch.set_rng_state(STATE), x)[1], 0.5),
}
STATE = torch.Generator().manual_seed(5).get_state()


class Seeded(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.head = how, nn.Linear(4, 1)

    def forward(self, x):
        return self.head(SEEDED[self.how](x))


@pytest.mark.parametrize("how", SEEDED)
def test_chance_that_the_forward_pass_seeds_is_drawn_for_each_example_alone(how):
    """One record gone moved all others to other numbers, which anybody can repeat: by 2 to 7 clipping norms."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(16, 4, generator=generator), torch.randn(16, 1, generator=generator)
    moved, why = _moved(lambda: Seeded(how), x, y, 0)
    assert moved <= 1.001
    assert "random numbers" in why


@pytest.mark.parametrize("how", ["a generator of its own", "torch's own"])
def test_public_data_that_is_drawn_with_a_seed_stays_public(how):
    """A rule that took such numbers for mixed took the parameters for mixed after a public step on them."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    x, y = torch.randn(30, 4), torch.randn(30, 1)
    plan = learn.DPSGD(clip=1.0, rate=0.5, steps=4, noise=1.0)
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), plan, (x, y), progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for features, target in trainer:
            own = torch.Generator().manual_seed(1) if how == "a generator of its own" else torch.manual_seed(1) and None
            public = torch.randn(8, 4, generator=own)
            trainer.public_step(model(public).square().mean())
            shared = torch.rand(1, 4, generator=torch.Generator().manual_seed(2))  # alike for all examples
            trainer.backward((model(features * shared) - target).square().sum(1))
    assert trainer.one_by_one is None
