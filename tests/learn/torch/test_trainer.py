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
from deniable.errors import InvalidOperation, InvalidParameter  # noqa: E402
from deniable.learn.torch import AdamBC, DeviceNoise, ExactNoise, Trainer  # noqa: E402
from deniable.learn.torch.gradients.bookkeeping import Bookkeeping  # noqa: E402
from deniable.learn.torch.gradients.per_example import PerExample  # noqa: E402
from deniable.units import Unit  # noqa: E402
from tests.learn.runs import data, entropy_loss, made, net, run  # noqa: E402
from tests.learn.zoo import DictOutput, Encoder  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)


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
        drawn = noise.rounded_gaussian(sigma=width, size=(count,), entropy=again)
        for part in total:
            steps = np.rint(part.double().numpy() / float(spacing))
            own, drawn = drawn[: part.numel()], drawn[part.numel() :]
            expected.append((steps + own.reshape(part.shape)) * float(spacing))
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
            lengths.append(math.sqrt(sum(float(s.double().square().sum()) for s in trainer._sums.taken().values())))
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
    from deniable.learn.torch.noise_history import Past

    drawn = []

    class Written(DeviceNoise.__mro__[1]):  # the abstract class itself
        assumptions = ()

        def open(self, plan, coordinates): ...

        def add(self, totals):
            drawn.append(torch.randn(totals[0].shape, dtype=torch.float64))
            return [totals[0] + drawn[-1]]

    past, outputs = Past(plan.coefficients), []
    for _ in range(6):
        past.begin()
        outputs.append(past.released({"w": torch.zeros(3)}, Written())[0].double())
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
        drawn = exact.add([torch.zeros(count, dtype=torch.float64)])[0] * factor
        return abs(float(drawn.square().mean()) / plan.sigma**2 - 1) < 7 * math.sqrt(2 / count)

    assert fits(1.0)
    assert not fits(0.97)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_device_noise_has_the_spread_that_was_planned_and_is_drawn_anew(dtype):
    """n = 2·10⁵ draws for each of four vectors: a large tensor (in pieces) and 2000 small ones (joined), in two steps.

    Of each, Σz²/σ² is chi-squared with n degrees: beyond n(1 ± 7√(2/n)) with a chance below 7e-11 (Laurent & Massart
    2000, Lemma 1, x = 23.9 above and 24.5 below). Of two, Σzz′/σ² has the cumulants -n/2 log(1 - s²): beyond ±7√n with
    a chance below 2e^(-49/2 + 0.01) < 5e-11 by Chernoff at s = 7/√n; so has one with itself, moved by a place. All of
    it together: below 1e-9. Noise 3 % off, 6 % in variance or 19 deviations, is rejected, and so is a twentieth of
    another draw.
    """
    count, plan = 200_000, learn.DPSGD(clip=2.0, rate=0.5, steps=3, noise=1.5)
    device = DeviceNoise()
    device.open(plan, 2 * count)

    def step():
        totals = [torch.full((count // 100, 100), 3.0, dtype=dtype), *torch.full((2000, 100), -5.0, dtype=dtype)]
        large, *small = device.add(totals)
        assert large.dtype == dtype
        return [(large - 3.0).flatten().double() / plan.sigma, (torch.cat(small) + 5.0).double() / plan.sigma]

    def fits(drawn):
        return abs(float(drawn.square().sum()) / count - 1) < 7 * math.sqrt(2 / count)

    def apart(one, other):
        return abs(float(one @ other)) < 7 * math.sqrt(count)

    drawn = step() + step()
    for one in drawn:
        assert fits(one)
        assert not fits(one * 0.97)
        assert not fits(one * 1.03)
        assert apart(one, one.roll(1))
    for one, other in itertools.combinations(drawn, 2):
        assert apart(one, other)
        assert not apart(one, other + one / 20)
    again = DeviceNoise()
    again.open(plan, count)
    assert apart(again.add([torch.zeros(count, dtype=dtype)])[0].double() / plan.sigma, drawn[0])


def test_outputs_of_exact_noise_are_on_the_grid():
    exact, plan = ExactNoise(), learn.DPSGD(clip=1.0, rate=1.0, steps=1, noise=1.0)
    exact.open(plan, 100)
    values = exact.add([torch.randn(100, dtype=torch.float64)])[0].numpy() * 2.0**31
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
        trainer.backward(entropy_loss(trainer.model, (x, y)))
        if trainer._redo is None:  # a record may come several times: for reference, or because it is alone
            sizes.append(len(set(map(tuple, x.tolist()))))
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


def test_check_agrees_with_vmap_and_says_where_not(monkeypatch):
    trainer = made(Encoder(), dataset=(torch.randint(0, 30, (40, 6)), torch.randint(0, 3, (40,))))
    batch = [torch.randint(0, 30, (5, 6)), torch.randint(0, 3, (5,))]
    for losses in (None, entropy_loss):
        found = trainer.check(batch, losses=losses)
        assert found.worst < 1e-5
        assert set(found.by_parameter) == {name for name, _ in trainer.model.named_parameters()}
    whole = Bookkeeping.gradients
    monkeypatch.setattr(Bookkeeping, "gradients", lambda book, losses: whole(book, losses * 2))
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
    assert "one is removed by blanking it, and added in place of a blank" in exact.guarantee.describe()
    known = made(plan=learn.DPSGD(clip=1.0, rate=0.3, steps=4, noise=1.0, records=40))
    assert "blank" not in known.guarantee.describe()
    assert not any("number of records" in words for words in known.guarantee.assumptions)
    assert any("protects nobody" in words for words in made(entropy=noise.ReplayEntropy(1)).guarantee.assumptions)
    drawn_again = made(noise=DeviceNoise(), entropy=noise.ReplayEntropy(1)).guarantee.assumptions
    assert any("who takes part is replayable" in words for words in drawn_again)
    assert any("separation is proved" in words for words in exact.guarantee.assumptions)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert any("reduced precision" in words for words in exact.guarantee.assumptions)
    finally:
        torch.set_float32_matmul_precision(before)
    assert not any("reduced precision" in words for words in exact.guarantee.assumptions)
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


def test_forward_passes_outside_of_a_batch_are_not_held():
    """Whoever evaluates with gradients on would fill the memory with inputs of layers."""
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=1.0, steps=3, noise=1.0))
    x, heard = data()[0], trainer._book.listener
    trainer.model(x)
    assert not heard.calls
    for number, batch in enumerate(trainer):
        losses = entropy_loss(trainer.model, batch)
        assert heard.calls
        trainer.backward(losses)
        trainer.model(x)
        assert not heard.calls
        if number == 2:
            break
    trainer.model(x)
    assert not heard.calls
    run(trainer)
    assert trainer.finished
    assert not any(module._forward_hooks for module in trainer.model.modules())


def test_a_batch_that_outlives_its_loop_may_still_be_used():
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=1.0, steps=3, noise=1.0))
    batch = next(iter(trainer))
    trainer.backward(entropy_loss(trainer.model, batch))


