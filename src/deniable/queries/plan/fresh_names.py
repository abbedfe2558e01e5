"""Column names that do not collide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from deniable.queries.relations.relation_nodes import Project, RelationNode
from deniable.tables.expressions import Column


def fresh(wish: str, taken: Iterable[str]) -> str:
    """`wish`, with a number appended if it is taken.

    >>> fresh("n", ["n", "n_2"])
    'n_3'
    """
    names = taken if isinstance(taken, Set | Mapping) else set(taken)
    found, count = wish, 1
    while found in names:
        count += 1
        found = f"{wish}_{count}"
    return found


def renaming(relation: RelationNode, avoid: Iterable[str]) -> dict[str, str]:
    """A new name for each column of the relation: unique, and not among those to avoid."""
    taken, names = set(avoid), {}
    for name in relation.columns:
        names[name] = fresh(name, taken)
        taken.add(names[name])
    return names


def apart(relation: RelationNode, avoid: Iterable[str]) -> tuple[RelationNode, dict[str, str]]:
    """(the relation with columns renamed so that none is in `avoid`, the new names by the old ones)."""
    names = renaming(relation, avoid)
    if all(old == new for old, new in names.items()):
        return relation, names
    return Project(relation, tuple((new, Column(old)) for old, new in names.items())), names
