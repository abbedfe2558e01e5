"""Files as they were on the disk at some moment, and how somebody puts them back into the same files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def taken(folder: Path, pattern: str = "*") -> dict[Path, bytes]:
    """Everything below a folder: what a kill at this moment would leave."""
    return {path: path.read_bytes() for path in sorted(folder.rglob(pattern)) if path.is_file()}


def put_back(folder: Path, files: Mapping[Path, bytes], pattern: str = "*") -> None:
    """In place, so that no file can be told by its number or birth. What was not there then is gone."""
    for path in taken(folder, pattern):
        if path not in files:
            path.unlink()
    for path, said in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "xb") as file:
            file.truncate()
            file.write(said)


class Shelf:
    """Older copies of the one ledger of a server, in a folder or in Postgres."""

    def __init__(self, ledgers: Path, database: str | None) -> None:
        self._ledgers, self._database = ledgers, database

    def copied(self) -> Any:
        """The ledger as it is."""
        if self._database is None:
            return taken(self._ledgers)
        return self._sql("SELECT number, hash FROM deniable_ledgers")[0]

    @contextmanager
    def instead(self, copy: Any, *, in_place: bool) -> Iterator[None]:
        """An older copy in the place of the ledger, in the same file or as another one, and afterwards the ledger."""
        if self._database is not None:
            number, link = copy
            newest, hash = self.copied()
            self._sql(f"CREATE TABLE kept AS SELECT * FROM deniable_entries WHERE number > {number}")
            self._sql(f"DELETE FROM deniable_entries WHERE number > {number}")
            self._sql(f"UPDATE deniable_ledgers SET number = {number}, hash = '{link}'")
            yield
            self._sql("INSERT INTO deniable_entries SELECT * FROM kept")
            self._sql(f"UPDATE deniable_ledgers SET number = {newest}, hash = '{hash}'")
            self._sql("DROP TABLE kept")
        elif in_place:
            right = taken(self._ledgers)
            put_back(self._ledgers, copy)
            yield
            put_back(self._ledgers, right)
        else:  # as another file: it can be told by its number; the right one must be the same as before
            away = self._ledgers.with_name("away")
            self._ledgers.rename(away)
            put_back(self._ledgers, copy)
            yield
            shutil.rmtree(self._ledgers)
            away.rename(self._ledgers)

    def _sql(self, statement: str) -> list[Any]:
        """Behind the ledger's back, and past what guards its tables against slips of the hand."""
        import psycopg

        assert self._database is not None
        with psycopg.connect(self._database, autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []
