"""The aggregates of the outermost SELECT, as the noisy measures of a question.

Most aggregates are one measure. Those of two columns (covariance, correlation, linear regression) are expressions over
several noisy moments. With u = x - m and v = y - k around the middles of the public bounds, over the rows where both
are known:

    COVAR_POP(y, x) = AVG(u·v) - AVG(u)·AVG(v)        CORR = COVAR_POP / (STDDEV_POP(u)·STDDEV_POP(v))

The moments are measures like any other: bounded, paid for and noisy. The rest is post-processing, with the noise
interval of a quotient of noisy numbers (`ratio_intervals`): a slope has no interval if the variance of x may be 0 given
its noise. A noisy correlation may be a little above 1, as a noisy count may be below 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from deniable.errors import QuestionRefused
from deniable.queries.plan.canonical_form import Form
from deniable.queries.plan.fresh_names import fresh
from deniable.queries.plan.question import Key, Measure
from deniable.queries.plan.refusals import refuse
from deniable.queries.relations.operators import typed
from deniable.queries.relations.relation_nodes import Exact, PerPerson, RelationNode
from deniable.queries.sql.aggregate_functions import Aggregate, aggregate, aggregated, clamped
from deniable.queries.sql.function_names import sql_name
from deniable.queries.sql.name_scope import RelationExpressions
from deniable.queries.sql.syntax_tree import exp, only
from deniable.tables.expressions import Column, Expression, case, lit
from deniable.tables.kinds import NUMBERS, Kind


@final
@dataclass(slots=True)
class AskedAggregates:
    """The aggregates of the outermost SELECT, collected as noisy measures; equal aggregates are one measure.

    `wish` is the alias of the item of SELECT that is read now; a measure that makes up the whole item gets this name.
    """

    relation: RelationNode
    keys: Sequence[Key]
    wish: str = ""
    found: dict[Form, tuple[str, Aggregate]] = field(default_factory=dict)

    def made(self, node: exp.Expression, rows: RelationExpressions) -> Expression:
        """The column of a measure; for an aggregate of two columns, an expression over several measures."""
        where, inner = None, node
        if isinstance(node, exp.Filter) and type(node.this) in _ASKED:
            only(node, "this", "expression")
            where, inner = rows.fitted(node.args["expression"].this), node.this
        if type(inner) not in _ASKED:
            return self.column(aggregate(node, rows))
        if isinstance(inner.this, exp.Distinct):
            refuse("distinct aggregate")
        only(inner, "this", "expression")
        if inner.args.get("expression") is None:
            raise QuestionRefused("kinds", f"{sql_name(inner)} needs two numbers, not one", "name two columns")
        self.wish = ""
        y, x = aggregated(inner.this, rows), aggregated(inner.expression, rows)
        return _ASKED[type(inner)](_both(inner, y, x, self.relation, where, self))

    def column(self, read: Aggregate) -> Column:
        """The column of the measure of an aggregate, which is added if it is new."""
        if read.form not in self.found:
            taken = [key.name for key in self.keys] + [name for name, _ in self.found.values()]
            self.found[read.form] = fresh(self.wish or read.function, taken), read
        return Column(self.found[read.form][0])

    def measured(self) -> tuple[RelationNode, list[Key], list[Measure]]:
        """(relation, keys, measures). Bounds per person and group first group each person's rows by the keys."""
        if not any(each.bounds for _, each in self.found.values()):
            measures = [Measure(name, a.function, a.expression, a.options) for name, a in self.found.values()]
            return self.relation, list(self.keys), measures
        partial: list[tuple[str, Exact]] = []
        measures = []
        for name, each in self.found.values():
            if each.function == "count_persons" and each.expression is None:
                measures.append(Measure(name, "count_persons", None))
                continue
            if each.function not in {"sum", "count"}:
                refuse("bounds option", what="COUNT and SUM, when one of them has bounds per group")
            partial.append((name, Exact(each.function, each.expression)))
            value: Expression = Column(name)
            if each.bounds is not None:
                value = clamped(value, *each.bounds)
            measures.append(Measure(name, "sum", value))
        keys = tuple((key.name, key.expression) for key in self.keys)
        gathered = PerPerson(self.relation, keys, tuple(partial) or (("rows", Exact("count", None)),))
        return gathered, [Key(key.name, Column(key.name), key.values) for key in self.keys], measures


