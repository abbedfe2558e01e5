"""The engines of the shared suite, each behind the same two doors: open one, and make a source for it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from deniable.queries.engines.engine import Engine
from deniable.queries.relations.exact_statistics import Collect, Group, Statistic
from deniable.queries.relations.relation_nodes import RelationNode
from deniable.tables.expressions import Expression

SECRET = bytes(range(32))


class Kitchen:
    """Opens engines, and closes what it opened."""

    def __init__(self) -> None:
        self.opened: list[Engine] = []

    def engine(self) -> Engine:
        engine = self.make()
        self.opened.append(engine)
        return engine

    def make(self) -> Engine:
        raise NotImplementedError

    def source(self, arrow: Any) -> object:
        """An Arrow table as this engine takes it."""
        raise NotImplementedError

    def close(self) -> None:
        for engine in self.opened:
            engine.close()


class DuckDBKitchen(Kitchen):
    def make(self) -> Engine:
        from deniable.queries.engines.duckdb import DuckDBEngine

        return DuckDBEngine(threads=1)

    def source(self, arrow: Any) -> object:
        return arrow


class SparkKitchen(Kitchen):
    def __init__(self, spark: Any) -> None:
        super().__init__()
        self.spark = spark
        self.folder = tempfile.TemporaryDirectory()

    def make(self) -> Engine:
        from deniable.queries.engines.spark import SparkEngine

        return SparkEngine(self.spark)

    def source(self, arrow: Any) -> object:
        # By way of a file, in which moments without a zone stay so.
        import pyarrow.parquet as pq

        path = os.path.join(tempfile.mkdtemp(dir=self.folder.name), "source.parquet")
        pq.write_table(arrow, path)
        return self.spark.read.parquet(path)

    def close(self) -> None:
        super().close()
        self.folder.cleanup()


def arrow_of(columns: Mapping[str, tuple[Any, Sequence[Any]]]) -> Any:
    """An Arrow table from (type, values) by name; names may repeat if the mapping's keys are told apart by spaces."""
    import pyarrow as pa

    return pa.table({name: pa.array(list(values), kind) for name, (kind, values) in columns.items()})


def asked(
    relation: RelationNode,
    keys: tuple[tuple[str, Expression], ...],
    known: tuple[Group, ...] | None,
    statistics: tuple[Statistic, ...],
) -> Collect:
    """A question that an engine can answer, though it would be refused: with reals as keys, to see what they are."""
    question = object.__new__(Collect)
    given = {"relation": relation, "keys": keys, "known": known, "statistics": statistics, "filling": None}
    for name, value in given.items():
        object.__setattr__(question, name, value)
    return question
