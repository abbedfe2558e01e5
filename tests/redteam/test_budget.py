"""Attacks on the budget: numbers that mean nothing, races, retries, hanging up, colluding, asking for prices."""

from __future__ import annotations

import asyncio
import json
import math
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deniable import cli
from deniable.errors import BudgetExceeded, DeniableError, EngineFailed
from deniable.ledger import EVERYBODY, Ledger
from deniable.ledger.entries import State
from deniable.server.catalogue.catalogue import Person
from deniable.server.request_bodies import BudgetBody
from deniable.server.roles import Role
from tests.queries.hospital import BUDGETS, opened, visits
from tests.redteam.cases import case
from tests.server.world import WARDS, World, made

OLGA = Person("olga", Role.OWNER)
COUNT = "SELECT COUNT(*) AS n FROM visits WHERE age > "
NEVER = "SELECT COUNT(*) AS n FROM visits WHERE town = 'x{}'"
"""As many different questions as one likes."""

IN_JSON = (
    "-1", "-0.0", "0", "0.0", "NaN", "Infinity", "-Infinity", "1e-400", "5e-324", "1e308", "1e999", "1" + "0" * 400,
    '"1"', '"0.5"', '"1e-1"', "true", "false", "null", "[1]", "{}", '{"epsilon": 1}',
)  # fmt: skip
IN_PYTHON: tuple[Any, ...] = (
    -1, -0.0, 0, math.nan, math.inf, -math.inf, float("1e-400"), 1e308, 10**400, True, False, "-1", "0", "nan", "inf",
    "1e-400", "x", "", "1;2", Decimal("NaN"), Decimal(-1), Fraction(-1, 3), [1], None, 1j, b"1",
)  # fmt: skip
ROUNDED = {"null", "5e-324"}
"""Of limits: none at all, and one that is rounded down to nothing."""

IN_SHELL = ("-1", "-0.0", "0", "nan", "inf", "-inf", "1e-400", "1e308", "1" + "0" * 400, "true", "", "x", "1;2", "$(1)")


def engine(world: World) -> Any:
    return world.curator.open(OLGA, "visits").session._engine


def raw(world: World, path: str, text: str, who: str = "ana") -> Any:
    headers = {"Authorization": f"Bearer {world.tokens[who]}", "Content-Type": "application/json"}
    return world.client.post(path, content=text, headers=headers)


def left_for(world: World, epsilon: float, times: int) -> Any:
    """Lower the limit so that exactly this many questions still fit; what one of them costs."""
    ledger = world.ledger
    cost = ledger.budget.cost(epsilon=epsilon)
    units = ledger.charged.units + times * cost.units
    limit = type(cost)(units, ledger.limit.delta_units)
    ledger.adjust(EVERYBODY, limit, by="olga", reason="the last of it", key=world.curator.key)
    return cost


# -- numbers -----------------------------------------------------------------------------------------------------------


@case(
    "B1",
    'ε, μ, ρ, share or ± of −1, 0, NaN, ∞, 1e-400, 10⁴⁰⁰, "1", true, ... over HTTP',
    "400 or 422, ledger untouched",
)
@pytest.mark.parametrize("number", IN_JSON, ids=lambda text: text[:12])
def test_absurd_costs_over_http(number: str, world: World) -> None:
    before = list(world.ledger.entries())
    for name in ("epsilon", "mu", "rho", "share", "within"):
        for path, rest in (("", f'"sql": {json.dumps(WARDS)}'), (":batch", f'"questions": [{json.dumps(WARDS)}]')):
            if (name, path, number) == ("within", ":batch", "[1]"):
                continue  # one number for each question
            answer = raw(world, f"/v1/questions{path}", f'{{"dataset": "visits", {rest}, "{name}": {number}}}')
            allowed = {400, 422} | ({402} if name in {"within", "share"} else set())
            assert answer.status_code in allowed, (name, number, answer.text)
    answer = raw(
        world,
        "/v1/questions",
        f'{{"dataset": "visits", "sql": {json.dumps(WARDS)}, "epsilon": 1, "epsilon": {number}}}',
    )
    assert answer.status_code in {400, 422}
    assert list(world.ledger.entries()) == before


