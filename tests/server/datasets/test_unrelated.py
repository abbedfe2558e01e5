"""Unrelated people who look alike: small tables, and numbers that are ids in one table and ages in another."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deniable.server.datasets import data_marks
from deniable.server.datasets.cell_forms import plain, plain_then
from deniable.server.datasets.data_marks import id_columns, marks_of, sketch_of
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table
from deniable.units import Unit

KEY = bytes(range(32))


def table_of(name: str, people: pd.DataFrame, folder: Path, who: str) -> tuple[Path, Table]:
    path = folder / f"{name}.csv"
    people.to_csv(path, index=False)
    columns = {each: Domain.text() for each in people.columns if each != who}
    return path, Table.of(name, Unit.person(who, rows=1), **columns)


def linked(old: pd.DataFrame, new: pd.DataFrame, folder: Path, *, who: str = "id") -> list[str]:
    """The columns of the new table by which its people are taken for those of the old one."""
    (known, before), (path, table) = table_of("old", old, folder, "id"), table_of("new", new, folder, who)
    remembered = marks_of(known, before, KEY).all
    found = []
    for each in {who, *id_columns(path, [sketch_of(known, before, KEY)], KEY)}:
        made = marks_of(path, replace(table, unit=Unit.person(each, rows=1)), KEY)
        if made.related(made.sought & remembered):
            found.append(each)
    return found


def answers(seed: int, people: int = 10) -> pd.DataFrame:
    """Ten questions, five answers to each."""
    chance = np.random.default_rng(seed)
    return pd.DataFrame({"id": range(1, people + 1), **{f"q{i}": chance.integers(1, 6, people) for i in range(10)}})


def rates(seed: int, days: int) -> pd.DataFrame:
    """Heart rates of a hundred people on so many days."""
    ids = np.repeat(np.arange(1, 101), days)
    return pd.DataFrame({"id": ids, "rate": np.random.default_rng(seed).normal(75, 10, len(ids)).astype(int)})


def test_a_few_people_with_few_answers_were_taken_for_others(tmp_path: Path) -> None:
    """193 of 200 pairs of such tables were linked: of fewer than 16 people, no cell was thought to be common."""
    assert not [seed for seed in range(20) if linked(answers(2 * seed), answers(2 * seed + 1), tmp_path)]


@pytest.mark.parametrize("people", [6, 7, 10, 15])
def test_the_same_few_people_are_known(people: int, tmp_path: Path) -> None:
    for seed in range(5):
        table = answers(seed, people)
        assert linked(table, table.sample(frac=1, random_state=seed), tmp_path) == ["id"]


def test_people_with_one_value_were_taken_for_others_who_have_every_value(tmp_path: Path) -> None:
    """Whatever somebody's one rate is, a person of the same number had it on some day."""
    assert not linked(rates(1, days=300), rates(2, days=1), tmp_path)


def test_ages_were_taken_for_the_numbers_of_people_who_have_every_value(tmp_path: Path) -> None:
    chance = np.random.default_rng(3)
    ages = np.clip(chance.normal(50, 15, 500), 1, 99).astype(int)
    table = pd.DataFrame(
        {"name": [f"n{i}" for i in range(500)], "age": ages, "rate": chance.normal(75, 10, 500).astype(int)}
    )
    assert not linked(rates(1, days=300), table, tmp_path, who="name")


@pytest.mark.parametrize("days", [1, 3, 10])
def test_a_day_of_people_who_are_known_for_several_days_is_known(days: int, tmp_path: Path) -> None:
    old = rates(1, days)
    assert "id" in linked(old, old.groupby("id").head(1), tmp_path)


@pytest.mark.parametrize("changed", [0.3, 0.7])
def test_many_values_of_each_person_broke_the_registration(changed: float, tmp_path: Path) -> None:
    """Of 3,000 values half were known: the binomial coefficient was too large for a float."""
    chance = np.random.default_rng(4)
    old = pd.DataFrame({"id": np.repeat(np.arange(1, 101), 30), "cost": chance.random(3000)})
    new = old.assign(cost=np.where(chance.random(3000) < changed, chance.random(3000), old["cost"]))
    assert linked(old, new, tmp_path) == (["id"] if changed < 0.5 else [])


def test_long_cells_were_kept_in_memory() -> None:
    """65,536 of them, however long: most of a file stayed in the server for good."""
    for form in (plain, plain_then):
        words = "a long story " * 1000
        before = sys.getrefcount(words)
        form(words)
        assert sys.getrefcount(words) == before


def test_a_file_of_many_columns_of_ids_was_read_once_for_each(tmp_path: Path) -> None:
    """Those that have most known ids are looked at."""
    known, before = table_of("old", rates(1, days=1), tmp_path, "id")
    wide = pd.DataFrame({f"x{i}": range(50, 150) for i in range(100)} | {"who": range(1, 101)})
    path, _ = table_of("new", wide, tmp_path, "who")
    found = id_columns(path, [sketch_of(known, before, KEY)], KEY)
    assert (len(found), found[0]) == (16, "who")


def test_of_a_wide_file_few_rows_were_all_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_marks, "_CELLS", 1000)
    wide = pd.DataFrame({f"x{i}": range(1000, 1400) for i in range(10)})
    path, _ = table_of("new", wide, tmp_path, "x0")
    last, before = table_of("old", pd.DataFrame({"id": range(1300, 1400)}), tmp_path, "id")
    assert id_columns(path, [sketch_of(last, before, KEY)], KEY) == []  # they are behind the first 128 rows


def test_rows_are_the_same_in_every_order_however_many_there_are(tmp_path: Path) -> None:
    rows = pd.DataFrame({"id": range(9000), "cost": np.random.default_rng(5).random(9000)})
    found = []
    for name, each in (("one", rows), ("other", rows.iloc[::-1])):
        path, table = table_of(name, each, tmp_path, "id")
        made = marks_of(path, replace(table, unit=Unit.row()), KEY)
        found.append(made.all - made.sure)
    assert found[0] == found[1]
    assert len(found[0]) == 2 * 128
