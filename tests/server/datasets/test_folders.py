"""Whose files are whose, how large a budget may be, and that no address of a database is told with its password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deniable as dn
from deniable.errors import DeniableError, InvalidParameter, UnreadableRecord
from deniable.ledger import Budget
from deniable.server.catalogue.catalogue import Catalogue
from deniable.server.operations.settings import Settings
from deniable.server.roles import Role
from tests.queries.hospital import visits
from tests.server.browsing import Browser
from tests.server.world import SCHEMA, World, made
from tests.wording import worded

SMALL = {"epsilon": 1.0, "delta": 1e-6}


def register(world: World, who: str, name: str, source: str, budget: dict[str, float] | None = None) -> Any:
    body = {"name": name, "sources": {"visits": source}, "schema": SCHEMA, "budget": budget or SMALL}
    return world.call(who, "POST", "/v1/datasets", body)


def people(first: int) -> Any:
    """Other people than those of the usual table."""
    found = visits(60, 100)
    found["patient_id"] = found["patient_id"].astype(str) + f" of {first}"
    found["age"] = (found["age"] * 7 + first) % 90
    return found


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two owners with a folder each."""
    folder = tmp_path_factory.mktemp("apart")
    for n, name in enumerate(("olga", "otto")):
        (folder / name).mkdir()
        people(n).to_csv(folder / name / f"{name}s.csv", index=False)
    visits().to_csv(folder / "olga" / "visits.csv", index=False)
    there = made(folder, owners={"olga": (folder / "olga",), "otto": (folder / "otto",)})
    there.newcomer("otto", Role.OWNER)
    with there.client:
        yield there


@pytest.mark.parametrize("source", ["olgas.csv", "olga/olgas.csv", "../olga/olgas.csv", "ABSOLUTE"])
def test_an_owner_cannot_register_a_file_of_another_owners_folder(source: str, apart: World) -> None:
    """They could have been first, and the rightful owner would have been locked out."""
    named = str(apart.folder / "olga" / "olgas.csv") if source == "ABSOLUTE" else source
    refused = register(apart, "otto", "stolen", named)
    assert (refused.status_code, refused.json()["parameter"]) == (422, "sources")
    assert "data folders" in refused.json()["detail"]
    assert register(apart, "otto", "stolen", "nothing.csv").json() == refused.json()  # whether it exists is not told


def test_each_owner_registers_and_sees_their_own_files(apart: World) -> None:
    assert register(apart, "otto", "ottos", "ottos.csv").status_code == 201
    assert register(apart, "olga", "olgas", "olgas.csv").status_code == 201
    listed = Browser(apart, "otto").get("/console/add").text
    assert "ottos.csv" in listed
    assert "olgas.csv" not in listed
    assert Browser(apart, "otto").get("/console/add?file=olgas.csv").status_code == 422


def test_an_owner_without_a_folder_hears_what_to_do(apart: World) -> None:
    apart.newcomer("oona", Role.OWNER)
    refused = register(apart, "oona", "none", "x.csv").json()
    assert "must be in a data folder of yours" in refused["detail"]
    assert "[owners]" in refused["detail"]


@pytest.mark.slow
def test_folders_of_nobody_are_for_the_only_owner(tmp_path: Path) -> None:
    """`data` alone: as soon as there are two owners, somebody must say whose files are whose."""
    there = made(tmp_path, shared=False)
    people(1).to_csv(tmp_path / "more.csv", index=False)
    people(2).to_csv(tmp_path / "last.csv", index=False)
    with there.client:
        assert register(there, "olga", "more", "more.csv").status_code == 201
        there.newcomer("otto", Role.OWNER)
        for who in ("otto", "olga"):
            refused = register(there, who, "last", "last.csv")
            assert refused.status_code == 422
            assert "the server has several owners, and its settings name no folder for each" in refused.json()["detail"]
        assert there.call("olga", "GET", "/v1/datasets/more").status_code == 200  # what is there stays
        there.call("adam", "DELETE", "/v1/people/otto")
        assert register(there, "olga", "last", "last.csv").status_code == 422  # the operator alone says whose they are


