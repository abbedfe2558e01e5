"""A ledger that is older than what the catalogue knows is refused, whatever the server died of; the others go on."""

from __future__ import annotations

import json
import logging
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deniable.errors import EngineFailed, LedgerDamaged, UnreadableRecord
from deniable.ledger import State, verify_export
from deniable.ledger.stores.entry_rows import gone_back
from deniable.server.catalogue.catalogue import Person, ReleaseRecord
from deniable.server.curator import Curator
from deniable.server.datasets import ledger_witness
from deniable.server.migrations.v0004_guards import RELEASED
from deniable.server.operations.key_rotation import rotate
from deniable.server.problems import Problem
from deniable.server.request_bodies import BudgetBody
from deniable.server.roles import Role
from tests.postgres import postgres  # noqa: F401  # a fixture
from tests.server.restoring import put_back, taken
from tests.server.world import BUDGET, SCHEMA, World, made
from tests.wording import worded

OLGA = Person("olga", Role.OWNER)
NEVER = "SELECT COUNT(*) AS n FROM visits WHERE town = 'x{}'"


def crashed(there: World, moments: list[dict[Path, bytes]]) -> None:
    """Stop a server, and leave what a kill at the newest of these moments would have left."""
    there.curator.close()
    put_back(there.folder / "state", moments[-1])


def again(there: World) -> Curator:
    return Curator(there.curator.settings)


def older_ledger(there: World, moment: dict[Path, bytes]) -> None:
    """The ledgers of an earlier moment, beside everything else as it is."""
    ledgers = there.folder / "state" / "ledgers"
    put_back(ledgers, {path: said for path, said in moment.items() if path.is_relative_to(ledgers)})


def ask(there: World, *names: object) -> None:
    for name in names:
        there.curator.ask(OLGA, "visits", NEVER.format(name), {"epsilon": 0.1, "confidence": 0.95})


def test_an_older_ledger_after_a_crash_was_accepted(tmp_path: Path) -> None:
    there, state = made(tmp_path), tmp_path / "state"
    ask(there, 1)
    moments = [taken(state)]
    ask(there, 2)
    moments.append(taken(state))
    crashed(there, moments)
    older_ledger(there, moments[0])
    curator = again(there)
    with worded(LedgerDamaged, number=5) as found:
        curator.open(OLGA, "visits")
    assert "is missing" in found.value.fault
    curator.close()
    older_ledger(there, moments[1])  # the right one is back
    curator = again(there)
    spent = curator.open(OLGA, "visits").session.ledger
    assert spent.charged.units == 2 * spent.budget.cost(epsilon=0.1).units
    curator.close()


def test_every_single_answer_is_a_checkpoint(tmp_path: Path) -> None:
    there, state = made(tmp_path), tmp_path / "state"
    moments = []
    for number in range(4):
        moments.append(taken(state))
        ask(there, number)
    moments.append(taken(state))
    crashed(there, moments)
    for moment in moments[:-1]:
        older_ledger(there, moment)
        curator = again(there)
        with pytest.raises(LedgerDamaged):
            curator.open(OLGA, "visits")
        curator.close()


@pytest.mark.slow
def test_a_ledger_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    there = made(tmp_path)
    ask(there, 1)
    crashed(there, [taken(tmp_path / "state")])
    for path in (tmp_path / "state" / "ledgers").glob("*"):
        path.unlink()
    curator = again(there)
    with worded(LedgerDamaged, number=1):
        curator.open(OLGA, "visits")
    assert not list((tmp_path / "state" / "ledgers").glob("*.ledger"))
    curator.close()


def lower(there: World) -> None:
    there.curator.adjust(OLGA, "visits", BudgetBody(epsilon=50.0), "less")


def revoke(there: World) -> None:
    there.curator.revoke_grant(OLGA, "visits", "ana")


def fail(there: World) -> None:
    engine = there.curator.open(OLGA, "visits").session._engine

    def collect(question: Any) -> Any:
        raise EngineFailed("source")

    engine.collect = collect
    with there.client:
        assert there.ask(NEVER.format("failed"), epsilon=0.1).json()["code"] == "run_failed"


def link(there: World) -> None:
    schema = SCHEMA.replace("visits:", "again:")
    there.curator.register(OLGA, "again", {"again": "visits.csv"}, schema, None)


