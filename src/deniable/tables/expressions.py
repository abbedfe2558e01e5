"""Expressions over the columns of a row: trees of three kinds of nodes, all of them total.

An expression has a value for every row: a cast that fails, a division by zero, an overflow and a function outside its
range are NULL, on every engine. Which operators exist, what they mean and what they do to public bounds is one table
(`operators`); the SQL front and the dataframe front build the same trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from deniable.tables.kinds import Scalar


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A value computed from one row. `col("age") > 60` is one, so `==` builds one too: compare with `same`."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Column(Expression):
    """The value of a column of the relation below."""

    name: str


@final
@dataclass(frozen=True, slots=True, eq=False)
class Literal(Expression):
    """A constant that the analyst wrote. None is NULL."""

    value: Scalar | None


@final
@dataclass(frozen=True, slots=True, eq=False)
class Call(Expression):
    """An operator of the closed table, by its name there: "add", "and", "case", "like", "year", "cast_integer" ..."""

    operator: str
    arguments: tuple[Expression, ...]
