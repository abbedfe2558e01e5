"""The exact aggregates within a person that a sub-query asks for: COUNT, SUM, MAX, and also FIRST, ARG_MIN or MEDIAN.

FIRST, ARG_MIN and MEDIAN depend on an order of a person's rows. They are the least or the average value of the rows at
certain places of that order, so a window numbers the rows first (`PersonWindows`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from deniable.errors import QuestionRefused
from deniable.queries.plan.canonical_form import Form, expression_form
from deniable.queries.plan.fresh_names import fresh
from deniable.queries.plan.refusals import refuse
from deniable.queries.relations.person_windows import PersonWindow, Sorting
from deniable.queries.relations.relation_nodes import EXACT, Exact
from deniable.queries.sql.aggregate_functions import aggregate, aggregated
from deniable.queries.sql.name_scope import RelationExpressions
from deniable.queries.sql.syntax_tree import exp, only, unwrapped
from deniable.tables.expressions import Column, Expression, call, case

_FIRST: Final = (exp.First, exp.Last, exp.AnyValue)
_BEST: Final = (exp.ArgMin, exp.ArgMax)


@final
@dataclass(slots=True)
class Gathered:
    """The aggregates of a sub-query by person: exact, and visible only to the SELECT around it."""

    taken: list[str]
    keys: tuple[Expression, ...] = ()
    found: dict[Form, tuple[str, Exact]] = field(default_factory=dict)
    windows: list[tuple[str, PersonWindow]] = field(default_factory=list)
    """The windows that number the rows of a person, below the aggregates."""

    def made(self, node: exp.Expression, rows: RelationExpressions) -> Expression:
        """The column that holds the aggregate."""
        while isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
            node = node.this
        if isinstance(node, _FIRST):
            return self._first(node, rows)
        if isinstance(node, _BEST):
            return self._best(node, rows)
        if isinstance(node, exp.Median):
            return self._median(node, rows)
        read = aggregate(node, rows)
        if read.bounds is not None or read.function not in EXACT:
            raise QuestionRefused(
                "aggregate", f"within a person only {', '.join(EXACT)}, first, last, arg_min, arg_max and median are "
                "supported",
                "for example: SELECT MEDIAN(n) FROM (SELECT patient_id, MAX(cost) AS n FROM visits GROUP BY 1)",
            )  # fmt: skip
        return self._kept(read.form, read.function, Exact(read.function, read.expression))

    def _kept(self, form: Form, name: str, exact: Exact) -> Column:
        if form not in self.found:
            taken = [*self.taken, *(name for name, _ in self.found.values())]
            self.found[form] = fresh(name, taken), exact
        return Column(self.found[form][0])

    def _window(self, rows: RelationExpressions, function: str, of: Expression | None, order: list[Sorting]) -> Column:
        taken = [*rows.scope.relation.columns, *(name for name, _ in self.windows)]
        made = PersonWindow(function, of, self.keys, tuple(order))
        self.windows.append((fresh("place", taken), made))
        return Column(self.windows[-1][0])

    def _first(self, node: exp.Expression, rows: RelationExpressions) -> Expression:
        """FIRST(a ORDER BY b): a in the first row, also NULL. ANY_VALUE(a): in the first row where it is not NULL."""
        only(node, "this")
        inner = node.this
        last = isinstance(node, exp.Last)
        order: list[Sorting] = []
        if isinstance(inner, exp.Order):
            for part in inner.expressions:
                only(part, "this", "desc")
                down, first = bool(part.args.get("desc")), bool(part.args.get("nulls_first"))
                order.append(Sorting(rows.fitted(unwrapped(part.this)), down is not last, first is not last))
            inner = inner.this
        if last and not order:
            refuse("private aggregate", what="LAST without ORDER BY, which has no defined order,")
        of = aggregated(inner, rows)
        if isinstance(node, exp.AnyValue):
            order = [Sorting(of.is_null(), False, False), *order]
        return self._at_first("first", of, order, rows)

    def _best(self, node: exp.Expression, rows: RelationExpressions) -> Expression:
        """ARG_MIN(a, b): a in the row with the least b, among rows in which neither is NULL."""
        only(node, "this", "expression")
        of, by = aggregated(node.this, rows), rows.fitted(node.args["expression"])
        known = ~(of.is_null() | by.is_null())
        order = [Sorting(known, True, False), Sorting(by, isinstance(node, exp.ArgMax), False)]
        return self._at_first("best", case((known, of)), order, rows)

    def _at_first(self, name: str, of: Expression, order: list[Sorting], rows: RelationExpressions) -> Expression:
        order_form = tuple((expression_form(each.expression), each.descending, each.nulls_first) for each in order)
        form: Form = (name, expression_form(of), order_form)
        if form in self.found:
            return Column(self.found[form][0])
        place = self._window(rows, "row_number", None, order)
        return self._kept(form, name, Exact("min", case((call("eq", place, 1), of))))

    def _median(self, node: exp.Expression, rows: RelationExpressions) -> Expression:
        """The average of the one or two values in the middle: of n values, those at places k with n <= 2k <= n + 2."""
        only(node, "this")
        of = aggregated(node.this, rows)
        form: Form = ("median", expression_form(of))
        if form in self.found:
            return Column(self.found[form][0])
        place = self._window(rows, "row_number", None, [Sorting(of, False, False)])
        number = self._window(rows, "count", of, [])
        twice = call("multiply", place, 2)
        middle = (twice >= number) & (twice <= number + 2) & ~of.is_null()
        return self._kept(form, "median", Exact("avg", case((middle, of))))
