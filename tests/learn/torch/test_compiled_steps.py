"""Steps that run as a captured graph: the same sums as in a loop, and one record moves them by one norm at most.

The independent answers are the loop over the trainer, whose gradients other tests compare with autograd and vmap, and
brute force with and without a record (`guards/test_one_record.py`).
"""

from __future__ import annotations

import re
import shutil

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*(Sparse|sparse).*")]

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from deniable import learn  # noqa: E402
from deniable.errors import InvalidParameter  # noqa: E402
from deniable.learn.torch import Trainer, compiled_steps  # noqa: E402
from deniable.learn.torch.clip_norms import ChangingNorm  # noqa: E402
from deniable.learn.torch.gradients import bookkeeping  # noqa: E402
from deniable.learn.torch.gradients.step_graphs import NotCaptured  # noqa: E402
from deniable.learn.torch.guards.sum_comparison import SumComparison  # noqa: E402
from deniable.learn.torch.guards.tensor_domains import ExampleRows  # noqa: E402
from tests.learn.mixing_models import APART, MIXING, records  # noqa: E402
from tests.learn.torch.guards.test_one_record import REFUSED, ROUNDING, Told, _steps, moved, summed  # noqa: E402

torch.set_num_threads(1)


def losses_of(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


class Attending(nn.Module):
    """Word and position embeddings, attention, layer normalisation, dropout that is off."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Embedding(5, 8)
        self.mix, self.norm, self.head = nn.Linear(8, 24), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]).unsqueeze(0))
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.mix(x).chunk(3, -1))
        x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.head(self.norm(x).mean(1))


def pictures():
    body = [nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(2)]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(16, 3))


MODELS = {
    "mlp": (mlp, lambda: torch.randn(20, 6)),
    "attention": (Attending, lambda: torch.randint(0, 11, (20, 5))),
    "pictures": (pictures, lambda: torch.randn(20, 1, 6, 6)),
}


def trained(
    name, *, is_run, steps=3, change=lambda model, x: None, physical_batch=6, clip=0.5, losses=losses_of, **more
):
    torch.manual_seed(0)
    make, inputs = MODELS[name]
    model, x, told = make(), inputs(), Told()
    change(model, x)
    plan = learn.DPSGD(clip=clip, rate=1.0, steps=steps, noise=1.0)
    trainer = Trainer(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        plan,
        (x, torch.arange(20) % 3),
        noise=told,
        progress=False,
        physical_batch=physical_batch,
        **more,
    )
    if is_run:
        trainer.run(losses)
    else:
        for batch in trainer:
            trainer.backward(losses(model, batch))
    return trainer, told.sums


def is_close(one, other):
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_a_run_has_the_sums_of_a_loop(name):
    """20 records in batches of 6: the last batch of a step is filled up with copies, which count nothing."""
    trainer, sums = trained(name, is_run=True)
    loop, truth = trained(name, is_run=False)
    assert trainer._compiled.has_run
    assert trainer._compiled.why_not is None
    assert is_close(sums, truth)
    assert trainer.history.average == pytest.approx(loop.history.average, rel=1e-5)
    assert trainer.separation == "proved"
    assert any("compiled steps" in each for each in trainer.guarantee.assumptions)
    assert not any("compiled steps" in each for each in loop.guarantee.assumptions)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_an_example_that_is_not_finite_counts_nothing(bad):
    def spoil(model, x):
        x[9] = bad

    trainer, sums = trained("mlp", is_run=True, change=spoil)
    loop, truth = trained("mlp", is_run=False, change=spoil)
    assert trainer._compiled.has_run
    assert is_close(sums, truth)
    assert trainer.history.left_out == loop.history.left_out == [1, 1, 1]


def test_copies_of_an_example_that_is_not_finite_count_nothing():
    """The first example of the last batch of a step, which is the one that is copied."""

    def spoil(model, x):
        x[17] = float("nan")

    trainer, sums = trained("mlp", is_run=True, change=spoil)
    _, truth = trained("mlp", is_run=False, change=spoil)
    assert is_close(sums, truth)
    assert trainer.history.left_out == [1, 1, 1]


def test_adaptive_clipping_does_not_count_copies(monkeypatch):
    def counted(*, is_run):
        """How many gradients of a first step are shorter than the norm, less the others, batch by batch."""
        found = []

        def added(self):
            found.append(int(self._pending))

        monkeypatch.setattr(ChangingNorm, "added", added)
        trained("mlp", is_run=is_run, steps=1, clip=learn.AdaptiveNorm(0.5, quantile=0.5, count_noise=10.0))
        return found

    assert counted(is_run=True) == counted(is_run=False)


def test_the_python_code_runs_for_new_shapes_only():
    calls = []

    def counting(model, batch):
        calls.append(len(batch[0]))
        return losses_of(model, batch)

    trained("mlp", is_run=True, steps=9, losses=counting)
    # Five examples to learn from; the captures of six examples and of three; each is preceded by its reference.
    assert len(calls) < 9
    assert calls.count(6) == 1


def test_another_mode_of_the_model_is_captured_anew():
    """Dropout that after_step switches on: the graph of the steps before must not run any more."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3)).eval()
    seen = []

    def after(trainer):
        seen.append(len(trainer._compiled._steps))
        model.train()

    plan = learn.DPSGD(clip=0.5, rate=1.0, steps=4, noise=1.0)
    data = torch.randn(20, 6), torch.arange(20) % 3
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    told = Told()
    trainer = Trainer(model, optimizer, plan, data, noise=told, progress=False, physical_batch=6, after_step=after)
    trainer.run(losses_of)
    assert trainer._compiled._steps[next(iter(trainer._compiled._steps))] is not None
    assert not torch.equal(told.sums[2], told.sums[3])  # dropout draws anew in each step
    assert seen == [1, 1, 1, 1]


def test_a_buffer_that_changes_between_steps_is_seen():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 3)
            self.register_buffer("shift", torch.zeros(3))

        def forward(self, x):
            return self.inner(x) + self.shift

    def sums(is_run):
        torch.manual_seed(0)
        model, told = Shifted(), Told()

        def after(trainer):
            model.shift += torch.tensor([1.0, 0.0, 0.0])

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        plan = learn.DPSGD(clip=0.5, rate=1.0, steps=4, noise=1.0)
        data = torch.randn(20, 6), torch.arange(20) % 3
        trainer = Trainer(model, optimizer, plan, data, noise=told, progress=False, physical_batch=6, after_step=after)
        if is_run:
            trainer.run(losses_of)
            assert trainer._compiled.has_run
        else:
            for batch in trainer:
                trainer.backward(losses_of(model, batch))
        return told.sums

    assert is_close(sums(True), sums(False))


