"""The distribution of the privacy loss, for plots and tables: masses on an even grid of losses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from deniable.curves.composition import lattice
from deniable.curves.composition.delta_panel import DeltaPanel
from deniable.curves.composition.law_product import Product
from deniable.curves.composition.tilt_plan import Target
from deniable.curves.laws import finite_law
from deniable.curves.meaning.curve_readings import product_of
from deniable.curves.outward_rounding import Floats, quietly
from deniable.errors import NotCertifiable

if TYPE_CHECKING:
    from deniable.curves.curve import Curve

POINTS = 801
NEGLIGIBLE = 1e-9
"""The most mass beyond the grid of an unbounded loss. A larger mass at infinity is real."""
EXACT_CUT = 1e-80
"""As `NEGLIGIBLE`, for a finite law, whose far tails are cut at 1e-90."""


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LossDistribution:
    """P-masses of the privacy loss L = log dP/dQ; `infinity` is P(L = +inf).

    `losses` are the exact values if they are few, else an even grid (a dominating grid law, so means are slightly too
    large).
    """

    losses: Floats
    masses: Floats
    infinity: float
    cut: float = NEGLIGIBLE
    """Mass at infinity that may be an artefact: the computation moves cut tails there."""

    def __repr__(self) -> str:
        ends = f" from {self.losses[0]:.4g} to {self.losses[-1]:.4g}" if len(self.losses) else ""
        moments = f"mean {self.mean:.4g}, deviation {self.deviation:.4g}"
        return f"<LossDistribution on {len(self.losses)} losses{ends}: {moments}>"

    @property
    def mean(self) -> float:
        """E L; inf if some answer reveals everything."""
        return float(np.sum(self.masses * self.losses)) if self.infinity <= self.cut else math.inf

    @property
    def deviation(self) -> float:
        """Standard deviation; inf if some answer reveals everything."""
        if self.infinity > self.cut:
            return math.inf
        return math.sqrt(max(float(np.sum(self.masses * (self.losses - self.mean) ** 2)), 0.0))


def distribution(curve: Curve) -> LossDistribution:
    """The loss distribution of a curve (`Curve.loss`)."""
    forward, backward = product_of(curve)
    return of_direction(curve if forward is backward else curve.symmetrized(), True)


@quietly
def of_direction(curve: Curve, is_forward: bool) -> LossDistribution:
    """The loss distribution of one direction (`Direction.loss`)."""
    return of_product(product_of(curve)[0 if is_forward else 1])


def of_product(product: Product) -> LossDistribution:
    """The loss distribution of a product of laws, from its upper law."""
    if not product.needs_panels:
        law = product.single(product.upper)
        known = finite_law.of_jumps(law)
        if known is not None and len(known.losses) <= 4 * POINTS:
            return LossDistribution(known.losses, known.masses, known.infinity, cut=EXACT_CUT)
        low, high = lattice.reach(law, 1e-12)
        grid = lattice.above(law, np.linspace(low, max(high, low + 1e-9), POINTS))
        return LossDistribution(grid.losses, grid.masses, grid.infinity, _cut(product))
    target = Target(0.0, max(product.aim(1e-6).epsilon, 1e-6), math.log(1e-6))
    panels = [panel for panel in product.panels_for(target, ("upper",)) if isinstance(panel, DeltaPanel)]
    if not panels:
        uses = sum(f.uses for f in product.upper)
        raise NotCertifiable(f"the loss distribution of {uses:,} uses cannot be resolved; use fewer")
    panel = panels[0]
    masses = (panel.heads[:-1] - panel.heads[1:]) * math.exp(panel.log_scale)
    # A block of lattice points is placed at its middle.
    losses = panel.start + panel.stride * np.arange(len(masses)) + 0.5 * (panel.stride - panel.step)
    block = max(1, len(masses) // POINTS)
    edges = np.arange(0, len(masses), block)
    merged = np.add.reduceat(masses, edges)
    centres = np.add.reduceat(masses * losses, edges) / np.maximum(merged, 1e-300)
    keep = merged > 1e-14
    return LossDistribution(centres[keep], merged[keep], panel.infinity, _cut(product))


def _cut(product: Product) -> float:
    """How much of the mass at infinity may be cut tails: 0 if some answer really reveals everything."""
    return 0.0 if product.infinity("lower") > EXACT_CUT else NEGLIGIBLE
