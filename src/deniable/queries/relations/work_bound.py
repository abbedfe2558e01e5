"""An upper bound on the work that one person's rows can cause, from the plan alone, before anything runs.

An engine's time, memory and disk are side channels: a question that takes a minute if a person is in the table, and no
time otherwise, reveals the person. So the work for one person is bounded, as the number of rows is. It is counted in
steps. A step is about a nanosecond of DuckDB on one core, and a byte that is copied or stored is at least one step. In
an accepted question one person causes at most about 0.1 s and some tens of megabytes, whatever their rows contain; in a
typical one, a thousandth of that.

    work = Σ over nodes and statistics of  rows of a person × (steps for a row + steps for each byte × bytes)
           + steps to begin × parts of the question

Rows are the stability of `relation_nodes`. Bytes are the maximum of a text: 4 for each code point, by the lengths of
listed keys, constants and LEFT(a, n), otherwise `LONGEST`. Every branch of a CASE and every condition counts, because
the data decides which of them a row takes.

Only the work on one person's own rows is counted. So an engine must do the same work on all other rows whether or not
that person is there: it evaluates each condition on all its rows, and never stops early because no row is left
(`Spelling.joined`, and the settings of `engines.duckdb` and `engines.spark`; docs/engines.md).

Names of sub-queries are not free. An engine may push a condition down to the table and evaluate the definition of each
name in it, as often as the name is used, and in each part of a union. It may also compute keys and statistics only
where they are read, above a join. So each use of a column counts its full definition (`_Tally.costs`), in addition to
computing it once where it is named. This covers both strategies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

from deniable.errors import QuestionRefused
from deniable.queries.relations.linear_patterns import pattern
from deniable.queries.relations.person_windows import TOTALS, PersonWindow, PersonWindows
from deniable.queries.relations.question_length import parts
from deniable.queries.relations.relation_nodes import (
    MOST_JOINED,
    Bound,
    Exact,
    FilterRows,
    JoinPrivate,
    JoinPublic,
    PerPerson,
    Project,
    RelationNode,
    Source,
    Union,
)
from deniable.tables.expressions import Call, Column, Expression, Literal, columns_used
from deniable.tables.kinds import LONGEST, Domain, Kind

if TYPE_CHECKING:
    from deniable.queries.relations.exact_statistics import Collect, Statistic

MOST_WORK: Final = 100_000_000
"""The most steps that one person's rows may cause."""

Sizes = Mapping[str, int]
"""The most bytes of each column."""

Costs = Mapping[str, int]
"""The steps of the full definition of each column; no entry for a stored column."""

_NUMBER: Final = 8
_SPELLED: Final = 20
"""The most bytes of an integer, a date or a boolean as text."""
_CALL: Final = 10
"""Steps of an operator that touches no text."""
_ROW: Final = 10
_JOIN: Final = 50
_SORT: Final = 20
_GATHER: Final = 50
_DISTINCT: Final = 50
_DISTINCT_TABLE: Final = 3_000_000
"""Steps of a hash table of distinct values, which takes some two megabytes even for one value."""
_ADD: Final = 20
_KEY: Final = 5_000
"""Steps of a key that is not public, in Python: reading, sorting, comparing with the threshold."""
_NUMBER_OF_KEY: Final = 500
_CELL: Final = 20
_KEPT: Final = 2
"""Steps for each byte that is stored in a hash table or a sort."""
_BYTES: Final = {"lower": 3, "upper": 3, "trim": 2}
"""Steps for each byte of an argument, where it is more than one (measured; see docs/engines.md)."""
_PATTERN: Final = 20
"""Steps for each byte of a text that a regular expression looks at."""
_PART: Final = 8_000
"""Steps of each part of the expanded question, once for all rows: with the first row, an engine allocates a batch of
values in each operator."""
_INFERRED: Final = 3
"""The conditions that engines copy from one side of a join to the other: equal to a constant, above one, not NULL."""
_TWICE: Final = frozenset(
    {
        *("nullif", "cast_boolean", "cast_integer", "cast_real", "cast_date", "cast_timestamp"),
        *("microseconds", "add_months", "add_time"),
    }
)
"""Operators whose SQL repeats their arguments."""
_EXTREMES: Final = frozenset({"least", "greatest"})
"""Operators written as a tournament of CASEs, in which each side occurs three times (`question_length`)."""


