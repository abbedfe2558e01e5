"""`deniable standing`: declared, answered, listed, from the account of `deniable ask`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deniable.ledger import Ledger
from tests.cli.shell import asked, refused

pytest.importorskip("duckdb")

SCHEMA = """\
version: 1
tables:
  visits:
    person: patient_id
    rows: 3
    columns:
      day: {kind: date, low: 2026-01-01, high: 2026-12-31, nullable: false}
      ward: {kind: text, keys: [A, B], nullable: false}
"""
COUNT = "SELECT COUNT(*) AS n FROM visits"


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    rows = [f"p{i},2026-01-0{day},{'AB'[i % 2]}" for day in (1, 2) for i in range(40)]
    (tmp_path / "visits.csv").write_text("\n".join(["patient_id,day,ward", *rows]), encoding="utf-8")
    (tmp_path / "visits.yaml").write_text(SCHEMA, encoding="utf-8")
    return tmp_path / "visits.csv"


@pytest.mark.slow
def test_declared_answered_and_listed(visits: Path) -> None:
    about = ["--schema", str(visits.with_suffix(".yaml"))]
    assert "has no account yet" in refused("standing", str(visits), "daily", *about)[1]
    new = ["--epsilon", "900", "--budget", "2000"]
    assert "--by" in refused("standing", str(visits), "daily", COUNT, *new, *about)[1]
    made = asked("standing", str(visits), "daily", COUNT, "--by", "day", "--epsilon", "900", *about)
    assert "once for all days" in made
    assert "answered no day yet" in made
    told = asked("standing", str(visits), "daily", "--day", "2026-01-01", *about)
    assert "│ 40 ± 0 │" in told
    again = json.loads(asked("standing", str(visits), "daily", "--day", "2026-01-01", "--json", *about))
    assert again[0]["rows"] == [[40]]
    asked("standing", str(visits), "year", COUNT, "--by", "day", "--totals", "30", "--epsilon", "900", *about)
    total = json.loads(asked("standing", str(visits), "year", "--day", "2026-01-02", "--json", *about))
    assert total[0]["rows"] == [[80]]
    listed = asked("standing", str(visits), *about)
    assert "daily: about visits by day; 1 answered, the last for 2026-01-01" in listed
    assert (
        "has running totals up to 2026-01-02; reveal a later day"
        in refused("standing", str(visits), "year", "--day", "2026-01-01", *about)[1]
    )
    with Ledger.inspect(f"{visits}.ledger") as ledger:
        ledger.verify()
