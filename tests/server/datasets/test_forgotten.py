"""A catalogue that has forgotten something, and registrations that were broken off: neither gives a second budget, and
neither stops others for longer than it must.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deniable.errors import InvalidParameter
from deniable.server.catalogue.catalogue import Catalogue
from deniable.server.curator import Curator
from deniable.server.datasets.open_datasets import Datasets
from deniable.server.operations.settings import Settings
from deniable.server.problems import Problem
from deniable.server.request_bodies import BudgetBody
from tests.postgres import postgres  # noqa: F401  # a fixture
from tests.server.catalogue.test_state import HERS, LATER, OLGA, dumped, opened, spent
from tests.server.catalogue.test_state import _restored as restored
from tests.server.datasets.test_open_datasets import others
from tests.server.restoring import put_back, taken
from tests.server.world import BUDGET

COUNT = "SELECT COUNT(*) AS n FROM later"


def files(folder: Path) -> None:
    for number in (1, 2, 3):
        others(number).to_csv(folder / f"others{number}.csv", index=False)


def forgetful(folder: Path) -> Path:
    """A server whose catalogue was put back: it does not know that others1.csv is asked about as "later"."""
    spent(folder)
    files(folder)
    place = folder / "state" / "catalogue.sqlite"
    kept = dumped(place)
    with opened(folder, "state") as curator:
        assert curator.register(OLGA, "later", {"later": "others1.csv"}, LATER, None, family="visits")["linked"]
        curator.open(OLGA, "later").session.ask(COUNT, epsilon=1.0, payer="olga")
    restored(place, kept)
    return next((folder / "state" / "ledgers").glob("*.ledger"))


def fresh(curator: Curator) -> Any:
    """The data that was forgotten, under a new name and with a new budget."""
    return curator.register(OLGA, "later2", {"later": "others1.csv"}, LATER, BudgetBody(**BUDGET), **HERS)


# -- a catalogue that is older than its ledgers ------------------------------------------------------------------------


@pytest.mark.slow
def test_other_data_under_a_forgotten_name_does_not_clear_the_alarm(tmp_path: Path) -> None:
    """The name was compared, and not what it is the name of."""
    forgetful(tmp_path)
    with opened(tmp_path, "state") as curator:
        with pytest.raises(Problem, match="ledger_mismatch"):
            curator.register(OLGA, "later", {"later": "others2.csv"}, LATER, None, family="visits")
        with pytest.raises(Problem, match="ledger_mismatch") as told:
            fresh(curator)
        assert "registers the same files again, under the name" in str(told.value.detail)  # as below
        assert "with `family`" in str(told.value.detail)
        with pytest.raises(Problem, match="ledger_mismatch"):  # without it
            curator.register(OLGA, "later", {"later": "others1.csv"}, LATER, BudgetBody(**BUDGET), **HERS)
        # The same file read in another way has other people, or none: it does not come back to where it was.
        narrow = LATER.replace("      town: {kind: text}\n", "")
        with pytest.raises(Problem, match="ledger_mismatch"):
            curator.register(OLGA, "later", {"later": "others1.csv"}, narrow, None, family="visits")
        assert curator.register(OLGA, "later", {"later": "others1.csv"}, LATER, None, family="visits")["linked"]
        again = LATER.replace("later:", "again:")
        assert curator.register(OLGA, "again", {"again": "others1.csv"}, again, None)["linked"]
        told = curator.register(OLGA, "new", {"later": "others3.csv"}, LATER, BudgetBody(**BUDGET), **HERS)
        assert not told["linked"]


@pytest.mark.slow
def test_a_name_from_before_contents_were_noted_is_cleared_by_the_newest_catalogue_alone(tmp_path: Path) -> None:
    """Nobody can say what it was the name of."""
    spent(tmp_path)
    files(tmp_path)
    place = tmp_path / "state" / "catalogue.sqlite"
    kept = dumped(place)
    with opened(tmp_path, "state") as curator, pytest.MonkeyPatch.context() as patch:
        name = Datasets.name
        patch.setattr(Datasets, "name", lambda datasets, record, version: name(datasets, record, None))
        curator.register(OLGA, "later", {"later": "others1.csv"}, LATER, None, family="visits")
        curator.open(OLGA, "later").session.ask(COUNT, epsilon=1.0, payer="olga")
    newest = dumped(place)
    restored(place, kept)
    with opened(tmp_path, "state") as curator, pytest.raises(Problem, match="ledger_mismatch"):
        curator.register(OLGA, "later", {"later": "others1.csv"}, LATER, None, family="visits")
    restored(place, newest)
    with opened(tmp_path, "state") as curator:
        assert curator.register(OLGA, "again", {"again": "others1.csv"}, LATER.replace("later:", "again:"), None)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["moved away", "first bytes zeroed", "an older copy", "its checkpoint taken away"])
def test_nothing_is_registered_while_a_known_ledger_cannot_be_read(how: str, tmp_path: Path) -> None:
    """What the catalogue has forgotten stands in it: without it the alarm was silent."""
    place = forgetful(tmp_path)
    state = tmp_path / "state"
    family, kept = place.stem, taken(state / "ledgers")
    if how == "moved away":
        place.rename(tmp_path / "away")
    elif how == "first bytes zeroed":
        place.write_bytes(bytes(16) + place.read_bytes()[16:])
    elif how == "an older copy":
        with closing(sqlite3.connect(place)) as database, database:
            database.execute("DROP TRIGGER never_delete")
            [[number, link]] = database.execute("SELECT number, hash FROM entries WHERE number = 2").fetchall()
            database.execute("DELETE FROM entries WHERE number > 2")
            database.execute("UPDATE head SET number = ?, hash = ?", (number, link))
    else:
        (state / "checkpoints" / f"{family}.json").rename(tmp_path / "away")
    with opened(tmp_path, "state") as curator:
        for _ in range(2):
            with pytest.raises(Problem, match="ledger_damaged") as found:
                fresh(curator)
            assert family in found.value.detail
            assert "before anything is registered" in found.value.detail
    if how == "its checkpoint taken away":
        shutil.move(tmp_path / "away", state / "checkpoints" / f"{family}.json")
    elif how == "moved away":
        shutil.move(tmp_path / "away", place)
    else:
        put_back(state / "ledgers", kept)
    with opened(tmp_path, "state") as curator:
        with pytest.raises(Problem, match="ledger_mismatch") as found:
            fresh(curator)
        assert "older than its ledgers" in found.value.detail


# -- registrations that were broken off --------------------------------------------------------------------------------


def _killed(folder: str, before: str, url: str | None) -> None:
    """Register kin, and be killed at this step."""

    def stop(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    curator = Curator(Settings(state=Path(folder) / "state", data=(Path(folder),), database=url))
    setattr(Datasets if before == "name" else Catalogue, before, stop)
    curator.register(OLGA, "later", {"later": "others1.csv"}, LATER, None, family="visits")


@pytest.mark.slow
@pytest.mark.parametrize("before", ["name", "add_dataset"])
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_a_kill_while_kin_is_registered_stops_nobody(
    store: str, before: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The ledger had the name and the catalogue did not: nobody could register anything any more."""
    url = None if store == "sqlite" else request.getfixturevalue("postgres").database()
    spent(tmp_path, database=url)
    files(tmp_path)
    victim = multiprocessing.get_context("spawn").Process(target=_killed, args=(str(tmp_path), before, url))
    victim.start()
    victim.join(120)
    assert victim.exitcode == -signal.SIGKILL
    with opened(tmp_path, "state", database=url) as curator:
        finished = curator.catalogue.dataset("later")
        assert (finished is not None) == (before == "add_dataset"), "it is withdrawn, or finished"
        curator.open(OLGA, "visits").session.ask("SELECT COUNT(*) AS n FROM visits", epsilon=1.0, payer="olga")
        if before == "name":  # nothing was written, so it may be tried again
            assert curator.register(OLGA, "later", {"later": "others1.csv"}, LATER, None, family="visits")["linked"]
        else:
            assert "later" in curator.open(OLGA, "later").session.ledger.names
        told = curator.register(OLGA, "other", {"later": "others2.csv"}, LATER, BudgetBody(**BUDGET), **HERS)
        assert not told["linked"]
        again = LATER.replace("later:", "again:")
        assert curator.register(OLGA, "again", {"again": "others1.csv"}, again, None)["linked"], "its marks are known"


