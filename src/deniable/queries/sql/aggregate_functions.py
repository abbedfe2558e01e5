"""Aggregates as written in SQL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NoReturn, final

from deniable.errors import QuestionRefused
from deniable.queries.plan.canonical_form import Form, expression_form
from deniable.queries.plan.refusals import refuse
from deniable.queries.sql.function_names import sql_name
from deniable.queries.sql.name_scope import RelationExpressions
from deniable.queries.sql.syntax_tree import BOUNDED, exp, number, only, unwrapped
from deniable.tables.expressions import Expression, Literal, call, case

_PLAIN: Final[dict[type[exp.Expression], tuple[str, dict[str, float]]]] = {
    exp.Sum: ("sum", {}),
    exp.Avg: ("avg", {}),
    exp.Min: ("min", {}),
    exp.Max: ("max", {}),
    exp.Variance: ("var", {"ddof": 1}),
    exp.VariancePop: ("var", {"ddof": 0}),
    exp.Stddev: ("stddev", {"ddof": 1}),
    exp.StddevSamp: ("stddev", {"ddof": 1}),
    exp.StddevPop: ("stddev", {"ddof": 0}),
    exp.Median: ("quantile", {"q": 0.5}),
}
_QUANTILES: Final[dict[type[exp.Expression], str]] = {
    exp.Quantile: "quantile",
    exp.PercentileCont: "expression",
    exp.PercentileDisc: "expression",
    exp.ApproxQuantile: "quantile",
}
_TELLING: Final = (
    exp.AnyValue, exp.ArgMax, exp.ArgMin, exp.ArrayAgg, exp.ArrayConcatAgg, exp.ArrayUnionAgg, exp.ArrayUniqueAgg,
    exp.First, exp.FirstValue, exp.GroupConcat, exp.JSONArrayAgg, exp.JSONBObjectAgg, exp.JSONObjectAgg, exp.Last,
    exp.LastValue, exp.NthValue, exp.ObjectAgg,
)  # fmt: skip
"""Aggregates that return values of rows, which noise on a number cannot make private."""
_FREQUENT: Final = (exp.Mode, exp.ApproxTopK, exp.ApproxTopSum)
"""Aggregates that return the most frequent values; a question by group answers that, with noise."""


@final
@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate as written in SQL; `bounds` are BigQuery's contribution bounds per person and group."""

    function: str
    expression: Expression | None
    options: dict[str, float] = field(default_factory=dict)
    bounds: tuple[float, float] | None = None

    @property
    def form(self) -> Form:
        of = None if self.expression is None else expression_form(self.expression)
        return (self.function, of, repr(sorted(self.options.items())), repr(self.bounds))


def aggregate(node: exp.Expression, rows: RelationExpressions) -> Aggregate:
    """The aggregate of a node of the tree; `QuestionRefused` if it is not supported."""
    kind = type(node)
    if isinstance(node, exp.Filter):
        only(node, "this", "expression")
        return _where(aggregate(node.this, rows), rows.fitted(node.args["expression"].this))
    if isinstance(node, exp.Anonymous):
        return _bounded(node, rows)
    if isinstance(node, exp.Count):
        return _count(node, rows)
    if isinstance(node.args.get("this"), exp.Star):
        name = sql_name(node)
        raise QuestionRefused("aggregate", f"{name} needs a column: only COUNT counts rows", f"name one in {name}(...)")
    if isinstance(node, exp.ApproxDistinct):  # exact before the noise, which makes it approximate anyway
        only(node, "this")
        return _distinct(unwrapped(node.this), rows)
    if isinstance(node, exp.CountIf):
        only(node, "this")
        return Aggregate("count", case((rows.fitted(node.this), 1)))
    if isinstance(node, exp.WithinGroup):
        return _within(node, rows)
    if kind in _PLAIN:
        only(node, "this")
        function, options = _PLAIN[kind]
        return Aggregate(function, aggregated(node.this, rows), dict(options))
    if kind in _QUANTILES:
        only(node, "this", _QUANTILES[kind])
        fraction = node.args.get(_QUANTILES[kind])
        if fraction is None:
            rule = f"{sql_name(node)} needs the fraction of rows that are below it"
            raise QuestionRefused("constant", rule, f"write {sql_name(node)}(..., 0.9)")
        return Aggregate("quantile", aggregated(node.this, rows), {"q": _fraction(fraction)})
    _refuse(node)


def _refuse(node: exp.Expression) -> NoReturn:
    """Refuse an aggregate for the right reason: it returns values of people, or it is not implemented."""
    while isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
        node = node.this
    what = sql_name(node)
    if isinstance(node, _TELLING):
        refuse("private aggregate", what=what)
    refuse("mode" if isinstance(node, _FREQUENT) else "unsupported aggregate", what=what)


