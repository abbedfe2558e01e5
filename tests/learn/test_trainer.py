"""The trainer: what was run is what was promised, whatever is given to it."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from deniable import learn, noise  # noqa: E402
from deniable.errors import BudgetExceeded, InvalidOperation, InvalidParameter, UnreadableRecord  # noqa: E402
from deniable.learn.torch import AdamBC, DeviceNoise, ExactNoise, Trainer  # noqa: E402
from deniable.ledger import Budget, Ledger, State  # noqa: E402
from deniable.units import Unit  # noqa: E402
from tests.learn.zoo import DictOutput, Encoder  # noqa: E402

torch.set_num_threads(1)


def data(count=40, width=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=generator)
    return x, (x.sum(1) > 0).long()


def net(width=4, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(width, 5), nn.Tanh(), nn.Linear(5, 2))


def made(model=None, plan=None, dataset=None, *, lr=0.1, **more):
    model = net() if model is None else model
    plan = learn.DPSGD(clip=1.0, rate=0.3, steps=4, noise=1.0) if plan is None else plan
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return Trainer(model, optimizer, plan, data() if dataset is None else dataset, progress=False, **more)


def entropy_loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def run(trainer, batches=None, losses=lambda each: each):
    for batch in trainer if batches is None else batches:
        trainer.backward(losses(entropy_loss(trainer.model, batch)))
    return trainer


def clipped_sum(model, x, y, norm):
    """By autograd, one example at a time."""
    parameters = list(model.parameters())
    total = [torch.zeros_like(p) for p in parameters]
    for one, label in zip(x, y, strict=True):
        grads = torch.autograd.grad(F.cross_entropy(model(one[None]), label[None]), parameters)
        length = math.sqrt(sum(float(g.double().square().sum()) for g in grads))
        for into, grad in zip(total, grads, strict=True):
            into += grad * min(1.0, norm / length)
    return total


# -- the guarantee is what was run -------------------------------------------------------------------------------------


@pytest.mark.parametrize("physical", [None, 3])
def test_every_random_choice_of_a_run_is_the_one_that_the_curve_is_about(physical):
    """Replays coins and noise, recomputes each step by other means, and takes every record away once."""
    x, y = data(12)
    plan = learn.DPSGD(clip=0.5, rate=0.4, steps=5, noise=0.8)
    states = []
    model = net()
    states.append([p.detach().clone() for p in model.parameters()])
    keep = lambda trainer: states.append([p.detach().clone() for p in trainer.model.parameters()])  # noqa: E731
    run(made(model, plan, (x, y), physical_batch=physical, entropy=noise.ReplayEntropy(7), after_step=keep))
    assert len(states) == plan.steps + 1

    again = noise.ReplayEntropy(7)
    spacing = Fraction(2) ** noise.Grid.for_noise(Fraction(plan.noise) * Fraction(0.5)).exponent
    count = sum(p.numel() for p in model.parameters())
    # Sums are rounded to the grid: up to √count steps more may be between neighbours, and the noise is larger by that.
    width = math.ceil((Fraction(0.5) / spacing + math.isqrt(count - 1) + 1) * Fraction(plan.noise))
    assert Fraction(width) * spacing >= Fraction(plan.noise) * Fraction(0.5)
    drawn_ever = np.zeros(12, dtype=int)
    for before, after in itertools.pairwise(states):
        coins = noise.bernoulli(p=plan.rate, size=(12,), entropy=again)
        drawn_ever += coins
        for parameter, value in zip(model.parameters(), before, strict=True):
            parameter.data.copy_(value)
        taken = np.flatnonzero(coins)
        total = clipped_sum(model, x[taken], y[taken], 0.5)
        expected = []
        for part in total:
            steps = np.rint(part.double().numpy() / float(spacing))
            drawn = noise.rounded_gaussian(sigma=width, size=(part.numel(),), entropy=again).reshape(part.shape)
            expected.append((steps + drawn) * float(spacing))
        for value, old, new in zip(expected, before, after, strict=True):
            grad = torch.from_numpy(value).float() / (plan.rate * 12)
            assert torch.allclose(new, old - 0.1 * grad, atol=1e-5)
        for gone in range(12):
            rest = [place for place in taken if place != gone]
            less = clipped_sum(model, x[rest], y[rest], 0.5)
            moved = math.sqrt(sum(float((a - b).double().square().sum()) for a, b in zip(total, less, strict=True)))
            assert moved <= 0.5 * (1 + 1e-5)
            assert (moved > 0) == (gone in taken)
    assert 0 < drawn_ever.sum() < 12 * plan.steps


@pytest.mark.parametrize("clip", [learn.Flat(0.05), learn.Flat(100.0), learn.Automatic(1.0)])
def test_no_example_moves_a_sum_by_more_than_the_norm(clip):
    x, y = data(20)
    plan = learn.DPSGD(clip=clip, rate=1.0, steps=1, noise=1.0)
    lengths = []
    for place in range(20):
        trainer = made(net(), plan, (x[place : place + 1] * 50, y[place : place + 1]))
        for batch in trainer:
            trainer.backward(entropy_loss(trainer.model, batch))
            lengths.append(math.sqrt(sum(float(s.double().square().sum()) for s in trainer._sums.values())))
    assert max(lengths) <= clip.norm * (1 + 1e-6)
    assert max(lengths) > 0.9 * clip.norm or isinstance(clip, learn.Flat)


def test_correlated_noise_cancels_and_sums_come_through():
    plan = learn.DPFTRL(clip=10.0, batch_size=5, records=40, epochs=2, bands=4, noise=1e-7)
    x, y = data(40)
    model, other = net(), net()
    run(made(model, plan, (x, y)))
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    for step in range(plan.steps):
        rows = slice(step % 8 * 5, step % 8 * 5 + 5)
        (F.cross_entropy(other(x[rows]), y[rows], reduction="sum") / 5).backward()
        optimizer.step()
        optimizer.zero_grad()
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-4)


def test_correlated_noise_is_the_inverse_of_the_factor_times_independent_noise():
    plan = learn.DPFTRL(clip=1.0, batch_size=1, records=6, epochs=1, bands=3, noise=2.0)
    from deniable.learn.torch.trainer import _Past

    drawn = []

    class Written(DeviceNoise.__mro__[1]):  # the abstract class itself
        assumptions = ()

        def open(self, plan, coordinates): ...

        def add(self, total):
            drawn.append(torch.randn(total.shape, dtype=torch.float64))
            return total + drawn[-1]

    past, outputs = _Past(plan), []
    for _ in range(6):
        outputs.append(past.released("w", torch.zeros(3), Written()).double())
        past.turn()
    c = np.array([[float(plan.coefficients[i - j]) if 0 <= i - j < 3 else 0.0 for j in range(6)] for i in range(6)])
    expected = np.linalg.inv(c) @ torch.stack(drawn).numpy()
    assert np.allclose(torch.stack(outputs).numpy(), expected, atol=1e-6)


def test_exact_noise_has_the_spread_that_was_planned():
    """2·10⁵ draws: the sample variance has a relative standard deviation of √(2/n) = 0.0032; 7 of them are allowed
    (false alarm below 1e-11), and noise 3 % too small, 6 % in variance or 19 standard deviations, is seen."""
    count, plan = 200_000, learn.DPSGD(clip=2.0, rate=0.5, steps=3, noise=1.5)

    def fits(factor):
        exact = ExactNoise()
        exact.open(plan, count)
        drawn = exact.add(torch.zeros(count, dtype=torch.float64)) * factor
        return abs(float(drawn.square().mean()) / plan.sigma**2 - 1) < 7 * math.sqrt(2 / count)

    assert fits(1.0)
    assert not fits(0.97)


def test_outputs_of_exact_noise_are_on_the_grid():
    exact, plan = ExactNoise(), learn.DPSGD(clip=1.0, rate=1.0, steps=1, noise=1.0)
    exact.open(plan, 100)
    values = exact.add(torch.randn(100, dtype=torch.float64)).numpy() * 2.0**31
    assert np.array_equal(values, np.rint(values))


def test_empty_batches_still_get_noise():
    model = net()
    before = [p.detach().clone() for p in model.parameters()]
    trainer = made(model, learn.DPSGD(clip=1.0, rate=1e-9, steps=3, noise=1.0, records=40))
    assert list(trainer) == []
    assert trainer.finished
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert trainer.history.average == [None, None, None]


def test_batches_are_poisson():
    """4000 coins of 0.3: the number taken is within 7 standard deviations (false alarm below 1e-11)."""
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.3, steps=100, noise=1.0), physical_batch=5)
    sizes = []
    for x, y in trainer:
        sizes.append(len(x))
        trainer.backward(entropy_loss(trainer.model, (x, y)))
    assert max(sizes) <= 5
    assert abs(sum(sizes) - 1200) < 7 * math.sqrt(4000 * 0.3 * 0.7)


# -- the user's own objects --------------------------------------------------------------------------------------------


def test_the_model_and_the_optimizer_stay_what_they_are():
    model = net()
    keys, kinds = list(model.state_dict()), [type(m) for m in model.modules()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    trainer = Trainer(model, optimizer, learn.DPSGD(clip=1.0, rate=0.5, steps=2, noise=1.0), data(), progress=False)
    run(trainer)
    assert trainer.model is model
    assert trainer.optimizer is optimizer
    assert (list(model.state_dict()), [type(m) for m in model.modules()]) == (keys, kinds)
    assert all(p.grad is None for p in model.parameters())
    trainer.close()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_validation_and_other_forward_passes_leave_no_trace():
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.5, steps=3, noise=1e-6), entropy=noise.ReplayEntropy(3))
    plainly = run(made(plan=learn.DPSGD(clip=1.0, rate=0.5, steps=3, noise=1e-6), entropy=noise.ReplayEntropy(3)))
    for batch in trainer:
        trainer.model(torch.randn(7, 4))
        with torch.no_grad():
            trainer.model(torch.randn(9, 4))
        losses = entropy_loss(trainer.model, batch)
        trainer.model(torch.randn(2, 4))
        trainer.backward(losses)
    for mine, theirs in zip(trainer.model.parameters(), plainly.model.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)


def test_dropout_attention_with_dropout_and_keyword_models_train():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
    model = nn.Sequential(nn.Linear(4, 8), layer, nn.Flatten(), nn.Dropout(0.5), nn.Linear(24, 2))
    x, y = torch.randn(30, 3, 4), torch.randint(0, 2, (30,))
    trainer = run(made(model, learn.DPSGD(clip=1.0, rate=0.5, steps=3, noise=1.0), (x, y)))
    assert {each.unit for each in trainer._book.parameters.values()} == {None}  # all by closed forms
    model = DictOutput()
    ids = torch.randint(1, 20, (30, 5))
    rows = [{"input_ids": i, "attention_mask": torch.arange(5) < 3, "label": t} for i, t in zip(ids, y, strict=True)]
    trainer = made(model, learn.DPSGD(clip=1.0, rate=0.5, steps=3, noise=1.0), rows)
    for batch in trainer:
        label = batch.pop("label")
        trainer.backward(F.cross_entropy(model(**batch)["logits"], label, reduction="none"))
    checked = trainer.check({"input_ids": ids[:6], "attention_mask": torch.ones(6, 5, dtype=torch.bool)})
    assert checked.agrees, str(checked)


def test_check_agrees_with_vmap_and_says_where_not():
    trainer = made(Encoder(), dataset=(torch.randint(0, 30, (40, 6)), torch.randint(0, 3, (40,))))
    batch = [torch.randint(0, 30, (5, 6)), torch.randint(0, 3, (5,))]
    for losses in (None, entropy_loss):
        found = trainer.check(batch, losses=losses)
        assert found.worst < 1e-5
        assert set(found.by_parameter) == {name for name, _ in trainer.model.named_parameters()}
    whole = trainer._book.gradients
    trainer._book.gradients = lambda losses: whole(losses * 2)
    found = trainer.check(batch, losses=entropy_loss)
    assert not found.agrees
    assert "DIFFERS" in str(found)


def test_half_precision_under_autocast_trains():
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.5, steps=3, noise=1.0))
    for x, y in trainer:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = trainer.model(x)
        trainer.backward(F.cross_entropy(out.float(), y, reduction="none"))
    assert trainer.finished


def test_public_steps_are_ordinary_and_said():
    trainer = made()
    weight = trainer.model[0].weight.detach().clone()
    trainer.public_step(F.cross_entropy(trainer.model(data(seed=5)[0]), data(seed=5)[1]))
    assert not torch.equal(weight, trainer.model[0].weight)
    assert trainer.steps_taken == 0
    assert any("1 public steps" in words for words in trainer.guarantee.assumptions)


def test_adam_without_noise_is_adam_and_with_noise_takes_its_variance_off():
    mine, theirs = net(), net()
    first = AdamBC(mine.parameters(), lr=0.01, floor=1e-12)
    second = torch.optim.Adam(theirs.parameters(), lr=0.01, eps=0.0)
    x, y = data()
    for _ in range(5):
        for model, optimizer in ((mine, first), (theirs, second)):
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    plan = learn.DPSGD(clip=2.0, rate=0.25, steps=2, noise=3.0, records=40)
    optimizer = AdamBC(mine.parameters(), lr=0.01)
    run(Trainer(mine, optimizer, plan, data(), progress=False))
    assert optimizer.param_groups[0]["noise_variance"] == pytest.approx((3.0 * 2.0 / 10) ** 2)


def test_the_guarantee_says_all_that_it_rests_on():
    exact, device = made(), made(noise=DeviceNoise())
    assert not any("generator" in words for words in exact.guarantee.assumptions)
    assert any("generator" in words for words in device.guarantee.assumptions)
    assert any("number of records is public" in words for words in exact.guarantee.assumptions)
    known = made(plan=learn.DPSGD(clip=1.0, rate=0.3, steps=4, noise=1.0, records=40))
    assert not any("number of records" in words for words in known.guarantee.assumptions)
    assert any("protects nobody" in words for words in made(entropy=noise.ReplayEntropy(1)).guarantee.assumptions)
    assert exact.guarantee.curve == exact.plan.curve
    assert exact.guarantee.unit == Unit.row()


def test_epsilon_grows_with_the_steps_and_ends_at_the_plan():
    trainer = made()
    assert trainer.epsilon(delta=1e-5) == 0
    run(trainer, trainer.take(2))
    half = trainer.epsilon(delta=1e-5)
    run(trainer)
    assert 0 < half < trainer.epsilon(delta=1e-5) == trainer.plan.curve.epsilon(delta=1e-5)
    assert list(trainer) == []  # the plan is used up
    figure = trainer.plot(delta=1e-5)
    assert [panel.title for panel in figure.panels] == ["Loss", "Privacy"]
    assert max(figure.panels[1].lines["ε so far"].y) == trainer.epsilon(delta=1e-5)


# -- bad input ---------------------------------------------------------------------------------------------------------


class Mixing(nn.Module):
    def __init__(self, detached):
        super().__init__()
        self.inner, self.detached = nn.Linear(4, 2), detached

    def forward(self, x):
        mean = x.mean(0)
        return self.inner(x - (mean.detach() if self.detached else mean)) * (1 + self.inner(x).mean(0).detach())


class Late(nn.Module):
    """Looks at other examples before its first layer, where no gradient would show it."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)

    def forward(self, x):
        return self.inner(x - x.mean(0))


