"""Runs the code blocks of README.md and docs/ as tests, so that the pages cannot say what is not so.

Each page is one namespace, read from top to bottom: ```python blocks are executed, and blocks that begin with >>> are
compared with what they print. ```console, ```text and other blocks are for people only. With several workers, a page
must stay with one of them: pytest -n 2 --dist loadfile.
"""

from __future__ import annotations

import doctest
import importlib.util

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

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
    collect_ignore += ["src/deniable/learn/torch", "docs/learn.md", "tests/learn/runs.py", "tests/learn/zoo.py"]
