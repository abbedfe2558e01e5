"""Answers that are seen only through bins: quantised curves (Pandey, Maleki & Kulkarni 2025)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, final

import numpy as np

from deniable.curves import curve_arguments
from deniable.curves.atoms.atom import Atom, show
from deniable.curves.atoms.composite_atoms import check_curve, curve_pair, is_exact, is_tied
from deniable.curves.atoms.mechanism_atoms import GaussianAtom
from deniable.curves.curve import Curve
from deniable.curves.laws import finite_law
from deniable.curves.laws.closed_form import upper_normal
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.laws.law import Law, LawPair, Sided
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats, Side
from deniable.errors import InvalidOperation, InvalidParameter, NotCertifiable
from deniable.numbers import root_up, up


@final
@dataclass(frozen=True, slots=True)
class QuantizedGaussian(Atom):
    """The bin of a Gaussian answer: bins of `width` standard deviations, one edge at `offset`."""

    name: ClassVar[str] = "quantized_gaussian"
    mu: float
    width: float
    offset: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", curve_arguments.positive("mu", self.mu))
        object.__setattr__(self, "width", curve_arguments.positive("width", self.width))
        object.__setattr__(self, "offset", curve_arguments.finite("offset", self.offset) % self.width)

    @property
    def tied(self) -> bool:
        return False

    def pair(self) -> LawPair:
        cells = (42.0 + self.mu) / self.width
        if cells > finite_law.LARGEST_SUPPORT:
            raise NotCertifiable(
                f"bins of width {self.width:g} are too many to enumerate; use gaussian(mu={self.mu:g}), a valid bound"
            )
        first = math.floor((-21.0 - self.offset) / self.width)
        edges = self.offset + self.width * np.arange(first, first + math.ceil(cells) + 3, dtype=float)
        under_p, under_q = _bin_masses(edges), _bin_masses(edges - self.mu)
        # Less than NEGLIGIBLE mass lies beyond the outermost edges; it is cut off.
        keep = (under_p > 1e-150) & (under_q > 1e-150)
        lost = [finite_law.NEGLIGIBLE + float(np.sum(m[~keep])) for m in (under_p, under_q)]
        loss = np.log(under_p[keep]) - np.log(under_q[keep])
        error = 2e-16 * (4096 + 64 / self.width)
        return LawPair(
            finite_law.truncated(loss, under_p[keep], cut=lost[0], relative_error=error),
            finite_law.truncated(-loss, under_q[keep], cut=lost[1], relative_error=error),
        )

    def expression(self) -> str:
        extra = f", offset={show(self.offset)}" if self.offset else ""
        return f"quantized(gaussian(mu={show(self.mu)}), width={show(self.width)}{extra})"

    def renyi_bound(self, order: float) -> float | None:
        return 0.5 * order * self.mu * self.mu * (1 + 1e-15)

    def gdp_bound(self) -> float | None:
        return self.mu


def _bin_masses(edges: Floats) -> Floats:
    """Standard normal mass between neighbouring edges, from the tail on the bin's own side."""
    right = upper_normal(edges[:-1]) - upper_normal(edges[1:])
    left = upper_normal(-edges[1:]) - upper_normal(-edges[:-1])
    return np.asarray(np.where(edges[:-1] + edges[1:] > 0, right, left))


@final
@dataclass(frozen=True, slots=True)
class QuantizedLoss(Atom):
    """The bin of the privacy loss of one atom, between the given edges."""

    name: ClassVar[str] = "quantized_loss"
    curve: Curve
    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        check_curve("curve", self.curve)
        edges = curve_arguments.numbers_array("edges", self.edges)
        if np.any(np.diff(edges) <= 0) or np.max(np.abs(edges)) > 600:
            raise InvalidParameter("edges", "...", "must increase, and stay within [-600, 600]")
        object.__setattr__(self, "edges", tuple(edges.tolist()))
        pair = curve_pair(self.curve)
        if not all(_is_exact(side) for side in (pair.forward, pair.backward)):
            raise InvalidOperation(
                "quantized(edges=) needs a mechanism whose privacy loss is known exactly: one use of one atom, not a "
                "bound such as zcdp and not a product; the curve itself is always a valid bound"
            )

    @property
    def tied(self) -> bool:
        return is_tied(self.curve)

    @property
    def is_exact(self) -> bool:
        return is_exact(self.curve)

    def pair(self) -> LawPair:
        pair, edges = curve_pair(self.curve), np.array(self.edges)

        # The upper side is made from the upper laws and the lower side from the lower laws. Upper laws count the mass
        # that was cut off as infinite loss; lower laws must not, because that loss is not certain.
        def bins(one: Sided, other: Sided, at: Floats) -> Sided:
            return Sided(
                _merge_bins(one.upper, other.upper, at, "upper"), _merge_bins(one.lower, other.lower, at, "lower")
            )

        return LawPair(bins(pair.forward, pair.backward, edges), bins(pair.backward, pair.forward, -edges[::-1]))

    def expression(self) -> str:
        return f"quantized({self.curve.expression()}, edges=[{', '.join(show(e) for e in self.edges)}])"

    def inherited_renyi(self, order: float) -> tuple[float, float] | None:
        one = self.curve.renyi_function(order)  # post-processing: the bin is a function of the answer
        return one, one

    def gdp_bound(self) -> float | None:
        return self.curve.gdp()


