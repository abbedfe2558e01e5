"""Canonical forms: one form for `a AND b` and `b AND a`, for any alias and any spelling of a question.

A form is a tree of tuples of plain values. Two questions with the same form have the same answer on every table. The
converse is undecidable in general and not promised; a missed match costs only a second answer. Every rule preserves the
meaning under SQL's three-valued logic and under rounding: `a + b` is `b + a`, but `(a + b) + c` is not `a + (b + c)`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from deniable.queries.relations.exact_statistics import (
    Cells,
    Collect,
    Count,
    CountDistinct,
    CountPersons,
    ExactSum,
    Statistic,
)
from deniable.queries.relations.person_windows import PersonWindow, PersonWindows
from deniable.queries.relations.relation_nodes import (
    Bound,
    FilterRows,
    JoinPrivate,
    JoinPublic,
    PerPerson,
    Project,
    RelationNode,
    Source,
    Union,
    filtered,
)
from deniable.tables.expressions import Call, Column, Expression, Literal
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table

Form = tuple["Part", ...]
Part = Form | str | int | bool | None
Forms = Mapping[str, Form]

_LONGEST: Final = 1000
_FLIPPED: Final = {"gt": "lt", "ge": "le"}
_DENIED: Final = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
_SORTED: Final = frozenset({"eq", "ne", "add", "multiply"})
_GATHERED: Final = frozenset({"and", "or", "least", "greatest"})


def digest(form: Form) -> str:
    """The SHA-256 of a form in hexadecimal."""
    return hashlib.sha256(("deniable question 2 " + repr(form)).encode()).hexdigest()


def expression_form(expression: Expression, columns: Forms | None = None) -> Form:
    """The canonical form of an expression. `columns` maps the columns that it reads to their forms; if None, the form
    of a column is its name.
    """
    match expression:
        case Column(name=name):
            return ("column", name) if columns is None else columns[name]
        case Literal(value=value):
            return ("constant", type(value).__name__, repr(value))
        case Call(operator="not", arguments=(Call(operator="not", arguments=(inner,)),)):
            return expression_form(inner, columns)
        case Call(operator="not", arguments=(Call(operator=operator, arguments=inner),)) if operator in _DENIED:
            return expression_form(Call(_DENIED[operator], inner), columns)
        case Call(operator="not", arguments=(Call(operator="and" | "or" as operator, arguments=inner),)):
            other = "or" if operator == "and" else "and"
            return expression_form(Call(other, tuple(Call("not", (each,)) for each in inner)), columns)
        case Call(operator=operator, arguments=(a, b)) if operator in _FLIPPED:
            return expression_form(Call(_FLIPPED[operator], (b, a)), columns)
        case Call(operator=operator, arguments=arguments):
            return _call(operator, tuple(expression_form(argument, columns) for argument in arguments))
    raise AssertionError(type(expression))


def _call(operator: str, forms: tuple[Form, ...]) -> Form:
    if operator in _SORTED:
        forms = tuple(sorted(forms, key=repr))
    elif operator in _GATHERED:
        gathered: dict[Form, None] = {}
        for form in forms:
            # and(a, and(b, c)) is and(a, b, c), and a repeated part is redundant.
            # Parts of a form are forms.
            gathered.update(dict.fromkeys(form[1:] if form[0] == operator else (form,)))  # type: ignore[arg-type]
        forms = tuple(sorted(gathered, key=repr))
        if len(forms) == 1:
            return forms[0]
    elif operator == "in":
        constants = tuple(sorted(set(forms[1:]), key=repr))
        if len(constants) == 1:
            return _call("eq", (forms[0], *constants))
        forms = (forms[0], *constants)
    elif operator == "coalesce" and len(forms) == 1:
        return forms[0]
    return (operator, *forms)


@lru_cache(maxsize=128)  # relations are compared by identity; a question and its plan both need the form
def relation_form(relation: RelationNode) -> tuple[Form, Forms]:
    """(the form of a relation, the forms of its columns). Aliases do not appear in them."""
    match relation:
        case Source(table=table):
            return _table_form(table), _read("column", table)
        case FilterRows(child=child, condition=condition):
            below, columns = relation_form(child)
            form = expression_form(condition, columns)
            conditions: tuple[Part, ...] = form[1:] if form[0] == "and" else (form,)
            # A filter of a filter is one filter.
            made = _filter(below[1], (*below[2:], *conditions)) if below[0] == "filter" else _filter(below, conditions)
            # A filter that bounds a person's rows lowers the noise. The form says so, because such an answer must not
            # be merged with an older one that was planned without this bound.
            return (made if relation.rows == child.rows else ("few", relation.rows, made)), columns
        case Project(child=child, expressions=expressions):
            below, columns = relation_form(child)
            return below, {
                name: columns[each.name] if isinstance(each, Column) else _short(expression_form(each, columns))
                for name, each in expressions
            }
        case JoinPublic(child=child, table=table, on=on, how=how):
            below, columns = relation_form(child)
            theirs = _read("public", table)
            pairs = tuple(sorted(((columns[a], theirs[b]) for a, b in on), key=repr))
            return ("join public", below, _table_form(table), pairs, how.value), _both(columns, theirs)
        case JoinPrivate(left=left, right=right, on=on, how=how):
            (a, ours), (b, others) = relation_form(left), relation_form(right)
            both = tuple(sorted(((ours[x], others[y]) for x, y in on), key=repr))
            return ("join person", a, b, both, how.value), _both(ours, others)
        case PerPerson(child=child, keys=keys, aggregates=aggregates):
            below, columns = relation_form(child)
            named = {name: expression_form(key, columns) for name, key in keys}
            found: dict[str, Form] = {name: ("key", form) for name, form in named.items()}
            for name, exact in aggregates:
                of = None if exact.expression is None else expression_form(exact.expression, columns)
                found[name] = ("each", exact.function, of)
            return ("per person", below, tuple(sorted(set(named.values()), key=repr))), found
        case PersonWindows(child=child, windows=windows):
            # The columns of the child break ties, one after the other: a window depends on all of them, in their order.
            below, columns = relation_form(child)
            all_of = tuple(columns.values()) if any(w.is_tied_by_rank for _, w in windows) else ()
            added = {name: _short(("window", _window_form(each, columns), below, all_of)) for name, each in windows}
            return below, {**columns, **added}
        case Union(parts=parts, disjoint=disjoint):
            forms = [relation_form(part) for part in parts]
            whole = tuple((form, tuple(columns.values())) for form, columns in forms)
            return ("union", disjoint, whole), {name: ("part", i) for i, name in enumerate(relation.columns)}
        case Bound(child=child, keys=keys, groups=groups, rows_per_group=each):
            below, columns = relation_form(child)
            by = tuple(sorted({expression_form(key, columns) for key in keys}, key=repr))
            # Ranks tell all rows of a table apart. Rows of joins and groups may tie, and their columns decide in order.
            ties = () if isinstance(filtered(child), Source) else (tuple(columns.values()),)
            return ("bound", below, by, groups, each, *ties), columns
    raise AssertionError(type(relation))


def _window_form(window: PersonWindow, columns: Forms) -> Form:
    of = None if window.expression is None else expression_form(window.expression, columns)
    by = tuple(sorted({expression_form(each, columns) for each in window.partition}, key=repr))
    order = tuple((expression_form(each, columns), down, first) for each, down, first in window.order)
    return (window.function, of, by, order, window.offset, repr(window.frame))


def _short(form: Form) -> Form:
    """A long form replaced by its digest. Forms of named expressions are repeated, and would otherwise grow fast."""
    return form if len(repr(form)) <= _LONGEST else ("digest", digest(form))


def _filter(below: Part, conditions: tuple[Part, ...]) -> Form:
    return ("filter", below, *sorted(dict.fromkeys(conditions), key=repr))


def _both(left: Forms, right: Forms) -> Forms:
    ours = {name: ("left", form) for name, form in left.items()}
    return {**ours, **{name: ("right", form) for name, form in right.items()}}


@lru_cache(maxsize=256)
def _read(what: str, table: Table) -> Forms:
    """The forms of a table's columns, each with its domain: a question depends on the domains of columns it reads."""
    return {name: (what, name, _short(domain_form(domain))) for name, domain in table.columns}


