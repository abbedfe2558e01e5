"""Numbers of the data that torch reads without an operation, and state that is kept where no forward pass runs.

The first record is far away from the others and decides what the model does with all of them. A batch that begins with
it runs the same operations as its reference, three copies of this record, so only the reading itself shows.
"""

from __future__ import annotations

import collections
import ctypes
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence  # noqa: E402

from deniable import learn  # noqa: E402
from deniable.learn.torch import Trainer  # noqa: E402
from tests.learn.mixing_models import Keeping, Two, records, with_  # noqa: E402
from tests.learn.torch.guards.test_one_record import ROUNDING, Told, summed  # noqa: E402

torch.set_num_threads(1)

FAR = 30
ONE, OTHER = (torch.Generator().manual_seed(seed).get_state() for seed in (1, 3))
"""States after which the first number is above, and below, one half."""


def _is_far(x):
    return (x.detach().amax() > FAR).to(torch.uint8)


class Number:
    """Becomes a number when torch asks for it, which reads the data past torch."""

    def __init__(self, x):
        self.x = x

    def __index__(self):
        return int(max(self.x.flatten().tolist()) > FAR)

    def __float__(self):
        return 1.0 - 2 * self.__index__()


class Numbers(Number):
    def __len__(self):
        return 1

    def __getitem__(self, place):
        return [float(self)][place]


def by_state(x):
    bit = _is_far(x)
    torch.set_rng_state(ONE * (1 - bit) + OTHER * bit)
    return x * (torch.rand(1) - 0.5).sign()


def by_own_state(x):
    bit, generator = _is_far(x), torch.Generator()
    generator.set_state(ONE * (1 - bit) + OTHER * bit)
    return x * (torch.rand(1, generator=generator) - 0.5).sign()


def by_written_state(x):
    state, generator = ONE.clone(), torch.Generator()
    state[:] = torch.where(_is_far(x).bool(), OTHER, ONE)
    generator.set_state(state)
    return x * (torch.rand(1, generator=generator) - 0.5).sign()


def by_written_part(x):
    memory, generator = torch.zeros(len(ONE) + 8, dtype=torch.uint8), torch.Generator()
    state, bit = memory[:-8], _is_far(x)  # of the whole length before anything of the data is in it
    for part in (slice(0, 92), slice(92, len(ONE))):
        memory[part] = ONE[part] * (1 - bit) + OTHER[part] * bit
    generator.set_state(state)
    return x * (torch.rand(1, generator=generator) - 0.5).sign()


def by_packed_length(x):
    lengths = torch.ones(len(x), dtype=torch.int64) + _is_far(x)
    packed = pack_padded_sequence(x[:, :, None], lengths, batch_first=True)
    return -x if packed.data.shape[0] > len(x) else x * 1.0


LIBRARY = torch.library.Library("unseen", "DEF")
"""An operation whose code is Python, in which no mode is on."""
LIBRARY.define("look() -> Tensor")
LIBRARY.impl("look", lambda: torch.zeros(1) + held[0].__index__() * 0, "CompositeExplicitAutograd")
held, noted = [None], [0]


class Noting(Number):
    def __index__(self):
        noted[0] = super().__index__()
        return noted[0]


def by_operation(x):
    held[0] = Noting(x)
    torch.ops.unseen.look()
    sign, held[0], noted[0] = 1.0 - 2 * noted[0], None, 0
    return x * sign


def numbers_in(made):
    return with_(lambda x: x * made(x))


READING = {
    "a list of Python that torch does not know": numbers_in(
        lambda x: torch.tensor(collections.UserList([1 - 2 * _is_far(x).float()]))
    ),
    "a sequence of the model's own": numbers_in(lambda x: torch.tensor(Numbers(x))),
    "an object that becomes a number": numbers_in(lambda x: torch.tensor([Number(x)], dtype=torch.float32)),
    "an object as an index": numbers_in(lambda x: torch.tensor([1.0, -1.0])[Number(x)]),
    "an object in a slice": numbers_in(lambda x: torch.tensor([1.0, -1.0])[slice(Number(x), None)][:1]),
    "a state of torch's generator": with_(by_state),
    "a state of a generator": with_(by_own_state),
    "a state that is written": with_(by_written_state),
    "a state that is written in parts": with_(by_written_part),
    "an operation that is written in Python": with_(by_operation),
    "the length of a packed sequence": with_(by_packed_length),
}


@pytest.mark.parametrize("name", READING)
def test_numbers_that_torch_reads_without_an_operation_are_noticed(name):
    """Each was taken for proved: one record of 30 turned the sign of nine others (4.2 clipping norms)."""
    listed = records(30)
    listed.insert(0, listed.pop(15))
    trainer, whole = summed(READING[name], listed, steps=1)
    _, others = summed(READING[name], listed[1:], steps=1)
    assert trainer.separation == "isolated"
    assert all(float((a - b).norm()) <= 0.01 * (1 + ROUNDING["float32"]) for a, b in zip(whole, others, strict=True))


# -- state of a model whose forward pass does not run --------------------------------------------------------------------


