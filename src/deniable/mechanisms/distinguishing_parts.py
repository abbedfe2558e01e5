"""What tells two values apart: the independent parts of an answer, and the law of the privacy loss they add up to.

An answer may be a vector, a tuple, a stream of totals: it has no law on a line. But all that tells two values x and x2
apart is one number, the privacy loss log p(y | x)/p(y | x2) of the answer y, which every best test is a threshold of
(Neyman & Pearson). Losses of independent parts add up, so that the laws of the loss on x and on x2 are convolutions.

    mechanism.told_apart(x, x2)    the parts in which answers differ: `AnswerPart`s, or `Losses` where parts depend
    on others joined(parts)                  one part, where the answer is one number or Gaussian noise on several;
    else `Losses`

Cells and bins only ever join outcomes, in both laws at once. So what is drawn here is the true pair after
post-processing: no loss is larger than it is, and total variation is at most what it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final, final

import numpy as np

from deniable.errors import NOTHING, InvalidOperation, InvalidParameter
from deniable.mechanisms.input_values import Floats
from deniable.mechanisms.laws import Masses, NoiseLaw, OutputLaw, Pieces, Stairs, are_numbers, between, image, in_cells

MOST_LOSSES: Final = 1000
"""Losses that are told apart; more are joined with their neighbours."""
CELLS: Final = 400
"""Cells between two values that noise is put around, and in three deviations of Gaussian noise."""
UNSEEN: Final = 1e-13
"""What lies beyond, on either side, is joined into one outcome once there are too many."""
LIGHTEST: Final = 1e-30
"""The largest and the smallest loss stand alone where they are at least as likely as this."""
SAME: Final = 1e-12
MANY: Final = 10**4
"""Outcomes beyond which equal losses are not looked for, only bins."""
FINE: Final = 2.0**46
"""Steps in one deviation of Gaussian noise on real numbers, as in `steps.FINENESS`."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class AnswerPart:
    """One of the independent numbers or choices that an answer is made from: its laws on two values."""

    one: OutputLaw
    two: OutputLaw
    name: str = ""
    """Which of several it is; others have the same law on both values. Empty if it is the answer."""
    times: int = 1
    before: str = ""
    """What it is, where an answer is made from it by post-processing."""
    is_answer: bool = False
    """Whether it is what `release` returns, and not one number of it."""

    @property
    def losses(self) -> Losses:
        """How likely each privacy loss is, of all `times` together."""
        return Losses.of(*outcomes(self.one, self.two)).power(self.times)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """Outcomes by their privacy loss, which rises: how likely they are on x (`one`) and on x2 (`two`)."""

    one: Floats
    two: Floats
    before: str = ""

    @property
    def values(self) -> Floats:
        """log one/two: infinite for outcomes that one of the values never has."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.one) - np.log(self.two))

    @classmethod
    def of(cls, one: Any, two: Any, before: str = "") -> Losses:
        """Of outcomes in any order; those of equal loss are one."""
        p, q = np.asarray(one, dtype=float), np.asarray(two, dtype=float)
        seen = np.maximum(p, q) > 0
        found = cls(p[seen], q[seen], before)
        if len(found.one) > MANY:
            return found._binned()
        order = np.argsort(found.values, kind="stable")
        losses = found.values[order]
        with np.errstate(invalid="ignore"):
            rises = np.diff(losses) > SAME * np.maximum(1.0, np.abs(losses[1:]))
        places = np.concatenate(([0], np.cumsum(rises | (np.isinf(losses[1:]) & np.isfinite(losses[:-1])))))
        merged = cls(_summed(places, found.one[order]), _summed(places, found.two[order]), before)
        return merged if len(merged.one) <= MOST_LOSSES else merged._binned()

    def _binned(self) -> Losses:
        """The same in bins of equal width where nearly all of it lies, none of which has losses of both signs. The
        smallest and the largest loss stand alone.
        """
        losses = self.values
        finite = np.isfinite(losses)
        least, most = float(np.min(losses[finite])), float(np.max(losses[finite]))
        rough = (most - least) / MANY or 1.0
        weight = _summed(((losses[finite] - least) / rough).astype(int), (self.one + self.two)[finite])
        heavy = np.flatnonzero((np.cumsum(weight) > UNSEEN) & (np.cumsum(weight[::-1])[::-1] > UNSEEN))
        low, high = least + rough * heavy[0], min(most, least + rough * (heavy[-1] + 1))
        width = (high - low) / MOST_LOSSES or 1.0
        first, last = math.floor(low / width), math.floor(high / width)
        bins = np.floor(np.clip(np.where(finite, losses, 0.0), low, high) / width).astype(int) - first + 2
        for end, place in ((least, 1), (most, last - first + 3)):
            ends = finite & (np.abs(losses - end) <= SAME * max(1.0, abs(end)))
            if max(np.sum(self.one[ends]), np.sum(self.two[ends])) > LIGHTEST:
                bins[ends] = place
        bins[losses == -math.inf], bins[losses == math.inf] = 0, last - first + 4
        one, two = _summed(bins, self.one), _summed(bins, self.two)
        seen = np.maximum(one, two) > 0
        return Losses(one[seen], two[seen], self.before)

    def times(self, other: Losses) -> Losses:
        """Both outcomes are seen: losses add up."""
        one, two = (np.outer(a, b).ravel() for a, b in ((self.one, other.one), (self.two, other.two)))
        return Losses.of(one, two, self.before or other.before)

    def power(self, count: int) -> Losses:
        """So many independent outcomes."""
        found, square = NOTHING_TOLD, self
        while count:
            found, count = (found.times(square) if count % 2 else found), count // 2
            square = square.times(square) if count else square
        return found


def _summed(places: Any, masses: Floats) -> Floats:
    return np.asarray(np.bincount(places, masses), dtype=np.float64)


NOTHING_TOLD: Final = Losses(np.ones(1), np.ones(1))

Told = AnswerPart | Losses


def outcomes(one: OutputLaw, two: OutputLaw) -> tuple[Floats, Floats]:
    """The masses of two laws on outcomes that they share: answers, or cells in which their ratio changes little."""
    if isinstance(one, Masses) and isinstance(two, Masses):
        one, two = alike(one, two)
        return one.masses, two.masses
    borders = _borders(one, two)
    return between(one, borders), between(two, borders)


def alike(one: Masses, two: Masses) -> tuple[Masses, Masses]:
    """Both laws on the answers of either: an answer that one of them has alone gets a place in both."""
    answers = tuple(dict.fromkeys((*one.answers, *two.answers)))
    told = [dict(zip(law.answers, law.masses.tolist(), strict=True)) for law in (one, two)]
    first, second = (Masses(answers, np.array([each.get(answer, 0.0) for answer in answers])) for each in told)
    return first, second


def _borders(one: OutputLaw, two: OutputLaw) -> Floats:
    """Where cells end. Laplace noise has one ratio on all answers beyond both values, a staircase on each stair."""
    if isinstance(one, Pieces) and isinstance(two, Pieces):
        return np.unique(np.concatenate((one.edges, two.edges)))
    if isinstance(one, Stairs) and isinstance(two, Stairs):
        edges = np.unique(np.concatenate((one.edges(), two.edges())))
        # Edges of both that only rounding tells apart would leave cells of nothing but rounding.
        return edges[np.concatenate(([True], np.diff(edges) > 1e-9 * one.step))]
    if not isinstance(one, NoiseLaw) or not isinstance(two, NoiseLaw):
        raise InvalidOperation("the laws on the two values are of two kinds, so that answers cannot be compared")
    low, high = sorted((one.centre, two.centre))
    far = 0.0 if one.kind == "laplace" else 10 * max(one.deviation, two.deviation)
    cells = CELLS if one.kind == "laplace" else 4 * CELLS
    if not one.is_discrete:
        return np.linspace(low - far, high + far, cells + 1)
    # An outcome of whole numbers ends at its border: the last one holds what is above the larger value.
    return np.unique(np.floor(np.linspace(low - far, max(low, high - 1) + far, cells + 1)))


def joined(parts: Sequence[Told]) -> Told:
    """All parts as one: as it is if there is one, and as one number where all are Gaussian noise on real numbers."""
    if len(parts) == 1 and (isinstance(parts[0], Losses) or parts[0].times == 1):
        return parts[0]
    bells = [part for part in parts if isinstance(part, AnswerPart) and _is_bell(part)]
    if bells and len(bells) == len(parts):
        return _along(bells)
    rest: list[Told] = [part for part in parts if part not in bells]
    return all_losses([*rest, *([_along(bells)] if bells else [])])


def all_losses(parts: Iterable[Told]) -> Losses:
    """The law of the loss of all parts together."""
    return reduce(Losses.times, (each if isinstance(each, Losses) else each.losses for each in parts), NOTHING_TOLD)


def _is_bell(part: AnswerPart) -> bool:
    return isinstance(part.one, NoiseLaw) and part.one.kind == "gaussian" and not part.one.is_discrete


def _along(bells: Sequence[AnswerPart]) -> AnswerPart:
    """Gaussian noise on several numbers tells two values apart along the way from one to the other, and not across."""
    levels = {part.one.width * part.one.spacing for part in bells if isinstance(part.one, NoiseLaw)}
    level = levels.pop() if len(levels) == 1 else 1.0
    unit = "" if level != 1.0 or not levels else ", in standard deviations of the noise"
    away = math.sqrt(sum(part.times * ((part.two.mean - part.one.mean) / _level(part.one)) ** 2 for part in bells))
    one, two = (NoiseLaw("gaussian", FINE, level / FINE, False, centre) for centre in (0.0, level * away))
    name = f"how far the answer lies along the way from the first value to the second{unit}"
    return AnswerPart(one, two, name, before=bells[0].before)


def _level(law: OutputLaw) -> float:
    return law.width * law.spacing if isinstance(law, NoiseLaw) else law.deviation


# -- for mechanisms that tell their parts ----------------------------------------------------------------------------


def numbers(noisy: Any, one: Any, two: Any, names: Callable[[int], str], before: str = "") -> list[Told]:
    """The numbers of a statistic that differ, with their noise; the first of them where none does. A statistic that is
    no array is one number, and its noisy value the answer.
    """
    first, second = (np.ravel(each).tolist() for each in (one, two))
    if len(first) != len(second) or not first:
        raise InvalidParameter("x", NOTHING, "must be as many numbers as x2, and one at least")
    apart = [i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b] or [0]
    alone, is_answer = len(first) == 1, np.ndim(one) == 0 and not before
    return [
        AnswerPart(noisy.around(first[i]), noisy.around(second[i]), "" if alone else names(i), 1, before, is_answer)
        for i in apart
    ]


def the_answer(parts: Sequence[Told]) -> AnswerPart | None:
    """The part that is what `release` returns, where one is."""
    alone = parts[0] if len(parts) == 1 else None
    return alone if isinstance(alone, AnswerPart) and alone.is_answer and alone.times == 1 else None


def pushed_apart(part: AnswerPart, function: Callable[[Any], Any]) -> AnswerPart:
    """What a function makes of an answer, on two values: read in the same cells of both."""
    answers, one, two = listed(part)
    made: dict[Any, list[float]] = {}
    for answer, p, q in zip(answers, one, two, strict=True):
        found = made.setdefault(image(function, answer), [0.0, 0.0])
        found[0] += p
        found[1] += q
    if are_numbers(made):
        made = dict(sorted(made.items()))
    first, second = np.array(list(made.values())).T
    return AnswerPart(Masses(tuple(made), first), Masses(tuple(made), second), is_answer=True)


def listed(part: AnswerPart) -> tuple[list[Any], list[float], list[float]]:
    """Answers, or the middles of cells, and how likely they are on two values."""
    if isinstance(part.one, Masses) and isinstance(part.two, Masses):
        one, two = alike(part.one, part.two)
        return list(one.answers), one.masses.tolist(), two.masses.tolist()
    middles, (here, there) = in_cells(part.one, part.two)
    return middles, here, there


def named(parts: Iterable[Told], name: str) -> list[Told]:
    """Parts of one of several mechanisms, whose answers come in a tuple."""
    return [
        replace(p, name=f"{name}, {p.name}" if p.name else name, is_answer=False) if isinstance(p, AnswerPart) else p
        for p in parts
    ]


def made_from(parts: Iterable[Told], before: str) -> list[Told]:
    """Parts that an answer is made from without another look at the data."""
    return [
        replace(p, before=p.before or before, is_answer=False)
        if isinstance(p, AnswerPart)
        else replace(p, before=before)
        for p in parts
    ]


def repeated(parts: Iterable[Told], count: int) -> list[Told]:
    """The parts of so many independent answers, which come in a tuple: also one comes so."""
    return [
        replace(p, times=p.times * count, is_answer=False) if isinstance(p, AnswerPart) else p.power(count)
        for p in parts
    ]


def differing(parts: Iterable[Told]) -> list[Told]:
    """Those that tell anything; the first of them where none does."""
    every = list(parts)
    return [p for p in every if isinstance(p, Losses) or not _equal(p)] or every[:1]


def _equal(part: AnswerPart) -> bool:
    one, two = part.one, part.two
    if isinstance(one, Masses) and isinstance(two, Masses):
        return one.answers == two.answers and bool(np.array_equal(one.masses, two.masses))
    if isinstance(one, Pieces) and isinstance(two, Pieces):
        return bool(np.array_equal(one.edges, two.edges) and np.array_equal(one.masses, two.masses))
    return bool(one == two)
