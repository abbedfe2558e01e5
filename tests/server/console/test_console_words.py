"""What the console says to people who do something for the first time, and wrongly."""

from __future__ import annotations

from html import unescape
from pathlib import Path

import pytest

from deniable.server.roles import Role
from tests.server.browsing import FORM, Browser
from tests.server.world import World, made


@pytest.mark.parametrize("name", ["Jürgen", "", "-ana", "<b>"])
def test_a_name_that_cannot_be_is_told_in_words_and_by_no_pattern(world: World, name: str) -> None:
    shown = Browser(world, "adam").post("/console/people", person=name, role="analyst")
    assert shown.status_code == 422
    assert "This needs another look" in shown.text
    assert ("person: must begin with a letter" if name else "person: must not be empty") in shown.text
    assert "pattern" not in shown.text
    assert "String" not in shown.text


@pytest.mark.parametrize(
    ("change", "words"),
    [({"sql": ""}, "a question must be one SELECT"), ({"amount": "0,1"}, "must be a positive number, such as 0.1")],
)
def test_a_question_that_cannot_be_sent_says_what_is_missing(world: World, change: dict[str, str], words: str) -> None:
    shown = Browser(world, "ana").post("/console/data/visits/ask", **{**FORM, **change})
    assert shown.status_code == 422
    assert words in shown.text


def test_a_file_that_is_no_table_leads_back_to_the_other_files(world: World) -> None:
    (world.folder / "bills.csv").write_text("who;what\n1;2\n")
    shown = Browser(world, "olga").get("/console/add?file=bills.csv")
    assert "bills.csv cannot be added" in shown.text
    assert "separated by semicolons" in shown.text
    assert "Which file?" in shown.text


@pytest.mark.parametrize(("file", "proposed"), [("Gr\u00f6\u00dfe K\u00f6ln.csv", "Groe_Koln"), ("日本.csv", "data")])
def test_the_name_that_is_proposed_is_one_that_may_be_taken(world: World, file: str, proposed: str) -> None:
    (world.folder / file).write_text("who,what\n1,2\n")
    shown = Browser(world, "olga").get(f"/console/add?file={file}")
    assert f'name="name" value="{proposed}"' in shown.text


def test_that_nobody_can_fulfil_a_condition_is_said_before_it_is_paid_for(world: World) -> None:
    nobody = {**FORM, "sql": "SELECT COUNT(*) AS n FROM visits WHERE ward = 'nowhere'"}
    shown = Browser(world, "ana").post("/console/data/visits/price", **nobody)
    assert "no row can fulfil the conditions" in shown.text
    assert "no row can" not in Browser(world, "ana").post("/console/data/visits/price", **FORM).text


def test_an_empty_window_is_named_where_there_is_more_in_the_dataset(tmp_path: Path) -> None:
    world = made(tmp_path)
    with world.client:
        world.newcomer("nina", Role.ANALYST)
        done = Browser(world, "olga").post("/console/data/visits/share", analyst="nina", limit="0.5", window="30 days")
        assert done.status_code == 303
        shown = Browser(world, "nina").post("/console/data/visits/ask", **{**FORM, "amount": "2"})
        assert shown.status_code == 402
        assert "in the share of 'nina' for this 30 days (in UTC)" in unescape(shown.text)
        problem = world.ask(who="nina", epsilon=2.0).json()
        assert problem["account"] == "the share of 'nina' in this window of 2,592,000 s"


def test_known_people_under_another_unit_are_told_which_one_they_have(tmp_path: Path) -> None:
    world = made(tmp_path)
    with world.client:
        fields = {"file": "visits.csv", "name": "again", "table": "visits", "rows": "7", "step": "7", "delta": "1e-6"}
        fields |= {"person": "ward", "known": "yes", **{f"kind.{i}": "text" for i in range(8)}}
        shown = unescape(Browser(world, "olga").post("/console/add", **fields).text)
        assert "This data has a budget already, and its unit is another" in shown
        assert "of 'visits', which protects one person ('patient_id', at most 3 rows) added or removed" in shown
        assert "Fill in the same unit as then" in shown


@pytest.mark.slow
def test_an_owner_who_raises_the_limit_may_spend_it(tmp_path: Path) -> None:
    """The owner's own share was made with the first limit, and nobody could raise it."""
    world = made(tmp_path)
    with world.client:
        browser = Browser(world, "olga")
        for limit in ("500", "3"):  # raised, and lowered
            done = browser.post("/console/data/visits/adjust", limit=limit, reason="the board agreed")
            assert done.status_code == 303, done.text
            assert world.ledger.left("olga") == world.ledger.remaining
        world.ledger.verify(world.curator.key.public)
