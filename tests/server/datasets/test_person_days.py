"""A person's day as the unit on a server: declared in the schema, told to everybody, and never for known people."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.world import made

SCHEMA = """\
version: 1
tables:
  t:
    person: who
    rows: 2
    columns:
      at: {kind: date, low: 2026-01-01, high: 2026-12-31}
"""
DAILY = SCHEMA.replace("rows: 2\n", "rows: 2\n    per: day\n    time: at\n")


@pytest.mark.slow
def test_a_schema_with_days_is_asked_and_people_who_are_known_keep_their_unit(tmp_path: Path) -> None:
    for name in ("one", "two"):
        rows = [f"{name}{i % 90},2026-0{1 + i % 9}-11" for i in range(400)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["who,at", *rows]))
    there = made(tmp_path)
    with there.client:
        body = {"name": "days", "sources": {"t": "one.csv"}, "schema": DAILY, "budget": {"epsilon": 9.0}}
        told = there.call("olga", "POST", "/v1/datasets", body).json()
        words = "the rows of one person on one day ('who', 'at', at most 2 rows) added or removed, not a whole person"
        assert told["unit"] == words
        asked = {"dataset": "days", "sql": "SELECT COUNT(*) AS n FROM t", "epsilon": 1.0}
        answer = there.call("olga", "POST", "/v1/questions", asked)
        assert answer.status_code == 200
        assert words in answer.text
        asked["sql"] = "SELECT COUNT(DISTINCT who) AS n FROM t"
        assert there.call("olga", "POST", "/v1/questions", asked).json()["code"] == "refused"
        people = {**body, "name": "people", "sources": {"t": "two.csv"}, "schema": SCHEMA}
        assert there.call("olga", "POST", "/v1/datasets", people).status_code in {200, 201}
        for file, schema in (("two.csv", DAILY), ("one.csv", SCHEMA)):
            again = {"name": "again", "sources": {"t": file}, "schema": schema}
            refused = there.call("olga", "POST", "/v1/datasets", again)
            assert refused.status_code == 409
            assert refused.json()["field"] == "unit"