class InnerMix(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        x = self.first(x)
        return self.second(x - x.mean(0))


@pytest.mark.parametrize(
    "model", [Mixing(True), Mixing(False), Late(), InnerMix()], ids=["detached", "mixing", "late", "inner"]
)
def test_models_that_mix_examples_are_refused(model):
    trainer = made(model, learn.DPSGD(clip=1.0, rate=0.9, steps=2, noise=1.0))
    with pytest.raises(InvalidParameter, match=r"other examples|cannot be told apart"):
        run(trainer)


@pytest.mark.parametrize(
    "losses",
    [lambda each: each - each.mean(), lambda each: each * each.sum(), lambda each: each.flip(0) + each],
    ids=["centred", "scaled", "flipped"],
)
def test_losses_that_mix_examples_are_refused(losses):
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.9, steps=2, noise=1.0))
    with pytest.raises(InvalidParameter, match="other examples"):
        run(trainer, losses=losses)


class OptimizedModule(nn.Module):
    """Called as what torch.compile makes."""

    def __init__(self):
        super().__init__()
        self._orig_mod = net()


class Normed(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.body = nn.ModuleDict({"first": nn.Linear(4, 6), "norm": norm, "last": nn.Linear(6, 2)})

    def forward(self, x):
        return self.body["last"](self.body["norm"](self.body["first"](x)))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: Normed(nn.BatchNorm1d(6)), r"body\.norm.*BatchNorm1d.*GroupNorm"),
        (lambda: Normed(nn.InstanceNorm1d(6, track_running_stats=True)), r"body\.norm.*running statistics"),
        (lambda: nn.Sequential(nn.LazyLinear(3)), "has not found its size"),
        (lambda: nn.Sequential(nn.Embedding(3, 2, max_norm=1.0)), "max_norm"),
        (lambda: net().requires_grad_(False), "nothing to train"),
        (lambda: nn.DataParallel(net()), "wrapped in DataParallel"),
        (lambda: OptimizedModule(), "wrapped in OptimizedModule"),
        (lambda: nn.ParameterList([nn.Parameter(torch.zeros(0))]), "no numbers in it"),
        (lambda: "model", "must be an nn.Module"),
    ],
    ids=[
        "batch norm",
        "running statistics",
        "lazy",
        "max norm",
        "frozen",
        "parallel",
        "compiled",
        "zero size",
        "no model",
    ],
)
def test_models_that_cannot_be_private_are_refused_by_name(model, words):
    built = model()
    parameters = list(built.parameters()) if isinstance(built, nn.Module) else []
    given = [p for p in parameters if not isinstance(p, nn.UninitializedParameter)] or [nn.Parameter(torch.zeros(1))]
    plan = learn.DPSGD(clip=1.0, rate=0.5, steps=1, noise=1.0)
    with pytest.raises(InvalidParameter, match=words):
        Trainer(built, torch.optim.SGD(given, lr=0.1), plan, data())


