"""Layers alike, worked on together as on an accelerator, beside autograd one example at a time."""

from __future__ import annotations

import weakref

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from deniable.learn.torch.gradients import gradient_captures, reduced_norms, stacked_layers  # noqa: E402
from deniable.learn.torch.gradients.bookkeeping import Bookkeeping  # noqa: E402
from tests.learn.torch.gradients.test_bookkeeping import close, one_by_one  # noqa: E402

torch.set_num_threads(1)

COUNT, PLACES, WIDTH = 5, 3, 12


class Blocks(nn.Module):
    """Blocks of the same shapes, on places; `change` makes some of them different."""

    def __init__(self, change=None, *, bias=True, norm=WIDTH, blocks=3):
        super().__init__()
        self.maps = nn.ModuleList([nn.Linear(WIDTH, WIDTH, bias=bias) for _ in range(blocks)])
        self.norms = nn.ModuleList([nn.LayerNorm(norm) for _ in range(blocks)])
        self.head = nn.Linear(WIDTH, 2)
        if change is not None:
            change(self)

    def forward(self, x):
        for layer, norm in zip(self.maps, self.norms, strict=True):
            x = x + torch.tanh(layer(norm(x)))
        return self.head(x.flatten(1, -2).mean(1))


def _tied(model):
    model.maps[2].weight = model.maps[0].weight


def _called_again(model):
    model.maps[2] = model.maps[0]


def _frozen(model):
    model.maps[1].weight.requires_grad_(False)
    model.norms[0].bias.requires_grad_(False)


def _one_without_bias(model):
    model.maps[0] = nn.Linear(WIDTH, WIDTH, bias=False)


def _frozen_bias(model):
    model.maps[1].bias.requires_grad_(False)


def _other_eps(model):
    model.norms[1].eps = 0.5


def _one_wider(model):
    model.maps[1] = nn.Sequential(nn.Linear(WIDTH, 7), nn.Linear(7, WIDTH))


class UsedElsewhere(Blocks):
    """One of the weights is that of another layer, too, which sees something of another shape."""

    def __init__(self):
        super().__init__()
        self.more = nn.Linear(WIDTH, WIDTH)
        self.more.weight = self.maps[0].weight

    def forward(self, x):
        return super().forward(x) + self.more(x.mean(1))[:, :2]


class PlacesFirst(Blocks):
    """The layers see the places in front of the examples."""

    def forward(self, x):
        x = x.transpose(0, 1)
        for layer, norm in zip(self.maps, self.norms, strict=True):
            x = x + torch.tanh(layer(norm(x)))
        return self.head(x.mean(0))


class Folded(Blocks):
    """Two looks at each example, those of one look behind those of the other."""

    def forward(self, x):
        count = len(x)
        x = torch.stack((x, x.flip(1))).flatten(0, 1)
        for layer, norm in zip(self.maps, self.norms, strict=True):
            x = x + torch.tanh(layer(norm(x)))
        return self.head(x.unflatten(0, (2, count)).mean((0, 2)))


class ChannelsLast(Blocks):
    """Inputs whose axes lie in another order in memory."""

    def forward(self, x):
        x = x.unsqueeze(2)
        for layer in self.maps:
            x = torch.tanh(layer(x.contiguous(memory_format=torch.channels_last)))
        return self.head(x.flatten(1, -2).mean(1))


class Crowded(nn.Module):
    """Queries, keys and values of one input, and words of which some come twice."""

    def __init__(self):
        super().__init__()
        self.maps = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.words = nn.Embedding(6, WIDTH)

    def forward(self, ids):
        x = self.words(ids)
        q, k, v = (layer(x) for layer in self.maps)
        return (q.softmax(-1) * k + v).flatten(1).unflatten(1, (2, -1)).mean(-1)


CASES = {
    "alike": (Blocks, 3),
    "without bias": (lambda: Blocks(bias=False), 3),
    "normed over two axes": (lambda: Blocks(norm=(PLACES, WIDTH)), 3),
    "one without bias": (lambda: Blocks(_one_without_bias), 2),
    "one place": (lambda: Blocks(), 0),
    "two axes of places": (lambda: Blocks(), 3),
    "one tied": (lambda: Blocks(_tied), 0),
    "one used elsewhere": (UsedElsewhere, 0),
    "places first": (PlacesFirst, 0),
    "looks one behind the other": (Folded, 0),
    "channels last": (ChannelsLast, 3),
    "one called again": (lambda: Blocks(_called_again), 0),
    "some frozen": (lambda: Blocks(_frozen), 0),
    "a bias frozen": (lambda: Blocks(_frozen_bias), 3),
    "another epsilon": (lambda: Blocks(_other_eps), 3),
    "one wider": (lambda: Blocks(_one_wider), 2),
    "one input": (Crowded, 3),
}


