"""The clipped sums of one step, by parameter, which grow from batch to batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from deniable.learn.torch.gradients.gradient_captures import counted


@final
class GradientSums:
    """The sum of the clipped gradients of each parameter so far, in single precision at least."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self._parameters = parameters
        self._sums: dict[str, Tensor] = {}

    def clear(self) -> None:
        """Begin a new step."""
        self._sums = {}

    def add(self, name: str, part: Tensor, start: int, stop: int) -> None:
        """Add rows start, …, stop - 1 of a parameter's clipped sum."""
        whole = self._parameters[name]
        if part.dtype != counted(whole.dtype):
            part = part.to(counted(whole.dtype))
        if name not in self._sums and part.shape == whole.shape:
            self._sums[name] = part
            return
        total = self._sums.setdefault(name, torch.zeros_like(whole, dtype=counted(whole.dtype)))
        target = total[start:stop] if whole.dim() else total
        target += part

    def taken(self) -> dict[str, Tensor]:
        """The sums of all parameters, zeros for those without a gradient. They are removed from here."""
        totals = {}
        for name, parameter in self._parameters.items():
            total = self._sums.pop(name, None)
            totals[name] = torch.zeros_like(parameter, dtype=counted(parameter.dtype)) if total is None else total
        return totals