class Kept(nn.Module):
    """A model that keeps what it saw."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 3)
        self.last = None

    def forward(self, x):
        self.last = x.detach().mean()
        return self.inner(x)


class Hooked(nn.Module):
    """A backward pass that mixes examples, by a hook in the forward pass."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 3)

    def forward(self, x):
        made = self.inner(x)
        if made.requires_grad:
            made.register_hook(lambda grad: grad + grad.sum(0))
        return made


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad + grad.sum(0)


class Written(nn.Module):
    """A backward pass that mixes examples, written in Python."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 3)

    def forward(self, x):
        return Doubled.apply(self.inner(x))


@pytest.mark.filterwarnings("ignore:each example is computed alone")
@pytest.mark.parametrize(
    ("make", "why"),
    [(Kept, "autograd|stores"), (Hooked, "a hook on the backward pass"), (Written, "written in Python")],
)
def test_what_a_graph_cannot_show_is_not_compiled(make, why, monkeypatch):
    """Even if the loop accepted the model: the capture itself refuses it."""
    monkeypatch.setitem(MODELS, "it", (make, lambda: torch.randn(20, 6)))
    trainer, _ = trained("it", is_run=True)
    assert not trainer._compiled.has_run
    assert not isinstance(getattr(trainer.model, "last", None), torch.Tensor)
    steps = compiled_steps.CompiledSteps(
        trainer._book,
        trainer._guard,
        trainer._clipping,
        losses_of,
        6,
        may_overwrite=False,
    )
    trainer._guard.why_alone, trainer._book.is_learning = None, False
    with pytest.raises(NotCaptured, match=why):
        steps._made([torch.randn(6, 6), torch.arange(6) % 3])


def test_clipping_layer_by_layer_runs_as_in_a_loop():
    clip = learn.PerLayer({"0": 0.3, "2": 0.4})
    trainer, sums = trained("mlp", is_run=True, clip=clip)
    _, truth = trained("mlp", is_run=False, clip=clip)
    assert not trainer._compiled.has_run
    assert is_close(sums, truth)


def test_a_size_is_needed():
    with pytest.raises(InvalidParameter, match="physical_batch"):
        trained("mlp", is_run=True, physical_batch=None)


@pytest.mark.parametrize("name", [pytest.param(each, marks=pytest.mark.slow) for each in MIXING if each not in REFUSED])
def test_one_record_moves_the_sum_of_a_mixing_model_by_one_norm_at_most(name):
    _, most = moved(MIXING[name], 30, steps=_steps(name), is_run=True)
    assert most <= 1 + ROUNDING["float32"]


@pytest.mark.parametrize(
    ("name", "precision"),
    [pytest.param(a, b, marks=() if b == "float32" else pytest.mark.slow) for a in APART for b in ROUNDING],
)
def test_one_record_moves_the_sum_of_a_run_by_one_norm_at_most(name, precision):
    trainer, most = moved(APART[name], 60, steps=2, precision=precision, is_run=True)
    assert trainer.separation == "proved"
    assert 0.9 < most <= 1 + ROUNDING[precision]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("sorted and undone", "aten::sort|aten::argsort"),
        ("rolled", "aten::roll"),
        ("flipped by an index", "aten::index"),
        ("picked by argmax", "cannot be captured"),
        ("a sign by the size of the batch", "sizes"),
        ("a constant by the size of the batch", "a constant tensor"),
        ("the size of the batch as a sum of ones", "sizes"),
    ],
)
def test_graphs_of_mixing_models_are_not_proved(name, why, monkeypatch):
    """The loop is made to believe them, so that only the rules for the graph stand in the way."""
    monkeypatch.setattr(bookkeeping, "check_alone", lambda *_: None)
    monkeypatch.setattr(bookkeeping.Bookkeeping, "_check_graph", lambda *_: None)
    monkeypatch.setattr(bookkeeping.Bookkeeping, "_look_again", lambda *_: None)
    monkeypatch.setattr(SumComparison, "is_due", lambda self: False)
    trainer, _ = summed(MIXING[name], records(60, torch.float32), steps=1, is_run=True, separation="assumed")
    assert not trainer._compiled.has_run
    assert re.search(why, trainer._compiled.why_not), trainer._compiled.why_not


def test_the_comparison_of_runs_can_fail(monkeypatch):
    """A test of the tests above: everything that is traced counts as proved."""
    name = "a sign by the size of the batch"
    monkeypatch.setattr(compiled_steps.Trace, "of", lambda self, tensor: ExampleRows(0, 1))
    monkeypatch.setattr(compiled_steps, "dependence_on_size", lambda *_: None)
    monkeypatch.setattr("deniable.learn.torch.guards.batch_guard.dependence_on_size", lambda *_: None)
    monkeypatch.setattr("deniable.learn.torch.gradients.batch_layout.Layout.is_of", lambda *_: True)
    _, most = moved(MIXING[name], 60, steps=1, is_run=True)
    assert most > 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="a compiler for CPUs is not installed")
@pytest.mark.filterwarnings("ignore")
def test_compiled_code_has_the_sums_of_a_loop(monkeypatch):
    """On a CPU, where graphs are not compiled by default."""
    monkeypatch.setattr(compiled_steps, "COMPILED_ON", ("cpu",))
    trainer, sums = trained("mlp", is_run=True)
    _, truth = trained("mlp", is_run=False)
    assert trainer._compiled.has_run
    assert trainer._compiled.why_not is None
    assert is_close(sums, truth)
