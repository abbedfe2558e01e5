"""Proofs, from conditions and the public schema alone, that the parts of a union are disjoint or a relation is empty.

A proof reads each condition as limits on one value (NULL, a set, an interval) and looks for limits that exclude each
other. False means that nothing was proved, not that the opposite holds.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, combinations
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, final

from deniable.errors import QuestionRefused
from deniable.queries.plan.canonical_form import Form, Forms, expression_form, relation_form
from deniable.queries.plan.named_keys import no_public_value
from deniable.queries.relations.operators import typed
from deniable.queries.relations.relation_nodes import FilterRows, How, JoinPrivate, Project, RelationNode, Source, Union
from deniable.tables.expressions import Call, Column, Expression, Literal, columns_used, conjuncts, renamed
from deniable.tables.kinds import NUMBERS, Domain, Kind, Scalar, kind_of, ordinal

_MOST_USED: Final = 200
_DAYS: Final = frozenset({Kind.DATE, Kind.TIMESTAMP})
_PLAIN: Final = {"lt": lt, "le": le, "gt": gt, "ge": ge, "eq": eq, "ne": ne}
_FEW: Final = 8
_WHOLE: Final = 2**53
"""Below this, integers and reals are compared exactly, here and in engines."""

_TURNED: Final = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}
_NEGATED: Final = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
"""Comparison -> the comparison that is true where it is false. (No value is NaN.)"""


@final
@dataclass(slots=True)
class _Limits:
    """The values that conditions allow: NULL if `null`; if `values` is a set, only its members; and only values from
    `low` to `high`, as `_comparable` numbers.
    """

    null: bool = False
    values: frozenset[Any] | None = None
    low: tuple[Any, bool] | None = None
    """(the end, whether it is excluded)."""
    high: tuple[Any, bool] | None = None

    def excludes(self, other: _Limits) -> bool:
        """Whether no value is within both limits."""
        if self.null or other.null:
            return self.null != other.null
        for a, b in ((self, other), (other, self)):
            if a.values is not None and not any(b.allows(value) for value in a.values):
                return True
            if a.low is not None and b.high is not None:
                (low, low_open), (high, high_open) = a.low, b.high
                if low > high or (low == high and (low_open or high_open)):
                    return True
        return False

    def allows(self, value: Any) -> bool:
        """Whether a value that is not NULL is within the limits."""
        if self.values is not None and value not in self.values:
            return False
        if self.low is not None and (value < self.low[0] or (value == self.low[0] and self.low[1])):
            return False
        return self.high is None or not (value > self.high[0] or (value == self.high[0] and self.high[1]))


def disjoint(parts: Sequence[RelationNode]) -> bool:
    """Whether it is proved that no row is in two parts: all filter the same relation, by contradicting conditions.

    Then all parts together have at most as many rows of a person as the relation they filter.
    """
    found = [_filters(part) for part in parts]
    forms = [relation_form(base) for base, _ in found]
    if len({repr(form) for form, _ in forms}) > 1:
        return False
    # Compared by form, not by name: the same name may stand for different values in two parts.
    limits = [
        _Reading(base.columns, columns).limits(conditions)
        for (base, conditions), (_, columns) in zip(found, forms, strict=True)
    ]
    return all(any(a[form].excludes(b[form]) for form in a.keys() & b.keys()) for a, b in combinations(limits, 2))


def empty(relation: RelationNode) -> bool:
    """Whether it is proved that a relation is empty on all data: its conditions contradict each other or the schema."""
    if isinstance(relation, Union):
        return all(empty(part) for part in relation.parts)
    if isinstance(relation, JoinPrivate):
        return empty(relation.left) or (relation.how is How.INNER and empty(relation.right))
    if not isinstance(relation, FilterRows | Project):
        return any(empty(child) for child in relation.children)
    base, conditions = _filters(relation)
    if isinstance(base, Source) and _is_met(conditions, base.columns):
        return False
    _, forms = relation_form(base)
    domains = {expression_form(Column(name), forms): each for name, each in base.columns.items()}
    for form, limits in _Reading(base.columns, forms).limits(conditions).items():
        if limits.excludes(limits) or (form in domains and _outside(limits, domains[form])):
            return True
    return _unfulfilled(relation) or empty(base)


def _is_met(conditions: list[Expression], columns: Mapping[str, Domain]) -> bool:
    """Whether some possible row meets the conditions, all of which compare a column with a number. A fast exit.

    Tries, for each column, the ends of its bounds and the integers next to the numbers that it is compared with.
    """
    asked: dict[str, list[tuple[Callable[[Any, Any], bool], int | float]]] = {}
    if len(conditions) > _FEW:  # the time grows with the square of their number
        return False
    for condition in conditions:
        match condition:
            case Call(operator=operator, arguments=(Column(name=name), Literal(value=int() | float() as value))) if (
                operator in _PLAIN and not isinstance(value, bool) and abs(value) < _WHOLE
            ):
                asked.setdefault(name, []).append((_PLAIN[operator], value))
            case _:
                return False
    return all(_has_value(columns[name], tests) for name, tests in asked.items())


def _has_value(domain: Domain, tests: list[tuple[Callable[[Any, Any], bool], int | float]]) -> bool:
    if domain.kind not in NUMBERS or domain.bounds is None or domain.keys is not None:
        return False
    low, high = domain.bounds
    if max(abs(low), abs(high)) >= _WHOLE:
        return False
    near = (Fraction(math.floor(value) + step) for _, value in tests for step in (0, 1, -1))
    return any(
        low <= one <= high and all(test(one, value) for test, value in tests) for one in chain((low, high), near)
    )


def _outside(limits: _Limits, domain: Domain) -> bool:
    """Whether the domain of a column has no value within these limits."""
    if limits.null:
        return not domain.nullable
    if domain.bounds is None:
        return False
    low, high = domain.bounds
    return limits.excludes(_Limits(low=(low, False), high=(high, False)))


def _unfulfilled(relation: RelationNode) -> bool:
    """Whether the filters exclude all public values of a column, or a constant condition is not true.

    Each column is examined once, at the topmost filter that reads it, which takes all filters below into account.
    """
    seen: set[str] = set()
    while isinstance(relation, FilterRows | Project):
        if isinstance(relation, Project):
            below = [each for name, each in relation.expressions if name in seen]
            seen = {each.name for each in below if isinstance(each, Column)}
            relation = relation.child
            continue
        for each in conjuncts(relation.condition):
            names = set(columns_used(each))
            if not names and typed(each, relation.columns).value({}) is not True:
                return True
            if len(names) == 1 and not names <= seen:
                seen |= names
                if no_public_value(Column(*names), relation):
                    return True
        relation = relation.child
    return False


def _filters(relation: RelationNode) -> tuple[RelationNode, list[Expression]]:
    """The relation below all filters and projections, and the conditions in terms of its columns."""
    conditions: list[Expression] = []
    while isinstance(relation, FilterRows | Project):
        if isinstance(relation, FilterRows):
            conditions += conjuncts(relation.condition)
        else:
            conditions = list(_written_out(conditions, dict(relation.expressions)))
        relation = relation.child
    return relation, conditions


def _written_out(conditions: list[Expression], names: dict[str, Expression]) -> Iterator[Expression]:
    """The conditions with names replaced by their expressions; conditions that become too long are dropped."""
    for each in conditions:
        with contextlib.suppress(QuestionRefused):
            made = renamed(each, names)
            if sum(1 for _ in columns_used(made)) <= _MOST_USED:
                yield made


@final
@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads conditions over the columns of one relation."""

    columns: Mapping[str, Domain]
    forms: Forms

    def limits(self, conditions: list[Expression]) -> dict[Form, _Limits]:
        """The limits on each value that the conditions mention, by its canonical form."""
        found: dict[Form, _Limits] = {}
        for condition in conditions:
            value, holds = condition, True
            if isinstance(condition, Call) and condition.operator == "not":
                value, holds = condition.arguments[0], False
            if isinstance(value, Call | Column):  # a condition selects rows where it is true
                _narrow(self._of(found, value), "in", [holds])
            match _without_not(condition):
                case Call(operator="is_null", arguments=(value,)):
                    self._of(found, value).null = True
                case Call(operator="not", arguments=(Call(operator="is_null", arguments=(value,)),)):
                    self._of(found, value)
                case Call(operator="in", arguments=(value, *constants)):
                    self._compared(found, "in", value, constants)
                case Call(operator=operator, arguments=(Literal() as constant, value)) if operator in _TURNED:
                    self._compared(found, _TURNED[operator], value, [constant])
                case Call(operator=operator, arguments=(value, Literal() as constant)) if operator in _TURNED:
                    self._compared(found, operator, value, [constant])
        return found

    def _of(self, found: dict[Form, _Limits], value: Expression) -> _Limits:
        return found.setdefault(expression_form(value, self.forms), _Limits())

    def _compared(
        self, found: dict[Form, _Limits], operator: str, value: Expression, constants: Sequence[Expression]
    ) -> None:
        """Add the limits from a comparison with constants, unless SQL would round before comparing."""
        kind = typed(value, self.columns).domain.kind
        known: list[Any] = []
        for constant in constants:
            assert isinstance(constant, Literal)
            if constant.value is None:
                continue  # a comparison with NULL is never true
            each = _comparable(constant.value, kind)
            if each is None:
                return
            known.append(each)
        if operator in {"in", "eq"}:
            _narrow(self._of(found, value), "in", known)
        elif known:
            _narrow(self._of(found, value), operator, known)


