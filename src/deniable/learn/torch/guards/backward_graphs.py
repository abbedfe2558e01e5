"""The autograd graph of losses: whether Python code is in it, and whether it equals another one."""

from __future__ import annotations

import torch
from torch import Tensor

from deniable.learn.torch.guards.tensor_domains import MixedExamples


def functions_of(losses: Tensor) -> MixedExamples | None:
    """The domain of losses if a node of their graph is written in Python; else None."""
    nodes = [losses.grad_fn]
    seen = set(nodes)
    for node in nodes:
        if isinstance(node, torch._C._FunctionBase):
            return MixedExamples(f"a backward pass that is written in Python ({node.name()})")
        more = {below for below, _ in node.next_functions if below is not None} - seen
        seen |= more
        nodes += more
    return None


def structure(losses: Tensor) -> int:
    """A hash of the autograd graph of these losses: its operations and how they are connected. 0 without a graph."""
    first = losses.grad_fn
    if first is None:
        return 0
    nodes, places = [first], {first: 0}
    rows: list[object] = []
    add, place_of, more = rows.append, places.get, nodes.append  # this runs in each step, over the whole graph
    for node in nodes:
        add(type(node))
        for below, _ in node.next_functions:
            place = place_of(below)
            if place is None and below is not None:
                place = places[below] = len(nodes)
                more(below)
            add(place)
    if any(kind.__name__ == "CppFunction" for kind in set(map(type, nodes))):  # a type that different nodes share
        rows += [node.name() for node in nodes]
    return hash(tuple(rows))
