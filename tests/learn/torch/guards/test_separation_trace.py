"""What the trainer says and does where examples are computed alone, and models whose batches are processed whole."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from deniable import learn  # noqa: E402
from deniable.errors import InvalidParameter  # noqa: E402
from deniable.learn.torch import Trainer  # noqa: E402
from tests.learn.mixing_models import MIXING, WIDTH, Later, Remembering, Sorted, losses_on, padded, records  # noqa: E402
from tests.learn.torch.guards.test_one_record import CLIP, summed  # noqa: E402
from tests.learn.zoo import ZOO, DictOutput, built, losses_of  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)


@pytest.mark.parametrize("name", ["sorted and undone", "a weight used twice in large batches"])
def test_sums_are_those_of_autograd_for_each_example_alone(name):
    listed = records(30)
    torch.manual_seed(0)
    model = MIXING[name]()
    expected = 0.0
    for record in listed:
        batch = padded([record] * 9)  # large, and all alike
        grads = torch.autograd.grad(losses_on(model, batch)[0], list(model.parameters()))
        flat = torch.cat([each.flatten() for each in grads])
        expected = expected + flat * min(1.0, CLIP / float(flat.norm()))
    if name == "sorted and undone":
        assert torch.allclose(summed(MIXING[name], listed, steps=1)[1][0], expected.double(), atol=1e-6)
    trainer, sums = summed(lambda: Later("never", "never"), listed, steps=1)
    assert trainer.one_by_one is None
    assert float(sums[0].norm()) > 0


def test_a_trainer_says_that_it_is_slow_and_why():
    trainer, _ = summed(Sorted, records(12), steps=1)
    assert "aten::sort" in trainer.one_by_one
    model = Sorted()
    plan = learn.DPSGD(clip=1.0, rate=1.0, steps=1, noise=1.0)
    slow = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), plan, records(6), collate=padded)
    batches = iter(slow)
    slow.backward(losses_on(model, next(batches)))  # the reference: copies of one example
    losses = losses_on(model, next(batches))
    with pytest.warns(UserWarning, match="each example is computed alone, which is slow, because of aten::sort"):
        slow.backward(losses)
    sizes = []
    for batch in batches:
        sizes.append(len(batch[1]))
        slow.backward(losses_on(model, batch))
    assert sizes == [1] * 6


def test_a_forward_pass_that_writes_into_a_tensor_of_its_own_is_refused():
    class Writing(Sorted):
        def __init__(self):
            super().__init__()
            self.mean = torch.zeros(WIDTH)

        def forward(self, x):
            self.mean.mul_(0.9).add_(x.detach().mean((0, 1)), alpha=0.1)
            return self.head(torch.tanh(self.inner(x)).mean(1))

    with worded(InvalidParameter, parameter="model"):
        summed(Writing, records(12), steps=1)


def test_a_counter_counts_steps_and_a_model_that_remembers_forgets():
    """Inside of a step all begin with the same count: it would tell how many came before."""
    trainer, _ = summed(lambda: Later("never", "calls"), records(12), steps=2)
    assert trainer.model.calls == 2
    assert trainer.one_by_one is None
    assert any("count steps alone" in words for words in trainer.guarantee.assumptions)
    trainer, _ = summed(lambda: Remembering("attribute"), records(12), steps=2)
    assert trainer.model.mean.tolist() == [0.0] * WIDTH
    assert not trainer.model._forward_hooks


def test_attributes_that_the_caller_sets_are_left_alone():
    torch.manual_seed(0)
    model = Later("never", "never")
    plan = learn.DPSGD(clip=1.0, rate=1.0, steps=3, noise=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = Trainer(model, optimizer, plan, records(12), collate=padded, progress=False)
    for number, batch in enumerate(trainer):
        model.temperature = torch.tensor(float(trainer.steps_taken))
        trainer.backward(losses_on(model, batch))
        model.after = number
    assert trainer.one_by_one is None
    assert (float(model.temperature), model.after) == (3.0, number)


# -- ordinary models stay whole ----------------------------------------------------------------------------------------


def _stays_whole(model, records, losses, **more):
    plan = learn.DPSGD(clip=1.0, rate=1.0, steps=2, noise=1.0)
    trained = [each for each in model.parameters() if each.requires_grad]
    trainer = Trainer(model, torch.optim.SGD(trained, lr=0.0), plan, records, progress=False, **more)
    handed = 0
    for batch in trainer:
        trainer.backward(losses(batch))
        handed += 1
    assert trainer.one_by_one is None
    assert any("separation is proved" in words for words in trainer.guarantee.assumptions)
    return handed


@pytest.mark.parametrize("name", ZOO)
def test_models_of_the_zoo_are_worked_on_as_whole_batches(name):
    model, x, y = built(name, 11, dtype=torch.float32)
    assert _stays_whole(model, (x, y), lambda batch: losses_of(model, *batch)) == 5


class Language(nn.Module):
    """As large language models are written: rotated positions, a causal mask, normed queries, gated layers, a cat of
    parts, and a loss for each word."""

    def __init__(self, words=20, width=8, heads=2):
        super().__init__()
        self.words, self.heads = nn.Embedding(words, width), heads
        self.norm, self.after = nn.RMSNorm(width), nn.LayerNorm(width)
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.gate, self.up, self.down = nn.Linear(width, 12), nn.Linear(width, 12), nn.Linear(12, width)
        self.dropout, self.head = nn.Dropout(0.1), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def _turned(self, x):
        angles = torch.arange(x.shape[2])[:, None] * torch.tensor([1.0, 0.1])[: x.shape[3] // 2]
        one, other = x.chunk(2, -1)
        turned = torch.cat((-other, one), -1)
        return x * torch.cat((angles, angles), -1).cos() + turned * torch.cat((angles, angles), -1).sin()

    def forward(self, ids, mask):
        x = self.words(ids) * math.sqrt(8)
        h = self.norm(x)
        (k, v), q = self.kv(h).chunk(2, -1), self.q(h)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (q, k, v))
        q, k = self._turned(F.normalize(q, dim=-1)), self._turned(k)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        causal = torch.full(scores.shape[-2:], -math.inf).triu(1)
        hidden = torch.zeros_like(mask, dtype=scores.dtype).masked_fill_(~mask, -1e9)[:, None, None, :]
        weights = self.dropout(torch.softmax((scores + causal + hidden).float(), -1)).to(v.dtype)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(*x.shape))
        h = self.after(x)
        return self.head(x + self.down(F.silu(self.gate(h)) * self.up(h)))


def test_a_language_model_with_masks_and_rotated_positions_stays_whole():
    torch.manual_seed(0)
    model, ids = Language(), torch.randint(0, 20, (17, 7))
    mask = torch.arange(7) < torch.randint(2, 8, (17, 1))

    def losses(batch):
        logits, target = model(*batch)[:, :-1], batch[0][:, 1:]
        each = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view(target.shape)
        return (each * batch[1][:, 1:]).sum(1) / batch[1][:, 1:].sum(1).clamp(min=1)

    _stays_whole(model, (ids, mask), losses)


class Residual(nn.Module):
    """As picture models are written."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.GroupNorm(2, 8), nn.ReLU(inplace=True))
        self.pool, self.more = nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1)
        self.frozen = nn.BatchNorm2d(8).requires_grad_(False).eval()
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        self.places = nn.Parameter(torch.zeros(1, 17, 8))
        self.body = nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.1, activation="gelu", norm_first=True, batch_first=True
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.pool(self.stem(F.pad(x, (1, 1, 1, 1))))
        x = x + F.interpolate(F.adaptive_avg_pool2d(F.relu(self.frozen(self.more(x))), 2), size=x.shape[-2:])
        x = F.adaptive_avg_pool2d(x, 4).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1) + self.places
        return self.head(self.body(x)[:, 0])


