"""From the text to the engine: what is collected for each question is what plain Python collects, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from deniable.queries.engines.duckdb import DuckDBEngine
from deniable.queries.engines.engine import Engine
from deniable.queries.plan.noise_planner import plan
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.sql.sql_reader import parse
from tests.queries.engines.evaluate import Stored, collected, registered
from tests.queries.page import QUESTIONS
from tests.queries.sql.test_sql_reader import SAME, SECRET, data

TEXTS = [*SAME, *(text for questions in QUESTIONS.values() for text, _ in questions)]


@pytest.fixture(scope="module")
def here() -> Iterator[tuple[Engine, Stored]]:
    stored: Stored = {}
    types = {"integer": pa.int64(), "real": pa.float64(), "text": pa.string(), "date": pa.date32()}
    with DuckDBEngine(threads=1) as engine:
        for name, rows in data().items():
            table = EXAMPLE[name]
            kinds = {column: types[domain.kind.value] for column, domain in table.columns}
            if table.unit is not None:
                kinds["patient_id"] = pa.string()
            source = pa.table({column: pa.array([row[column] for row in rows], kind) for column, kind in kinds.items()})
            engine.register(name, source, table, SECRET)
            stored[name] = registered(table, rows, SECRET)
        yield engine, stored


@pytest.mark.parametrize("text", dict.fromkeys(TEXTS))
def test_a_question_collects_what_its_plan_says(text: str, here: tuple[Engine, Stored]) -> None:
    engine, stored = here
    question = plan(parse(text, EXAMPLE)).collect
    found = engine.collect(question)
    wanted = collected(question, stored)
    # exp, ln and power may differ in the last bits, so sums of them by a step of the grid for each row.
    steps = 300 if any(f"{name}(" in text for name in ("LN", "EXP", "POWER")) else 0
    assert found.keys() == wanted.keys()
    for group, numbers in found.items():
        for one, two in zip(numbers, wanted[group], strict=True):
            assert one == two or (isinstance(one, int) and abs(one - two) <= steps)
