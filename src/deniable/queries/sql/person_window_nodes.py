"""Windows over the rows of one person, in a sub-query: f(x) OVER (PARTITION BY patient_id …)."""

from __future__ import annotations

from deniable.errors import QuestionRefused
from deniable.queries.plan.fresh_names import fresh
from deniable.queries.plan.refusals import refuse
from deniable.queries.relations.person_windows import PersonWindow, PersonWindows, Sorting
from deniable.queries.relations.relation_nodes import FilterRows
from deniable.queries.sql.name_scope import RelationExpressions, Scope
from deniable.queries.sql.syntax_tree import exp, item, leaves, unwrapped
from deniable.queries.sql.window_nodes import window_parts
from deniable.tables.expressions import Expression


def with_windows(select: exp.Select, scope: Scope) -> RelationExpressions:
    """Expressions over the rows of a sub-query, in which its windows are columns; QUALIFY leaves out rows."""
    qualify = select.args.get("qualify")
    condition = None if qualify is None else _written_out(qualify.this, select)
    read = [*select.expressions, *(() if condition is None else [condition])]
    nodes = [leaf for each in read for leaf in leaves(each) if isinstance(leaf, exp.Window)]
    if not nodes:
        if condition is not None:
            refuse("qualify")
        return RelationExpressions(scope)
    rows = RelationExpressions(scope)
    made: list[tuple[str, PersonWindow]] = []
    columns: dict[int, str] = {}
    for node in nodes:
        name = fresh("over", [*scope.relation.columns, *(each for each, _ in made)])
        made.append((name, _window(node, rows)))
        columns[id(node)] = name
    found = RelationExpressions(scope.over(PersonWindows(scope.relation, tuple(made))), columns)
    if condition is None:
        return found
    kept = FilterRows(found.scope.relation, found.fitted(condition))
    return RelationExpressions(found.scope.over(kept), columns)


def _window(node: exp.Window, rows: RelationExpressions) -> PersonWindow:
    parts = window_parts(node)
    if not any(rows.is_person(each) for each in parts.partition):
        refuse("window")
    of: Expression | None = None
    if parts.argument is not None and not (parts.function == "count" and rows.is_person(parts.argument)):
        of = rows.fitted(parts.argument)
    if parts.function == "last_value" and parts.frame is None:
        raise QuestionRefused(
            "window", "LAST_VALUE without a frame reads only up to the current row and the rows that tie with it",
            "write FIRST_VALUE with ORDER BY … DESC, or ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
        )  # fmt: skip
    return PersonWindow(
        parts.function,
        of,
        tuple(rows.fitted(each) for each in parts.partition if not rows.is_person(each)),
        tuple(Sorting(rows.fitted(each), down, first) for each, down, first in parts.order if not rows.is_person(each)),
        parts.offset,
        parts.frame,
    )


def _written_out(condition: exp.Expression, select: exp.Select) -> exp.Expression:
    """A condition with the definitions of the SELECT in place of their names."""
    named = {alias.casefold(): node for alias, node in map(item, select.expressions) if alias}

    def replaced(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Column) and not node.table and str(node.name).casefold() in named:
            found = named[str(node.name).casefold()]
            if not (isinstance(unwrapped(found), exp.Column) and unwrapped(found).name == node.name):
                return exp.Paren(this=found.copy())
        return node

    return condition.copy().transform(replaced)
