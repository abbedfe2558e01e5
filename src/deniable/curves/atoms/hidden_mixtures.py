"""Mixtures whose drawn index stays hidden, for mechanisms with a common outcome space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom, show
from deniable.curves.atoms.composite_atoms import check_weights
from deniable.curves.atoms.mechanism_atoms import GaussianAtom
from deniable.curves.atoms.user_supplied import FromPmf
from deniable.curves.curve import Curve
from deniable.curves.laws.derived_laws import CentreAgainstShifted, ShiftedAgainstCentre
from deniable.curves.laws.law import LawPair, Sided
from deniable.curves.outward_rounding import UNIT_ROUNDOFF
from deniable.errors import InvalidOperation, InvalidParameter


@final
@dataclass(frozen=True, slots=True)
class HiddenShifts(Atom):
    """N(0, 1) and Σ w_i N(μ_i, 1): how often a person took part is random and not revealed."""

    name: ClassVar[str] = "hidden_shifts"
    weights: tuple[float, ...]
    shifts: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "weights", tuple(curve_arguments.inner_probability("weights", w) for w in self.weights)
        )
        object.__setattr__(self, "shifts", tuple(curve_arguments.not_negative("shifts", m) for m in self.shifts))
        if abs(sum(self.weights) - 1) > 1e-9 or len(self.weights) != len(self.shifts) or max(self.shifts) == 0:
            raise InvalidParameter(
                "weights", "...", "must sum to 1, one for each shift; at least one shift must be positive"
            )
        object.__setattr__(self, "weights", tuple(curve_arguments.normalized(np.array(self.weights)).tolist()))

    def pair(self) -> LawPair:
        shifted = ShiftedAgainstCentre(self.weights, self.shifts)
        return LawPair(Sided.exact(CentreAgainstShifted(shifted)), Sided.exact(shifted))

    def expression(self) -> str:
        shifts = ", ".join(f"gaussian(mu={show(m)})" if m > 0 else "identity()" for m in self.shifts)
        return f"hidden_mixture([{', '.join(show(w) for w in self.weights)}], [{shifts}])"

    def gdp_bound(self) -> float | None:
        return max(self.shifts)


def _shift(curve: Curve) -> float:
    """μ of a product of Gaussians, rounded up; the μ of a single Gaussian is unchanged."""
    squares = [(atom.mu, count) for atom, count in curve.factors if isinstance(atom, GaussianAtom)]
    if len(squares) == 1 and squares[0][1] == 1:
        return squares[0][0]
    return math.sqrt(math.fsum(count * mu * mu for mu, count in squares)) * (1 + 4 * UNIT_ROUNDOFF)


def hidden_mixture(weights: Sequence[float], curves: Sequence[Curve]) -> Curve:
    """One of the mechanisms is drawn with public weights, and the attacker does not see which.

    Hiding the index helps only if the answers have a common outcome space, which a curve does not know in general. Two
    cases are supported. (1) Gaussians and their powers (`identity()` has shift 0), if the attacker sees one
    standardised answer, N(shift, 1) with the person and N(0, 1) without, whatever was drawn: a noisy sum to which a
    person contributed a random number of times, or a random number of compositions combined into one standardised mean.
    (2) `from_pmf(..., tied=True)` curves on the same outcomes.

    Everything else raises InvalidOperation. `mixture` (index revealed) is always a valid, larger bound, and the right
    one if the attacker can see the number of separate answers or the noise level.
    """
    shares, parts = check_weights(weights, curves)
    atoms = [[a for a, _ in c.factors] for c in parts]
    if all(isinstance(a, GaussianAtom) for group_ in atoms for a in group_):
        shifts = [_shift(c) for c in parts]
        merged: dict[float, float] = {}
        for w, m in zip(shares, shifts, strict=True):
            merged[m] = merged.get(m, 0.0) + w
        if len(merged) == 1:
            return parts[0]
        return Curve.of(HiddenShifts(tuple(merged.values()), tuple(merged)))
    pmfs = [a[0] for a, c in zip(atoms, parts, strict=True) if len(a) == 1 and c.factors[0][1] == 1]
    if len(pmfs) == len(parts) and all(isinstance(a, FromPmf) for a in pmfs):
        known = [a for a in pmfs if isinstance(a, FromPmf)]
        if len({len(a.p) for a in known}) == 1 and all(a.is_tied for a in known):
            p = sum((w * np.array(a.p) for w, a in zip(shares, known, strict=True)), np.zeros(len(known[0].p)))
            q = sum((w * np.array(a.q) for w, a in zip(shares, known, strict=True)), np.zeros(len(known[0].q)))
            return Curve.of(FromPmf(tuple(p / p.sum()), tuple(q / q.sum()), True))
    raise InvalidOperation(
        "hidden_mixture needs mechanisms that share one outcome space: Gaussians (and identity()), "
        "or from_pmf(..., tied=True) curves on the same outcomes; use mixture(...), which reveals the index and "
        "is always a valid bound"
    )
