"""Per-example gradients from factors in half precision, beside the same sums in double precision."""

from __future__ import annotations

import importlib.util

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from deniable.learn.torch import gradient_noise  # noqa: E402
from deniable.learn.torch.gradients import gradient_captures, stacked_layers  # noqa: E402
from deniable.learn.torch.gradients.bookkeeping import Bookkeeping  # noqa: E402
from deniable.learn.torch.gradients.gradient_captures import Factors, Outer, half_ghosts, held_together  # noqa: E402
from deniable.learn.torch.kernels import half_products  # noqa: E402

torch.set_num_threads(1)

HAS_KERNELS = torch.cuda.is_available() and importlib.util.find_spec("triton") is not None
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not HAS_KERNELS, reason="no GPU, or no Triton"))]
HALVES = [torch.bfloat16, torch.float16]
SHAPES = [(3, 4, 2, 5), (2, 70, 40, 24), (3, 128, 136, 64), (5, 33, 16, 200)]
"""Examples, places, widths of g and of a."""


def _factors(shape, half, device, layers=2):
    count, places, outs, ins = shape
    gs = [torch.randn(count, places, outs, device=device).to(half) for _ in range(layers)]
    others = [torch.randn(count, places, ins, device=device).to(half) for _ in range(layers)]
    return gs, others


