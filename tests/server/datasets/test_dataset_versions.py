"""Versions of a dataset on a server: new files under its name, with the budget and the old answers that it has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from deniable.server.app import served
from deniable.server.curator import Curator
from deniable.server.roles import Role
from tests.queries.hospital import visits
from tests.server.datasets.test_open_datasets import others, register
from tests.server.world import BUDGET, SCHEMA, WARDS, Client, World, made

pytestmark = pytest.mark.slow

COUNT = "SELECT COUNT(*) AS n FROM visits"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[World]:
    """A world that no other test changes."""
    world = made(tmp_path)
    with world.client:
        yield world
    world.curator.close()


def declare(world: World, version: str, frame: pd.DataFrame | None, who: str = "olga", **more: Any) -> Any:
    sources = {}
    if frame is not None:
        frame.to_csv(world.folder / f"visits-{version}.csv", index=False)
        sources = {"visits": f"visits-{version}.csv"}
    return world.call(who, "POST", "/v1/datasets/visits/versions", {"version": version, "sources": sources, **more})


def test_a_table_that_grew_is_served_under_its_name_with_its_budget(own: World) -> None:
    first = own.ask(COUNT, epsilon=0.1).json()
    assert "version" not in first["provenance"]
    spent = own.ledger.charged
    grown = pd.concat([visits(), others(5)])
    answer = declare(own, "2026-11-18", grown)
    assert answer.status_code == 201, answer.text
    assert (answer.json()["versions"], answer.json()["declared"]) == ({"visits": "2026-11-18"}, ["2026-11-18"])
    assert own.ledger.charged == spent  # declaring costs nothing, and gives nothing back
    again = own.ask(COUNT, epsilon=0.1).json()
    assert again["provenance"]["version"] == "2026-11-18"
    assert not again["provenance"]["replayed"]
    assert own.ledger.charged.units == spent.units + own.ledger.budget.cost(epsilon=0.1).units
    assert own.ask(COUNT, epsilon=0.1).json()["provenance"]["replayed"]
    assert not own.ask(COUNT, epsilon=0.1, fresh=True).json()["provenance"]["replayed"]
    for release, numbers in ((first["release"], first["rows"]), (again["release"], again["rows"])):
        label = own.call("ana", "GET", f"/v1/labels/{release}").json()
        assert label["release"] == release
        assert numbers
    own.ledger.verify()


def test_the_same_files_under_a_new_version_are_charged_as_well(own: World) -> None:
    """Whether the data changed must not show."""
    assert declare(own, "1", None).status_code == 201
    own.ask(WARDS, epsilon=0.1)
    assert declare(own, "2", None).status_code == 201
    assert not own.ask(WARDS, epsilon=0.1).json()["provenance"]["replayed"]
    listed = own.call("ana", "GET", "/v1/datasets/visits/versions").json()
    assert listed == {"dataset": "visits", "version": "2", "versions": ["1", "2"]}


def test_what_is_no_version(own: World) -> None:
    assert declare(own, "1", visits().iloc[1:]).status_code == 201
    before = own.ledger.head
    changed = declare(own, "1", visits().iloc[2:])
    assert (changed.status_code, changed.json()["code"]) == (409, "ledger_mismatch")
    own.newcomer("otto", Role.OWNER)
    assert declare(own, "2", visits(), who="otto").status_code == 404
    for wrong in ("a b", "", "../x"):
        assert declare(own, wrong, None).status_code == 422
    rows = SCHEMA.replace("    person: patient_id\n    rows: 3\n", "    neighbours: add/remove\n")
    assert rows != SCHEMA
    assert declare(own, "2", None, schema=rows).status_code == 409
    town = SCHEMA.replace("person: patient_id", "person: town").replace("      town: {kind: text}\n", "")
    told = declare(own, "2", None, schema=town)  # the noise would hide a town, and the ledger speaks of people
    assert (told.status_code, told.json()["code"]) == (409, "ledger_mismatch"), told.text
    others(9).to_csv(own.folder / "others.csv", index=False)
    assert register(own, "others", "others.csv", table="stays", budget=BUDGET).status_code == 201
    moved = declare(own, "2", others(9))  # people who have a budget of their own
    assert moved.status_code == 422
    assert own.ledger.head == before


def test_a_version_is_served_after_a_restart(own: World) -> None:
    assert declare(own, "2", visits().iloc[5:]).status_code == 201
    first = own.ask(COUNT, epsilon=0.1).json()
    settings = own.curator.settings
    own.curator.close()
    own.curator = Curator(settings)
    own.client = Client(served(own.curator))
    with own.client:
        again = own.ask(COUNT, epsilon=0.1).json()
        assert (again["rows"], again["provenance"]["version"]) == (first["rows"], "2")
        assert again["provenance"]["replayed"]
        assert register(own, "copy", "visits-2.csv").json()["linked"]  # its people are known under any name


def test_known_data_with_a_renamed_id_shares_the_budget_that_it_has(own: World) -> None:
    """It was refused, with the advice to give the column its old name in the file."""
    visits().rename(columns={"patient_id": "pid"}).to_csv(own.folder / "renamed.csv", index=False)
    body = {"name": "renamed", "sources": {"renamed": "renamed.csv"}}
    schema = SCHEMA.replace("patient_id", "pid").replace("rows: 3", "rows: 2").replace("  visits:", "  renamed:")
    answer = own.call("olga", "POST", "/v1/datasets", body | {"schema": schema})
    assert (answer.status_code, answer.json()["linked"]) == (201, True)
    schema = schema.replace("    person: pid\n    rows: 2\n", "    neighbours: add/remove\n")
    body = {"name": "again", "sources": {"again": "renamed.csv"}, "schema": schema.replace("renamed:", "again:")}
    answer = own.call("olga", "POST", "/v1/datasets", body)
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (409, "ledger_mismatch", "unit")
    assert answer.json()["detail"].endswith("added or removed; declare the same unit, people or rows")
