"""Attacks by errors: what fails, and how, must not depend on anybody; and no cell is ever seen anywhere."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deniable.errors import EngineFailed
from deniable.server import problems
from deniable.server.problems import Problem
from tests.queries.sql.test_fuzz import AGGREGATES, SHAPES, SOURCES, Grammar
from tests.redteam.cases import case
from tests.redteam.neighbours import CANARIES, Watched, neighbour, record_classes, visible
from tests.redteam.test_budget import OLGA

Worlds = tuple[Watched, Watched]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    found = tuple(neighbour(tmp_path_factory.mktemp("neighbour"), odd=odd) for odd in (False, True))
    with found[0].client, found[1].client:
        yield found  # type: ignore[misc]


def alike(worlds: Worlds, sql: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> int:
    """Both servers say the same in the same class of time, and neither names a canary; the status."""
    found = []
    for world in worlds:
        record_classes(monkeypatch, world)
        response = world.ask(sql, epsilon=0.1, **more)
        # With keys that are not public the noise decides which are shown; a canary must still not be.
        found.append((visible(response), world.classes[-1]))
        assert not any(canary in response.text + str(response.headers) for canary in CANARIES), sql
    assert found[0] == found[1], sql
    return int(found[0][0][0])


ENGINE_LEAKS = {
    "E1 cast to a number": "SELECT SUM(LEAST(GREATEST(CAST(diagnosis AS INTEGER), 0), 9)) AS s FROM visits",
    "E2 cast to a date": "SELECT COUNT(CAST(diagnosis AS DATE)) AS n FROM visits",
    "E3 overflow": "SELECT SUM(LEAST(GREATEST(age * 9223372036854775807, 0), 9)) AS s FROM visits",
    "E4 division by zero": "SELECT SUM(LEAST(GREATEST(1 / age, 0), 9)) AS s, SUM(LEAST(GREATEST(7 % age, 0), 9)) AS m FROM visits",
    "E5 error() behind a condition": "SELECT COUNT(*) AS n FROM visits WHERE CASE WHEN diagnosis LIKE 'Z%' THEN error(diagnosis) END",
    "E6 a scalar sub-query of many rows": "SELECT COUNT(*) AS n FROM visits WHERE (SELECT diagnosis FROM visits) = 'x'",
    "E7 repeat until memory ends": "SELECT COUNT(*) AS n FROM visits WHERE LENGTH(repeat(diagnosis, 1000000000)) > 1",
    "E8 as many rows as a cell says": "SELECT COUNT(*) AS n FROM visits, generate_series(1, age)",
    "E9 files": "SELECT COUNT(*) AS n FROM read_csv('visits.csv')",
    "E10 statistics of storage": "SELECT COUNT(*) AS n FROM visits WHERE stats(diagnosis) LIKE '%Z%'",
    "E11 infinity and no number": "SELECT SUM(cost / (age - age)) AS s, SUM(LEAST(GREATEST(SQRT(-cost), 0), 9)) AS r FROM visits",
    "E12 strict parsing of a moment": "SELECT COUNT(*) AS n FROM visits WHERE CAST(diagnosis AS TIMESTAMP) > '2024-01-01'",
}


@case(
    "E1-E12",
    "the twelve ways in which DuckDB and Polars print a cell, over HTTP, on neighbours",
    "same status, body and class of time; no cell, no count",
)
@pytest.mark.parametrize("name", ENGINE_LEAKS)
def test_the_leaks_of_engines(name: str, worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    alike(worlds, ENGINE_LEAKS[name], monkeypatch)


@pytest.mark.slow
@case(
    "E13",
    "every operator of the grammar on neighbours, one of whom would break it",
    "same status, headers, body and class of time",
)
@pytest.mark.parametrize("kind", SHAPES)
def test_every_operator(kind: str, worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    grammar, answered = Grammar(random.Random(6)), 0
    for shape in SHAPES[kind]:
        value = grammar.filled(shape, 1)
        outer = {
            "number": f"SELECT SUM(LEAST(GREATEST({value}, 0), 9)) AS s, COUNT({value}) AS n FROM visits",
            "truth": f"SELECT COUNT(*) AS n FROM visits WHERE {value}",
        }.get(kind, f"SELECT COUNT({value}) AS n, COUNT(DISTINCT {value}) AS d FROM visits")
        answered += alike(worlds, outer, monkeypatch) == 200
    assert answered >= len(SHAPES[kind]) // 2


@pytest.mark.slow
@case("E13b", "every aggregate and every kind of source on neighbours", "same status, headers, body and class of time")
def test_every_aggregate_and_source(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    grammar, answered = Grammar(random.Random(7)), 0
    for call in AGGREGATES:
        answered += alike(worlds, f"SELECT {grammar.filled(call, 1)} AS x FROM visits", monkeypatch) == 200
        answered += (
            alike(worlds, f"SELECT ward, {grammar.filled(call, 1)} AS x FROM visits GROUP BY ward", monkeypatch) == 200
        )
    for source in dict.fromkeys(SOURCES):
        answered += alike(worlds, f"SELECT COUNT(*) AS n FROM {grammar.filled(source, 1)}", monkeypatch) == 200
    assert answered >= len(AGGREGATES)


@case(
    "E13c",
    "the same comparison with a planted fault: one server fails, or is slow, if the person is there",
    "the comparison detects it",
)
@pytest.mark.parametrize("planted", ["a failure", "a word", "a class of time"])
def test_the_comparison_sees_a_planted_difference(
    planted: str, worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = worlds[1].curator.open(OLGA, "visits").session._engine
    collect = engine.collect

    def fault(question: Any) -> Any:
        if planted == "a failure":
            raise EngineFailed("source")
        return collect(question)

    monkeypatch.setattr(engine, "collect", fault)
    if planted == "a word":
        told_before = worlds[1].curator.ask
        monkeypatch.setattr(
            worlds[1].curator, "ask", lambda *given: {**told_before(*given), "notes": ["ZEBRA-7731 was here"]}
        )
    if planted == "a class of time":
        monkeypatch.setattr(
            "tests.redteam.neighbours.AnswerGrid.due", lambda self, took: took
        )  # as if the grid were gone
    with pytest.raises(AssertionError):
        alike(worlds, f"SELECT COUNT(*) AS n FROM visits WHERE age > 5 AND ward <> '{planted}'", monkeypatch)


# -- canaries ----------------------------------------------------------------------------------------------------------

READ = ["/v1/datasets", "/v1/datasets/visits", "/v1/datasets/visits/dummy", "/v1/datasets/visits/releases", "/v1/datasets/visits/grants",
        "/v1/ledger/visits", "/v1/ledger/visits/accounts", "/v1/ledger/visits/status", "/v1/labels/visits:4", "/v1/key", "/v1/me",
        "/metrics", "/health", "/openapi.json", "/v1/people", "/v1/analysts"]  # fmt: skip
FAILING = [*ENGINE_LEAKS.values(), "SELECT * FROM visits", "SELECT diagnosis, COUNT(*) AS n FROM visits GROUP BY diagnosis",
           "SELECT visited, COUNT(*) AS n FROM visits GROUP BY visited", "SELECT MEDIAN(weight) AS m, MAX(cost) AS x FROM visits"]  # fmt: skip


def seen_everywhere(world: Watched) -> str:
    """Ask and read everything there is, as everybody; all that came out."""
    world.emitted.clear()
    for sql in FAILING:
        for path in ("", ":price", ":refine"):
            world.ask(sql, path=path, epsilon=0.2)
    for who in ("olga", "ana", "ada", "adam", None):
        for place in READ:
            world.client.app._keeper._strangers._levels.clear()
            world.call(who, "GET", place)
        for place in (
            "/console/",
            "/console/data/visits",
            "/console/data/visits/ledger",
            "/console/add?file=visits.csv",
        ):
            cookie = {} if who is None else {"Cookie": f"deniable={world.tokens[who]}"}
            world.seen(world.client.request("GET", place, headers=cookie))
    return "\n".join(world.emitted)


def found(text: str) -> list[str]:
    return [canary for canary in CANARIES if canary in text]


@pytest.mark.slow
@case(
    "E21",
    "a canary in every kind of column, looked for in every body, header, log line, metric, page, stderr, and in the ledger and the catalogue on disk",
    "it is found nowhere",
)
def test_no_canary_sings(worlds: Worlds, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    odd = worlds[1]
    with caplog.at_level(logging.DEBUG):
        said = seen_everywhere(odd)
        engine = odd.curator.open(OLGA, "visits").session._engine
        collect, engine.collect = engine.collect, _screams
        try:
            odd.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 77", epsilon=0.1)
        finally:
            engine.collect = collect
    said += "\n".join(odd.emitted)
    assert len(odd.emitted) > 200
    out, err = capfd.readouterr()
    assert found(said) == []
    assert found(caplog.text) == []
    assert found(out + err) == []
    for file in (odd.folder / "state").rglob("*"):
        if file.is_file():
            assert found(file.read_bytes().decode("latin-1")) == [], file.name
    assert found((odd.folder / "visits.csv").read_text()), "the canaries are where they belong"


def _screams(question: object) -> Any:
    raise ValueError("Could not convert string 'ZEBRA-7731@example.org' to INT32")


@case(
    "E21b",
    "the same search with a planted leak: the engine's own message is returned, or logged",
    "the search finds it",
)
@pytest.mark.parametrize("where", ["body", "log"])
def test_a_planted_canary_is_found(
    where: str, worlds: Worlds, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    odd = worlds[1]
    if where == "body":
        monkeypatch.setattr(
            "deniable.server.requests.request_desk.problem_of",
            lambda error: Problem("run_failed", f"{error} {error.__cause__} {_words(error)}"),
        )
    monkeypatch.setattr(odd.curator, "ask", lambda *_: _screams(None))
    if where == "log":
        monkeypatch.setattr(
            "deniable.server.requests.request_desk.problem_of",
            lambda error: (logging.error("failed: %s", error), problems.problem_of(error))[1],
        )
    answer = odd.ask("SELECT COUNT(*) AS n FROM visits", epsilon=0.1)
    assert found(answer.text if where == "body" else caplog.text)


def _words(error: BaseException) -> str:
    return " ".join(map(str, error.args))


@case(
    "E20",
    "tracebacks, debug pages, request ids, server names: wrong methods, wrong types, wrong encodings, faults of ours",
    "a problem of the closed list, without internal details",
)
def test_nothing_of_the_inside_is_told(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    world = worlds[1]
    monkeypatch.setattr(world.curator, "described", lambda *_: _screams(None))
    headers = {
        "Authorization": f"Bearer {world.tokens['ana']}",
        "X-Request-ID": "<script>",
        "X-Debug": "1",
        "Cookie": "debug=1",
    }
    for method, path, more in (
        ("GET", "/v1/datasets/visits?debug=true&trace=1", {}), ("POST", "/v1/questions", {"content": b"\xff\xfe"}), ("TRACE", "/v1/me", {}),
        ("POST", "/v1/questions", {"content": b"{", "headers": {**headers, "Content-Type": "application/json"}}), ("GET", "/docs", {}),
        ("POST", "/v1/questions", {"content": b"<x/>", "headers": {**headers, "Content-Type": "text/xml"}}), ("GET", "/debug", {}),
        ("GET", "/v1/datasets/%00", {}), ("GET", "/v1/datasets/" + "x" * 5000, {}), ("GET", "/v1/labels/%ff", {}), ("GET", "/.git/config", {}),
        ("GET", "/console/static/..%2f..%2fserver.key", {}), ("GET", "//etc/passwd", {}), ("OPTIONS", "/v1/questions", {}),
    ):  # fmt: skip
        answer = world.seen(world.client.request(method, path, **{"headers": headers, **more}))
        assert answer.status_code >= 400, (method, path)
        body = answer.text
        if path.startswith("/console"):  # there a problem is a page, in the same words
            assert any(title in body for _, title in problems.CODES.values()), path
        else:
            assert answer.json()["code"] in problems.CODES, (method, path)
        assert not any(
            word in body
            for word in (
                "Traceback",
                "site-packages",
                "deniable/",
                ".py",
                "line ",
                "ValueError",
                str(world.folder),
                "0x",
            )
        )
        assert not {"server", "x-request-id", "x-powered-by"} & set(answer.headers)
        assert found(body) == []


@case(
    "E22",
    "a log line broken by names: line feeds and escape codes in paths, keys and SQL",
    "no log line contains what was sent",
)
def test_log_injection(worlds: Worlds, caplog: pytest.LogCaptureFixture) -> None:
    world = worlds[0]
    with caplog.at_level(logging.DEBUG, "deniable"):
        for text in ("x%0aERROR root: injected", "x%1b[31minjected"):
            world.call("ana", "GET", f"/v1/datasets/{text}")
            world.call("ana", "GET", f"/{text}")
        world.ask("SELECT COUNT(*) FROM visits WHERE diagnosis = '\nERROR injected\x1b[31m'", epsilon=0.1)
        world.ask("SELECT\nERROR injected", epsilon=0.1, key="injected")
    assert "injected" not in "\n".join(
        record.getMessage() for record in caplog.records if record.name.startswith("deniable")
    )


@pytest.mark.slow
@case(
    "E17",
    "cells of NaN, ±∞, −0, subnormal, 2⁶³, in Parquet, and a column of nested lists",
    "answered like any other, or refused by its type alone",
)
def test_odd_cells_in_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    from tests.server.world import Client, made

    world = made(tmp_path)
    assert isinstance(world.client, Client)
    seen = []
    odd = [float("nan"), float("inf"), float("-inf"), -0.0, 5e-324, 1.7e308]
    schema = "version: 1\ntables:\n  t{0}:\n    person: who\n    rows: 2\n    columns:\n      x: {{kind: real, low: 0, high: 10}}\n      k: {{kind: integer, low: 0, high: 9}}\n"
    with world.client:
        for name, reals, wholes in (("plain", [1.0] * 6, [1] * 6), ("odd", odd, [2**63 - 1, -(2**63), 0, 1, 2, 3])):
            table = pa.table(
                {
                    "who": [f"{name}{i}" for i in range(6)],
                    "x": reals,
                    "k": pa.array(wholes, pa.int64()),
                    "more": [[1]] * 6,
                }
            )
            parquet.write_table(table, tmp_path / f"{name}.parquet", compression="zstd")
            body = {
                "name": name,
                "sources": {f"t{name}": f"{name}.parquet"},
                "schema": schema.format(name),
                "budget": {"epsilon": 50.0},
            }
            assert world.call("olga", "POST", "/v1/datasets", body).status_code == 201
            said = []
            for call in (
                "SUM(x)",
                "AVG(x)",
                "SUM(k)",
                "COUNT(x)",
                "STDDEV(x)",
                "MEDIAN(x)",
                "SUM(LEAST(GREATEST(x * x / k, 0), 5))",
            ):
                asked = {"dataset": name, "sql": f"SELECT {call} AS v FROM t{name}", "epsilon": 1.0}
                answer = world.call("olga", "POST", "/v1/questions", asked)
                said.append((answer.status_code, answer.json().get("code")))
                assert re.search(r"\b(nan|inf|infinity)\b", answer.text.lower()) is None
            seen.append(said)
    assert seen[0] == seen[1]
