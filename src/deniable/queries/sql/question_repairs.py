"""Repairs of refused texts: the part that is refused, and the same question without it, which is accepted.

Parts are left out one at a time: a condition, a column, a clause, a join. The first question that is accepted is the
repair, and the part that it lacks is the place. If one part is not enough, the columns become a count, and then
conditions and joins go as well. So a repair keeps as much of the question as this search finds, and is always a
question of the same session. A text that cannot be read in its dialect is tried in the other dialects.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple, final

from deniable.errors import QuestionRefused
from deniable.queries.sql.dialect import parsed
from deniable.queries.sql.named_dialects import DIALECTS, first_line, named_dialect
from deniable.queries.sql.syntax_tree import conjoined, exp, has_aggregate, item
from deniable.tables.kinds import Kind
from deniable.tables.schema import Table

_MOST_TRIED: Final = 60
_MOST_READ: Final = 6000
"""Characters of all texts that are tried, together. Reading takes time in proportion to them, so a refusal costs little
more than a question; a limit on seconds would let the repair of one text depend on the load of the machine."""
_MOST_MISSPELLED: Final = 8
"""Unknown names that are compared with all names of the tables."""
_CLAUSES: Final = ("qualify", "limit", "offset", "order", "having", "distinct", "where")


@final
class Repair(NamedTuple):
    """(start, end) of the refused part of the text, and a question that is accepted instead ("" if none was found)."""

    place: tuple[int, int]
    question: str


def repaired(text: str, tables: Mapping[str, Table], accepts: Callable[[str], bool]) -> Repair:
    """The repair of a refused text. `accepts` returns whether a text is accepted as a question."""
    private = [name for name, table in tables.items() if table.unit is not None]
    named = [name for name in private if name.casefold() in text.casefold()]
    head, dialect = first_line(text), named_dialect(text) or "duckdb"
    if dialect not in DIALECTS:  # the line itself is what is refused
        head, dialect = "", "duckdb"
    simplest = [
        head + exp.select("COUNT(*) AS n").from_(exp.table_(name, quoted=True)).sql(dialect=dialect)
        for name in (*named, *private)
    ]
    whole = (0, len(text))
    for written in _otherwise_read(text, head) if 4 * len(text) <= _MOST_READ else ():
        if accepts(written):
            return Repair(whole, written)
    with suppress(QuestionRefused, RecursionError):
        left = _MOST_READ
        for node, made in islice(_variants(parsed(text).tree, tables) if len(text) <= left else (), _MOST_TRIED):
            written = head + made.sql(dialect=dialect, comments=False)
            left -= len(written)
            if left < 0:
                break
            if accepts(written):
                return Repair(_span(node, text) or whole, written)
    return Repair(whole, next((each for each in simplest if accepts(each)), ""))


def _otherwise_read(text: str, head: str) -> Iterator[str]:
    """The first of several statements; or the text in other dialects, if it cannot be read in its own and has no double
    quotes, which some dialects read as texts and others as names.
    """
    try:
        parsed(text)
    except QuestionRefused as refused:
        if refused.code == "statement" and ";" in text:
            yield text[: text.index(";")]
        if refused.code in {"syntax", "function"} and not head and '"' not in text:
            yield from (f"-- dialect: {name}\n{text}" for name in DIALECTS[1:])


def _variants(tree: exp.Expression, tables: Mapping[str, Table]) -> Iterator[tuple[exp.Expression, exp.Expression]]:
    """(the part that is changed or left out, the tree without it), the smallest changes first."""
    yield from _renamed(tree, tables)
    selects = list(tree.find_all(exp.Select))
    for select in reversed(selects):  # the innermost first
        yield from _without_conditions(tree, select)
        for clause in _CLAUSES[:-1]:
            if (node := select.args.get(clause)) is not None:
                yield node, _changed(tree, select, {clause: None})
        for place, node in enumerate(select.expressions):
            kept = [each for k, each in enumerate(select.expressions) if k != place]
            if kept:
                yield node, _changed(tree, select, {"expressions": kept, **_regrouped(select, node)})
        yield from _other_joins(tree, select)
    if not isinstance(tree, exp.Select):
        yield from _inner_questions([each for each in selects if each.parent is tree])
        return
    count = exp.alias_(exp.Count(this=exp.Star()), "n")
    group = tree.args.get("group")
    keys: list[exp.Expression] = [
        each for each in (group.expressions if group is not None else ()) if isinstance(each, exp.Column)
    ]
    plain = {"order": None, "having": None, "qualify": None, "limit": None, "offset": None, "distinct": None}
    columns = [each for each in tree.expressions if isinstance(item(each)[1], exp.Column)]
    listed = [item(each)[1] for each in columns if not isinstance(item(each)[1].this, exp.Star)]
    listed += _public_keys(tree, tables) if len(listed) < len(tree.expressions) else []
    first = tree.expressions[0] if tree.expressions else tree
    yield from _fewer_keys(tree, keys, first)
    yield from _inner_questions(selects[1:])
    several: list[list[exp.Expression]] = [keys, listed, *([each] for each in (*keys, *listed))]
    joins: list[exp.Expression] = tree.args.get("joins") or []
    empty: dict[str, object] = {}
    whole: dict[str, object] = {"where": None}
    alone: dict[str, object] = {"where": None, "joins": None}
    for further in (empty, alone) if joins else (empty,):
        for by in several:
            if by:
                left_out = next((each for each in tree.expressions if item(each)[1] not in by), first)
                made = {"expressions": [*by, count], "group": exp.Group(expressions=[*by]), **plain, **further}
                yield joins[0] if further else left_out, _changed(tree, tree, made)
    for further in (empty, whole, alone):
        part = joins[0] if joins and "joins" in further else tree.args.get("where") if further else first
        yield part or first, _changed(tree, tree, {"expressions": [count], "group": None, **plain, **further})
    for inner in selects[1:]:
        yield first, _changed(inner, inner, {"expressions": [count], "group": None, **plain})


def _other_joins(tree: exp.Expression, select: exp.Select) -> Iterator[tuple[exp.Expression, exp.Expression]]:
    """A SELECT with one join of another kind, or without one of its joins; and without samples of its tables."""
    joins = select.args.get("joins") or []
    for place, join in enumerate(joins):
        others = [*joins[:place], *joins[place + 1 :]]
        if join.side == "FULL" or join.kind in {"SEMI", "ANTI"}:
            plain = join.copy()
            plain.set("side", None)
            plain.set("kind", None)
            yield join, _changed(tree, select, {"joins": [*joins[:place], plain, *joins[place + 1 :]]})
        yield join, _changed(tree, select, {"joins": others})
    source = select.args.get("from_")
    if source is not None and (source.this.args.get("sample") or source.this.args.get("pivots")):
        table = source.this.copy()
        table.set("sample", None)
        table.set("pivots", None)
        yield source.this, _changed(tree, select, {"from_": exp.From(this=table)})


def _inner_questions(selects: list[exp.Select]) -> Iterator[tuple[exp.Expression, exp.Expression]]:
    """Sub-queries that are questions themselves: the groups of a WITH, or one side of a quotient. Outermost first."""
    for inner in selects:
        if any(has_aggregate(each) for each in inner.expressions):
            yield inner, inner.copy()


def _fewer_keys(
    tree: exp.Select, keys: list[exp.Expression], first: exp.Expression
) -> Iterator[tuple[exp.Expression, exp.Expression]]:
    """The aggregates of a grouped SELECT by one of its keys, and then without keys; also without its sub-queries in
    WHERE.
    """
    aggregates = [each for each in tree.expressions if has_aggregate(each)]
    if not aggregates or not keys:
        return
    where = tree.args.get("where")
    whole = [*conjoined(where.this)] if where is not None else []
    plain = [each for each in whole if each.find(exp.Query) is None and isinstance(each, exp.Condition)]
    conditions = [where, exp.Where(this=exp.and_(*(each.copy() for each in plain)))] if plain else [where]
    for condition in conditions if len(plain) < len(whole) else conditions[:1]:
        for by in (*([each] for each in keys), []):
            group = exp.Group(expressions=[each.copy() for each in by]) if by else None
            made = {"expressions": [*by, *aggregates], "group": group, "where": condition}
            yield first, _changed(tree, tree, {**made, "order": None, "having": None})


def _renamed(tree: exp.Expression, tables: Mapping[str, Table]) -> Iterator[tuple[exp.Expression, exp.Expression]]:
    """Names that no table has, each replaced by the nearest one."""
    columns = {name.casefold(): name for table in tables.values() for name, _ in table.columns}
    columns |= {str(t.unit.column).casefold(): str(t.unit.column) for t in tables.values() if t.unit and t.unit.column}
    known = {name.casefold(): name for name in tables} | columns
    aliases = {str(each.alias).casefold() for each in tree.find_all(exp.Alias, exp.TableAlias, exp.CTE, exp.Subquery)}
    unknown: dict[tuple[type[exp.Expression], str], exp.Expression] = {}
    for node in tree.find_all(exp.Column, exp.Table):
        name = str(node.name).casefold()
        if name and name not in known and name not in aliases:
            unknown.setdefault((type(node), name), node)
    for (_, name), node in islice(unknown.items(), _MOST_MISSPELLED):
        among = columns if isinstance(node, exp.Column) else {each.casefold(): each for each in tables}
        for near in difflib.get_close_matches(name, among, n=2, cutoff=0.6):
            copy = tree.copy()
            for each in copy.find_all(type(node)):
                if str(each.name).casefold() == name:
                    each.set("this", exp.to_identifier(among[near]))
            yield node, copy


def _public_keys(tree: exp.Select, tables: Mapping[str, Table]) -> list[exp.Expression]:
    """The first column of the table in FROM whose values are public, in place of all columns (*)."""
    source = tree.args.get("from_")
    starred = any(isinstance(each, exp.Star) for each in tree.expressions)
    name = str(source.this.name).casefold() if starred and source is not None else ""
    for table in tables.values():
        if table.name.casefold() == name:
            keys = [each for each, domain in table.columns if domain.keys or domain.kind is Kind.BOOLEAN]
            return [exp.column(exp.to_identifier(each)) for each in keys[:1]]
    return []


def _without_conditions(tree: exp.Expression, select: exp.Select) -> Iterator[tuple[exp.Expression, exp.Expression]]:
    for clause in ("where", "having"):
        node = select.args.get(clause)
        if node is None:
            continue
        parts = conjoined(node.this)
        for part in parts:
            kept = [each.copy() for each in parts if each is not part]
            if not all(isinstance(each, exp.Condition) for each in kept):  # a bare sub-query is refused anyway
                continue
            made = type(node)(this=exp.and_(*kept)) if kept else None
            yield part, _changed(tree, select, {clause: made})


def _regrouped(select: exp.Select, dropped: exp.Expression) -> dict[str, object]:
    """The GROUP BY of a SELECT that loses a column: without that column, and without positions, which would shift."""
    group = select.args.get("group")
    alias, inner = item(dropped)
    if group is None or has_aggregate(inner) or group.args.get("all"):
        return {}
    place = str(next(k for k, each in enumerate(select.expressions, 1) if each is dropped))
    kept = [
        each
        for each in group.expressions
        if each != inner and str(each.name).casefold() != (alias or inner.name).casefold() and str(each.this) != place
    ]
    return {"group": exp.Group(expressions=[each.copy() for each in kept]) if kept else None}


def _changed(tree: exp.Expression, select: exp.Select, made: Mapping[str, object]) -> exp.Expression:
    """A copy of the tree in which one SELECT has other parts."""
    path: list[tuple[str, int | None]] = []
    node: exp.Expression | None = select
    while node is not None and node is not tree:
        path.append((str(node.arg_key), node.index))
        node = node.parent  # type: ignore[assignment]  # sqlglot types a parent by the base of Expression
    copy = found = tree.copy()
    for key, index in reversed(path):
        inner = found.args[key]
        found = inner if index is None else inner[index]
    for name, value in made.items():
        if isinstance(value, list):
            value = [each.copy() for each in value]
        found.set(name, value)
    return copy


def _span(node: exp.Expression, text: str) -> tuple[int, int] | None:
    """Where a node stands in the text, by the positions that the parser notes at names, functions and constants."""
    starts = [each.meta["start"] for each in node.walk() if "start" in each.meta]
    ends = [each.meta["end"] + 1 for each in node.walk() if "end" in each.meta]
    if not starts or not 0 <= min(starts) < max(ends) <= len(text):
        return None
    start, end = min(starts), max(ends)
    opened = text.count("(", start, end) - text.count(")", start, end)
    while (
        opened > 0 and (closing := re.compile(r"[^()]*\)").match(text, end)) is not None
    ):  # the parser notes no brackets
        end, opened = closing.end(), opened - 1
    return start, end
