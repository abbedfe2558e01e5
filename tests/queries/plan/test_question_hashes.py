"""The hash of a question never changes: a ledger finds the stored answer of a repeated question by it.

`question_hashes.json` has the questions of docs/sql.md as they were hashed on 2026-11-19. A renamed function or operator,
a new field in a form, or another order of its parts changes hashes: an old ledger then charges for a second answer to a
question that it has answered. A new aggregate needs a line in the file; no line of it may change.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deniable.queries.plan.question import FUNCTIONS
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.sql.sql_reader import parse

STORED: dict[str, str] = json.loads(Path(__file__).with_name("question_hashes.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", STORED)
def test_a_question_has_the_hash_that_ledgers_store(text: str) -> None:
    assert parse(text, EXAMPLE).hash == STORED[text]


def test_every_aggregate_has_a_stored_hash() -> None:
    assert {each.function for text in STORED for each in parse(text, EXAMPLE).measures} == set(FUNCTIONS)
