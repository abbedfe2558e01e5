"""Schemas: written and read back in every form, refused with a path where something is wrong."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from deniable.errors import DeniableError, InvalidParameter, UnreadableRecord
from deniable.tables import Domain, Table, propose_schema, read_schema, write_schema
from deniable.tables.kinds import Kind
from deniable.tables.schema import schema_records
from deniable.tables.schema_proposal import kind_of_type
from deniable.units import Unit
from tests.wording import worded

TABLES = {
    "visits": Table.of(
        "visits",
        Unit.replaced_person("patient id", rows=20),
        age=Domain.integer(0, 120, nullable=False),
        ward=Domain.text("A", "no", "b c", "é", "7"),
        cost=Domain.real(-0.5, 1e4),
        level=Domain.integer(keys=[3, 1, 2]),
        seen=Domain.boolean(),
        on=Domain.date(keys=[dt.date(2024, 1, 1), dt.date(2024, 1, 2)]),
        day=Domain.date(dt.date(2024, 1, 1), dt.date(2024, 12, 31)),
        at=Domain.timestamp(),
        within=Domain.timestamp(dt.datetime(1, 1, 1), dt.datetime(2024, 12, 31, 23, 59, 59, 999999)),
        note=Domain.text(),
    ),
    "rows": Table.of("rows", Unit.row(), x=Domain.integer()),
    "wards of": Table.of("wards of", None, ward=Domain.text(), beds=Domain.integer(-5, 5)),
}


@pytest.mark.parametrize("form", ["yaml", "toml", "json"])
def test_a_schema_survives_being_written(form: str, tmp_path: Path) -> None:
    text = write_schema(TABLES, form=form)
    assert read_schema(text) == TABLES
    path = tmp_path / f"schema.{form}"
    path.write_text(text, encoding="utf-8")
    assert read_schema(path) == read_schema(str(path)) == TABLES


def test_two_dates_are_bounds_as_two_numbers_are() -> None:
    """They were two keys: every other day was read as NULL, without a word."""
    first, last = dt.date(2024, 1, 1), dt.date(2024, 12, 31)
    year = Domain.date(first, last)
    assert year.keys is None
    assert year.bounds == (first.toordinal(), last.toordinal())
    assert repr(year) == "Domain.date(datetime.date(2024, 1, 1), datetime.date(2024, 12, 31))"
    assert Domain.date(keys=[first]).bounds is None
    assert repr(Domain.date(keys=[first])) == "Domain.date(keys=(datetime.date(2024, 1, 1)))"
    declared = read_schema(
        "tables:\n  t:\n    columns:\n      d: {kind: date, low: 2024-01-01, high: 2024-12-31}", unit=Unit.row()
    )
    assert declared["t"].column("d") == year
    quoted = {"kind": "date", "keys": ["2024-01-01"]}
    assert read_schema({"tables": {"t": {"columns": {"d": quoted}}}}, unit=Unit.row())["t"].column("d").keys == (first,)
    with pytest.raises(TypeError):
        Domain.date(first, last, last)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("record", "where"),
    [
        ({}, "tables"),
        ({"tables": {}, "extra": 1}, "extra"),
        ({"version": 2, "tables": {"t": {}}}, "version"),
        ({"tables": {"t": {"columns": {}}}}, "t"),
        ({"tables": {"t": {"columns": {"x": 3}}}}, "t.x"),
        ({"tables": {"t": {"columns": {"x": {"kind": "float"}}}}}, "t.x.kind"),
        ({"tables": {"t": {"columns": {"x": {"kind": "real", "low": 0}}}}}, "t.x"),
        ({"tables": {"t": {"columns": {"x": {"kind": "real", "low": 1, "high": 0}}}}}, "t.x"),
        ({"tables": {"t": {"columns": {"x": {"kind": "real", "low": "a", "high": 0}}}}}, "t.x.low"),
        ({"tables": {"t": {"columns": {"x": {"kind": "integer", "low": 0.5, "high": 2}}}}}, "t.x.low"),
        ({"tables": {"t": {"columns": {"x": {"kind": "text", "low": 0, "high": 2}}}}}, "t.x"),
        ({"tables": {"t": {"columns": {"x": {"kind": "date", "low": "2024-13-01", "high": "2024-12-01"}}}}}, "t.x.low"),
        ({"tables": {"t": {"columns": {"x": {"kind": "timestamp", "low": 1, "high": 2}}}}}, "t.x.low"),
        ({"tables": {"t": {"columns": {"x": {"kind": "timestamp", "low": "2024-01-01", "high": "2024-12-01"}}}}}, "t.x.low"),
        ({"tables": {"t": {"columns": {"x": {"kind": "boolean", "low": 0, "high": 1}}}}}, "numbers, dates and timestamps"),
        ({"tables": {"t": {"columns": {"x": {"kind": "text", "keys": [1]}}}}}, "t.x.keys"),
        ({"tables": {"t": {"columns": {"x": {"kind": "text", "keys": ["a", "a"]}}}}}, "t.x.keys"),
        ({"tables": {"t": {"columns": {"x": {"kind": "text", "keys": []}}}}}, "t.x.keys"),
        ({"tables": {"t": {"columns": {"x": {"kind": "real", "keys": [1.5]}}}}}, "t.x.keys"),
        ({"tables": {"t": {"columns": {"x": {"kind": "text", "nullable": "no"}}}}}, "t.x.nullable"),
        ({"tables": {"t": {"columns": {"x": {"kind": "text", "unique": True}}}}}, "unique"),
        ({"tables": {"t": {"person": "p", "columns": {"x": {"kind": "text"}}}}}, "t.rows"),
        ({"tables": {"t": {"person": "p", "rows": 0, "columns": {"x": {"kind": "text"}}}}}, "rows"),
        ({"tables": {"t": {"neighbours": "all", "columns": {"x": {"kind": "text"}}}}}, "t.neighbours"),
        ({"tables": {"t": {"columns": {"x": {"kind": "text", "keys": "FILL IN"}}}}}, "FILL IN"),
        ({"tables": {"t": {"person": "FILL IN", "columns": {"x": {"kind": "text"}}}}}, "FILL IN"),
    ],
    ids=range(26),
)  # fmt: skip
def test_what_is_wrong_is_named(record: dict[str, Any], where: str) -> None:
    with pytest.raises((UnreadableRecord, InvalidParameter)) as wrong:
        read_schema(record, unit=Unit.row())
    assert where in str(wrong.value)


@pytest.mark.parametrize("text", ["a: [\nb", "[tables.\nx", "{\n", "- 1\n- 2"])
def test_text_that_is_no_schema(text: str) -> None:
    with pytest.raises(UnreadableRecord):
        read_schema(text)


@pytest.mark.parametrize(
    ("high", "said"),
    [
        ("2024-13-01", "t.d.high: must be a date; write 2024-01-31"),
        ("2024-02-30", "t.d.high: must be a date"),
        ("2024-01-01T99:00:00", "t.d.high: must be a date"),
        ("2024-01-01T00:00:00+99:99", "t.d.high: must be a date"),
        ("1" * 5000, "cannot be read"),
        ("!!int x", "cannot be read"),
        ("!!float x", "cannot be read"),
        ("!!timestamp x", "cannot be read"),
        ("!!bool x", "cannot be read"),
    ],
)
def test_a_date_that_is_none_in_yaml_was_a_traceback(high: str, said: str) -> None:
    text = f"tables:\n  t:\n    neighbours: replace\n    columns:\n      d: {{kind: date, low: 2024-01-01, high: {high}}}\n"
    with pytest.raises((UnreadableRecord, InvalidParameter)) as wrong:
        read_schema(text)
    assert said in str(wrong.value)


@pytest.mark.parametrize("kind", ["integer", "real"])
def test_a_power_of_ten_that_yaml_reads_as_text_says_so(kind: str) -> None:
    text = f"tables:\n  t:\n    neighbours: replace\n    columns:\n      x: {{kind: {kind}, low: 0, high: 1e3}}\n"
    with worded(DeniableError, parameter="t.x.high"):
        read_schema(text)


@pytest.mark.parametrize("text", ["version: 1\n", "version: 1\ntables: []\n", "- a\n- b\n"])
def test_a_file_that_is_no_schema_says_what_writes_one(text: str) -> None:
    with worded(DeniableError):
        read_schema(text)


def test_keys_that_are_no_list_show_how_a_list_is_written() -> None:
    with worded(DeniableError):
        read_schema("tables:\n  t:\n    neighbours: replace\n    columns:\n      x: {kind: text, keys: A}\n")


def test_a_long_number_in_toml_was_a_traceback() -> None:
    with pytest.raises(UnreadableRecord, match="not valid TOML"):  # what follows are words of Python
        read_schema(f"[tables.t.columns]\nx = {{ kind = 'integer', low = 0, high = {'1' * 5000} }}\n")


def test_what_is_not_filled_in_is_taken_out_without_its_column() -> None:
    with worded(UnreadableRecord):
        read_schema('tables:\n  t:\n    neighbours: replace\n    columns:\n      ward: {kind: text, keys: "FILL IN"}\n')


def test_a_private_table_needs_a_unit() -> None:
    with pytest.raises(UnreadableRecord, match="person"):
        read_schema({"tables": {"t": {"columns": {"x": {"kind": "text"}}}}})


def test_names_that_differ_by_case_alone_are_refused() -> None:
    with pytest.raises(InvalidParameter):
        Table.of("t", None, x=Domain.text(), X=Domain.text())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Domain.integer(0),
        lambda: Domain.integer(2, 1),
        lambda: Domain.integer(0, 2**63),
        lambda: Domain.integer(True, 2),
        lambda: Domain.real(0, float("inf")),
        lambda: Domain.real(float("nan"), 1),
        lambda: Domain.integer(float("nan"), 1),  # type: ignore[arg-type]
        lambda: Domain.integer(0, 3, keys=[4]),
        lambda: Domain.text("a", "a"),
        lambda: Domain.date(dt.datetime(2024, 1, 1, 12), dt.datetime(2024, 1, 2)),
        lambda: Domain.date(keys=[dt.datetime(2024, 1, 1, 12)]),
        lambda: Domain.date(dt.date(2024, 1, 1)),
        lambda: Domain.date(dt.date(2024, 1, 2), dt.date(2024, 1, 1)),
        lambda: Domain.date(2023, 2024),  # type: ignore[arg-type]
        lambda: Domain.date(dt.date(2024, 1, 1), dt.date(2024, 1, 2), keys=[dt.date(2024, 1, 3)]),
        lambda: Domain.real(0, 10**400),
    ],
    ids=range(16),
)
def test_domains_that_cannot_be(wrong: Any) -> None:
    with pytest.raises(InvalidParameter):
        wrong()


def test_bounds_of_reals_are_floats() -> None:
    assert Domain.real(0, 0.1).bounds == (Fraction(0), Fraction(0.1))


def test_a_proposal_reads_types_only(tmp_path: Path) -> None:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyarrow import parquet

    frame = pd.DataFrame({"n": [1], "x": [1.5], "s": ["secret"], "f": [True], "t": pd.to_datetime(["2024-01-01"])})
    wanted = {"n": Kind.INTEGER, "x": Kind.REAL, "s": Kind.TEXT, "f": Kind.BOOLEAN, "t": Kind.TIMESTAMP}
    arrow = pa.Table.from_pandas(frame)
    parquet.write_table(arrow, tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("n,x,s\n1,2,secret\n")
    for source in (frame, pl.from_pandas(frame), pl.from_pandas(frame).lazy(), arrow, tmp_path / "t.parquet"):
        proposal = propose_schema(source)
        found = proposal.schema(unit=Unit.row())["data"]
        assert {name: domain.kind for name, domain in found.columns} == wanted
        assert "secret" not in proposal.text()
        assert proposal.missing == (
            "data.person", "data.rows", "data.n.low", "data.n.high", "data.x.low", "data.x.high", "data.s.keys",
            "data.t.low", "data.t.high",
        )  # fmt: skip
        assert "#" not in proposal.text()
        with pytest.raises(UnreadableRecord, match="FILL IN"):
            read_schema(proposal.text("toml"))
    untyped = propose_schema(tmp_path / "t.csv")
    for form in ("yaml", "toml"):
        notes = [line for line in untyped.text(form).splitlines() if line.startswith("#")]
        assert all(kind.value in notes[0] for kind in Kind)
        filled = (
            untyped.text(form)
            .replace('"FILL IN"', "1")
            .replace("keys: 1", "nullable: true")
            .replace("keys = 1", "nullable = true")
        )
        assert set(read_schema(filled.replace("person: 1", "person: n").replace("person = 1", 'person = "n"'))) == {
            "data"
        }
    assert [d.kind for _, d in propose_schema(tmp_path / "t.csv").schema(unit=Unit.row())["data"].columns] == [
        Kind.TEXT
    ] * 3


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("BIGINT", Kind.INTEGER), ("uint8", Kind.INTEGER), ("HUGEINT", Kind.INTEGER), ("long", Kind.INTEGER),
        ("interval", Kind.TEXT), ("DECIMAL(38, 9)", Kind.REAL), ("double", Kind.REAL), ("Float32", Kind.REAL),
        ("VARCHAR", Kind.TEXT), ("Datetime(time_unit='us')", Kind.TIMESTAMP), ("timestamp[us, tz=UTC]", Kind.TIMESTAMP),
        ("Date", Kind.DATE), ("date64[ms]", Kind.DATE), ("category", Kind.TEXT), ("bool", Kind.BOOLEAN), ("time", Kind.TEXT),
        ("struct<a: int>", Kind.TEXT), ("point", Kind.TEXT),
    ],
)  # fmt: skip
def test_kinds_of_types(name: str, kind: Kind) -> None:
    assert kind_of_type(name) is kind


@pytest.mark.parametrize("wrong", [3, "x.xlsx", {}, None], ids=str)
def test_sources_without_types(wrong: Any) -> None:
    with pytest.raises(InvalidParameter):
        propose_schema(wrong)


def test_no_line_but_the_first_decides_how_a_file_is_proposed(tmp_path: Path) -> None:
    """A row in another encoding raised, and its byte was shown; a quote that was left open took in the data."""
    path = tmp_path / "t.csv"
    found = []
    for row in (b"1,A", b"1,caf\xe9", b'1,"', b"\xff\xfe\0\0", b"1," + b"x" * 200_000):
        path.write_bytes(b"\xef\xbb\xbfid,w\xc3\xa4rd\r\n" + row + b"\r\n")
        found.append(propose_schema(path).text())
    assert len(set(found)) == 1
    assert '"wärd"' in found[0]
    with gzip.open(tmp_path / "t.csv.gz", "wb") as file:
        file.write(path.read_bytes())
    assert propose_schema(tmp_path / "t.csv.gz").text() == found[0]


HEADERS = {
    "empty": (b"", "begin with a line"),
    "an empty line": (b"\nsecret", "begin with a line"),
    "latin-1": (b"id,w\xe4rd\nsecret", "UTF-8"),
    "utf-16": ("id,ward\nsecret".encode("utf-16"), "UTF-8"),
    "utf-16 without a mark": ("id,ward\nsecret".encode("utf-16-le"), "UTF-8"),
    "an open quote": (b'id,"ward\nsecret,2\nsecret,"3', "close every quote"),
    "semicolons": (b"id;ward\nsecret;2", "separated by semicolons, not by commas; save"),
    "tabs": (b"id\tward\nsecret\t2", "separated by tabs, not by commas; call the file .tsv"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_first_line_that_names_no_columns_is_refused_without_showing_it(case: str, tmp_path: Path) -> None:
    content, rule = HEADERS[case]
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InvalidParameter) as caught:
        propose_schema(tmp_path / "t.csv")
    assert rule in str(caught.value)
    assert caught.value.asked == str(tmp_path / "t.csv")
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_name_with_a_semicolon_may_be_quoted(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('"a;b"\n1\n')
    assert [name for name, _ in propose_schema(tmp_path / "t.csv").schema(unit=Unit.row())["data"].columns] == ["a;b"]


@pytest.mark.parametrize(("ending", "rule"), [(".parquet", "not a Parquet file"), (".csv.gz", "gzip")])
def test_a_damaged_file_is_refused_in_our_words(ending: str, rule: str, tmp_path: Path) -> None:
    path = tmp_path / f"t{ending}"
    path.write_bytes(b"PAR1 secret PAR1")
    with pytest.raises(InvalidParameter, match=rule) as caught:
        propose_schema(path)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("yaml", "tables:\n  t:\n    columns: [\n  x: 1\n"),
        ("toml", "version = 1\n[tables.t]\nrows = \n"),
        ("json", '{\n"version": 1,\n"tables": }\n'),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_line(ending: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / f"visits.{ending}"
    path.write_text(text)
    with pytest.raises(UnreadableRecord, match=rf"^visits.{ending}: is not valid {ending.upper()}: .*line [3-5]"):
        read_schema(path)
    path.write_bytes(b"\xe9")
    with worded(UnreadableRecord) as refused:
        read_schema(path)
    assert str(refused.value).startswith(f"visits.{ending}: ")


@pytest.mark.slow
@pytest.mark.parametrize("text", ["[" * 5000 + "\n", '{"a":' * 100_000 + "\n", "[tables.x]\na = " + "[" * 5000])
def test_what_is_nested_too_deeply_is_said(text: str) -> None:
    with pytest.raises(UnreadableRecord):
        read_schema(text)


def test_a_file_is_told_how_to_write_a_moment() -> None:
    columns = {"at": {"kind": "timestamp", "low": dt.date(2024, 3, 1), "high": dt.date(2024, 4, 1)}}
    with worded(InvalidParameter, parameter="t.at.low"):
        read_schema({"tables": {"t": {"columns": columns}}}, unit=Unit.row())


def test_one_value_is_declared_alike_however_python_has_it() -> None:
    """Midnight of pandas was a day and midnight of Python was not; text had no keys=, and decimals were no numbers."""
    pd = pytest.importorskip("pandas")
    days = Domain.date("2024-01-01", "2024-01-31")
    assert Domain.date(pd.Timestamp("2024-01-01"), pd.Timestamp("2024-01-31")) == days
    assert Domain.date(dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 31)) == days
    assert Domain.text(keys=["A", "B"], nullable=False) == Domain.text("A", "B", nullable=False)
    assert Domain.real(Decimal("0.1"), Decimal("1e-99999999") + 1) == Domain.real(0.1, 1)
    assert Domain.real(Decimal("-1e-99999999"), 1) == Domain.real(0, 1)
    assert Domain.integer(Decimal(0), Decimal("12e1")) == Domain.integer(0, 120)
    for day in ("2024-01-01", dt.date(2024, 1, 1)):
        with worded(InvalidParameter, parameter="low"):
            Domain.timestamp(day, "2024-01-31 00:00")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Domain.date("2024-W01-1", "2024-12-31"),
        lambda: Domain.date("20240101", "2024-12-31"),
        lambda: Domain.timestamp("2024-W01-1 10:00", "2024-12-31 10:00"),
        lambda: Domain.text("A", keys=["A"]),
        lambda: Domain.real(Decimal(0), Decimal("1e99999999")),
        lambda: Domain.integer(0, Decimal("1e99999999")),  # type: ignore[arg-type]
        lambda: Domain.integer(0, Decimal("0.5")),  # type: ignore[arg-type]
        lambda: Domain.real(Decimal("sNaN"), 1),
    ],
    ids=["week", "no dashes", "moment by week", "keys twice", "huge", "huge integer", "half", "signalling"],
)
def test_other_ways_to_write_a_value_are_refused(make: Any) -> None:
    with pytest.raises(InvalidParameter):
        make()


@pytest.mark.parametrize("opening", ["[", "{a: ", '[{"b": '])
def test_brackets_within_brackets_are_counted_before_they_are_read(
    opening: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 of them took 4 s to be refused: the reader looks at all open ones for each."""
    from deniable.tables import yaml_text

    def read(*_: Any) -> Any:
        raise AssertionError("it was read")

    assert read_schema("tables: {t: {public: true, columns: {x: {kind: text, keys: ['[[', '{']}}}}\n")
    monkeypatch.setattr(yaml_text.yaml, "load", read)
    with worded(UnreadableRecord):
        read_schema("tables: " + opening * 2000 + "\n")


def test_a_schema_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    """It was a bare FileNotFoundError of Python."""
    for path, said in ((tmp_path / "none.yaml", "no such file"), (tmp_path, "cannot be read")):
        with pytest.raises(InvalidParameter, match=said) as failed:
            read_schema(path)
        assert (failed.value.parameter, failed.value.asked) == ("schema", str(path))


def test_records_of_a_schema_are_those_that_json_text_holds() -> None:
    records = schema_records(TABLES)
    assert records == json.loads(write_schema(TABLES, form="json"))["tables"]
    assert read_schema({"version": 1, "tables": records}) == TABLES


def test_a_name_given_twice_in_json_is_told_plainly() -> None:
    """It was told as "is not JSON", which it is."""
    text = '{"version": 1,\n"tables": {"visits": {"columns": {}}, "visits": {"columns": {}}}}'
    with worded(UnreadableRecord) as told:
        read_schema(text)
    assert "'visits'" in str(told.value)
    assert "JSON" not in str(told.value)


def test_a_misspelt_kind_is_answered_with_the_nearest_one() -> None:
    record = {"version": 1, "tables": {"t": {"neighbours": "replace", "columns": {"age": {"kind": "intger"}}}}}
    with worded(UnreadableRecord):
        read_schema(record)
