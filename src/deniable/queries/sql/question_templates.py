"""A cache of plans for questions that differ only in the numbers of their conditions.

`WHERE age > 40 AND cost < 99.5` and `WHERE age > 41 AND cost < 80.0` have the same shape. The numbers that columns are
compared with do not change the columns and bounds of the remaining rows, so the statistics, their sensitivity and the
display are the same. There are two exceptions. The public values of a key may follow from a condition, so no column of
a key may be among the compared ones. And a column that numbers a person's rows bounds how many remain (k <= 3), so no
column may be compared whose values bound the rows of a person. The condition and the hash depend on the numbers and are
rebuilt. The length of a question and its work bound do not: every number counts as one part of eight bytes.

Numbers of the text are matched with numbers of the condition by order and value, which is only a guess. It is verified
by the second text of the shape: filling in its numbers must give the hash that reading it in full gives.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from deniable.errors import QuestionRefused
from deniable.queries.plan.named_keys import base_columns
from deniable.queries.plan.question import question_hash
from deniable.queries.relations.altered_records import altered
from deniable.queries.relations.exact_statistics import Filling, Number
from deniable.queries.relations.relation_nodes import FilterRows
from deniable.tables.expressions import Call, Column, Expression, Literal

if TYPE_CHECKING:
    from deniable.queries.plan.noise_planner import NoisePlan

_MOST: Final = 1000
"""The most shapes in the cache."""

_LONGEST: Final = 2000
"""The most characters of a text that is cached."""

_STRANGE: Final = re.compile(r"[^A-Za-z0-9_\s.,()*<>=!']")
"""Characters that exclude a text from the cache: comments, other quotes, arithmetic."""

_NUMBER: Final = re.compile(r"(?<![\w.])([0-9]+(?:\.[0-9]+)?)(?![\w.])", re.ASCII)
_DIGIT: Final = re.compile("[0-9]")
_COMPARED: Final = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
_JOINED: Final = frozenset({"and", "or", "not"})

_Shape = tuple[tuple[str, ...], tuple[type[Number], ...]]
"""(the text between the numbers, the type of each number)."""


@final
class Shapes:
    """The shapes of questions that were planned. Threads may share it."""

    def __init__(self) -> None:
        self._kept: dict[_Shape, _KnownShape] = {}

    def plan(self, text: str) -> NoisePlan | None:
        """The plan of a text with a verified shape; None if the text must be read."""
        with suppress(QuestionRefused):  # a number is too large: reading the whole text refuses it in better words
            found = _cut(text)
            known = None if found is None else self._kept.get(found[0])
            if found is not None and known is not None and known.verified:
                return known.filled(found[1])
        return None

    def learn(self, text: str, plan: NoisePlan) -> None:
        """Store the shape of a text that was read in full, or verify the stored one against it."""
        found = _cut(text)
        if found is None:
            return
        shape, numbers = found
        known = self._kept.get(shape)
        if known is None:
            if _is_filled_by(plan, numbers):
                if len(self._kept) >= _MOST:
                    self._kept.clear()
                self._kept[shape] = _KnownShape(plan, numbers)
        elif not known.verified and not set(numbers) & set(known.numbers):
            with suppress(QuestionRefused):
                known.verified = known.filled(numbers).question.hash == plan.question.hash


@final
@dataclass(slots=True)
class _KnownShape:
    """The plan of the first text of a shape and its numbers; `verified` after a second text verified them."""

    plan: NoisePlan
    numbers: tuple[Number, ...]
    verified: bool = False
    name: str = field(default_factory=lambda: secrets.token_hex(8))

    def filled(self, numbers: tuple[Number, ...]) -> NoisePlan:
        """The plan with other numbers.

        Only the numbers are checked again. Kinds, length, work bound and columns were checked for the first text, and
        depend only on the types of the numbers.
        """
        old = self.plan.question
        assert isinstance(old.relation, FilterRows)
        relation = altered(old.relation, condition=_filled(old.relation.condition, iter(numbers)))
        hash = question_hash(relation, old.keys, old.measures)
        return altered(
            self.plan,
            question=altered(old, relation=relation, hash=hash),
            collect=altered(self.plan.collect, relation=relation, filling=Filling(self.name, numbers)),
        )


def _cut(text: str) -> tuple[_Shape, tuple[Number, ...]] | None:
    """(the shape of a text, its numbers in order); None if it has no numbers, or if some may be missed."""
    if len(text) > _LONGEST or _STRANGE.search(text) is not None:
        return None
    if "'" in text and any(_DIGIT.search(quoted) for quoted in text.split("'")[1::2]):
        return None
    from deniable.queries.sql.syntax_tree import number  # sqlglot comes with an extra

    pieces = _NUMBER.split(text)
    numbers = tuple(number(each) for each in pieces[1::2])
    return ((tuple(pieces[::2]), tuple(type(each) for each in numbers)), numbers) if numbers else None


def _is_filled_by(plan: NoisePlan, numbers: tuple[Number, ...]) -> bool:
    """Whether the numbers of a text are exactly the numbers of its conditions."""
    relation = plan.question.relation
    if type(relation) is not FilterRows or plan.totals is not None or len(set(numbers)) < len(numbers):
        return False
    places = list(_places(relation.condition))
    found = [(type(constant.value), constant.value) for _, constant in places]
    columns = {None if column is None else column.name for column, _ in places}
    compared = frozenset(name for name in columns if name is not None)
    used = base_columns((key.expression for key in plan.question.keys), relation)
    behind = base_columns(map(Column, compared), relation)
    if not relation.rows == relation.child.rows == relation.child.rows_alike(compared):
        return False
    return found == [(type(each), each) for each in numbers] and None not in columns and not behind & used


def _places(condition: Expression) -> Iterator[tuple[Column | None, Literal]]:
    """(column it is compared with, or None; number) for every number of a condition, in order."""
    match condition:
        case Call(operator=operator, arguments=parts) if operator in _JOINED:
            for part in parts:
                yield from _places(part)
        case Call(operator=operator, arguments=(Column() as column, Literal() as constant)) if operator in _COMPARED:
            yield from [(column, constant)] * _is_number(constant)
        case Call(operator=operator, arguments=(Literal() as constant, Column() as column)) if operator in _COMPARED:
            yield from [(column, constant)] * _is_number(constant)
        case Call(arguments=parts):
            for part in parts:
                yield from ((None, constant) for _, constant in _places(part))
        case Literal():
            yield from [(None, condition)] * _is_number(condition)


def _is_number(constant: Literal) -> bool:
    return type(constant.value) in (int, float)


def _filled(condition: Expression, numbers: Iterator[Number]) -> Expression:
    """A condition with its numbers replaced in order."""
    if isinstance(condition, Call):
        return altered(condition, arguments=tuple(_filled(part, numbers) for part in condition.arguments))
    if isinstance(condition, Literal) and _is_number(condition):
        return Literal(next(numbers))
    return condition
