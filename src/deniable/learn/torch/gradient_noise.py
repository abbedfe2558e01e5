"""Noise on sums of clipped gradients: exact on a grid, or fast on the device with an assumption."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import final

import numpy as np
import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from deniable import noise
from deniable.learn.plans import Plan
from deniable.learn.torch.kernels.normal_kernel import LANES, pairs_kernel
from deniable.noise.entropy import given_or_current

FARTHEST = float(2**62)

PIECE = 2**20
"""Numbers drawn at a time: many, as rejected ones are drawn again in ever smaller rounds."""

CHUNK = 2**15
"""Numbers that noise is added to at a time: small enough to stay in the caches."""


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
    def add(self, totals: Sequence[Tensor]) -> list[Tensor]:
        """The sums of one step with noise on every coordinate; told to nobody before, and written over."""


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
        return _replayable(self._entropy)

    def open(self, plan: Plan, coordinates: int) -> None:
        level, clip, moved = (Fraction(each) for each in (plan.calibrated(), plan.clip.norm, plan.sensitivity))
        self._grid = noise.Grid.for_noise(level * clip)
        seen_together = coordinates * (1 if moved == 1 else plan.steps)
        rounding = math.isqrt(max(seen_together - 1, 0)) + 1
        self._width = math.ceil((clip * moved / self._grid.spacing + rounding) * level / moved)

    def add(self, totals: Sequence[Tensor]) -> list[Tensor]:
        here = [each.detach().to("cpu") for each in totals]
        _piecewise(here, self._add_to)
        return [noisy.to(each.device) for noisy, each in zip(here, totals, strict=True)]

    def _add_to(self, part: Tensor) -> None:
        """Round to the grid, add whole numbers, and only then come back to floats."""
        scale = float(self._grid.spacing)
        drawn = noise.rounded_gaussian(sigma=self._width, size=(part.numel(),), entropy=self._entropy)
        for start in range(0, part.numel(), CHUNK):
            here, ints = part[start : start + CHUNK], drawn[start : start + CHUNK]
            floats = here.to(torch.float64, copy=True).numpy()
            floats *= 1 / scale
            np.clip(np.rint(floats, out=floats), -FARTHEST, FARTHEST, out=floats)
            ints += floats.astype(np.int64)
            here.copy_(torch.from_numpy(np.multiply(ints, scale, out=floats)))


@final
class DeviceNoise(GradientNoise):
    """Gaussian noise in floating point, made on the device where the gradients are: on a CPU of the operating system's
    entropy, elsewhere by torch's generator.

    Fast, and not exact: the guarantee then says what it assumes.
    """

    def __init__(self, *, entropy: noise.Entropy | None = None) -> None:
        self._entropy = entropy
        self._sigma = 1.0
        self._generators: dict[torch.device, torch.Generator] = {}

    @property
    def assumptions(self) -> tuple[str, ...]:
        floating = (
            "noise in floating point is as good as the real numbers of a Gaussian, last digits included; where it is "
            "made on an accelerator, torch's generator, seeded with 63 secret bits, is as good as chance"
        )
        return (floating, *_replayable(self._entropy))

    def open(self, plan: Plan, coordinates: int) -> None:
        self._sigma = plan.sigma

    def add(self, totals: Sequence[Tensor]) -> list[Tensor]:
        on_cpu = [each for each in totals if each.device.type == "cpu"]
        # Not kept beyond this call: noise that lies about could be pickled, or handed out twice by two threads.
        drawing = {dtype: Floating(dtype) for dtype in {each.dtype for each in on_cpu}}
        source = given_or_current(self._entropy)
        _piecewise(on_cpu, lambda part: drawing[part.dtype].add(part, self._sigma, source))
        for kind in {(each.device, each.dtype) for each in totals if each.device.type != "cpu"}:
            # One draw for all: a device is asked once, and at the end of a step it has room.
            several = [each for each in totals if (each.device, each.dtype) == kind]
            drawn = torch.empty(sum(each.numel() for each in several), device=kind[0], dtype=kind[1])
            drawn.normal_(0.0, self._sigma, generator=self._generator(kind[0]))
            torch._foreach_add_(several, _unflatten_dense_tensors(drawn, several))
        return list(totals)

    def _generator(self, device: torch.device) -> torch.Generator:
        generator = self._generators.get(device)
        if generator is None:
            generator = torch.Generator(device=device)
            generator.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
            self._generators[device] = generator
        return generator


@final
class Floating:
    """N(0, 1) in single or double precision, by Box & Muller (1958): √(-2 ln u) times the cosine and sine of an angle.

    Each number is made of 32 or 64 bits of the entropy, so that none is farther out than 6.7 or 9.4. What is worked on
    stays in the caches, in the same memory for all numbers of a step.
    """

    def __init__(self, dtype: torch.dtype, pairs: int = CHUNK) -> None:
        bits = torch.finfo(dtype).bits
        self._pairs, self._step = -(-pairs // LANES) * LANES, 2.0 ** (1 - bits)
        self._kernel = pairs_kernel() if dtype == torch.float32 else None
        self._words = np.empty(2 * self._pairs * bits // 64, dtype=np.uint64)
        if self._kernel is None:
            whole = np.int32 if bits == 32 else np.int64
            self._whole = torch.from_numpy(self._words.view(whole)).view(2, self._pairs)
            self._floats, self._turned = (torch.empty(2, self._pairs, dtype=dtype) for _ in range(2))
            self._half = torch.tensor(2.0**-bits, dtype=dtype)

    def add(self, numbers: Tensor, sigma: float, entropy: noise.Entropy) -> None:
        """σ times fresh draws onto every number, which lie one behind the other."""
        assert numbers.is_contiguous()
        for part in numbers.split(2 * self._pairs):
            if part.numel() == 2 * self._pairs:
                self._add_to(part, sigma, entropy)
            elif part.numel():
                few = Floating(part.dtype, (part.numel() + 1) // 2)
                room = part.new_zeros(2 * few._pairs)
                few._add_to(room, sigma, entropy)
                part += room[: part.numel()]

    def _add_to(self, numbers: Tensor, sigma: float, entropy: noise.Entropy) -> None:
        """Cosines above sines, with the same lengths."""
        entropy.fill(self._words)
        if self._kernel is not None:
            # The second half of the bits, and of the numbers, lies so many bytes behind the first.
            bits, place, half = self._words.ctypes.data, numbers.data_ptr(), 4 * self._pairs
            self._kernel.run(place, place + half, bits, bits + half, self._pairs, sigma)
            return
        lengths, angles = self._floats.copy_(self._whole)
        torch.add(self._half, lengths.abs_(), alpha=self._step, out=lengths).log_().mul_(-2).sqrt_()
        torch.cos(angles.mul_(math.pi * self._step), out=self._turned[0])
        torch.sin(angles, out=self._turned[1])
        numbers.view(2, -1).addcmul_(self._turned, lengths, value=sigma)


def _replayable(entropy: noise.Entropy | None) -> tuple[str, ...]:
    """What must be said of entropy that can be drawn again."""
    if given_or_current(entropy).is_private:
        return ()
    return ("the entropy is replayable, for tests only: this protects nobody",)


def _piecewise(totals: Sequence[Tensor], work: Callable[[Tensor], None]) -> None:
    """`work` on every number, in place, some at a time: large tensors in pieces, small ones together."""
    small: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    for total in totals:
        if total.numel() < PIECE // 8:
            small[total.dtype].append(total)
        else:
            rows = total.contiguous()
            for part in rows.view(-1).split(PIECE):
                work(part)
            if rows is not total:
                total.copy_(rows)
    for several in small.values():
        joined = _flatten_dense_tensors(several)
        for part in joined.split(PIECE):
            work(part)
        torch._foreach_copy_(several, _unflatten_dense_tensors(joined, several))
