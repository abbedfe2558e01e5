"""Registered tables that are kept between restarts: used only if every byte is the one that was sealed."""

from __future__ import annotations

import hmac
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import deniable as dn
from deniable.errors import EngineFailed
from deniable.queries.engines import duckdb, duckdb_sources, kept_contents, kept_tables
from deniable.queries.engines.duckdb import DuckDBEngine
from deniable.queries.engines.engine_process import Apart
from deniable.queries.relations.exact_statistics import Collect, Count, CountPersons
from deniable.queries.relations.relation_nodes import Bound, Source
from deniable.tables.expressions import col
from deniable.tables.kinds import Domain
from deniable.tables.schema import Table
from deniable.units import Unit
from tests.queries.engines.kitchen import SECRET
from tests.wording import worded

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def small_tables_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_tables, "_LEAST", 0)


def about(ids: str = "numbers", most: int = 3, high: int = 5) -> Table:
    who = Domain.integer() if ids == "numbers" else Domain.text()
    columns = {"key": Domain.text("a", "b"), "n": Domain.integer(2, high), "x": Domain.real()}
    return Table.of("t", Unit.person("who", rows=most), who=who, **columns)


def drawn(rows: int, seed: int, ids: str = "numbers") -> Rows:
    numbers = random.Random(seed)
    told = []
    for _ in range(rows):
        who = int(9 * numbers.random() ** 2)
        told.append(
            {
                "who": None if numbers.random() < 0.05 else who if ids == "numbers" else f"p{who}",
                "key": numbers.choice(["a", "b", "c", None]),
                "n": numbers.choice([0, 3, 7, None]),
                "x": numbers.choice([0.5, -1.25, 2.0**60, None]),
            }
        )
    return told


def write(path: Path, rows: Rows, ids: str = "numbers") -> None:
    kinds = {"who": pa.int64() if ids == "numbers" else pa.string()}
    kinds |= {"key": pa.string(), "n": pa.int64(), "x": pa.float64()}
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        lines = [",".join("" if row[name] is None else str(row[name]) for name in kinds) for row in rows]
        path.write_text("\n".join([",".join(kinds), *lines]) + "\n")
        return
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
    parquet.write_table(pa.table(columns), path)


Told = tuple[Any, Counter[Any], Any, Any]


