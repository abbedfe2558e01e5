"""A lower bound on δ(ε) from a lattice law that dominates: a bound on what the lattice adds to δ is subtracted.

`convolution_tree` derives the bound from the variance of the roundings that put the losses on the lattice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from deniable.curves.composition.delta_panel import DeltaPanel
from deniable.curves.outward_rounding import Floats, Side

FAR = 9.0
"""Points farther than this many standard deviations of the rounding from ε have at most the weight e^(-FAR²/2)."""


@dataclass(frozen=True, slots=True)
class RoundedPanel:
    """A lower bound on δ(ε) of a product whose losses were rounded to a lattice.

    `panel` bounds δ of the lattice law from below; `masses` are the masses of the lattice law, in units of
    e^(log_scale); `variance` is V, the variance proxy of the rounding; `drift` bounds the error of positions; `beyond`
    is the P-mass of finite losses that the lattice law counts as infinite. It is read like a `DeltaPanel`: the other
    attributes come from `panel`.
    """

    panel: DeltaPanel
    masses: Floats
    variance: float
    drift: float
    beyond: float

    @property
    def side(self) -> Side:
        return "lower"

    @property
    def start(self) -> float:
        return self.panel.start

    @property
    def end(self) -> float:
        return self.panel.end

    @property
    def spread(self) -> float:
        return self.panel.spread

    @property
    def length(self) -> int:
        return self.panel.length

    @property
    def heads(self) -> Floats:
        return self.panel.heads

    def delta(self, epsilon: Floats) -> Floats:
        """The lower bound on δ(ε), infinite losses included."""
        at = epsilon + self.drift
        finite = self.panel.finite_delta(at) - self._added(at)
        return np.asarray(np.maximum(finite, 0.0) + self.panel.infinity)

    def rounding(self, epsilon: Floats) -> Floats:
        """The part of the distance between the bound and δ(ε) that comes from rounding in the FFTs."""
        return self.panel.rounding(epsilon)

    def _added(self, at: Floats) -> Floats:
        """An upper bound on what rounding to the lattice adds to δ: √V e^√V E[e^(-(ε-Y)²/2τ)], where Y is the lattice
        loss and τ as in `convolution_tree`.
        """
        panel, root = self.panel, math.sqrt(self.variance)
        tau = self.variance * (1 + root) / (1 - root)
        reach = math.ceil(FAR * math.sqrt(tau) / panel.step) + 1
        near = np.rint((at - panel.start) / panel.step).astype(np.int64)[..., None] + np.arange(-reach, reach + 1)
        inside = (near >= 0) & (near < len(self.masses))
        masses = np.where(inside, self.masses[np.clip(near, 0, len(self.masses) - 1)], 0.0)
        away = panel.start + near * panel.step - at[..., None]
        bump = np.sum(masses * np.exp(-away * away / (2 * tau)), axis=-1) * (1 + 1e-9)
        # Beyond FAR: the weight e^(-θz - z²/2τ) of a unit of tilted mass, largest at z = -FAR √τ if θ √τ < FAR.
        steep = panel.theta * math.sqrt(tau)
        far = math.exp(FAR * steep - FAR * FAR / 2) if steep < FAR / 2 else math.exp(steep * steep / 2)
        slack = (far + panel.noise * math.exp(steep * steep / 2)) * np.exp(
            np.minimum(-panel.theta * (at - panel.centre), 700.0)
        )
        scale = math.exp(min(panel.log_scale, 700.0)) * (1 + panel.relative)
        return np.asarray(root * math.exp(root) * (scale * (bump + slack) + self.beyond))


Panel = DeltaPanel | RoundedPanel