def _without_not(condition: Expression) -> Expression:
    """NOT a > 3 as a <= 3; other conditions unchanged."""
    match condition:
        case Call(operator="not", arguments=(Call(operator=operator, arguments=(a, b)),)) if operator in _NEGATED:
            return Call(_NEGATED[operator], (a, b))
    return condition


def exclusive(a: Expression, b: Expression, relation: RelationNode) -> bool:
    """Whether it is proved that two conditions are not both true of any row of a relation."""
    reading = _Reading(relation.columns, relation_form(relation)[1])
    one, two = (reading.limits(list(conjuncts(each))) for each in (a, b))
    return any(one[form].excludes(two[form]) for form in one.keys() & two.keys())


def _comparable(constant: Scalar, kind: Kind) -> Any | None:
    """A constant in the form of a domain's bounds: numbers as fractions, dates and timestamps in days.

    None if SQL cannot compare it with a value of this kind, or would round the value first (a real beside an integer).
    """
    given = kind_of(constant)
    match constant:
        case dt.date() if kind in _DAYS:
            return ordinal(constant)  # a date beside a timestamp is its midnight
        case int() if kind is Kind.REAL and given is Kind.INTEGER:
            return Fraction(float(constant))
        case int() | float() if given is kind and kind in NUMBERS:
            return Fraction(constant)
    return constant if given is kind else None


def _narrow(limits: _Limits, operator: str, constants: list[Any]) -> None:
    if operator == "in":
        given = frozenset(constants)
        limits.values = given if limits.values is None else limits.values & given
    elif operator in {"lt", "le"}:
        end = (constants[0], operator == "lt")
        if limits.high is None or (end[0], not end[1]) < (limits.high[0], not limits.high[1]):
            limits.high = end
    else:
        end = (constants[0], operator == "gt")
        if limits.low is None or end > limits.low:
            limits.low = end
