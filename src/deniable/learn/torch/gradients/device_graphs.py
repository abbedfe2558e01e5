"""A step's graph in a form that an accelerator computes faster, before it is compiled.

The compiler fuses operations, but keeps three things as they were captured, which cost a third of a step of a
convolutional network: the order of numbers in memory, a conversion that is made twice, and statistics of a
normalisation that are computed twice. The functions here change them. The graph computes the same numbers up to
rounding; `compiled_steps` compares both on the first batch.

The result is for a compiler. Torch's own kernels of group normalisation expect tensors in the order in memory in which
they were captured; a compiler replaces these operations by ones that take any order.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable

import torch
from torch import fx

from deniable.learn.torch.gradients.step_graphs import written_into

aten = torch.ops.aten

CONVOLUTIONS = {aten.convolution.default: 2, aten.convolution_backward.default: 3}
"""Operation -> how many of its first arguments are tensors that it reads."""


def for_devices(made: fx.GraphModule) -> fx.GraphModule:
    """Change this graph for a device, and return it. A graph that writes into tensors is returned unchanged: if one
    tensor replaces another, a later write to one of them would not reach the other.
    """
    graph = made.graph
    if any(written_into(node) is not None for node in graph.nodes if node.op == "call_function"):
        return made
    _share_conversions(graph)
    _share_statistics(graph)
    _put_channels_last(graph)
    graph.eliminate_dead_code()
    made.recompile()
    return made


def _share_conversions(graph: fx.Graph) -> None:
    """Convert a tensor to a precision once: autocast converts a layer's input, and so does its capture."""
    known: dict[Hashable, fx.Node] = {}
    for node in graph.find_nodes(op="call_function", target=aten._to_copy.default):
        earlier = known.setdefault((node.args, tuple(sorted(node.kwargs.items()))), node)
        if earlier is not node:
            node.replace_all_uses_with(earlier)


def _share_statistics(graph: fx.Graph) -> None:
    """Take mean and deviation of groups from the forward pass, where a capture normalises the same input again."""
    known: dict[Hashable, fx.Node] = {}
    for node in graph.find_nodes(op="call_function", target=aten.native_group_norm.default):
        given, weight, bias, *sizes = node.args
        earlier = known.setdefault((_source(given), *sizes), node)
        values = [use for use in node.users if use.args[1] == 0]
        is_capture = weight is None and bias is None and len(values) == len(node.users) > 0
        if earlier is node or not is_capture or earlier.args[0].meta["val"].dtype != torch.float32:
            continue
        with graph.inserting_before(node):
            apart = graph.call_function(aten.sub.Tensor, (earlier.args[0], _for_channels(graph, earlier, 1)))
            plain = graph.call_function(aten.mul.Tensor, (apart, _for_channels(graph, earlier, 2)))
        for use in values:
            use.replace_all_uses_with(plain)


def _for_channels(graph: fx.Graph, norm: fx.Node, at: int) -> fx.Node:
    """Output `at` of a group normalisation, (B, groups), for each channel: (B, channels, 1, ...)."""
    given, _, _, count, channels, _, groups, _ = norm.args
    found = graph.call_function(aten.unsqueeze.default, (graph.call_function(operator.getitem, (norm, at)), -1))
    wide = graph.call_function(aten.expand.default, (found, [count, groups, channels // groups]))
    ones = [1] * (given.meta["val"].dim() - 2)
    return graph.call_function(aten.reshape.default, (wide, [count, channels, *ones]))


def _source(node: fx.Node) -> fx.Node:
    """The node from which `node` was converted: it has the same numbers, before any conversion to another precision."""
    while node.op == "call_function" and node.target in (aten._to_copy.default, aten.detach.default):
        node = node.args[0]
    return node


def _put_channels_last(graph: fx.Graph) -> None:
    """Compute the tensors that convolutions over two axes read in the order "channels last" in memory, in which devices
    are fastest. The compiler does not choose this order for gradients."""
    nodes = list(graph.nodes)
    first = next(node for node in nodes if node.op != "placeholder")
    read = [each for node in nodes for each in node.args[: CONVOLUTIONS.get(node.target, 0)]]
    for each in dict.fromkeys(read):
        if each.meta["val"].dim() == 4:
            with graph.inserting_before(first if each.op == "placeholder" else each.next):
                turned = graph.call_function(aten.clone.default, (each,), {"memory_format": torch.channels_last})
            each.replace_all_uses_with(turned, delete_user_cb=lambda user, turned=turned: user is not turned)
