"""The closed table of operators: the kinds each takes and returns, its effect on public bounds, and its meaning.

Three rules hold for every operator.

*Total.* It has a value for every row. Where it is undefined (1/0, sqrt(-1), a number that is not finite, text that is
not a date), the value is NULL. Unless stated otherwise, an operator with a NULL argument is NULL.

*The same everywhere.* `evaluate` in Python defines the meaning, and every engine must return the same bits. Only `exp`,
`ln` and `power` may differ in the last bits, as mathematical libraries do.

*No overflow.* Integer arithmetic is exact if public bounds prove that no result can exceed 64 bits. Otherwise, also for
integers without public bounds, the arguments become REAL first.
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
from deniable.tables.expressions import Call, Column, Expression, Literal
from deniable.tables.kinds import LONGEST, Domain, Kind, Scalar, kind_of

Value = Scalar | None
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
class Operator:
    """One row of the table. `takes` and `gives` are for the documentation; `domain` decides.

    `domain` maps the domains of the arguments to the domain of the result, or refuses them. `value` computes the result
    for arguments that are not NULL (if not `strict`, for any), already converted to the kind that `works_in` returns.
    `constants` says which positions must be constants.
    """

    name: str
    takes: str
    gives: str
    sql: str
    meaning: str
    least: int
    most: int
    domain: Callable[[tuple[Domain, ...]], Domain]
    value: Callable[..., Value]
    works_in: Callable[[tuple[Domain, ...], Domain], Kind | None] = lambda arguments, result: None
    strict: bool = True
    constants: Callable[[int], bool] = lambda position: False


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
                    "function", f"there is no operator {name!r}", "the dialect page lists all of them"
                )
            below = tuple(_typed(argument, columns, left) for argument in arguments)
            return _applied(operator, arguments, below, left)
    raise QuestionRefused("function", "only columns, constants and operators form an expression", 'write col("name")')


def _applied(operator: Operator, arguments: tuple[Expression, ...], below: tuple[Typed, ...], left: list[int]) -> Typed:
    if not operator.least <= len(below) <= operator.most:
        raise QuestionRefused(
            "kinds", f"{operator.name} takes {_counted(operator)}, not {len(below)}", f"write {operator.sql}"
        )
    for position, argument in enumerate(arguments):
        if operator.constants(position) and not isinstance(argument, Literal):
            raise QuestionRefused(
                "constant", f"argument {position + 1} of {operator.name} is a constant", f"write {operator.sql}"
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
    """All values that a call can have: it is evaluated on every combination of its arguments' values if these are few;
    otherwise the values between its bounds, if these are few; otherwise None.

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
    found = dict.fromkeys(value(chosen) for chosen in product(*choices))  # type: ignore[arg-type]
    found.pop(None, None)
    return _in_order(tuple(found), result.kind)  # type: ignore[arg-type]


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


def _at(*positions: int) -> Callable[[int], bool]:
    return lambda position: position in positions


def _in_result(arguments: tuple[Domain, ...], result: Domain) -> Kind | None:
    return result.kind


def _in_real(arguments: tuple[Domain, ...], result: Domain) -> Kind | None:
    return Kind.REAL


def _together(arguments: tuple[Domain, ...], result: Domain) -> Kind | None:
    return intervals.common_kind(arguments)


