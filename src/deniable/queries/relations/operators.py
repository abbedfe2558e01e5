"""Expressions over columns: checked against the closed table of operators, with public bounds, values and a meaning.

`evaluate` in Python defines the meaning of an expression, and every engine must return the same bits; see
`operator_table` for the rules that hold for every operator.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, final

from deniable.errors import QuestionRefused
from deniable.queries.relations import evaluation_limit, kind_remedies
from deniable.queries.relations import operator_bounds as intervals
from deniable.queries.relations import operator_meanings as meanings
from deniable.queries.relations.operator_table import OPERATORS, Operator, Value
from deniable.tables.expressions import Call, Column, Expression, Literal
from deniable.tables.kinds import Domain, Kind, Scalar, kind_of

Row = Mapping[str, Value]

_DATES: Final = frozenset({Kind.DATE, Kind.TIMESTAMP})
MOST_VALUES: Final = 10_000
"""The most values of an expression over public keys that are listed as public keys."""
MOST_WORK: Final = 50_000
"""The most evaluations to list the values of one expression."""
MOST_RANGE: Final = 1000
"""Bounded integers and dates with at most so many values are public keys: an age is, a year from 1 to 9999 is not."""
_MOST_REMEMBERED: Final = 256


@final
@dataclass(frozen=True, slots=True)
class Typed:
    """An expression that was checked against columns: its domain, and a function for its value in a row."""

    domain: Domain
    value: Callable[[Row], Value]
    listed: Callable[[], tuple[Scalar, ...] | None]

    @property
    def values(self) -> tuple[Scalar, ...] | None:
        """Every possible value other than NULL, if these are public and few; otherwise None. Computed on demand."""
        return self.listed()


@final
class Columns(Mapping[str, Domain]):
    """The columns of a relation with their domains, and a cache for `typed`.

    The cache is by identity: columns and expressions are immutable, and a cached expression is kept alive here.
    """

    __slots__ = ("_below", "_domains", "checked")

    def __init__(self, domains: Mapping[str, Domain | Typed | str], below: Columns | None = None) -> None:
        self._domains, self._below = dict(domains), below
        """For each column its domain, its checked expression, or the name of the column below that it passes on."""
        self.checked: dict[int, tuple[Expression, Typed]] = {}

    @classmethod
    def computed(cls, expressions: Iterable[tuple[str, Expression]], below: Columns) -> Columns:
        """Columns computed from others. Expressions are checked now, but their values are listed on demand.

        Most columns of a long question are only passed on, and listing values takes most of the time.
        """
        return cls(
            {
                name: each.name if isinstance(each, Column) and each.name in below else typed(each, below)
                for name, each in expressions
            },
            below,
        )

    def __getitem__(self, name: str) -> Domain:
        found, columns = self._domains[name], self
        if isinstance(found, Domain):
            return found
        above = []
        while isinstance(found, str):
            above.append((columns, name))
            assert columns._below is not None
            columns, name = columns._below, found
            found = columns._domains[name]
        if isinstance(found, Typed):
            found = columns._domains[name] = _with_values(found)
        if above:
            found = Domain(found.kind, found.bounds, _listed(found), found.nullable)
        for columns, name in above:
            columns._domains[name] = found
        return found

    def unlisted(self, name: str) -> Domain:
        """The domain of a column without its list of public values, which may be expensive to compute.

        The list is included if it is known already, and for dates, whose values say more than their bounds.
        """
        found, columns, at = self._domains[name], self, name
        while isinstance(found, str):
            assert columns._below is not None
            columns, at = columns._below, found
            found = columns._domains[at]
        return found.domain if isinstance(found, Typed) and found.domain.kind not in _DATES else self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._domains

    def __iter__(self) -> Iterator[str]:
        return iter(self._domains)

    def __len__(self) -> int:
        return len(self._domains)

    def __reduce__(self) -> tuple[type[Columns], tuple[dict[str, Domain]]]:
        return Columns, (dict(self),)  # the cache is not pickled; another process fills its own

    def __repr__(self) -> str:
        return repr(dict(self))


def typed(expression: Expression, columns: Mapping[str, Domain]) -> Typed:
    """Check an expression against columns. Refuses unknown columns, unknown operators and kinds that do not fit."""
    if not isinstance(columns, Columns) or not isinstance(expression, Call):
        return _typed(expression, columns, [MOST_WORK])
    known = columns.checked.get(id(expression))
    if known is None:
        if len(columns.checked) >= _MOST_REMEMBERED:  # a frame that is asked again and again
            columns.checked.clear()
        known = columns.checked[id(expression)] = (expression, _typed(expression, columns, [MOST_WORK]))
    return known[1]


def domain(expression: Expression, columns: Mapping[str, Domain]) -> Domain:
    """All that is public about the value of an expression, with its keys where they are public.

    >>> from deniable.tables.expressions import col
    >>> domain(col("age") // 10 * 10, {"age": Domain.integer(0, 39)})
    Domain.integer(0, 30, keys=(0, 10, 20, 30))
    """
    return _with_values(typed(expression, columns))


def _with_values(found: Typed) -> Domain:
    return Domain(found.domain.kind, found.domain.bounds, found.values, found.domain.nullable)


def evaluate(expression: Expression, row: Row, columns: Mapping[str, Domain]) -> Value:
    """The value of an expression for one row, whose values obey `columns`.

    >>> from deniable.tables.expressions import col
    >>> evaluate(1 / col("x"), {"x": 0}, {"x": Domain.integer()}) is None
    True
    """
    return typed(expression, columns).value(row)


def _typed(expression: Expression, columns: Mapping[str, Domain], left: list[int]) -> Typed:
    match expression:
        case Column(name=name):
            if name not in columns:
                raise QuestionRefused(
                    "column", f"there is no column {name!r} here", f"choose from {', '.join(columns) or 'none'}"
                )
            there = columns.unlisted(name) if isinstance(columns, Columns) else columns[name]
            return Typed(there, lambda row: row[name], lambda: _listed(columns[name]))
        case Literal(value=constant):
            alone = () if constant is None else (constant,)
            return Typed(intervals.of_constant(constant), lambda row: constant, lambda: alone)
        case Call(operator=name, arguments=arguments):
            operator = OPERATORS.get(name)
            if operator is None:
                raise QuestionRefused(
                    "function", f"the operator {name!r} is not known", "the page on the SQL dialect lists all operators"
                )
            below = tuple(_typed(argument, columns, left) for argument in arguments)
            return _applied(operator, arguments, below, left)
    raise QuestionRefused("function", "an expression consists of columns, constants and operators", 'write col("name")')


def _applied(operator: Operator, arguments: tuple[Expression, ...], below: tuple[Typed, ...], left: list[int]) -> Typed:
    if not operator.least <= len(below) <= operator.most:
        raise QuestionRefused(
            "kinds", f"{operator.name} takes {_counted(operator)}, not {len(below)}", f"write {operator.sql}"
        )
    for position, argument in enumerate(arguments):
        if operator.constants(position) and not isinstance(argument, Literal):
            raise QuestionRefused(
                "constant", f"argument {position + 1} of {operator.name} must be a constant", f"write {operator.sql}"
            )
    domains = tuple(part.domain for part in below)
    try:
        result = operator.domain(domains)
    except intervals.Unfit as unfit:
        mixed = isinstance(unfit, intervals.MixedKinds)
        rewrite = kind_remedies.one_kind(operator.name, arguments, domains) if mixed else unfit.rewrite
        got = (" and " if len(domains) == 2 else ", ").join(
            "NULL" if intervals.only_null(d) else d.kind.value for d in domains
        )
        raise QuestionRefused(
            "kinds",
            f"{kind_remedies.sign(operator.name)} takes {operator.takes}, not {got}",
            rewrite or f"write {operator.sql}",
        ) from None
    work = operator.works_in(domains, result)
    value = _calculation(operator, result.kind, work, [part.value for part in below])
    return Typed(result, value, _once(lambda: _image(operator, result, work, below, left)))


def _once(listed: Callable[[], tuple[Scalar, ...] | None]) -> Callable[[], tuple[Scalar, ...] | None]:
    """The function with its result cached. (`functools.cache` takes longer to set up than most checks take.)"""
    found: list[tuple[Scalar, ...] | None] = []

    def once() -> tuple[Scalar, ...] | None:
        if not found:
            found.append(listed())
        return found[0]

    return once


def _calculation(
    operator: Operator, kind: Kind, work: Kind | None, below: Sequence[Callable[[Row], Value]]
) -> Callable[[Row], Value]:
    apply, read = operator.value, tuple(below)
    strict = operator.strict

    def value(row: Row) -> Value:
        arguments = [meanings.promoted(part(row), work) for part in read]
        if strict and any(argument is None for argument in arguments):
            return None
        return meanings.settled(apply(*arguments), kind)

    return value


def _image(
    operator: Operator, result: Domain, work: Kind | None, below: tuple[Typed, ...], left: list[int]
) -> tuple[Scalar, ...] | None:
    """All values that a call can have, or None if they are too many. They are computed from every combination of its
    arguments' values if these are few; otherwise they are the values between its bounds, if these are few.

    `left` is the number of evaluations that the whole expression may still use for this.
    """
    if intervals.only_null(result):
        return ()
    if operator.name in {"case", "coalesce"}:
        return _branches(operator, below, result)
    choices: list[tuple[Value, ...]] = []
    combinations = 1
    for part in below:
        values = part.values
        if values is None:
            return _listed(result)
        choices.append((*values, None) if part.domain.nullable else values)
        combinations *= len(choices[-1])
    if combinations > min(MOST_VALUES, left[0]):
        return _listed(result)
    left[0] -= combinations
    evaluation_limit.spend(combinations)
    read = [lambda row, position=position: row[position] for position in range(len(below))]
    value = _calculation(operator, result.kind, work, read)
    found = dict.fromkeys(value(chosen) for chosen in product(*choices))  # type: ignore[arg-type]  # rows are tuples here
    found.pop(None, None)
    return _in_order(tuple(found), result.kind)  # type: ignore[arg-type]  # None was removed


def _branches(operator: Operator, below: tuple[Typed, ...], result: Domain) -> tuple[Scalar, ...] | None:
    parts = (*below[1:-1:2], below[-1]) if operator.name == "case" else below
    found: dict[Scalar, None] = {}
    for part in parts:
        values = part.values
        if values is None:
            return _listed(result)
        found.update({meanings.promoted(each, result.kind): None for each in values})
    return _in_order(tuple(found), result.kind) if len(found) <= MOST_VALUES else None


def _listed(domain: Domain) -> tuple[Scalar, ...] | None:
    if domain.keys is not None:
        return domain.keys
    if domain.kind is Kind.BOOLEAN:
        return (False, True)
    if domain.kind in {Kind.INTEGER, Kind.DATE} and domain.bounds is not None:
        low, high = (int(end) for end in domain.bounds)
        if high - low >= MOST_RANGE:
            return None
        whole = range(low, high + 1)
        return tuple(whole) if domain.kind is Kind.INTEGER else tuple(dt.date.fromordinal(day) for day in whole)
    return None


def _in_order(values: tuple[Scalar, ...], kind: Kind) -> tuple[Scalar, ...]:
    return tuple(sorted(values)) if all(kind_of(value) is kind for value in values) else values


def _counted(operator: Operator) -> str:
    if operator.least == operator.most:
        return f"{operator.least} argument{'s' if operator.least > 1 else ''}"
    return f"{operator.least} to {operator.most} arguments"
