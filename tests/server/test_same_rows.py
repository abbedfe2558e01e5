"""Tables whose rows are people: the same rows with a column more or less are asked about, unrelated ones are not."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deniable.server.datasets import row_profiles
from deniable.server.datasets.data_marks import marks_of
from deniable.server.datasets.row_profiles import CHANCE, SURELY, Profile, ProfileHistory, Profiling
from deniable.server.roles import Role
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table
from deniable.units import Unit
from tests.server.world import BUDGET, PEOPLE, World, made

KEY = bytes(range(32))
SHARES = [0.35, 0.25, 0.2, 0.15, 0.05]


def survey(seed: int, rows: int = 1000, questions: int = 4) -> pd.DataFrame:
    """A few questions with five answers each, and an age: most people are like others."""
    chance = np.random.default_rng(seed)
    found = {
        f"q{i}": chance.choice(["no", "rather no", "?", "rather yes", "yes"], rows, p=SHARES) for i in range(questions)
    }
    return pd.DataFrame({**found, "age": np.clip(chance.normal(45, 15, rows), 18, 90).astype(int)})


def payroll(seed: int, rows: int = 400) -> pd.DataFrame:
    """Wages, which nearly tell people apart."""
    chance = np.random.default_rng(seed)
    return pd.DataFrame({
        "wage": chance.normal(3000, 600, rows).round(2), "team": chance.choice(list("ABCDEF"), rows),
        "years": chance.integers(0, 40, rows), "full": chance.choice(["yes", "no"], rows),
    })  # fmt: skip


def changed(how: str, table: pd.DataFrame) -> pd.DataFrame:
    chance = np.random.default_rng(99)
    first = table.columns[0]
    return {
        "a constant column": lambda: table.assign(site="north"),
        "row numbers": lambda: table.assign(number=range(1, len(table) + 1)),
        "random numbers": lambda: table.assign(noise=chance.random(len(table))),
        "few random numbers": lambda: table.assign(noise=chance.integers(0, 10, len(table))),
        "a column dropped": lambda: table.drop(columns=first),
        "a column renamed": lambda: table.rename(columns={first: "other"}).assign(site="north"),
        "in another order": lambda: table[table.columns[::-1]].sample(frac=1, random_state=3).assign(site="north"),
        "some rows missing": lambda: table.sample(frac=0.95, random_state=4).assign(site="north"),
    }[how]()


LINKED = ["a constant column", "a column renamed", "in another order", "some rows missing"]
ASKED = ["row numbers", "random numbers", "few random numbers", "a column dropped"]


def schema_of(table: pd.DataFrame, called: str) -> dict[str, Any]:
    kinds = {"O": "text", "i": "integer", "f": "real"}
    columns = {name: {"kind": kinds.get(table[name].dtype.kind, "text")} for name in table.columns}
    return {"version": 1, "tables": {called: {"neighbours": "add/remove", "columns": columns}}}


def register(
    world: World, name: str, table: pd.DataFrame, who: str = "olga", called: str = "people", **more: Any
) -> Any:
    table.to_csv(world.folder / f"{name}.csv", index=False)
    schema = schema_of(table, called)
    body = {"name": name, "sources": {called: f"{name}.csv"}, "schema": schema, "budget": BUDGET, **more}
    return world.call(who, "POST", "/v1/datasets", body)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    there = made(tmp_path_factory.mktemp("rows"))
    there.newcomer("otto", Role.OWNER)
    with there.client:
        for name, table in (("survey", survey(1)), ("payroll", payroll(1))):
            told = register(there, name, table)
            assert (told.status_code, told.json()["linked"]) == (201, False), told.text
        yield there


@pytest.mark.parametrize("how", ASKED)
@pytest.mark.parametrize("what", ["survey", "payroll"])
def test_the_same_rows_with_a_column_more_or_less_had_a_fresh_budget(what: str, how: str, world: World) -> None:
    told = register(world, "again", changed(how, {"survey": survey, "payroll": payroll}[what](1)))
    assert (told.status_code, told.json()["code"]) == (409, "same_people"), told.text
    assert (told.json()["datasets"], told.json()["by"]) == ([what], "rows")
    assert "ids" not in told.json()["detail"]


@pytest.mark.parametrize("how", LINKED)
@pytest.mark.parametrize("what", ["survey", "payroll"])
def test_the_same_rows_with_a_constant_column_had_a_fresh_budget(what: str, how: str, world: World) -> None:
    told = register(world, "again", changed(how, {"survey": survey, "payroll": payroll}[what](1)))
    assert (told.status_code, told.json()["parameter"]) == (422, "sources"), told.text
    assert "is already the name of other data" in told.json()["detail"]


def test_unrelated_surveys_of_the_same_few_categories_were_linked(world: World) -> None:
    """Each combination of answers is given by somebody in both."""
    few = ["q0", "q1", "q2"]
    for seed, what in ((50, survey(50)), (51, survey(51)[few]), (52, survey(52)[few]), (53, payroll(53))):
        told = register(world, f"other {seed}", what)
        assert (told.status_code, told.json().get("linked")) == (201, False), told.text


@pytest.mark.slow
def test_what_the_owner_says_of_rows_like_those_is_signed(world: World) -> None:
    table = survey(7)
    assert register(world, "first", table).status_code == 201
    table = table.assign(noise=np.random.default_rng(8).random(len(table)))
    told = register(world, "second", table, people="others", reason="a simulation with the same seed")
    assert (told.status_code, told.json()["linked"]) == (201, False), told.text
    for name in ("first", "second"):
        history = world.call("olga", "GET", f"/v1/ledger/{name}").text
        assert "are not those of 'first'" in history
    fewer = survey(7).drop(columns="q0")
    same = register(world, "third", fewer, called="extended", people="same", family="first", budget=None)
    assert (same.status_code, same.json()["linked"]) == (201, True), same.text


def test_rows_like_those_of_another_owner_are_told_to_auditors_alone(world: World) -> None:
    told = register(world, "theirs", payroll(1).assign(number=range(400)), "otto")
    assert told.status_code == 201, told.text
    seen = world.call(PEOPLE[Role.AUDITOR], "GET", "/v1/overlaps")
    assert ("theirs", "payroll") in {(each["dataset"], each["other"]) for each in seen.json()["overlaps"]}


def wages(seed: int, ids: int, rows: int = 6000) -> pd.DataFrame:
    """A payroll with ids, which were drawn by themselves."""
    drawn = np.random.default_rng(ids).permutation(10**6)[:rows] + 10**6
    return payroll(seed, rows).assign(number=drawn)


def numbered(world: World, name: str, table: pd.DataFrame) -> Any:
    table.to_csv(world.folder / f"{name}.csv", index=False)
    schema = schema_of(table.drop(columns="number"), "paid")
    del schema["tables"]["paid"]["neighbours"]
    schema["tables"]["paid"] |= {"person": "number", "rows": 1}
    body = {"name": name, "sources": {"paid": f"{name}.csv"}, "schema": schema, "budget": BUDGET}
    return world.call("olga", "POST", "/v1/datasets", body)


def test_the_same_rows_under_new_ids_had_a_fresh_budget(world: World) -> None:
    """As an extract has whose pseudonyms are drawn anew each time: whole, or in part."""
    assert numbered(world, "wages", wages(20, 1)).status_code == 201
    for part in (1, 0.5):
        told = numbered(world, "again", wages(20, 2).sample(frac=part, random_state=3))
        assert (told.status_code, told.json().get("code")) == (409, "same_people"), (part, told.text)
        assert (told.json()["datasets"], told.json()["by"]) == (["wages"], "rows")


def test_other_people_of_one_design_under_other_ids_are_not_asked_about(world: World) -> None:
    """Everybody comes in the same weeks, with one of few results: such rows come often, in whichever study."""
    chance = np.random.default_rng(30)
    for name in ("a study", "another study"):
        weeks = pd.DataFrame(
            {"week": np.tile(np.arange(50), 40), "number": np.repeat(chance.integers(10**9, size=40), 50)}
        )
        assert numbered(world, name, weeks).status_code == 201
    assert numbered(world, "other wages", wages(21, 4)).status_code == 201


# -- the profile itself ------------------------------------------------------------------------------------------------


def profile(table: pd.DataFrame) -> Profile:
    made = Profiling(KEY, has_ids=False)
    for row in table.astype(str).itertuples(index=False):
        made.add(row, blake2b("\0".join(sorted(row)).encode(), digest_size=16).digest())
    return Profile.read(made.profile().text)


@pytest.mark.slow
def test_the_profiles_of_all_versions_are_kept_and_those_of_nearly_equal_versions_once() -> None:
    def version(first: int, last: int) -> Profile:
        return profile(pd.DataFrame({"n": range(first, last), "m": [each % 97 for each in range(first, last)]}))

    many = [version(0, 2000 + 10 * night) for night in range(60)]  # half a percent more each night
    history = ProfileHistory.read(many[0].text)  # as it was stored before there were histories
    for each in many[1:]:
        history = ProfileHistory.read(history.with_newer(each).text)
    assert sum(bool(each.groups) for each in history.profiles) <= 5  # log(1.3) / log(8/7), the first and the last
    assert {each.whole for each in history.profiles} == {each.whole for each in many}
    turned = history.with_newer(version(50_000, 50_200)).with_newer(version(60_000, 60_200))
    for each in many:
        copy = replace(each, whole=None)  # with one cell changed
        assert any(copy.is_same(known) for known in turned.profiles)
    assert turned.with_newer(Profile(0)) is turned


@pytest.mark.slow
def test_the_evidence_of_unrelated_tables_is_one_at_most_on_average() -> None:
    """As e-values are. All 200 pairs together reach 1/CHANCE with a chance of 2e-4 at most."""
    pairs = [(survey(2 * i, 200), survey(2 * i + 1, 300)) for i in range(100)]
    pairs += [(payroll(2 * i, 100), payroll(2 * i + 1, 100)) for i in range(100)]
    for kinds, least in (({"whole"}, SURELY), ({"row", "one", "two"}, CHANCE)):
        found = [profile(one)._evidence(profile(other), kinds) for one, other in pairs]
        assert np.mean(found) < 1.5
        assert max(found) < 1 / least


@pytest.mark.parametrize("share", [0.2, 1 / 3, 0.5, 0.9])
@pytest.mark.parametrize("many", [1, 2, 7, 64, 65, 400])
def test_the_narrow_law_is_a_law(many: int, share: float) -> None:
    """Σ P(b) · Q(b)/P(b) = 1; where it is approximated, less than 2 % more."""
    for narrow in (0.0, 0.1, 0.4):
        logs = [
            row_profiles._binomial(b, many, share) + row_profiles._ratio(many - b, b, share, narrow)
            for b in range(many + 1)
        ]
        total = sum(np.exp(each) for each in logs)
        assert log(total) == pytest.approx(0, abs=1e-9 if many <= 64 or not narrow else 0.02)


def test_a_profile_of_many_rows_stays_small_whatever_their_order() -> None:
    rows = pd.DataFrame({"wage": np.random.default_rng(5).random(50_000), "team": ["A", "B"] * 25_000})
    one, other = profile(rows), profile(rows.iloc[::-1])
    assert len(one.text) < 20_000
    assert {frozenset(each.cells.items()) for each in one.groups} == {
        frozenset(each.cells.items()) for each in other.groups
    }


def test_rows_of_few_values_prove_nothing_by_being_there(tmp_path: Path) -> None:
    made = []
    for seed in (1, 2):
        table = survey(seed)[["q0", "q1", "q2"]]
        table.to_csv(tmp_path / f"{seed}.csv", index=False)
        columns = {name: Domain.text() for name in table.columns}
        made.append(marks_of(tmp_path / f"{seed}.csv", Table.of("people", Unit.row(), **columns), KEY))
    assert not made[1].related(made[1].sought & made[0].all)
    assert not made[1].profile.is_same(made[0].profile)
    assert made[1].profile.is_same(made[1].profile)
