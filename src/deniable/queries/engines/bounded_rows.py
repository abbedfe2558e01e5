"""Registration in DuckDB: keep at most `unit.rows` rows of each person, without hashing everybody's rows.

Which rows of a person are kept is decided by a keyed hash of their content. A person with few rows keeps all of them,
so only people with more rows than their bound are hashed and sorted. For everybody else a row goes from the source to
the table as it is. The result is the same as if all rows were ranked: it depends on the secret and on this person's
rows alone. Ranks are computed later, by the questions that need them (`row_positions`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, final

from sqlglot import exp

from deniable.queries.engines.engine import PERSON, RANK
from deniable.queries.engines.registration_sql import HASH, Reading, in_order, ranked
from deniable.queries.engines.sql_spelling import SQL, column, function, name, number
from deniable.tables.kinds import Kind

Run = Callable[[str], list[tuple[Any, ...]]]

_COUNTS, _TOUCHED = '"rows of people"', '"people of new files"'


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
    `counts` is a new table for the number of each person's rows, which `append_bounded` needs.
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
        run(f"CREATE TABLE {_sql(counts)} AS {_numbers('n', people)}")
    run(f"DROP TABLE {_COUNTS}")
    # With one row for each person, every rank is 1, and stored.
    return BoundedTable(int(everyone), None if most == 1 else in_order(read, location, most, people))


def append_bounded(
    run: Run,
    location: exp.Table,
    read: Reading,
    whole: Callable[[], AbstractContextManager[Reading]],
    most: int,
    people: exp.Table | None,
    counts: exp.Table,
    before: int,
) -> BoundedTable:
    """Add the rows of new files, which `read` reads, to a table that `write_bounded` wrote for `before` people.

    The result is the same as writing all rows at once. Proof: `counts` has the number of rows of each person in the
    earlier files. Someone without new rows keeps the rows that were chosen before: a choice depends on the secret and
    on this person's rows alone. Someone who has at most `most` rows now had at most `most` before, so the table has all
    of their old rows, and all of the new ones are added. All rows of everybody else are read again, by `whole`, which
    opens all files, and are ranked as in `write_bounded`. It is opened only if there is such a person.
    """
    _count(run, read, people)
    here, known = _sql(location), _sql(counts)
    run(
        f"CREATE TEMP TABLE {_TOUCHED} AS SELECT new.*, COALESCE(old.n, 0) AS before "
        f"FROM ({_numbers(f'n, {_COUNTS}.{PERSON} AS id', people)}) AS new LEFT JOIN "
        f'(SELECT "{PERSON}", SUM(n) AS n FROM {known} WHERE "{PERSON}" IN (SELECT "{PERSON}" FROM '
        f'({_numbers("0", people)}) AS new) GROUP BY "{PERSON}") AS old USING ("{PERSON}")'
    )
    above = f"FROM {_TOUCHED} WHERE n + before > {most}"
    ids = f"(SELECT id {above})"
    light = f"INSERT INTO {here} {_light(read, ids, people)}"
    if run(f"SELECT count(*) {above}")[0][0]:
        run(f'DELETE FROM {here} WHERE "{PERSON}" IN (SELECT "{PERSON}" {above} AND before > 0)')
        with whole() as every:
            run(f"{light} UNION ALL {_sql(_heavy(every, ids, most, people))}")
    else:
        run(light)
    # A person of several appends has several lines, which are added up when they are needed.
    run(f'INSERT INTO {known} SELECT "{PERSON}", n FROM {_TOUCHED}')
    [[new]] = run(f"SELECT count(*) FROM {_TOUCHED} WHERE before = 0")
    run(f"DROP TABLE {_TOUCHED}")
    run(f"DROP TABLE {_COUNTS}")
    return BoundedTable(before + int(new), None if most == 1 else in_order(read, location, most, people))


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
