"""The gradients of one batch, example by example: the norm over all parameters, and weighted sums over examples.

**Underflow.** In single precision, ‖g‖²‖a‖² becomes 0 if ‖g‖² underflows, even if ‖a‖ is large. Therefore the backward
pass multiplies gradients by `scale`, and the weights of the sums divide by it. The remaining loss is bounded: underflow
changes an inner product of n numbers by at most n·2⁻¹²⁶, and the inner product that multiplies it is below 2¹²⁸. For
the norm of Σ_t g_t a_tᵀ this is at most T(√o + √i)·2/scale, where T is the number of places and o, i are the widths of
g and a. The trainer adds this bound (`lost`) to each norm.

**NaN and infinity.** An example counts as one with gradient 0 if its loss or its gradient is not finite, if its squared
norm overflows (a norm above 2⁶⁴/scale), or if its norm evaluates to NaN (from 0·∞ or ∞ - ∞). So no record can stop a
run or change the weight of other records: both would reveal its presence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import final

import torch
from torch import Tensor

from deniable.errors import NOTHING, InvalidParameter
from deniable.learn.torch.gradients.gradient_captures import (
    BiasSums,
    Capture,
    EmbeddingRows,
    Factors,
    Ghost,
    Outer,
    Vectors,
    counted,
    ghosts,
    half_ghosts,
    held_together,
    is_quick,
    only,
)
from deniable.learn.torch.gradients.parameter_uses import Uses
from deniable.learn.torch.gradients.parameters import Trained
from deniable.learn.torch.gradients.stacked_layers import Family
from deniable.learn.torch.kernels import half_products

SMALL = 2**13
"""Per-example gradients with at most this many entries each are concatenated, for fewer and larger operations."""

Block = tuple[int, int]
"""Rows of a parameter: from the first number up to, and without, the second."""

Gathered = dict[str, dict[Block, list[Capture]]]
"""Name of a parameter -> its rows -> captures of these rows."""


@final
class PerExample:
    """The per-example gradients of one batch. Call `squared` first, then `summed`, each at most once."""

    __slots__ = (
        "_families",
        "_lost",
        "_parameters",
        "_pool",
        "_scale",
        "_unread",
        "_uses",
        "count",
        "kept",
        "losses",
        "whole",
    )

    def __init__(
        self,
        parameters: Mapping[str, Trained],
        gathered: Gathered,
        count: int,
        *,
        scale: float = 1.0,
        families: Sequence[Family] = (),
    ) -> None:
        self._parameters, self.count, self._scale, self._lost = parameters, count, scale, 0
        self._uses = {name: _settled(blocks, parameters[name].tensor) for name, blocks in gathered.items()}
        # A family does not know of uses of its weights elsewhere, so it is valid only without such uses.
        self._families = [
            family
            for family in families
            if all(_sole(self._uses[name]) is member for name, member in family.members.items())
        ]
        self._pool: tuple[list[str], Tensor] | None = None
        self._unread: Callable[[], float] | None = None
        """On an accelerator: fetches a number that is finite if and only if all norms and losses are."""
        self.kept: Tensor | None = None
        """A mask without the examples that count as gradient 0, because they are not finite; None if all are."""

    @property
    def names(self) -> list[str]:
        """The parameters that the forward pass used."""
        return list(self._uses)

    def part(self, names: Sequence[str]) -> PerExample:
        """The gradients of these parameters alone. Call `squared` and `summed` of the parts, not of the whole."""
        made = PerExample(self._parameters, {}, self.count, scale=self._scale)
        made._uses = {name: self._uses[name] for name in names}
        return made

    @property
    def loss(self) -> Tensor:
        """The sum of the losses of all examples that are finite. Not private: computed without noise."""
        return self.losses.sum()

    @property
    def left_out(self) -> int:
        """How many examples count as gradient 0 because they are not finite. Not private: computed without noise."""
        return 0 if self.kept is None else self.count - int(self.kept.sum())

    def norms(self) -> Tensor:
        """‖gradient‖ of each example, as it is computed: for a comparison."""
        return torch.stack(self._parts()).sum(0).clamp_(min=0).sqrt_() / self._scale

    def squared(self, losses: Tensor, *, is_recorded: bool = False) -> Tensor:
        """‖gradient‖² of each example over all parameters, 0 for an example that is not finite.

        On an accelerator such examples are not replaced here; ask `is_sound` later. While a CUDA graph is recorded,
        nothing is fetched from the device: `whole` is finite if and only if all examples are.
        """
        parts = self._parts()
        if not parts:
            rule = "do not depend on any trained parameter in this batch's forward pass"
            raise InvalidParameter("losses", NOTHING, rule, "call the model in the loop, right before trainer.backward")
        total = torch.stack(parts).sum(0)
        self.losses = losses.detach()
        whole = self.whole = total.sum() + self.losses.sum()  # finite only if every norm and every loss is finite
        if is_recorded:
            pass
        elif self.count > 1 and not is_quick(total):
            self._unread = fetched(whole)
        elif not math.isfinite(float(whole)):
            kept = self.kept = torch.isfinite(total) & torch.isfinite(self.losses)
            self._keep(kept)
            total, self.losses = torch.where(kept, total, 0.0), torch.where(kept, self.losses, 0.0)
        return total if self._scale == 1 else total.mul_(self._scale**-2)

    def is_sound(self) -> bool:
        """Whether the sums may be used. False means that an example is not finite: process the batch one example at a
        time instead.

        On an accelerator, call it after the sums are queued: it waits for the norms only, while the device computes
        the sums.
        """
        return self._unread is None or math.isfinite(self._unread())

    def _keep(self, kept: Tensor) -> None:
        """Set the gradients of all examples outside of the mask `kept` to 0."""
        for blocks in self._uses.values():
            for uses in blocks.values():
                uses.keep(kept)
        if self._pool is not None:
            self._pool = self._pool[0], only(kept, self._pool[1])

    @property
    def lost(self) -> float:
        """An upper bound on how much underflow shortened a norm: add it to the root of `squared`."""
        return 0.0 if self._scale == 1 else 2 * math.sqrt(self._lost) / self._scale

    def _parts(self) -> list[Tensor]:
        """Squared norms to add up, each over one or more parameters: equal shapes together, biases with weights."""
        small: dict[torch.dtype, list[tuple[str, Tensor]]] = {}
        halves: dict[Hashable, list[Outer]] = {}
        ghostly: dict[tuple[int, torch.dtype], list[tuple[str, Ghost]]] = {}
        outers: dict[int, Outer] = {}
        beside: dict[int, BiasSums] = {}
        parts: list[Tensor] = []
        together: set[str] = set()
        for family in self._families:
            ghostly.setdefault((family.places, family.dtype), []).append((next(iter(family.members)), family))
            together.update(family.members)
        for name, blocks in self._uses.items():
            sole = _sole(blocks)
            self._lost += sum(uses.lost for uses in blocks.values())
            if name in together:
                continue
            if isinstance(sole, Outer) and sole.is_half:
                halves.setdefault(sole.kind, []).append(sole)
            elif isinstance(sole, Outer | EmbeddingRows) and sole.is_ghost:
                ghostly.setdefault((sole.places, sole.g.dtype), []).append((name, sole))
            elif isinstance(sole, Outer):
                outers[id(sole)] = sole
            elif isinstance(sole, BiasSums):
                beside[id(sole.outer)] = sole
            elif isinstance(sole, Vectors) and sole.values.numel() <= SMALL * self.count:
                small.setdefault(sole.values.dtype, []).append((name, sole.rows))
            else:
                parts += [uses.squared() for uses in blocks.values()]
        for alike in ghostly.values():
            of_one = self._parameters[alike[0][0]].tensor
            parts.append(ghosts([each for _, each in alike], self.count, of_one))
        parts += [half_ghosts(same) if same[0].is_ghost else held_together(same) for same in halves.values()]
        for key, outer in outers.items():
            parts.append(outer.squared(with_sums=beside.pop(key, None) is not None))
        parts += [sums.squared() for sums in beside.values()]
        if len(small) == 1 and len(listed := next(iter(small.values()))) > 1:
            names, flat = [name for name, _ in listed], torch.cat([rows for _, rows in listed], 1)
            self._pool = names, flat
            parts.append(Vectors(flat).squared())
        else:
            parts += [Vectors(rows).squared() for listed in small.values() for _, rows in listed]
        return parts

    def summed(self, factors: Tensor) -> Iterator[tuple[str, Tensor, Block]]:
        """(parameter, Σ_i factors_i · gradient_i, rows of the parameter) for each block. Frees captures after use."""
        made: dict[torch.dtype, Factors] = {}

        def of(dtype: torch.dtype) -> Factors:
            if dtype not in made:
                made[dtype] = Factors(factors.to(dtype) if self._scale == 1 else factors.to(dtype) / self._scale)
            return made[dtype]

        if self._pool is not None:
            names, flat = self._pool
            tensors = [self._parameters[name].tensor for name in names]
            whole = Vectors(flat).summed(of(flat.dtype)).split([each.numel() for each in tensors])
            for name, each, part in zip(names, tensors, whole, strict=True):
                del self._uses[name]
                yield name, part if each.dim() == 1 else part.view(each.shape), all_rows(each)
            self._pool = None
        while self._families:
            family = self._families.pop()
            for name, part in zip(family.members, family.summed(of(family.dtype)), strict=True):
                del self._uses[name]
                yield name, part, all_rows(part)
        yield from self._summed_halves(of)
        for name in list(self._uses):
            dtype = counted(self._parameters[name].tensor.dtype)
            for rows, uses in self._uses.pop(name).items():
                yield name, uses.summed(of(dtype)), rows

    def _summed_halves(self, of: Callable[[torch.dtype], Factors]) -> Iterator[tuple[str, Tensor, Block]]:
        """The sums of weights whose factors are in half precision, equal shapes together. Frees their captures."""
        groups: dict[Hashable, dict[str, Outer]] = {}
        for name, blocks in self._uses.items():
            sole = _sole(blocks)
            if isinstance(sole, Outer) and sole.is_half and sole.is_ghost:
                groups.setdefault(sole.kind, {})[name] = sole
            del sole
        for group in groups.values():
            outers = group.values()
            factors = of(torch.float32).each
            sums = half_products.weighted([each.g for each in outers], [each.a for each in outers], factors)
            for name, part in zip(group, sums, strict=True):
                rows = next(iter(self._uses.pop(name)))
                yield name, part, rows
            group.clear()

    def each(self, name: str, low: int, high: int) -> Tensor | None:
        """The gradients of one parameter for examples low, …, high - 1; None if the forward pass did not use it."""
        blocks = self._uses.get(name)
        if not blocks:
            return None
        whole = self._parameters[name].tensor
        made = whole.new_zeros((high - low, *whole.shape), dtype=counted(whole.dtype))
        for (start, stop), uses in blocks.items():
            (made[:, start:stop] if whole.dim() else made).add_(uses.each(low, high), alpha=1 / self._scale)
        return made


def _sole(blocks: dict[Block, Uses]) -> Capture | None:
    """The capture of all of a parameter's gradients, if one capture has them all."""
    return next(iter(blocks.values())).sole if len(blocks) == 1 else None


