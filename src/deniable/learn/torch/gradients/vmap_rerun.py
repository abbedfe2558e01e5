"""Per-example gradients of any module: run it again for each example with vmap, and apply the vector-Jacobian product
to its output gradient."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.utils._pytree import tree_flatten, tree_unflatten

from deniable.learn.torch.gradients.batch_layout import Layout, candidates
from deniable.learn.torch.gradients.forward_calls import ModuleCall
from deniable.learn.torch.gradients.gradient_captures import Vectors
from deniable.learn.torch.guards.tensor_domains import Domain, ExampleRows
from deniable.learn.torch.kernels.half_products import HALF


def layout_of_input(value: Tensor, count: int, at_output: Layout, size: int) -> Layout | None:
    """The layout of an input, guessed from its shape. The resulting gradients are compared with autograd later."""
    axis = at_output.axis
    if value.dim() > axis and value.shape[axis] == size:
        return at_output
    exact = [layout for layout in candidates(tuple(value.shape), count) if value.shape[layout.axis] == count]
    return exact[0] if exact else None


def input_layouts(call: ModuleCall, layouts: list[Layout | None], count: int) -> list[Layout | None]:
    """The layout of each flattened input; None for one that all examples share or that is not a tensor."""
    first, size = next(
        (layout, shape[layout.axis]) for layout, shape in zip(layouts, call.shapes, strict=True) if layout is not None
    )
    flat = tree_flatten((call.args, call.kwargs))[0]
    known = call.given or [None] * len(flat)
    guessed = [
        (_followed(each, domain, count) or layout_of_input(each, count, first, size))
        if isinstance(each, Tensor)
        else None
        for each, domain in zip(flat, known, strict=True)
    ]
    states = len(tree_flatten(_started(call, count))[0]) - len(tree_flatten(call.args)[0])
    return [*guessed[:1], *[Layout(1)] * states, *guessed[1:]] if states else guessed


def _followed(value: Tensor, domain: Domain | None, count: int) -> Layout | None:
    """The layout that the trace proved. A guess fails if two axes have the length of the batch."""
    if not isinstance(domain, ExampleRows):
        return None
    shape = tuple(value.shape)
    return next((layout for layout in candidates(shape, count) if layout.is_of(domain, shape, count)), None)


def rerun(
    call: ModuleCall,
    wanted: dict[str, Tensor],
    grads: list[Tensor | None],
    layouts: list[Layout | None],
    inputs: list[Layout | None],
    count: int,
) -> dict[str, Vectors]:
    """The per-example gradients of the `wanted` parameters, by their names in the module, for this call."""
    used = [
        (place, grad, layout)
        for place, grad, layout in zip(call.places, grads, layouts, strict=True)
        if grad is not None and layout is not None
    ]
    if not used:
        return {}
    flat, tree = tree_flatten((_started(call, count), call.kwargs))
    split: list[Any] = []
    axes: list[int | None] = []
    for value, layout in zip(flat, inputs, strict=True):
        split.append(value.detach() if isinstance(value, Tensor) else value)
        axes.append(None)
        if layout is not None:
            split[-1], axes[-1] = layout.split(split[-1], count), 0
    moving = [i for i, axis in enumerate(axes) if axis == 0]
    pulled = [layout.split(grad, count) for _, grad, layout in used]
    parameters = {name: value.detach() for name, value in wanted.items()}

    def one(values: list[Tensor], cotangents: list[Tensor]) -> dict[str, Tensor]:
        whole = list(split)
        for i, value in zip(moving, values, strict=True):
            whole[i] = value
        args, kwargs = tree_unflatten(whole, tree)

        def forward(given: dict[str, Tensor]) -> list[Tensor]:
            outputs = tree_flatten(functional_call(call.module, given, args, kwargs))[0]
            return [outputs[place] for place, _, _ in used]

        outputs, pull = vjp(forward, parameters)
        fitting = [c.to(o.dtype).reshape(o.shape) for c, o in zip(cotangents, outputs, strict=True)]
        gradients: dict[str, Tensor] = pull(fitting)[0]
        return gradients

    with torch.no_grad(), plain_kernels(call.module):
        found = vmap(one, in_dims=([0] * len(moving), 0), randomness="error")([split[i] for i in moving], pulled)
    return {name: Vectors(value.float() if value.dtype in HALF else value) for name, value in found.items()}


def _started(call: ModuleCall, count: int) -> tuple[Any, ...]:
    """The arguments. A recurrent layer gets an explicit initial state, because vmap cannot write into a shared one."""
    layer = call.module
    if not isinstance(layer, nn.RNNBase) or len(call.args) + len(call.kwargs) != 1 or not call.args:
        return call.args
    directions = layer.num_layers * (2 if layer.bidirectional else 1)
    state = call.x.new_zeros((directions, count, getattr(layer, "proj_size", 0) or layer.hidden_size))
    if not isinstance(layer, nn.LSTM):
        return call.x, state
    return call.x, (state, call.x.new_zeros((directions, count, layer.hidden_size)))


@contextmanager
def plain_kernels(module: nn.Module) -> Iterator[None]:
    """Disable fused kernels of recurrent layers, which vmap does not support, and vmap's warning about speed."""
    recurrent = any(isinstance(each, nn.RNNBase) for each in module.modules())
    before = torch._C._get_mkldnn_enabled(), torch._C._get_cudnn_enabled()
    torch._C._set_mkldnn_enabled(before[0] and not recurrent)
    torch._C._set_cudnn_enabled(before[1] and not recurrent)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There is a performance drop")
            yield
    finally:
        torch._C._set_mkldnn_enabled(before[0])
        torch._C._set_cudnn_enabled(before[1])
