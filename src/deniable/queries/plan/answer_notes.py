"""What stands below an answer besides its numbers: from the question, the public schema and the cost alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, final

from deniable.queries.plan.disjointness import empty
from deniable.queries.relations.relation_nodes import tables_read
from deniable.tables.expressions import columns_used

if TYPE_CHECKING:
    from deniable.ledger import Budget, Cost
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.tables.kinds import Domain
    from deniable.tables.schema import Table

WIDTH: Final = 80
"""As wide as a terminal is, at the least."""


_MOST_NAMED: Final = 8
"""Columns that a note names; of more it says how many."""

_EMPTY: Final[dict[str, bool]] = {}
"""By the hash of the question: to find it out may mean to try every public key."""


def threshold_note(plan: NoisePlan, threshold: int | None) -> str:
    """Which keys are shown, where keys are not public; nothing where they are."""
    if plan.people is None:
        return ""
    few = "those that many people share" if threshold is None else f"those with about {threshold:,} people or more"
    deciding = {recipe.name for recipe, uses in zip(plan.recipes, plan.uses, strict=True) if plan.people in uses}
    counts = [name for name, made in plan.question.post.columns if deciding.intersection(columns_used(made))]
    luck = f", and near that intervals of {_several(counts)} reach far down, because those keys may be shown by luck"
    return (
        f"keys are not public: only {few} are shown{luck if counts else ''}; "
        "declare keys, name them with IN, or spend more"
    )


def empty_note(plan: NoisePlan) -> str:
    """That no row can be asked for, if keys and bounds show it."""
    known = _EMPTY.get(plan.question.hash)
    if known is None:
        if len(_EMPTY) >= 1000:
            _EMPTY.clear()
        try:
            known = empty(plan.question.relation)
        except Exception:  # what failed proves nothing; an answer that was paid for is shown in any case
            known = False
        _EMPTY[plan.question.hash] = known
    if not known:
        return ""
    return "by the public keys and bounds no row can fulfil the conditions: what is told is noise alone"


def budget_notes(budget: Budget) -> tuple[str, ...]:
    """What the budget protects little, whatever is asked: from its own numbers alone."""
    return tuple(f"the budget's {said}" for said in budget.weaknesses())


def rows_note(plan: NoisePlan) -> str:
    """How many rows of a person were read, at most: the owner's bound, which holds before anything else is done."""
    bounds = {
        table.name: table.unit.rows for table in plan.question.relation.tables if table.unit and table.unit.column
    }
    if not bounds:
        return ""
    if len(bounds) == 1:
        [rows] = bounds.values()
        return f"at most {_rows(rows)} of each person {'was' if rows == 1 else 'were'} read"
    return "of each person were read at most " + ", ".join(f"{_rows(n)} of {name}" for name, n in bounds.items())


def left_out_notes(plan: NoisePlan) -> list[str]:
    """Which rows are not counted because of what they lack: by the schema alone, whether or not there are any."""
    tables = tables_read(plan.question.relation)
    listed: list[str] = []
    bare: list[str] = []
    for name, table in tables.items():
        for column, domain in table.columns:
            if not domain.nullable and not (table.unit and table.unit.column == column):
                said = column if len(tables) == 1 else f"{name}.{column}"
                (bare if domain.keys is None else listed).append(said)
    return [
        f"rows {which} are left out: {_several(names)}"
        for which, names in (
            ("whose value is not in its public list", listed),
            ("without a readable value", bare),
        )
        if names
    ]


def _several(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more columns" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


_KEYS: Final = " for unlisted keys"
"""What a δ beside the noise is for: the first δ in such a line belongs to ε, the second to thresholds."""


def cost_said(cost: Cost, budget: Budget) -> str:
    """A cost in words, each δ with what it is for."""
    return cost.describe(budget) + (_KEYS if cost.delta_units else "")


def rest_said(rest: Cost, budget: Budget) -> str:
    """What is left in words, each δ with what it is for."""
    return rest.describe_rest(budget) + _KEYS


def short(value: float | None) -> str:
    """The size of noise for people: three digits, or a whole number; None is what no plan can tell."""
    return "depends on data" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def listed(columns: Mapping[str, Domain]) -> list[str]:
    """A line for each column, with what is public about it."""
    width = max(map(len, columns), default=0)
    return [f"  {name.ljust(width)}  {str(each).removeprefix('Domain.')}" for name, each in columns.items()]


def wrapped(lines: Iterable[str], indent: str = "") -> list[str]:
    """Lines that fit into a terminal; what is left out by `textwrap` is spaces."""
    return [
        part
        for line in lines
        if line
        for part in textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    ]


@final
class Tables(dict[str, "Table"]):
    """Schemas by name, printed as a list of columns with what is public about each."""

    def __repr__(self) -> str:
        lines: list[str] = []
        for name, table in self.items():
            whose = "public" if table.unit is None else f"protects {table.unit.describe()}"
            lines += [f"{name}: {whose}", *listed(dict(table.columns))]
        return "\n".join(lines)

    __str__ = __repr__
