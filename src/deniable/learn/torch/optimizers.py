"""Adam for noisy gradients: subtracts the known variance of the noise from the second moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, final

import torch

from deniable.curves import curve_arguments


def copies_gradients(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the optimizer is known to hold no gradient after its step: torch's own and ours copy what they need."""
    kind = type(optimizer)
    return kind in (AdamBC, getattr(torch.optim, kind.__name__, None))


def forget_gradients(optimizer: torch.optim.Optimizer) -> None:
    """The same as `optimizer.zero_grad()`, ten times faster. It includes frozen parameters, which may have gradients
    from an earlier backward()."""
    for group in optimizer.param_groups:
        for each in group["params"]:
            each.grad = None


@final
class AdamBC(torch.optim.Optimizer):  # type: ignore[misc]  # torch is not installed where types are checked
    """DP-AdamBC: Adam whose second moment is corrected for the variance of the noise.

    Noise of variance Φ in every gradient increases v by Φ in expectation. If that dominates, Adam moves all coordinates
    alike. Here the step is m̂/√max(v̂ - Φ, floor²) (Tang, Shpilevskiy & Lécuyer 2024). `Trainer` sets
    Φ = (noise·clip/batch)². This is post-processing of noisy gradients and costs no privacy.
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), floor: float = 1e-4
    ) -> None:
        first, second = (curve_arguments.probability("betas", each) for each in betas)
        defaults = {
            "lr": curve_arguments.not_negative("lr", lr),
            "betas": (first, second),
            "floor": curve_arguments.positive("floor", floor),
            "noise_variance": 0.0,
        }
        super().__init__(params, defaults)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step along the current gradients. Returns the closure's loss, if there is a closure."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._move(parameter, group)
        return loss

    def _move(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        state, (first, second) = self.state[parameter], group["betas"]
        if not state:
            state["step"] = torch.zeros(())
            state["mean"], state["square"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        state["step"] += 1
        state["mean"].lerp_(parameter.grad, 1 - first)
        state["square"].mul_(second).addcmul_(parameter.grad, parameter.grad, value=1 - second)
        done = float(state["step"])
        mean, square = state["mean"] / (1 - first**done), state["square"] / (1 - second**done)
        spread = square.sub_(group["noise_variance"]).clamp_(min=group["floor"] ** 2).sqrt_()
        parameter.addcdiv_(mean, spread, value=-group["lr"])
