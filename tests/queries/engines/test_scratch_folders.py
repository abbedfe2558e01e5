"""What an engine keeps on disk: nobody can read it, and the next process removes what a killed one left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deniable.queries.engines.scratch_folders import Folder, sweep
from deniable.queries.relations.exact_statistics import Collect, Count, CountPersons
from deniable.queries.relations.relation_nodes import Source
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table
from deniable.units import Unit
from tests.queries.engines.kitchen import SECRET

duckdb = pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow")

from deniable.queries.engines.duckdb import DuckDBEngine  # noqa: E402

PEOPLE = Table.of("t", Unit.person("who", rows=2), town=Domain.text())
MARK = b"Weatherstonehaugh"
"""In every name and every town, so that whoever can read anything can read this."""

LIVING = """
import time
from deniable.queries.engines.{module} import {name}
engine = {made}
print({told}, flush=True)
time.sleep(600)
"""


def bytes_below(folder: str) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(Path(folder).rglob("*")) if each.is_file())


def started(code: str, folder: Path) -> subprocess.Popen[str]:
    env = {**os.environ, "TMPDIR": str(folder)}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env)
    return process


def test_a_table_in_a_file_cannot_be_read_by_who_finds_the_file() -> None:
    rows, mark = 100_000, MARK.decode()
    source = pa.table(
        {
            "who": pa.array([f"{mark} {n % 5000}" for n in range(rows)]),
            "town": pa.array([f"{mark} {n * 7919 % 997}" for n in range(rows)]),
        }
    )
    with DuckDBEngine(memory="60MB", threads=1) as engine:
        table = engine.register("t", source.to_reader(max_chunksize=10_000), PEOPLE, SECRET)
        kept = bytes_below(engine._folder.path)
        assert len(kept) > 200_000
        assert MARK not in kept
        assert engine.collect(Collect(Source(table), (), None, (Count(), CountPersons()))) == {(): (10_000, 5_000)}


@pytest.mark.slow
def test_what_memory_has_no_room_for_cannot_be_read_by_who_finds_it() -> None:
    with DuckDBEngine(memory="40MB", threads=1) as engine:
        made = f"SELECT '{MARK.decode()} ' || hash(range) || hash(range + 1) AS who FROM range(1000000)"
        engine._run(f"CREATE TABLE spilled AS {made}")
        spilled = bytes_below(os.path.join(engine._folder.path, "spill"))
        assert len(spilled) > 5_000_000
        assert MARK not in spilled


def test_the_folder_of_a_killed_process_is_removed_by_the_next_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    code = LIVING.format(module="duckdb", name="DuckDBEngine", made="DuckDBEngine()", told="engine._folder.path")
    with started(code, tmp_path) as dead, started(code, tmp_path) as living:
        assert dead.stdout is not None
        assert living.stdout is not None
        left, used = dead.stdout.readline().strip(), living.stdout.readline().strip()
        dead.kill()
        dead.wait()
        assert os.path.exists(left)
        with DuckDBEngine(folder=tmp_path) as engine:
            assert not os.path.exists(left)
            assert os.path.exists(used)
            assert os.path.exists(engine._folder.path)
        living.kill()


def test_a_worker_and_its_server_killed_at_once_leave_nothing_to_the_next_server(tmp_path: Path) -> None:
    """The worker cannot tidy up after its server here, nor the server after its worker."""
    made = "Apart(DuckDBEngine); engine._running().call('registered', ('t',), None)"
    imports = "from deniable.queries.engines.duckdb import DuckDBEngine\n"
    code = imports + LIVING.format(module="engine_process", name="Apart", made=made, told="engine.process")
    with started(code, tmp_path) as whole:
        assert whole.stdout is not None
        worker = int(whole.stdout.readline())
        os.kill(worker, signal.SIGSTOP)
        whole.kill()
        whole.wait()
        assert list(tmp_path.glob("deniable-apart-*/deniable-*"))
        assert sweep(tmp_path) == 0  # the worker may still write there
        os.kill(worker, signal.SIGKILL)
    while sweep(tmp_path) == 0:
        pass
    assert list(tmp_path.glob("deniable-*")) == []


def test_folders_that_may_belong_to_somebody_are_left_alone(tmp_path: Path) -> None:
    """A folder without a lock, a link to a folder elsewhere, a folder of another name."""
    for name in ("deniable-unlocked", "elsewhere", "another"):
        (tmp_path / name).mkdir()
    for name in ("elsewhere", "another"):
        (tmp_path / name / "in-use.lock").touch()
    (tmp_path / "deniable-link").symlink_to(tmp_path / "elsewhere")
    mine = Folder("deniable-test-", tmp_path)
    assert sweep(tmp_path) == 0
    assert {each.name for each in tmp_path.iterdir()} >= {"deniable-unlocked", "elsewhere", "another"}
    assert os.path.exists(mine.path)
    os.close(mine.descriptor)
    assert sweep(tmp_path) == 1
    assert not os.path.exists(mine.path)