_MANY: Final = 1000
_TABLE: Final = (
    # arithmetic
    Operator("add", "two numbers", "number", "a + b", "The sum.", 2, 2, intervals.add, meanings.add, _in_result),
    Operator(
        "subtract", "two numbers", "number", "a - b", "The difference.",
        2, 2, intervals.subtract, meanings.subtract, _in_result,
    ),
    Operator(
        "multiply", "two numbers", "number", "a * b", "The product.",
        2, 2, intervals.multiply, meanings.multiply, _in_result,
    ),
    Operator(
        "divide", "two numbers", "real", "a / b",
        "The quotient, also of integers: 7 / 2 is 3.5. NULL if b is 0.",
        2, 2, intervals.divide, meanings.divide, _in_real,
    ),
    Operator(
        "modulo", "two numbers", "number", "a % b",
        "The remainder, with the sign of a: -7 % 3 is -1. NULL if b is 0.",
        2, 2, intervals.modulo, meanings.modulo, _in_result,
    ),
    Operator("negate", "a number", "number", "-a", "Minus a.", 1, 1, intervals.negate, meanings.negate, _in_result),
    Operator(
        "abs", "a number", "number", "ABS(a)", "The size without the sign.",
        1, 1, intervals.absolute, meanings.absolute, _in_result,
    ),
    Operator(
        "floor", "a number", "integer (real if bounds do not fit 64 bits)", "FLOOR(a)",
        "The largest whole number that is at most a.", 1, 1, intervals.floor, meanings.floor,
    ),
    Operator(
        "ceil", "a number", "integer (real if bounds do not fit 64 bits)", "CEIL(a)",
        "The smallest whole number that is at least a.", 1, 1, intervals.ceil, meanings.ceil,
    ),
    Operator(
        "round", "a number", "integer (real if bounds do not fit 64 bits)", "ROUND(a)",
        "The nearest whole number; halves go away from 0.", 1, 1, intervals.rounded, meanings.rounded,
    ),
    Operator(
        "sqrt", "a number", "real", "SQRT(a)", "The square root. NULL below 0.",
        1, 1, intervals.sqrt, meanings.sqrt, _in_real,
    ),
    Operator(
        "ln", "a number", "real", "LN(a)", "The natural logarithm. NULL at 0 and below.",
        1, 1, intervals.ln, meanings.ln, _in_real,
    ),
    Operator(
        "exp", "a number", "real", "EXP(a)", "e to the power of a. NULL if it is not finite.",
        1, 1, intervals.exp, meanings.exp, _in_real,
    ),
    Operator(
        "power", "two numbers", "real", "POWER(a, b)", "a to the power of b. NULL if it is not a finite real number.",
        2, 2, intervals.power, meanings.power, _in_real,
    ),
    Operator(
        "least", "numbers, or texts, or dates", "their kind", "LEAST(a, b, …)",
        "The smallest. NULL if any is NULL.", 1, _MANY, intervals.least, meanings.least, _in_result,
    ),
    Operator(
        "greatest", "numbers, or texts, or dates", "their kind", "GREATEST(a, b, …)",
        "The largest. NULL if any is NULL.", 1, _MANY, intervals.greatest, meanings.greatest, _in_result,
    ),
    # comparisons
    Operator(
        "eq", "two values of one kind", "boolean", "a = b", "Equal. Text is compared exactly.",
        2, 2, intervals.compared, meanings.eq, _together,
    ),
    Operator(
        "ne", "two values of one kind", "boolean", "a <> b", "Not equal.",
        2, 2, intervals.compared, meanings.ne, _together,
    ),
    Operator(
        "lt", "two values of one kind", "boolean", "a < b", "Less. Text is ordered by code point.",
        2, 2, intervals.compared, meanings.lt, _together,
    ),
    Operator(
        "le", "two values of one kind", "boolean", "a <= b", "Less or equal.",
        2, 2, intervals.compared, meanings.le, _together,
    ),
    Operator(
        "gt", "two values of one kind", "boolean", "a > b", "Greater.",
        2, 2, intervals.compared, meanings.gt, _together,
    ),
    Operator(
        "ge", "two values of one kind", "boolean", "a >= b", "Greater or equal.",
        2, 2, intervals.compared, meanings.ge, _together,
    ),
    Operator(
        "in", "a value and constants of its kind", "boolean", "a IN (1, 2, …)",
        "Equal to one of them; NULL if to none and a NULL is among them.",
        2, _MANY, intervals.compared, meanings.is_in, _together, strict=False, constants=lambda position: position > 0,
    ),
    # logic
    Operator(
        "and", "booleans", "boolean", "a AND b", "False if any is false, else NULL if any is NULL, else true.",
        1, _MANY, intervals.logic, meanings.conjunction, strict=False,
    ),
    Operator(
        "or", "booleans", "boolean", "a OR b", "True if any is true, else NULL if any is NULL, else false.",
        1, _MANY, intervals.logic, meanings.disjunction, strict=False,
    ),
    Operator(
        "not", "a boolean", "boolean", "NOT a", "True if false, and the reverse.",
        1, 1, intervals.logic, meanings.negation,
    ),
    Operator(
        "is_null", "anything", "boolean", "a IS NULL", "Whether a is NULL: never NULL itself.",
        1, 1, intervals.never_null, meanings.is_null, strict=False,
    ),
    Operator(
        "case", "conditions and values", "the values' kind", "CASE WHEN c THEN a … ELSE b END",
        "The value of the first condition that is true; the last one if none is.",
        3, _MANY, intervals.case, meanings.case, strict=False,
    ),
    Operator(
        "coalesce", "values of one kind", "their kind", "COALESCE(a, b, …)", "The first that is not NULL.",
        1, _MANY, intervals.coalesce, meanings.coalesce, _in_result, strict=False,
    ),
    Operator(
        "nullif", "two values of one kind", "their kind", "NULLIF(a, b)", "NULL if a = b, else a.",
        2, 2, intervals.nullif, meanings.nullif, _in_result, strict=False,
    ),
    # casts
    Operator(
        "cast_boolean", "a boolean, number or text", "boolean", "CAST(a AS BOOLEAN)",
        "A number is true unless 0. Text is read if it is 'true' or 'false' in any case.",
        1, 1, intervals.cast(Kind.BOOLEAN), meanings.to_boolean,
    ),
    Operator(
        "cast_integer", "a boolean, number or text", "integer", "CAST(a AS INTEGER)",
        "A number is rounded, halves away from 0. Text is read if it is a sign and digits, nothing else.",
        1, 1, intervals.cast(Kind.INTEGER), meanings.to_integer,
    ),
    Operator(
        "cast_real", "a boolean, number or text", "real", "CAST(a AS DOUBLE)",
        "Text is read if it is a decimal number such as -1.5e3, nothing else.",
        1, 1, intervals.cast(Kind.REAL), meanings.to_real,
    ),
    Operator(
        "cast_text", "a boolean, integer, text or date", "text", "CAST(a AS VARCHAR)",
        "true, -12, 2024-02-29. Reals and timestamps have no single spelling and are refused.",
        1, 1, intervals.cast(Kind.TEXT), meanings.to_text,
    ),
    Operator(
        "cast_date", "a date, timestamp or text", "date", "CAST(a AS DATE)",
        "The day of a timestamp. Text is read if it is a date such as 2024-02-29, nothing else.",
        1, 1, intervals.cast(Kind.DATE), meanings.to_date,
    ),
    Operator(
        "cast_timestamp", "a date, timestamp or text", "timestamp", "CAST(a AS TIMESTAMP)",
        "A date is its midnight. Text is read if it is a moment such as 2024-02-29 23:59:59, nothing else.",
        1, 1, intervals.cast(Kind.TIMESTAMP), meanings.to_timestamp,
    ),
    # text
    Operator(
        "lower", "text", "text", "LOWER(a)", "A to Z become a to z; all else stays.",
        1, 1, intervals.text, meanings.lower,
    ),
    Operator(
        "upper", "text", "text", "UPPER(a)", "a to z become A to Z; all else stays.",
        1, 1, intervals.text, meanings.upper,
    ),
    Operator(
        "trim", "text", "text", "TRIM(a)", "Without the spaces (U+0020) at both ends.",
        1, 1, intervals.text, meanings.trim,
    ),
    Operator(
        "length", "text", "integer", "LENGTH(a)", "The number of code points.",
        1, 1, intervals.length, meanings.length,
    ),
    Operator(
        "prefix", "text and a constant from 0 to 1000", "text", "LEFT(a, 3)", "The first code points.",
        2, 2, intervals.prefix, meanings.prefix, constants=_at(1),
    ),
    Operator(
        "concat", "texts", "text", "a || b",
        f"One after the other, cut after {LONGEST:,} code points. NULL if any is NULL.",
        2, 16, intervals.text, meanings.concat,
    ),
    Operator(
        "like", "text and a constant pattern", "boolean", "a LIKE 'x%'",
        "% stands for any text, _ for one code point, all else for itself; there is no escape.",
        2, 2, intervals.like, meanings.like, constants=_at(1),
    ),
    # dates
    Operator(
        "year", "a date or timestamp", "integer", "YEAR(a)", "1 to 9999.",
        1, 1, intervals.year, meanings.year,
    ),
    Operator(
        "quarter", "a date or timestamp", "integer", "QUARTER(a)", "1 to 4.",
        1, 1, intervals.date_part(1, 4), meanings.quarter,
    ),
    Operator(
        "month", "a date or timestamp", "integer", "MONTH(a)", "1 to 12.",
        1, 1, intervals.date_part(1, 12), meanings.month,
    ),
    Operator(
        "day", "a date or timestamp", "integer", "DAY(a)", "1 to 31.",
        1, 1, intervals.date_part(1, 31), meanings.day,
    ),
    Operator(
        "weekday", "a date or timestamp", "integer", "EXTRACT(ISODOW FROM a)", "1 is Monday, 7 is Sunday.",
        1, 1, intervals.date_part(1, 7), meanings.weekday,
    ),
    Operator("hour", "a timestamp", "integer", "HOUR(a)", "0 to 23, UTC.", 1, 1, intervals.hour, meanings.hour),
    Operator(
        "date_trunc", "a constant unit and a date or timestamp", "the kind of a", "DATE_TRUNC('month', a)",
        "The start of the year, quarter, month, week (Monday), day or hour (timestamps only).",
        2, 2, intervals.date_trunc, meanings.date_trunc, constants=_at(0),
    ),
    Operator(
        "days_between", "two dates or timestamps", "integer", "DATE_DIFF('day', a, b)",
        "The number of midnights from a to b.", 2, 2, intervals.days_between, meanings.days_between,
    ),
)  # fmt: skip

OPERATORS: Final[Mapping[str, Operator]] = {operator.name: operator for operator in _TABLE}
