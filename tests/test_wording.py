"""The file of words: it belongs to tests that are there, and a wrong fact or a wrong word fails."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from deniable.errors import InvalidParameter, QuestionRefused
from deniable.units import Unit
from tests import wording
from tests.wording import worded

ROOT = Path(__file__).parents[1]


def _using(path: Path) -> set[str]:
    """The tests of a file, as "file::function" or "file::Class::function"."""
    name = path.relative_to(ROOT).as_posix()
    found = set()
    for each in ast.parse(path.read_text()).body:
        if isinstance(each, ast.FunctionDef) and each.name.startswith("test"):
            found.add(f"{name}::{each.name}")
        if isinstance(each, ast.ClassDef):
            found |= {f"{name}::{each.name}::{one.name}" for one in each.body if isinstance(one, ast.FunctionDef)}
    return found


def test_the_file_has_words_of_tests_that_are_there_in_order() -> None:
    words = wording.read()
    assert wording.FILE.read_text() == wording.written(words)
    by_file: dict[str, set[str]] = {}
    for test, said in words.items():
        by_file.setdefault(test.partition("::")[0], set()).add(test.partition(" #")[0])
        assert said == sorted(set(said))
        assert said, test
    for file, tests in by_file.items():
        assert "worded(" in (ROOT / file).read_text(), file
        there = _using(ROOT / file)
        assert tests <= there, sorted(tests - there)


def test_the_file_has_no_words_of_places_that_are_gone() -> None:
    """A second error in a test is its place #2, and the words of the first move to #1: the old lines stayed."""
    errors = {
        (path.relative_to(ROOT).as_posix(), node.name): len(
            {
                each.lineno
                for each in ast.walk(node)
                if isinstance(each, ast.Call) and ast.unparse(each.func) == "worded"
            }
        )
        for path in (ROOT / file for file in sorted({test.partition("::")[0] for test in wording.read()}))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
    }
    gone = []
    for place in wording.read():
        test, _, number = place.partition(" #")
        file, _, name = test.partition("::")
        several = errors[file, name.rpartition(":")[2]]
        if (several == 1 and number) or (several > 1 and not 1 <= int(number or 0) <= several):
            gone.append(place)
    assert gone == []


def test_an_error_with_the_right_facts_and_words() -> None:
    with worded(InvalidParameter, parameter="rows", asked=0) as caught:
        Unit.person("patient_id", rows=0)
    assert caught.value.args


def test_a_wrong_fact_fails() -> None:
    with pytest.raises(AssertionError, match="rows"), worded(InvalidParameter, parameter="columns"):
        Unit.person("patient_id", rows=0)
    with pytest.raises(InvalidParameter), worded(QuestionRefused):
        Unit.person("patient_id", rows=0)


def test_words_that_the_file_does_not_have_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DENIABLE_WORDING", raising=False)
    with pytest.raises(AssertionError, match="review them"), worded(InvalidParameter):
        raise InvalidParameter("rows", 0, "is said in words that nobody reviewed")


def test_each_place_of_a_test_has_its_own_words() -> None:
    with worded(InvalidParameter, parameter="rows"):
        Unit.person("patient_id", rows=0)
    with worded(InvalidParameter, parameter="rows"):
        Unit.person("patient_id", rows=-1)
    here = f"{Path(__file__).relative_to(ROOT).as_posix()}::test_each_place_of_a_test_has_its_own_words"
    words = wording.read()
    assert [len(words[f"{here} #{place}"]) for place in (1, 2)] == [1, 1]
    assert words[f"{here} #1"] != words[f"{here} #2"]


def test_what_differs_from_run_to_run_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    assert wording.plain(f"{str(file)!r} is empty") == "'<folder>/ledger' is empty"
    assert wording.plain("a " + "0f" * 32) == "a <hash>"
