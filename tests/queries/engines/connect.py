"""A few questions of the shared suite, asked of an engine; run by itself, of Spark through Spark Connect.

    python -m tests.queries.engines.connect OUT

A process of its own, because one in which Spark runs already cannot be a client of another.
"""

from __future__ import annotations

import datetime as dt
import random
import sys
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

from deniable.queries.relations.exact_statistics import Cells, Collect, Count, CountDistinct, CountPersons, ExactSum
from deniable.queries.relations.relation_nodes import (
    Bound,
    Exact,
    FilterRows,
    How,
    JoinPrivate,
    JoinPublic,
    PerPerson,
    Project,
    Source,
)
from deniable.tables.expressions import case, col
from deniable.tables.schema import Table
from tests.queries.engines.kitchen import SECRET, Kitchen, SparkKitchen
from tests.queries.engines.plans import LABS, PEOPLE, VISITS, WARDS
from tests.queries.engines.test_plans_on_engines import arrow


def data() -> dict[str, list[dict[str, Any]]]:
    """Some rows, the same each time: people with more of them than are kept, NULLs, values out of bounds."""
    draw = random.Random(5)
    visits = [
        {
            "who": draw.choice(PEOPLE),
            "age": draw.choice([None, *range(-5, 12)]),
            "cost": draw.choice([None, float("nan"), draw.uniform(-6, 6)]),
            "ward": draw.choice([None, "n", "s", "x"]),
            "note": draw.choice([None, "", ":", "0:", "é"]),
            "day": draw.choice([None, dt.date(2024, 2, 29), dt.date(1999, 12, 31)]),
            "stay": draw.choice([None, True, False]),
        }
        for _ in range(120)
    ]
    labs = [
        {
            "who": draw.choice(PEOPLE),
            "level": draw.randrange(-5, 12),
            "place": draw.choice([None, "n", "s"]),
            "score": draw.uniform(-6, 6),
        }
        for _ in range(60)
    ]
    wards = [{"name": name, "size": size} for name, size in (("n", 3), ("s", 5), ("s", None), (None, 1))]
    return {"visits": visits, "labs": labs, "wards": wards}


def questions(tables: dict[str, Table]) -> list[Collect]:
    visits, labs = Source(tables["visits"]), Source(tables["labs"])
    by_ward = (("ward", col("ward")),)
    known = (("n",), ("s",), (None,))
    cost = ExactSum(col("cost"), Fraction(-4), Fraction(4), -10)
    renamed = Project(labs, (("level", col("level")), ("score", col("score"))))
    young = case((col("age") < 3, "young"), otherwise="old")
    return [
        Collect(visits, (), None, (Count(), CountPersons(), CountDistinct(col("note")))),
        Collect(visits, by_ward, known, (Count(), cost)),
        Collect(visits, (("note", col("note")),), None, (CountPersons(), Count(col("age")))),
        Collect(FilterRows(visits, col("day").apply("year") > 2000), (("young", young),), None, (Count(),)),
        Collect(visits, (), None, (Cells(col("cost"), tuple(Fraction(n, 2) for n in range(-8, 9))),)),
        Collect(Bound(visits, (col("ward"),), 1, 2), by_ward, known, (Count(), cost)),
        Collect(JoinPublic(visits, tables["wards"], (("ward", "name"),), How.LEFT), (), None, (Count(), Count(col("size")))),
        Collect(JoinPrivate(visits, renamed, (), How.INNER), by_ward, known, (Count(),)),
        Collect(PerPerson(visits, (), (("n", Exact("count", None)),)), (("n", col("n")),), None, (Count(),)),
    ]  # fmt: skip


def cells(kitchen: Kitchen) -> str:
    """The exact answers, one a line."""
    rows, tables = data(), {}
    with kitchen.make() as engine:
        for table in (VISITS, LABS, WARDS):
            source = kitchen.source(arrow(table, rows[table.name]))
            tables[table.name] = engine.register(table.name, source, table, SECRET)
        found = [engine.collect(each) for each in questions(tables)]
    return "\n".join(repr(sorted(each.items(), key=repr)) for each in found)


def main() -> None:
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as folder:
        builder = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.shuffle.partitions", "1")
        session = builder.config("spark.sql.warehouse.dir", folder).getOrCreate()
        assert type(session).__module__.startswith("pyspark.sql.connect"), type(session)
        Path(sys.argv[1]).write_text(cells(SparkKitchen(session)))
        session.stop()


if __name__ == "__main__":
    main()
