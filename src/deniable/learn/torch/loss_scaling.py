"""Losses that were multiplied for half precision: a GradScaler and clipping exclude each other."""

from __future__ import annotations

import math
from typing import Final

from torch import Tensor, float32

from deniable.errors import NOTHING, InvalidParameter

SCALED: Final = (
    "gradients are clipped to a fixed norm: nearly all gradients of a loss that is 65,536 times as large would be "
    "clipped, and the scaler would find no gradients to divide"
)
UNSCALED: Final = (
    "leave the scaler out, give trainer.backward the losses themselves, and use bfloat16 or single precision: neither "
    "needs a scaler"
)

LEAST: Final = 2.0**4
"""Smaller factors are unlikely to come from a scaler: it begins with 2¹⁶ and halves this only after an overflow."""


def check_not_scaled(losses: Tensor) -> None:
    """Raise if the last operation on the losses was `GradScaler.scale`: a product with one number in a tensor, a power
    of 2."""
    last = losses.grad_fn
    if last is None or last.name() != "MulBackward0":
        return
    factor = getattr(last, "_saved_other", None)
    if not isinstance(factor, Tensor) or factor.dim() or factor.dtype != float32 or factor.requires_grad:
        return
    value = float(factor)
    if value >= LEAST and math.isfinite(value) and math.frexp(value)[0] == 0.5:
        raise InvalidParameter("losses", NOTHING, f"were scaled by a GradScaler, but {SCALED}", UNSCALED)
