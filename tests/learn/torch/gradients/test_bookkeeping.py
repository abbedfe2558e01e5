"""Per-example gradients from one backward pass, beside autograd one example at a time and vmap."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from deniable.learn.torch.gradients import gradient_captures  # noqa: E402
from deniable.learn.torch.gradients.bookkeeping import Bookkeeping  # noqa: E402
from deniable.learn.torch.gradients.gradient_check import checked  # noqa: E402
from tests.learn.zoo import ZOO, built, losses_of  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)


def one_by_one(model, losses):
    """The same by autograd, example by example."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rows = []
    for loss in losses:
        grads = torch.autograd.grad(loss, list(named.values()), retain_graph=True, allow_unused=True)
        rows.append([torch.zeros_like(p) if g is None else g for p, g in zip(named.values(), grads, strict=True)])
    return {name: torch.stack([row[i] for row in rows]) for i, name in enumerate(named)}


def close(mine, truth, tolerance=1e-9):
    return float((mine - truth).norm()) <= tolerance * float(truth.norm()) + 1e-14


@pytest.fixture(params=["as on a CPU", "as on an accelerator"])
def _place(request, monkeypatch):
    """Accelerators are given fewer and larger operations; the same arithmetic can be had here."""
    if request.param == "as on an accelerator":
        monkeypatch.setattr(gradient_captures, "QUICK", ())


@pytest.mark.usefixtures("_place")
@pytest.mark.parametrize("name", ZOO)
def test_norms_and_sums_are_those_of_single_examples(name):
    for count, seed in ((5, 0), (4, 1), (1, 2), (5, 3)):  # the second and later batches go by what the first one taught
        if seed == 0:
            model, x, y = built(name, count, seed)
            book = Bookkeeping(model)
        else:
            _, x, y = built(name, count, seed)
        truth = one_by_one(model, losses_of(model, x, y))
        book.forget()
        losses = losses_of(model, x, y)
        found = book.gradients(losses)
        squares = sum(g.reshape(count, -1).square().sum(1) for g in truth.values())
        assert close(found.squared(losses), squares, 1e-6), (count, seed)  # ghost norms have a margin on the safe side
        assert bool((found.squared(losses) >= squares * (1 - 1e-12)).all())
        for key, value in truth.items():
            each = found.each(key, 0, count)
            assert close(value * 0 if each is None else each, value), key
        factors = torch.rand(count, dtype=torch.float64)
        sums = {key: torch.zeros_like(value[0]) for key, value in truth.items()}
        for key, part, (start, stop) in found.summed(factors):
            (sums[key][start:stop] if sums[key].dim() else sums[key]).add_(part)
        for key, value in truth.items():
            assert close(sums[key], torch.tensordot(factors, value, 1)), key
    book.close()


STEP_BY_STEP = {name for name in ZOO if name.startswith(("lstm", "gru", "checkpointed"))}
"""vmap cannot run these: torch writes into a state that all examples share, or has no rule for saved tensors."""


@pytest.mark.parametrize("name", sorted(set(ZOO) - STEP_BY_STEP))
def test_single_precision_agrees_with_vmap_of_the_whole_model(name):
    model, x, y = built(name, dtype=torch.float32)
    book = Bookkeeping(model)
    found = checked(model, book, [x, y], lambda run, batch: losses_of(run, *batch))
    assert found.worst < 1e-5, str(found)
    book.close()


def test_the_zoo_is_large():
    assert len(ZOO) - len(STEP_BY_STEP) >= 40


@pytest.mark.parametrize("name", ["folded, examples first", "folded, places first"])
def test_where_examples_are_is_learnt_again_when_each_has_more_places(name):
    """With one place each, examples first and places first look alike."""
    model, x, y = built(name)
    book = Bookkeeping(model)
    for places in (1, 4):
        truth = one_by_one(model, losses_of(model, x[:, :places], y))
        book.forget()
        found = book.gradients(losses_of(model, x[:, :places], y))
        for key, value in truth.items():
            assert close(found.each(key, 0, 5), value), (places, key)
    book.close()


