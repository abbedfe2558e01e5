"""Attacks on the evidence, and the evidence against us: edited ledgers, and answers over HTTP put to an audit."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deniable import audit, cli
from deniable.ledger.entries import State
from deniable.queries.relations.exact_statistics import Collect, Moves
from deniable.units import Unit
from tests.queries.test_audit import MISS, tables
from tests.redteam.cases import case
from tests.redteam.test_budget import NEVER, OLGA
from tests.server import world as worlds_of
from tests.server.world import SCHEMA, WARDS, World, made

Lines = list[bytes]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """What a server exports after four questions, a fork of that history, and the server's key."""
    folder = tmp_path_factory.mktemp("exported")
    there = made(folder)
    with there.client:
        for number in range(3):
            there.ask(NEVER.format(number), epsilon=0.5)
        shutil.copytree(folder / "state" / "ledgers", folder / "kept")
        there.ask(NEVER.format("last"), epsilon=0.5)
        (folder / "ledger.jsonl").write_bytes(there.call("ada", "GET", "/v1/ledger/visits").content)
        (folder / "server.pub").write_bytes(there.call("ada", "GET", "/v1/key").content)
    return folder / "ledger.jsonl", folder / "kept", folder / "server.pub"


def verify(path: Path, key: Path, *more: str) -> Any:
    return CliRunner().invoke(cli.build(), ["verify", str(path), "--key", str(key), "--json", *more])


def flip(lines: Lines) -> Lines:
    return [*lines[:4], lines[4].replace(b'"cost":["', b'"cost":["1', 1), *lines[5:]]


def refund(lines: Lines) -> Lines:
    return [*lines[:4], *[line.replace(b'"spent":["', b'"spent":["0', 1) for line in lines[4:]]]


DAMAGES: dict[str, tuple[Callable[[Lines], Lines], int]] = {
    "flip": (flip, 4),
    "delete": (lambda lines: [*lines[:5], *lines[6:]], 5),
    "reorder": (lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]], 4),
    "truncate": (lambda lines: [*lines[:-3], lines[-1]], 0),
    "put in": (lambda lines: [*lines[:5], lines[4], *lines[5:]], 5),
    "other owner": (lambda lines: [lines[0].replace(b'"owner":"', b'"owner":"00', 1)[:], *lines[1:]], 0),
    "other question": (lambda lines: [each.replace(b"town = 'x1'", b"town = 'x9'") for each in lines], 5),
}


@pytest.mark.slow
@case(
    "A9",
    "flip, delete, reorder, truncate, put in, rename: a server's exported ledger, read by `deniable verify`",
    "exit 3 (or 2), and the first bad entry is named",
)
@pytest.mark.parametrize("damage", DAMAGES)
def test_an_edited_export_is_seen(damage: str, exported: tuple[Path, Path, Path], tmp_path: Path) -> None:
    path, _, key = exported
    honest = verify(path, key)
    assert honest.exit_code == 0, honest.output
    lines = path.read_bytes().splitlines(keepends=True)
    change, number = DAMAGES[damage]
    edited = tmp_path / "edited.jsonl"
    edited.write_bytes(b"".join(change(lines)))
    assert edited.read_bytes() != path.read_bytes()
    done = verify(edited, key)
    assert done.exit_code in {2, 3}, done.output
    if number:
        said = json.loads(done.stdout)
        assert (said["whole"], said["entry"]) == (False, number), said


