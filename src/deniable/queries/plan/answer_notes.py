"""Notes below an answer, and helpers to print costs. They use the question, the public schema and the cost alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, final

from deniable.queries.plan.disjointness import empty
from deniable.queries.plan.noise_families import family_of
from deniable.queries.relations.exact_statistics import Count, ExactSum, Reach
from deniable.queries.relations.relation_nodes import tables_read
from deniable.tables.expressions import columns_used

if TYPE_CHECKING:
    from deniable.ledger import Budget, Cost
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.tables.kinds import Domain
    from deniable.tables.schema import Table

WIDTH: Final = 80
"""Printed lines are at most this wide."""


_MOST_NAMED: Final = 8
"""The most columns that a note names; it counts the others."""

_WORTH_A_BOUND: Final = 0.5
"""A bound on rows in each group is suggested if the noise becomes at most this many times as large."""

_EMPTY: Final[dict[str, bool]] = {}
"""A cache of `empty` by the hash of the question, because a proof may try every public key."""


def threshold_note(plan: NoisePlan, threshold: int | None) -> str:
    """A note on which keys are shown if keys are not public; "" if they are."""
    if plan.people is None:
        return ""
    few = "those that many people share" if threshold is None else f"those with about {threshold:,} people or more"
    deciding = {recipe.name for recipe, uses in zip(plan.recipes, plan.uses, strict=True) if plan.people in uses}
    counts = [name for name, made in plan.question.post.columns if deciding.intersection(columns_used(made))]
    near = f", and near that number intervals of {_several(counts)} reach far down, because noise may have raised them"
    return (
        f"keys are not public: only {few} are shown{near if counts else ''}; "
        "declare keys, name them with IN, or spend more"
    )


def empty_note(plan: NoisePlan) -> str:
    """A note that no row can meet the conditions, if public keys and bounds prove it; otherwise ""."""
    known = _EMPTY.get(plan.question.hash)
    if known is None:
        if len(_EMPTY) >= 1000:
            _EMPTY.clear()
        try:
            known = empty(plan.question.relation)
        except Exception:  # a failed proof proves nothing, and must not prevent the display of a paid answer
            known = False
        _EMPTY[plan.question.hash] = known
    if not known:
        return ""
    return "by the public keys and bounds no row can fulfil the conditions: the result is pure noise"


def budget_notes(budget: Budget) -> tuple[str, ...]:
    """Notes on weaknesses of the budget itself, whatever the question."""
    return tuple(f"the budget's {warning}" for warning in budget.weaknesses())


def group_rows_note(plan: NoisePlan, budget: Budget) -> str:
    """A note on how much noise a bound of one row of each person in each group saves; "" if it saves less than half.

    For counts and sums of rows by keys. With R rows in all, one group may have all of them: L2 is R, and √R with one
    row in each group. L1 is the smaller of R and the number of groups.
    """
    collect = plan.collect
    if not collect.keys or not all(isinstance(each, Count | ExactSum) for each in collect.statistics):
        return ""
    reach = collect.reach
    bounded = Reach(reach.rows, reach.groups, 1)
    family = family_of(budget)
    ratio = family.length(bounded) / family.length(reach)
    if ratio > _WORTH_A_BOUND:
        return ""
    bound = "with at most 1 row of each person in each group, OPTIONS (max_rows_per_group = 1),"
    return f"{bound} the noise is about {ratio:.2g} times as large; further rows are left out"


def rows_note(plan: NoisePlan) -> str:
    """A note on the owner's bound: how many rows of each person were read at most; "" without such a bound."""
    bounds = {
        table.name: table.unit.rows for table in plan.question.relation.tables if table.unit and table.unit.column
    }
    if not bounds:
        return ""
    period = next((table.unit.period for table in plan.question.relation.tables if table.unit), None)
    each = "each person" if period is None else f"each person's {period}"
    if len(bounds) == 1:
        [rows] = bounds.values()
        return f"at most {_rows(rows)} of {each} {'was' if rows == 1 else 'were'} read"
    return f"of {each} were read at most " + ", ".join(f"{_rows(n)} of {name}" for name, n in bounds.items())


def left_out_notes(plan: NoisePlan) -> list[str]:
    """Notes on rows that are dropped because of missing values, by the schema alone, whether or not there are any."""
    tables = tables_read(plan.question.relation)
    listed: list[str] = []
    bare: list[str] = []
    for name, table in tables.items():
        for column, domain in table.columns:
            if not domain.nullable and not (table.unit and table.unit.column == column):
                called = column if len(tables) == 1 else f"{name}.{column}"
                (bare if domain.keys is None else listed).append(called)
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
"""The purpose of the second δ in a cost: the first belongs to ε, the second to thresholds."""


def cost_in_words(cost: Cost, budget: Budget) -> str:
    """A cost as text, with the purpose of each δ."""
    return cost.describe(budget) + (_KEYS if cost.delta_units else "")


def rest_in_words(rest: Cost, budget: Budget) -> str:
    """The rest of a budget as text, with the purpose of each δ."""
    return rest.describe_rest(budget) + _KEYS


def short(value: float | None) -> str:
    """The size of noise as text, with three digits or as an integer; None becomes "depends on data"."""
    return "depends on data" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def listed(columns: Mapping[str, Domain]) -> list[str]:
    """A line for each column with its domain."""
    width = max(map(len, columns), default=0)
    return [f"  {name.ljust(width)}  {str(each).removeprefix('Domain.')}" for name, each in columns.items()]


def wrapped(lines: Iterable[str], indent: str = "") -> list[str]:
    """The lines wrapped to `WIDTH`; empty lines are dropped."""
    return [
        part
        for line in lines
        if line
        for part in textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    ]


@final
class Tables(dict[str, "Table"]):
    """Schemas by name. Their repr lists the columns of each table with their domains."""

    def __repr__(self) -> str:
        lines: list[str] = []
        for name, table in self.items():
            whose = "public" if table.unit is None else f"protects {table.unit.describe()}"
            lines += [f"{name}: {whose}", *listed(dict(table.columns))]
        return "\n".join(lines)

    __str__ = __repr__


def short_error(value: float) -> str:
    """An error with three digits, or as a whole number from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
