"""Random plans over random tables: every engine gives what the plain evaluation gives, to the last integer."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from deniable.queries.engines.engine import Engine
from deniable.tables.schema import Table
from tests.queries.engines import evaluate
from tests.queries.engines.kitchen import SECRET, DuckDBKitchen, Kitchen, SparkKitchen
from tests.queries.engines.plans import LABS, VALUES, VISITS, WARDS, question, rows_for

pa = pytest.importorskip("pyarrow")

TYPES = {
    "who": pa.string(), "age": pa.int64(), "cost": pa.float64(), "ward": pa.string(), "note": pa.string(),
    "day": pa.date32(), "stay": pa.bool_(), "level": pa.int64(), "place": pa.string(), "score": pa.float64(),
    "name": pa.string(), "size": pa.int64(),
}  # fmt: skip


def columns_of(table: Table) -> list[str]:
    names = [name for name, _ in table.columns]
    return names if table.unit is None else ["who", *names]


def arrow(table: Table, rows: list[dict[str, Any]]) -> Any:
    names = columns_of(table)
    return pa.table({name: pa.array([row[name] for row in rows], TYPES[name]) for name in names})


def registered(
    kitchen: Kitchen, engine: Engine, data: dict[str, list[dict[str, Any]]]
) -> tuple[dict[str, Table], evaluate.Stored]:
    tables, stored = {}, {}
    for table in (VISITS, LABS, WARDS):
        source = kitchen.source(arrow(table, data[table.name]))
        tables[table.name] = engine.register(table.name, source, table, SECRET)
        stored[table.name] = evaluate.registered(table, data[table.name], SECRET)
    return tables, stored


DATA = st.fixed_dictionaries({"visits": rows_for(VISITS, 14), "labs": rows_for(LABS, 8), "wards": rows_for(WARDS, 4)})


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=DATA, draw=st.data())
def test_duckdb_collects_what_plain_python_collects(data: Any, draw: st.DataObject) -> None:
    kitchen = DuckDBKitchen()
    with kitchen.make() as engine:
        tables, stored = registered(kitchen, engine, data)
        for _ in range(4):
            asked = draw.draw(question(tables))
            if asked is not None:
                assert engine.collect(asked) == evaluate.collected(asked, stored)
                empty = {"visits": [], "labs": []}
                nobody = {each.name: evaluate.registered(each, empty[each.name], SECRET) for each in (VISITS, LABS)}
                assert engine.nothing(asked) == evaluate.collected(asked, {**stored, **nobody})


@pytest.mark.spark
@settings(
    max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, phases=[Phase.generate]
)
@given(draw=st.data())
def test_spark_collects_what_plain_python_collects(spark_tables: Any, draw: st.DataObject) -> None:
    """The same plans on one larger table: a registration takes Spark a second, and nothing is shrunk."""
    engine, tables, stored = spark_tables
    asked = draw.draw(question(tables))
    if asked is not None:
        assert engine.collect(asked) == evaluate.collected(asked, stored)


@pytest.fixture
def spark_tables(spark: Any) -> Any:
    numbers = random.Random(5)
    data = {
        table.name: [{name: numbers.choice(VALUES[name].elements) for name in columns_of(table)} for _ in range(size)]
        for table, size in ((VISITS, 30), (LABS, 14), (WARDS, 5))
    }
    kitchen = SparkKitchen(spark)
    with kitchen.make() as engine:
        yield engine, *registered(kitchen, engine, data)
    kitchen.close()