def test_frozen_batch_norm_is_welcome():
    model = Normed(nn.BatchNorm1d(6))
    model.body["norm"].eval().requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    run(Trainer(model, optimizer, learn.DPSGD(clip=1.0, rate=0.5, steps=2, noise=1.0), data(), progress=False))


def test_statistics_that_begin_to_run_later_are_refused():
    model = Normed(nn.BatchNorm1d(6))
    model.body["norm"].eval().requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    trainer = Trainer(model, optimizer, learn.DPSGD(clip=1.0, rate=0.9, steps=2, noise=1.0), data(), progress=False)
    model.train()
    with pytest.raises(InvalidParameter, match=r"body\.norm\.(running_mean|num_batches)"):
        run(trainer)


def test_parameters_that_are_computed_are_refused():
    model = net()
    del model[0]._parameters["weight"]
    model[0]._parameters["weight"] = torch.ones(5, 4, requires_grad=True) * 2
    with pytest.raises(InvalidParameter, match=r"0\.weight.*not a leaf"):
        Trainer(
            model,
            torch.optim.SGD([model[2].weight], lr=0.1),
            learn.DPSGD(clip=1.0, rate=0.5, steps=1, noise=1.0),
            data(),
        )


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        (lambda model: torch.optim.SGD([model[0].weight], lr=0.1), "does not have it"),
        (lambda model: torch.optim.SGD([*model.parameters(), nn.Parameter(torch.zeros(1))], lr=0.1), "not the model's"),
        (lambda model: torch.optim.LBFGS(model.parameters()), "several times"),
        (lambda model: _with_empty_group(model), r"param_groups\[1\].*no parameters"),
        (lambda model: None, "must be a torch.optim.Optimizer"),
    ],
    ids=["missing", "foreign", "lbfgs", "empty group", "none"],
)
def test_optimizers_of_other_parameters_are_refused(optimizer, words):
    model = net()
    with pytest.raises(InvalidParameter, match=words):
        Trainer(model, optimizer(model), learn.DPSGD(clip=1.0, rate=0.5, steps=1, noise=1.0), data())


