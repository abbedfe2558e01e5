"""What floating point could hide: lengths of tiny times huge, many equal terms, NaN that comes late, floating noise."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from deniable import learn, noise  # noqa: E402
from deniable.errors import InvalidOperation, InvalidParameter  # noqa: E402
from deniable.learn.torch import DeviceNoise  # noqa: E402
from deniable.learn.torch import gradient_noise as torch_noise  # noqa: E402
from deniable.learn.torch.gradient_noise import CHUNK, Floating  # noqa: E402
from deniable.learn.torch.gradients import autograd_comparison, bookkeeping  # noqa: E402
from deniable.learn.torch.gradients.bookkeeping import Bookkeeping  # noqa: E402
from deniable.learn.torch.gradients.gradient_captures import MARGIN, _summed_up  # noqa: E402
from deniable.learn.torch.kernels.normal_kernel import LANES, pairs_kernel  # noqa: E402
from tests.learn.runs import entropy_loss, made, run  # noqa: E402
from tests.learn.test_lengths import Heard  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)


@pytest.mark.parametrize("places", [1, 40])
def test_short_times_long_is_clipped(places, monkeypatch):
    """Squares of 2.6e-23 are 0 in single precision; those of what they are multiplied with are not."""
    width = 512

    def longest():
        x = torch.zeros(2, places, width)
        x[1] = 4e17
        model = nn.Linear(width, width, bias=False)
        heard = Heard()
        plan = learn.DPSGD(clip=0.001, rate=1.0, steps=2, noise=1.0)
        trainer = made(model, plan, (x, torch.zeros(2)), noise=heard)
        for batch in trainer:
            trainer.backward((model(batch[0]) * 2.6e-23).sum((1, 2)))
        longest = max(float(each.norm()) for each in heard.sums) / 0.001
        return longest, trainer._book.parameters["weight"].unit

    length, unit = longest()
    assert length <= 1
    assert unit is None  # in closed form
    # Without the larger scale, lengths would be 0. The first batch shows it, and the gradients are held as they are.
    monkeypatch.setattr(bookkeeping, "SCALE", 1.0)
    length, unit = longest()
    assert length <= 1
    assert unit == ""
    # With nobody looking, they would be clipped by those.
    monkeypatch.setattr(autograd_comparison.AutogradComparison, "denies", lambda *given: set())
    assert longest()[0] > 2


@pytest.mark.parametrize("size", [1e10, 1e15, 1e18])
@pytest.mark.parametrize("places", [1, 40])
def test_a_large_record_is_left_out_and_stops_nobody(places, size):
    """Its length is no number any more in the larger scale; it counts with 0, the others as if it were not there."""
    width = 64
    torch.manual_seed(0)
    x = torch.randn(6, places, width)
    sums = []
    for large in (True, False):
        given = x.clone()
        given[5] = size if large else 0.0
        model, heard = nn.Linear(width, width, bias=False), Heard()
        trainer = made(model, learn.DPSGD(clip=1.0, rate=1.0, steps=3, noise=1.0), (given, torch.zeros(6)), noise=heard)
        for batch in trainer:
            trainer.backward(model(batch[0]).sum((1, 2)))
        sums.append(heard.sums)
    for with_it, without in zip(*sums, strict=True):
        assert float((with_it - without).norm()) <= 1.0 + 1e-5


@pytest.mark.parametrize("places", [512, 1024, 2048, 4096])
@pytest.mark.parametrize("term", [0.1, 1.0128, 1.35**2])
def test_many_equal_places_keep_their_length(places, term):
    """Added up one by one in single precision, sixteen million terms are off by a percent."""
    terms = torch.full((1, places, places), term)
    found = math.sqrt(float(_summed_up(terms, 1, MARGIN))) * (1 + 2**-16)
    exact = math.sqrt(places**2 * float(terms[0, 0, 0]))
    assert exact <= found <= exact * 1.001


class Twice(nn.Module):
    """Two weights that are longer than what they are made of, with different numbers of places."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        return self.first(x).square().mean((1, 2)) + self.second(x[:, :3]).sin().mean((1, 2))


def test_ghost_norms_of_different_numbers_of_places():
    torch.manual_seed(0)
    model, x = Twice(), torch.randn(6, 5, 64)
    book = Bookkeeping(model)
    for _ in range(2):
        losses = model(x)
        found = book.gradients(losses).squared(losses)
    for i in range(6):
        model.zero_grad()
        model(x[i : i + 1]).sum().backward()
        expected = sum(float(each.grad.double().square().sum()) for each in model.parameters())
        assert float(found[i]) == pytest.approx(expected, rel=1e-4)


class Rewriting(nn.Module):
    """Changes the input of a layer after the layer has read it, from its `late` call on."""

    def __init__(self, late):
        super().__init__()
        self.first, self.second, self.left = nn.Linear(4, 4), nn.Linear(4, 2), late

    def forward(self, x):
        h = self.first(x) * 1.0
        out = self.second(h)
        self.left -= 1
        if self.left < 0:
            h.mul_(2.0)
        return out


