"""Rules about who reaches whom: what is followed through each operation is what really happens."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from deniable.learn.torch.guards.separation_rules import _recurrent  # noqa: E402
from deniable.learn.torch.guards.separation_trace import Trace  # noqa: E402
from deniable.learn.torch.guards.tensor_domains import ExampleRows, MixedExamples  # noqa: E402

torch.set_num_threads(1)


B = 6
WEIGHT = torch.randn(5, 5, generator=torch.Generator().manual_seed(1))
LSTM = nn.LSTM(5, 5)
OPERATIONS = {
    "linear": (lambda x: x @ WEIGHT, True),
    "folded": (lambda x: (x.flatten(0, 1) @ WEIGHT).view(B, 4, 5), True),
    "folded, places first": (lambda x: x.transpose(0, 1).reshape(4 * B, 5).view(4, B, 5).transpose(0, 1), True),
    "folded the wrong way": (lambda x: x.transpose(0, 1).reshape(4 * B, 5).view(B, 4, 5), False),
    "split examples": (lambda x: x.view(2, B // 2, 4, 5).transpose(0, 1).reshape(B, 4, 5), False),
    "softmax over places": (lambda x: x.softmax(1), True),
    "softmax over examples": (lambda x: x.softmax(0), False),
    "log softmax over examples": (lambda x: x.log_softmax(0), False),
    "mean over places": (lambda x: x - x.mean(1, keepdim=True), True),
    "mean over examples": (lambda x: x - x.mean(0, keepdim=True), False),
    "mean over all": (lambda x: x - x.mean(), False),
    "largest of all": (lambda x: x / x.abs().max(), False),
    "norm of all": (lambda x: x / x.norm(), False),
    "norm of each": (lambda x: x / x.norm(dim=(1, 2), keepdim=True), True),
    "variance over examples": (lambda x: x / x.var(0), False),
    "attention of an example": (lambda x: x @ x.transpose(1, 2) @ x, True),
    "attention among examples": (lambda x: (x.mean(1) @ x.mean(1).T) @ x.mean(1), False),
    "einsum inside": (lambda x: torch.einsum("bti,bsi->bts", x, x), True),
    "einsum across": (lambda x: torch.einsum("bti,cti->bc", x, x), False),
    "sdpa": (lambda x: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0], True),
    "sdpa across": (lambda x: F.scaled_dot_product_attention(*[x.transpose(0, 1)[None]] * 3)[0].transpose(0, 1), False),
    "flipped places": (lambda x: x.flip(1), True),
    "flipped examples": (lambda x: x.flip(0), False),
    "rolled places": (lambda x: x.roll(1, 1), None),
    "rolled examples": (lambda x: x.roll(1, 0), False),
    "sorted places": (lambda x: x.sort(1).values, True),
    "sorted examples": (lambda x: x.sort(0).values, False),
    "running sum over places": (lambda x: x.cumsum(1), True),
    "running sum over examples": (lambda x: x.cumsum(0), False),
    "gather inside": (lambda x: x.gather(1, x.argsort(1)), True),
    "gather across": (lambda x: x.gather(0, x.argsort(0)), False),
    "picked places": (lambda x: x[:, torch.tensor([2, 0])], True),
    "picked examples": (lambda x: x[torch.arange(B).flip(0)], False),
    "index_select": (lambda x: x.index_select(0, torch.arange(B).flip(0)), False),
    "shifted": (lambda x: torch.cat((x[1:], x[:1])), False),
    "neighbour": (lambda x: x + torch.cat((x[:1] * 0, x[:-1])), False),
    "halves": (lambda x: torch.cat(x.chunk(2, 0)[::-1]), False),
    "places joined": (lambda x: torch.cat((x[:, 1:], x[:, :1]), 1), True),
    "stacked": (lambda x: torch.stack((x, 2 * x), 1).sum(1), True),
    "padded": (lambda x: F.pad(x, (1, 2)), True),
    "padded examples": (lambda x: F.pad(x, (0, 0, 0, 0, 1, 0))[:-1], False),
    "positions of places": (lambda x: x * torch.arange(4.0)[:, None], True),
    "positions of examples": (lambda x: x * torch.arange(float(B))[:, None, None], False),
    "a token for all": (lambda x: torch.cat((WEIGHT[:1].expand(B, 1, 5), x), 1), True),
    "a token repeated": (lambda x: torch.cat((WEIGHT[:1].repeat(B, 1, 1), x), 1), True),
    "a row for each place in the batch": (lambda x: x + torch.cat((WEIGHT, WEIGHT))[:B, None], False),
    "convolution": (lambda x: F.conv1d(x.transpose(1, 2), WEIGHT[:, :, None]), True),
    "convolution over examples": (
        lambda x: F.conv1d(x.permute(1, 2, 0), WEIGHT[:, :, None].repeat(1, 1, 3), padding=1).permute(2, 0, 1),
        False,
    ),
    "layer norm": (lambda x: F.layer_norm(x, (5,)), True),
    "instance norm": (lambda x: F.instance_norm(x), True),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), False),
    "group norm": (lambda x: F.group_norm(x, 2), True),
    "pooled": (lambda x: F.max_pool1d(x, 2), True),
    "written into": (lambda x: _written(x, slice(None)), True),
    "written into all by one": (lambda x: _written(x, None), False),
    "mean written into its own": (lambda x: _overwritten(x), False),
    "scattered inside": (lambda x: torch.zeros(B, 4, 5).scatter(1, x.argsort(1), x), True),
    "added up by owner": (
        lambda x: torch.zeros(2, 4, 5).index_add(0, torch.arange(B) % 2, x)[torch.arange(B) % 2],
        False,
    ),
    "the first taken off the others in place": (lambda x: _into(x.clone(), lambda z: z[1:].sub_(x[:1])), False),
    "shifted in place": (lambda x: _into(x.clone(), lambda z: z[1:].copy_(x[:-1])), False),
    "positions written into a column": (
        lambda x: _into(x.clone(), lambda z: z[:, 0].copy_(torch.arange(float(B))[:, None])),
        False,
    ),
    "a mark for the first": (lambda x: x + _into(torch.zeros(B, 4, 5), lambda z: z[0].fill_(1)), False),
    "positions in a part": (
        lambda x: x + _into(torch.zeros(B, 4, 5), lambda z: z[:, 0].copy_(torch.arange(float(B))[:, None])),
        False,
    ),
    "constants in a part": (lambda x: x + _into(torch.zeros(B, 4, 5), lambda z: z[:, 0].fill_(1)), True),
    "a token and examples in parts": (
        lambda x: x + _into(torch.zeros(B, 4, 5), lambda z: (z[:, 0].copy_(WEIGHT[0]), z[:, 1:].copy_(x[:, 1:]))),
        True,
    ),
    "turned in place": (
        lambda x: _into(x[:, 0, :1].expand(B, B).clone(), lambda z: z.T.copy_(x[:, 0, :1].expand(B, B))),
        False,
    ),
    "lists in place": (lambda x: _into(x.clone(), lambda z: torch._foreach_sub_([z], [x.mean(0)])), False),
    "one row picked for all": (lambda x: x - x.gather(1, torch.arange(4)[None, :, None].expand(1, 4, 5)), False),
    "all added to the first": (
        lambda x: x - torch.zeros(1, 4, 5).scatter_add(1, torch.arange(4)[None, :, None].expand(1, 4, 5), x),
        False,
    ),
    "padded and cut": (lambda x: F.pad(x, (0, 0, 0, 0, 1, -1)), False),
    "padded and cut, two axes": (lambda x: F.pad(x[:, 0], (0, 0, 1, -1)), False),
    "places padded and cut": (lambda x: F.pad(x, (0, 0, 1, -1)), True),
    "a product into another": (
        lambda x: x[:, 0] - torch.mm(torch.ones(B, B), x[:, 0], out=torch.empty(B, 5)),
        False,
    ),
    "a parameter made of the batch": (lambda x: x - nn.Parameter(x.mean(0), requires_grad=False), False),
    "upper triangle": (lambda x: (x @ x.transpose(1, 2)).triu(), True),
    "lstm over places": (lambda x: LSTM(x.transpose(0, 1))[0].transpose(0, 1), True),
    "lstm over examples": (lambda x: LSTM(x)[0], False),
    "dropout": (lambda x: F.dropout(x, 0.0), True),
    "a number of the batch": (lambda x: x / float(x.abs().max()), False),
    "how many": (lambda x: x / (1 + len(x[x > 0])), False),
    "a branch": (lambda x: x * (1 if bool(x.sum() > 0) else 2), False),
    "the row before, by views of one buffer": (lambda x: x + _before(x), False),
    "the row before, by a view that is made first": (lambda x: x + _before(x, by_hand=True), False),
    "a part of the row before": (lambda x: x[:, 0, :2] + _around(x, 4), False),
    "a part of the same row": (lambda x: x[:, 0, :2] + _around(x, 0), True),
    "zeros over all but the first": (lambda x: x[:, 0] + _but_one(x), False),
    "positions beside examples": (
        lambda x: x[:, 0] + _into(torch.arange(B * 5.0).view(B, 5), lambda z: z[:, 0].copy_(x[:, 0, 0])),
        False,
    ),
    "squeezed in place": (lambda x: x[None, :, 0, :1].expand(1, B, B).clone().squeeze_(0).sum(0), False),
    "a failure that is caught": (lambda x: x * _failed(lambda: F.embedding(x[:, 0].long().abs() + 9, WEIGHT)), False),
    "one hot that fails": (lambda x: x * _failed(lambda: F.one_hot(x[:, 0, 0].long().abs() + 9, 5)), False),
    "one hot by its names": (lambda x: F.one_hot(input=(x[:, 0, 0] > 0).long(), num_classes=2) * x[:, 0, :2], True),
    "data that are swapped": (lambda x: x * _swapped(x.sum()), False),
    "data that are swapped for a view": (lambda x: x[:, 0] * _swapped(x.sum((0, 1))), False),
    "dlpack": (lambda x: x * torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x.sum())), False),
    "what is printed": (lambda x: x * len(repr(x.round())), False),
    "an array": (lambda x: x * float(x.detach().numpy().sum()), False),
    "a list": (lambda x: x * sum(x.flatten().tolist()), False),
    "compared with nothing": (lambda x: x * (2 if x == None else 3), True),  # noqa: E711
    "what is formatted": (lambda x: x * len(f"{x.round()}"), False),
    "the bytes of a storage": (lambda x: x * float(x.sum().untyped_storage().tolist()[0]), False),
    "a place in memory": (lambda x: x * float(x.data_ptr() % 3), False),
    "each number by Python": (lambda x: x * _by_hand(x), False),
    "plain questions": (lambda x: x * (x.dim() + len(x.shape) + x.is_contiguous()) * (x.dtype == torch.float32), True),
    "cut by a number": (lambda x: x * x[:, 0].tensor_split((x[0, 0, :1] > 0).long() + 1, 1)[0].shape[1], False),
    "masked by the others": (
        lambda x: F.scaled_dot_product_attention(
            x[:, None, :1].expand(B, 1, B, 5), x[:, None], x[:, None], attn_mask=x[:, 0, :4]
        )[:, 0],
        False,
    ),
    "constants that repeat out of step": (
        lambda x: (x.flatten(0, 1) * torch.arange(4.0).repeat(2)[:6].repeat(4)[:, None]).view(B, 4, 5),
        False,
    ),
    "classes where the examples are": (
        lambda x: F.nll_loss(
            x[:, 0, :1].T[:, :, None, None].expand(1, B, B, 1), (x[:, 0, 0] > 0).long()[None, :, None], reduction="none"
        )[0],
        False,
    ),
    "rows divided by how often all name them": (
        lambda x: F.embedding((x[:, 0] > 0).long(), WEIGHT, scale_grad_by_freq=True),
        False,
    ),
    "the same tensor": (lambda x: F.dropout(x.contiguous().float().to("cpu"), 0.5, training=False) * 2, True),
}


def _before(x, *, by_hand=False):
    """Row i of the one is row i + 1 of the other."""
    buffer = x.new_zeros(B + 1, 4, 5)
    shifted = buffer.as_strided((B, 4, 5), (20, 5, 1)) if by_hand else buffer[:-1]
    buffer[1:].copy_(x)
    return shifted


def _around(x, at):
    """Numbers 1, 2 and 4 of each five are written, those of one example; two are read that begin at a number."""
    buffer = torch.zeros((B + 1) * 5)
    rows, others = buffer[: B * 5].view(B, 5), buffer[at : at + B * 5].view(B, 5)[:, 1:3]
    rows[:, 1:3].copy_(x[:, 0, :2])
    rows[:, 4:].copy_(x[:, 0, :1])
    return others


def _but_one(x):
    buffer = x.new_zeros(B + 1, 5)
    first = buffer[:-1]
    first.copy_(x[:, 0])
    buffer[1:].zero_()
    return first


def _failed(function):
    try:
        function()
    except (IndexError, RuntimeError):
        return -1
    return 1


def _swapped(total):
    kept = torch.zeros(5)
    kept.data = total
    return kept


def _by_hand(x):
    numbers = []
    x.clone().apply_(lambda number: numbers.append(number) or number)
    return sum(numbers)


def _into(out, write):
    write(out)
    return out


def _written(x, rows):
    out = torch.zeros(B, 4, 5)
    if rows is None:
        out[0] = x.sum(0)
    else:
        out[rows, 1:] = x[:, :-1]
    return out * x


def _overwritten(x):
    out = x.clone()
    out[:, 0] = x.mean(0)[0]
    return out


@pytest.mark.parametrize("name", OPERATIONS)
def test_rules_are_right_about_who_reaches_whom(name):
    """What is said to be apart is: another record in the place of one changes nothing of the others."""
    function, apart = OPERATIONS[name]
    torch.manual_seed(0)
    x = torch.randn(B, 4, 5)
    trace = Trace([x], B)
    trace.__enter__()
    try:
        out = function(x)
    finally:
        trace.end()
    found = trace.of(out)
    assert isinstance(found, ExampleRows | MixedExamples)
    if apart is not None:
        assert (found == ExampleRows(0, 1)) is apart
    if found == ExampleRows(0, 1):
        other = x.clone()
        other[2] = torch.randn(4, 5) * 5
        changed = (function(other) - out).flatten(1).abs().amax(1) > 0
        assert changed.nonzero().flatten().tolist() == [2]
        alone = function(x[3:4]) if name in ("softmax over places", "attention of an example") else out[3:4]
        assert torch.allclose(alone, out[3:4], atol=1e-6)


def test_losses_that_a_number_of_the_data_picks_are_not_apart():
    """No operation comes after the choice."""
    x = torch.randn(B, 5, requires_grad=True)
    trace = Trace([x], B)
    trace.__enter__()
    try:
        one, other = (x * 1).sum(1), (x * 2).sum(1)
        losses = one if bool(x.sum() > 0) else other
    finally:
        trace.end()
    assert isinstance(trace.of_losses(losses, nn.Linear(1, 1)), MixedExamples)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_states_of_recurrent_layers_have_their_examples_before_their_width(kind, batch_first):
    """Layers and directions in front, then examples: another one there changes the states of no other."""
    torch.manual_seed(0)
    layer = kind(5, 3, num_layers=2, bidirectional=True, batch_first=batch_first)

    def states(x):
        last = layer(x if batch_first else x.transpose(0, 1))[1]
        return list(last) if isinstance(last, tuple) else [last]

    x = torch.randn(B, 4, 5)
    trace = Trace([x], B)
    trace.__enter__()
    try:
        found = states(x)
    finally:
        trace.end()
    other = x.clone()
    other[2] = torch.randn(4, 5) * 5
    assert len(found) == (2 if kind is nn.LSTM else 1)
    for state, changed in zip(found, states(other), strict=True):
        assert trace.of(state) == ExampleRows(1, 1)
        assert (changed - state).abs().amax((0, 2)).nonzero().flatten().tolist() == [2]


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_by_a_number_of_each_example_is_not_apart(training):
    """With as many channels as examples, a number of each example would scale or move one channel of all of them."""
    x = torch.randn(B, B, 7)
    alike, ones, zeros = torch.ones(B, B, 7), torch.ones(B), torch.zeros(B)
    trace = Trace([x], B)
    trace.__enter__()
    try:
        own = x[:, 0, 0]
        assert trace.of(own) == ExampleRows(0, 1)
        mixed = [
            F.batch_norm(given, zeros, ones, weight=weight, bias=bias, training=training)
            for given in (x, alike)
            for weight, bias in ((own, zeros), (ones, own))
        ]
        apart = F.batch_norm(x, zeros, ones, weight=ones, bias=zeros, training=False)
    finally:
        trace.end()
    assert [isinstance(trace.of(each), MixedExamples) for each in mixed] == [True] * 4
    assert trace.of(apart) == ExampleRows(0, 1)


def test_states_of_all_layers_at_once_have_their_examples_in_the_middle():
    """As cuDNN gives them; on a CPU each layer comes alone, with its examples in front."""
    x, values = torch.randn(4, B, 5), {"batch_first": False, "batch_sizes": [], "hx": None, "cx": None}
    given = SimpleNamespace(
        first=(x, ExampleRows(1, 1)),
        name="aten::_cudnn_rnn",
        tensors=[x],
        domains=[ExampleRows(1, 1)],
        value=lambda *names: next((values[name] for name in names if name in values), None),
    )
    made = [torch.zeros(4, B, 3), torch.zeros(2, B, 3), torch.zeros(2, B, 3), torch.zeros(9)]
    out, state, cell, inside = _recurrent(given, made)
    assert [out, state, cell] == [ExampleRows(1, 1)] * 3
    assert isinstance(inside, MixedExamples)
    assert _recurrent(given, [made[0], torch.zeros(B, 3), torch.zeros(B, 3)])[1:] == [ExampleRows(0, 1)] * 2
