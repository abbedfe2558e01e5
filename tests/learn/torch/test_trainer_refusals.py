"""What the trainer refuses, and how it says so: by the name of the module, with what to do instead."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from deniable import learn  # noqa: E402
from deniable.errors import InvalidOperation, InvalidParameter  # noqa: E402
from deniable.learn.torch import Trainer  # noqa: E402
from tests.learn.runs import data, entropy_loss, made, net, run  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)


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
    with worded(InvalidParameter, parameter="losses"):
        run(trainer)


TRANSFORMS = {
    "vmap": lambda y: torch.vmap(torch.sin)(y),
    "vmap, minus": lambda y: torch.vmap(lambda each: each - 1)(y),
    "vmap, from the right": lambda y: torch.vmap(lambda each: 1 - each)(y),
    "vmap, compared": lambda y: torch.vmap(lambda each: each * (1.0 if (each == each) is False else 2.0))(y),
    "jvp": lambda y: torch.func.jvp(torch.sin, (y,), (torch.ones_like(y),))[0],
    "grad": lambda y: torch.func.grad(lambda each: each.sin().sum())(y),
}


class Transformed(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.inner, self.change = nn.Linear(4, 2), change

    def forward(self, x):
        return self.change(self.inner(x))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own, in jvp
@pytest.mark.filterwarnings("ignore:each example is computed alone")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_functions_are_computed_alone(name):
    """They were refused. A model that chooses one by the data would so have shown a record by an error."""
    trainer = made(Transformed(TRANSFORMS[name]), learn.DPSGD(clip=1.0, rate=0.9, steps=2, noise=1.0))
    run(trainer)
    assert trainer.finished
    assert trainer.separation == "isolated"
    assert "torch.func" in trainer.one_by_one


@pytest.mark.slow
def test_operators_that_take_functions_are_refused_with_a_remedy():
    """torch's bare NotImplementedError said nothing of what to do."""
    change = Transformed(lambda y: torch.cond(torch.tensor(True), torch.sin, torch.cos, (y,)))
    with worded(InvalidParameter, parameter="model"):
        run(made(change, learn.DPSGD(clip=1.0, rate=0.9, steps=2, noise=1.0)))


NORMS = {
    "functional": lambda y: F.batch_norm(y, None, None, training=True),
    "torch": lambda y: torch.batch_norm(y, None, None, None, None, True, 0.1, 1e-5, False),
}


@pytest.mark.parametrize("shape", [(-1, 8), (-1, 2, 4)])
@pytest.mark.parametrize("function", NORMS)
def test_batch_statistics_are_refused_in_our_words(function, shape):
    """The examples came again one by one, and torch's bare ValueError said that one value a channel is too few."""

    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.head(NORMS[function](self.inner(x).view(shape)).flatten(1))

    with worded(InvalidParameter, parameter="model"):
        run(made(Normed(), learn.DPSGD(clip=1.0, rate=0.9, steps=2, noise=1.0)))


@pytest.mark.parametrize(
    "losses",
    [lambda each: each - each.mean(), lambda each: each * each.sum()],
    ids=["centred", "scaled"],
)
def test_losses_that_mix_examples_are_refused(losses):
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.9, steps=2, noise=1.0))
    with pytest.raises(InvalidParameter, match="other examples"):
        run(trainer, losses=losses)


def test_losses_that_move_examples_are_computed_alone():
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.9, steps=2, noise=1.0))
    with pytest.warns(UserWarning, match="alone.*aten::flip"):
        run(trainer, losses=lambda each: each.flip(0) + each)
    assert trainer.separation == "isolated"


def test_a_batch_whose_backward_pass_failed_is_not_left_out():
    """Whoever goes on after an error would leave out the others of that physical batch."""
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=1.0, steps=2, noise=1.0), physical_batch=8)
    failed = []

    def patiently():
        for number, batch in enumerate(trainer):
            losses = entropy_loss(trainer.model, batch)
            try:
                trainer.backward(losses if number != 3 else losses[1:])
            except InvalidParameter as error:
                failed.append(error)

    with pytest.raises(InvalidOperation, match="or failed"):
        patiently()
    assert len(failed) == 1


def test_a_trainer_is_not_copied():
    with pytest.raises(InvalidOperation, match="save"):
        copy.deepcopy(made())


class Standardising(nn.Module):
    """By the batch's own mean and spread, before its first layer; alone, an example has no spread."""

    def __init__(self, dropout, spread):
        super().__init__()
        self.inner, self.dropout, self.spread = nn.Linear(4, 2), nn.Dropout(dropout), spread

    def forward(self, x):
        x = x - x.mean(0)
        return self.dropout(self.inner(x / (1 + x.std(0, correction=1)) if self.spread else x))


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.filterwarnings("ignore:std")
def test_batch_statistics_of_the_data_are_refused_beside_dropout_and_where_one_has_none(dropout, spread):
    model = Standardising(dropout, spread)
    with worded(InvalidParameter, parameter="losses"):
        run(made(model, learn.DPSGD(clip=1.0, rate=0.9, steps=2, noise=1.0)))
    assert model.dropout.p == dropout


