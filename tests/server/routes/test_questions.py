"""Questions over HTTP: what they cost, that they are charged once and in time, and what is refused."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from deniable.errors import EngineFailed
from deniable.ledger import verify_label
from deniable.ledger.entries import State
from deniable.server.problems import CODES, MEDIA_TYPE, Problem
from tests.server.world import WARDS, World


def test_an_answer_has_numbers_intervals_and_papers(world: World) -> None:
    before = world.ledger.charged
    answer = world.ask(epsilon=1.0)
    assert answer.status_code == 200
    said = answer.json()
    assert said["columns"] == ["ward", "n"]
    assert [row[0] for row in said["rows"]] == ["A", "B", "C"]
    assert all(low <= row[1] <= high for row, (_, (low, high)) in zip(said["rows"], said["intervals"], strict=True))
    assert said["release"] == f"visits:{said['provenance']['entry']}"
    cost = world.ledger.budget.cost(epsilon=1.0)
    assert world.ledger.charged == before + cost
    sealed = list(world.ledger.entries())[-1]
    assert (sealed.state, sealed.payer, sealed.cost) == (State.SEALED, "ana", cost)


def test_a_refined_question_is_in_the_ledger_in_the_words_of_whoever_asked(world: World) -> None:
    text = "SELECT  sex, COUNT(*) AS n FROM visits WHERE age > 33 GROUP BY sex"
    assert world.ask(text, epsilon=0.5).status_code == 200
    for number in range(2):
        done = world.ask(text, path=":refine", key=f"refined-{number}", epsilon=0.5)
        assert done.status_code == 200
        entry = world.ledger.charge(done.json()["provenance"]["entry"])
        assert entry.description == "refined: SELECT sex, COUNT(*) AS n FROM visits WHERE age > 33 GROUP BY sex"


def test_a_price_charges_nothing_and_reads_nothing(world: World) -> None:
    engine = world.curator.open(world_owner(), "visits").session._engine
    before = list(world.ledger.entries())
    collect, engine.collect = engine.collect, None  # whoever touches data now, fails
    try:
        answer = world.ask("SELECT sex, AVG(cost) AS c FROM visits GROUP BY sex", path=":price", epsilon=0.5)
    finally:
        engine.collect = collect
    assert answer.status_code == 200
    assert answer.json()["fits"] is True
    assert list(world.ledger.entries()) == before


def world_owner() -> Any:
    from deniable.server.catalogue.catalogue import Person
    from deniable.server.roles import Role

    return Person("olga", Role.OWNER)


def test_the_same_question_again_is_the_same_answer_for_nothing(world: World) -> None:
    sql = "SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex"
    first = world.ask(sql, epsilon=0.5).json()
    charged = world.ledger.charged
    again = world.ask("select  SEX, count(*)  as n from visits group by sex", epsilon=0.4).json()
    assert again["rows"] == first["rows"]
    assert again["provenance"]["replayed"] is True
    assert world.ledger.charged == charged


def test_refining_merges_and_charges_the_rest(world: World) -> None:
    sql = "SELECT COUNT(*) AS n FROM visits WHERE stay > 3"
    assert world.ask(sql, path=":refine", epsilon=0.5).json()["code"] == "invalid"
    first = world.ask(sql, epsilon=0.5).json()
    second = world.ask(sql, path=":refine", epsilon=0.5).json()
    width = [high - low for [[(low, high)]] in (first["intervals"], second["intervals"])]
    assert width[1] < 0.8 * width[0]


def test_a_batch_is_paid_together_or_not_at_all(world: World) -> None:
    good = [f"SELECT COUNT(*) AS n FROM visits WHERE age > {age}" for age in (11, 12, 13)]
    body = {"dataset": "visits", "questions": good, "epsilon": 0.5}
    answer = world.call("ana", "POST", "/v1/questions:batch", body)
    assert [len(each["rows"]) for each in answer.json()["answers"]] == [1, 1, 1]
    before = list(world.ledger.entries())
    bad = {**body, "questions": [*good[:1], "SELECT COUNT(*) AS n FROM visits WHERE age > 14", "SELECT * FROM visits"]}
    refused = world.call("ana", "POST", "/v1/questions:batch", bad)
    assert (refused.status_code, refused.json()["code"]) == (422, "refused")
    assert list(world.ledger.entries()) == before


def test_tables_by_several_sets_of_keys_are_answered_and_each_has_a_label(world: World) -> None:
    cube = "SELECT ward, sex, COUNT(*) AS n, GROUPING(ward) AS g FROM visits WHERE age > 15 GROUP BY CUBE(ward, sex)"
    before = world.ledger.charged.units
    body = {"dataset": "visits", "questions": [cube], "epsilon": 0.5}
    priced = world.call("ana", "POST", "/v1/questions:price_batch", body).json()
    assert [each["cells"] for each in priced["tables"]] == [6, 3, 2, 1]
    assert world.ledger.charged.units == before
    first = world.ask(cube, key="cube", epsilon=0.5)
    assert first.status_code == 200
    said = first.json()
    assert said["columns"] == ["ward", "sex", "n", "g"]
    assert (len(said["rows"]), [len(each["rows"]) for each in said["tables"]]) == (12, [6, 3, 2, 1])
    assert said["rows"][-1][:2] == [None, None]
    paid = world.ledger.charged.units - before
    assert 0 <= world.ledger.budget.cost(epsilon=0.5).units - paid < 10
    assert world.ask(cube, key="cube", epsilon=0.5).json()["rows"] == said["rows"]
    assert world.ask(cube, epsilon=0.5).json()["rows"] == said["rows"]
    assert world.ledger.charged.units == before + paid
    for each in said["tables"]:
        label = world.call("ana", "GET", f"/v1/labels/{each['release']}").json()
        assert verify_label(label, each, world.curator.key.public).numbers


def test_tables_by_several_sets_of_keys_are_priced_and_explained_as_one_question(world: World) -> None:
    """`price` said that there is no CUBE, although `ask` answers it."""
    cube = "SELECT ward, sex, COUNT(*) AS n FROM visits WHERE age > 17 GROUP BY CUBE(ward, sex)"
    before = list(world.ledger.entries())
    body = {"dataset": "visits", "questions": [cube], "epsilon": 0.5}
    priced = world.ask(cube, path=":price", epsilon=0.5)
    assert priced.status_code == 200, priced.text
    assert priced.json() == world.call("ana", "POST", "/v1/questions:price_batch", body).json()
    assert [each["cells"] for each in priced.json()["tables"]] == [6, 3, 2, 1]
    plan = world.ask(cube, path=":explain").json()["text"]
    assert plan.count("SELECT") >= 4
    with_noise = world.ask(cube, path=":explain", epsilon=0.5).json()["text"]
    assert with_noise.startswith(plan)
    assert "\n".join(priced.json()["lines"]) in with_noise
    assert list(world.ledger.entries()) == before


def test_a_batch_of_one_question_that_only_mentions_a_cube_is_priced(world: World) -> None:
    """A text with the word was taken for several tables, and refused as if the batch were no list."""
    body = {"dataset": "visits", "questions": ["SELECT COUNT(*) AS cube FROM visits"], "epsilon": 0.5}
    priced = world.call("ana", "POST", "/v1/questions:price_batch", body)
    assert priced.status_code == 200, priced.text
    assert [list(each["errors"]) for each in priced.json()["tables"]] == [["cube"]]


@pytest.mark.parametrize(
    ("weights", "rule"),
    [
        ("equal", "weights: must be a list or must be one of 'fair' or 'closest'"),
        (3, "weights: must be a list or must be one of 'fair' or 'closest'"),
        (["a", 1], "weights.0: must be a number"),
        ([0, 1], "weights.0: must be more than 0"),
    ],
)
def test_wrong_weights_are_told_without_words_of_pydantic(world: World, weights: Any, rule: str) -> None:
    """They were "weights.literal['fair','closest']: must be one of 'fair' or 'closest'", whatever was wrong."""
    texts = ["SELECT COUNT(*) AS n FROM visits", "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"]
    body = {"dataset": "visits", "questions": texts, "epsilon": 0.5, "weights": weights}
    refused = world.call("ana", "POST", "/v1/questions:price_batch", body)
    assert (refused.status_code, refused.json()["detail"]) == (422, rule)


def test_a_share_of_the_total_is_answered_priced_and_labelled(world: World) -> None:
    text = "SELECT ward, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () AS p FROM visits WHERE age > 16 GROUP BY ward"
    assert world.ask(text, path=":price", epsilon=0.5).json()["errors"] == {"p": None}
    answer = world.ask(text, epsilon=0.5).json()
    assert sum(row[1] for row in answer["rows"]) == pytest.approx(100)
    label = world.call("ana", "GET", f"/v1/labels/{answer['release']}").json()
    assert verify_label(label, answer, world.curator.key.public).numbers


def test_a_cube_of_too_many_cells_is_refused_and_nothing_is_charged(world: World) -> None:
    cube = "SELECT age, stay, ward, sex, COUNT(*) AS n FROM visits GROUP BY CUBE(age, stay, ward, sex)"
    before = list(world.ledger.entries())
    body = {"dataset": "visits", "questions": [cube], "epsilon": 0.5}
    for refused in (world.ask(cube, epsilon=0.5), world.call("ana", "POST", "/v1/questions:price_batch", body)):
        assert (refused.status_code, refused.json()["code"]) == (422, "refused")
        assert "cells (groups times columns), and at most 100,000 are allowed" in refused.text
    assert list(world.ledger.entries()) == before


# -- numbers at the border -------------------------------------------------------------------------------------------

ABSURD = [
    "-1",
    "-0.0",
    "0",
    "NaN",
    "Infinity",
    "-Infinity",
    "1e-400",
    "1e308",
    "1e999",
    '"1"',
    "true",
    "null",
    "[1]",
    "{}",
]


@pytest.mark.parametrize("path", ["", ":price", ":refine"])
@pytest.mark.parametrize("number", ABSURD)
def test_a_cost_that_means_nothing_is_refused_and_writes_nothing(number: str, path: str, world: World) -> None:
    before = list(world.ledger.entries())
    for name in ("epsilon", "mu", "rho", "share"):
        text = f'{{"dataset": "visits", "sql": {json.dumps(WARDS)}, "{name}": {number}}}'
        headers = {"Authorization": f"Bearer {world.tokens['ana']}", "Content-Type": "application/json"}
        answer = world.client.post(f"/v1/questions{path}", content=text, headers=headers)
        assert answer.status_code in {400, 422}, answer.text
        assert answer.headers["content-type"] == MEDIA_TYPE
    assert list(world.ledger.entries()) == before


@pytest.mark.parametrize("delta", ["-1e-9", "0", "1", "2", "NaN", "true", '"1e-9"'])
def test_a_delta_that_means_nothing_is_refused(delta: str, world: World) -> None:
    text = f'{{"dataset": "visits", "sql": "SELECT town, COUNT(*) AS n FROM visits GROUP BY town", "epsilon": 1, "delta": {delta}}}'
    headers = {"Authorization": f"Bearer {world.tokens['ana']}", "Content-Type": "application/json"}
    assert world.client.post("/v1/questions", content=text, headers=headers).status_code == 422


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"dataset": "visits", "sql": WARDS}, 422, "invalid"),
        ({"dataset": "visits", "sql": WARDS, "epsilon": 1, "mu": 1}, 422, "invalid"),
        ({"dataset": "visits", "sql": WARDS, "epsilon": 1, "seed": 7}, 422, "invalid"),
        ({"dataset": "visits", "sql": "", "epsilon": 1}, 422, "refused"),
        ({"dataset": "visits", "sql": "SELECT * FROM visits", "epsilon": 1}, 422, "refused"),
        ({"dataset": "visits", "sql": "SELECT COUNT(*) FROM visits; DROP TABLE visits", "epsilon": 1}, 422, "refused"),
        ({"dataset": "visits", "sql": WARDS, "epsilon": 5000}, 402, "budget_exceeded"),
        ({"dataset": "nothing", "sql": WARDS, "epsilon": 1}, 404, "not_found"),
        ([], 422, "invalid"),
    ],
)
def test_what_cannot_be_asked_is_a_problem_with_a_code(body: Any, status: int, code: str, world: World) -> None:
    before = list(world.ledger.entries())
    answer = world.call("ana", "POST", "/v1/questions", body)
    said = answer.json()
    assert (answer.status_code, said["code"]) == (status, code)
    assert said["type"] == f"urn:deniable:problem:{code}"
    assert (said["status"], said["title"]) == CODES[code]
    assert list(world.ledger.entries()) == before


def test_a_refusal_says_the_rule_and_a_rewrite(world: World) -> None:
    said = world.ask("SELECT cost FROM visits", epsilon=1).json()
    assert said["refusal"] in {"aggregate", "star", "group"}
    assert said["rule"]
    assert said["rewrite"]


def test_ten_megabytes_of_sql_are_turned_away_unread(world: World) -> None:
    answer = world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 1" + " AND age > 1" * 900_000, epsilon=1)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


# -- once ------------------------------------------------------------------------------------------------------------


def test_the_same_key_and_body_are_one_charge_and_the_same_bytes(world: World) -> None:
    sql = "SELECT COUNT(*) AS n FROM visits WHERE age > 21"
    first = world.ask(sql, key="k1", epsilon=0.5)
    charged = world.ledger.charged
    world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 22", epsilon=0.5)  # what is left has changed since
    assert world.ask(sql, key="k1", epsilon=0.5).content == first.content
    assert world.ledger.charged == charged + world.ledger.budget.cost(epsilon=0.5)


def test_the_same_key_for_another_body_or_route_is_a_conflict(world: World) -> None:
    sql = "SELECT COUNT(*) AS n FROM visits WHERE age > 23"
    world.ask(sql, key="k2", epsilon=0.5)
    for other in (world.ask(sql, key="k2", epsilon=0.6), world.ask(sql, key="k2", path=":refine", epsilon=0.5)):
        assert (other.status_code, other.json()["code"]) == (409, "key_reused")


def test_a_key_that_was_forgotten_is_reused_and_not_pending_when_it_comes_with_another_body(world: World) -> None:
    sql = "SELECT COUNT(*) AS n FROM visits WHERE stay > 27"
    world.ask(sql, key="forgotten", epsilon=0.5)
    charged = world.ledger.charged
    with world.curator.catalogue._engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM curator_requests WHERE key = 'forgotten'")  # as after key_days
    other = world.ask(sql.replace("27", "28"), key="forgotten", epsilon=0.5)
    assert (other.status_code, other.json()["code"]) == (409, "key_reused")
    assert other.json()["detail"] == "the key was used for another question; use a new key for each question"
    assert world.ledger.charged == charged


def test_two_people_may_choose_the_same_key(world: World) -> None:
    sql = "SELECT COUNT(*) AS n FROM visits WHERE age > 24"
    assert world.ask(sql, key="k3", epsilon=0.5).status_code == 200
    assert world.ask(sql, key="k3", who="olga", epsilon=0.7).status_code == 200


def test_a_refine_is_charged_once_for_one_key(world: World) -> None:
    sql = "SELECT COUNT(*) AS n FROM visits WHERE age > 25"
    world.ask(sql, epsilon=0.5)
    charged = world.ledger.charged
    first = world.ask(sql, key="k4", path=":refine", epsilon=0.5)
    assert world.ask(sql, key="k4", path=":refine", epsilon=0.5).content == first.content
    # The record of the request is lost, as after a power cut: the ledger knows the key.
    with world.curator.catalogue._engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM curator_requests WHERE key = 'k4'")
    again = world.ask(sql, key="k4", path=":refine", epsilon=0.5)
    assert again.json()["rows"] == first.json()["rows"]
    assert world.ledger.charged == charged + world.ledger.budget.cost(epsilon=0.5)


def test_a_crowd_with_one_key_is_one_charge(world: World) -> None:
    sql, charged, bodies = "SELECT COUNT(*) AS n FROM visits WHERE age > 26", world.ledger.charged, []
    threads = [
        threading.Thread(target=lambda: bodies.append(world.ask(sql, key="k5", epsilon=0.5).content)) for _ in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(bodies)) == 1
    assert world.ledger.charged == charged + world.ledger.budget.cost(epsilon=0.5)


def test_a_run_that_fails_is_charged_and_looks_like_any_other(world: World, waits: list[float]) -> None:
    session = world.curator.open(world_owner(), "visits").session
    engine, sql = session._engine, "SELECT COUNT(*) AS n FROM visits WHERE age > 27"
    charged, collect = world.ledger.charged, engine.collect

    def fails(question: Any) -> Any:
        raise EngineFailed("space", "a-secret@example.org")

    engine.collect = fails
    try:
        failed = world.ask(sql, key="k6", epsilon=0.5)
    finally:
        engine.collect = collect
    assert failed.status_code == 200
    other = world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 26 AND age < 99", epsilon=0.5).json()
    assert {*failed.json()} == {*other}
    assert failed.json()["notes"] == other["notes"]
    assert "secret" not in failed.text
    assert world.ledger.charged == charged + world.ledger.budget.cost(epsilon=0.5) + world.ledger.budget.cost(
        epsilon=0.5
    )
    assert world.ask(sql, key="k6", epsilon=0.5).content == failed.content
    assert world.ask(sql, key="k7", epsilon=0.5).json()["rows"] == failed.json()["rows"]
    [waited] = waits
    assert 65 < waited <= world.curator.settings.seconds + 6
    entry = int(failed.json()["release"].rpartition(":")[2])
    log = world.call("olga", "GET", "/v1/datasets/visits/failures").json()["failures"]
    assert [(each["entry"], each["code"]) for each in log if each["entry"] == entry] == [(entry, "space")]
    for who in ("ana", "ada", "adam"):
        assert world.call(who, "GET", "/v1/datasets/visits/failures").status_code == 403
    assert world.call("olga", "GET", "/v1/ledger/visits").text.count('"failed"') == 0


def test_a_bug_says_nothing_and_stays_charged(world: World) -> None:
    session = world.curator.open(world_owner(), "visits").session
    engine, charged = session._engine, world.ledger.charged
    collect = engine.collect
    engine.collect = lambda question: {}[("a-secret@example.org",)]
    try:
        failed = world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 28", epsilon=0.5)
    finally:
        engine.collect = collect
    assert failed.status_code == 200
    assert "secret" not in failed.text
    assert world.ledger.charged == charged + world.ledger.budget.cost(epsilon=0.5)


def test_processes_that_answer_one_key_at_once_tell_the_same_bytes(world: World) -> None:
    kept, mine = world.curator.catalogue.requests, ("ana", "raced", "b" * 64)
    assert kept.claim(*mine) is None
    assert kept.claim(*mine) is None  # another process, before the first has answered
    assert kept.keep(*mine, 200, b"first", whole=False) == (200, b"first")
    assert kept.keep(*mine, 200, b"the same, as a replay", whole=False) == (200, b"first")
    assert kept.keep(*mine, None, b"a failure that is not kept", whole=False) == (200, b"first")
    assert kept.claim(*mine) == (200, b"first")
    for again in (kept.claim, lambda *who: kept.keep(*who, 200, b"another question", whole=False)):
        with pytest.raises(Problem) as conflict:
            again("ana", "raced", "c" * 64)
        assert conflict.value.code == "key_reused"


def test_a_key_whose_request_failed_stands_for_its_body_and_takes_the_answer_that_comes_later(world: World) -> None:
    kept, mine = world.curator.catalogue.requests, ("ana", "failed", "b" * 64)
    assert kept.keep(*mine, None, b"", whole=False) is None
    assert kept.claim(*mine) is None
    with pytest.raises(Problem):
        kept.claim("ana", "failed", "c" * 64)
    assert kept.keep(*mine, 200, b"answer", whole=False) == (200, b"answer")
    assert kept.claim(*mine) == (200, b"answer")


def test_a_bug_after_the_answer_was_sealed_is_told_as_charged_and_heals(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sql = "SELECT COUNT(*) AS n FROM visits WHERE age > 31"
    charged = world.ledger.charged

    def broken(*_: Any) -> Any:
        raise ValueError("a-secret@example.org")

    with monkeypatch.context() as patch:
        patch.setattr("deniable.server.curator.answer_record", broken)
        failed = world.ask(sql, key="k20", epsilon=0.5)
        unkeyed = world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 32", epsilon=0.5)
        replayed = world.ask(sql, epsilon=0.5)
    for each in (failed, unkeyed):
        assert (each.status_code, each.json()["code"], each.json()["charged"]) == (500, "unexpected", True)
        assert "it was charged, and the answer is kept" in each.json()["detail"]
        assert "secret" not in each.text
    assert replayed.json()["charged"] is False
    said = [each.getMessage() for each in caplog.records if each.name == "deniable.server"]
    assert len(said) == 3
    assert all(each.startswith("unexpected ValueError in ") and ".broken:" in each for each in said)
    assert world.ledger.charged == charged + world.ledger.budget.cost(epsilon=0.5) + world.ledger.budget.cost(
        epsilon=0.5
    )
    assert world.ask(sql, key="k20", epsilon=0.5).json()["provenance"]["replayed"] is True  # and it stays one charge
    assert world.ledger.charged == charged + world.ledger.budget.cost(epsilon=0.5) + world.ledger.budget.cost(
        epsilon=0.5
    )


def test_a_bug_elsewhere_says_what_is_known_of_the_charge(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session = world.curator.open(world_owner(), "visits").session

    def broken(*_: Any, **more: Any) -> Any:
        raise ValueError("a-secret@example.org")

    sql = "SELECT COUNT(*) AS n FROM visits WHERE age > 33"
    with monkeypatch.context() as patch:
        patch.setattr(type(session), "_answer", broken)
        after = world.ask(sql, key="k21", epsilon=0.5)  # sealed, but the session did not come back
        unknown = world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 34", epsilon=0.5)
    with monkeypatch.context() as patch:
        patch.setattr(type(session), "_planned", broken)
        before = world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 35", key="k22", epsilon=0.5)
        price = world.ask(sql, path=":price", epsilon=0.5)
    assert [each.json()["charged"] for each in (after, unknown, before)] == [True, None, False]
    assert "charged" not in price.json()
    assert world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 35", key="k22", epsilon=0.5).status_code == 200
