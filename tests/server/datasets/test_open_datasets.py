"""Datasets: where they may come from, that known data keeps its budget, dummy rows, grants and adjustments."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import threading
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pytest

from deniable.server.catalogue.catalogue import Catalogue
from deniable.server.curator import Curator
from deniable.server.datasets.data_marks import marks_of
from deniable.server.datasets.dummy_rows import dummy_rows
from deniable.server.datasets.open_datasets import FOR_OTHERS
from deniable.server.operations.settings import Settings
from deniable.server.request_bodies import BudgetBody
from deniable.server.roles import Role
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table, read_schema
from deniable.units import Unit
from tests.queries.hospital import visits
from tests.server.world import BUDGET, SCHEMA, WARDS, World


def register(
    world: World, name: str, file: str, *, table: str = "visits", schema: str = SCHEMA, who: str = "olga", **more: Any
) -> Any:
    body = {"name": name, "sources": {table: file}, "schema": schema.replace("visits:", f"{table}:"), **more}
    return world.call(who, "POST", "/v1/datasets", body)


def others(seed: int, people: int = 300, *, same_numbers: bool = False) -> pd.DataFrame:
    """Other people: nobody and nothing of the hospital; the same numbers as ids, if that is wanted."""
    table = visits(people, 900).sample(frac=1, random_state=seed).reset_index(drop=True)
    table["patient_id"] = [each if same_numbers else f"{seed}-{each}" for each in range(len(table))]
    table["age"] = (table["age"] * 7 + seed) % 101
    table["cost"] = (table["cost"] * 13 + seed) % 2000
    table["stay"] = (table["stay"].fillna(0) * 5 + seed) % 60
    table["town"] = [f"town {seed} {i % 50}" for i in range(len(table))]
    return table


# -- where data may come from ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "", ".", "..", "../secret.csv", "/etc/passwd", "sub/../../secret.csv", "file:///etc/passwd", "http://example.org/x.csv",
        "s3://bucket/x.csv", "visits*.csv", "visit?.csv", "{visits}.csv", "visits.csv\x00", "link.csv", "linked/secret.csv", "state",
        "nothing.csv", "state/catalogue.sqlite", "notes.txt", "\\\\host\\share\\x.csv", "visits.csv\n",
    ],
)  # fmt: skip
def test_only_files_in_the_data_folders_can_be_named(source: str, world: World, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    visits(20, 40).to_csv(secret, index=False)
    (world.folder / "notes.txt").write_text("x")
    for link, target in (("link.csv", secret), ("linked", tmp_path)):
        path = world.folder / link
        if path.is_symlink():
            path.unlink()
        os.symlink(target, path)
    answer = register(world, "stolen", source, budget=BUDGET)
    assert answer.status_code == 422
    assert str(tmp_path) not in answer.text
    if source:
        assert answer.json()["rule"] == "must be a CSV or Parquet file in one of your data folders on the server"


def test_a_schema_is_text_and_never_a_path(world: World) -> None:
    for text in ("/etc/passwd", "schema.yaml", "!!python/object/apply:os.system ['true']", "a: &a [*a]", "tables: 1"):
        answer = register(world, "stolen", "visits.csv", schema=text, budget=BUDGET)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
        assert "root" not in answer.text


@pytest.mark.parametrize(
    "budget", [None, {}, {"epsilon": 1, "mu": 1}, {"epsilon": 0}, {"epsilon": 1, "delta": 1}, {"delta": 1e-6}]
)
def test_a_new_dataset_needs_a_budget_that_means_something(budget: Any, world: World) -> None:
    others(3).to_csv(world.folder / "budgetless.csv", index=False)
    assert register(world, "budgetless", "budgetless.csv", budget=budget).status_code == 422


def test_a_failed_registration_leaves_nothing_behind(world: World) -> None:
    wardless = others(8).drop(columns="ward")
    wardless.to_csv(world.folder / "wardless.csv", index=False)
    assert register(world, "wardless", "wardless.csv", budget=BUDGET).status_code == 422
    assert "wardless" not in [each["name"] for each in world.call("olga", "GET", "/v1/datasets").json()["datasets"]]
    others(4).to_csv(world.folder / "warded.csv", index=False)
    answer = register(world, "wardless", "warded.csv", budget={"epsilon": 3.0, "delta": 1e-6})
    assert answer.status_code == 201, answer.text
    assert answer.json()["budget"]["epsilon"] == "3"


# -- what is public -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["olga", "otto"])
@pytest.mark.parametrize("how", ["the file", "a copy elsewhere", "as Parquet", "one row changed"])
def test_protected_people_were_declared_public(how: str, who: str, world: World) -> None:
    """Beside a table of a few others: their exact rows could be joined to, whatever was spent and whoever owns them."""
    if who == "otto":
        world.newcomer("otto", Role.OWNER)
    table, file = visits(), f"public {how}.csv"
    if how == "one row changed":
        table.loc[5, "age"] = 1 if table.loc[5, "age"] != 1 else 2
    if how == "as Parquet":
        file = "public.parquet"
        table.to_parquet(world.folder / file)
    else:
        table.to_csv(world.folder / file, index=False)
    columns = "".join(
        f"      {name}: {{kind: {kind}}}\n"
        for name, kind in [("patient_id", "integer"), ("ward", "text"), ("sex", "text"), ("age", "integer"),
                           ("stay", "integer"), ("cost", "real"), ("town", "text")]
    )  # fmt: skip
    (world.folder / "few.csv").write_text("who,x\n" + "".join(f"few {who} {i},{i}\n" for i in range(9)))
    schema = "version: 1\ntables:\n  few: {person: who, rows: 1, columns: {x: {kind: integer, low: 0, high: 9}}}\n"
    sources = {"few": "few.csv", "visits": "visits.csv" if how == "the file" else file}
    body = {
        "name": "public",
        "sources": sources,
        "schema": f"{schema}  visits:\n    public: true\n    columns:\n{columns}",
    }
    told = world.call(who, "POST", "/v1/datasets", body | {"budget": BUDGET})
    assert (told.status_code, told.json()["parameter"]) == (422, "schema"), told.text
    assert "declared public" in told.json()["rule"]


def test_a_public_list_of_known_people_is_another_table(world: World) -> None:
    names = visits()[["patient_id"]].drop_duplicates()
    names["doctor"] = [f"doctor {i % 9}" for i in range(len(names))]
    names.to_csv(world.folder / "doctors.csv", index=False)
    others(77).to_csv(world.folder / "treated.csv", index=False)
    schema = SCHEMA.replace("visits:", "treated:") + (
        "  doctors:\n    public: true\n    columns: {patient_id: {kind: integer}, doctor: {kind: text}}\n"
    )
    body = {"name": "treated", "sources": {"treated": "treated.csv", "doctors": "doctors.csv"}, "schema": schema}
    told = world.call("olga", "POST", "/v1/datasets", body | {"budget": BUDGET})
    assert told.status_code == 201, told.text


# -- families --------------------------------------------------------------------------------------------------------


def changed(how: str) -> tuple[pd.DataFrame, str]:
    """The hospital, changed a little, and the schema of that."""
    table, schema = visits(), SCHEMA
    if how == "one row changed":
        table.loc[5, "age"] = 1 if table.loc[5, "age"] != 1 else 2
    if how == "a person taken out":
        table = table[table["patient_id"] != table.loc[0, "patient_id"]]
    if how == "a renamed column":
        table, schema = table.rename(columns={"cost": "price"}), schema.replace("cost:", "price:")
    if how == "fewer columns":
        table = table[["patient_id", "ward", "cost"]]
        schema = (
            "\n".join(
                line
                for line in schema.splitlines()
                if not any(f"      {c}:" in line for c in ("sex", "age", "stay", "town"))
            )
            + "\n"
        )
    if how == "half of the people":
        table = table[table["patient_id"] < 300]
    if how == "other order":
        table = table.sample(frac=1, random_state=1)
    return table, schema


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        "the same file",
        "one row changed",
        "a person taken out",
        "a renamed column",
        "fewer columns",
        "half of the people",
        "other order",
    ],
)
def test_known_data_goes_on_spending_from_its_budget(how: str, world: World) -> None:
    world.ask(epsilon=0.5)
    table, schema = changed(how)
    name = "again " + how
    called = how.replace(" ", "_")
    file = f"{called}.csv"
    table.to_csv(world.folder / file, index=False)
    fresh = register(world, name, file, table=called, schema=schema, budget={"epsilon": 7.0, "delta": 1e-6})
    assert (fresh.status_code, fresh.json()["code"]) == (409, "ledger_mismatch")
    linked = register(world, name, file, table=called, schema=schema)
    assert linked.status_code == 201, linked.text
    assert linked.json()["linked"] is True
    assert linked.json()["warning"]
    assert linked.json()["spent"] == world.call("olga", "GET", "/v1/datasets/visits").json()["spent"]
    charged = world.ledger.charged
    body = {"dataset": name, "sql": f"SELECT COUNT(*) AS n FROM {called}", "epsilon": 0.25}
    assert world.call("olga", "POST", "/v1/questions", body).status_code == 200
    assert world.ledger.charged == charged + world.ledger.budget.cost(epsilon=0.25)
    assert name in world.ledger.names


def test_known_data_in_another_format_is_still_known(world: World) -> None:
    visits().to_parquet(world.folder / "visits.parquet")
    assert register(world, "parquet", "visits.parquet", table="in_parquet").json()["linked"] is True


def test_other_data_of_a_family_needs_another_name_of_its_table(world: World) -> None:
    table, _ = changed("one row changed")
    table.to_csv(world.folder / "newer.csv", index=False)
    answer = register(world, "newer", "newer.csv")
    assert (answer.status_code, answer.json()["parameter"]) == (422, "sources")


@pytest.mark.parametrize("seed", [1, 2])
def test_other_people_with_the_same_numbers_are_new(seed: int, world: World) -> None:
    others(seed, same_numbers=True).to_csv(world.folder / f"others{seed}.csv", index=False)
    asked = register(world, f"others {seed}", f"others{seed}.csv", budget=BUDGET)
    assert (asked.status_code, asked.json()["code"]) == (409, "same_people")
    said = {"people": "others", "reason": "another hospital"}
    answer = register(world, f"others {seed}", f"others{seed}.csv", budget=BUDGET, **said)
    assert answer.status_code == 201, answer.text
    assert answer.json()["linked"] is False


NARROW = """\
version: 1
tables:
  TABLE:
    person: patient_id
    rows: 1
    columns:
      ward: {kind: text, keys: [A, B, C], nullable: false}
