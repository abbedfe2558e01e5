"""Noise on sums of clipped gradients: exact on a grid, or fast on the device with an assumption."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import final

import torch
from torch import Tensor

from deniable import noise
from deniable.learn.plans import Plan

FARTHEST = float(2**62)
CHUNK = 2**15


class GradientNoise(ABC):
    """How noise is added. Whatever it is, it says what the guarantee then rests on."""

    @property
    @abstractmethod
    def assumptions(self) -> tuple[str, ...]:
        """In words; empty if the noise is what the curve says."""

    @abstractmethod
    def open(self, plan: Plan, coordinates: int) -> None:
        """Get ready for so many numbers in each step of this plan."""

    @abstractmethod
    def add(self, total: Tensor) -> Tensor:
        """`total` with noise on every coordinate; told to nobody before."""


@final
class ExactNoise(GradientNoise):
    """round(N(0, σ²)) on a grid of 2⁻³¹ σ or finer, exact to the last bit, from the operating system's entropy.

    A sum is rounded to the grid first. That moves two neighbouring sums apart by at most one step in each of the d
    coordinates, so the sensitivity grows from Δ to Δ + √d steps, and σ by the same factor; for a million parameters by
    less than 10⁻⁶. Where the noise of many steps hides one sum (`DPFTRL`), d counts the coordinates of all of them.
    Then integer noise is added, and only the result becomes a float again (see `noise.Grid`).
    """

    def __init__(self, *, entropy: noise.Entropy | None = None) -> None:
        self._entropy = entropy
        self._grid, self._width = noise.Grid(exponent=0), 1

    @property
    def assumptions(self) -> tuple[str, ...]:
        source = noise.current() if self._entropy is None else self._entropy
        return () if source.is_private else ("the entropy is replayable, for tests only: this protects nobody",)

    def open(self, plan: Plan, coordinates: int) -> None:
        level, clip, moved = (Fraction(each) for each in (plan.calibrated(), plan.clip.norm, plan.sensitivity))
        self._grid = noise.Grid.for_noise(level * clip)
        seen_together = coordinates * (1 if moved == 1 else plan.steps)
        rounding = math.isqrt(max(seen_together - 1, 0)) + 1
        self._width = math.ceil((clip * moved / self._grid.spacing + rounding) * level / moved)

    def add(self, total: Tensor) -> Tensor:
        scale, flat = float(self._grid.spacing), total.detach().to("cpu").reshape(-1)
        steps = torch.from_numpy(noise.rounded_gaussian(sigma=self._width, size=(flat.numel(),), entropy=self._entropy))
        noisy, floats = torch.empty_like(flat), torch.empty(min(CHUNK, flat.numel()), dtype=torch.float64)
        for start in range(0, flat.numel(), CHUNK):  # small enough to stay in the caches
            place = slice(start, start + CHUNK)
            part = floats[: flat[place].numel()]
            part.copy_(flat[place]).mul_(1 / scale).round_().clamp_(-FARTHEST, FARTHEST)
            steps[place].add_(part.to(torch.int64))
            noisy[place] = torch.mul(steps[place], scale, out=part)
        return noisy.reshape(total.shape).to(total.device)


@final
class DeviceNoise(GradientNoise):
    """Gaussian noise by torch's own generator, on the device where the gradients are, seeded by the operating system.

    Fast, and not exact: the guarantee then says what it assumes.
    """

    def __init__(self) -> None:
        self._sigma = 1.0
        self._generators: dict[torch.device, torch.Generator] = {}

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "torch's generator, seeded with 63 secret bits, is as good as chance and its floating-point numbers as "
            "good as the real ones of a Gaussian, last digits included",
        )

    def open(self, plan: Plan, coordinates: int) -> None:
        self._sigma = plan.sigma

    def add(self, total: Tensor) -> Tensor:
        generator = self._generators.get(total.device)
        if generator is None:
            generator = torch.Generator(device=total.device)
            generator.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
            self._generators[total.device] = generator
        drawn = torch.empty_like(total).normal_(0.0, self._sigma, generator=generator)
        return drawn.add_(total)
