"""Operators that depend on the kinds beside them: in `visited >= '2024-01-01'` the text becomes a date, `a - b` of two
dates is the number of days from b to a, and `a - 30` is the date 30 days before a.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final

from deniable.errors import QuestionRefused
from deniable.queries.relations import operator_meanings
from deniable.queries.relations.operators import typed
from deniable.tables.expressions import Call, Column, Expression, Literal
from deniable.tables.kinds import Domain, Kind

# Operators whose arguments are all of one kind, and those of dates alone.
_TOGETHER: Final = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "in", "nullif", "coalesce", "least", "greatest"})
_OF_DATES: Final = frozenset({"days_between", "year", "quarter", "month", "day", "weekday"})
_DATES: Final = (Kind.TIMESTAMP, Kind.DATE)
_ADDED: Final = {"add": 1, "subtract": -1}
_MOST_DAYS: Final = 3_652_059


def fitted(expression: Expression, columns: Mapping[str, Domain]) -> Expression:
    """The expression with text constants beside dates read as dates, and days added to and subtracted from dates.

    Raises `QuestionRefused` if a text is not a date.

    >>> from deniable.tables.expressions import col
    >>> fitted(col("visited") >= "2024-01-01", {"visited": Domain.date()})
    ge(visited, datetime.date(2024, 1, 1))
    """
    if not isinstance(expression, Call):
        return expression
    arguments = tuple(fitted(argument, columns) for argument in expression.arguments)
    if expression.operator in _ADDED and (moved := _moved(expression.operator, arguments, columns)) is not None:
        return moved
    texts = [isinstance(each, Literal) and isinstance(each.value, str) for each in arguments]
    if any(texts) and expression.operator in _TOGETHER | _OF_DATES:
        kind = _date_kind(expression.operator, arguments, texts, columns)
        if kind is not None:
            arguments = tuple(_read(each, kind) if text else each for each, text in zip(arguments, texts, strict=True))
    if all(ours is given for ours, given in zip(arguments, expression.arguments, strict=True)):
        return expression  # the same object, because results are cached by identity
    return Call(expression.operator, arguments)


def _moved(operator: str, arguments: tuple[Expression, ...], columns: Mapping[str, Domain]) -> Expression | None:
    """Arithmetic with dates, as DuckDB and PostgreSQL have it; None for other arithmetic."""
    a, b = arguments
    if operator == "add" and isinstance(a, Literal):
        a, b = b, a
    if not _is_date(a, columns):
        return None
    if operator == "subtract" and _is_date(b, columns):
        return Call("days_between", (b, a))
    if isinstance(b, Literal) and type(b.value) is int and abs(b.value) <= _MOST_DAYS:
        return Call("add_time", (a, Literal(_ADDED[operator] * b.value * operator_meanings.A_DAY)))
    return None


def _is_date(expression: Expression, columns: Mapping[str, Domain]) -> bool:
    """Whether an expression is a date. A sum of numbers is not looked into, so that long ones are read fast."""
    if isinstance(expression, Literal):
        return isinstance(expression.value, dt.date) and not isinstance(expression.value, dt.datetime)
    if isinstance(expression, Column):
        return expression.name in columns and columns[expression.name].kind is Kind.DATE
    return (
        isinstance(expression, Call)
        and expression.operator in _GIVING_DATES
        and (typed(expression, columns).domain.kind is Kind.DATE)
    )


_GIVING_DATES: Final = frozenset(
    {"add_months", "add_time", "case", "cast_date", "coalesce", "date_trunc", "greatest", "least", "nullif"}
)


def _date_kind(
    operator: str, arguments: tuple[Expression, ...], texts: list[bool], columns: Mapping[str, Domain]
) -> Kind | None:
    if operator in _OF_DATES:
        return Kind.DATE
    others = [each for each, text in zip(arguments, texts, strict=True) if not text]
    kinds = {typed(each, columns).domain.kind for each in others}
    return next((kind for kind in _DATES if kind in kinds), None)


def _read(constant: Expression, kind: Kind) -> Literal:
    assert isinstance(constant, Literal)
    day, moment = operator_meanings.to_date(constant.value), operator_meanings.to_timestamp(constant.value)
    value = day if day is not None else moment
    if value is None or (kind is Kind.DATE and day is None):
        shape = "'2024-12-31'" if kind is Kind.DATE else "'2024-12-31 23:59:59'"
        raise QuestionRefused(
            "constant", f"a text that is compared with a {kind.value} must be a {kind.value}", f"write it as {shape}"
        )
    return Literal(value)
