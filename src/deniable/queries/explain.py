"""A question taken apart, for people who want to check: every step with its stability, every number with its reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.queries.pricing import describe
from deniable.tables.plan import (
    Bound,
    Filter,
    JoinPrivate,
    JoinPublic,
    PerPerson,
    Project,
    Relation,
    Source,
    Union,
)

if TYPE_CHECKING:
    from deniable.queries.planner import Plan


def explained(plan: Plan, sql: str) -> str:
    """The plan as text."""
    question, collect = plan.question, plan.collect
    unit = question.relation.tables[0].unit
    assert unit is not None
    lines = [f"neighbours differ by {unit.describe()}", "", "rows (the most that one person owns at each step):"]
    lines += [f"  {line}" for line in _tree(question.relation, 0)]
    lines += ["", "groups:"]
    if not question.keys:
        lines.append("  one, of all rows")
    for key in question.keys:
        public = "shown above a threshold" if key.values is None else f"{len(key.values)} public values"
        lines.append(f"  {key.name} = {key.expression!r}: {public}")
    reach = collect.reach
    lines.append(f"  a person reaches at most {reach.touched} of them, with {reach.in_one_group} rows in one")
    lines += ["", "statistics (how far they move between neighbours, over all groups):"]
    for part in plan.parts:
        step = f" in steps of 2^{part.statistic.exponent}" if hasattr(part.statistic, "exponent") else ""
        moved = part.moves.sensitivity
        lines.append(f"  {describe(part.statistic)}{step}: L1 {moved.l1:g}, L2 {moved.l2:.6g}, share {part.weight}")
    lines += ["", "measures:"]
    for recipe, uses in zip(plan.recipes, plan.uses, strict=True):
        lines.append(f"  {recipe.name}: {type(recipe).__name__.lower()} from {', '.join(str(i + 1) for i in uses)}")
    return "\n".join([*lines, "", "the engine runs:", *(f"  {line}" for line in sql.splitlines())])


def _tree(relation: Relation, depth: int) -> list[str]:
    """Indented lines, the last step first."""
    children: tuple[Relation, ...]
    match relation:
        case Source(table=table):
            said, children = f"table {table.name}", ()
        case Filter(child=child, condition=condition):
            said, children = f"where {condition!r}", (child,)
        case Project(child=child, expressions=expressions):
            said, children = f"columns {', '.join(f'{n} = {e!r}' for n, e in expressions)}", (child,)
        case JoinPublic(child=child, table=table, how=how):
            said, children = f"{how.value} join with public {table.name}", (child,)
        case JoinPrivate(left=left, right=right, how=how):
            said, children = f"{how.value} join on the person", (left, right)
        case PerPerson(child=child, aggregates=aggregates):
            said, children = f"for each person: {', '.join(name for name, _ in aggregates)}", (child,)
        case Union(parts=parts, disjoint=disjoint):
            said, children = f"union of {'disjoint ' if disjoint else ''}parts", parts
        case Bound(child=child, groups=groups, rows_per_group=each):
            said, children = f"at most {groups} groups of a person, {each} rows in each", (child,)
        case _:
            raise AssertionError(type(relation))
    below = [line for child in children for line in _tree(child, depth + 1)]
    return [f"{'  ' * depth}{said}: {relation.rows}", *below]
