"""The cases of the red team: a code, what is tried, and what must be true whatever comes of it.

A test says which case it is with `@case(code, tried, holds)`. Cases whose test stands beside the code that it attacks are
listed in `tests.redteam.elsewhere`, by the names of those tests; they are run with the others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

GROUPS = {
    "B": "Budget and ledger",
    "E": "Errors",
    "Q": "Query surface",
    "T": "Side channels",
    "A": "Auth and audit",
    "N": "Noise, audited end to end",
    "W": "Work of one person, stores and separation",
    "S": "Stopping the service for others",
}
"""The first letter of a code says which group a case belongs to."""


@dataclass(frozen=True, slots=True)
class Case:
    """One attack. `tests` are "path::name", without parameters."""

    code: str
    tried: str
    holds: str
    tests: tuple[str, ...]

    @property
    def group(self) -> str:
        return GROUPS[self.code[0]]

    @property
    def order(self) -> tuple[int, int, str]:
        """By group, then by number, then by the letter behind it."""
        digits = "".join(each for each in self.code[1:] if each.isdigit())
        return list(GROUPS).index(self.code[0]), int(digits), self.code


def case(code: str, tried: str, holds: str) -> Callable[[Any], Any]:
    """Marks a test as a case of the red team."""
    assert code[0] in GROUPS
    return pytest.mark.case(code, tried, holds)


def here() -> Iterator[Case]:
    """The cases whose tests stand in this folder."""
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.redteam.{file.stem}")
        for name, thing in vars(module).items():
            marks = [mark for mark in getattr(thing, "pytestmark", ()) if mark.name == "case"]
            if name.startswith("test_") and marks:
                yield Case(*marks[0].args, (f"{file.relative_to(ROOT).as_posix()}::{name}",))


def every() -> list[Case]:
    """All cases, in the order of the table."""
    from tests.redteam.elsewhere import ELSEWHERE

    return sorted([*here(), *ELSEWHERE], key=lambda each: each.order)
