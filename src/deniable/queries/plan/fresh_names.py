"""Names of columns that must not meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from deniable.queries.relations.relation_nodes import Project, RelationNode
from deniable.tables.expressions import Column


def fresh(wish: str, taken: Iterable[str]) -> str:
    """A name that is not taken yet, as close to the wish as can be.

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
    """A name for each column of the relation that is not among those to avoid, nor another's."""
    taken, names = set(avoid), {}
    for name in relation.columns:
        names[name] = fresh(name, taken)
        taken.add(names[name])
    return names


def apart(relation: RelationNode, avoid: Iterable[str]) -> tuple[RelationNode, dict[str, str]]:
    """The relation with no column named as in `avoid`, and its new names by the old ones."""
    names = renaming(relation, avoid)
    if all(old == new for old, new in names.items()):
        return relation, names
    return Project(relation, tuple((new, Column(old)) for old, new in names.items())), names
