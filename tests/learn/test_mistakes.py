"""What somebody new does wrong, and what is said to them: what was asked, what is true, what to do instead."""

from __future__ import annotations

import copy
import io
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from deniable import learn  # noqa: E402
from deniable.errors import InvalidOperation, InvalidParameter  # noqa: E402
from deniable.learn.torch import Trainer  # noqa: E402
from deniable.ledger import Budget, Ledger, State  # noqa: E402
from deniable.units import Unit  # noqa: E402
from tests.learn.runs import data, entropy_loss, made, net, run  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)

OFTEN = learn.DPSGD(clip=1.0, rate=0.9, steps=3, noise=1.0)


# -- a loop as it was before -------------------------------------------------------------------------------------------


def looped(trainer, body):
    for batch in trainer:
        body(trainer, batch)


def plain_before(trainer, batch):
    losses = entropy_loss(trainer.model, batch)
    losses.mean().backward()
    trainer.backward(losses)


def plain_before_and_kept(trainer, batch):
    losses = entropy_loss(trainer.model, batch)
    losses.mean().backward(retain_graph=True)
    trainer.backward(losses)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()


def plain_step_before(trainer, batch):
    entropy_loss(trainer.model, batch).mean().backward()
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()
    trainer.backward(entropy_loss(trainer.model, batch))


def plain_step_after(trainer, batch):
    trainer.backward(entropy_loss(trainer.model, batch))
    entropy_loss(trainer.model, batch).mean().backward()
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()


@pytest.mark.parametrize(
    "body", [plain_before, plain_before_and_kept, plain_step_before, plain_step_after], ids=lambda body: body.__name__
)
def test_a_step_without_noise_beside_the_private_one_is_refused(body):
    trainer = made(plan=OFTEN)
    with worded(InvalidOperation):
        looped(trainer, body)


def test_the_other_lines_of_an_ordinary_loop_do_no_harm():
    trainer = made(plan=OFTEN, after_step=lambda _: schedule.step(), physical_batch=7)
    schedule = torch.optim.lr_scheduler.StepLR(trainer.optimizer, 1, gamma=0.5)
    entropy_loss(trainer.model, data()).mean().backward()  # left over from before
    for batch in trainer:
        trainer.optimizer.zero_grad()
        trainer.backward(entropy_loss(trainer.model, batch))
        before = trainer.model[0].weight.clone()
        trainer.optimizer.step()
        assert torch.equal(trainer.model[0].weight, before)
    assert schedule.get_last_lr() == [0.1 * 0.5**3]  # once a step, however many batches that were


def test_public_steps_are_welcome_inside_the_loop():
    trainer = made(plan=OFTEN)
    for batch in trainer:
        trainer.public_step(entropy_loss(trainer.model, data(seed=1)).mean())
        trainer.backward(entropy_loss(trainer.model, batch))
        trainer.public_step(entropy_loss(trainer.model, data(seed=1)).mean())
    assert trainer.finished
    with worded(InvalidParameter, parameter="loss"):
        trainer.public_step(entropy_loss(trainer.model, data(seed=1)))


def test_losses_of_an_earlier_forward_pass_are_refused():
    trainer = made(plan=OFTEN)
    out = trainer.model(data()[0])
    with worded(InvalidParameter, parameter="losses"):
        looped(trainer, lambda trainer, batch: trainer.backward(out[: len(batch[0])].sum(1)))


