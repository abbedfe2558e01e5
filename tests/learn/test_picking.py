"""What picks by labels, ids or hidden states stays whole where it is proved, and only there."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from deniable import learn  # noqa: E402
from deniable.errors import InvalidParameter  # noqa: E402
from deniable.learn.torch import Trainer  # noqa: E402
from deniable.learn.torch.guards import separation_rules  # noqa: E402
from deniable.learn.torch.guards.separation_trace import Trace  # noqa: E402
from deniable.learn.torch.guards.tensor_domains import ExampleRows, GivenOperation, MixedExamples, Same  # noqa: E402

torch.set_num_threads(1)


class Recurrent(nn.Module):
    """Reads the last hidden state; as many places as there are examples in the first batch."""

    def __init__(self, kind):
        super().__init__()
        self.layer, self.head = getattr(nn, kind)(4, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        hidden = self.layer(x)[1]
        return self.head((hidden[0] if isinstance(hidden, tuple) else hidden)[-1])


def _trained(model, x, losses, rate=0.5):
    plan = learn.DPSGD(clip=1.0, rate=rate, steps=2, noise=1.0)
    generator = torch.Generator().manual_seed(1)
    y = torch.randint(0, 3, (len(x),), generator=generator)
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), plan, (x, y), progress=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="each example is computed alone")
        for features, labels in trainer:
            trainer.backward(losses(model(features).log_softmax(1), labels))
    return trainer.one_by_one


def _picked(logp, y):
    return -logp[torch.arange(len(y)), y]


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_the_hidden_state_of_a_recurrent_layer_is_read_with_as_many_places_as_examples(kind):
    """Places were taken for examples, and the model was refused as one that mixes them."""
    assert _trained(Recurrent(kind), torch.randn(30, 5, 4), _picked) is None


class Started(nn.Module):
    """A recurrent layer that begins with a state of the forward pass's own."""

    def __init__(self, kind, start):
        super().__init__()
        self.layer, self.head = getattr(nn, kind)(4, 6, batch_first=True), nn.Linear(6, 3)
        self.start, self.learnt = start, nn.Linear(4, 6)

    def forward(self, x):
        first = STARTS[self.start](self, x)[None].contiguous()
        answer, _ = self.layer(x, (first, first) if isinstance(self.layer, nn.LSTM) else first)
        return self.head(answer[:, -1])


