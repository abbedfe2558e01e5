"""Layer normalisations of large models, whose gradients are summed over places while the backward pass runs.

The gradient at the output of a normalisation has B·T·w numbers, but the per-example gradients of its weight and bias
have only B·w each. If all output gradients and inputs were kept until the end of the backward pass, they would be a
third of its memory. So a hook on the node of autograd's graph computes the sums, and keeps neither.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, final

from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from deniable.learn.torch.gradients.batch_layout import Layout
from deniable.learn.torch.gradients.forward_calls import Key, ModuleCall
from deniable.learn.torch.gradients.gradient_captures import Capture
from deniable.learn.torch.gradients.layers import RULES, Found, Passed, layer_norms, passed

Node = Any
"""A node of autograd's graph."""


PENDING = 2**26
"""The most numbers of inputs and output gradients that may wait, so that one kernel computes the sums of several
layers.
"""


@final
class ReducedNorms:
    """Calls of normalisations, and the captures that their hooks made during one backward pass."""

    def __init__(
        self,
        calls: Sequence[ModuleCall],
        asked: dict[Any, list[GradientEdge]],
        layouts: Mapping[Key, Sequence[Layout | None]],
        count: int,
    ) -> None:
        """Takes calls out of `asked`, the gradients that the backward pass is to return, if their nodes run in any
        case: autograd runs a node only for the gradients behind it."""
        self._layouts, self._count = layouts, count
        norms = {call.key for call in calls}
        others = {edge.node for key, listed in asked.items() if key not in norms for edge in listed}
        self._calls = [call for call in calls if layouts[call.key][0] and _reaches(call.edges[0].node, others)]
        self.keys: set[Key] = {call.key for call in self._calls}
        for key in self.keys:
            del asked[key]
        self._waiting: list[tuple[ModuleCall, Passed]] = []
        self._found: dict[Key, Found] = {}

    @contextmanager
    def during(self) -> Iterator[None]:
        """Inside of the `with` block, a backward pass makes captures of the calls from their output gradients."""
        handles = [call.edges[0].node.register_prehook(partial(self._seen, call)) for call in self._calls]
        try:
            yield
            self._reduce()
        finally:
            for handle in handles:
                handle.remove()

    def _seen(self, call: ModuleCall, grads: tuple[Tensor | None, ...]) -> None:
        grad, layout = grads[call.edges[0].output_nr], self._layouts[call.key][0]
        if grad is not None and layout is not None:
            self._waiting.append((call, passed(call.module, call.x, grad, layout, self._count)))
            if sum(2 * each.g.numel() for _, each in self._waiting) > PENDING:
                self._reduce()

    def _reduce(self) -> None:
        """Sum the stored gradients over places, in one kernel for layers that are alike, and free them."""
        groups: dict[Hashable, list[tuple[ModuleCall, Passed]]] = defaultdict(list)
        for call, each in self._waiting:
            groups[each.x.shape, each.x.dtype, each.g.dtype, call.module.eps].append((call, each))
        self._waiting = []
        for group in groups.values():
            found = layer_norms([each for _, each in group]) or [RULES[nn.LayerNorm](each) for _, each in group]
            for (call, _), each_found in zip(group, found, strict=True):
                self._found[call.key] = each_found
                call.let_go()

    @property
    def captures(self) -> Iterator[tuple[str, str, Capture]]:
        """(path of the module, name of the parameter in it, capture)."""
        for (path, *_), found in self._found.items():
            for local, capture in found.items():
                yield path, local, capture


def _reaches(start: Node, wanted: set[Node]) -> bool:
    """Whether a path of autograd's graph leads from this node to another one that is wanted, or the node is wanted."""
    todo, seen = [start], {start}
    while todo:
        node = todo.pop()
        if node in wanted:
            return True
        for below, _ in node.next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                todo.append(below)
    return False
