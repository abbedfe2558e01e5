"""Training of scores: the most informative columns, alone, in sums and differences, and all together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from deniable.audit.answer_columns import Answers, Floats
from deniable.audit.answer_table import BLOCK, Path
from deniable.audit.decision_tree import Tree
from deniable.audit.distinguishing_columns import ALONE, DistinguishingColumns, named, telling
from deniable.audit.scores import (
    LAST_DIGIT,
    MOST_OF_ALL,
    Binned,
    Combined,
    Digits,
    DigitsRatio,
    JointScore,
    Outcomes,
    Score,
    digits_of,
    with_gaps,
)

BINS: Final = (12, 64)
"""Numbers of bins. Coarse bins detect tails from few draws, fine bins detect shapes."""
PAIRED: Final = 4
"""The number of best columns of which all pairwise differences are tried."""
RIDGE: Final = 1e-3


def learn(first: Answers, second: Answers) -> list[Score]:
    """All scores trained on these answers."""
    best = telling(first, second)
    found: list[Score] = []
    for number in _numbers(first, second, best):
        found += [number, number.negated()]
        on = with_gaps(number, first), with_gaps(number, second)
        found += [binned for bins in BINS if (binned := Binned.learn((number,), (on,), bins)) is not None]
    count = max(len(side.numbers.paths) for side in (first, second))
    places = [*(("words", path) for path in best.words), *(("types", path) for path in best.types)]
    words = [one for what, path in places if (one := Outcomes.of(what, path, first, second)) is not None]
    found += words
    if len(best.numbers) > 1:
        found += [
            one for path in best.numbers[:ALONE] if (one := Outcomes.of("values", path, first, second)) is not None
        ]
        most = named(best.numbers[0], count)
        parts = tuple(Combined.column(path, named(path, count)) for path in best.numbers)
        every = tuple((with_gaps(part, first), with_gaps(part, second)) for part in parts)
        bayes = [binned for bins in BINS if (binned := Binned.learn(parts, every, bins)) is not None]
        found += [*bayes, *(JointScore((one, *words), most) for one in bayes if words)]
        found.append(Tree.learn(first, second, best.numbers, most))
    elif len(words) > 1:
        found.append(JointScore(tuple(words), words[0].subject))
    for name in ("keys", "kinds"):
        outcomes = Outcomes.of(name, (), first, second)
        if outcomes is not None:
            found.append(outcomes)
    return found + last_digits(first, second, best)


def _numbers(first: Answers, second: Answers, best: DistinguishingColumns) -> list[Combined]:
    """The most informative numbers, and sums and differences of them."""
    count = max(len(side.numbers.paths) for side in (first, second))
    found = [Combined.column(path, named(path, count)) for path in best.numbers[:ALONE]]
    if len(best.numbers) < 2:
        return found
    places = {path: place for place, path in enumerate((first if len(first) else second).numbers.paths)}
    chosen = sorted(best.numbers[:PAIRED], key=lambda path: places.get(path, len(places)))
    every = best.every or best.numbers
    found.append(Combined(every, (1.0,) * len(every), "the sum of the numbers"))
    pairs = [(one, other) for i, one in enumerate(chosen) for other in chosen[i + 1 :]]
    if len(best.every) > PAIRED:
        pairs += [
            (path, best.every[i])
            for path, i in zip(chosen, _companions(first, second, chosen, best.every), strict=True)
        ]
    for one, other in dict.fromkeys(pairs):
        if one != other:
            name = f"{named(one, count)} minus {named(other, count)}"
            found.append(Combined((one, other), (1.0, -1.0), name))
    found.append(_logistic(first, second, best.numbers))
    if len(best.every) > len(best.numbers):
        found.append(_means(first, second, best.every))
    return found


def _companions(first: Answers, second: Answers, chosen: Sequence[Path], every: Sequence[Path]) -> list[int]:
    """For each chosen column, the index of the most correlated other column: shared noise cancels in the difference."""
    sides = [_standard(side.numbers.rows(chosen)) for side in (first, second)]
    best, place = np.full(len(chosen), -np.inf), np.zeros(len(chosen), dtype=np.int64)
    for start in range(0, len(every), BLOCK):
        some = every[start : start + BLOCK]
        like = sum(
            abs(one.T @ _standard(side.numbers.rows(some))) / max(1, len(side))
            for one, side in zip(sides, (first, second), strict=True)
        )
        for i, path in enumerate(chosen):
            row = np.asarray(like)[i]
            row[[j for j, other in enumerate(some) if other == path]] = -np.inf
            if row.max() > best[i]:
                best[i], place[i] = row.max(), start + int(row.argmax())
    return [int(i) for i in place]


def _standard(block: Floats) -> Floats:
    """Columns with mean 0 and standard deviation 1, with outliers clipped."""
    finite = np.clip(np.nan_to_num(block, posinf=0.0, neginf=0.0), -1e100, 1e100)
    if not len(finite):
        return finite
    low, high = np.quantile(finite, [0.01, 0.99], axis=0)
    finite = np.clip(finite, low, high)
    return np.asarray((finite - finite.mean(axis=0)) / np.maximum(finite.std(axis=0), 1e-100))


def last_digits(first: Answers, second: Answers, best: DistinguishingColumns) -> list[Score]:
    """Scores of the last binary digit: of the finest number, and of the numbers where it is most informative."""
    if not len(first) or not len(second):
        return []
    count = max(len(side.numbers.paths) for side in (first, second))
    name = LAST_DIGIT if count == 1 else f"{LAST_DIGIT} of the finest of its numbers"
    found: list[Score] = []
    for path, label in ((None, name), *((path, f"{LAST_DIGIT} of {named(path, count)}") for path in best.digits)):
        places = [digits_of(side, path) for side in (first, second)]
        if np.unique(np.concatenate(places)).size > 1:
            found += [Digits(1.0, label, path), Digits(-1.0, label, path)]
            found.append(DigitsRatio.learn(*places, name=label, path=path))
    return found


def _logistic(first: Answers, second: Answers, paths: tuple[Path, ...]) -> Combined:
    """Logistic regression by Newton's method, with a small ridge penalty."""
    both = np.concatenate([side.numbers.rows(paths) for side in (first, second)])
    both = np.clip(np.nan_to_num(both, posinf=0.0, neginf=0.0), -1e100, 1e100)  # else their squares overflow
    # Clipping the tails is nearly as robust as ranks, and keeps the score a linear sum.
    low, high = np.quantile(both, [0.001, 0.999], axis=0)
    both = np.clip(both, low, high)
    centre, spread = both.mean(axis=0), np.maximum(both.std(axis=0), 1e-300)
    x = np.column_stack([(both - centre) / spread, np.ones(len(both))])
    y = np.repeat([1.0, 0.0], [len(first), len(second)])
    w = np.zeros(x.shape[1])
    for _ in range(8):
        p = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
        slope = x.T @ (y - p) - RIDGE * len(x) * w
        bend = (x * (p * (1 - p))[:, None]).T @ x + RIDGE * len(x) * np.eye(x.shape[1])
        w = w + np.linalg.solve(bend, slope)
    heaviest = named(paths[int(np.argmax(np.abs(w[:-1])))], len(first.numbers.paths))
    name = f"a weighted sum of the numbers, {MOST_OF_ALL} {heaviest},"
    return Combined(paths, tuple((w[:-1] / spread).tolist()), name)


def _means(first: Answers, second: Answers, paths: tuple[Path, ...]) -> Combined:
    """All numbers, weighted by the difference of their means over their variance, if there are too many for a
    regression."""
    weights: list[float] = []
    heights: list[float] = []
    for start in range(0, len(paths), BLOCK):
        sides = [
            np.clip(np.nan_to_num(side.numbers.rows(paths[start : start + BLOCK])), -1e100, 1e100)
            for side in (first, second)
        ]
        apart = sides[0].mean(axis=0) - sides[1].mean(axis=0)
        spread = np.maximum(np.concatenate(sides).var(axis=0), 1e-100)
        weights += (apart / spread).tolist()
        heights += (np.abs(apart) / np.sqrt(spread)).tolist()
    heaviest = named(paths[int(np.argmax(heights))], len(first.numbers.paths))
    return Combined(paths, tuple(weights), f"a weighted sum of all numbers, {MOST_OF_ALL} {heaviest},")