@case("B1b", "the same numbers to a local session in Python", "our error, ledger untouched")
@pytest.mark.parametrize("kind", ["gaussian", "pure"])
def test_absurd_costs_in_python(kind: str) -> None:
    with opened(visits(30, 60), budget=BUDGETS[kind]) as session:
        for name in ("epsilon", "mu", "rho", "share", "within"):
            for number in IN_PYTHON:
                if name == "within" and number in (1e308, 10**400, "1e-400"):
                    continue  # as coarse as you like, for the least there is to pay; or no person off, a price too
                with pytest.raises(DeniableError):
                    session.sql(WARDS, **{name: number})
        assert not list(session.ledger.entries())
        session.sql(WARDS, mu="0.5") if kind == "gaussian" else session.sql(WARDS, epsilon="0.5")
        written = {"mu" if kind == "gaussian" else "epsilon": Fraction(1, 2)}  # decimal text is that number, exactly
        assert session.ledger.charged == session.budget.cost(**written)


@case(
    "B1c", "the same numbers to `deniable ask` in a shell, for the cost and for the budget", "exit 2, nothing charged"
)
def test_absurd_costs_in_a_shell(tmp_path: Path) -> None:
    file = tmp_path / "visits.csv"
    visits(30, 60).to_csv(file, index=False)
    asked = ["ask", str(file), "SELECT COUNT(*) AS n FROM visits", "--unit", "patient_id", "--rows", "3"]
    app, runner = cli.build(), CliRunner()
    for number in IN_SHELL:
        done = runner.invoke(app, [*asked, "--budget", "1", f"--epsilon={number}"])
        assert done.exit_code == 2, (number, done.output)
        done = runner.invoke(app, [*asked, f"--budget={number}", "--epsilon=0.1"])
        assert done.exit_code == 2, (number, done.output)
    assert not (tmp_path / "visits.csv.ledger").exists()
    assert runner.invoke(app, [*asked, "--budget", "1", "--epsilon", "0.1"]).exit_code == 0
    with Ledger.open(tmp_path / "visits.csv.ledger") as ledger:
        assert ledger.charged == ledger.budget.cost(epsilon="0.1")


@case("B1d", "ε so small that it would round to nothing: 10⁻³⁰ and 1 + 10⁻¹⁷", "charged, rounded up, never 0")
def test_the_smallest_epsilon_costs_something(world: World) -> None:
    for text in ("1e-30", "1.00000000000000001"):
        before = world.ledger.charged
        sql = json.dumps(NEVER.format(f"small {text}"))
        assert (
            raw(world, "/v1/questions", f'{{"dataset": "visits", "sql": {sql}, "epsilon": {text}}}').status_code == 200
        )
        assert world.ledger.charged.units > before.units
        assert world.ledger.charged.units - before.units >= world.ledger.budget.cost(epsilon=float(text)).units


@case("B1e", "the same numbers as a budget, a share or an adjustment by an owner", "400 or 422, nothing granted")
@pytest.mark.parametrize("number", [each for each in IN_JSON if each not in ROUNDED], ids=lambda text: text[:12])
def test_absurd_limits(number: str, world: World) -> None:
    before = list(world.ledger.entries())
    for name in ("epsilon", "mu", "rho"):
        text = f'{{"analyst": "ana", "limit": {{"{name}": {number}}}}}'
        assert raw(world, "/v1/datasets/visits/grants", text, "olga").status_code in {400, 422}
        text = f'{{"reason": "more", "budget": {{"{name}": {number}}}}}'
        assert raw(world, "/v1/datasets/visits/adjustments", text, "olga").status_code in {400, 422}
    assert list(world.ledger.entries()) == before


@case("B2", 'δ of −1, 0, 1, 2, NaN, "1e-9", true; and δ near 1 beside a tiny ε', "refused, ledger untouched")
@pytest.mark.parametrize("delta", ["-1", "-1e-9", "0", "1", "2", "NaN", "true", '"1e-9"', "0.999999", "1e-400"])
def test_absurd_deltas(delta: str, world: World) -> None:
    before = list(world.ledger.entries())
    sql = json.dumps("SELECT town, COUNT(*) AS n FROM visits GROUP BY town")
    text = f'{{"dataset": "visits", "sql": {sql}, "epsilon": 1e-9, "delta": {delta}}}'
    assert raw(world, "/v1/questions", text).status_code in {400, 402, 422}
    assert list(world.ledger.entries()) == before