def check_work(collect: Collect, written: int) -> None:
    """Raise `QuestionRefused` if one person's rows could cause too much work; `written` is the expanded length."""
    asked, most = work(collect, written), most_work(collect)
    if asked > most:
        raise QuestionRefused(
            "work",
            f"one person's rows could cause {asked:,} steps of work here, and at most {most:,} are allowed",
            "ask for less at once: join fewer rows, gather per person first, shorten texts with LEFT(a, 50), "
            "use each name of a sub-query less often, or ask in several questions",
        )


def most_work(collect: Collect) -> int:
    """The most steps allowed; proportionally more if the owner allows a person more than 100,000 rows."""
    rows = max(table.unit.rows for table in collect.relation.tables if table.unit is not None)
    return MOST_WORK * max(1, ceil(rows / MOST_JOINED))


def work(collect: Collect, written: int | None = None) -> int:
    """The most steps that one person's rows can cause; `written` is the expanded length, if it is known.

    The engine reads the relation once for all plain statistics together, and once more for each `Cells`.
    """
    from deniable.queries.relations.exact_statistics import Cells, CountDistinct, CountPersons

    tally = _Tally()
    sizes, costs = tally.sizes(collect.relation), tally.costs(collect.relation)
    plain = [each for each in collect.statistics if not isinstance(each, Cells)]
    passes: list[list[Statistic]] = [[each] for each in collect.statistics if isinstance(each, Cells)]
    if plain or not passes:
        passes.append(plain)
    rows, keys = collect.relation.rows, [key for _, key in collect.keys]
    total = _PART * (parts(collect) if written is None else written)
    for statistics in passes:
        read = [*keys, *_read_by(statistics)]
        total += tally.work(collect.relation, _used(read))
        grouped = sum(_KEPT * bytes_of(key, sizes) for key in keys) + (_GATHER if keys else 0)
        each = sum(steps(expression, sizes, costs) for expression in read) + grouped
        total += rows * (each + sum(_of_statistic(statistic, sizes, keys) for statistic in statistics))
        asked = [] if collect.known is None else [*keys, *keys]  # the SQL asks whether a key is listed, or NULL
        asked += _read_by(each for each in statistics if isinstance(each, Cells))  # and whether a value is not NULL
        total += tally.places(collect.relation) * sum(steps(expression, sizes, costs) for expression in asked)
        total += _DISTINCT_TABLE * sum(isinstance(each, CountDistinct | CountPersons) for each in statistics)
    if collect.known is None:
        of_key = _KEY + 5 * sum(bytes_of(key, sizes) for key in keys) + _NUMBER_OF_KEY * len(collect.statistics)
        total += collect.reach.touched * (of_key + _CELL * sum(each.width for each in collect.statistics))
    return total


def _read_by(statistics: Iterable[Statistic]) -> list[Expression]:
    found = [getattr(statistic, "expression", None) for statistic in statistics]
    return [each for each in found if each is not None]


def _of_statistic(statistic: Statistic, sizes: Sizes, keys: list[Expression]) -> int:
    """Steps for each row, in addition to those of the expression."""
    from deniable.queries.relations.exact_statistics import Count, CountDistinct, CountPersons, ExactSum

    if isinstance(statistic, Count | ExactSum):
        return _ADD
    kept = sum(bytes_of(key, sizes) for key in keys)  # each distinct value is stored with its keys
    if isinstance(statistic, CountPersons):
        return _DISTINCT + _KEPT * kept
    if isinstance(statistic, CountDistinct):
        return _DISTINCT + _KEPT * (kept + bytes_of(statistic.expression, sizes))
    return _DISTINCT + _ADD  # cells


# -- expressions -------------------------------------------------------------------------------------------------------