def test_an_admin_who_closes_the_only_owner_gives_the_files_to_nobody(tmp_path: Path) -> None:
    there = made(tmp_path, shared=False)
    people(1).to_csv(tmp_path / "next.csv", index=False)
    with there.client:
        there.newcomer("mallory", Role.OWNER)
        assert there.call("adam", "DELETE", "/v1/people/olga").status_code in (200, 204)
        refused = register(there, "mallory", "next", "next.csv", {"epsilon": 1e6, "delta": 1e-6})
        assert (refused.status_code, refused.json()["parameter"]) == (422, "sources")


def test_folders_of_owners_in_a_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('state = "state"\n[owners]\nolga = ["a", "b"]\n"otto smith" = ["c"]\n')
    found = Settings.read(file)
    assert found.owners == {"olga": (tmp_path / "a", tmp_path / "b"), "otto smith": (tmp_path / "c",)}
    assert found.data == ()
    for wrong, match in (
        ('state = "s"\n', "needs the entry 'data', or"),
        ('state = "s"\ndata = ["x"]\n[owners]\nolga = ["y"]\n', "must not be given together with data"),
        ('state = "s"\n[owners]\nolga = "y"\n', "owners must be"),
        ('state = "s"\nowners = ["y"]\n', "owners must be"),
        ('state = "s"\n[owners]\nolga = ["y"]\notto = ["y"]\n', "overlap"),
        ('state = "s"\n[owners]\nolga = ["y"]\notto = ["y/z"]\n', "overlap"),
        ('state = "s"\n[owners]\nolga = ["y"]\n"*" = ["."]\n', "overlap"),
        (
            'state = "s"\n[owners]\n"Ol ga " = ["y"]\n',
            "must be the name of a person, and must not begin or end with a space",
        ),
        ('state = "s"\n[owners]\n"ölga" = ["y"]\n', "must be the name of a person, and must begin with a letter"),
        ('state = "s"\n[owners]\nolga = ["y"]\nOlga = ["z"]\n', "'Olga': must not look like 'olga', another owner"),
        (
            'state = "y"\ndata = ["y"]\n',
            "must not lie in a folder of data .* where owners may write; choose another folder",
        ),
        ('state = "y/s"\ndata = ["x", "y"]\n', "choose another folder"),
        ('state = "y/s/t"\n[owners]\nolga = ["y/s"]\n', "choose another folder"),
        ('state = "s"\ndata = ["."]\n', "choose another folder"),
    ):
        file.write_text(wrong)
        with pytest.raises((UnreadableRecord, InvalidParameter), match=match):
            Settings.read(file)
    file.write_text('state = "."\ndata = ["y"]\n')  # only the operator writes there
    assert Settings.read(file).data == (tmp_path / "y",)


# -- ceilings ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def capped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    there = made(tmp_path_factory.mktemp("capped"), budget=SMALL, ceiling={"epsilon": 2.0, "delta": 1e-6})
    for n in range(8):
        people(n).to_csv(there.folder / f"p{n}.csv", index=False)
    with there.client:
        yield there


FITS = ({"epsilon": 2.0, "delta": 1e-6}, {"epsilon": 2.0}, {"mu": 0.3}, {"rho": 0.01})
TOO_MUCH = (
    {"epsilon": 2.001, "delta": 1e-6}, {"epsilon": 2.0, "delta": 1.1e-6}, {"epsilon": 1000.0}, {"mu": 1.0},
    {"rho": 1.0}, {"mu": 0.1, "delta": 1e-5},
)  # fmt: skip


@pytest.mark.slow
def test_a_budget_above_the_operators_ceiling_is_refused(capped: World) -> None:
    for budget in TOO_MUCH:
        told = register(capped, "olga", "much", "p0.csv", budget)
        assert (told.status_code, told.json()["parameter"]) == (422, "budget")
        assert "at most epsilon 2 at delta 1e-06" in told.json()["detail"]
    for n, budget in enumerate(FITS):
        assert register(capped, "olga", f"b{n}", f"p{n}.csv", budget).status_code == 201


