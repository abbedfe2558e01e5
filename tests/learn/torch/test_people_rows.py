"""People with many rows: with and without a person, the clipped sum moves by at most the clipping norm."""

from __future__ import annotations

import math

import numpy as np
import pytest

from deniable import curves, learn, noise
from deniable.errors import InvalidParameter
from deniable.ledger import Budget, Ledger
from deniable.units import Unit

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from deniable.learn.torch import GradientNoise, Trainer  # noqa: E402

torch.set_num_threads(1)

PERSON = Unit.person("user", rows=50)
IDS = [0, 1, 1, 2, 2, 2, 2, *[3] * 20, 4, 0, 4]


class Overheard(GradientNoise):
    """No noise; the sums that it would hide."""

    assumptions = ()

    def __init__(self):
        self.sums = []

    def open(self, plan, coordinates):
        pass

    def add(self, totals):
        self.sums.append(torch.cat([each.detach().double().flatten() for each in totals]))
        return list(totals)


def rows_of(count=30):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 3, generator=generator) * 4, torch.randn(count, generator=generator)


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))


class Centred(nn.Module):
    """Rows of one person see each other: each is centred by the mean of its batch."""

    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, x):
        return self.inner(x - x.mean(0))


def clipped_sum(x, y, ids, model, *, plan=None):
    heard = Overheard()
    plan = plan or learn.DPSGD(clip=0.5, rate=1.0, steps=1, noise=1.0, unit=PERSON)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    trainer = Trainer(model, optimizer, plan, (x, y), people=ids, noise=heard, progress=False)
    for features, target in trainer:
        trainer.backward((model(features)[:, 0] - target) ** 2)
    return heard.sums[0], trainer


@pytest.mark.parametrize("kind", [network, Centred])
@pytest.mark.parametrize("person", sorted(set(IDS)))
def test_without_one_person_and_all_their_rows_the_sum_moves_by_at_most_the_clip(kind, person):
    (x, y), ids = rows_of(), np.array(IDS)
    left = torch.from_numpy(ids != person)
    whole, _ = clipped_sum(x, y, ids, kind())
    without, _ = clipped_sum(x[left], y[left], ids[left.numpy()], kind())
    assert float((whole - without).norm()) <= 0.5 * (1 + 1e-5)
    if kind is network and person == 3:
        # The check can fail: 20 rows, each clipped as a record of its own, move the sum by far more.
        rows = learn.DPSGD(clip=0.5, rate=1.0, steps=1, noise=1.0)
        many, _ = clipped_sum(x, y, None, kind(), plan=rows)
        few, _ = clipped_sum(x[left], y[left], None, kind(), plan=rows)
        assert float((many - few).norm()) > 2 * 0.5


def test_the_sum_is_that_of_clipped_means_by_autograd():
    (x, y), ids, model = rows_of(), np.array(IDS), network()
    expected = torch.zeros(sum(each.numel() for each in model.parameters()), dtype=torch.float64)
    for person in sorted(set(IDS)):
        mine = torch.from_numpy(ids == person)
        loss = ((model(x[mine])[:, 0] - y[mine]) ** 2).mean()
        grad = torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(model.parameters()))]).double()
        expected += grad * min(1.0, 0.5 / float(grad.norm()))
    found, trainer = clipped_sum(x, y, torch.tensor(IDS), network())
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert trainer.guarantee.unit == PERSON
    assert trainer.expected_batch == 5
    assert any("'user'" in each for each in trainer.guarantee.assumptions)
    assert any("computed alone" in each for each in trainer.guarantee.assumptions)


def test_a_person_shows_at_most_as_many_rows_as_the_unit_says():
    x, y = rows_of()
    model, seen = network(), set()
    plan = learn.DPSGD(clip=0.5, rate=1.0, steps=30, noise=1.0, unit=Unit.person("user", rows=4))
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.0), plan, (x, y), people=IDS, progress=False)
    for features, target in trainer:
        assert len(features) <= 4
        if len(features) == 4:
            seen.add(tuple(sorted(target.tolist())))
        trainer.backward((model(features)[:, 0] - target) ** 2)
    assert len(seen) > 5  # a person with 20 rows shows others each time; person 2 always the same four