@pytest.mark.parametrize("late", [0, 3])
def test_an_input_that_is_written_over_is_refused(late):
    trainer = made(Rewriting(late), learn.DPSGD(clip=1.0, rate=1.0, steps=6, noise=1.0))
    with worded(InvalidParameter, parameter="model"):
        run(trainer)


def test_what_small_numbers_may_cost_is_added_to_the_length():
    """T (√o + √i) 2 / scale for a weight that saw T places, as squares added up; (√o + √i)² is at most 2 (o + i)."""
    model, x = Twice(), torch.randn(6, 5, 64)
    book = Bookkeeping(model)
    losses = model(x)
    found = book.gradients(losses)
    found.squared(losses)
    least = math.hypot(5 * 2 * math.sqrt(64), 3 * 2 * math.sqrt(64)) * 2 / 2.0**32
    assert least * (1 - 1e-12) <= found.lost <= 2 * least
    assert book.scale == 2.0**32


def test_a_backward_pass_that_is_not_linear_is_left_as_it_is():
    """A hook that clips what passes it would clip more of what is larger."""

    class Clipped(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 2)

        def forward(self, x):
            h = self.first(x)
            h.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
            return self.second(h.tanh())

    with pytest.warns(UserWarning, match="hook on the backward pass"):  # it may look at all examples at once
        trainer = run(made(Clipped()))
    assert trainer._book.scale == 1


class Keeping(nn.Module):
    """Writes the batch into a buffer when it is told to, in its own place or in a new one."""

    def __init__(self):
        super().__init__()
        self.body, self.how = nn.Linear(4, 2), None
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        if self.how == "replaced":
            self.mean = x.mean(0)
        elif self.how == "written":
            self.mean.copy_(x.mean(0))
        return self.body(x)


def _keep(model, batch, how):
    model.how = how
    model(batch[0])
    model.how = None


def _trained(trainer, how, when):
    model = trainer.model
    for number, batch in enumerate(trainer.take(3)):
        losses = entropy_loss(model, batch)
        if number == 3 and when != "after":
            _keep(model, batch, how)
        if number == 3 and when == "public":
            trainer.public_step(model(torch.ones(3, 4)).sum())
        trainer.backward(losses)
        if number == 3:
            _keep(model, batch, how)


@pytest.mark.parametrize("how", ["replaced", "written"])
@pytest.mark.parametrize("when", ["before", "after", "public"])
def test_data_cannot_be_kept_in_a_buffer(how, when):
    trainer = made(Keeping(), learn.DPSGD(clip=1.0, rate=1.0, steps=6, noise=1.0))
    with worded(InvalidParameter, parameter="model"):
        _trained(trainer, how, when)


