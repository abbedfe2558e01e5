"""The length of a question with every name replaced by its definition, computed from the plan before SQL is generated.

`c AS (SELECT (x AND NOT x) OR (x AND x) AS x FROM b)` is short, and so is a text with twelve nested ones. But an engine
that pushes a condition down to the table replaces each x by its definition: 4^12 parts, gigabytes and minutes. So the
length is computed on the plan, where each name is visited once and counted as often as it is used:

    length of a column = length of its defining expression, with the lengths of its columns
    length of a question = sum over conditions, keys, joins and statistics

NULLIF, LEAST and GREATEST repeat their arguments in SQL, so these count as often as they are repeated. (A cast of text
repeats its argument twice; this is not counted here, but in `work_bound`.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, final

from deniable.errors import QuestionRefused
from deniable.queries.relations.operator_bounds import of_constant
from deniable.queries.relations.operator_table import OPERATORS
from deniable.queries.relations.operators import Columns
from deniable.queries.relations.person_windows import PersonWindows
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
)
from deniable.tables.expressions import Call, Column, Expression, Literal

if TYPE_CHECKING:
    from deniable.queries.relations.exact_statistics import Collect
    from deniable.tables.kinds import Domain

MOST_WRITTEN: Final = 10_000
"""The most parts of an expanded question: DuckDB plans so many in half a second and some hundred megabytes."""

_ENOUGH: Final = 10**15
"""Lengths are capped here."""

_EXTREMES: Final = frozenset({"least", "greatest"})

Lengths = Mapping[str, int]
"""The length of the definition of each column."""


def check_length(asked: int) -> None:
    """Raise `QuestionRefused` if `asked`, the number of parts of a question, is above MOST_WRITTEN."""
    if asked <= MOST_WRITTEN:
        return
    counted = f"{asked:,}" if asked < _ENOUGH else f"more than {_ENOUGH:,}"
    raise QuestionRefused(
        "too_deep",
        f"with every name written out, this question has {counted} parts, and at most {MOST_WRITTEN:,} are allowed",
        "use each name of a sub-query less often, or ask in several questions",
    )


def parts(collect: Collect) -> int:
    """The length of a question; for a short one, a fast upper bound."""
    # First as if every value could be NULL, which needs no domains; nearly all questions are short even so.
    found = length(collect, exactly=False)
    return found if found <= MOST_WRITTEN else length(collect)


def length(collect: Collect, *, exactly: bool = True) -> int:
    """The number of parts of an expanded question; without `exactly`, an upper bound that is faster to compute."""
    count = _Count(exactly)
    lengths = count.lengths(collect.relation)
    of = (getattr(each, "expression", None) for each in collect.statistics)
    read = [*(key for _, key in collect.keys), *(each for each in of if each is not None)]
    return min(_ENOUGH, count.below(collect.relation) + count.all(read, collect.relation.columns, lengths))


@final
class _Count:
    """Computes lengths. A relation that is used several times is counted each time, but visited once."""

    def __init__(self, exactly: bool) -> None:
        self._exactly = exactly
        self._lengths: dict[int, Lengths] = {}
        self._below: dict[int, int] = {}

    def lengths(self, relation: RelationNode) -> Lengths:
        """The lengths of the columns of a relation."""
        found = self._lengths.get(id(relation))
        if found is None:
            found = self._lengths[id(relation)] = self._measured(relation)
        return found

    def _measured(self, relation: RelationNode) -> Lengths:
        match relation:
            case Source():
                return dict.fromkeys(relation.columns, 1)
            case Project(child=child, expressions=expressions):
                return self._named(expressions, child)
            case JoinPublic(child=child, table=table):
                return {**self.lengths(child), **{name: 1 for name, _ in table.columns}}
            case JoinPrivate(left=left, right=right):
                return {**self.lengths(left), **self.lengths(right)}
            case PerPerson(child=child, keys=keys, aggregates=aggregates):
                # A condition on a key is brought below; one on an aggregate stays above it.
                return {**self._named(keys, child), **{name: 1 for name, _ in aggregates}}
            case PersonWindows(child=child, windows=windows):
                return {**self.lengths(child), **{name: 1 for name, _ in windows}}
            case Union(parts=parts):
                # A condition is brought into every part.
                return {name: sum(self.lengths(part)[name] for part in parts) for name in relation.columns}
        return self.lengths(relation.children[0])

    def _named(self, expressions: Iterable[tuple[str, Expression]], child: RelationNode) -> Lengths:
        below = self.lengths(child)
        return {name: self._of(each, child.columns, below)[0] for name, each in expressions}

    def below(self, relation: RelationNode) -> int:
        """The total length of conditions, keys and joins of a relation and of all below it."""
        found = self._below.get(id(relation))
        if found is None:
            own = min(_ENOUGH, self._own(relation))
            found = self._below[id(relation)] = own + sum(self.below(child) for child in relation.children)
        return found

    def _own(self, relation: RelationNode) -> int:
        match relation:
            case FilterRows(child=child, condition=condition):
                return self.all([condition], child.columns, self.lengths(child))
            case JoinPublic(child=child, on=on):
                return sum(self.lengths(child)[name] for name, _ in on)
            case JoinPrivate(left=left, right=right, on=on):
                return sum(self.lengths(left)[a] + self.lengths(right)[b] for a, b in on)
            case PerPerson(child=child, keys=keys, aggregates=aggregates):
                of = [exact.expression for _, exact in aggregates if exact.expression is not None]
                return self.all([*(key for _, key in keys), *of], child.columns, self.lengths(child))
            case PersonWindows(child=child, windows=windows):
                read = [each for _, window in windows for each in window.expressions]
                return self.all(read, child.columns, self.lengths(child)) + len(windows)
            case Bound(child=child, keys=keys):
                return self.all(keys, child.columns, self.lengths(child))
        return 0

    def all(self, expressions: Iterable[Expression], columns: Columns, lengths: Lengths) -> int:
        """The total length of several expressions over the same columns."""
        return sum(self._of(each, columns, lengths)[0] for each in expressions)

    def _of(self, expression: Expression, columns: Columns, lengths: Lengths) -> tuple[int, Domain | None]:
        """(the length, the domain if it is computed)."""
        if isinstance(expression, Column):
            return lengths[expression.name], columns.unlisted(expression.name)
        if not isinstance(expression, Call):
            assert isinstance(expression, Literal)
            return 1, of_constant(expression.value)
        found = [self._of(each, columns, lengths) for each in expression.arguments]
        total = sum(each for each, _ in found)
        domains = tuple(domain for _, domain in found if domain is not None) if self._exactly else ()
        if expression.operator == "nullif":
            total += found[0][0]
        elif expression.operator in _EXTREMES and (not self._exactly or any(each.nullable for each in domains)):
            # Engines skip NULL, so it is written as a tournament of CASEs, in which each side occurs three times.
            total *= 3 ** (len(found) - 1).bit_length()
        made = OPERATORS[expression.operator].domain(domains) if self._exactly else None
        return min(_ENOUGH, 1 + total), made


assert {*_EXTREMES, "nullif"} <= set(OPERATORS)
