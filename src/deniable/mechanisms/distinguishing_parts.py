"""What distinguishes two values: the independent parts of an answer, and the law of their total privacy loss.

An answer may be a vector, a tuple or a stream of totals, which has no distribution on a line. But a single number
distinguishes two values x and x2: the privacy loss log p(y | x)/p(y | x2) of the answer y. Every best test is a
threshold on it (Neyman & Pearson). Losses of independent parts add up, so the laws of the loss on x and on x2 are
convolutions.

    mechanism.told_apart(x, x2)    the parts in which answers differ: `AnswerPart`s, or `Losses` if parts are dependent
    joined(parts)                  one part, if the answer is one number or Gaussian noise on several; else `Losses`

Cells and bins only merge outcomes, in both laws at once. So the result is the true pair after post-processing: losses
and total variation are never larger than the true ones.
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
from deniable.mechanisms.noise_shapes import ROUNDED_GAUSSIAN

MOST_LOSSES: Final = 1000
"""Most distinct losses; beyond, neighbouring ones are merged."""
CELLS: Final = 400
"""Cells between two noise centres, and in three standard deviations of Gaussian noise."""
UNSEEN: Final = 1e-13
"""If there are too many losses, the outermost ones on each side, up to this probability, are merged into one bin."""
LIGHTEST: Final = 1e-30
"""The largest and the smallest loss keep a bin of their own if their probability is at least this."""
SAME: Final = 1e-12
MANY: Final = 10**4
"""Most outcomes whose equal losses are merged exactly; beyond, bins are used directly."""
FINE: Final = 2.0**46
"""Steps in one standard deviation of Gaussian noise on real numbers, as in `noise_steps.FINENESS`."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class AnswerPart:
    """One of the independent numbers or choices that an answer consists of: its laws on two values."""

    one: OutputLaw
    two: OutputLaw
    name: str = ""
    """The name of this part if the answer has several parts; the parts that are not listed have equal laws. Else ""."""
    times: int = 1
    before: str = ""
    """A description of the part, if the answer is computed from it by post-processing; else ""."""
    is_answer: bool = False
    """Whether this part is the whole answer that `release` returns, and not one number of it."""

    @property
    def losses(self) -> Losses:
        """The law of the privacy loss, of all `times` repetitions together."""
        return Losses.of(*outcomes(self.one, self.two)).power(self.times)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """Outcomes ordered by their privacy loss: their probabilities on x (`one`) and on x2 (`two`)."""

    one: Floats
    two: Floats
    before: str = ""

    @property
    def values(self) -> Floats:
        """log one/two: infinite for outcomes that are impossible on one of the values."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.one) - np.log(self.two))

    @classmethod
    def of(cls, one: Any, two: Any, before: str = "") -> Losses:
        """The law of the loss from the probabilities of outcomes in any order; outcomes of equal loss are merged."""
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
        """The same in bins of equal width where nearly all mass lies. No bin contains losses of both signs, and the
        smallest and the largest loss have their own.
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
        """The law if both outcomes are seen: their losses add up."""
        one, two = (np.outer(a, b).ravel() for a, b in ((self.one, other.one), (self.two, other.two)))
        return Losses.of(one, two, self.before or other.before)

    def power(self, count: int) -> Losses:
        """`count` independent outcomes."""
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
    """The masses of two laws on common outcomes: answers, or cells in which their ratio changes little."""
    if isinstance(one, Masses) and isinstance(two, Masses):
        one, two = alike(one, two)
        return one.masses, two.masses
    borders = _borders(one, two)
    return between(one, borders), between(two, borders)


def alike(one: Masses, two: Masses) -> tuple[Masses, Masses]:
    """Both laws on the union of their answers. An answer that only one law has gets mass 0 in the other law."""
    answers = tuple(dict.fromkeys((*one.answers, *two.answers)))
    by_answer = [dict(zip(law.answers, law.masses.tolist(), strict=True)) for law in (one, two)]
    first, second = (Masses(answers, np.array([each.get(answer, 0.0) for answer in answers])) for each in by_answer)
    return first, second


def _borders(one: OutputLaw, two: OutputLaw) -> Floats:
    """The ends of cells. The likelihood ratio of Laplace noise is constant beyond both values; the likelihood ratio of
    a staircase is constant on each stair.
    """
    if isinstance(one, Pieces) and isinstance(two, Pieces):
        return np.unique(np.concatenate((one.edges, two.edges)))
    if isinstance(one, Stairs) and isinstance(two, Stairs):
        edges = np.unique(np.concatenate((one.edges(), two.edges())))
        # Edges that differ only by rounding would enclose cells that contain only rounding errors.
        return edges[np.concatenate(([True], np.diff(edges) > 1e-9 * one.step))]
    if not isinstance(one, NoiseLaw) or not isinstance(two, NoiseLaw):
        raise InvalidOperation("the laws on the two values are of two kinds, so that answers cannot be compared")
    low, high = sorted((one.centre, two.centre))
    far = 0.0 if one.shape.ratio_is_constant_beyond else 10 * max(one.deviation, two.deviation)
    cells = CELLS if one.shape.ratio_is_constant_beyond else 4 * CELLS
    if not one.is_discrete:
        return np.linspace(low - far, high + far, cells + 1)
    # A cell of integers includes its upper border: the last cell contains everything above the larger value.
    return np.unique(np.floor(np.linspace(low - far, max(low, high - 1) + far, cells + 1)))


