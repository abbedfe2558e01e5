"""A MariaDB server of our own, from Debian's packages: in a temporary folder, on a socket, for as long as it is needed.

It speaks the protocol of MySQL. A test that needs it is skipped where it is not installed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import pytest

from tests.postgres import run


@final
class MariaDB:
    """A running server with a database `test` and a user `reader` with a password."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.url = f"mysql://reader:a-password@localhost/test?unix_socket={socket}"

    def sql(self, *statements: str) -> None:
        import pymysql

        with pymysql.connect(unix_socket=str(self.socket), user="root", autocommit=True) as connection:
            for each in statements:
                connection.cursor().execute(each)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    pytest.importorskip("pymysql", reason="needs pymysql: pip install pymysql")
    programs = [
        shutil.which(each, path=f"{os.environ['PATH']}:/usr/sbin") for each in ("mariadb-install-db", "mariadbd")
    ]
    if None in programs:
        pytest.skip("needs a MariaDB server; on Debian and Ubuntu: apt install mariadb-server")
    install, server = map(str, programs)
    folder = Path(tempfile.mkdtemp(prefix="my-"))
    who: dict[str, Any] = {"cwd": folder}
    if os.geteuid() == 0:
        names = {user.pw_name: user for user in pwd.getpwall()}
        user = names.get("mysql") or names["nobody"]
        os.chown(folder, user.pw_uid, user.pw_gid)
        who |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    running = None
    try:
        place = ["--no-defaults", f"--datadir={folder}/data"]
        run([install, *place, "--auth-root-authentication-method=normal", "--skip-test-db"], who)
        small = [
            "--skip-networking",
            f"--socket={folder}/s",
            f"--pid-file={folder}/pid",
            "--innodb-buffer-pool-size=16M",
        ]
        small += ["--innodb-flush-log-at-trx-commit=0", f"--log-error={folder}/log"]
        running = subprocess.Popen([server, *place, *small], stdin=subprocess.DEVNULL, **who)
        started = MariaDB(folder / "s")
        for _ in range(600):
            if started.socket.exists() or running.poll() is not None:
                break
            time.sleep(0.1)
        started.sql(
            "CREATE DATABASE test CHARACTER SET utf8mb4",
            "CREATE USER reader@localhost IDENTIFIED BY 'a-password'",
            "GRANT SELECT ON test.* TO reader@localhost",
        )
        yield started
    finally:
        if running is not None:
            running.kill()
            running.wait()
        shutil.rmtree(folder, ignore_errors=True)
