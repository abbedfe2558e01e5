"""`deniable plan`: the cheapest dashboard, without an account."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.shell import asked, refused
from tests.cli.test_standing_command import COUNT, SCHEMA

pytest.importorskip("duckdb")


@pytest.mark.slow
def test_a_plan_costs_nothing_and_opens_no_account(tmp_path: Path) -> None:
    visits = tmp_path / "visits.csv"
    visits.write_text("patient_id,day,ward\np1,2026-01-01,A\n", encoding="utf-8")
    visits.with_suffix(".yaml").write_text(SCHEMA, encoding="utf-8")
    about = ["--schema", str(visits.with_suffix(".yaml")), "--by", "day"]
    told = asked("plan", str(visits), COUNT, "--within", "50", *about)
    assert "stands   paid once" in told
    record = json.loads(asked("plan", str(visits), COUNT, "--within", "50", "--json", *about))
    assert record["blocks"][0]["way"] == "stands"
    assert "one for each question" in refused("plan", str(visits), COUNT, "--within", "1", "--within", "2", *about)[1]
    assert not Path(f"{visits}.ledger").exists()
