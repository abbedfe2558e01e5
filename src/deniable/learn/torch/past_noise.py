"""What correlated noise needs of the steps before it."""

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
    """What correlated noise needs of the steps before: sums as they were, which stay secret, and what was released."""

    def __init__(self, coefficients: Sequence[Fraction]) -> None:
        self._coefficients = [float(each) for each in coefficients]
        self._sums: list[dict[str, Tensor]] = []
        self._released: list[dict[str, Tensor]] = []

    def begin(self) -> None:
        """One more step. If it is never finished, it stays one in which nothing was learnt: steps keep their distance,
        on which the sensitivity rests."""
        keep = len(self._coefficients)
        self._sums = [{}, *self._sums][:keep]
        self._released = [{}, *self._released][:keep]

    def released(self, totals: dict[str, Tensor], noise: GradientNoise) -> list[Tensor]:
        """M_t = Σ_j c_j g_{t-j} + Z_t is told; what comes back is (C⁻¹M)_t, made of what was told alone."""
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
        """As it was; steps lost after the checkpoint count as steps in which nothing was learnt."""
        if lost:
            rule = f"{lost} steps were taken after it, and the noise of later ones would have to match theirs"
            raise InvalidParameter("path", NOTHING, rule, "save after every step of a DPFTRL run, or start anew")
        self._sums, self._released = state["sums"], state["released"]
