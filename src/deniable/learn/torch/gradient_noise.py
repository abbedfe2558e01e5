"""Noise on sums of clipped gradients: exact on a grid, or fast on the device with an assumption."""

from __future__ import annotations

import functools
import math
import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import final

import numpy as np
import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from deniable import noise
from deniable.learn.plans import Plan
from deniable.learn.torch.kernels.grid_noise_kernel import GridNoise, on_grid
from deniable.learn.torch.kernels.normal_kernel import LANES, pairs_kernel
from deniable.noise.entropy import given_or_current
from deniable.noise.samplers import gaussian_sampler
from deniable.noise.wide_noise import WideRoundedGaussian

PIECE = 2**20
"""The number of draws at a time. It is large, because rejected draws are repeated in ever smaller rounds."""

ON_A_DEVICE = 2**24
"""The same on an accelerator: one kernel launch for small models, and little memory beside the gradients of large ones.
"""

CHUNK = 2**15
"""The number of values that get noise at a time: few enough to stay in the CPU caches."""


class GradientNoise(ABC):
    """Adds noise to the clipped sums, and lists the assumptions that the guarantee then depends on."""

    @property
    @abstractmethod
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions in words. Empty if the noise has exactly the distribution that the curve assumes."""

    @abstractmethod
    def open(self, plan: Plan, coordinates: int) -> None:
        """Prepare for a plan whose steps each have `coordinates` coordinates."""

    @abstractmethod
    def add(self, totals: Sequence[Tensor]) -> list[Tensor]:
        """The sums of one step with noise on every coordinate. It may overwrite `totals`, which are secret."""


@final
class ExactNoise(GradientNoise):
    """round(N(0, σ²)) on a grid of 2⁻³¹ σ or finer, exact to the last bit, from the operating system's entropy.

    A sum is rounded to the grid first. This moves two neighbouring sums apart by at most one grid step in each of the d
    coordinates. So the sensitivity grows from Δ to Δ + √d grid steps, and σ by the same factor: less than 10⁻⁶ for a
    million parameters. If the noise of many steps protects one sum (`DPFTRL`), d counts the coordinates of all these
    steps. Then integer noise is added, and only the result is converted to a float (see `noise.Grid`).
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

    def _add_to(self, parts: list[Tensor]) -> None:
        """Round to the grid, add integer noise, then convert to floats. With and without compilation, the distribution
        is the same; for one part, the draws are the same too.
        """
        scale = float(self._grid.spacing)
        singles = [each for each in parts if each.dtype == torch.float32]
        compiled = _compiled(self._width) if singles else None
        if compiled is not None:
            compiled.add([each.numpy() for each in singles], scale, given_or_current(self._entropy))
            parts = [each for each in parts if each.dtype != torch.float32]
        for part in parts:
            drawn = noise.rounded_gaussian(sigma=self._width, size=(part.numel(),), entropy=self._entropy)
            for start in range(0, part.numel(), CHUNK):
                here, ints = part[start : start + CHUNK], drawn[start : start + CHUNK]
                ints += on_grid(here.to(torch.float64).numpy(), scale)
                here.copy_(torch.from_numpy(ints * scale))