def _with_empty_group(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.param_groups.append({**optimizer.param_groups[0], "params": []})
    return optimizer


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (
            lambda: torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data()), batch_size=4),
            "sampler of its own",
        ),
        (lambda: torch.utils.data.RandomSampler(range(5)), "sampler of its own"),
        (lambda: iter([1, 2]), "must have a length"),
        (list, "is empty"),
        (lambda: (torch.zeros(3, 2), torch.zeros(4)), "one length"),
    ],
    ids=["loader", "sampler", "stream", "empty", "uneven"],
)
def test_data_that_cannot_be_drawn_fairly_is_refused(dataset, words):
    with pytest.raises(InvalidParameter, match=words):
        made(dataset=dataset())


def test_a_dataset_that_changes_its_length_is_refused():
    rows = [(x, y) for x, y in zip(*data(), strict=True)]
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.5, steps=5, noise=1.0), dataset=rows)

    def growing(each):
        rows.append(rows[0])
        return each

    with pytest.raises(InvalidParameter, match="changed its length"):
        run(trainer, losses=growing)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda each: each.mean(), r"must have the shape \(\d+,\)"),
        (lambda each: each[:, None], "one loss for each example"),
        (lambda each: each[1:], "one loss for each example"),
        (lambda each: each.detach(), "no graph"),
        (lambda each: each * math.nan, "not all finite"),
        (lambda each: each / 0, "not all finite"),
        (lambda each: 3.0, "must be a tensor"),
    ],
    ids=["mean", "column", "short", "detached", "nan", "infinite", "number"],
)
def test_losses_that_mean_nothing_are_refused(change, words):
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.9, steps=2, noise=1.0))
    with pytest.raises(InvalidParameter, match=words) as caught:
        run(trainer, losses=change)
    assert "tensor(" not in str(caught.value)  # nothing of the data