class Late(nn.Module):
    """Examples begin to be mixed when the flag is set, without any other layer being called."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.is_mixing = nn.Linear(4, 4), nn.Linear(4, 2), False

    def forward(self, x):
        h = self.first(x)
        out = self.second(h)
        return out + F.linear(h.mean(0, keepdim=True), self.second.weight) if self.is_mixing else out


def _mixed(trainer):
    for number, batch in enumerate(trainer):
        trainer.model.is_mixing = number == 1
        trainer.backward(entropy_loss(trainer.model, batch))


def test_a_refusal_holds_for_who_catches_it_and_goes_on():
    trainer = made(Late(), learn.DPSGD(clip=1.0, rate=1.0, steps=6, noise=1.0))
    with pytest.raises(InvalidParameter, match="other examples"):
        _mixed(trainer)
    trainer.model.is_mixing = False
    with worded(InvalidOperation):
        run(trainer)


def _box_muller(words, whole):
    """Once more, by numpy in long doubles: cosines, then sines."""
    bits = 8 * np.dtype(whole).itemsize
    first, second = words.view(whole).astype(np.longdouble).reshape(2, -1)
    u = np.minimum((np.abs(first) + 0.5) / np.longdouble(2) ** (bits - 1), 1)
    lengths = np.sqrt(-2 * np.log(u))
    angles = second * np.longdouble(np.pi) / np.longdouble(2) ** (bits - 1)
    return np.concatenate([lengths * np.cos(angles), lengths * np.sin(angles)]).astype(np.float64)


@pytest.fixture(params=["compiled", "by torch"])
def _way(request, monkeypatch):
    if request.param == "by torch":
        monkeypatch.setattr(torch_noise, "pairs_kernel", lambda: None)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("count", [1, 2, 7, 31, 32, 33, 1000])
def test_floating_noise_is_what_its_bits_say(dtype, count):
    bits, whole = (32, np.int32) if dtype == torch.float32 else (64, np.int64)
    pairs = -(-((count + 1) // 2) // LANES) * LANES
    words = np.empty(2 * pairs * bits // 64, dtype=np.uint64)
    noise.ReplayEntropy(5).fill(words)
    found = torch.full((count,), 100.0, dtype=torch.float64).to(dtype)
    Floating(dtype, pairs).add(found, 3.0, noise.ReplayEntropy(5))
    expected = _box_muller(words, whole)[:count]
    assert np.abs((found.double().numpy() - 100) / 3 - expected).max() < (1e-5 if bits == 32 else 1e-13)


class Given:
    """Entropy that is what one wants it to be."""

    def __init__(self, numbers):
        self._words = np.asarray(numbers, dtype=np.int32).view(np.uint64)

    def fill(self, words):
        words[:] = self._words


@pytest.mark.usefixtures("_way")
def test_floating_noise_is_right_at_the_ends_of_everything():
    """Bits that are all the same, and those next to where an exponent or a quarter of a turn begins."""
    ends = [0, 1, -1, 2**31 - 1, -(2**31), -(2**31) + 1]
    ends += [sign * 2**power + step for power in range(2, 31) for sign in (1, -1) for step in (-1, 0, 1)]
    ends += [
        int(sign * 2**31 * 2**-power * 2**0.5) + step for power in (1, 2, 9) for sign in (1, -1) for step in (-1, 0, 1)
    ]
    first, second = (each.ravel() for each in np.meshgrid(ends, ends))
    more = -len(first) % LANES
    first, second = (np.append(each, [5] * more) for each in (first, second))
    bits = np.concatenate([first, second]).astype(np.int32)
    found = torch.zeros(len(bits))
    Floating(torch.float32, len(first)).add(found, 1.0, Given(bits))
    expected = _box_muller(bits, np.int32)
    # u is rounded to single precision, as lengths are; near u = 1, the length is that of the rounding.
    lengths = np.hypot(*expected.reshape(2, -1))
    off = np.abs(found.double().numpy() - expected).reshape(2, -1) / np.where(lengths < 0.01, np.inf, lengths)
    assert off.max() < 2e-5
    assert np.abs(found.double().numpy() - expected).max() < 6e-4
    assert float(found.abs().max()) <= 6.7


def test_the_compiled_noise_is_off_by_less_than_it_says():
    """3e-7 of the length, where the only rounding before it, of u to single precision, is done here as well."""
    if pairs_kernel() is None:
        pytest.skip("llvmlite is not installed: pip install llvmlite")
    bits = np.random.default_rng(7).integers(-(2**31), 2**31, 2**20).astype(np.int32)
    found = torch.zeros(len(bits))
    Floating(torch.float32, len(bits) // 2).add(found, 1.0, Given(bits))
    first, second = bits.reshape(2, -1)
    u = np.abs(first.astype(np.float32)) * np.float32(2.0**-31) + np.float32(2.0**-32)
    lengths, angles = np.sqrt(-2 * np.log(u.astype(np.float64))), second * np.pi / 2**31
    expected = np.stack([lengths * np.cos(angles), lengths * np.sin(angles)])
    assert (np.abs(found.double().numpy().reshape(2, -1) - expected) <= 3e-7 * np.maximum(lengths, 1e-3)).all()


def test_floating_noise_comes_to_every_number():
    """Also to the last ones of tensors that are cut. The bits are replayed: nothing here is left to chance."""
    plan = learn.DPSGD(clip=1.0, rate=0.5, steps=1, noise=1.0)
    for size in (1, 2 * CHUNK - 1, 2 * CHUNK + 1, 4 * CHUNK + 3, 2**20 + 5):
        device = DeviceNoise(entropy=noise.ReplayEntropy(size))
        device.open(plan, size)
        [noisy] = device.add([torch.zeros(size)])
        assert int((noisy[-7:] == 0).sum()) == 0
        assert int((noisy == 0).sum()) <= 3


def test_floating_noise_does_not_lie_about():
    """What was added to the last step would undo it, for whoever pickles the noise or shares it between threads."""
    device = DeviceNoise(entropy=noise.ReplayEntropy(1))
    device.open(learn.DPSGD(clip=1.0, rate=0.5, steps=1, noise=1.0), 3)
    before = set(vars(device))
    device.add([torch.zeros(100_000)])
    assert set(vars(device)) == before
    assert not any(isinstance(each, torch.Tensor | np.ndarray) for each in vars(device).values())
    assert device._generators == {}


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_copy_of_floating_noise_draws_other_noise(copied):
    """The generator of an accelerator has the seed in its state, from which all noise can be computed, past and future.

    The same method makes a generator for a CPU, so this needs no accelerator. Two generators with the same 63 random
    bits have a chance of 1.1e-19.
    """
    device, place = DeviceNoise(), torch.device("cpu")
    device.open(learn.DPSGD(clip=1.0, rate=0.5, steps=1, noise=3.0), 3)
    state = device._generator(place).get_state()
    other = copied(device)
    assert not torch.equal(other._generator(place).get_state(), state)
    assert torch.equal(device._generator(place).get_state(), state)
    assert other._sigma == device._sigma == 3.0


def test_reduced_precision_is_told_however_it_was_set():
    code = """
import torch
torch.backends.cuda.matmul.fp32_precision = "tf32"
from torch import nn
from deniable import learn
from deniable.learn.torch import Trainer
model = nn.Linear(2, 2)
plan = learn.DPSGD(clip=1.0, rate=0.5, steps=1, noise=1.0)
trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), plan, (torch.zeros(4, 2), torch.zeros(4)))
assert any("reduced precision" in words for words in trainer.guarantee.assumptions)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
