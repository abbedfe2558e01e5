"""The public values of a key: listed by the schema or named by the question, without values that conditions exclude.

A key and the conditions on the rows are followed down through computed columns (`Project`), to the columns of the
relation below. There a condition such as `day >= DATE '2024-01-01'` narrows the bounds of a column, and with them the
values of an expression over it, such as `YEAR(day)`. All of this reads the question and the schema alone.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from itertools import chain
from typing import Final, NamedTuple, final

from deniable.errors import QuestionRefused
from deniable.queries.relations import evaluation_limit
from deniable.queries.relations.operators import domain, typed
from deniable.queries.relations.relation_nodes import FilterRows, Project, RelationNode
from deniable.tables.expressions import Call, Column, Expression, Literal, columns_used, conjuncts, renamed, same
from deniable.tables.kinds import NUMBERS, Domain, Kind, Scalar, kind_of, ordinal

_TURNED: Final = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}
_ORDERED: Final = frozenset({Kind.DATE, Kind.TIMESTAMP, *NUMBERS})
_WHOLE: Final = 2**53
"""Below this, integers and reals are compared exactly in every engine."""
_KEY: Final = ""
"""Stands for a computed key in the conditions on it. Columns of tables have names that are not empty."""

Passes = Callable[[Scalar | None], bool]


def public_values(expression: Expression, relation: RelationNode) -> tuple[Scalar | None, ...] | None:
    """The values that a key can take, if they are public; None if they are not.

    They are public by the schema, or because the question names them (`WHERE ward IN ('A', 'B') … GROUP BY ward`), also
    in each branch of an OR. Values that a condition excludes are left out (`WHERE age < 30 … GROUP BY age`).
    """
    found = _candidates(expression, relation)
    if found is None:
        return None
    values, passes = found
    return tuple(value for value in values if passes(value))


def no_public_value(expression: Expression, relation: RelationNode) -> bool:
    """Whether the values of a key are public and conditions exclude them all. Stops at the first value that passes."""
    found = _candidates(expression, relation)
    if found is None:
        return False
    values, passes = found
    # The last two are tried first: a range often keeps an end, and the last may be NULL, which fails comparisons.
    return not any(map(passes, chain(values[-2:], values)))


@final
class _Below(NamedTuple):
    """An expression and the conditions on all rows, over the columns of the relation below filters and projections."""

    expression: Expression
    conditions: list[Expression]
    columns: Mapping[str, Domain]


def base_columns(expressions: Iterable[Expression], relation: RelationNode) -> set[str]:
    """The columns, below filters and projections, that expressions read."""
    return {name for each in expressions for name in columns_used(_below(each, relation).expression)}


def _below(expression: Expression, relation: RelationNode) -> _Below:
    conditions: list[Expression] = []
    while isinstance(relation, FilterRows | Project):
        if isinstance(relation, FilterRows):
            conditions += conjuncts(relation.condition)
        else:
            names = dict(relation.expressions)
            try:
                expression = renamed(expression, names)
                conditions = [renamed(each, names) for each in conditions]
            except QuestionRefused:  # written out it would be too long
                break
        relation = relation.child
    return _Below(expression, conditions, relation.columns)


def _candidates(expression: Expression, relation: RelationNode) -> tuple[tuple[Scalar | None, ...], Passes] | None:
    """(the public values before conditions, a test whether a value meets all conditions); None if not public."""
    below = _below(expression, relation)
    used = set(columns_used(below.expression))
    columns = {name: _narrowed(name, each, below.conditions) if name in used else each
               for name, each in below.columns.items()}  # fmt: skip
    found = domain(below.expression, columns)
    values: tuple[Scalar | None, ...] | None = found.keys
    if values is not None and found.nullable:
        values = (*values, None)
    if values is None:
        named = (_named(below.expression, each, found.kind) for each in below.conditions)
        values = next((each for each in named if each is not None), None)
    if values is None:
        return None
    name = below.expression.name if isinstance(below.expression, Column) else _KEY
    alone = [each for each in (_over(name, below.expression, each) for each in below.conditions)
             if set(columns_used(each)) == {name}]  # fmt: skip
    columns = {**below.columns, **({} if name in below.columns else {name: found})}
    tests = [typed(each, columns).value for each in alone]
    evaluation_limit.spend(len(values) * sum(each.parts for each in alone))
    kept = _branches(below, found.kind)
    return values, lambda value: (kept is None or value in kept) and all(test({name: value}) is True for test in tests)


def _over(name: str, key: Expression, condition: Expression) -> Expression:
    """A condition with a column called `name` in place of the key: it is on the key alone if it reads nothing else."""
    if same(condition, key):
        return Column(name)
    if isinstance(condition, Call):
        return Call(condition.operator, tuple(_over(name, key, each) for each in condition.arguments))
    return condition


def _branches(below: _Below, kind: Kind) -> set[Scalar | None] | None:
    """The values of a key that all OR conditions together allow; None if no OR restricts the key in every branch."""
    found: set[Scalar | None] | None = None
    for each in below.conditions:
        if isinstance(each, Call) and each.operator == "or":
            named = _named(below.expression, each, kind)
            if named is not None:
                found = set(named) if found is None else found & set(named)
    return found


def _named(key: Expression, condition: Expression, kind: Kind) -> tuple[Scalar | None, ...] | None:
    """The values to which a condition restricts a key; None if it does not name them."""
    match condition:
        case Call(operator="or", arguments=branches):
            listed: set[Scalar | None] = set()
            for branch in branches:
                parts = (_named(key, each, kind) for each in conjuncts(branch))
                first = next((each for each in parts if each is not None), None)
                if first is None:
                    return None
                listed |= set(first)
            return (*sorted(each for each in listed if each is not None), *([None] if None in listed else []))
        case Call(operator="in", arguments=(subject, *constants)) if same(subject, key):
            pass
        case Call(operator="eq", arguments=(subject, Literal() as constant)) if same(subject, key):
            constants = [constant]
        case Call(operator="eq", arguments=(Literal() as constant, subject)) if same(subject, key):
            constants = [constant]
        case Call(operator="is_null", arguments=(subject,)) if same(subject, key):
            return (None,)
        case _:
            return None
    values = [each.value for each in constants if isinstance(each, Literal) and each.value is not None]
    if any(kind_of(value) is not kind for value in values):
        return None
    return tuple(sorted(set(values)))


def _narrowed(name: str, found: Domain, conditions: Iterable[Expression]) -> Domain:
    """The domain of a column in rows that meet all conditions, which compare it with constants."""
    if found.kind not in _ORDERED or found.keys is not None:
        return found
    low, high = found.bounds or (None, None)
    nullable = found.nullable
    for each in conditions:
        compared = _compared(name, each, found.kind)
        if compared is None:
            continue
        operator, value = compared
        nullable = False  # a comparison with NULL is not true
        whole = found.kind in {Kind.INTEGER, Kind.DATE}
        if operator in {"lt", "le", "eq"}:
            end = Fraction(math.ceil(value) - 1 if operator == "lt" else math.floor(value)) if whole else value
            high = end if high is None else min(high, end)
        if operator in {"gt", "ge", "eq"}:
            end = Fraction(math.floor(value) + 1 if operator == "gt" else math.ceil(value)) if whole else value
            low = end if low is None else max(low, end)
    if low is None or high is None or low > high:
        return Domain(found.kind, found.bounds, None, nullable)
    return Domain(found.kind, (low, high), None, nullable)


def _compared(name: str, condition: Expression, kind: Kind) -> tuple[str, Fraction] | None:
    match condition:
        case Call(operator=operator, arguments=(Column(name=column), Literal(value=value))) if operator in _TURNED:
            pass
        case Call(operator=operator, arguments=(Literal(value=value), Column(name=column))) if operator in _TURNED:
            operator = _TURNED[operator]
        case _:
            return None
    if column != name or isinstance(value, bool | str) or value is None:
        return None
    if kind is Kind.INTEGER and isinstance(value, float) and abs(value) >= _WHOLE:
        return None  # engines compare as reals, and several integers are the same real
    return operator, ordinal(value) if isinstance(value, dt.date) else Fraction(value)
