"""Which columns of the answers tell the neighbours apart, by answers that will not judge, and what they are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from deniable.audit.answer_columns import Answers, changes, each_last_digit
from deniable.audit.answer_reading import JSON, LENGTH, ORDER, PATTERN, shortened
from deniable.audit.answer_table import AnswerTable, Dense, Floats, Path
from deniable.audit.hidden_bits import BITS, SIGN

ALONE: Final = 8
"""Columns looked at by themselves; of more, those that tell most."""
KEPT: Final = 64
"""Columns that are combined (regression, naive Bayes, a tree); of more, those that tell most."""
FINEST: Final = 3
"""Columns whose last digits are looked at by themselves."""
LEAST: Final = 5
"""Answers on one side of a border, on both neighbours together: fewer tell nothing."""
RARE: Final = 0.01
"""Columns that fewer answers have are compared by whether they are there, not by their numbers."""
NOWHERE: Final = -np.inf
MANY: Final = 10
"""Of so many numbers it is told how many there are."""


@final
@dataclass(frozen=True, slots=True)
class TellingColumns:
    """Columns by what they tell, the best first."""

    numbers: tuple[Path, ...]
    """At most KEPT of those that change."""
    digits: tuple[Path, ...]
    """Those whose last binary digits tell most."""
    words: tuple[Path, ...]
    types: tuple[Path, ...]
    """Places at which now this type stands and now that."""
    every: tuple[Path, ...]
    """All numbers that change, in their order; none if they are too rare to be a matrix."""


def telling(first: Answers, second: Answers) -> TellingColumns:
    """The columns that differ most between two samples. Whatever is chosen here is judged by other answers."""
    both = first.joined(second)
    is_first = np.repeat([True, False], [len(first), len(second)])
    varied = changes(both.numbers)
    is_dense = isinstance(both.numbers, Dense)
    ranked = _ranked(both.numbers, varied, is_first)
    kept = _distinct(both.numbers, ranked)
    fine = _digits(both.numbers, [p for p in varied if is_dense], is_first) if len(varied) > 1 else []
    words = _ranked(both.words, changes(both.words), is_first)
    paths = both.numbers.paths
    return TellingColumns(
        tuple(paths[place] for place in kept[:KEPT]),
        tuple(paths[place] for place in fine),
        tuple(both.words.paths[place] for place in words[:ALONE]),
        _types(both, is_first),
        tuple(paths[place] for place in varied) if is_dense else (),
    )


def _ranked(table: AnswerTable, places: list[int], is_first: Any) -> list[int]:
    """Columns, those that tell most first. A few stay in their order, as none has to be left out."""
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
    """The same for columns that are there or not."""
    first, second = (table[np.flatnonzero(side)].shares()[places] for side in (is_first, ~is_first))
    return _deviations(first, second, int(is_first.sum()), int((~is_first).sum()))


def distances(block: Floats, is_first: Any) -> Floats:
    """For each column, standard errors by which the shares of the two samples below some border differ, at the border
    where they differ most. (Kolmogorov's distance would overlook what is rare and telling.)
    """
    order = np.argsort(block, axis=0, kind="stable")
    sorted_ = np.take_along_axis(block, order, axis=0)
    below = np.cumsum(is_first[order], axis=0)[:-1]
    total = np.arange(1, len(block))[:, None]
    n, m = int(is_first.sum()), int((~is_first).sum())
    found = _deviations(below, total - below, n, m)
    found[sorted_[1:] == sorted_[:-1]] = 0.0  # no border within equal numbers
    return np.asarray(found.max(axis=0)) if len(found) else np.zeros(block.shape[1])


def _deviations(below_first: Any, below_second: Any, n: int, m: int) -> Floats:
    together = below_first + below_second
    share = together / max(1, n + m)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.abs(below_first / n - below_second / m) / np.sqrt(share * (1 - share) * (1 / n + 1 / m))
    return np.where((together >= LEAST) & (together <= n + m - LEAST) & np.isfinite(found), found, 0.0)


def _distinct(table: AnswerTable, ranked: list[int]) -> list[int]:
    """Without copies: the same number may stand at several places, and would count twice. In their old order where all
    of them are kept.
    """
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
    """A number of an answer in words; `count` of them there are."""
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
    """A word of an answer in words."""
    if not path:
        return "the answer"
    *before, last = path
    where = _where(tuple(before))
    if last == SIGN:
        return f"the sign of a zero, {named(tuple(before), 0)},"
    if last == BITS:
        return f"what is stored in a NaN, {named(tuple(before), 0)},"
    if last in (ORDER, "type", PATTERN):
        return f"the {'order of keys' if last == ORDER else last} of {where}"
    return f"what stands at {_shown(path)}" + _of_text(path)


def _where(path: Path) -> str:
    return f"{_shown(path)}{_of_text(path)}" if path and path != (JSON,) else "the answer"


def _of_text(path: Path) -> str:
    return " of the JSON text" if JSON in path else ""


def _shown(path: Path) -> str:
    """Where it stands, as Python would say it: 'rows'[3]['n'] for answer['rows'][3]['n']."""
    parts = [part for part in path if part != JSON]
    said = "".join(
        f"[{part}]" if isinstance(part, int) else part if part[:1] in "[." else f" {part} " for part in parts
    )
    key = parts[0] if parts else ""
    if isinstance(key, str) and key.startswith("["):
        said = key[1:-1] + said[len(key) :]
    return shortened(" ".join(said.split()))