def bytes_of(expression: Expression, sizes: Sizes) -> int:
    """The most bytes of a value.

    >>> from deniable.tables.expressions import call, col
    >>> bytes_of(call("concat", col("name"), "!"), {"name": 40})
    41
    """
    match expression:
        case Column(name=name):
            return sizes[name]
        case Literal(value=value):
            return len(value.encode("utf-8", "surrogatepass")) if isinstance(value, str) else _NUMBER
        case Call(operator=operator, arguments=arguments):
            below = [bytes_of(argument, sizes) for argument in arguments]
            match operator:
                case "concat":
                    return min(sum(below), 4 * LONGEST)
                case "replace":
                    return min(below[0] * max(1, below[2]), 4 * LONGEST)
                case "prefix" | "substring":
                    size = arguments[-1]
                    length = size.value if isinstance(size, Literal) else LONGEST
                    return min(below[0], 4 * length if isinstance(length, int) else below[0])
                case "case":
                    return max((*below[1:-1:2], below[-1]))
                case "coalesce" | "nullif" | "least" | "greatest":
                    return max(below)
                case "regexp_replace":
                    return 4 * LONGEST
                case "lower" | "upper" | "trim" | "split_part" | "regexp_extract":
                    return below[0]
                case "cast_text":
                    return max(below[0], _SPELLED)
    return _NUMBER


def steps(expression: Expression, sizes: Sizes, costs: Costs = MappingProxyType({})) -> int:
    """The most steps of an expression for one row, including those of the columns that it reads.

    >>> from deniable.tables.expressions import col
    >>> steps(col("age") + 1, {"age": 8}), steps(col("name").like("A%"), {"name": 4000})
    (20, 16020)
    >>> steps(col("x") + col("x"), {"x": 8}, {"x": 1000})
    2020
    """
    if isinstance(expression, Column):
        return costs.get(expression.name, 0)
    if not isinstance(expression, Call):
        return 0
    arguments = expression.arguments
    below = sum(steps(argument, sizes, costs) for argument in arguments)
    if expression.operator in _TWICE:
        below *= 2
    elif expression.operator in _EXTREMES:
        below *= 3 ** (len(arguments) - 1).bit_length()
    texts = sum(each for each in (bytes_of(argument, sizes) for argument in arguments) if each > _NUMBER)
    if expression.operator == "concat":
        texts += (len(arguments) - 1) * bytes_of(expression, sizes)  # cut after each part
    if expression.operator == "replace":
        texts += bytes_of(arguments[0], sizes) * bytes_of(arguments[2], sizes)  # the longest text before it is cut
    return below + _CALL * len(arguments) + texts * _of_byte(expression)


