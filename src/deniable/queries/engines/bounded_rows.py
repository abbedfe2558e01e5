"""Registration in DuckDB: keep at most `unit.rows` rows of each person, without hashing everybody's rows.

Which rows of a person are kept is decided by a keyed hash of their content. A person with few rows keeps all of them,
so only people with more rows than their bound are hashed and sorted. For everybody else a row goes from the source to
the table as it is. The result is the same as if all rows were ranked: it depends on the secret and on this person's
rows alone. Ranks are computed later, by the questions that need them (`row_positions`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from sqlglot import exp

from deniable.queries.engines.engine import PERSON, RANK
from deniable.queries.engines.registration_sql import HASH, Reading, in_order, ranked, with_hashes
from deniable.queries.engines.sql_spelling import SQL, column, function, name, number
from deniable.tables.kinds import Kind

Run = Callable[[str], list[tuple[Any, ...]]]

_COUNTS = '"rows of people"'
_TOUCHED, _CHOSEN = '"people of new files"', '"chosen rows"'


@final
@dataclass(frozen=True, slots=True)
class BoundedTable:
    """How many people a registered table has, and how the order of their rows is computed (None: ranks are stored)."""

    people: int
    order: exp.Select | None

    @property
    def count(self) -> SQL | None:
        """The number of people as an aggregate, which is 0 if no row is read; None if the table has ranks."""
        if self.order is None:
            return None
        return exp.Coalesce(this=function("MAX", number(self.people)), expressions=[number(0)])


def numbered(read: Reading) -> bool:
    """Whether ids are texts. Such ids are replaced by numbers, which are joined and counted much faster."""
    return read.person is not Kind.INTEGER


def write_bounded(
    run: Run,
    create: Callable[[SQL], None],
    location: exp.Table,
    read: Reading,
    most: int,
    people: exp.Table | None,
    counts: exp.Table | None = None,
) -> BoundedTable:
    """Write each person's first `most` rows to `location`, by `create(select)`.

    `people` is the table of ids and numbers, the same for all tables; new ids are added to it. None if ids are numbers.
    `counts` is a new table for the number of each person's kept rows, which `append_bounded` needs.
    """
    assert read.plain is not None
    _count(run, read, people)
    over = f'(SELECT "{PERSON}" FROM {_COUNTS} WHERE n > {most})'
    select = _light(read, over, people)
    [[everyone, above]] = run(f"SELECT count(*), count(*) FILTER (n > {most}) FROM {_COUNTS}")
    if above:
        select += f" UNION ALL {_sql(_heavy(read, over, most, people))}"
    create(exp.Var(this=select))
    if counts is not None:
        run(f"CREATE TABLE {_sql(counts)} AS {_numbers(f'LEAST(n, {most}) AS n', people)}")
    run(f"DROP TABLE {_COUNTS}")
    # With one row for each person, every rank is 1, and stored.
    return BoundedTable(int(everyone), None if most == 1 else in_order(read, location, most, people))


def append_bounded(
    run: Run, location: exp.Table, read: Reading, most: int, people: exp.Table | None, counts: exp.Table
) -> BoundedTable:
    """Add the rows of new files, which `read` reads, to a table that `write_bounded` wrote.

    The result is the same as writing all rows at once. Proof: a row that was not kept before has at least `most` kept
    rows before it in the order of hashes, so it is not among the first `most` of all rows either. So it is enough to
    rank the kept rows together with the new ones, and only for people in the new files who now have more than `most`
    rows.
    """
    _count(run, read, people)
    here, known = _sql(location), _sql(counts)
    run(
        f"CREATE TEMP TABLE {_TOUCHED} AS SELECT new.*, COALESCE(old.n, 0) AS before "
        f'FROM ({_numbers(f"n, {_COUNTS}.{PERSON} AS id", people)}) AS new LEFT JOIN {known} AS old USING ("{PERSON}")'
    )
    above = f"FROM {_TOUCHED} WHERE n + before > {most}"
    ids, stored_ids = f"(SELECT id {above})", f'(SELECT "{PERSON}" {above})'
    light = _light(read, ids, people)
    run(f"INSERT INTO {here} {light}")
    if run(f"SELECT count(*) {above}")[0][0]:
        whose, met = PERSON, ""
        if people is not None:
            whose, met = "number", f' JOIN {_sql(people)} ON "id" = "{PERSON}"'
        before = f'(SELECT * FROM {here} WHERE "{PERSON}" IN {stored_ids}) AS t'
        old = _sql(with_hashes(read, exp.Table(this=exp.Var(this=before)), people))
        new = _sql(read.select.where(exp.Var(this=f'"{PERSON}" IN {ids}')))
        shown = ", ".join(_sql(column(each)) for each in (whose, *read.columns.values(), HASH))
        # Listed keys are text in old rows and ENUM in new ones; their union is text.
        rows = f"(SELECT {shown} FROM ({old}) AS t UNION ALL SELECT {shown} FROM ({new}) AS t{met}) AS t"
        run(f"CREATE TEMP TABLE {_CHOSEN} AS {_sql(_first(read, rows, whose, most))}")
        run(f'DELETE FROM {here} WHERE "{PERSON}" IN {stored_ids}')
        run(f"INSERT INTO {here} SELECT * FROM {_CHOSEN}")
        run(f"DROP TABLE {_CHOSEN}")
    run(f'DELETE FROM {known} WHERE "{PERSON}" IN (SELECT "{PERSON}" FROM {_TOUCHED})')
    run(f'INSERT INTO {known} SELECT "{PERSON}", LEAST(n + before, {most}) FROM {_TOUCHED}')
    [[everyone]] = run(f"SELECT count(*) FROM {known}")
    run(f"DROP TABLE {_TOUCHED}")
    run(f"DROP TABLE {_COUNTS}")
    return BoundedTable(int(everyone), None if most == 1 else in_order(read, location, most, people))


def _count(run: Run, read: Reading, people: exp.Table | None) -> None:
    """Count the rows of each person, and give numbers to new ids."""
    assert read.plain is not None
    rows = f"({_sql(read.plain)}) AS t"
    run(f'CREATE TEMP TABLE {_COUNTS} AS SELECT "{PERSON}", COUNT(*) AS n FROM {rows} GROUP BY "{PERSON}"')
    if people is not None:
        everybody = _sql(people)
        run(
            f'INSERT INTO {everybody} SELECT "{PERSON}", row_number() OVER () + (SELECT count(*) FROM {everybody}) '
            f'FROM {_COUNTS} AS new WHERE NOT EXISTS (SELECT 1 FROM {everybody} WHERE "id" = new."{PERSON}")'
        )


def _numbers(outputs: str, people: exp.Table | None) -> str:
    """SELECT of the stored person and `outputs` from the counts of this registration."""
    if people is None:
        return f'SELECT "{PERSON}", {outputs} FROM {_COUNTS}'
    return f'SELECT "number" AS "{PERSON}", {outputs} FROM {_COUNTS} JOIN {_sql(people)} AS p ON p."id" = "{PERSON}"'


def _light(read: Reading, over: str, people: exp.Table | None) -> str:
    """SELECT of all rows of people within their bound."""
    assert read.plain is not None
    columns = ", ".join(_sql(column(each)) for each in (*read.columns.values(), HASH))
    rows = f'(SELECT * FROM ({_sql(read.plain)}) AS t WHERE "{PERSON}" NOT IN {over}) AS t'
    whose = f'"{PERSON}"'
    if people is not None:
        rows += f' JOIN {_sql(people)} ON "id" = "{PERSON}"'
        whose = f'"number" AS "{PERSON}"'
    return f'SELECT {whose}, CAST(1 AS INTEGER) AS "{RANK}", {columns} FROM {rows}'


def _heavy(read: Reading, over: str, most: int, people: exp.Table | None) -> exp.Select:
    """SELECT of the first `most` rows of people above their bound."""
    # The condition is inside, so that only these rows are hashed.
    few = read.select.where(exp.Var(this=f'"{PERSON}" IN {over}'))
    rows = f"({_sql(few)}) AS t"
    whose = PERSON
    if people is not None:
        rows, whose = f'(SELECT * FROM {rows} JOIN {_sql(people)} ON "id" = "{PERSON}") AS t', "number"
    return _first(read, rows, whose, most)


def _first(read: Reading, rows: str, whose: str, most: int) -> exp.Select:
    """SELECT of each person's first rows by hash."""
    chosen = ranked(exp.Table(this=exp.Var(this=rows)), read, column(whose), most, hashes=True)
    first = exp.Alias(this=exp.Cast(this=number(1), to=exp.DataType.build("INT")), alias=name(RANK))
    shown = [first if each.alias_or_name == RANK and most > 1 else each for each in chosen.expressions]
    chosen.set("expressions", shown)
    return chosen


def _sql(expression: SQL) -> str:
    return expression.sql(dialect="duckdb", normalize_functions=False)