@lru_cache(maxsize=256)
def _table_form(table: Table) -> Form:
    """The form of a table: everything that decides which rows it has, whatever columns a question reads.

    A row without a value in a column declared without NULLs is dropped at registration, and a value that is not among
    the declared keys becomes NULL. Bounds drop no row.
    """
    unit = table.unit
    whose = None if unit is None else (unit.relation.value, unit.rows, unit.column)
    if unit is not None and unit.period is not None:
        whose = (*whose, unit.period, unit.time)  # type: ignore[misc]  # not None, as the unit is not
    needed = (
        (name, _short(domain_form(replace(each, bounds=None)))) for name, each in table.columns if not each.nullable
    )
    return ("table", table.name, whose, tuple(sorted(needed, key=repr)))


def domain_form(domain: Domain) -> Form:
    """The form of a domain."""
    bounds = None if domain.bounds is None else tuple(str(end) for end in domain.bounds)
    keys = None if domain.keys is None else tuple(repr(key) for key in domain.keys)
    return (domain.kind.value, bounds, keys, domain.nullable)


def statistic_form(statistic: Statistic, columns: Forms | None = None) -> Form:
    """The form of a statistic over the columns of a relation."""
    match statistic:
        case Count(expression=expression) | CountPersons(expression=expression):
            of = None if expression is None else expression_form(expression, columns)
            return (type(statistic).__name__, of)
        case CountDistinct(expression=expression):
            return ("CountDistinct", expression_form(expression, columns))
        case ExactSum(expression=expression, low=low, high=high, exponent=exponent):
            return ("Sum", expression_form(expression, columns), str(low), str(high), exponent)
        case Cells(expression=expression, edges=edges):
            return ("Cells", expression_form(expression, columns), tuple(str(edge) for edge in edges))
    raise AssertionError(type(statistic))


def collect_form(collect: Collect) -> Form:
    """The form of a `Collect`: relation, keys, known groups and statistics."""
    below, columns = relation_form(collect.relation)
    keys = tuple(expression_form(key, columns) for _, key in collect.keys)
    known = None if collect.known is None else repr(collect.known)
    return ("collect", below, keys, known, tuple(statistic_form(each, columns) for each in collect.statistics))