def _of_byte(call: Call) -> int:
    """Steps for each byte of an operator's text arguments."""
    if call.operator.startswith("regexp_") and isinstance(call.arguments[1], Literal):
        return _PATTERN * pattern(str(call.arguments[1].value)).scans
    if call.operator != "like":
        return _BYTES.get(call.operator, 4 if call.operator.startswith("cast_") else 1)
    given = call.arguments[1].value if isinstance(call.arguments[1], Literal) else None
    length = len(given) if isinstance(given, str) else LONGEST
    # A pattern with single wildcards may be tried again from each position of the text.
    return 4 + (length if isinstance(given, str) and "_" in given else length // 32)


def _used(expressions: Iterable[Expression]) -> frozenset[str]:
    return frozenset(name for expression in expressions for name in columns_used(expression))


def _size(domain: Domain) -> int:
    """The most bytes of a column by its domain."""
    if domain.kind is not Kind.TEXT:
        return _NUMBER
    if domain.keys is None:
        return 4 * LONGEST
    return max((len(str(key).encode("utf-8", "surrogatepass")) for key in domain.keys), default=_NUMBER)


# -- relations ---------------------------------------------------------------------------------------------------------


@final
class _Tally:
    """Counts the work of relations. One that is used several times is counted each time, but visited once."""

    def __init__(self) -> None:
        self._sizes: dict[int, Sizes] = {}
        self._costs: dict[int, Costs] = {}
        self._places: dict[int, int] = {}
        self._work: dict[tuple[int, frozenset[str]], int] = {}

    def sizes(self, relation: RelationNode) -> Sizes:
        found = self._sizes.get(id(relation))
        if found is None:
            found = self._sizes[id(relation)] = self._sized(relation)
        return found

    def _sized(self, relation: RelationNode) -> Sizes:
        match relation:
            case Source():
                return {name: _size(domain) for name, domain in relation.columns.items()}
            case Project(child=child, expressions=expressions):
                return {name: self._least(relation, name, each, child) for name, each in expressions}
            case JoinPublic(child=child, table=table):
                return {**self.sizes(child), **{name: _size(domain) for name, domain in table.columns}}
            case JoinPrivate(left=left, right=right):
                return {**self.sizes(left), **self.sizes(right)}
            case PerPerson(child=child, keys=keys, aggregates=aggregates):
                found = {name: self._least(relation, name, each, child) for name, each in keys}
                for name, exact in aggregates:
                    of = exact.expression if exact.function in {"min", "max"} else None
                    found[name] = _NUMBER if of is None else self._least(relation, name, of, child)
                return found
            case PersonWindows(child=child, windows=windows):
                found = dict(self.sizes(child))
                for name, window in windows:
                    of = None if window.function in {"count", "sum", "avg"} else window.expression
                    found[name] = _NUMBER if of is None else self._least(relation, name, of, child)
                return found
            case Union(parts=parts):
                return {name: max(self.sizes(part)[name] for part in parts) for name in relation.columns}
        return self.sizes(relation.children[0])

    def _least(self, relation: RelationNode, name: str, expression: Expression, child: RelationNode) -> int:
        known = relation.columns.unlisted(name)
        if known.kind is Kind.TEXT:  # the public values of a text limit its length
            known = relation.columns[name]
        return min(bytes_of(expression, self.sizes(child)), _size(known))

    def costs(self, relation: RelationNode) -> Costs:
        """The steps of the full definition of each column, down to stored, grouped or sorted columns."""
        found = self._costs.get(id(relation))
        if found is None:
            found = self._costs[id(relation)] = self._written_out(relation)
        return found

    def _written_out(self, relation: RelationNode) -> Costs:
        match relation:
            case Source():
                return {}
            case Project(child=child, expressions=expressions):
                return self._named(expressions, child)
            case JoinPublic(child=child, on=on):
                below = self.costs(child)
                return {**below, **{b: below.get(a, 0) for a, b in on}}
            case JoinPrivate(left=left, right=right, on=on):
                found = {**self.costs(left), **self.costs(right)}
                # An engine applies a condition on one of two equal columns to both.
                together = {name: found.get(a, 0) + found.get(b, 0) for a, b in on for name in (a, b)}
                return {**found, **together}
            case PerPerson(child=child, keys=keys, aggregates=aggregates):
                # A condition on a key is brought below; one on an aggregate stays above it.
                return {**self._named(keys, child), **{name: _ADD for name, _ in aggregates}}
            case PersonWindows(child=child, windows=windows):
                return {**self.costs(child), **{name: _ADD for name, _ in windows}}  # no condition passes a window
            case Union(parts=parts):
                return {name: max(self.costs(part).get(name, 0) for part in parts) for name in relation.columns}
        return self.costs(relation.children[0])

    def _named(self, expressions: Iterable[tuple[str, Expression]], child: RelationNode) -> Costs:
        sizes, costs = self.sizes(child), self.costs(child)
        return {name: steps(each, sizes, costs) for name, each in expressions}

    def places(self, relation: RelationNode) -> int:
        """The most rows of a person on which a condition on this relation may be evaluated, here or further below: in
        each part of a union, and before a bound drops rows.
        """
        found = self._places.get(id(relation))
        if found is None:
            below = [self.places(child) for child in relation.children] or [0]
            gathered = isinstance(relation, PerPerson) and not relation.keys
            most = 0 if gathered else sum(below) if isinstance(relation, Union) else max(below)
            found = self._places[id(relation)] = max(relation.rows, most)
        return found

    def work(self, relation: RelationNode, needed: frozenset[str]) -> int:
        """Steps to compute one person's rows with the needed columns; engines skip the others."""
        at = (id(relation), needed)
        found = self._work.get(at)
        if found is None:
            found = self._work[at] = self._counted(relation, needed)
        return found

    def _counted(self, relation: RelationNode, needed: frozenset[str]) -> int:
        sizes, rows = self.sizes(relation), relation.rows
        width = sum(sizes[name] for name in needed)
        match relation:
            case Source():
                return rows * (_ROW + width)
            case FilterRows(child=child, condition=condition):
                asked = self.places(child) * steps(condition, sizes, self.costs(child))
                return self.work(child, needed | _used([condition])) + asked
            case Project(child=child, expressions=expressions):
                made = [each for name, each in expressions if name in needed]
                below = self.sizes(child)
                return self.work(child, _used(made)) + rows * sum(steps(each, below) for each in made)
            case JoinPublic(child=child, on=on):
                keys = sum(sizes[name] for name, _ in on)
                kept = frozenset((needed & set(child.columns)) | {name for name, _ in on})
                joined = child.rows * (_JOIN + keys) + rows * (_JOIN + width)
                return self.work(child, kept) + joined + self._inferred(relation, [name for name, _ in on])
            case JoinPrivate(left=left, right=right, on=on):
                keys = sum(sizes[name] for name, _ in on)
                sides = self.work(left, frozenset((needed & set(left.columns)) | {a for a, _ in on}))
                sides += self.work(right, frozenset((needed & set(right.columns)) | {b for _, b in on}))
                # Rows meet by the person first; the other columns are compared for each pair.
                joined = left.rows * right.rows * (_JOIN + _KEPT * (width + keys))
                return sides + joined + self._inferred(relation, [name for name, _ in on])
            case PerPerson():
                return self._gathered(relation)
            case PersonWindows(child=child, windows=windows):
                return self._windowed(relation, child, [window for _, window in windows], needed)
            case Union(parts=parts):
                return sum(self.work(part, needed) for part in parts) + rows * (_ROW + width)
            case Bound(child=child, keys=keys):
                return self._bounded(relation, child, needed, keys)
        raise AssertionError(relation)

    def _inferred(self, relation: JoinPublic | JoinPrivate, on: Iterable[str]) -> int:
        costs = self.costs(relation)
        return _INFERRED * self.places(relation) * sum(costs.get(name, 0) for name in on)

    def _gathered(self, relation: PerPerson) -> int:
        child = relation.child
        below, costs = self.sizes(child), self.costs(child)
        keys = [key for _, key in relation.keys]
        of = [exact.expression for _, exact in relation.aggregates if exact.expression is not None]
        each = _GATHER + sum(steps(one, below, costs) for one in (*keys, *of))
        each += sum(_KEPT * bytes_of(key, below) for key in keys)
        each += sum(_exact(exact, below) for _, exact in relation.aggregates)
        tables = sum(exact.function == "count_distinct" for _, exact in relation.aggregates)
        return self.work(child, _used([*keys, *of])) + child.rows * each + tables * _DISTINCT_TABLE

    def _bounded(
        self, relation: Bound, child: RelationNode, needed: frozenset[str], keys: tuple[Expression, ...]
    ) -> int:
        # Rows with equal ranks are ordered by all of their columns.
        all_of = frozenset(child.columns) if _tied(child) else needed | _used(keys)
        below = self.sizes(child)
        width = sum(below[name] for name in all_of) + sum(bytes_of(key, below) for key in keys)
        sorted_by = child.rows.bit_length() * (_SORT + _KEPT * width)
        found = sum(steps(key, below, self.costs(child)) for key in keys)
        return self.work(child, all_of) + child.rows * (found + 2 * sorted_by)

    def _windowed(
        self, relation: PersonWindows, child: RelationNode, windows: list[PersonWindow], needed: frozenset[str]
    ) -> int:
        """Each window sorts a person's rows. A total over a frame may be computed again for each row of it."""
        below, costs, rows = self.sizes(child), self.costs(child), child.rows
        tied = _tied(child) and any(window.is_tied_by_rank for window in windows)
        read = [each for window in windows for each in window.expressions]
        all_of = frozenset(child.columns) if tied else (needed & frozenset(child.columns)) | _used(read)
        total = self.work(child, all_of)
        for window in windows:
            width = sum(bytes_of(each, below) for each in window.expressions)
            width += sum(below[name] for name in all_of)
            total += rows * sum(steps(each, below, costs) for each in window.expressions)
            total += rows * rows.bit_length() * (_SORT + _KEPT * width)
            of = _NUMBER if window.expression is None else bytes_of(window.expression, below)
            again = rows if window.function in TOTALS and window.frame is not None else 1
            total += rows * again * (_ADD + of)
        return total


def _tied(relation: RelationNode) -> bool:
    """Whether two rows of a person may have the same rank."""
    if isinstance(relation, FilterRows | Project | Bound | PersonWindows):
        return _tied(relation.child)
    return not isinstance(relation, Source)


def _exact(exact: Exact, sizes: Sizes) -> int:
    size = _NUMBER if exact.expression is None else bytes_of(exact.expression, sizes)
    if exact.function == "count_distinct":
        return _DISTINCT + _KEPT * size
    return _ADD + (size if exact.function in {"min", "max"} and size > _NUMBER else 0)
