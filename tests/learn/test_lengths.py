"""No clipped gradient is longer than the clipping norm: long vectors, half precision, tiny norms; what noise hides."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from deniable import learn  # noqa: E402
from deniable.errors import InvalidOperation, InvalidParameter  # noqa: E402
from deniable.learn.torch import ExactNoise, GradientNoise, Trainer  # noqa: E402
from deniable.learn.torch.gradients.gradient_captures import Outer, Vectors, ghosts  # noqa: E402
from tests.learn.runs import data, entropy_loss, made, net, run  # noqa: E402
from tests.learn.zoo import ZOO, built, losses_of  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)

ALL = learn.DPSGD(clip=1.0, rate=1.0, steps=2, noise=1.0)


class Heard(GradientNoise):
    """No noise; the sums that it would hide."""

    assumptions = ()

    def __init__(self):
        self.sums = []

    def open(self, plan, coordinates):
        pass

    def add(self, totals):
        self.sums.append(torch.cat([each.detach().double().flatten() for each in totals]))
        return list(totals)


@pytest.mark.parametrize("size", [4095, 4097, 1_000_000, 10_000_000])
def test_long_vectors_of_equal_numbers_keep_their_length(size):
    """Added up one by one in single precision, ten million squares are off by a percent."""
    values = torch.full((1, size), 0.1)
    expected = size * float(values[0, 0]) ** 2
    assert float(Vectors(values).squared()) == pytest.approx(expected, rel=2**-16)


@pytest.mark.parametrize("layers", [1, 3])
def test_ghost_norms_are_not_too_short_where_places_cancel(layers):
    """Places that nearly cancel leave a short gradient of long terms; rounding could make it shorter still, and would
    without the margin."""
    torch.manual_seed(0)
    outers, truth, plain = [], torch.zeros(40, dtype=torch.float64), torch.zeros(40)
    for _ in range(layers):
        halves = [torch.randn(40, 32, 300) for _ in range(2)]
        g, a = (
            torch.cat((each, sign * each + 1e-4 * torch.randn_like(each)), 1)
            for each, sign in zip(halves, (-1, 1), strict=True)
        )
        outers.append(Outer(g, a, torch.Size((300, 300))))
        truth += torch.matmul(g.double().mT, a.double()).flatten(1).square().sum(1)
        plain += (torch.matmul(g, g.mT) * torch.matmul(a, a.mT)).flatten(1).sum(1)
    assert all(outer.is_ghost for outer in outers)
    assert bool((ghosts(outers, outers[0].count, outers[0].g).double() >= truth).all())
    assert bool((plain.double() < truth).any())


@pytest.mark.parametrize("inside", [False, True], ids=["single", "autocast"])
@pytest.mark.parametrize("places", [None, 9, 300])
def test_an_example_alone_or_among_others_is_clipped(places, inside):
    _check_clipped(torch.float32, places, inside)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("places", [None, 9, 300])
def test_half_precision_parameters_are_clipped_in_single(dtype, places):
    _check_clipped(dtype, places, inside=False)


def _check_clipped(dtype, places, inside):
    """The others have no gradient, so the sum is that one's; at every scale it has to be at most 1 long."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 37), nn.Tanh(), nn.Linear(37, 3)).to(dtype)
    for count in (1, 4):
        for seed in range(8):
            x = torch.randn(count, 20, dtype=torch.float32) if places is None else torch.randn(count, places, 20)
            weights = torch.tensor([2.0 + seed, 0.0, 0.0, 0.0][:count])
            heard = Heard()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
            trainer = Trainer(model, optimizer, ALL, (x.to(dtype), weights.to(dtype)), noise=heard, progress=False)
            for batch, weight in trainer:
                with torch.autocast("cpu", torch.bfloat16, enabled=inside):
                    trainer.backward(model(batch).reshape(len(batch), -1).sum(1) * weight)
            trainer.close()
            for each in heard.sums:
                assert 0.99 < float(each.norm()) <= 1


