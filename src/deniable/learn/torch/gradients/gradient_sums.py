"""The clipped sums of one step, by parameter, which grow from batch to batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
        self._lent: set[str] = set()
        """Sums of one batch so far, which have the memory of that batch's results."""

    def clear(self) -> None:
        """Begin a new step."""
        self._sums = {}
        self._lent.clear()

    def keep(self) -> None:
        """Copy the sums that are results of a batch, because a compiled step is about to overwrite them."""
        for name in self._lent:
            self._sums[name] = self._sums[name].clone()
        self._lent.clear()

    def add_all(self, sums: Iterable[tuple[str, Tensor, tuple[int, int]]]) -> None:
        """Add (parameter, clipped sum, its rows) for each block of rows."""
        for name, part, (start, stop) in sums:
            self.add(name, part, start, stop)

    def add(self, name: str, part: Tensor, start: int, stop: int) -> None:
        """Add rows start, …, stop - 1 of a parameter's clipped sum."""
        whole = self._parameters[name]
        if part.dtype != counted(whole.dtype):
            part = part.to(counted(whole.dtype))
        if name not in self._sums and part.shape == whole.shape:
            self._sums[name] = part
            self._lent.add(name)
            return
        total = self._sums.setdefault(name, torch.zeros_like(whole, dtype=counted(whole.dtype)))
        target = total[start:stop] if whole.dim() else total
        target += part

    def taken(self) -> dict[str, Tensor]:
        """The sums of all parameters, zeros for parameters without a gradient. They are removed from this object."""
        totals = {}
        for name, parameter in self._parameters.items():
            total = self._sums.pop(name, None)
            totals[name] = torch.zeros_like(parameter, dtype=counted(parameter.dtype)) if total is None else total
        return totals
