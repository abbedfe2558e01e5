"""A model's per-example gradients compared with vmap's, on a batch that the user chooses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils._pytree import tree_flatten, tree_map

from deniable.errors import InvalidOperation, InvalidParameter, PublicTuple
from deniable.learn.torch.gradients.autograd_comparison import TOLERANCE
from deniable.learn.torch.gradients.bookkeeping import Alone, Bookkeeping
from deniable.learn.torch.gradients.vmap_rerun import plain_kernels


@final
@dataclass(frozen=True, slots=True)
class Checked:
    """The distance of per-example gradients, their norms and their weighted sums from vmap's."""

    worst: float
    """The largest relative distance. For one example and one parameter, it is the distance of the two gradients divided
    by the norm of that example's whole gradient."""
    by_parameter: dict[str, float]
    """The largest relative distance for each parameter."""
    tolerance: float = 1e-4
    """The distance that rounding alone can explain, in the coarsest precision of the layers' outputs."""

    @property
    def agrees(self) -> bool:
        """Whether `worst` is within the tolerance."""
        return self.worst <= self.tolerance

    def __str__(self) -> str:
        name = max(self.by_parameter, key=self.by_parameter.__getitem__)
        return f"{'agrees' if self.agrees else 'DIFFERS'}: at most {self.worst:.2g} of a gradient's length, at {name}"


def some_losses(model: Callable[..., Any], batch: Any) -> Tensor:
    """A fixed linear combination of the outputs, as a loss for comparing gradients."""
    first = batch[0] if isinstance(batch, list | tuple) else batch
    out = model(**batch) if isinstance(batch, dict) else model(first)
    total: Any = 0.0
    for part in tree_flatten(out)[0]:
        if isinstance(part, Tensor) and part.is_floating_point():
            flat = part.reshape(part.shape[0], math.prod(part.shape[1:]))
            weights = torch.cos(torch.arange(flat.shape[1], device=flat.device, dtype=flat.dtype))
            total = total + (flat * weights).sum(1)
    return total


def checked(model: nn.Module, book: Bookkeeping, batch: Any, losses: Callable[[Any, Any], Tensor] | None) -> Checked:
    """Compare the per-example gradients of `book` on this batch with vmap's: gradients, norms and weighted sums.

    `losses(model, batch)` returns one loss for each example; `some_losses` if it is None. Raises `InvalidParameter` if
    it does not, and `InvalidOperation` if a gradient is not finite or if vmap cannot run the model. Not private.
    """
    of = losses or some_losses
    book.forget()
    made = of(model, batch)
    if made.dim() != 1 or not made.shape[0]:
        rule = "must have one axis, with the loss of each example, and at least one example"
        raise InvalidParameter("losses", PublicTuple(made.shape), rule, "write reduction='none'")
    count = int(made.shape[0])
    coarsest = {dtype for call in book.listener.calls for dtype in call.dtypes} & {torch.bfloat16, torch.float16}
    tolerance = max([1e-4, *(TOLERANCE[dtype] for dtype in coarsest)])
    try:
        # From the first batch, the bookkeeping learns the layout of each layer's tensors. The second pass is compared,
        # because training takes the path of batches whose layouts are known.
        book.gradients(made)
    except Alone:
        rule = "a loss or a gradient of this batch is not finite, so gradients cannot be compared"
        raise InvalidOperation(f"{rule}; leave such examples out here: training counts their gradient as 0") from None
    made = of(model, batch)
    found = book.gradients(made)
    parameters = {name: each.tensor.detach() for name, each in book.parameters.items()}

    def loss(given: dict[str, Tensor], one: Any) -> Tensor:
        alone = tree_map(lambda each: each.unsqueeze(0) if isinstance(each, Tensor) else each, one)
        return of(lambda *args, **kwargs: functional_call(model, given, args, kwargs), alone).sum()

    axes = tree_map(lambda each: 0 if isinstance(each, Tensor) else None, batch)
    try:
        with book.listener.quiet(), plain_kernels(model):
            truth = vmap(grad(loss), in_dims=(None, axes), randomness="error")(parameters, batch)
    except RuntimeError as error:
        rule = (
            "torch's vmap cannot run this model or loss, so gradients cannot be compared; training does not need vmap"
        )
        raise InvalidOperation(rule) from error
    lengths = sum(each.reshape(count, -1).square().sum(1) for each in truth.values()).sqrt().clamp(min=1e-30)
    apart = {}
    for name, expected in truth.items():
        mine = found.each(name, 0, count)
        difference = expected if mine is None else mine - expected
        apart[name] = float((difference.reshape(count, -1).square().sum(1).sqrt() / lengths).max())
    # A norm that is larger than vmap's is safe, because it only clips more; a smaller one counts as a distance.
    # A weighted sum is compared with the sum of vmap's gradients, with the same weights.
    shorter = float((1 - found.squared(made).sqrt() / lengths).max())
    factors = torch.linspace(0.5, 1.0, count, device=lengths.device, dtype=lengths.dtype)
    sums = {name: torch.zeros_like(expected[0]) for name, expected in truth.items()}
    for name, part, (start, stop) in found.summed(factors):
        (sums[name][start:stop] if sums[name].dim() else sums[name]).add_(part)
    for name, expected in truth.items():
        off = (sums[name] - torch.tensordot(factors.to(expected.dtype), expected, 1)).norm()
        apart[name] = max(apart[name], shorter, float(off / (factors * lengths).sum()))
    return Checked(max(apart.values(), default=math.nan), apart, tolerance)
