"""The same data in another spelling is the same data: cells and ids have one form, however a program writes them."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from deniable.server.catalogue.catalogue import Person
from deniable.server.curator import Curator
from deniable.server.datasets.cell_forms import plain, plain_id
from deniable.server.datasets.data_marks import FORM, marks_of, sketch_of
from deniable.server.operations.settings import Settings
from deniable.server.problems import Problem
from deniable.server.request_bodies import BudgetBody
from deniable.server.roles import Role
from deniable.tables.schema import read_schema

OLGA, OTTO = Person("olga", Role.OWNER), Person("otto", Role.OWNER)
KEY = b"k" * 32
ROWS = """\
version: 1
tables:
  TABLE:
    neighbours: add/remove
    columns:
      ward: {kind: text, keys: [A, B, C]}
      height: {kind: real, low: 0, high: 300}
"""
PEOPLE = ROWS.replace("    neighbours: add/remove\n", "    person: patient\n    rows: 1\n")
BUDGET = BudgetBody(epsilon=1.0, delta=1e-6)


def table(seed: int = 1, people: int = 500) -> pd.DataFrame:
    random = Random(seed)
    rows = [
        (f"Ab-{each}", random.choice("ABC"), 1.5 * random.randrange(80, 140)) for each in range(1000, 1000 + people)
    ]
    return pd.DataFrame(rows, columns=["patient", "ward", "height"])


@pytest.fixture
def curator(tmp_path: Path) -> Curator:
    made = Curator(Settings(state=tmp_path / "state", owners={"*": (tmp_path,)}))
    for each in (OLGA, OTTO):
        made.catalogue.add_person(each.name, each.role)
    return made


# -- a second budget ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [ROWS, PEOPLE])
def test_the_same_rows_as_csv_and_as_parquet_got_two_budgets(schema: str, curator: Curator, tmp_path: Path) -> None:
    """Whole numbers in a column of floats: 170.0 in one file, 170 in the other."""
    rows = table().assign(height=lambda found: found["height"].round())
    rows.to_csv(tmp_path / "r.csv", index=False)
    rows.to_parquet(tmp_path / "r.parquet")
    told = curator.register(OLGA, "r", {"r": "r.csv"}, schema.replace("TABLE", "r"), BUDGET)
    assert not told["linked"]
    told = curator.register(OLGA, "again", {"again": "r.parquet"}, schema.replace("TABLE", "again"), None)
    assert told["linked"]
    assert "the server knows" in told["warning"]
    curator.close()


def test_another_owner_gets_no_budget_for_a_file_with_more_digits(curator: Curator, tmp_path: Path) -> None:
    table().to_csv(tmp_path / "olga.csv", index=False)
    table().to_csv(tmp_path / "otto.csv", index=False, float_format="%.2f")
    assert "172.50" in (tmp_path / "otto.csv").read_text()
    curator.register(OLGA, "r", {"r": "olga.csv"}, PEOPLE.replace("TABLE", "r"), BUDGET)
    with pytest.raises(Problem, match="forbidden"):
        curator.register(OTTO, "mine", {"mine": "otto.csv"}, PEOPLE.replace("TABLE", "mine"), BUDGET)
    curator.close()


def arabic(text: str) -> str:
    return text.translate({ord("0") + each: chr(0x660 + each) for each in range(10)})


IDS: dict[str, tuple[Callable[[int], str], Callable[[int], str]]] = {
    "a variation selector": (str, lambda each: f"{each}\ufe0f"),
    "arabic digits": (str, lambda each: arabic(str(each))),
    "thousands": (str, lambda each: f"{each:,}"),
    "hexadecimal": (str, hex),
    "a curly quote": (lambda each: f"o'{each}", lambda each: f"o\u2019{each}"),
    "a combining mark": (lambda each: f"a{each}", lambda each: f"a\u0301{each}"),
    "a joiner": (str, lambda each: f"{each}\u034f"),
    "another dash": (lambda each: f"a-{each}", lambda each: f"a\u2013{each}"),
    "a blank letter": (str, lambda each: f"\u3164{each}"),
}


@pytest.mark.parametrize("how", IDS)
def test_the_same_ids_in_another_spelling_are_known(how: str, tmp_path: Path) -> None:
    schema = read_schema(PEOPLE.replace("TABLE", "t"))["t"]
    found = []
    for number, form in enumerate(IDS[how]):
        rows = table().assign(patient=[form(each) for each in range(1000, 1500)])
        rows.to_csv(tmp_path / f"{number}.csv", index=False)
        found.append(
            (marks_of(tmp_path / f"{number}.csv", schema, KEY), sketch_of(tmp_path / f"{number}.csv", schema, KEY))
        )
    (old, first), (new, second) = found
    assert new.related(old.all & new.sought)
    assert old.related(new.all & old.sought)
    assert first == second


CELLS: dict[str, Callable[[int], tuple[object, object]]] = {
    "floats": lambda each: (each / 8, f"{each / 8:.5f}"),
    "exponents": lambda each: (each, f"{each:e}"),
    "all digits of a double": lambda each: (each / 10, f"{each / 10:.20f}"),
    "decimals": lambda each: (Decimal(each) / 4, f"{each / 4}"),
    "short floats": lambda each: (np.float32(each / 10), str(each / 10)),
    "days": lambda each: (
        dt.date(2000, 1, 1) + dt.timedelta(each),
        f"{dt.date(2000, 1, 1) + dt.timedelta(each):%Y/%m/%d}",
    ),
    "midnights": lambda each: (
        dt.datetime(2000, 1, 1) + dt.timedelta(each),
        f"{dt.date(2000, 1, 1) + dt.timedelta(each)}",
    ),
    "times": lambda each: (
        dt.datetime(2000, 1, 1, 12) + dt.timedelta(seconds=each),
        f"{dt.datetime(2000, 1, 1, 14) + dt.timedelta(seconds=each):%Y-%m-%dT%H:%M:%S}.000+02:00",
    ),
    "bytes": lambda each: (f"name {each}".encode(), f"  NAME  {each}"),
    "letters": lambda each: (f"Zo\u00eb {each}", f"Zoe\u0308\u200b {each}"),
}


@pytest.mark.parametrize("unit", [ROWS, PEOPLE])
@pytest.mark.parametrize("how", CELLS)
def test_the_same_cells_in_another_spelling_are_known(how: str, unit: str, tmp_path: Path) -> None:
    schema = read_schema(unit.replace("TABLE", "t"))["t"]
    pairs = [CELLS[how](each) for each in range(1000, 1500)]
    values = [each for each, _ in pairs]
    column = np.array(values, dtype=np.float32) if how == "short floats" else values
    rows = table().assign(height=[said for _, said in pairs])
    rows.to_csv(tmp_path / "t.csv", index=False)
    rows.assign(height=column).to_parquet(tmp_path / "t.parquet")
    old, new = (marks_of(tmp_path / f"t.{each}", schema, KEY) for each in ("csv", "parquet"))
    assert new.related(old.all & new.sought)
    assert old.all - old.sure == new.all - new.sure


def test_true_and_false_have_one_form_and_so_has_nothing() -> None:
    for same in (("true", "TRUE", "True", "1", "1.0"), ("false", "False", "0", "-0.0"), ("", " ", "NaN", "NULL", "NA")):
        assert len({plain(each) for each in same}) == 1, same


def test_values_that_differ_have_forms_that_differ() -> None:
    seed = SystemRandom().getrandbits(32)
    print("seed", seed)
    random = Random(seed)
    numbers = {random.randrange(10**18) for _ in range(500)} | {random.randrange(100) for _ in range(50)}
    assert len({plain_id(str(each)) for each in numbers}) == len(numbers)
    assert len({plain(str(each)) for each in numbers}) >= len({float(each) for each in numbers}) - 3  # see `_read`
    floats = {random.random() * 10 ** random.randrange(-8, 15) for _ in range(1000)}
    assert len({plain(repr(each)) for each in floats}) == len({np.float32(each) for each in floats})
    assert len({plain_id(repr(each)) for each in floats}) == len(floats)
    assert {plain(repr(each)) for each in floats} == {plain(f"{each:.17g}") for each in floats}
    days = {dt.datetime(1900, 1, 1) + dt.timedelta(seconds=random.randrange(10**10)) for _ in range(500)}
    assert len({plain(str(each)) for each in days}) == len(days)
    for odd in ("2024-02-30", "0001-01-01 00:00+14:00", "9999-99-99", "12.34.56", "1,00", "1e9999", "0x", "\ud800"):
        assert plain(odd) == plain(plain(odd))


def test_the_form_of_an_id_depends_on_that_id_alone() -> None:
    assert [plain_id(each) for each in ("0xff", "ff", "10", "5e3", "0x10")] == ["255", "ff", "10", "5000", "16"]
    hashes = [f"{Random(each).getrandbits(128):032x}" for each in range(5)]
    assert [plain_id(each) for each in hashes] == hashes


@pytest.mark.parametrize("row", ["a1", "x1", "unknown", "n/a", "a", "ff"])
@pytest.mark.parametrize("written", [lambda each: str(10_000_000 + 37 * each), lambda each: f"{each:08x}", str])
def test_one_row_more_does_not_hide_everybody_else(written: Callable[[int], str], row: str, tmp_path: Path) -> None:
    """The form of ids looked at the whole column: one id with a letter made all of them hexadecimal, and new."""
    schema = read_schema(PEOPLE.replace("TABLE", "t"))["t"]
    rows = table().assign(patient=[written(each) for each in range(1000, 1500)])
    more = pd.concat([rows, rows.iloc[:1].assign(patient=row)])
    found = []
    for number, each in enumerate((rows, more)):
        path = tmp_path / f"{number}.csv"
        each.to_csv(path, index=False)
        found.append((marks_of(path, schema, KEY), sketch_of(path, schema, KEY)))
    (old, first), (new, second) = found
    assert new.related(old.all & new.sought)
    assert old.related(new.all & old.sought)
    assert first.every <= second.every


# -- random values in every kind of column -----------------------------------------------------------------------------

SIZES = {"short": (np.float32, -30, 30), "double": (np.float64, -200, 200), "large": (np.float64, 16, 18)}


def written(path: Path, name: str, column: pa.Array, ids: list[int]) -> Path:
    """A file of this column: as Parquet, or as CSV in the words of the program that is named."""
    place = path / f"{name}.{'csv' if name.startswith('csv') else 'parquet'}"
    if place.suffix == ".parquet":
        parquet.write_table(pa.table({"patient": ids, "height": column}), place)
        return place
    shown = {"csv": str, "csv17": lambda each: f"{each:.17g}", "csvfixed": lambda each: f"{each:.0f}"}[name]
    frame = pd.DataFrame({"patient": ids, "height": [shown(each) for each in column]})
    frame.to_csv(place, index=False)
    return place


def columns(how: str, random: Random) -> dict[str, Any]:
    """Random values in each kind of column that can hold them; an engine reads the same doubles from all of them."""
    if how == "whole":
        values = [random.randrange(-(2**31), 2**31) for _ in range(300)]
        small = {"int32": pa.array(values, pa.int32()), "int64": pa.array(values), "csv": values}
        return small | {"double": pa.array(map(float, values)), "decimal": pa.array(map(Decimal, values))}
    if how == "decimal":
        values = [Decimal(random.randrange(10**7)) / 10 ** random.randrange(1, 5) for _ in range(300)]
        found = {"decimal": pa.array(values, pa.decimal128(20, 6)), "csv": values}
        return found | {"double": pa.array(map(float, values)), "float": pa.array(map(float, values), pa.float32())}
    if how == "half":
        halves = [np.float16(random.uniform(-100, 100)) for _ in range(300)]
        same = [float(each) for each in halves]
        found = {"half": pa.array(halves, pa.float16()), "float": pa.array(same, pa.float32())}
        return found | {"double": pa.array(same), "csv": same}
    kind, low, high = SIZES[how]
    doubles = [float(kind(random.uniform(1, 10) * 10.0 ** random.randrange(low, high))) for _ in range(300)]
    found = {"double": pa.array(doubles), "csv": doubles, "csv17": doubles}
    if how == "short":
        short = [np.float32(each) for each in doubles]
        return found | {"float": pa.array(short, pa.float32()), "csvshort": short}
    return found | ({"int64": pa.array(map(int, doubles)), "csvfixed": doubles} if how == "large" else {})


@pytest.mark.parametrize("unit", [ROWS, PEOPLE])
@pytest.mark.parametrize("how", ["whole", "decimal", "half", *SIZES])
def test_the_same_numbers_in_another_kind_of_column_got_two_budgets(how: str, unit: str, tmp_path: Path) -> None:
    """Short floats went by their digits and doubles by theirs; large doubles by all digits or by seventeen."""
    seed = SystemRandom().getrandbits(32)
    print("seed", seed)
    schema, ids = read_schema(unit.replace("TABLE", "t"))["t"], list(range(300))
    found = {}
    for name, column in columns(how, Random(seed)).items():
        path = written(tmp_path, "csv" if name == "csvshort" else name, column, ids)
        found[name] = marks_of(path, schema, KEY)
        path.unlink()
    for old in found.values():
        for new in found.values():
            # Rows that come twice as often as chance has it are known by how often they come.
            assert new.related((old.all - old.sure) & new.sought) or new.profile.is_same(old.profile)
            assert (new.profile, new.all - new.sure) == (old.profile, old.all - old.sure)


@pytest.mark.parametrize("dates", ["date32", "timestamp[ms]", "timestamp[ns]"])
def test_dates_and_truths_are_known_in_every_kind_of_column(dates: str, tmp_path: Path) -> None:
    seed = SystemRandom().getrandbits(32)
    print("seed", seed)
    random, ids, schema = Random(seed), list(range(300)), read_schema(PEOPLE.replace("TABLE", "t"))["t"]
    days = [dt.date(1950, 1, 1) + dt.timedelta(random.randrange(30_000)) for _ in ids]
    truths = [random.random() < 0.5 for _ in ids]
    kind = {"date32": pa.date32(), "timestamp[ms]": pa.timestamp("ms"), "timestamp[ns]": pa.timestamp("ns")}[dates]
    table = pa.table({"patient": ids, "height": pa.array(days).cast(kind), "ward": truths})
    parquet.write_table(table, tmp_path / "t.parquet")
    frame = pd.DataFrame({"patient": ids, "height": days, "ward": [int(each) for each in truths]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    old, new = (marks_of(tmp_path / f"t.{each}", schema, KEY) for each in ("csv", "parquet"))
    assert old.all - old.sure == new.all - new.sure


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("s"), pa.timestamp("us")], ids=str)
def test_a_date_after_the_year_9999_broke_the_registration(kind: pa.DataType, tmp_path: Path) -> None:
    schema = read_schema(PEOPLE.replace("TABLE", "t"))["t"]
    days = [*range(299), 5_000_000, None]
    scale = {"date32[day]": 1, "timestamp[s]": 86_400, "timestamp[us]": 86_400 * 10**6}[str(kind)]
    found = []
    for late in (5_000_000, 5_000_000, 5_000_001):
        days[299] = late
        raw = pa.array([None if each is None else each * scale for each in days])
        column = raw.cast(pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
        parquet.write_table(pa.table({"patient": range(301), "height": column}), tmp_path / "t.parquet")
        found.append(marks_of(tmp_path / "t.parquet", schema, KEY))
    assert found[0] == found[1] != found[2]


def test_ids_in_a_column_of_doubles_are_the_same_ids(tmp_path: Path) -> None:
    schema, random = read_schema(PEOPLE.replace("TABLE", "t"))["t"], Random(5)
    ids = [float(random.randrange(10**17, 9 * 10**17)) for _ in range(300)]
    frame = pd.DataFrame({"patient": ids, "height": range(300)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    first, second = (sketch_of(tmp_path / f"t.{each}", schema, KEY) for each in ("csv", "parquet"))
    assert first == second
    old, new = (marks_of(tmp_path / f"t.{each}", schema, KEY) for each in ("csv", "parquet"))
    assert old.all - old.sure == new.all - new.sure


# -- people who are others ---------------------------------------------------------------------------------------------


def sparse(random: Random, *, blank: str = "", people: int = 1000) -> pd.DataFrame:
    """Ids from 1 on, a ward, and a column that three in four have nothing in."""
    rows = [
        (each, random.choice("ABC"), blank if random.random() < 0.75 else str(random.randrange(100, 200)))
        for each in range(1, people + 1)
    ]
    return pd.DataFrame(rows, columns=["patient", "ward", "height"])


@pytest.mark.parametrize("blank", ["", "0", "unknown"])
def test_unrelated_people_with_empty_cells_were_taken_for_the_same(blank: str, tmp_path: Path) -> None:
    """.75² of the cells are empty in both tables: more than half. Taken for the same now with a chance below 10⁻¹²: at
    p = .75 a column needs 111 of 128 marks in common, where 72 are expected; of the other cells, one in a hundred is.
    """
    seed = SystemRandom().getrandbits(32)
    print("seed", seed)
    random, schema = Random(seed), read_schema(PEOPLE.replace("TABLE", "t"))["t"]
    found = []
    for number in range(6):
        path = tmp_path / f"{number}.csv"
        sparse(random, blank=blank).to_csv(path, index=False)
        found.append(marks_of(path, schema, KEY))
    for old in found:
        for new in found:
            assert new.related((old.all - old.sure) & new.sought) == (new is old)


@pytest.mark.parametrize("blank", ["", "0", "unknown"])
@pytest.mark.parametrize("change", ["all", "half", "more", "a fifth changed", "without wards"])
def test_the_same_people_with_empty_cells_are_known(change: str, blank: str, tmp_path: Path) -> None:
    """Four in five rows are the same, or more: fewer than half of 128 are with a chance below 10⁻¹³."""
    seed = SystemRandom().getrandbits(32)
    print("seed", seed)
    random, schema = Random(seed), read_schema(PEOPLE.replace("TABLE", "t"))["t"]
    rows = sparse(random, blank=blank)
    other = {
        "all": lambda: rows.sample(frac=1, random_state=seed),
        "half": lambda: rows.sample(frac=0.5, random_state=seed),
        "more": lambda: pd.concat([rows, sparse(random, blank=blank, people=1250)[1000:]]),
        "a fifth changed": lambda: rows.where(
            pd.Series([random.random() < 0.8 for _ in rows.index]), sparse(random, blank=blank)
        ),
        "without wards": lambda: rows[["patient", "height"]],
    }[change]()
    rows.to_csv(tmp_path / "old.csv", index=False)
    other.to_csv(tmp_path / "new.csv", index=False)
    old, new = (marks_of(tmp_path / f"{each}.csv", schema, KEY) for each in ("old", "new"))
    assert new.related((old.all - old.sure) & new.sought)


def test_another_owner_may_register_other_people_with_empty_cells(curator: Curator, tmp_path: Path) -> None:
    for number, person in enumerate((OLGA, OTTO, OTTO)):
        sparse(Random(number)).to_csv(tmp_path / f"{number}.csv", index=False)
        others = {"people": "others", "reason": "another hospital"} if number == 2 else {}
        name, schema = f"r{number}", PEOPLE.replace("TABLE", f"r{number}")
        told = curator.register(person, name, {name: f"{number}.csv"}, schema, BUDGET, **others)
        assert not told["linked"]
    curator.close()


# -- states from before ------------------------------------------------------------------------------------------------


def test_marks_of_datasets_from_before_are_made_anew(curator: Curator, tmp_path: Path) -> None:
    """They were of cells as they are written, so another spelling of an old dataset was new data."""
    rows = table().assign(height=lambda found: found["height"].round())
    rows.to_csv(tmp_path / "r.csv", index=False)
    rows.to_parquet(tmp_path / "r.parquet")
    curator.register(OLGA, "r", {"r": "r.csv"}, ROWS.replace("TABLE", "r"), BUDGET)
    older = marks_of(tmp_path / "r.csv", read_schema(ROWS.replace("TABLE", "r"))["r"], curator._marking).older[0]
    family = curator.catalogue.dataset("r").family
    with closing(sqlite3.connect(tmp_path / "state" / "catalogue.sqlite")) as database, database:
        database.execute("DELETE FROM curator_marks")
        for mark in older.all:
            database.execute("INSERT INTO curator_marks VALUES (?, ?)", (family, mark))
        database.execute("UPDATE curator_datasets SET form = 0")
    # Its file away for now: another file in the same spelling is known by the marks that there are.
    (tmp_path / "r.csv").rename(tmp_path / "away")
    rows.iloc[1:].to_csv(tmp_path / "fewer.csv", index=False)
    told = curator.register(OLGA, "fewer", {"fewer": "fewer.csv"}, ROWS.replace("TABLE", "fewer"), None)
    assert (told["linked"], curator.catalogue.dataset("r").form) == (True, 0)
    with closing(sqlite3.connect(tmp_path / "state" / "catalogue.sqlite")) as database, database:
        for each in ("datasets WHERE name = 'fewer'", "sketches WHERE dataset = 'fewer'"):
            database.execute(f"DELETE FROM curator_{each}")
        database.execute("DELETE FROM curator_marks")
        for mark in older.all:
            database.execute("INSERT INTO curator_marks VALUES (?, ?)", (family, mark))
    (tmp_path / "away").rename(tmp_path / "r.csv")
    told = curator.register(OLGA, "again", {"again": "r.parquet"}, ROWS.replace("TABLE", "again"), None)
    assert (told["linked"], curator.catalogue.dataset("r").form) == (True, FORM)
    curator.close()
