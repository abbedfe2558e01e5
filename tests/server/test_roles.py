"""The matrix: every route with every role, and that nobody reaches what is not theirs."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.routing import APIRoute

from deniable.server.roles import MATRIX, Role
from tests.server.world import BUDGET, PEOPLE, SCHEMA, WARDS, World

QUESTION = {"dataset": "visits", "sql": WARDS, "epsilon": 0.01}
REQUESTS: dict[tuple[str, str], tuple[str, str, Any]] = {
    ("POST", "/v1/questions:price"): ("price", "/v1/questions:price", QUESTION),
    ("POST", "/v1/questions:explain"): ("price", "/v1/questions:explain", QUESTION),
    ("POST", "/v1/questions"): ("ask", "/v1/questions", QUESTION),
    ("POST", "/v1/questions:refine"): ("ask", "/v1/questions:refine", QUESTION),
    ("POST", "/v1/questions:batch"): (
        "ask",
        "/v1/questions:batch",
        {"dataset": "visits", "questions": [WARDS], "epsilon": 0.01},
    ),
    ("POST", "/v1/questions:price_batch"): (
        "price",
        "/v1/questions:price_batch",
        {"dataset": "visits", "questions": [WARDS], "epsilon": 0.01},
    ),
    ("GET", "/v1/datasets"): ("see datasets", "/v1/datasets", None),
    ("POST", "/v1/datasets"): (
        "register",
        "/v1/datasets",
        {"name": "x", "sources": {"visits": "nothing.csv"}, "schema": SCHEMA, "budget": BUDGET},
    ),
    ("GET", "/v1/datasets/{name}"): ("see datasets", "/v1/datasets/visits", None),
    ("GET", "/v1/datasets/{name}/dummy"): ("see dummy rows", "/v1/datasets/visits/dummy", None),
    ("POST", "/v1/datasets/{name}/dummy:ask"): (
        "ask dummy rows",
        "/v1/datasets/visits/dummy:ask",
        {"sql": WARDS, "epsilon": 0.01},
    ),
    ("POST", "/v1/datasets/{name}/bounds:price"): (
        "buy bounds",
        "/v1/datasets/visits/bounds:price",
        {"column": "nothing", "epsilon": 0.01},
    ),
    ("POST", "/v1/datasets/{name}/bounds"): (
        "buy bounds",
        "/v1/datasets/visits/bounds",
        {"column": "nothing", "epsilon": 0.01},
    ),
    ("POST", "/v1/datasets/{name}/synthetic:price"): (
        "price",
        "/v1/datasets/visits/synthetic:price",
        {"columns": ["ward", "sex"], "epsilon": 0.01},
    ),
    ("POST", "/v1/datasets/{name}/synthetic"): (
        "ask",
        "/v1/datasets/visits/synthetic",
        {"columns": ["ward", "sex"], "epsilon": 0.01},
    ),
    ("GET", "/v1/datasets/{name}/synthetic"): ("see synthetic data", "/v1/datasets/visits/synthetic", None),
    ("GET", "/v1/datasets/{name}/synthetic/{charge}"): (
        "see synthetic data",
        "/v1/datasets/visits/synthetic/999",
        None,
    ),
    ("GET", "/v1/datasets/{name}/synthetic/{charge}/rows"): (
        "see synthetic data",
        "/v1/datasets/visits/synthetic/999/rows",
        None,
    ),
    ("PUT", "/v1/datasets/{name}/synthetic/{charge}/published"): (
        "publish synthetic data",
        "/v1/datasets/visits/synthetic/999/published",
        None,
    ),
    ("DELETE", "/v1/datasets/{name}/synthetic/{charge}/published"): (
        "publish synthetic data",
        "/v1/datasets/visits/synthetic/999/published",
        None,
    ),
    ("GET", "/v1/datasets/{name}/standing"): ("see standing questions", "/v1/datasets/visits/standing", None),
    ("POST", "/v1/datasets/{name}/standing"): (
        "declare standing questions",
        "/v1/datasets/visits/standing",
        {"name": "a b", "questions": [WARDS], "by": "age", "epsilon": 0.01},
    ),
    ("GET", "/v1/datasets/{name}/standing/{set}"): (
        "see standing questions",
        "/v1/datasets/visits/standing/none",
        None,
    ),
    ("POST", "/v1/datasets/{name}/standing/{set}/days"): (
        "declare standing questions",
        "/v1/datasets/visits/standing/none/days",
        {"day": 3},
    ),
    ("GET", "/v1/datasets/{name}/standing/{set}/days/{day}"): (
        "see standing questions",
        "/v1/datasets/visits/standing/none/days/3",
        None,
    ),
    ("GET", "/v1/datasets/{name}/grants"): ("see grants", "/v1/datasets/visits/grants", None),
    ("POST", "/v1/datasets/{name}/grants"): ("grant", "/v1/datasets/visits/grants", {"analyst": "ana"}),
    ("DELETE", "/v1/datasets/{name}/grants/{analyst}"): ("grant", "/v1/datasets/visits/grants/nobody", None),
    ("GET", "/v1/datasets/{name}/versions"): ("see datasets", "/v1/datasets/visits/versions", None),
    ("POST", "/v1/datasets/{name}/versions"): ("register", "/v1/datasets/visits/versions", {"version": "a b"}),
    ("POST", "/v1/datasets/{name}/adjustments"): (
        "adjust",
        "/v1/datasets/visits/adjustments",
        {"budget": {"epsilon": 101}, "reason": "more"},
    ),
    ("GET", "/v1/datasets/{dataset}/releases"): ("see labels", "/v1/datasets/visits/releases", None),
    ("GET", "/v1/datasets/{name}/failures"): ("see failures", "/v1/datasets/visits/failures", None),
    ("GET", "/v1/overlaps"): ("see overlaps", "/v1/overlaps", None),
    ("GET", "/v1/ledger/{dataset}"): ("see ledger", "/v1/ledger/visits", None),
    ("GET", "/v1/ledger/{dataset}/accounts"): ("see ledger", "/v1/ledger/visits/accounts", None),
    ("GET", "/v1/ledger/{dataset}/status"): ("see ledger", "/v1/ledger/visits/status", None),
    ("GET", "/v1/labels/{release}"): ("see labels", "/v1/labels/visits:999", None),
    ("GET", "/v1/key"): ("see oneself", "/v1/key", None),
    ("GET", "/v1/me"): ("see oneself", "/v1/me", None),
    ("GET", "/v1/me/since"): ("see oneself", "/v1/me/since", None),
    ("GET", "/v1/people"): ("manage people", "/v1/people", None),
    ("POST", "/v1/people"): ("manage people", "/v1/people", {"name": "ana", "role": "analyst"}),
    ("DELETE", "/v1/people/{name}"): ("manage people", "/v1/people/nobody", None),
    ("GET", "/v1/people/{name}/tokens"): ("manage people", "/v1/people/ana/tokens", None),
    ("POST", "/v1/invitations"): ("manage people", "/v1/invitations", {"person": "nobody"}),
    ("POST", "/v1/tokens"): ("see oneself", "/v1/tokens", {"days": 1e-6}),
    ("GET", "/v1/log"): ("see log", "/v1/log", None),
    ("GET", "/v1/log/status"): ("see log", "/v1/log/status", None),
    ("DELETE", "/v1/tokens/{id}"): ("manage people", "/v1/tokens/nothing", None),
    ("GET", "/v1/analysts"): ("see analysts", "/v1/analysts", None),
    ("GET", "/metrics"): ("see metrics", "/metrics", None),
}
"""Each route: the verb that it needs, and a request that gets past the door."""


def routes(world: World) -> list[APIRoute]:
    flat: list[Any] = []
    for each in world.client.app._inner._inner.routes:
        inside = getattr(each, "original_router", None)
        flat += [each] if inside is None else inside.routes
    asked = [each for each in flat if isinstance(each, APIRoute)]
    described = world.client.app._inner._inner.openapi()["paths"]
    assert {each.path for each in asked} == set(described), "a route that this test cannot see"
    return [each for each in asked if each.path.startswith("/v1") or each.path == "/metrics"]


def test_every_route_is_in_the_table_and_needs_the_verb_it_says(world: World) -> None:
    there = {}
    for route in routes(world):
        verbs = [each.call.verb for each in route.dependant.dependencies if hasattr(each.call, "verb")]
        [there[next(iter(route.methods)), route.path]] = verbs
    assert there == {place: verb for place, (verb, _, _) in REQUESTS.items()}


def test_every_verb_is_used_and_every_role_has_one() -> None:
    assert {verb for verb, _, _ in REQUESTS.values()} == set(MATRIX)
    assert set(Role) == set().union(*MATRIX.values())


def test_duties_are_separate() -> None:
    assert not MATRIX["ask"] & {Role.AUDITOR, Role.ADMIN}
    assert not MATRIX["see ledger"] & {Role.ANALYST, Role.ADMIN}
    assert MATRIX["manage people"] == {Role.ADMIN}
    assert not any("edit" in verb or "delete" in verb for verb in MATRIX)


@pytest.mark.slow
@pytest.mark.parametrize("place", REQUESTS, ids=lambda place: " ".join(place))
@pytest.mark.parametrize("role", list(Role))
def test_a_role_may_do_what_the_matrix_says_and_nothing_else(role: Role, place: tuple[str, str], world: World) -> None:
    verb, path, body = REQUESTS[place]
    answer = world.call(PEOPLE[role], place[0], path, body)
    if role in MATRIX[verb]:
        assert answer.status_code not in {401, 403}, answer.text
    else:
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize("place", REQUESTS, ids=lambda place: " ".join(place))
def test_nobody_gets_in_without_a_token(place: tuple[str, str], world: World) -> None:
    world.client.app._keeper._strangers._levels.clear()
    answer = world.call(None, place[0], REQUESTS[place][1], REQUESTS[place][2])
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


THEIRS = [
    ("POST", "/v1/questions", QUESTION),
    ("POST", "/v1/questions:price", QUESTION),
    ("GET", "/v1/datasets/visits", None),
    ("GET", "/v1/datasets/visits/dummy", None),
    ("POST", "/v1/datasets/visits/grants", {"analyst": "ana"}),
    ("POST", "/v1/datasets/visits/adjustments", {"budget": {"epsilon": 1000}, "reason": "mine"}),
    ("GET", "/v1/datasets/visits/versions", None),
    ("POST", "/v1/datasets/visits/versions", {"version": "mine"}),
    ("GET", "/v1/ledger/visits", None),
    ("GET", "/v1/datasets/visits/releases", None),
    ("GET", "/v1/labels/visits:1", None),
    ("POST", "/v1/datasets/visits/synthetic:price", {"columns": ["ward", "sex"], "epsilon": 0.01}),
    ("POST", "/v1/datasets/visits/synthetic", {"columns": ["ward", "sex"], "epsilon": 0.01}),
    ("GET", "/v1/datasets/visits/synthetic", None),
    ("GET", "/v1/datasets/visits/synthetic/1", None),
    ("GET", "/v1/datasets/visits/synthetic/1/rows", None),
    ("PUT", "/v1/datasets/visits/synthetic/1/published", None),
    ("DELETE", "/v1/datasets/visits/synthetic/1/published", None),
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path", "body"), THEIRS, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("role", [Role.OWNER, Role.ANALYST])
def test_what_belongs_to_others_does_not_exist(role: Role, method: str, path: str, body: Any, world: World) -> None:
    name = world.newcomer(f"another {role}", role)
    answer = world.call(name, method, path, body)
    assert answer.json()["code"] in {"not_found", "forbidden"}
    missing = world.call(
        name,
        method,
        path.replace("visits", "nothing"),
        None if body is None else {**body, "dataset": "nothing"} if "dataset" in body else body,
    )
    assert answer.status_code == missing.status_code
    assert answer.text.replace("visits", "nothing") == missing.text


WHO = ["olga", "ana", "bea", "guest", "otto", "ada", "adam"]
"""The owner; who bought it; another analyst with a grant and one without; another owner; the auditor; the admin."""
SYNTHETIC: dict[tuple[str, str], dict[str, list[int]]] = {
    # Of a table that the analyst bought, then of one that the owner bought, before it is published and while it is.
    ("POST", "/v1/datasets/{name}/synthetic:price"): {"any": [200, 200, 200, 404, 404, 403, 403]},
    ("POST", "/v1/datasets/{name}/synthetic"): {"any": [200, 200, 200, 404, 404, 403, 403]},
    ("GET", "/v1/datasets/{name}/synthetic"): {"any": [200, 200, 200, 404, 404, 403, 403]},
    ("GET", "/v1/datasets/{name}/synthetic/{charge}"): {
        "ana's": [404, 200, 404, 404, 404, 403, 403],
        "olga's": [200, 404, 404, 404, 404, 403, 403],
        "published": [200, 200, 200, 404, 404, 403, 403],
    },
    ("GET", "/v1/datasets/{name}/synthetic/{charge}/rows"): {
        "ana's": [404, 200, 404, 404, 404, 403, 403],
        "olga's": [200, 404, 404, 404, 404, 403, 403],
        "published": [200, 200, 200, 404, 404, 403, 403],
    },
    ("DELETE", "/v1/datasets/{name}/synthetic/{charge}/published"): {
        "ana's": [404, 403, 403, 403, 404, 403, 403],
    },
    ("PUT", "/v1/datasets/{name}/synthetic/{charge}/published"): {
        "ana's": [404, 403, 403, 403, 404, 403, 403],
    },
}


def test_the_table_of_synthetic_routes_has_all_of_them() -> None:
    assert set(SYNTHETIC) == {place for place in REQUESTS if "/synthetic" in place[1]}


@pytest.fixture(scope="module")
def bought(world: World) -> dict[str, int]:
    """The charges of synthetic tables by who bought them."""
    for name, role in (("bea", Role.ANALYST), ("guest", Role.ANALYST), ("otto", Role.OWNER)):
        world.newcomer(name, role)
    assert world.call("olga", "POST", "/v1/datasets/visits/grants", {"analyst": "bea"}).status_code == 201
    found = {}
    for whose, who, columns in (
        ("any", "ana", ["ward", "sex"]),
        ("ana's", "ana", ["ward", "age"]),
        ("olga's", "olga", ["sex", "age"]),
    ):
        made = world.call(who, "POST", "/v1/datasets/visits/synthetic", {"columns": columns, "epsilon": 0.02})
        assert made.status_code == 200, made.text
        found[whose] = made.json()["provenance"]["entry"]
    return found | {"published": found["olga's"]}


# Rows are drawn anew for everybody who may have them.
DRAWN = ("GET", "/v1/datasets/{name}/synthetic/{charge}/rows")


@pytest.mark.parametrize(
    "place",
    [pytest.param(place, marks=pytest.mark.slow) if place == DRAWN else place for place in SYNTHETIC],
    ids=lambda place: " ".join(place),
)
def test_synthetic_tables_are_for_whoever_bought_them_and_those_published_for_all_who_may_ask(
    place: tuple[str, str], world: World, bought: dict[str, int]
) -> None:
    body = {"columns": ["ward", "sex"], "epsilon": 0.01}
    shelf = f"/v1/datasets/visits/synthetic/{bought['published']}/published"
    method, path = place
    for whose, expected in SYNTHETIC[place].items():
        assert world.call("olga", "PUT" if whose == "published" else "DELETE", shelf).status_code in {200, 204}
        asked = path.replace("{name}", "visits").replace("{charge}", str(bought[whose]))
        found = [world.call(who, method, asked, body if method == "POST" else None).status_code for who in WHO]
        assert found == expected, whose


def test_an_analyst_sees_their_own_releases_only(world: World) -> None:
    other = world.newcomer("bob", Role.ANALYST)
    assert world.call("olga", "POST", "/v1/datasets/visits/grants", {"analyst": other}).status_code == 201
    release = world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 61", epsilon=0.1).json()["release"]
    assert world.call("ana", "GET", f"/v1/labels/{release}").status_code == 200
    assert world.call(other, "GET", f"/v1/labels/{release}").status_code == 404
    assert world.call(other, "GET", "/v1/datasets/visits/releases").json() == {"releases": [], "before": None}


def test_names_in_headers_mean_nothing(world: World) -> None:
    answer = world.call("ana", "GET", "/v1/me", headers={"user-name": "olga", "X-User": "olga", "X-Role": "owner"})
    assert answer.json() == {"name": "ana", "role": "analyst"}
