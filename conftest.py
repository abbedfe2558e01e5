"""Runs the code blocks of README.md and docs/ as tests, so that the pages cannot say what is not so.

Each page is one namespace, read from top to bottom: ```python blocks are executed, and blocks that begin with >>> are
compared with what they print. ```console, ```text and other blocks are for people only. With several workers, a page
must stay with one of them: pytest -n 2 --dist loadfile.

With DENIABLE_PASSED_TO=file the names of the tests that passed are added to that file; with DENIABLE_PASSED=file those
tests are left out. So `.ci/run` runs in the second environment what did not pass in the first one: whatever was
skipped, left out or not collected there.

Chance is replayed: each test draws the same noise in every run (tests/chance.py), so that none fails once in a thousand
runs. DENIABLE_CHANCE=fresh draws anew; DENIABLE_CHANCE=7 draws another fixed noise.

A run ends with the names of unmarked tests that took over two seconds of processor time (tests/cpu_times.py).
"""

from __future__ import annotations

import doctest
import importlib.util
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

from tests import chance
from tests.collection import COLLECTED
from tests.cpu_times import CLOCK, LONG_TESTS, MOST, now

# A busy machine takes longer: no test asks how long something takes.
settings.register_profile("unhurried", deadline=None, derandomize=chance.IS_REPLAYED)
settings.load_profile("unhurried")

_IS_LAST = pytest.StashKey[bool]()
"""Whether a test is the last one of its file."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    item.stash[_IS_LAST] = nextitem is None or nextitem.path != item.path
    CLOCK.begin()
    with chance.replayed(item.nodeid):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    CLOCK.end(item, call.when, is_last=item.stash[_IS_LAST])


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    if fixturedef.scope == "function":
        return (yield)
    before = now()
    try:
        return (yield)
    finally:
        CLOCK.share(now() - before)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if LONG_TESTS.seconds:
        terminalreporter.section(f"unmarked tests over {MOST:g} s of processor time")
        for line in LONG_TESTS.lines():
            terminalreporter.line(line)


pytest_collect_file = Sybil(
    parsers=[
        PythonCodeBlockParser(doctest_optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE),
        SkipParser(),
    ],
    patterns=["*.md"],
).pytest()

# Spark comes with an extra of its own; without it that engine cannot even be imported.
collect_ignore = [] if importlib.util.find_spec("pyspark") else ["src/deniable/queries/engines/spark.py"]

# The same of torch, its room and its page.
if importlib.util.find_spec("torch") is None:
    collect_ignore += [
        "src/deniable/learn/torch",
        "docs/learn.md",
        "docs/learn-tools.md",
        "docs/training-plans.md",
        "tests/learn/mixing_models.py",
        "tests/learn/runs.py",
        "tests/learn/zoo.py",
    ]

# Triton comes with torch's builds for accelerators.
if importlib.util.find_spec("triton") is None:
    collect_ignore.append("src/deniable/learn/torch/kernels/half_kernels.py")
    collect_ignore.append("src/deniable/learn/torch/kernels/window_kernels.py")

# And of other training loops, each behind its adapter.
for package, adapter in (
    ("accelerate", "accelerate_loops"),
    ("lightning", "lightning_callback"),
    ("transformers", "hugging_face"),
):
    if importlib.util.find_spec(package) is None:
        collect_ignore.append(f"src/deniable/learn/torch/adapters/{adapter}.py")
COLLECTED.ignored = collect_ignore


def pytest_itemcollected(item: pytest.Item) -> None:
    COLLECTED.add(item)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A module that needs what is not installed skips itself."""
    if report.skipped:
        COLLECTED.skipped.add(report.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the name of a test that passed; only the process that hears of all workers writes."""
    LONG_TESTS.add(report)
    path = os.environ.get("DENIABLE_PASSED_TO")
    if path and report.when == "call" and report.passed and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\n")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has passed; a page is left out whole or not at all, as its blocks need those before them.

    The setting ends here: a test may start a pytest of its own, which must find every test.
    """
    path = os.environ.pop("DENIABLE_PASSED", None)
    if not path:
        return
    passed = set(Path(path).read_text(encoding="utf-8").splitlines())
    whole = {item.path for item in items if item.path.suffix == ".md" and item.nodeid not in passed}
    left_out = [item for item in items if item.nodeid in passed and item.path not in whole]
    config.hook.pytest_deselected(items=left_out)
    gone = set(map(id, left_out))
    items[:] = [item for item in items if id(item) not in gone]
