"""The distribution of the privacy loss, for looking at: masses on an even grid of losses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from deniable.curves import compose, lattice
from deniable.curves.laws.finite import FiniteLaw
from deniable.curves.rounding import Floats, quietly
from deniable.curves.views import product_of
from deniable.errors import NotCertifiable

if TYPE_CHECKING:
    from deniable.curves.curve import Curve

POINTS = 801
NEGLIGIBLE = 1e-9
"""Mass beyond the grid of an unbounded loss; more than this is a real chance of infinite loss."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class LossDistribution:
    """P-masses of the privacy loss L = log dP/dQ (forward direction); `infinity` is P(L = +inf).

    `losses` are the exact values if there are few, else an even grid (a dominating grid law, so means are a hair too
    large).
    """

    losses: Floats
    masses: Floats
    infinity: float

    @property
    def mean(self) -> float:
        """E L; inf if some answer reveals everything."""
        return float(np.sum(self.masses * self.losses)) if self.infinity <= NEGLIGIBLE else math.inf

    @property
    def deviation(self) -> float:
        """Standard deviation; inf if some answer reveals everything."""
        if self.infinity > NEGLIGIBLE:
            return math.inf
        return math.sqrt(max(float(np.sum(self.masses * (self.losses - self.mean) ** 2)), 0.0))


@quietly
def distribution(curve: Curve) -> LossDistribution:
    """See `Curve.loss`."""
    forward, _ = product_of(curve)
    if not forward.needs_panels:
        law = forward.single(forward.upper)
        if isinstance(law, FiniteLaw) and len(law.losses) <= 4 * POINTS:
            return LossDistribution(law.losses, law.masses, law.infinity)
        low, high = lattice.reach(law, 1e-12)
        grid = lattice.above(law, np.linspace(low, max(high, low + 1e-9), POINTS))
        return LossDistribution(grid.losses, grid.masses, grid.infinity)
    target = compose.Target(0.0, max(forward.aim(1e-6).epsilon, 1e-6), math.log(1e-6))
    panels = forward.panels_for(target, ("upper",))
    if not panels:
        uses = sum(f.uses for f in forward.upper)
        raise NotCertifiable(f"the loss of {uses:,} uses together is not resolved; look at fewer of them")
    panel = panels[0]
    masses = (panel.heads[:-1] - panel.heads[1:]) * math.exp(panel.log_scale)
    # A block of lattice points stands at its middle.
    losses = panel.start + panel.stride * np.arange(len(masses)) + 0.5 * (panel.stride - panel.step)
    block = max(1, len(masses) // POINTS)
    edges = np.arange(0, len(masses), block)
    merged = np.add.reduceat(masses, edges)
    centres = np.add.reduceat(masses * losses, edges) / np.maximum(merged, 1e-300)
    keep = merged > 1e-14
    return LossDistribution(centres[keep], merged[keep], panel.infinity)
