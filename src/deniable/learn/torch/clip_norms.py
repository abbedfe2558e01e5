"""The clipping factors of a batch, and the norm of adaptive clipping, which changes from step to step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from deniable import noise as chance
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.learn.adaptive_clipping import AdaptiveNorm
from deniable.learn.layer_clipping import PerLayer
from deniable.learn.plans import Automatic, Plan
from deniable.learn.torch.layer_gradients import LayerGradients
from deniable.learn.torch.optimizers import AdamBC

if TYPE_CHECKING:
    from deniable.learn.torch.gradients.per_example import PerExample
    from deniable.learn.torch.run_processes import Processes


@final
class ClipNorms:
    """Clips by the plan's rule. With `AdaptiveNorm`, gradients are multiplied by first norm/current norm before they
    are summed, so that the noise stays the same; `end_step` returns the factor that undoes this, and updates the norm.
    """

    def __init__(
        self,
        plan: Plan,
        optimizer: torch.optim.Optimizer,
        entropy: chance.Entropy | None,
        parameters: Iterable[str] = (),
    ) -> None:
        self._rule, self._entropy = plan.clip, entropy
        if isinstance(self._rule, AdaptiveNorm) and isinstance(optimizer, AdamBC):
            rule = "subtracts the variance of the noise, which changes with an adaptive norm"
            raise InvalidParameter("optimizer", "AdamBC", rule, "use Adam, or clip=Flat(...)")
        if isinstance(self._rule, PerLayer):
            for name in parameters:  # raises for a parameter without a norm, before anything is charged
                self._rule.layer_of(name)
        self.norm = plan.clip.norm
        """The current clipping norm. With `AdaptiveNorm`, it is computed from noisy counts and is private."""
        self._balance: Tensor | None = None
        self._pending: Tensor | None = None

    def by_layer(self, found: PerExample) -> PerExample | LayerGradients:
        """The gradients as the rule clips them: as a whole, or layer by layer."""
        return LayerGradients(found, self._rule) if isinstance(self._rule, PerLayer) else found

    @property
    def is_fixed(self) -> bool:
        """Whether the norm is the same in all steps."""
        return not isinstance(self._rule, AdaptiveNorm)

    @property
    def is_whole(self) -> bool:
        """Whether the gradient of an example is clipped as a whole, not layer by layer."""
        return not isinstance(self._rule, PerLayer)

    def factors(self, squared: Tensor, lost: float) -> Tensor:
        """The clipping factor of each example. After scaling, no gradient exceeds the first clipping norm.

        With `PerLayer`, `squared` and the factors have a column for each layer.
        """
        rule = self._rule
        if (squared.dim() == 2) != isinstance(rule, PerLayer):
            raise InvalidOperation(
                "gradients must be divided into layers for clip=PerLayer(...), and for no other rule"
            )
        # Slightly more than the norm, to cover the rounding of single precision and underflow.
        lengths = squared.clamp_(min=0).sqrt_().mul_(1 + 2**-16).add_(lost)
        if isinstance(rule, Automatic):
            return rule.norm / (lengths + rule.stability)
        if isinstance(rule, AdaptiveNorm):
            self._pending = torch.where(lengths <= self.norm, 1, -1).sum()
            # Divided by the length itself: a product with a rounded ratio of norms could exceed the first norm.
            return rule.norm / lengths.clamp_(min=self.norm)
        if isinstance(rule, PerLayer):
            norms = lengths.new_tensor(rule.norms)
            return (norms / torch.maximum(lengths, norms)).clamp_(max=1.0)
        return (rule.norm / lengths.clamp_(min=rule.norm)).clamp_(max=1.0)

    def added(self) -> None:
        """The sums of the last factors were added to the step."""
        if self._pending is not None:
            self._balance = self._pending if self._balance is None else self._balance + self._pending
            self._pending = None

    def end_step(self, processes: Processes, expected_batch: float, device: torch.device) -> float:
        """Release the noisy balance and update the norm. Returns current/first norm for the sums of this step."""
        rule = self._rule
        if not isinstance(rule, AdaptiveNorm):
            return 1.0
        scale = self.norm / rule.norm
        balance = torch.zeros((), dtype=torch.int64, device=device) if self._balance is None else self._balance
        self._balance = self._pending = None
        total = processes.added_up({"balance": balance.reshape(1)})["balance"]
        if processes.is_first:
            total = total + int(chance.rounded_gaussian(sigma=rule.count_noise, entropy=self._entropy))
        self.norm = rule.after(self.norm, float(processes.broadcast(total)), expected_batch)
        return scale