@final
class DeviceNoise(GradientNoise):
    """Gaussian noise in floating point, drawn on the gradients' device: from the operating system's entropy on a CPU,
    from torch's generator elsewhere.

    Fast but not exact; the guarantee lists the assumption.
    """

    def __init__(self, *, entropy: noise.Entropy | None = None) -> None:
        self._entropy = entropy
        self._sigma = 1.0
        self._generators: dict[torch.device, torch.Generator] = {}

    @property
    def assumptions(self) -> tuple[str, ...]:
        floating = (
            "noise in floating point protects like a real-valued Gaussian, including its last digits; on an "
            "accelerator, torch's generator, seeded with 63 secret bits, is as good as true randomness"
        )
        return (floating, *_replayable(self._entropy))

    def __getstate__(self) -> dict[str, object]:
        """The state without the generators: a copy that had them would draw the same noise, which then cancels between
        two runs, and a pickled generator contains the seed of all noise.
        """
        return {**vars(self), "_generators": {}}

    def open(self, plan: Plan, coordinates: int) -> None:
        self._sigma = plan.sigma

    def add(self, totals: Sequence[Tensor]) -> list[Tensor]:
        on_cpu = [each for each in totals if each.device.type == "cpu"]
        # Not kept beyond this call: stored noise could be pickled, or used twice by two threads.
        drawing = {dtype: Floating(dtype) for dtype in {each.dtype for each in on_cpu}}
        source = given_or_current(self._entropy)

        def add_to(parts: list[Tensor]) -> None:
            for part in parts:
                drawing[part.dtype].add(part, self._sigma, source)

        _piecewise(on_cpu, add_to)
        for kind in {(each.device, each.dtype) for each in totals if each.device.type != "cpu"}:
            several = [each for each in totals if (each.device, each.dtype) == kind]
            for pieces in _portions(several):
                drawn = torch.empty(sum(each.numel() for each in pieces), device=kind[0], dtype=kind[1])
                drawn.normal_(0.0, self._sigma, generator=self._generator(kind[0]))
                torch._foreach_add_(pieces, _unflatten_dense_tensors(drawn, pieces))
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

    Each number uses 32 or 64 random bits, so no number is larger than 6.7 or 9.4. Buffers are reused for all numbers of
    a step and stay in the caches.
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
        """Add σ times a fresh draw to each number of a contiguous tensor."""
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
        """Add to exactly 2 · pairs numbers: cosines to the first half, sines to the second, with the same radii."""
        entropy.fill(self._words)
        if self._kernel is not None:
            # `half` is the distance in bytes from the first half of the bits, and of the numbers, to the second.
            bits, place, half = self._words.ctypes.data, numbers.data_ptr(), 4 * self._pairs
            self._kernel.run(place, place + half, bits, bits + half, self._pairs, sigma)
            return
        lengths, angles = self._floats.copy_(self._whole)
        torch.add(self._half, lengths.abs_(), alpha=self._step, out=lengths).log_().mul_(-2).sqrt_()
        torch.cos(angles.mul_(math.pi * self._step), out=self._turned[0])
        torch.sin(angles, out=self._turned[1])
        numbers.view(2, -1).addcmul_(self._turned, lengths, value=sigma)


@functools.lru_cache(maxsize=4)
def _compiled(width: int) -> GridNoise | None:
    """Compiled noise of this width; None if it cannot be compiled. Cached, because building its tables takes a tenth of
    a millisecond.
    """
    sampler = gaussian_sampler(width)
    return GridNoise.of(sampler) if isinstance(sampler, WideRoundedGaussian) else None


def _replayable(entropy: noise.Entropy | None) -> tuple[str, ...]:
    """The assumption to state if the entropy can be replayed."""
    if given_or_current(entropy).is_private:
        return ()
    return ("the entropy is replayable, for tests only: this protects nobody",)


def _portions(totals: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Views of all numbers of these tensors, in lists of at most about ON_A_DEVICE numbers each."""
    held: list[Tensor] = []
    count = 0
    for total in totals:
        is_cut = total.numel() > ON_A_DEVICE and total.is_contiguous()
        for piece in total.view(-1).split(ON_A_DEVICE) if is_cut else (total,):
            count += piece.numel()
            if held and count > ON_A_DEVICE:
                yield held
                held, count = [], piece.numel()
            held.append(piece)
    yield held


def _piecewise(totals: Sequence[Tensor], work: Callable[[list[Tensor]], None]) -> None:
    """Apply `work` to all numbers in place: large tensors in contiguous pieces, small ones concatenated."""
    small: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    pieces: list[Tensor] = []
    copied: list[tuple[Tensor, Tensor]] = []
    for total in totals:
        if total.numel() < PIECE // 8:
            small[total.dtype].append(total)
        else:
            rows = total.contiguous()
            pieces += rows.view(-1).split(PIECE)
            if rows is not total:
                copied.append((total, rows))
    joined = {dtype: _flatten_dense_tensors(several) for dtype, several in small.items()}
    for each in joined.values():
        pieces += each.split(PIECE)
    work(pieces)
    for total, rows in copied:
        total.copy_(rows)
    for dtype, several in small.items():
        torch._foreach_copy_(several, _unflatten_dense_tensors(joined[dtype], several))
