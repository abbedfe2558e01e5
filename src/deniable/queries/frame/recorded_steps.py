"""Frames that record their method calls as JSON, so that a server can repeat them.

The record is not a plan. The server repeats the calls on its own frames, from its own schemas, so every check of
`queries.frame.frame` is made there, whoever wrote the record.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from deniable.errors import NOTHING, DeniableError, InvalidParameter
from deniable.queries.frame.frame import Frame, GroupedFrame
from deniable.queries.frame.frame_aggregates import Aggregation
from deniable.queries.plan.question import Question
from deniable.tables.expressions import Call, Column, Expression, Literal, col, lit
from deniable.tables.kinds import Scalar
from deniable.tables.schema import Table

_DEEPEST: Final = 60
"""The deepest nesting of a record."""

_FRAME: Final[Mapping[str, Callable[..., Any]]] = {
    "filter": Frame.filter, "with_columns": Frame.with_columns, "select": Frame.select, "join": Frame.join,
    "people_in": Frame.people_in, "people_not_in": Frame.people_not_in, "union": Frame.union,
    "per_person": Frame.per_person, "group_by": Frame.group_by, "agg": Frame.agg,
}  # fmt: skip
_GROUPED: Final[Mapping[str, Callable[..., Any]]] = {"with_keys": GroupedFrame.with_keys, "agg": GroupedFrame.agg}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """A question that was built by `table(...)` and `agg(...)` of a remote session, with its record."""

    question: Question
    record: Mapping[str, Any]

    def text(self) -> str:
        """The record as compact JSON. It starts with {, which no SQL does."""
        return json.dumps(self.record, separators=(",", ":"), allow_nan=False)

    def __repr__(self) -> str:
        return repr(self.question)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """A grouped frame that records its method calls."""

    grouped: GroupedFrame
    record: Mapping[str, Any]

    def with_keys(self, **values: Iterable[Scalar | None]) -> Groups:
        """See `GroupedFrame.with_keys`."""
        listed = {name: list(each) for name, each in values.items()}
        return Groups(self.grouped.with_keys(**listed), _then(self.record, "with_keys", (), listed))

    def agg(self, *unnamed: object, **aggregates: Aggregation) -> Steps:
        """See `GroupedFrame.agg`."""
        return Steps(self.grouped.agg(*unnamed, **aggregates), _then(self.record, "agg", unnamed, aggregates))

    def __repr__(self) -> str:
        return repr(self.grouped)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A frame that records its method calls, with the methods and checks of `Frame`."""

    frame: Frame
    record: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, tables: Mapping[str, Table]) -> Recorded:
        """The rows of a private table; `QuestionRefused` for an unknown name."""
        return cls(Frame.of(name, tables), {"table": name, "steps": []})

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.frame.columns

    def filter(self, *conditions: Expression) -> Recorded:
        """See `Frame.filter`."""
        return self._made("filter", *conditions)

    def with_columns(self, **expressions: object) -> Recorded:
        """See `Frame.with_columns`."""
        return self._made("with_columns", **expressions)

    def select(self, *columns: str, **expressions: object) -> Recorded:
        """See `Frame.select`."""
        return self._made("select", *columns, **expressions)

    def join(
        self, other: Recorded | str, on: str | Iterable[str | tuple[str, str]] = (), *, how: str = "inner"
    ) -> Recorded:
        """See `Frame.join`."""
        return self._made("join", other, on if isinstance(on, str) else list(on), how=how)

    def people_in(self, other: Recorded) -> Recorded:
        """See `Frame.people_in`."""
        return self._made("people_in", other)

    def people_not_in(self, other: Recorded) -> Recorded:
        """See `Frame.people_not_in`."""
        return self._made("people_not_in", other)

    def union(self, *others: Recorded) -> Recorded:
        """See `Frame.union`."""
        return self._made("union", *others)

    def per_person(self, *keys: str, **aggregates: Aggregation) -> Recorded:
        """See `Frame.per_person`."""
        return self._made("per_person", *keys, **aggregates)

    def group_by(self, *keys: str, **expressions: object) -> Groups:
        """See `Frame.group_by`."""
        return Groups(self.frame.group_by(*keys, **expressions), _then(self.record, "group_by", keys, expressions))

    def agg(self, *unnamed: object, **aggregates: Aggregation) -> Steps:
        """See `Frame.agg`."""
        return Steps(self.frame.agg(*unnamed, **aggregates), _then(self.record, "agg", unnamed, aggregates))

    def _made(self, verb: str, *values: object, **named: object) -> Recorded:
        frames = [each.frame if isinstance(each, Recorded) else each for each in values]
        frame: Frame = getattr(self.frame, verb)(*frames, **named)
        return Recorded(frame, _then(self.record, verb, values, named))

    def __repr__(self) -> str:
        return repr(self.frame)


