"""A k-anonymiser as a target for attacks: pseudonyms, coarser values, and suppressed rows.

The result protects nobody: `Linkage`, `Homogeneity` and `Intersection` work at any k. It exists so that the attacks
have a realistic target (Samarati & Sweeney 1998; Sweeney 2002, algorithm Datafly).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, final

import numpy as np

from deniable.attacks import anonymity_measures
from deniable.attacks.anonymity_measures import Table
from deniable.curves import curve_arguments
from deniable.errors import InvalidParameter

Step = Callable[[Any], Any]
"""Maps a value to a coarser one."""


def cut(count: int) -> Step:
    """A step that replaces the last characters of a text by stars: cut(2) maps 13012 to 130**."""
    away = curve_arguments.integer("count", count, 1)

    def coarser(value: Any) -> str:
        text = str(value)
        return text[: max(len(text) - away, 0)] + "*" * min(away, len(text))

    return coarser


def span(width: float) -> Step:
    """A step that replaces a number by its interval of this width: span(10) maps 34 to 30-40."""
    wide = curve_arguments.positive("width", width)

    def coarser(value: Any) -> str:
        try:
            low = np.floor(float(value) / wide) * wide
        except (TypeError, ValueError):
            raise InvalidParameter("span", wide, "applies to numbers only; use cut() or hidden for text") from None
        return f"{low:g}-{low + wide:g}"

    return coarser


def hidden(value: Any) -> str:
    """The coarsest step: every value becomes *."""
    return "*"


@final
@dataclass(frozen=True, slots=True)
class Anonymised:
    """A published table, and how it was made."""

    table: dict[str, np.ndarray[Any, Any]]
    steps: Mapping[str, int]
    """Column -> the number of steps applied."""
    left_out: int
    """The number of suppressed rows."""
    k: int

    def __str__(self) -> str:
        rows = len(next(iter(self.table.values()))) if self.table else 0
        made = ", ".join(f"{name} {count}" for name, count in self.steps.items())
        return f"{rows} rows, {self.left_out} left out, {self.k}-anonymous; steps: {made}. This protects nobody."


def anonymise(
    table: Table,
    *,
    k: int,
    ladders: Mapping[str, Sequence[Step]],
    identifiers: Sequence[str] = (),
    left_out: float = 0.05,
) -> Anonymised:
    """A k-anonymous version of a table: identifiers become random pseudonyms, and columns in `ladders` become coarser.

    While more than the share `left_out` of the rows is in classes of fewer than k rows, the column with the most
    different values takes the next step of its ladder. Then the rows of small classes are suppressed. Raises if no
    class reaches k rows.

    >>> people = {"name": ["Al", "Bo", "Cy", "Di"], "age": [31, 34, 38, 52], "ill": [1, 0, 1, 0]}
    >>> made = anonymise(people, k=3, ladders={"age": [span(5), span(20)]}, identifiers=["name"], left_out=0.25)
    >>> made.table["age"].tolist(), made.left_out
    (['20-40', '20-40', '20-40'], 1)
    """
    least, share = curve_arguments.integer("k", k, 1), curve_arguments.probability("left_out", left_out)
    names = anonymity_measures.column_names(table)
    made = {name: np.asarray(table[name]) for name in names}
    quasi = list(ladders)
    anonymity_measures.columns(table, quasi)  # raises if one is missing or of another length
    for name in identifiers:
        if name not in made:
            raise InvalidParameter("identifiers", name, "is not in the table", f"it has {', '.join(names[:12])}")
        made[name] = _pseudonyms(made[name])
    done = dict.fromkeys(quasi, 0)
    while True:
        sizes = _sizes(made, quasi)
        small = sizes < least
        open_ladders = [name for name in quasi if done[name] < len(ladders[name])]
        if np.mean(small) <= share or not open_ladders:
            break
        widest = max(open_ladders, key=lambda name: len(set(made[name].tolist())))
        step = ladders[widest][done[widest]]
        original = np.asarray(table[widest]).tolist()
        made[widest] = np.array([step(value) for value in original], dtype=object)
        done[widest] += 1
    kept = ~small
    if not np.any(kept):
        raise InvalidParameter("k", least, "no class has that many rows after the last steps", "add coarser steps")
    return Anonymised(
        {name: column[kept] for name, column in made.items()},
        done,
        int(np.count_nonzero(small)),
        int(sizes[kept].min()),
    )


def _pseudonyms(column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Equal values get equal random names. The key is discarded."""
    key = secrets.token_bytes(32)
    names = [blake2b(repr(value).encode(), digest_size=8, key=key).hexdigest() for value in column.tolist()]
    return np.array(names, dtype=object)


def _sizes(made: Mapping[str, Any], quasi: Sequence[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    group = anonymity_measures.classes(made, quasi)
    return np.asarray(np.bincount(group)[group])
