"""The catalogue's tables: made by steps, and brought up to date from every state that was ever kept."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from deniable.errors import LedgerUnavailable, UnreadableRecord
from deniable.server.catalogue import catalogue
from deniable.server.catalogue.catalogue import Catalogue, DatasetRecord, Person
from deniable.server.problems import Problem
from deniable.server.roles import Role
from tests.postgres import postgres  # noqa: F401  # a fixture
from tests.server.world import PEOPLE, made
from tests.wording import worded

OLDEST = """
CREATE TABLE curator_people (name VARCHAR(200) NOT NULL, role VARCHAR(20) NOT NULL, active BOOLEAN NOT NULL,
  made FLOAT NOT NULL, PRIMARY KEY (name));
CREATE TABLE curator_tokens (id VARCHAR(40) NOT NULL, person VARCHAR(200) NOT NULL, hash VARCHAR(300) NOT NULL,
  expires FLOAT NOT NULL, revoked BOOLEAN NOT NULL, made FLOAT NOT NULL, PRIMARY KEY (id));
CREATE INDEX ix_curator_tokens_person ON curator_tokens (person);
CREATE TABLE curator_datasets (name VARCHAR(200) NOT NULL, owner VARCHAR(200) NOT NULL, sources TEXT NOT NULL,
  schema TEXT NOT NULL, budget TEXT NOT NULL, family VARCHAR(200) NOT NULL, made FLOAT NOT NULL, PRIMARY KEY (name));
CREATE INDEX ix_curator_datasets_family ON curator_datasets (family);
CREATE TABLE curator_marks (family VARCHAR(200) NOT NULL, mark VARCHAR(64) NOT NULL, PRIMARY KEY (family, mark));
CREATE INDEX ix_curator_marks_mark ON curator_marks (mark);
CREATE TABLE curator_grants (person VARCHAR(200) NOT NULL, dataset VARCHAR(200) NOT NULL, active BOOLEAN NOT NULL,
  terms TEXT NOT NULL, made FLOAT NOT NULL, PRIMARY KEY (person, dataset));
CREATE TABLE curator_requests (person VARCHAR(200) NOT NULL, key VARCHAR(200) NOT NULL, body VARCHAR(64) NOT NULL,
  status INTEGER, response BLOB, made FLOAT NOT NULL, PRIMARY KEY (person, key));
CREATE TABLE curator_releases (dataset VARCHAR(200) NOT NULL, entry INTEGER NOT NULL, person VARCHAR(200) NOT NULL,
  question TEXT NOT NULL, confidence FLOAT NOT NULL, made FLOAT NOT NULL, PRIMARY KEY (dataset, entry));
INSERT INTO curator_people VALUES ('olga', 'owner', 1, 1.0);
INSERT INTO curator_datasets VALUES ('old', 'olga', '{"old": "old.csv"}', '{}', '{}', 'f', 1.0);
"""
"""The first catalogue there was, as SQLite wrote its tables down, with an owner and a dataset."""


def _kept(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(script)


def _described(engine: sa.Engine) -> dict[str, Any]:
    """Every table: its columns and what they may be, its key, its indexes."""
    found = sa.inspect(engine)
    return {
        table: (
            {each["name"]: (str(each["type"]), each["nullable"]) for each in found.get_columns(table)},
            found.get_pk_constraint(table)["constrained_columns"],
            {(each["name"], tuple(each["column_names"])) for each in found.get_indexes(table)},
        )
        for table in sorted(found.get_table_names())
        if table.startswith("curator_") and table != "curator_version"
    }


@pytest.mark.parametrize("before", ["", OLDEST, OLDEST + "ALTER TABLE curator_datasets ADD COLUMN contents TEXT NOT NULL DEFAULT '{}';"],
                         ids=["new", "oldest", "without steps"])  # fmt: skip
def test_every_way_leads_to_the_same_tables(tmp_path: Path, before: str) -> None:
    """The steps, from wherever, end at what the code asks for: told apart by SQLAlchemy's own creation of it."""
    _kept(tmp_path / "catalogue.sqlite", before)
    kept = Catalogue(tmp_path / "catalogue.sqlite")
    wanted = sa.create_engine("sqlite://")
    catalogue._METADATA.create_all(wanted)
    assert _described(kept._engine) == _described(wanted)
    assert kept.person("olga") == (Person("olga", Role.OWNER) if before else None)
    kept.close()
    wanted.dispose()


def test_what_the_oldest_catalogue_knew_is_still_there(tmp_path: Path) -> None:
    _kept(tmp_path / "catalogue.sqlite", OLDEST)
    for _ in range(2):  # opened again, there is nothing left to do
        kept = Catalogue(tmp_path / "catalogue.sqlite")
        [old] = kept.datasets()
        assert (old.name, old.contents, kept.earlier("old")) == ("old", {}, [])
        kept.close()