STARTS = {
    "zeros": lambda _, x: x.new_zeros(len(x), 6),
    "one for all": lambda model, x: model.learnt.bias.detach().expand(len(x), 6),
    "of each example": lambda model, x: model.learnt(x[:, 0]),
    "by place in the batch": lambda _, x: (torch.arange(len(x)) % 2 * 60.0 - 30)[:, None].expand(-1, 6),
    "of another example": lambda model, x: model.learnt(x[:, 0]).roll(1, 0),
    "of one, by its numbers": lambda model, x: model.learnt(x[:, 0])[0].expand(len(x), 6),
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_recurrent_layer_begins_with_the_same_state_or_with_that_of_the_example(kind, start):
    """States by place in the batch: one record that was removed moved the sum by 39 clipping norms."""
    why = _end_of(Started(kind, start), torch.randn(30, 5, 4))
    assert (why is None) == (start in ("zeros", "one for all", "of each example"))


def _end_of(model, x, losses=_picked):
    """Why examples were computed alone, or why the model was refused."""
    try:
        return _trained(model, x, losses)
    except InvalidParameter as refused:
        return str(refused)


def test_a_recurrent_layer_takes_no_weights_and_no_states_that_lie_otherwise_from_the_data():
    """Weights whose rows are the examples went for states of the examples."""
    torch.manual_seed(0)
    x, count = torch.randn(5, 6, 4), 6
    layer = nn.LSTM(4, 6)
    state = torch.zeros(6, 6)
    cases = {"states": (layer.weight_hh_l0, state), "weights": (x.sum((0, 2))[:, None].expand(6, 6), state)}
    cases["states the other way"] = layer.weight_hh_l0, x.sum((0, 2))[None].expand(6, 6)
    found = {}
    for name, (weight, first) in cases.items():
        domains = {id(x): ExampleRows(1, 1)}
        if name == "weights":
            domains[id(weight)] = ExampleRows(0, 1)
        elif name == "states the other way":
            domains[id(first)] = ExampleRows(1, 1)
        args = (x, layer.weight_ih_l0, weight, layer.bias_ih_l0, layer.bias_hh_l0, first, state)
        op = torch.ops.aten.mkldnn_rnn_layer.default
        rest = (False, [], 2, 6, 1, True, False, False, False)
        made = [torch.zeros(5, 6, 6), torch.zeros(6, 6), torch.zeros(6, 6), torch.zeros(1)]
        of = lambda each, known=domains: known.get(id(each), Same.constant(each))  # noqa: E731
        found[name] = separation_rules.domains(GivenOperation(op, args + rest, {}, of, count), made)[0]
    assert found["states"] == ExampleRows(1, 1)
    assert isinstance(found["weights"], MixedExamples)
    assert isinstance(found["states the other way"], MixedExamples)


@pytest.mark.parametrize(
    "losses",
    [_picked, lambda logp, y: -(logp * nn.functional.one_hot(y, 3)).sum(1)],
    ids=["places by number", "one hot"],
)
def test_losses_that_are_picked_by_label_stay_whole(losses):
    assert _trained(nn.Linear(4, 3), torch.randn(30, 4), losses) is None


def _shifted_in_place(logp, y):
    places = torch.arange(len(y))
    places.add_(1).remainder_(len(y))
    return -logp[places, y]


WRONG = {
    "permuted": lambda logp, y: -logp[torch.randperm(len(y)), y],
    "flipped": lambda logp, y: -logp[torch.arange(len(y)).flip(0), y],
    "shifted in place": _shifted_in_place,
    "from the end": lambda logp, y: -logp[torch.arange(len(y) - 1, -1, -1), y],
    "shorter": lambda logp, y: -logp[torch.arange(len(y) - 1), y[1:]].repeat(2)[: len(y)],
    "from 1 on": lambda logp, y: -torch.cat([logp, logp])[torch.arange(1, len(y) + 1), y],
    "labels of others": lambda logp, y: -logp[torch.arange(len(y)), y.flip(0)],
    "one hot of others": lambda logp, y: -(logp * nn.functional.one_hot(y.flip(0), 3)).sum(1),
    "as many classes as there are, by torch": lambda logp, y: -(logp[:, :1] / nn.functional.one_hot(y).shape[1])[:, 0],
    "labels by place": lambda logp, y: -logp[torch.arange(len(y)), torch.arange(len(y)) % 3],
    "as many classes as there are labels": lambda logp, y: (
        -(logp * nn.functional.one_hot(y, int(y.max()) + 1)[:, :1])[:, 0]
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_losses_that_pick_from_other_examples_are_refused_or_sent_alone(kind):
    try:
        why = _trained(nn.Linear(4, 3), torch.randn(30, 4), WRONG[kind])
    except InvalidParameter as refused:
        # One of two good ends. The shorter one has no loss for an example alone.
        assert "other examples" in str(refused) or kind == "shorter"  # noqa: PT017
    except (IndexError, RuntimeError):
        assert kind in ("shorter", "from 1 on")  # which cannot be computed for one example
    else:
        assert why is not None


class Bag(nn.Module):
    def __init__(self, how):
        super().__init__()
        mode = how if how in ("mean", "sum", "max") else "sum"
        self.how, self.bag, self.head = how, nn.EmbeddingBag(20, 6, mode=mode), nn.Linear(6, 3)

    def forward(self, ids):
        width = ids.shape[1]
        if self.how == "weighted":
            return self.head(self.bag(ids, per_sample_weights=ids / 20))
        if self.how == "bags across examples":
            return self.head(self.bag(ids.flatten(), torch.arange(0, ids.numel(), width).clamp(min=1) - 1))
        if self.how == "weights by place":
            return self.head(self.bag(ids, per_sample_weights=torch.arange(ids.numel()).view_as(ids) / 20))
        if self.how == "bags of others":
            return self.head(self.bag(ids.flip(0)))
        if self.how == "one bag":
            return self.head(self.bag(ids.flatten(), torch.zeros(len(ids), dtype=torch.long)))
        return self.head(self.bag(ids))


@pytest.mark.parametrize("how", ["mean", "sum", "max", "weighted"])
def test_bags_of_embeddings_stay_whole_where_each_has_its_own_example(how):
    assert _trained(Bag(how), torch.randint(0, 20, (30, 7)), _picked) is None


def test_bags_whose_last_offset_ends_the_last_one_are_fewer_than_the_examples():
    """Offsets 0, 7, 14, ... look like one bag for each example; if the last one is an end, one example has none."""
    ids, weights = torch.randint(0, 20, (6, 7)), torch.randn(20, 6)
    for is_end in (False, True):
        trace = Trace([ids], len(ids))
        trace.__enter__()
        try:
            flat, offsets = ids.flatten(), torch.arange(0, ids.numel(), 7)
            bags = nn.functional.embedding_bag(flat, weights, offsets, mode="sum", include_last_offset=is_end)
        finally:
            trace.end()
        assert len(bags) == len(offsets) - is_end
        assert isinstance(trace.of(bags), MixedExamples if is_end else ExampleRows)
        args = (weights, flat, offsets, False, 0, False, None, is_end)
        given = GivenOperation(torch.ops.aten._embedding_bag.default, args, {}, trace.of, len(ids))
        assert (separation_rules._bagged(given, [bags]) is None) == is_end, (
            "the rule itself, whatever looks at shapes after it"
        )


@pytest.mark.parametrize("how", ["bags across examples", "bags of others", "one bag", "weights by place"])
def test_bags_of_embeddings_across_examples_are_refused_or_sent_alone(how):
    try:
        why = _trained(Bag(how), torch.randint(0, 20, (30, 7)), _picked)
    except InvalidParameter as refused:
        assert "example" in str(refused)  # noqa: PT017  # one of two good ends
    else:
        assert why is not None