def test_a_layer_whose_gradient_shows_late_is_learnt_then():
    """On the first batch no gradient passes the second layer; later one does."""

    class Gated(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.gate = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3), 0.0

        def forward(self, x):
            return self.first(x) + self.gate * self.second(x)

    torch.manual_seed(0)
    model = Gated().double()
    book = Bookkeeping(model)
    for model.gate in (0.0, 0.0, 0.7, 0.7):
        x, y = torch.randn(6, 4).double(), torch.randint(0, 3, (6,))
        truth = one_by_one(model, losses_of(model, x, y))
        book.forget()
        losses = losses_of(model, x, y)
        found = book.gradients(losses)
        assert close(found.squared(losses), sum(g.reshape(6, -1).square().sum(1) for g in truth.values()))


def test_calls_that_were_not_there_before_are_learnt_when_they_come():
    class Longer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.times = torch.nn.Linear(4, 4), 1

        def forward(self, x):
            for _ in range(self.times):
                x = torch.tanh(self.inner(x))
            return x

    torch.manual_seed(0)
    model = Longer().double()
    book = Bookkeeping(model)
    for model.times in (1, 3, 2):
        x, y = torch.randn(6, 4).double(), torch.randint(0, 3, (6,))
        truth = one_by_one(model, losses_of(model, x, y))
        book.forget()
        losses = losses_of(model, x, y)
        found = book.gradients(losses)
        assert close(found.squared(losses), sum(g.reshape(6, -1).square().sum(1) for g in truth.values()))


def test_an_input_that_is_written_over_is_refused():
    class Overwriting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Embedding(5, 3)

        def forward(self, ids):
            out = self.inner(ids).mean(1)
            ids.zero_()
            return out

    from deniable.errors import InvalidParameter

    model = Overwriting()
    book = Bookkeeping(model)
    losses = losses_of(model, torch.randint(0, 5, (4, 2)), torch.zeros(4, dtype=torch.long))
    with worded(InvalidParameter, parameter="model"):
        book.gradients(losses)


def test_padding_counts_for_nothing_also_where_it_was_not_there_to_learn_from():
    """What a first batch cannot show is compared with nothing: there the closed form alone says what padding counts."""
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(6, 4, padding_idx=2)
    model = torch.nn.Sequential(embedding, torch.nn.Flatten(), torch.nn.Linear(20, 3)).double()
    with torch.no_grad():
        embedding.weight[2] = 1.0  # so that its place matters to the losses, if not to its own gradient
    y = torch.tensor([0, 1, 2, 0])
    plain = torch.tensor([[0, 1, 3, 4, 5], [5, 5, 0, 1, 1], [3, 4, 3, 4, 0], [1, 0, 5, 3, 4]])
    padded = torch.tensor([[0, 1, 2, 2, 2], [2, 2, 2, 2, 2], [3, 4, 3, 4, 0], [2, 0, 2, 3, 2]])
    book = Bookkeeping(model)
    for x in (plain, padded):
        truth = one_by_one(model, losses_of(model, x, y))
        book.forget()
        losses = losses_of(model, x, y)
        found = book.gradients(losses)
        each = found.each("0.weight", 0, 4)
        assert each is not None
        assert not each[:, 2].any()
        assert close(each, truth["0.weight"])
        squares = sum(g.reshape(4, -1).square().sum(1) for g in truth.values())
        assert close(found.squared(losses), squares, 1e-6)
        sums = torch.zeros_like(embedding.weight)
        for key, part, (start, stop) in found.summed(torch.ones(4, dtype=torch.float64)):
            if key == "0.weight":
                sums[start:stop] += part
        assert not sums[2].any()
        assert close(sums, truth["0.weight"].sum(0))
    book.close()
