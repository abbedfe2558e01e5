"""The model's output for one example must not depend on the other examples of the batch.

Comparing gradients does not cover this: what a model computes from the data before its first layer has no gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from deniable.errors import InvalidParameter
from deniable.learn.torch.gradients.batch_layout import Layout
from deniable.learn.torch.gradients.forward_calls import ModuleCall, shown
from deniable.learn.torch.gradients.vmap_rerun import layout_of_input


def check_alone(
    model: nn.Module, call: ModuleCall, layouts: list[Layout | None], count: int, tolerance: Mapping[torch.dtype, float]
) -> None:
    """Raise if the output for the first example in a batch differs from the output for this example alone.

    Returns without a check if the model cannot process one example, or if its output is random.
    """
    known = [(i, layout) for i, layout in enumerate(layouts) if layout is not None]
    if not known:
        return
    at, layout = known[0]
    size = call.shapes[at][layout.axis]

    def first(value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        where = layout_of_input(value, count, layout, size)
        return value.detach() if where is None else where.split(value.detach(), count)[0]

    together = call.args, call.kwargs
    alone = tree_map(first, together)

    def asked(given: tuple[tuple[object, ...], dict[str, object]]) -> Tensor:
        return tree_flatten(model(*given[0], **given[1]))[0][call.places[at]]

    try:
        with torch.no_grad(), _without_dropout(model):
            once, again, among = asked(alone), asked(alone), layout.split(asked(together), count)[0]
    except (RuntimeError, ValueError, IndexError, TypeError):
        return  # the model cannot process one example; gradients are compared in any case
    if once.shape != among.shape or not torch.equal(once.nan_to_num(), again.nan_to_num()):
        return  # random: not comparable
    scale = float(among.abs().max()) + 1e-6
    if not float((once - among).abs().max()) <= tolerance[call.dtypes[at]] * scale:  # NaN counts as different
        rule = "its output for one example depends on the other examples of the batch"
        raise InvalidParameter(
            "model", shown(call.path), rule, "use GroupNorm or LayerNorm instead of batch statistics"
        )


@contextmanager
def _without_dropout(module: nn.Module) -> Iterator[None]:
    """Set the dropout of torch's own layers to 0, so that two outputs can be compared. Everything else runs as in
    training.
    """
    before: list[tuple[nn.Module, str, float]] = []
    for each in module.modules():
        if isinstance(each, nn.modules.dropout._DropoutNd):
            before.append((each, "p", each.p))
        elif isinstance(each, nn.RNNBase | nn.MultiheadAttention):
            before.append((each, "dropout", each.dropout))
    for each, name, _ in before:
        setattr(each, name, 0.0)
    try:
        yield
    finally:
        for each, name, value in before:
            setattr(each, name, value)
