"""Graphs that are changed for accelerators: the same numbers, in another order in memory and from fewer operations."""

from __future__ import annotations

import functools

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

from torch import nn  # noqa: E402
from torch._decomp import get_decompositions  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from deniable.learn.torch.gradients.bookkeeping import Bookkeeping  # noqa: E402
from deniable.learn.torch.gradients.device_graphs import for_devices  # noqa: E402
from deniable.learn.torch.gradients.step_graphs import step_graph  # noqa: E402

torch.set_num_threads(1)
aten = torch.ops.aten


class Residual(nn.Module):
    """Two convolutions with group normalisation, whose input is added again. With `half`, as autocast on a device:
    convolutions in half precision, and normalisations of their outputs in single precision."""

    def __init__(self, *, in_place=False, half=False):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.GroupNorm(2, 8), nn.GroupNorm(4, 8)])
        self.head, self.half, self.act = nn.Linear(8, 3), half, nn.ReLU(inplace=in_place)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            x = self.act(self.norms[0](self.first(x).float()))
            return self.head((self.norms[1](self.second(x).float()) + x).mean((2, 3))).float()


@functools.cache
def captured(**kind):
    """The graph of a step, a changed copy, the same in operations that take any order in memory, and its inputs."""
    torch.manual_seed(0)
    model = Residual(**kind)
    batch = [torch.randn(5, 3, 6, 6), torch.arange(5) % 3]

    def losses_of(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1], reduction="none")

    book = Bookkeeping(model)
    book.listen()
    book.gradients(losses_of(model, batch))
    book.rest()
    graph = step_graph(model, book, losses_of, batch, 5)
    given = [*(each.detach() for each in model.parameters()), *batch]
    changed = for_devices(graph.part(is_forward=False))
    # As the compiler does: torch's own kernels of group normalisation expect the order in memory of the capture.
    table = get_decompositions([aten.native_group_norm, aten.native_group_norm_backward])
    return graph.part(is_forward=False), changed, make_fx(changed, table)(*given), given


def count(made, target):
    return len(made.graph.find_nodes(op="call_function", target=target))


@pytest.mark.parametrize("half", [False, True])
def test_the_numbers_are_the_same(half):
    plain, _, changed, given = captured(half=half)
    for one, other in zip(plain(*given), changed(*given), strict=True):
        far = float((one.float() - other.float()).norm())
        assert far <= (2e-2 if half else 1e-5) * float(one.float().norm())


@pytest.mark.parametrize("half", [False, True])
def test_convolutions_read_channels_last_and_statistics_are_computed_once(half):
    plain, changed, decomposed, given = captured(half=half)
    read = []

    class Reading(torch.fx.Interpreter):
        def call_function(self, target, args, kwargs):
            if target in (aten.convolution.default, aten.convolution_backward.default):
                read.extend(each for each in args[:3] if isinstance(each, torch.Tensor) and each.dim() == 4)
            return super().call_function(target, args, kwargs)

    Reading(decomposed).run(*given)
    assert len(read) == 4 + 3  # the first convolution has no gradient of its input
    assert all(each.is_contiguous(memory_format=torch.channels_last) for each in read)
    assert (count(plain, aten.native_group_norm.default), count(changed, aten.native_group_norm.default)) == (4, 2)
    assert count(changed, aten._to_copy.default) <= count(plain, aten._to_copy.default)


def test_a_graph_that_writes_into_tensors_stays_as_it_is():
    plain, changed, *_ = captured(in_place=True)
    assert count(plain, aten.relu_.default) == 1
    assert [node.target for node in plain.graph.nodes] == [node.target for node in changed.graph.nodes]
