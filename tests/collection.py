"""What pytest collected, beside what the files hold: a test that is written and not collected looks like one that passes.

A file can drop out silently: renamed, moved, ignored by a pattern, or read by a parser that no longer matches. conftest.py
notes every item as pytest collects it, before marks and -k select; tests/test_collection.py compares.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.table import rows_of

ROOT = Path(__file__).parents[1]
_DEFINED = re.compile(r"^\s*(?:async\s+)?def\s+(test_\w*)", flags=re.MULTILINE)


@dataclass
class Collected:
    """The items of this process: cases and names of tests for each file, and the files that skip themselves."""

    cases: Counter[str] = field(default_factory=Counter)
    """Items by file; a test with a table counts once for each row."""
    names: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Names of test functions by file."""
    skipped: set[str] = field(default_factory=set)
    ignored: list[str] = field(default_factory=list)
    """`collect_ignore` of conftest.py: files and folders that need a package which is not installed."""

    def add(self, item: pytest.Item) -> None:
        file = item.nodeid.partition("::")[0]
        self.cases[file] += rows_of(item)
        self.names[file].add(getattr(item, "originalname", item.name))

    def lost(self, file: str, text: str) -> list[str]:
        """What this file holds and pytest did not collect."""
        if file in self.skipped or any(file == each or file.startswith(f"{each}/") for each in self.ignored):
            return []
        if file.endswith(".md"):
            blocks = code_blocks(text)
            return [f"{file}: {blocks - self.cases[file]} of {blocks} code blocks"] if self.cases[file] < blocks else []
        known = self.names[file]
        lost = [f"{file}::{name}" for name in sorted(defined_tests(text, known) - known)]
        return lost + ([f"{file}: its doctests"] if has_doctests(text) and not self.cases[file] else [])


COLLECTED = Collected()


def defined_tests(text: str, known: Container[str] = ()) -> set[str]:
    """The names of the test functions in a module and in its classes. Empty if `known` has all of them.

    Parsing every file takes seconds, so a file is parsed only if the text has a name that is not known. Such a name may
    also be in a string, or inside a function.
    """
    if all(name in known for name in _DEFINED.findall(text)):
        return set()
    tree = ast.parse(text)
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    return {
        node.name
        for body in bodies
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def has_doctests(text: str) -> bool:
    return re.search(r"^\s*>>> ", text, flags=re.MULTILINE) is not None


def code_blocks(text: str) -> int:
    return len(re.findall(r"^```python$", text, flags=re.MULTILINE))


def files_below(places: Iterable[Path]) -> list[str]:
    """All modules and pages below these folders, or named by them, relative to the repository."""
    paths = {
        path
        for place in places
        for path in ([place] if place.is_file() else [*place.rglob("*.py"), *place.rglob("*.md")])
    }
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)
