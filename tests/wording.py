"""Errors in tests: a test compares the facts of an error, and tests/wording.txt has its words.

    with worded(InvalidParameter, parameter="rows"):
        Unit.person("patient_id", rows=0)

`worded` expects an error of this kind with these attributes. Its text must be one that the file lists for this
place of the test.
Whoever rewords an error changes no test: run the tests with DENIABLE_WORDING=write, and review the diff of the file.
Names of temporary folders and hashes, which differ from run to run, are `<folder>` and `<hash>` there.
"""

from __future__ import annotations

import ast
import fcntl
import gc
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

FILE: Final = Path(__file__).with_suffix(".txt")
ABOUT: Final = (
    "# What errors say, by the test that raises them. Made with DENIABLE_WORDING=write; see tests/wording.py.\n"
)
_FOLDER: Final = re.compile(r"/[^\s']*/pytest-\d+/(?:popen-gw\d+/)?[^/\s']+")
_GIVEN: Final = re.compile(r"='<folder>[^':]*(?:'|\.\.\.)")
"""A path as the value of a parameter, which an error cuts if it is long."""
_HASH: Final = re.compile(r"\b(?=[0-9]*[a-f])[0-9a-f]{32,}\b")

_REWRITTEN: Final = set[str]()
"""Places whose old words this process has replaced."""

Words = dict[str, list[str]]
"""The texts of errors by test."""


def worded(kind: type[BaseException], **facts: Any) -> AbstractContextManager[pytest.ExceptionInfo[BaseException]]:
    """Expect an error of this kind with these attributes, and with words that the file lists for this place."""
    caller = sys._getframe(1)
    return _worded(_place(caller.f_code.co_filename, caller.f_code.co_name, caller.f_lineno), kind, facts)


@contextmanager
def _alone() -> Iterator[None]:
    """A lock: the processes of pytest-xdist rewrite the file one after another."""
    with (Path(tempfile.gettempdir()) / "deniable-wording.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _worded(
    place: str, kind: type[BaseException], facts: dict[str, Any]
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    with pytest.raises(kind) as caught:
        yield caught
    found = {name: getattr(caught.value, name) for name in facts}
    assert found == facts, f"{caught.value!r} has {found}"
    test, said = current_test() + place, plain(f"{type(caught.value).__name__}: {caught.value}")
    if os.environ.get("DENIABLE_WORDING") == "write":
        with _alone():
            words = read()
            words[test] = sorted({*(words.get(test, ()) if test in _REWRITTEN else ()), said})
            _REWRITTEN.add(test)
            FILE.write_text(written(words))
    listed = read().get(test, [])
    assert said in listed, f"new words of an error: review them in {FILE.name}\n  now  {said}\n  file {listed}"


@cache
def _place(file: str, function: str, line: int) -> str:
    """Which of several errors of a function: " #2" for the second one, "" if there is only one."""
    # A finalizer that logs a traceback parses code, and CPython fails if that happens while it builds a tree (gh-106905).
    collecting = gc.isenabled()
    gc.disable()
    try:
        tree = ast.parse(Path(file).read_text())
    finally:
        if collecting:
            gc.enable()
    lines = [
        each.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == function and node.lineno <= line <= (node.end_lineno or 0)
        for each in ast.walk(node)
        if isinstance(each, ast.Call) and ast.unparse(each.func) == "worded"
    ]
    before = sorted(set(lines))
    return f" #{sum(each <= line for each in before)}" if len(before) > 1 else ""


def current_test() -> str:
    """The running test as "file::function", without its parameters."""
    running = os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0]
    return running.partition("[")[0]


def plain(text: str) -> str:
    """A text in one line, without what differs from run to run.

    >>> plain("'/tmp/pytest-of-ana/pytest-3/test_a0/ledger' is empty\\nsee there")
    "'<folder>/ledger' is empty ¶ see there"
    """
    text = _GIVEN.sub("='<folder>'", _FOLDER.sub("<folder>", text))
    return _HASH.sub("<hash>", text).replace("\n", " ¶ ")


def read() -> Words:
    """What the file lists."""
    words: Words = {}
    test = ""
    for line in FILE.read_text().splitlines() if FILE.exists() else ():
        if line.startswith("    "):
            words[test].append(line[4:])
        elif line and not line.startswith("#"):
            test = line
            words[test] = []
    return words


def written(words: Words) -> str:
    """The text of the file."""
    blocks: Iterable[str] = (
        "\n".join([test, *(f"    {each}" for each in said)]) for test, said in sorted(words.items())
    )
    return ABOUT + "\n" + "\n\n".join(blocks) + "\n"