@pytest.mark.parametrize("kind", ["cross entropy", "squares", "two classes", "smooth", "smoothed labels"])
def test_picture_models_and_the_usual_losses_stay_whole(kind):
    torch.manual_seed(0)
    model, x, y = Residual(), torch.randn(13, 3, 8, 8), torch.randint(0, 3, (13,))

    def losses(batch):
        out, label = model(batch[0]), batch[1]
        if kind == "squares":
            return (out[:, 0] - label.float()).square() + F.mse_loss(out[:, 1], label.float(), reduction="none")
        if kind == "two classes":
            return F.binary_cross_entropy_with_logits(
                out, (label[:, None] > 0).float().expand(-1, 3), reduction="none"
            ).mean(1)
        if kind == "smooth":
            return F.smooth_l1_loss(out, label[:, None].float().expand(-1, 3), reduction="none").sum(1)
        return F.cross_entropy(out, label, reduction="none", label_smoothing=0.1 * (kind == "smoothed labels"))

    _stays_whole(model, (x, y), losses)


def test_keyword_models_and_autocast_stay_whole():
    torch.manual_seed(0)
    model, ids = DictOutput(), torch.randint(1, 20, (12, 5))
    rows = [{"ids": i, "mask": torch.arange(5) < 3, "label": torch.tensor(1)} for i in ids]

    def losses(batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(input_ids=batch["ids"], attention_mask=batch["mask"])["logits"]
        return F.cross_entropy(logits.float(), batch["label"], reduction="none")

    _stays_whole(model, rows, losses)
