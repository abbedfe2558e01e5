"""The memory of correlated noise: what a step of `DPFTRL` needs of the steps before it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import final

import torch
from torch import Tensor

from deniable.errors import NOTHING, InvalidParameter
from deniable.learn.torch.gradient_noise import GradientNoise


@final
class Past:
    """Exact sums of earlier steps, which stay secret, and the noisy sums that were released."""

    def __init__(self, coefficients: Sequence[Fraction]) -> None:
        self._coefficients = [float(each) for each in coefficients]
        self._sums: list[dict[str, Tensor]] = []
        self._released: list[dict[str, Tensor]] = []

    def begin(self) -> None:
        """Begin a step. If it is never finished, it counts as a step with gradient 0, so that later steps keep their
        distance to earlier ones, which the sensitivity depends on."""
        keep = len(self._coefficients)
        self._sums = [{}, *self._sums][:keep]
        self._released = [{}, *self._released][:keep]

    def released(self, totals: dict[str, Tensor], noise: GradientNoise) -> list[Tensor]:
        """Release M_t = Σ_j c_j g_{t-j} + Z_t. Returns (C⁻¹M)_t, which depends on released values only."""
        sums = {name: total.double() for name, total in totals.items()}
        mixed = [total.clone() for total in sums.values()]
        for weight, before in zip(self._coefficients[1:], self._sums[1:], strict=False):
            if before:
                torch._foreach_add_(mixed, list(before.values()), alpha=weight)
        noisy = noise.add(mixed)
        for weight, told in zip(self._coefficients[1:], self._released[1:], strict=False):
            if told:
                torch._foreach_add_(noisy, list(told.values()), alpha=-weight)
        self._sums[0], self._released[0] = sums, dict(zip(totals, noisy, strict=True))
        return [each.to(total.dtype, copy=True) for each, total in zip(noisy, totals.values(), strict=True)]

    def state(self) -> dict[str, list[dict[str, Tensor]]]:
        return {"sums": self._sums, "released": self._released}

    def restore(self, state: dict[str, list[dict[str, Tensor]]], lost: int) -> None:
        """Restore a saved state. Raises if steps were taken after the checkpoint: their sums are unknown."""
        if lost:
            rule = f"{lost} steps were taken after it, and the noise of later steps would have to match theirs"
            raise InvalidParameter("path", NOTHING, rule, "save after every step of a DPFTRL run, or start anew")
        self._sums, self._released = state["sums"], state["released"]
