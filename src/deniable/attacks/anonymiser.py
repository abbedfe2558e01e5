"""An anonymiser of the old kind, to be broken: pseudonyms, coarser values, rows left out until classes have k people.

The result protects nobody: whatever k `anonymity` reports, `Linkage`, `Homogeneity` and `Intersection` still work. It
is here so that the attacks have something real to break (Samarati & Sweeney 1998; Sweeney 2002, algorithm Datafly).
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
"""Makes a value coarser."""


def cut(count: int) -> Step:
    """A text without its last characters: cut(2) makes 13012 to 130**."""
    away = curve_arguments.integer("count", count, 1)

    def coarser(value: Any) -> str:
        text = str(value)
        return text[: max(len(text) - away, 0)] + "*" * min(away, len(text))

    return coarser


def span(width: float) -> Step:
    """A number as the interval of this width that holds it: span(10) makes 34 to 30-40."""
    wide = curve_arguments.positive("width", width)

    def coarser(value: Any) -> str:
        try:
            low = np.floor(float(value) / wide) * wide
        except (TypeError, ValueError):
            raise InvalidParameter("span", wide, "is a step for numbers; a column of text needs another") from None
        return f"{low:g}-{low + wide:g}"

    return coarser


def hidden(value: Any) -> str:
    """The coarsest of all: every value is *."""
    return "*"


@final
@dataclass(frozen=True, slots=True)
class Anonymised:
    """The table as it would be published, and what was done to it."""

    table: dict[str, np.ndarray[Any, Any]]
    steps: Mapping[str, int]
    """How many steps of its ladder each column went."""
    left_out: int
    """How many rows were left out."""
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
    """A k-anonymous version of a table: identifiers become random pseudonyms, and the columns of `ladders` coarser.

    While more than the share `left_out` of the rows lies in classes of fewer than k, the column with the most different
    values goes one step down its ladder; then the rows of small classes are left out.

    >>> people = {"name": ["Al", "Bo", "Cy", "Di"], "age": [31, 34, 38, 52], "ill": [1, 0, 1, 0]}
    >>> made = anonymise(people, k=3, ladders={"age": [span(5), span(20)]}, identifiers=["name"], left_out=0.25)
    >>> made.table["age"].tolist(), made.left_out
    (['20-40', '20-40', '20-40'], 1)
    """
    least, share = curve_arguments.integer("k", k, 1), curve_arguments.probability("left_out", left_out)
    names = anonymity_measures.column_names(table)
    made = {name: np.asarray(table[name]) for name in names}
    quasi = list(ladders)
    anonymity_measures.columns(table, quasi)  # they are there, and of one length
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
        raise InvalidParameter("k", least, "no class is that large after the last steps", "add coarser steps")
    return Anonymised(
        {name: column[kept] for name, column in made.items()},
        done,
        int(np.count_nonzero(small)),
        int(sizes[kept].min()),
    )


def _pseudonyms(column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Equal values get equal random names; the key is thrown away."""
    key = secrets.token_bytes(32)
    names = [blake2b(repr(value).encode(), digest_size=8, key=key).hexdigest() for value in column.tolist()]
    return np.array(names, dtype=object)


def _sizes(made: Mapping[str, Any], quasi: Sequence[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    group = anonymity_measures.classes(made, quasi)
    return np.asarray(np.bincount(group)[group])
