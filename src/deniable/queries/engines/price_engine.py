"""An engine for price estimates: it accepts tables by their schema alone and holds no data."""

from __future__ import annotations

from typing import final

from deniable.errors import EngineFailed
from deniable.queries.engines.engine import Engine, Numbers, Progress
from deniable.queries.relations.exact_statistics import Collect, Group
from deniable.tables.schema import Table


@final
class Unread(Engine):
    """An engine that reads no source and answers no question.

    Enough for prices, because the price of a question depends on the question and the schema alone.
    """

    def register(
        self, name: str, source: object, table: Table, secret: bytes, progress: Progress | None = None
    ) -> Table:
        return table

    def collect(self, question: Collect) -> dict[Group, Numbers]:
        raise EngineFailed("engine", "this session can only state prices; open one on the data")

    def nothing(self, question: Collect) -> dict[Group, Numbers]:
        return self.collect(question)

    def sql(self, question: Collect) -> str:
        return ""

    def close(self) -> None:
        pass
