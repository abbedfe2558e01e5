"""A signed label binds the numbers that it stands beside: others are seen, with the library and the command line."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deniable import cli
from deniable.errors import UnreadableRecord
from deniable.ledger import keys, verify_label
from deniable.server.privacy_labels import signed
from tests.server.browsing import FORM, Browser
from tests.server.world import WARDS, World
from tests.wording import worded

QUESTIONS = (
    WARDS,
    "SELECT sex, AVG(cost) AS c, MEDIAN(age) AS a FROM visits GROUP BY sex",
    "SELECT COUNT(*) AS n FROM visits WHERE age > 40",
)


@pytest.fixture(scope="module")
def both(world: World) -> tuple[dict[str, Any], dict[str, Any]]:
    answer = world.ask(epsilon=0.31).json()
    return world.call("ada", "GET", f"/v1/labels/{answer['release']}").json(), answer


def changed(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The same answer with something else in it, in every way that somebody who prints it could."""
    found = []
    for change in (
        lambda each: each["rows"][0].__setitem__(1, each["rows"][0][1] + 1),
        lambda each: each["rows"][0].__setitem__(1, -each["rows"][0][1] or 1),
        lambda each: each["rows"][0].__setitem__(0, "Z"),
        lambda each: each["rows"].pop(),
        lambda each: each["rows"].append(each["rows"][0]),
        lambda each: each["rows"].reverse(),
        lambda each: each["columns"].__setitem__(1, "deaths"),
        lambda each: each["rows"][0].__setitem__(1, str(each["rows"][0][1])),
    ):
        other = copy.deepcopy(answer)
        change(other)
        found.append(other)
    return found


def test_a_label_with_other_numbers_beside_it_is_seen(
    both: tuple[dict[str, Any], dict[str, Any]], world: World
) -> None:
    label, answer = both
    key = world.curator.key.public
    assert verify_label(label, answer, key).numbers is True
    for other in changed(answer):
        with worded(UnreadableRecord):
            verify_label(label, other, key)


def test_the_label_of_another_release_is_seen(both: tuple[dict[str, Any], dict[str, Any]], world: World) -> None:
    """Also of one with the same numbers: its label may promise more."""
    label, answer = both
    other = {**answer, "provenance": {**answer["provenance"], "entry": answer["provenance"]["entry"] + 1}}
    with pytest.raises(UnreadableRecord, match="another release"):
        verify_label(label, other, world.curator.key.public)


@pytest.mark.parametrize("sql", QUESTIONS)
def test_every_kind_of_answer_is_bound_also_when_told_again_and_refined(sql: str, world: World) -> None:
    first = world.ask(sql, epsilon=0.2).json()
    again = world.ask(sql, epsilon=0.2).json()
    nearer = world.ask(sql, epsilon=0.2, confidence=0.99).json()
    refined = world.ask(sql, path=":refine", epsilon=0.3).json()
    key = world.curator.key.public
    early, late = (world.call("ana", "GET", f"/v1/labels/{each['release']}").json() for each in (first, refined))
    for answer in (first, again, nearer, json.loads(json.dumps(first))):
        assert verify_label(early, answer, key).numbers
    assert verify_label(late, refined, key).numbers
    with pytest.raises(UnreadableRecord):
        verify_label(early, refined, key)
    with pytest.raises(UnreadableRecord):
        verify_label(late, first, key)


def test_a_digest_that_was_edited_breaks_the_signature(
    both: tuple[dict[str, Any], dict[str, Any]], world: World
) -> None:
    label, answer = both
    for other in ({**label, "answer": "0" * 64}, {each: label[each] for each in label if each != "answer"}):
        with worded(UnreadableRecord):
            verify_label(other, answer, world.curator.key.public)
    with pytest.raises(UnreadableRecord, match="another key"):
        verify_label({**label, "key": "0" * 64}, answer, world.curator.key.public)


def old_label(label: dict[str, Any], world: World) -> dict[str, Any]:
    """As servers before version 3 signed them."""
    kept = {name: label[name] for name in label if name not in {"answer", "key", "signature"}}
    return signed({**kept, "version": 2}, world.curator.key)


def test_an_old_label_is_verified_as_what_it_is(both: tuple[dict[str, Any], dict[str, Any]], world: World) -> None:
    label, answer = both
    found = verify_label(old_label(label, world), answer, world.curator.key.public)
    assert (found.version, found.numbers) == (2, False)
    assert "does not cover the numbers" in " ".join(found.lines())


def told(*arguments: object) -> tuple[int, str]:
    found = CliRunner().invoke(cli.build(), ["verify-label", *map(str, arguments)])
    return found.exit_code, found.output


