"""Opening and closing a session: what errors and texts show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import deniable as dn
from deniable.errors import BudgetExceeded, InvalidParameter
from tests.queries.hospital import GAUSSIAN
from tests.wording import worded


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


def test_tables_of_a_ledger_in_a_database_keep_its_budget_beside_others(tmp_path: Path) -> None:
    """All names together chose the ledger: a table that was opened beside another one had a second budget."""
    place = f"sqlite:///{tmp_path}/ledgers.db"
    frame = pd.DataFrame({"id": [1, 2, 3], "x": [1, 2, 3]})
    about: Any = {"unit": dn.Unit.person("id", rows=2), "budget": dn.Budget.pure(epsilon=1), "ledger": place}
    with dn.session({"visits": frame}, **about) as session:
        session.sql("SELECT COUNT(*) AS n FROM visits WHERE x > 1", epsilon=0.6)
    for sources in (("visits", "stays"), ("stays",), ("stays", "wards"), ("visits",)):
        with dn.session(dict.fromkeys(sources, frame), **about) as session:
            assert session.ledger.charged == session.budget.cost(epsilon=0.6)
            with pytest.raises(BudgetExceeded):
                session.sql(f"SELECT COUNT(*) AS n FROM {sources[0]}", epsilon=0.5)
    with dn.session({"others": frame}, **about) as session:
        assert session.ledger.names == ["others"]
    with worded(InvalidParameter, parameter="ledger"):
        dn.session({"others": frame, "visits": frame}, **about)


@pytest.mark.parametrize("wrong", [{"budgte": 1}, {"keep": "no"}, {"progress": 1}, {"eps": 0.1}])
def test_a_wrong_option_of_a_session_is_named_before_anything_is_opened(wrong: Any) -> None:
    """A misspelt option was a TypeError without its remedy, and keep="no" counted as True: it stored the table."""
    with worded(InvalidParameter, parameter=next(iter(wrong))):
        dn.session({}, **wrong)