def test_a_model_of_one_bare_parameter_can_be_trained():
    class Shift(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = nn.Parameter(torch.zeros(2))

        def forward(self, x):
            return x[:, :2] + self.shift

    assert run(made(Shift(), OFTEN)).finished


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.look, self.head = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        rows = x[:, None]
        return self.head(self.look(rows, rows, rows)[0][:, 0])


@pytest.mark.filterwarnings("ignore:each example is computed alone")  # the copy is an operation like others
def test_a_model_can_be_copied_and_saved_while_it_is_trained():
    """A copy does not tell the trainer what it is asked; it would be taken for the model."""
    model = Attentive()
    trainer = made(model, OFTEN)
    for x, y in trainer:
        losses = F.cross_entropy(model(x), y, reduction="none")
        saved = io.BytesIO()
        torch.save(model, saved)
        saved.seek(0)
        for copied in (copy.deepcopy(model), torch.load(saved, weights_only=False)):
            heard = len(trainer._book.listener.calls)
            copied(x)
            assert len(trainer._book.listener.calls) == heard > 0
        trainer.backward(losses)
    assert trainer.finished


def test_a_penalty_on_weights_is_the_optimizers():
    trainer = made(plan=OFTEN)
    with pytest.raises(InvalidParameter, match="weight_decay="):
        run(trainer, losses=lambda each: each + 0.1 * trainer.model[0].weight.square().sum())


def test_sparse_gradients_are_refused_by_name():
    with worded(InvalidParameter, parameter="model"):
        made(nn.Sequential(nn.Embedding(3, 2, sparse=True)))


def test_a_closed_trainer_says_so():
    trainer = made()
    trainer.close()
    with worded(InvalidOperation):
        run(trainer)


# -- data in other shapes ----------------------------------------------------------------------------------------------


class Frame:
    """Found by column, as frames are."""

    iloc = None

    def __len__(self):
        return 4

    def __getitem__(self, name):
        raise KeyError(name)


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (lambda x, y: [x, y], "looks like a list of columns, but a list must contain records; give columns as a tuple"),
        (lambda x, y: [x.numpy(), y.numpy()], "looks like a list of columns"),
        (lambda x, y: (x.numpy(), y.numpy()), "tuple of tensors, but has ndarray; convert with torch.as_tensor"),
        (lambda x, y: (x, y.tolist()), "tuple of tensors, but has Tensor, list"),
        (lambda x, y: (x, y[0]), "tensors of one length"),
        (lambda x, y: {"x": x, "y": y}, "<dict>: has columns by name.*tuple of tensors"),
        (lambda x, y: Frame(), "<Frame>: has columns by name"),
        (lambda x, y: (each for each in x), "<generator>: must have a length"),
        (lambda x, y: torch.utils.data.DataLoader(x), r"loader\.dataset"),
    ],
    ids=["list", "arrays", "tuple of arrays", "labels in a list", "scalar", "dict", "frame", "generator", "loader"],
)
def test_tables_that_are_no_records_are_refused(dataset, words):
    """As records, whole columns would be drawn by one coin, with everybody in each of them."""
    with pytest.raises(InvalidParameter, match=words) as caught:
        made(dataset=dataset(*data()))
    assert "[" not in str(caught.value)  # nothing of the data


@pytest.mark.parametrize(
    "record",
    [lambda at: torch.zeros(1 + at), lambda at: {f"row {at}": at}, lambda at: None],
    ids=["shape", "field", "kind"],
)
def test_records_that_cannot_be_stacked_are_refused_without_showing_them(record):
    trainer = made(plan=OFTEN, dataset=[record(at) for at in range(40)])
    with worded(InvalidParameter, parameter="dataset") as caught:
        next(iter(trainer))
    assert not any(each.isdigit() for each in str(caught.value))
    ragged = made(plan=OFTEN, dataset=[torch.zeros(1 + at) for at in range(40)], collate=lambda rows: len(rows))
    with pytest.warns(UserWarning, match="alone.*not a tensor"):
        assert next(iter(ragged)) == 1


def test_lists_of_records_are_welcome():
    x, y = data()
    assert run(made(plan=OFTEN, dataset=list(zip(x, y, strict=True)))).finished
    assert run(made(plan=OFTEN, dataset=[(np.asarray(a), int(b)) for a, b in zip(x, y, strict=True)])).finished
    trainer = made(plan=OFTEN, dataset=list(x))
    for batch in trainer:
        trainer.backward(trainer.model(batch).sum(1))
    assert trainer.finished


# -- other arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"ledger": Budget(epsilon=1, delta=1e-5)},
        {"session": "book.db"},
        {"after_step": 3},
        {"collate": "default"},
        {"canaries": data(9)},
        {"plan": learn.OutputPerturbation(lipschitz=1, regularisation=1)},
    ],
    ids=["budget", "path", "after_step", "collate", "canaries", "convex"],
)
def test_arguments_of_the_wrong_kind_are_refused_before_anything_is_spent(given):
    with worded(InvalidParameter, parameter=next(iter(given))):
        made(**given)


@pytest.mark.parametrize("name", ["ledger", "session"])
def test_a_ledger_may_be_called_a_session(name):
    book = Ledger.open(budget=Budget(epsilon=9, delta=1e-5, keys_delta=5e-6), unit=Unit.row(), dataset="tiny")
    run(made(delta=1e-6, **{name: book}))
    assert [entry.state for entry in book.entries()][-1] is State.SEALED


def test_audits_of_nothing_are_refused():
    trainer = made(canaries=data(12))
    with worded(InvalidOperation):
        trainer.audit(entropy_loss, delta=1e-5, confidence=0.99)
    run(trainer)
    with worded(InvalidParameter, parameter="losses"):
        trainer.audit(lambda model, batch: entropy_loss(model, batch).mean(), delta=1e-5, confidence=0.99)
    assert trainer.model.training


def test_a_check_needs_examples():
    x, y = data()
    with worded(InvalidParameter, parameter="losses"):
        made().check([x[:0], y[:0]], losses=entropy_loss)