def test_the_command_says_what_is_verified(
    both: tuple[dict[str, Any], dict[str, Any]], world: World, tmp_path: Path
) -> None:
    label, answer = both
    places = {name: tmp_path / f"{name}.json" for name in ("label", "old", "answer", "other", "nothing")}
    records = (label, old_label(label, world), answer, changed(answer)[0])
    for place, record in zip(places.values(), records, strict=False):
        place.write_text(json.dumps(record))
    places["nothing"].write_text("[]")
    key = tmp_path / "server.pub"
    key.write_bytes(world.call("ada", "GET", "/v1/key").content)
    code, said = told(places["label"], places["answer"], "--key", key)
    assert code == 0
    assert "is as it was signed with this key" in said
    assert "are those that were released under this label" in said
    code, said = told(places["label"], "--key", key)
    assert (code, "No answer was compared" in said) == (0, True)
    code, said = told(places["label"], places["other"], "--key", key)
    assert (code, "not the numbers that were released" in said) == (3, True)
    code, said = told(places["old"], places["answer"], "--key", key)
    assert (code, "does not cover the numbers" in said) == (3, True)
    assert told(places["old"], "--key", key)[0] == 0
    code, said = told(places["label"], places["answer"], "--key", key, "--json")
    about = {"release": label["release"], "version": 3, "numbers": True, "key": label["key"], "replaced": False}
    assert json.loads(said) == {"whole": True, **about}
    code, said = told(places["answer"], places["label"], "--key", key)  # the other way round
    assert code == 2
    assert "answer.json': is not a label, because it has no signature; give the label first, then the answer" in said
    assert told(places["label"], places["answer"])[0] == 2
    assert told(places["nothing"], places["answer"], "--key", key)[0] == 2
    keys.new(tmp_path / "stranger.key")
    assert told(places["label"], places["answer"], "--key", tmp_path / "stranger.pub")[0] == 3


def test_the_console_gives_label_and_answer_to_whoever_asked(world: World) -> None:
    mine = Browser(world, "ana")
    mine.post("/console/data/visits/ask", **{**FORM, "amount": "0.17"})
    release = world.call("ana", "GET", "/v1/datasets/visits/releases").json()["releases"][0]["release"]
    place = f"/console/labels/{release.replace(':', '%3A')}"
    assert "?form=answer" in mine.get(place).text
    label, answer = (mine.get(f"{place}?form={form}").json() for form in ("json", "answer"))
    assert verify_label(label, answer, world.curator.key.public).numbers
    for who in ("ada", "olga"):  # who sees the label, and not the numbers
        other = Browser(world, who)
        assert "?form=answer" not in other.get(place).text
        assert other.get(f"{place}?form=answer").status_code == 404


def test_tables_that_were_measured_together_and_sums_of_them_have_labels(world: World) -> None:
    """Their noise is not that of a question by itself, and the label says so; a sum that cost nothing has one, too."""
    texts = [
        f"SELECT {keys}, COUNT(*) AS n FROM visits WHERE age > 7 GROUP BY {keys}" for keys in ("sex, ward", "ward")
    ]
    body = {"dataset": "visits", "questions": texts, "epsilon": 0.2}
    answers = world.call("ana", "POST", "/v1/questions:batch", body).json()["answers"]
    answers.append(world.ask(texts[1].replace("ward", "sex"), epsilon=0.02).json())
    assert "nothing" in answers[-1]["provenance"]["paid"]
    for answer in answers:
        label = world.call("ada", "GET", f"/v1/labels/{answer['release']}").json()
        assert verify_label(label, answer, world.curator.key.public).numbers
        [draw] = label["draws"]
        assert "measured together" in draw["mechanisms"][0]["noise"]
        assert label["deviations"][0]["deviation"] > 0


def test_the_console_shows_tables_by_several_sets_of_keys(world: World) -> None:
    mine = Browser(world, "ana")
    cube = "SELECT ward, sex, COUNT(*) AS n FROM visits WHERE age > 9 GROUP BY CUBE(ward, sex)"
    priced = mine.post("/console/data/visits/price", **{**FORM, "sql": cube, "amount": "0.11"})
    assert (priced.status_code, priced.text.count("ward × sex: n")) == (200, 1)
    page = mine.post("/console/data/visits/ask", **{**FORM, "sql": cube, "amount": "0.11", "key": "sets"})
    assert page.status_code == 200
    assert "charge" in page.text
    releases = world.call("ana", "GET", "/v1/datasets/visits/releases").json()["releases"]
    label = mine.get(f"/console/labels/{releases[0]['release'].replace(':', '%3A')}").text
    assert "GROUP BY CUBE(ward, sex) (table " in label
    assert '{"sets"' not in mine.get("/console/data/visits").text.replace("&#34;", '"').replace("&quot;", '"')
