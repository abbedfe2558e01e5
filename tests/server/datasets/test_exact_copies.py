"""An exact copy of a table without ids is known, however it is written; of what may be chance the owner is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations, product
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deniable.server.datasets.data_marks import FORM, Marks, marks_of
from deniable.server.datasets.exact_copies import Wholes
from deniable.server.datasets.row_profiles import Profile
from deniable.server.roles import Role
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table
from deniable.units import Unit
from tests.server.test_same_rows import register, schema_of
from tests.server.world import BUDGET, World, made

KEY = bytes(range(32))
WAYS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "as parquet": lambda table: table,
    "reordered": lambda table: table.sample(frac=1, random_state=7),
    "renamed": lambda table: table.rename(columns={name: f"other {name}" for name in table.columns}),
    "columns in another order": lambda table: table[table.columns[::-1]],
    "columns renamed to each other": lambda table: table.set_axis([*table.columns[1:], table.columns[0]], axis=1),
    "all of it": lambda table: table[table.columns[::-1]].sample(frac=1, random_state=8).add_prefix("x"),
}


def answers(seed: int, rows: int, questions: int, yes: float = 0.4) -> pd.DataFrame:
    """Yes and no alone."""
    said = np.random.default_rng(seed).random((rows, questions)) < yes
    return pd.DataFrame(np.where(said, "yes", "no"), columns=[f"q{i}" for i in range(questions)])


def marks(table: pd.DataFrame, path: Path) -> Marks:
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path, index=False)
    columns = {name: Domain.text() for name in table.columns}
    return marks_of(path, Table.of("people", Unit.row(), **columns), KEY)


@pytest.mark.parametrize("rows", [50, 300, 2000, 5000])
@pytest.mark.parametrize("questions", [1, 2, 4, 8, 16])
def test_copies_of_tables_of_yes_and_no_had_fresh_budgets(questions: int, rows: int, tmp_path: Path) -> None:
    table = answers(rows + questions, rows, questions)
    old = Profile.read(marks(table, tmp_path / "old.csv").profile.text)
    for how, changed in WAYS.items():
        new = marks(changed(table), tmp_path / ("new.parquet" if how in {"as parquet", "all of it"} else "new.csv"))
        assert new.profile.is_alike(old), how
        if rows >= 300 and questions >= 4:
            assert new.profile.is_same(old), how


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    there = made(tmp_path_factory.mktemp("copies"))
    there.newcomer("otto", Role.OWNER)
    with there.client:
        for name, table in (("study", answers(1, 300, 5)), ("few", answers(2, 3, 2))):
            told = register(there, name, table)
            assert (told.status_code, told.json()["linked"]) == (201, False), told.text
        yield there


@pytest.mark.parametrize("how", WAYS)
def test_a_copy_goes_on_with_the_budget_of_its_rows(how: str, world: World) -> None:
    table = WAYS[how](answers(1, 300, 5))
    name = f"{how}.parquet" if how in {"as parquet", "all of it"} else f"{how}.csv"
    (table.to_parquet if name.endswith("parquet") else table.to_csv)(world.folder / name, index=False)
    body = {"name": how, "sources": {how: name}, "schema": schema_of(table, how)}
    told = world.call("olga", "POST", "/v1/datasets", body)
    assert (told.status_code, told.json().get("linked")) == (201, True), told.text
    theirs = world.call("otto", "POST", "/v1/datasets", body | {"name": f"{how} again", "budget": BUDGET})
    assert (theirs.status_code, theirs.json()["code"]) == (403, "forbidden"), theirs.text


def test_three_rows_that_may_be_chance_are_asked_about(world: World) -> None:
    told = register(world, "again", answers(2, 3, 2).iloc[::-1])
    assert (told.status_code, told.json().get("code")) == (409, "same_people"), told.text
    assert (told.json()["datasets"], told.json()["by"]) == (["few"], "rows")
    told = register(world, "again", answers(2, 3, 2).iloc[::-1], people="others", reason="three others")
    assert (told.status_code, told.json().get("linked")) == (201, False), told.text


def test_a_copy_was_declared_public(world: World) -> None:
    answers(1, 300, 5).iloc[::-1].to_csv(world.folder / "open.csv", index=False)
    answers(3, 40, 3).to_csv(world.folder / "closed.csv", index=False)
    schema = schema_of(answers(3, 40, 3), "closed")
    schema["tables"]["open"] = {
        "public": True,
        "columns": schema_of(answers(1, 300, 5), "open")["tables"]["open"]["columns"],
    }
    body = {"name": "both", "sources": {"open": "open.csv", "closed": "closed.csv"}, "schema": schema, "budget": BUDGET}
    told = world.call("otto", "POST", "/v1/datasets", body)
    assert (told.status_code, told.json().get("parameter")) == (422, "schema"), told.text


def test_other_people_with_the_same_questions_have_a_budget_of_their_own(world: World) -> None:
    for seed in range(10, 14):
        told = register(world, f"other {seed}", answers(seed, 300, 5))
        assert (told.status_code, told.json().get("linked")) == (201, False), told.text


# -- the hash itself ---------------------------------------------------------------------------------------------------


def whole(rows: list[tuple[str, ...]]) -> Any:
    made, ranks = Wholes(KEY), {"\0".join(sorted(row)): 0 for row in rows}
    for row in rows:
        ranks["\0".join(sorted(row))] += 1
    made.add(rows, [b"\1"] * len(rows))
    return made.whole(ranks.values())


def test_every_order_of_rows_and_columns_has_one_digest_and_other_rows_have_others() -> None:
    """Of all tables of three rows and three columns of yes and no: two of them have one digest exactly if an order of
    columns makes the same rows of both."""
    found: dict[str, set[Any]] = {}
    for cells in product("ny", repeat=9):
        columns = [cells[:3], cells[3:6], cells[6:]]
        told = [each for each in columns if len(set(each)) > 1] or columns
        same = min(tuple(sorted(zip(*order, strict=True))) for order in permutations(told))
        found.setdefault(whole(list(zip(*columns, strict=True))).digest, set()).add(same)
    assert all(len(each) == 1 for each in found.values())
    assert len(found) == len({each for those in found.values() for each in those})


@pytest.mark.parametrize("yes", [0.5, 0.2])
def test_chance_is_not_underrated(yes: float) -> None:
    """The mean of the e-value over all pairs of independent tables is 1 at most; by an approximation, 5 % more."""
    chances: dict[str, float] = {}
    evidence: dict[str, float] = {}
    for cells in product((0, 1), repeat=8):
        made = whole([tuple("ny"[each] for each in cells[at : at + 2]) for at in range(0, 8, 2)])
        chances[made.digest] = chances.get(made.digest, 0.0) + yes ** sum(cells) * (1 - yes) ** (8 - sum(cells))
        evidence[made.digest] = made.evidence
    assert 0.01 < sum(chance**2 * exp(evidence[each]) for each, chance in chances.items()) <= 1.05


def test_profiles_from_before_are_read_and_say_nothing_of_all_rows(tmp_path: Path) -> None:
    new = marks(answers(4, 300, 4), tmp_path / "new.csv").profile
    old = Profile.read(
        json.dumps([each for each in json.loads(new.text) if not isinstance(each, list) or each[0] != "all"])
    )
    assert old == replace(new, whole=None)
    assert not new.is_same(old)


def test_datasets_from_before_learn_what_all_of_their_rows_are(tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        assert register(there, "study", answers(5, 300, 5)).status_code == 201
        catalogue = there.curator.catalogue
        record = catalogue.dataset("study")
        assert record is not None
        catalogue.renew(record, set(), {"people": ""}, {}, FORM - 1)  # as it was before this was kept
        told = register(there, "again", answers(5, 300, 5).iloc[::-1], called="again", budget=None)
        assert (told.status_code, told.json().get("linked")) == (201, True), told.text
