"""Closed forms: from what went through a layer, forward and backward, to captures of its parameters' gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deniable.learn.torch.captures import HALF, Capture, Convolution, Outer, Rows, Sums, Vectors, padded
from deniable.learn.torch.layouts import Layout
from deniable.learn.torch.spread import narrowed

Found = dict[str, Capture]
"""Captures by the name of the parameter inside its module."""


@final
@dataclass(slots=True)
class Passed:
    """One call of a layer: its input, and the gradient at its output, both with the examples in front."""

    module: nn.Module
    x: Tensor
    g: Tensor


def passed(module: nn.Module, x: Tensor, g: Tensor, layout: Layout, count: int) -> Passed:
    """The call in one precision: what autocast made half is counted in single, from the halves that were used."""
    if x.is_floating_point() and x.dtype != g.dtype and g.dtype in HALF:
        x = x.to(g.dtype)
    if g.dtype in HALF:
        x, g = (x.float() if x.is_floating_point() else x), g.float()
    return Passed(module, layout.split(x, count), layout.split(g, count))


def spread_over(
    module: nn.Module,
    x: Tensor,
    grads: list[Tensor | None],
    layouts: list[Layout | None],
    shape: tuple[int, ...],
    count: int,
) -> Passed:
    """The call of a layer that saw no examples, and whose output was added to every one of them."""
    split = [
        narrowed(layout.split(grad, count), shape)
        for grad, layout in zip(grads, layouts, strict=True)
        if grad is not None and layout is not None
    ]
    g = sum(split[1:], start=split[0])
    return Passed(module, x.unsqueeze(0).expand(count, *x.shape), g.float() if g.dtype in HALF else g)


def outer_product(g: Tensor, x: Tensor, shape: torch.Size) -> Outer:
    """g of shape (B, ..., o), x of shape (B, ..., i)."""
    return Outer(_places(g), _places(x), shape)


def _places(values: Tensor) -> Tensor:
    """(B, ..., o) as (B, T, o)."""
    return values if values.dim() == 3 else values.reshape(values.shape[0], -1, values.shape[-1])


def summed_to_last(g: Tensor) -> Vectors:
    """A bias on the last axis: (B, ..., o) becomes (B, o)."""
    return Vectors(g.flatten(1, -2).sum(1) if g.dim() > 2 else g)


def _linear(call: Passed) -> Found:
    weight = outer_product(call.g, call.x, call.module.weight.shape)
    return {"weight": weight, "bias": Sums(weight)}


def _convolution(call: Passed) -> Found:
    layer, spatial = call.module, len(call.module.kernel_size)
    many = call.x.shape[1]
    x = padded(call.x.flatten(0, 1), layer).unflatten(0, (-1, many))
    weight = Convolution(
        call.g, x, layer.weight.shape, stride=layer.stride, dilation=layer.dilation, groups=layer.groups
    )
    return {"weight": weight, "bias": Vectors(call.g.sum((1, *range(3, 3 + spatial))))}


def _embedding(call: Passed) -> Found:
    layer, ids = call.module, call.x.flatten(1)
    g = call.g.reshape(*ids.shape, -1)
    if layer.padding_idx is not None:
        g = g.masked_fill((ids == layer.padding_idx).unsqueeze(2), 0)
    return {"weight": Rows(g, ids, layer.weight.shape)}


def _normalised(call: Passed, plain: Tensor, axes: int) -> Found:
    """Weight and bias on the last `axes` axes of the input, after it was normalised."""
    before = tuple(range(1, call.g.dim() - axes))
    scaled = call.g * plain
    sums = (scaled.sum(before), call.g.sum(before)) if before else (scaled, call.g)
    return {"weight": Vectors(sums[0]), "bias": Vectors(sums[1])}


def _layer_norm(call: Passed) -> Found:
    shape = call.module.normalized_shape
    return _normalised(call, F.layer_norm(call.x, shape, None, None, call.module.eps), len(shape))


def _rms_norm(call: Passed) -> Found:
    shape = call.module.normalized_shape
    found = _normalised(call, F.rms_norm(call.x, shape, None, call.module.eps), len(shape))
    return {"weight": found["weight"]}


def _group_norm(call: Passed) -> Found:
    layer, x = call.module, call.x.flatten(0, 1)
    plain = F.group_norm(x, layer.num_groups, None, None, layer.eps).reshape(call.x.shape)
    after = (1, *range(3, call.g.dim()))
    return {"weight": Vectors((call.g * plain).sum(after)), "bias": Vectors(call.g.sum(after))}


RULES: dict[type[Any], Callable[[Passed], Found]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.Embedding: _embedding,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.GroupNorm: _group_norm,
}
"""Exactly these types: a subclass may do something else in its forward pass, and is handled like any other module."""


def closed_form(module: nn.Module) -> Callable[[Passed], Found] | None:
    """The closed form of a layer; None if it has none, or is not used as its type would have it."""
    return RULES.get(type(module))
