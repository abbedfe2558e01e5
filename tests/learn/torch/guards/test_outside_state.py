"""What a forward pass keeps outside of its model, in classes, globals and functions, reaches no other example."""

from __future__ import annotations

import functools
import logging
import warnings
from types import ModuleType

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from deniable import learn  # noqa: E402
from deniable.errors import InvalidParameter  # noqa: E402
from deniable.learn.torch import Trainer  # noqa: E402
from tests.learn.test_backward_hooks import _moved  # noqa: E402

torch.set_num_threads(1)

before = torch.zeros(4)
table = {"mean": torch.zeros(4)}
array = np.zeros(4, dtype="float32")
written = torch.zeros(4)
logger = logging.getLogger(__name__)
seen = 0


class Shared:
    mean = torch.zeros(4)
    means = [torch.zeros(4)]  # noqa: RUF012  # the mistake that is looked for


def helped(mean):
    """A function of the same package, which the forward pass calls."""
    global before
    was, before = before, mean
    return was


def in_defaults(mean, kept=[torch.zeros(4)]):  # noqa: B006, B008  # the mistake that is looked for
    was, kept[0] = kept[0], mean
    return was


def attributed(mean):
    was, attributed.mean = getattr(attributed, "mean", torch.zeros(4)), mean
    return was


def in_named_defaults(mean, *, kept=[torch.zeros(4)]):  # noqa: B006, B008  # the mistake that is looked for
    was, kept[0] = kept[0], mean
    return was


behind = torch.zeros(4)
elsewhere = ModuleType("elsewhere")
"""Stands for another package, which is not looked into: it calls what it was given."""


def wrapped_inside(mean):
    global behind
    was, behind = behind, mean
    return was


@functools.wraps(wrapped_inside)
def wrapped(mean):
    return elsewhere.called(mean)


elsewhere.called = wrapped_inside


def enclosed():
    kept = torch.zeros(4)

    def exchange(mean):
        nonlocal kept
        was, kept = kept, mean
        return was

    return exchange


exchange = enclosed()


class Base(nn.Module):
    inherited = torch.zeros(4)


class Outsider(Base):
    own = torch.zeros(4)
    listed = [torch.zeros(4)]  # noqa: RUF012  # the mistake that is looked for

    def __init__(self, where):
        super().__init__()
        self.where, self.head = where, nn.Linear(4, 1)

    def forward(self, x):
        return self.head(x - getattr(self, self.where)(x.detach().mean(0)))

    def own_class(self, mean):
        was, Outsider.own = Outsider.own, mean
        return was

    def class_above(self, mean):
        was, Base.inherited = Base.inherited, mean
        return was

    def list_of_the_class(self, mean):
        was, self.listed[0] = self.listed[0], mean
        return was

    def other_class(self, mean):
        was, Shared.mean = Shared.mean, mean
        return was

    def list_of_another_class(self, mean):
        was, Shared.means[0] = Shared.means[0], mean
        return was

    def a_global(self, mean):
        global before
        was, before = before, mean
        return was

    def global_table(self, mean):
        was, table["mean"] = table["mean"], mean
        return was

    def global_array(self, mean):
        was = torch.from_numpy(array.copy())
        array[:] = mean.numpy()
        return was

    def global_tensor(self, mean):
        was = written.clone()
        written.copy_(mean)
        return was

    def function(self, mean):
        return helped(mean)

    def defaults(self, mean):
        return in_defaults(mean)

    def named_defaults(self, mean):
        return in_named_defaults(mean)

    def wrapped_function(self, mean):
        return wrapped(mean)

    def function_attribute(self, mean):
        return attributed(mean)

    def closure(self, mean):
        return exchange(mean)


PLACES = (
    "own_class", "class_above", "list_of_the_class", "other_class", "list_of_another_class", "a_global", "global_table",
    "global_array", "function", "defaults", "named_defaults", "wrapped_function", "function_attribute", "closure",
)  # fmt: skip


def _example():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(16, 4, generator=generator), torch.randn(16, 1, generator=generator)
    x[0] *= 50
    return x, y


@pytest.mark.parametrize("where", PLACES)
def test_what_is_kept_outside_of_the_model_reaches_nobody(where):
    """Each of these moved the sum by 6 clipping norms."""
    moved, why = _moved(lambda: Outsider(where), *_example(), 0, size=5)
    assert moved <= 1.001
    assert "which the forward pass sets" in why


def test_a_global_tensor_that_is_written_into_is_refused():
    with pytest.raises(InvalidParameter, match="wrote data"):
        _moved(lambda: Outsider("global_tensor"), *_example(), 0, size=5)


class Plain(nn.Module):
    scale = 1.0

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        logger.debug("a forward pass of %s", seen)
        return self.head(x * self.scale * Shared.mean.exp())


def test_what_the_loop_sets_in_globals_and_classes_is_left_alone():
    global seen
    model, (x, y) = Plain(), _example()
    plan = learn.DPSGD(clip=1.0, rate=0.9, steps=4, noise=1.0)
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.0), plan, (x, y), progress=False)
    start = seen
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for features, target in trainer:
            Shared.mean = torch.tensor(1e-3 * trainer.steps_taken)
            Plain.scale = 0.99**trainer.steps_taken
            losses = (model(features) - target).square().sum(1)
            seen += 1
            trainer.backward(losses)
    assert trainer.one_by_one is None
    assert seen >= start + 4
    assert Plain.scale < 0.97