def test_gradients_that_are_not_finite_are_refused_by_name():
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 2, bias=False)

        def forward(self, x):
            return torch.sqrt(self.inner(x * 0))

    with pytest.raises(InvalidParameter, match=r"inner\.weight.*not finite"):
        run(made(Root(), learn.DPSGD(clip=1.0, rate=0.9, steps=1, noise=1.0)))


def test_batches_cannot_be_left_out_or_used_twice():
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.9, steps=3, noise=1.0))
    with pytest.raises(InvalidOperation, match="was not called"):
        list(trainer)
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.9, steps=3, noise=1.0))
    batch = next(iter(trainer))
    trainer.backward(entropy_loss(trainer.model, batch))
    again = entropy_loss(trainer.model, batch)
    with pytest.raises(InvalidOperation, match="once"):
        trainer.backward(again)
    with pytest.raises(InvalidOperation, match="for batch in trainer"):
        trainer.backward(torch.zeros(3, requires_grad=True))


def test_plans_must_fit_and_be_calibrated():
    with pytest.raises(InvalidParameter, match="calibrate"):
        made(plan=learn.DPSGD(clip=1.0, rate=0.5, steps=1))
    with pytest.raises(InvalidParameter, match="40 records, and the plan's order is one of 50"):
        made(plan=learn.DPFTRL(clip=1.0, batch_size=5, records=50, epochs=1, bands=2, noise=1.0))
    with pytest.raises(InvalidParameter, match="must be a plan"):
        made(plan="DPSGD")