HALVED = ["linear", "conv2d", "tied", "lstm", "attention", "lora"]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "float32") for name in ZOO), *((name, "bfloat16") for name in HALVED)],
)
def test_one_record_moves_the_sum_by_the_clipping_norm_at_most(name, dtype):
    """Brute force: the sums with and without a record, whatever else is in the batch, for losses of all sizes."""
    torch.manual_seed(3)
    sizes = 10 ** torch.empty(9).uniform_(-3, 4)

    def total(rows):
        model, x, y = built(name, 9, dtype=getattr(torch, dtype))
        heard, optimizer = Heard(), torch.optim.SGD(model.parameters(), lr=0.0)
        trainer = Trainer(model, optimizer, ALL, (x[rows], y[rows], sizes[rows]), noise=heard, progress=False)
        for batch, labels, size in trainer:
            trainer.backward(losses_of(model, batch, labels) * size)
        trainer.close()
        return torch.stack(heard.sums)

    longest = int(sizes.argmax())
    moved = (total(torch.arange(9)) - total(torch.tensor([i for i in range(9) if i != longest]))).norm(dim=1)
    assert float(moved.min()) > 0.9
    assert float(moved.max()) <= 1


def test_a_clipping_norm_that_no_square_can_tell_from_zero_is_refused():
    with worded(InvalidParameter):
        made(plan=learn.DPSGD(clip=1e-25, rate=1.0, steps=1, noise=1.0))


def test_gradients_from_before_move_nothing_that_is_frozen():
    model = net()
    entropy_loss(model, data()).mean().backward()
    model[0].requires_grad_(False)
    before = model[0].weight.detach().clone()
    run(made(model, ALL))
    assert torch.equal(before, model[0].weight)


@pytest.mark.parametrize("how", ["unfrozen", "frozen", "added"])
def test_what_is_trained_cannot_change_during_a_run(how):
    model = net()
    if how == "unfrozen":
        model[0].requires_grad_(False)
    trainer = made(model, ALL)
    run(trainer, trainer.take(1))
    if how == "added":
        model.add_module("more", nn.Linear(2, 2))
    else:
        model[0].requires_grad_(how == "unfrozen")
    with worded(InvalidParameter, parameter="model"):
        run(trainer)
    assert trainer.steps_taken == 1


def test_two_loops_over_one_trainer_do_not_mix_their_steps():
    trainer = made(plan=ALL, physical_batch=4)
    first, second = iter(trainer), iter(trainer)
    trainer.backward(entropy_loss(trainer.model, next(first)))
    trainer.backward(entropy_loss(trainer.model, next(second)))
    with pytest.raises(InvalidOperation, match="another loop"):
        next(first)


def test_a_step_of_correlated_noise_that_was_broken_off_keeps_its_place():
    """Without it, uses of a record would come closer than the bands are wide, and move the sums by more: 1.90."""
    plan = learn.DPFTRL(clip=1.0, batch_size=2, records=8, epochs=2, bands=4, noise=1.0)
    for broken in range(8):
        heard = []
        for value in (0.0, 100.0):
            x = torch.zeros(8, 1)
            x[0] = value
            model, noise = nn.Linear(1, 1, bias=False), Heard()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
            trainer = Trainer(model, optimizer, plan, (x,), noise=noise, progress=False)
            for _ in range(2):
                for (batch,) in trainer:
                    if trainer.steps_taken == broken + 1:
                        break
                    trainer.backward(model(batch)[:, 0])
            heard.append(torch.stack(noise.sums))
        moved = float((heard[0] - heard[1]).norm())
        assert moved <= plan.sensitivity
        assert broken in (0, 4) or moved > math.sqrt(plan.sensitivity)


def test_rounding_to_the_grid_is_paid_for_in_every_step_that_hides_a_sum():
    """Each of d coordinates may move by one step of the grid more; with correlated noise, in each of the steps."""
    plan = learn.DPFTRL(clip=1.0, batch_size=2, records=8, epochs=2, bands=4, noise=1.0)
    exact = ExactNoise()
    exact.open(plan, 10**6)
    moved = plan.sensitivity / float(exact._grid.spacing) + math.sqrt(10**6 * plan.steps)
    assert 0 <= exact._width - moved / plan.sensitivity <= 2