@case(
    "A9b",
    "fork: yesterday's ledger continues with another question, and is exported and signed anew",
    "detected by a person who kept an earlier export",
)
def test_a_fork_is_seen(exported: tuple[Path, Path, Path], tmp_path: Path) -> None:
    path, kept, key = exported
    folder = path.parent
    forked = folder / "state-of-the-fork"
    if not forked.exists():
        shutil.copytree(folder / "state", forked)
        for file in (forked / "ledgers").glob("*"):
            file.unlink()
        for file in kept.glob("*"):
            shutil.copy(file, forked / "ledgers" / file.name)
        for file in (forked / "ledgers").glob("*.ledger"):
            with closing(sqlite3.connect(file, isolation_level=None)) as connection:
                connection.execute("DELETE FROM own WHERE name = 'home'")  # else a copy is refused
        with closing(sqlite3.connect(forked / "catalogue.sqlite", isolation_level=None)) as connection:
            connection.execute("DELETE FROM curator_server WHERE name = 'home'")
            connection.execute("DELETE FROM curator_heads")
        shutil.rmtree(forked / "checkpoints", ignore_errors=True)
    from deniable.server.curator import Curator
    from deniable.server.operations.settings import Settings

    curator = Curator(Settings(state=forked, data=(folder,)))
    ledger = curator.open(OLGA, "visits").session.ledger
    for number in range(3):
        entry = ledger.reserve(
            ledger.budget.cost(epsilon="0.1"), question=f"{number:064x}", description="other", payer="ana"
        )
        ledger.seal(entry, b"x")
    other = tmp_path / "forked.jsonl"
    other.write_bytes(curator.export(OLGA, "visits"))
    curator.close()
    assert verify(other, key).exit_code == 0  # it is a whole history
    done = verify(other, key, "--against", str(path))
    assert done.exit_code == 3, done.output


@case(
    "A9c",
    "a ledger that is edited below a running server: the file itself",
    "the status names the entry, and nothing is granted any more",
)
def test_an_edited_file_is_seen(tmp_path: Path) -> None:
    import sqlite3

    there = made(tmp_path)
    with there.client:
        there.ask(NEVER.format(1), epsilon=0.5)
        number = max(entry.number for entry in there.ledger.entries() if entry.state is State.RESERVED)
        [path] = (tmp_path / "state" / "ledgers").glob("*.ledger")
        with sqlite3.connect(path) as database:
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                database.execute(f"DROP TRIGGER {name}")
            database.execute("UPDATE entries SET description = 'other' WHERE number = ?", (number,))
        database.close()
        said = there.call("ada", "GET", "/v1/ledger/visits/status")
        assert (said.status_code, said.json()["code"], said.json()["entry"]) == (503, "ledger_damaged", number)


# -- answers over HTTP, audited ----------------------------------------------------------------------------------------

UNIT = Unit.person("patient_id", rows=16)
RUNS, EPSILON = 150, 1.0  # planted, the answers of the neighbours are four standard deviations apart


def answers(folder: Path, table: Any) -> tuple[list[float], Any]:
    """What an analyst gets for RUNS different questions about the same rows, over HTTP; and the curve that was charged."""
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worlds_of, "visits", lambda: table)
        patch.setattr(worlds_of, "SCHEMA", SCHEMA.replace("rows: 3", f"rows: {UNIT.rows}"))
        patch.setattr(worlds_of, "BUDGET", {"epsilon": 10_000.0})
        there: World = made(folder)
    with there.client:
        before = there.ledger.charged
        sql = "SELECT COUNT(*) AS x FROM visits WHERE age > -{} OR age IS NULL"
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda run: there.ask(sql.format(run + 1), epsilon=EPSILON), range(RUNS)))
        assert {each.status_code for each in found} == {200}
        assert not any(each.json()["provenance"]["replayed"] for each in found)
        charged = there.ledger.charged.units - before.units
        one = there.ledger.budget.cost(epsilon=EPSILON)
        assert charged == RUNS * one.units
        return [float(each.json()["rows"][0][0]) for each in found], there.ledger.budget.curve(one)


def certified(tmp_path: Path) -> audit.Finding:
    seen = [answers(tmp_path / str(place), table) for place, table in enumerate(tables(UNIT))]
    return audit.compare(seen[0][0], seen[1][0], claim=seen[0][1], delta=0.01, confidence=1 - MISS)


