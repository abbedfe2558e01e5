"""Questions that differ in the numbers of their conditions alone: read and planned once, and filled in from then on.

`WHERE age > 40 AND cost < 99.5` and `WHERE age > 41 AND cost < 80.0` have one shape. Whatever the numbers are that
columns are compared with, the rows that are left have the same columns and bounds, and a person owns at most as many of
them; so what is measured, how far it moves and how it is shown are the same too. Only the public values of a key may
follow from a condition, so no column of a key may be among those compared. What does depend on the numbers is made
anew: the condition and the hash of the question. The length of a question and the work that it makes of one person's
rows do not: every number is one part of eight bytes there, whichever it is, and both were bounded for the first text.

Which number of the text stands where in the condition is found by comparing both, number by number, and believed when
that has told the hash of a second text, with other numbers, as reading it in full does.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from deniable.errors import QuestionRefused
from deniable.queries.plan.question import question_hash
from deniable.queries.relations.altered_records import altered
from deniable.queries.relations.exact_statistics import Filling, Number
from deniable.queries.relations.relation_nodes import FilterRows
from deniable.tables.expressions import Call, Column, Expression, Literal, columns_used

if TYPE_CHECKING:
    from deniable.queries.plan.noise_planner import NoisePlan

_MOST: Final = 1000
"""Shapes that are kept."""

_LONGEST: Final = 2000
"""Characters of a text whose shape is looked for."""

_STRANGE: Final = re.compile(r"[^A-Za-z0-9_\s.,()*<>=!']")
"""What is not looked into: signs of comments, of other quotes, of arithmetic."""

_NUMBER: Final = re.compile(r"(?<![\w.])([0-9]+(?:\.[0-9]+)?)(?![\w.])", re.ASCII)
_DIGIT: Final = re.compile("[0-9]")
_COMPARED: Final = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
_JOINED: Final = frozenset({"and", "or", "not"})

_Shape = tuple[tuple[str, ...], tuple[type[Number], ...]]
"""What stands around the numbers, and of which kind each of them is."""


@final
class Shapes:
    """The shapes of questions that were planned. Threads may share it."""

    def __init__(self) -> None:
        self._kept: dict[_Shape, _Known] = {}

    def plan(self, text: str) -> NoisePlan | None:
        """The plan of a text whose shape is known; None where it must be read."""
        with suppress(QuestionRefused):  # by the number alone: whoever reads all of it says so in better words
            found = _cut(text)
            known = None if found is None else self._kept.get(found[0])
            if found is not None and known is not None and known.believed:
                return known.filled(found[1])
        return None

    def learn(self, text: str, plan: NoisePlan) -> None:
        """Remember the shape of a text that was read, or see whether the one that is remembered tells the same."""
        found = _cut(text)
        if found is None:
            return
        shape, numbers = found
        known = self._kept.get(shape)
        if known is None:
            if _is_filled_by(plan, numbers):
                if len(self._kept) >= _MOST:
                    self._kept.clear()
                self._kept[shape] = _Known(plan, numbers)
        elif not known.believed and not set(numbers) & set(known.numbers):
            with suppress(QuestionRefused):
                known.believed = known.filled(numbers).question.hash == plan.question.hash


@final
@dataclass(slots=True)
class _Known:
    plan: NoisePlan
    numbers: tuple[Number, ...]
    believed: bool = False
    name: str = field(default_factory=lambda: secrets.token_hex(8))

    def filled(self, numbers: tuple[Number, ...]) -> NoisePlan:
        """The plan with other numbers.

        Nothing is checked anew but the numbers themselves. Kinds, lengths, the work of a person and the columns were
        checked when the first text was read, and depend on the kinds of the numbers alone: each is one part of eight
        bytes, compared with a column.
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
    """The shape of a text and its numbers in order; None if it has none, or may hold one that would not be found."""
    if len(text) > _LONGEST or _STRANGE.search(text) is not None:
        return None
    if "'" in text and any(_DIGIT.search(quoted) for quoted in text.split("'")[1::2]):
        return None
    from deniable.queries.sql.dialect import number  # sqlglot comes with an extra

    pieces = _NUMBER.split(text)
    numbers = tuple(number(each) for each in pieces[1::2])
    return ((tuple(pieces[::2]), tuple(type(each) for each in numbers)), numbers) if numbers else None


def _is_filled_by(plan: NoisePlan, numbers: tuple[Number, ...]) -> bool:
    """Whether the numbers of a text are those of its conditions, each at a place of its own, and of nothing else."""
    relation = plan.question.relation
    if type(relation) is not FilterRows or plan.totals is not None or len(set(numbers)) < len(numbers):
        return False
    places = list(_places(relation.condition))
    told = [(type(constant.value), constant.value) for _, constant in places]
    columns = {None if column is None else column.name for column, _ in places}
    used = {name for key in plan.question.keys for name in columns_used(key.expression)}
    return told == [(type(each), each) for each in numbers] and None not in columns and not columns & used


def _places(condition: Expression) -> Iterator[tuple[Column | None, Literal]]:
    """Every number of a condition, in order, with the column that it is compared with; None for any other place."""
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
    """A condition with other numbers at the places where it has numbers."""
    if isinstance(condition, Call):
        return altered(condition, arguments=tuple(_filled(part, numbers) for part in condition.arguments))
    if isinstance(condition, Literal) and _is_number(condition):
        return Literal(next(numbers))
    return condition
