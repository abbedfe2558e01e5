"""No test gets lost: pytest collects every test function, doctest and code block that the files hold."""

from __future__ import annotations

from collections import Counter, defaultdict
from importlib.util import find_spec

import pytest

from tests import collection
from tests.collection import COLLECTED, ROOT, Collected, files_below

# At least this many cases in each place; a row of a table (tests/table.py) is a case. Raise it as the suite grows: a list
# of cases that became short, such as a pattern that matches fewer files, loses no function.
LEAST = {"tests": 21_000, "src": 400, "docs": 1_400, "README.md": 13}

# In the name of the test, so that .ci/run runs it in both of its environments: each collects other files.
INSTALLED = "+".join(name for name in ("torch", "pyspark") if find_spec(name)) or "neither torch nor pyspark"


@pytest.mark.parametrize("installed", [INSTALLED])
def test_no_test_got_lost(pytestconfig: pytest.Config, installed: str) -> None:
    """A run of a part of the suite checks the files of that part."""
    places = [place for place in pytestconfig.args if "::" not in place]
    files = files_below(pytestconfig.invocation_params.dir / place for place in places)
    lost = [line for file in files for line in COLLECTED.lost(file, (ROOT / file).read_text(encoding="utf-8"))]
    assert lost == []
    if places == pytestconfig.getini("testpaths"):
        found = Counter[str]()
        for file, cases in COLLECTED.cases.items():
            found[file.partition("/")[0]] += cases
        assert {place: found[place] for place in LEAST if found[place] < LEAST[place]} == {}


MODULE = '''
"""A module.

>>> 1 + 1
2
"""
def test_a(): ...
def helper(): ...
class TestMore:
    def test_b(self): ...
'''
PAGE = "```python\nx = 1\n```\n\n```console\n$ ls\n```\n\n```python\n>>> x\n1\n```\n"


def test_a_file_that_pytest_does_not_see_is_reported_by_every_test_in_it() -> None:
    lost = ["tests/cases.py::test_a", "tests/cases.py::test_b", "tests/cases.py: its doctests"]
    assert Collected().lost("tests/cases.py", MODULE) == lost
    assert Collected().lost("docs/page.md", PAGE) == ["docs/page.md: 2 of 2 code blocks"]


def test_one_test_that_is_not_collected_is_reported() -> None:
    seen = Collected(
        cases=Counter({"tests/test_x.py": 5, "docs/page.md": 1}),
        names=defaultdict(set, {"tests/test_x.py": {"test_a"}}),
    )
    assert seen.lost("tests/test_x.py", MODULE) == ["tests/test_x.py::test_b"]
    assert seen.lost("docs/page.md", PAGE) == ["docs/page.md: 1 of 2 code blocks"]


def test_what_needs_a_package_that_is_not_installed_is_not_lost() -> None:
    seen = Collected(skipped={"tests/test_x.py"}, ignored=["src/deniable/learn/torch", "docs/learn.md"])
    assert seen.lost("tests/test_x.py", MODULE) == []
    assert seen.lost("src/deniable/learn/torch/trainer.py", MODULE) == []
    assert seen.lost("docs/learn.md", PAGE) == []
    assert seen.lost("src/deniable/learn/torch_words.py", MODULE) != []


def test_a_name_in_a_string_is_not_a_test() -> None:
    """A file is parsed only if its text has names that were not collected; what is parsed counts, not the text."""
    text = f"MODULE = {MODULE!r}\nTEXT = '''\ndef test_z(): ...\n'''\nasync def test_y(): ...\n"
    assert collection.defined_tests(text) == {"test_y"}
    assert collection.defined_tests(text, {"test_y"}) == {"test_y"}
    assert collection.defined_tests(MODULE, {"test_a", "test_b"}) == set()


def test_this_run_was_counted() -> None:
    """Every row of a table counts."""
    assert COLLECTED.cases["tests/test_collection.py"] == 6