@pytest.mark.postgres
def test_a_registration_that_failed_took_its_name_for_good(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """In a database: a ledger was made before the file was read, and a ledger's name is given once."""
    url = request.getfixturevalue("postgres").database()
    spent(tmp_path, database=url)
    files(tmp_path)
    (tmp_path / "wrong.csv").write_text("patient_id,x\n" + "".join(f"w{i},{i}\n" for i in range(9)))
    budget = BudgetBody(**BUDGET)
    with opened(tmp_path, "state", database=url) as curator:
        for name in ("later", "other"):
            with pytest.raises(InvalidParameter):
                curator.register(OLGA, name, {"later": "wrong.csv"}, LATER, budget)
        assert not curator.register(OLGA, "later", {"later": "others1.csv"}, LATER, budget, **HERS)["linked"]
        curator.open(OLGA, "later").session.ask("SELECT COUNT(*) AS n FROM later", epsilon=1.0, payer="olga")
        for number in (2**31, 10**17):  # more than a column of the database holds
            with pytest.raises(Problem, match="not_found"):
                curator.label(OLGA, f"later:{number}")
        with pytest.raises(Problem, match="exists") as found:
            curator.register(
                OLGA, "other", {"later": "others2.csv"}, LATER, BudgetBody(epsilon=3.0, delta=1e-6), **HERS
            )
        assert "another name" in found.value.detail
    with opened(tmp_path, "state", database=url) as curator:
        ledger = curator.open(OLGA, "later").session.ledger
        assert ledger.charged.units
        assert curator.register(OLGA, "again", {"again": "others1.csv"}, LATER.replace("later:", "again:"), None)[
            "linked"
        ]


@pytest.mark.slow
def test_an_error_while_kin_is_registered_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spent(tmp_path)
    files(tmp_path)

    def away(*_: object) -> None:
        raise Problem("ledger_unavailable")

    with opened(tmp_path, "state") as curator:
        with monkeypatch.context() as patch:
            patch.setattr(Catalogue, "add_dataset", away)
            with pytest.raises(Problem, match="ledger_unavailable"):
                curator.register(OLGA, "later", {"later": "others1.csv"}, LATER, None, family="visits")
        curator.open(OLGA, "visits").session.ask("SELECT COUNT(*) AS n FROM visits", epsilon=1.0, payer="olga")
        told = curator.register(OLGA, "other", {"later": "others2.csv"}, LATER, BudgetBody(**BUDGET), **HERS)
        assert not told["linked"]
        assert curator.open(OLGA, "later").session.ledger.charged.units, "the next one finished it"


@pytest.mark.slow
def test_a_name_of_a_ledger_is_not_given_to_other_data(tmp_path: Path) -> None:
    """Nothing was spent since the ledger got it, so it was free for whatever came: also for what is then forgotten."""
    spent(tmp_path)
    files(tmp_path)
    place = tmp_path / "state" / "catalogue.sqlite"
    kept = dumped(place)
    with opened(tmp_path, "state") as curator:
        curator.register(OLGA, "later", {"later": "others1.csv"}, LATER, None, family="visits")
    restored(place, kept)
    with opened(tmp_path, "state") as curator:
        with pytest.raises(Problem, match="ledger_mismatch") as found:
            curator.register(OLGA, "later", {"later": "others2.csv"}, LATER, None, family="visits")
        assert "another name" in found.value.detail
        assert curator.register(OLGA, "later", {"later": "others1.csv"}, LATER, None, family="visits")["linked"]