def fetched(number: Tensor) -> Callable[[], float]:
    """Start copying a number from the device. The returned function waits for the copy, not for later device work."""
    if number.device.type != "cuda":
        return lambda: float(number)
    here, done = number.to("cpu", non_blocking=True), torch.cuda.Event()
    done.record(torch.cuda.current_stream(number.device))

    def arrived() -> float:
        done.synchronize()
        return float(here)

    return arrived


def _settled(blocks: dict[Block, list[Capture]], whole: Tensor) -> dict[Block, Uses]:
    """Uses by rows. If blocks of rows overlap without being equal, the gradients are formed and held instead."""
    if len(blocks) == 1:
        return {span: Uses(captures) for span, captures in blocks.items()}
    spans = sorted(blocks)
    if all(left[1] <= right[0] for left, right in pairwise(spans)):
        return {span: Uses(captures) for span, captures in blocks.items()}
    total: Tensor | None = None
    for (start, stop), captures in blocks.items():
        for capture in captures:
            part = Uses([capture])
            count = part.squared().shape[0]
            total = whole.new_zeros((count, *whole.shape), dtype=counted(whole.dtype)) if total is None else total
            total[:, start:stop] += part.each(0, count)
    assert total is not None
    return {(0, whole.shape[0]): Uses([Vectors(total)])}


def all_rows(tensor: Tensor) -> Block:
    """All rows of a parameter; a scalar counts as one row."""
    return (0, tensor.shape[0] if tensor.dim() else 1)
