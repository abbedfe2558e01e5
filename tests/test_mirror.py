"""Tests mirror the rooms: where the test of a file is, whoever knows the file knows."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import deniable

SOURCE = Path(deniable.__file__).parent
TESTS = Path(__file__).parent

# Folders of tests that cross rooms, or test what is beside the source, and why.
CROSSING = {
    "docs": "pages and pictures",
    "examples": "the course and the tables of examples/",
    "facts": "numbers and theorems of the sources, reached by the public API",
    "lectures": "every item of five courses",
    "redteam": "attacks on a whole session or server",
}


def rooms() -> set[Path]:
    """The packages of the source, without migrations: stores that migrate are tested as stores."""
    found = {file.parent.relative_to(SOURCE) for file in SOURCE.rglob("__init__.py")}
    return {room for room in found if "migrations" not in room.parts}


def named_tests() -> list[Path]:
    return sorted(file.relative_to(TESTS) for file in TESTS.rglob("test_*.py"))


def test_every_room_has_a_folder_of_tests() -> None:
    """cli and client had none: their tests lay beside the folders, and among those of the server."""
    assert len(rooms()) > 35
    tested = {file.parent for file in named_tests()}
    assert {room.as_posix() for room in rooms() - tested} == set()


def test_every_folder_of_tests_is_a_room_or_crosses_rooms() -> None:
    folders = {file.parent for file in named_tests()} - rooms()
    assert {folder.parts[0] for folder in folders} <= set(CROSSING)
    assert set(CROSSING) == {folder.parts[0] for folder in folders}, "a folder that is gone is taken off the list"


def test_a_test_named_after_a_file_is_where_that_file_is() -> None:
    """tests/learn/test_refusals.py was about the trainer; queries/plan/refusals.py is something else."""
    homes = defaultdict(set)
    for file in SOURCE.rglob("*.py"):
        homes[f"test_{file.name}"].add(file.parent.relative_to(SOURCE))
    named = [file for file in named_tests() if file.name in homes and file.parts[0] not in CROSSING]
    assert len(named) > 120
    assert [file.as_posix() for file in named if file.parent not in homes[file.name]] == []