def question_of(text: str, tables: Mapping[str, Table]) -> Question:
    """The question that a record builds over these tables.

    Raises `InvalidParameter` if it is malformed, and `QuestionRefused` like the methods of `Frame`.
    """
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        raise _unreadable() from None
    made = _built(record, tables, 0)
    if not isinstance(made, Question):
        raise _unreadable()
    return made


def _then(
    record: Mapping[str, Any], verb: str, values: Iterable[object], named: Mapping[str, object]
) -> dict[str, Any]:
    step = {
        "verb": verb,
        "values": [_plain(each) for each in values],
        "named": {name: _plain(each) for name, each in named.items()},
    }
    return {**record, "steps": [*record["steps"], step]}


def _plain(value: object) -> Any:
    match value:
        case Recorded(record=record):
            return {"frame": record}
        case Aggregation(function=function, expression=expression, options=options):
            return {"function": function, "of": _plain(expression), "options": dict(options)}
        case Column(name=name):
            return {"col": name}
        case Literal(value=constant):
            return {"constant": _plain(constant)}
        case Call(operator=operator, arguments=arguments):
            return {"call": operator, "of": [_plain(each) for each in arguments]}
        case dt.datetime():
            return {"timestamp": value.isoformat()}
        case dt.date():
            return {"date": value.isoformat()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
        case _ if callable(item := getattr(value, "item", None)):  # a NumPy scalar
            return _plain(item())
    raise InvalidParameter("value", NOTHING, "cannot be sent to a server", "write numbers, text, dates and expressions")


def _built(record: Any, tables: Mapping[str, Table], depth: int) -> Frame | GroupedFrame | Question:
    if not isinstance(record, dict) or set(record) != {"table", "steps"} or not isinstance(record["steps"], list):
        raise _unreadable()
    made: Any = Frame.of(_name(record["table"]), tables)
    for step in record["steps"]:
        if not isinstance(step, dict) or set(step) != {"verb", "values", "named"}:
            raise _unreadable()
        known = _FRAME if isinstance(made, Frame) else _GROUPED if isinstance(made, GroupedFrame) else {}
        verb, values, named = known.get(_name(step["verb"])), step["values"], step["named"]
        if verb is None or not isinstance(values, list) or not isinstance(named, dict):
            raise _unreadable()
        given = [_read(each, tables, depth + 1) for each in values]
        try:
            made = verb(made, *given, **{name: _read(each, tables, depth + 1) for name, each in named.items()})
        except DeniableError:
            raise
        except (TypeError, ValueError, AttributeError):  # arguments that the verb does not take
            raise _unreadable() from None
    built: Frame | GroupedFrame | Question = made
    return built


def _read(value: Any, tables: Mapping[str, Table], depth: int) -> Any:
    if depth > _DEEPEST:
        raise InvalidParameter("frame", NOTHING, f"is nested more than {_DEEPEST} deep", "ask in simpler steps")
    if isinstance(value, list):
        return [_read(each, tables, depth + 1) for each in value]
    if not isinstance(value, dict):
        return value
    try:
        match value:
            case {"frame": record, **rest} if not rest:
                return _built(record, tables, depth + 1)
            case {"col": str() as name, **rest} if not rest:
                return col(name)
            case {"constant": constant, **rest} if not rest:
                return lit(_read(constant, tables, depth + 1))
            case {"date": str() as text, **rest} if not rest:
                return dt.date.fromisoformat(text)
            case {"timestamp": str() as text, **rest} if not rest:
                return dt.datetime.fromisoformat(text)
            case {"call": str() as operator, "of": list() as parts, **rest} if not rest:
                return Call(operator, tuple(_expression(each, tables, depth + 1) for each in parts))
            case {"function": str() as function, "of": of, "options": dict() as options, **rest} if not rest:
                expression = None if of is None else _expression(of, tables, depth + 1)
                return Aggregation(function, expression, {name: _number(each) for name, each in options.items()})
    except DeniableError:
        raise
    except (TypeError, ValueError):
        pass  # raised below
    raise _unreadable()


def _expression(value: Any, tables: Mapping[str, Table], depth: int) -> Expression:
    found = _read(value, tables, depth)
    if not isinstance(found, Expression):
        raise _unreadable()
    return found


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise _unreadable()
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _unreadable()
    return value


def _unreadable() -> InvalidParameter:
    return InvalidParameter("frame", NOTHING, "must be steps that end in a question", "build them with table(...)")
