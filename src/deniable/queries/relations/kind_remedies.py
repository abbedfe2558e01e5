"""Remedies for expressions with arguments of different kinds, written with the analyst's own columns and constants.

A remedy never converts a number to text, because '9' > '50' is true and the answer would be silently wrong.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any, Final

from deniable.queries.relations import operator_meanings
from deniable.tables.expressions import Column, Expression, Literal
from deniable.tables.kinds import NUMBERS, Domain, Kind, Scalar, kind_of

_SIGNS: Final = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ARITHMETIC: Final = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "modulo": "%"}
_COMPARING: Final = frozenset({*_SIGNS, "in", "nullif", "coalesce", "least", "greatest", "case"})
_TYPES: Final = {Kind.INTEGER: "BIGINT", Kind.REAL: "DOUBLE"}
_DATES: Final = frozenset({Kind.DATE, Kind.TIMESTAMP})


_READ: Final[dict[Kind, tuple[Callable[[Any], Scalar | None], ...]]] = {
    Kind.INTEGER: (operator_meanings.to_integer, operator_meanings.to_real),
    Kind.REAL: (operator_meanings.to_integer, operator_meanings.to_real),
    Kind.BOOLEAN: (operator_meanings.to_boolean,),
    Kind.DATE: (operator_meanings.to_date,),
    Kind.TIMESTAMP: (operator_meanings.to_timestamp,),
}


def one_kind(operator: str, arguments: Sequence[Expression], domains: Sequence[Domain]) -> str:
    """A remedy that brings the arguments of an operator to one kind."""
    if operator == "case":  # its conditions need not have the kind of its results
        arguments, domains = ([*each[1:-1:2], each[-1]] for each in (arguments, domains))
    kinds = {domain.kind for domain in domains if domain.keys != ()}
    wanted = _wanted(kinds)
    if wanted is Kind.BOOLEAN and operator not in _COMPARING:  # only text or booleans, where numbers are needed
        wanted = Kind.REAL
    if wanted is None:
        dates = (_as_sql(each) for each, domain in zip(arguments, domains, strict=True) if domain.kind in _DATES)
        numbers = f"take a number out of the date: YEAR({next(dates, 'a')})"
        return numbers if kinds & NUMBERS else "compare with a value of its own kind"
    written = []
    for argument, domain in zip(arguments, domains, strict=True):
        fits = domain.kind is wanted or domain.keys == () or {domain.kind, wanted} <= NUMBERS
        read = argument if fits else _read(argument, wanted)
        if read is None:
            return f"{_as_sql(argument)} is text: write a constant of kind {wanted.value}"
        cast = read is argument and not fits
        written.append(f"CAST({_as_sql(read)} AS {_TYPES.get(wanted, wanted.name)})" if cast else _as_sql(read))
    return f"write {_called(operator, written)}"


def _wanted(kinds: set[Kind]) -> Kind | None:
    """The kind to which all of them can be converted; None if no such kind exists."""
    numbers, dates = kinds & NUMBERS, kinds & _DATES
    if numbers and dates:
        return None
    if numbers:
        return Kind.REAL if Kind.REAL in numbers else Kind.INTEGER
    if dates:
        return None if Kind.BOOLEAN in kinds else Kind.TIMESTAMP if Kind.TIMESTAMP in dates else Kind.DATE
    return Kind.BOOLEAN


def _read(argument: Expression, wanted: Kind) -> Expression | None:
    """A constant converted to the wanted kind, None if that is impossible; other expressions unchanged."""
    if not isinstance(argument, Literal):
        return argument
    value, found = argument.value, None
    for read in _READ[wanted]:
        found = read(value) if found is None else found
    return None if found is None or kind_of(found) is None else Literal(found)


def _as_sql(argument: Expression) -> str:
    if isinstance(argument, Column):
        return argument.name
    if not isinstance(argument, Literal):
        return "…"
    value = argument.value
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, dt.date):
        kind = "TIMESTAMP" if isinstance(value, dt.datetime) else "DATE"
        return f"{kind} '{value}'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def sign(operator: str) -> str:
    """The name of an operator in a message: its sign, or its name."""
    return (_SIGNS | _ARITHMETIC).get(operator, operator)


def _called(operator: str, written: Sequence[str]) -> str:
    sign = (_SIGNS | _ARITHMETIC).get(operator)
    if sign is not None:
        return f" {sign} ".join(written)
    if operator == "negate":
        return f"-{written[0]}"
    if operator == "in":
        return f"{written[0]} IN ({', '.join(written[1:])})"
    if operator == "case":
        *results, last = written
        return "CASE " + " ".join(f"WHEN … THEN {each}" for each in results) + f" ELSE {last} END"
    return f"{operator.upper()}({', '.join(written)})"