def _inputs(name, model, count, seed):
    torch.manual_seed(seed)
    if isinstance(model, Crowded):
        return torch.randint(0, 6, (count, PLACES))
    places = {"one place": (1,), "two axes of places": (2, 2)}.get(name, (PLACES,))
    return torch.randn(count, *places, WIDTH, dtype=torch.float64)


def _losses(model, x):
    return nn.functional.cross_entropy(model(x), torch.arange(len(x)) % 2, reduction="none")


@pytest.mark.parametrize("room", [gradient_captures.DEVICE_ROOM, 200])
@pytest.mark.parametrize("name", CASES)
def test_norms_and_sums_are_those_of_single_examples(name, room, monkeypatch):
    monkeypatch.setattr(gradient_captures, "QUICK", ())
    monkeypatch.setattr(gradient_captures, "DEVICE_ROOM", room)  # a small one cuts the examples of a family into pieces
    torch.manual_seed(0)
    make, in_family = CASES[name]
    model = make().double()
    book = Bookkeeping(model)
    for count, seed in ((COUNT, 0), (COUNT, 1), (4, 2)):
        x = _inputs(name, model, count, seed)
        truth = one_by_one(model, _losses(model, x))
        book.forget()
        losses = _losses(model, x)
        found = book.gradients(losses)
        if seed:
            assert sum(len(family.members) for family in found._families) == in_family
        squares = sum(g.reshape(count, -1).square().sum(1) for g in truth.values())
        mine = found.squared(losses)
        assert close(mine, squares, 1e-6)
        assert bool((mine >= squares * (1 - 1e-12)).all())
        for key, value in truth.items():
            each = found.each(key, 0, count)
            assert close(torch.zeros_like(value) if each is None else each, value), key
        factors = torch.rand(count, dtype=torch.float64)
        sums = {key: torch.zeros_like(value[0]) for key, value in truth.items()}
        for key, part, (start, stop) in found.summed(factors):
            sums[key][start:stop].add_(part)
        for key, value in truth.items():
            assert close(sums[key], torch.tensordot(factors, value, 1)), key
    book.close()


def test_what_is_too_large_to_copy_stays_apart(monkeypatch):
    monkeypatch.setattr(gradient_captures, "QUICK", ())
    model = Blocks().double()
    held = 2 * COUNT * PLACES * WIDTH * 3
    for room, families in ((held, 1), (held - 1, 0)):
        monkeypatch.setattr(stacked_layers, "ROOM", room)
        book = Bookkeeping(model)
        for seed in range(2):
            book.forget()
            found = book.gradients(_losses(model, _inputs("alike", model, COUNT, seed)))
        assert len(found._families) == families
        book.close()


def test_inputs_are_held_once(monkeypatch):
    """What was copied to lie together is let go at once: or else a step would need twice the memory."""
    monkeypatch.setattr(gradient_captures, "QUICK", ())
    model = Blocks().double()
    book = Bookkeeping(model)
    seen, alive = [], []
    for norm in model.norms[1:]:  # the first has the batch itself, which is held here
        norm.register_forward_pre_hook(lambda _, args: seen.append(weakref.ref(args[0])))
    real = stacked_layers.closed_form

    def asked(module):
        if isinstance(module, nn.LayerNorm):
            alive.extend(ref() is not None for ref in seen)
        return real(module)

    monkeypatch.setattr(stacked_layers, "closed_form", asked)
    for seed in range(2):
        seen.clear()
        book.forget()
        book.gradients(_losses(model, _inputs("alike", model, COUNT, seed)))
    assert alive == [False, False]
    book.close()


