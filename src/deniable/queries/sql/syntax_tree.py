"""Nodes of sqlglot's syntax tree: questions about a node that need neither names nor a relation."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Final

from deniable.errors import MissingExtra
from deniable.queries.plan.refusals import refuse
from deniable.queries.sql.function_names import sql_name
from deniable.tables.kinds import LARGEST

try:
    from sqlglot import exp as exp
except ImportError:
    raise MissingExtra("sqlglot", "sql") from None

BOUNDED: Final = "__bounded"
"""The function name under which contribution bounds of an aggregate appear in the syntax tree."""


def only(node: exp.Expression, *allowed: str) -> None:
    """Refuse a node with other arguments than those that are read, so that nothing is silently ignored."""
    for name, value in node.args.items():
        if name not in allowed and name not in _HARMLESS and value not in (None, False, []):
            refuse("clause", what=f"{sql_name(node)} with {name.strip('_').replace('_', ' ')}")


# Internal flags of the parser that do not change the meaning.
_HARMLESS: Final = frozenset(
    {"big_int", "safe", "ignore_nulls", "coalesce", "date_part_boundary", "nulls_first", "is_string", "quoted"}
)


def conjoined(node: exp.Expression, kind: type[exp.Expression] = exp.And) -> list[exp.Expression]:
    """The parts of a AND b AND c without brackets, by a loop instead of recursion."""
    found: list[exp.Expression] = []
    left = [node]
    while left:
        part = unwrapped(left.pop())
        if isinstance(part, kind):
            left += [part.args["expression"], part.this]
        else:
            found.append(part)
    return found


def unwrapped(node: exp.Expression) -> exp.Expression:
    """A node without the brackets around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def item(node: exp.Expression) -> tuple[str, exp.Expression]:
    """(alias or "", expression) of an item of SELECT."""
    if isinstance(node, exp.Alias):
        return str(node.alias), node.this
    return "", node


_AGGREGATES: Final = (exp.AggFunc, exp.WithinGroup, exp.Filter, exp.IgnoreNulls, exp.RespectNulls)


def is_aggregate(node: exp.Expression) -> bool:
    """Whether a node is an aggregate, also with FILTER, WITHIN GROUP or bounds around it."""
    return isinstance(node, _AGGREGATES) or (isinstance(node, exp.Anonymous) and str(node.this).lower() == BOUNDED)


def has_aggregate(node: exp.Expression) -> bool:
    """Whether a subtree contains an aggregate, outside of sub-queries."""
    left = [node]
    while left:
        part = left.pop()
        if is_aggregate(part):
            return True
        below = operands(part)
        if isinstance(part, exp.Window):  # its own function reads groups, but may read aggregates of them
            below = [*operands(part.this), *(each for each in below if each is not part.this)]
        left.extend(below)
    return False


def operands(node: exp.Expression) -> list[exp.Expression]:
    """The nodes directly below a node, from left to right; none for a sub-query, which has names of its own."""
    if isinstance(node, exp.Subquery | exp.Select | exp.SetOperation):
        return []
    below = list(node.iter_expressions())
    return below[::-1] if isinstance(node, exp.DateDiff) else below  # it stores the end before the start


def leaves(node: exp.Expression) -> list[exp.Expression]:
    """The columns, aggregates and windows of an expression, from left to right; not the columns inside of them."""
    found: list[exp.Expression] = []
    left = [node]
    while left:
        part = left.pop()
        if isinstance(part, exp.Column | exp.Window) or is_aggregate(part):
            found.append(part)
        else:
            left.extend(reversed(operands(part)))
    return found


def number(digits: str) -> int | float:
    """The value of a number literal: an integer if it is written as one and fits into 64 bits, otherwise a float."""
    try:
        if digits.isascii() and digits.isdigit() and len(digits) <= 19 and int(digits) <= LARGEST:
            return int(digits)
        value = float(digits.replace("_", ""))
    except ValueError:
        refuse("number")
    if not math.isfinite(value):
        refuse("number")
    return value


def decimal(node: exp.Expression) -> float | None:
    """The value of a sum, difference or product of two constants, one of them a decimal; None for other nodes.

    DuckDB and PostgreSQL read 0.06 as a decimal, so 0.06 + 0.01 is 0.07 there; a sum of floats is less.
    """
    sides = [unwrapped(each) for each in (node.this, node.args.get("expression")) if isinstance(each, exp.Expression)]
    if type(node) not in _EXACT or not all(isinstance(each, exp.Literal) and not each.is_string for each in sides):
        return None
    words = [str(each.this) for each in sides]
    if not all(_DECIMAL.fullmatch(word) for word in words) or not any("." in word for word in words):
        return None
    return float(_EXACT[type(node)](*map(Decimal, words)))


_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_CONTEXT: Final = Context(prec=28)
"""Not the context of the caller: hashes of questions depend on these constants."""
_EXACT: Final[dict[type[exp.Expression], Callable[[Decimal, Decimal], Decimal]]] = {
    exp.Add: _CONTEXT.add,
    exp.Sub: _CONTEXT.subtract,
    exp.Mul: _CONTEXT.multiply,
}
