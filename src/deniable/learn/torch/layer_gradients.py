"""The gradients of a batch, layer by layer: squared norms and weighted sums of each layer of `PerLayer`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from deniable.errors import NOTHING, InvalidParameter

if TYPE_CHECKING:
    from deniable.learn.layer_clipping import PerLayer
    from deniable.learn.torch.gradients.per_example import Block, PerExample


@final
class LayerGradients:
    """Takes the place of `PerExample` where each layer has a norm: `squared` and `summed` have a column for each layer.

    An example that is not finite in one layer counts as 0 there; one whose loss is not finite counts as 0 everywhere.
    """

    __slots__ = ("_examples", "_layers", "loss")

    def __init__(self, examples: PerExample, rule: PerLayer) -> None:
        self._examples = examples
        names: list[list[str]] = [[] for _ in rule.layers]
        for name in examples.names:
            names[rule.layer_of(name)].append(name)
        self._layers: list[PerExample | None] = [examples.part(each) if each else None for each in names]

    @property
    def count(self) -> int:
        """The number of examples."""
        return self._examples.count

    @property
    def left_out(self) -> int:
        """How many examples are not finite in the layer that has most of them. Not private."""
        return max((each.left_out for each in self._layers if each is not None), default=0)

    @property
    def lost(self) -> float:
        """An upper bound on how much underflow shortened the norm of a layer."""
        return max((each.lost for each in self._layers if each is not None), default=0.0)

    def squared(self, losses: Tensor) -> Tensor:
        """‖gradient‖² of each example (a row) in each layer (a column)."""
        used = {number: each.squared(losses) for number, each in enumerate(self._layers) if each is not None}
        if not used:
            rule = "do not depend on any trained parameter in this batch's forward pass"
            raise InvalidParameter("losses", NOTHING, rule, "call the model in the loop, right before trainer.backward")
        some = next(iter(used.values()))
        kept = torch.where(torch.isfinite(losses.detach()), losses.detach(), 0.0)
        self.loss = kept.sum()
        return torch.stack([used.get(number, torch.zeros_like(some)) for number in range(len(self._layers))], 1)

    def summed(self, factors: Tensor) -> Iterator[tuple[str, Tensor, Block]]:
        """(parameter, Σ_i factor of example i in its layer · gradient_i, rows) for each block of rows."""
        for number, each in enumerate(self._layers):
            if each is not None:
                yield from each.summed(factors[:, number].contiguous())

    def is_sound(self) -> bool:
        """Whether the sums may be used: see `PerExample.is_sound`."""
        return all(each.is_sound() for each in self._layers if each is not None)
