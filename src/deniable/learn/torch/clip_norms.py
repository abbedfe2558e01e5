"""The clipping factors of a batch: a class for each rule of `clip=`, and `clip_norms`, which makes the one of a plan.

`FlatNorm` scales a gradient that is longer than the norm. `AutomaticNorm` scales every gradient, `LayerNorms` scales
each layer's part, and `ChangingNorm` has a norm that changes from step to step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Final, final

import torch
from torch import Tensor

from deniable import noise as chance
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.learn.adaptive_clipping import AdaptiveNorm
from deniable.learn.layer_clipping import PerLayer
from deniable.learn.plans import Automatic, Clipping, Flat, Plan
from deniable.learn.torch.layer_gradients import LayerGradients
from deniable.learn.torch.optimizers import AdamBC

if TYPE_CHECKING:
    from deniable.learn.torch.gradients.per_example import PerExample
    from deniable.learn.torch.run_processes import Processes


class FlatNorm:
    """Clips by `Flat`. Other rules inherit from this class.

    Promise: after scaling by its factor, no gradient is longer than the rule's norm.
    """

    is_fixed: ClassVar[bool] = True
    """Whether the norm is the same in all steps."""
    is_whole: ClassVar[bool] = True
    """Whether the gradient of an example is clipped as a whole, not layer by layer."""
    _rule: Clipping

    def __init__(self, rule: Clipping, entropy: chance.Entropy | None = None) -> None:
        self._rule, self._entropy = rule, entropy
        self.norm: float = rule.norm
        """The current clipping norm."""

    def check(self, optimizer: torch.optim.Optimizer, parameters: Iterable[str]) -> None:
        """Raises InvalidParameter if the rule does not fit optimizer or parameters. Called before any charge."""

    def by_layer(self, found: PerExample) -> PerExample | LayerGradients:
        """The gradients as the rule clips them: as a whole, or layer by layer."""
        return found

    def factors(self, squared: Tensor, lost: float) -> Tensor:
        """The clipping factor of each example, from the squared norms, which are overwritten, and the length `lost` to
        underflow. If the rule clips layer by layer, `squared` and the factors have a column for each layer.
        """
        if (squared.dim() == 2) == self.is_whole:
            raise InvalidOperation(
                "gradients must be divided into layers for clip=PerLayer(...), and for no other rule"
            )
        # Slightly more than the norm, to cover the rounding of single precision and underflow.
        return self._scales(squared.clamp_(min=0).sqrt_().mul_(1 + 2**-16).add_(lost))

    def _scales(self, lengths: Tensor) -> Tensor:
        """The factors, from upper bounds on the lengths."""
        return (self._rule.norm / lengths.clamp_(min=self._rule.norm)).clamp_(max=1.0)

    def added(self) -> None:
        """The sums of the last factors were added to the step."""

    def end_step(self, processes: Processes, expected_batch: float, device: torch.device) -> float:
        """Update the norm. Returns current/first norm for the sums of this step."""
        return 1.0


@final
class AutomaticNorm(FlatNorm):
    """Clips by `Automatic`: scales every gradient, also the short ones."""

    _rule: Automatic

    def _scales(self, lengths: Tensor) -> Tensor:
        scaled: Tensor = self._rule.norm / (lengths + self._rule.stability)
        return scaled


@final
class LayerNorms(FlatNorm):
    """Clips by `PerLayer`: the part of each layer has a norm of its own."""

    is_whole: ClassVar[bool] = False
    _rule: PerLayer

    def check(self, optimizer: torch.optim.Optimizer, parameters: Iterable[str]) -> None:
        for name in parameters:
            self._rule.layer_of(name)

    def by_layer(self, found: PerExample) -> PerExample | LayerGradients:
        return LayerGradients(found, self._rule)

    def _scales(self, lengths: Tensor) -> Tensor:
        norms = lengths.new_tensor(self._rule.norms)
        return (norms / torch.maximum(lengths, norms)).clamp_(max=1.0)


@final
class ChangingNorm(FlatNorm):
    """Clips by `AdaptiveNorm`. The current norm is computed from noisy counts and is private.

    Gradients are multiplied by first norm/current norm before they are summed, so that the noise stays the same;
    `end_step` returns the factor that undoes this.
    """

    is_fixed: ClassVar[bool] = False
    _rule: AdaptiveNorm

    def __init__(self, rule: Clipping, entropy: chance.Entropy | None = None) -> None:
        super().__init__(rule, entropy)
        self._balance: Tensor | None = None
        self._pending: Tensor | None = None

    def check(self, optimizer: torch.optim.Optimizer, parameters: Iterable[str]) -> None:
        if isinstance(optimizer, AdamBC):
            rule = "subtracts the variance of the noise, which changes with an adaptive norm"
            raise InvalidParameter("optimizer", "AdamBC", rule, "use Adam, or clip=Flat(...)")

    def _scales(self, lengths: Tensor) -> Tensor:
        self._pending = torch.where(lengths <= self.norm, 1, -1).sum()
        # Divided by the length itself: a product with a rounded ratio of norms could exceed the first norm.
        scaled: Tensor = self._rule.norm / lengths.clamp_(min=self.norm)
        return scaled

    def added(self) -> None:
        if self._pending is not None:
            self._balance = self._pending if self._balance is None else self._balance + self._pending
            self._pending = None

    def end_step(self, processes: Processes, expected_batch: float, device: torch.device) -> float:
        """Release the noisy balance and update the norm. Returns current/first norm for the sums of this step."""
        scale = self.norm / self._rule.norm
        balance = torch.zeros((), dtype=torch.int64, device=device) if self._balance is None else self._balance
        self._balance = self._pending = None
        total = processes.added_up({"balance": balance.reshape(1)})["balance"]
        if processes.is_first:
            total = total + int(chance.rounded_gaussian(sigma=self._rule.count_noise, entropy=self._entropy))
        self.norm = self._rule.after(self.norm, float(processes.broadcast(total)), expected_batch)
        return scale


_CLASSES: Final[dict[type[object], type[FlatNorm]]] = {
    Flat: FlatNorm,
    Automatic: AutomaticNorm,
    PerLayer: LayerNorms,
    AdaptiveNorm: ChangingNorm,
}


def clip_norms(
    plan: Plan, optimizer: torch.optim.Optimizer, entropy: chance.Entropy | None, parameters: Iterable[str] = ()
) -> FlatNorm:
    """The clipping of a run. Raises InvalidParameter if the rule does not fit the optimizer or the parameters."""
    found = _CLASSES[type(plan.clip)](plan.clip, entropy)
    found.check(optimizer, parameters)
    return found
