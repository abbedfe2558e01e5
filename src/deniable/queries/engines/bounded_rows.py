"""Registration in DuckDB: at most so many rows of each person, without hashing everybody's rows.

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
from deniable.queries.engines.registration_sql import HASH, Reading, in_order, ranked
from deniable.queries.engines.sql_spelling import SQL, column, function, name, number
from deniable.tables.kinds import Kind

Run = Callable[[str], list[tuple[Any, ...]]]

_COUNTS = '"rows of people"'


@final
@dataclass(frozen=True, slots=True)
class BoundedTable:
    """How many people a registered table has, and how the order of their rows is computed (None: it has ranks)."""

    people: int
    order: exp.Select | None

    @property
    def count(self) -> SQL | None:
        """The number of people as an aggregate, which is 0 if no row is read; None if the table has ranks."""
        if self.order is None:
            return None
        return exp.Coalesce(this=function("MAX", number(self.people)), expressions=[number(0)])


def numbered(read: Reading) -> bool:
    """Whether people have texts as ids, which are replaced by numbers: numbers are joined and counted much faster."""
    return read.person is not Kind.INTEGER


def write_bounded(
    run: Run, create: Callable[[SQL], None], location: exp.Table, read: Reading, most: int, people: exp.Table | None
) -> BoundedTable:
    """Write each person's first `most` rows to `location`, by `create(select)`.

    `people` is the table of ids and numbers, the same for all tables; new ids are added to it. None if ids are numbers.
    """
    assert read.plain is not None
    plain = _sql(read.plain)
    run(f'CREATE TEMP TABLE {_COUNTS} AS SELECT "{PERSON}", COUNT(*) AS n FROM ({plain}) AS t GROUP BY "{PERSON}"')
    if people is not None:
        everybody = _sql(people)
        run(
            f'INSERT INTO {everybody} SELECT "{PERSON}", row_number() OVER () + (SELECT count(*) FROM {everybody}) '
            f'FROM {_COUNTS} AS new WHERE NOT EXISTS (SELECT 1 FROM {everybody} WHERE "id" = new."{PERSON}")'
        )
    over = f'(SELECT "{PERSON}" FROM {_COUNTS} WHERE n > {most})'
    columns = ", ".join(_sql(column(each)) for each in (*read.columns.values(), HASH))
    light = f'(SELECT * FROM ({plain}) AS t WHERE "{PERSON}" NOT IN {over}) AS t'
    whose = f'"{PERSON}"'
    if people is not None:
        light += f' JOIN {_sql(people)} ON "id" = "{PERSON}"'
        whose = f'"number" AS "{PERSON}"'
    select = f'SELECT {whose}, CAST(1 AS INTEGER) AS "{RANK}", {columns} FROM {light}'
    [[everyone, above]] = run(f"SELECT count(*), count(*) FILTER (n > {most}) FROM {_COUNTS}")
    if above:
        select += f" UNION ALL {_sql(_heavy(read, over, most, people))}"
    create(exp.Var(this=select))
    run(f"DROP TABLE {_COUNTS}")
    # With one row for each person, every rank is 1, and stored.
    return BoundedTable(int(everyone), None if most == 1 else in_order(read, location, most, people))


def _heavy(read: Reading, over: str, most: int, people: exp.Table | None) -> exp.Select:
    # The condition is inside, so that only these rows are hashed.
    few = read.select.where(exp.Var(this=f'"{PERSON}" IN {over}'))
    rows = f"({_sql(few)}) AS t"
    whose = PERSON
    if people is not None:
        rows, whose = f'(SELECT * FROM {rows} JOIN {_sql(people)} ON "id" = "{PERSON}") AS t', "number"
    chosen = ranked(exp.Table(this=exp.Var(this=rows)), read, column(whose), most, hashes=True)
    first = exp.Alias(this=exp.Cast(this=number(1), to=exp.DataType.build("INT")), alias=name(RANK))
    shown = [first if each.alias_or_name == RANK and most > 1 else each for each in chosen.expressions]
    chosen.set("expressions", shown)
    return chosen


def _sql(expression: SQL) -> str:
    return expression.sql(dialect="duckdb", normalize_functions=False)
