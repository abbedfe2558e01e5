"""Whose database and folder these are: another or a lost state folder never gives a budget back."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deniable import cli
from deniable.errors import DeniableError, LedgerMismatch, LedgerUnavailable
from deniable.ledger import Budget, Ledger
from deniable.server.catalogue.catalogue import Person
from deniable.server.curator import Curator
from deniable.server.operations.key_rotation import rotate
from deniable.server.operations.settings import Settings
from deniable.server.problems import Problem
from deniable.server.request_bodies import BudgetBody
from deniable.server.roles import Role
from deniable.units import Unit
from tests.postgres import postgres  # noqa: F401  # a fixture
from tests.queries.hospital import visits
from tests.server.datasets.test_open_datasets import others
from tests.server.world import BUDGET, SCHEMA, WARDS, World, made
from tests.wording import worded

OLGA = Person("olga", Role.OWNER)


@contextmanager
def opened(folder: Path, state: str, **more: Any) -> Iterator[Curator]:
    """A server on a state folder of this name, beside the files."""
    curator = Curator(Settings(state=folder / state, data=(folder,), **more))
    try:
        yield curator
    finally:
        curator.close()


def spent(folder: Path, **more: Any) -> World:
    """A server that answered, and was stopped."""
    there = made(folder, **more)
    with there.client:
        assert there.ask(epsilon=0.5).status_code == 200
    return there


def rows(place: Path, *statements: str) -> None:
    with closing(sqlite3.connect(place)) as database, database:
        for each in statements:
            database.execute(each)


# -- one database, many folders ----------------------------------------------------------------------------------------


@pytest.mark.postgres
def test_another_state_folder_on_one_database_gave_a_fresh_budget(tmp_path: Path, postgres: Any) -> None:  # noqa: F811
    url = postgres.database()
    spent(tmp_path, database=url)
    with worded(LedgerUnavailable) as found:
        Curator(Settings(state=tmp_path / "other", data=(tmp_path,), database=url))
    assert "copy" in found.value.remedy
    assert not list((tmp_path / "other").glob("*.key")), "a key was made in silence"
    with opened(tmp_path, "strange"):
        pass  # a server of its own, with a key of its own
    with pytest.raises(LedgerMismatch, match=r"server\.key"):
        Curator(Settings(state=tmp_path / "strange", data=(tmp_path,), database=url))
    shutil.copytree(tmp_path / "state", tmp_path / "copied")  # what the words say
    with opened(tmp_path, "copied", database=url) as second:
        told = second.register(OLGA, "again", {"again": "visits.csv"}, SCHEMA.replace("visits:", "again:"), None)
        assert told["linked"]
        assert told["left"] != told["limit"]


@pytest.mark.postgres
def test_a_container_without_its_volume_is_refused_after_a_restart(tmp_path: Path, postgres: Any) -> None:  # noqa: F811
    url = postgres.database()
    spent(tmp_path, database=url)
    shutil.rmtree(tmp_path / "state")
    config = tmp_path / "server.toml"
    (tmp_path / "data").mkdir()
    config.write_text(f'state = "state"\ndata = ["data"]\ndatabase = "{url}"\n')
    command = [sys.executable, "-m", "deniable", "serve", "--port", "0", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "server.key" in done.stderr


@pytest.mark.postgres
@pytest.mark.parametrize("then", ["another", "none"])
def test_an_empty_database_beside_a_used_folder_gave_a_fresh_budget(then: str, tmp_path: Path, postgres: Any) -> None:  # noqa: F811
    """Killed soon after it answered, the server had signed no checkpoint of what was spent, and the ledger is in the
    database that the settings name no more.
    """
    (tmp_path / "data").mkdir()
    visits().to_csv(tmp_path / "data" / "visits.csv", index=False)
    config, url = tmp_path / "server.toml", postgres.database()
    told = 'state = "state"\ndata = ["data"]\n{}'
    with opened(tmp_path, "state", database=url) as there:  # not closed until later, as if it had been killed
        there.catalogue.add_person("olga", Role.OWNER)
        there.register(OLGA, "visits", {"visits": "data/visits.csv"}, SCHEMA, BudgetBody(epsilon=1.0))
        there.ask(OLGA, "visits", WARDS, {"epsilon": 1.0, "confidence": 0.95})
        config.write_text(told.format(f'database = "{postgres.database()}"\n' if then == "another" else ""))
        command = [sys.executable, "-m", "deniable", "serve", "--port", "0", "--config", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "this catalogue is empty" in done.stderr
    assert "`database` that this folder was used with" in done.stderr
    with opened(tmp_path, "state", database=url) as again:
        assert again.described(OLGA, "visits")["left"] == "epsilon 0, delta 0"


def test_a_folder_that_served_two_databases_goes_on_with_one(tmp_path: Path) -> None:
    """As it was possible before; and where nothing was registered yet, another database may be chosen."""
    with opened(tmp_path, "state"):
        pass
    (tmp_path / "state" / "catalogue.sqlite").unlink()
    made(tmp_path).curator.close()
    (tmp_path / "state" / "catalogue.id").write_text("0" * 32)
    with worded(LedgerUnavailable):
        Curator(Settings(state=tmp_path / "state", data=(tmp_path,)))
    (tmp_path / "state" / "catalogue.id").unlink()  # killed between the two, or a state from before this was kept
    for _ in range(2):
        with opened(tmp_path, "state") as curator:
            assert curator.catalogue.guards.own()["id"] == (tmp_path / "state" / "catalogue.id").read_text()


def _started(folder: str, state: str, url: str | None, ready: Any, told: Any) -> None:
    ready.wait()
    try:
        curator = Curator(Settings(state=Path(folder) / state, data=(Path(folder),), database=url))
        told.put((curator.key.public.hex, curator._marking.hex()))
        curator.close()
    except DeniableError as error:
        told.put(type(error).__name__)


def at_once(folder: Path, states: list[str], url: str | None) -> list[Any]:
    """What servers that start at the same moment say."""
    processes = multiprocessing.get_context("spawn")
    ready, told = processes.Barrier(len(states)), processes.Queue()
    running = [processes.Process(target=_started, args=(str(folder), each, url, ready, told)) for each in states]
    for each in running:
        each.start()
    found = [told.get(timeout=120) for _ in running]
    for each in running:
        each.join()
    return found


@pytest.mark.slow
@pytest.mark.postgres
def test_of_two_folders_that_start_at_once_one_is_the_server(tmp_path: Path, postgres: Any) -> None:  # noqa: F811
    found = at_once(tmp_path, ["one", "two"], postgres.database())
    assert {type(each) for each in found} == {tuple, str}
    assert "LedgerUnavailable" in found
    assert len(list(tmp_path.glob("*/server.key"))) == 1


@pytest.mark.slow
def test_two_that_start_at_once_on_one_folder_agree(tmp_path: Path) -> None:
    found = at_once(tmp_path, ["one", "one"], None)
    assert len(set(found)) == 1
    assert isinstance(found[0], tuple), found


# -- SQLite: everything is in the folder, or should be -----------------------------------------------------------------


def test_a_lost_key_is_not_made_anew(tmp_path: Path) -> None:
    spent(tmp_path)
    for each in ("server.key", "server.pub"):
        (tmp_path / "state" / each).unlink()
    with worded(LedgerUnavailable):
        Curator(Settings(state=tmp_path / "state", data=(tmp_path,)))
    assert not (tmp_path / "state" / "server.key").exists()


@pytest.mark.parametrize("kept", ["ledgers", "checkpoints"])
def test_a_lost_folder_beside_kept_ledgers_is_refused(kept: str, tmp_path: Path) -> None:
    spent(tmp_path, checkpoints=tmp_path / "elsewhere")
    if kept == "ledgers":
        for each in (tmp_path / "state").glob("*"):
            if each.is_file():
                each.unlink()
        shutil.rmtree(tmp_path / "elsewhere")
    else:
        shutil.rmtree(tmp_path / "state")
    with worded(LedgerUnavailable):
        Curator(Settings(state=tmp_path / "state", data=(tmp_path,), checkpoints=tmp_path / "elsewhere"))


@pytest.mark.slow
def test_a_copied_folder_is_not_served_beside_the_first(tmp_path: Path) -> None:
    """Its ledgers were refused, but what was registered in each of the two got a budget in each."""
    there = spent(tmp_path)
    shutil.copytree(tmp_path / "state", tmp_path / "copied")
    with worded(LedgerUnavailable):
        Curator(Settings(state=tmp_path / "copied", data=(tmp_path,)))
    config = tmp_path / "copied.toml"
    config.write_text('state = "copied"\ndata = ["data"]\n')
    done = CliRunner().invoke(cli.build(), ["moved", "--config", str(config), "--reason", "a new disk"])
    assert done.exit_code == 0, done.output
    with opened(tmp_path, "copied") as curator:
        ledger = curator.open(OLGA, "visits").session.ledger
        assert ledger.charged == ledger.budget.cost(epsilon=0.5)
        assert [each.description for each in ledger.entries()][-2:-1] != []
        assert "a new disk" in [each.description for each in ledger.entries()]
    assert there.curator.key.public == curator.key.public


def test_a_folder_that_was_restored_to_its_own_place_is_called_so(tmp_path: Path) -> None:
    """The words were that it is belongs to the path, with the same path twice."""
    made(tmp_path).curator.close()
    (tmp_path / "state").rename(tmp_path / "lost")
    shutil.copytree(tmp_path / "lost", tmp_path / "state")
    with worded(LedgerUnavailable) as found:
        Curator(Settings(state=tmp_path / "state", data=(tmp_path,)))
    assert "elsewhere" not in found.value.reason


@pytest.mark.slow
def test_an_older_catalogue_beside_newer_ledgers_registers_nothing(tmp_path: Path) -> None:
    """Data that it has forgotten would get a fresh budget; what it knows goes on."""
    spent(tmp_path)
    kept = dumped(tmp_path / "state" / "catalogue.sqlite")
    others(1).to_csv(tmp_path / "others.csv", index=False)
    with opened(tmp_path, "state") as curator:
        later = SCHEMA.replace("visits:", "later:")
        more = {"people": "others", "reason": "another hospital"}
        curator.register(OLGA, "later", {"later": "others.csv"}, later, BudgetBody(**BUDGET), **more)
        session = curator.open(OLGA, "later").session
        session.ask("SELECT COUNT(*) AS n FROM later", epsilon=1.0, payer="olga")
    _restored(tmp_path / "state" / "catalogue.sqlite", kept)
    with opened(tmp_path, "state") as curator:
        assert curator.open(OLGA, "visits").session.ledger.charged.units
        with pytest.raises(Exception, match="ledger_mismatch") as found:
            curator.register(OLGA, "later", {"later": "others.csv"}, later, BudgetBody(**BUDGET), **more)
        assert "older than its ledgers" in found.value.detail


def dumped(place: Path) -> str:
    with closing(sqlite3.connect(place)) as database, database:
        return "\n".join(database.iterdump())


LATER = SCHEMA.replace("visits:", "later:")
HERS = {"people": "others", "reason": "another hospital"}


@pytest.mark.slow
def test_a_catalogue_that_forgot_a_name_of_a_known_family_registers_nothing(tmp_path: Path) -> None:
    """The family was known, so nobody missed the name, and its file got a budget of its own."""
    spent(tmp_path)
    kept = dumped(tmp_path / "state" / "catalogue.sqlite")
    others(1).to_csv(tmp_path / "others.csv", index=False)
    with opened(tmp_path, "state") as curator:
        told = curator.register(OLGA, "later", {"later": "others.csv"}, LATER, None, family="visits")
        assert told["linked"]
        curator.open(OLGA, "later").session.ask("SELECT COUNT(*) AS n FROM later", epsilon=1.0, payer="olga")
    _restored(tmp_path / "state" / "catalogue.sqlite", kept)
    with opened(tmp_path, "state") as curator:
        for _ in range(2):  # also once the ledger was opened, and the catalogue knows its head
            with pytest.raises(Problem, match="ledger_mismatch") as found:
                curator.register(OLGA, "later2", {"later": "others.csv"}, LATER, BudgetBody(**BUDGET), **HERS)
            assert "older than its ledgers" in found.value.detail
            assert curator.open(OLGA, "visits").session.ledger.charged.units
        # Under its name and in its family it gets no fresh budget; then nothing is missing.
        assert curator.register(OLGA, "later", {"later": "others.csv"}, LATER, None, family="visits")["linked"]
        again = LATER.replace("later:", "again:")
        assert curator.register(OLGA, "again", {"again": "others.csv"}, again, None)["linked"]


@pytest.mark.slow
def test_a_registration_that_failed_in_a_known_family_stops_no_other(tmp_path: Path) -> None:
    spent(tmp_path)
    others(1).drop(columns="ward").to_csv(tmp_path / "wardless.csv", index=False)
    others(2).to_csv(tmp_path / "others.csv", index=False)
    with opened(tmp_path, "state") as curator:
        with pytest.raises(DeniableError):
            curator.register(OLGA, "later", {"later": "wardless.csv"}, LATER, None, family="visits")
        assert "later" not in curator.open(OLGA, "visits").session.ledger.names
        curator.open(OLGA, "visits").session.ask("SELECT COUNT(*) AS n FROM visits", epsilon=1.0, payer="olga")
        told = curator.register(OLGA, "other", {"later": "others.csv"}, LATER, BudgetBody(**BUDGET), **HERS)
        assert not told["linked"]


@pytest.mark.postgres
@pytest.mark.parametrize("family", [None, "visits"])
def test_an_older_catalogue_in_a_database_registers_nothing(
    family: str | None,
    tmp_path: Path,
    postgres: Any,  # noqa: F811
) -> None:
    """Ledgers in a database were not looked at, and a checkpoint is signed only some time after a charge."""
    url = postgres.database()
    there = spent(tmp_path, database=url)
    others(1).to_csv(tmp_path / "others.csv", index=False)
    with opened(tmp_path, "state", database=url) as curator:
        more: dict[str, Any] = {"family": family} if family else HERS
        budget = None if family else BudgetBody(**BUDGET)
        curator.register(OLGA, "later", {"later": "others.csv"}, LATER, budget, **more)
        curator.open(OLGA, "later").session.ask("SELECT COUNT(*) AS n FROM later", epsilon=1.0, payer="olga")
        record = curator.catalogue.dataset("later")
        assert record is not None
        curator.datasets.witness.close()
    if family is None:
        (tmp_path / "state" / "checkpoints" / f"{record.family}.json").unlink()
        for table in ("marks", "heads"):
            postgres.sql(f"DELETE FROM curator_{table} WHERE family = '{record.family}'", url)
    for column, table in (("name", "datasets"), ("dataset", "sketches")):
        postgres.sql(f"DELETE FROM curator_{table} WHERE {column} = 'later'", url)
    if family is not None:
        postgres.sql("DELETE FROM curator_marks", url)
    with opened(tmp_path, "state", database=url) as curator:
        with pytest.raises(Problem, match="ledger_mismatch") as found:
            curator.register(OLGA, "later2", {"later": "others.csv"}, LATER, BudgetBody(**BUDGET), **HERS)
        assert "older than its ledgers" in found.value.detail
    assert there


@pytest.mark.postgres
def test_ledgers_of_others_in_the_same_database_are_no_strays(tmp_path: Path, postgres: Any) -> None:  # noqa: F811
    url = postgres.database()
    budget = Budget.pure(epsilon=1)
    with Ledger.open(url, budget=budget, unit=Unit.row(), dataset="mine") as ledger:
        ledger.reserve(budget.cost(epsilon=0.5), question="0" * 64, description="how many")
    assert spent(tmp_path, database=url)


def _restored(place: Path, dump: str) -> None:
    """The old contents in the same file: nobody can tell it by its place."""
    with closing(sqlite3.connect(place)) as database:
        database.execute("PRAGMA writable_schema = ON")
        names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for each in names:
            if not each.startswith("sqlite_"):
                database.execute(f"DROP TABLE {each}")
        database.commit()
        database.executescript(dump)


# -- whatever the marks say --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("how", ["path", "contents"])
def test_the_same_file_is_known_without_its_marks(how: str, tmp_path: Path) -> None:
    there = spent(tmp_path)
    rows(tmp_path / "state" / "catalogue.sqlite", "DELETE FROM curator_marks")
    source = "visits.csv"
    if how == "contents":
        source = "elsewhere.csv"
        shutil.copy(tmp_path / "visits.csv", tmp_path / source)
    else:
        with (tmp_path / "visits.csv").open("a") as file:
            file.write("999999,A,f,1,1,1.0,T\n")
    with opened(tmp_path, "state") as curator:
        schema = SCHEMA.replace("visits:", "again:")
        assert curator.register(OLGA, "again", {"again": source}, schema, None)["linked"]
    assert there


# -- states from before ------------------------------------------------------------------------------------------------


def before(folder: Path) -> None:
    """As a server kept it that wrote nothing of this down: the secret in a file, nothing in the catalogue."""
    with opened(folder, "state") as curator:
        secret = curator._marking
    (folder / "state" / "marks.secret").write_bytes(secret)
    rows(folder / "state" / "catalogue.sqlite", "DELETE FROM curator_server")


def test_a_state_from_before_is_taken_over(tmp_path: Path) -> None:
    there = spent(tmp_path)
    before(tmp_path)
    for _ in range(2):
        with opened(tmp_path, "state") as curator:
            assert curator.key.public == there.curator.key.public
            assert curator._marking == there.curator._marking
    (tmp_path / "state" / "marks.secret").unlink()  # it is in the catalogue now
    with opened(tmp_path, "state") as curator:
        assert curator._marking == there.curator._marking


@pytest.mark.parametrize("lost", ["server.key", "marks.secret"])
def test_a_state_from_before_that_lost_something_is_refused(lost: str, tmp_path: Path) -> None:
    spent(tmp_path)
    before(tmp_path)
    if lost == "server.key":
        (tmp_path / "state" / "server.key").unlink()
    else:
        (tmp_path / "state" / "marks.secret").write_bytes(os.urandom(32))
        rows(
            tmp_path / "state" / "catalogue.sqlite",
            "DELETE FROM curator_server",
            "UPDATE curator_marks SET mark = mark || 'x'",
        )
    with pytest.raises(LedgerUnavailable, match=lost.replace(".", r"\.")):
        Curator(Settings(state=tmp_path / "state", data=(tmp_path,)))


def test_the_secret_in_the_catalogue_opens_with_the_key_alone(tmp_path: Path) -> None:
    there = spent(tmp_path)
    with closing(sqlite3.connect(tmp_path / "state" / "catalogue.sqlite")) as database:
        kept = dict(database.execute("SELECT name, value FROM curator_server").fetchall())
    assert kept["key"] == there.curator.key.public.hex
    assert there.curator._marking.hex() not in "".join(kept.values())
    assert there.curator.key.pem().decode().splitlines()[1] not in "".join(kept.values())


def test_a_rotation_that_was_broken_off_at_the_end_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database had the new key, the folder still the old one in its place."""
    there = spent(tmp_path)
    settings, replace = there.curator.settings, Path.replace

    def stopped(path: Path, target: Any) -> Path:
        if path.name == "server.next.key":
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stopped)
        with pytest.raises(KeyboardInterrupt):
            rotate(settings, by="admin", reason="new")
    with pytest.raises(LedgerUnavailable, match="deniable rotate"):
        Curator(settings)
    public, ledgers = rotate(settings, by="admin", reason="new")
    assert ledgers == 1
    with opened(tmp_path, "state") as curator:
        assert curator.key.public == public != there.curator.key.public
        assert curator._marking == there.curator._marking
