"""FastAPI and DuckDB with nothing in between: the questions of `benchmarks/server.py` answered as they are, exactly.

Each request has a token, a body that is checked, a cursor and the SQL, but no budget, ledger or noise. This measures
what a web server and an engine cost by themselves, for comparison.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import Annotated, Any

import duckdb
from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel

app = FastAPI()
_KNOWN = hashlib.sha256(os.environ["BARE_TOKEN"].encode()).digest()
_TABLES = duckdb.connect()
_TABLES.execute("CREATE TABLE visits AS SELECT * FROM read_csv(?)", [os.environ["BARE_TABLE"]])


class Question(BaseModel):
    """As the server takes it."""

    dataset: str
    sql: str
    epsilon: float


async def known(given: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]) -> None:
    """Whoever has the token."""
    if not hmac.compare_digest(hashlib.sha256(given.credentials.encode()).digest(), _KNOWN):
        raise HTTPException(401)


@app.post("/v1/questions", dependencies=[Depends(known)])
def ask(body: Question) -> dict[str, Any]:
    """The exact answer."""
    with _TABLES.cursor() as cursor:
        found = cursor.execute(body.sql)
        return {"columns": [each[0] for each in found.description], "rows": found.fetchall()}
