"""How many tokens one person has, how long they hold, and what it costs to end them all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event, insert

from deniable.server.catalogue.people import _TOKENS
from deniable.server.problems import Problem
from deniable.server.roles import Role
from tests.server.world import World, made


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    there = made(tmp_path_factory.mktemp("tokens"), tokens=4)
    with there.client:
        yield there


def renewed(world: World, who: str, **said: Any) -> Any:
    return world.call(who, "POST", "/v1/tokens", said)


def events(world: World, person: str) -> list[tuple[str, dict[str, Any]]]:
    """What the log says of somebody, newest first."""
    entries = world.call("ada", "GET", "/v1/log").json()["entries"]
    return [(each["event"], each["detail"]) for each in entries if each["person"] == person]


def test_tokens_of_one_person_are_limited(world: World) -> None:
    """93 in six seconds were made from one thread, and each brought a rate of its own."""
    world.newcomer("rosa", Role.ANALYST)
    made = [renewed(world, "rosa") for _ in range(5)]
    assert [each.status_code for each in made] == [201] * 3 + [429] * 2
    assert "4 tokens" in made[-1].json()["detail"]
    assert world.call("adam", "DELETE", f"/v1/tokens/{made[0].json()['id']}").status_code == 204
    assert renewed(world, "rosa").status_code == 201
    assert renewed(world, "ana").status_code == 201  # nobody else is limited by it


def test_tokens_that_end_at_once_count_for_an_hour(world: World) -> None:
    world.newcomer("short", Role.ANALYST)
    assert [renewed(world, "short", days=1e-9).status_code for _ in range(5)] == [201] * 3 + [429] * 2


def test_a_token_holds_no_longer_than_the_operator_allows(world: World) -> None:
    """{"days": 3660} gave ten years where token_days was 90."""
    answer = renewed(world, "ana", days=90.5)
    assert (answer.status_code, answer.json()["parameter"]) == (422, "days")
    assert "90" in answer.json()["rule"]
    assert renewed(world, "ana", days=90).status_code == 201


def test_the_operator_always_gets_a_token(world: World) -> None:
    """`--invite` at each start of the server makes one, and must not stop working after twenty starts."""
    for _ in range(6):
        world.newcomer("root", Role.ADMIN)
    assert world.call("root", "GET", "/v1/me").status_code == 200


def test_ending_one_token_names_whose_it_was(world: World) -> None:
    catalogue = world.curator.catalogue
    for name in ("petra", "quinn"):
        world.newcomer(name, Role.ANALYST)
    [record] = catalogue.tokens("quinn")
    assert world.call("adam", "DELETE", f"/v1/tokens/{record.id}").status_code == 204
    assert events(world, "quinn")[0] == ("revoked", {"token": record.id})
    assert [each.revoked for each in catalogue.tokens("quinn")] == [True]
    assert [each.revoked for each in catalogue.tokens("petra")] == [False]
    assert "revoked" not in dict(events(world, "petra"))
    with pytest.raises(Problem, match="not_found"):
        catalogue.revoke_token("f" * 16)
    assert world.call("adam", "DELETE", f"/v1/tokens/{'f' * 16}").status_code == 404


@pytest.mark.parametrize("way", ["closed", "invited"])
def test_all_tokens_of_somebody_end_in_one_statement(way: str, world: World) -> None:
    """One update and one chained entry for each of 20,000 tokens stopped everybody for 32 s."""
    name, catalogue = world.newcomer(f"many {way}", Role.ANALYST), world.curator.catalogue
    row = {"person": name, "hash": "-", "expires": 4e9, "revoked": False, "made": 0.0}
    with catalogue.writing() as connection:
        connection.execute(insert(_TOKENS), [{"id": f"{way} {i}", **row} for i in range(3000)])
    before = len(events(world, name))
    run: list[str] = []

    def noted(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        run.append(statement)

    event.listen(catalogue._engine, "before_cursor_execute", noted)
    try:
        if way == "closed":
            assert world.call("adam", "DELETE", f"/v1/people/{name}").status_code == 204
        else:
            assert world.call("adam", "POST", "/v1/invitations", {"person": name}).status_code == 201
    finally:
        event.remove(catalogue._engine, "before_cursor_execute", noted)
    assert len(run) < 30
    assert all(each.revoked for each in catalogue.tokens(name))
    found = events(world, name)
    assert len(found) == before + 2
    assert found[1] == ("revoked", {"tokens": 3001})


def test_the_rate_is_of_a_person_whatever_their_tokens(tmp_path: Any) -> None:
    """Each further token brought a rate of its own."""
    there = made(tmp_path, rate=1e-6, burst=6)
    with there.client:
        second = renewed(there, "ana").json()["token"]
        there.tokens["ana too"] = second
        found = [there.call(who, "GET", "/v1/me").status_code for who in ["ana", "ana too"] * 3]
        assert found == [200] * 5 + [429]
        assert there.call("olga", "GET", "/v1/me").status_code == 200