# -- many at once ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@case(
    "B3b",
    "64 threads ask different questions over HTTP, with budget left for three answers",
    "exactly three are charged",
)
def test_a_race_over_http_for_the_last_of_it(tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        cost = left_for(there, 0.5, 3)
        before = there.ledger.charged
        with ThreadPoolExecutor(64) as pool:
            found = list(pool.map(lambda i: there.ask(NEVER.format(i), epsilon=0.5).status_code, range(64)))
        assert sorted(found) == [200] * 3 + [402] * 61
        assert there.ledger.charged.units == before.units + 3 * cost.units
        assert there.ledger.verify(there.curator.key.public)


@pytest.mark.slow
@case(
    "B15",
    "three analysts, each with the whole budget as their share, ask as much as they can",
    "together no more than the dataset's budget",
)
def test_colluding_analysts(tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        names = [there.newcomer(name, Role.ANALYST) for name in ("ben", "cleo", "dora")]
        for name in names:
            assert there.call("olga", "POST", "/v1/datasets/visits/grants", {"analyst": name}).status_code == 201
        left_for(there, 0.5, 4)
        limit = there.ledger.limit
        found = [there.ask(NEVER.format(i), who=names[i % 3], epsilon=0.5).status_code for i in range(9)]
        assert found == [200] * 4 + [402] * 5
        assert there.ledger.charged.units == limit.units
        assert there.ledger.remaining.units == 0


@pytest.mark.slow
@case(
    "B17",
    "ε chosen from earlier answers, again and again, until nothing is granted",
    "a filter: never above the limit, exactly",
)
def test_adaptive_costs(tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        left_for(there, 1.0, 2)
        granted, chance, epsilon = [], random.Random(5), 0.5
        for number in range(30):
            answer = there.ask(NEVER.format(number), epsilon=epsilon)
            if answer.status_code == 200:
                granted.append(epsilon)
                epsilon = 0.05 + abs(answer.json()["rows"][0][0]) % 7 / 10  # what was seen decides what is spent
            else:
                assert answer.json()["code"] == "budget_exceeded"
                epsilon = epsilon * chance.choice((0.5, 0.9))
        budget = there.ledger.budget
        charged = sum(budget.cost(epsilon=each).units for each in granted)
        assert there.ledger.charged.units == charged <= there.ledger.limit.units
        curve = budget.curve(there.ledger.charged)
        assert curve.epsilon(delta=float(budget.delta)) <= float(budget.epsilon or math.inf)


# -- once --------------------------------------------------------------------------------------------------------------


@case(
    "B8",
    "the client hangs up at a random moment just before the end, 60 times (250 in the long run)",
    "each is charged and sealed",
)
@pytest.mark.parametrize("times", [60, pytest.param(250, marks=pytest.mark.slow)])
def test_cancelling_just_before_the_end(times: int, tmp_path: Path) -> None:
    there, chance = made(tmp_path), random.Random(8)
    with there.client:
        cost, before = there.ledger.budget.cost(epsilon=0.01), there.ledger.charged
        headers = {"Authorization": f"Bearer {there.tokens['ana']}"}
        began = 0

        async def one(number: int) -> None:
            nonlocal began
            body = {"dataset": "visits", "sql": NEVER.format(number), "epsilon": 0.01}
            task = asyncio.create_task(there.client._web.post("/v1/questions", json=body, headers=headers))
            desk = there.client.app._inner._inner.state.desk
            while not desk.busy and not task.done():
                await asyncio.sleep(0)
            began += 1
            await asyncio.sleep(chance.choice((0.0, 0.002, 0.005, 0.01)))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            while desk.busy:
                await asyncio.sleep(0.001)

        async def all_of_them() -> None:
            for number in range(times):
                await one(number)

        there.client._do(all_of_them())
        entries = [entry for entry in there.ledger.entries() if entry.state in {State.RESERVED, State.SEALED}]
        assert began == times
        assert sum(entry.state is State.RESERVED for entry in entries) == times
        assert sum(entry.state is State.SEALED for entry in entries) == times
        assert there.ledger.charged.units == before.units + times * cost.units


@case(
    "B16",
    "a batch of ten whose seventh is refused; or whose run fails at the seventh",
    "nothing charged; or all charged and no answer given",
)
def test_a_batch_is_all_or_nothing(world: World) -> None:
    good = [NEVER.format(f"batch {i}") for i in range(10)]
    before = list(world.ledger.entries())
    body = {"dataset": "visits", "questions": [*good[:6], "SELECT * FROM visits", *good[7:]], "epsilon": 0.5}
    assert world.call("ana", "POST", "/v1/questions:batch", body).json()["code"] == "refused"
    assert list(world.ledger.entries()) == before
    there, collect, runs = engine(world), engine(world).collect, []

    def fails_at_the_seventh(question: Any) -> Any:
        runs.append(question)
        if len(runs) == 7:
            raise EngineFailed("source")
        return collect(question)

    there.collect = fails_at_the_seventh
    try:
        failed = world.call("ana", "POST", "/v1/questions:batch", {**body, "questions": good})
    finally:
        there.collect = collect
    assert (failed.status_code, failed.json()["code"]) == (500, "run_failed")
    assert "rows" not in failed.json()
    charged = [entry for entry in list(world.ledger.entries())[len(before) :] if entry.state is State.RESERVED]
    assert len(charged) == 10


@case(
    "B20",
    "the owner lowers, then raises the limit while a question runs",
    "charged once, under the limit that was valid when it began",
)
def test_a_limit_changed_while_a_question_runs(tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        cost, before = there.ledger.budget.cost(epsilon=0.5), there.ledger.charged
        collect, inside = engine(there).collect, threading.Event()

        def slowly(question: Any) -> Any:
            for epsilon in (0.001, 200.0):
                there.curator.adjust(OLGA, "visits", BudgetBody(epsilon=epsilon), "while it runs")
            inside.set()
            return collect(question)

        engine(there).collect = slowly
        assert there.ask(NEVER.format("running"), epsilon=0.5).status_code == 200
        assert inside.is_set()
        assert there.ledger.charged == before + cost
        assert there.ledger.verify(there.curator.key.public)


@pytest.mark.slow
@case(
    "B14",
    "an analyst is closed and added again under the same name; a grant is revoked and given again",
    "what was spent stays spent",
)
def test_a_new_start_under_an_old_name(tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        there.newcomer("vera", Role.ANALYST)
        limit = {"analyst": "vera", "limit": {"epsilon": 0.5}}
        assert there.call("olga", "POST", "/v1/datasets/visits/grants", limit).status_code == 201
        assert there.ask(NEVER.format(1), who="vera", epsilon=0.5).status_code == 200
        assert there.ask(NEVER.format(2), who="vera", epsilon=0.1).status_code == 402
        assert there.call("adam", "DELETE", "/v1/people/vera").status_code == 204
        assert there.call("adam", "POST", "/v1/people", {"name": "vera", "role": "analyst"}).status_code == 201
        there.newcomer("vera", Role.ANALYST)
        assert there.call("olga", "DELETE", "/v1/datasets/visits/grants/vera").status_code == 204
        assert there.call("olga", "POST", "/v1/datasets/visits/grants", limit).status_code == 201
        assert there.ask(NEVER.format(3), who="vera", epsilon=0.1).status_code == 402
        again = {
            "name": "visits",
            "sources": {"visits": "visits.csv"},
            "schema": "tables: {}",
            "budget": {"epsilon": 1},
        }
        assert there.call("olga", "POST", "/v1/datasets", again).status_code in {409, 422}
        assert there.call("olga", "DELETE", "/v1/datasets/visits").status_code == 405


# -- prices read nothing -----------------------------------------------------------------------------------------------


def trip(*_: object, **__: object) -> Any:
    TRIPPED.append(1)
    raise AssertionError("data was read")


TRIPPED: list[int] = []


PRICED = [
    WARDS, "SELECT AVG(cost) AS a FROM visits", "SELECT MEDIAN(age) AS m FROM visits", "SELECT COUNT(DISTINCT town) AS t FROM visits",
]  # fmt: skip


@pytest.mark.slow
@case("B18", "a thousand prices over HTTP with a tripwire on the engine", "no data is read, nothing is charged")
def test_a_thousand_prices_over_http_read_nothing(world: World) -> None:
    there, before = engine(world), list(world.ledger.entries())
    collect, register = there.collect, there.register
    there.collect, there.register = trip, trip
    try:
        with ThreadPoolExecutor(8) as pool:
            bodies = ({"sql": PRICED[i % 4], "epsilon": 0.001 + i / 1000} for i in range(1000))
            found = set(pool.map(lambda body: world.ask(**body, path=":price").status_code, bodies))
        assert found == {200}
        assert not TRIPPED
        world.ask(NEVER.format("tripwire"), epsilon=0.1)
        assert TRIPPED, "the tripwire is no dummy: an answer trips it"
    finally:
        there.collect, there.register = collect, register
    assert [entry.state for entry in list(world.ledger.entries())[len(before) :]] == [State.RESERVED, State.SEALED]


@case("B18b", "a hundred thousand prices of a session whose file was taken away", "all are answered: nothing is read")
@pytest.mark.parametrize("times", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_hundred_thousand_prices_of_a_session(times: int, tmp_path: Path) -> None:
    file = tmp_path / "visits.csv"
    visits(30, 60).to_csv(file, index=False)
    with opened(file) as session:
        file.unlink()
        session._engine.collect = trip
        for number in range(times):
            session.price(PRICED[number % 4], mu=0.001 + number % 100 / 100)
        assert not list(session.ledger.entries())


@case("B21", "ask for the whole budget by share, again and again", "every share is paid; once nothing is left, 402")
def test_shares_of_nothing(tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        found = [there.ask(NEVER.format(i), share=1.0).status_code for i in range(4)]
        assert found[0] == 200
        assert set(found[1:]) == {402}
        assert there.ledger.charged.units <= there.ledger.limit.units


@case(
    "B22",
    "idempotency keys that are empty, enormous, not ASCII, or another person's",
    "refused, or a charge of its own; never another's answer",
)
def test_odd_idempotency_keys(world: World) -> None:
    sql = NEVER.format("keys")
    for key in ("", "x" * 201, "a b", "\x7f", "\xe9"):
        body = {"dataset": "visits", "sql": sql, "epsilon": 0.1}
        headers = {
            b"Authorization": f"Bearer {world.tokens['ana']}".encode(),
            b"Idempotency-Key": key.encode("latin-1"),
        }
        assert world.client.request("POST", "/v1/questions", json=body, headers=headers).status_code == 422, key
    other = world.newcomer("kay", Role.ANALYST)
    assert world.ask(sql, key="mine", epsilon=0.1).status_code == 200
    assert world.ask(sql, key="mine", who=other, epsilon=0.1).status_code == 404  # not granted: the key opens nothing


@pytest.mark.slow
@case(
    "B23",
    "a charge that would exceed the budget of a ledger by one unit",
    "refused; a charge of exactly the rest is granted",
)
def test_one_unit_too_many(tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        cost = left_for(there, 0.5, 1)
        ledger = there.ledger
        limit = type(cost)(ledger.limit.units - 1, ledger.limit.delta_units)
        ledger.adjust(EVERYBODY, limit, by="olga", reason="one unit less", key=there.curator.key)
        assert there.ask(NEVER.format(1), epsilon=0.5).status_code == 402
        with pytest.raises(BudgetExceeded):
            ledger.reserve(cost, question="0" * 64, description="x", payer="ana")
        ledger.adjust(
            EVERYBODY,
            type(cost)(limit.units + 1, limit.delta_units),
            by="olga",
            reason="and back",
            key=there.curator.key,
        )
        assert there.ask(NEVER.format(1), epsilon=0.5).status_code == 200
