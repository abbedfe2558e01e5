"""The memory of correlated noise: what a step of `DPFTRL` needs from earlier steps."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, final

import torch
from torch import Tensor

from deniable.errors import NOTHING, InvalidParameter
from deniable.learn.buffered_noise import Buffers
from deniable.learn.plans import Plan
from deniable.learn.torch.gradient_noise import GradientNoise


@final
class Past:
    """Exact sums of earlier steps, which stay secret, and the noisy sums that were released."""

    def __init__(self, coefficients: Sequence[Fraction]) -> None:
        self._coefficients = [float(each) for each in coefficients]
        self._sums: list[dict[str, Tensor]] = []
        self._released: list[dict[str, Tensor]] = []

    def begin(self) -> None:
        """Begin a step. A step that is never finished counts as a step with gradient 0, so that the number of steps
        between two others does not change: the sensitivity depends on it.
        """
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
        for weight, earlier in zip(self._coefficients[1:], self._released[1:], strict=False):
            if earlier:
                torch._foreach_add_(noisy, list(earlier.values()), alpha=-weight)
        self._sums[0], self._released[0] = sums, dict(zip(totals, noisy, strict=True))
        return [each.to(total.dtype, copy=True) for each, total in zip(noisy, totals.values(), strict=True)]

    def state(self) -> dict[str, list[dict[str, Tensor]]]:
        return {"sums": self._sums, "released": self._released}

    def restore(self, state: dict[str, list[dict[str, Tensor]]], lost: int) -> None:
        """Restore a saved state. Raises if steps were taken after the checkpoint: their sums are unknown."""
        _check_none_lost(lost)
        self._sums, self._released = state["sums"], state["released"]


@final
class BufferedPast:
    """The memory of noise that is correlated by buffers. For each (ω, λ) it has one buffer of secret sums and one
    buffer of released sums.
    """

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        self._sums: list[dict[str, Tensor]] = [{} for _ in buffers]
        self._released: list[dict[str, Tensor]] = [{} for _ in buffers]
        self._last: tuple[dict[str, Tensor], dict[str, Tensor]] | None = None

    def begin(self) -> None:
        """Begin a step: s_i <- λ_i s_i + g of the step before; 0 if that step was never finished."""
        last, self._last = self._last, None
        for held, new in ((self._sums, last and last[0]), (self._released, last and last[1])):
            for (_, decay), each in zip(self._buffers, held, strict=True):
                for name in each:
                    each[name] *= decay
                for name, value in (new or {}).items():
                    each[name] = each[name] + value if name in each else value.clone()

    def released(self, totals: dict[str, Tensor], noise: GradientNoise) -> list[Tensor]:
        """Release M_t = g_t + Σ_i ω_i s_i + Z_t. Returns (C⁻¹M)_t, which depends on released values only."""
        sums = {name: total.double() for name, total in totals.items()}
        mixed = {name: total.clone() for name, total in sums.items()}
        for (weight, _), held in zip(self._buffers, self._sums, strict=True):
            for name, value in held.items():
                mixed[name] += weight * value
        noisy = dict(zip(totals, noise.add(list(mixed.values())), strict=True))
        for (weight, _), held in zip(self._buffers, self._released, strict=True):
            for name, value in held.items():
                noisy[name] -= weight * value
        self._last = sums, noisy
        return [noisy[name].to(total.dtype, copy=True) for name, total in totals.items()]

    def state(self) -> dict[str, Any]:
        return {"sums": self._sums, "released": self._released, "last": self._last}

    def restore(self, state: dict[str, Any], lost: int) -> None:
        """Restore a saved state. Raises if steps were taken after the checkpoint: their sums are unknown."""
        _check_none_lost(lost)
        self._sums, self._released, self._last = state["sums"], state["released"], state["last"]


def past_of(plan: Plan) -> Past | BufferedPast | None:
    """The memory that a plan's noise needs; None for independent noise."""
    if plan.buffers is not None:
        return BufferedPast(plan.buffers)
    return None if plan.coefficients is None else Past(plan.coefficients)


def _check_none_lost(lost: int) -> None:
    if lost:
        rule = f"{lost} steps were taken after this checkpoint, and the noise of later steps depends on them"
        raise InvalidParameter("path", NOTHING, rule, "save after every step of a DPFTRL run, or start anew")
