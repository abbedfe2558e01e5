"""FastAPI and DuckDB with nothing in between: the questions of `benchmarks/server.py` answered as they are, exactly.

No token, no budget, no ledger, no noise: what a web server and an engine cost by themselves, for comparison.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import duckdb
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()
_LOCAL = threading.local()
_TABLES = duckdb.connect()
_TABLES.execute("CREATE TABLE visits AS SELECT * FROM read_csv(?)", [os.environ["BARE_TABLE"]])


class Question(BaseModel):
    """As the server takes it."""

    dataset: str
    sql: str
    epsilon: float


@app.post("/v1/questions")
def ask(body: Question) -> dict[str, Any]:
    """The exact answer."""
    if not hasattr(_LOCAL, "cursor"):
        _LOCAL.cursor = _TABLES.cursor()
    found = _LOCAL.cursor.execute(body.sql)
    return {"columns": [each[0] for each in found.description], "rows": found.fetchall()}
