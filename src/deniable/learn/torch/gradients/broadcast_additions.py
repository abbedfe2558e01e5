"""Values that are broadcast: computed once and added to every example, such as position embeddings or a bare bias.

Autograd sums the gradient of such a value over the examples inside of the addition's node. The gradient at the output
of the addition is the same, but still has the examples apart. So it is taken there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.autograd.graph import GradientEdge

Node = Any
"""A node of autograd's graph."""


def additions(losses: Tensor, wanted: Iterable[Node]) -> dict[Node, list[GradientEdge]]:
    """Node -> the gradient edges of the additions that use its output, for the `wanted` nodes whose output is only used
    in additions.
    """
    targets = set(wanted)
    found: dict[Node, list[GradientEdge]] = {}
    other: set[Node] = set()
    todo, seen = [losses.grad_fn], {losses.grad_fn}
    while todo:
        node = todo.pop()
        for below, _ in node.next_functions:
            if below is None:
                continue
            if below in targets:
                if _spreads(node):
                    found.setdefault(below, []).append(GradientEdge(node, 0))
                else:
                    other.add(below)
            if below not in seen:
                seen.add(below)
                todo.append(below)
    return {node: edges for node, edges in found.items() if node not in other}


def _spreads(node: Node) -> bool:
    """Whether the operand's gradient is the output's gradient, summed over the broadcast axes."""
    kind = node.name()
    return bool(kind == "ExpandBackward0" or (kind == "AddBackward0" and node._saved_alpha == 1))


def narrowed(split: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Per-example gradients (B, ...) summed over the broadcast axes of one example: (B, *shape)."""
    extra = split.dim() - 1 - len(shape)
    summed = split.sum(tuple(range(1, 1 + extra))) if extra else split
    wide = tuple(i + 1 for i, size in enumerate(shape) if size == 1 and summed.shape[i + 1] > 1)
    return summed.sum(wide, keepdim=True) if wide else summed
