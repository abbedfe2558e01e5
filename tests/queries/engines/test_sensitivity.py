"""Sensitivities by search, through the engines themselves: neighbours are registered, and random plans collected."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from deniable.queries.engines.engine import Engine
from deniable.queries.relations.relation_nodes import JoinPrivate
from deniable.tables.kinds import Kind
from deniable.tables.schema import Table
from tests.queries.engines.kitchen import SECRET, DuckDBKitchen, Kitchen, SparkKitchen
from tests.queries.plans import Chooser, Rows, World
from tests.queries.test_sensitivity import excess

pa = pytest.importorskip("pyarrow")

TYPES = {
    Kind.INTEGER: pa.int64(),
    Kind.TEXT: pa.string(),
    Kind.REAL: pa.float64(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.DATE: pa.date32(),
}


def arrow(table: Table, rows: Rows) -> Any:
    kinds = {name: TYPES[domain.kind] for name, domain in table.columns}
    if table.unit is not None:
        kinds = {"who": pa.string(), **kinds}
    return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})


def opened(
    kitchen: Kitchen, world: World, changed: dict[str, Rows], shuffle: Callable[[list[Any]], None]
) -> tuple[Engine, dict[str, Table]]:
    """An engine that has one of the two neighbours, its rows in any order."""
    engine, tables = kitchen.make(), {}
    for table in (world.visits, world.stays, world.places):
        rows = list(world.public) if table.unit is None else world.common[table.name] + changed[table.name]
        shuffle(rows)
        tables[table.name] = engine.register(table.name, kitchen.source(arrow(table, rows)), table, SECRET)
    return engine, tables


def search(kitchen: Kitchen, seed: int, worlds: int, plans: int, depths: tuple[int, ...] = (0, 1, 2, 3)) -> str | None:
    """The first false claim among that many plans on each of that many pairs of neighbours."""
    chance = random.Random(seed)
    for _ in range(worlds):
        chooser = Chooser(chance.choice, depths)
        world = chooser.world()
        here, tables = opened(kitchen, world, world.here, chance.shuffle)
        there, others = opened(kitchen, world, world.there, chance.shuffle)
        try:
            assert tables == others, "what is public after registration does not depend on a person"
            public = replace(world, places=tables["places"])
            for _ in range(plans):
                found = excess(chooser, public, here.collect, there.collect)
                if found is not None:
                    return found
        finally:
            here.close()
            there.close()
    return None


@pytest.mark.slow
def test_duckdb_moves_no_further_than_claimed() -> None:
    assert search(DuckDBKitchen(), 5, worlds=20, plans=12) is None


@pytest.mark.slow
def test_a_wrong_rule_is_found_out_through_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JoinPrivate, "rows", property(lambda self: self.left.rows))
    assert search(DuckDBKitchen(), 11, worlds=150, plans=20, depths=(1, 2)) is not None


@pytest.mark.spark
def test_spark_moves_no_further_than_claimed(spark: Any) -> None:
    kitchen = SparkKitchen(spark)
    try:
        assert search(kitchen, 7, worlds=2, plans=5, depths=(1, 2)) is None
    finally:
        kitchen.close()


@pytest.mark.spark
def test_a_wrong_rule_is_found_out_through_spark(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The neighbours and the plan on which DuckDB finds it, so that Spark need not search for long."""
    monkeypatch.setattr(JoinPrivate, "rows", property(lambda self: self.left.rows))
    found = [seed for seed in range(40) if search(DuckDBKitchen(), seed, worlds=1, plans=6, depths=(1, 2)) is not None]
    kitchen = SparkKitchen(spark)
    try:
        assert search(kitchen, found[0], worlds=1, plans=6, depths=(1, 2)) is not None
    finally:
        kitchen.close()