"""


def narrow(world: World, name: str, rows: list[tuple[int, str]], *, budget: Any = None) -> Any:
    """A dataset of people and wards alone."""
    lines = ["patient_id,ward", *(f"{name[:7]}-{person},{ward}" for person, ward in rows)]
    (world.folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return register(
        world,
        name,
        f"{name}.csv",
        table=name,
        schema=NARROW.replace("TABLE", name),
        **({} if budget is None else {"budget": budget}),
    )


def drawn(seed: int, *, people: int = 300, wards: str = "ABC") -> list[tuple[int, str]]:
    random = Random(seed)
    return [(person, random.choice(wards)) for person in range(1, people + 1)]


@pytest.mark.parametrize("wards", ["ABC", "AAAAB"])
def test_people_are_known_by_all_their_cells_where_columns_have_few_values(wards: str, world: World) -> None:
    called = f"narrow{len(wards)}"
    first = drawn(len(wards), wards=wards)
    assert narrow(world, called, first, budget=BUDGET).json()["linked"] is False
    one_more = [*first, (999, "A")]
    fresh = narrow(world, f"{called}_more", one_more, budget={"epsilon": 7.0, "delta": 1e-6})
    assert (fresh.status_code, fresh.json()["code"]) == (409, "ledger_mismatch")
    assert narrow(world, f"{called}_more", one_more).json()["linked"] is True
    fewer = first[::-2] if wards == "ABC" else first[25:]  # the more alike people are, the more of them it takes
    assert narrow(world, f"{called}_fewer", fewer).json()["linked"] is True


# Everything is fixed: the tables by their seeds, and the key of the marks.
def test_unrelated_people_with_the_same_numbers_and_few_values_are_new(tmp_path: Path) -> None:
    tables = read_schema(NARROW.replace("TABLE", "t"))
    for wards in ("ABC", "AAAAB", "AB", "A"):
        families: list[set[str]] = []
        for seed in range(4):
            path = tmp_path / f"{wards}{seed}.csv"
            lines = [f"{person},{ward}" for person, ward in drawn(100 + seed, people=300 + seed, wards=wards)]
            path.write_text("\n".join(["patient_id,ward", *lines]) + "\n")
            found = marks_of(path, tables["t"], b"a key of thirty-two bytes: fixed")
            assert not any(found.related(known) for known in families)
            families.append(found.all)


def test_an_owner_may_say_that_data_is_kin(world: World) -> None:
    others(9).to_csv(world.folder / "kin.csv", index=False)
    assert register(world, "kin", "kin.csv", table="kin", family="nothing").status_code == 404
    assert register(world, "kin", "kin.csv", table="kin", family="visits").json()["linked"] is True


def test_a_file_that_changed_since_is_not_asked(world: World) -> None:
    others(5).to_csv(world.folder / "moving.csv", index=False)
    assert register(world, "moving", "moving.csv", budget=BUDGET).status_code == 201
    world.curator.datasets.forget("moving")
    others(6).to_csv(world.folder / "moving.csv", index=False)
    answer = world.call("olga", "POST", "/v1/questions", {"dataset": "moving", "sql": WARDS, "epsilon": 0.1})
    assert (answer.status_code, answer.json()["code"]) == (503, "dataset_unavailable")
    assert "a file changed since it was registered" in answer.json()["detail"]
    seen = world.call("ada", "GET", "/v1/datasets/moving").json()  # an auditor hears no reason, but whom to tell
    assert (seen["code"], seen["detail"]) == ("dataset_unavailable", FOR_OTHERS["dataset_unavailable"])


def test_a_file_that_changes_meanwhile_changes_no_answer(world: World) -> None:
    others(7).to_csv(world.folder / "copied.csv", index=False)
    assert register(world, "copied", "copied.csv", budget=BUDGET).status_code == 201
    (world.folder / "copied.csv").write_text("patient_id,ward\n1,A\n")
    body = {"dataset": "copied", "sql": "SELECT COUNT(*) AS n FROM visits", "epsilon": 50.0}
    answer = world.call("olga", "POST", "/v1/questions", body)
    # 900 rows were registered and 1 is there now; at ε = 50 and 3 rows a person σ is below 2.
    assert answer.json()["rows"][0][0] > 800


# -- dummy rows ------------------------------------------------------------------------------------------------------


def test_dummy_rows_come_from_the_schema_alone() -> None:
    tables = read_schema(SCHEMA)
    first = dummy_rows(tables)["visits"]
    assert first == dummy_rows(tables)["visits"]
    assert {row["ward"] for row in first} == {"A", "B", "C"}
    assert all(0 <= row["age"] <= 100 for row in first)
    assert {row["cost"] is None for row in first} == {True, False}
    assert not {row["town"] for row in first} & {"Ghent", "Lyon", "Turku", "Bilbao"}


def test_dummy_days_keep_to_their_bounds() -> None:
    tables = {
        "t": Table.of(
            "t",
            Unit.row(),
            day=Domain.date(dt.date(2024, 2, 1), dt.date(2024, 2, 3), nullable=False),
            at=Domain.timestamp(dt.datetime(2024, 2, 1, 12), dt.datetime(2024, 2, 1, 13), nullable=False),
            whenever=Domain.date(nullable=False),
        )
    }
    rows = dummy_rows(tables)["t"]
    assert {row["day"] for row in rows} == {dt.date(2024, 2, day) for day in (1, 2, 3)}
    assert all(dt.datetime(2024, 2, 1, 12) <= row["at"] <= dt.datetime(2024, 2, 1, 13) for row in rows)
    assert all(type(row["whenever"]) is dt.date for row in rows)


def test_trying_on_dummy_rows_is_free_and_reads_nothing(world: World) -> None:
    session = world.curator.open(owner(), "visits").session
    before, collect = list(world.ledger.entries()), session._engine.collect
    session._engine.collect = None
    try:
        answer = world.call("ana", "POST", "/v1/datasets/visits/dummy:ask", {"sql": WARDS, "epsilon": 50})
        again = world.call("ana", "POST", "/v1/datasets/visits/dummy:ask", {"sql": WARDS, "epsilon": 50})
        refused = world.call(
            "ana", "POST", "/v1/datasets/visits/dummy:ask", {"sql": "SELECT * FROM visits", "epsilon": 50}
        )
    finally:
        session._engine.collect = collect
    assert answer.json()["dummy"] is True
    assert again.status_code == 200
    assert refused.json()["code"] == "refused"
    # 1,000 rows, some beyond the 3 of a person; σ is below 2 at ε = 50, so both ends are tens of them away.
    assert 600 < sum(row[1] for row in answer.json()["rows"]) < 1100
    assert answer.json()["provenance"]["paid"] == "nothing"
    assert list(world.ledger.entries()) == before


def owner() -> Any:
    from deniable.server.catalogue.catalogue import Person

    return Person("olga", Role.OWNER)


# -- grants and adjustments ------------------------------------------------------------------------------------------


def test_an_analyst_spends_no_more_than_their_share(world: World) -> None:
    dora = world.newcomer("dora", Role.ANALYST)
    assert world.ask(who=dora, epsilon=0.1).status_code == 404
    body = {"analyst": dora, "limit": {"epsilon": 1.0}}
    assert world.call("olga", "POST", "/v1/datasets/visits/grants", body).status_code == 201
    assert world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 31", who=dora, epsilon=1.0).status_code == 200
    over = world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 32", who=dora, epsilon=0.01)
    assert (over.status_code, over.json()["code"]) == (402, "budget_exceeded")
    assert world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 32", epsilon=0.01).status_code == 200
    assert world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 31", who=dora, epsilon=0.5).json()["provenance"][
        "replayed"
    ]


def test_what_was_spent_stays_spent_when_a_grant_is_taken_and_given_again(world: World) -> None:
    emil, body = world.newcomer("emil", Role.ANALYST), {"analyst": "emil", "limit": {"epsilon": 1.0}}
    world.call("olga", "POST", "/v1/datasets/visits/grants", body)
    world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 33", who=emil, epsilon=1.0)
    assert world.call("olga", "DELETE", "/v1/datasets/visits/grants/emil").status_code == 204
    assert world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 33", who=emil, epsilon=0.5).status_code == 404
    world.call("adam", "DELETE", "/v1/people/emil")
    world.call("adam", "POST", "/v1/people", {"name": "emil", "role": "analyst"})
    world.newcomer("emil", Role.ANALYST)
    world.call("olga", "POST", "/v1/datasets/visits/grants", body)
    assert (
        world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 34", who=emil, epsilon=0.1).json()["code"]
        == "budget_exceeded"
    )


def test_a_window_limits_how_fast_and_the_lifetime_is_still_shown(world: World) -> None:
    fay = world.newcomer("fay", Role.ANALYST)
    body = {"analyst": fay, "limit": {"epsilon": 0.5}, "window_seconds": 10**9}
    assert (
        world.call("olga", "POST", "/v1/datasets/visits/grants", body).status_code == 422
    )  # longer than windows can be
    body["window_seconds"] = 86_400 * 365
    assert world.call("olga", "POST", "/v1/datasets/visits/grants", body).status_code == 201
    assert world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 35", who=fay, epsilon=0.5).status_code == 200
    assert (
        world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 36", who=fay, epsilon=0.1).json()["code"]
        == "budget_exceeded"
    )
    accounts = world.call("ada", "GET", "/v1/ledger/visits/accounts").json()["accounts"]
    mine = [each for each in accounts if each["name"] == fay]
    assert {each["window_seconds"] for each in mine} == {None, 86_400 * 365}
    assert all("0.5" in each["lifetime"] for each in mine)


def test_grants_go_to_analysts_only(world: World) -> None:
    for name in ("ada", "olga", "nobody"):
        assert world.call("olga", "POST", "/v1/datasets/visits/grants", {"analyst": name}).status_code == 404


def test_an_adjustment_is_a_signed_entry_that_everybody_sees(world: World) -> None:
    others(11).to_csv(world.folder / "adjusted.csv", index=False)
    register(world, "adjusted", "adjusted.csv", budget={"epsilon": 1.0, "delta": 1e-6})
    ask = {"dataset": "adjusted", "sql": WARDS, "epsilon": 1.0}
    assert world.call("olga", "POST", "/v1/questions", ask).status_code == 200
    more = {**ask, "sql": "SELECT COUNT(*) AS n FROM visits"}
    assert world.call("olga", "POST", "/v1/questions", more).json()["code"] == "budget_exceeded"
    spent = world.call("ada", "GET", "/v1/datasets/adjusted").json()["spent"]
    done = world.call(
        "olga", "POST", "/v1/datasets/adjusted/adjustments", {"budget": {"epsilon": 2.0}, "reason": "a new wave"}
    )
    assert done.status_code == 201
    after = world.call("ada", "GET", "/v1/datasets/adjusted").json()
    assert after["spent"] == spent
    assert after["limit"].startswith("epsilon 2")
    assert b"a new wave" in world.call("ada", "GET", "/v1/ledger/adjusted").content
    # The owner's own share is the whole budget, and follows it.
    assert world.call("olga", "POST", "/v1/questions", more).status_code == 200


@pytest.mark.slow
def test_two_processes_that_register_the_same_people_at_once_make_one_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others(5).to_csv(tmp_path / "new.csv", index=False)
    curators = [Curator(Settings(state=tmp_path / "state", data=(tmp_path,))) for _ in range(2)]  # one lock file
    owner = curators[0].catalogue.add_person("olga", Role.OWNER)
    both, marked = threading.Barrier(2), Catalogue.marked

    def slowly(catalogue: Catalogue, marks: set[str]) -> dict[str, set[str]]:
        found = marked(catalogue, marks)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(1.0)  # without a lock both are here now, and neither has seen the other
        return found

    monkeypatch.setattr(Catalogue, "marked", slowly)
    linked: list[bool] = []

    def work(curator: Curator, name: str) -> None:
        made = curator.register(owner, name, {"visits": "new.csv"}, SCHEMA, BudgetBody(**BUDGET))
        linked.append(made["linked"])

    threads = [threading.Thread(target=work, args=(each, f"name {at}")) for at, each in enumerate(curators)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(linked) == [False, True]
    assert len({each.family for each in curators[0].catalogue.datasets()}) == 1
    for each in curators:
        each.close()
