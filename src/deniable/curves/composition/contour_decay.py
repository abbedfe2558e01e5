"""Bounds on how fast exponential moments decay along a line of the complex plane.

A contour integral ends at a last frequency. What lies beyond it is bounded by |M(c + iω)| / M(c), M(s) = E_P e^(sL).
The bounds come from the tilted law of the loss: from separate clusters of losses, from uniform laws that it contains,
and from the total variation of its density. The theory page derives them ("Contour integrals").
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from deniable.curves.outward_rounding import Floats

MOST_KNOWN = 4096
"""The most bounds on a moment at single frequencies that are cached."""


class Bump(NamedTuple):
    """|M(c + iω)| <= M(c) exp(-square ω²) for every ω up to `until`."""

    square: float
    until: float = math.inf


class Layers(NamedTuple):
    """Uniform laws that the tilted law of the loss contains: their masses and lengths."""

    masses: Floats
    lengths: Floats

    def exponent(self, frequency: float) -> float:
        """Σ m (1 - |sin x / x|), x = ω length / 2, rounded down: 1 - |sin x / x| >= min(x²/π², 1 - 1/π)."""
        turns = (frequency / (2 * math.pi)) * self.lengths
        return float(np.sum(self.masses * np.minimum(turns * turns, 1 - 1 / math.pi))) * (1 - 1e-9)


@dataclass(frozen=True, slots=True, eq=False)
class Decay:
    """Bounds on |M(c + iω)| / M(c): each item is one, and `variation` / ω is one more; the smallest counts."""

    bumps: tuple[Bump, ...] = ()
    layers: tuple[Layers, ...] = ()
    variation: float = math.inf
    _known: dict[float, float] = field(default_factory=dict, repr=False)

    def exponent(self, frequency: float) -> float:
        """-log of the bound at ω. Searches ask for the same frequencies again and again."""
        found = self._known.get(frequency)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[frequency] = self._exponent(frequency)
        return found

    def _exponent(self, frequency: float) -> float:
        found = [bump.square * frequency**2 for bump in self.bumps if frequency <= bump.until]
        found += [layers.exponent(frequency) for layers in self.layers]
        by_variation = math.log(frequency) - math.log(self.variation) if self.variation < math.inf else 0.0
        return max(0.0, by_variation, *found)
