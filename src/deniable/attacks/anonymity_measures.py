"""Measures of a published table: uniqueness, k-anonymity, l-diversity, t-closeness.

They are properties of one table, not of the algorithm that produced it. So they do not cover a second table
(`Intersection`) or an attacker's knowledge (`Homogeneity`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from deniable.curves import curve_arguments
from deniable.errors import NOTHING, InvalidParameter, type_of

Ints = NDArray[np.int64]
Table = Any
"""A dict of columns, a pandas or polars DataFrame, or a structured array."""


# -- tables of every kind --------------------------------------------------------------------------------------------


def column_names(table: Table) -> list[str]:
    """The column names of a table. Raises `InvalidParameter` for an object without named columns."""
    if isinstance(table, Mapping):
        return [str(name) for name in table]
    if isinstance(table, np.ndarray) and table.dtype.names is not None:
        return list(table.dtype.names)
    if hasattr(table, "columns") and hasattr(table, "__getitem__"):
        return [str(name) for name in table.columns]
    raise InvalidParameter("table", type_of(table), "must have named columns", "give a dict of columns or a DataFrame")


def columns(table: Table, names: Sequence[str], asked: str = "columns") -> list[NDArray[Any]]:
    """These columns as arrays of equal length. Raises `InvalidParameter` if one is missing or the table is empty."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidParameter(asked, names, "must be a list of column names")
    wanted, there = list(names), column_names(table)
    if not wanted:
        raise InvalidParameter(asked, wanted, "must name at least one column")
    for name in wanted:
        if name not in there:
            raise InvalidParameter("column", name, "is not in the table", f"it has {', '.join(there[:12])}")
    found = [np.asarray(table[name]) for name in wanted]
    if any(one.ndim != 1 for one in found) or len({len(one) for one in found}) != 1:
        raise InvalidParameter("table", NOTHING, "must have columns of equal length")
    if not len(found[0]):
        raise InvalidParameter("table", NOTHING, "must have at least one row")
    return found


def codes(column: NDArray[Any]) -> Ints:
    """Number the values 0, 1, 2, ...: equal values get equal numbers. Missing values count as equal."""
    if column.dtype.kind != "O":
        return np.unique(column, return_inverse=True)[1].astype(np.int64)
    known: dict[Any, int] = {}
    numbered = []
    for value in column.tolist():
        missing = value is None or value != value  # only NaN differs from itself
        try:
            numbered.append(known.setdefault(None if missing else value, len(known)))
        except TypeError:
            raise InvalidParameter("table", NOTHING, "must hold numbers, texts or dates, not lists") from None
    return np.array(numbered, dtype=np.int64)


def classes(table: Table, quasi: Sequence[str]) -> Ints:
    """The number of the class of each row: rows that agree on all these columns are in one class."""
    group, *rest = (codes(one) for one in columns(table, quasi, "quasi"))
    for column in rest:  # renumbered after each column, so that numbers stay below rows², far from overflow
        group = codes(group * (int(column.max()) + 1) + column)
    return codes(group)


# -- measures --------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Anonymity:
    """Anonymity measures of a table, for an attacker who knows its quasi-identifiers.

    >>> from deniable.attacks import HOSPITAL_A
    >>> print(anonymity(HOSPITAL_A, quasi=["zip", "age"], secret="condition"))
    12 rows in 3 classes: 4-anonymous, nobody unique; 1-diverse (entropy 1), 0.583-close: 4 people are in a class with
    one secret only.
    """

    rows: int
    classes: int
    k: int
    """The size of the smallest class: k-anonymity (Samarati & Sweeney 1998)."""
    unique: float
    """The share of rows that are alone in their class."""
    diversity: int | None = None
    """The smallest number of different secrets in a class: distinct l-diversity (Machanavajjhala et al. 2007)."""
    entropy_diversity: float | None = None
    """The smallest e^H of the secrets in a class: entropy l-diversity."""
    closeness: float | None = None
    """The largest distance between the distribution of secrets in a class and in the table: t-closeness (Li, Li &
    Venkatasubramanian 2007). The distance is total variation, or for ordered secrets the earth mover's distance."""
    exposed: int | None = None
    """The number of rows in classes with only one secret."""

    def __str__(self) -> str:
        alone = "nobody unique" if self.unique == 0 else f"{100 * self.unique:.3g} % unique"
        sentence = f"{self.rows} rows in {self.classes} classes: {self.k}-anonymous, {alone}"
        if self.diversity is None:
            return f"{sentence}."
        return (
            f"{sentence}; {self.diversity}-diverse (entropy {self.entropy_diversity:.3g}), {self.closeness:.3g}-close: "
            f"{self.exposed} people are in a class with one secret only."
        )


