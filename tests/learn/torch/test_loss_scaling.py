"""A GradScaler is told apart from other products, and refused with its reason."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from deniable import learn  # noqa: E402
from deniable.errors import InvalidParameter  # noqa: E402
from deniable.learn.torch import Trainer  # noqa: E402
from deniable.learn.torch.loss_scaling import check_not_scaled  # noqa: E402
from tests.learn.runs import entropy_loss, made  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)


def test_losses_of_a_scaler_are_refused_in_a_run():
    """They were trained on, with nearly all gradients cut to the clipping norm; scaler.step then failed in torch."""
    trainer, scaler = made(), torch.amp.GradScaler("cpu")
    for batch in trainer:
        with worded(InvalidParameter, parameter="losses"):
            trainer.backward(scaler.scale(entropy_loss(trainer.model, batch)))
        break


@pytest.mark.parametrize("scale", [65536.0, 2.0**30, 16.0])
def test_a_scaler_is_seen_whatever_its_scale(scale):
    losses = torch.ones(3, requires_grad=True).exp()
    with pytest.raises(InvalidParameter, match="GradScaler"):
        check_not_scaled(torch.amp.GradScaler("cpu", init_scale=scale).scale(losses))


@pytest.mark.parametrize(
    "made",
    [
        lambda losses: losses,
        lambda losses: losses * 65536.0,  # a Python number is a choice, not a scaler
        lambda losses: losses * torch.tensor([1.0, 2.0, 65536.0]),
        lambda losses: losses * torch.tensor(3.0),
        lambda losses: losses * torch.tensor(2.0),
        lambda losses: losses * torch.tensor(0.0),
        lambda losses: losses * torch.tensor(float("inf")),
        lambda losses: losses * torch.tensor(float("nan")),
        lambda losses: losses * losses.mean(),
        lambda losses: losses + torch.tensor(65536.0),
    ],
)
def test_other_losses_are_taken(made):
    check_not_scaled(made(torch.ones(3, requires_grad=True).exp()))


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 2)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.out(self.rnn(packed)[1][0][-1])


class Padded(Packed):
    def forward(self, x, lengths):
        out = self.rnn(x)[0]
        return self.out(out[torch.arange(len(out)), lengths - 1])


def test_padded_sequences_are_the_remedy():
    """The same outputs as packed ones, with the same weights, and no example is computed alone."""
    torch.manual_seed(0)
    x, lengths = torch.randn(24, 5, 4), torch.arange(24) % 5 + 1
    model, packed = Padded(), Packed()
    packed.load_state_dict(model.state_dict())
    assert torch.allclose(model(x, lengths), packed(x, lengths), atol=1e-6)
    plan = learn.DPSGD(clip=1.0, rate=0.5, steps=3, noise=1.0)
    given = (x, lengths, lengths % 2)
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), plan, given, progress=False)
    for features, sizes, labels in trainer:
        trainer.backward(F.cross_entropy(model(features, sizes), labels, reduction="none"))
    assert trainer.one_by_one is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:each example is computed alone")
def test_packed_sequences_are_trained_one_by_one_for_the_true_reason():
    """Packing sorts the batch and makes Python numbers of its lengths, so examples must be computed alone. The
    gradients are right: against autograd on each example, in `AutogradComparison`, and the run ends."""
    torch.manual_seed(0)
    x, lengths = torch.randn(24, 5, 4), torch.arange(24) % 5 + 1
    model, plan = Packed(), learn.DPSGD(clip=1.0, rate=0.5, steps=3, noise=1.0)
    trainer = Trainer(
        model, torch.optim.SGD(model.parameters(), lr=0.1), plan, (x, lengths, lengths % 2), progress=False
    )
    for features, sizes, labels in trainer:
        trainer.backward(F.cross_entropy(model(features, sizes), labels, reduction="none"))
    assert trainer.finished
    assert "Python number" in trainer.one_by_one
