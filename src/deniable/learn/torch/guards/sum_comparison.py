"""For separation that is assumed: sums over random batches, compared with autograd in a second pass."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from deniable import noise as chance
from deniable.learn.torch.gradients.autograd_comparison import tolerance_of
from deniable.learn.torch.gradients.bookkeeping import Alone, Bookkeeping
from deniable.learn.torch.gradients.forward_calls import gradients

SHARE = 1 / 16
"""The probability that a batch is compared."""


@final
class SumComparison:
    """Compares Σ_i w_i · gradient_i with autograd's gradient of Σ_i w_i · loss_i, for random weights w_i.

    If a gradient of some example is wrong, the sums differ with probability 1. The comparison does not prove that the
    loss of an example depends on no other example.
    """

    def __init__(self, entropy: chance.Entropy | None) -> None:
        self._entropy = entropy
        self._has_compared = False

    def is_due(self) -> bool:
        """Whether to compare the next batch: the first one, and others by a coin."""
        if not self._has_compared:
            self._has_compared = True
            return True
        return bool(chance.bernoulli(p=SHARE, size=(1,), entropy=self._entropy)[0])

    def check(self, losses: Tensor, book: Bookkeeping) -> None:
        """Raise `Alone` if the sums differ. Sums with an example that is not finite are not compared."""
        count = losses.shape[0]
        if count == 1:
            return
        tolerance = tolerance_of(book.listener.calls)
        drawn = torch.from_numpy(chance.uniform(below=1 << 20, size=(count,), entropy=self._entropy))
        weights = (drawn * 2.0**-20 + 0.5).to(losses.device, losses.dtype)
        names = list(book.parameters)
        edges = [get_gradient_edge(book.parameters[name].tensor) for name in names]
        expected = dict(zip(names, gradients(losses * weights, edges, keep=True), strict=True))
        found = book.gradients(losses)
        if not bool(torch.isfinite(found.squared(losses)).all()) or found.left_out:
            return
        apart = length = 0.0
        sums = dict.fromkeys(names, 0.0)
        for name, part, (start, stop) in found.summed(weights):
            whole = expected[name]
            theirs = torch.zeros_like(part) if whole is None else whole[start:stop] if whole.dim() else whole
            apart += float((part - theirs).double().square().sum())
            sums[name] += float(theirs.double().square().sum())
        for name, whole in expected.items():
            own = 0.0 if whole is None else float(whole.double().square().sum())
            length += own
            apart += max(own - sums[name], 0.0)  # what no part covers
        if not math.sqrt(apart) <= tolerance * math.sqrt(length) + 1e-12:
            raise Alone("gradients that differ from autograd's in a random batch", is_lasting=True)
