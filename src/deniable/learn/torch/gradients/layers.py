"""Closed forms: from a layer's input and its output gradient to captures of its parameters' gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deniable.learn.torch.gradients.batch_layout import Layout
from deniable.learn.torch.gradients.broadcast_additions import narrowed
from deniable.learn.torch.gradients.convolutions import Convolution
from deniable.learn.torch.gradients.gradient_captures import (
    BiasSums,
    Capture,
    EmbeddingRows,
    Outer,
    Vectors,
    counted,
    is_quick,
)
from deniable.learn.torch.kernels.half_products import HALF, normalised, place_sums, reads_windows

Found = dict[str, Capture]
"""Name of the parameter inside its module -> capture."""


@final
@dataclass(slots=True)
class Passed:
    """One call of a layer: its input x and the gradient g at its output. `layout` is None if the first axis has the
    examples already."""

    module: nn.Module
    x: Tensor
    g: Tensor
    layout: Layout | None
    count: int

    def split(self, values: Tensor) -> Tensor:
        """The values with the examples on the first axis."""
        return values if self.layout is None else self.layout.split(values, self.count)

    def images(self, values: Tensor) -> Tensor:
        """The values with one axis for all images of all examples. The images of one example are next to each other."""
        layout = self.layout
        is_there = layout is not None and layout.axis == 0 and layout.blocks
        return values if is_there else self.split(values).flatten(0, 1)

    def channel_sums(self, images: Tensor) -> Tensor:
        """Σ over all places of all images of an example, (B, channels), from values as `images` returns them."""
        spatial = tuple(range(2, images.dim()))
        sums = images.sum(spatial, dtype=counted(images.dtype)) if spatial else images.to(counted(images.dtype))
        return sums if len(sums) == self.count else sums.view(self.count, -1, sums.shape[-1]).sum(1)

    def rows(self, values: Tensor) -> Tensor:
        """The values as (B, T, width), where T counts all places of an example."""
        layout = self.layout
        in_order = layout is not None and layout.axis == 0 and layout.blocks and values.dim() > 1
        whole = values if in_order else self.split(values)
        if whole.dim() == 3 and whole.shape[0] == self.count:
            return whole
        return whole.reshape(self.count, -1, whole.shape[-1])


def passed(module: nn.Module, x: Tensor, g: Tensor, layout: Layout, count: int) -> Passed:
    """The call in one precision. Values that autocast computed in half precision keep their rounding. They are then
    held in single precision, except for convolutions and linear maps with several places on an accelerator.
    """
    if g.dtype in HALF:
        x = x.to(g.dtype) if x.is_floating_point() else x
        if is_quick(g) or not is_held_in_half(module, g, count):
            x, g = (x.float() if x.is_floating_point() else x), g.float()
    return Passed(module, x, g, layout, count)


def is_held_in_half(module: nn.Module, g: Tensor, count: int) -> bool:
    """Whether the capture of this layer's weight holds its factors in half precision."""
    if type(module) in (nn.Linear, nn.MultiheadAttention):
        return bool(g.dtype in HALF and g.numel() > count * g.shape[-1])
    return isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d)


def spread_over(
    module: nn.Module,
    x: Tensor,
    grads: list[Tensor | None],
    layouts: list[Layout | None],
    shape: tuple[int, ...],
    count: int,
) -> Passed:
    """The call of a layer whose input has no examples and whose output was added to every example."""
    split = [
        narrowed(layout.split(grad, count), shape)
        for grad, layout in zip(grads, layouts, strict=True)
        if grad is not None and layout is not None
    ]
    g = sum(split[1:], start=split[0])
    return Passed(module, x.unsqueeze(0).expand(count, *x.shape), g.float() if g.dtype in HALF else g, None, count)


def outer_product(call: Passed, shape: torch.Size) -> Outer:
    """The capture of a linear map's weight, or of a block of its rows."""
    return Outer(call.rows(call.g), call.rows(call.x), shape)