def test_what_fails_leaves_nothing_half_written_and_nobody_in_the_way(tmp_path: Path) -> None:
    """The connection that is kept for the quick statements is given up with whatever it was in the middle of."""
    kept = Catalogue(tmp_path / "catalogue.sqlite")
    quick = kept.requests._quick
    kept.requests.keep("ana", "one", "body", None, b"", whole=True)
    first = quick._kept
    kept.requests.keep("ana", "two", "body", None, b"", whole=True)
    assert quick._kept is first is not None, "it is kept"

    def broken(then: str | Exception) -> None:
        with quick.cursor() as run:
            run("DELETE FROM curator_requests", {})
            if isinstance(then, Exception):
                raise then
            run(then, {})

    for then in (Problem("not_found"), ValueError("a bug"), "SELECT nothing FROM nowhere"):
        with pytest.raises(ValueError if isinstance(then, ValueError) else Problem):
            broken(then)
    with closing(sqlite3.connect(tmp_path / "catalogue.sqlite", timeout=1)) as other, other:
        [[rows]] = other.execute("SELECT count(*) FROM curator_requests")
        other.execute("DELETE FROM curator_requests WHERE key = 'two'")  # nobody holds a lock
    assert rows == 2
    assert kept.requests.keep("ana", "two", "another body", None, b"", whole=True) is None
    kept.close()
    assert quick._kept is None


def test_a_dataset_whose_contents_nobody_noted_is_not_asked(tmp_path: Path) -> None:
    """Its answers could be of other rows than those that are in the file now."""
    world = made(tmp_path)
    with closing(sqlite3.connect(tmp_path / "state" / "catalogue.sqlite")) as database, database:
        database.execute("UPDATE curator_datasets SET contents = '{}'")
    world.curator.datasets.forget("visits")
    world.curator._seen.clear()
    with pytest.raises(Problem) as found:
        world.curator.open(Person(PEOPLE[Role.OWNER], Role.OWNER), "visits")
    assert found.value.code == "dataset_unavailable"
    world.curator.close()


def test_a_newer_catalogue_is_left_alone(tmp_path: Path) -> None:
    Catalogue(tmp_path / "catalogue.sqlite").close()
    _kept(tmp_path / "catalogue.sqlite", "UPDATE curator_version SET version_num = '9999'")
    with worded(UnreadableRecord) as refused:
        Catalogue(tmp_path / "catalogue.sqlite")
    assert f" {catalogue._REVISION};" in str(refused.value)


def test_the_newest_step_is_the_one_that_is_looked_for(tmp_path: Path) -> None:
    kept = Catalogue(tmp_path / "catalogue.sqlite")
    kept.close()
    with closing(sqlite3.connect(tmp_path / "catalogue.sqlite")) as database:
        assert database.execute("SELECT version_num FROM curator_version").fetchall() == [(catalogue._REVISION,)]


def test_a_step_that_fails_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """A table in the way of the last step: the column of the second one must not stay behind either."""
    _kept(tmp_path / "catalogue.sqlite", OLDEST + "CREATE TABLE curator_schemas (other TEXT);")
    with pytest.raises(LedgerUnavailable):
        Catalogue(tmp_path / "catalogue.sqlite")
    with closing(sqlite3.connect(tmp_path / "catalogue.sqlite")) as database:
        assert "contents" not in [row[1] for row in database.execute("PRAGMA table_info(curator_datasets)")]
    _kept(tmp_path / "catalogue.sqlite", "DROP TABLE curator_schemas")
    Catalogue(tmp_path / "catalogue.sqlite").close()


@pytest.mark.slow
def test_several_processes_start_at_once(tmp_path: Path) -> None:
    _kept(tmp_path / "catalogue.sqlite", OLDEST)
    code = f"from pathlib import Path; from deniable.server.catalogue.catalogue import Catalogue; Catalogue(Path({str(tmp_path / 'catalogue.sqlite')!r})).close()"
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
    assert [each.wait(120) for each in running] == [0, 0, 0, 0]


@pytest.mark.postgres
def test_the_same_on_postgres(postgres: Any) -> None:  # noqa: F811
    url = postgres.database()
    script = OLDEST.replace("BLOB", "BYTEA").replace(", 1, 1.0)", ", true, 1.0)")
    for each in script.split(";\n"):
        if each.strip():
            postgres.sql(each, url)
    kept = Catalogue(url)
    [old] = kept.datasets()
    assert (old.name, old.contents, kept.person("olga")) == ("old", {}, Person("olga", Role.OWNER))
    kept.close()
    Catalogue(postgres.database()).close()


# -- what was public before --------------------------------------------------------------------------------------------


def test_a_schema_is_replaced_once_and_kept(tmp_path: Path) -> None:
    kept = Catalogue(tmp_path / "catalogue.sqlite")
    kept.add_dataset(DatasetRecord("d", "olga", {}, {}, "one", {}, "f", 1.0), set())
    assert kept.redeclare("d", "two", instead_of="one")
    assert not kept.redeclare("d", "three", instead_of="one")  # somebody else was faster
    assert kept.redeclare("d", "three", instead_of="two")
    assert kept.earlier("d") == ["two", "one"]
    assert kept.dataset("d").schema == "three"
    kept.close()
