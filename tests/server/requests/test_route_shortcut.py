"""The lane past FastAPI: it changes how long a request takes, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.world import World

GOOD: dict[str, Any] = {"dataset": "visits", "sql": "SELECT COUNT(*) AS n FROM visits WHERE age > 71", "epsilon": 0.01}
OTHER = "application/json; charset=utf-8"
"""With it a request goes to FastAPI, whatever else it says."""


def sent(world: World, content: bytes, *, who: str = "ana", path: str = "", **headers: str) -> Any:
    headers = {"Authorization": f"Bearer {world.tokens[who]}", "Content-Type": "application/json", **headers}
    return world.client.post(f"/v1/questions{path}", content=content, headers=headers)


@pytest.mark.parametrize("path", ["", ":price"])
def test_a_usual_question_does_not_reach_fastapi(world: World, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreachable(*_: object) -> None:
        raise AssertionError

    lane = world.client.app._inner
    assert sent(world, json.dumps(GOOD).encode(), path=path, **{"Content-Type": OTHER}).status_code == 200
    monkeypatch.setattr(lane, "_inner", unreachable)
    assert sent(world, json.dumps(GOOD).encode(), path=path, **{"Idempotency-Key": "lane"}).status_code == 200
    assert sent(world, json.dumps(GOOD).encode(), path=path, **{"Content-Type": OTHER}).status_code == 500


@pytest.mark.parametrize("path", ["", ":price"])
@pytest.mark.parametrize(
    ("content", "who", "headers"),
    [
        (b"", "ana", {}),
        (b"{", "ana", {}),
        (b"null", "ana", {}),
        (b"[" * 100_000, "ana", {}),
        (b'\xff\xfe{"dataset": 1}', "ana", {}),
        (json.dumps(GOOD).encode("utf-16"), "ana", {}),
        (json.dumps({**GOOD, "epsilon": "0.01"}).encode(), "ana", {}),
        (json.dumps({**GOOD, "epsilon": float("nan")}).encode(), "ana", {}),
        (json.dumps({**GOOD, "more": 1}).encode(), "ana", {}),
        (json.dumps({**GOOD, "rho": 1.0}).encode(), "ana", {}),
        (json.dumps({**GOOD, "dataset": "nowhere"}).encode(), "ana", {}),
        (json.dumps({**GOOD, "sql": "SELECT 1"}).encode(), "ana", {}),
        (json.dumps({**GOOD, "epsilon": 1e9}).encode(), "ana", {}),
        (json.dumps(GOOD).encode(), "adam", {}),
        (json.dumps(GOOD).encode(), "ada", {}),
        (json.dumps(GOOD).encode(), "ana", {"Idempotency-Key": ""}),
        (json.dumps(GOOD).encode(), "ana", {"Idempotency-Key": "a key"}),
        (json.dumps(GOOD).encode(), "ana", {"Idempotency-Key": "k" * 201}),
    ],
)
def test_what_is_wrong_is_said_as_fastapi_says_it(
    world: World, path: str, content: bytes, who: str, headers: dict[str, str]
) -> None:
    short = sent(world, content, who=who, path=path, **headers)
    long = sent(world, content, who=who, path=path, **{**headers, "Content-Type": OTHER})
    assert short.status_code == long.status_code
    assert short.headers["content-type"] == long.headers["content-type"]
    if short.status_code != 200:
        assert short.content == long.content


def test_other_media_types_and_methods_are_refused_as_ever(world: World) -> None:
    content = json.dumps(GOOD).encode()
    assert sent(world, content, **{"Content-Type": "text/plain"}).status_code in (415, 422)
    assert world.call("ana", "GET", "/v1/questions").status_code == 405


def test_requests_on_the_lane_are_counted_by_their_route(world: World) -> None:
    assert world.ask(**{key: value for key, value in GOOD.items() if key != "dataset"}).status_code == 200
    counted = world.call("adam", "GET", "/metrics").text
    assert 'route="/v1/questions",method="POST",status="200"' in counted
