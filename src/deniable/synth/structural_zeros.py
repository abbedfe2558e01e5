"""Impossible combinations of values (structural zeros): a pregnant man, a child with a pension.

Such rules are public facts about columns, not about the data. A mixture gives every combination some probability. Here
it is conditioned on the rules, exactly: rows that break a rule are drawn again, and marginals are computed from the
conditioned distribution. With boxes B_1, …, B_m (each a set of values for some columns), the probability of breaking a
rule follows by inclusion and exclusion,

    P(B_1 ∪ … ∪ B_m) = Σ_i P(B_i) - Σ_{i<j} P(B_i ∩ B_j) + …,

where an intersection of boxes is a box again, most of them empty, and a box has a product form in each component.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

import numpy as np

from deniable.errors import InvalidParameter
from deniable.synth.marginals import Marginal
from deniable.synth.mixture import Mixture

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Box = dict[int, NDArray[np.bool_]]

MOST_TERMS: Final = 4096
"""The most non-empty intersections of rules, including the rules themselves."""


_NOTHING: Final = 1e-12
"""A share of combinations below this is a rounding error."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Forbidden:
    """Rules, each with sets of values for some columns. A row breaks a rule if all these columns have such a value."""

    boxes: tuple[Box, ...]
    terms: tuple[tuple[int, Box], ...]
    """The boxes and their intersections, each with its sign in inclusion and exclusion."""

    @classmethod
    def of(cls, sizes: Sequence[int], rules: Sequence[Mapping[int, Collection[int]]]) -> Forbidden:
        """Rules by the indices of columns and of their values.

        >>> rule = Forbidden.of([2, 2], [{0: [1], 1: [0]}])
        >>> rule.allowed(np.array([[1, 0], [1, 1]]))
        array([False,  True])
        """
        boxes: list[Box] = []
        for rule in rules:
            box: Box = {}
            for column, values in rule.items():
                box[column] = np.zeros(sizes[column], dtype=bool)
                box[column][list(values)] = True
            boxes.append(box)
        terms: list[tuple[int, Box]] = []
        for each in boxes:
            terms += [(1, each), *((-sign, met) for sign, box in terms if (met := _both(box, each)) is not None)]
            if len(terms) > MOST_TERMS:
                rule_text = f"meet each other in more than {MOST_TERMS:,} ways"
                raise InvalidParameter("forbid", len(rules), rule_text, "give fewer rules, or say them by one column")
        return cls(tuple(boxes), tuple(terms))

    def allowed(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows break no rule; `rows` has the indices of values."""
        broken = np.zeros(len(rows), dtype=bool)
        for box in self.boxes:
            broken |= np.logical_and.reduce([mask[rows[:, column]] for column, mask in box.items()])
        return np.asarray(~broken)

    def forbids_all(self, sizes: Sequence[int]) -> bool:
        """Whether the rules exclude all combinations: under a uniform distribution, the allowed share is 0."""
        even = Mixture(np.ones(1), tuple(np.full((1, size), 1 / size) for size in sizes))
        return bool(self.boxes) and self.share(even) < _NOTHING

    def share(self, mixture: Mixture) -> float:
        """The probability that a row of the mixture breaks no rule."""
        inside = sum(sign * float(_within(mixture, box).weights.sum()) for sign, box in self.terms)
        return min(1.0, max(0.0, float(mixture.weights.sum()) - inside))

    def marginal(self, mixture: Mixture, *places: int) -> Array:
        """The joint probabilities of these columns, given that a row breaks no rule."""
        found = mixture.marginal(*places)
        for sign, box in self.terms:
            found = found - sign * _within(mixture, box, *places).marginal(*places)
        found = np.maximum(found, 0.0)
        found[self.certain(places, found.shape)] = 0.0  # exactly 0, without rounding errors
        whole = float(found.sum())
        return found / whole if whole > 0 else found

    def certain(self, places: Sequence[int], shape: tuple[int, ...]) -> NDArray[np.bool_]:
        """The cells of a marginal that are certainly 0."""
        inside = [_cells(box, places, shape) for box in self.boxes if set(box) <= set(places)]
        return np.asarray(np.logical_or.reduce(inside)) if inside else np.zeros(shape, dtype=bool)

    def known(self, measured: Sequence[Marginal]) -> list[Marginal]:
        """The noisy counts, with zeros in the cells that the rules exclude."""
        return [self._zeroed(each) for each in measured]

    def _zeroed(self, each: Marginal) -> Marginal:
        zeros = self.certain(each.columns, each.counts.shape)
        return each if not zeros.any() else replace(each, counts=np.where(zeros, 0.0, each.counts), zeros=zeros)


def _both(one: Box, other: Box) -> Box | None:
    """The intersection of two boxes; None if it is empty."""
    met = {**one, **{column: mask & one[column] if column in one else mask for column, mask in other.items()}}
    return met if all(mask.any() for mask in met.values()) else None


def _within(mixture: Mixture, box: Box, *kept: int) -> Mixture:
    """The part of a mixture inside a box: kept columns are restricted to it, the others only change the weights."""
    weights, columns = mixture.weights, list(mixture.columns)
    for column, mask in box.items():
        if column in kept:
            columns[column] = columns[column] * mask
        else:
            weights = weights * (columns[column] @ mask)
    return Mixture(weights, tuple(columns))


def _cells(box: Box, places: Sequence[int], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """The cells of a marginal that lie in a box of some of its columns."""
    inside = np.ones(shape, dtype=bool)
    for axis, place in enumerate(places):
        if place in box:
            inside &= box[place].reshape([-1 if each == axis else 1 for each in range(len(places))])
    return inside