def test_check_sees_what_training_uses(monkeypatch):
    """Not only gradients of single examples: lengths that are too short and sums that are off are told."""
    right, batch = made().check(data()), data()
    assert right.agrees
    squared, summed = PerExample.squared, PerExample.summed
    with monkeypatch.context() as patch:
        patch.setattr(PerExample, "squared", lambda self, losses: squared(self, losses) * 0.999)
        assert not made().check(batch).agrees
    with monkeypatch.context() as patch:
        patch.setattr(PerExample, "summed", lambda self, c: ((n, -part, rows) for n, part, rows in summed(self, c)))
        assert not made().check(batch).agrees


def test_lengths_that_are_too_short_are_refused_on_the_first_batch(monkeypatch):
    squared = PerExample.squared
    monkeypatch.setattr(PerExample, "squared", lambda self, losses: squared(self, losses) * 0.96)
    with pytest.raises(InvalidParameter, match="cannot be separated"):  # of a parameter that random examples decide
        run(made())


def test_check_knows_the_precision_and_what_it_cannot_compare():
    def halves(model, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return entropy_loss(model, batch).float()

    found = made().check(data(), losses=halves)
    assert found.agrees
    assert found.tolerance > 1e-4
    with worded(InvalidParameter, parameter="losses"):
        made().check((data()[0][:0],))

    def item(model, batch):
        out = model(batch[0])
        return out.sum(1) * (1.0 if float(out.detach().sum()) > -1e9 else 0.0)

    with worded(InvalidOperation):
        made().check(data(), losses=item)