def test_people_are_drawn_each_by_their_own_coin():
    ids = np.repeat(np.arange(2000), 3)
    x, y = torch.ones(6000, 3), torch.ones(6000)
    model = network()
    plan = learn.DPSGD(clip=0.5, rate=0.1, steps=1, noise=1.0, records=2000, unit=PERSON)
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.0), plan, (x, y), people=ids, progress=False)
    drawn = 0
    for features, target in trainer:
        assert len(features) == 3
        drawn += 1
        trainer.backward((model(features)[:, 0] - target) ** 2)
    assert abs(drawn - 200) < 6.2 * math.sqrt(2000 * 0.1 * 0.9), "false alarm 6e-10"
    assert trainer.curve == curves.gaussian(sigma=1.0).sampled(rate=0.1)


def test_one_row_that_is_not_finite_costs_its_person_only():
    x, y = rows_of()
    x[4, 0] = math.nan  # a row of person 2
    ids = np.array(IDS)
    left = torch.from_numpy(ids != 2)
    whole, _ = clipped_sum(x, y, ids, network())
    without, _ = clipped_sum(x[left], y[left], ids[left.numpy()], network())
    assert torch.isfinite(whole).all()
    assert torch.allclose(whole, without, atol=1e-6)


def test_people_in_a_fixed_order_and_in_a_ledger():
    x, y = rows_of()
    plan = learn.DPFTRL(clip=0.5, batch_size=2, records=5, epochs=2, bands=2, noise=4.0, unit=PERSON)
    ledger = Ledger.open(budget=Budget.gaussian(mu=2), unit=Unit.person("user", rows=3), dataset="rows")
    model = network()
    trainer = Trainer(
        model, torch.optim.SGD(model.parameters(), lr=0.1), plan, (x, y), people=IDS, ledger=ledger, progress=False
    )
    for features, target in trainer:
        trainer.backward((model(features)[:, 0] - target) ** 2)
    assert trainer.guarantee.unit == PERSON
    spent = Budget.gaussian(mu=2).price(plan.curve)
    assert next(iter(ledger.entries())).cost.units == spent.units  # one person is one unit, whatever the rows


def test_ids_are_asked_for_where_they_are_needed_and_never_repeated():
    x, y = rows_of()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = learn.DPSGD(clip=0.5, rate=0.5, steps=1, noise=1.0, unit=PERSON)

    def refused(words, plan=plan, **more):
        with pytest.raises(InvalidParameter, match=words) as caught:
            Trainer(model, optimizer, plan, (x, y), progress=False, **more)
        assert "secret" not in str(caught.value)

    refused("is needed")
    refused("whose unit is a person", plan=learn.DPSGD(clip=0.5, rate=0.5, steps=1, noise=1.0), people=IDS)
    refused("rows", people=["secret"] * 7)
    refused("one id for each row", people="secret")
    refused("missing or cannot be compared", people=["secret"] * (len(IDS) - 1) + [None])
    refused("missing or cannot be compared", people=[math.nan] * len(IDS))
    refused("belong to no person", people=IDS, canaries=rows_of(20))


def test_replayed_entropy_draws_the_same_people_and_rows():
    x, y = rows_of()
    seen = []
    for _ in range(2):
        plan = learn.DPSGD(clip=0.5, rate=0.5, steps=3, noise=1.0, unit=Unit.person("user", rows=2))
        model = network()
        trainer = Trainer(
            model,
            torch.optim.SGD(model.parameters(), lr=0.0),
            plan,
            (x, y),
            people=IDS,
            entropy=noise.ReplayEntropy(5),
            progress=False,
        )
        seen.append([])
        for features, target in trainer:
            seen[-1].append(target.tolist())
            trainer.backward((model(features)[:, 0] - target) ** 2)
    assert seen[0] == seen[1] != []
