"""The per-example gradients of a few examples, compared with autograd's gradients of their losses alone.

The comparison covers gradients and norms. A norm may be larger than autograd's (norms are rounded up), never smaller.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import final

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from deniable.learn.torch.gradients.forward_calls import ModuleCall, gradients
from deniable.learn.torch.gradients.parameters import Trained
from deniable.learn.torch.gradients.per_example import Gathered, PerExample

TOLERANCE = {torch.float64: 1e-7, torch.float32: 2e-3, torch.bfloat16: 0.2, torch.float16: 0.05}
"""Allowed distance from autograd's gradient, relative to its norm, by the coarsest precision of the layers' outputs."""


def tolerance_of(calls: Sequence[ModuleCall]) -> float:
    """The tolerance for the coarsest precision in which these calls returned their outputs."""
    order = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
    used = {dtype for call in calls for dtype in call.dtypes if dtype in order}
    return TOLERANCE[max(used or {torch.float32}, key=order.index)]


@final
class AutogradComparison:
    """Autograd's gradients of single examples. They are computed anew for each question, to hold little memory."""

    def __init__(
        self, parameters: Mapping[str, Trained], scale: float, losses: Tensor, probed: Sequence[int], tolerance: float
    ) -> None:
        self._parameters, self._scale = parameters, scale
        self._losses, self._probed, self._tolerance = losses, probed, tolerance
        self._edges = [get_gradient_edge(each.tensor) for each in parameters.values()]

    def denies(self, names: set[str], gathered: Gathered, count: int) -> set[str]:
        """The parameters among `names` whose gathered gradients differ from autograd's for some probed example."""
        wrong: set[str] = set()
        for example in self._probed:
            found = gradients(self._losses[example], self._edges, keep=True)
            expected = dict(zip(self._parameters, found, strict=True))
            length = math.sqrt(sum(float(grad.norm()) ** 2 for grad in found if grad is not None))
            for name in names - wrong:
                if not self._agrees(name, gathered, expected[name], example, length, count):
                    wrong.add(name)
        return wrong

    def _agrees(
        self, name: str, gathered: Gathered, expected: Tensor | None, example: int, length: float, count: int
    ) -> bool:
        try:
            found = {name: gathered[name]} if gathered.get(name) else {}
            mine = PerExample(self._parameters, found, count, scale=self._scale)
            squared = mine.squared(self._losses)[example] if found else None
            seen = mine.each(name, example, example + 1)
        except (RuntimeError, ValueError, IndexError):
            return False
        if expected is None or not has_nonzero(expected):
            return seen is None or float(seen.norm()) <= 1e-6
        own = float(expected.norm())
        allowed = self._tolerance * (own + 1e-3 * length)
        if seen is None or squared is None or float((seen[0] - expected).norm()) > allowed:
            return False
        # Norms come from other formulas than gradients, so they are compared as well. They may be larger, and NaN
        # counts as infinite.
        return not float(squared) < max(own - allowed, 0.0) ** 2


def has_nonzero(grad: Tensor | None) -> bool:
    """Whether there is a gradient with an entry other than 0."""
    return grad is not None and bool(grad.ne(0).any())


def is_multiple(times: float, before: Tensor | None, after: Tensor | None) -> bool:
    """Whether `after` is `times` · `before`. It is not if half precision overflows, or if a hook clips gradients."""
    if before is None or after is None:
        return before is after
    expected = before.double() * times
    return bool((after.double() - expected).norm() <= 1e-2 * expected.norm()) and bool(torch.isfinite(after).all())
