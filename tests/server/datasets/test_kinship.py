"""The same ids in another extract: the owner must say whether they are the same people, and signs for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from deniable import cli
from deniable.ledger import State, verify_export
from deniable.server.catalogue.catalogue import Person
from deniable.server.datasets.cell_forms import plain
from deniable.server.datasets.data_marks import Sketch, marks_of, sketch_of
from deniable.server.datasets.row_profiles import ProfileHistory
from deniable.server.roles import Role
from deniable.tables.schema import read_schema
from tests.queries.hospital import visits
from tests.server.browsing import Browser
from tests.server.world import BUDGET, SCHEMA, World, made

OLGA = Person("olga", Role.OWNER)
ONE_YEAR = """\
version: 1
tables:
  TABLE:
    person: COLUMN
    rows: 1
    columns:
      ward: {kind: text, keys: [A, B, C], nullable: false}
      age: {kind: integer, low: 0, high: 100}
"""


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    there = made(tmp_path_factory.mktemp("years"))
    with there.client:
        year(there, "this_year", seed=1)
        assert add(there, "this_year", budget=BUDGET).status_code == 201
        yield there


def extract(seed: int, *, people: range = range(5_000, 6_000), column: str = "patient") -> pd.DataFrame:
    """Another year of the same people: every cell but the id is drawn anew."""
    random = Random(seed)
    rows = [{column: each, "ward": random.choice("ABC"), "age": random.randrange(100)} for each in people]
    random.shuffle(rows)
    return pd.DataFrame(rows)


def year(there: World, name: str, *, suffix: str = ".csv", **more: Any) -> None:
    table = extract(**more)
    if suffix == ".csv":
        table.to_csv(there.folder / f"{name}{suffix}", index=False)
    else:
        table.to_parquet(there.folder / f"{name}{suffix}")


def add(
    there: World, name: str, *, column: str = "patient", suffix: str = ".csv", who: str = "olga", **more: Any
) -> Any:
    schema = ONE_YEAR.replace("TABLE", name).replace("COLUMN", column)
    body = {"name": name, "sources": {name: f"{name}{suffix}"}, "schema": schema, **more}
    return there.call(who, "POST", "/v1/datasets", body)


# -- the choice --------------------------------------------------------------------------------------------------------


def test_next_years_extract_got_a_fresh_budget_in_silence(hospital: World) -> None:
    year(hospital, "next_year", seed=2)
    asked = add(hospital, "next_year", budget=BUDGET)
    said = asked.json()
    assert (asked.status_code, said["code"]) == (409, "same_people")
    assert said["datasets"] == ["this_year"]
    assert set(said["choices"]) == {"same", "others"}
    assert hospital.call("olga", "GET", "/v1/datasets/next_year").status_code == 404


def test_the_same_people_are_one_family_and_that_is_signed(hospital: World) -> None:
    year(hospital, "same_year", seed=3)
    done = add(hospital, "same_year", people="same")
    assert (done.status_code, done.json()["linked"]) == (201, True), done.text
    record, other = (hospital.curator.catalogue.dataset(each) for each in ("same_year", "this_year"))
    assert record.family == other.family
    [said] = statements(hospital, "this_year")[-1:]
    assert "the same people as those of 'this_year'" in said
    assert "olga" in said


def test_others_have_a_budget_of_their_own_and_the_reason_is_signed_for_auditors(
    hospital: World, tmp_path: Path
) -> None:
    year(hospital, "other_year", seed=4)
    for wrong in ({"people": "others"}, {"people": "others", "reason": ""}, {"people": "both", "reason": "x"}):
        assert add(hospital, "other_year", budget=BUDGET, **wrong).status_code == 422
    done = add(hospital, "other_year", budget=BUDGET, people="others", reason="another hospital numbers alike")
    assert (done.status_code, done.json()["linked"]) == (201, False), done.text
    for name in ("other_year", "this_year"):
        [said] = statements(hospital, name)[-1:]
        assert "another hospital numbers alike" in said
        (tmp_path / "ledger.jsonl").write_bytes(hospital.call("ada", "GET", f"/v1/ledger/{name}").content)
        assert verify_export(tmp_path / "ledger.jsonl", key=hospital.curator.key.public).entries
        assert "another hospital numbers alike" in Browser(hospital, "ada").get(f"/console/data/{name}/ledger").text


def statements(there: World, dataset: str) -> list[str]:
    ledger = there.curator.datasets.ledger(there.curator.catalogue.dataset(dataset))
    ledger.verify(there.curator.key.public)
    return [f"{each.statement.by}: {each.description}" for each in ledger.entries() if each.state is State.STATED]


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("as_parquet", {"suffix": ".parquet"}),
        ("renamed", {"column": "who"}),
        ("half_of_them", {"people": range(5_000, 5_500)}),
        ("many_more", {"people": range(4_000, 9_000)}),
        ("half_new", {"people": range(5_500, 6_500)}),
    ],
)
def test_another_form_is_asked_about_as_well(name: str, how: dict[str, Any], hospital: World) -> None:
    suffix, column = how.get("suffix", ".csv"), how.get("column", "patient")
    year(hospital, name, seed=5, **how)
    said = add(hospital, name, budget=BUDGET, suffix=suffix, column=column)
    assert said.json()["code"] == "same_people", said.text


@pytest.mark.parametrize(("name", "people"), [("nobody", range(20_000, 21_000)), ("few", range(5_900, 6_900))])
def test_new_people_are_not_asked_about(name: str, people: range, hospital: World) -> None:
    year(hospital, name, seed=6, people=people)
    assert add(hospital, name, budget=BUDGET).status_code == 201


def test_ids_are_the_same_however_they_are_written(tmp_path: Path) -> None:
    table = read_schema(ONE_YEAR.replace("TABLE", "t").replace("COLUMN", "patient"))["t"]
    forms = [["1", "2", "77"], ["001", "002", "077"], ["1.0", "2.0", "77.0"], [" 1", "2 ", "77"], ["+1", "2", "77"]]
    forms += [
        ["1e0", "0.2e1", "7.7E+1"],
        ["'1", "'2", "'77"],
        ["1\u200b", "\ufeff2", "7\u00ad7"],
        ["\uff11", "2.", "770e-1"],
    ]
    found = []
    for number, form in enumerate(forms):
        path = tmp_path / f"{number}.csv"
        path.write_text("\n".join(["patient,ward,age", *(f"{each},A,1" for each in form)]) + "\n")
        found.append(sketch_of(path, table, b"k" * 32).kept)
    assert len(set(found)) == 1
    path = tmp_path / "text.csv"
    path.write_text("patient,ward,age\nAB-1,A,1\n,A,1\n")
    assert len(sketch_of(path, table, b"k" * 32).kept) == 1  # nobody has no id
    assert sketch_of(path, table, b"l" * 32) != sketch_of(path, table, b"k" * 32)


def test_numbers_have_one_form_by_their_exact_value() -> None:
    seed = SystemRandom().getrandbits(32)
    print("seed", seed)
    random = Random(seed)
    seen: dict[str, Decimal] = {}
    for _ in range(3_000):
        digits = "".join(random.choices("0017", k=random.randrange(1, 6)))
        at = random.randrange(len(digits) + 1)
        written = random.choice(["", "+", "-"]) + digits[:at] + "." + digits[at:] + random.choice(["", "e3", "E-2"])
        value = Decimal(written)
        assert Decimal(plain(written)) == value, written
        assert seen.setdefault(plain(written), value) == value
    assert len(seen) == len(set(seen.values()))  # one form for each value


@pytest.mark.parametrize("form", ["{}.0", "{:05}", "{}\u200b", "'{}", "{}e0"])
def test_the_same_rows_with_ids_in_another_form_are_known(form: str, tmp_path: Path) -> None:
    """They got a second budget in silence: marks took ids as they were written, and so nobody was asked."""
    table = read_schema(ONE_YEAR.replace("TABLE", "t").replace("COLUMN", "patient"))["t"]
    rows = extract(1)
    rows.to_csv(tmp_path / "old.csv", index=False)
    rows["patient"] = [form.format(each) for each in rows["patient"]]
    rows.to_csv(tmp_path / "new.csv", index=False)
    old, new = (marks_of(tmp_path / f"{name}.csv", table, b"k" * 32) for name in ("old", "new"))
    assert new.related(old.all & new.sought)
    assert old.related(new.all & old.sought)
    assert new.older  # families whose marks were made of ids as they are written are known by those
    for each in new.older:
        assert new.related(each.all - each.sure)


@pytest.mark.slow
def test_ids_that_several_datasets_have_together_are_asked_about(tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        for n in range(3):
            year(there, f"part{n}", seed=n, people=range(10_000 * (n + 1), 10_000 * (n + 1) + 1_000))
            assert add(there, f"part{n}", budget=BUDGET).status_code == 201
        mixed = pd.concat([extract(9, people=range(10_000 * n, 10_000 * n + 300)) for n in (1, 2, 3)])
        mixed.to_csv(tmp_path / "mixed.csv", index=False)
        said = add(there, "mixed", budget=BUDGET)
        assert (said.status_code, said.json()["code"]) == (409, "same_people"), said.text
        assert sorted(said.json()["datasets"]) == ["part0", "part1", "part2"]
        year(there, "mostly_new", seed=9, people=range(10_700, 11_700))
        assert add(there, "mostly_new", budget=BUDGET).status_code == 201


# Fixed seeds. By Hoeffding, at half of the ids an estimate from 4,096 of them is below 0.45 with p < e^(-2·4096·0.0025).
def test_the_share_of_known_ids_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(7)
    ranks = [f"{random.getrandbits(64):016x}" for _ in range(60_000)]
    old = Sketch.of(ranks[:40_000])
    assert len(old.kept) < 40_000
    for start, end, share in ((0, 40_000, 1.0), (20_000, 60_000, 0.5), (30_000, 60_000, 1 / 3), (40_000, 60_000, 0.0)):
        assert abs(Sketch.of(ranks[start:end]).share_known(old) - share) < 0.05
    assert Sketch.of(ranks[:400]).share_known(old) > 0.9  # few of many
    assert Sketch.of(ranks).share_known(Sketch.of(ranks[:400])) == 1.0  # all of few in many


# -- what others must not learn ----------------------------------------------------------------------------------------


def test_an_owner_learns_nothing_of_the_ids_in_anothers_data_and_an_auditor_does(hospital: World) -> None:
    oscar = hospital.newcomer("oscar", Role.OWNER)
    year(hospital, "next_year", seed=2)
    year(hospital, "unknown", seed=6, people=range(90_000, 91_000))
    year(hospital, "oscars", seed=8)
    year(hospital, "nobodys", seed=8, people=range(30_000, 31_000))
    told = [add(hospital, name, who=oscar, budget=BUDGET) for name in ("oscars", "nobodys")]
    assert [each.status_code for each in told] == [201, 201]
    bodies = [str(sorted(each.json())) + str(each.json()["warning"]) + str(each.json()["linked"]) for each in told]
    assert bodies[0] == bodies[1]
    seen = hospital.call("ada", "GET", "/v1/overlaps").json()["overlaps"]
    assert {"dataset": "oscars", "owner": "oscar", "other": "this_year", "other_owner": "olga"} in [
        {key: each[key] for key in ("dataset", "owner", "other", "other_owner")} for each in seen
    ]
    assert not any(each["dataset"] == "nobodys" for each in seen)
    for who in ("olga", "oscar", "ana", "adam"):
        assert hospital.call(who, "GET", "/v1/overlaps").status_code == 403
    # Nor by saying "same": there is nothing of his to be the same as, whoever else has these ids.
    otto = hospital.newcomer("otto", Role.OWNER)
    said = [add(hospital, name, who=otto, people="same") for name in ("next_year", "unknown")]
    assert [each.status_code for each in said] == [422, 422]
    assert said[0].content == said[1].content


def test_analysts_see_nothing_of_the_choice(hospital: World) -> None:
    hospital.curator.grant(OLGA, "this_year", "ana", None, None)
    for path in ("/v1/datasets/this_year", "/v1/datasets", "/v1/datasets/this_year/releases"):
        said = hospital.call("ana", "GET", path)
        assert said.status_code == 200
        assert "numbers alike" not in said.text
        assert "other_year" not in said.text


def test_what_is_kept_of_ids_is_hashed_with_the_servers_secret(hospital: World) -> None:
    with closing(sqlite3.connect(hospital.folder / "state" / "catalogue.sqlite")) as database:
        [(marks,)] = database.execute("SELECT marks FROM curator_sketches WHERE dataset = 'this_year'").fetchall()
    assert len(marks) == 16 * 1000
    assert not any(
        marks[at : at + 16].isdigit() and int(marks[at : at + 16]) < 10_000 for at in range(0, len(marks), 16)
    )


# -- other ways in -----------------------------------------------------------------------------------------------------


def test_naming_a_family_of_other_people_does_not_pass_by_the_question(hospital: World) -> None:
    year(hospital, "tiny", seed=10, people=range(70_000, 70_050))
    assert add(hospital, "tiny", budget=BUDGET).status_code == 201
    year(hospital, "smuggled", seed=11)
    assert add(hospital, "smuggled", family="tiny").json()["code"] == "same_people"
    assert add(hospital, "smuggled", family="this_year").status_code == 201


@pytest.mark.slow
def test_datasets_from_before_there_were_sketches_are_looked_at(tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        year(there, "this_year", seed=1)
        assert add(there, "this_year", budget=BUDGET).status_code == 201
        with closing(sqlite3.connect(tmp_path / "state" / "catalogue.sqlite")) as database, database:
            database.execute("DELETE FROM curator_sketches")
            database.execute("UPDATE curator_datasets SET form = 0")
        year(there, "next_year", seed=2)
        assert add(there, "next_year", budget=BUDGET).json()["code"] == "same_people"


def test_the_form_asks_and_takes_the_choice(hospital: World) -> None:
    year(hospital, "by_form", seed=12)
    browser = Browser(hospital, "olga")
    fields = {
        "file": "by_form.csv",
        "name": "by_form",
        "table": "by_form",
        "person": "patient",
        "rows": "1",
        "step": "7",
    }
    fields |= {"delta": "1e-6", "kind.0": "integer", "kind.1": "text", "keys.1": "A,B,C", "kind.2": "integer"}
    browser.get("/console/add?file=by_form.csv")
    asked = browser.post("/console/add", **fields)
    assert asked.status_code == 422
    assert 'name="people"' in asked.text
    assert 'name="reason"' in asked.text
    assert browser.post("/console/add", **fields, people="others", reason="").status_code == 422
    assert browser.post("/console/add", **fields, people="others", reason="a trial of other people").status_code == 303
    assert "a trial of other people" in statements(hospital, "by_form")[-1]


def test_the_command_line_asks_and_takes_the_choice(served: tuple[World, str]) -> None:
    there, url = served
    environment = {"DENIABLE_TOKEN": there.tokens["olga"], "DENIABLE_URL": url}
    options = ["--unit", "patient", "--rows", "1", "--budget", "1"]
    for code, name in ((0, "first_year"), (2, "second_year")):
        year(there, name, seed=code)
        done = CliRunner().invoke(cli.build(), ["add", str(there.folder / f"{name}.csv"), *options], env=environment)
        assert done.exit_code == code, done.output
    assert "--people same" in done.stderr
    more = ["--people", "others", "--reason", "another register"]
    done = CliRunner().invoke(cli.build(), ["add", str(there.folder / f"{name}.csv"), *options, *more], env=environment)
    assert done.exit_code == 0, done.output


def test_the_hospital_is_not_asked_about_what_is_known_by_its_rows(hospital: World) -> None:
    visits().to_csv(hospital.folder / "again.csv", index=False)
    body = {"name": "again", "sources": {"again": "again.csv"}, "schema": SCHEMA.replace("visits:", "again:")}
    assert hospital.call("olga", "POST", "/v1/datasets", body).json()["linked"] is True
    wrong = {**body, "name": "again2", "people": "others", "reason": "no"}
    assert hospital.call("olga", "POST", "/v1/datasets", wrong).status_code == 422


# -- versions ----------------------------------------------------------------------------------------------------------


def version(there: World, name: str, file: str, word: str) -> Any:
    body = {"version": word, "sources": {name: f"{file}.csv"}}
    return there.call("olga", "POST", f"/v1/datasets/{name}/versions", body)


@pytest.mark.slow
def test_a_version_does_not_bring_people_of_another_budget(tmp_path: Path) -> None:
    """Next year's extract of the same people was accepted as a version of a dataset of other people: they had its
    budget beside their own."""
    there = made(tmp_path)
    with there.client:
        year(there, "patients", seed=1)
        assert add(there, "patients", budget=BUDGET).status_code == 201
        year(there, "few", seed=2, people=range(70_000, 70_050))
        assert add(there, "few", budget=BUDGET).status_code == 201
        year(there, "moved", seed=3)
        said = version(there, "few", "moved", "2")
        assert (said.status_code, said.json()["code"]) == (409, "ledger_mismatch"), said.text
        assert said.json()["datasets"] == ["patients"]
        assert there.call("olga", "GET", "/v1/datasets/few/versions").json()["versions"] == []
        assert version(there, "patients", "moved", "2").status_code == 201  # a version of the dataset of these people
    there.curator.close()


@pytest.mark.slow
def test_versions_of_datasets_that_were_declared_as_others_are_accepted(tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        for name, seed, more in (("north", 1, {}), ("south", 2, {"people": "others", "reason": "it numbers alike"})):
            year(there, name, seed=seed)
            assert add(there, name, budget=BUDGET, **more).status_code == 201
        for name in ("north", "south"):
            year(there, f"{name}_later", seed=5 + len(name) + ord(name[0]), people=range(5_000, 6_100))
            assert version(there, name, f"{name}_later", "2").status_code == 201
    there.curator.close()


@pytest.mark.slow
def test_people_of_an_earlier_version_are_known(tmp_path: Path) -> None:
    """A version with few people made the server forget the ids of all others; their next extract had a new budget."""
    there = made(tmp_path)
    with there.client:
        year(there, "patients", seed=1)
        assert add(there, "patients", budget=BUDGET).status_code == 201
        year(there, "hardly", seed=2, people=range(80_000, 80_010))
        assert version(there, "patients", "hardly", "2").status_code == 201
        year(there, "again", seed=3)
        assert add(there, "again", budget=BUDGET).json()["code"] == "same_people"
    there.curator.close()


def test_no_version_hides_the_ids_of_another() -> None:
    random = Random(7)
    ranks = [f"{random.getrandbits(64):016x}" for _ in range(90_000)]
    first, other, more = Sketch.of(ranks[:3000]), Sketch.of(ranks[3000:60_000]), ranks[60_000:70_000]
    all_of_them = other.with_earlier(Sketch.read(first.text))  # as it was stored before versions had samples
    all_of_them = Sketch.read(all_of_them.text)
    for part, share in ((ranks[:3000], 1.0), (ranks[:1500], 0.5), (ranks[:300], 0.1)):
        assert abs(Sketch.of([*part, *more]).share_known(all_of_them) - share) < 0.08  # five standard errors
        assert abs(Sketch.of([*part, *more]).share_stored(all_of_them) - share) < 0.08
        assert abs(all_of_them.share_stored(Sketch.of([*part, *more])) - share) < 0.08
    nightly = first
    for night in range(100):  # a growing table
        nightly = Sketch.of(ranks[: 3000 + 20 * night]).with_earlier(nightly)
    assert len(nightly.versions) <= 6  # log(5000 / 3000) / log(8 / 7), the first and the last
    assert Sketch(()).with_earlier(nightly) == nightly
    assert first.with_earlier(Sketch(())) == first


@pytest.mark.slow
def test_people_of_an_earlier_version_are_known_among_others(tmp_path: Path) -> None:
    """A version of many other people hid that a table had all people of the first version: less than two fifths of its
    ids, and hardly any of those of all versions, were known."""
    there = made(tmp_path)
    with there.client:
        year(there, "patients", seed=1)
        assert add(there, "patients", budget=BUDGET).status_code == 201
        year(there, "many", seed=2, people=range(100_000, 106_000))
        assert version(there, "patients", "many", "2").status_code == 201
        both = pd.concat([extract(3), extract(4, people=range(300_000, 302_000))])
        both.to_csv(there.folder / "again.csv", index=False)
        with closing(sqlite3.connect(tmp_path / "state" / "catalogue.sqlite")) as database, database:
            database.execute("UPDATE curator_datasets SET form = form - 1")  # marks are made anew, from the last file
        assert add(there, "again", budget=BUDGET).json()["code"] == "same_people"
        profiles = there.curator.catalogue.guards.profiles()
        assert len(ProfileHistory.read(profiles["patients", "patients"]).profiles) == 2
    there.curator.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "said"),
    [("itself", None), ("without ids", "ledger_mismatch"), ("other ids", "same_people"), ("public", "invalid")],
)
def test_rows_of_an_earlier_version_are_known(how: str, said: str | None, tmp_path: Path) -> None:
    """A version replaced the profile of the rows: the rows of earlier versions had a new budget, under other ids."""
    random = Random(1)
    first = extract(1).assign(cost=[random.randrange(10**6) for _ in range(1000)])
    noted = first.drop(columns="patient").assign(note=[random.random() for _ in range(1000)])
    ids = random.sample(range(10**6, 10**7), 1000)
    again = {"itself": first, "other ids": first.assign(patient=ids).sample(frac=1, random_state=1)}.get(how, noted)
    there = made(tmp_path)
    with there.client:
        first.to_csv(there.folder / "patients.csv", index=False)
        schema = f"{ONE_YEAR}      cost: {{kind: integer, low: 0, high: 1000000}}\n".replace("COLUMN", "patient")
        body = {"name": "patients", "sources": {"patients": "patients.csv"}, "budget": BUDGET}
        body["schema"] = schema.replace("TABLE", "patients")
        assert there.call("olga", "POST", "/v1/datasets", body).status_code == 201
        for number in range(3):
            few = first.head(7).assign(cost=range(7 * number, 7 * number + 7))
            few.to_csv(there.folder / f"few{number}.csv", index=False)
            assert version(there, "patients", f"few{number}", f"v{number}").status_code == 201
        again.to_csv(there.folder / "again.csv", index=False)
        if "patient" not in again:
            words = "public: true" if how == "public" else "neighbours: add/remove"
            schema = schema.replace("person: patient\n    rows: 1", words)
        body |= {"name": "again", "sources": {"again": "again.csv"}, "schema": schema.replace("TABLE", "again")}
        told = there.call("olga", "POST", "/v1/datasets", body).json()
        assert told.get("code") == said, told
        assert said is not None or told["linked"]
    there.curator.close()