def test_losses_that_mix_examples_after_a_check_are_refused_as_well():
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.9, steps=2, noise=1.0))
    assert trainer.check(data()).agrees
    with pytest.raises(InvalidParameter, match="other examples"):
        run(trainer, losses=lambda each: each - each.mean())


def test_losses_that_mix_examples_in_larger_batches_are_computed_alone():
    """A refusal in mid-run would depend on who takes part."""
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.9, steps=2, noise=1.0))
    with pytest.warns(UserWarning, match="each example is computed alone"):
        run(trainer, losses=lambda each: each if len(each) <= 5 else each - each.mean())
    assert trainer.separation == "isolated"
    assert trainer.finished


class Averaging(nn.Module):
    """Writes the data's mean into the model, in some way."""

    def __init__(self, how):
        super().__init__()
        self.inner, self.how = nn.Linear(4, 2), how
        if how == "frozen":
            self.mean = nn.Parameter(torch.zeros(4), requires_grad=False)
        else:
            self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        with torch.no_grad():
            if self.how == "assigned":
                self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
            elif self.how == "past autograd":
                self.mean.data.mul_(0.9).add_(0.1 * x.mean(0))
            else:
                self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return self.inner(x)


@pytest.mark.parametrize("how", ["in place", "assigned", "past autograd", "frozen"])
def test_models_that_keep_averages_of_the_data_are_refused_however_they_do_it(how):
    with worded(InvalidParameter, parameter="model"):
        run(made(Averaging(how), learn.DPSGD(clip=1.0, rate=0.9, steps=2, noise=1.0)))


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
        (lambda: nn.Sequential(nn.LazyLinear(3)), "without a size yet"),
        (lambda: nn.Sequential(nn.Embedding(3, 2, max_norm=1.0)), "max_norm"),
        (lambda: net().requires_grad_(False), "no trained parameter"),
        (lambda: nn.DataParallel(net()), "wrapped in DataParallel"),
        (lambda: OptimizedModule(), "wrapped in OptimizedModule"),
        (lambda: nn.ParameterList([nn.Parameter(torch.zeros(0))]), "has no entries"),
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
    with worded(InvalidParameter, parameter="model"):
        run(trainer)


def test_parameters_that_are_computed_are_refused():
    model = net()
    del model[0]._parameters["weight"]
    model[0]._parameters["weight"] = torch.ones(5, 4, requires_grad=True) * 2
    with worded(InvalidParameter, parameter="model"):
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
            "has its own sampler",
        ),
        (lambda: torch.utils.data.RandomSampler(range(5)), "has its own sampler"),
        (lambda: iter([1, 2]), "must have a length"),
        (list, "at least one record"),
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

    with worded(InvalidParameter, parameter="dataset"):
        run(trainer, losses=growing)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda each: each.mean(), r"must have the shape \(\d+,\)"),
        (lambda each: each[:, None], "one loss for each example"),
        (lambda each: each[1:], "one loss for each example"),
        (lambda each: each.detach(), "no autograd graph"),
        (lambda each: 3.0, "must be a tensor"),
    ],
    ids=["mean", "column", "short", "detached", "number"],
)
def test_losses_that_mean_nothing_are_refused(change, words):
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.9, steps=2, noise=1.0))
    with pytest.raises(InvalidParameter, match=words) as caught:
        run(trainer, losses=change)
    assert "tensor(" not in str(caught.value)  # nothing of the data


def test_batches_cannot_be_left_out_or_used_twice():
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.9, steps=3, noise=1.0))
    with worded(InvalidOperation):
        list(trainer)
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.9, steps=3, noise=1.0))
    batch = next(iter(trainer))
    trainer.backward(entropy_loss(trainer.model, batch))
    again = entropy_loss(trainer.model, batch)
    with pytest.raises(InvalidOperation, match="once"):
        trainer.backward(again)
    with worded(InvalidOperation):
        trainer.backward(torch.zeros(3, requires_grad=True))


def test_plans_must_fit_and_be_calibrated():
    with pytest.raises(InvalidParameter, match="calibrate"):
        made(plan=learn.DPSGD(clip=1.0, rate=0.5, steps=1))
    with worded(InvalidParameter, parameter="dataset"):
        made(plan=learn.DPFTRL(clip=1.0, batch_size=5, records=50, epochs=1, bands=2, noise=1.0))
    with worded(InvalidParameter, parameter="plan"):
        made(plan="DPSGD")
