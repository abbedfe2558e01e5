"""Which files a path means: those that count, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

import deniable as dn
from deniable.errors import InvalidParameter
from deniable.tables.schema_proposal import types_of
from deniable.tables.source_files import files_of
from tests.wording import worded

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def write(path: Path, rows: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table({"x": list(range(rows))}), path)
    return path


FORMATS = [
    ("Delta Lake", "_delta_log/00000000000000000000.json"),
    ("Iceberg", "metadata/v1.metadata.json"),
    ("Iceberg", "metadata/v1.metadata.json.gz"),
    ("Iceberg", "metadata/snap-1-0.avro"),
    ("Hudi", ".hoodie/hoodie.properties"),
    ("Spark streaming", "_spark_metadata/0"),
    ("Paimon", "snapshot/snapshot-1 manifest/manifest-1"),
]


@pytest.mark.parametrize(("kind", "notes"), FORMATS)
def test_a_table_with_a_log_is_not_read_as_all_its_files(kind: str, notes: str, tmp_path: Path) -> None:
    """Files of erased and changed rows lie beside those that count: 8,275 rows were told where 4,850 are."""
    table = tmp_path / "lake" / "visits"
    file = write(table / "year=2024" / "part-0.parquet")
    write(table / "part-1.parquet")
    for note in notes.split():
        (table / note).parent.mkdir()
        (table / note).write_text("{}")
    link = tmp_path / "link"
    link.symlink_to(table)
    for path in (
        table, file, table / "*.parquet", table / "year=2024", table / "**" / "*.parquet", tmp_path / "lake",
        tmp_path / "lake" / "*" / "*.parquet", link, link / "part-1.parquet",
    ):  # fmt: skip
        with worded(InvalidParameter, parameter="source") as refused:
            files_of(str(path))
        assert f" {kind}: " in refused.value.rule
    with pytest.raises(InvalidParameter, match=kind):
        types_of(table)
    with pytest.raises(InvalidParameter, match=kind):
        dn.session({"visits": table}, unit=dn.Unit.row(), budget=dn.Budget.pure(epsilon=1))


def test_a_partition_of_hudi_that_was_copied_is_known(tmp_path: Path) -> None:
    write(tmp_path / "part-0.parquet")
    (tmp_path / ".hoodie_partition_metadata").touch()
    with worded(InvalidParameter, parameter="source"):
        files_of(str(tmp_path))


def test_what_a_writer_has_not_finished_is_no_part_of_a_folder(tmp_path: Path) -> None:
    kept = [write(tmp_path / each) for each in ("a.parquet", "b.PARQUET", "c.pq", "year=2024/d.parquet")]
    for each in ("_temporary/0/e.parquet", ".f.parquet", "_g.parquet", ".spark/h.parquet"):
        write(tmp_path / each)
    assert files_of(str(tmp_path)) == sorted(map(str, kept))
    with dn.session({"t": tmp_path}, unit=dn.Unit.row(), budget=dn.Budget.pure(epsilon=1)) as session:
        assert session.registration["t"].read == 40


def test_a_folder_that_is_called_metadata_is_no_table_format(tmp_path: Path) -> None:
    write(tmp_path / "visits.parquet")
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "notes.txt").touch()
    assert files_of(str(tmp_path)) == [str(tmp_path / "visits.parquet")]


def test_a_file_whose_name_looks_like_a_pattern_is_itself(tmp_path: Path) -> None:
    """`a[1].parquet` as a pattern would mean `a1.parquet`, which may be somebody else's."""
    named, other = write(tmp_path / "a[1].parquet"), write(tmp_path / "a1.parquet")
    assert files_of(str(named)) == [str(named)]
    assert files_of(str(other)) == [str(other)]
    named.unlink()
    assert files_of(str(named)) == [str(other)]
