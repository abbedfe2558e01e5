"""A SELECT of scalar sub-queries of which one aggregates noisy rows, as in

    SELECT (SELECT AVG(n) FROM (SELECT day, COUNT(*) AS n FROM visits GROUP BY day)) / (SELECT COUNT(*) FROM visits)

It is one question over a union: part 1 has the rows of the noisy sub-query with their keys, part 2 those of all other
sub-queries, whose keys are NULL. A measure is NULL in the rows of other sub-queries, so it pays for its own rows
(`Collect.reach_of`). Windows over the noisy groups read part 1 alone. The row of the result is the group of part 2
whose keys are NULL, the only one with rows. All of that is post-processing of noisy groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from deniable.queries.plan.noisy_windows import NoisyWindow
from deniable.queries.plan.question import Key, Measure, Post, Question, asked
from deniable.queries.plan.refusals import refuse
from deniable.queries.relations.relation_nodes import Project, RelationNode, Union
from deniable.tables.expressions import Column, Expression, Literal, call, case, renamed

PART: Final = "part"
"""The key that tells the rows of the noisy sub-query (1) from all others (2)."""
TOTALS: Final = frozenset({"count", "sum", "avg", "min", "max", "median", "stddev"})

Values = Mapping[str, Expression]
"""The expression that each measure of a sub-query aggregates."""


@final
@dataclass(frozen=True, slots=True)
class NoisyScalar:
    """A scalar sub-query over noisy rows, with names of its own for its keys and measures."""

    question: Question
    names: Mapping[str, Expression]

    @classmethod
    def of(cls, question: Question) -> NoisyScalar:
        """`QuestionRefused` if its keys are not public, or if it has options or a limit."""
        post = question.post
        if question.options or post.limit is not None or post.offset or len(post.columns) != 1:
            refuse("scalar")
        if any(key.values is None for key in question.keys):
            refuse("scalar")
        names = {key.name: f"key {place}" for place, key in enumerate(question.keys, 1)}
        names |= {each.name: f"noisy {place}" for place, each in enumerate(question.measures, 1)}
        return cls(question, {old: Column(new) for old, new in names.items()})

    def own(self, expression: Expression) -> Expression:
        """An expression over the answer of the sub-query, with the new names of its keys and measures."""
        return renamed(expression, self.names)

    @property
    def value(self) -> Expression:
        """The value of the sub-query, as an expression over its windows."""
        return self.own(self.question.post.columns[0][1])

    @property
    def keys(self) -> dict[str, tuple[Expression, Key]]:
        """The expression of each key over its relation, with the key over the union."""
        found = {}
        for each in self.question.keys:
            name = self._name(each.name)
            values = dict.fromkeys((*(each.values or ()), None))
            found[name] = each.expression, Key(name, Column(name), tuple(values))
        return found

    @property
    def known(self) -> list[Expression]:
        """For each key whose values do not include NULL: the condition that it is not NULL."""
        return [
            ~self.own(Column(each.name)).is_null() for each in self.question.keys if None not in (each.values or ())
        ]

    @property
    def measures(self) -> list[tuple[Measure, Expression]]:
        """Each measure over the union, with the expression that it aggregates in the relation of the sub-query."""
        return [
            (
                Measure(self._name(each.name), each.function, Column(self._name(each.name)), each.options),
                Literal(1) if each.expression is None else each.expression,
            )
            for each in self.question.measures
        ]

    def _name(self, name: str) -> str:
        column = self.names[name]
        assert isinstance(column, Column)
        return column.name


def together(
    noisy: NoisyScalar, parts: Sequence[tuple[RelationNode, Values]], measures: Sequence[Measure],
    columns: Sequence[tuple[str, Expression]],
) -> Question:  # fmt: skip
    """The question whose `columns` are computed from the value of `noisy` and the `measures` of the other `parts`."""
    keys, mine = noisy.keys, noisy.measures
    names = [*keys, *(each.name for each, _ in mine), *(each.name for each in measures)]
    values: list[tuple[int, RelationNode, Values]] = [
        (
            1,
            noisy.question.relation,
            {each.name: of for each, of in mine} | {name: of for name, (of, _) in keys.items()},
        ),
        *((2, relation, found) for relation, found in parts),
    ]
    rows = [
        Project(relation, ((PART, Literal(part)), *((name, found.get(name, Literal(None))) for name in names)))
        for part, relation, found in values
    ]
    inside, beside = call("eq", Column(PART), 1), call("eq", Column(PART), 2)
    post = noisy.question.post
    windows = tuple(_over_part(each.mapped(noisy.own), inside) for each in post.windows)
    # NULL was added to the values of each key, for part 2. A key of part 1 without the value NULL has no such group.
    exists = [*noisy.known, *(() if post.having is None else (noisy.own(post.having),))]
    having = call("or", beside, call("and", inside, *exists))
    shown = call("and", beside, *(Column(name).is_null() for name in keys))
    every = [Key(PART, Column(PART), (1, 2)), *(key for _, key in keys.values())]
    whole: RelationNode = Union(tuple(rows), False) if len(rows) > 1 else rows[0]
    asked_for = [*(each for each, _ in mine), *measures]
    return asked(whole, every, asked_for, Post(tuple(columns), having, windows=windows, qualify=shown), {})


def _over_part(window: NoisyWindow, inside: Expression) -> NoisyWindow:
    """A window over the groups of part 1: a total of all of them can be read in every group."""
    if window.partition or window.order or window.function not in TOTALS:
        return replace(window, partition=(Column(PART), *window.partition))
    return replace(window, argument=case((inside, Literal(1) if window.argument is None else window.argument)))
