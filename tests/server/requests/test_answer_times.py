"""When answers leave: on the grid, whatever the work took; and that work is finished though nobody waits for it."""

from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path
from typing import Any

import pytest

from deniable.errors import DeniableError, EngineFailed, InvalidParameter, UnreadableRecord
from deniable.queries.engines.duckdb import DuckDBEngine
from deniable.server.catalogue.catalogue import Person
from deniable.server.operations.settings import Settings
from deniable.server.requests.answer_times import AnswerGrid
from deniable.server.roles import Role
from tests.server.world import World, made
from tests.wording import worded


@pytest.mark.parametrize("step", [0.01, 0.05, 1.0])
def test_everything_leaves_at_a_power_of_two_of_the_step(step: float) -> None:
    grid = AnswerGrid(step)
    for thousandth in range(0, 4000, 7):
        took = thousandth / 1000
        due = grid.due(took)
        times = due / step
        assert due >= took
        assert times == 2 ** round(math.log2(times))
        assert due == step or due < 2 * took * (1 + 1e-12)  # never later than it must


def test_a_minute_has_twelve_classes_at_most() -> None:
    assert len({AnswerGrid(0.05).due(took / 100) for took in range(6000)}) == 12


def test_leaving_waits_until_the_step_is_over() -> None:
    async def wait() -> float:
        arrived = time.monotonic()
        await AnswerGrid(0.05).leave(arrived)
        return time.monotonic() - arrived

    assert asyncio.run(wait()) >= 0.05


STEP = 0.4


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Any:
    there = made(tmp_path_factory.mktemp("slow"), grid=STEP)
    with there.client:
        there.ask("SELECT COUNT(*) AS n FROM visits", epsilon=0.1)
        yield there


def engine(world: World) -> Any:
    return world.curator.open(Person("olga", Role.OWNER), "visits").session._engine


@pytest.mark.parametrize(
    ("sql", "more"),
    [
        ("SELECT COUNT(*) AS n FROM visits", {"epsilon": 0.1}),  # known before
        ("SELECT COUNT(*) AS n FROM visits WHERE age > 41", {"epsilon": 0.1}),  # new
        ("SELECT * FROM visits", {"epsilon": 0.1}),  # refused
        ("SELECT COUNT(*) AS n FROM visits WHERE age > 42", {"epsilon": 9999.0}),  # too much
        ("SELECT COUNT(*) AS n FROM visits WHERE age > 43", {"epsilon": 0.1, "key": "one"}),  # new, with a key
    ],
)
def test_every_kind_of_answer_waits_for_the_grid(sql: str, more: dict[str, Any], slow: World) -> None:
    for _ in range(2):  # the second time it is known, or the same bytes again
        began = time.monotonic()
        slow.ask(sql, **more)
        assert time.monotonic() - began >= STEP


