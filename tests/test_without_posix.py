"""Windows has no fork, no fcntl and no resource limits: everything can be imported without them, and noise be drawn.

This is a simulation on whatever system the tests run on. Nothing here has run on Windows itself.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from deniable.errors import InvalidOperation
from tests.wording import worded

WITHOUT = """
import os, sys
for name in ("register_at_fork", "fork", "forkpty"):
    if hasattr(os, name):
        delattr(os, name)
for module in ("fcntl", "resource", "pwd", "grp", "termios", "pty", "uvloop"):
    sys.modules[module] = None
import importlib, pkgutil
import deniable
from deniable.errors import MissingExtra
for module in pkgutil.walk_packages(deniable.__path__, "deniable.", onerror=lambda name: None):
    if not module.name.endswith("__main__") and "torch" not in module.name:
        try:
            importlib.import_module(module.name)
        except MissingExtra:
            pass
assert isinstance(deniable.Laplace(sensitivity=1, epsilon=1.0).release(3), int)
with deniable.session(
    sys.argv[1], unit=deniable.Unit.row(), budget=deniable.Budget.pure(epsilon=1), schema={"age": deniable.Domain.integer(0, 9)}
) as s:
    s.sql("SELECT COUNT(*) AS n FROM t", epsilon=0.5)
"""


@pytest.mark.slow
def test_all_can_be_imported_and_asked_without_what_only_posix_has(tmp_path):
    (tmp_path / "t.csv").write_text("age\n3\n4\n", encoding="utf-8")
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "t.csv")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]


def test_the_server_says_where_it_runs(monkeypatch, tmp_path):
    from deniable.server import Settings, curator

    monkeypatch.setattr(curator, "_POSIX", False)
    with worded(InvalidOperation):
        curator.Curator(Settings(data=(tmp_path,), state=tmp_path / "state"))
    assert not (tmp_path / "state").exists()
