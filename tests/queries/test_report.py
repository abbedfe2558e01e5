"""The owner is told which rows got lost, exactly; nobody else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import deniable as dn
from deniable.errors import InvalidParameter
from tests.wording import worded

BUDGET = dn.Budget.pure(epsilon=100)


def opened(source: Any, unit: dn.Unit, **schema: dn.Domain) -> dn.queries.Session:
    return dn.session({"visits": source}, unit=unit, budget=BUDGET, schema=schema)


FRAME = pd.DataFrame(
    {
        "who": ["a"] * 5 + ["b"] * 3 + ["c", None, None, "d"],
        "ward": ["A", "B", "A", "X", "A", "B", None, "B", "A", "A", "X", "A"],
        "age": ["1", "2", "3", "4", "5", "6", "7", "8", "old", "10", "11", "12"],
    }
)
"""Left out: 2 rows of nobody, 2 without a ward of the list (X and NULL), 1 without an age. Of a's 4 rows 2 are cut."""


def test_the_owner_is_told_which_rows_were_left_out_and_by_which_column(tmp_path: Path) -> None:
    """A key that is missing from a list deleted 5 % of all rows from every question, without a word to anybody."""
    FRAME.to_csv(tmp_path / "visits.csv", index=False)
    for source in (FRAME, tmp_path / "visits.csv"):
        with opened(
            source,
            dn.Unit.person("who", rows=2),
            ward=dn.Domain.text("A", "B", nullable=False),
            age=dn.Domain.integer(0, 100, nullable=False),
        ) as session:
            report = session.registration["visits"]
            assert (report.read, report.cut, report.kept, report.people) == (12, 2, 5, 3)
            assert report.left_out == {"who": 2, "ward": 2, "age": 1}
            assert report.read == sum(report.left_out.values()) + report.cut + report.kept
            said = report.describe()
            assert "for the owner alone" in said
            assert "2 left out: no value in 'ward'" in said
            assert "2 left out: no id in 'who', or one that cannot be read\n" in said  # ids have no list
            assert "5 rows were kept, of 3 people" in said
            with worded(InvalidParameter, parameter="table"):
                session.registration["zz"]
            assert "2 cut" in said
            assert report.to_dict()["left_out"] == report.left_out


@pytest.mark.parametrize("public", [False, True])
def test_rows_that_are_nobodys_or_everybodys_own(public: bool) -> None:
    table = pd.DataFrame({"ward": ["A", None, "B", "Z"]})
    keys = {"ward": dn.Domain.text("A", "B", nullable=False)}
    if public:
        session = dn.session(
            {"visits": FRAME},
            unit=dn.Unit.row(),
            budget=BUDGET,
            schema={"visits": {}, "wards": keys},
            public={"wards": table},
        )
        report, people = session.registration["wards"], None
        assert session.registration["visits"].kept == session.registration["visits"].people == 12
    else:
        session = opened(table, dn.Unit.row(), **keys)
        report, people = session.registration["visits"], 2
    assert (report.read, report.left_out, report.cut, report.kept, report.people) == (4, {"ward": 2}, 0, 2, people)
    session.close()


def test_nothing_of_it_is_shown_unless_its_owner_asks() -> None:
    with opened(FRAME, dn.Unit.person("who", rows=2), ward=dn.Domain.text("A", "B", nullable=False)) as session:
        shown = repr(session.registration) + repr(session.registration["visits"]) + str(session.registration["visits"])
        assert not set(shown) & set("123456789")
        answer = session.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1)
        assert "registration" not in answer.to_json()


def test_analysts_are_told_what_the_schema_leaves_out() -> None:
    """From the schema alone: the same words, whatever the table has."""
    keys = dn.Domain.text("A", "B", nullable=False)
    told = []
    for source in (FRAME, FRAME.iloc[:1]):
        with opened(source, dn.Unit.person("who", rows=2), ward=keys, age=dn.Domain.integer(nullable=False)) as session:
            told.append(session.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1).notes)
    assert told[0] == told[1]
    assert any("at most 2 rows of each person" in note for note in told[0])
    assert any("not in its public list are left out: ward" in note for note in told[0])
    assert any("without a readable value are left out: age" in note for note in told[0])


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("unit", [dn.Unit.person("who", rows=5), dn.Unit.row()], ids=["person", "row"])
def test_a_value_that_no_list_has_is_null_in_a_csv_file_as_in_a_frame(
    tmp_path: Path, nullable: bool, unit: dn.Unit
) -> None:
    """The engine moved the cast to a list of keys into its CSV reader, which dropped such rows as errors."""
    FRAME.to_csv(tmp_path / "visits.csv", index=False)
    ward = dn.Domain.text("A", "B", nullable=nullable)
    age = dn.Domain.integer(keys=[1, 2, 3], nullable=nullable)
    found = []
    for source in (FRAME, tmp_path / "visits.csv"):
        with opened(source, unit, ward=ward, age=age) as session:
            found.append(session.registration["visits"].to_dict())
    assert found[0] == found[1]
    assert found[0]["read"] == 12
    assert (
        found[0]["kept"]
        == {(False, True): 3, (True, True): 10, (False, False): 3, (True, False): 12}[nullable, unit.column is not None]
    )


def test_one_row_of_one_person_is_told_in_the_singular() -> None:
    with opened(pd.DataFrame({"who": ["a"]}), dn.Unit.person("who", rows=2)) as session:
        said = session.registration["visits"].describe()
    assert "1 row was read" in said
    assert "1 row was kept, of 1 person" in said


def test_ids_that_pandas_made_reals_are_refused_with_what_to_do() -> None:
    frame = pd.DataFrame({"who": [1, 2, None], "ward": ["A", "A", "B"]})
    with worded(InvalidParameter, parameter="unit"):
        opened(frame, dn.Unit.person("who", rows=2))
    with opened(frame.assign(who=frame["who"].astype("Int64")), dn.Unit.person("who", rows=2)) as session:
        assert session.registration["visits"].people == 2


def test_the_owner_is_told_of_records_that_span_lines(tmp_path: Path) -> None:
    """Two stray quotes pair up to one legal field, and the rows between them were gone without a word."""
    path = tmp_path / "visits.csv"
    path.write_text('who,note,age\na,"a,3\nb,x,4\nc,x,5\nd,a",6\ne,"two\nlines",7\nf,x,8\n', encoding="utf-8")
    with opened(path, dn.Unit.person("who", rows=2), age=dn.Domain.integer(0, 100)) as session:
        report = session.registration["visits"]
        assert (report.read, report.spanning, report.widest) == (3, 2, 4)
        assert report.to_dict()["several_lines"] == {"records": 2, "longest": 4}
        assert (
            "2 records have several lines, the longest 4: check that their fields contain line ends"
            in report.describe()
        )
        assert "2" not in repr(report)
    path.write_text("who,note,age\na,x,3\n", encoding="utf-8")
    with opened(path, dn.Unit.person("who", rows=2), age=dn.Domain.integer(0, 100)) as session:
        assert session.registration["visits"].spanning == 0
        assert "lines" not in session.registration["visits"].describe()
