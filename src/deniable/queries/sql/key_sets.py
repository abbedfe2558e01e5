"""GROUP BY ROLLUP, CUBE and GROUPING SETS: a SELECT by several sets of keys becomes one SELECT for each set.

    ROLLUP(a, b)                    (a, b), (a), ()
    CUBE(a, b)                      (a, b), (a), (b), ()
    GROUPING SETS ((a, b), ())      the sets that it lists; it may list ROLLUP and CUBE as well
    a, ROLLUP(b)                    every combination of the clauses' sets: (a, b), (a)

The SELECT of a set leaves out the columns that are keys of other sets; in SQL they are NULL in its rows. GROUPING(a, b)
is a constant in it: one bit for each key, 0 if the key is in the set and 1 if not, the last key in the lowest bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Final, NoReturn, final

from deniable.errors import QuestionRefused
from deniable.queries.plan.fresh_names import fresh
from deniable.queries.sql.syntax_tree import exp, item, unwrapped

Keys = list[exp.Expression]
KeySet = dict[str, exp.Expression]
"""The keys of one set by their SQL, by which two keys are compared."""
SelectItems = Sequence[tuple[str, exp.Expression]]
"""The columns of SELECT: (alias or "", expression)."""

MOST_SETS: Final = 64
_MOST_CLAUSES: Final = 8
_MOST_CUBED: Final = 6
"""Keys of one CUBE, which has 2^keys sets."""


@final
@dataclass(frozen=True, slots=True)
class SetSelect:
    """The SELECT by one set of keys, and the value of each column that is GROUPING(...)."""

    select: exp.Select
    constants: dict[str, int]


def selects_by_set(tree: exp.Expression) -> tuple[list[str], list[SetSelect]] | None:
    """(the column names of the whole result, a SELECT for each set of keys); None if a tree has only one set.

    Raises `QuestionRefused` if there are too many sets, or ORDER BY, LIMIT, OFFSET or windows beside them.
    """
    group = tree.args.get("group") if isinstance(tree, exp.Select) else None
    if group is None or not any(
        isinstance(each, exp.Rollup | exp.Cube | exp.GroupingSets) for each in group.expressions
    ):
        return None
    assert isinstance(tree, exp.Select)
    if any(tree.args.get(name) for name in ("order", "limit", "offset")):
        raise QuestionRefused(
            "clause", "ORDER BY and LIMIT are not supported with ROLLUP, CUBE and GROUPING SETS",
            "leave them out, and sort the answer",
        )  # fmt: skip
    if tree.args.get("qualify") or any(node.find(exp.Window) is not None for node in tree.expressions):
        # A window of SQL would see the rows of all sets; here each set is a question of its own.
        raise QuestionRefused(
            "window", "windows are not supported with ROLLUP, CUBE and GROUPING SETS",
            "ask for one set of keys at a time",
        )  # fmt: skip
    items = [item(node) for node in tree.expressions]
    clauses = [_sets(each, items) for each in group.expressions]
    if any(value for name, value in group.args.items() if name != "expressions"):
        return None  # GROUP BY ALL and the like, which `group_by` refuses
    sets, names = _combined(clauses), _names(items)
    all_keys = {key for keys in sets for key in keys}
    return names, [_select(tree, names, items, keys, all_keys) for keys in sets]


def _sets(clause: exp.Expression, items: SelectItems) -> list[Keys]:
    """The sets of keys of one clause of GROUP BY."""
    if isinstance(clause, exp.GroupingSets):
        return [keys for inner in clause.expressions for keys in _sets(inner, items)]
    if not isinstance(clause, exp.Rollup | exp.Cube):
        return [_keys(clause, items)]
    parts = [_keys(each, items) for each in clause.expressions]
    if isinstance(clause, exp.Rollup):
        return [_joined(parts[:k]) for k in range(len(parts), -1, -1)]
    if len(parts) > _MOST_CUBED:
        _refuse_many()
    return [_joined(chosen) for k in range(len(parts), -1, -1) for chosen in combinations(parts, k)]


def _keys(node: exp.Expression, items: SelectItems) -> Keys:
    """A key, or several in brackets."""
    return [_key(each, items) for each in (node.expressions if isinstance(node, exp.Tuple) else [node])]


def _key(node: exp.Expression, items: SelectItems) -> exp.Expression:
    """The expression of a key, which may be given by its position in SELECT or by its alias."""
    inner = unwrapped(node)
    if isinstance(inner, exp.Literal) and not inner.is_string and str(inner.this).isdigit():
        place = int(str(inner.this)) if len(str(inner.this)) < 5 else 0
        return unwrapped(items[place - 1][1]) if 1 <= place <= len(items) else inner
    if isinstance(inner, exp.Column) and not inner.table:
        named = [each for alias, each in items if alias and alias.casefold() == str(inner.name).casefold()]
        return unwrapped(named[0]) if named else inner
    return inner


def _joined(parts: Iterable[Keys]) -> Keys:
    return [key for part in parts for key in part]


def _combined(clauses: Sequence[list[Keys]]) -> list[KeySet]:
    """Every combination of one set of each clause; equal sets once."""
    if len(clauses) > _MOST_CLAUSES or sum(map(len, clauses)) > MOST_SETS:
        _refuse_many()
    found: dict[frozenset[str], KeySet] = {}
    for chosen in product(*clauses):
        keys = {key.sql(): key for key in _joined(chosen)}
        found.setdefault(frozenset(keys), keys)
        if len(found) > MOST_SETS:
            _refuse_many()
    return list(found.values())


def _names(items: SelectItems) -> list[str]:
    """The names of the columns of the result: aliases, columns, or column_1, column_2 …"""
    names: list[str] = []
    for place, (alias, node) in enumerate(items):
        own = str(node.name) if isinstance(node, exp.Column) else f"column_{place + 1}"
        names.append(alias or fresh(own, names))
    return names


def _select(tree: exp.Select, names: Sequence[str], items: SelectItems, keys: KeySet, all_keys: set[str]) -> SetSelect:
    """The SELECT for one set of keys: `tree` with these keys as GROUP BY, and without the keys of other sets."""
    listed: list[Any] = []
    constants: dict[str, int] = {}
    for name, (_, node) in zip(names, items, strict=True):
        inner = unwrapped(node)
        if isinstance(inner, exp.Grouping):
            bits = ["0" if _key(each, items).sql() in keys else "1" for each in inner.expressions]
            constants[name] = int("".join(bits), 2)
        elif inner.sql() not in all_keys or inner.sql() in keys:
            listed.append(exp.alias_(inner.copy(), name, quoted=True))
    select = tree.copy()
    select.set("expressions", listed)
    select.set("group", exp.Group(expressions=[key.copy() for key in keys.values()]) if keys else None)
    return SetSelect(select, constants)


def _refuse_many() -> NoReturn:
    raise QuestionRefused(
        "clause", f"this groups by more than {MOST_SETS} sets of keys", "ask for fewer sets with GROUPING SETS"
    )