# -- the ledger --------------------------------------------------------------------------------------------------------


def test_a_ledger_is_charged_before_the_first_step_and_sealed_after_the_last():
    budget = Budget(epsilon=8, delta=1e-5, keys_delta=5e-6)
    plan = learn.DPSGD(clip=1.0, rate=0.3, steps=4, noise=2.0)
    with Ledger.open(budget=budget, unit=Unit.row(), dataset="letters") as ledger:
        trainer = made(plan=plan, ledger=ledger, delta=1e-6)
        assert ledger.charged.units == 0
        for batch in trainer:
            assert ledger.charged == plan.price(budget, unit=Unit.row(), delta=1e-6)
            trainer.backward(entropy_loss(trainer.model, batch))
        states = [entry.state for entry in ledger.entries()]
        assert states == [State.RESERVED, State.SEALED]
        trainer.close()
        assert len(list(ledger.entries())) == 2


def test_training_that_does_not_fit_into_the_budget_does_not_begin():
    with Ledger.open(budget=Budget(epsilon=0.1, delta=1e-6), unit=Unit.row(), dataset="letters") as ledger:
        model = net()
        weight = model[0].weight.detach().clone()
        with pytest.raises(BudgetExceeded):
            run(made(model, ledger=ledger, delta=1e-8))
        assert torch.equal(weight, model[0].weight)
        with pytest.raises(InvalidParameter, match="delta column"):
            run(made(net(), ledger=ledger))


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_resumed_run_goes_on_where_it_was(tmp_path):
    plan = learn.DPSGD(clip=1.0, rate=0.5, steps=6, noise=1.0)
    first = made(plan=plan)
    run(first, first.take(3))
    first.save(tmp_path / "model.pt")
    second = made(net(seed=9), plan)
    second.load(tmp_path / "model.pt")
    assert second.steps_taken == 3
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
    run(second)
    assert second.finished


