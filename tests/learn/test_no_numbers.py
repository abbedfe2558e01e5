"""One record that is no number: it counts for nothing, stops nothing, and changes nothing for the others."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from deniable import learn  # noqa: E402
from deniable.errors import InvalidOperation  # noqa: E402
from deniable.learn.torch import DeviceNoise, Trainer  # noqa: E402
from deniable.learn.torch.gradients import gradient_captures  # noqa: E402
from deniable.learn.torch.gradients.bookkeeping import Bookkeeping  # noqa: E402
from tests.learn.runs import data, entropy_loss, made, net, run  # noqa: E402
from tests.learn.zoo import ZOO, Encoder, built, losses_of  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)

BAD = [math.nan, math.inf]


@pytest.fixture(params=["as on a CPU", "as on an accelerator"])
def _place(request, monkeypatch):
    if request.param == "as on an accelerator":
        monkeypatch.setattr(gradient_captures, "QUICK", ())


def _spoilt(model, x, y, at, bad):
    """Losses of which one, and its gradient, is no number: by its features, or by its loss where those are words."""
    if x.is_floating_point():
        x = x.clone()
        x[at] = bad
        return losses_of(model, x, y)
    losses = losses_of(model, x, y)
    return losses * torch.where(torch.arange(len(x)) == at, bad, 1.0)


def _sums(model, found, losses):
    lengths = found.squared(losses).sqrt()
    sums = {name: torch.zeros_like(each) for name, each in model.named_parameters() if each.requires_grad}
    for key, part, (start, stop) in found.summed(0.1 / lengths.clamp(min=0.1)):
        (sums[key][start:stop] if sums[key].dim() else sums[key]).add_(part)
    return sums


@pytest.mark.usefixtures("_place")
@pytest.mark.parametrize("name", ZOO)
def test_the_others_count_for_what_they_would_without_it(name):
    model, x, y = built(name)
    book, at = Bookkeeping(model), 2
    book.gradients(losses_of(model, x, y))
    others = [each for each in range(len(x)) if each != at]
    book.forget()
    without = losses_of(model, x[others], y[others])
    expected = _sums(model, book.gradients(without), without)
    assert any(bool(each.ne(0).any()) for each in expected.values())
    for bad in BAD:
        book.forget()
        losses = _spoilt(model, x, y, at, bad)
        found = book.gradients(losses)
        if not gradient_captures.QUICK:  # not waited for: it is seen when all is summed, and the batch comes again
            _sums(model, found, losses)
            assert not found.is_sound()
            continue
        for key, value in _sums(model, found, losses).items():
            assert torch.allclose(value, expected[key], rtol=1e-6, atol=1e-9), key
        assert found.left_out == 1
        assert math.isfinite(float(found.loss))
    book.close()


def _trained(model, records, losses=entropy_loss, **more):
    """One step of plain descent with next to no noise: where the parameters moved to is the clipped sum."""
    plan = learn.DPSGD(clip=0.1, rate=1.0, steps=3, noise=1e-6, records=20)
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.5), plan, records, progress=False, **more)
    for batch in trainer:
        trainer.backward(losses(model, batch))
    return trainer, torch.cat([each.detach().flatten() for each in model.parameters()])


@pytest.mark.usefixtures("_place")
@pytest.mark.parametrize("physical", [None, 1, 7])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("at", [0, 13])
def test_a_run_with_it_is_the_run_without_it(at, bad, physical):
    """Also where it is among the first, from which the trainer learns where examples are."""
    x, y = data(20)
    x[at] = bad
    kept = torch.arange(20) != at
    trainer, moved = _trained(net(), (x, y), physical_batch=physical)
    _, expected = _trained(net(), (x[kept], y[kept]), physical_batch=physical)
    assert torch.allclose(moved, expected, atol=1e-5)
    assert trainer.history.left_out == [1, 1, 1]
    assert all(math.isfinite(each) for each in trainer.history.average)


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_loss_or_a_gradient_alone_that_is_no_number_counts_for_nothing(where):
    x, y = data(20)
    tags = torch.arange(20)

    def losses(model, batch):
        out = model(batch[0])
        found = nn.functional.cross_entropy(out, batch[1], reduction="none")
        hit = batch[2] == 5
        if where == "loss":
            return found + torch.where(hit, math.inf, 0.0)
        return found + torch.where(hit, out[:, 0] * 0, 1.0).abs().sqrt()

    trainer, moved = _trained(net(), (x, y, tags), losses)
    kept = tags != 5
    _, expected = _trained(net(), (x[kept], y[kept], tags[kept]), losses)
    assert torch.allclose(moved, expected, atol=1e-5)
    assert sum(trainer.history.left_out) >= 1


@pytest.mark.parametrize("how", ["bfloat16", "half", "autocast"])
def test_records_that_are_no_numbers_count_for_nothing_in_reduced_precision(how):
    x, y = data(20)
    x[3] = 1e30
    dtype = {"bfloat16": torch.bfloat16, "half": torch.float16, "autocast": torch.float32}[how]
    model = net().to(dtype)

    def losses(model, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=how == "autocast"):
            out = model(batch[0].to(dtype) * 1e10)
        return nn.functional.cross_entropy(out.float(), batch[1], reduction="none") * (1 + 0 * batch[0].sum(1) * 1e30)

    trainer, moved = _trained(model, (x, y), losses, noise=DeviceNoise())
    assert bool(torch.isfinite(moved).all())
    assert all(each >= 1 for each in trainer.history.left_out)


def test_words_beside_a_record_that_is_no_number_are_trained():
    torch.manual_seed(0)
    ids, weights = torch.randint(0, 30, (20, 6)), torch.ones(20)
    weights[4] = math.nan
    labels = torch.randint(0, 3, (20,))

    def model():
        torch.manual_seed(1)
        return Encoder()

    def losses(model, batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none") * batch[2]

    _, moved = _trained(model(), (ids, labels, weights), losses)
    kept = torch.arange(20) != 4
    _, expected = _trained(model(), (ids[kept], labels[kept], weights[kept]), losses)
    assert torch.allclose(moved, expected, atol=1e-5)


def test_where_everybody_is_no_number_there_is_noise_alone():
    x, y = data(20)
    before = torch.cat([each.detach().flatten() for each in net().parameters()])
    trainer, moved = _trained(net(), (x * math.nan, y))
    assert trainer.history.left_out == [20, 20, 20]
    assert trainer.history.average == [None, None, None]
    assert 0 < float((moved - before).abs().max()) < 1e-5
    trainer.plot(delta=1e-5)


def test_a_model_that_is_no_number_any_more_is_told_from_its_parameters():
    """They were released: that they are no numbers tells nothing about a record."""
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.3, steps=40, noise=1.0), lr=math.inf)
    with worded(InvalidOperation):
        run(trainer)
    assert trainer.steps_taken == 32
