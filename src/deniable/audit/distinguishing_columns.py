"""The choice of columns that distinguish the neighbours, from training answers, and names for columns in sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from deniable.audit.answer_columns import Answers, changes, each_last_digit
from deniable.audit.answer_reading import JSON, LENGTH, ORDER, PATTERN, shortened
from deniable.audit.answer_table import AnswerTable, Dense, Floats, Path
from deniable.audit.hidden_bits import BITS, SIGN

ALONE: Final = 8
"""The most columns that get scores of their own."""
KEPT: Final = 64
"""The most columns that are combined (regression, naive Bayes, a tree)."""
FINEST: Final = 3
"""The most columns whose last digits get scores of their own."""
LEAST: Final = 5
"""The smallest number of answers, of both neighbours together, on either side of a threshold."""
RARE: Final = 0.01
"""A column that a smaller share of answers has is compared by its presence, not by its numbers."""
NOWHERE: Final = -np.inf
MANY: Final = 10
"""If there are more numbers, names include their count."""


@final
@dataclass(frozen=True, slots=True)
class DistinguishingColumns:
    """The most informative columns, best first."""

    numbers: tuple[Path, ...]
    """At most KEPT columns of numbers that vary."""
    digits: tuple[Path, ...]
    """Columns whose last binary digits are most informative."""
    words: tuple[Path, ...]
    types: tuple[Path, ...]
    """Paths at which different answers have different types."""
    every: tuple[Path, ...]
    """All columns of numbers that vary, in their order; empty if the table is sparse."""


def telling(first: Answers, second: Answers) -> DistinguishingColumns:
    """The columns that differ most between two samples. Other answers judge the resulting events."""
    both = first.joined(second)
    is_first = np.repeat([True, False], [len(first), len(second)])
    varied = changes(both.numbers)
    is_dense = isinstance(both.numbers, Dense)
    ranked = _ranked(both.numbers, varied, is_first)
    kept = _distinct(both.numbers, ranked)
    fine = _digits(both.numbers, [p for p in varied if is_dense], is_first) if len(varied) > 1 else []
    words = _ranked(both.words, changes(both.words), is_first)
    paths = both.numbers.paths
    return DistinguishingColumns(
        tuple(paths[place] for place in kept[:KEPT]),
        tuple(paths[place] for place in fine),
        tuple(both.words.paths[place] for place in words[:ALONE]),
        _types(both, is_first),
        tuple(paths[place] for place in varied) if is_dense else (),
    )


def _ranked(table: AnswerTable, places: list[int], is_first: Any) -> list[int]:
    """Columns sorted by how much they differ, most first."""
    if len(places) <= 1:
        return places
    shares = table.shares() / max(1, len(table))
    worth = np.zeros(len(table.paths))
    often = [place for place in places if shares[place] >= RARE]
    for some, block in table.blocks(often):
        worth[list(some)] = distances(np.where(np.isnan(block), NOWHERE, block), is_first)
    rare = [place for place in places if shares[place] < RARE]
    if rare:
        worth[rare] = _presence(table, rare, is_first)
    return sorted(places, key=lambda place: -worth[place])


def _types(both: Answers, is_first: Any) -> tuple[Path, ...]:
    found = both.mixed
    worth = {path: float(distances(both.types_at(path)[:, None].astype(np.float64), is_first)[0]) for path in found}
    return tuple(sorted(found, key=lambda path: -worth[path])[:ALONE])


def _presence(table: AnswerTable, places: list[int], is_first: Any) -> Floats:
    """How much the presence of each column differs, in standard errors."""
    first, second = (table[np.flatnonzero(side)].shares()[places] for side in (is_first, ~is_first))
    return _deviations(first, second, int(is_first.sum()), int((~is_first).sum()))


def distances(block: Floats, is_first: Any) -> Floats:
    """For each column, the largest difference between the shares of the two samples below a threshold, in standard
    errors. (Kolmogorov's distance, without the standard errors, would miss rare but informative values.)
    """
    order = np.argsort(block, axis=0, kind="stable")
    sorted_ = np.take_along_axis(block, order, axis=0)
    below = np.cumsum(is_first[order], axis=0)[:-1]
    total = np.arange(1, len(block))[:, None]
    n, m = int(is_first.sum()), int((~is_first).sum())
    found = _deviations(below, total - below, n, m)
    found[sorted_[1:] == sorted_[:-1]] = 0.0  # no threshold between equal numbers
    return np.asarray(found.max(axis=0)) if len(found) else np.zeros(block.shape[1])


def _deviations(below_first: Any, below_second: Any, n: int, m: int) -> Floats:
    together = below_first + below_second
    share = together / max(1, n + m)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.abs(below_first / n - below_second / m) / np.sqrt(share * (1 - share) * (1 / n + 1 / m))
    return np.where((together >= LEAST) & (together <= n + m - LEAST) & np.isfinite(found), found, 0.0)


def _distinct(table: AnswerTable, ranked: list[int]) -> list[int]:
    """The columns without duplicates, at most KEPT: equal columns would count twice."""
    seen: set[bytes] = set()
    kept: list[int] = []
    for place in ranked:
        content = np.ascontiguousarray(table.matrix([place])).tobytes()
        if content not in seen:
            seen.add(content)
            kept.append(place)
        if len(kept) == KEPT:
            break
    return kept


def _digits(table: AnswerTable, places: list[int], is_first: Any) -> list[int]:
    worth: dict[int, float] = {}
    for some, block in table.blocks(places):
        worth.update(zip(some, distances(each_last_digit(block), is_first).tolist(), strict=True))
    return sorted(worth, key=lambda place: -worth[place])[:FINEST]


# -- names -----------------------------------------------------------------------------------------------------------


def named(path: Path, count: int) -> str:
    """The name of the number at a path, in an answer with `count` numbers."""
    if not path:
        return "the answer"
    if all(isinstance(part, int) for part in path):
        if len(path) == 1 and isinstance(path[0], int):
            return f"number {path[0] + 1}" + (f" of {count:,}" if count > MANY else "")
        return "the number at " + "".join(f"[{part}]" for part in path)
    *before, last = path
    where = _where(tuple(before))
    if last == LENGTH:
        return f"the length of {where}"
    if isinstance(last, str) and last.startswith(("number ", "grouped ")):
        return f"{last.replace('grouped', 'number')} in {'the text' if not before else where}"
    return f"the number at {_shown(path)}" + _of_text(path)


def worded(path: Path) -> str:
    """The name of the word at a path."""
    if not path:
        return "the answer"
    *before, last = path
    where = _where(tuple(before))
    if last == SIGN:
        return f"the sign of a zero, {named(tuple(before), 0)},"
    if last == BITS:
        return f"the payload of a NaN, {named(tuple(before), 0)},"
    if last in (ORDER, "type", PATTERN):
        return f"the {'order of keys' if last == ORDER else last} of {where}"
    return f"the value at {_shown(path)}" + _of_text(path)


def _where(path: Path) -> str:
    return f"{_shown(path)}{_of_text(path)}" if path and path != (JSON,) else "the answer"


def _of_text(path: Path) -> str:
    return " of the JSON text" if JSON in path else ""


def _shown(path: Path) -> str:
    """A path in Python's notation: 'rows'[3]['n'] for answer['rows'][3]['n']."""
    parts = [part for part in path if part != JSON]
    text = "".join(
        f"[{part}]" if isinstance(part, int) else part if part[:1] in "[." else f" {part} " for part in parts
    )
    key = parts[0] if parts else ""
    if isinstance(key, str) and key.startswith("["):
        text = key[1:-1] + text[len(key) :]
    return shortened(" ".join(text.split()))
