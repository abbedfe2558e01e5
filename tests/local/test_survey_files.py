"""Files of answers and of reports that are no tables: every person in them has a report, or the file is refused."""

from __future__ import annotations

import csv
import io
import secrets
from pathlib import Path
from random import Random

import pytest

from deniable.errors import InvalidParameter, UnreadableRecord
from deniable.local import survey
from deniable.local.surveys import Survey
from tests.wording import worded

LINES = ["who,smokes,note", *(f"p{at},{'yes' if at % 3 else 'no'},fine" for at in range(100))]


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def asked(path: Path, **options: object) -> Survey:
    return survey(path, **({"question": "smokes", "epsilon": 1.0} | options))  # type: ignore[arg-type]


def changed(at: int, line: str) -> list[str]:
    return [*LINES[: at - 1], line, *LINES[at:]]


def test_a_whole_file_has_a_report_of_everybody(tmp_path) -> None:
    assert len(asked(written(tmp_path / "a.csv", LINES))) == 100


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ([*LINES[:19], 'p,yes,"fine', *LINES[20:69], 'p,yes,fine" ', *LINES[70:]], 70),
        (changed(20, 'p,yes,"fine'), 20),
        (changed(20, "p,yes"), 20),
        (changed(20, "p,yes,fine,fine,fine"), 20),
        (changed(20, 'p,yes,5" pipe'), 20),
        (changed(20, 'p, "yes",fine'), 20),
        (changed(20, 'p,"yes" ,fine'), 20),
        (changed(20, "p,yes,fi\rne"), 20),
    ],
)
def test_a_file_of_answers_that_is_no_table_lost_the_people_behind_a_quote(tmp_path, lines, line) -> None:
    with worded(InvalidParameter, parameter="answers", asked="a.csv") as refused:
        asked(written(tmp_path / "a.csv", lines), out=tmp_path / "r.csv")
    assert refused.value.rule.startswith(f"line {line:,}: ")
    assert "fine" not in str(refused.value)
    assert not (tmp_path / "r.csv").exists()


@pytest.mark.parametrize("text", ["smokes\nyes\n\nno\n", "smokes\nyes\nno\n\n", "smokes\r\nyes\r\n\r\nno\r\n"])
def test_an_empty_line_of_one_column_may_be_an_answer_and_does_not_vanish(tmp_path, text) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    line = text.replace("\r", "").split("\n").index("") + 1
    with worded(InvalidParameter, parameter="answers", asked=str(path)) as refused:
        asked(path, categories=["yes", "no", ""])
    assert refused.value.rule.startswith(f"line {line}: ")
    path.write_bytes(text.replace("no", '""').replace("\n\n", "\n").replace("\r\n\r\n", "\r\n").encode())
    assert len(asked(path, categories=["yes", "no", ""])) == 2


def test_an_empty_line_between_several_columns_is_no_record(tmp_path) -> None:
    assert len(asked(written(tmp_path / "a.csv", [*LINES[:20], "", *LINES[20:], ""]))) == 100


def test_a_field_longer_than_pythons_reader_takes_is_read(tmp_path) -> None:
    assert len(asked(written(tmp_path / "a.csv", changed(20, f"p,yes,{'x' * 200_000}")))) == 100


def line(random: Random, between: str) -> str:
    """A line that fits more often than not."""
    if random.random() < 0.7:
        return f"yes{between}" + random.choice(["a", "", '"b"', '"c\n"']) + "\n"
    pieces = ["yes", "no", '"', '"yes"', between, " ", "\r"]
    return "".join(random.choice(pieces) for _ in range(random.randint(1, 4))) + random.choice(["\n", "\r\n"])


def test_random_files_give_everybody_of_pythons_reader_or_are_refused(tmp_path) -> None:
    seed = secrets.randbits(32)
    print("seed", seed)
    random = Random(seed)
    taken = 0
    for _ in range(400):
        between = random.choice(",;\t")
        body = "".join(line(random, between) for _ in range(4))
        text = f"smokes{between}note\n{body}"
        path = tmp_path / "a.csv"
        path.write_bytes(text.encode())
        try:
            rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=between, strict=True))[1:]
            expected = [row[0].strip() for row in rows if row] if all(len(row) in {0, 2} for row in rows) else None
        except csv.Error:
            expected = None
        try:
            found = len(asked(path, categories=["yes", "no", ""]))
        except InvalidParameter:
            continue
        taken += 1
        assert expected is not None, text
        assert found == len(expected), text
    assert taken > 20  # else nothing was compared


def test_a_file_of_reports_with_an_empty_line_has_lost_a_report(tmp_path) -> None:
    path = tmp_path / "r.csv"
    asked(written(tmp_path / "a.csv", LINES), out=path)
    lines = path.read_text(encoding="utf-8").split("\n")
    assert len(Survey.read(path)) == 100
    path.write_bytes("\r\n".join(lines).encode())  # as a mail program makes it
    assert len(Survey.read(path)) == 100
    for at, line in ((40, ""), (40, '"1'), (40, "1,1"), (40, '"1"'), (102, "\n")):
        written(path, [*lines[:at], line, *lines[at + 1 : 102]])
        with pytest.raises((UnreadableRecord, InvalidParameter)):
            Survey.read(path)
    written(path, [*lines[:40], "", *lines[41:102]])
    with worded(UnreadableRecord):
        Survey.read(path)