def anonymity(
    table: Table, *, quasi: Sequence[str], secret: str | None = None, order: Sequence[Any] | None = None
) -> Anonymity:
    """k-anonymity, uniqueness, l-diversity and t-closeness of a table.

    `quasi` are the columns that an attacker may know, `secret` is the column that they want; without it, only
    k-anonymity and uniqueness are computed. `order` lists all secrets from the smallest to the largest, if they have an
    order.
    """
    group = classes(table, quasi)
    sizes = np.bincount(group)
    unique = float(np.count_nonzero(sizes == 1) / len(group))
    if secret is None:
        return Anonymity(len(group), len(sizes), int(sizes.min()), unique)
    column = columns(table, [secret])[0]
    value = codes(column) if order is None else _placed(column, order)
    width = int(value.max()) + 1 if order is None else len(list(order))
    joint = np.zeros((len(sizes), width))
    np.add.at(joint, (group, value), 1)
    shares, overall = joint / sizes[:, None], joint.sum(axis=0) / len(group)
    kinds = np.count_nonzero(joint, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(shares > 0, shares * np.log(shares), 0.0).sum(axis=1)
    return Anonymity(
        len(group),
        len(sizes),
        int(sizes.min()),
        unique,
        int(kinds.min()),
        float(np.exp(entropy.min())),
        _distance(shares, overall, ordered=order is not None),
        int(sizes[kinds == 1].sum()),
    )


def _placed(column: NDArray[Any], order: Sequence[Any]) -> Ints:
    places = {value: i for i, value in enumerate(order)}
    if not all(value in places for value in column.tolist()):
        raise InvalidParameter("order", NOTHING, "must list every secret that may occur")
    return np.array([places[value] for value in column.tolist()], dtype=np.int64)


def _distance(shares: NDArray[Any], overall: NDArray[Any], *, ordered: bool) -> float:
    difference = shares - overall
    if not ordered:
        return float(np.abs(difference).sum(axis=1).max() / 2)
    steps = max(1, len(overall) - 1)
    return float(np.abs(np.cumsum(difference, axis=1)).sum(axis=1).max() / steps)


def expected_uniqueness(sizes: Any, *, cells: float) -> float:
    """The expected share of people who are unique in their area, for areas of these sizes and `cells` equally likely
    combinations of the other columns: Σ N (1 - 1/cells)^(N-1) / Σ N.

    Two sexes and the days of 79 years make 2 × 365.25 × 79 cells (Sweeney 2000). Real birth dates are not
    evenly spread, which makes fewer people unique.

    >>> round(expected_uniqueness([10_000], cells=2 * 365.25 * 79), 12)
    0.840914012647
    """
    people, count = curve_arguments.numbers_array("sizes", sizes), curve_arguments.positive("cells", cells)
    if np.any(people < 1) or count <= 1:
        raise InvalidParameter("sizes, cells", NOTHING, "sizes must be at least 1 each, and cells more than 1")
    return float(np.sum(people * np.exp((people - 1) * np.log1p(-1 / count))) / people.sum())