def test_a_limit_is_not_raised_above_the_ceiling_either(capped: World) -> None:
    place = "/v1/datasets/visits/adjustments"
    assert capped.call("olga", "POST", place, {"budget": {"epsilon": 2.0}, "reason": "x"}).status_code == 201
    refused = capped.call("olga", "POST", place, {"budget": {"epsilon": 2.1}, "reason": "x"})
    assert (refused.status_code, refused.json()["parameter"]) == (422, "budget")
    assert "epsilon 2" in capped.call("olga", "GET", "/v1/datasets/visits").json()["limit"]


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.3, 1e-9), (7.7, 1e-5), (1e-3, 1e-12)])
def test_a_budget_is_within_itself_and_within_nothing_smaller(epsilon: float, delta: float) -> None:
    budget = Budget(epsilon=epsilon, delta=delta)
    assert budget.within(budget.limit, epsilon=epsilon, delta=delta)
    assert not budget.within(budget.limit, epsilon=0.99 * epsilon, delta=delta)
    assert not budget.within(budget.limit, epsilon=epsilon, delta=0.89 * delta)
    pure = Budget.pure(epsilon=epsilon)
    assert pure.within(pure.limit, epsilon=epsilon, delta=0)
    assert not pure.within(pure.limit, epsilon=0.99 * epsilon, delta=0)


@pytest.mark.parametrize("ceiling", [{"epsilon": 1.0}, {"epsilon": -1.0, "delta": 0.1}, {"epsilon": 1, "delta": 2}, 3])
def test_a_ceiling_has_both_numbers(ceiling: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="ceiling"):
        Settings(state=tmp_path, data=(tmp_path,), ceiling=ceiling)


# -- addresses with passwords ------------------------------------------------------------------------------------------

ADDRESS = "postgresql://curator:hunter2@db.example.org/curator"


@pytest.mark.parametrize("source", [ADDRESS, f"{ADDRESS}?sslmode=require", "host=db password=hunter2 user=curator"])
def test_an_address_given_as_a_source_is_not_told_with_its_password(source: str, world: World) -> None:
    told = register(world, "olga", "db", source)
    assert told.status_code == 422
    assert "hunter2" not in told.text
    page = Browser(world, "olga").get(f"/console/add?file={source.replace('?', '%3F').replace('&', '%26')}")
    assert page.status_code == 422
    assert "hunter2" not in page.text
    with pytest.raises(DeniableError) as caught:
        dn.session(source, unit=dn.Unit.person("x", rows=1), budget=dn.Budget(epsilon=1, delta=1e-6))
    assert "hunter2" not in f"{caught.value} {caught.value!r} {vars(caught.value)}"


def test_settings_do_not_show_the_password_of_the_database(tmp_path: Path) -> None:
    settings = Settings(state=tmp_path, data=(tmp_path,), database=ADDRESS)
    assert "hunter2" not in f"{settings} {settings!r}"
    assert "db.example.org" in repr(settings)


@pytest.mark.parametrize("address", ["curator:hunter2@db:port/curator", "curator:hunter2@[::db/curator"])
def test_an_address_that_cannot_be_read_ended_in_a_traceback(address: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="database") as caught:
        Catalogue(f"postgresql://{address}")
    assert "hunter2" not in f"{caught.value} {caught.value!r} {vars(caught.value)}"
    assert caught.value.__cause__ is None


def test_settings_that_are_not_toml_are_told_by_their_line_alone(tmp_path: Path) -> None:
    """The line was missing, and a number of thousands of digits ended in a ValueError of Python."""
    file = tmp_path / "server.toml"
    for second in ('database = "postgresql://me:secret@db/x', "port = " + "9" * 5000):
        file.write_text(f'state = "state"\n{second}\n', encoding="utf-8")
        with worded(UnreadableRecord) as told:
            Settings.read(file)
        assert "secret" not in str(told.value)
    file.write_text('state = "state"\ndata = \n', encoding="utf-8")
    with worded(UnreadableRecord):
        Settings.read(file)
