"""The same rows in a new file whose schema says otherwise whose they are: no second budget, and nothing public."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from deniable.server.roles import Role
from tests.queries.hospital import visits
from tests.server.datasets.test_open_datasets import others
from tests.server.world import BUDGET, SCHEMA, World, made

ROWS = SCHEMA.replace("    person: patient_id\n    rows: 3\n", "    neighbours: add/remove\n").replace(
    "visits", "again"
)
HOW = ["every row its own person", "without ids", "by another number", "fewer columns", "a part of the rows"]


def otherwise(how: str, table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The table with a column more or less, and a schema in which its rows are those of others."""
    table = table.assign(visit=[f"visit {i}" for i in range(len(table))])
    if how == "without ids":
        return table.drop(columns=["patient_id", "visit"]), ROWS
    if how == "by another number":
        return table, ROWS.replace("    neighbours: add/remove\n", "    person: visit\n    rows: 1\n")
    if how == "fewer columns":
        kept = [line for line in ROWS.splitlines() if not line.strip().startswith(("town", "cost", "stay"))]
        return table, "\n".join(kept) + "\n"
    return (table.iloc[::2] if how == "a part of the rows" else table), ROWS


def register(world: World, who: str, table: pd.DataFrame, schema: str, name: str = "again") -> Any:
    table.to_csv(world.folder / f"{name}.csv", index=False)
    body = {"name": name, "sources": {"again": f"{name}.csv"}, "schema": schema, "budget": BUDGET}
    return world.call(who, "POST", "/v1/datasets", body)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    there = made(tmp_path_factory.mktemp("whose"))
    there.newcomer("otto", Role.OWNER)
    with there.client:
        yield there


@pytest.mark.parametrize("how", HOW)
def test_rows_of_known_people_get_no_budget_of_their_own(how: str, world: World) -> None:
    """A copy with other line ends, said to have a person in each row, had a fresh budget, also for another owner."""
    for who, status, code in (("olga", 409, "ledger_mismatch"), ("otto", 403, "forbidden")):
        told = register(world, who, *otherwise(how, visits()))
        assert (told.status_code, told.json()["code"]) == (status, code), told.text


@pytest.mark.parametrize("how", ["every row its own person", "without ids"])
def test_people_whose_rows_are_known_get_no_budget_of_their_own(how: str, tmp_path: Path) -> None:
    world = made(tmp_path)
    with world.client:
        first = register(world, "olga", *otherwise(how, others(5)))
        assert (first.status_code, first.json()["linked"]) == (201, False), first.text
        others(5).to_csv(world.folder / "people.csv", index=False)
        body = {"name": "people", "sources": {"visits": "people.csv"}, "schema": SCHEMA, "budget": BUDGET}
        told = world.call("olga", "POST", "/v1/datasets", body)
        assert (told.status_code, told.json()["code"]) == (409, "ledger_mismatch"), told.text


@pytest.mark.parametrize("how", ["a renamed id", "fewer columns", "without ids"])
def test_cells_of_protected_people_are_not_declared_public(how: str, world: World) -> None:
    table, names = visits(), ["patient_id", "ward", "sex", "age", "stay", "cost", "town"]
    if how == "a renamed id":
        table, names = table.rename(columns={"patient_id": "number"}), ["number", *names[1:]]
    names = {"fewer columns": names[:4], "without ids": names[1:]}.get(how, names)
    table[names].to_csv(world.folder / "open.csv", index=False)
    (world.folder / "few.csv").write_text("who,x\n" + "".join(f"few {i},{i}\n" for i in range(9)))
    kinds = {"age": "integer", "stay": "integer", "cost": "real"}
    schema = {
        "version": 1,
        "tables": {
            "few": {"person": "who", "rows": 1, "columns": {"x": {"kind": "integer", "low": 0, "high": 9}}},
            "open": {"public": True, "columns": {name: {"kind": kinds.get(name, "text")} for name in names}},
        },
    }
    body = {"name": "open", "sources": {"few": "few.csv", "open": "open.csv"}, "schema": schema, "budget": BUDGET}
    told = world.call("olga", "POST", "/v1/datasets", body)
    assert (told.status_code, told.json().get("parameter")) == (422, "schema"), told.text


@pytest.mark.parametrize("how", HOW)
def test_rows_of_others_have_a_budget_of_their_own(how: str, world: World) -> None:
    """Other people with the same numbers as ids, in the same columns."""
    table = others(60 + HOW.index(how), same_numbers=True)
    told = register(world, "otto", *otherwise(how, table), f"others {HOW.index(how)}")
    assert (told.status_code, told.json().get("linked")) == (201, False), told.text