def test_work_beyond_a_step_leaves_with_all_other_work_of_its_class(
    slow: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, collect = engine(slow), engine(slow).collect

    def late(question: Any) -> Any:
        time.sleep(1.1 * STEP)
        return collect(question)

    monkeypatch.setattr(there, "collect", late)
    began = time.monotonic()
    slow.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 44", epsilon=0.1)
    assert time.monotonic() - began >= 2 * STEP


def test_failures_wait_for_the_grid_too(slow: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(question: Any) -> Any:
        raise EngineFailed("source")

    monkeypatch.setattr(engine(slow), "collect", fails)
    began = time.monotonic()
    assert slow.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 45", epsilon=0.1).status_code == 500
    assert time.monotonic() - began >= STEP


def test_a_client_that_hangs_up_changes_nothing(slow: World, monkeypatch: pytest.MonkeyPatch) -> None:
    there, collect, running = engine(slow), engine(slow).collect, asyncio.Event()
    loop = slow.client._loop

    def late(question: Any) -> Any:
        loop.call_soon_threadsafe(running.set)
        time.sleep(0.3)
        return collect(question)

    monkeypatch.setattr(there, "collect", late)
    charged = slow.ledger.charged
    body = {"dataset": "visits", "sql": "SELECT COUNT(*) AS n FROM visits WHERE age > 46", "epsilon": 0.1}
    headers = {"Authorization": f"Bearer {slow.tokens['ana']}", "Idempotency-Key": "gone"}

    async def hang_up() -> None:
        request = asyncio.create_task(slow.client._web.request("POST", "/v1/questions", json=body, headers=headers))
        await running.wait()
        request.cancel()

    slow.client._do(hang_up())
    answer = slow.call("ana", "POST", "/v1/questions", body, headers={"Idempotency-Key": "gone"})
    assert answer.status_code == 200
    assert answer.json()["provenance"]["replayed"] is False  # it is the first request's own answer
    assert slow.ledger.charged == charged + slow.ledger.budget.cost(epsilon=0.1)


def test_when_too_many_wait_the_next_is_turned_away_uncharged(tmp_path: Path) -> None:
    there = made(tmp_path, waiting=1, at_once=1)
    with there.client:
        desk = there.client.app._inner._inner.state.desk
        desk._questions._most, desk._questions._queued = 0, 1  # all places are taken, and one waits
        charged = there.ledger.charged
        busy = there.ask(epsilon=0.1)
        desk._questions._most, desk._questions._queued = 1, 0
        assert (busy.status_code, busy.json()["code"], busy.headers["Retry-After"]) == (503, "busy", "1")
        assert there.ledger.charged == charged
        assert there.ask(epsilon=0.1).status_code == 200


# -- settings --------------------------------------------------------------------------------------------------------


def test_settings_come_from_a_file_with_paths_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('state = "kept"\ndata = ["tables", "/srv/data"]\ngrid = 0.1\nport = 0\n')
    found = Settings.read(file)
    assert found.state == tmp_path / "kept"
    assert found.data == (tmp_path / "tables", Path("/srv/data"))
    assert (found.grid, found.port, found.processes) == (0.1, 0, 1)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("state = 1 =", UnreadableRecord),
        ('state = "x"', UnreadableRecord),
        ('state = "x"\ndata = "y"\nport = 99999', InvalidParameter),
        ('state = "x"\ndata = "y"\ngrid = 0', InvalidParameter),
        ('state = "x"\ndata = "y"\nrate = "fast"', InvalidParameter),
        ('state = "x"\ndata = "y"\nengine = "sqlite"', InvalidParameter),
        ('state = "x"\ndata = "y"\nseed = 7', UnreadableRecord),
        ('state = "x"\ndata = "y"\ndatabase = "mysql://u:secret@h/x"', InvalidParameter),
        ('state = "x"\ndata = "y"\ndatabase = 3', UnreadableRecord),
        ("state = 3\ndata = 'y'", UnreadableRecord),
        ('state = "x"\ndata = 3', UnreadableRecord),
        ('state = "x"\ndata = ["y", 3]', UnreadableRecord),
        ('state = "x"\ndata = "y"\nhost = 3', UnreadableRecord),
        ('state = "x"\ndata = "y"\nhost = ""', InvalidParameter),
        ('state = "x"\ndata = "y"\nprocesses = 1.5', UnreadableRecord),
        ('state = "x"\ndata = "y"\nhttps = "no"', UnreadableRecord),
        ('state = "x"\ndata = "y"\nmemory = "lots"', InvalidParameter),
        ('state = "x"\ndata = "y"\n[oidc]\nkeys = 3', UnreadableRecord),
    ],
)
def test_settings_that_mean_nothing_are_refused(text: str, error: type[Exception], tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(text)
    with pytest.raises(error) as refused:
        Settings.read(file)
    assert "secret" not in str(refused.value)


def test_settings_in_another_encoding_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_bytes('state = "Zürich"'.encode("latin-1"))
    with worded(UnreadableRecord):
        Settings.read(file)


@pytest.mark.parametrize("memory", ["640MB", "2GB", "1.5 GiB", "80%"])
def test_memory_is_said_as_duckdb_reads_it(memory: str, tmp_path: Path) -> None:
    Settings(state=tmp_path, data=[tmp_path], memory=memory)
    DuckDBEngine(memory=memory).close()


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("prot = 80", "the entry 'prot' is not known; did you mean 'port'? choose from "),
        ('proxy = ["10.0.0.7"]', "the entry 'proxy' is not known; did you mean 'proxies'?"),
        ("Processes = 2", "did you mean 'processes'?"),
        ("zzz = 2", "the entry 'zzz' is not known; choose from at_once, body,"),
        ("[ceiling]\nepsilom = 1.0\ndelta = 1e-6", "ceiling='epsilom': is not a known entry; did you mean 'epsilon'?"),
    ],
)
def test_a_misspelt_setting_was_told_a_list_of_thirty(written: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(f'state = "state"\ndata = ["tables"]\n{written}\n')
    with pytest.raises(DeniableError) as told:
        Settings.read(file)
    assert said in str(told.value)
