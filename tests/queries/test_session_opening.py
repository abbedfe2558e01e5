"""Opening and closing a session: what errors and texts show."""

from __future__ import annotations

from pathlib import Path

import pytest

import deniable as dn
from deniable.errors import InvalidParameter
from tests.queries.hospital import GAUSSIAN


def test_a_file_without_a_line_of_names_does_not_show_its_first_row(tmp_path: Path) -> None:
    """DuckDB takes the first row for names if all cells are texts."""
    path = tmp_path / "visits.csv"
    path.write_text("smith,cancer,ward-17\njones,flu,ward-3\n")
    with pytest.raises(InvalidParameter) as refused:
        dn.session(str(path), budget=GAUSSIAN, unit=dn.Unit.person("patient_id", rows=3))
    assert not any(each in str(refused.value) for each in ("smith", "cancer", "17"))


def test_a_closed_session_can_be_shown(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("patient_id,age\n1,30\n2,40\n")
    with dn.session(str(path), budget=GAUSSIAN, unit=dn.Unit.person("patient_id", rows=3)) as s:
        pass
    assert repr(s) == "<Session on visits; closed>"