def aggregated(node: exp.Expression, rows: RelationExpressions) -> Expression:
    """The argument of an aggregate, which must not be DISTINCT."""
    if isinstance(node, exp.Distinct):
        refuse("distinct aggregate")
    return rows.fitted(node)


def _count(node: exp.Count, rows: RelationExpressions) -> Aggregate:
    only(node, "this")
    inner = node.this
    if inner is None or isinstance(inner, exp.Star):
        return Aggregate("count", None)
    if isinstance(inner, exp.Distinct):
        only(inner, "expressions")
        if len(inner.expressions) != 1:
            refuse("distinct aggregate")
        return _distinct(unwrapped(inner.expressions[0]), rows)
    if (there := rows.presence(inner)) is not None:
        return Aggregate("count", there)
    if rows.is_person(inner):
        return Aggregate("count", None)  # a row without a person is not registered
    expression = rows.fitted(inner)
    return Aggregate("count", None if isinstance(expression, Literal) and expression.value is not None else expression)


def _distinct(inner: exp.Expression, rows: RelationExpressions) -> Aggregate:
    if (there := rows.presence(inner)) is not None:
        return Aggregate("count_persons", there)
    if rows.is_person(inner):
        return Aggregate("count_persons", None)
    if isinstance(inner, exp.Case | exp.If) and (condition := _person_if(inner, rows)) is not None:
        return Aggregate("count_persons", case((condition, 1)))
    return Aggregate("count_distinct", rows.fitted(inner))


def _person_if(node: exp.Expression, rows: RelationExpressions) -> Expression | None:
    """The condition of CASE WHEN condition THEN person END."""
    if isinstance(node, exp.Case):
        if node.this is not None or len(node.args["ifs"]) != 1 or node.args.get("default") is not None:
            return None
        node = node.args["ifs"][0]
    if node.args.get("false") is not None:
        return None
    if (there := rows.presence(node.args["true"])) is not None:
        return call("and", rows.fitted(node.this), ~there.is_null())
    return rows.fitted(node.this) if rows.is_person(node.args["true"]) else None


def _within(node: exp.WithinGroup, rows: RelationExpressions) -> Aggregate:
    only(node, "this", "expression")
    inner, order = node.this, node.args["expression"]
    if type(inner) not in {exp.PercentileCont, exp.PercentileDisc} or not isinstance(order, exp.Order):
        _refuse(inner)
    only(inner, "this")
    if len(order.expressions) != 1:
        refuse("unsupported aggregate", what="WITHIN GROUP over several columns")
    by = order.expressions[0]
    only(by, "this", "desc")
    fraction = _fraction(inner.this)
    return Aggregate("quantile", rows.fitted(by.this), {"q": 1 - fraction if by.args.get("desc") else fraction})


def _fraction(node: exp.Expression) -> float:
    node = unwrapped(node)
    if not isinstance(node, exp.Literal) or node.is_string:
        refuse("constant", what="the fraction of a quantile")
    return float(number(str(node.this)))


def _where(inner: Aggregate, condition: Expression) -> Aggregate:
    """FILTER (WHERE …): rows that do not meet the condition count as NULL."""
    expression = Literal(1) if inner.expression is None else inner.expression
    return Aggregate(inner.function, case((condition, expression)), inner.options, inner.bounds)


def _bounded(node: exp.Anonymous, rows: RelationExpressions) -> Aggregate:
    what = "COUNT, SUM, AVG, VARIANCE, STDDEV and quantiles"
    if len(node.expressions) != 4 or not all(isinstance(each, exp.Literal | exp.Neg) for each in node.expressions[1:]):
        refuse("function", what=BOUNDED)
    inner = aggregate(unwrapped(node.expressions[0]), rows)
    name, low, high = (_constant(each) for each in node.expressions[1:])
    if not (isinstance(low, int | float) and isinstance(high, int | float) and low <= high):
        refuse("function", what=BOUNDED)
    if name == "contribution_bounds_per_group":
        if inner.function not in {"sum", "count"}:
            refuse("bounds option", what="COUNT and SUM; for AVG, VARIANCE and quantiles they are per row")
        return Aggregate(inner.function, inner.expression, inner.options, (float(low), float(high)))
    if inner.expression is None or inner.function.startswith("count"):
        refuse("bounds option", what=what)
    return Aggregate(inner.function, clamped(inner.expression, low, high), inner.options)


def _constant(node: exp.Expression) -> object:
    if isinstance(node, exp.Neg):
        inner = _constant(node.this)
        return -inner if isinstance(inner, int | float) else None
    return str(node.this) if node.is_string else number(str(node.this))


def clamped(value: Expression, low: float, high: float) -> Expression:
    """A number moved into [low, high]. Whole bounds are integers, so that they do not turn integers into floats."""
    return call("least", call("greatest", value, _plain(low)), _plain(high))


def _plain(value: float) -> int | float:
    return int(value) if value == int(value) and abs(value) < 2**53 else value