@case(
    "N4",
    "neighbouring datasets behind two servers, 150 answers of each over HTTP: what can be proved from them?",
    "a certified lower bound below what the ledger charged",
)
@pytest.mark.slow
def test_answers_over_http_are_audited(tmp_path: Path) -> None:
    found = certified(tmp_path)
    assert not found.refuted, str(found)


@case("N4b", "the same where a sensitivity is planted that is too small by sixteen", "the charge is refuted")
@pytest.mark.slow
def test_a_planted_sensitivity_is_refuted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Collect.moves

    def wrong(self: Collect, neighbours: Any) -> tuple[Moves, ...]:
        return tuple(Moves(m.l1 // 16, m.l2_squared // 256, m.linf // 16) for m in right(self, neighbours))

    monkeypatch.setattr(Collect, "moves", wrong)
    found = certified(tmp_path)
    assert found.refuted, str(found)


# -- noise -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@case(
    "N5",
    "asking until the answer looks good, and averaging: the same question in seven spellings, 48 times",
    "one draw of noise, one charge, the same numbers",
)
def test_repeating_gives_the_same_noise(tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        spellings = [
            "SELECT COUNT(*) AS n FROM visits WHERE age > 40 AND stay > 2", "select count(*) as n from visits where stay > 2 and age > 40",
            "SELECT COUNT(*) AS n FROM visits AS v WHERE v.age > 40 AND v.stay > 2", "SELECT COUNT(*) n FROM visits WHERE (2 < stay) AND (40 < age)",
            "/* x */ SELECT COUNT(*) AS n FROM \"visits\" WHERE age > 40 AND stay > 2 -- y", "SELECT COUNT(*) AS n FROM (SELECT * FROM visits) WHERE age > 40 AND stay > 2",
            "SELECT COUNT(*) AS n FROM visits WHERE NOT (age <= 40) AND stay > 2",
        ]  # fmt: skip
        before, seen = there.ledger.charged, []
        for number in range(48):
            answer = there.ask(
                spellings[number % len(spellings)], epsilon=0.3 - number / 1000, key=f"{number}" if number % 2 else None
            )
            seen.append(answer.json()["rows"][0][0])
        assert len(set(seen)) == 1
        cost = there.ledger.budget.cost(epsilon=0.3)
        assert there.ledger.charged == before + cost
        assert (
            there.ask(f"{spellings[0]} AND TRUE", epsilon=0.3).status_code == 200
        )  # another text draws anew, and pays
        assert there.ledger.charged == before + cost + cost


@case(
    "N3",
    "a seed, a scale or a sensitivity in the request or in the settings",
    "refused: unknown field",
)
def test_no_seed_can_be_given(tmp_path: Path) -> None:
    from deniable.errors import UnreadableRecord
    from deniable.server.operations.settings import Settings

    there = made(tmp_path)
    with there.client:
        for name in ("seed", "random_state", "noise", "sensitivity", "scale", "sigma", "entropy"):
            assert there.ask(NEVER.format("seed"), epsilon=0.1, **{name: 7}).status_code == 422
            (tmp_path / "server.toml").write_text(f'state = "s"\ndata = "."\n{name} = 7\n')
            with pytest.raises(UnreadableRecord):
                Settings.read(tmp_path / "server.toml")


@case(
    "N8",
    "reading an answer again: its label in three forms, its replay, its request with the same key",
    "the same numbers, nothing charged: no query is run again",
)
def test_reading_again_draws_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = made(tmp_path)
    with there.client:
        first = there.ask(WARDS, epsilon=0.2, key="once")
        entries = list(there.ledger.entries())
        engine = there.curator.open(OLGA, "visits").session._engine
        monkeypatch.setattr(engine, "collect", None)  # whoever runs it again, fails
        assert there.ask(WARDS, epsilon=0.2, key="once").content == first.content
        assert there.ask(WARDS, epsilon=0.1).json()["rows"] == first.json()["rows"]
        for form in ("json", "html", "svg", "json"):
            assert there.call("ana", "GET", f"/v1/labels/{first.json()['release']}?form={form}").status_code == 200
        assert list(there.ledger.entries()) == entries