# --- aggregates of two columns ----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class _Both:
    """Two columns over the rows where both are known, around the middles of their bounds."""

    measures: AskedAggregates
    u: Expression
    v: Expression
    m: Expression
    """The middle of x's bounds, which was subtracted."""
    k: Expression
    """The middle of y's bounds, which was subtracted."""

    def covariance(self) -> Expression:
        mean = self._ask("avg", self.u * self.v)
        return mean - self._ask("avg", self.u) * self._ask("avg", self.v)

    def sample(self) -> Expression:
        n = self._ask("count", self.u * self.v)
        return self.covariance() * n / (n - 1)

    def correlation(self) -> Expression:
        return self.covariance() / (self._ask("stddev", self.u, ddof=0) * self._ask("stddev", self.v, ddof=0))

    def slope(self) -> Expression:
        return self.covariance() / self._ask("var", self.u, ddof=0)

    def intercept(self) -> Expression:
        return self.average_of_y() - self.slope() * self.average_of_x()

    def determination(self) -> Expression:
        correlation = self.correlation()
        return correlation * correlation

    def average_of_x(self) -> Expression:
        return self._ask("avg", self.u) + self.m

    def average_of_y(self) -> Expression:
        return self._ask("avg", self.v) + self.k

    def count(self) -> Expression:
        return self._ask("count", self.u * self.v)

    def squares_of_x(self) -> Expression:
        return self.count() * self._ask("var", self.u, ddof=0)

    def squares_of_y(self) -> Expression:
        return self.count() * self._ask("var", self.v, ddof=0)

    def products(self) -> Expression:
        return self.count() * self.covariance()

    def _ask(self, function: str, expression: Expression, **options: float) -> Column:
        return self.measures.column(Aggregate(function, expression, options))


_ASKED: Final[dict[type[exp.Expression], Callable[[_Both], Expression]]] = {
    exp.CovarPop: _Both.covariance,
    exp.CovarSamp: _Both.sample,
    exp.Corr: _Both.correlation,
    exp.RegrSlope: _Both.slope,
    exp.RegrIntercept: _Both.intercept,
    exp.RegrR2: _Both.determination,
    exp.RegrAvgx: _Both.average_of_x,
    exp.RegrAvgy: _Both.average_of_y,
    exp.RegrCount: _Both.count,
    exp.RegrSxx: _Both.squares_of_x,
    exp.RegrSyy: _Both.squares_of_y,
    exp.RegrSxy: _Both.products,
}


_VARYING: Final[frozenset[type[exp.Expression]]] = frozenset({exp.Corr, exp.RegrSlope, exp.RegrIntercept, exp.RegrR2})
"""Quotients by a variance, which is 0 for a constant."""


def _both(
    node: exp.Expression,
    y: Expression,
    x: Expression,
    relation: RelationNode,
    where: Expression | None,
    measures: AskedAggregates,
) -> _Both:
    """The two columns of an aggregate, checked and centred; `where` selects rows, as FILTER does."""
    for each in (y, x):
        _check(node, each, typed(each, relation.columns).domain.kind)
        _check_bounds(node, each, relation)
    if type(node) in _VARYING:
        for each in (y, x) if isinstance(node, exp.Corr | exp.RegrR2) else (x,):
            _check_varies(node, each, relation)
    conditions = [] if where is None else [where]
    conditions += [~each.is_null() for each in (y, x) if typed(each, relation.columns).domain.nullable]
    (v, k), (u, m) = _centred(y, relation), _centred(x, relation)
    if conditions:
        known = conditions[0]
        for each in conditions[1:]:
            known = known & each
        u, v = case((known, u)), case((known, v))
    return _Both(measures, u, v, m, k)


def _check(node: exp.Expression, value: Expression, kind: Kind) -> None:
    if kind in NUMBERS:
        return
    remedy = "compare averages by group instead: GROUP BY this column"
    if kind is Kind.BOOLEAN:
        remedy = "make it a number: CASE WHEN … THEN 1 ELSE 0 END"
    raise QuestionRefused("kinds", f"{sql_name(node)} needs two numbers, and {value!r} is of kind {kind.value}", remedy)


def _check_bounds(node: exp.Expression, value: Expression, relation: RelationNode) -> None:
    if isinstance(node, exp.RegrCount) or typed(value, relation.columns).domain.bounds is not None:
        return
    name = value.name if isinstance(value, Column) else "…"
    rule = (
        f"{sql_name(node)} needs public bounds of both numbers, and {name if name != '…' else 'one of them'} has none"
    )
    raise QuestionRefused("bounds", rule, f"write LEAST(GREATEST({name}, 0), 100) for it, with bounds of its own")


def _check_varies(node: exp.Expression, value: Expression, relation: RelationNode) -> None:
    ends = typed(value, relation.columns).domain.bounds
    if ends is None or ends[0] < ends[1]:
        return
    rule = f"{sql_name(node)} needs numbers that vary, and {value!r} is the same in all rows"
    raise QuestionRefused("kinds", rule, "name a column with several values")


def _centred(value: Expression, relation: RelationNode) -> tuple[Expression, Expression]:
    """(a number minus the middle of its bounds, that middle). A number without bounds is unchanged: only REGR_COUNT
    accepts one, and it counts rows.
    """
    domain = typed(value, relation.columns).domain
    if domain.kind not in NUMBERS or domain.bounds is None:
        return value, lit(0.0)
    middle = lit(float((domain.bounds[0] + domain.bounds[1]) / 2))
    return value - middle, middle
