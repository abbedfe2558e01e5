"""Convolutions whose windows are read in place, beside autograd on each example alone in double precision.

On a CPU a plain loop stands for the kernel, so that these tests check where windows lie and how results are ordered.
With a GPU and Triton the kernel itself runs.
"""

from __future__ import annotations

import importlib.util

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:Using padding='same'")]

from torch import nn  # noqa: E402

from deniable.learn.torch.gradients import layers  # noqa: E402
from deniable.learn.torch.gradients.batch_layout import Layout  # noqa: E402
from deniable.learn.torch.gradients.gradient_captures import MARGIN, Factors  # noqa: E402
from deniable.learn.torch.gradients.layers import Passed, closed_form  # noqa: E402
from deniable.learn.torch.kernels import half_products  # noqa: E402

torch.set_num_threads(1)

HAS_KERNELS = torch.cuda.is_available() and importlib.util.find_spec("triton") is not None
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not HAS_KERNELS, reason="no GPU, or no Triton"))]
LAYERS = {
    "3 x 3": (lambda: nn.Conv2d(3, 5, 3, padding=1), (7, 6)),
    "stride, dilation, uneven": (lambda: nn.Conv2d(16, 8, (3, 2), (2, 1), (1, 0), (1, 2)), (9, 8)),
    "1 x 1 with stride": (lambda: nn.Conv2d(8, 16, 1, 2), (5, 5)),
    "same, even kernel": (lambda: nn.Conv2d(6, 7, 2, padding="same"), (6, 5)),
    "reflected": (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), (5, 4)),
    "1-D": (lambda: nn.Conv1d(6, 7, 4, 2, padding=3), (11,)),
    "several tiles": (lambda: nn.Conv2d(40, 150, 3, padding=1), (9, 9)),
    "few places": (lambda: nn.Conv2d(24, 70, 3, padding=1), (4, 4)),
}


def each_gradient(windows):
    """G_b of each example by loops over the places of windows."""
    x, g = windows.x.double(), windows.g.double()
    (high, wide), (down, right) = windows.kernel, windows.dilation
    found = x.new_zeros(len(x), high, wide, x.shape[-1], g.shape[-1])
    for y in range(g.shape[1]):
        for z in range(g.shape[2]):
            for i in range(high):
                for j in range(wide):
                    row = y * windows.stride[0] - windows.before[0] + i * down
                    column = z * windows.stride[1] - windows.before[1] + j * right
                    if 0 <= row < x.shape[1] and 0 <= column < x.shape[2]:
                        found[:, i, j] += x[:, row, column, :, None] * g[:, y, z, None, :]
    return found.flatten(1, 3)


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    if request.param == "cpu":
        for module in (half_products, layers):
            monkeypatch.setattr(module, "reads_windows", lambda g, groups: groups == 1)
        monkeypatch.setattr(
            half_products, "window_norms", lambda windows: each_gradient(windows).flatten(1).square().sum(1).float()
        )
        monkeypatch.setattr(
            half_products,
            "window_sums",
            lambda windows, factors: torch.tensordot(factors.double(), each_gradient(windows), 1).float(),
        )
    return request.param


def convolution(make, size, device, count=5, half=torch.float16):
    """The captures of a layer, and the gradients of its weight in double precision, one example at a time."""
    torch.manual_seed(0)
    layer = make().to(device)
    x = torch.randn(count, layer.in_channels, *size, device=device).to(half)
    exact = make().to(device).double()
    g = torch.randn_like(exact(x.double())).to(half)
    truth = [
        torch.autograd.grad(exact(a[None].double()), exact.weight, b[None].double())[0]
        for a, b in zip(x, g, strict=True)
    ]
    return closed_form(layer)(Passed(layer, x, g, Layout(0), count)), torch.stack(truth), g


def close(mine, truth, within=1e-6):
    return float((mine.double() - truth).norm()) <= within * float(truth.norm())


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_captures_agree_with_single_examples(name, half, device):
    found, truth, g = convolution(*LAYERS[name], device, half=half)
    capture, factors = found["weight"], torch.rand(5, device=device)
    squares = truth.flatten(1).square().sum(1)
    assert close(capture.squared(), squares * (1 + MARGIN * torch.finfo(torch.float32).eps))
    assert torch.all(capture.squared().double() >= squares)
    assert capture._kept is None
    assert close(capture.summed(Factors(factors)), torch.tensordot(factors.double(), truth, 1))
    assert close(found["bias"].values, g.double().flatten(2).sum(2))
    assert close(capture.each(1, 4), truth[1:4])  # by unfolded windows, which are padded now
    assert close(capture.squared(), squares, within=1e-5)  # with the margin where windows are still read in place


def test_groups_and_three_axes_are_left_to_other_ways(device):
    for make, size in (
        (lambda: nn.Conv2d(4, 6, 3, groups=2), (5, 5)),
        (lambda: nn.Conv3d(2, 3, 2, padding=1), (3, 4, 3)),
    ):
        found, truth, _ = convolution(make, size, device)
        assert found["weight"]._in_place() is None
        assert close(found["weight"].squared(), truth.flatten(1).square().sum(1))
        assert close(found["weight"].summed(Factors(torch.ones(5, device=device))), truth.sum(0))


@pytest.mark.skipif(not HAS_KERNELS, reason="no GPU, or no Triton")
@pytest.mark.parametrize("name", ["several tiles", "few places"])
def test_norms_are_those_of_the_gradients_that_are_added(name):
    """Even where the places of an example cancel, and rounding is all that is left of its gradient."""
    found, *_ = convolution(*LAYERS[name], "cuda", half=torch.bfloat16)
    capture = found["weight"]
    capture.g[..., 2:, :] = -capture.g[..., :2, :].repeat(1, 1, capture.g.shape[2] // 2, 1)[
        ..., : capture.g.shape[2] - 2, :
    ]
    norms = capture.squared()
    for example in range(5):
        only = torch.zeros(5, device="cuda")
        only[example] = 1
        added = capture.summed(Factors(only)).double().square().sum()
        assert float(abs(added - norms[example])) <= 1e-5 * float(added)
