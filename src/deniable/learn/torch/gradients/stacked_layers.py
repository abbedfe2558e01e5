"""Equal layers computed together, because on an accelerator the launch of a small kernel costs more than its work.

The blocks of a transformer have linear maps and normalisations of equal shapes. The inputs and output gradients of
equal layers are concatenated along the batch, as if one layer had seen all examples: a few operations replace hundreds.
Linear maps in half precision are computed together too, but not concatenated (`half_products`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import final

import torch
from torch import Tensor, nn

from deniable.learn.torch.gradients.batch_layout import Layout
from deniable.learn.torch.gradients.forward_calls import ModuleCall
from deniable.learn.torch.gradients.gradient_captures import BiasSums, Capture, Factors, Outer, Vectors
from deniable.learn.torch.gradients.layers import Found, closed_form, outer_product, passed
from deniable.learn.torch.kernels.half_products import HALF, place_sums

ROOM = 2**27
"""The most numbers that are copied for a group. Larger groups have operations that are large enough already."""

IN_ORDER = Layout(0), Layout(0, is_single=True)
"""Layouts with the examples in order along the first axis: concatenation keeps that order."""


@final
class Family:
    """The weights of equal linear maps. `whole` has the examples of the first map, then the examples of the second map,
    and so on.
    """

    __slots__ = ("_whole", "members")

    def __init__(self, whole: Outer, members: Mapping[str, Capture]) -> None:
        self._whole, self.members = whole, members

    @property
    def dtype(self) -> torch.dtype:
        return self._whole.g.dtype

    @property
    def places(self) -> int:
        return self._whole.places

    @property
    def maps(self) -> int:
        return len(self.members)

    def inner(self, low: int, high: int, onto: Tensor | None) -> Tensor:
        """See `Ghost`; summed over all weights of the family."""
        whole, count = self._whole, self._whole.count // self.maps
        if high - low < count:
            sides = (each.view(self.maps, count, *each.shape[1:])[:, low:high] for each in (whole.g, whole.a))
            g, a = (each.flatten(0, 1) for each in sides)
            whole = Outer(g, a, whole.shape)
        product = whole.inner(0, whole.count, None)
        added = product.view(self.maps, high - low, *product.shape[1:]).sum(0)
        return added if onto is None else onto.add_(added)

    def summed(self, factors: Factors) -> tuple[Tensor, ...]:
        """Σ_i factors_i G_i of each weight."""
        g, a = (each.reshape(len(self.members), -1, each.shape[-1]) for each in (self._whole.g, self._whole.a))
        places = self.places
        if g.shape[2] <= a.shape[2]:
            return tuple(torch.bmm(factors.scaled(g, places).transpose(1, 2), a))
        return tuple(torch.bmm(g.transpose(1, 2), factors.scaled(a, places)))


def alike(calls: Iterable[ModuleCall]) -> list[list[ModuleCall]]:
    """Groups of at least two calls that can be computed together."""
    groups: dict[Hashable, list[ModuleCall]] = defaultdict(list)
    for call in calls:
        kind, x = _kind(call.module), call.x
        if kind is not None and x.dim() > 2:
            groups[kind, x.shape, x.dtype, x.device, call.dtypes[0]].append(call)
    several = [group for group in groups.values() if len(group) > 1]
    return [group for group in several if _is_half(group[0]) or sum(map(_held, group)) <= ROOM]


def _is_half(call: ModuleCall) -> bool:
    """Whether `half_products` computes calls like this one together, without copies."""
    return type(call.module) is nn.Linear and call.dtypes[0] in HALF


def _kind(module: nn.Module) -> Hashable:
    """A key that is equal for layers that can be computed together; None for other types of layers."""
    if type(module) is nn.Linear:
        return nn.Linear, module.weight.shape, module.bias is None
    if type(module) is nn.LayerNorm:
        return nn.LayerNorm, module.normalized_shape, module.eps
    return None


def _held(call: ModuleCall) -> int:
    """How many numbers the input and the output of a call have."""
    return int(math.prod(call.x.shape) + math.prod(call.shapes[0]))


def too_large(calls: Iterable[ModuleCall]) -> list[ModuleCall]:
    """The layer normalisations that have too many numbers to be concatenated."""
    norms = [call for call in calls if type(call.module) is nn.LayerNorm]
    together = {call.key for group in alike(norms) for call in group}
    alone = [call for call in norms if call.key not in together]
    return alone if sum(map(_held, alone)) > ROOM else []


def put_together(group: Sequence[ModuleCall], grads: list[Tensor], count: int) -> tuple[list[Found], Outer | None]:
    """The captures of each call of a group, and one capture of all their weights if ghost norms are used (else None).

    Frees the inputs of the calls and empties `grads` after copying, so that at most one group is in memory twice.
    """
    module = group[0].module
    if _is_half(group[0]):
        return _side_by_side(group, grads, count), None
    x = torch.cat([call.x for call in group])
    for call in group:
        call.let_go()
    g = torch.cat(grads)
    grads.clear()
    form = closed_form(module)
    assert form is not None
    found = form(passed(module, x, g, IN_ORDER[0], len(group) * count))
    apart = {local: _apart(capture, len(group)) for local, capture in found.items()}
    weight = found["weight"]
    whole = weight if isinstance(weight, Outer) and weight.is_ghost else None
    return [{local: parts[each] for local, parts in apart.items()} for each in range(len(group))], whole


def _side_by_side(group: Sequence[ModuleCall], grads: list[Tensor], count: int) -> list[Found]:
    """The captures of linear maps in half precision. Their factors stay where they are."""
    calls = [passed(call.module, call.x, g, IN_ORDER[0], count) for call, g in zip(group, grads, strict=True)]
    weights = [outer_product(call, call.module.weight.shape) for call in calls]
    found: list[Found] = [{"weight": weight} for weight in weights]
    if group[0].module.bias is not None:
        for each, sums in zip(found, place_sums([weight.g for weight in weights]), strict=True):
            each["bias"] = Vectors(sums)
    return found


def _apart(capture: Capture, layers: int) -> list[Capture]:
    """The captures of the single layers, as views of the capture of all."""
    if isinstance(capture, Outer):
        return [
            Outer(g, a, capture.shape) for g, a in zip(capture.g.chunk(layers), capture.a.chunk(layers), strict=True)
        ]
    assert isinstance(capture, Vectors | BiasSums)
    return [Vectors(values) for values in capture.values.chunk(layers)]
