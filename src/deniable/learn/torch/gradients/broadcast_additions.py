"""What is made once and added to every example: positions, class tokens, a bare bias.

Autograd sums the gradient of such a tensor over the examples inside the node of the addition. One place before, where
the sum of both operands is, the examples are still apart, and there the gradient is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.autograd.graph import GradientEdge

Node = Any
"""A node of autograd's graph."""


def additions(losses: Tensor, wanted: Iterable[Node]) -> dict[Node, list[GradientEdge]]:
    """For each node the places where its output was added to something larger; none if it was used in other ways."""
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
    """Whether the gradient at a node's output is, summed over what was spread, that of its operands."""
    kind = node.name()
    return bool(kind == "ExpandBackward0" or (kind == "AddBackward0" and node._saved_alpha == 1))


def narrowed(split: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Gradients of single examples, (B, ...), summed to the shape that was spread: (B, *shape)."""
    extra = split.dim() - 1 - len(shape)
    summed = split.sum(tuple(range(1, 1 + extra))) if extra else split
    wide = tuple(i + 1 for i, size in enumerate(shape) if size == 1 and summed.shape[i + 1] > 1)
    return summed.sum(wide, keepdim=True) if wide else summed