def joined(parts: Sequence[Told]) -> Told:
    """All parts as one: unchanged if there is one, and as one number if all are Gaussian noise on real numbers."""
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
    return isinstance(part.one, NoiseLaw) and part.one.shape is ROUNDED_GAUSSIAN and not part.one.is_discrete


def _along(bells: Sequence[AnswerPart]) -> AnswerPart:
    """Gaussian noise on several numbers distinguishes two values only along the line from one to the other."""
    levels = {part.one.width * part.one.spacing for part in bells if isinstance(part.one, NoiseLaw)}
    level = levels.pop() if len(levels) == 1 else 1.0
    unit = "" if level != 1.0 or not levels else ", in standard deviations of the noise"
    away = math.sqrt(sum(part.times * ((part.two.mean - part.one.mean) / _level(part.one)) ** 2 for part in bells))
    one, two = (NoiseLaw(ROUNDED_GAUSSIAN, FINE, level / FINE, False, centre) for centre in (0.0, level * away))
    name = f"how far the answer lies along the way from the first value to the second{unit}"
    return AnswerPart(one, two, name, before=bells[0].before)


def _level(law: OutputLaw) -> float:
    return law.width * law.spacing if isinstance(law, NoiseLaw) else law.deviation


# -- for mechanisms that list their parts ----------------------------------------------------------------------------


def numbers(noisy: Any, one: Any, two: Any, names: Callable[[int], str], before: str = "") -> list[Told]:
    """The numbers of a statistic that differ, with their noise; the first number if all are equal. A statistic that is
    not an array is one number, and its noisy value is the answer.
    """
    first, second = (np.ravel(each).tolist() for each in (one, two))
    if len(first) != len(second) or not first:
        raise InvalidParameter("x", NOTHING, "must have as many numbers as x2, and at least one")
    apart = [i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b] or [0]
    alone, is_answer = len(first) == 1, np.ndim(one) == 0 and not before
    return [
        AnswerPart(noisy.around(first[i]), noisy.around(second[i]), "" if alone else names(i), 1, before, is_answer)
        for i in apart
    ]


def the_answer(parts: Sequence[Told]) -> AnswerPart | None:
    """The only part, if it is the value that `release` returns; else None."""
    alone = parts[0] if len(parts) == 1 else None
    return alone if isinstance(alone, AnswerPart) and alone.is_answer and alone.times == 1 else None


def pushed_apart(part: AnswerPart, function: Callable[[Any], Any]) -> AnswerPart:
    """The part that results if `function` is applied to the answer: the distribution of its values on each of the two
    inputs. Both are computed from the same cells of answers.
    """
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
    """Answers, or the middles of cells, and their probabilities on two values."""
    if isinstance(part.one, Masses) and isinstance(part.two, Masses):
        one, two = alike(part.one, part.two)
        return list(one.answers), one.masses.tolist(), two.masses.tolist()
    middles, (here, there) = in_cells(part.one, part.two)
    return middles, here, there


def named(parts: Iterable[Told], name: str) -> list[Told]:
    """The same parts, named after the mechanism that they belong to, if the answers of several form a tuple."""
    return [
        replace(p, name=f"{name}, {p.name}" if p.name else name, is_answer=False) if isinstance(p, AnswerPart) else p
        for p in parts
    ]


def made_from(parts: Iterable[Told], before: str) -> list[Told]:
    """The same parts, marked as the input of a post-processing; `before` describes them."""
    return [
        replace(p, before=p.before or before, is_answer=False)
        if isinstance(p, AnswerPart)
        else replace(p, before=before)
        for p in parts
    ]


def repeated(parts: Iterable[Told], count: int) -> list[Told]:
    """The parts of `count` independent answers, which form a tuple, even if there is only one."""
    return [
        replace(p, times=p.times * count, is_answer=False) if isinstance(p, AnswerPart) else p.power(count)
        for p in parts
    ]


def differing(parts: Iterable[Told]) -> list[Told]:
    """The parts whose laws differ; the first part if all are equal."""
    every = list(parts)
    return [p for p in every if isinstance(p, Losses) or not _equal(p)] or every[:1]


def _equal(part: AnswerPart) -> bool:
    one, two = part.one, part.two
    if isinstance(one, Masses) and isinstance(two, Masses):
        return one.answers == two.answers and bool(np.array_equal(one.masses, two.masses))
    if isinstance(one, Pieces) and isinstance(two, Pieces):
        return bool(np.array_equal(one.edges, two.edges) and np.array_equal(one.masses, two.masses))
    return bool(one == two)
