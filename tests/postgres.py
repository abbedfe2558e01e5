"""A Postgres server of our own, from Debian's packages: in a temporary folder, on a socket, for as long as it is needed.

    with server() as postgres:
        url = postgres.database()  # a fresh one each time

Postgres refuses to run as root, so root starts it as the user "postgres" or "nobody".
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest


def binaries() -> Path:
    """The folder of initdb and pg_ctl; installed by apt-get where they are missing and we may."""
    found = _look()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-qq", "-y", "postgresql"]):
            subprocess.run(command, env=quiet, check=False, capture_output=True)
        found = _look()
    if found is None:
        raise RuntimeError(
            "tests marked postgres need a Postgres server; on Debian and Ubuntu: apt install postgresql. "
            "To leave them out: -m 'not postgres'"
        )
    return found


def _look() -> Path | None:
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4].split(".")[0]))
    for path in [*reversed(debian), shutil.which("initdb")]:
        if path is not None and (Path(path).resolve().parent / "pg_ctl").exists():
            return Path(path).resolve().parent
    return None


@dataclass
class Postgres:
    """A running server. Its databases go when it goes."""

    folder: Path
    programs: Path
    who: dict[str, Any]
    numbers: Iterator[int] = field(default_factory=count)

    def database(self, *, isolation: str = "read committed") -> str:
        """The URL of what looks like a new, empty database: a schema of its own, which is made much faster."""
        name = f"d{os.getpid()}_{next(self.numbers)}"
        self.sql(f"CREATE SCHEMA {name}")
        level = isolation.replace(" ", "\\ ")
        options = quote(f"-c search_path={name} -c default_transaction_isolation={level}")
        return f"postgresql://deniable@/postgres?host={self.folder}&options={options}"

    def sql(self, statement: str, url: str | None = None) -> list[tuple[Any, ...]]:
        """Run something behind the ledger's back."""
        import psycopg

        place = url or f"host={self.folder} user=deniable dbname=postgres"
        with psycopg.connect(place, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses= -c fsync=off -c shared_buffers=16MB -c max_connections=60"
        self._control("-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self, how: str) -> None:
        """how: "fast" is orderly, "immediate" is a crash."""
        self._control("-m", how, "-w", "stop")

    def _control(self, *arguments: str) -> None:
        run([str(self.programs / "pg_ctl"), "-D", str(self.folder / "data"), *arguments], self.who)


def run(command: list[str], who: dict[str, Any]) -> None:
    # Not a pipe: the server keeps it open, and we would wait for ever.
    with tempfile.TemporaryFile() as said:
        code = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False, **who
        ).returncode
        said.seek(0)
        if code:
            raise RuntimeError(said.read().decode(errors="replace")[-2000:])


@contextmanager
def server() -> Iterator[Postgres]:
    """A server with nothing in it. Without fsync, since only processes die here, and no machine."""
    programs = binaries()
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    who: dict[str, Any] = {"cwd": folder}
    if os.geteuid() == 0:
        names = {user.pw_name: user for user in pwd.getpwall()}
        user = names.get("postgres") or names["nobody"]
        os.chown(folder, user.pw_uid, user.pw_gid)
        who |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    folder.chmod(0o755)
    try:
        make = ["-D", str(folder / "data"), "-A", "trust", "-U", "deniable", "--no-sync", "-E", "UTF8"]
        run([str(programs / "initdb"), *make], who)
        postgres = Postgres(folder, programs, who)
        postgres.start()
        try:
            yield postgres
        finally:
            postgres.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with server() as running:
        yield running
