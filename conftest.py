"""Runs the code blocks of README.md and docs/ as tests, so that the pages cannot say what is not so.

Each page is one namespace, read from top to bottom: ```python blocks are executed, and blocks that begin with >>> are
compared with what they print. ```console, ```text and other blocks are for people only.
"""

from __future__ import annotations

import doctest

import pytest
from sybil import Sybil
from sybil.integration.pytest import SybilItem
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

pytest_collect_file = Sybil(
    parsers=[
        PythonCodeBlockParser(doctest_optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE),
        SkipParser(),
    ],
    patterns=["*.md"],
).pytest()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The blocks of a page share a namespace, so one worker must run them all, in order.
    for item in items:
        if isinstance(item, SybilItem):
            item.add_marker(pytest.mark.xdist_group(str(item.path)))