def test_steps_after_a_checkpoint_are_not_forgotten(tmp_path):
    plan = learn.DPSGD(clip=1.0, rate=0.5, steps=6, noise=1.0)
    first = made(plan=plan)
    run(first, first.take(2))
    first.save(tmp_path / "model.pt")
    run(first, first.take(3))  # and then the machine goes down
    second = made(plan=plan)
    second.load(tmp_path / "model.pt")
    assert second.steps_taken == 5
    assert second.epsilon(delta=1e-5) == first.epsilon(delta=1e-5)
    first.load(tmp_path / "model.pt")  # going back does not give anything back
    assert first.steps_taken == 5


def test_a_step_that_was_begun_is_spent(tmp_path):
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.9, steps=6, noise=1.0))
    trainer.save(tmp_path / "model.pt")
    for _ in trainer:
        break
    assert trainer.steps_taken == 1
    other = made(plan=trainer.plan)
    other.load(tmp_path / "model.pt")
    assert other.steps_taken == 1


def test_checkpoints_of_other_plans_runs_and_ledgers_are_refused(tmp_path):
    path = tmp_path / "model.pt"
    trainer = made()
    run(trainer, trainer.take(1))
    trainer.save(path)
    with pytest.raises(InvalidParameter, match="another plan"):
        made(plan=learn.DPSGD(clip=1.0, rate=0.3, steps=400, noise=1.0)).load(path)
    with pytest.raises(InvalidParameter, match="another run"):
        run(made()).load(path)
    with pytest.raises(InvalidParameter, match="not there"):
        made().load(tmp_path / "other.pt")
    (tmp_path / "broken.pt").write_bytes(b"no checkpoint")
    with pytest.raises(UnreadableRecord):
        made().load(tmp_path / "broken.pt")
    (tmp_path / "model.pt.steps").unlink()
    with pytest.raises(InvalidParameter, match="journal of this checkpoint is missing"):
        made().load(path)


