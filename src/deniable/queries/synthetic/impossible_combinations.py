"""Rules about impossible combinations, as a caller writes them: `forbid=[{"sex": "m", "pregnant": True}]`.

A rule gives, for some columns, values that never occur together: one value, a list of values, None for a missing value,
or, for numbers and times with bounds, a range `(low, high)` that includes both ends; None is an open end. JSON cannot
distinguish pairs from lists, so over HTTP a range is `{"from": low, "to": high}`, with one end or both.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Hashable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Final

from deniable.errors import InvalidParameter, type_of
from deniable.numbers import above, plain
from deniable.queries.plan.refusals import choices
from deniable.tables.kinds import Kind, as_written, kind_of

if TYPE_CHECKING:
    from deniable.queries.synthetic.synthesis_request import SyntheticColumn

MOST_RULES: Final = 100
_ENDS: Final = frozenset({"from", "to"})

Rule = Mapping[str, Any]


def rules(forbid: Sequence[Any], columns: Sequence[str]) -> list[Rule]:
    """The rules as a list; `InvalidParameter` if one is malformed or names an unknown column."""
    if len(forbid) > MOST_RULES:
        raise InvalidParameter("forbid", len(forbid), f"must have at most {MOST_RULES} rules")
    for each in forbid:
        if not isinstance(each, Mapping) or not each:
            rule = "must be rules that give values for some columns"
            raise InvalidParameter("forbid", type_of(each), rule, 'write {"sex": "m", "pregnant": True}')
        if unknown := next((name for name in each if name not in columns), None):
            raise InvalidParameter("forbid", unknown, "is not one of the columns", choices("", columns))
    return list(forbid)


def sendable(forbid: Any) -> Any:
    """The rules in JSON form: ranges by their ends, dates and timestamps as text. Malformed rules stay as they are."""
    if not isinstance(forbid, list | tuple):
        return forbid
    return [
        {name: _sent(given) for name, given in rule.items()} if isinstance(rule, Mapping) else rule for rule in forbid
    ]


def _sent(given: Any) -> Any:
    if isinstance(given, tuple) and len(given) == 2:
        return {"from": _sent(given[0]), "to": _sent(given[1])}
    if isinstance(given, list | tuple | Set):
        return [_sent(each) for each in given]
    return given.isoformat() if isinstance(given, dt.date) else plain(given)


def cuts(rules: Sequence[Rule], column: str, kind: Kind) -> list[Any]:
    """The values at which bins of a column must start, so that no bin is partly forbidden: the start of each range, and
    the next value after its end. Values of another kind are skipped, because `places` refuses them.
    """
    found: list[Any] = []
    for rule in rules:
        for each in _ranges(rule[column], kind) if column in rule else ():
            if each is not None:
                low, high = each
                found += [low, None if high is None else _behind(high)]
    return [each for each in found if each is not None and kind_of(each) is kind]


def places(rule: Rule, columns: Sequence[SyntheticColumn]) -> dict[int, list[int]]:
    """A rule as indices: for each of its columns, the indices of the forbidden values.

    Raises `InvalidParameter` if a value has the wrong kind or cannot occur.
    """
    found = {}
    for place, column in enumerate(columns):
        if column.name in rule:
            found[place] = _binned(rule[column.name], column) if column.binned else _listed(rule[column.name], column)
            if not found[place]:
                rule_text = f"names no value that {column.name} can have"
                remedy = "look at its domain in the schema, and write the lower end of a range first: (low, high)"
                raise InvalidParameter("forbid", column.name, rule_text, remedy)
    return found


def _listed(given: Any, column: SyntheticColumn) -> list[int]:
    if column.found:
        rule = "has keys that are not listed, so no rule can name them"
        raise InvalidParameter("forbid", column.name, rule, "declare its keys in the schema")
    given = _pair(given)
    values = list(given) if isinstance(given, list | tuple | Set) else [given]
    at: dict[Any, int] = {(type(value), value): i for i, value in enumerate(column.values)}
    found = []
    for each in values:
        written = as_written(column.domain.kind, each)
        if not isinstance(written, Hashable) or (type(written), written) not in at:
            rule = f"names a value that {column.name} cannot have"
            raise InvalidParameter("forbid", column.name, rule, "look at its keys in the schema")
        found.append(at[type(written), written])
    return found


def _binned(given: Any, column: SyntheticColumn) -> list[int]:
    """The bins within a range. Because of `cuts`, each bin is either within or outside."""
    starts: list[Any] = [value for value in column.values if value is not None]
    found = []
    for each in _ranges(given, column.domain.kind):
        if each is None:
            found += [len(starts)] if None in column.values else []
            continue
        if any(end is not None and kind_of(end) is not column.domain.kind for end in each):
            rule = f"must be of the kind of {column.name}, {column.domain.kind.value}"
            remedy = "write one value, or (low, high)"
            if column.domain.kind is Kind.TIMESTAMP:
                remedy += ', each with its time: "2024-02-01 00:00"'
            raise InvalidParameter("forbid", column.name, rule, remedy)
        low, high = each
        found += [
            i for i, start in enumerate(starts) if (low is None or start >= low) and (high is None or start <= high)
        ]
    return found


def _ranges(given: Any, kind: Kind) -> list[tuple[Any, Any] | None]:
    """The values of a rule for numbers or times, as ranges; None for a missing value."""
    given = _pair(given)
    if isinstance(given, tuple) and len(given) == 2:
        return [(_written(given[0], kind), _written(given[1], kind))]
    values = given if isinstance(given, list | Set) else [given]
    return [None if each is None else (_written(each, kind), _written(each, kind)) for each in values]


def _pair(given: Any) -> Any:
    """A range in JSON form as a pair; other values unchanged."""
    return (
        (given.get("from"), given.get("to")) if isinstance(given, Mapping) and given and set(given) <= _ENDS else given
    )


def _written(given: Any, kind: Kind) -> Any:
    value = as_written(kind, given)
    # An integer, by its kind.
    return float(value) if kind is Kind.REAL and kind_of(value) is Kind.INTEGER else value  # type: ignore[arg-type]


def _behind(value: Any) -> Any:
    """The next larger value of the same kind; None for the largest value, and for kinds without a next value."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return None
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return above(value)
    if not isinstance(value, dt.date) or value in {dt.date.max, dt.datetime.max}:  # the largest value of its type
        return None
    return value + (dt.timedelta(microseconds=1) if isinstance(value, dt.datetime) else dt.timedelta(days=1))