def told(source: Path, table: Table, kept: Path | None, secret: bytes = SECRET) -> Told:
    """The report, the kept rows with ids and ranks, and two answers, of an engine that is opened and closed."""
    with DuckDBEngine(threads=1, kept=kept) as engine:
        made = engine.register("t", str(source), table, secret)
        stored = engine._tables["t"]
        rows = engine._run(f"SELECT * FROM {stored.with_ranks.sql(dialect='duckdb', normalize_functions=False)}")
        names = dict(engine._run(f'SELECT "number", "id" FROM {engine._numbers}')) if engine._numbers else None
        whole = Collect(Source(made), (), None, (Count(), CountPersons()))
        bound = Collect(Bound(Source(made), (col("key"),), 1, 1), (("key", col("key")),), None, (Count(),))
        answers = [engine.collect(whole), engine.collect(bound)]
        engine.settle()
        answers += [engine.collect(bound)]
        assert answers[1] == answers[2]
        report = engine.registered("t")
    found = Counter((person if names is None else names[person], *rest) for person, *rest in rows)
    return report, found, answers[0], answers[1]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes each time when all rows of a source are read, and when those of new files are."""
    seen: list[str] = []
    whole, part = DuckDBEngine._registered, DuckDBEngine._appended

    def registered(self: Any, *given: Any) -> Any:
        seen.append("all")
        return whole(self, *given)

    def appended(self: Any, *given: Any) -> Any:
        found = part(self, *given)
        if found is not None:
            seen.append("new")
        return found

    monkeypatch.setattr(DuckDBEngine, "_registered", registered)
    monkeypatch.setattr(DuckDBEngine, "_appended", appended)
    return seen


@pytest.mark.parametrize("ids", ["numbers", "texts"])
@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("most", [1, 3])
def test_a_restart_reads_no_row_of_the_source(
    ids: str, ending: str, most: int, tmp_path: Path, reads: list[str]
) -> None:
    source, kept = tmp_path / f"t.{ending}", tmp_path / "kept"
    write(source, drawn(80, 1, ids), ids)
    first = told(source, about(ids, most), kept)
    second = told(source, about(ids, most), kept)
    assert reads == ["all"]
    assert first == second == told(source, about(ids, most), None)


def test_nothing_in_the_folder_can_be_read(tmp_path: Path) -> None:
    source, kept = tmp_path / "t.parquet", tmp_path / "kept"
    rows = [{"who": f"a-person-called-{n}", "key": "a", "n": 3, "x": 0.5} for n in range(3000)]
    write(source, rows, "texts")
    told(source, about("texts"), kept)
    files = sorted(each.suffix for each in kept.iterdir())
    assert files == [".duckdb", ".json", ".lock"]
    assert kept.stat().st_mode & 0o077 == 0
    for each in kept.iterdir():
        assert b"a-person" not in each.read_bytes()
        assert SECRET.hex().encode() not in each.read_bytes()


def _flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


DAMAGES: dict[str, Callable[[Path, Path, Path], object]] = {
    "a bit of the rows": lambda source, rows, seal: _flip(rows, rows.stat().st_size // 2),
    "the last byte of the rows": lambda source, rows, seal: _cut(rows),
    "an empty file": lambda source, rows, seal: rows.write_bytes(b""),
    "no file": lambda source, rows, seal: rows.unlink(),
    "a bit of the seal": lambda source, rows, seal: _flip(seal, seal.stat().st_size // 2),
    "half of the seal": lambda source, rows, seal: _cut(seal),
    "another seal": lambda source, rows, seal: seal.write_text('{"rows": "../t.parquet"}'),
    "a list as a seal": lambda source, rows, seal: seal.write_text("[]"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_changed_file_is_not_believed(damage: str, tmp_path: Path, reads: list[str]) -> None:
    source, kept = tmp_path / "t.parquet", tmp_path / "kept"
    write(source, drawn(80, 1))
    first = told(source, about(), kept)
    [rows], [seal] = kept.glob("*.duckdb"), kept.glob("*.json")
    DAMAGES[damage](source, rows, seal)
    assert told(source, about(), kept) == first
    assert told(source, about(), kept) == first
    assert reads == ["all", "all"]


def ghash(key: bytes, content: bytes) -> int:
    """Section 6.4 of NIST SP 800-38D: Σ block · H^i in GF(2^128), then the lengths; with E_K(nonce), as in a tag."""
    encrypt = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    subkey, mask = (int.from_bytes(encrypt.update(each)) for each in (bytes(16), bytes(15) + b"\1"))
    found = 0
    padded = content + bytes(-len(content) % 16) + (8 * len(content)).to_bytes(8) + bytes(8)
    for at in range(0, len(padded), 16):
        left, right, found = found ^ int.from_bytes(padded[at : at + 16]), subkey, 0
        for bit in range(127, -1, -1):
            found ^= right * (left >> bit & 1)
            right = right >> 1 ^ (0xE1 << 120) * (right & 1)
    return found ^ mask


@pytest.mark.parametrize("block", [7, 16, 1 << 20])
def test_contents_are_hashed_by_ghash_and_no_such_hash_is_stored(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_tables, "_BLOCK", block)
    source, kept = tmp_path / "t.parquet", tmp_path / "kept"
    write(source, drawn(5, 1))
    told(source, about(), kept)
    place = kept_tables.kept_table(kept, source, about(), "t", SECRET, "1")
    assert place is not None
    key = hmac.digest(SECRET, b"kept tables, content: ", "sha256")
    content = random.Random(block).randbytes(50)
    for length in (0, 1, 15, 16, 17, 50):
        (tmp_path / "part").write_bytes(content[:length])
        assert place._hashed(tmp_path / "part") == f"{ghash(key, content[:length]):032x}"
    [seal], [rows] = kept.glob("*.json"), kept.glob("*.duckdb")
    for each in (source, rows):
        assert place._hashed(each) not in seal.read_text()


def test_a_source_of_the_same_size_and_time_with_other_content_is_noticed(tmp_path: Path, reads: list[str]) -> None:
    source, kept = tmp_path / "t.csv", tmp_path / "kept"
    source.write_text("who,key,n,x\n1,a,3,0.5\n")
    before = source.stat()
    told(source, about(), kept)
    source.write_text("who,key,n,x\n1,b,3,0.5\n")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source.stat().st_size == before.st_size
    assert told(source, about(), kept) == told(source, about(), None)
    assert reads == ["all", "all", "all"]


@pytest.mark.parametrize("change", ["schema", "bound", "secret"])
def test_another_schema_bound_or_secret_registers_anew(change: str, tmp_path: Path, reads: list[str]) -> None:
    source, kept = tmp_path / "t.parquet", tmp_path / "kept"
    write(source, drawn(80, 1))
    told(source, about(), kept)
    table = {"schema": about(high=6), "bound": about(most=2), "secret": about()}[change]
    secret = b"another secret of sixteen bytes" if change == "secret" else SECRET
    assert told(source, table, kept, secret) == told(source, table, None, secret)
    assert reads == ["all", "all", "all"]


def test_a_file_of_an_older_state_does_not_come_back(tmp_path: Path, reads: list[str]) -> None:
    """Somebody who puts yesterday's rows in the place of today's has a file that opens, and no seal for it."""
    source, kept = tmp_path / "t.parquet", tmp_path / "kept"
    write(source, drawn(80, 1))
    told(source, about(), kept)
    [old] = kept.glob("*.duckdb")
    saved = old.read_bytes()
    write(source, drawn(80, 2))
    now = told(source, about(), kept)
    [rows] = kept.glob("*.duckdb")  # one file for a table: erased rows leave with the next registration
    rows.write_bytes(saved)
    assert told(source, about(), kept) == now
    assert reads == ["all", "all", "all"]


def test_a_source_that_changes_while_it_is_read_is_not_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, kept = tmp_path / "t.parquet", tmp_path / "kept"
    write(source, drawn(80, 1))
    whole = DuckDBEngine._registered

    def registered(self: Any, *given: Any) -> Any:
        write(source, drawn(80, 2))
        return whole(self, *given)

    monkeypatch.setattr(DuckDBEngine, "_registered", registered)
    with worded(EngineFailed):
        told(source, about(), kept)
    assert [each.suffix for each in kept.iterdir()] == [".lock"]


def test_a_second_table_of_people_with_texts_as_ids_joins_the_kept_one(tmp_path: Path) -> None:
    sources = {name: tmp_path / f"{name}.parquet" for name in ("t", "u")}
    for seed, source in enumerate(sources.values()):
        write(source, drawn(60, seed, "texts"), "texts")
    ids = []
    for kept in (None, tmp_path / "kept", tmp_path / "kept"):
        with DuckDBEngine(threads=1, kept=kept) as engine:
            for name, source in sources.items():
                engine.register(name, str(source), about("texts"), SECRET)
            found = []
            for name in sources:
                rows = engine._tables[name].location.sql(dialect="duckdb")
                found.append(
                    set(engine._run(f'SELECT DISTINCT "id" FROM {rows} JOIN {engine._numbers} ON person = number'))
                )
            ids.append(found)
    assert ids[0] == ids[1] == ids[2]


def test_a_folder_that_cannot_be_made_is_gone_without(tmp_path: Path, reads: list[str]) -> None:
    source = tmp_path / "t.parquet"
    write(source, drawn(80, 1))
    (tmp_path / "kept").write_text("a file")
    assert told(source, about(), tmp_path / "kept") == told(source, about(), None)


@pytest.mark.parametrize("keep", [True, False])
def test_a_session_keeps_its_tables_beside_its_ledger(keep: bool, tmp_path: Path, reads: list[str]) -> None:
    source, ledger = tmp_path / "t.parquet", tmp_path / "t.ledger"
    write(source, drawn(80, 1))
    given: dict[str, Any] = {
        "unit": dn.Unit.person("who", rows=3),
        "budget": dn.Budget(epsilon=1, delta=1e-6),
        "ledger": ledger,
    }
    schema = {name: domain for name, domain in about().columns if name != "who"}
    reports = []
    for _ in range(2):
        with dn.session({"t": source}, schema=schema, keep=keep, **given) as s:
            s.sql("SELECT COUNT(*) FROM t", epsilon=0.1)
            reports.append(s.registration["t"])
    assert reports[0] == reports[1]
    assert reads == (["all"] if keep else ["all", "all"])
    assert (tmp_path / "t.ledger.tables").exists() is keep


@pytest.mark.slow
def test_a_new_process_finds_the_table_of_another(tmp_path: Path) -> None:
    """As a server does: the engine runs in a process of its own, and the source is large enough to be kept."""
    source, kept = tmp_path / "t.parquet", tmp_path / "kept"
    numbers = np.random.default_rng(1)
    columns = {"who": numbers.integers(0, 10**6, 3_000_000), "x": numbers.random(3_000_000)}
    parquet.write_table(pa.table(columns), source, compression="none", use_dictionary=False)
    table = Table.of("t", Unit.person("who", rows=3), who=Domain.integer(), x=Domain.real())
    found = []
    for _ in range(2):
        engine = Apart(partial(DuckDBEngine, threads=1, kept=kept))
        made = engine.register("t", str(source), table, SECRET)
        answer = engine.collect(Collect(Source(made), (), None, (Count(), CountPersons())))
        [file] = kept.glob("*.duckdb")
        found.append((engine.registered("t"), answer, file.name, file.stat().st_mtime_ns))
        engine.close()
    assert found[0] == found[1]  # the same file, so the second process did not write it


# --- appended files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", ["numbers", "texts"])
@pytest.mark.parametrize("seed", range(3))
def test_any_sequence_of_appends_erasures_and_corrections_equals_a_full_registration(
    ids: str, seed: int, tmp_path: Path, reads: list[str]
) -> None:
    numbers, kept, folder = random.Random(seed), tmp_path / "kept", tmp_path / "t"
    files: list[Path] = []
    expected = []
    for step in range(6):
        what = "append" if step == 0 else numbers.choice(["append", "append", "append twice", "erase", "correct"])
        if what == "erase" and len(files) > 1:
            files.pop(numbers.randrange(len(files))).unlink()
        elif what == "correct":
            write(numbers.choice(files), drawn(numbers.randrange(1, 60), 100 * seed + step + 50, ids), ids)
        else:
            what = "append" if what == "erase" else what
            for part in range(2 if what == "append twice" else 1):
                path = folder / f"{numbers.randrange(10**6)}-{step}-{part}.parquet"  # not always the last one by name
                write(path, drawn(numbers.randrange(0, 60), 100 * seed + 10 * step + part, ids), ids)
                files.append(path)
        reads.clear()
        assert told(folder, about(ids), kept) == told(folder, about(ids), None)
        expected.append((what, reads[0]))
    assert all(read == ("new" if step and what.startswith("append") else "all")
               for step, (what, read) in enumerate(expected))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("ids", ["numbers", "texts"])
def test_old_csv_files_are_not_measured_again(
    ids: str, tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of people above their bound are read again from all files, whose records were counted before."""
    folder, kept = tmp_path / "t", tmp_path / "kept"
    measured: list[str] = []
    measure = duckdb_sources.extent_of

    def extent_of(path: str, fields: int) -> Any:
        measured.append(Path(path).name)
        return measure(path, fields)

    monkeypatch.setattr(duckdb_sources, "extent_of", extent_of)
    for part in range(3):
        write(folder / f"{part}.csv", drawn(40, part, ids), ids)
        found = told(folder / "*.csv", about(ids), kept)
        assert measured == [f"{part}.csv"]
        assert found == told(folder / "*.csv", about(ids), None)
        measured.clear()
    assert reads == ["all", "all", "new", "all", "new", "all"]


