"""Budgets that renew on a server: both limits hold over HTTP and restarts, and the risk is shown to everybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import deniable as dn
from deniable.ledger import Budget, Renewal
from deniable.ledger.stores import store
from deniable.queries.answer import privacy_statement
from deniable.server.app import served
from deniable.server.catalogue.catalogue import Person
from deniable.server.curator import Curator
from deniable.server.request_bodies import NewBudget
from deniable.server.roles import Role
from tests.server.browsing import Browser
from tests.server.world import Client, World, made
from tests.wording import worded

WEEK = 7 * 86_400
NOW = 1_800_000_000 // WEEK * WEEK
SCHEMA = {"version": 1, "tables": {"t": {"person": "who", "rows": 1, "columns": {"x": {"kind": "integer"}}}}}
WEEKLY = {"epsilon": 0.5, "per": "week", "periods": 4}
RISK = str(Renewal(Budget.pure(epsilon=0.5), per="week", periods=4))
OLGA = Person("olga", Role.OWNER)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    found = {"now": float(NOW)}
    monkeypatch.setattr(store, "clock", lambda: found["now"])
    return found


@pytest.fixture
def there(tmp_path: Path, clock: dict[str, float]) -> Any:
    for name in ("t", "u"):
        rows = [f"{name}{i},{i % 3}" for i in range(200)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["who,x", *rows]))
    world = made(tmp_path)
    world.client.__enter__()
    yield world
    world.client.__exit__()


def register(world: World, name: str = "weekly", source: str = "t.csv", **more: Any) -> Any:
    body = {"name": name, "sources": {"t": source}, "schema": SCHEMA, "budget": WEEKLY} | more
    return world.call("olga", "POST", "/v1/datasets", body)


def ask(world: World, epsilon: float, at: int = 0) -> Any:
    sql = f"SELECT COUNT(*) AS n FROM t WHERE x <> {at}"
    return world.call("olga", "POST", "/v1/questions", {"dataset": "weekly", "sql": sql, "epsilon": epsilon})


@pytest.mark.slow
def test_each_week_has_its_limit_and_the_life_has_all_weeks(there: World, clock: dict[str, float]) -> None:
    told = register(there).json()
    assert told["renewal"]["risk"] == RISK
    assert told["renewal"]["left"] == "epsilon 0.5, delta 0"
    assert told["left"] == "epsilon 0.5, delta 0"  # of the week, which is less than that of the life
    assert told["limit"] == "epsilon 2"
    for week in range(5):
        clock["now"] = NOW + week * WEEK
        assert ask(there, 0.3, 10 * week).status_code == (200 if week < 4 else 402)
        refused = ask(there, 0.3, 10 * week + 1)
        assert refused.status_code == 402
        assert ("in this window of 604,800 s" in refused.text) is (week < 3)  # then the life has too little left, too
        assert ask(there, 0.2, 10 * week + 2).status_code == (200 if week < 4 else 402)
        if week == 1:  # restart: the ledger is opened again with what the catalogue has
            there.client.__exit__()
            there.curator = Curator(there.curator.settings)
            there.client = Client(served(there.curator)).__enter__()
    session = there.curator.open(OLGA, "weekly").session
    assert session.ledger.renewal == Renewal(Budget.pure(epsilon=0.5), per="week", periods=4)
    session.ledger.verify()


@pytest.mark.slow
def test_the_risk_is_shown_in_the_console_by_the_client_and_in_the_statement(
    there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert register(there).status_code in {200, 201}
    browser = Browser(there, "olga")
    for place in ("/console/data/weekly", "/console/data/weekly/share"):
        page = browser.get(place).text
        assert "The budget renews each week; of this week ε 0.5" in page
        assert RISK.replace("'", "&#39;") in page
    form = {"file": "u.csv", "name": "u", "table": "u", "person": "who", "rows": "1", "step": "7", "delta": "1e-6"}
    form |= {"kind.0": "text", "kind.1": "text", "per": "year", "periods": "10"}
    yearly = Renewal(Budget(epsilon=1, delta=1e-6), per="year", periods=10)
    part = browser.post("/console/odds", **form).text
    assert str(yearly) in part
    assert "What can be asked in one year" in part
    for wrong in ("0", "", "x", "100001"):
        again = browser.post("/console/add", **{**form, "periods": wrong})
        assert again.status_code == 422
        assert 'name="table" value="u"' in again.text  # what was typed is still there
    assert browser.post("/console/add", **form).status_code == 303
    assert there.curator.open(OLGA, "u").session.ledger.renewal == yearly
    about = there.call("olga", "GET", "/v1/datasets/weekly").json()
    statement = privacy_statement.of_description(about, there.curator.open(OLGA, "weekly").session.guarantee, {}, None)
    assert f"The budget renews: {RISK}" in " ".join(statement.text().split())
    local = there.curator.open(OLGA, "weekly").session.statement()
    assert f"The budget renews: {RISK}" in " ".join(local.text().split())


@pytest.mark.slow
def test_a_second_name_keeps_the_renewal_and_no_other_is_accepted(there: World) -> None:
    for wrong in ({"per": "week"}, {"periods": 3}, {"per": "hour", "periods": 3}, {"per": "week", "periods": 0}):
        assert register(there, budget={"epsilon": 0.5, **wrong}).status_code == 422
    assert register(there, budget={"epsilon": 0.5, "delta": 0.3, "per": "day", "periods": 9}).status_code == 422
    assert register(there).status_code in {200, 201}
    assert register(there, "again", budget={**WEEKLY, "periods": 5}).status_code == 409
    assert register(there, "again", budget={"epsilon": 2.0}).status_code == 409  # the life's budget is not the renewal
    told = register(there, "again")
    assert told.json()["renewal"]["risk"] == RISK
    owner = there.curator.open(OLGA, "again").session.ledger
    assert owner.renewal == there.curator.open(OLGA, "weekly").session.ledger.renewal


def test_the_operators_ceiling_is_for_the_life() -> None:
    from deniable.server.datasets.open_datasets import check_ceiling, new_budget_of, whole_of
    from deniable.server.operations.settings import Settings

    settings = Settings(state=Path("nowhere"), ceiling={"epsilon": 1.0, "delta": 1e-6})
    body = NewBudget(epsilon=0.5, per="week", periods=4)
    whole = whole_of(new_budget_of(body))
    assert whole == Budget.pure(epsilon=2)
    with worded(dn.errors.InvalidParameter, parameter="budget"):
        check_ceiling(settings, whole, whole.limit)
