"""Clipping layer by layer: sums against autograd, what one record moves, and the price."""

from __future__ import annotations

import math

import pytest

from deniable import curves, learn
from deniable.errors import InvalidOperation, InvalidParameter

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from deniable.learn.torch import Trainer  # noqa: E402
from deniable.learn.torch.clip_norms import clip_norms  # noqa: E402
from tests.learn.torch.test_clip_norms import Unhidden  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)


class Net(nn.Module):
    """An embedding, two linear layers that share nothing, and a scale."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.first = nn.Linear(4, 5)
        self.second = nn.Linear(5, 3)
        self.third = nn.Linear(3, 2)

    def forward(self, x):
        return self.third(torch.tanh(self.second(torch.tanh(self.first(self.words(x).sum(1))))))


RULE = learn.PerLayer({"words": 0.2, "first": 0.5, "second.weight": 0.05, "": 1.5})
GROUPS = [
    ["words.weight"],
    ["first.weight", "first.bias"],
    ["second.weight"],
    ["second.bias", "third.weight", "third.bias"],
]


def clipped_sum(model, x, y, rule=RULE, weight=None, **more):
    """The sum before noise, as one vector, of one step on all records."""
    heard = Unhidden()
    weight = torch.ones(len(x), dtype=model.first.weight.dtype) if weight is None else weight
    plan = learn.DPSGD(clip=rule, rate=1.0, steps=1, noise=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    trainer = Trainer(model, optimizer, plan, (x, y, weight), noise=heard, progress=False, **more)
    for words, label, each in trainer:
        trainer.backward(each * nn.functional.cross_entropy(model(words), label, reduction="none"))
    sizes = [each.numel() for each in model.parameters()]
    names = [name for name, _ in model.named_parameters()]
    return dict(zip(names, heard.sums[0].split(sizes), strict=True))


def data(dtype):
    torch.manual_seed(1)
    model = Net().to(dtype)
    for each in model.parameters():
        each.data.mul_(2)
    return model, torch.randint(0, 7, (9, 3)), torch.randint(0, 2, (9,))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("separation", [None, "isolated"])
def test_the_sum_is_that_of_autograd_clipped_by_layer(dtype, separation):
    model, x, y = data(dtype)
    found = clipped_sum(model, x, y, **({} if separation is None else {"separation": separation}))
    parameters = dict(model.named_parameters())
    wanted = {name: torch.zeros(each.numel(), dtype=torch.float64) for name, each in parameters.items()}
    was_cut = []
    for i in range(9):
        loss = nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1])
        gradient = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))
        for group, norm in zip(GROUPS, (0.2, 0.5, 0.05, 1.5), strict=True):
            length = math.sqrt(sum(float((gradient[name].double() ** 2).sum()) for name in group))
            was_cut.append(length > norm)
            for name in group:
                wanted[name] += gradient[name].double().flatten() * min(1.0, norm / length)
    assert 0 < sum(was_cut) < len(was_cut)
    for name, each in wanted.items():
        assert torch.allclose(found[name], each, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_one_record_moves_each_layer_by_its_norm_and_all_by_the_plans(dtype):
    model, x, y = data(dtype)
    weight = torch.ones(9, dtype=dtype)
    weight[2], weight[5] = math.nan, math.inf
    whole = clipped_sum(model, x, y, weight=weight)
    for left in range(9):
        kept = [i for i in range(9) if i != left]
        without = clipped_sum(model, x[kept], y[kept], weight=weight[kept])
        moved = {name: whole[name] - without[name] for name in whole}
        for group, norm in zip(GROUPS, (0.2, 0.5, 0.05, 1.5), strict=True):
            assert float(torch.cat([moved[name] for name in group]).norm()) <= norm * (1 + 1e-5)
        assert float(torch.cat(list(moved.values())).norm()) <= RULE.norm * (1 + 1e-5)


def test_one_layer_for_everything_is_flat_clipping():
    model, x, y = data(torch.float64)
    layered, flat = (clipped_sum(model, x, y, rule=rule) for rule in (learn.PerLayer({"": 0.7}), 0.7))
    for name in flat:
        assert torch.allclose(layered[name], flat[name], rtol=1e-9, atol=1e-12)


def test_the_price_is_that_of_all_norms_together():
    plan = learn.DPSGD(clip=learn.PerLayer({"a": 3.0, "b": 4.0}), rate=0.1, steps=7, noise=1.3)
    assert plan.clip.norm == 5.0
    assert plan.sigma == pytest.approx(6.5)
    assert plan.curve == curves.gaussian(sigma=1.3).sampled(rate=0.1) ** 7
    assert learn.PerLayer.equal(2.0, layers=["a", "b", "c"]).norm == pytest.approx(2.0)
    assert "layer by layer" in plan.explain()
    assert "'b': 4.0" in plan.in_full()
    assert learn.DPFTRL(clip=plan.clip, batch_size=5, records=20, epochs=1, bands=2, noise=1.0).sigma == 5.0


def test_names_are_matched_by_modules_and_not_by_letters():
    rule = learn.PerLayer({"a": 1.0, "a.b": 2.0, "ab": 3.0})
    assert [rule.layer_of(name) for name in ("a.weight", "a.b.weight", "a.b", "ab.bias")] == [0, 1, 1, 2]
    with worded(InvalidParameter, parameter="clip"):
        rule.layer_of("abc")


def test_a_parameter_without_a_norm_is_refused_before_the_run():
    model, x, y = data(torch.float32)
    with worded(InvalidParameter, parameter="clip"):
        clipped_sum(model, x, y, rule=learn.PerLayer({"words": 1.0, "first": 1.0}))


def test_norms_of_whole_gradients_are_not_taken_for_those_of_layers():
    plan = learn.DPSGD(clip=RULE, rate=1.0, steps=1, noise=1.0)
    norms = clip_norms(plan, torch.optim.SGD([torch.zeros(1)], lr=1), None)
    with worded(InvalidOperation):
        norms.factors(torch.ones(4), 0.0)


@pytest.mark.parametrize("bad", [{}, {"a": 0.0}, {1: 1.0}, {"a": math.nan}, [1.0]])
def test_norms_that_are_none(bad):
    with pytest.raises(InvalidParameter, match="norms"):
        learn.PerLayer(bad)
