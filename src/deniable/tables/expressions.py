"""Expressions over the columns of a row: trees of columns, constants and calls of operators.

Every expression is total: it has a value for every row. A failed cast, a division by zero, an overflow, or a function
outside its range gives NULL, on every engine. The operators, their meaning and their effect on public bounds are one
closed table (`queries.relations.operators`). The SQL front and the dataframe front build the same trees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, final

from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, QuestionRefused
from deniable.numbers import plain
from deniable.tables.kinds import Kind, Scalar, kind_of

MOST_DEPTH: Final = 100
MOST_PARTS: Final = 2000
"""The most columns, constants and operators of an expression; a part that is used twice counts twice."""


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A value computed from one row, such as `col("age") > 60`. `==` builds an expression too; compare with `same`.

    >>> (col("age") > 60) & col("ward").is_in(["A", "B"])
    and(gt(age, 60), in(ward, 'A', 'B'))
    """

    def __add__(self, other: object) -> Call:
        return call("add", self, other)

    def __radd__(self, other: object) -> Call:
        return call("add", other, self)

    def __sub__(self, other: object) -> Call:
        return call("subtract", self, other)

    def __rsub__(self, other: object) -> Call:
        return call("subtract", other, self)

    def __mul__(self, other: object) -> Call:
        return call("multiply", self, other)

    def __rmul__(self, other: object) -> Call:
        return call("multiply", other, self)

    def __truediv__(self, other: object) -> Call:
        return call("divide", self, other)

    def __rtruediv__(self, other: object) -> Call:
        return call("divide", other, self)

    def __mod__(self, other: object) -> Call:
        return call("modulo", self, other)

    def __rmod__(self, other: object) -> Call:
        return call("modulo", other, self)

    def __pow__(self, other: object) -> Call:
        return call("power", self, other)

    def __floordiv__(self, other: object) -> Call:
        return call("floor", call("divide", self, other))

    def __neg__(self) -> Call:
        return call("negate", self)

    def __abs__(self) -> Call:
        return call("abs", self)

    def __eq__(self, other: object) -> Call:  # type: ignore[override]  # an expression, as in pandas
        return call("eq", self, other)

    def __ne__(self, other: object) -> Call:  # type: ignore[override]  # an expression, as in pandas
        return call("ne", self, other)

    def __lt__(self, other: object) -> Call:
        return call("lt", self, other)

    def __le__(self, other: object) -> Call:
        return call("le", self, other)

    def __gt__(self, other: object) -> Call:
        return call("gt", self, other)

    def __ge__(self, other: object) -> Call:
        return call("ge", self, other)

    def __and__(self, other: object) -> Call:
        return call("and", self, other)

    def __rand__(self, other: object) -> Call:
        return call("and", other, self)

    def __or__(self, other: object) -> Call:
        return call("or", self, other)

    def __ror__(self, other: object) -> Call:
        return call("or", other, self)

    def __invert__(self) -> Call:
        return call("not", self)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise InvalidOperation("an expression has no truth value in Python; write & for and, | for or, ~ for not")

    @property
    def parts(self) -> int:
        """The number of columns, constants and operators, with repetitions."""
        return 1

    @property
    def depth(self) -> int:
        """The depth of nested operators."""
        return 0

    def is_null(self) -> Call:
        """Whether the value is NULL; the result is never NULL."""
        return call("is_null", self)

    def is_in(self, values: Iterable[object]) -> Call:
        """Whether the value is one of a list of constants."""
        return call("in", self, *values)

    def between(self, low: object, high: object) -> Call:
        """low <= value AND value <= high."""
        return call("and", call("ge", self, low), call("le", self, high))

    def like(self, pattern: str) -> Call:
        """SQL's LIKE: % matches any text, _ one character. Neither can be escaped."""
        return call("like", self, pattern)

    def prefix(self, length: int) -> Call:
        """The first `length` characters."""
        return call("prefix", self, length)

    def cast(self, kind: Kind | str) -> Call:
        """The value as another kind, given as `Kind` or its name; NULL where that is impossible."""
        try:
            return call(f"cast_{Kind(kind).value}", self)
        except ValueError:
            raise InvalidParameter("kind", kind, f"must be one of {', '.join(k.value for k in Kind)}") from None

    def apply(self, operator: str, *arguments: object) -> Call:
        """Apply an operator of the closed table by its name: `col("visited").apply("month")`.

        An unknown name is refused when a question uses the expression.
        """
        return call(operator, self, *arguments)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Column(Expression):
    """The value of a column."""

    name: str

    def __repr__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True, eq=False)
