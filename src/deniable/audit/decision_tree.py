"""A small decision tree over some numbers of an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from deniable.audit.answer_columns import Answers, Floats, Ints
from deniable.audit.answer_table import Path
from deniable.audit.scores import MOST_OF_ALL, Score, log_ratio

DEPTH: Final = 5
LEAF: Final = 20
"""The smallest number of answers in a leaf."""
CUTS: Final = 24
"""The number of thresholds tried on one number in a node."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Tree(Score):
    """A decision tree: each node compares one number with a threshold, each leaf has a log-likelihood ratio."""

    questions: tuple[tuple[int, float] | None, ...]
    """(column, threshold) of each node; None for a leaf. Node i has the children 2i + 1 (below) and 2i + 2."""
    ratios: Floats
    paths: tuple[Path, ...]
    """The numbers that it uses."""
    most: str
    """The name of the most informative number."""

    @classmethod
    def learn(cls, first: Answers, second: Answers, paths: tuple[Path, ...], most: str) -> Tree:
        """Split greedily, from the root down, on answers from the first and from the second neighbour."""
        table = np.concatenate([_features(side, paths) for side in (first, second)])
        is_first = np.repeat([True, False], [len(first), len(second)])
        size = 2 ** (DEPTH + 1) - 1
        questions: list[tuple[int, float] | None] = [None] * size
        ratios = np.zeros(size)
        rows: dict[int, Ints] = {0: np.arange(len(table))}
        for node in range(size):
            if node not in rows:
                continue
            here = rows[node]
            yes = int(is_first[here].sum())
            ratios[node] = float(
                log_ratio([yes, len(first) - yes], [len(here) - yes, len(second) - len(here) + yes])[0]
            )
            split = _best_split(table[here], is_first[here]) if node < size // 2 else None
            if split is None:
                continue
            questions[node] = split
            above = table[here, split[0]] >= split[1]
            rows[2 * node + 1], rows[2 * node + 2] = here[~above], here[above]
        return cls(tuple(questions), ratios, paths, most)

    def __call__(self, answers: Answers) -> Floats:
        table = _features(answers, self.paths)
        node = np.zeros(len(answers), dtype=np.int64)
        for place, question in enumerate(self.questions):
            if question is not None:
                here = np.flatnonzero(node == place)
                node[here] = 2 * place + 1 + (table[here, question[0]] >= question[1])
        return self.ratios[node]

    @property
    def words(self) -> str:
        return f"the log-likelihood ratio of a decision tree, {MOST_OF_ALL} by {self.most}"


def _features(answers: Answers, paths: tuple[Path, ...]) -> Floats:
    """The numbers, their maximum, minimum, index of the maximum, and sum."""
    x = np.nan_to_num(answers.numbers.rows(paths), nan=-1e300, posinf=1e300, neginf=-1e300)
    return np.column_stack([x, x.max(axis=1), x.min(axis=1), x.argmax(axis=1), np.clip(x, -1e9, 1e9).sum(axis=1)])


def _best_split(table: Floats, is_first: Any) -> tuple[int, float] | None:
    """The (column, threshold) that increases the likelihood most; None if no split helps enough."""
    best: tuple[float, int, float] | None = None
    total, yes = len(table), int(is_first.sum())
    if total < 2 * LEAF or yes in (0, total):
        return None
    for place in range(table.shape[1]):
        column = table[:, place]
        cuts = np.unique(np.quantile(column, np.linspace(0, 1, CUTS + 2)[1:-1], method="higher"))
        bins = np.searchsorted(cuts, column, "right")
        all_in = np.cumsum(np.bincount(bins, minlength=len(cuts) + 1)[::-1])[::-1][1:]
        yes_in = np.cumsum(np.bincount(bins[is_first], minlength=len(cuts) + 1)[::-1])[::-1][1:]
        gain = _likelihood(yes_in, all_in) + _likelihood(yes - yes_in, total - all_in)
        gain[(all_in < LEAF) | (total - all_in < LEAF)] = -np.inf
        if gain.size and (best is None or gain.max() > best[0]):
            at = int(gain.argmax())
            best = (float(gain[at]), place, float(cuts[at]))
    if best is None or best[0] <= float(_likelihood(np.array([yes]), np.array([total]))[0]) + 2.0:
        return None
    return best[1], best[2]


def _likelihood(yes: Any, total: Any) -> Floats:
    """The log-likelihood of groups of answers. A group has `total` answers, and `yes` of them come from the first
    neighbour.
    """
    p = (yes + 0.5) / (total + 1)
    return np.asarray(yes * np.log(p) + (total - yes) * np.log1p(-p))