def test_old_files_are_not_read_if_everybody_is_within_the_bound(
    tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, kept = tmp_path / "t", tmp_path / "kept"
    opened = []
    monkeypatch.setattr(duckdb, "opened_to_read", lambda *given: opened.append(given))
    for part in range(3):  # with the third file everybody has exactly as many rows as may be kept
        write(folder / f"{part}.parquet", [{"who": who, "key": "a", "n": part, "x": 0.5} for who in range(9)])
        assert told(folder, about(most=3), kept) == told(folder, about(most=3), None)
    assert reads == ["all", "all", "new", "all", "new", "all"]
    assert not opened


def test_a_file_with_many_deleted_rows_is_written_anew(
    tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_contents, "_FEW", 20)
    folder, kept = tmp_path / "t", tmp_path / "kept"
    for part in range(4):  # each file but the first replaces the 30 rows of ten people, and not those of person 99
        rows = [{"who": who, "key": "a", "n": part, "x": at + part / 4} for who in range(10) for at in range(3)]
        rows += [{"who": 99, "key": "b", "n": part, "x": 0.5}] if part == 0 else []
        write(folder / f"{part}.parquet", rows)
        assert told(folder, about(most=3), kept) == told(folder, about(most=3), None)
    assert reads[::2] == ["all", "new", "all", "new"]


def test_a_new_file_with_other_types_is_registered_with_all_others(tmp_path: Path, reads: list[str]) -> None:
    """A column that is whole in one file and real in another is read as real from both."""
    folder, kept = tmp_path / "t", tmp_path / "kept"
    write(folder / "1.parquet", [{"who": 1, "key": "a", "n": 2**60 + 1, "x": 0.5}])
    told(folder, about(high=2**62), kept)
    columns = {"who": [1], "key": ["a"], "n": [2.0**60], "x": [0.5]}
    parquet.write_table(pa.table(columns), folder / "2.parquet")
    assert told(folder, about(high=2**62), kept) == told(folder, about(high=2**62), None)
    assert reads == ["all", "all", "all"]


def test_the_same_file_twice_is_twice_the_rows(tmp_path: Path, reads: list[str]) -> None:
    folder, kept = tmp_path / "t", tmp_path / "kept"
    write(folder / "1.parquet", drawn(40, 1))
    told(folder, about(), kept)
    shutil.copy(folder / "1.parquet", folder / "2.parquet")
    assert told(folder, about(), kept) == told(folder, about(), None)
    assert reads[:2] == ["all", "new"]


def test_a_new_folder_of_hive_is_appended(tmp_path: Path, reads: list[str]) -> None:
    """A file of the same bytes in another folder has other rows."""
    folder, kept, table = tmp_path / "t", tmp_path / "kept", about()
    table = Table("t", (*table.columns, ("day", Domain.integer(0, 9))), table.unit)
    for day in (1, 2):
        write(folder / f"day={day}" / "1.parquet", drawn(40, 1))
        assert told(folder, table, kept) == told(folder, table, None)
    assert reads == ["all", "all", "new", "all"]
    (folder / "day=2").rename(folder / "day=3")
    assert told(folder, table, kept) == told(folder, table, None)
    assert reads[4:] == ["all", "all"]


@pytest.mark.parametrize("how", ["small", "frame", "keep=False"])
def test_a_registration_that_is_not_kept_removes_the_kept_file(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise rows that were erased from a source would stay in the folder for ever."""
    source, ledger = tmp_path / "t.parquet", tmp_path / "account.ledger"
    write(source, drawn(80, 1))
    write(tmp_path / "u.parquet", drawn(60, 2))
    given: dict[str, Any] = {"unit": Unit.person("who", rows=3), "ledger": ledger}
    given["schema"] = {"who": Domain.integer()}
    with dn.session({"t": source, "u": tmp_path / "u.parquet"}, budget=dn.Budget.pure(epsilon=1), **given):
        pass
    folder = tmp_path / "account.ledger.tables"
    before = {each.name for each in folder.iterdir() if each.suffix != ".lock"}
    assert len(before) == 4
    if how == "small":
        monkeypatch.setattr(kept_tables, "_LEAST", 1 << 40)
    again = parquet.read_table(source) if how == "frame" else source
    with dn.session({"t": again}, keep=how != "keep=False", **given):
        pass
    assert len(before & {each.name for each in folder.iterdir()}) == 2  # those of the other table


@pytest.mark.parametrize("change", ["renamed", "renamed and moved", "gone", "corrected", "appended", "another"])
def test_the_kept_file_of_a_table_that_was_renamed_does_not_stay(change: str, tmp_path: Path, reads: list[str]) -> None:
    """It stayed for ever: rows that were erased later stayed in it. A table that another session uses keeps its file."""
    source, ledger = tmp_path / "rows" / "t.parquet", tmp_path / "account.ledger"
    write(source, drawn(80, 1))
    write(tmp_path / "other.parquet", drawn(60, 2))
    given: dict[str, Any] = {"unit": Unit.person("who", rows=3), "ledger": ledger}
    given["schema"] = {"who": Domain.integer()}
    with dn.session({"t": source.parent, "u": source}, budget=dn.Budget.pure(epsilon=1), **given):
        pass
    folder, old = tmp_path / "account.ledger.tables", kept_tables._slot("t")
    with dn.session({"t": source.parent, "u": source}, **given):
        pass
    assert reads == ["all", "all"]  # one source under two names of one session: both are kept
    new = {"new": source.parent}
    if change == "renamed and moved":
        source.rename(tmp_path / "moved.parquet")
        new = {"new": tmp_path / "moved.parquet"}
    elif change != "renamed":
        new = {"new": tmp_path / "other.parquet"}
    if change == "gone":
        source.unlink()
    elif change == "corrected":
        write(source, drawn(79, 1))
    elif change == "appended":
        write(source.parent / "more.parquet", drawn(20, 3))
    with dn.session(new, **given):
        pass
    left = {each.name[:16] for each in folder.iterdir() if each.suffix != ".lock"}
    assert (old in left) is (change in {"appended", "another"})
    assert (kept_tables._slot("u") in left) is (change in {"appended", "another"})
    assert kept_tables._slot("new") in left
    if change == "appended":
        with dn.session({"t": source.parent}, **given):
            pass
        assert reads[-1] == "new"  # only the new file was read


@pytest.mark.parametrize("seal", ["", "{}", '{"source": 3}', '{"source": [3]}', '{"source": [["/nowhere", 1, 1]]}'])
def test_a_seal_that_names_no_source_is_swept(seal: str, tmp_path: Path) -> None:
    (tmp_path / "0123456789abcdef.json").write_text(seal)
    (tmp_path / "0123456789abcdef-1.duckdb").write_text("rows")
    kept_tables.sweep_kept(tmp_path, {"t": 3, "u": tmp_path / "nothing"})
    assert [each.suffix for each in tmp_path.iterdir()] == [".lock"]


def test_a_file_that_was_never_sealed_is_swept_unless_it_is_being_written(tmp_path: Path) -> None:
    """Left by a process that was killed while it registered a table, which has another name now."""
    left, writing, own = (tmp_path / f"{kept_tables._slot(each)}-0a.duckdb" for each in ("left", "writing", "t"))
    foreign = tmp_path / "my-notes.txt"
    for each in (left, writing, own, foreign, left.with_suffix(".duckdb.wal")):
        each.write_bytes(b"rows")
    with kept_tables._alone(tmp_path, kept_tables._slot("writing")):
        kept_tables.sweep_kept(tmp_path, {"t": 3})
    assert {each.name for each in tmp_path.glob("*-*")} == {writing.name, own.name, foreign.name}
    kept_tables.sweep_kept(tmp_path, {"t": 3})
    assert {each.name for each in tmp_path.glob("*-*")} == {own.name, foreign.name}
