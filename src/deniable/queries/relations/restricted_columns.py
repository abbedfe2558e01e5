"""Columns that a condition restricts to a few values, which bounds the rows of a person that can meet it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from deniable.tables.expressions import Call, Column, Expression, Literal, conjuncts
from deniable.tables.kinds import Domain, Kind, Scalar, kind_of

_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}


def few_values(condition: Expression, columns: Mapping[str, Domain]) -> dict[str, int]:
    """Column -> the largest number of values, without NULL, that it can have in rows that meet the condition; only for
    columns that the condition restricts.

    Reals are left out: two floats that compare as equal (0.0 and -0.0) need not be one value everywhere. So are
    constants of another kind than the column's: an engine promotes an integer that is compared with a real to a real,
    and near 10**18 some hundred integers become the same real.

    >>> from deniable.tables.expressions import col
    >>> k = {"k": Domain.integer(1, 12), "name": Domain.text()}
    >>> few_values((col("k") <= 3) & (col("name") == "x"), k)
    {'name': 1, 'k': 3}
    """
    ends: dict[str, list[float]] = {}
    found: dict[str, int] = {}
    for part in conjuncts(condition):
        if not isinstance(part, Call):
            continue
        for name, operator, values in _compared(part):
            kind = columns[name].kind
            if kind is Kind.REAL or any(kind_of(value) is not kind for value in values):
                continue
            if operator in {"eq", "in"}:
                found[name] = min(found.get(name, len(values)), len(values))
            elif kind is Kind.INTEGER and operator in _TURNED:
                [value] = values
                assert isinstance(value, int)
                _narrow(ends.setdefault(name, _bounds(columns[name])), operator, value)
    for name, (low, high) in ends.items():
        if math.isfinite(low) and math.isfinite(high):
            number = max(0, int(high) - int(low) + 1)
            found[name] = min(found.get(name, number), number)
    return {name: max(1, number) for name, number in found.items()}


def _compared(part: Call) -> list[tuple[str, str, tuple[Scalar | None, ...]]]:
    """(column, operator, constants) of a comparison with constants; nothing for another condition."""
    match part:
        case Call(operator="in", arguments=(Column(name=name), *others)):
            if not all(isinstance(each, Literal) for each in others):
                return []
            values = tuple(each.value for each in others if isinstance(each, Literal) and each.value is not None)
            return [(name, "in", values)] if values else []  # a comparison with NULL is never true
        case Call(operator=operator, arguments=(Column(name=name), Literal(value=value))) if operator in _TURNED:
            return [(name, operator, (value,))]
        case Call(operator=operator, arguments=(Literal(value=value), Column(name=name))) if operator in _TURNED:
            return [(name, _TURNED[operator], (value,))]
    return []


def _bounds(domain: Domain) -> list[float]:
    if domain.bounds is None:
        return [-math.inf, math.inf]
    return [math.ceil(domain.bounds[0]), math.floor(domain.bounds[1])]


def _narrow(ends: list[float], operator: str, value: int) -> None:
    if operator in {"lt", "le"}:
        ends[1] = min(ends[1], value - 1 if operator == "lt" else value)
    else:
        ends[0] = max(ends[0], value + 1 if operator == "gt" else value)