# -- going on, and looking back ----------------------------------------------------------------------------------------


def test_a_checkpoint_of_another_optimizer_is_refused_before_anything_is_loaded(tmp_path):
    trainer = run(made(), None)
    trainer.save(tmp_path / "model.pt")
    model = net(seed=1)
    before = model[0].weight.clone()
    other = Trainer(model, torch.optim.Adam(model.parameters()), trainer.plan, data(), progress=False)
    with worded(InvalidParameter, parameter="path"):
        other.load(tmp_path / "model.pt")
    assert torch.equal(model[0].weight, before)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)), "has '0.bias' "),
        (lambda: nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2)), "lacks '1.bias'"),
        (lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2), nn.Tanh(), nn.Linear(2, 2)), "lacks '4."),
        (lambda: nn.Sequential(nn.Linear(4, 5)), "has '2.bias'"),
    ],
    ids=["shape", "names", "more", "fewer"],
)
def test_a_checkpoint_of_another_model_is_refused_before_anything_is_loaded(tmp_path, change, fault):
    run(made()).save(tmp_path / "model.pt")
    other = made(change())
    before = {name: each.clone() for name, each in other.model.state_dict().items()}
    with worded(InvalidParameter, parameter="path", asked="model.pt") as refused:
        other.load(tmp_path / "model.pt")
    assert refused.value.rule.startswith(fault)
    assert all(torch.equal(each, before[name]) for name, each in other.model.state_dict().items())
    assert other.steps_taken == 0


@pytest.mark.parametrize("how", ["groups", "order"])
def test_a_checkpoint_of_other_groups_of_parameters_is_refused_before_anything_is_loaded(tmp_path, how):
    trainer = run(made())
    trainer.save(tmp_path / "model.pt")
    model = net(seed=1)
    before = model[0].weight.clone()
    held = [{"params": list(each.parameters())} for each in (model[0], model[2])]
    given = held if how == "groups" else list(model.parameters())[::-1]
    other = Trainer(model, torch.optim.SGD(given, lr=0.1), trainer.plan, data(), progress=False)
    with worded(InvalidParameter, parameter="path"):
        other.load(tmp_path / "model.pt")
    assert torch.equal(model[0].weight, before)
    assert other.steps_taken == 0


def test_a_run_that_another_ledger_paid_for_is_refused_before_anything_is_loaded(tmp_path):
    budget = Budget(epsilon=20, delta=1e-5, keys_delta=5e-6)
    given = {"budget": budget, "unit": Unit.row(), "dataset": "letters"}
    with Ledger.open(**given) as payer, Ledger.open(**given) as stranger:
        trainer = run(made(ledger=payer, delta=1e-6))
        trainer.save(tmp_path / "model.pt")
        other = made(net(seed=1), plan=trainer.plan, ledger=stranger, delta=1e-6)
        before = other.model[0].weight.clone()
        with worded(InvalidParameter, parameter="ledger"):
            other.load(tmp_path / "model.pt")
        assert torch.equal(other.model[0].weight, before)
        assert other.steps_taken == 0


def test_a_checkpoint_needs_a_folder_and_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a long path is cut in an error
    trainer = run(made())
    with worded(InvalidParameter, parameter="path"):
        trainer.save(Path("runs") / "model.pt")
    with worded(InvalidParameter, parameter="path"):
        trainer.save(Path("."))
    assert not list(tmp_path.iterdir())


def test_a_model_without_numbers_is_refused_by_name():
    with torch.device("meta"):
        model = net()
    with worded(InvalidParameter, parameter="model"):
        made(model)


def test_the_picture_of_a_resumed_run_begins_where_it_went_on(tmp_path):
    first = made(plan=OFTEN)
    run(first, first.take(2))
    first.save(tmp_path / "model.pt")
    again = made(plan=OFTEN)
    again.load(tmp_path / "model.pt")
    run(again)
    assert again.plot(delta=1e-5).panels[0].lines["loss"].x == (3.0,)


@pytest.mark.parametrize("sign", [-1, 1])
def test_losses_below_zero_are_in_the_picture(sign):
    trainer = run(made(plan=OFTEN), losses=lambda each: sign * each)
    panel = trainer.plot(delta=1e-5).panels[0]
    assert all(panel.y.low <= loss <= panel.y.high for loss in panel.lines["loss"].y)
    assert panel.y.low < panel.y.high


def test_a_trainer_says_how_far_it_is():
    trainer = made(plan=OFTEN)
    assert repr(trainer) == "<Trainer of Sequential: 0 of 3 steps, DPSGD(clip=1.0, rate=0.9, steps=3, noise=1)>"