def test_a_resumed_run_is_not_charged_twice_and_needs_its_ledger(tmp_path):
    budget = Budget(epsilon=20, delta=1e-5, keys_delta=5e-6)
    plan = learn.DPSGD(clip=1.0, rate=0.5, steps=4, noise=2.0)
    with Ledger.open(tmp_path / "ledger.db", budget=budget, unit=Unit.row(), dataset="letters") as ledger:
        first = made(plan=plan, ledger=ledger, delta=1e-6)
        run(first, first.take(2))
        first.save(tmp_path / "model.pt")
        with pytest.raises(InvalidParameter, match="same ledger"):
            made(plan=plan).load(tmp_path / "model.pt")
        second = made(plan=plan, ledger=ledger, delta=1e-6)
        second.load(tmp_path / "model.pt")
        charged = ledger.charged
        run(second)
        assert ledger.charged == charged
    with Ledger.open(budget=budget, unit=Unit.row(), dataset="letters") as other:
        third = made(plan=plan, ledger=other, delta=1e-6)
        with pytest.raises(InvalidParameter, match="not the one that paid"):
            third.load(tmp_path / "model.pt")


def test_correlated_noise_goes_on_from_a_checkpoint_or_not_at_all(tmp_path):
    plan = learn.DPFTRL(clip=10.0, batch_size=5, records=40, epochs=2, bands=4, noise=1e-7)
    whole = run(made(plan=plan))
    first = made(plan=plan)
    run(first, first.take(5))
    first.save(tmp_path / "model.pt")
    second = made(net(seed=4), plan)
    second.load(tmp_path / "model.pt")
    run(second)
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    run(first, first.take(1))
    with pytest.raises(InvalidParameter, match="would have to match"):
        made(plan=plan).load(tmp_path / "model.pt")


# -- several processes, and audits -------------------------------------------------------------------------------------


def _one_of_two(rank, place, results):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
    group = torch.distributed.group.WORLD
    plan = learn.DPSGD(clip=0.3, rate=1.0, steps=4, noise=1e-7)
    trainer = made(net(seed=rank), plan, data(21), process_group=group, physical_batch=4)
    run(trainer)
    results[rank] = [p.detach().numpy() for p in trainer.model.parameters()]
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_do_what_one_does(tmp_path):
    context = torch.multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        results = manager.dict()
        started = [context.Process(target=_one_of_two, args=(rank, tmp_path / "store", results)) for rank in (0, 1)]
        for each in started:
            each.start()
        for each in started:
            each.join(120)
        found = dict(results)
    alone = run(made(net(), learn.DPSGD(clip=0.3, rate=1.0, steps=4, noise=1e-7), data(21)))
    for place, parameter in enumerate(alone.model.parameters()):
        assert np.array_equal(found[0][place], found[1][place])
        assert np.allclose(found[0][place], parameter.detach().numpy(), atol=1e-5)


def _with_canaries(noise_level):
    """Each canary has a direction of its own, so that without noise it is known by its loss."""
    x, y = data(40, 100)
    x[:, :60] = 0
    torch.manual_seed(0)
    model = nn.Linear(100, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    plan = learn.DPSGD(clip=1.0, rate=0.9, steps=20, noise=noise_level, records=70)
    canaries = (3 * torch.eye(60, 100), torch.ones(60, dtype=torch.long))
    return run(Trainer(model, optimizer, plan, (x, y), canaries=canaries, progress=False))


def test_audits_of_a_trained_model_stay_below_the_claim():
    """At confidence 1 - 1e-9: a false alarm once in 10⁹ runs."""
    trainer = _with_canaries(8.0)
    found = trainer.audit(entropy_loss, delta=1e-5, confidence=1 - 1e-9)
    assert found.epsilon <= trainer.curve.epsilon(delta=1e-5)
    assert found.canaries == 60
    # The audit can see: with next to no noise every canary is known (unless one that is in was never drawn: 0.1²⁰).
    assert _with_canaries(1e-3).audit(entropy_loss, delta=1e-5, confidence=0.99).epsilon > 1
    with pytest.raises(InvalidOperation, match="canaries"):
        made().audit(entropy_loss, delta=1e-5, confidence=0.9)