def summed_to_last(call: Passed) -> Vectors:
    """The capture of a bias on the last axis."""
    return Vectors(place_sums([call.rows(call.g)])[0])


def _linear(call: Passed) -> Found:
    weight = outer_product(call, call.module.weight.shape)
    if weight.g.shape[1] == 1:
        return {"weight": weight, "bias": BiasSums(weight)}
    bias = call.module.bias
    return {"weight": weight} if bias is None else {"weight": weight, "bias": Vectors(place_sums([weight.g])[0])}


def _padded(x: Tensor, module: nn.Module) -> Tensor:
    """The input of a convolution with explicit padding."""
    padding = module._reversed_padding_repeated_twice
    if module.padding_mode != "zeros":
        return F.pad(x, padding, mode=module.padding_mode)
    return F.pad(x, padding) if any(padding) else x


def _convolution(call: Passed) -> Found:
    layer, x, g = call.module, call.images(call.x), call.images(call.g)
    padding: Sequence[int] = ()
    if layer.padding_mode == "zeros" and reads_windows(g, layer.groups):
        padding = layer._reversed_padding_repeated_twice  # that kernel needs no padded copy
    else:
        x = _padded(x, layer)
    weight = Convolution(
        g,
        x,
        layer.weight.shape,
        stride=layer.stride,
        dilation=layer.dilation,
        groups=layer.groups,
        images=len(g) // call.count,
        padding=padding,
    )
    return {"weight": weight, "bias": Vectors(call.channel_sums(g))}


def _embedding(call: Passed) -> Found:
    layer, ids = call.module, call.split(call.x).flatten(1)
    g = call.rows(call.g)
    if layer.padding_idx is not None:
        g = g.masked_fill((ids == layer.padding_idx).unsqueeze(2), 0)
    return {"weight": EmbeddingRows(g, ids, layer.weight.shape)}


def _normalised(call: Passed, plain: Tensor, axes: int) -> Found:
    """Weight and bias on the last `axes` axes; `plain` is the normalised input before weight and bias."""
    scaled = call.g * plain
    if axes == 1:
        return {"weight": Vectors(call.rows(scaled).sum(1)), "bias": summed_to_last(call)}
    scaled, g = call.split(scaled), call.split(call.g)
    before = tuple(range(1, g.dim() - axes))
    sums = (scaled.sum(before), g.sum(before)) if before else (scaled, g)
    return {"weight": Vectors(sums[0]), "bias": Vectors(sums[1])}


def _layer_norm(call: Passed) -> Found:
    shape = call.module.normalized_shape
    found = layer_norms([call])
    if found is not None:
        return found[0]
    return _normalised(call, F.layer_norm(call.x, shape, None, None, call.module.eps), len(shape))


def layer_norms(calls: Sequence[Passed]) -> list[Found] | None:
    """The captures of equal layer normalisations by one kernel; None if it does not apply."""
    if len(calls[0].module.normalized_shape) > 1:
        return None
    xs, gs = [call.rows(call.x) for call in calls], [call.rows(call.g) for call in calls]
    found = normalised(xs, gs, calls[0].module.eps)
    if found is None:
        return None
    return [{"weight": Vectors(weight), "bias": Vectors(bias)} for weight, bias in zip(*found, strict=True)]


def _rms_norm(call: Passed) -> Found:
    shape = call.module.normalized_shape
    found = _normalised(call, F.rms_norm(call.x, shape, None, call.module.eps), len(shape))
    return {"weight": found["weight"]}


def _group_norm(call: Passed) -> Found:
    layer, x, g = call.module, call.images(call.x), call.images(call.g)
    plain = F.group_norm(x, layer.num_groups, None, None, layer.eps)
    return {"weight": Vectors(call.channel_sums(g * plain)), "bias": Vectors(call.channel_sums(g))}


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
"""Exactly these types: a subclass may have another forward pass, so it is run again like any other module."""


def closed_form(module: nn.Module) -> Callable[[Passed], Found] | None:
    """The closed form of a layer, or None."""
    return RULES.get(type(module))