class Literal(Expression):
    """A constant; None is NULL. `InvalidParameter` if no cell can contain it."""

    value: Scalar | None

    def __post_init__(self) -> None:
        if self.value is not None and kind_of(self.value) is None:
            rule = "must be a finite number of 64 bits, text, a boolean, a date or a timestamp without time zone"
            raise InvalidParameter("constant", NOTHING, rule)

    def __repr__(self) -> str:
        return "NULL" if self.value is None else repr(self.value)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Call(Expression):
    """A call of an operator of the closed table: "add", "and", "case", "like", "year", "cast_integer" …

    Raises `QuestionRefused` if the expression becomes too large or too deep.
    """

    operator: str
    arguments: tuple[Expression, ...]
    parts: int = field(init=False, repr=False)
    depth: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Checked at construction: `CASE x WHEN 1 ... WHEN 2 ...` contains x twice, so forty nested ones are a small
        # object in memory, but a walk through it would never end.
        parts, depth = 1, 0
        for argument in self.arguments:
            parts += argument.parts
            depth = max(depth, argument.depth)
        if parts > MOST_PARTS:
            raise QuestionRefused(
                "too_deep", f"an expression must have at most {MOST_PARTS} parts", "ask in several questions"
            )
        if depth >= MOST_DEPTH:
            raise QuestionRefused(
                "too_deep",
                f"an expression must be nested at most {MOST_DEPTH} levels deep",
                "name parts of it in a sub-query",
            )
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "depth", depth + 1)

    def __repr__(self) -> str:
        return f"{self.operator}({', '.join(repr(argument) for argument in self.arguments)})"


def col(name: str) -> Column:
    """A column by its name: `col("age") > 60`. A question checks whether its table has this column."""
    if not isinstance(name, str) or not name:
        raise InvalidParameter("name", name, "must be the name of a column", 'write col("age")')
    return Column(name)


def lit(value: Scalar | None) -> Literal:
    """A constant as an expression; NumPy scalars are converted."""
    return Literal(plain(value))


def call(operator: str, *arguments: object) -> Call:
    """An operator applied to expressions and constants."""
    return Call(operator, tuple(as_expression(argument) for argument in arguments))


def case(*branches: tuple[Expression, object], otherwise: object = None) -> Call:
    """The value of the first branch with a true condition; `otherwise` (by default NULL) if no condition is true.

    >>> case((col("age") < 18, "child"), otherwise="adult")
    case(lt(age, 18), 'child', 'adult')
    """
    return call("case", *(part for branch in branches for part in branch), otherwise)


def coalesce(*values: object) -> Call:
    """The first value that is not NULL."""
    return call("coalesce", *values)


def as_expression(value: object) -> Expression:
    """An expression unchanged; any other value as a constant."""
    return value if isinstance(value, Expression) else Literal(plain(value))


def same(left: Expression, right: Expression) -> bool:
    """Whether two trees are equal node by node. 1, 1.0 and True are three different constants."""
    match left, right:
        case Column(name=a), Column(name=b):
            return a == b
        case Literal(value=x), Literal(value=y):
            return type(x) is type(y) and x == y
        case Call(operator=f, arguments=us), Call(operator=g, arguments=vs):
            return f == g and len(us) == len(vs) and all(same(u, v) for u, v in zip(us, vs, strict=True))
        case _:
            return False


def columns_used(expression: Expression) -> Iterator[str]:
    """The columns that an expression reads, in order, with repetitions."""
    pending = [expression]
    while pending:  # a loop, because nested generators are several times slower
        each = pending.pop()
        if isinstance(each, Column):
            yield each.name
        elif isinstance(each, Call):
            pending.extend(reversed(each.arguments))


def renamed(expression: Expression, names: Mapping[str, Expression]) -> Expression:
    """The expression with columns replaced by the expressions in `names`."""
    if isinstance(expression, Column):
        return names.get(expression.name, expression)
    if isinstance(expression, Call):
        return Call(expression.operator, tuple(renamed(argument, names) for argument in expression.arguments))
    return expression


def conjuncts(condition: Expression) -> Iterator[Expression]:
    """The parts of a condition that must all be true."""
    if isinstance(condition, Call) and condition.operator == "and":
        for part in condition.arguments:
            yield from conjuncts(part)
    else:
        yield condition