class Kept(Two):
    means = [torch.zeros(4)]  # noqa: RUF012  # the mistake that is looked for

    def seen(self, x):
        before = Kept.means[-1]
        Kept.means.append(x.detach().mean(0))
        return x - before

    def loss(self, x, y):
        return F.cross_entropy(Two.forward(self, self.seen(x)[:, None]), y, reduction="none")


class Part(nn.Module):
    def forward(self, x):
        return Kept.seen(self, x)


class WithPart(Kept):
    def __init__(self):
        super().__init__()
        self.part = Part()


class Called(Kept):
    def __call__(self, x):
        return super().__call__(self.seen(x)[:, None])


def hooked():
    model = Kept()
    model.register_forward_pre_hook(lambda model, given: (model.seen(given[0])[:, None],))
    return model


def by_forward(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


def by_part(model, x, y):
    return F.cross_entropy(model.head(torch.tanh(model.inner(model.part(x)))), y, reduction="none")


def by_method(model, x, y):
    return model.loss(x, y)


def _moved(make, losses_of, **more):
    """How many clipping norms the first record moves the sum by."""
    generator, sums = torch.Generator().manual_seed(0), []
    x, y = torch.randn(16, 4, generator=generator), torch.randint(0, 3, (16,), generator=generator)
    x[0] *= 50
    for kept in (slice(None), slice(1, None)):
        torch.manual_seed(0)
        Kept.means[:] = [torch.zeros(4)]
        model, told = make(), Told()
        plan = learn.DPSGD(clip=1.0, rate=1.0, steps=3, noise=1.0, records=len(x[kept]))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        given = {"noise": told, "physical_batch": 5, "progress": False, **more}
        trainer = Trainer(model, optimizer, plan, (x[kept], y[kept]), **given)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="each example is computed alone")
            for batch in trainer:
                trainer.backward(losses_of(model, *batch))
        sums.append(told.sums)
    return trainer, max(float((one - other).norm()) for one, other in zip(*sums, strict=True))


@pytest.mark.parametrize("separation", [None, "isolated"])
@pytest.mark.parametrize(
    ("make", "losses_of"),
    [(Kept, by_method), (WithPart, by_part), (Called, by_forward), (hooked, by_forward)],
    ids=["a method", "a part", "a call of its own", "a hook before the forward pass"],
)
def test_what_a_model_keeps_in_its_class_while_the_loop_calls_more_than_forward_reaches_nobody(
    make, losses_of, separation
):
    """The class was compared only from the begin to the end of a forward pass of the whole model."""
    trainer, moved = _moved(make, losses_of, separation=separation)
    assert trainer.separation == "isolated"
    assert moved <= 1 + ROUNDING["float32"]


class Adding(Two):
    def __init__(self, where):
        super().__init__()
        self.where, self.listed = where, nn.ParameterList([torch.zeros(4)])
        self.register_buffer("empty", None)

    def first(self, x):
        mean = x.detach().mean(0)
        if self.where == "a parameter in a list":
            before = self.listed[-1].detach()
            self.listed.append(nn.Parameter(mean, requires_grad=False))
        elif self.where == "a new buffer":
            before = getattr(self, "added", torch.zeros(4))
            if not hasattr(self, "added"):
                self.register_buffer("added", mean)
        else:
            before = torch.zeros(4) if self.empty is None else self.empty
            if self.empty is None:
                self.empty = mean
        return x - before


@pytest.mark.parametrize("separation", [None, "isolated"])
@pytest.mark.parametrize("where", ["a parameter in a list", "a new buffer", "an empty buffer"])
def test_buffers_and_parameters_that_a_forward_pass_adds_are_removed(where, separation):
    """Only those that were there before were watched: the mean of a batch reached the next one, and was proved."""
    trainer, moved = _moved(
        lambda: Adding(where), lambda model, x, y: by_forward(model, x[:, None], y), separation=separation
    )
    assert trainer.separation == "isolated"
    assert moved <= 1 + ROUNDING["float32"]


def _write_storage(storage, value):
    torch.tensor([], dtype=torch.float64).set_(storage).fill_(value)


def _read_storage(storage):
    return float(torch.tensor([], dtype=torch.float64).set_(storage)[0])


INSIDE = {
    "a storage": (
        lambda: torch.zeros(1, dtype=torch.float64).untyped_storage(),
        _read_storage,
        _write_storage,
    ),
    "a number of C": (
        lambda: ctypes.c_double(0),
        lambda kept: kept.value,
        lambda kept, value: setattr(kept, "value", value),
    ),
    "a list in an array of objects": (
        lambda: np.array([[0.0], None], dtype=object),
        lambda kept: kept[0][-1],
        lambda kept, value: kept[0].append(value),
    ),
}


@pytest.mark.parametrize("name", INSIDE)
def test_state_inside_of_an_object_is_put_back(name):
    make, read, write = INSIDE[name]
    trainer, moved = _moved(lambda: Keeping(make(), read, write), lambda model, x, y: by_forward(model, x[:, None], y))
    assert trainer.separation == "isolated"
    assert moved <= 1 + ROUNDING["float32"]