@pytest.mark.parametrize("pending", [1, 2**26], ids=["one by one", "several at once"])
@pytest.mark.parametrize("name", CASES)
def test_large_normalisations_are_summed_during_the_backward_pass(name, pending, monkeypatch):
    """The same gradients as autograd's, and none of the inputs and output gradients is held."""
    monkeypatch.setattr(gradient_captures, "QUICK", ())
    monkeypatch.setattr(stacked_layers, "ROOM", 1)
    monkeypatch.setattr(reduced_norms, "PENDING", pending)
    torch.manual_seed(0)
    model = CASES[name][0]().double()
    book = Bookkeeping(model)
    asked = []
    real = reduced_norms.ReducedNorms._reduce
    monkeypatch.setattr(
        reduced_norms.ReducedNorms, "_reduce", lambda self: (asked.append(len(self._waiting)), real(self))
    )
    for seed in range(3):
        x = _inputs(name, model, COUNT, seed)
        truth = one_by_one(model, _losses(model, x))
        book.forget()
        asked.clear()
        losses = _losses(model, x)
        found = book.gradients(losses)
        squares = sum(g.reshape(COUNT, -1).square().sum(1) for g in truth.values())
        assert close(found.squared(losses), squares, 1e-6)
        factors = torch.rand(COUNT, dtype=torch.float64)
        sums = {key: torch.zeros_like(value[0]) for key, value in truth.items()}
        for key, part, (start, stop) in found.summed(factors):
            sums[key][start:stop].add_(part)
        for key, value in truth.items():
            assert close(sums[key], torch.tensordot(factors, value, 1)), key
        if seed and isinstance(model, Blocks) and name != "channels last":
            assert sum(asked) == 2  # the first has no trained layer before it, so that its gradient is asked for
    book.close()


def test_a_cpu_is_handed_one_layer_after_the_other():
    model = Blocks().double()
    book = Bookkeeping(model)
    for seed in range(2):
        book.forget()
        found = book.gradients(_losses(model, _inputs("alike", model, COUNT, seed)))
    assert not found._families
    book.close()


def _grouped(model, losses, monkeypatch, batches):
    """Lengths, what may be lost of them, and sums of the last batch: apart, and together."""
    for quick in (("cpu",), ()):
        monkeypatch.setattr(gradient_captures, "QUICK", quick)
        book = Bookkeeping(model)
        for each in batches:
            book.forget()
            made = losses(each)
            found = book.gradients(made)
        squares, lost = found.squared(made), found.lost
        yield squares, lost, {name: part for name, part, _ in found.summed(torch.ones(COUNT))}
        book.close()


def test_what_may_be_lost_of_small_numbers_is_counted_in_a_family_as_well(monkeypatch):
    torch.manual_seed(0)
    model = Blocks()
    batches = [_inputs("alike", model, COUNT, seed).float() for seed in range(2)]
    (_, apart, _), (_, together_, _) = _grouped(model, lambda x: _losses(model, x), monkeypatch, batches)
    assert together_ == apart > 0


def test_a_layer_in_half_precision_is_not_put_together_with_others(monkeypatch):
    """Its input counts as the half that was used."""
    torch.manual_seed(0)
    model = Blocks()
    plain = model.maps[1].forward

    def half(x):
        with torch.autocast("cpu", torch.bfloat16):
            return plain(x)

    model.maps[1].forward = half
    batches = [_inputs("alike", model, COUNT, seed).float() for seed in range(2)]
    (squares, _, sums), (mine, _, others) = _grouped(model, lambda x: _losses(model, x).float(), monkeypatch, batches)
    assert close(mine, squares, 1e-6)
    for name, part in sums.items():
        assert close(others[name], part, 1e-6), name


class Switched(Blocks):
    """One layer's answer may be left out, and examples may come behind the places."""

    leaves_out = is_turned = False

    def forward(self, x):
        if self.is_turned:
            x = x.transpose(0, 1)
        for number, (layer, norm) in enumerate(zip(self.maps, self.norms, strict=True)):
            out = torch.tanh(layer(norm(x)))
            x = x + (out.detach() if self.leaves_out and number == 0 else out)
        return self.head(x.mean(0 if self.is_turned else 1))


@pytest.mark.parametrize("room", [stacked_layers.ROOM, 1])
@pytest.mark.parametrize("switch", ["leaves_out", "is_turned"])
def test_what_the_first_batch_taught_may_change(switch, room, monkeypatch):
    monkeypatch.setattr(gradient_captures, "QUICK", ())
    monkeypatch.setattr(stacked_layers, "ROOM", room)
    torch.manual_seed(0)
    model = Switched().double()
    book = Bookkeeping(model)
    for seed in range(5):
        setattr(model, switch, seed > 1)
        x = _inputs("alike", model, COUNT, seed)
        truth = one_by_one(model, _losses(model, x))
        book.forget()
        losses = _losses(model, x)
        found = book.gradients(losses)
        squares = sum(g.reshape(COUNT, -1).square().sum(1) for g in truth.values())
        assert close(found.squared(losses), squares, 1e-6)
        sums = {key: torch.zeros_like(value[0]) for key, value in truth.items()}
        for key, part, (start, stop) in found.summed(torch.ones(COUNT, dtype=torch.float64)):
            sums[key][start:stop].add_(part)
        for key, value in truth.items():
            assert close(sums[key], value.sum(0)), (seed, key)
    book.close()
