"""The list of long tests: it has the time of a test and of its processes, and nothing that a file shares."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FILE = """
import subprocess, sys, time
import pytest

def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

@pytest.fixture(scope="module")
def shared():
    work(0.4)
    yield
    work(0.4)

@pytest.fixture
def own():
    work(0.3)

def test_first(shared): pass
def test_own(own): pass
def test_child(): subprocess.run([sys.executable, "-c", "n = 0\\nfor i in range(10**7): n += i"], check=True)
BUSY = "n = 0\\nfor i in range(10**7): n += i\\nprint(n, flush=True)\\ninput()"
served = []
def test_starts_a_child():
    served.append(subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    served[0].stdout.readline()
def test_ends_the_child():
    served[0].communicate(b"now")
@pytest.mark.slow
def test_marked(): work(0.3)
def test_last(shared): pass
"""


@pytest.mark.slow
def test_only_what_a_test_itself_takes_is_listed(tmp_path: Path) -> None:
    (tmp_path / "test_times.py").write_text(FILE)
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nimport tests.cpu_times\ntests.cpu_times.MOST = 0.2\n"
        "from conftest_of_deniable import *\n"
    )
    (tmp_path / "conftest_of_deniable.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_times.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    listed = {line.rpartition("::")[2] for line in run.stdout.splitlines() if " s  test_times.py::" in line}
    assert listed == {"test_own", "test_child", "test_starts_a_child"}