@pytest.mark.slow
@pytest.mark.parametrize("what", [lower, revoke, fail, link])
def test_what_is_no_answer_is_not_forgotten_either(what: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, state = made(tmp_path), tmp_path / "state"
    monkeypatch.setattr(
        "deniable.server.datasets.open_datasets.Datasets.checkpoint", lambda *_: None
    )  # as a kill would leave it
    before = taken(state)
    what(there)
    crashed(there, [taken(state)])
    older_ledger(there, before)
    curator = again(there)
    with pytest.raises(LedgerDamaged):
        curator.open(OLGA, "visits")
    curator.close()


def test_a_kill_between_the_ledger_and_the_catalogue_is_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, state = made(tmp_path), tmp_path / "state"
    ask(there, 1)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("deniable.server.catalogue.catalogue.Catalogue.add_releases", killed)
        with pytest.raises(KeyboardInterrupt):
            ask(there, 2)
    moment = taken(state)
    crashed(there, [moment])
    curator = again(there)
    told = curator.ask(OLGA, "visits", NEVER.format(2), {"epsilon": 0.1, "confidence": 0.95})
    assert told["provenance"]["replayed"]
    curator.close()


def test_an_answer_that_another_process_did_not_note_is_noted_when_it_is_given_again(tmp_path: Path) -> None:
    there, other = made(tmp_path), made_beside(tmp_path)
    other.open(OLGA, "visits")
    add = there.curator.catalogue.add_releases
    there.curator.catalogue.add_releases = lambda *_: None  # type: ignore[method-assign]  # it dies before
    ask(there, 1)
    [family] = {each.family for each in other.catalogue.datasets()}
    known = other.catalogue.guards.head(family)
    assert known.number < there.ledger.head.number
    told = other.ask(OLGA, "visits", NEVER.format(1), {"epsilon": 0.1, "confidence": 0.95})
    assert told["provenance"]["replayed"]
    assert other.catalogue.guards.head(family).number == there.ledger.head.number
    there.curator.catalogue.add_releases = add  # type: ignore[method-assign]
    other.close()
    there.curator.close()


def made_beside(folder: Path) -> Curator:
    from deniable.server.operations.settings import Settings

    return Curator(Settings(state=folder / "state", data=(folder,)))


def two_families(folder: Path) -> World:
    there = made(folder)
    lines = ["patient_id,ward,sex,age,stay,cost,town", *(f"x{i},A,f,{i % 90},1,{i}.5,T{i}" for i in range(200))]
    (folder / "other.csv").write_text("\n".join(lines))
    there.curator.register(OLGA, "other", {"visits": "other.csv"}, SCHEMA, BudgetBody(**BUDGET))
    return there


def test_the_other_families_go_on_and_whoever_runs_it_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    there, state = two_families(tmp_path), tmp_path / "state"
    ask(there, 1)
    moments = [taken(state)]
    ask(there, 2)
    family = there.curator.catalogue.dataset("visits").family
    moments.append(taken(state))
    crashed(there, moments)
    put_back(state / "ledgers", {path: said for path, said in moments[0].items() if family in path.name}, f"{family}*")
    curator = again(there)
    with caplog.at_level(logging.ERROR, logger="deniable.server"):
        curator.datasets.warm()
    assert caplog.text.count(f"the ledger of visits (family {family}) is refused") == 1
    cost = {"epsilon": 0.1, "confidence": 0.95}
    assert curator.ask(OLGA, "other", NEVER.format(1), cost)["rows"]
    with pytest.raises(LedgerDamaged):
        curator.ask(OLGA, "visits", NEVER.format(2), cost)
    curator.close()


# -- checkpoints that are signed ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_checkpoint_that_was_taken_away_is_missed(tmp_path: Path) -> None:
    there = two_families(tmp_path)
    ask(there, 1)
    there.curator.close()
    family = there.curator.catalogue.dataset("visits").family
    place = tmp_path / "state" / "checkpoints" / f"{family}.json"
    kept = place.read_bytes()
    place.unlink()
    curator = again(there)
    with pytest.raises(Problem) as found:
        curator.open(OLGA, "visits")
    assert (found.value.code, "deniable rotate" in found.value.detail) == ("ledger_damaged", True)
    assert "or its checkpoint" in json.loads(found.value.body())["title"], "the history was not changed"
    with pytest.raises(Problem) as found:
        curator.open(Person("ada", Role.AUDITOR), "visits")
    assert "tell the owner" in found.value.detail
    assert not {"rotate", family} & set(re.findall("[a-z0-9]+", found.value.detail))
    assert curator.open(OLGA, "other")
    curator.close()
    place.write_bytes(kept)
    curator = again(there)
    assert curator.open(OLGA, "visits")
    curator.close()
    place.unlink()
    rotate(there.curator.settings, by="root", reason="the checkpoints are lost")
    curator = again(there)
    ledger = curator.open(OLGA, "visits").session.ledger
    assert "the checkpoints are lost" in [each.description for each in ledger.entries()]
    curator.close()


@pytest.mark.slow
def test_a_rotation_signs_for_no_older_ledger(tmp_path: Path) -> None:
    there, state = made(tmp_path), tmp_path / "state"
    ask(there, 1)
    moments = [taken(state)]
    ask(there, 2)
    moments.append(taken(state))
    crashed(there, moments)
    older_ledger(there, moments[0])
    with pytest.raises(LedgerDamaged):
        rotate(there.curator.settings, by="root", reason="new")


@pytest.mark.parametrize(("releases", "seconds"), [(3, 1e6), (10**6, 0.05)])
def test_checkpoints_are_signed_after_so_many_answers_or_seconds(
    releases: int, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catalogue and ledger are put back together: then the signed checkpoint, which is kept elsewhere, knows better."""
    monkeypatch.setattr(ledger_witness, "RELEASES", releases)
    monkeypatch.setattr(ledger_witness, "SECONDS", seconds)
    (tmp_path / "w").mkdir()
    there = made(tmp_path / "w", checkpoints=tmp_path / "elsewhere")
    before = taken(tmp_path / "w" / "state")
    ask(there, *range(4))
    sealed = there.ledger.head.number
    [place] = (tmp_path / "elsewhere").glob("*.json")
    deadline = time.monotonic() + 60
    while json.loads(place.read_text())["number"] < sealed - 2:
        assert time.monotonic() < deadline, "no checkpoint was signed"
        time.sleep(0.01)
    kept = taken(tmp_path / "elsewhere")
    entries = list(there.ledger.entries())
    there.curator.close()
    put_back(tmp_path / "w" / "state", before)
    put_back(tmp_path / "elsewhere", kept)
    curator = again(there)
    with pytest.raises(LedgerDamaged):
        curator.open(OLGA, "visits")
    curator.close()
    assert not any(each.checkpoint for each in entries), "notes that are taken often are no entries"


def test_a_checkpoint_is_signed_at_the_start(tmp_path: Path) -> None:
    there, state = made(tmp_path), tmp_path / "state"
    ask(there, 1)
    crashed(there, [taken(state)])
    [place] = (state / "checkpoints").glob("*.json")
    before = json.loads(place.read_text())["number"]
    curator = again(there)
    ledger = curator.open(OLGA, "visits").session.ledger
    assert before < json.loads(place.read_text())["number"] == ledger.head.number
    curator.export(OLGA, "visits")
    (tmp_path / "ledger.jsonl").write_bytes(curator.export(OLGA, "visits"))
    assert verify_export(tmp_path / "ledger.jsonl", key=curator.key.public, against=place).unsigned == 0
    curator.close()


# -- catalogues and ledgers of other ages ------------------------------------------------------------------------------


def test_releases_from_before_heads_were_kept_are_known(tmp_path: Path) -> None:
    """Eight releases in the catalogue, five entries in the ledger: the step to this version looks at that."""
    there, state = made(tmp_path), tmp_path / "state"
    moments = [taken(state)]
    ask(there, 1, 2)
    moments.append(taken(state))
    paid = {each.charge: each.number for each in there.ledger.entries() if each.state is State.RESERVED}
    crashed(there, moments)
    with closing(sqlite3.connect(state / "catalogue.sqlite")) as database, database:
        for charge, number in sorted(paid.items(), reverse=True):  # releases had the numbers of entries then
            database.execute("UPDATE curator_releases SET entry = ? WHERE entry = ?", (number, charge))
        database.execute("DELETE FROM curator_heads")
        database.execute(RELEASED)
    (state / "checkpoints").rename(tmp_path / "away")
    older_ledger(there, moments[0])
    curator = again(there)
    with pytest.raises(LedgerDamaged):
        curator.open(OLGA, "visits")
    curator.close()
    older_ledger(there, moments[1])
    curator = again(there)
    assert curator.open(OLGA, "visits").session.ledger.charged.units
    curator.close()


def test_an_older_catalogue_beside_a_newer_ledger_goes_on_by_the_ledger(tmp_path: Path) -> None:
    there, state = made(tmp_path), tmp_path / "state"
    ask(there, 1)
    before = {path: said for path, said in taken(state).items() if "catalogue" in path.name}
    ask(there, 2)
    crashed(there, [taken(state)])
    put_back(state, before, "catalogue*")
    curator = again(there)
    ledger = curator.open(OLGA, "visits").session.ledger
    assert ledger.charged.units == 2 * ledger.budget.cost(epsilon=0.1).units
    told = curator.ask(OLGA, "visits", NEVER.format(2), {"epsilon": 0.1, "confidence": 0.95})
    assert told["provenance"]["replayed"]
    curator.close()


def set_back(postgres: Any, url: str, number: int, link: str) -> None:  # noqa: F811
    """The ledger of a database as it was."""
    for (name,) in postgres.sql(
        "SELECT tgname FROM pg_trigger WHERE tgrelid = 'deniable_entries'::regclass AND NOT tgisinternal", url
    ):
        postgres.sql(f"DROP TRIGGER {name} ON deniable_entries", url)
    postgres.sql(f"DELETE FROM deniable_entries WHERE number > {number}", url)
    postgres.sql(f"UPDATE deniable_ledgers SET number = {number}, hash = '{link}'", url)


@pytest.mark.postgres
def test_older_entries_in_a_database_are_refused(tmp_path: Path, postgres: Any) -> None:  # noqa: F811
    url = postgres.database()
    there = made(tmp_path, database=url)
    ask(there, 1)
    [(number, link)] = postgres.sql("SELECT number, hash FROM deniable_ledgers", url)
    ask(there, 2)
    there.curator.datasets.witness.close()
    set_back(postgres, url, number, link)
    curator = again(there)
    with pytest.raises(LedgerDamaged, match="newest copy"):
        curator.open(OLGA, "visits")
    curator.close()
    there.curator.close()


@pytest.mark.postgres
def test_a_database_that_is_restored_below_a_running_server_is_noticed(tmp_path: Path, postgres: Any) -> None:  # noqa: F811
    """Catalogue and ledger go back together, and the server connects again: it alone remembers."""
    url = postgres.database()
    there = made(tmp_path, database=url)
    ask(there, 1)
    [(number, link)] = postgres.sql("SELECT number, hash FROM deniable_ledgers", url)
    ask(there, 2, 3, 4)
    set_back(postgres, url, number, link)
    postgres.sql(f"UPDATE curator_heads SET number = {number}, hash = '{link}'", url)
    with there.client:
        for _ in range(3):  # the last ones are sealed in the ledger by now, and numbered as those from before
            told = there.ask(NEVER.format(2), who="olga", epsilon=0.1)
            assert (told.status_code, told.json()["code"]) == (503, "ledger_damaged")


def back_to(there: World, number: int, link: str, postgres: Any = None) -> None:  # noqa: F811
    """Ledger and head of the catalogue as they were, below a running server."""
    head = f"UPDATE curator_heads SET number = {number}, hash = '{link}'"
    if postgres is not None:
        set_back(postgres, there.curator.settings.database, number, link)
        postgres.sql(head, there.curator.settings.database)
        return
    [place] = (there.folder / "state" / "ledgers").glob("*.ledger")
    with closing(sqlite3.connect(place)) as database, database:
        database.execute("DROP TRIGGER IF EXISTS never_delete")
        database.execute(f"DELETE FROM entries WHERE number > {number}")
        database.execute(f"UPDATE head SET number = {number}, hash = '{link}'")
    with closing(sqlite3.connect(there.folder / "state" / "catalogue.sqlite")) as database, database:
        database.execute(head)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def below(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[World, Any]:
    """A server, and what its database is restored by."""
    if request.param == "sqlite":
        return made(tmp_path), None
    running = request.getfixturevalue("postgres")
    return made(tmp_path, database=running.database()), running


QUESTIONS = [NEVER.format(each) for each in "abc"]
COST = {"epsilon": 0.8, "confidence": 0.95}


@pytest.mark.parametrize("first", [["a", "b", "c"], ["a"]])
def test_as_many_entries_as_were_lost_below_a_running_server_are_another_history(
    first: list[str], below: tuple[World, Any]
) -> None:
    """The same questions got fresh noise for a budget that was spent: numbers alone were compared."""
    there, postgres = below  # noqa: F811
    ask(there, 1)
    head = there.ledger.head
    questions = [NEVER.format(each) for each in first]
    there.curator.batch(OLGA, "visits", questions, COST)
    family = there.curator.catalogue.dataset("visits").family
    there.curator.datasets.witness.sign(family, there.ledger)
    place = there.curator.datasets.witness.place(family)
    kept = place.read_bytes()
    back_to(there, head.number, head.hash, postgres)
    for _ in range(2):
        with worded(LedgerDamaged):
            there.curator.batch(OLGA, "visits", questions, COST)
    assert there.ledger.head == head, "nothing is charged in a history that this process does not know"
    with pytest.raises(LedgerDamaged):
        there.curator.datasets.witness.sign(family, there.ledger)
    there.curator.close()
    assert place.read_bytes() == kept, "the checkpoint knows better"
    curator = again(there)
    with pytest.raises(LedgerDamaged):
        curator.open(OLGA, "visits")
    curator.close()


@pytest.mark.slow
def test_another_name_of_the_family_does_not_go_on_in_a_restored_ledger_either(below: tuple[World, Any]) -> None:
    """Its handle has seen nothing of what was lost; the server has."""
    there, postgres = below  # noqa: F811
    link(there)
    cost, mine = {"epsilon": 0.1, "confidence": 0.95}, "SELECT COUNT(*) AS n FROM again WHERE town = 'x{}'"
    there.curator.ask(OLGA, "again", mine.format(1), cost)
    head = there.ledger.head
    ask(there, 2)
    back_to(there, head.number, head.hash, postgres)
    for number in (3, 4, 5):  # as many entries as were lost, and more
        with worded(LedgerDamaged, number=7):
            there.curator.ask(OLGA, "again", mine.format(number), cost)
    there.curator.close()


@pytest.mark.slow
def test_two_names_of_a_family_take_turns(tmp_path: Path) -> None:
    """What one of them wrote is newer than what the other remembers, and no contradiction."""
    there = made(tmp_path)
    link(there)
    for number in range(3):
        ask(there, number)
        other = f"SELECT COUNT(*) AS n FROM again WHERE town = 'y{number}'"
        there.curator.ask(OLGA, "again", other, {"epsilon": 0.1, "confidence": 0.95})
    family = there.curator.catalogue.dataset("visits").family
    late = there.ledger.reached
    assert late.number < there.curator.catalogue.guards.head(family).number
    unknown = ReleaseRecord("visits", 10**6, "olga", "SELECT 1", 0.95, 0.0)
    there.curator.datasets.witness.released(family, there.ledger, [], [unknown])
    assert there.curator.catalogue.release("visits", 10**6) is None
    there.curator.close()


def test_a_checkpoint_is_not_replaced_by_an_older_one(tmp_path: Path) -> None:
    there = made(tmp_path)
    ask(there, 1)
    family = there.curator.catalogue.dataset("visits").family
    seen, place = there.curator.datasets.witness, there.curator.datasets.witness.place(family)
    seen.checkpoint(family, there.ledger)
    seen.sign(family, there.ledger)
    newest = json.loads(place.read_text())["number"]
    seen.checkpoint(family, there.ledger)  # nothing has happened since: it is of the entry before
    assert json.loads(place.read_text())["number"] == newest == there.ledger.head.number
    place.write_text("{}")
    with pytest.raises(UnreadableRecord):
        seen.sign(family, there.ledger)
    assert place.read_text() == "{}"
    there.curator.close()


def test_an_owner_is_told_that_a_file_is_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that was changed was explained; one that is gone was not, and no line was written."""
    there = made(tmp_path)
    there.curator.close()
    (tmp_path / "visits.csv").unlink()
    curator = again(there)
    with caplog.at_level(logging.ERROR, logger="deniable.server"), pytest.raises(Problem) as found:
        curator.open(OLGA, "visits")
    curator.close()
    assert (found.value.code, "restore it at the path" in found.value.detail) == ("dataset_unavailable", True)
    assert "a file of dataset visits is missing" in caplog.text


def test_a_replay_of_what_was_noted_is_refused_once_the_ledger_is_not_believed(tmp_path: Path) -> None:
    """Replays of what this process has noted are told without a look at the ledger: not where one has failed."""
    there = made(tmp_path)
    ask(there, 1)
    record = there.curator.catalogue.dataset("visits")
    assert record is not None
    watching, ledger = there.curator.datasets.witness, there.ledger
    entries = there.curator.catalogue.releases("visits")
    assert len(entries) == 1
    watching.released(record.family, ledger, [], entries)
    watching.released(record.family, ledger, [], entries)  # and again: it is noted
    watching._broken[record.family] = gone_back(3)
    with pytest.raises(LedgerDamaged, match="restore"):
        watching.released(record.family, ledger, [], entries)
    there.curator.close()