def _is_exact(side: Sided) -> bool:
    """Whether the two sides are the same law, up to values that were merged because they agree to rounding."""
    if side.upper is side.lower or side.upper == side.lower:
        return True
    one, two = side.upper, side.lower
    if not isinstance(one, FiniteLaw) or not isinstance(two, FiniteLaw) or len(one.losses) != len(two.losses):
        return False
    return bool(np.allclose(one.losses, two.losses, rtol=0, atol=1e-9))


def _merge_bins(ahead: Law, back: Law, edges: Floats, side: Side) -> FiniteLaw:
    """The law of the bins between edges: masses right of the middle bin from the upper tails, left of it from the lower
    tails.
    """
    first, second, error = ahead.tails(edges)
    p_above, q_above = first - ahead.infinity, second * np.exp(-edges)
    q_below, p_below, back_error = back.tails(-edges)
    q_below, p_below = q_below - back.infinity, p_below * np.exp(edges)
    # The middle bin contains the median of P; its masses are the finite mass minus the other bins.
    middle = int(np.searchsorted(-p_above, -0.5))
    masses, tails = [], []
    for below, above, whole in ((p_below, p_above, 1 - ahead.infinity), (q_below, q_above, 1 - back.infinity)):
        left = np.diff(np.concatenate(([0.0], below[:middle])))
        right = -np.diff(np.append(above[middle:], 0.0))
        rest = whole - (below[middle - 1] if middle > 0 else 0.0) - (above[middle] if middle < len(edges) else 0.0)
        masses.append(np.maximum(np.concatenate((left, [rest], right)), 0.0))
        tails.append(np.concatenate((below[:middle], [1.0], above[middle:])))
    # A difference of tails has the rounding error of the larger tail: lighter bins cannot be resolved.
    worst = float(np.max(np.asarray(error))) + float(np.max(np.asarray(back_error))) + 4 * UNIT_ROUNDOFF
    known = (masses[0] > 1e6 * worst * tails[0]) & (masses[1] > 1e6 * worst * tails[1])
    lost = float(np.sum(masses[0][~known] + worst * tails[0][~known] * (tails[0][~known] < 1)))
    p, q, p_tail, q_tail = (values[known] for values in (*masses, *tails))
    loss, doubt = np.log(p) - np.log(q), 4 * worst * (p_tail / p + q_tail / q)
    if side == "upper":
        return finite_law.merged(loss + doubt, p * (1 + doubt), min(ahead.infinity + lost, 1.0), 0.0, side="upper")
    return finite_law.merged(loss - doubt, p * (1 - doubt), ahead.infinity, 0.0, side="lower")


def quantized(
    curve: Curve, *, width: float | None = None, offset: float = 0.0, edges: Sequence[float] | None = None
) -> Curve:
    """The same mechanism seen through bins: post-processing, so never worse (Pandey, Maleki & Kulkarni 2025).

    Give exactly one of `width` and `edges`. `width` (a Gaussian curve): the answer is known only up to bins
    [offset + n width, offset + (n+1) width), in units of the noise's standard deviation. This is one position of the
    true answers relative to the bins (the person changes the answer from 0 to μ): a guarantee over all datasets needs
    the worst offset. `edges` (one atom): only the bin of the privacy loss between these increasing edges is seen;
    outcomes that only one of the datasets can have stay separate.
    """
    check_curve("curve", curve)
    if curve_arguments.exactly_one(width=width, edges=edges) == "edges":
        return Curve.of(QuantizedLoss(curve, tuple(curve_arguments.numbers_array("edges", edges).tolist())))
    if not curve.factors or not all(isinstance(a, GaussianAtom) for a, _ in curve.factors):
        raise InvalidOperation("quantized(width=) is for Gaussian curves; for others give edges= of the privacy loss")
    squares = (n * Fraction(a.mu) ** 2 for a, n in curve.factors if isinstance(a, GaussianAtom))
    mu = up(root_up(sum(squares, Fraction(0))))
    return Curve.of(
        QuantizedGaussian(mu, curve_arguments.positive("width", width), curve_arguments.finite("offset", offset))
    )