def _exact(g, a):
    return torch.einsum("bto,bti->boi", g.double(), a.double())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("half", HALVES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_are_those_of_double_precision(shape, half, device):
    torch.manual_seed(0)
    gs, others = _factors(shape, half, device)
    scales = torch.rand(shape[0], device=device)
    exact = [_exact(g, a) for g, a in zip(gs, others, strict=True)]
    for mine, each in zip(half_products.weighted(gs, others, scales), exact, strict=True):
        truth = torch.tensordot(scales.double(), each, 1)
        assert mine.dtype == torch.float32
        assert float((mine - truth).norm()) <= 1e-6 * float(truth.norm())
    for mine, each in zip(half_products.outer_products(gs, others), exact, strict=True):
        assert float((mine - each).norm()) <= 1e-6 * float(each.norm())
    for mine, g in zip(half_products.place_sums(gs), gs, strict=True):
        assert float((mine - g.double().sum(1)).norm()) <= 1e-6 * float(g.double().sum(1).norm())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("half", HALVES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("cancels", [False, True])
def test_norms_are_upper_bounds(shape, half, device, cancels):
    """Also where the second half of the places takes back the first."""
    torch.manual_seed(1)
    gs, others = _factors(shape, half, device)
    if cancels:
        middle = shape[1] // 2
        for g, a in zip(gs, others, strict=True):
            g[:, middle : 2 * middle], a[:, middle : 2 * middle] = -g[:, :middle], a[:, :middle]
    outers = [Outer(g, a, torch.Size(shape[2:])) for g, a in zip(gs, others, strict=True)]
    exact = sum(_exact(g, a).flatten(1).square().sum(1) for g, a in zip(gs, others, strict=True))
    for made in (half_ghosts(outers), held_together(outers)) if not cancels else (half_ghosts(outers),):
        assert made.dtype == torch.float32
        assert bool((made.double() * (1 + 2**-16) ** 2 >= exact).all())
        if not cancels:
            assert float((made - exact).norm()) <= 5e-3 * float(exact.norm())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("half", HALVES, ids=str)
def test_a_clipped_example_is_not_longer_than_the_clipping_norm(half, device):
    """The contribution of each example as it is summed, recomputed in double precision. Places nearly cancel, so that
    factors rounded to half precision would break the bound: that is checked too, or else the test could not fail."""
    torch.manual_seed(2)
    count, places, outs, ins = 40, 16, 12, 20
    left = {torch.bfloat16: 4, torch.float16: 32}[half] * torch.finfo(half).eps  # of 1, where places cancel
    g = torch.ones(count, places, outs, device=device)
    g[:, places // 2 :] = left - 1
    a = torch.randn(count, 1, ins, device=device).expand(-1, places, -1)
    g, a = g.to(half), a.to(half)
    outer = Outer(g, a, torch.Size((outs, ins)))
    clip = 1.0
    scales = clip / (half_ghosts([outer]).sqrt() * (1 + 2**-16))
    rounded = []
    for example in range(count):
        only = torch.where(torch.arange(count, device=device) == example, scales, 0.0)
        assert 0.9 * clip < float(outer.summed(Factors(only)).double().norm()) <= clip
        careless = (g[example].float() * scales[example]).to(half).double().T @ a[example].double()
        rounded.append(float(careless.norm()))
    if half == torch.bfloat16:  # the margin of ghost norms hides the rounding to the eleven bits of float16
        assert max(rounded) > 1.01 * clip


class Wide(nn.Module):
    """Linear maps with ghost norms and with formed gradients, normalisations, and a convolution before them."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(3, 24, 3, padding=1)
        self.maps = nn.ModuleList([nn.Linear(24, 24) for _ in range(2)])
        self.low, self.high = nn.Linear(24, 2, bias=False), nn.Linear(2, 24, bias=False)
        self.norms = nn.ModuleList([nn.LayerNorm(24) for _ in range(3)])
        self.attend = nn.MultiheadAttention(24, 2, batch_first=True)
        self.head = nn.Linear(24, 2)

    def forward(self, x):
        x = self.first(x.transpose(1, 2)).transpose(1, 2)
        for layer, norm in zip(self.maps, self.norms[:2], strict=True):
            x = x + torch.tanh(layer(norm(x)))
        x = x + self.high(self.low(self.norms[2](x)))
        x = x + self.attend(x, x, x, need_weights=False)[0]
        return self.head(x.mean(1)).float()


def _gradients(model, book, count, seed, half):
    torch.manual_seed(seed)
    x = torch.randn(count, 10, 3)
    book.forget()
    with torch.autocast("cpu", half):
        out = model(x)
    losses = nn.functional.cross_entropy(out, torch.arange(count) % 2, reduction="none")
    return book.gradients(losses), losses


@pytest.mark.parametrize("room", [stacked_layers.ROOM, 10], ids=["small", "too large to be concatenated"])
@pytest.mark.parametrize("half", HALVES, ids=str)
def test_autocast_as_on_an_accelerator_agrees_with_single_precision(half, room, monkeypatch):
    """The same factors, converted to single precision first, as on a CPU; and each example alone stays in its norm."""
    count, found = 6, {}
    for quick in (("cpu",), ()):
        monkeypatch.setattr(gradient_captures, "QUICK", quick)
        monkeypatch.setattr(stacked_layers, "ROOM", room if not quick else 2**40)
        torch.manual_seed(0)
        model = Wide()
        book = Bookkeeping(model)
        for seed in range(2):
            mine, losses = _gradients(model, book, count, seed, half)
        held = {type(each) for blocks in mine._uses.values() for uses in blocks.values() for each in uses.captures}
        outers = [mine._uses[f"{name}.weight"] for name in ("maps.0", "maps.1", "low", "high")]
        assert Outer in held
        assert all(next(iter(each.values())).sole.is_half != bool(quick) for each in outers)
        squares = mine.squared(losses).double()
        scales = 1 / (squares.sqrt() * (1 + 2**-16) + mine.lost)
        sums = {name: part.double() for name, part, _ in mine.summed(scales.float())}
        found[quick] = squares, sums
        for example in range(count):
            mine, losses = _gradients(model, book, count, 1, half)
            mine.squared(losses)
            only = torch.where(torch.arange(count) == example, scales, 0.0).float()
            length = sum(float(part.double().square().sum()) for _, part, _ in mine.summed(only)) ** 0.5
            assert 0.9 < length <= 1
        book.close()
    (squares, sums), (others, more) = found.values()
    assert float((squares - others).norm()) <= 1e-3 * float(squares.norm())
    assert sums.keys() == more.keys()
    for name, part in sums.items():
        assert float((part - more[name]).norm()) <= 1e-3 * float(part.norm()), name


def test_the_input_is_held_as_autocast_converted_it():
    model = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2, bias=False))
    book = Bookkeeping(model)
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.randn(4, 3, 6)).sum()
    inputs = {call.path: call.x for call in book.listener.calls if call.kind == "layer"}
    assert {path: x.dtype for path, x in inputs.items()} == {
        "0": torch.float32,
        "1": torch.bfloat16,
        "3": torch.bfloat16,
    }
    assert all(x.shape == (4, 3, 6) for x in inputs.values())
    book.close()


def test_noise_on_a_device_is_drawn_in_portions(monkeypatch):
    """Each number is in one portion, and portions are about as large as they may be."""
    monkeypatch.setattr(gradient_noise, "ON_A_DEVICE", 10)
    totals = [torch.zeros(size) for size in ((3,), (4, 2), (27,), (), (2, 3))] + [torch.zeros(4, 6).T]
    portions = list(gradient_noise._portions(totals))
    for portion in portions:
        for piece in portion:
            piece += 1
    assert all(bool((each == 1).all()) for each in totals)
    sizes = [sum(piece.numel() for piece in portion) for portion in portions]
    assert sizes == [3, 8, 10, 10, 8, 6, 24]  # 7 + 1 in the fifth; what is not contiguous is not cut
